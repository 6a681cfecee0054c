// Convolutions of one to three dimensions and their gradients by cuDNN, channels first or last. A transposed convolution
// is the gradient of another one by its image, so there are three products: `forward`, `image`, `filter`.
//
// An engine is chosen by cuDNN's heuristics once for each shape, an algorithm of its older interface where none is allowed.
// Addresses are at multiples of 16 bytes, or a copy is: a kernel that reads pieces ends the context elsewhere. Winograd's and those by Fourier transforms are left
// out unless CAUSEWAY_NVIDIA_WINOGRAD=1: an Inf or NaN would spread over a whole tile, and small results lose bits to
// large neighbours.
#include <algorithm>
#include <array>
#include <climits>
#include <memory>
#include <mutex>
#include <utility>

#include "causeway/operators.hpp"
#include "dnn.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "program.hpp"
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

bool is_aligned(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

// A descriptor of a graph, gone with it. The first failure stays, and what follows does nothing.
struct GraphPart {
  GraphDescriptor it = nullptr;
  int result = dnn::kSuccess;
  explicit GraphPart(int kind) { result = cudnn.make(kind, &it); }
  GraphPart(const GraphPart&) = delete;
  ~GraphPart() {
    if (it) cudnn.unmake(it);
  }
  GraphPart& set(int what, int type, int64_t count, const void* values) {
    if (result == dnn::kSuccess) result = cudnn.set(it, what, type, count, values);
    return *this;
  }
  GraphPart& set(int what, int type, const int* values, int count) {
    int64_t wide[kMostDims];
    std::copy(values, values + count, wide);
    return set(what, type, count, wide);
  }
  GraphPart& set(int what, const GraphPart& other) {
    if (result == dnn::kSuccess) result = other.result;
    return set(what, dnn::kDescriptorType, 1, &other.it);
  }
  bool finalize() {
    if (result == dnn::kSuccess) result = cudnn.finalize(it);
    return result == dnn::kSuccess;
  }
};

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
    const bool half = dtype == Dtype::float16 || dtype == Dtype::bfloat16;
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
      if (half && kind != kForward && f.algorithm != 1) continue;  // the others add parts of a sum in half precision
      DnnStream::Chosen chosen{f.algorithm, 0};
      if (workspace(kind, f.algorithm, &chosen.bytes) == dnn::kSuccess && chosen.bytes <= most_bytes) return chosen;
    }
    return {};
  }

  void describe_part(GraphPart& part, int64_t id, const Plane& p) const {
    const int64_t aligned = 16;
    const int type = data_type(dtype);
    part.set(dnn::kTensorType, dnn::kDataType, 1, &type).set(dnn::kTensorId, dnn::kInt64Type, 1, &id);
    part.set(dnn::kTensorAlignment, dnn::kInt64Type, 1, &aligned);
    part.set(dnn::kTensorShape, dnn::kInt64Type, p.shape, p.dims);
    part.set(dnn::kTensorStrides, dnn::kInt64Type, p.strides, p.dims).finalize();
  }

  // Whether every number keeps to its own sum, in the precision that is asked for.
  bool is_allowed(const GraphPart& config) const {
    static const bool winograd = setting("winograd") == "1";
    GraphPart engine(dnn::kEngine);
    int64_t count = 0;
    int notes[16] = {};
    if (engine.result || cudnn.get(config.it, dnn::kEngineOfConfig, dnn::kDescriptorType, 1, &count, &engine.it) ||
        cudnn.get(engine.it, dnn::kEngineNotes, dnn::kNoteType, 16, &count, notes))
      return false;
    for (int64_t i = 0; i < count && i < 16; ++i) {
      const int note = notes[i];
      if (note == dnn::kConvertsDown || note == dnn::kReducesInHalf) return false;
      if (note == dnn::kAnyOrder && deterministic) return false;
      if (note == dnn::kOnTensorCores && dtype == Dtype::float32 && !tf32) return false;
      if (!winograd && (note == dnn::kFourier || (note >= dnn::kWinograd && note <= dnn::kWinogradLast))) return false;
    }
    return true;
  }

  // The first engine of cuDNN's heuristics that is allowed; none: {}.
  DnnStream::Plan plan(Kind kind, bool adds) const {
    GraphPart x(dnn::kTensorIs), w(dnn::kTensorIs), y(dnn::kTensorIs), convolution(dnn::kConvolutionIs);
    describe_part(x, 1, image);
    describe_part(w, 2, filter);
    describe_part(y, 3, result);
    const int compute = dtype == Dtype::float64 ? dnn::kFloat64 : dnn::kFloat32, mode = dnn::kCrossCorrelation;
    const int64_t dims = spatial;
    convolution.set(dnn::kConvolutionCompute, dnn::kDataType, 1, &compute);
    convolution.set(dnn::kConvolutionMode, dnn::kConvolutionType, 1, &mode);
    convolution.set(dnn::kSpatialDims, dnn::kInt64Type, 1, &dims);
    convolution.set(dnn::kDilations, dnn::kInt64Type, dilation, spatial);
    convolution.set(dnn::kStrides, dnn::kInt64Type, stride, spatial);
    convolution.set(dnn::kPaddingsBefore, dnn::kInt64Type, padding, spatial);
    convolution.set(dnn::kPaddingsAfter, dnn::kInt64Type, padding, spatial).finalize();
    constexpr int kinds[] = {dnn::kForwardIs, dnn::kImageGradient, dnn::kFilterGradient};
    constexpr int alphas[] = {dnn::kForwardAlpha, dnn::kImageAlpha, dnn::kFilterAlpha};
    constexpr int xs[] = {dnn::kForwardX, dnn::kImageDx, dnn::kFilterX};
    constexpr int ws[] = {dnn::kForwardW, dnn::kImageW, dnn::kFilterDw};
    constexpr int ys[] = {dnn::kForwardY, dnn::kImageDy, dnn::kFilterDy};
    const int factor = dtype == Dtype::float64 ? dnn::kDoubleType : dnn::kFloatType;
    GraphPart operation(kinds[kind]), operations(dnn::kOperations);
    operation.set(alphas[kind], factor, 1, alpha()).set(alphas[kind] + 1, factor, 1, adds ? alpha() : beta());
    operation.set(alphas[kind] + 2, convolution).set(xs[kind], x).set(ws[kind], w).set(ys[kind], y).finalize();
    operations.set(dnn::kOperationsHandle, dnn::kHandleType, 1, &own->handle).set(dnn::kOperationsOf, operation);
    if (!operations.finalize()) return {};
    for (const int way : {dnn::kBestFirst, dnn::kAnyThatWorks}) {
      GraphPart heuristics(dnn::kHeuristics);
      heuristics.set(dnn::kHeuristicsOf, operations).set(dnn::kHeuristicsMode, dnn::kModeType, 1, &way);
      if (!heuristics.finalize()) continue;
      constexpr int kMost = 12;
      std::vector<std::unique_ptr<GraphPart>> configs;
      GraphDescriptor each[kMost];
      for (int i = 0; i < kMost; ++i) {
        configs.push_back(std::make_unique<GraphPart>(dnn::kEngineConfig));
        each[i] = configs.back()->it;
      }
      int64_t count = 0;
      if (cudnn.get(heuristics.it, dnn::kHeuristicsResults, dnn::kDescriptorType, kMost, &count, each)) continue;
      for (int64_t i = 0; i < count && i < kMost; ++i) {
        GraphPart& config = *configs[static_cast<size_t>(i)];
        if (config.result || !is_allowed(config)) continue;
        GraphPart made(dnn::kPlan);
        made.set(dnn::kPlanHandle, dnn::kHandleType, 1, &own->handle).set(dnn::kPlanConfig, config);
        int64_t bytes = 0, one = 0;
        if (!made.finalize() || cudnn.get(made.it, dnn::kPlanWorkspace, dnn::kInt64Type, 1, &one, &bytes)) continue;
        if (bytes < 0 || static_cast<size_t>(bytes) > kMostWorkspace) continue;
        return {std::exchange(made.it, nullptr), static_cast<size_t>(bytes)};
      }
    }
    return {};
  }

  // `adds`: to what the result has already. CW_UNSUPPORTED: by the older interface.
  cw_status run_plan(Kind kind, bool adds) {
    if (!cudnn.make) return CW_UNSUPPORTED;
    DnnStream::Plan chosen;
    {
      std::vector<int64_t> which = key(kind);
      which.push_back(adds);
      std::lock_guard<std::mutex> lock(stream->libraries);
      const auto known = own->plans.find(which);
      if (known != own->plans.end())
        chosen = known->second;
      else
        own->plans[which] = chosen = plan(kind, adds);
    }
    if (!chosen.it) return CW_UNSUPPORTED;
    void* space = nullptr;  // the core's allocator is not asked with a mutex of ours held
    if (chosen.bytes) {
      const cw_status lent = host.scratch(stream->device->index, handle, chosen.bytes, &space);
      if (lent) return lent == CW_OUT_OF_MEMORY ? CW_UNSUPPORTED : lent;
    }
    constexpr int64_t ids[] = {1, 2, 3};
    void* const pointers[] = {image.data, filter.data, this->result.data};
    std::lock_guard<std::mutex> lock(stream->libraries);
    GraphPart pack(dnn::kPointers);
    pack.set(dnn::kPointerIds, dnn::kInt64Type, 3, ids).set(dnn::kPointersOf, dnn::kPointerType, 3, pointers);
    pack.set(dnn::kPointersWorkspace, dnn::kPointerType, 1, &space);
    if (!pack.finalize()) return check_dnn(pack.result, "cudnnBackendFinalize");
    return check_dnn(cudnn.execute(own->handle, chosen.it, pack.it), "cudnnBackendExecute");
  }

  // `adds`: to what the result has already.
  cw_status run(Kind kind, bool adds = false) {
    // An image's gradient is rounded before it is added, so that sum is the older interface's.
    if (!(adds && kind == kImage))
      if (const cw_status status = run_plan(kind, adds); status != CW_UNSUPPORTED) return status;
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

  // A copy of all that `p` lies in, strides and all, where its address is no multiple of 16 bytes.
  cw_status aligned(Plane& p, int64_t itemsize) {
    if (is_aligned(p.data)) return CW_OK;
    uint64_t span = 1;
    for (int d = 0; d < p.dims; ++d)
      if (p.shape[d] > 1) span += static_cast<uint64_t>(p.shape[d] - 1) * static_cast<uint64_t>(p.strides[d]);
    span *= static_cast<uint64_t>(itemsize);
    void* space = nullptr;
    TRY(host.scratch(stream->device->index, handle, span, &space));
    TRY(check(cu.copy_within(address(space), address(p.data), span, stream->stream), symbols.copy_within));
    return p.data = static_cast<char*>(space), CW_OK;
  }

  // A copy of `p` in the format, where its memory is in the other one, not dense or expanded: what is expanded is added,
  // as a bias is, to nothing.
  cw_status dense(Plane& p, int64_t itemsize) {
    TRY(aligned(p, itemsize));
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

// A bias's gradient in half precision, which cuDNN has for some types alone: the sums of the channels, in float32 to the
// end and in a fixed order. Parts of them first, `last` with the channels last, then one thread a channel.
constexpr const char* kChannelSums = R"(
typedef unsigned short u16;
__device__ __forceinline__ float number(u16 v) {
#if BFLOAT
  return __int_as_float((int)((unsigned)v << 16));
#else
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
  return r;
#endif
}
extern "C" __global__ __launch_bounds__(256) void first(const u16* in, float* parts, int images, int channels, int plane) {
  __shared__ float cells[8];
  const int c = blockIdx.x, all = images * plane, step = gridDim.y * 256;
  float sum = 0;
  for (int i = blockIdx.y * 256 + threadIdx.x; i < all; i += step)
    sum += number(in[(long long)(i / plane * channels + c) * plane + i % plane]);
  for (int far = 16; far; far /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
  if (threadIdx.x % 32 == 0) cells[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 1; w < 8; ++w) sum += cells[w];
  parts[blockIdx.y * channels + c] = sum;
}
extern "C" __global__ __launch_bounds__(256) void last(const u16* in, float* parts, int images, int channels, int plane) {
  __shared__ float cells[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
  float sum = 0;
  if (c < channels) {
#pragma unroll 4
    for (int i = blockIdx.y * 8 + warp; i < images * plane; i += gridDim.y * 8)
      sum += number(in[(long long)i * channels + c]);
  }
  cells[warp][lane] = sum;
  __syncthreads();
  if (warp || c >= channels) return;
  for (int w = 1; w < 8; ++w) sum += cells[w][lane];
  parts[blockIdx.y * channels + c] = sum;
}
extern "C" __global__ __launch_bounds__(256) void finish(const float* parts, u16* out, int count, int channels) {
  const int c = blockIdx.x * 256 + threadIdx.x;
  if (c >= channels) return;
  float sum = 0;
  for (int p = 0; p < count; ++p) sum += parts[p * channels + c];
#if BFLOAT
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out[c]) : "f"(sum));
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out[c]) : "f"(sum));
#endif
}
)";

// `grad` is dense. CW_UNSUPPORTED where there is no compiler, or the GPU lacks the type or has no warps of 32.
cw_status sum_channels(const Convolution& c, const Plane& grad, bool channels_last, Tensor out) {
  if (c.stream->device->major < 8 || c.stream->device->warp != kWarp) return CW_UNSUPPORTED;
  if (const char* words = open_compiler(); *words) return fail(CW_UNSUPPORTED, "%s", words);
  const std::vector<std::string> options = {c.dtype == Dtype::bfloat16 ? "-DBFLOAT=1" : "-DBFLOAT=0"};
  const int32_t index = c.stream->device->index;
  Function part = nullptr, finish = nullptr;
  TRY(kernel_of(index, kChannelSums, options, channels_last ? "last" : "first", 0, &part));
  TRY(kernel_of(index, kChannelSums, options, "finish", 0, &finish));
  int images = grad.shape[0], channels = grad.shape[1], plane = 1;
  for (int d = 2; d < grad.dims; ++d) plane *= grad.shape[d];
  const int groups = channels_last ? (channels + 31) / 32 : channels;
  const int64_t most = int64_t{images} * plane / (channels_last ? 64 : 2048);  // elements or rows for a group
  int count = static_cast<int>(std::clamp<int64_t>(most, 1, std::max(1, 1024 / groups)));
  void* parts = nullptr;
  TRY(host.scratch(index, c.handle, sizeof(float) * static_cast<uint64_t>(count) * static_cast<uint64_t>(channels),
                   &parts));
  char *in = grad.data, *to = out.data<char>();
  void* first_arguments[] = {&in, &parts, &images, &channels, &plane};
  void* last_arguments[] = {&parts, &to, &count, &channels};
  TRY(check(cu.launch(part, static_cast<unsigned>(groups), static_cast<unsigned>(count), 1, 256, 1, 1, 0,
                      c.stream->stream, first_arguments, nullptr),
            symbols.launch));
  return check(cu.launch(finish, static_cast<unsigned>(channels + 255) / 256, 1, 1, 256, 1, 1, 0, c.stream->stream,
                         last_arguments, nullptr),
               symbols.launch);
}

bool is_supported(Tensor a, Tensor b, Tensor c) {
  return a.dim() >= 3 && a.dim() <= kMostDims && b.dim() == a.dim() && c.dim() == a.dim() && a.dtype() == b.dtype() &&
         a.dtype() == c.dtype();
}

cw_status forward(Tensor out, Tensor input, Tensor weight, optional<Tensor> bias, List<int64_t> stride,
                  List<int64_t> padding, List<int64_t> dilation, bool transposed, List<int64_t>, int64_t groups,
                  cw_stream handle) {
  if (!is_supported(out, input, weight) || (bias && (bias->dtype() != out.dtype() || !bias->is_contiguous())))
    return CW_UNSUPPORTED;
  if (!is_aligned(out.data<char>()) || (bias && !is_aligned(bias->data<char>()))) return CW_UNSUPPORTED;
  Convolution c;
  c.dtype = out.dtype();
  Plane &in = transposed ? c.result : c.image, &to = transposed ? c.image : c.result;
  if (!in.read(input) || !to.read(out) || !c.filter.read(weight)) return CW_UNSUPPORTED;
  c.spatial = in.dims - 2;
  c.read_numbers(out.dim() == 3, stride, padding, dilation, groups);
  c.channels_last = !to.first;
  if (!to.is_dense(c.channels_last) || !c.fits()) return CW_UNSUPPORTED;
  // Half types are rounded once: what is computed is added to the bias. Else the bias is added to what is computed.
  const bool half = c.dtype == Dtype::float16 || c.dtype == Dtype::bfloat16;
  if (bias && half && transposed && c.spatial == 3) return CW_UNSUPPORTED;  // cuDNN rounds this before it adds it
  TRY(c.bind("aten::convolution", out.device(), handle));
  TRY(c.dense(in, out.itemsize()));
  TRY(c.dense(c.filter, out.itemsize()));
  TRY(c.open());
  const Kind kind = transposed ? kImage : kForward;
  if (!bias) return c.run(kind);
  const cw_status status = half ? CW_UNSUPPORTED : c.run_plan(kind, false);
  if (status != CW_OK && status != CW_UNSUPPORTED) return status;
  TensorIs vector;
  TRY(describe_channels(vector, out.size(1), to.dims, data_type(c.dtype)));
  {
    std::lock_guard<std::mutex> lock(c.stream->libraries);
    TRY(check_dnn(
        cudnn.add(c.own->handle, c.alpha(), vector.it, bias->data<char>(), status == CW_OK ? c.alpha() : c.beta(),
                  transposed ? c.image_is.it : c.result_is.it, to.data),
        "cudnnAddTensor"));
  }
  return status == CW_OK ? CW_OK : c.run(kind, true);
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
  for (const optional<Tensor>* to : {&to_input, &to_weight, &to_bias})
    if (*to && !is_aligned((*to)->data<char>())) return CW_UNSUPPORTED;
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
  if (c.dtype == Dtype::bfloat16 || c.dtype == Dtype::float16) {
    const cw_status status = sum_channels(c, of_grad, c.channels_last, *to_bias);
    if (status != CW_UNSUPPORTED) return status;
  }
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
