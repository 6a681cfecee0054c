// What depends on what the data are: nonzero, masked_select, masks as indices, unique, places in sorted lists, counts.
// Where a shape depends on them the host waits for one number.
// What is put together here, and is in no .cl: coordinates and strides, one for each dimension of a call.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "portable/order.h"
#include "portable/kernels/scatter.h"

namespace causeway::portable {

namespace {

std::vector<int64_t> shape_of(const Tensor& t) { return {t.shape, t.shape + t.ndim}; }

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

bool broadcast_shape(const Tensor& a, const Tensor& b, std::vector<int64_t>* out) {
  const int rank = std::max(a.ndim, b.ndim);
  out->assign(rank, 1);
  for (const Tensor* t : {&a, &b})
    for (int d = 0; d < t->ndim; ++d) {
      int64_t& size = (*out)[d + rank - t->ndim];
      if (t->shape[d] == 1) continue;
      if (size != 1 && size != t->shape[d]) return false;
      size = t->shape[d];
    }
  return true;
}

Tensor as_bits(Tensor t) { return t.dtype = bits_of(t.dtype), t; }

// out, self
cw_status nonzero(KernelCall& call, const void*) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in)) return CW_UNSUPPORTED;
  const std::vector<int64_t> shape = shape_of(in);
  void* places = nullptr;
  int64_t count = 0;
  TRY(places_of(call, in, shape, &places, &count));
  TRY(resized(call, 0, {count, in.ndim}, &out));
  if (in.ndim == 0) return CW_OK;
  Program p(call, "nonzero");
  p.out("out", out).in("place", places, kI64);
  std::string text = "idx rest = place(u);\n";
  for (int d = in.ndim - 1; d >= 0; --d) {
    const std::string D = std::to_string(d);
    p.value("m" + D, shape[d]);
    text += "out_set(u * out_s0 + " + D + " * out_s1, rest" + (d ? " % m" + D : "") + ");" +
            (d ? " rest /= m" + D + ";\n" : "\n");
  }
  return p.run(count, text, 20);
}

// out, self, mask
cw_status masked_select(KernelCall& call, const void*) {
  Tensor out, in, mask;
  std::vector<int64_t> shape, strides;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !call.tensor(2, &mask) || mask.dtype != kBool ||
      out.dtype != in.dtype || size_of(in.dtype) > 8 || !broadcast_shape(in, mask, &shape) ||
      !expanded(in, shape, &strides))
    return CW_UNSUPPORTED;
  void* places = nullptr;
  int64_t count = 0;
  TRY(places_of(call, mask, shape, &places, &count));
  TRY(resized(call, 0, {count}, &out));
  Program p(call, "masked_select");
  p.out("out", as_bits(out)).in("x", in.data, bits_of(in.dtype)).in("place", places, kI64);
  const std::string walk = offset_text(p, "from", "place(u)", shape, strides);
  return p.run(count, "idx from = 0;\n" + walk + "out_set(u * out_s0, x(from));", 20);
}

// self, mask, source
cw_status masked_scatter(KernelCall& call, const void*) {
  Tensor out, mask, source;
  if (!call.tensor(0, &out) || !call.tensor(1, &mask) || !call.tensor(2, &source) || mask.dtype != kBool ||
      source.dtype != out.dtype || !source.contiguous() || size_of(out.dtype) > 8)
    return CW_UNSUPPORTED;
  const std::vector<int64_t> shape = shape_of(out);
  std::vector<int64_t> ignored;
  if (!expanded(mask, shape, &ignored)) return CW_UNSUPPORTED;
  void* places = nullptr;
  int64_t count = 0;
  TRY(places_of(call, mask, shape, &places, &count));
  if (count > source.numel()) return CW_UNSUPPORTED;  // the host raises the error
  Program p(call, "masked_scatter");
  p.out("out", out.data, bits_of(out.dtype)).in("x", source.data, bits_of(out.dtype)).in("place", places, kI64);
  const std::string walk = offset_text(p, "at", "place(u)", shape, {out.strides, out.strides + out.ndim});
  return p.run(count, "idx at = 0;\n" + walk + "out_set(at, x(u));", 20);
}

// ---- masks among indices ------------------------------------------------------------------------------------------------

// The same call with each mask replaced by the places where it is true, a list for each of its dimensions.
struct Unmasked {
  std::vector<DLTensor> tensors;
  std::vector<const DLTensor*> list;
  std::vector<int64_t> counts;  // one shape each
  int64_t one = 1;
};

cw_status unmask(KernelCall& call, const cw_arg& given, const Tensor& in, Unmasked* out) {
  out->tensors.reserve(64);
  out->counts.reserve(64);
  for (uint32_t i = 0; i < given.n; ++i) {
    Tensor t;
    if (!given.v.tensors[i]) {
      out->list.push_back(nullptr);
      continue;
    }
    if (!call.read(given.v.tensors[i], &t)) return CW_UNSUPPORTED;
    if (t.dtype != kBool && t.dtype != kU8) {
      out->list.push_back(given.v.tensors[i]);
      continue;
    }
    const size_t first = out->list.size();
    if (t.ndim == 0 || first + t.ndim > static_cast<size_t>(in.ndim)) return CW_UNSUPPORTED;
    for (int d = 0; d < t.ndim; ++d)
      if (t.shape[d] != in.shape[first + d]) return CW_UNSUPPORTED;  // the host raises the error
    void* places = nullptr;
    int64_t count = 0;
    TRY(places_of(call, t, shape_of(t), &places, &count));
    int64_t below = 1;
    std::vector<DLTensor> made(t.ndim);
    out->counts.push_back(count);
    for (int d = t.ndim - 1; d >= 0; --d) {
      void* coordinates = nullptr;
      TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(std::max<int64_t>(count, 1) * 8), &coordinates));
      Program p(call, "coordinates");
      p.out("at", coordinates, kI64).in("place", places, kI64).value("below", below).value("size", t.shape[d]);
      TRY(p.run(count, "at_set(u, place(u) / below % size);", 10));
      below *= t.shape[d];
      made[d] = {coordinates, given.v.tensors[i]->device, 1, {kDLInt, 64, 1}, &out->counts.back(), &out->one, 0};
    }
    for (DLTensor& one : made) {
      out->tensors.push_back(one);
      out->list.push_back(&out->tensors.back());
    }
  }
  return CW_OK;
}

// out, self, indices with a mask among them
cw_status index_mask(KernelCall& call, const void* data) {
  Tensor in;
  if (!call.tensor(1, &in) || call.tag(2) != CW_TENSOR_LIST) return CW_UNSUPPORTED;
  Unmasked list;
  bool any = false;
  for (uint32_t i = 0; i < call.arg(2).n; ++i)
    if (const DLTensor* t = call.arg(2).v.tensors[i])
      any |= t->dtype.code == kDLBool || (t->dtype.code == kDLUInt && t->dtype.bits == 8);
  if (!any) return index_several(call, data);
  TRY(unmask(call, call.arg(2), in, &list));
  std::vector<cw_arg> args = {call.arg(0), call.arg(1), call.arg(2)};
  args[2].n = static_cast<uint32_t>(list.list.size());
  args[2].v.tensors = list.list.data();
  IndexList indices;
  if (!read_indices(call, args[2], in, &indices)) return CW_UNSUPPORTED;
  std::vector<int64_t> shape;
  for (int d = 0; d < in.ndim; ++d) {
    if (d == indices.dims[0] && d == indices.start)
      shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
    if (std::find(indices.dims.begin(), indices.dims.end(), d) == indices.dims.end()) shape.push_back(in.shape[d]);
  }
  if (indices.start == 0 && indices.dims[0] != 0)
    shape.insert(shape.begin(), indices.shape.begin(), indices.shape.end());
  Tensor out;
  TRY(resized(call, 0, shape, &out));
  if (out.numel() == 0) return CW_OK;
  KernelCall one(call.name, args.data(), 3, call.stream);
  one.device = call.device;
  return index_several(one, data);
}

// self, indices with a mask among them, values, accumulate, unsafe
cw_status index_put_any(KernelCall& call, const void* data) {
  Tensor out;
  if (!call.tensor(0, &out) || call.tag(1) != CW_TENSOR_LIST) return CW_UNSUPPORTED;
  const cw_status status = index_put(call, data);
  if (status != CW_UNSUPPORTED) return status;
  Unmasked list;
  TRY(unmask(call, call.arg(1), out, &list));
  std::vector<cw_arg> args;
  for (int i = 0; i < call.size(); ++i) args.push_back(call.arg(i));
  args[1].n = static_cast<uint32_t>(list.list.size());
  args[1].v.tensors = list.list.data();
  KernelCall one(call.name, args.data(), call.size(), call.stream);
  one.device = call.device;
  return index_put(one, data);
}

// ---- unique -------------------------------------------------------------------------------------------------------------

// _unique2: out, inverse, counts, self, sorted, return_inverse, return_counts; unique_consecutive without `sorted`, but
// with a dimension
cw_status unique(KernelCall& call, const void* data) {
  const bool consecutive = data != nullptr;
  Tensor in, out, inverse, counts;
  if (!call.tensor(3, &in) || !in.contiguous() || !(kReals >> in.dtype & 1)) return CW_UNSUPPORTED;
  if (consecutive && !call.is_none(6)) return CW_UNSUPPORTED;
  const bool wants_inverse = call.integer(consecutive ? 4 : 5) != 0,
             wants_counts = call.integer(consecutive ? 5 : 6) != 0;
  const int64_t n = in.numel();
  if (n == 0) return CW_UNSUPPORTED;
  const Tensor flat = dense(in.data, in.dtype, {n});
  Sorted sorted{flat, {}};
  if (!consecutive) TRY(sort_rows(call, flat, 0, false, &sorted));
  void *flags = nullptr, *ranks = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(n), &flags));
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(n * 8), &ranks));
  {
    Program p(call, "unique_flags");
    TRY(p.out("flag", flags, kU8).in("x", sorted.keys).run(n, "flag_set(u, u == 0 || x(u) != x(u - 1));", 4));
  }
  TRY(running_sum(call, dense(flags, kU8, {n}), ranks));
  int64_t count = 0;
  TRY(fetch(*call.device, call.stream, static_cast<const char*>(ranks) + (n - 1) * 8, 8, &count));
  TRY(resized(call, 0, {count}, &out));
  const std::vector<int64_t> none = {0};
  TRY(resized(call, 1, wants_inverse ? shape_of(in) : none, &inverse));
  TRY(resized(call, 2, wants_counts ? std::vector<int64_t>{count} : none, &counts));
  void* starts = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(count * 8 + 8), &starts));
  {
    Program p(call, "unique");
    p.out("out", as_bits(out)).in("x", as_bits(sorted.keys)).in("rank", ranks, kI64).in("flag", flags, kU8);
    p.out("start", starts, kI64);
    if (wants_inverse) p.out("inverse", inverse.data, kI64);
    if (wants_inverse && !consecutive) p.in("place", sorted.places);
    TRY(p.run(n,
              std::string("const idx k = rank(u) - 1;\nif (flag(u)) { out_set(k, x(u)); start_set(k, u); }\n") +
                  (!wants_inverse ? ""
                   : consecutive  ? "inverse_set(u, k);"
                                  : "inverse_set(place(u), k);"),
              10));
  }
  if (!wants_counts) return CW_OK;
  Program p(call, "unique_counts");
  p.out("counts", counts).in("start", starts, kI64).value("all", n).value("count", count);
  return p.run(count, "counts_set(u, (u + 1 < count ? start(u + 1) : all) - start(u));", 4);
}

// ---- places in sorted lists, membership, counts --------------------------------------------------------------------------

struct Search {
  bool bucketize;
};

// searchsorted: out, sorted_sequence, self, out_int32, right, side, sorter; bucketize: out, self, boundaries, out_int32,
// right
cw_status search(KernelCall& call, const void* data) {
  const bool bucketize = static_cast<const Search*>(data)->bucketize;
  const int list_at = bucketize ? 2 : 1, value_at = bucketize ? 1 : 2;
  Tensor out, list, values;
  if (!call.tensor(0, &out) || !call.tensor(list_at, &list) || !call.tensor(value_at, &values) ||
      list.dtype != values.dtype || list.ndim == 0)
    return CW_UNSUPPORTED;
  bool right = call.integer(4) != 0;
  if (!bucketize) {
    if (call.tag(5) == CW_STRING) right = std::strcmp(call.string(5), "right") == 0;
    if (!call.is_none(6)) return CW_UNSUPPORTED;
  }
  if (list.ndim > 1 && list.ndim != values.ndim) return CW_UNSUPPORTED;
  for (Tensor* t : {&out, &values})
    if (t->ndim == 0) t->ndim = 1, t->shape[0] = t->strides[0] = 1;
  std::string base = "0";
  for (int d = 0; d + 1 < list.ndim; ++d) base += " + c" + std::to_string(d) + " * l_s" + std::to_string(d);
  const std::string step = "l_s" + std::to_string(list.ndim - 1);
  Program p(call, "search");
  p.out("out", out).in("l", list).in("v", values).value("size", list.shape[list.ndim - 1]);
  p.define("T", compute_of(list.dtype) == kBool ? "u8" : name_of(compute_of(list.dtype)));
  return p.each(out,
                "const T x = v(v_at);\nidx lo = 0, hi = size;\nconst idx base = " + base +
                    ";\nwhile (lo < hi) {\nconst idx mid = lo + (hi - lo) / 2;\nconst T w = l(base + mid * " + step +
                    ");\nif (!(w " + (right ? ">" : ">=") +
                    " x)) lo = mid + 1; else hi = mid;\n}\nout_set(out_at, lo);",
                80);
}

// out, elements, test_elements, assume_unique, invert: each looked for in the sorted others
cw_status isin(KernelCall& call, const void*) {
  Tensor out, elements, test;
  if (!call.tensor(0, &out) || !call.tensor(1, &elements) || !call.tensor(2, &test) || elements.dtype != test.dtype ||
      out.dtype != kBool || !test.contiguous())
    return CW_UNSUPPORTED;
  Sorted sorted;
  TRY(sort_rows(call, dense(test.data, test.dtype, {test.numel()}), 0, false, &sorted));
  for (Tensor* t : {&out, &elements})
    if (t->ndim == 0) t->ndim = 1, t->shape[0] = t->strides[0] = 1;
  Program p(call, "isin");
  p.out("out", out).in("v", elements).in("l", sorted.keys).value("size", test.numel());
  p.define("T", compute_of(test.dtype) == kBool ? "u8" : name_of(compute_of(test.dtype)));
  return p.each(
      out,
      std::string(
          "const T x = v(v_at);\nidx lo = 0, hi = size;\nwhile (lo < hi) {\nconst idx mid = lo + (hi - lo) "
          "/ 2;\nif (!(l(mid) >= x)) lo = mid + 1; else hi = mid;\n}\nout_set(out_at, (lo < size && l(lo) == x)") +
          (call.integer(4) ? " == 0);" : " != 0);"),
      80);
}

// The least and the largest of a tensor's elements, which are not none, read as T; of floats NaN where there is one.
template <class T>
cw_status range_of(KernelCall& call, const Tensor& in, Dtype as, T range[2]) {
  const int64_t n = in.numel(), parts = std::clamp<int64_t>(n / 1024, 1, 1024);
  void* ends = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>((parts + 1) * 2 * size_of(as)), &ends));
  const std::string beside = "least = v < least || v != v ? v : least; most = w > most || w != w ? w : most;\n";
  Program p(call, "range_parts");
  p.in("x", in).out("e", ends, as).value("size", n).value("parts", parts);
  TRY(p.run(
      parts,
      std::string("const idx from = size * u / parts;\n") + name_of(as) +
          " least = x(from * x_s0), most = least;\nfor (idx i = from; i < size * (u + 1) / parts; ++i) {\nconst " +
          name_of(as) + " v = x(i * x_s0), w = v;\n" + beside + "}\ne_set(2 * u + 2, least); e_set(2 * u + 3, most);",
      4000));
  Program all(call, "range");
  all.out("e", ends, as).value("parts", parts);
  TRY(all.run(1,
              std::string(name_of(as)) + " least = e(2), most = e(3);\nfor (idx i = 1; i < parts; ++i) {\nconst " +
                  name_of(as) + " v = e(2 * i + 2), w = e(2 * i + 3);\n" + beside +
                  "}\ne_set(0, least); e_set(1, most);",
              10));
  return fetch(*call.device, call.stream, ends, 2 * sizeof(T), range);
}

// out, self, weights, minlength
cw_status bincount(KernelCall& call, const void*) {
  Tensor in, weights, out;
  if (!call.tensor(1, &in) || in.ndim != 1 || !is_int(in.dtype) || in.dtype == kBool) return CW_UNSUPPORTED;
  const bool weighed = !call.is_none(2);
  if (weighed && (!call.tensor(2, &weights) || (weights.dtype != kF32 && weights.dtype != kF64))) return CW_UNSUPPORTED;
  const int64_t n = in.numel();
  int64_t range[2] = {0, -1};
  void* wide = nullptr;
  if (n) {
    TRY(range_of(call, in, kI64, range));
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(n * 8), &wide));
    Program p(call, "widen");
    p.in("x", in).out("w", wide, kI64);
    TRY(p.run(n, "w_set(u, x(u * x_s0));", 2));
  }
  if (range[0] < 0) return CW_UNSUPPORTED;  // the host raises the error
  TRY(resized(call, 0, {std::max(range[1] + 1, call.integer(3))}, &out));
  if (out.dtype == kF64 && !has_f64(call)) return CW_UNSUPPORTED;
  if (out.numel() == 0) return CW_OK;
  TRY(fill_with(call, out, {}));
  Placing how;
  how.op = Put::Add;
  return place(call, out, 0, dense(wide, kI64, {n}), weighed ? &weights : nullptr, {kI64, 0, 1}, how);
}

// out, self, bins, min, max: counts in self's dtype, of the bin that an element is in by division, as torch does it
cw_status histc(KernelCall& call, const void*) {
  Tensor in, out;
  Number least, most;
  if (!call.tensor(1, &in) || !call.number(3, &least) || !call.number(4, &most)) return CW_UNSUPPORTED;
  const int64_t n = in.numel(), bins = call.integer(2);
  const bool whole = is_int(in.dtype);
  const Dtype as = whole ? kI64 : in.dtype;
  if (bins < 1 || n == 0 || in.dtype == kBool || (as == kF64 && !has_f64(call))) return CW_UNSUPPORTED;
  const Tensor flat = dense(in.data, in.dtype, {n});
  double from = least.real(), to = most.real();
  if (from == to) {
    if (whole) {
      int64_t range[2];
      TRY(range_of(call, flat, as, range));
      from = static_cast<double>(range[0]), to = static_cast<double>(range[1]);
    } else if (as == kF64) {
      double range[2];
      TRY(range_of(call, flat, as, range));
      from = range[0], to = range[1];
    } else {
      float range[2];
      TRY(range_of(call, flat, as, range));
      from = range[0], to = range[1];
    }
    if (from == to) from -= 1, to += 1;
  }
  // The host has the words; and where a bound is no whole number, what they are for integers.
  if (!(from < to) || !std::isfinite(from) || !std::isfinite(to)) return CW_UNSUPPORTED;
  const auto exact = [](double x) { return x == std::floor(x) && std::abs(x) < 0x1p53; };
  if (whole && !(exact(from) && exact(to))) return CW_UNSUPPORTED;
  TRY(resized(call, 0, {bins}, &out));
  if (out.dtype != in.dtype) return CW_UNSUPPORTED;
  void* places = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(n * 8), &places));
  Program p(call, "histc");
  const auto number = [&](double x) {
    Number found;
    found.dtype = whole ? kI64 : kF64;
    found.d = x, found.i = static_cast<int64_t>(x);
    return found;
  };
  p.in("x", flat).out("k", places, kI64).value("bins", bins).number("least", number(from), as);
  p.number("most", number(to), as).define("T", name_of(as));
  TRY(p.run(
      n,
      "const T v = x(u);\nidx k = bins;\nif (v >= least && v <= most) {\nk = (idx)((v - least) * (T)bins / (most - "
      "least));\nk = k < bins ? k : bins - 1;\n}\nk_set(u, k);",
      20));
  TRY(fill_with(call, out, {}));
  Placing how;
  how.op = Put::Add;
  how.skip = bins;
  return place(call, out, 0, dense(places, kI64, {n}), nullptr, {kI64, 0, 1}, how);
}

// out, repeats, output_size
cw_status repeat_interleave(KernelCall& call, const void*) {
  Tensor in, out;
  if (!call.tensor(1, &in) || in.ndim != 1 || (in.dtype != kI64 && in.dtype != kI32) || in.numel() == 0)
    return CW_UNSUPPORTED;
  const int64_t n = in.numel();
  void* ends = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(n * 8), &ends));
  TRY(running_sum(call, in, ends));
  int64_t count = 0;
  TRY(fetch(*call.device, call.stream, static_cast<const char*>(ends) + (n - 1) * 8, 8, &count));
  if (count < 0 || (!call.is_none(2) && call.integer(2) != count)) return CW_UNSUPPORTED;
  TRY(resized(call, 0, {count}, &out));
  Program p(call, "repeat_interleave");
  p.out("out", out).in("end", ends, kI64).value("size", n);
  return p.run(
      count,
      "idx lo = 0, hi = size;\nwhile (lo < hi) {\nconst idx mid = (lo + hi) / 2;\nif (end(mid) <= u) lo = mid + 1; "
      "else hi = mid;\n}\nout_set(u, lo);",
      60);
}

}  // namespace

bool expanded(const Tensor& t, const std::vector<int64_t>& shape, std::vector<int64_t>* strides) {
  const int rank = static_cast<int>(shape.size());
  if (t.ndim > rank) return false;
  strides->assign(rank, 0);
  for (int d = 0; d < t.ndim; ++d) {
    const int to = d + rank - t.ndim;
    if (t.shape[d] != 1 && t.shape[d] != shape[to]) return false;
    (*strides)[to] = t.shape[d] == 1 ? 0 : t.strides[d];
  }
  return true;
}

cw_status resized(KernelCall& call, int i, const std::vector<int64_t>& shape, Tensor* out) {
  TRY(resize(call.arg(i).v.tensor, shape));
  return call.tensor(i, out) ? CW_OK : CW_FAILED;
}

std::string offset_text(Program& p, const std::string& name, const std::string& of, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& strides) {
  std::string text = "{ idx rest = " + of + ";\n";
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    const std::string size = name + "_n" + std::to_string(d), stride = name + "_t" + std::to_string(d);
    p.value(size, shape[d]).value(stride, strides[d]);
    text += d ? name + " += rest % " + size + " * " + stride + "; rest /= " + size + ";\n"
              : name + " += rest * " + stride + ";\n";
  }
  return text + "}\n";
}

cw_status places_of(KernelCall& call, const Tensor& in, const std::vector<int64_t>& shape, void** places,
                    int64_t* count) {
  const int64_t n = count_of(shape), chunk = call.device->in_turn() ? 16384 : 256, chunks = (n + chunk - 1) / chunk;
  *count = 0;
  if (n == 0) return scratch(*call.device, call.stream, 8, places);
  void *flags = nullptr, *sums = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(n), &flags));
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(chunks * 8), &sums));
  std::vector<int64_t> strides;
  if (!expanded(in, shape, &strides)) return CW_UNSUPPORTED;
  Tensor whole = in;
  whole.ndim = std::max<int>(1, static_cast<int>(shape.size()));
  whole.shape[0] = 1, whole.strides[0] = 0;
  for (size_t d = 0; d < shape.size(); ++d) whole.shape[d] = shape[d], whole.strides[d] = strides[d];
  {
    Program p(call, "flags");
    TRY(p.in("x", whole).out("flag", flags, kU8).each(whole, "flag_set(u, x(x_at) != 0);", 4));
  }
  {
    Program p(call, "count_flags");
    p.in("flag", flags, kU8).out("sum", sums, kI64).value("size", n).value("chunk", chunk);
    TRY(p.run(chunks,
              "const idx to = (u + 1) * chunk < size ? (u + 1) * chunk : size;\nidx had = 0;\n"
              "for (idx i = u * chunk; i < to; ++i) had += flag(i);\nsum_set(u, had);",
              static_cast<double>(chunk)));
  }
  void* ends = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(chunks * 8), &ends));
  TRY(running_sum(call, dense(sums, kI64, {chunks}), ends));
  TRY(fetch(*call.device, call.stream, static_cast<const char*>(ends) + (chunks - 1) * 8, 8, count));
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(std::max<int64_t>(*count, 1) * 8), places));
  Program p(call, "list_flags");
  p.in("flag", flags, kU8).in("end", ends, kI64).out("place", *places, kI64).value("size", n).value("chunk", chunk);
  return p.run(chunks,
               "const idx to = (u + 1) * chunk < size ? (u + 1) * chunk : size;\nidx at = u ? end(u - 1) : 0;\n"
               "for (idx i = u * chunk; i < to; ++i) if (flag(i)) { place_set(at, i); ++at; }",
               static_cast<double>(chunk) * 2);
}

Kernels find_kernels() {
  static const Search sorted{false}, buckets{true};
  static const int yes = 1;
  constexpr uint32_t E = CW_NEEDS_ELEMENTS, dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  constexpr cw_dtypes R = kReals;
  return {{"aten::nonzero", nonzero, R, 0},
          {"aten::masked_select", masked_select, R, 0},
          {"aten::masked_scatter_", masked_scatter, R, E},
          {"aten::index.Tensor", index_mask, R, E},
          {"aten::_index_put_impl_", index_put_any, R, E},
          {"aten::_unique2", unique, R, dense},
          {"aten::unique_consecutive", unique, R, dense, &yes},
          {"aten::searchsorted.Tensor_out", search, R, E, &sorted},
          {"aten::bucketize.Tensor_out", search, R, E, &buckets},
          {"aten::isin.Tensor_Tensor_out", isin, R, dense},
          {"aten::bincount", bincount, R, E},
          {"aten::histc.out", histc, R & ~(CW_FLOAT16 | CW_BFLOAT16), dense},
          {"aten::repeat_interleave.Tensor", repeat_interleave, CW_INT64 | CW_INT32, dense}};
}

}  // namespace causeway::portable
