// Of half inputs a vendor's kernel and a decomposition give mean and rstd in float32, as CUDA does and as torch's meta
// kernels say; torch's CPU kernels give, and in the backward take, the dtype of the input, or float32 where the
// parameters are float32. So a forward and a backward of different rungs need a conversion between them.
#include "ladder/norm.h"

#include <ATen/ops/_to_copy.h>

namespace causeway {

namespace {

constexpr size_t kInput = 1;

}  // namespace

void fit_statistics(const Operator& op, Stack& stack) {
  c10::IValue* args = &stack[stack.size() - op.args.size()];
  c10::ScalarType wanted = args[kInput].toTensor().scalar_type();
  if (!c10::isReducedFloatingType(wanted)) return;
  const auto given = [&](int8_t i) { return i >= 0 && args[i].isTensor() && args[i].toTensor().defined(); };
  for (int8_t i : op.facts.parameters)
    if (given(i) && args[i].toTensor().scalar_type() == at::kFloat) wanted = at::kFloat;
  for (int8_t i : op.facts.statistics)
    if (given(i) && args[i].toTensor().scalar_type() != wanted)
      args[i] = at::_to_copy(args[i].toTensor(), at::TensorOptions().dtype(wanted));
}

}  // namespace causeway
