// Loops over the elements of several tensors of one shape: broadcast, in the output's memory order, with
// dimensions merged wherever all strides allow, so that contiguous tensors are one row.
#pragma once

#include <algorithm>

#include "ops/call.hpp"

namespace sim {

template <int operands>  // the output first
struct Rows {
  int ndim = 0;  // of the merged shape; dimension 0 is the innermost
  int64_t shape[most_dims];
  int64_t stride[operands][most_dims];  // bytes
  char* data[operands];
  Dtype dtype[operands];
  bool empty = false;
  bool scalar[operands];
  alignas(16) char value[operands][16];

  // Rows are kept by value in queued work, so the address of a host scalar is only known now.
  const char* base(int k) const { return scalar[k] ? value[k] : data[k]; }

  bool make(const Tensor* const (&tensors)[operands]) {
    const Tensor& out = *tensors[0];
    int order[most_dims], used = 0;
    for (int d = out.ndim - 1; d >= 0; --d) {
      if (out.shape[d] == 0) empty = true;
      if (out.shape[d] != 1) order[used++] = d;
    }
    // Innermost first: by the output's strides. Already sorted in nearly every call.
    for (int i = 1; i < used; ++i) {
      for (int j = i; j > 0 && out.strides[order[j]] < out.strides[order[j - 1]]; --j) {
        std::swap(order[j], order[j - 1]);
      }
    }
    for (int k = 0; k < operands; ++k) {
      const Tensor& t = *tensors[k];
      if (t.ndim > out.ndim) return false;
      data[k] = t.data;
      dtype[k] = t.dtype;
      scalar[k] = t.is_host_scalar;
      if (scalar[k]) memcpy(value[k], t.value, sizeof(t.value));
      for (int d = 0; d < t.ndim; ++d) {
        int64_t size = t.shape[d];
        if (size != 1 && size != out.shape[d + out.ndim - t.ndim]) return false;
      }
      for (int i = 0; i < used; ++i) {
        int d = order[i] - (out.ndim - t.ndim);
        stride[k][i] = d < 0 || t.shape[d] == 1 ? 0 : t.stride_bytes(d);
      }
    }
    for (int i = 0; i < used; ++i) shape[i] = out.shape[order[i]];
    merge(used);
    return true;
  }

  // Call `f(pointers, n)` for every row.
  template <class F>
  void each(F&& f) const {
    if (empty) return;
    const char* at[operands];
    for (int k = 0; k < operands; ++k) at[k] = base(k);
    int64_t index[most_dims] = {};
    while (true) {
      f(at, shape[0]);
      int d = 1;
      for (; d < ndim; ++d) {
        for (int k = 0; k < operands; ++k) at[k] += stride[k][d];
        if (++index[d] < shape[d]) break;
        for (int k = 0; k < operands; ++k) at[k] -= stride[k][d] * shape[d];
        index[d] = 0;
      }
      if (d >= ndim) return;
    }
  }

 private:
  void merge(int used) {
    ndim = 0;
    for (int i = 0; i < used; ++i) {
      bool joins = ndim > 0;
      for (int k = 0; k < operands && joins; ++k) {
        joins = stride[k][i] == stride[k][ndim - 1] * shape[ndim - 1];
      }
      if (joins) {
        shape[ndim - 1] *= shape[i];
        continue;
      }
      shape[ndim] = shape[i];
      for (int k = 0; k < operands; ++k) stride[k][ndim] = stride[k][i];
      ++ndim;
    }
    if (ndim == 0) {  // one element
      ndim = 1;
      shape[0] = 1;
      for (int k = 0; k < operands; ++k) stride[k][0] = 0;
    }
  }
};

template <class Compute>
struct StoredAs;
template <>
struct StoredAs<float> {
  static constexpr Dtype dtype = kFloat;
};
template <>
struct StoredAs<double> {
  static constexpr Dtype dtype = kDouble;
};
template <>
struct StoredAs<int64_t> {
  static constexpr Dtype dtype = kInt64;
};

constexpr int64_t block = 256;  // elements: the operands of a block stay in the first-level cache

// out = f(inputs...), computed in `Compute`. In place where the memory already holds that type, else by blocks
// that are converted on the way in and out: so one kernel serves every dtype and every stride.
template <class Compute, int inputs, class F>
void map_rows(const Rows<inputs + 1>& rows, const F& f) {
  static_assert(inputs >= 1 && inputs <= 3, "as many as torch's elementwise operators have");
  constexpr int64_t size = sizeof(Compute);
  bool direct = rows.dtype[0] == StoredAs<Compute>::dtype && rows.stride[0][0] == size;
  for (int k = 1; k <= inputs; ++k) {
    direct = direct && rows.dtype[k] == StoredAs<Compute>::dtype &&
             (rows.stride[k][0] == size || (rows.stride[k][0] == 0 && inputs == 2));
  }
  const bool splat_a = rows.stride[1][0] == 0, splat_b = inputs == 2 && rows.stride[inputs][0] == 0;

  rows.each([&](const char* const* at, int64_t n) {
    if (direct) {
      Compute* out = reinterpret_cast<Compute*>(const_cast<char*>(at[0]));
      const Compute* a = reinterpret_cast<const Compute*>(at[1]);
      if constexpr (inputs == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) out[i] = f(a[i]);
      } else if constexpr (inputs == 2) {
        const Compute* b = reinterpret_cast<const Compute*>(at[2]);
        if (splat_a) {
          const Compute first = a[0];
          if (splat_b) {
            std::fill(out, out + n, f(first, b[0]));
          } else {
#pragma omp simd
            for (int64_t i = 0; i < n; ++i) out[i] = f(first, b[i]);
          }
        } else if (splat_b) {
          const Compute second = b[0];
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], second);
        } else {
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
        }
      } else {
        const Compute* b = reinterpret_cast<const Compute*>(at[2]);
        const Compute* c = reinterpret_cast<const Compute*>(at[3]);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i], c[i]);
      }
      return;
    }
    Compute in[inputs][block], result[block];
    for (int64_t start = 0; start < n; start += block) {
      int64_t m = std::min(block, n - start);
      for (int k = 0; k < inputs; ++k) {
        int64_t stride = rows.stride[k + 1][0];
        load(in[k], at[k + 1] + start * stride, stride, m, rows.dtype[k + 1]);
      }
#pragma omp simd
      for (int64_t i = 0; i < m; ++i) {
        if constexpr (inputs == 1)
          result[i] = f(in[0][i]);
        else if constexpr (inputs == 2)
          result[i] = f(in[0][i], in[1][i]);
        else
          result[i] = f(in[0][i], in[1][i], in[2][i]);
      }
      int64_t stride = rows.stride[0][0];
      store(const_cast<char*>(at[0]) + start * stride, stride, result, m, rows.dtype[0]);
    }
  });
}

}  // namespace sim
