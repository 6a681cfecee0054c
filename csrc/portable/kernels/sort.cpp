// Sorting: runs of 16 in an item each, then merges of neighbouring runs, twice as long at each pass. On a CPU an item
// merges two runs; elsewhere each element finds its place in the merged run by a binary search in the other one. Stable,
// of any length, with no memory shared between items. top-k of few takes them out of one pass; by teams where
// items run in parallel, which hold parts of a row and name their best, one after the other.
// What is put together here, and is in no .cl: offsets in as many dimensions as there are.
#include <algorithm>

#include "portable/kernels/gemm.h"
#include "portable/order.h"
#include "portable/kernels/sort.cl.h"

namespace causeway::portable {

namespace {

constexpr int64_t kRun = 16;
constexpr int64_t kFew = 64;  // of top-k, kept in order by insertion

std::string type_of(Dtype dtype) { return compute_of(dtype) == kBool ? "u8" : name_of(compute_of(dtype)); }

void define_order(Program& p, bool descending) {
  p.specialise(descending, [descending](Source& s) { s.define("DESCENDING", descending).before(texts::sort::order); });
}

void at_least_1d(Tensor& t) {
  if (t.ndim == 0) t.ndim = 1, t.shape[0] = 1, t.strides[0] = 1;
}

// As the value and the places of a reduction over `dim`: with that dimension, of size 1, last.
Tensor reduced(const Tensor& out, const Tensor& in, int dim) {
  Tensor t = out;
  if (t.ndim == in.ndim) return to_last(t, dim);
  t.shape[t.ndim] = 1, t.strides[t.ndim] = 1, ++t.ndim;
  return t;
}

// values, indices, self, stable, dim, descending
cw_status sort(KernelCall& call, const void*) {
  Tensor values, places, in;
  if (!call.tensor(0, &values) || !call.tensor(1, &places) || !call.tensor(2, &in) || values.dtype != in.dtype ||
      places.dtype != kI64)
    return CW_UNSUPPORTED;
  for (Tensor* t : {&values, &places, &in}) at_least_1d(*t);
  const int dim = wrap(call.integer(4, -1), in.ndim);
  Sorted sorted;
  TRY(sort_rows(call, in, dim, call.integer(5) != 0, &sorted));
  TRY(copy_into(call, to_last(values, dim), sorted.keys));
  return copy_into(call, to_last(places, dim), sorted.places);
}

cw_status topk_by_teams(KernelCall& call, Tensor in, int dim, int64_t k, bool largest, const Tensor& values,
                        const Tensor& places) {
  constexpr int64_t kMostHeld = 8;
  std::vector<int64_t> shape, to_values, to_places;
  for (int d = 0; d < in.ndim; ++d)
    if (d != dim)
      shape.push_back(in.shape[d]), to_values.push_back(values.strides[d]), to_places.push_back(places.strides[d]);
  const int64_t rows = in.numel() / in.shape[dim];
  const void* given = nullptr;  // the places of what is in `in`; NULL: where they are
  for (;;) {
    const int64_t n = in.shape[dim], most = teams_of(*call.device, rows, 1024).items * kMostHeld;
    const int64_t parts = (n + most - 1) / most;
    const Teams teams = teams_of(*call.device, rows * parts, std::min(n, most));
    std::vector<int64_t> strides;
    for (int d = 0; d < in.ndim; ++d)
      if (d != dim) strides.push_back(in.strides[d]);
    Tensor best = values, at = places;
    if (parts > 1) {
      void *keys = nullptr, *indices = nullptr;
      const auto many = static_cast<uint64_t>(rows * parts * k);
      TRY(scratch(*call.device, call.stream, many * size_of(in.dtype), &keys));
      TRY(scratch(*call.device, call.stream, many * 8, &indices));
      best = dense(keys, in.dtype, {rows, parts * k}), at = dense(indices, kI64, {rows, parts * k});
    }
    const std::string type = type_of(in.dtype);
    Program p(call, "topk_by_teams");
    p.define("A", type).define("T", type);
    p.before(teams_text(teams, kI64));
    define_order(p, largest);
    p.before(best_text(type, "(BEFORE(v, w) || (!BEFORE(w, v) && (i) < (j)))"));
    p.in("x", in.data, in.dtype).out("values", best.data, in.dtype).out("places", at.data, kI64);
    if (given) p.in("given", given, kI64);
    p.define("PLACE_OF(i)", given ? "given(row * size + (i))" : "(i)");
    p.value("size", n).value("parts", parts).value("k", k).value("step", in.strides[dim]);
    p.value("values_step", parts > 1 ? 1 : values.strides[dim])
        .value("places_step", parts > 1 ? 1 : places.strides[dim]);
    std::string text = texts::sort::best_ones,
                offsets = "idx ib = 0, vb = 0, pb = 0;\n" + offset_text(p, "ib", "row", shape, strides);
    if (parts > 1)
      offsets += "vb = pb = u * k;\n";
    else
      offsets += offset_text(p, "vb", "row", shape, to_values) + offset_text(p, "pb", "row", shape, to_places);
    text.replace(text.find("OFFSETS"), 7, offsets);
    TRY(p.by_teams(teams, rows * parts, text, "LOCAL idx ats[2 * ITEMS];\n"));
    if (parts == 1) return CW_OK;
    // The candidates, with the dimensions of `in`: those that are kept in their order, then the places in the row.
    Tensor next = in;
    next.data = best.data;
    int64_t stride = parts * k;
    for (int d = in.ndim; d-- > 0;)
      if (d != dim) next.strides[d] = stride, stride *= next.shape[d];
    next.shape[dim] = parts * k, next.strides[dim] = 1;
    in = next, given = at.data;
  }
}

// values, indices, self, k, dim, largest, sorted
cw_status topk(KernelCall& call, const void*) {
  Tensor values, places, in;
  if (!call.tensor(0, &values) || !call.tensor(1, &places) || !call.tensor(2, &in) || values.dtype != in.dtype ||
      places.dtype != kI64)
    return CW_UNSUPPORTED;
  for (Tensor* t : {&values, &places, &in}) at_least_1d(*t);
  const int64_t k = call.integer(3);
  const int dim = wrap(call.integer(4, -1), in.ndim);
  const bool largest = call.integer(5, 1) != 0;
  const int64_t n = in.shape[dim], rows = in.numel() / std::max<int64_t>(n, 1);
  if (k < 1 || k > n) return CW_UNSUPPORTED;
  if (k <= kFew && rows > 0 && teams_of(*call.device, rows, n))
    return topk_by_teams(call, in, dim, k, largest, values, places);
  if (k > kFew || (!call.device->in_turn() && rows < 2048 && n > 4096)) {
    Sorted sorted;
    TRY(sort_rows(call, in, dim, largest, &sorted));
    TRY(copy_into(call, to_last(values, dim), narrow(sorted.keys, in.ndim - 1, 0, k)));
    return copy_into(call, to_last(places, dim), narrow(sorted.places, in.ndim - 1, 0, k));
  }
  int64_t shape[kMostDims];
  std::copy(in.shape, in.shape + in.ndim, shape);
  shape[dim] = 1;
  Program p(call, "topk");
  p.in("x", in)
      .out("values", values)
      .out("places", places)
      .value("size", n)
      .value("k", k)
      .define("T", type_of(in.dtype));
  define_order(p, largest);
  p.specialise(static_cast<uint64_t>(dim), [dim](Source& s) {
    const std::string D = std::to_string(dim);
    s.define("STRIDE", "x_s" + D).define("VALUES_STRIDE", "values_s" + D).define("PLACES_STRIDE", "places_s" + D);
  });
  return p.each(shape, in.ndim, texts::sort::topk, static_cast<double>(n) * 6);
}

enum class Pick : int64_t { Kth, Median, NanMedian, Mode };

// Of each sorted row one element: the k-th, the middle one, the most frequent.
cw_status pick_row(KernelCall& call, const Tensor& in, int dim, Pick pick, int64_t k, const Tensor& values,
                   const Tensor* places) {
  Sorted sorted;
  TRY(sort_rows(call, in, dim, false, &sorted));
  const Tensor value = reduced(values, in, dim);
  Program p(call, "pick_row");
  p.in("x", sorted.keys).in("at", sorted.places).out("value", value);
  if (places) p.out("place", reduced(*places, in, dim));
  p.value("size", in.shape[dim])
      .value("k", k)
      .define("PICK", static_cast<int64_t>(pick))
      .define("T", type_of(in.dtype));
  p.define("WITH_PLACE", places != nullptr);
  return p.each(value, texts::sort::pick, static_cast<double>(in.shape[dim]) * (pick == Pick::Mode ? 4 : 1) + 10);
}

// kthvalue: values, indices, self, k, dim, keepdim; the others without k
cw_status picked(KernelCall& call, const void* data) {
  const Pick pick = *static_cast<const Pick*>(data);
  Tensor values, places, in;
  if (!call.tensor(0, &values) || !call.tensor(1, &places) || !call.tensor(2, &in) || values.dtype != in.dtype ||
      places.dtype != kI64)
    return CW_UNSUPPORTED;
  at_least_1d(in);
  const bool kth = pick == Pick::Kth;
  const int dim = wrap(call.integer(kth ? 4 : 3, -1), in.ndim);
  const int64_t k = kth ? call.integer(3) - 1 : 0;
  if (in.shape[dim] == 0 || k < 0 || k >= in.shape[dim]) return CW_UNSUPPORTED;
  return pick_row(call, in, dim, pick, k, values, &places);
}

// out, self: of all elements
cw_status median(KernelCall& call, const void* data) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !in.contiguous() || in.numel() == 0 || out.dtype != in.dtype)
    return CW_UNSUPPORTED;
  return pick_row(call, dense(in.data, in.dtype, {in.numel()}), 0, *static_cast<const Pick*>(data), 0, out, nullptr);
}

}  // namespace

Tensor to_last(const Tensor& t, int dim) {
  Tensor r = t;
  for (int d = dim; d + 1 < t.ndim; ++d) r.shape[d] = t.shape[d + 1], r.strides[d] = t.strides[d + 1];
  if (t.ndim) r.shape[t.ndim - 1] = t.shape[dim], r.strides[t.ndim - 1] = t.strides[dim];
  return r;
}

cw_status sort_rows(KernelCall& call, const Tensor& given, int dim, bool descending, Sorted* out) {
  if (!(kReals >> given.dtype & 1) || (given.dtype == kF64 && !has_f64(call))) return CW_UNSUPPORTED;
  const Tensor in = to_last(given, dim);
  const int64_t n = in.shape[in.ndim - 1], all = in.numel(), rows = n ? all / n : 0;
  const std::vector<int64_t> shape(in.shape, in.shape + in.ndim);
  void *keys[2] = {}, *places[2] = {};
  const int copies = n > kRun ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(std::max<int64_t>(all, 1) * size_of(in.dtype)),
                &keys[i]));
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(std::max<int64_t>(all, 1) * 8), &places[i]));
  }
  int now = 0;
  {
    Program p(call, "sort_runs");
    p.in("x", in).out("key", keys[0], in.dtype).out("place", places[0], kI64).define("T", type_of(in.dtype));
    define_order(p, descending);
    p.value("size", n);
    std::vector<int64_t> runs = shape;
    runs.back() = (n + kRun - 1) / kRun;
    p.specialise(0, [&](Source& s) {
      std::string base = "0", row = "0";
      for (int d = 0; d + 1 < in.ndim; ++d) {
        const std::string D = std::to_string(d);
        base += " + c" + D + " * x_s" + D;
        row = "(" + row + ") * n" + D + " + c" + D;
      }
      const std::string last = std::to_string(in.ndim - 1);
      s.define("BLOCK", "c" + last).define("STRIDE", "x_s" + last).define("IN_BASE", base).define("ROW", row);
    });
    TRY(p.each(runs.data(), in.ndim, texts::sort::runs, 1000));
  }
  for (int64_t width = kRun; width < n; width *= 2, now = 1 - now) {
    Program p(call, "sort_merge");
    p.in("key", keys[now], in.dtype).in("place", places[now], kI64).out("to", keys[1 - now], in.dtype);
    p.out("to_place", places[1 - now], kI64).value("size", n).value("width", width).define("T", type_of(in.dtype));
    define_order(p, descending);
    if (call.device->in_turn()) {
      const int64_t pairs = (n + 2 * width - 1) / (2 * width);
      p.value("pairs", pairs);
      TRY(p.run(rows * pairs, texts::sort::merge, static_cast<double>(width) * 20));
    } else {
      TRY(p.run(all, texts::sort::merge_elements, 60));
    }
  }
  out->keys = dense(keys[now], in.dtype, shape);
  out->places = dense(places[now], kI64, shape);
  return CW_OK;
}

Kernels sort_kernels() {
  static const Pick kth = Pick::Kth, middle = Pick::Median, nan_middle = Pick::NanMedian, mode = Pick::Mode;
  constexpr uint32_t E = CW_NEEDS_ELEMENTS, dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  constexpr cw_dtypes R = kReals;
  return {{"aten::sort.values_stable", sort, R, E},
          {"aten::topk.values", topk, R & ~CW_BOOL, E},
          {"aten::kthvalue.values", picked, R & ~CW_BOOL, E, &kth},
          {"aten::median.dim_values", picked, R & ~CW_BOOL, E, &middle},
          {"aten::nanmedian.dim_values", picked, R & ~CW_BOOL, E, &nan_middle},
          {"aten::mode", picked, R, E, &mode},
          {"aten::mode.values", picked, R, E, &mode},
          {"aten::median", median, R & ~CW_BOOL, dense, &middle},
          {"aten::nanmedian", median, R & ~CW_BOOL, dense, &nan_middle}};
}

}  // namespace causeway::portable
