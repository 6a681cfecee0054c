// Rows picked by an index, and what is made of such picks: index_select, embedding with its gradient, gather, cat, arange.
#include "portable/lists.h"
#include "portable/kernels/pointwise.h"
#include "portable/program.h"
#include "portable/kernels/scatter.h"
#include "portable/kernels/index.cl.h"

namespace causeway::portable {

namespace {

std::string bytes_type(Dtype dtype) {
  const int64_t size = size_of(dtype);
  return size == 1 ? "u8" : size == 2 ? "u16" : size == 4 ? "u32" : "u64";
}

// `out` [outer, count, inner] from `in` [outer, size, inner]. Where the index is out of range all bits are set, which is
// NaN.
cw_status pick(KernelCall& call, const Tensor& out, const Tensor& in, const Tensor& index, int64_t outer, int64_t size,
               int64_t inner, bool wraps) {
  if (size_of(in.dtype) > 8 || in.dtype != out.dtype || (index.dtype != kI64 && index.dtype != kI32))
    return CW_UNSUPPORTED;
  if (!index.contiguous() || !in.contiguous() || !out.contiguous()) return CW_UNSUPPORTED;
  const int64_t count = index.numel();
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("pick"),
       static_cast<uint64_t>(size_of(in.dtype)) | static_cast<uint64_t>(index.dtype) << 8 |
           static_cast<uint64_t>(wraps) << 16 | static_cast<uint64_t>(inner == 1) << 17,
       0, 0},
      [&] {
        Source s(call.device->info);
        const std::string t = bytes_type(in.dtype);
        s.out(t, "out").in(t, "in").in(name_of(index.dtype), "index");
        for (const char* v : {"rows", "count", "size", "inner"}) s.value("idx", v);
        s.tells();
        s.define("T", t).define("WRAPS", wraps).define("ONE", inner == 1);
        return s.kernel(texts::index::pick);
      },
      &function));
  Launch l;
  const int64_t rows = outer * count;
  l.pointer(out.data).pointer(in.data).pointer(index.data).value(rows).value(count).value(size).value(inner);
  TRY(l.tells(call.name));
  return l.run(*call.device, function, rows, static_cast<double>(inner) * 2 + 4, call.stream);
}

cw_status pick_along(KernelCall& call, const Tensor& out, const Tensor& in, const Tensor& index, int dim, bool wraps) {
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < dim; ++d) outer *= in.shape[d];
  for (int d = dim + 1; d < in.ndim; ++d) inner *= in.shape[d];
  if (in.ndim == 0 || out.numel() != outer * index.numel() * inner) return CW_UNSUPPORTED;
  return pick(call, out, in, index, outer, in.shape[dim], inner, wraps);
}

// out, self, dim, index
cw_status index_select(KernelCall& call, const void*) {
  Tensor out, in, at;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !call.tensor(3, &at)) return CW_UNSUPPORTED;
  const int64_t dim = call.integer(2);
  if (in.ndim == 0) in.ndim = 1, in.shape[0] = in.strides[0] = 1;
  return pick_along(call, out, in, at, wrap(dim, in.ndim), false);
}

// On a CPU an item owns 16 columns, so that no two add to one place, and cache lines are used whole.
cw_status embedding_rows(KernelCall& call, const Tensor& out, const Tensor& grad, const Tensor& at, int64_t padding) {
  const int64_t rows = out.shape[0], wide = out.shape[1], count = at.numel(), blocks = (wide + 15) / 16;
  Program p(call, "embedding_rows");
  p.out("out", out.data, out.dtype).in("grad", grad.data, grad.dtype).in("index", at.data, at.dtype);
  p.value("rows", rows).value("wide", wide).value("count", count).value("padding", padding).tells();
  return p.run(blocks, texts::index::sum_rows, static_cast<double>(count) * 16);
}

// out, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq
cw_status embedding_backward(KernelCall& call, const void*) {
  Tensor out, grad, at;
  if (!call.tensor(0, &out) || !call.tensor(1, &grad) || !call.tensor(2, &at)) return CW_UNSUPPORTED;
  if (call.integer(5) != 0 || out.dtype != grad.dtype || out.ndim != 2 || !is_float(out.dtype)) return CW_UNSUPPORTED;
  const int64_t count = at.numel(), wide = out.shape[1];
  Tensor index = dense(at.data, at.dtype, {count, wide});
  index.strides[0] = 1, index.strides[1] = 0;
  if (!scatter_takes(call, out, index)) return CW_UNSUPPORTED;
  TRY(fill_with(call, out, {}));
  if (call.device->in_turn()) return embedding_rows(call, out, grad, at, call.integer(4, -1));
  Placing how;
  how.op = Put::Add, how.skip = call.integer(4, -1);
  const Tensor rows = dense(grad.data, grad.dtype, {count, wide});
  return place(call, out, 0, index, &rows, {}, how);
}

// out, tensors, dim: a copy of each into its place
cw_status cat(KernelCall& call, const void*) {
  Tensor out;
  if (!call.tensor(0, &out) || call.tag(1) != CW_TENSOR_LIST) return CW_UNSUPPORTED;
  int64_t dim = call.integer(2), at = 0;
  if (dim < 0) dim += out.ndim;
  const cw_arg& list = call.arg(1);
  const DLTensor& whole = *call.arg(0).v.tensor;
  for (uint32_t i = 0; i < list.n; ++i) {
    Tensor in;
    if (!call.read(list.v.tensors[i], &in)) return CW_UNSUPPORTED;
    if (in.ndim == 1 && in.shape[0] == 0) continue;  // torch lets it stand among all shapes
    if (in.ndim != out.ndim || in.dtype != out.dtype || size_of(in.dtype) > 8) return CW_UNSUPPORTED;
  }
  std::vector<DLTensor> places(list.n, whole);
  std::vector<const DLTensor*> to, from;
  for (uint32_t i = 0; i < list.n; ++i) {
    Tensor in;
    call.read(list.v.tensors[i], &in);
    if (in.numel() == 0) continue;
    places[i].shape = list.v.tensors[i]->shape;
    places[i].data = static_cast<char*>(whole.data) + at * out.strides[dim] * size_of(out.dtype);
    at += in.shape[dim];
    to.push_back(&places[i]);
    from.push_back(list.v.tensors[i]);
  }
  return copy_each(call, to, from);
}

// out, start, end, step
cw_status arange(KernelCall& call, const void*) {
  Tensor out;
  Number start, step;
  if (!call.tensor(0, &out) || out.ndim != 1 || !call.number(1, &start) || !call.number(3, &step))
    return CW_UNSUPPORTED;
  const bool real = is_float(out.dtype);
  if (!(kReals >> out.dtype & 1) || out.dtype == kBool || (!real && (start.dtype == kF64 || step.dtype == kF64)))
    return CW_UNSUPPORTED;
  if (real && !(call.device->info.arithmetic & CW_FLOAT64)) return CW_UNSUPPORTED;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("arange"), static_cast<uint64_t>(out.dtype), 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string t = real ? "f64" : "i64";
        s.out(storage_of(out.dtype), "out").value(t, "start").value(t, "step");
        s.value("idx", "stride").value("idx", "n");
        s.define("T", t).define("OUT(at, v)", std::string("ST_") + name_of(out.dtype) + "(out, at, v)");
        return s.kernel(texts::index::arange);
      },
      &function));
  Launch l;
  l.pointer(out.data);
  real ? l.value(start.real()).value(step.real()) : l.value(start.i).value(step.i);
  return l.value(out.strides[0]).value(out.numel()).run(*call.device, function, out.numel(), 4, call.stream);
}

}  // namespace

// out, self, indices: with one index only
cw_status index_one(KernelCall& call) {
  Tensor out, in, at;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || call.tag(2) != CW_TENSOR_LIST) return CW_UNSUPPORTED;
  const cw_arg& list = call.arg(2);
  int dim = -1;
  for (uint32_t i = 0; i < list.n; ++i) {
    if (!list.v.tensors[i]) continue;
    if (dim >= 0) return CW_UNSUPPORTED;
    dim = static_cast<int>(i);
  }
  if (dim < 0 || !call.read(list.v.tensors[dim], &at)) return CW_UNSUPPORTED;
  return pick_along(call, out, in, at, dim, true);
}

Kernels index_kernels() {
  constexpr uint32_t dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  return {{"aten::index_select.out", index_select, kReals, dense},
          {"aten::embedding_dense_backward.out", embedding_backward, kReals, dense},
          {"aten::cat.out", cat, kReals, CW_NEEDS_ELEMENTS},
          {"aten::arange.start_out", arange, kReals & ~CW_BOOL, CW_NEEDS_ELEMENTS}};
}

}  // namespace causeway::portable
