// Which dimensions an operator works along, and walks over the kept and the reduced ones.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/loop.hpp"

namespace sim {

// A negative dimension counts from the end; of a 0-dim tensor, 0 and -1 are both "the element".
inline bool wrap_dim(int64_t* dim, int ndim) {
  const int64_t n = std::max(ndim, 1);
  if (*dim < -n || *dim >= n) return false;
  if (*dim < 0) *dim += n;
  return true;
}

// An order of positions in one tensor: `inner` elements side by side, inside loops over the other dimensions.
struct Walk {
  int ndim = 0;
  int64_t shape[most_dims], stride[most_dims];  // of the outer loops, bytes
  int64_t inner = 1, inner_stride = 0;

  // Dimensions come innermost first, already merged.
  void set(int n, const int64_t* sizes, const int64_t* strides) {
    inner = n ? sizes[0] : 1;
    inner_stride = n ? strides[0] : 0;
    ndim = std::max(n - 1, 0);
    std::copy(sizes + std::min(n, 1), sizes + n, shape);
    std::copy(strides + std::min(n, 1), strides + n, stride);
  }
  template <class F>
  void each(const char* at, F&& f) const {
    int64_t index[most_dims] = {};
    while (true) {
      f(at);
      int d = 0;
      for (; d < ndim; ++d) {
        at += stride[d];
        if (++index[d] < shape[d]) break;
        at -= stride[d] * shape[d];
        index[d] = 0;
      }
      if (d >= ndim) return;
    }
  }
  template <class F>
  void each_element(const char* at, F&& f) const {
    each(at, [&](const char* row) {
      for (int64_t i = 0; i < inner; ++i) f(row + i * inner_stride);
    });
  }
};

struct Reduction {
  Walk kept, reduced;  // of the input
  int64_t kept_out_stride = 0, kept_out[most_dims];
  char* out = nullptr;
  const char* in = nullptr;
  Dtype out_dtype = kOther, dtype = kOther;
  int64_t count = 1;  // of reduced elements
  bool empty = false, by_columns = false;

  // `over` empty: all dimensions.
  cw_status make(const Call& call, const Tensor& to, const Tensor& from, std::vector<int64_t> over) {
    bool is_reduced[most_dims] = {};
    if (from.is_host_scalar) return call.declined("not on host memory");
    for (int64_t dim : over) {
      if (!wrap_dim(&dim, from.ndim)) return fail(CW_INVALID, "%s: no such dimension", call.op().name);
      is_reduced[dim] = true;
    }
    if (over.empty()) std::fill(is_reduced, is_reduced + most_dims, true);
    const bool keepdim = to.ndim == from.ndim;
    int64_t sizes[2][most_dims], strides[2][most_dims], out_strides[most_dims];
    int n[2] = {0, 0};
    for (int d = from.ndim - 1, o = to.ndim - 1; d >= 0; --d) {
      const int which = is_reduced[d];
      const int64_t size = from.shape[d], stride = from.stride_bytes(d);
      int64_t out_stride = 0;
      if (!which || keepdim) {
        if (o < 0 || to.shape[o] != (which ? 1 : size)) {
          return fail(CW_INVALID, "%s: the output has a wrong shape", call.op().name);
        }
        out_stride = to.stride_bytes(o--);
      }
      if (which)
        count *= size;
      else if (size == 0)
        empty = true;
      if (size == 1) continue;
      int& k = n[which];
      const bool joins = k > 0 && stride == strides[which][k - 1] * sizes[which][k - 1] &&
                         (which || out_stride == out_strides[k - 1] * sizes[0][k - 1]);
      if (joins) {
        sizes[which][k - 1] *= size;
        continue;
      }
      sizes[which][k] = size;
      strides[which][k] = stride;
      if (!which) out_strides[k] = out_stride;
      ++k;
    }
    kept.set(n[0], sizes[0], strides[0]);
    reduced.set(n[1], sizes[1], strides[1]);
    kept_out_stride = n[0] ? out_strides[0] : 0;
    std::copy(out_strides + std::min(n[0], 1), out_strides + n[0], kept_out);
    by_columns = kept.inner >= 8 && std::abs(kept.inner_stride) < std::abs(reduced.inner_stride);
    if (count == 0) reduced.set(0, sizes[1], strides[1]), reduced.inner = 0;
    out = to.data;
    in = from.data;
    out_dtype = to.dtype;
    dtype = from.dtype;
    return CW_OK;
  }

  // Call `f(to, from, to_stride)` for each row of kept positions.
  template <class F>
  void each_kept_row(F&& f) const {
    if (empty) return;
    char* to = out;
    const char* from = in;
    int64_t index[most_dims] = {};
    while (true) {
      f(to, from, kept_out_stride);
      int d = 0;
      for (; d < kept.ndim; ++d) {
        to += kept_out[d];
        from += kept.stride[d];
        if (++index[d] < kept.shape[d]) break;
        to -= kept_out[d] * kept.shape[d];
        from -= kept.stride[d] * kept.shape[d];
        index[d] = 0;
      }
      if (d >= kept.ndim) return;
    }
  }
};

// Rows along one dimension of several tensors of one shape, for softmax and its like.
template <int operands>
struct Lines {
  int64_t length = 1, stride[operands];
  Dtype dtype[operands];
  Rows<operands> starts;  // a tensor of the first elements of each line

  bool make(const Tensor* const (&tensors)[operands], int64_t dim) {
    Tensor heads[operands];
    const Tensor* pointers[operands];
    if (!wrap_dim(&dim, tensors[0]->ndim)) return false;
    for (int k = 0; k < operands; ++k) {
      if (tensors[k]->ndim != tensors[0]->ndim) return false;
      heads[k] = *tensors[k];
      dtype[k] = heads[k].dtype;
      stride[k] = 0;
      pointers[k] = &heads[k];
      if (heads[k].ndim == 0) continue;
      length = tensors[0]->shape[dim];
      if (heads[k].shape[dim] != length) return false;
      stride[k] = heads[k].stride_bytes(int(dim));
      heads[k].shape[dim] = length ? 1 : 0;
    }
    return starts.make(pointers);
  }
  template <class F>
  void each(F&& f) const {
    starts.each([&](const char* const* at, int64_t n) {
      char* line[operands];
      for (int64_t i = 0; i < n; ++i) {
        for (int k = 0; k < operands; ++k) line[k] = const_cast<char*>(at[k]) + i * starts.stride[k][0];
        f(line);
      }
    });
  }
};

}  // namespace sim
