// Of half inputs a vendor's kernel and a decomposition give mean and rstd in float32, as CUDA does and as torch's meta
// kernels say; torch's CPU kernels give, and in the backward take, the dtype of the input, or float32 where the
// parameters are float32. So a forward and a backward of different rungs need a conversion between them.
#include "ladder/norm.h"

#include <unordered_map>

#include <ATen/ops/_to_copy.h>

namespace causeway {

namespace {

struct Places {
  std::vector<size_t> statistics, parameters;  // arguments
};

constexpr size_t kInput = 1;

const std::unordered_map<std::string, Places>& backwards() {
  static const std::unordered_map<std::string, Places> places = {
      {"aten::native_layer_norm_backward", {{3, 4}, {5, 6}}},
      {"aten::native_group_norm_backward", {{2, 3}, {4}}},
      {"aten::native_batch_norm_backward", {{5, 6}, {2, 3, 4}}},
  };
  return places;
}

}  // namespace

bool takes_statistics(const std::string& name) { return backwards().count(name) > 0; }

void fit_statistics(const Operator& op, Stack& stack) {
  const Places& places = backwards().at(op.handle.schema().name());
  c10::IValue* args = &stack[stack.size() - op.args.size()];
  c10::ScalarType wanted = args[kInput].toTensor().scalar_type();
  if (!c10::isReducedFloatingType(wanted)) return;
  const auto given = [&](size_t i) { return args[i].isTensor() && args[i].toTensor().defined(); };
  for (size_t i : places.parameters)
    if (given(i) && args[i].toTensor().scalar_type() == at::kFloat) wanted = at::kFloat;
  for (size_t i : places.statistics)
    if (given(i) && args[i].toTensor().scalar_type() != wanted)
      args[i] = at::_to_copy(args[i].toTensor(), at::TensorOptions().dtype(wanted));
}

}  // namespace causeway
