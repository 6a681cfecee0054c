// The strides of results where torch's meta kernels and its CPU kernels disagree: the device gives the CPU's, whichever
// rung serves the call.
#pragma once

#include <optional>

#include <c10/util/DimVector.h>

#include "ladder/call.h"
#include "ladder/routes.h"

namespace causeway {

// Strides that the CPU gives result `r` of a call, of this size and dtype, where it allocates it; none where torch's meta
// kernel is right. The arguments are the last on the stack.
std::optional<c10::DimVector> strides_of_cpu(const Operator& op, const Stack& stack, size_t r, const OutMeta& out);

}  // namespace causeway
