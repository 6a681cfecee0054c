// Images taken apart and put together: pixel_shuffle and back, unfold (im2col) and fold (col2im).
#include <algorithm>

#include "portable/program.h"
#include "portable/kernels/rearrange.cl.h"

namespace causeway::portable {

namespace {

struct Shuffle {
  const char* name;
  bool back;
};

// out, self, factor
cw_status shuffle(KernelCall& call, const void* data) {
  const bool back = static_cast<const Shuffle*>(data)->back;
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || out.dtype != in.dtype || size_of(in.dtype) > 8)
    return CW_UNSUPPORTED;
  const Tensor& wide = back ? in : out;
  if (wide.ndim < 3) return CW_UNSUPPORTED;
  // The wide image is [batch, channels, h, r, w, r], and the deep one [batch, channels, r, r, h, w].
  const int64_t r = call.integer(2, 1), h = wide.size(-2) / r, w = wide.size(-1) / r, channels = wide.size(-3);
  const int64_t plane = r * r * h * w, image = channels * plane, batch = wide.numel() / image;
  const auto of = [&](const Tensor& t) { return dense(t.data, t.dtype, {batch, channels, h, r, w, r}); };
  Tensor to = of(out), from = of(in);
  const int64_t strides[] = {image, plane, w, r * h * w, 1, h * w};
  std::copy(strides, strides + 6, (back ? to : from).strides);
  return copy_into(call, to, from);
}

struct Fold {
  const char* name;
  bool back;
};

// out, self, [output_size,] kernel_size, dilation, padding, stride
cw_status fold(KernelCall& call, const void* data) {
  const bool back = static_cast<const Fold*>(data)->back;
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || out.dtype != in.dtype || !is_float(in.dtype))
    return CW_UNSUPPORTED;
  if (in.dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64)) return CW_UNSUPPORTED;
  const Tensor& image = back ? out : in;
  if (image.ndim < 3 || image.ndim > 4 || in.numel() == 0) return CW_UNSUPPORTED;
  int64_t sides[4][2];  // kernel, dilation, padding, stride
  for (int k = 0; k < 4; ++k) {
    const auto list = call.ints((back ? 3 : 2) + k);
    if (list.empty()) return CW_UNSUPPORTED;
    sides[k][0] = list[0], sides[k][1] = list.back();
  }
  const int64_t h = image.size(-2), w = image.size(-1);
  const auto results = [&](int64_t size, int d) {
    return (size + 2 * sides[2][d] - sides[1][d] * (sides[0][d] - 1) - 1) / sides[3][d] + 1;
  };
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("fold"), static_cast<uint64_t>(in.dtype) | static_cast<uint64_t>(back) << 8, 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string name = name_of(in.dtype), store = storage_of(in.dtype);
        s.before(std::string("typedef ") + name_of(compute_of(in.dtype)) + " T;\n");
        s.define("LD", "LD_" + name).define("ST", "ST_" + name).out(store, "out").in(store, "in");
        for (const char* v : {"units", "h", "w", "oh", "ow", "kh", "kw", "dy", "dx", "py", "px", "sy", "sx"})
          s.value("idx", v);
        if (!call.device->in_turn()) return s.kernel(back ? texts::rearrange::fold : texts::rearrange::unfold);
        s.before(texts::rearrange::bounds).define("WIDTH", 256);
        return s.kernel(back ? texts::rearrange::fold_rows : texts::rearrange::unfold_rows);
      },
      &function));
  Launch l;
  l.pointer(out.data).pointer(in.data).value(out.numel()).value(h).value(w).value(results(h, 0)).value(results(w, 1));
  for (const auto& pair : sides) l.value(pair[0]).value(pair[1]);
  const double cost = back ? 20 * static_cast<double>(sides[0][0] * sides[0][1]) : 30;
  return l.run(*call.device, function, out.numel(), cost, call.stream);
}

}  // namespace

Kernels rearrange_kernels() {
  constexpr uint32_t needs = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  static const Shuffle shuffles[] = {{"aten::pixel_shuffle", false}, {"aten::pixel_unshuffle", true}};
  static const Fold folds[] = {{"aten::im2col.out", false}, {"aten::col2im.out", true}};
  Kernels list;
  for (const Shuffle& op : shuffles) list.push_back({op.name, shuffle, CW_ALL_DTYPES, needs, &op});
  for (const Fold& op : folds) list.push_back({op.name, fold, kFloats, needs, &op});
  return list;
}

}  // namespace causeway::portable
