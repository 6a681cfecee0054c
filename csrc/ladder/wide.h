// Dtypes that torch's CUDA kernels take and its CPU kernels refuse: the host rung computes in a wider one.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace causeway {

struct Operator;

// Whether a call of `op` with `t` may be one that the CPU refuses.
bool may_widen(const Operator& op, const at::Tensor& t);

// Call the CPU's kernel of `op` with the arguments on `stack` and leave what it gives there. Where it refuses, and a
// tensor has such a dtype, it is called again with wider ones, and what it gives is rounded to the dtype that CUDA's
// would have: the same as there, where kernels compute in float32 too.
void call_wide(const Operator& op, torch::jit::Stack& stack, c10::DispatchKeySet keys);

}  // namespace causeway
