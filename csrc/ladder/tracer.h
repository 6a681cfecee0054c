// Convolutions under torch.jit.trace.
#pragma once

#include <ATen/core/stack.h>

namespace causeway {

// torch's tracer does not record `convolution`: it counts on the composite, which calls `_convolution`, and records that.
// As the composite does: the call on the stack, by the operator that is recorded.
void record_convolution(torch::jit::Stack& stack);

}  // namespace causeway
