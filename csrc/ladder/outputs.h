// What the results of a call are, before a kernel computes them: shapes and dtypes by torch's meta kernels, strides as the
// CPU's kernels give them.
#pragma once

#include <vector>

#include "ladder/routes.h"

namespace causeway {

struct DeviceState;

// Whether a list of indices has a mask: then the shape of what is picked depends on the data.
bool takes_mask(const c10::IValue& indices);

// The size, strides and dtype of a tensor.
OutMeta like(const at::Tensor& t);

// The last arguments on the stack with meta tensors in the place of device tensors.
Stack meta_arguments(const Operator& op, const Stack& stack);

// Run the operator on meta tensors; `meta` gets its arguments (outputs resized) and its results. False where torch cannot.
// The arguments are the last on the stack. `form`: another form of the operator, with the first of its arguments.
bool run_meta(const Operator& op, const Stack& stack, Stack& meta, const c10::OperatorHandle* form = nullptr);

// The results of a call, in order. False where torch does not say, or they are no dense tensors of a dtype that the
// device has.
bool describe_outputs(const Operator& op, const Stack& stack, const DeviceState& device, std::vector<OutMeta>* outs);

// True where the shape depends on the data: then the kernel finds it while it runs (host->resize), and results begin empty,
// as `outs` says.
bool begin_empty(const Operator& op, const Stack& stack, std::vector<OutMeta>* outs);

// Whether the shape of the result depends on the data.
bool finds_shape(const Operator& op);

// A result that a kernel found, laid out as the CPU's. The arguments are the last on the stack.
at::Tensor laid_out_as_found(const Operator& op, const Stack& stack, at::Tensor found);

}  // namespace causeway
