// torch asks a device for a kernel of its own before it takes an operator apart (CompositeExplicitAutograd, which is what
// torch.library.custom_op makes) and before its composite records gradients (CompositeImplicitAutograd). So a named
// operator gets a kernel here, under its name; where no rung has one, the composite is called as it would have been.
#include "ladder/named.h"

#include <map>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "ladder/layouts.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

// A device that nobody has: what torch finds for it is what this one would be given without us.
constexpr DispatchKey kNobody = DispatchKey::PrivateUse2, kNobodysAutograd = DispatchKey::AutogradPrivateUse2;

bool wants_gradient(const OperatorHandle& op, const Stack& stack) {
  if (!at::GradMode::is_enabled()) return false;
  const auto wants = [](const c10::IValue& v) {
    return v.isTensor() && v.toTensor().defined() &&
           (v.toTensor().requires_grad() || v.toTensor()._fw_grad(0).defined());
  };
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    if (wants(stack[i])) return true;
    if (!stack[i].isList()) continue;
    const auto list = stack[i].toListRef();
    if (std::any_of(list.begin(), list.end(), wants)) return true;
  }
  return false;
}

void ladder(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) { operator_for(op)(op, keys, stack); }

// A composite that torch differentiates by what it consists of: taken apart where a gradient is wanted, whole where not.
void autograd(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const bool own = op.hasKernelForDispatchKey(DispatchKey::Autograd);
  const bool implicit = !own && op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  if (own || (implicit && wants_gradient(op, *stack)))
    return op.getComputedKernelForDispatchKey(kNobodysAutograd).callBoxed(op, keys, stack);
  // torch's words for an operator without a formula are those that it has for every device.
  if (!implicit && !op.hasKernelForDispatchKey(DispatchKey::AutogradCPU) &&
      op.hasComputedKernelForDispatchKey(DispatchKey::AutogradCPU))
    return op.getComputedKernelForDispatchKey(DispatchKey::AutogradCPU).callBoxed(op, keys, stack);
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

}  // namespace

void register_named() {
  static std::map<std::string, std::pair<torch::Library*, torch::Library*>> libraries;  // as long as the process
  for (const std::string& name : vendor_named()) {
    const auto colons = name.find("::");
    const std::string space = name.substr(0, colons), bare = name.substr(colons + 2);
    const auto dot = name.find('.');
    const auto known = c10::Dispatcher::singleton().findSchema(
        {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    // Causeway's own: csrc/aten asks for the vendor's kernel. A library that knows this device keeps its kernel.
    if (known && known->hasKernelForDispatchKey(DispatchKey::PrivateUse1)) continue;
    auto& [kernels, formulas] = libraries[space];
    if (!kernels) {
      kernels = new torch::Library(torch::Library::IMPL, space, DispatchKey::PrivateUse1, __FILE__, __LINE__);
      formulas = new torch::Library(torch::Library::IMPL, space, DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
    }
    kernels->impl(bare.c_str(), torch::CppFunction::makeFromBoxedFunction<&ladder>());
    if (!known || !known->hasKernelForDispatchKey(DispatchKey::AutogradPrivateUse1))
      formulas->impl(bare.c_str(), torch::CppFunction::makeFromBoxedFunction<&autograd>());
  }
}

bool call_composite(const Operator& op, c10::DispatchKeySet keys, Stack& stack) {
  const OperatorHandle& handle = op.handle;
  if (!handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) &&
      !handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd))
    return false;
  handle.getComputedKernelForDispatchKey(kNobody).callBoxed(handle, keys, &stack);
  return true;
}

}  // namespace causeway
