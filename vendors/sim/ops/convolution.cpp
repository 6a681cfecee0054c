// Convolution in one to three dimensions, as a matrix product: the patches that the kernel sees become the
// columns of a matrix in scratch memory ("im2col"), and a group's weights are the other factor.
#include <algorithm>

#include "ops/matmul.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

constexpr int most = 3;  // spatial dimensions

struct Geometry {
  int dims = 0;
  int64_t batch = 0, groups = 1, in_channels = 0, out_channels = 0;  // channels of one group
  int64_t in[most], out[most], kernel[most], stride[most], padding[most], dilation[most];
  int64_t in_size = 1, out_size = 1, kernel_size = 1;  // products of the above

  int64_t patch() const { return in_channels * kernel_size; }  // rows of the matrix of columns
};

cw_status read_geometry(const Call& call, const Tensor& in, const Tensor& weight, const Tensor& out, int at,
                        Geometry* g) {
  g->dims = in.ndim - 2;
  if (g->dims < 1 || g->dims > most || weight.ndim != in.ndim || out.ndim != in.ndim) {
    return call.declined("one to three dimensions, with a batch");
  }
  if (call.integer(at + 3)) return call.declined("not transposed");
  g->groups = call.integer(at + 5, 1);
  g->batch = in.shape[0];
  g->in_channels = weight.shape[1];
  g->out_channels = weight.shape[0] / g->groups;
  const std::vector<int64_t> settings[3] = {call.ints(at), call.ints(at + 1), call.ints(at + 2)};
  int64_t* to[3] = {g->stride, g->padding, g->dilation};
  for (int which = 0; which < 3; ++which) {
    const std::vector<int64_t>& list = settings[which];
    if (list.size() != 1 && int(list.size()) != g->dims) return call.declined("a list of another length");
    for (int d = 0; d < g->dims; ++d) to[which][d] = list[list.size() == 1 ? 0 : size_t(d)];
  }
  bool good = in.shape[1] == g->in_channels * g->groups && out.shape[0] == g->batch && out.shape[1] == weight.shape[0];
  for (int d = 0; d < g->dims; ++d) {
    g->in[d] = in.shape[d + 2];
    g->kernel[d] = weight.shape[d + 2];
    g->out[d] = out.shape[d + 2];
    good = good &&
           g->out[d] == (g->in[d] + 2 * g->padding[d] - g->dilation[d] * (g->kernel[d] - 1) - 1) / g->stride[d] + 1;
    g->in_size *= g->in[d];
    g->out_size *= g->out[d];
    g->kernel_size *= g->kernel[d];
  }
  return good ? CW_OK : fail(CW_INVALID, "%s: the shapes do not fit", call.op().name);
}

// For row `k` of the columns (a place in the kernel) and each line of the output along its last dimension: call
// `f(columns, input, n, first)` where `input` is the offset of what output element `first` reads, and n elements
// from there on lie inside the input.
template <class F>
void each_line(const Geometry& g, int64_t k, F&& f) {
  int64_t place[most];
  for (int d = g.dims - 1; d >= 0; k /= g.kernel[d--]) place[d] = k % g.kernel[d];
  const int last = g.dims - 1;
  const int64_t width = g.out[last], shift = place[last] * g.dilation[last] - g.padding[last];
  // Those x with 0 <= x * stride + shift < in.
  int64_t first = shift >= 0 ? 0 : (-shift + g.stride[last] - 1) / g.stride[last];
  int64_t end = g.in[last] - shift <= 0 ? 0 : (g.in[last] - shift + g.stride[last] - 1) / g.stride[last];
  first = std::min(first, width);
  end = std::max(first, std::min(end, width));
  for (int64_t line = 0; line < g.out_size / width; ++line) {
    int64_t position[most], left = line, offset = 0;
    for (int d = last - 1; d >= 0; left /= g.out[d--]) position[d] = left % g.out[d];
    bool inside = true;
    for (int d = 0; d < last; ++d) {
      int64_t y = position[d] * g.stride[d] + place[d] * g.dilation[d] - g.padding[d];
      inside = inside && y >= 0 && y < g.in[d];
      offset = offset * g.in[d] + y;
    }
    f(line * width, offset * g.in[last] + shift + first * g.stride[last], inside ? end - first : 0, first);
  }
}

// Columns of one sample and group: patch() rows of out_size elements.
template <class C>
void gather_columns(const Geometry& g, const char* in, Dtype dtype, C* columns) {
  const int64_t size = size_of(dtype), width = g.out[g.dims - 1], step = g.stride[g.dims - 1] * size;
  for (int64_t row = 0; row < g.patch(); ++row, columns += g.out_size) {
    const char* channel = in + row / g.kernel_size * g.in_size * size;
    each_line(g, row % g.kernel_size, [&](int64_t line, int64_t offset, int64_t n, int64_t first) {
      C* to = columns + line;
      std::fill(to, to + first, C(0));
      if (n) load(to + first, channel + offset * size, step, n, dtype);
      std::fill(to + first + n, to + width, C(0));
    });
  }
}

// The reverse: add the columns to the places that they came from.
template <class C>
void scatter_columns(const Geometry& g, const C* columns, C* in) {
  const int64_t step = g.stride[g.dims - 1];
  for (int64_t row = 0; row < g.patch(); ++row, columns += g.out_size) {
    C* channel = in + row / g.kernel_size * g.in_size;
    each_line(g, row % g.kernel_size, [&](int64_t line, int64_t offset, int64_t n, int64_t first) {
      for (int64_t i = 0; i < n; ++i) channel[offset + i * step] += columns[line + first + i];
    });
  }
}

Matrix dense(char* data, Dtype dtype, int64_t columns) {
  return {data, dtype, columns * size_of(dtype), size_of(dtype)};
}
Matrix transposed(Matrix m) { return {m.data, m.dtype, m.column, m.row}; }

template <class C>
constexpr Dtype stored_as = sizeof(C) == 4 ? kFloat : kDouble;

template <class C>
void convolve(const Geometry& g, const Tensor& out, const Tensor& in, const Tensor& weight, const Tensor* bias,
              char* columns) {
  const int64_t size = size_of(in.dtype);
  for (int64_t i = 0; i < g.batch * g.groups; ++i) {
    const int64_t group = i % g.groups;
    gather_columns(g, in.data + i * g.in_channels * g.in_size * size, in.dtype, reinterpret_cast<C*>(columns));
    Product p;
    p.m = g.out_channels;
    p.k = g.patch();
    p.n = g.out_size;
    p.a = dense(weight.data + group * p.m * p.k * size, weight.dtype, p.k);
    p.b = dense(columns, stored_as<C>, p.n);
    p.out = dense(out.data + i * p.m * p.n * size, out.dtype, p.n);
    if (bias) {
      p.beta = 1;
      p.add = {bias->data + group * p.m * bias->stride_bytes(0), bias->dtype, bias->stride_bytes(0), 0};
    }
    multiply<C>(p);
  }
}

// out, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
cw_status convolution(Call& call) {
  Tensor out, in, weight, bias;
  TRY(call.tensors_from(0, &out, &in, &weight));
  const bool has_bias = !call.is_none(3);
  if (has_bias) TRY(call.tensor(3, &bias));
  if (!out.contiguous() || !in.contiguous() || !weight.contiguous()) return call.declined("only dense tensors");
  Geometry g;
  TRY(read_geometry(call, in, weight, out, 4, &g));
  if (out.numel() == 0) return CW_OK;
  char* columns = nullptr;
  const uint64_t size = in.dtype == kDouble ? 8 : 4;
  TRY(call.scratch(std::max<uint64_t>(uint64_t(g.patch() * g.out_size) * size, 64), &columns));
  return call.launch([=] {
    if (in.dtype == kDouble)
      convolve<double>(g, out, in, weight, has_bias ? &bias : nullptr, columns);
    else
      convolve<float>(g, out, in, weight, has_bias ? &bias : nullptr, columns);
    return CW_OK;
  });
}

struct Gradients {
  Tensor in, weight, bias;
  bool wants_in = false, wants_weight = false, wants_bias = false;
};

template <class C>
void differentiate(const Geometry& g, const Gradients& to, const Tensor& grad, const Tensor& in, const Tensor& weight,
                   char* columns) {
  const Dtype dtype = stored_as<C>;
  const int64_t size = sizeof(C), m = g.out_channels, patch = g.patch(), n = g.out_size;
  if (to.wants_in) memset(to.in.data, 0, size_t(to.in.numel() * size));
  if (to.wants_weight) memset(to.weight.data, 0, size_t(to.weight.numel() * size));
  std::vector<double> sums(size_t(m * g.groups), 0.0);
  for (int64_t i = 0; i < g.batch * g.groups; ++i) {
    const int64_t group = i % g.groups, in_at = i * g.in_channels * g.in_size * size;
    const Matrix out_grad = dense(grad.data + i * m * n * size, dtype, n);
    const Matrix column_matrix = dense(columns, dtype, n);
    Product p;
    if (to.wants_weight) {  // grad (m x n) @ columns^T (n x patch), summed over the batch
      gather_columns(g, in.data + in_at, dtype, reinterpret_cast<C*>(columns));
      p.m = m, p.k = n, p.n = patch;
      p.a = out_grad;
      p.b = transposed(column_matrix);
      p.out = p.add = dense(to.weight.data + group * m * patch * size, dtype, patch);
      p.beta = 1;
      multiply<C>(p);
    }
    if (to.wants_in) {  // weight^T (patch x m) @ grad (m x n), back to where the patches came from
      p.m = patch, p.k = m, p.n = n;
      p.a = transposed(dense(weight.data + group * m * patch * size, dtype, patch));
      p.b = out_grad;
      p.out = column_matrix;
      p.beta = 0;
      multiply<C>(p);
      scatter_columns(g, reinterpret_cast<const C*>(columns), reinterpret_cast<C*>(to.in.data + in_at));
    }
    for (int64_t channel = 0; to.wants_bias && channel < m; ++channel) {
      const C* line = reinterpret_cast<const C*>(out_grad.data) + channel * n;
      for (int64_t x = 0; x < n; ++x) sums[size_t(group * m + channel)] += double(line[x]);
    }
  }
  if (to.wants_bias) store(to.bias.data, size, sums.data(), m * g.groups, dtype);
}

// grad_input, grad_weight, grad_bias, grad_output, input, weight, stride, padding, dilation, transposed,
// output_padding, groups, output_mask
cw_status convolution_backward(Call& call) {
  Gradients to;
  Tensor grad, in, weight;
  std::vector<int64_t> mask = call.ints(12);
  if (mask.size() != 3) return fail(CW_INVALID, "%s: output_mask has three elements", call.op().name);
  Tensor* tensors[3] = {&to.in, &to.weight, &to.bias};
  bool* wants[3] = {&to.wants_in, &to.wants_weight, &to.wants_bias};
  for (int i = 0; i < 3; ++i) {
    *wants[i] = mask[size_t(i)] && !call.is_none(i);
    if (!*wants[i]) continue;
    TRY(call.tensor(i, tensors[i]));
    if (!tensors[i]->contiguous()) return call.declined("only dense tensors");
  }
  TRY(call.tensors_from(3, &grad, &in, &weight));
  if (!grad.contiguous() || !in.contiguous() || !weight.contiguous()) return call.declined("only dense tensors");
  Geometry g;
  TRY(read_geometry(call, in, weight, grad, 6, &g));
  if (grad.numel() == 0) return call.declined("an empty gradient");
  char* columns = nullptr;
  const uint64_t size = uint64_t(size_of(in.dtype));
  TRY(call.scratch(std::max<uint64_t>(uint64_t(g.patch() * g.out_size) * size, 64), &columns));
  return call.launch([=] {
    if (in.dtype == kDouble)
      differentiate<double>(g, to, grad, in, weight, columns);
    else
      differentiate<float>(g, to, grad, in, weight, columns);
    return CW_OK;
  });
}

}  // namespace

const OpList& convolution_ops() {
  static const OpList list = {
      {"aten::convolution_overrideable", convolution, floats, CW_NEEDS_CONTIGUOUS},
      {"aten::convolution_backward_overrideable", convolution_backward, wide_floats, CW_NEEDS_CONTIGUOUS, 3},
  };
  return list;
}

}  // namespace sim
