// Layer norm: (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions, and its gradient.
// Statistics are accumulated in double.
#include <cmath>

#include "ops/registry.hpp"

namespace sim {

namespace {

struct Norm {
  Tensor out, mean, rstd, in, weight, bias;
  bool has_weight = false, has_bias = false;
  int64_t rows = 0, length = 1;
  double eps = 0;
};

cw_status dense(const Call& call, int i, Tensor* out) {
  TRY(call.tensor(i, out));
  return out->contiguous() && !out->is_host_scalar ? CW_OK : call.declined("only dense tensors");
}
cw_status optional(const Call& call, int i, Tensor* out, bool* has) {
  *has = !call.is_none(i);
  return *has ? dense(call, i, out) : CW_OK;
}
char* at(const Tensor& t, int64_t i) { return t.data + i * size_of(t.dtype); }

void normalize(const Norm& p) {
  const int64_t n = p.length;
  const size_t size = size_t(n);
  std::vector<double> x(size), weight(size, 1.0), bias(size, 0.0);
  if (p.has_weight) load(weight.data(), p.weight.data, size_of(p.weight.dtype), n, p.weight.dtype);
  if (p.has_bias) load(bias.data(), p.bias.data, size_of(p.bias.dtype), n, p.bias.dtype);
  for (int64_t row = 0; row < p.rows; ++row) {
    load(x.data(), at(p.in, row * n), size_of(p.in.dtype), n, p.in.dtype);
    double sum = 0, squares = 0;
    for (double v : x) sum += v;
    const double mean = sum / double(n);
    for (double v : x) squares += (v - mean) * (v - mean);
    const double rstd = 1.0 / std::sqrt(squares / double(n) + p.eps);
#pragma omp simd
    for (size_t i = 0; i < size; ++i) x[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    store(at(p.out, row * n), size_of(p.out.dtype), x.data(), n, p.out.dtype);
    store_one(at(p.mean, row), mean, p.mean.dtype);
    store_one(at(p.rstd, row), rstd, p.rstd.dtype);
  }
}

// out, mean, rstd, input, normalized_shape, weight, bias, eps
cw_status layer_norm(Call& call) {
  Norm p;
  TRY(dense(call, 0, &p.out));
  TRY(dense(call, 1, &p.mean));
  TRY(dense(call, 2, &p.rstd));
  TRY(dense(call, 3, &p.in));
  for (int64_t size : call.ints(4)) p.length *= size;
  TRY(optional(call, 5, &p.weight, &p.has_weight));
  TRY(optional(call, 6, &p.bias, &p.has_bias));
  p.eps = call.number<double>(7);
  p.rows = p.length ? p.in.numel() / p.length : 0;
  if (p.length == 0) return call.declined("an empty normalized shape");
  return call.launch([p] { return normalize(p), CW_OK; });
}

struct NormGradient {
  Tensor grad_in, grad_weight, grad_bias, grad, in, mean, rstd, weight;
  bool wants_in = false, wants_weight = false, wants_bias = false, has_weight = false;
  int64_t rows = 0, length = 1;
};

void differentiate(const NormGradient& p) {
  const int64_t n = p.length;
  const size_t size = size_t(n);
  std::vector<double> g(size), x(size), weight(size, 1.0), sum_weight(size, 0.0), sum_bias(size, 0.0);
  if (p.has_weight) load(weight.data(), p.weight.data, size_of(p.weight.dtype), n, p.weight.dtype);
  for (int64_t row = 0; row < p.rows; ++row) {
    load(g.data(), at(p.grad, row * n), size_of(p.grad.dtype), n, p.grad.dtype);
    load(x.data(), at(p.in, row * n), size_of(p.in.dtype), n, p.in.dtype);
    const double mean = load_one<double>(at(p.mean, row), p.mean.dtype);
    const double rstd = load_one<double>(at(p.rstd, row), p.rstd.dtype);
    double total = 0, total_x = 0;
    for (size_t i = 0; i < size; ++i) {
      x[i] = (x[i] - mean) * rstd;
      sum_weight[i] += g[i] * x[i];
      sum_bias[i] += g[i];
      g[i] *= weight[i];
      total += g[i];
      total_x += g[i] * x[i];
    }
    if (!p.wants_in) continue;
    for (size_t i = 0; i < size; ++i) g[i] = rstd * (g[i] - (total + x[i] * total_x) / double(n));
    store(at(p.grad_in, row * n), size_of(p.grad_in.dtype), g.data(), n, p.grad_in.dtype);
  }
  if (p.wants_weight) {
    store(p.grad_weight.data, size_of(p.grad_weight.dtype), sum_weight.data(), n, p.grad_weight.dtype);
  }
  if (p.wants_bias) store(p.grad_bias.data, size_of(p.grad_bias.dtype), sum_bias.data(), n, p.grad_bias.dtype);
}

// grad_input, grad_weight, grad_bias, grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
cw_status layer_norm_backward(Call& call) {
  NormGradient p;
  std::vector<int64_t> mask = call.ints(10);
  if (mask.size() != 3) return fail(CW_INVALID, "%s: output_mask has three elements", call.op().name);
  TRY(optional(call, 0, &p.grad_in, &p.wants_in));
  TRY(optional(call, 1, &p.grad_weight, &p.wants_weight));
  TRY(optional(call, 2, &p.grad_bias, &p.wants_bias));
  p.wants_in = p.wants_in && mask[0];
  p.wants_weight = p.wants_weight && mask[1];
  p.wants_bias = p.wants_bias && mask[2];
  TRY(dense(call, 3, &p.grad));
  TRY(dense(call, 4, &p.in));
  for (int64_t size : call.ints(5)) p.length *= size;
  TRY(dense(call, 6, &p.mean));
  TRY(dense(call, 7, &p.rstd));
  TRY(optional(call, 8, &p.weight, &p.has_weight));
  if (p.length == 0) return call.declined("an empty normalized shape");
  p.rows = p.in.numel() / p.length;
  return call.launch([p] { return differentiate(p), CW_OK; });
}

}  // namespace

const OpList& norm_ops() {
  static const OpList list = {
      {"aten::native_layer_norm", layer_norm, floats, CW_NEEDS_CONTIGUOUS, 3},
      {"aten::native_layer_norm.out", layer_norm, floats, CW_NEEDS_CONTIGUOUS, 3},
      {"aten::native_layer_norm_backward", layer_norm_backward, floats, CW_NEEDS_CONTIGUOUS, 3},
      {"aten::native_layer_norm_backward.out", layer_norm_backward, floats, CW_NEEDS_CONTIGUOUS, 3},
  };
  return list;
}

}  // namespace sim
