// Pooling over windows of images: the largest element with its place, its gradient, and the mean.
#include <algorithm>
#include <limits>

#include "ops/registry.hpp"

namespace sim {

namespace {

struct Windows {
  int64_t planes = 1, in[2], out[2], kernel[2], stride[2], padding[2], dilation[2] = {1, 1};
};

// Lists have one element or two; an empty stride is the kernel's size.
cw_status read_windows(const Call& call, const Tensor& in, const Tensor& out, int at, bool dilated, Windows* w) {
  if (in.ndim < 3 || in.ndim > 4 || out.ndim != in.ndim) return call.declined("3 or 4 dimensions");
  if (!in.contiguous() || !out.contiguous()) return call.declined("only dense tensors");
  std::vector<int64_t> lists[4] = {call.ints(at), call.ints(at + 1), call.ints(at + 2), {1}};
  if (lists[1].empty()) lists[1] = lists[0];
  if (dilated) lists[3] = call.ints(at + 3);
  int64_t* to[4] = {w->kernel, w->stride, w->padding, w->dilation};
  for (int which = 0; which < 4; ++which) {
    if (lists[which].empty() || lists[which].size() > 2) return call.declined("a list of another length");
    for (int d = 0; d < 2; ++d) to[which][d] = lists[which][lists[which].size() == 1 ? 0 : size_t(d)];
  }
  for (int d = 0; d < in.ndim - 2; ++d) w->planes *= in.shape[d];
  for (int d = 0; d < 2; ++d) {
    w->in[d] = in.shape[in.ndim - 2 + d];
    w->out[d] = out.shape[out.ndim - 2 + d];
  }
  return CW_OK;
}

template <class C>
void max_plane(const Windows& w, const C* in, C* out, int64_t* where) {
  for (int64_t y = 0; y < w.out[0]; ++y) {
    for (int64_t x = 0; x < w.out[1]; ++x) {
      C best = std::numeric_limits<C>::lowest();
      int64_t at = -1;
      for (int64_t i = 0; i < w.kernel[0]; ++i) {
        const int64_t row = y * w.stride[0] - w.padding[0] + i * w.dilation[0];
        if (row < 0 || row >= w.in[0]) continue;
        for (int64_t j = 0; j < w.kernel[1]; ++j) {
          const int64_t column = x * w.stride[1] - w.padding[1] + j * w.dilation[1];
          if (column < 0 || column >= w.in[1]) continue;
          const C value = in[row * w.in[1] + column];
          if (at >= 0 && !(value > best) && value == value) continue;  // a NaN wins
          best = value;
          at = row * w.in[1] + column;
        }
      }
      *out++ = best;
      *where++ = at;
    }
  }
}

// out, indices, self, kernel_size, stride, padding, dilation, ceil_mode
cw_status max_pool(Call& call) {
  Tensor out, indices, in;
  TRY(call.tensors_from(0, &out, &indices, &in));
  Windows w;
  TRY(read_windows(call, in, out, 3, true, &w));
  if (!indices.contiguous() || indices.dtype != kInt64) return call.declined("dense int64 indices");
  auto work = [&](auto example) {
    using C = decltype(example);
    return call.launch([=] {
      const int64_t in_size = w.in[0] * w.in[1], out_size = w.out[0] * w.out[1];
      std::vector<C> values(static_cast<size_t>(in_size)), result(static_cast<size_t>(out_size));
      for (int64_t plane = 0; plane < w.planes; ++plane) {
        const int64_t size = size_of(in.dtype), at = plane * out_size;
        load(values.data(), in.data + plane * in_size * size, size, in_size, in.dtype);
        max_plane(w, values.data(), result.data(), reinterpret_cast<int64_t*>(indices.data) + at);
        store(out.data + at * size_of(out.dtype), size_of(out.dtype), result.data(), out_size, out.dtype);
      }
      return CW_OK;
    });
  };
  if (!is_floating(in.dtype)) return work(int64_t{});
  return in.dtype == kDouble ? work(double{}) : work(float{});
}

// grad_input, grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
cw_status max_pool_backward(Call& call) {
  Tensor to, grad, in, indices;
  TRY(call.tensors_from(0, &to, &grad, &in));
  TRY(call.tensor(8, &indices));
  Windows w;
  TRY(read_windows(call, in, grad, 3, true, &w));
  if (!to.contiguous() || !indices.contiguous() || indices.dtype != kInt64) {
    return call.declined("only dense tensors and int64 indices");
  }
  return call.launch([=] {
    const int64_t in_size = w.in[0] * w.in[1], out_size = w.out[0] * w.out[1];
    std::vector<double> sums(static_cast<size_t>(in_size)), values(static_cast<size_t>(out_size));
    for (int64_t plane = 0; plane < w.planes; ++plane) {
      const int64_t size = size_of(grad.dtype), at = plane * out_size;
      std::fill(sums.begin(), sums.end(), 0.0);
      load(values.data(), grad.data + at * size, size, out_size, grad.dtype);
      const int64_t* where = reinterpret_cast<const int64_t*>(indices.data) + at;
      for (int64_t i = 0; i < out_size; ++i) {
        if (where[i] >= 0 && where[i] < in_size) sums[size_t(where[i])] += values[size_t(i)];
      }
      store(to.data + plane * in_size * size_of(to.dtype), size_of(to.dtype), sums.data(), in_size, to.dtype);
    }
    return CW_OK;
  });
}

struct Mean {
  bool counts_padding;
  int64_t divisor;  // 0: none given
};

void mean_plane(const Windows& w, const Mean& mean, const double* in, double* out) {
  for (int64_t y = 0; y < w.out[0]; ++y) {
    for (int64_t x = 0; x < w.out[1]; ++x) {
      int64_t from[2] = {y * w.stride[0] - w.padding[0], x * w.stride[1] - w.padding[1]}, to[2];
      int64_t padded = 1, inside = 1;
      for (int d = 0; d < 2; ++d) {
        to[d] = std::min(from[d] + w.kernel[d], w.in[d] + w.padding[d]);
        padded *= to[d] - from[d];
        from[d] = std::max<int64_t>(from[d], 0);
        to[d] = std::min(to[d], w.in[d]);
        inside *= std::max<int64_t>(to[d] - from[d], 0);
      }
      double sum = 0;
      for (int64_t i = from[0]; i < to[0]; ++i) {
        for (int64_t j = from[1]; j < to[1]; ++j) sum += in[i * w.in[1] + j];
      }
      const int64_t divisor = mean.divisor ? mean.divisor : mean.counts_padding ? padded : inside;
      *out++ = inside ? sum / double(divisor) : 0.0;
    }
  }
}

// out, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
cw_status mean_pool(Call& call) {
  Tensor out, in;
  TRY(call.tensors_from(0, &out, &in));
  Windows w;
  TRY(read_windows(call, in, out, 2, false, &w));
  const Mean mean{call.integer(6, 1) != 0, call.integer(7, 0)};
  return call.launch([=] {
    const int64_t in_size = w.in[0] * w.in[1], out_size = w.out[0] * w.out[1];
    std::vector<double> values(static_cast<size_t>(in_size)), result(static_cast<size_t>(out_size));
    for (int64_t plane = 0; plane < w.planes; ++plane) {
      const int64_t size = size_of(in.dtype);
      load(values.data(), in.data + plane * in_size * size, size, in_size, in.dtype);
      mean_plane(w, mean, values.data(), result.data());
      store(out.data + plane * out_size * size, size, result.data(), out_size, out.dtype);
    }
    return CW_OK;
  });
}

}  // namespace

const OpList& pool_ops() {
  constexpr cw_dtypes indexed = floats | CW_INT64;  // the indices are int64
  static const OpList list = {
      {"aten::max_pool2d_with_indices.out", max_pool, indexed, CW_NEEDS_CONTIGUOUS, 2},
      {"aten::max_pool2d_with_indices_backward.grad_input", max_pool_backward, indexed, CW_NEEDS_CONTIGUOUS},
      {"aten::avg_pool2d.out", mean_pool, floats, CW_NEEDS_CONTIGUOUS},
  };
  return list;
}

}  // namespace sim
