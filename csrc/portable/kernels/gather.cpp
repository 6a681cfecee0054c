// Elements that come from other places: gather, take, index with several tensors, triangles, flips and rolls, paddings,
// and tensors made of coordinates alone. Each item finds where its element comes from.
// What is put together here, and is in no .cl: what is done for each dimension of a call, or each index.
#include <algorithm>

#include "portable/program.h"
#include "portable/kernels/gather.cl.h"

namespace causeway::portable {

namespace {

bool is_index(const Tensor& t) { return t.dtype == kI64 || t.dtype == kI32; }

// Tensors without dimensions as such of one element.
void at_least_1d(Tensor& t) {
  if (t.ndim == 0) t.ndim = 1, t.shape[0] = 1, t.strides[0] = 1;
}

bool moves(const Tensor& out, const Tensor& in) { return out.dtype == in.dtype && size_of(in.dtype) <= 8; }

Tensor as_bits(Tensor t) { return t.dtype = bits_of(t.dtype), t; }

// What a text calls COORDINATE and STRIDE, of dimension `dim` of x.
void define_dimension(Program& p, int dim) {
  p.specialise(static_cast<uint64_t>(dim), [dim](Source& s) {
    const std::string D = std::to_string(dim);
    s.define("COORDINATE", "c" + D).define("STRIDE", "x_s" + D);
  });
}

// "MACRO(from) MACRO(from + 1) ..": of each dimension before `to`.
std::string each_dimension(const char* macro, int from, int to) {
  std::string all;
  for (int d = from; d < to; ++d) all += std::string(macro) + "(" + std::to_string(d) + ") ";
  return all;
}

// out, self, dim, index, sparse_grad
cw_status gather(KernelCall& call, const void*) {
  Tensor out, in, at;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !call.tensor(3, &at) || !is_index(at) || !moves(out, in))
    return CW_UNSUPPORTED;
  const int dim = wrap(call.integer(2), in.ndim);
  at_least_1d(out), at_least_1d(in), at_least_1d(at);
  if (in.ndim != at.ndim || out.ndim != at.ndim) return CW_UNSUPPORTED;
  Program p(call, "gather");
  p.out("out", as_bits(out)).in("x", as_bits(in)).in("index", at).value("size", in.shape[dim]).tells();
  define_dimension(p, dim);
  return p.each(out, texts::gather::gather, 8);
}

// out, self, index: of all of self, row-major
cw_status take(KernelCall& call, const void*) {
  Tensor out, in, at;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !call.tensor(2, &at) || !is_index(at) || !moves(out, in) ||
      !in.contiguous() || out.ndim != at.ndim)
    return CW_UNSUPPORTED;
  at_least_1d(out), at_least_1d(at);
  Program p(call, "take");
  p.out("out", as_bits(out)).in("x", in.data, bits_of(in.dtype)).in("index", at).value("size", in.numel()).tells();
  return p.each(out, texts::gather::take, 8);
}

// out, self, diagonal
cw_status triangle(KernelCall& call, const void* data) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !moves(out, in) || in.ndim < 2) return CW_UNSUPPORTED;
  const bool lower = data != nullptr;
  const std::string row = "c" + std::to_string(in.ndim - 2), column = "c" + std::to_string(in.ndim - 1);
  Program p(call, "triangle");
  p.out("out", as_bits(out)).in("x", as_bits(in)).value("k", call.integer(2));
  return p.each(out, "out_set(out_at, " + column + " - " + row + (lower ? " <= k" : " >= k") + " ? x(x_at) : 0);", 4);
}

// out, self, dims: a copy with strides that go backwards
cw_status flip(KernelCall& call, const void*) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in)) return CW_UNSUPPORTED;
  for (int64_t dim : call.ints(2)) {
    const int d = wrap(dim, in.ndim);
    if (in.ndim == 0 || d < 0 || d >= in.ndim) return CW_UNSUPPORTED;
    in.data += (in.shape[d] - 1) * in.strides[d] * size_of(in.dtype);
    in.strides[d] = -in.strides[d];
  }
  return copy_into(call, out, in);
}

// out, self, shifts, dims
cw_status roll(KernelCall& call, const void*) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !moves(out, in)) return CW_UNSUPPORTED;
  const std::vector<int64_t> shifts = call.ints(2), dims = call.ints(3);
  if (dims.empty()) {
    if (!in.contiguous() || !out.contiguous() || shifts.size() != 1) return CW_UNSUPPORTED;
    in = dense(in.data, in.dtype, {in.numel()}), out = dense(out.data, out.dtype, {in.numel()});
  } else if (dims.size() != shifts.size()) {
    return CW_UNSUPPORTED;
  }
  int64_t by[kMostDims] = {};
  for (size_t i = 0; i < shifts.size(); ++i) by[dims.empty() ? 0 : wrap(dims[i], in.ndim)] += shifts[i];
  Program p(call, "roll");
  p.out("out", as_bits(out)).in("x", as_bits(in));
  for (int d = 0; d < in.ndim; ++d) {
    const int64_t n = std::max<int64_t>(in.shape[d], 1);
    p.value("by" + std::to_string(d), ((by[d] % n) + n) % n);
  }
  p.specialise(0, [&](Source& s) { s.define("EACH", each_dimension("ROLLED", 0, in.ndim)); });
  return p.each(out, texts::gather::roll, 8);
}

struct Pad {
  bool reflect, backward;
};

// out, self, padding; backward: grad_input, grad_output, self, padding. Gradients are collected by the place they go to.
cw_status pad(KernelCall& call, const void* data) {
  const Pad& op = *static_cast<const Pad*>(data);
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || out.ndim != in.ndim || out.dtype != in.dtype)
    return CW_UNSUPPORTED;
  const std::vector<int64_t> sides = call.ints(op.backward ? 3 : 2);
  const int dims = static_cast<int>(sides.size() / 2), first = in.ndim - dims;
  if (first < 0 || dims < 1 || dims > 3 || (!op.backward && !moves(out, in)) || (op.backward && !is_float(in.dtype)))
    return CW_UNSUPPORTED;
  Program p(call, op.backward ? "pad_backward" : "pad");
  p.out("out", op.backward ? out : as_bits(out)).in("x", op.backward ? in : as_bits(in));
  p.define("REFLECT", op.reflect);
  for (int d = first; d < in.ndim; ++d) {
    const std::string D = std::to_string(d);
    p.value("pl" + D, sides[2 * (in.ndim - 1 - d)]).value("m" + D, in.shape[d]);
  }
  if (!op.backward) {
    p.define("EACH", each_dimension("FRONT", 0, first) + each_dimension("PADDED", first, in.ndim));
    return p.each(out, texts::gather::pad, 12);
  }
  p.define("T", name_of(compute_of(in.dtype))).define("FRONTS", each_dimension("FRONT", 0, first));
  std::string body = "sum += x(f" + std::to_string(in.ndim - 1) + ");";
  for (int d = in.ndim - 1; d >= first; --d) {
    const std::string before = d == first ? "from" : "f" + std::to_string(d - 1);
    body = "EACH_OF(" + std::to_string(d) + ", " + before + ", " + body + ")";
  }
  p.define("EACH", body);
  return p.each(out, texts::gather::pad_backward, 40);
}

// grad_input, grad, input_sizes, dim, size, step
cw_status unfold_backward(KernelCall& call, const void*) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || out.dtype != in.dtype || out.ndim + 1 != in.ndim)
    return CW_UNSUPPORTED;
  if (out.ndim == 0) return CW_UNSUPPORTED;
  const int dim = wrap(call.integer(3), out.ndim);
  Program p(call, "unfold_backward");
  p.out("out", out).in("x", in).value("size", call.integer(4)).value("step", call.integer(5));
  p.value("windows", in.shape[dim]);
  define_dimension(p, dim);
  std::string base = "0";
  for (int d = 0; d < out.ndim; ++d)
    if (d != dim) base += " + c" + std::to_string(d) + " * x_s" + std::to_string(d);
  p.define("BASE", base).define("WITHIN", "x_s" + std::to_string(in.ndim - 1));
  p.define("T", name_of(compute_of(in.dtype)));
  return p.each(out, texts::gather::unfold_backward, 20);
}

// out, self, dim, start, length
cw_status narrow_copy(KernelCall& call, const void*) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || in.ndim == 0 || !moves(out, in)) return CW_UNSUPPORTED;
  const int dim = wrap(call.integer(2), in.ndim);
  int64_t from = call.integer(3);
  if (from < 0) from += in.shape[dim];
  return copy_into(call, out, narrow(in, dim, from, call.integer(4)));
}

// ---- made of coordinates ---------------------------------------------------------------------------------------------

// out, n (, m)
cw_status eye(KernelCall& call, const void*) {
  Tensor out;
  if (!call.tensor(0, &out) || out.ndim != 2) return CW_UNSUPPORTED;
  Program p(call, "eye");
  return p.out("out", out).each(out, "out_set(out_at, c0 == c1);", 2);
}

// out, start, end, steps (, base): from both ends, as torch does, so that the last is the end
cw_status spaced(KernelCall& call, const void* data) {
  const bool powers = data != nullptr;
  Tensor out;
  Number start, end;
  if (!call.tensor(0, &out) || !call.number(1, &start) || !call.number(2, &end) || out.ndim != 1 || !has_f64(call) ||
      out.dtype == kBool)
    return CW_UNSUPPORTED;
  const int64_t n = out.shape[0];
  const double first =
      is_float(out.dtype) || powers ? start.real() : static_cast<double>(static_cast<int64_t>(start.real()));
  const double last =
      is_float(out.dtype) || powers ? end.real() : static_cast<double>(static_cast<int64_t>(end.real()));
  const Dtype type = out.dtype == kF32 ? kF32 : kF64;
  Program p(call, powers ? "logspace" : "linspace");
  p.out("out", out).real("first", first, type).real("last", last, type);
  p.real("step", n > 1 ? (last - first) / static_cast<double>(n - 1) : 0, type).define("T", name_of(type));
  if (powers) p.real("base", call.real(4, 10), type);
  p.define("POWERS", powers);
  return p.each(out, texts::gather::spaced, 40);
}

// out, start, end, step: what arange does, the end included
cw_status range(KernelCall& call, const void*) {
  Tensor out;
  Number start, step;
  if (!call.tensor(0, &out) || !call.number(1, &start) || !call.number(3, &step) || out.ndim != 1 || !has_f64(call))
    return CW_UNSUPPORTED;
  Program p(call, "range");
  p.out("out", out).real("first", start.real(), kF64).real("step", step.real(), kF64);
  return p.each(out, "out_set(out_at, first + step * (f64)c0);", 8);
}

// self: the sum of the diagonal, as a sum over a tensor with one stride
cw_status trace(KernelCall& call, const void*) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || in.ndim != 2 || out.dtype == kBool) return CW_UNSUPPORTED;
  const Dtype type = is_int(out.dtype) ? kI64 : compute_of(out.dtype);
  Program p(call, "trace");
  p.out("out", out.data, out.dtype).in("x", in.data, in.dtype).define("A", name_of(type));
  p.value("stride", in.strides[0] + in.strides[1]).value("n", std::min(in.shape[0], in.shape[1]));
  return p.run(1, texts::gather::trace, 1);
}

}  // namespace

// out, self, indices
cw_status index_several(KernelCall& call, const void*) {
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || call.tag(2) != CW_TENSOR_LIST || !moves(out, in))
    return CW_UNSUPPORTED;
  IndexList list;
  if (!read_indices(call, call.arg(2), in, &list)) return CW_UNSUPPORTED;
  if (list.dims.size() == 1)
    if (const cw_status status = index_one(call); status != CW_UNSUPPORTED) return status;
  const int rest = in.ndim - static_cast<int>(list.dims.size());
  if (out.ndim != rest + list.rank) return CW_UNSUPPORTED;
  Program p(call, "index_several");
  p.out("out", as_bits(out)).in("x", as_bits(in));
  at_least_1d(out);
  const std::string text = add_indices(p, list, in, "x", list.start);
  if (p.failed()) return CW_UNSUPPORTED;
  std::string at = "0";
  if (out.ndim == 1 && rest + list.rank == 0)
    at = "0";
  else
    for (int d = 0; d < rest + list.rank; ++d) at += " + c" + std::to_string(d) + " * out_s" + std::to_string(d);
  return p.each(out, text + "out_set(" + at + ", good ? x(from) : -1);", 16);
}

bool read_indices(KernelCall& call, const cw_arg& from, const Tensor& in, IndexList* list) {
  bool ended = false, adjacent = true;
  for (uint32_t i = 0; i < from.n; ++i) {
    Tensor t;
    if (!from.v.tensors[i]) {
      ended |= !list->dims.empty();
      continue;
    }
    if (!call.read(from.v.tensors[i], &t) || !is_index(t) || static_cast<int>(i) >= in.ndim) return false;
    adjacent &= !ended;
    list->dims.push_back(static_cast<int>(i));
    list->tensors.push_back(t);
    list->rank = std::max(list->rank, t.ndim);
  }
  if (list->dims.empty() || list->rank > 6) return false;
  list->start = adjacent ? list->dims[0] : 0;
  list->shape.assign(list->rank, 1);
  for (const Tensor& t : list->tensors)
    for (int d = 0; d < t.ndim; ++d) {
      int64_t& size = list->shape[d + list->rank - t.ndim];
      if (t.shape[d] != 1) {
        if (size != 1 && size != t.shape[d]) return false;
        size = t.shape[d];
      }
    }
  return true;
}

void add_indexed(Program& p) { p.before(texts::gather::indexed); }

std::string add_indices(Program& p, const IndexList& list, const Tensor& in, const std::string& name, int start) {
  p.tells();
  add_indexed(p);
  std::string text = "idx from = 0;\nint good = 1;\n";
  for (size_t j = 0; j < list.tensors.size(); ++j) {
    const Tensor& t = list.tensors[j];
    const std::string J = "i" + std::to_string(j), D = std::to_string(list.dims[j]);
    p.in(J, t.data, t.dtype).value(J + "_n", in.shape[list.dims[j]]);
    std::string at = "0";
    for (int d = 0; d < t.ndim; ++d) {
      if (t.shape[d] == 1) continue;
      const std::string s = J + "_d" + std::to_string(d);
      p.value(s, t.strides[d]);
      at += " + c" + std::to_string(start + d + list.rank - t.ndim) + " * " + s;
    }
    text += "INDEXED(" + J + ", " + at + ", from += k * " + name + "_s" + D + ";)\n";
  }
  int c = 0;
  for (int d = 0; d < in.ndim; ++d) {
    if (std::find(list.dims.begin(), list.dims.end(), d) != list.dims.end()) continue;
    if (c == start) c += list.rank;
    text += "from += c" + std::to_string(c++) + " * " + name + "_s" + std::to_string(d) + ";\n";
  }
  return text;
}

Kernels gather_kernels() {
  static const Pad reflect{true, false}, reflect_back{true, true}, replicate{false, false}, replicate_back{false, true};
  constexpr uint32_t E = CW_NEEDS_ELEMENTS, dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  constexpr cw_dtypes R = kReals;
  static const int yes = 1;
  return {{"aten::gather.out", gather, R, E},
          {"aten::take.out", take, R, dense},
          {"aten::tril.out", triangle, R, E, &yes},
          {"aten::triu.out", triangle, R, E},
          {"aten::flip", flip, R, E},
          {"aten::roll", roll, R, dense},
          {"aten::reflection_pad1d.out", pad, R, E, &reflect},
          {"aten::reflection_pad2d.out", pad, R, E, &reflect},
          {"aten::reflection_pad3d.out", pad, R, E, &reflect},
          {"aten::replication_pad1d.out", pad, R, E, &replicate},
          {"aten::replication_pad2d.out", pad, R, E, &replicate},
          {"aten::replication_pad3d.out", pad, R, E, &replicate},
          {"aten::reflection_pad1d_backward.grad_input", pad, kFloats, E, &reflect_back},
          {"aten::reflection_pad2d_backward", pad, kFloats, E, &reflect_back},
          {"aten::reflection_pad3d_backward.grad_input", pad, kFloats, E, &reflect_back},
          {"aten::replication_pad1d_backward.grad_input", pad, kFloats, E, &replicate_back},
          {"aten::replication_pad2d_backward", pad, kFloats, E, &replicate_back},
          {"aten::replication_pad3d_backward", pad, kFloats, E, &replicate_back},
          {"aten::unfold_backward", unfold_backward, kFloats, E},
          {"aten::narrow_copy.out", narrow_copy, R, E},
          {"aten::eye.out", eye, R, E},
          {"aten::eye.m_out", eye, R, E},
          {"aten::linspace.out", spaced, R & ~CW_BOOL, E},
          {"aten::logspace.out", spaced, R & ~CW_BOOL, E, &yes},
          {"aten::range.out", range, R & ~CW_BOOL, E},
          {"aten::trace", trace, R & ~CW_BOOL, E},
          {"aten::index.Tensor_out", index_several, R, E}};
}

}  // namespace causeway::portable
