// Elements that go to other places: scatter, index_add, index_put and their like. No two items write to one place: an
// item owns a column of the result, or a part of one, and takes what goes there in the order of the index. So sums are
// the same at each run, and no atomics are needed. Where values are only put, index_put leaves open which one stays.
// What is put together here, and is in no .cl: what is done for each dimension of a call, or each index.
#include "portable/kernels/scatter.h"

#include <algorithm>
#include <cstring>

#include "portable/program.h"
#include "portable/kernels/scatter.cl.h"

namespace causeway::portable {

namespace {

void at_least_1d(Tensor& t) {
  if (t.ndim == 0) t.ndim = 1, t.shape[0] = 1, t.strides[0] = 1;
}

bool is_index(const Tensor& t) { return t.dtype == kI64 || t.dtype == kI32; }

// In how many parts a column is shared out, so that all of the device has work.
int64_t parts_of(const KernelCall& call, int64_t columns, int64_t size, int64_t count) {
  const bool cpu = call.device->in_turn();
  const int64_t wanted = cpu ? int64_t{call.device->info.compute_units} : 16384;
  if (columns >= wanted || columns == 0) return 1;
  return std::clamp<int64_t>(std::min(wanted / columns, cpu ? count / 8192 : count), 1, std::max<int64_t>(size, 1));
}

const char* combine(Put op) {
  switch (op) {
    case Put::Add:
    case Put::Mean:
      return "old + v";
    case Put::Multiply:
      return "old * v";
    case Put::Max:
      return "MAXIMUM(old, v)";
    case Put::Min:
      return "MINIMUM(old, v)";
    default:
      return "v";
  }
}

bool put_named(const char* name, Put* op) {
  static const std::pair<const char*, Put> names[] = {
      {"add", Put::Add},   {"sum", Put::Add},  {"multiply", Put::Multiply}, {"prod", Put::Multiply},
      {"mean", Put::Mean}, {"amax", Put::Max}, {"amin", Put::Min}};
  for (const auto& [known, put] : names)
    if (std::strcmp(known, name) == 0) return *op = put, true;
  return false;
}

// A tensor of one dimension as the index of dimension `dim` of all of `source`.
Tensor along(const Tensor& index, const Tensor& like, int dim) {
  Tensor r = like;
  r.data = index.data, r.dtype = index.dtype;
  for (int d = 0; d < r.ndim; ++d) r.strides[d] = 0;
  r.strides[dim] = index.ndim ? index.strides[0] : 0;
  r.shape[dim] = index.numel();
  return r;
}

struct Scatter {
  const char* name;
  Put op;
  bool in_place, by_name;  // a string says what is done
  bool along;              // one index for all columns
};

// (out, self | self), dim, index, src or value, ...
cw_status scatter(KernelCall& call, const void* data) {
  const Scatter& op = *static_cast<const Scatter*>(data);
  Tensor out, in, index, source;
  Number number;
  int at = 1;
  if (!call.tensor(0, &out)) return CW_UNSUPPORTED;
  if (!op.in_place && !call.tensor(at++, &in)) return CW_UNSUPPORTED;
  const bool is_number = call.number(at + 2, &number);
  if (!call.tensor(at + 1, &index) || (!is_number && !call.tensor(at + 2, &source))) return CW_UNSUPPORTED;
  Placing how;
  how.op = op.op;
  if (op.by_name) {
    if (!put_named(call.string(at + 3), &how.op)) return CW_UNSUPPORTED;
    how.include_self = call.is_none(at + 4) || call.integer(at + 4) != 0;
  } else if (op.op == Put::Add && op.along) {
    how.scaled = call.number(at + 3, &how.alpha) && how.alpha.real() != 1;
  }
  if (!is_number && source.dtype != out.dtype) return CW_UNSUPPORTED;
  const int dim = wrap(call.integer(at), out.ndim);
  at_least_1d(out);
  if (op.along) {
    if (index.ndim > 1) return CW_UNSUPPORTED;
    Tensor like = is_number || source.ndim == 0 ? out : source;
    if (!is_number && source.ndim == 0) {  // one value: of index_fill, or a tensor without dimensions
      if (op.op != Put::Set && out.numel() != 1) return CW_UNSUPPORTED;
      const Tensor scalar = source;
      source = out;
      source.data = scalar.data;
      for (int d = 0; d < source.ndim; ++d) source.strides[d] = 0;
      source.shape[dim] = index.numel();
    }
    how.wraps = op.in_place && op.op == Put::Set;
    index = along(index, like, dim);
  }
  at_least_1d(index);
  if (!is_number) at_least_1d(source);
  if (index.ndim != out.ndim || (!is_number && source.ndim != out.ndim)) return CW_UNSUPPORTED;
  if (!op.in_place && in.data != out.data) {
    at_least_1d(in);
    if (in.dtype != out.dtype) return CW_UNSUPPORTED;
    if (!scatter_takes(call, out, index)) return CW_UNSUPPORTED;
    TRY(copy_into(call, out, in));
  }
  return place(call, out, dim, index, is_number ? nullptr : &source, number, how);
}

// self, index, source, accumulate: places in all of self, row-major
cw_status put(KernelCall& call, const void*) {
  Tensor out, index, source;
  if (!call.tensor(0, &out) || !call.tensor(1, &index) || !call.tensor(2, &source) || source.dtype != out.dtype ||
      !out.contiguous() || !index.contiguous() || !source.contiguous() || source.numel() != index.numel())
    return CW_UNSUPPORTED;
  Placing how;
  how.op = call.integer(3) ? Put::Add : Put::Set;
  how.wraps = true;
  const Tensor flat = dense(source.data, source.dtype, {source.numel()});
  return place(call, dense(out.data, out.dtype, {out.numel()}), 0, dense(index.data, index.dtype, {index.numel()}),
               &flat, {}, how);
}

}  // namespace

// self, indices, values, accumulate, unsafe
cw_status index_put(KernelCall& call, const void*) {
  Tensor out, values;
  if (!call.tensor(0, &out) || call.tag(1) != CW_TENSOR_LIST || !call.tensor(2, &values) || values.dtype != out.dtype)
    return CW_UNSUPPORTED;
  IndexList list;
  if (!read_indices(call, call.arg(1), out, &list)) return CW_UNSUPPORTED;
  const bool adds = call.integer(3) != 0;
  // The shape of what is put, and the strides of the values in it.
  std::vector<int64_t> shape;
  for (int d = 0; d < out.ndim; ++d) {
    if (static_cast<int>(shape.size()) == list.start) shape.insert(shape.end(), list.shape.begin(), list.shape.end());
    if (std::find(list.dims.begin(), list.dims.end(), d) == list.dims.end()) shape.push_back(out.shape[d]);
  }
  const int rest = out.ndim - static_cast<int>(list.dims.size()), rank = rest + list.rank;
  if (static_cast<int>(shape.size()) < rank) shape.insert(shape.end(), list.shape.begin(), list.shape.end());
  if (static_cast<int>(shape.size()) != rank || rank > kMostDims || values.ndim > rank) return CW_UNSUPPORTED;
  Tensor v = values;
  v.ndim = rank;
  for (int d = 0; d < rank; ++d) {
    const int from = d - (rank - values.ndim);
    v.shape[d] = shape[d];
    v.strides[d] = from < 0 || values.shape[from] == 1 ? 0 : values.strides[from];
    if (from >= 0 && values.shape[from] != 1 && values.shape[from] != shape[d]) return CW_UNSUPPORTED;
  }
  if (rank == 0) at_least_1d(v), shape = {1};
  if (!adds) {
    Tensor to = out, from = v;
    to.dtype = from.dtype = bits_of(out.dtype);
    Program p(call, "index_put");
    p.out("out", to).in("v", from);
    std::string at;
    for (int d = 0; d < v.ndim; ++d) at += (d ? " + c" : "c") + std::to_string(d) + " * v_s" + std::to_string(d);
    const std::string text = add_indices(p, list, out, "out", list.start);
    return p.each(shape.data(), v.ndim, text + "if (good) out_set(from, v(" + at + "));", 16);
  }
  // Where each of the index's places is, as a number within the indexed dimensions; then as scatter along one dimension.
  int64_t places = 1, count = 1;
  for (int64_t n : list.shape) count *= n;
  for (int d : list.dims) places *= out.shape[d];
  void* numbers = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(std::max<int64_t>(count, 1) * 8), &numbers));
  {
    Program p(call, "index_numbers");
    p.out("at", numbers, kI64).tells();
    add_indexed(p);
    std::string text = "idx all = 0;\nint good = 1;\n";
    for (size_t j = 0; j < list.tensors.size(); ++j) {
      const Tensor& t = list.tensors[j];
      const std::string J = "i" + std::to_string(j);
      p.in(J, t.data, t.dtype).value(J + "_n", out.shape[list.dims[j]]);
      std::string from = "0";
      for (int d = 0; d < t.ndim; ++d) {
        p.value(J + "_d" + std::to_string(d), t.shape[d] == 1 ? 0 : t.strides[d]);
        from += " + c" + std::to_string(d + list.rank - t.ndim) + " * " + J + "_d" + std::to_string(d);
      }
      text += "INDEXED(" + J + ", " + from + ", all = all * " + J + "_n + k;)\n";
    }
    TRY(p.each(list.shape.data(), list.rank, text + "at_set(u, good ? all : -1);", 16));
  }
  std::vector<int64_t> own;  // the other dimensions, then the parts
  int64_t columns = 1;
  for (int d = 0; d < out.ndim; ++d)
    if (std::find(list.dims.begin(), list.dims.end(), d) == list.dims.end())
      own.push_back(out.shape[d]), columns *= own.back();
  own.push_back(parts_of(call, columns, places, count));
  Program p(call, "index_accumulate");
  p.out("out", out).in("v", v).in("at", numbers, kI64).value("places", places).value("count", count);
  std::string own_offsets;
  int c = 0, within = 0;
  for (int d = 0; d < out.ndim; ++d) {
    if (std::find(list.dims.begin(), list.dims.end(), d) != list.dims.end()) continue;
    if (within == list.start) within += list.rank;
    own_offsets +=
        "COLUMN(c" + std::to_string(c++) + ", out_s" + std::to_string(d) + ", v_s" + std::to_string(within++) + ") ";
  }
  p.define("COLUMNS", own_offsets).define("PART", "c" + std::to_string(c)).define("PARTS", "n" + std::to_string(c));
  std::string of_place, of_value;
  for (size_t j = list.dims.size(); j-- > 0;) {
    const std::string D = std::to_string(list.dims[j]), n = "d" + D;
    p.value(n, out.shape[list.dims[j]]);
    of_place += j == 0 ? "FIRST_DIGIT(o, k, out_s" + D + ")" : "DIGIT(o, k, " + n + ", out_s" + D + ") ";
  }
  for (int d = list.rank; d-- > 0;) {
    const std::string D = std::to_string(list.start + d), n = "b" + std::to_string(d);
    p.value(n, list.shape[d]);
    of_value += d == 0 ? "FIRST_DIGIT(w, rest, v_s" + D + ")" : "DIGIT(w, rest, " + n + ", v_s" + D + ") ";
  }
  p.define("PLACES", of_place).define("VALUES", of_value).define("FLAGS", out.dtype == kBool);
  return p.each(own.data(), static_cast<int>(own.size()), texts::scatter::accumulate, static_cast<double>(count) * 10);
}

bool scatter_takes(const KernelCall& call, const Tensor& out, const Tensor& index) {
  return is_index(index) && (kReals >> out.dtype & 1) && (out.dtype != kF64 || has_f64(call)) && out.ndim <= 10;
}

cw_status place(KernelCall& call, const Tensor& to, int dim, const Tensor& at, const Tensor* source,
                const Number& number, const Placing& how) {
  if (!scatter_takes(call, to, at)) return CW_UNSUPPORTED;
  const int64_t size = to.shape[dim], count = at.shape[dim];
  int64_t shape[kMostDims], columns = 1;
  for (int d = 0; d < at.ndim; ++d) {
    shape[d] = at.shape[d];
    if (d != dim) columns *= shape[d];
  }
  if (columns == 0 || count == 0) return CW_OK;
  const bool counted = how.op == Put::Mean || !how.include_self;
  // Where all columns of a row go to the same place, a CPU takes rows: WIDE columns of each at once.
  constexpr int64_t kFew = 8;
  const int last = at.ndim - 1;
  const int64_t row = shape[last];
  const bool rows = call.device->in_turn() && last != dim && !counted && row >= kFew && at.strides[last] == 0 &&
                    to.strides[last] == 1 && (!source || source->strides[last] == 1);
  const int64_t wide =
      std::max<int64_t>(64, (row + call.device->info.compute_units - 1) / call.device->info.compute_units);
  if (rows) shape[last] = (row + wide - 1) / wide, columns = columns / row * shape[last];
  shape[dim] = parts_of(call, columns, size, count);
  Tensor out = to;
  Tensor from;
  if (source) from = *source;
  const bool moved = how.op == Put::Set && source;
  if (moved) out.dtype = from.dtype = bits_of(to.dtype);
  Program p(call, "scatter");
  p.out("out", out).in("index", at).value("size", size).value("count", count).tells();
  if (source)
    p.in("src", from);
  else
    p.number("fixed", number, out.dtype);
  if (how.scaled) p.number("alpha", how.alpha, out.dtype);
  if (how.skip >= 0) p.value("skip", how.skip);
  if (rows) p.value("wide", wide).value("row", row);
  p.define("A", compute_of(out.dtype) == kBool ? "u8" : name_of(compute_of(out.dtype)));
  if (counted) {
    void* counts = nullptr;
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(columns * size * 4), &counts));
    p.out("counts", counts, kI32);
  }
  const uint64_t bits = static_cast<uint64_t>(dim) | static_cast<uint64_t>(how.op) << 8 |
                        static_cast<uint64_t>(counted) << 16 | static_cast<uint64_t>(how.include_self) << 17 |
                        static_cast<uint64_t>(how.wraps) << 18 | static_cast<uint64_t>(is_float(to.dtype)) << 19 |
                        static_cast<uint64_t>(rows) << 20;
  p.specialise(bits, [&](Source& s) {
    std::string base[3] = {"0", "0", "0"}, column = "0";
    for (int d = 0; d < at.ndim; ++d) {
      const std::string D = std::to_string(d);
      if (d == dim || (rows && d == last)) continue;
      base[0] += " + c" + D + " * out_s" + D, base[1] += " + c" + D + " * index_s" + D;
      base[2] += " + c" + D + " * src_s" + D;
      column = "(" + column + ") * n" + D + " + c" + D;
    }
    const std::string D = std::to_string(dim);
    s.define("PART", "c" + D).define("PARTS", "n" + D).define("COLUMN", column).define("STRIDE", "out_s" + D);
    s.define("INDEX_STRIDE", "index_s" + D).define("SOURCE_STRIDE", "src_s" + D).define("OUT_BASE", base[0]);
    s.define("INDEX_BASE", base[1]).define("SOURCE_BASE", base[2]).define("FROM_SOURCE", source != nullptr);
    s.define("COUNTED", counted).define("INCLUDES_SELF", how.include_self).define("WRAPS", how.wraps);
    s.define("SKIPS", how.skip >= 0).define("SCALED", how.scaled).define("SETS", how.op == Put::Set);
    s.define("MEAN", how.op == Put::Mean).define("FLOATS", is_float(to.dtype));
    s.define("COMBINED", to.dtype == kBool && how.op == Put::Add ? "old | v" : combine(how.op));
    s.define("ROWS", rows).define("BLOCK", "c" + std::to_string(last));
  });
  const double cost = rows ? static_cast<double>(std::min(row, wide)) * 2 : 6;
  return p.each(shape, at.ndim, texts::scatter::scatter, static_cast<double>(count) * cost);
}

Kernels scatter_kernels() {
  static const auto& table = *new std::vector<Scatter>{
      {"aten::scatter.src_out", Put::Set, false, false, false},
      {"aten::scatter_.src", Put::Set, true, false, false},
      {"aten::scatter.value_out", Put::Set, false, false, false},
      {"aten::scatter_.value", Put::Set, true, false, false},
      {"aten::scatter.reduce_out", Put::Set, false, true, false},
      {"aten::scatter_.reduce", Put::Set, true, true, false},
      {"aten::scatter.value_reduce_out", Put::Set, false, true, false},
      {"aten::scatter_.value_reduce", Put::Set, true, true, false},
      {"aten::scatter_add.out", Put::Add, false, false, false},
      {"aten::scatter_add_", Put::Add, true, false, false},
      {"aten::scatter_reduce.two_out", Put::Set, false, true, false},
      {"aten::scatter_reduce_.two", Put::Set, true, true, false},
      {"aten::index_add.out", Put::Add, false, false, true},
      {"aten::index_add_", Put::Add, true, false, true},
      {"aten::index_copy.out", Put::Set, false, false, true},
      {"aten::index_copy_", Put::Set, true, false, true},
      {"aten::index_reduce.out", Put::Set, false, true, true},
      {"aten::index_reduce_", Put::Set, true, true, true},
      {"aten::index_fill_.int_Scalar", Put::Set, true, false, true},
      {"aten::index_fill_.int_Tensor", Put::Set, true, false, true},
  };
  Kernels list;
  for (const Scatter& op : table) list.push_back({op.name, scatter, kReals, CW_NEEDS_ELEMENTS | CW_TAKES_NUMBERS, &op});
  list.push_back({"aten::put_", put, kReals, CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS});
  return list;
}

}  // namespace causeway::portable
