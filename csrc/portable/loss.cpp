// The negative log likelihood of classes, as cross_entropy ends with, and its gradient.
#include "call.h"

namespace causeway::portable {

namespace {

// A target that is no class reads nothing and makes the loss NaN: a kernel cannot raise.
constexpr const char* kForward = R"(
if (item == 0) {
  A loss = 0, weights = 0;
  for (idx i = 0; i < samples; ++i) {
    const i64 t = target[i * target_stride];
    A one = 0;
    if (t != ignored) {
      if (t < 0 || t >= classes) {
        one = (A)NAN;
      } else {
        A w = 1;
#if WEIGHTED
        w = LD_W(weight, t * weight_stride);
#endif
        one = -w * (A)LD_IN(in, i * s0 + t * s1);
        weights += w;
      }
    }
#if EACH
    ST_OUT(out, i * out_stride, one);
#endif
    loss += one;
  }
#if EACH
  ST_OUT(total, 0, 0);
#else
  ST_OUT(out, 0, MEAN ? loss / weights : loss);
  ST_OUT(total, 0, weights);
#endif
}
)";

constexpr const char* kBackward = R"(
for (idx i = FIRST(samples), end = LAST(samples); i < end; i += STEP) {
  const i64 t = target[i * target_stride];
  for (idx c = 0; c < classes; ++c) ST_OUT(out, i * o0 + c * o1, 0);
  if (t != ignored && t >= 0 && t < classes) {
    A w = 1, slope = LD_IN(grad, i * grad_stride);
#if WEIGHTED
    w = LD_W(weight, t * weight_stride);
#endif
    if (MEAN) slope /= (A)LD_IN(total, 0);
    ST_OUT(out, i * o0 + t * o1, -w * slope);
  }
}
)";

struct Nll {
  const char* name;
  bool backward;
};

// output, total_weight, self, target, weight, reduction, ignore_index; or grad_input, grad_output, self, target, weight,
// reduction, ignore_index, total_weight
cw_status nll(Call& call, const void* data) {
  const bool backward = static_cast<const Nll*>(data)->backward;
  Tensor out, second, in, target, weight, total;
  if (!call.tensor(0, &out) || !call.tensor(1, &second) || !call.tensor(2, &in) || !call.tensor(3, &target))
    return CW_UNSUPPORTED;
  const bool weighted = !call.is_none(4);
  if (weighted && (!call.tensor(4, &weight) || weight.dtype != in.dtype)) return CW_UNSUPPORTED;
  if (backward && (!call.tensor(7, &total) || total.dtype != in.dtype)) return CW_UNSUPPORTED;
  const int64_t reduction = call.integer(5, 1), ignored = call.integer(6, -100);
  if (in.ndim < 1 || in.ndim > 2 || target.ndim != in.ndim - 1 || target.dtype != kI64 || !is_float(in.dtype) ||
      out.dtype != in.dtype || second.dtype != in.dtype)
    return CW_UNSUPPORTED;
  if (in.dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64)) return CW_UNSUPPORTED;
  const bool each = reduction == 0 && in.ndim == 2, mean = reduction == 1;
  const int64_t samples = in.ndim == 2 ? in.shape[0] : 1, classes = in.size(-1);
  const auto row = [](const Tensor& t) { return t.ndim == 2 ? t.strides[0] : int64_t{0}; };
  const auto vector = [](const Tensor& t) { return t.ndim == 1 ? t.strides[0] : int64_t{0}; };
  const bool wide = (call.device->info.arithmetic & CW_FLOAT64) && call.device->in_turn();
  const auto bits = static_cast<uint64_t>(in.dtype) | static_cast<uint64_t>(weighted) << 8 |
                    static_cast<uint64_t>(each) << 9 | static_cast<uint64_t>(mean) << 10;
  cw_function function = nullptr;
  TRY(call.device->function(
      {reinterpret_cast<uint64_t>(data), bits, 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string name = name_of(in.dtype), store = storage_of(in.dtype);
        s.before(std::string("typedef ") + (wide ? "f64" : name_of(compute_of(in.dtype))) + " A;\n");
        s.define("LD_IN", "LD_" + name).define("ST_OUT", "ST_" + name).define("LD_W", "LD_" + name);
        s.define("WEIGHTED", weighted).define("EACH", each).define("MEAN", mean);
        s.out(store, "out");
        if (backward)
          s.in(store, "grad").in("i64", "target").in(store, "total");
        else
          s.out(store, "total").in(store, "in").in("i64", "target");
        if (weighted) s.in(store, "weight").value("idx", "weight_stride");
        for (const char* v : {"samples", "classes", "ignored", "target_stride"}) s.value("idx", v);
        if (backward)
          s.value("idx", "grad_stride").value("idx", "o0").value("idx", "o1");
        else
          s.value("idx", "out_stride").value("idx", "s0").value("idx", "s1");
        return s.kernel(backward ? kBackward : kForward);
      },
      &function));
  Launch l;
  l.pointer(out.data);
  if (backward)
    l.pointer(second.data).pointer(target.data).pointer(total.data);
  else
    l.pointer(second.data).pointer(in.data).pointer(target.data);
  if (weighted) l.pointer(weight.data).value(vector(weight));
  l.value(samples).value(classes).value(ignored).value(vector(target));
  if (backward) {
    l.value(vector(second)).value(row(out)).value(out.strides[out.ndim - 1]);
    return l.run(*call.device, function, samples, static_cast<double>(classes), call.stream);
  }
  l.value(vector(out)).value(row(in)).value(in.strides[in.ndim - 1]);
  return l.run(*call.device, function, 1, static_cast<double>(samples), call.stream);
}

}  // namespace

Kernels loss_kernels() {
  static const Nll ops[] = {{"aten::nll_loss_forward.output", false}, {"aten::nll_loss_backward.grad_input", true}};
  Kernels list;
  for (const Nll& op : ops) list.push_back({op.name, nll, kFloats | CW_INT64, CW_NEEDS_ELEMENTS, &op});
  return list;
}

}  // namespace causeway::portable
