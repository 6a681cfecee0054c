// Images made larger or smaller: nearest, linear and cubic, in one to three dimensions, and their gradients. A result
// is a sum over taps: 1, 2 or 4 places of each dimension with their weights, which multiply.
#include "portable/call.h"
#include "portable/kernels/upsample.cl.h"

namespace causeway::portable {

namespace {

enum class Way : uint8_t { Nearest, Exact, Linear, Cubic };

struct Upsample {
  const char* name;
  int dims;
  Way way;
  bool backward;
};

// out, self, output_size, [align_corners,] scales; or grad_input, grad_output, output_size, input_size, [align_corners,]
// scales
cw_status upsample(KernelCall& call, const void* data) {
  const Upsample& op = *static_cast<const Upsample*>(data);
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || out.dtype != in.dtype) return CW_UNSUPPORTED;
  const bool nearest = op.way == Way::Nearest || op.way == Way::Exact;
  if (!is_float(in.dtype) && !(nearest && in.dtype == kU8 && !op.backward)) return CW_UNSUPPORTED;
  if (in.dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64)) return CW_UNSUPPORTED;
  // Positions are 32-bit.
  for (const Tensor* t : {&in, &out})
    for (int d = 2; d < t->ndim; ++d)
      if (t->shape[d] >= int64_t{1} << 24) return CW_UNSUPPORTED;
  const Tensor &small = op.backward ? out : in, &large = op.backward ? in : out;
  if (small.ndim != op.dims + 2 || large.ndim != small.ndim || small.numel() == 0) return CW_UNSUPPORTED;
  int at = op.backward ? 4 : 3;
  const bool aligned = !nearest && call.integer(at++) != 0;
  int64_t sizes[3] = {1, 1, 1}, results[3] = {1, 1, 1};
  double scales[3] = {1, 1, 1};
  for (int d = 3 - op.dims; d < 3; ++d) {
    sizes[d] = small.size(d - 3), results[d] = large.size(d - 3);
    double given = call.real(at + d - (3 - op.dims), 0);
    // The gradients of torch's CPU go by the sizes here, whatever the scale says.
    if (op.backward && op.way == Way::Nearest && (results[d] == sizes[d] || results[d] == 2 * sizes[d])) given = 0;
    if (aligned)
      scales[d] = results[d] > 1 ? static_cast<double>(sizes[d] - 1) / static_cast<double>(results[d] - 1) : 0;
    else
      scales[d] = given > 0 ? 1 / given : static_cast<double>(sizes[d]) / static_cast<double>(results[d]);
  }
  const Dtype type = in.dtype == kU8 ? kF32 : compute_of(in.dtype);
  const bool staged = op.backward && type != out.dtype;
  void* sums = nullptr;
  if (staged) TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(out.numel() * size_of(type)), &sums));
  const int taps = nearest ? 1 : op.way == Way::Linear ? 2 : 4;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("upsample"),
       static_cast<uint64_t>(in.dtype) | static_cast<uint64_t>(op.way) << 8 | static_cast<uint64_t>(op.dims) << 12 |
           static_cast<uint64_t>(op.backward) << 16 | static_cast<uint64_t>(aligned) << 17,
       0, 0},
      [&] {
        Source s(call.device->info);
        const std::string name = name_of(in.dtype), store = storage_of(in.dtype);
        s.before(std::string("typedef ") + name_of(type) + " T;\n");
        s.define("LD", "LD_" + name).define("ST", "ST_" + name).define("STAGED", staged);
        s.define("WAY", static_cast<int64_t>(op.way)).define("ALIGNED", aligned).define("TAPS", taps);
        s.define("TAPS_Y", op.dims > 1 ? taps : 1).define("TAPS_Z", op.dims > 2 ? taps : 1);
        s.define("TAPS_AT_Y", op.dims > 1 ? "taps(oy, h, scale_y, ay, wy)" : "ay[0] = (i32)oy; wy[0] = 1");
        s.define("TAPS_AT_Z", op.dims > 2 ? "taps(oz, d, scale_z, az, wz)" : "az[0] = (i32)oz; wz[0] = 1");
        s.define("SUM(i)", staged ? "sums[i]" : "out[i]");
        s.before(texts::upsample::taps);
        s.out(store, "out").in(store, op.backward ? "grad" : "in");
        if (staged) s.out(name_of(type), "sums");
        for (const char* v : {"units", "d", "h", "w", "od", "oh", "ow"}) s.value("idx", v);
        for (const char* v : {"scale_z", "scale_y", "scale_x"}) s.value(name_of(type), v);
        return s.kernel(op.backward ? texts::upsample::backward : texts::upsample::forward);
      },
      &function));
  const int64_t planes = small.numel() / (sizes[0] * sizes[1] * sizes[2]);
  const int64_t units = op.backward ? planes : planes * results[0] * results[1];
  Launch l;
  l.pointer(out.data).pointer(in.data);
  if (staged) l.pointer(sums);
  l.value(units);
  for (int64_t v : sizes) l.value(v);
  for (int64_t v : results) l.value(v);
  for (double v : scales) {
    if (type == kF64)
      l.value(v);
    else
      l.value(static_cast<float>(v));
  }
  double cost = 8;
  for (int d = 0; d < op.dims; ++d) cost *= taps;
  return l.run(*call.device, function, units, cost * static_cast<double>(large.numel()) / units, call.stream);
}

}  // namespace

Kernels upsample_kernels() {
  constexpr uint32_t needs = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  static const Upsample ops[] = {
      {"aten::upsample_nearest1d.out", 1, Way::Nearest, false},
      {"aten::upsample_nearest2d.out", 2, Way::Nearest, false},
      {"aten::upsample_nearest3d.out", 3, Way::Nearest, false},
      {"aten::_upsample_nearest_exact1d.out", 1, Way::Exact, false},
      {"aten::_upsample_nearest_exact2d.out", 2, Way::Exact, false},
      {"aten::_upsample_nearest_exact3d.out", 3, Way::Exact, false},
      {"aten::upsample_linear1d.out", 1, Way::Linear, false},
      {"aten::upsample_bilinear2d.out", 2, Way::Linear, false},
      {"aten::upsample_trilinear3d.out", 3, Way::Linear, false},
      {"aten::upsample_bicubic2d.out", 2, Way::Cubic, false},
      {"aten::upsample_nearest1d_backward.grad_input", 1, Way::Nearest, true},
      {"aten::upsample_nearest2d_backward.grad_input", 2, Way::Nearest, true},
      {"aten::upsample_nearest3d_backward.grad_input", 3, Way::Nearest, true},
      {"aten::_upsample_nearest_exact1d_backward.grad_input", 1, Way::Exact, true},
      {"aten::_upsample_nearest_exact2d_backward.grad_input", 2, Way::Exact, true},
      {"aten::_upsample_nearest_exact3d_backward.grad_input", 3, Way::Exact, true},
      {"aten::upsample_linear1d_backward.grad_input", 1, Way::Linear, true},
      {"aten::upsample_bilinear2d_backward.grad_input", 2, Way::Linear, true},
      {"aten::upsample_trilinear3d_backward.grad_input", 3, Way::Linear, true},
      {"aten::upsample_bicubic2d_backward.grad_input", 2, Way::Cubic, true},
  };
  Kernels list;
  for (const Upsample& op : ops) list.push_back({op.name, upsample, kFloats | CW_UINT8, needs, &op});
  return list;
}

}  // namespace causeway::portable
