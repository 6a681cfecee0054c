// RMS norm as one kernel, where the vendor or the portable rung has one.
//
// torch has `_fused_rms_norm` as a composite, with a derivative for the devices that register a kernel of their own; the
// derivative ends at the first order. Here a call that needs gradients takes both kernels where both are there, and the
// composite for what they cannot do: second order, forward mode, functorch, subclasses and tracers, mixed dtypes.
//
// Formula: Zhang and Sennrich 2019, x / sqrt(mean(x^2) + eps) * weight, and its gradients.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/plain.h"

namespace causeway {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Norm = std::tuple<Tensor, Tensor>(const Tensor&, at::IntArrayRef, const OptionalTensor&, std::optional<double>);

const c10::TypedOperatorHandle<Norm>& forward_operator() {
  static const auto handle = named("aten::_fused_rms_norm").typed<Norm>();
  return handle;
}

// On any device: torch's composite has no kernel but the one that the CPU's key leads to.
std::tuple<Tensor, Tensor> composite(const Tensor& input, at::IntArrayRef shape, const OptionalTensor& weight,
                                     std::optional<double> eps) {
  return forward_operator().redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), input, shape, weight, eps);
}

Operator& backward_operator() {
  static Operator& op = operator_for(named("aten::_fused_rms_norm_backward"));
  return op;
}

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& input, std::vector<int64_t> shape,
                               const OptionalTensor& weight, std::optional<double> eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, rstd] = at::_fused_rms_norm(input, shape, weight, eps);
    context->save_for_backward({input, weight.value_or(Tensor()), rstd});
    context->saved_data["shape"] = std::move(shape);
    context->saved_data["eps"] = eps;
    context->mark_non_differentiable({rstd});
    return {out, rstd};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1], &grad = grads[0];
    const std::vector<int64_t> shape = context->saved_data["shape"].toIntVector();
    const std::array<bool, 2> wanted = {context->needs_input_grad(0), weight.defined() && context->needs_input_grad(1)};
    if (!grad.defined()) return {{}, {}, {}, {}};
    if (at::GradMode::is_enabled())
      return differentiable(grad, input, shape, weight, context->saved_data["eps"].toOptional<double>(), wanted);
    auto [to_input, to_weight] = at::_fused_rms_norm_backward(grad, input, shape, saved[2], weight, wanted);
    return {wanted[0] ? to_input : Tensor(), {}, wanted[1] ? to_weight : Tensor(), {}};
  }

 private:
  // The same from operators that have derivatives themselves.
  static variable_list differentiable(const Tensor& grad, const Tensor& input, at::IntArrayRef shape,
                                      const Tensor& weight, std::optional<double> eps, std::array<bool, 2> wanted) {
    const auto wide = [](const Tensor& t) { return t.to(at::toOpMathType(t.scalar_type())); };
    std::vector<int64_t> rows, of_row;
    for (int64_t d = 0; d < input.dim(); ++d)
      (d + static_cast<int64_t>(shape.size()) < input.dim() ? rows : of_row).push_back(d);
    const Tensor x = wide(input), g = wide(grad);
    const double least =
        x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
    const Tensor rstd = (x.square().mean(of_row, /*keepdim=*/true) + eps.value_or(least)).rsqrt(), y = x * rstd;
    Tensor to_input, to_weight;
    if (wanted[0]) {
      const Tensor gw = weight.defined() ? g * wide(weight) : g;
      to_input = (rstd * (gw - y * (gw * y).mean(of_row, /*keepdim=*/true))).to(input.scalar_type());
    }
    if (wanted[1]) to_weight = (rows.empty() ? g * y : (g * y).sum(rows)).to(weight.scalar_type());
    return {to_input, {}, to_weight, {}};
  }
};

std::tuple<Tensor, Tensor> rms_norm(const Tensor& input, at::IntArrayRef shape, const OptionalTensor& weight,
                                    std::optional<double> eps) {
  static Operator& op = operator_for(forward_operator());
  const c10::ScalarType dtype = input.scalar_type();
  const int device = input.device().index();
  const bool has_weight = weight && weight->defined();
  const bool differentiates =
      at::GradMode::is_enabled() && (input.requires_grad() || (has_weight && weight->requires_grad()));
  const bool fits =
      is_plain(input) && input.numel() > 0 && input.layout() == at::kStrided &&
      (!has_weight || (is_plain(*weight) && weight->scalar_type() == dtype && weight->device() == input.device())) &&
      !in_functorch();
  if (!fits || !has_kernel(op, dtype, device) || (differentiates && !has_kernel(backward_operator(), dtype, device)))
    return composite(input, shape, weight, eps);
  if (!differentiates) {
    at::AutoDispatchBelowADInplaceOrView below;
    return at::_fused_rms_norm(input, shape, weight, eps);
  }
  variable_list results = RmsNorm::apply(input, shape.vec(), weight, eps);
  return {results[0], results[1]};
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("_fused_rms_norm", TORCH_FN(rms_norm)); }

}  // namespace

}  // namespace causeway
