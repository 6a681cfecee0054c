// Fourier transforms of float16: torch checks dtypes above its kernels, and lets float16 pass on CUDA alone.
#include <ATen/core/Tensor.h>

#include <torch/library.h>

#include "ladder/call.h"

namespace causeway {

namespace {

// Computed in float32 and rounded once, at the end; any length, where cuFFT takes powers of two. Differentiable: it is
// made of operators that are.
void transform(const c10::OperatorHandle& op, Stack* stack) {
  c10::IValue& first = (*stack)[stack->size() - op.schema().arguments().size()];
  const c10::ScalarType dtype = first.toTensor().scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kComplexHalf;
  if (half) first = first.toTensor().to(dtype == at::kHalf ? at::kFloat : at::kComplexFloat);
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  if (!half || !op.schema().overload_name().empty()) return;  // an out= keeps its dtype
  const at::Tensor result = stack->back().toTensor();
  stack->back() = result.to(result.is_complex() ? at::kComplexHalf : at::kHalf);
}

void register_transforms(torch::Library& m) {
  for (const char* dims : {"", "2", "n"})
    for (const char* kind : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"})
      for (const char* form : {"", ".out"})
        m.impl((std::string("fft_") + kind + dims + form).c_str(),
               torch::CppFunction::makeFromBoxedFunction<&transform>());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_transforms(m); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_transforms(m); }

}  // namespace causeway
