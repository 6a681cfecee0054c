// Moving elements by index: embedding, index_select, gather, cat, arange. An index out of range fails the
// operator, in words; on a queue they come with the next sync, as on a real chip.
#include "ops/fill.hpp"
#include "ops/dims.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

cw_status out_of_range(const char* op, int64_t index, int64_t size) {
  return fail(CW_FAILED, "%s: index %lld is out of range, there are %lld", op, static_cast<long long>(index),
              static_cast<long long>(size));
}

// Copies of slices: out[.., j, ..] = in[.., index[j], ..] along one dimension.
struct Select {
  Rows<2> slice;  // of one index: the dimension has size 1
  int64_t count = 0, size = 0;
  int64_t out_step = 0, in_step = 0;
  Tensor index;
  const char* op = nullptr;

  cw_status run() const {
    const int64_t width = size_of(slice.dtype[0]);
    const bool dense = slice.ndim == 1 && !slice.empty && slice.stride[0][0] == width && slice.stride[1][0] == width;
    for (int64_t j = 0; j < count; ++j) {
      int64_t i = load_one<int64_t>(index.data + j * index.stride_bytes(0), index.dtype);
      if (i < 0 || i >= size) return out_of_range(op, i, size);
      if (dense) {  // a row of an embedding
        memcpy(slice.data[0] + j * out_step, slice.data[1] + i * in_step, size_t(slice.shape[0] * width));
        continue;
      }
      Rows<2> rows = slice;
      rows.data[0] += j * out_step;
      rows.data[1] += i * in_step;
      copy_rows(rows);
    }
    return CW_OK;
  }
};

cw_status select(Call& call, Tensor out, Tensor in, int64_t dim, const Tensor& index) {
  if (!wrap_dim(&dim, in.ndim)) return fail(CW_INVALID, "%s: no such dimension", call.op().name);
  if (index.dtype != kInt64 && index.dtype != kInt32) return call.declined("int64 or int32 indices");
  if (in.ndim == 0 || out.ndim != in.ndim || out.dtype != in.dtype) return call.declined("alike, not 0-dim");
  Select s;
  s.op = call.op().name;
  s.index = index;
  s.count = index.shape[0];
  s.size = in.shape[dim];
  s.out_step = out.stride_bytes(int(dim));
  s.in_step = in.stride_bytes(int(dim));
  if (out.shape[dim] != s.count) return fail(CW_INVALID, "%s: the output has a wrong shape", s.op);
  out.shape[dim] = in.shape[dim] = 1;
  if (!s.slice.make({&out, &in})) return fail(CW_INVALID, "%s: the output has a wrong shape", s.op);
  return call.launch([s] { return s.run(); });
}

// out, self, dim, index
cw_status index_select(Call& call) {
  Tensor out, in, index;
  TRY(call.tensors_from(0, &out, &in));
  TRY(call.tensor(3, &index));
  if (index.ndim == 0 || index.is_host_scalar) return call.declined("not with a 0-dim index");
  if (index.ndim != 1) return fail(CW_INVALID, "aten::index_select.out: the index has one dimension");
  return select(call, out, in, call.integer(2), index);
}

void flatten(Tensor* t, int from, int to) {  // dense dimensions [from, to) become one
  int64_t size = 1;
  for (int d = from; d < to; ++d) size *= t->shape[d];
  t->shape[from] = size;
  t->strides[from] = to > from ? t->strides[to - 1] : 1;
  std::copy(t->shape + to, t->shape + t->ndim, t->shape + from + 1);
  std::copy(t->strides + to, t->strides + t->ndim, t->strides + from + 1);
  t->ndim -= to - from - 1;
}

// out, weight, indices, padding_idx, scale_grad_by_freq, sparse
cw_status embedding(Call& call) {
  Tensor out, weight, index;
  TRY(call.tensors_from(0, &out, &weight, &index));
  if (!out.contiguous() || !index.contiguous() || weight.ndim != 2 || index.is_host_scalar) {
    return call.declined("only dense tensors");
  }
  if (out.ndim != index.ndim + 1) return fail(CW_INVALID, "aten::embedding.out: wrong shapes");
  if (index.ndim == 0) {  // one row
    index.ndim = 1;
    index.shape[0] = index.strides[0] = 1;
    out.shape[1] = out.shape[0];
    out.strides[1] = 1;
    out.shape[0] = 1;
    out.strides[0] = out.shape[1];
    out.ndim = 2;
  } else {
    flatten(&out, 0, out.ndim - 1);
    flatten(&index, 0, index.ndim);
  }
  return select(call, out, weight, 0, index);
}

// out, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq
cw_status embedding_backward(Call& call) {
  Tensor out, grad, index;
  TRY(call.tensors_from(0, &out, &grad, &index));
  if (call.integer(5)) return call.declined("not scaled by frequency");
  if (!out.contiguous() || !grad.contiguous() || !index.contiguous() || out.ndim != 2) {
    return call.declined("only dense tensors");
  }
  if (index.dtype != kInt64 && index.dtype != kInt32) return call.declined("int64 or int32 indices");
  if (out.dtype != grad.dtype || !(wide_floats >> out.dtype & 1)) return call.declined("float32 or float64");
  const int64_t rows = call.integer(3), skipped = call.integer(4, -1), width = out.shape[1];
  return call.launch([=] {
    memset(out.data, 0, size_t(rows * width * size_of(out.dtype)));
    const int64_t count = index.numel();
    for (int64_t j = 0; j < count; ++j) {
      int64_t i = load_one<int64_t>(index.data + j * size_of(index.dtype), index.dtype);
      if (i == skipped) continue;
      if (i < 0 || i >= rows) return out_of_range("aten::embedding_dense_backward.out", i, rows);
      auto add = [&](auto example) {
        using C = decltype(example);
        C* to = reinterpret_cast<C*>(out.data) + i * width;
        const C* from = reinterpret_cast<const C*>(grad.data) + j * width;
#pragma omp simd
        for (int64_t x = 0; x < width; ++x) to[x] += from[x];
      };
      out.dtype == kFloat ? add(float{}) : add(double{});
    }
    return CW_OK;
  });
}

// out, self, dim, index, sparse_grad: out[i][j] = self[index[i][j]][j] for dim 0
cw_status gather(Call& call) {
  Tensor out, in, index;
  TRY(call.tensors_from(0, &out, &in));
  TRY(call.tensor(3, &index));
  int64_t dim = call.integer(2);
  if (!wrap_dim(&dim, in.ndim)) return fail(CW_INVALID, "aten::gather.out: no such dimension");
  if (index.dtype != kInt64 || out.dtype != in.dtype) return call.declined("int64 indices, dtypes alike");
  if (in.ndim == 0 || in.ndim != index.ndim || out.ndim != index.ndim) return call.declined("not 0-dim");
  const int64_t size = in.shape[dim], step = in.stride_bytes(int(dim)), width = size_of(in.dtype);
  Tensor starts = in;  // with the index's shape: an input may be larger where nothing is gathered
  for (int d = 0; d < in.ndim; ++d) {
    if (d != dim && index.shape[d] > in.shape[d]) return fail(CW_INVALID, "aten::gather.out: wrong shapes");
    starts.shape[d] = index.shape[d];
  }
  starts.strides[dim] = 0;
  Rows<3> rows;
  if (!rows.make({&out, &index, &starts})) return fail(CW_INVALID, "aten::gather.out: wrong shapes");
  return call.launch([=] {
    cw_status status = CW_OK;
    rows.each([&](const char* const* at, int64_t n) {
      for (int64_t i = 0; i < n && status == CW_OK; ++i) {
        int64_t k;
        memcpy(&k, at[1] + i * rows.stride[1][0], sizeof(k));
        if (k < 0 || k >= size)
          status = out_of_range("aten::gather.out", k, size);
        else
          memcpy(const_cast<char*>(at[0]) + i * rows.stride[0][0], at[2] + i * rows.stride[2][0] + k * step,
                 size_t(width));
      }
    });
    return status;
  });
}

// out, tensors, dim
cw_status cat(Call& call) {
  Tensor out;
  std::vector<Tensor> tensors;
  TRY(call.tensor(0, &out));
  TRY(call.tensors(1, &tensors));
  int64_t dim = call.integer(2), at = 0;
  if (!wrap_dim(&dim, out.ndim)) return fail(CW_INVALID, "aten::cat.out: no such dimension");
  std::vector<Rows<2>> parts;
  for (const Tensor& in : tensors) {
    if (in.ndim == 1 && in.shape[0] == 0) continue;  // torch lets these pass whatever the others' shape
    if (in.ndim != out.ndim || in.is_host_scalar) return call.declined("all must have the output's dimensions");
    if (in.dtype != out.dtype && (!(real >> in.dtype & 1) || !(real >> out.dtype & 1))) {
      return call.declined("converts only between real dtypes");
    }
    Tensor to = out;
    to.data += at * out.stride_bytes(int(dim));
    to.shape[dim] = in.shape[dim];
    at += in.shape[dim];
    parts.emplace_back();
    for (int d = 0; d < in.ndim; ++d) {
      if (in.shape[d] != to.shape[d]) return fail(CW_INVALID, "aten::cat.out: the shapes do not fit");
    }
    parts.back().make({&to, &in});
  }
  if (at != out.shape[dim]) return fail(CW_INVALID, "aten::cat.out: the output has a wrong shape");
  return call.launch([parts] {
    for (const Rows<2>& rows : parts) copy_rows(rows);
    return CW_OK;
  });
}

// out, start, end, step
cw_status arange(Call& call) {
  Tensor out;
  TRY(call.tensor(0, &out));
  if (out.ndim != 1) return call.declined("one dimension");
  auto count_up = [&](auto start, auto step) {
    return call.launch([=] {
      for (int64_t i = 0; i < out.shape[0]; ++i) {
        store_one(out.data + i * out.stride_bytes(0), start + decltype(start)(i) * step, out.dtype);
      }
      return CW_OK;
    });
  };
  if (is_floating(out.dtype)) return count_up(call.number<double>(1), call.number<double>(3, 1.0));
  if (call.is_double(1) || call.is_double(3)) return call.declined("integers from floats");
  return count_up(call.integer(1), call.integer(3, 1));
}

}  // namespace

const OpList& index_ops() {
  static const OpList list = {
      {"aten::index_select.out", index_select, real},
      {"aten::gather.out", gather, real},
      {"aten::embedding.out", embedding, numbers, CW_NEEDS_CONTIGUOUS},
      {"aten::embedding_dense_backward.out", embedding_backward, wide_floats | CW_INT64 | CW_INT32,
       CW_NEEDS_CONTIGUOUS},
      {"aten::cat.out", cat, real},
      {"aten::arange.start_out", arange, numbers},
  };
  return list;
}

}  // namespace sim
