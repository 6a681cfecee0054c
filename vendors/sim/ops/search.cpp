// Where the largest and the smallest element are: argmax and argmin, max and min along a dimension; and where
// an element is at all: nonzero, whose result has a shape that only the data know.
#include "ops/dims.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

// NaN beats everything, and of equals the first wins.
template <class C, bool largest>
bool beats(C candidate, C best) {
  if (best != best) return false;
  if (candidate != candidate) return true;
  return largest ? candidate > best : candidate < best;
}

template <class C, bool largest>
int64_t find_best(const char* line, int64_t stride, int64_t length, Dtype dtype, C* best) {
  C values[block];
  int64_t at = -1;
  for (int64_t start = 0; start < length; start += block) {
    int64_t n = std::min(block, length - start);
    load(values, line + start * stride, stride, n, dtype);
    for (int64_t i = 0; i < n; ++i) {
      if (at >= 0 && !beats<C, largest>(values[i], *best)) continue;
      *best = values[i];
      at = start + i;
    }
  }
  return at;
}

// Give `f` each line along dimension `dim` of the input with the places in the outputs. Outputs have the
// dimension with size 1, or not at all.
template <int outputs, class F>
cw_status along(Call& call, Tensor (&out)[outputs], const Tensor& in, int64_t dim, F&& f) {
  if (!wrap_dim(&dim, in.ndim)) return fail(CW_INVALID, "%s: no such dimension", call.op().name);
  for (Tensor& o : out) {
    if (o.ndim == in.ndim) continue;
    if (o.ndim != in.ndim - 1) return fail(CW_INVALID, "%s: the output has a wrong shape", call.op().name);
    std::copy_backward(o.shape + dim, o.shape + o.ndim, o.shape + o.ndim + 1);
    std::copy_backward(o.strides + dim, o.strides + o.ndim, o.strides + o.ndim + 1);
    o.shape[dim] = 1;
    o.strides[dim] = 1;
    ++o.ndim;
  }
  Tensor heads = in;
  int64_t length = 1, stride = 0;
  if (in.ndim) {
    length = in.shape[dim];
    stride = in.stride_bytes(int(dim));
    heads.shape[dim] = 1;
  }
  Rows<outputs + 1> rows;
  const Tensor* all[outputs + 1];
  for (int k = 0; k < outputs; ++k) all[k] = &out[k];
  all[outputs] = &heads;
  if (!rows.make(all)) return fail(CW_INVALID, "%s: the output has a wrong shape", call.op().name);
  return call.launch([rows, length, stride, f] {
    rows.each([&](const char* const* at, int64_t n) {
      char* line[outputs + 1];
      for (int64_t i = 0; i < n; ++i) {
        for (int k = 0; k <= outputs; ++k) line[k] = const_cast<char*>(at[k]) + i * rows.stride[k][0];
        f(line, stride, length);
      }
    });
    return CW_OK;
  });
}

template <class C, bool largest>
cw_status arg_best_in(Call& call, Tensor& out, const Tensor& in) {
  const Dtype dtype = in.dtype, index_dtype = out.dtype;
  Tensor outs[1] = {out};
  auto find = [=](char** line, int64_t stride, int64_t length) {
    C best{};
    store_one(line[0], find_best<C, largest>(line[1], stride, length, dtype, &best), index_dtype);
  };
  if (!call.is_none(2)) return along(call, outs, in, call.integer(2), find);
  // Of the whole tensor, the place in row-major order: one line when it is dense.
  if (!in.contiguous()) return call.declined("only of a dense tensor when no dimension is given");
  Tensor flat = in;
  flat.ndim = 1;
  flat.shape[0] = in.numel();
  flat.strides[0] = 1;
  outs[0].ndim = 0;
  return along(call, outs, flat, 0, find);
}

template <bool largest>
cw_status arg_best(Call& call) {
  Tensor out, in;
  TRY(call.tensors_from(0, &out, &in));
  return is_floating(in.dtype) ? arg_best_in<double, largest>(call, out, in)
                               : arg_best_in<int64_t, largest>(call, out, in);
}

template <class C, bool largest>
cw_status best_in(Call& call, Tensor (&out)[2], const Tensor& in) {
  const Dtype dtype = in.dtype, value_dtype = out[0].dtype, index_dtype = out[1].dtype;
  return along(call, out, in, call.integer(3), [=](char** line, int64_t stride, int64_t length) {
    C best{};
    store_one(line[1], find_best<C, largest>(line[2], stride, length, dtype, &best), index_dtype);
    store_one(line[0], best, value_dtype);
  });
}

template <bool largest>
cw_status best(Call& call) {
  Tensor out[2], in;
  TRY(call.tensors_from(0, &out[0], &out[1], &in));
  return is_floating(in.dtype) ? best_in<double, largest>(call, out, in) : best_in<int64_t, largest>(call, out, in);
}

// The shape depends on the data: wait for them, count, ask the core for the room, then fill it.
cw_status nonzero(Call& call) {
  Tensor out, in;
  TRY(call.tensors_from(0, &out, &in));
  if (out.dtype != kInt64 || !in.contiguous()) return call.declined("only of a dense tensor");
  TRY(call.wait());
  const int64_t count = in.numel(), size = size_of(in.dtype);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < count; ++i) {
    if (load_one<double>(in.data + i * size, in.dtype) != 0) found.push_back(i);
  }
  TRY(call.resize(0, {int64_t(found.size()), in.ndim}));
  TRY(call.tensor(0, &out));  // it may have moved
  return call.launch([=] {
    for (size_t row = 0; row < found.size(); ++row) {
      int64_t left = found[row];
      for (int d = in.ndim - 1; d >= 0; left /= in.shape[d--]) {
        store_one(out.data + int64_t(row) * out.stride_bytes(0) + d * out.stride_bytes(1), left % in.shape[d], kInt64);
      }
    }
    return CW_OK;
  });
}

}  // namespace

const OpList& search_ops() {
  static const OpList list = {
      {"aten::argmax.out", arg_best<true>, numbers, CW_NEEDS_ELEMENTS | CW_NEEDS_CONTIGUOUS},
      {"aten::argmin.out", arg_best<false>, numbers, CW_NEEDS_ELEMENTS | CW_NEEDS_CONTIGUOUS},
      {"aten::max.dim_max", best<true>, real, CW_NEEDS_ELEMENTS, 2},
      {"aten::min.dim_min", best<false>, real, CW_NEEDS_ELEMENTS, 2},
      {"aten::nonzero.out", nonzero, real, CW_NEEDS_CONTIGUOUS},
  };
  return list;
}

}  // namespace sim
