// Running sums, products, extremes. Many rows: an item each. Few and long ones in three passes: every part of a row by
// itself, what stands before each part, then the parts again from there on. Where items run in parallel and rows lie
// densely, a team takes a row by tiles of four elements an item.
// What is put together here, and is in no .cl: offsets in as many dimensions as there are.
#include <algorithm>

#include "portable/kernels/gemm.h"
#include "portable/order.h"
#include "portable/kernels/scan.cl.h"

namespace causeway::portable {

namespace {

// `start` and `step` (of acc with v) in the accumulator's type A.
struct Scan {
  const char* name;
  const char *start, *step;
};

Dtype accumulator(const KernelCall& call, Dtype dtype) {
  if (is_int(dtype)) return kI64;
  return call.device->in_turn() && has_f64(call) ? kF64 : compute_of(dtype);
}

cw_status scan_by_teams(KernelCall& call, const Scan& op, const Tensor& out, const Tensor& in, int dim, Dtype acc) {
  const int64_t n = in.shape[dim];
  std::vector<int64_t> shape, in_strides, out_strides;
  int64_t rows = 1;
  for (int d = 0; d < in.ndim; ++d)
    if (d != dim) {
      shape.push_back(in.shape[d]), in_strides.push_back(in.strides[d]), out_strides.push_back(out.strides[d]);
      rows *= in.shape[d];
    }
  const Teams teams = teams_of(*call.device, rows, n);
  const int64_t parts = parts_of(*call.device, teams, rows, n);
  const auto begin = [&](Program& p, const Teams& by) {
    p.define("A", name_of(acc)).define("START", op.start).define("STEP_(acc, v)", op.step);
    p.before(teams_text(by, acc) + (op.step[0] == 'l' ? texts::scan::log_add : ""));
  };
  void* sums = nullptr;
  if (parts > 1) {  // of each part by itself, then from the row's start on
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(2 * rows * parts * size_of(acc)), &sums));
    Program p(call, "scan_part_sums");
    begin(p, teams);
    p.before(fold_text("team_fold", "A", "STEP_(a, b)"));
    p.in("x", in.data, in.dtype).out("sums", sums, acc).value("size", n).value("parts", parts);
    p.value("step_in", in.strides[dim]);
    std::string text = texts::scan::part_sums;
    text.replace(text.find("OFFSETS"), 7, "idx ib = 0;\n" + offset_text(p, "ib", "row", shape, in_strides));
    TRY(p.by_teams(teams, rows * parts, text));
    const Tensor each = dense(sums, acc, {rows, parts});
    Tensor until = each;
    until.data += rows * parts * size_of(acc);
    TRY(scan_by_teams(call, op, until, each, 1, acc));
    sums = const_cast<char*>(until.data);
  }
  Program p(call, "scan_tiles");
  begin(p, teams);
  p.define("TILE", "(4 * TEAM)").define("CHUNK", "(TEAM / WIDTH)");
  // A cell of 33 is left free: an item's four lie beside its neighbour's.
  p.define("TILE_AT(i)", "(which * TILE + (i) + (which * TILE + (i)) / 32)");
  p.in("x", in.data, in.dtype).out("out", out.data, out.dtype).value("size", n).value("parts", parts);
  p.value("step_in", in.strides[dim]).value("step_out", out.strides[dim]);
  if (parts > 1) p.in("sums", sums, acc);
  p.define("SUMS(i)", parts > 1 ? "sums(i)" : "START");
  std::string text = texts::scan::scan_tiles;
  text.replace(text.find("OFFSETS"), 7,
               "idx ib = 0, ob = 0;\n" + offset_text(p, "ib", "row", shape, in_strides) +
                   offset_text(p, "ob", "row", shape, out_strides));
  return p.by_teams(teams, rows * parts, text, "LOCAL A tile[TILE * TEAMS + TILE * TEAMS / 32 + 1];\n");
}

cw_status scan_into(KernelCall& call, const Scan& op, const Tensor& out, const Tensor& in, int dim) {
  const int64_t n = in.shape[dim];
  int64_t shape[kMostDims], columns = 1;
  for (int d = 0; d < in.ndim; ++d) {
    shape[d] = in.shape[d];
    if (d != dim) columns *= shape[d];
  }
  // Rows that lie beside each other have neighbouring items already, in the passes below.
  if (columns > 0 && n > 0 && teams_of(*call.device, columns, n) && (in.strides[dim] <= 1 || columns < 32))
    return scan_by_teams(call, op, out, in, dim, accumulator(call, out.dtype));
  const bool cpu = call.device->in_turn();
  const int64_t wanted = cpu ? int64_t{call.device->info.compute_units} : 8192;
  const int64_t parts = std::max<int64_t>(1, std::min(wanted / std::max<int64_t>(columns, 1), n / (cpu ? 8192 : 128)));
  shape[dim] = parts;
  const Dtype acc = accumulator(call, out.dtype);
  const std::string name = name_of(acc);
  const auto describe = [&](Source& s) {
    std::string column = "0", base_in = "0", base_out = "0";
    for (int d = 0; d < in.ndim; ++d) {
      if (d == dim) continue;
      const std::string K = std::to_string(d);
      column = "(" + column + ") * n" + K + " + c" + K;
      base_in += " + c" + K + " * x_s" + K, base_out += " + c" + K + " * out_s" + K;
    }
    const std::string D = std::to_string(dim);
    s.define("PART", "c" + D).define("PARTS", "n" + D).define("ROW", "(" + column + ") * n" + D);
    s.define("IN_BASE", base_in).define("IN_STRIDE", "x_s" + D);
    s.define("OUT_BASE", base_out).define("OUT_STRIDE", "out_s" + D).define("SEVERAL", parts > 1);
  };
  void* sums = nullptr;
  const auto begin = [&](Program& p) {
    p.define("A", name).in("x", in).value("size", n).define("START", op.start).define("STEP_(acc, v)", op.step);
    p.specialise(static_cast<uint64_t>(dim), describe);
    if (op.step[0] == 'l') p.before(texts::scan::log_add);
    if (parts > 1) p.out("sums", sums, acc);
  };
  const double cost = static_cast<double>(n) / static_cast<double>(parts) * 6;
  if (parts > 1) {
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(columns * parts * size_of(acc)), &sums));
    Program first(call, "scan_parts");
    begin(first);
    TRY(first.each(shape, in.ndim, texts::scan::parts, cost));
    Program between(call, "scan_between");
    between.define("A", name).define("START", op.start).define("STEP_(acc, v)", op.step);
    if (op.step[0] == 'l') between.before(texts::scan::log_add);
    between.out("sums", sums, acc).value("parts", parts);
    TRY(between.run(columns, texts::scan::between, static_cast<double>(parts) * 4));
  }
  Program last(call, "scan");
  begin(last);
  last.out("out", out);
  return last.each(shape, in.ndim, texts::scan::whole, cost);
}

// out, self, dim, dtype
cw_status scan(KernelCall& call, const void* data) {
  const Scan& op = *static_cast<const Scan*>(data);
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in)) return CW_UNSUPPORTED;
  if (in.dtype != out.dtype && !(is_int(in.dtype) && (out.dtype == kI64 || is_float(out.dtype)))) return CW_UNSUPPORTED;
  if (out.dtype == kBool || (out.dtype == kF64 && !has_f64(call))) return CW_UNSUPPORTED;
  const int64_t dim = call.integer(2);
  if (in.ndim == 0) in.ndim = out.ndim = 1, in.shape[0] = out.shape[0] = in.strides[0] = out.strides[0] = 1;
  return scan_into(call, op, out, in, wrap(dim, in.ndim));
}

// self, values, indices, dim: nothing is returned
cw_status extreme(KernelCall& call, const void* data) {
  Tensor in, values, places;
  if (!call.tensor(0, &in) || !call.tensor(1, &values) || !call.tensor(2, &places) || values.dtype != in.dtype ||
      places.dtype != kI64)
    return CW_UNSUPPORTED;
  if (in.numel() == 0) return CW_OK;
  if (in.ndim == 0)
    for (Tensor* t : {&in, &values, &places}) t->ndim = 1, t->shape[0] = t->strides[0] = 1;
  const int dim = wrap(call.integer(3), in.ndim);
  int64_t shape[kMostDims];
  std::copy(in.shape, in.shape + in.ndim, shape);
  shape[dim] = 1;
  const std::string type = compute_of(in.dtype) == kBool ? "u8" : name_of(compute_of(in.dtype));
  Program p(call, "extreme");
  p.in("x", in).out("values", values).out("places", places).value("size", in.shape[dim]);
  p.define("T", type);
  p.specialise(static_cast<uint64_t>(dim) | static_cast<uint64_t>(data != nullptr) << 8, [&](Source& s) {
    const std::string D = std::to_string(dim);
    s.define("BEYOND", data ? ">=" : "<=").define("IN_STRIDE", "x_s" + D);
    s.define("VALUES_STRIDE", "values_s" + D).define("PLACES_STRIDE", "places_s" + D);
  });
  return p.each(shape, in.ndim, texts::scan::extreme, static_cast<double>(in.shape[dim]) * 6);
}

const Scan kSum = {"aten::cumsum.out", "0", "((acc) + (v))"};

}  // namespace

cw_status running_sum(KernelCall& call, const Tensor& in, void* out) {
  return scan_into(call, kSum, dense(out, kI64, {in.numel()}), in, 0);
}

Kernels scan_kernels() {
  static const Scan product = {"aten::cumprod.out", "1", "((acc) * (v))"},
                    log_sum = {"aten::_logcumsumexp.out", "-INFINITY", "log_add(acc, v)"};
  static const int largest = 1;
  constexpr cw_dtypes N = kReals;
  return {{kSum.name, scan, N, CW_NEEDS_ELEMENTS, &kSum},
          {product.name, scan, N, CW_NEEDS_ELEMENTS, &product},
          {log_sum.name, scan, kFloats, CW_NEEDS_ELEMENTS, &log_sum},
          {"aten::_cummax_helper", extreme, N, 0, &largest},
          {"aten::_cummin_helper", extreme, N, 0}};
}

}  // namespace causeway::portable
