// Layer, RMS and group norm with their gradients: rows that lie densely. An item owns rows, which stay in the cache
// between the passes over them; where items run in parallel a team does, and holds rows that are short. Means and variances take two passes, so nothing cancels.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "portable/kernels/norms.h"
#include "portable/kernels/norm_rows.cl.h"

namespace causeway::portable {

namespace {

// Rows of n elements. Scale and shift belong to an element's place in the row or, of group norm, to its channel:
// `channels` of them, of `plane` elements each, are a row.
struct Rows {
  int64_t rows, n, groups = 1, plane = 1;
  bool centered = true, grouped = false;
};

struct Forward {
  Tensor out, mean, rstd, in, weight, bias;
  bool weighted = false, biased = false;
  double eps = 0;
};

cw_status run_forward(KernelCall& call, const Forward& f, const Rows& rows) {
  if (!takes(call, {&f.out, &f.rstd, &f.in}) || (rows.centered && !takes(call, {&f.mean}))) return CW_UNSUPPORTED;
  if ((f.weighted && !takes(call, {&f.weight})) || (f.biased && !takes(call, {&f.bias}))) return CW_UNSUPPORTED;
  const Types types = types_of(call, f.in.dtype);
  const Teams teams = teams_of(*call.device, rows.rows, rows.n);
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("norm_rows"),
       bits_of({&f.out, &f.mean, &f.rstd, &f.in, &f.weight, &f.bias},
               {f.weighted, f.biased, rows.centered, rows.grouped}),
       teams.bits(), is_short(rows.n)},
      [&] {
        Source s(call.device->info);
        define(s, types, teams);
        s.define("CENTERED", rows.centered).define("GROUPED", rows.grouped);
        s.define("WEIGHTED", f.weighted).define("BIASED", f.biased);
        writes(s, "OUT", "out", f.out);
        if (rows.centered) writes(s, "MEAN", "mean", f.mean);
        writes(s, "RSTD", "rstd", f.rstd);
        reads(s, "IN", "in", f.in);
        if (f.weighted) reads(s, "WEIGHT", "weight", f.weight);
        if (f.biased) reads(s, "BIAS", "bias", f.bias);
        for (const char* v : {"rows", "n", "groups", "plane"}) s.value("idx", v);
        s.value("A", "eps");
        if (!teams) return s.kernel(texts::norm_rows::forward);
        s.define("PLANE(j)", is_short(rows.n) ? "((u32)(j) / (u32)plane)" : "((j) / plane)");
        return s.kernel(team_rows(texts::norm_rows::forward_teams));
      },
      &function));
  Launch l;
  l.pointer(f.out.data);
  if (rows.centered) l.pointer(f.mean.data);
  l.pointer(f.rstd.data).pointer(f.in.data);
  if (f.weighted) l.pointer(f.weight.data);
  if (f.biased) l.pointer(f.bias.data);
  l.value(rows.rows).value(rows.n).value(rows.groups).value(rows.plane);
  add_wide(l, types, f.eps);
  if (teams) return l.run_groups(*call.device, function, teams.groups(rows.rows), teams.items, call.stream);
  return l.run(*call.device, function, rows.rows, static_cast<double>(rows.n) * 6, call.stream);
}

// The elements of a row: those of the last dimensions, which are `shape`. 0 where they are not: torch's functions refuse
// that, its operators do not all.
int64_t row_length(const Tensor& in, const std::vector<int64_t>& shape) {
  const int behind = static_cast<int>(shape.size());
  if (behind > in.ndim || !std::equal(shape.begin(), shape.end(), in.shape + in.ndim - behind)) return 0;
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// out, mean, rstd, input, normalized_shape, weight, bias, eps
cw_status layer_norm(KernelCall& call, const void*) {
  Forward f;
  if (!call.tensor(0, &f.out) || !call.tensor(1, &f.mean) || !call.tensor(2, &f.rstd) || !call.tensor(3, &f.in))
    return CW_UNSUPPORTED;
  f.weighted = call.tensor(5, &f.weight), f.biased = call.tensor(6, &f.bias);
  f.eps = call.real(7, 1e-5);
  Rows rows;
  rows.n = row_length(f.in, call.ints(4));
  if (rows.n == 0) return CW_UNSUPPORTED;
  rows.rows = f.in.numel() / rows.n;
  return run_forward(call, f, rows);
}

// out, rstd, input, normalized_shape, weight, eps
cw_status rms_norm(KernelCall& call, const void*) {
  Forward f;
  if (!call.tensor(0, &f.out) || !call.tensor(1, &f.rstd) || !call.tensor(2, &f.in)) return CW_UNSUPPORTED;
  f.weighted = call.tensor(4, &f.weight);
  const double least =
      f.in.dtype == kF64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  f.eps = call.real(5, least);
  Rows rows;
  rows.centered = false;
  rows.n = row_length(f.in, call.ints(3));
  if (rows.n == 0) return CW_UNSUPPORTED;
  rows.rows = f.in.numel() / rows.n;
  return run_forward(call, f, rows);
}

// out, mean, rstd, input, weight, bias, N, C, HxW, group, eps
cw_status group_norm(KernelCall& call, const void*) {
  Forward f;
  if (!call.tensor(0, &f.out) || !call.tensor(1, &f.mean) || !call.tensor(2, &f.rstd) || !call.tensor(3, &f.in))
    return CW_UNSUPPORTED;
  f.weighted = call.tensor(4, &f.weight), f.biased = call.tensor(5, &f.bias);
  f.eps = call.real(10, 1e-5);
  Rows rows;
  rows.grouped = true;
  rows.groups = call.integer(9, 1), rows.plane = call.integer(8);
  rows.rows = call.integer(6) * rows.groups;
  if (rows.rows <= 0 || rows.plane <= 0) return CW_UNSUPPORTED;
  rows.n = f.in.numel() / rows.rows;
  return run_forward(call, f, rows);
}

cw_status backward_rows(KernelCall& call, const NormBackward& b, const Rows& rows) {
  if (!takes(call, {&b.grad, &b.in, &b.rstd}) || (b.weighted && !takes(call, {&b.weight}))) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  const auto statistics = [&](Source& s, const Teams& teams) {
    define(s, types, teams);
    s.define("CENTERED", rows.centered);
    reads(s, "GRAD", "grad", b.grad);
    reads(s, "IN", "in", b.in);
    if (rows.centered) reads(s, "MEAN", "mean", b.mean);
    reads(s, "RSTD", "rstd", b.rstd);
    if (!rows.centered) s.define("MEAN(i)", "0");
  };
  const auto add = [&](Launch& l) {
    l.pointer(b.grad.data).pointer(b.in.data);
    if (rows.centered) l.pointer(b.mean.data);
    l.pointer(b.rstd.data);
  };
  const uint64_t bits = bits_of({&b.grad, &b.in, &b.mean, &b.rstd, &b.weight, &b.to_in}, {b.weighted, rows.centered});
  if (b.has_in) {
    const Teams teams = teams_of(*call.device, rows.rows, rows.n);
    cw_function function = nullptr;
    TRY(call.device->function(
        {family("norm_rows_backward"), bits, teams.bits(), 0},
        [&] {
          Source s(call.device->info);
          s.define("WEIGHTED", b.weighted);
          writes(s, "OUT", "out", b.to_in);
          statistics(s, teams);
          if (b.weighted) reads(s, "WEIGHT", "weight", b.weight);
          s.value("idx", "rows").value("idx", "n");
          s.before(texts::norm_rows::weighted);
          return s.kernel(teams ? team_rows(texts::norm_rows::input_gradient_teams) : texts::norm_rows::input_gradient);
        },
        &function));
    Launch l;
    l.pointer(b.to_in.data);
    add(l);
    if (b.weighted) l.pointer(b.weight.data);
    l.value(rows.rows).value(rows.n);
    TRY(teams ? l.run_groups(*call.device, function, teams.groups(rows.rows), teams.items, call.stream)
              : l.run(*call.device, function, rows.rows, static_cast<double>(rows.n) * 8, call.stream));
  }
  if (!b.has_weight && !b.has_bias) return CW_OK;
  constexpr int64_t kWide = 64;
  const int64_t blocks = (rows.n + kWide - 1) / kWide;
  const int64_t wanted = int64_t{call.device->info.compute_units} * (call.device->in_turn() ? 2 : 256);
  const Teams teams = teams_of(*call.device, rows.n, rows.rows, true);
  // Parts are short enough for a sum in T, and their sums are added up wide.
  const int64_t parts = teams ? parts_of(*call.device, teams, rows.n, rows.rows)
                              : std::clamp<int64_t>(std::max(wanted / blocks, rows.rows / 1024), 1, rows.rows);
  void* sums = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(2 * parts * rows.n * size_of(types.compute)), &sums));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("norm_columns"), bits, teams.bits(), 0},
      [&] {
        Source s(call.device->info);
        s.define("WIDE", kWide);
        s.out(name_of(types.compute), "sums");
        statistics(s, teams);
        for (const char* v : {"units", "rows", teams ? "width" : "n", "blocks", "parts"}) s.value("idx", v);
        return s.kernel(teams ? team_rows(texts::norm_rows::columns_teams, "units") : texts::norm_rows::columns);
      },
      &function));
  Launch l;
  l.pointer(sums);
  add(l);
  const int64_t units = teams ? rows.n * parts : blocks * parts;
  l.value(units).value(rows.rows).value(rows.n).value(blocks).value(parts);
  TRY(teams ? l.run_groups(*call.device, function, teams.groups(units), teams.items, call.stream)
            : l.run(*call.device, function, units, static_cast<double>(rows.rows) / parts * kWide * 4, call.stream));
  Tensor partial;
  partial.dtype = types.compute;
  partial.ndim = 2;
  partial.shape[0] = parts, partial.shape[1] = rows.n;
  partial.strides[0] = rows.n, partial.strides[1] = 1;
  partial.data = static_cast<const char*>(sums);
  if (b.has_weight) TRY(sum_into(call, flat(b.to_weight), partial, {0}));
  partial.data += parts * rows.n * size_of(types.compute);
  if (b.has_bias) TRY(sum_into(call, flat(b.to_bias), partial, {0}));
  return CW_OK;
}

// grad_input, grad_weight, grad_bias, grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
cw_status layer_norm_backward(KernelCall& call, const void*) {
  NormBackward b;
  b.has_in = call.tensor(0, &b.to_in), b.has_weight = call.tensor(1, &b.to_weight);
  b.has_bias = call.tensor(2, &b.to_bias);
  if (!call.tensor(3, &b.grad) || !call.tensor(4, &b.in) || !call.tensor(6, &b.mean) || !call.tensor(7, &b.rstd))
    return CW_UNSUPPORTED;
  b.weighted = call.tensor(8, &b.weight);
  Rows rows;
  rows.n = row_length(b.in, call.ints(5));
  if (rows.n == 0 || b.in.numel() == 0 || !takes(call, {&b.mean})) return CW_UNSUPPORTED;
  rows.rows = b.in.numel() / rows.n;
  return backward_rows(call, b, rows);
}

// grad_input, grad_weight, grad_out, input, normalized_shape, rstd, weight, output_mask
cw_status rms_norm_backward(KernelCall& call, const void*) {
  NormBackward b;
  b.has_in = call.tensor(0, &b.to_in), b.has_weight = call.tensor(1, &b.to_weight);
  if (!call.tensor(2, &b.grad) || !call.tensor(3, &b.in) || !call.tensor(5, &b.rstd)) return CW_UNSUPPORTED;
  b.weighted = call.tensor(6, &b.weight);
  Rows rows;
  rows.centered = false;
  rows.n = row_length(b.in, call.ints(4));
  if (rows.n == 0 || b.in.numel() == 0) return CW_UNSUPPORTED;
  rows.rows = b.in.numel() / rows.n;
  return backward_rows(call, b, rows);
}

// grad_input, grad_weight, grad_bias, grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask
cw_status group_norm_backward(KernelCall& call, const void*) {
  NormBackward b;
  b.has_in = call.tensor(0, &b.to_in), b.has_weight = call.tensor(1, &b.to_weight);
  b.has_bias = call.tensor(2, &b.to_bias);
  if (!call.tensor(3, &b.grad) || !call.tensor(4, &b.in) || !call.tensor(5, &b.mean) || !call.tensor(6, &b.rstd))
    return CW_UNSUPPORTED;
  b.weighted = call.tensor(7, &b.weight);
  if (!takes(call, {&b.grad, &b.in, &b.mean, &b.rstd}) || (b.weighted && !takes(call, {&b.weight})))
    return CW_UNSUPPORTED;
  const int64_t batch = call.integer(8), channels = call.integer(9), plane = call.integer(10);
  const int64_t groups = call.integer(11, 1), rows = batch * groups;
  if (b.in.numel() == 0) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  void* sums = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(2 * batch * channels * size_of(types.compute)), &sums));
  const int64_t count = b.in.numel() / rows;
  // A pass over rows of n elements; by teams there are two, and without them one that is both.
  enum Pass : uint64_t { kWhole, kSums, kInput };
  const auto pass = [&](Pass which, int64_t many, int64_t n) {
    const Teams teams = which == kWhole ? Teams{} : teams_of(*call.device, many, n);
    const bool writes_in = b.has_in && which != kSums;
    cw_function function = nullptr;
    TRY(call.device->function(
        {family("group_norm_backward"),
         bits_of({&b.grad, &b.in, &b.mean, &b.rstd, &b.weight, &b.to_in}, {b.weighted, b.has_in, is_short(count)}),
         teams.bits(), which},
        [&] {
          Source s(call.device->info);
          define(s, types, teams);
          s.define("WEIGHTED", b.weighted).define("HAS_OUT", b.has_in);
          s.out(name_of(types.compute), "sums");
          if (writes_in) writes(s, "OUT", "out", b.to_in);
          reads(s, "GRAD", "grad", b.grad);
          reads(s, "IN", "in", b.in);
          reads(s, "MEAN", "mean", b.mean);
          reads(s, "RSTD", "rstd", b.rstd);
          if (b.weighted)
            reads(s, "WEIGHT", "weight", b.weight);
          else
            s.define("WEIGHT(i)", "1");
          for (const char* v : {"rows", "n", "groups", "count"}) s.value("idx", v);
          if (which == kWhole) return s.kernel(texts::norm_rows::group_backward);
          s.value("idx", "channels").value("idx", "plane");
          s.define("PLANE(j)", is_short(count) ? "((u32)(j) / (u32)plane)" : "((j) / plane)");
          return s.kernel(
              team_rows(which == kSums ? texts::norm_rows::group_sums_teams : texts::norm_rows::group_input_teams));
        },
        &function));
    Launch l;
    l.pointer(sums);
    if (writes_in) l.pointer(b.to_in.data);
    l.pointer(b.grad.data).pointer(b.in.data).pointer(b.mean.data).pointer(b.rstd.data);
    if (b.weighted) l.pointer(b.weight.data);
    l.value(many).value(n).value(groups).value(count);
    if (which == kWhole) return l.run(*call.device, function, many, static_cast<double>(count) * 10, call.stream);
    l.value(channels / groups).value(plane);
    return l.run_groups(*call.device, function, teams.groups(many), teams.items, call.stream);
  };
  if (teams_of(*call.device, rows, count)) {
    TRY(pass(kSums, batch * channels, plane));
    if (b.has_in) TRY(pass(kInput, rows, count));
  } else {
    TRY(pass(kWhole, rows, plane));
  }
  Tensor partial;
  partial.dtype = types.compute;
  partial.ndim = 2;
  partial.shape[0] = batch, partial.shape[1] = channels;
  partial.strides[0] = channels, partial.strides[1] = 1;
  partial.data = static_cast<const char*>(sums);
  if (b.has_weight) TRY(sum_into(call, flat(b.to_weight), partial, {0}));
  partial.data += batch * channels * size_of(types.compute);
  if (b.has_bias) TRY(sum_into(call, flat(b.to_bias), partial, {0}));
  return CW_OK;
}

}  // namespace

Kernels row_norm_kernels() {
  constexpr uint32_t dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS, gradient = CW_NEEDS_CONTIGUOUS;
  return {{"aten::native_layer_norm", layer_norm, kFloats, dense},
          {"aten::native_layer_norm_backward", layer_norm_backward, kFloats, gradient},
          {"aten::_fused_rms_norm", rms_norm, kFloats, dense},
          {"aten::_fused_rms_norm_backward", rms_norm_backward, kFloats, gradient},
          {"aten::native_group_norm", group_norm, kFloats, dense},
          {"aten::native_group_norm_backward", group_norm_backward, kFloats, gradient}};
}

}  // namespace causeway::portable
