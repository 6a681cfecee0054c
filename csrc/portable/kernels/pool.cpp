// Pooling in two and three dimensions: the largest with its place, means, and both over windows that adapt to the size of
// the result; their gradients. A window is three pairs of bounds, whoever sets them; in two dimensions depth is 1.
#include <algorithm>

#include "portable/call.h"
#include "portable/kernels/pool.cl.h"

namespace causeway::portable {

namespace {

struct Window {
  bool adaptive = false;
  int64_t planes, in[3], out[3], kernel[3], stride[3], padding[3], dilation[3], padded = 1, divisor = 0;

  int64_t in_size() const { return in[0] * in[1] * in[2]; }
  int64_t out_size() const { return out[0] * out[1] * out[2]; }
};

// What a name says of its operator.
struct Pool {
  const char* name;
  int dims;
  bool adaptive;
  bool places = true;  // of the largest
};

bool read_sizes(const Pool& op, const Tensor& image, const Tensor& result, Window& p) {
  if (image.ndim < op.dims + 1 || image.ndim > op.dims + 2 || result.ndim != image.ndim) return false;
  p.adaptive = op.adaptive;
  for (int d = 0; d < 3; ++d) {
    const int from = d - 3;
    p.in[d] = from + op.dims < 0 ? 1 : image.size(from);
    p.out[d] = from + op.dims < 0 ? 1 : result.size(from);
    p.kernel[d] = p.stride[d] = p.dilation[d] = 1;
    p.padding[d] = 0;
  }
  if (p.in_size() == 0 || p.out_size() == 0) return false;
  p.planes = image.numel() / p.in_size();
  return true;
}

// kernel_size, stride and padding from argument `at` on; dilation where there is one.
void read_window(KernelCall& call, const Pool& op, int at, int dilation_at, Window& p) {
  const auto kernel = call.ints(at), stride = call.ints(at + 1), padding = call.ints(at + 2);
  const auto dilation = dilation_at < 0 ? std::vector<int64_t>{} : call.ints(dilation_at);
  for (int d = 3 - op.dims; d < 3; ++d) {
    const auto value = [&](const std::vector<int64_t>& list, int64_t none) {
      return list.empty() ? none : list.size() == 1 ? list[0] : list[static_cast<size_t>(d - (3 - op.dims))];
    };
    p.kernel[d] = value(kernel, 1), p.stride[d] = value(stride, p.kernel[d]);
    p.padding[d] = value(padding, 0), p.dilation[d] = value(dilation, 1);
  }
}

bool takes(const KernelCall& call, Dtype dtype, cw_dtypes dtypes) {
  return (dtypes >> dtype & 1) && (dtype != kF64 || (call.device->info.arithmetic & CW_FLOAT64));
}

void head_of(Source& s, const Window& p, Dtype dtype) {
  s.before(std::string("typedef ") + name_of(compute_of(dtype)) + " T;\n");
  s.define("LD", std::string("LD_") + name_of(dtype)).define("ST", std::string("ST_") + name_of(dtype));
  s.before(p.adaptive ? std::string(texts::pool::adaptive) + "#define dz 1\n#define dy 1\n#define dx 1\n"
                      : texts::pool::window);
}
constexpr const char* kSizes[] = {"units", "d", "h", "w", "od", "oh", "ow"};
constexpr const char* kSides[] = {"kd", "kh", "kw", "sz", "sy", "sx", "pz", "py", "px", "dz", "dy", "dx"};
void sizes_of(Source& s, const Window& p) {
  for (const char* v : kSizes) s.value("idx", v);
  if (p.adaptive) return;
  for (const char* v : kSides) s.value("idx", v);
  s.value("idx", "padded").value("idx", "divisor");
}
void sizes_of(Launch& l, const Window& p, int64_t units) {
  l.value(units);
  for (const auto* three : {p.in, p.out})
    for (int d = 0; d < 3; ++d) l.value(three[d]);
  if (p.adaptive) return;
  for (const auto* three : {p.kernel, p.stride, p.padding, p.dilation})
    for (int d = 0; d < 3; ++d) l.value(three[d]);
  l.value(p.padded).value(p.divisor);
}

// Of what a dtype holds.
std::string lowest(Dtype dtype) {
  if (is_float(dtype)) return "-INFINITY";
  switch (dtype) {
    case kI8:
      return "-128";
    case kI16:
      return "-32768";
    case kI32:
      return "(-2147483647 - 1)";
    case kI64:
      return "(-9223372036854775807LL - 1)";
    default:
      return "0";
  }
}

double taps(const Window& p) {
  double all = 1;
  for (int d = 0; d < 3; ++d)
    all *= p.adaptive ? static_cast<double>(p.in[d]) / static_cast<double>(p.out[d]) + 1
                      : static_cast<double>(p.kernel[d]);
  return all;
}

// With channels that are neighbours, of images that follow each other.
bool channels_last(const Tensor& t, const Pool& op) {
  const int channel = t.ndim - op.dims - 1;
  int64_t stride = t.shape[channel];
  if (stride > 1 && t.strides[channel] != 1) return false;
  for (int d = t.ndim - 1; d >= 0; --d) {
    if (d == channel) continue;
    if (t.shape[d] > 1 && t.strides[d] != stride) return false;
    stride *= t.shape[d];
  }
  return true;
}

// How the largest are found: by planes, with any strides or without; or, on CPUs, by rows and by channels.
enum class MaxBy : uint8_t { plane, strides, rows, channels };

// out, indices unless it has none, self, then output_size; or kernel_size, stride, padding, dilation, ceil_mode
cw_status max_pool(KernelCall& call, const void* data) {
  const Pool& op = *static_cast<const Pool*>(data);
  Tensor out, index, in;
  Window p;
  const int self = op.places ? 2 : 1;
  if (!call.tensor(0, &out) || !call.tensor(self, &in)) return CW_UNSUPPORTED;
  if (!op.places)
    index = out;  // which asks for nothing more
  else if (!call.tensor(1, &index) || index.dtype != kI64)
    return CW_UNSUPPORTED;
  if (!takes(call, in.dtype, kFloats | kInts) || out.dtype != in.dtype) return CW_UNSUPPORTED;
  if (!read_sizes(op, in, out, p)) return CW_UNSUPPORTED;
  if (!op.adaptive) read_window(call, op, self + 1, self + 4, p);
  const Tensor* const all[] = {&in, &out, &index};
  const auto each = [&](auto&& f) { return std::all_of(std::begin(all), std::end(all), f); };
  const bool vectors = call.device->in_turn() && !op.adaptive && p.in_size() < int64_t{1} << 31;
  const bool contiguous = each([](const Tensor* t) { return t->contiguous(); });
  MaxBy by = vectors ? MaxBy::rows : MaxBy::plane;
  if (!contiguous)
    by = vectors && each([&](const Tensor* t) { return channels_last(*t, op); }) ? MaxBy::channels : MaxBy::strides;
  constexpr int64_t kSteps = 2;  // the widest that is known to the compiler
  const int64_t step = by == MaxBy::rows && p.stride[2] <= kSteps ? p.stride[2] : 0;
  const int channel = in.ndim - op.dims - 1;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("max_pool"),
       static_cast<uint64_t>(in.dtype) | static_cast<uint64_t>(op.adaptive) << 8 |
           static_cast<uint64_t>(op.places) << 9,
       static_cast<uint64_t>(by), static_cast<uint64_t>(step)},
      [&] {
        Source s(call.device->info);
        head_of(s, p, in.dtype);
        s.define("LOWEST", "((T)" + lowest(in.dtype) + ")")
            .define("S", storage_of(in.dtype))
            .define("ROW", 64)
            .define("STRIDED", by == MaxBy::strides)
            .define("PLACES", op.places)
            .define("SX", step ? std::to_string(step) : "sx");
        s.out(storage_of(in.dtype), "out");
        if (op.places) s.out("i64", "index");
        s.in(storage_of(in.dtype), "in");
        sizes_of(s, p);
        if (!contiguous) s.value("idx", "channels");
        if (by == MaxBy::strides)
          for (const char* of : {"in_", "out_", "index_"})
            for (const char d : {'b', 'c', 'z', 'y', 'x'}) s.value("idx", std::string(of) + d);
        return s.kernel(by == MaxBy::rows       ? texts::pool::max_rows
                        : by == MaxBy::channels ? texts::pool::max_channels
                                                : texts::pool::max);
      },
      &function));
  Launch l;
  l.pointer(out.data);
  if (op.places) l.pointer(index.data);
  l.pointer(in.data);
  const int64_t channels = in.shape[channel];
  const int64_t row = by == MaxBy::rows ? p.out[2] : by == MaxBy::channels ? p.out[2] * channels : 1;
  const int64_t units = out.numel() / row;
  sizes_of(l, p, units);
  if (!contiguous) l.value(channels);
  if (by == MaxBy::strides)
    for (const Tensor* t : all)
      for (int d = 0; d < 5; ++d) {  // of the batch, where there is one, a channel, and three dimensions
        const int at = d < 2 ? channel - 1 + d : t->ndim - 5 + d;
        l.value(at >= 0 && (d < 2 || at > channel) ? t->strides[at] : int64_t{0});
      }
  const double cost = row > 1 ? taps(p) * static_cast<double>(row) : taps(p) * 4 + 40;
  return l.run(*call.device, function, units, cost, call.stream);
}

struct Places {
  const char* name;
  int indices;  // the argument
};

// grad_input, grad_output, self, [kernel_size, stride, padding, dilation, ceil_mode,] indices
cw_status max_pool_backward(KernelCall& call, const void* data) {
  Tensor out, grad, index;
  if (!call.tensor(0, &out) || !call.tensor(1, &grad) ||
      !call.tensor(static_cast<const Places*>(data)->indices, &index))
    return CW_UNSUPPORTED;
  if (!takes(call, out.dtype, kFloats) || grad.dtype != out.dtype || index.dtype != kI64 || grad.ndim != out.ndim)
    return CW_UNSUPPORTED;
  // 2 dimensions have 3 or 4 sizes and 3 have 4 or 5: the name tells.
  const int dims = std::string(static_cast<const Places*>(data)->name).find("3d") == std::string::npos ? 2 : 3;
  int64_t planes = 1;
  for (int d = 0; d < out.ndim - dims; ++d) planes *= out.shape[d];
  if (planes == 0 || out.ndim < dims) return CW_UNSUPPORTED;
  const int64_t count = out.numel() / planes, results = grad.numel() / planes;
  const Dtype type = compute_of(out.dtype);
  const bool staged = type != out.dtype;  // half types are summed up in float
  void* sums = nullptr;
  if (staged) TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(out.numel() * size_of(type)), &sums));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("max_pool_backward"), static_cast<uint64_t>(out.dtype), 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string name = name_of(out.dtype), store = storage_of(out.dtype);
        s.before(std::string("typedef ") + name_of(type) + " T;\n");
        s.define("LD", "LD_" + name).define("ST", "ST_" + name).define("STAGED", staged);
        s.define("SUM(i)", staged ? "sums[i]" : "out[i]");
        s.out(store, "out").in(store, "grad").in("i64", "index");
        if (staged) s.out(name_of(type), "sums");
        for (const char* v : {"units", "count", "results"}) s.value("idx", v);
        return s.kernel(texts::pool::max_backward);
      },
      &function));
  Launch l;
  l.pointer(out.data).pointer(grad.data).pointer(index.data);
  if (staged) l.pointer(sums);
  l.value(planes).value(count).value(results);
  return l.run(*call.device, function, planes, static_cast<double>(count) * 2, call.stream);
}

cw_status mean(KernelCall& call, const Pool& op, const Tensor& out, const Tensor& in, const Window& p, bool backward) {
  cw_function function = nullptr;
  TRY(call.device->function(
      {family(backward ? "mean_pool_backward" : "mean_pool"),
       static_cast<uint64_t>(in.dtype) | static_cast<uint64_t>(op.adaptive) << 8, 0, 0},
      [&] {
        Source s(call.device->info);
        head_of(s, p, in.dtype);
        s.out(storage_of(in.dtype), "out").in(storage_of(in.dtype), backward ? "grad" : "in");
        sizes_of(s, p);
        return s.kernel(backward ? texts::pool::mean_backward : texts::pool::mean);
      },
      &function));
  Launch l;
  l.pointer(out.data).pointer(in.data);
  sizes_of(l, p, out.numel());
  return l.run(*call.device, function, out.numel(), taps(p) * (backward ? 12 : 2) + 40, call.stream);
}

// ceil_mode is in the result's size; count_include_pad, divisor_override
void read_mean(KernelCall& call, const Pool& op, int at, Window& p) {
  if (op.adaptive) return;
  read_window(call, op, at, -1, p);
  p.padded = call.integer(at + 4, 1);
  p.divisor = call.integer(at + 5, 0);
}

// out, self, then output_size; or kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
cw_status mean_pool(KernelCall& call, const void* data) {
  const Pool& op = *static_cast<const Pool*>(data);
  Tensor out, in;
  Window p;
  if (!call.tensor(0, &out) || !call.tensor(1, &in)) return CW_UNSUPPORTED;
  if (!takes(call, in.dtype, kFloats) || out.dtype != in.dtype || !read_sizes(op, in, out, p)) return CW_UNSUPPORTED;
  read_mean(call, op, 2, p);
  return mean(call, op, out, in, p, false);
}

// grad_input, grad_output, self, then nothing; or as mean_pool
cw_status mean_pool_backward(KernelCall& call, const void* data) {
  const Pool& op = *static_cast<const Pool*>(data);
  Tensor out, grad;
  Window p;
  if (!call.tensor(0, &out) || !call.tensor(1, &grad)) return CW_UNSUPPORTED;
  if (!takes(call, grad.dtype, kFloats) || out.dtype != grad.dtype || !read_sizes(op, out, grad, p))
    return CW_UNSUPPORTED;
  read_mean(call, op, 3, p);
  return mean(call, op, out, grad, p, true);
}

}  // namespace

Kernels pool_kernels() {
  constexpr uint32_t needs = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  static const Pool largest[] = {{"aten::max_pool2d_with_indices.out", 2, false},
                                 {"aten::max_pool3d_with_indices.out", 3, false},
                                 {"aten::adaptive_max_pool2d.out", 2, true},
                                 {"aten::adaptive_max_pool3d.out", 3, true},
                                 {"causeway::max_pool2d", 2, false, false}};
  static const Places places[] = {{"aten::max_pool2d_with_indices_backward.grad_input", 8},
                                  {"aten::max_pool3d_with_indices_backward.grad_input", 8},
                                  {"aten::adaptive_max_pool2d_backward.grad_input", 3},
                                  {"aten::adaptive_max_pool3d_backward.grad_input", 3}};
  static const Pool means[] = {{"aten::avg_pool2d.out", 2, false},         {"aten::avg_pool3d.out", 3, false},
                               {"aten::adaptive_avg_pool2d.out", 2, true}, {"aten::_adaptive_avg_pool2d", 2, true},
                               {"aten::adaptive_avg_pool3d.out", 3, true}, {"aten::_adaptive_avg_pool3d", 3, true}};
  static const Pool gradients[] = {{"aten::avg_pool2d_backward.grad_input", 2, false},
                                   {"aten::avg_pool3d_backward.grad_input", 3, false},
                                   {"aten::_adaptive_avg_pool2d_backward", 2, true},
                                   {"aten::_adaptive_avg_pool3d_backward", 3, true}};
  Kernels list;
  for (const Pool& op : largest) list.push_back({op.name, max_pool, kFloats | kInts, CW_NEEDS_ELEMENTS, &op});
  for (const Places& op : places) list.push_back({op.name, max_pool_backward, kFloats | CW_INT64, needs, &op});
  for (const Pool& op : means) list.push_back({op.name, mean_pool, kFloats, needs, &op});
  for (const Pool& op : gradients) list.push_back({op.name, mean_pool_backward, kFloats, needs, &op});
  return list;
}

}  // namespace causeway::portable
