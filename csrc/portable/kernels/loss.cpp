// The negative log likelihood of classes, as cross_entropy ends with, of rows and of images; and its gradient.
#include <algorithm>

#include "portable/rows.h"
#include "portable/kernels/loss.cl.h"

namespace causeway::portable {

namespace {

struct Nll {
  const char* name;
  bool backward, images;
};

struct Samples {
  int64_t count, classes, plane, step, inside, apart;  // strides of images, of positions in one, and of classes
};

bool samples_of(const Tensor& t, bool images, Samples& s) {
  if (!images) {
    if (t.ndim < 1 || t.ndim > 2) return false;
    s = {t.ndim == 2 ? t.shape[0] : 1, t.size(-1), 1, t.ndim == 2 ? t.strides[0] : 0, 0, t.strides[t.ndim - 1]};
    return true;
  }
  if (t.ndim != 4 || !t.contiguous()) return false;
  const int64_t plane = t.shape[2] * t.shape[3];
  s = {t.shape[0] * plane, t.shape[1], plane, t.shape[1] * plane, 1, plane};
  return true;
}

// output, total_weight, self, target, weight, reduction, ignore_index; or grad_input, grad_output, self, target, weight,
// reduction, ignore_index, total_weight
cw_status nll(KernelCall& call, const void* data) {
  const Nll& op = *static_cast<const Nll*>(data);
  const bool backward = op.backward;
  Tensor out, second, in, target, weight, total;
  if (!call.tensor(0, &out) || !call.tensor(1, &second) || !call.tensor(2, &in) || !call.tensor(3, &target))
    return CW_UNSUPPORTED;
  const bool weighted = !call.is_none(4);
  if (weighted && (!call.tensor(4, &weight) || weight.dtype != in.dtype || weight.ndim != 1)) return CW_UNSUPPORTED;
  if (backward && (!call.tensor(7, &total) || total.dtype != in.dtype)) return CW_UNSUPPORTED;
  const int64_t reduction = call.integer(5, 1), ignored = call.integer(6, -100);
  Samples s{};
  if (!samples_of(backward ? out : in, op.images, s) || target.ndim != in.ndim - 1 || target.numel() != s.count ||
      (op.images && !target.contiguous()))
    return CW_UNSUPPORTED;
  if (target.dtype != kI64 || !is_float(in.dtype) || out.dtype != in.dtype || second.dtype != in.dtype)
    return CW_UNSUPPORTED;
  if (in.dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64)) return CW_UNSUPPORTED;
  const bool each = reduction == 0 && in.ndim > 1, mean = reduction == 1;
  // Of a tensor with an element for each sample, or of one for all.
  const auto each_stride = [&](const Tensor& t) {
    return t.ndim == 0 ? int64_t{0} : op.images ? int64_t{1} : t.strides[t.ndim - 1];
  };
  if (op.images && each && !(backward ? second : out).contiguous()) return CW_UNSUPPORTED;
  const bool wide = (call.device->info.arithmetic & CW_FLOAT64) && call.device->in_turn();
  const Dtype type = wide ? kF64 : compute_of(in.dtype);
  const int64_t wanted = int64_t{call.device->info.compute_units} * (call.device->in_turn() ? 2 : 256);
  Teams teams = teams_of(*call.device, 1, s.count);
  const bool elements = backward && teams;
  if (backward) teams = {};
  const int64_t parts = backward ? 1
                        : teams  ? parts_of(*call.device, teams, 1, s.count)
                                 : std::clamp<int64_t>(s.count / 2048, 1, wanted);
  const bool joins = parts > 1 && !each;
  const auto bits = static_cast<uint64_t>(in.dtype) | static_cast<uint64_t>(weighted) << 8 |
                    static_cast<uint64_t>(each) << 9 | static_cast<uint64_t>(mean) << 10 |
                    static_cast<uint64_t>(joins) << 11 | static_cast<uint64_t>(op.images) << 12 |
                    static_cast<uint64_t>(backward) << 13;
  const std::string name = name_of(in.dtype), store = storage_of(in.dtype);
  const auto source = [&](const Teams& teams) {
    Source src(call.device->info);
    src.before(std::string("typedef ") + name_of(type) + " A;\n");
    if (teams) src.before(teams_text(teams, type) + fold_text("team_sum", "A", "a + b"));
    src.define("LD_IN", "LD_" + name).define("ST_OUT", "ST_" + name).define("LD_W", "LD_" + name);
    src.define("WEIGHTED", weighted)
        .define(teams ? "EACH_LOSS" : "EACH", each)
        .define("MEAN", mean)
        .define("PARTS", joins);
    src.define("AT(i)", op.images ? "((i) / plane * s0 + (i) % plane)" : "((i) * s0)");
    return src;
  };
  void* sums = nullptr;
  if (joins) TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(2 * parts * size_of(type)), &sums));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("nll"), bits, teams.bits(), elements},
      [&] {
        Source src = source(teams);
        if (elements) src.define("IMAGES", op.images);
        src.out(store, "out");
        if (backward)
          src.in(store, "grad").in("i64", "target").in(store, "total");
        else
          src.out(store, "total").in(store, "in").in("i64", "target");
        if (joins) src.out(name_of(type), "sums");
        if (weighted) src.in(store, "weight").value("idx", "weight_stride");
        for (const char* v : {"samples", "parts", "classes", "ignored", "target_stride", "plane", "s0", "s1"})
          src.value("idx", v);
        src.value("idx", backward ? "grad_stride" : "out_stride");
        if (!backward) src.tells();
        if (teams) return src.kernel("LOCAL A cells[2 * ITEMS];\n" + each_row(texts::loss::forward_teams, "parts"));
        return src.kernel(elements   ? texts::loss::backward_elements
                          : backward ? texts::loss::backward
                                     : texts::loss::forward);
      },
      &function));
  Launch l;
  l.pointer(out.data);
  if (backward)
    l.pointer(second.data).pointer(target.data).pointer(total.data);
  else
    l.pointer(second.data).pointer(in.data).pointer(target.data);
  if (joins) l.pointer(sums);
  if (weighted) l.pointer(weight.data).value(weight.strides[0]);
  l.value(s.count).value(parts).value(s.classes).value(ignored).value(each_stride(target)).value(s.plane);
  l.value(s.step).value(s.apart).value(each_stride(backward ? second : out));
  if (!backward) TRY(l.tells(call.name));
  if (elements) return l.run(*call.device, function, s.count * s.classes, 1, call.stream);
  if (backward) return l.run(*call.device, function, s.count, static_cast<double>(s.classes), call.stream);
  TRY(teams ? l.run_groups(*call.device, function, teams.groups(parts), teams.items, call.stream)
            : l.run(*call.device, function, parts, static_cast<double>(s.count) / static_cast<double>(parts) * 8,
                    call.stream));
  if (!joins) return CW_OK;
  const Teams last_teams = teams_of(*call.device, 1, parts);
  TRY(call.device->function(
      {family("nll_join"), bits, last_teams.bits(), 0},
      [&] {
        Source src = source(last_teams);
        src.out(store, "out").out(store, "total").in(name_of(type), "sums").value("idx", "parts");
        if (!last_teams) return src.kernel(texts::loss::join);
        return src.kernel("LOCAL A cells[2 * ITEMS];\nconst idx n = parts, one = 1;\n" +
                          each_row(texts::loss::join_teams, "one"));
      },
      &function));
  Launch last;
  last.pointer(out.data).pointer(second.data).pointer(sums).value(parts);
  if (last_teams) return last.run_groups(*call.device, function, 1, last_teams.items, call.stream);
  return last.run(*call.device, function, 1, static_cast<double>(parts), call.stream);
}

}  // namespace

Kernels loss_kernels() {
  static const Nll ops[] = {{"aten::nll_loss_forward.output", false, false},
                            {"aten::nll_loss_backward.grad_input", true, false},
                            {"aten::nll_loss2d_forward.output", false, true},
                            {"aten::nll_loss2d_backward.grad_input", true, true}};
  Kernels list;
  for (const Nll& op : ops)
    list.push_back({op.name, nll, kFloats | CW_INT64,
                    op.images ? CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS : CW_NEEDS_ELEMENTS, &op});
  return list;
}

}  // namespace causeway::portable
