// Convolutions under torch.jit.trace.
#pragma once

#include "ladder/call.h"

namespace causeway {

// torch's tracer does not record `convolution`: it counts on the composite, which calls `_convolution`, and records that.
// As the composite does: the call on the stack, by the operator that is recorded.
void record_convolution(Stack& stack);

}  // namespace causeway
