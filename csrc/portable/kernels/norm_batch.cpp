// Batch norm with its gradient: an item owns channels, whose parts lie apart, or a team of items does. Mean and variance
// take two passes, so nothing cancels.
#include <algorithm>
#include <limits>

#include "portable/kernels/norms.h"
#include "portable/kernels/norm_batch.cl.h"

namespace causeway::portable {

namespace {

// A channel is `parts` stretches of n elements, `stride` apart; the stretches begin `step` apart, a channel's first
// `first` after the channel's before.
struct Channels {
  int64_t channels, parts, n, stride, step, first;
  bool dense;
};

Channels channels_of(const Tensor& in) {
  Channels c{};
  c.channels = in.shape[1];
  int64_t inner = 1;
  for (int d = 2; d < in.ndim; ++d) inner *= in.shape[d];
  c.dense = inner > 1;
  if (c.dense)
    c.parts = in.shape[0], c.n = inner, c.stride = 1, c.step = c.channels * inner, c.first = inner;
  else
    c.parts = 1, c.n = in.shape[0], c.stride = c.channels, c.step = 0, c.first = 1;
  return c;
}

// A team's channel has n elements in a row; AT(j) is where the j-th one lies.
Teams teams_of(const Device& device, const Channels& c) {
  return teams_of(device, c.channels, c.parts * c.n, !c.dense);
}

void define(Source& s, const Channels& c, const Teams& teams) {
  const bool small = is_short(c.parts * c.n);
  if (teams)
    s.define("AT(j)", !c.dense ? "(c * first + (j) * stride)"
                      : small  ? "(c * first + (idx)((u32)(j) / (u32)plane) * step + (idx)((u32)(j) % (u32)plane))"
                               : "(c * first + (j) / plane * step + (j) % plane)");
  else
    s.define("STRIDE", c.dense ? "1" : "stride");
  for (const char* v : {"channels", "parts", teams ? "plane" : "n", "stride", "step", "first"}) s.value("idx", v);
}
void add(Launch& l, const Channels& c) {
  for (int64_t v : {c.channels, c.parts, c.n, c.stride, c.step, c.first}) l.value(v);
}

struct BatchNorm {
  Tensor out, save_mean, save_rstd, in, weight, bias, mean, var;
  bool weighted = false, biased = false, has_mean = false, has_var = false;
  double momentum = 0.1, eps = 1e-5;
};

cw_status train(KernelCall& call, const BatchNorm& b) {
  if (!takes(call, {&b.save_mean, &b.save_rstd}) || b.save_mean.numel() != b.in.shape[1]) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  const Channels c = channels_of(b.in);
  const Teams teams = teams_of(*call.device, c);
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("batch_norm_training"),
       bits_of({&b.out, &b.save_mean, &b.save_rstd, &b.in, &b.weight, &b.bias, &b.mean, &b.var},
               {b.weighted, b.biased, b.has_mean, b.has_var, c.dense}),
       teams.bits(), is_short(c.parts * c.n)},
      [&] {
        Source s(call.device->info);
        define(s, types, teams);
        s.define("WEIGHTED", b.weighted).define("BIASED", b.biased);
        s.define("RUNNING_M", b.has_mean).define("RUNNING_V", b.has_var);
        writes(s, "OUT", "out", b.out);
        writes(s, "SAVE_MEAN", "save_mean", b.save_mean);
        writes(s, "SAVE_RSTD", "save_rstd", b.save_rstd);
        reads(s, "IN", "in", b.in);
        if (b.weighted) reads(s, "WEIGHT", "weight", b.weight);
        if (b.biased) reads(s, "BIAS", "bias", b.bias);
        if (b.has_mean) writes(s, "RUN_MEAN", "run_mean", b.mean);
        if (b.has_var) writes(s, "RUN_VAR", "run_var", b.var);
        define(s, c, teams);
        s.value("A", "eps").value("A", "momentum");
        s.before(texts::norm_batch::scale_and_shift).before(texts::norm_batch::running);
        return s.kernel(teams ? team_rows(texts::norm_batch::training_teams, "channels") : texts::norm_batch::training);
      },
      &function));
  Launch l;
  l.pointer(b.out.data).pointer(b.save_mean.data).pointer(b.save_rstd.data).pointer(b.in.data);
  if (b.weighted) l.pointer(b.weight.data);
  if (b.biased) l.pointer(b.bias.data);
  if (b.has_mean) l.pointer(b.mean.data);
  if (b.has_var) l.pointer(b.var.data);
  add(l, c);
  add_wide(l, types, b.eps);
  add_wide(l, types, b.momentum);
  if (teams) return l.run_groups(*call.device, function, teams.groups(c.channels), teams.items, call.stream);
  return l.run(*call.device, function, c.channels, static_cast<double>(c.parts * c.n) * 6, call.stream);
}

cw_status evaluate(KernelCall& call, const BatchNorm& b) {
  if (!b.has_mean || !b.has_var) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  const Channels c = channels_of(b.in);
  const int64_t inner = c.dense ? c.n : 1;
  const int64_t per = call.device->in_turn() ? inner : 1, units = b.in.numel() / per;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("batch_norm_evaluation"),
       bits_of({&b.out, &b.in, &b.weight, &b.bias, &b.mean, &b.var}, {b.weighted, b.biased}), 0, 0},
      [&] {
        Source s(call.device->info);
        define(s, types);
        s.define("WEIGHTED", b.weighted).define("BIASED", b.biased);
        writes(s, "OUT", "out", b.out);
        reads(s, "IN", "in", b.in);
        if (b.weighted) reads(s, "WEIGHT", "weight", b.weight);
        if (b.biased) reads(s, "BIAS", "bias", b.bias);
        reads(s, "RUN_MEAN", "run_mean", b.mean);
        reads(s, "RUN_VAR", "run_var", b.var);
        for (const char* v : {"units", "channels", "each", "per"}) s.value("idx", v);
        s.value("A", "eps");
        return s.before(texts::norm_batch::scale_and_shift).kernel(texts::norm_batch::evaluation);
      },
      &function));
  Launch l;
  l.pointer(b.out.data).pointer(b.in.data);
  if (b.weighted) l.pointer(b.weight.data);
  if (b.biased) l.pointer(b.bias.data);
  l.pointer(b.mean.data).pointer(b.var.data);
  l.value(units).value(c.channels).value(inner / per).value(per);
  add_wide(l, types, b.eps);
  return l.run(*call.device, function, units, static_cast<double>(per) * 3 + 8, call.stream);
}

struct BatchForm {
  const char* name;
  bool running, trains;  // has running statistics among its arguments; has `training` there
};

// out, save_mean, save_invstd, input, weight, bias, [running_mean, running_var,] [training,] momentum, eps
cw_status batch_norm(KernelCall& call, const void* data) {
  const BatchForm& form = *static_cast<const BatchForm*>(data);
  BatchNorm b;
  int at = 3;
  if (!call.tensor(0, &b.out) || !call.tensor(at++, &b.in)) return CW_UNSUPPORTED;
  b.weighted = call.tensor(at++, &b.weight), b.biased = call.tensor(at++, &b.bias);
  if (form.running) b.has_mean = call.tensor(at++, &b.mean), b.has_var = call.tensor(at++, &b.var);
  const bool training = form.trains ? call.integer(at++) != 0 : true;
  b.momentum = call.real(at++, 0.1), b.eps = call.real(at++, 1e-5);
  if (b.in.ndim < 2 || !takes(call, {&b.out, &b.in})) return CW_UNSUPPORTED;
  for (const auto& [has, t] :
       {std::pair{b.weighted, &b.weight}, {b.biased, &b.bias}, {b.has_mean, &b.mean}, {b.has_var, &b.var}})
    if (has && (!takes(call, {t}) || !t->contiguous())) return CW_UNSUPPORTED;
  if (!training) return evaluate(call, b);
  if (!call.tensor(1, &b.save_mean) || !call.tensor(2, &b.save_rstd)) return CW_UNSUPPORTED;
  return train(call, b);
}

// grad_input, grad_weight, grad_bias, grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train,
// eps, output_mask
cw_status batch_norm_backward(KernelCall& call, const void*) {
  NormBackward b;
  b.has_in = call.tensor(0, &b.to_in), b.has_weight = call.tensor(1, &b.to_weight);
  b.has_bias = call.tensor(2, &b.to_bias);
  if (!call.tensor(3, &b.grad) || !call.tensor(4, &b.in)) return CW_UNSUPPORTED;
  b.weighted = call.tensor(5, &b.weight);
  const bool training = call.integer(10) != 0;
  if (!call.tensor(training ? 8 : 6, &b.mean) || !call.tensor(training ? 9 : 7, &b.rstd)) return CW_UNSUPPORTED;
  if (b.in.ndim < 2 || b.in.numel() == 0 || !takes(call, {&b.grad, &b.in, &b.mean, &b.rstd})) return CW_UNSUPPORTED;
  if (b.weighted && !takes(call, {&b.weight})) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  const Channels c = channels_of(b.in);
  const Teams teams = teams_of(*call.device, c);
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("batch_norm_backward"),
       bits_of({&b.grad, &b.in, &b.mean, &b.rstd, &b.weight, &b.to_in},
               {b.weighted, b.has_in, b.has_weight, b.has_bias, training, c.dense}),
       bits_of({&b.to_weight, &b.to_bias}, {is_short(c.parts * c.n)}), teams.bits()},
      [&] {
        Source s(call.device->info);
        define(s, types, teams);
        s.define("WEIGHTED", b.weighted).define("TRAINING", training);
        s.define("SUMS", training || b.has_weight || b.has_bias);
        s.define("HAS_OUT", b.has_in).define("HAS_WEIGHT", b.has_weight).define("HAS_BIAS", b.has_bias);
        if (b.has_in) writes(s, "OUT", "out", b.to_in);
        if (b.has_weight) writes(s, "TO_WEIGHT", "to_weight", b.to_weight);
        if (b.has_bias) writes(s, "TO_BIAS", "to_bias", b.to_bias);
        reads(s, "GRAD", "grad", b.grad);
        reads(s, "IN", "in", b.in);
        reads(s, "MEAN", "mean", b.mean);
        reads(s, "RSTD", "rstd", b.rstd);
        if (b.weighted) reads(s, "WEIGHT", "weight", b.weight);
        define(s, c, teams);
        s.value("A", "eps");
        return s.kernel(teams ? team_rows(texts::norm_batch::backward_teams, "channels") : texts::norm_batch::backward);
      },
      &function));
  Launch l;
  if (b.has_in) l.pointer(b.to_in.data);
  if (b.has_weight) l.pointer(b.to_weight.data);
  if (b.has_bias) l.pointer(b.to_bias.data);
  l.pointer(b.grad.data).pointer(b.in.data).pointer(b.mean.data).pointer(b.rstd.data);
  if (b.weighted) l.pointer(b.weight.data);
  add(l, c);
  add_wide(l, types, call.real(11, 1e-5));
  if (teams) return l.run_groups(*call.device, function, teams.groups(c.channels), teams.items, call.stream);
  return l.run(*call.device, function, c.channels, static_cast<double>(c.parts * c.n) * 8, call.stream);
}

}  // namespace

Kernels batch_norm_kernels() {
  constexpr uint32_t dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS, gradient = CW_NEEDS_CONTIGUOUS;
  static const BatchForm forms[] = {{"aten::native_batch_norm", true, true},
                                    {"aten::native_batch_norm.out", true, true},
                                    {"aten::_native_batch_norm_legit", true, true},
                                    {"aten::_native_batch_norm_legit.out", true, true},
                                    {"aten::_native_batch_norm_legit.no_stats", false, true},
                                    {"aten::_native_batch_norm_legit.no_stats_out", false, true}};
  Kernels list = {{"aten::native_batch_norm_backward", batch_norm_backward, kFloats, gradient}};
  for (const BatchForm& form : forms) list.push_back({form.name, batch_norm, kFloats, dense, &form});
  return list;
}

}  // namespace causeway::portable
