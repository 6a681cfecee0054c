// Max pooling in two dimensions, with its indices, and its gradient; mean pooling.
#include "call.h"

namespace causeway::portable {

namespace {

// NaN wins, and the first of equals: as torch's.
constexpr const char* kForward = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx ox = u % ow, oy = u / ow % oh, base = u / ow / oh * h * w;
  const idx y0 = oy * sy - py, x0 = ox * sx - px;
  idx best_at = -1;
  T best = 0;
  for (idx r = 0; r < kh; ++r) {
    const idx y = y0 + r * dy;
    if (y < 0 || y >= h) continue;
    for (idx q = 0; q < kw; ++q) {
      const idx x = x0 + q * dx;
      if (x < 0 || x >= w) continue;
      const T v = LD(in, base + y * w + x);
      if (best_at < 0 || v > best || v != v) { best = v; best_at = y * w + x; }
    }
  }
  ST(out, u, best);
  index[u] = best_at;
}
)";

// An item owns a plane, so nobody else adds to what it adds to.
constexpr const char* kBackward = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  for (idx i = 0; i < h * w; ++i) SUM(u * h * w + i) = 0;
  for (idx i = 0; i < oh * ow; ++i) {
    const idx at = index[u * oh * ow + i];
    if (at >= 0 && at < h * w) SUM(u * h * w + at) += (T)LD(grad, u * oh * ow + i);
  }
#if STAGED
  for (idx i = 0; i < h * w; ++i) ST(out, u * h * w + i, sums[u * h * w + i]);
#endif
}
)";

struct Window {
  int64_t planes, h, w, oh, ow, kernel[2], stride[2], padding[2], dilation[2];
};

bool read(Call& call, int at, const Tensor& image, const Tensor& result, Window& p) {
  if (image.ndim < 3 || image.ndim > 4 || result.ndim != image.ndim) return false;
  p.planes = image.numel() / (image.size(-1) * image.size(-2));
  p.h = image.size(-2), p.w = image.size(-1), p.oh = result.size(-2), p.ow = result.size(-1);
  const auto kernel = call.ints(at), stride = call.ints(at + 1), padding = call.ints(at + 2),
             dilation = call.ints(at + 3);
  const auto value = [](const std::vector<int64_t>& list, int d, int64_t none) {
    return list.empty() ? none : list.size() == 1 ? list[0] : list[static_cast<size_t>(d)];
  };
  for (int d = 0; d < 2; ++d) {
    p.kernel[d] = value(kernel, d, 1), p.stride[d] = value(stride, d, p.kernel[d]);
    p.padding[d] = value(padding, d, 0), p.dilation[d] = value(dilation, d, 1);
  }
  return true;
}

bool takes(const Call& call, Dtype dtype) {
  return is_float(dtype) && (dtype != kF64 || (call.device->info.arithmetic & CW_FLOAT64));
}

// out, indices, self, kernel_size, stride, padding, dilation, ceil_mode
cw_status max_pool(Call& call, const void*) {
  Tensor out, index, in;
  Window p;
  if (!call.tensor(0, &out) || !call.tensor(1, &index) || !call.tensor(2, &in)) return CW_UNSUPPORTED;
  if (!takes(call, in.dtype) || out.dtype != in.dtype || index.dtype != kI64) return CW_UNSUPPORTED;
  if (!read(call, 3, in, out, p)) return CW_UNSUPPORTED;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("max_pool"), static_cast<uint64_t>(in.dtype), 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string name = name_of(in.dtype), store = storage_of(in.dtype);
        s.before(std::string("typedef ") + name_of(compute_of(in.dtype)) + " T;\n");
        s.define("LD", "LD_" + name).define("ST", "ST_" + name);
        s.out(store, "out").out("i64", "index").in(store, "in");
        for (const char* v : {"units", "h", "w", "oh", "ow", "kh", "kw", "sy", "sx", "py", "px", "dy", "dx"})
          s.value("idx", v);
        return s.kernel(kForward);
      },
      &function));
  Launch l;
  const int64_t units = out.numel();
  l.pointer(out.data).pointer(index.data).pointer(in.data);
  l.value(units).value(p.h).value(p.w).value(p.oh).value(p.ow);
  for (const auto* pair : {p.kernel, p.stride, p.padding, p.dilation}) l.value(pair[0]).value(pair[1]);
  return l.run(*call.device, function, units, static_cast<double>(p.kernel[0] * p.kernel[1]) * 6, call.stream);
}

// grad_input, grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
cw_status max_pool_backward(Call& call, const void*) {
  Tensor out, grad, index;
  Window p;
  if (!call.tensor(0, &out) || !call.tensor(1, &grad) || !call.tensor(8, &index)) return CW_UNSUPPORTED;
  if (!takes(call, out.dtype) || grad.dtype != out.dtype || index.dtype != kI64) return CW_UNSUPPORTED;
  if (!read(call, 3, out, grad, p)) return CW_UNSUPPORTED;
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
        for (const char* v : {"units", "h", "w", "oh", "ow"}) s.value("idx", v);
        return s.kernel(kBackward);
      },
      &function));
  Launch l;
  l.pointer(out.data).pointer(grad.data).pointer(index.data);
  if (staged) l.pointer(sums);
  l.value(p.planes).value(p.h).value(p.w).value(p.oh).value(p.ow);
  return l.run(*call.device, function, p.planes, static_cast<double>(p.h * p.w) * 2, call.stream);
}

}  // namespace

Kernels pool_kernels() {
  constexpr uint32_t needs = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  return {{"aten::max_pool2d_with_indices.out", max_pool, kFloats | CW_INT64, needs},
          {"aten::max_pool2d_with_indices_backward.grad_input", max_pool_backward, kFloats | CW_INT64, needs}};
}

}  // namespace causeway::portable
