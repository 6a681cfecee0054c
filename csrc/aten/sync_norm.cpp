// The operators of SyncBatchNorm. torch has them for CUDA only; they are computed here from operators that the ladder
// serves. Channels are dimension 1. Statistics are float32 for half types (float64 stays), as on CUDA.
//
// Formulas: Ioffe and Szegedy 2015, with the variance of several processes put together as in Chan et al. 1979.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "ladder/observe.h"

namespace causeway {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool given(const OptionalTensor& t) { return t && t->defined(); }

Tensor wide(const Tensor& t) { return t.to(at::toOpMathType(t.scalar_type())); }

// [channels] as [1, channels, 1, ...], to broadcast over `like`.
Tensor by_channel(const Tensor& t, const Tensor& like) {
  std::vector<int64_t> shape(like.dim(), 1);
  shape[1] = -1;
  return t.reshape(shape);
}

std::vector<int64_t> all_but_channels(const Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "SyncBatchNorm expects input of at least 2 dimensions [batch, channels, ...], but got ",
              input.sizes());
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

// Mean and 1 / sqrt(variance + eps), each [channels].
std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  auto [variance, mean] = at::var_mean(wide(input), all_but_channels(input), /*correction=*/at::Scalar(0));
  return {mean, (variance + eps).rsqrt()};
}

Tensor elementwise(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, const Tensor& mean,
                   const Tensor& invstd, double) {
  Tensor y = (wide(input) - by_channel(mean, input)) * by_channel(invstd, input);
  if (given(weight)) y = y * by_channel(wide(*weight), input);
  if (given(bias)) y = y + by_channel(wide(*bias), input);
  return y.to(input.scalar_type());
}

// mean and invstd: [processes, channels]; counts: [processes], elements per channel. The running ones are updated in
// place with the unbiased variance.
std::tuple<Tensor, Tensor> gather_counts(const Tensor&, const Tensor& mean, const Tensor& invstd,
                                         const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                         double momentum, double eps, const Tensor& counts) {
  const Tensor n = counts.to(mean.scalar_type()).unsqueeze(1), total = n.sum();
  const Tensor joint = (mean * n).sum(0) / total;
  const Tensor squares = (((invstd.pow(-2) - eps) + (mean - joint).square()) * n).sum(0);
  if (given(running_mean)) running_mean->mul_(1 - momentum).add_(joint.to(running_mean->scalar_type()), momentum);
  if (given(running_var))
    running_var->mul_(1 - momentum).add_((squares / (total - 1)).to(running_var->scalar_type()), momentum);
  return {joint, (squares / total + eps).rsqrt()};
}

std::tuple<Tensor, Tensor> gather(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                  const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                  double momentum, double eps, int64_t count) {
  return gather_counts(input, mean, invstd, running_mean, running_var, momentum, eps,
                       at::full({mean.size(0)}, count, mean.options()));
}

// Sums over all but channels of the gradient, and of the gradient times the centred input; gradients of weight and bias.
std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& grad, const Tensor& input, const Tensor& mean,
                                                           const Tensor& invstd, const OptionalTensor& weight,
                                                           bool input_g, bool weight_g, bool bias_g) {
  const auto dims = all_but_channels(input);
  const Tensor g = wide(grad);
  Tensor sum = g.sum(dims);
  Tensor centred = (g * (wide(input) - by_channel(mean, input))).sum(dims);
  const auto dtype = given(weight) ? weight->scalar_type() : sum.scalar_type();
  return {input_g ? sum : Tensor(), input_g ? centred : Tensor(), weight_g ? (centred * invstd).to(dtype) : Tensor(),
          bias_g ? sum.to(dtype, /*non_blocking=*/false, /*copy=*/true) : Tensor()};
}

Tensor backward_elementwise(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                            const OptionalTensor& weight, const Tensor& sum, const Tensor& centred,
                            const Tensor& counts) {
  const Tensor n = counts.sum().to(mean.scalar_type());
  const Tensor slope = by_channel(centred / n * invstd.square(), input);
  Tensor scale = invstd;
  if (given(weight)) scale = scale * wide(*weight);
  const Tensor x = wide(input) - by_channel(mean, input);
  return ((wide(grad) - by_channel(sum / n, input) - x * slope) * by_channel(scale, input)).to(input.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", own<&stats>("batch_norm_stats"));
  m.impl("batch_norm_elemt", own<&elementwise>("batch_norm_elemt"));
  m.impl("batch_norm_gather_stats", own<&gather>("batch_norm_gather_stats"));
  m.impl("batch_norm_gather_stats_with_counts", own<&gather_counts>("batch_norm_gather_stats_with_counts"));
  m.impl("batch_norm_backward_reduce", own<&backward_reduce>("batch_norm_backward_reduce"));
  m.impl("batch_norm_backward_elemt", own<&backward_elementwise>("batch_norm_backward_elemt"));
}

}  // namespace

}  // namespace causeway
