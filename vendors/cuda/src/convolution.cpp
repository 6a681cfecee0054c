// Convolutions of one to three dimensions and their gradients by cuDNN, channels first or last. A transposed convolution
// is the gradient of another one by its image, so there are three products: `forward`, `image`, `filter`.
//
// An algorithm is chosen by cuDNN's heuristics once for each shape. Winograd's and those by Fourier transforms are left
// out unless CAUSEWAY_NVIDIA_WINOGRAD=1: an Inf or NaN would spread over a whole tile, and small results lose bits to
// large neighbours.
#include <algorithm>
#include <array>
#include <climits>
#include <mutex>

#include "causeway/operators.hpp"
#include "dnn.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace cuda {

namespace {

using cw::Dtype, cw::List, cw::Tensor;
template <class T>
using optional = std::optional<T>;

constexpr int kMostDims = 5;
constexpr size_t kMostWorkspace = size_t{1} << 30;

int data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::float16:
      return dnn::kFloat16;
    case Dtype::bfloat16:
      return dnn::kBfloat16;
    case Dtype::float64:
      return dnn::kFloat64;
    default:
      return dnn::kFloat32;
  }
}

// A tensor as cuDNN sees it: four dimensions at least (a line is an image of one row), strides of one of the formats.
struct Plane {
  char* data = nullptr;
  int dims = 0;
  int shape[kMostDims] = {}, strides[kMostDims] = {};
  bool first = true, last = true;  // whether its memory is dense with its channels first, last

  // False: too large for cuDNN's 32-bit numbers, or empty.
  bool read(Tensor t) {
    data = t.data<char>();
    dims = static_cast<int>(std::max<int64_t>(t.dim(), 4));
    if (t.numel() <= 0 || t.numel() > INT_MAX) return false;
    int64_t first_step = 1, last_step = t.size(1);
    for (int64_t d = t.dim() - 1; d >= 0; --d) {
      const int64_t to = t.dim() == 3 && d == 2 ? 3 : d, size = t.size(d), stride = t.stride(d);
      if (stride > INT_MAX) return false;
      shape[to] = static_cast<int>(size), strides[to] = static_cast<int>(stride);
      if (size != 1 && stride != first_step) first = false;
      first_step *= size;
      if (size != 1 && stride != (d == 1 ? 1 : last_step)) last = false;
      if (d != 1) last_step *= size;
    }
    if (t.dim() == 3) shape[2] = 1, strides[2] = strides[3] * shape[3];
    return true;
  }

  bool is_dense(bool channels_last) const { return channels_last ? last : first; }

  // The strides that cuDNN is told: of a dimension of one element they may be anything.
  void densify(bool channels_last) {
    int step = channels_last ? shape[1] : 1;
    for (int d = dims - 1; d >= 0; --d) {
      if (channels_last && d == 1) continue;
      strides[d] = step;
      step *= shape[d];
    }
    if (channels_last) strides[1] = 1;
  }
};

template <class T, int (*Dnn::*create)(T*), int (*Dnn::*destroy)(T)>
struct Descriptor {
  T it = nullptr;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (it) (cudnn.*destroy)(it);
  }
  cw_status make() { return check_dnn((cudnn.*create)(&it), "cudnnCreate...Descriptor"); }
};
using TensorIs = Descriptor<TensorDescriptor, &Dnn::tensor_create, &Dnn::tensor_destroy>;
using FilterIs = Descriptor<FilterDescriptor, &Dnn::filter_create, &Dnn::filter_destroy>;
using ConvolutionIs = Descriptor<ConvolutionDescriptor, &Dnn::convolution_create, &Dnn::convolution_destroy>;

cw_status describe(TensorIs& to, const Plane& p, int type) {
  TRY(to.make());
  return check_dnn(cudnn.tensor_set(to.it, type, p.dims, p.shape, p.strides), "cudnnSetTensorNdDescriptor");
}

// A vector of a channel's numbers, to go with `p`.
cw_status describe_channels(TensorIs& to, int64_t channels, int dims, int type) {
  Plane p;
  p.dims = dims;
  std::fill(p.shape, p.shape + dims, 1);
  p.shape[1] = static_cast<int>(channels);
  p.densify(false);
  return describe(to, p, type);
}

// Which of the three products, and the algorithms that keep each number to its own sum, plainest first.
enum Kind { kForward, kImage, kFilter };
bool is_plain(Kind kind, int algorithm) {
  if (kind == kForward) return algorithm <= 3;  // implicit, precomputed and explicit product, direct
  if (kind == kImage) return algorithm <= 1;
  return algorithm == 0 || algorithm == 1 || algorithm == 3;
}

struct Convolution {
  Plane image, filter, result;  // of the convolution that is not transposed
  int spatial = 2, groups = 1;
  int padding[3], stride[3], dilation[3];
  Dtype dtype = Dtype::other;
  bool channels_last = false, deterministic = false, tf32 = false;

  cw_stream_t* stream = nullptr;
  cw_stream handle = nullptr;
  DnnStream* own = nullptr;
  TensorIs image_is, result_is;
  FilterIs filter_is;
  ConvolutionIs is;
  double one[1] = {1}, zero[1] = {0};
  float one_f = 1, zero_f = 0;

  const void* alpha() const { return dtype == Dtype::float64 ? static_cast<const void*>(one) : &one_f; }
  const void* beta() const { return dtype == Dtype::float64 ? static_cast<const void*>(zero) : &zero_f; }

  // `lines`: a convolution of one dimension, here one of images of one row.
  void read_numbers(bool lines, List<int64_t> strides, List<int64_t> paddings, List<int64_t> dilations,
                    int64_t group_count) {
    groups = static_cast<int>(group_count);
    for (int d = 0; d < spatial; ++d) {
      const auto value = [&](List<int64_t> list, int none) {
        if (list.empty() || (lines && d == 0)) return none;
        return static_cast<int>(list[list.size() == 1 || lines ? 0 : static_cast<size_t>(d)]);
      };
      padding[d] = value(paddings, 0), stride[d] = value(strides, 1), dilation[d] = value(dilations, 1);
    }
  }

  // cuDNN derives the result's size from the image's; an output_padding beyond the stride has no such image.
  bool fits() const {
    for (int d = 0; d < spatial; ++d) {
      const int64_t reach = int64_t{dilation[d]} * (filter.shape[d + 2] - 1) + 1;
      const int64_t room = int64_t{image.shape[d + 2]} + 2 * int64_t{padding[d]} - reach;
      if (padding[d] < 0 || room < 0 || room / stride[d] + 1 != result.shape[d + 2]) return false;
    }
    return true;
  }

  std::vector<int64_t> key(Kind kind) const {
    std::vector<int64_t> key = {kind, static_cast<int64_t>(dtype), groups, channels_last, deterministic, tf32};
    for (const Plane* p : {&image, &filter, &result}) key.insert(key.end(), p->shape, p->shape + p->dims);
    for (const int* list : {padding, stride, dilation}) key.insert(key.end(), list, list + spatial);
    return key;
  }

  // Describe everything; the planes are dense in the format.
  cw_status open() {
    const int type = data_type(dtype);
    for (Plane* p : {&image, &filter, &result}) p->densify(channels_last);
    TRY(describe(image_is, image, type));
    TRY(describe(result_is, result, type));
    TRY(filter_is.make());
    TRY(check_dnn(cudnn.filter_set(filter_is.it, type, channels_last ? dnn::kChannelsLast : dnn::kChannelsFirst,
                                   filter.dims, filter.shape),
                  "cudnnSetFilterNdDescriptor"));
    TRY(is.make());
    const int compute = dtype == Dtype::float64 ? dnn::kFloat64 : dnn::kFloat32;
    TRY(check_dnn(cudnn.convolution_set(is.it, spatial, padding, stride, dilation, dnn::kCrossCorrelation, compute),
                  "cudnnSetConvolutionNdDescriptor"));
    TRY(check_dnn(cudnn.convolution_groups(is.it, groups), "cudnnSetConvolutionGroupCount"));
    const bool half = dtype == Dtype::float16 || dtype == Dtype::bfloat16;
    const int math = half ? dnn::kTensorMath : dtype == Dtype::float32 && !tf32 ? dnn::kFmaMath : dnn::kDefaultMath;
    return check_dnn(cudnn.convolution_math(is.it, math), "cudnnSetConvolutionMathType");
  }

  int find(Kind kind, int room, int* count, dnn::Found* found) const {
    if (kind == kForward)
      return cudnn.forward_find(own->handle, image_is.it, filter_is.it, is.it, result_is.it, room, count, found);
    if (kind == kImage)
      return cudnn.image_find(own->handle, filter_is.it, result_is.it, is.it, image_is.it, room, count, found);
    return cudnn.filter_find(own->handle, image_is.it, result_is.it, is.it, filter_is.it, room, count, found);
  }
  int workspace(Kind kind, int algorithm, size_t* bytes) const {
    if (kind == kForward)
      return cudnn.forward_bytes(own->handle, image_is.it, filter_is.it, is.it, result_is.it, algorithm, bytes);
    if (kind == kImage)
      return cudnn.image_bytes(own->handle, filter_is.it, result_is.it, is.it, image_is.it, algorithm, bytes);
    return cudnn.filter_bytes(own->handle, image_is.it, result_is.it, is.it, filter_is.it, algorithm, bytes);
  }

  // The first of cuDNN's proposals that is allowed; the plain ones where it has none.
  DnnStream::Chosen choose(Kind kind, size_t most_bytes) const {
    static const bool winograd = setting("winograd") == "1";
    dnn::Found found[16] = {};
    int count = 0;
    if (find(kind, 10, &count, found) != dnn::kSuccess) count = 0;
    for (const int plain : {1, 0})  // the gradients' 0 adds in any order
      if (!(deterministic && plain == 0 && kind != kForward)) {
        found[count] = {};
        found[count].algorithm = plain, found[count].determinism = dnn::kDeterministic;
        ++count;
      }
    for (int i = 0; i < count; ++i) {
      const dnn::Found& f = found[i];
      if (f.status != dnn::kSuccess || (deterministic && f.determinism != dnn::kDeterministic)) continue;
      if (!winograd && !is_plain(kind, f.algorithm)) continue;
      DnnStream::Chosen chosen{f.algorithm, 0};
      if (workspace(kind, f.algorithm, &chosen.bytes) == dnn::kSuccess && chosen.bytes <= most_bytes) return chosen;
    }
    return {};
  }

  // `adds`: to what the result has already.
  cw_status run(Kind kind, bool adds = false) {
    DnnStream::Chosen chosen;
    {
      std::lock_guard<std::mutex> lock(stream->libraries);
      const auto known = own->chosen.find(key(kind));
      if (known != own->chosen.end())
        chosen = known->second;
      else
        own->chosen[key(kind)] = chosen = choose(kind, kMostWorkspace);
    }
    if (chosen.algorithm < 0) return fail(CW_UNSUPPORTED, "cuDNN has no algorithm for this convolution");
    void* space = nullptr;  // the core's allocator is not asked with a mutex of ours held
    const cw_status lent = chosen.bytes ? host.scratch(stream->device->index, handle, chosen.bytes, &space) : CW_OK;
    if (lent && lent != CW_OUT_OF_MEMORY) return lent;
    std::lock_guard<std::mutex> lock(stream->libraries);
    if (lent) {  // slower, and without workspace
      chosen = choose(kind, 0);
      if (chosen.algorithm < 0) return lent;
    }
    int result = 0;
    const char* function = "cudnnConvolutionForward";
    if (kind == kForward) {
      result = cudnn.forward(own->handle, alpha(), image_is.it, image.data, filter_is.it, filter.data, is.it,
                             chosen.algorithm, space, chosen.bytes, adds ? alpha() : beta(), result_is.it,
                             this->result.data);
    } else if (kind == kImage) {
      function = "cudnnConvolutionBackwardData";
      result = cudnn.image(own->handle, alpha(), filter_is.it, filter.data, result_is.it, this->result.data, is.it,
                           chosen.algorithm, space, chosen.bytes, adds ? alpha() : beta(), image_is.it, image.data);
    } else {
      function = "cudnnConvolutionBackwardFilter";
      result = cudnn.filter(own->handle, alpha(), image_is.it, image.data, result_is.it, this->result.data, is.it,
                            chosen.algorithm, space, chosen.bytes, adds ? alpha() : beta(), filter_is.it, filter.data);
    }
    if (result / 1000 * 1000 == dnn::kNotSupported) own->chosen[key(kind)] = {};
    return check_dnn(result, function);
  }

  // A copy of `p` in the format, where its memory is in the other one, not dense or expanded: what is expanded is added,
  // as a bias is, to nothing.
  cw_status dense(Plane& p, int64_t itemsize) {
    if (p.is_dense(channels_last)) return CW_OK;
    Plane made = p;
    made.densify(channels_last);
    Plane source = p;
    uint64_t elements = 1;
    bool expanded = false;
    for (int d = 0; d < p.dims; ++d) {
      elements *= static_cast<uint64_t>(p.shape[d]);
      if (p.shape[d] > 1 && p.strides[d] == 0) source.shape[d] = 1, expanded = true;
      if (source.shape[d] == 1) source.strides[d] = 1;
    }
    if (expanded) {  // of what is left, dense strides: a vector of the channels, or one number
      int64_t step = 1;
      for (int d = p.dims - 1; d >= 0; --d) {
        if (source.shape[d] == 1) source.strides[d] = static_cast<int>(step);
        if (source.shape[d] > 1 && source.strides[d] != step) return fail(CW_UNSUPPORTED, "an expanded tensor");
        step *= source.shape[d];
      }
    }
    void* space = nullptr;
    TRY(host.scratch(stream->device->index, handle, elements * static_cast<uint64_t>(itemsize), &space));
    made.data = static_cast<char*>(space);
    TensorIs from, to;
    TRY(describe(from, source, data_type(dtype)));
    TRY(describe(to, made, data_type(dtype)));
    std::lock_guard<std::mutex> lock(stream->libraries);
    const auto copy = expanded ? cudnn.add : cudnn.transform;
    TRY(check_dnn(copy(own->handle, alpha(), from.it, p.data, beta(), to.it, made.data),
                  expanded ? "cudnnAddTensor" : "cudnnTransformTensor"));
    return p = made, CW_OK;
  }

  cw_status bind(const char* name, int32_t index, cw_stream given) {
    Device* device = nullptr;
    handle = given;
    TRY(find_device(name, index, &device));
    TRY(find_stream(name, *device, given, &stream));
    deterministic = torch_asks("torch.deterministic", "1");
    tf32 = dtype == Dtype::float32 && torch_asks("torch.conv_precision", "tf32");
    std::lock_guard<std::mutex> lock(stream->libraries);
    return dnn_of(*stream, &own);
  }
};

bool is_supported(Tensor a, Tensor b, Tensor c) {
  return a.dim() >= 3 && a.dim() <= kMostDims && b.dim() == a.dim() && c.dim() == a.dim() && a.dtype() == b.dtype() &&
         a.dtype() == c.dtype();
}

cw_status forward(Tensor out, Tensor input, Tensor weight, optional<Tensor> bias, List<int64_t> stride,
                  List<int64_t> padding, List<int64_t> dilation, bool transposed, List<int64_t>, int64_t groups,
                  cw_stream handle) {
  if (!is_supported(out, input, weight) || (bias && (bias->dtype() != out.dtype() || !bias->is_contiguous())))
    return CW_UNSUPPORTED;
  Convolution c;
  c.dtype = out.dtype();
  Plane &in = transposed ? c.result : c.image, &to = transposed ? c.image : c.result;
  if (!in.read(input) || !to.read(out) || !c.filter.read(weight)) return CW_UNSUPPORTED;
  c.spatial = in.dims - 2;
  c.read_numbers(out.dim() == 3, stride, padding, dilation, groups);
  c.channels_last = !to.first;
  if (!to.is_dense(c.channels_last) || !c.fits()) return CW_UNSUPPORTED;
  TRY(c.bind("aten::convolution", out.device(), handle));
  TRY(c.dense(in, out.itemsize()));
  TRY(c.dense(c.filter, out.itemsize()));
  TRY(c.open());
  if (bias) {  // first, so that the sum is rounded once
    TensorIs vector;
    TRY(describe_channels(vector, out.size(1), to.dims, data_type(c.dtype)));
    std::lock_guard<std::mutex> lock(c.stream->libraries);
    TRY(check_dnn(cudnn.add(c.own->handle, c.alpha(), vector.it, bias->data<char>(), c.beta(),
                            transposed ? c.image_is.it : c.result_is.it, to.data),
                  "cudnnAddTensor"));
  }
  return c.run(transposed ? kImage : kForward, bias.has_value());
}

cw_status backward(optional<Tensor> to_input, optional<Tensor> to_weight, optional<Tensor> to_bias, Tensor grad,
                   Tensor input, Tensor weight, optional<List<int64_t>>, List<int64_t> stride, List<int64_t> padding,
                   List<int64_t> dilation, bool transposed, List<int64_t>, int64_t groups, List<bool>,
                   cw_stream handle) {
  if (!is_supported(grad, input, weight)) return CW_UNSUPPORTED;
  Plane g, in, w, in_out, w_out;
  if (!g.read(grad) || !in.read(input) || !w.read(weight)) return CW_UNSUPPORTED;
  if ((to_input && (to_input->dtype() != grad.dtype() || !in_out.read(*to_input))) ||
      (to_weight && (to_weight->dtype() != grad.dtype() || !w_out.read(*to_weight))) ||
      (to_bias && (to_bias->dtype() != grad.dtype() || !to_bias->is_contiguous())))
    return CW_UNSUPPORTED;
  const bool last = (to_input && !in_out.first) || (to_weight && !w_out.first);
  if ((to_input && !in_out.is_dense(last)) || (to_weight && !w_out.is_dense(last))) return CW_UNSUPPORTED;
  Convolution c;
  c.dtype = grad.dtype();
  c.channels_last = last;
  c.spatial = g.dims - 2;
  c.read_numbers(grad.dim() == 3, stride, padding, dilation, groups);
  c.image = transposed ? g : in, c.result = transposed ? in : g, c.filter = w;
  if (!c.fits()) return CW_UNSUPPORTED;
  TRY(c.bind("aten::convolution_backward", grad.device(), handle));
  TRY(c.dense(g, grad.itemsize()));
  if (to_input) TRY(c.dense(w, grad.itemsize()));
  if (to_weight) TRY(c.dense(in, grad.itemsize()));
  c.image = transposed ? g : in, c.result = transposed ? in : g, c.filter = w;
  TRY(c.open());
  Plane &toward_input = transposed ? c.result : c.image, &of_grad = transposed ? c.image : c.result;
  if (to_input) {
    toward_input.data = in_out.data;
    TRY(c.run(transposed ? kForward : kImage));
    toward_input.data = in.data;
  }
  if (to_weight) {
    c.filter.data = w_out.data;
    TRY(c.run(kFilter));
  }
  if (!to_bias) return CW_OK;
  TensorIs vector;
  TRY(describe_channels(vector, grad.size(1), g.dims, data_type(c.dtype)));
  std::lock_guard<std::mutex> lock(c.stream->libraries);
  return check_dnn(cudnn.bias(c.own->handle, c.alpha(), transposed ? c.image_is.it : c.result_is.it, of_grad.data,
                              c.beta(), vector.it, to_bias->data<char>()),
                   "cudnnConvolutionBackwardBias");
}

constexpr cw::Needs kConvolutions = {CW_NEEDS_ELEMENTS, CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_FLOAT64};
// A gradient that is not asked for may be the first output: no question of elements.
constexpr cw::Needs kGradients = {0, kConvolutions.of};

constexpr cw::Entry kTable[] = {
    cw::op<cw::aten::convolution_overrideable, forward>(kConvolutions),
    cw::op<cw::aten::convolution_backward, backward>(kGradients),
};

}  // namespace

cw_status find_convolution(const char* name, cw_op* out) {
  const cw_status status = cw::find(kTable, name, out);
  if (status != CW_OK) return status;
  if (const char* words = open_dnn(); *words) return fail(CW_UNSUPPORTED, "cuDNN: %s", words);
  return CW_OK;
}

}  // namespace cuda
