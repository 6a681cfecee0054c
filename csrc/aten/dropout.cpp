// Dropout from the chip's own Bernoulli numbers, where only the host would have it as one operator.
//
// torch asks foreign devices for `native_dropout`. Its schema has no generator, so a vendor cannot draw for it: where the
// portable rung has no kernel either, the host computed it, and all of the tensor went there and back. The numbers of
// `bernoulli_` are the vendor's; the formula is that of torch's composite, which the CPU has.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "aten/plain.h"
#include "runtime/device.h"

namespace causeway {

namespace {

using at::Tensor;
using Dropout = Tensor(const Tensor&, double, bool);

// Whether a call that drops something is best made of numbers that the vendor draws.
bool draws(const Tensor& input) {
  static Operator& fused = operator_for(named("aten::native_dropout"));
  static Operator& drawn = operator_for(named("aten::bernoulli_", "float"));
  const c10::ScalarType dtype = input.scalar_type();
  const int index = input.device().index();
  return is_plain(input) && input.layout() == at::kStrided && at::isFloatingType(dtype) && !in_functorch() &&
         !device(index).host_addressable && !has_kernel(fused, dtype, index) && has_kernel(drawn, dtype, index);
}

Tensor dropout(const Tensor& input, double p, bool train) {
  static const auto composite = named("aten::dropout").typed<Dropout>();
  // A tracer's tensor may have no number of elements: `draws` is asked first.
  if (!train || !(p > 0 && p < 1) || !draws(input) || input.numel() == 0)
    return composite.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), input, p, train);
  return input * at::empty_like(input).bernoulli_(1 - p).div_(1 - p);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("dropout", TORCH_FN(dropout)); }

}  // namespace

}  // namespace causeway
