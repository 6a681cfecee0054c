// The shortest way for the commonest operators. See unboxed.cpp.
#pragma once

#include <torch/library.h>

#include "ladder/call.h"

namespace causeway {

// A kernel for `op` that takes its arguments as they come from C++, or nothing where its signature is not a common one.
std::optional<torch::CppFunction> unboxed_kernel(Operator& op);

}  // namespace causeway
