// torch's operators over lists of tensors, `_foreach_*`: one call of a kernel where the vendor or the portable rung has
// one that takes the lists, else torch's own way, tensor by tensor, each with its own place on the ladder.
#pragma once

#include <optional>

#include <torch/library.h>

#include "ladder/call.h"

namespace causeway {

bool is_foreach(const c10::FunctionSchema& schema);

// True: served, by a kernel for the whole. The stack is untouched where it is false.
bool call_foreach(Operator& op, Stack& stack, Entry& entry);

// As torch would without a kernel of ours.
void call_each(Operator& op, Stack& stack);

// The kernel to register, which boxes arguments only where a kernel may take the lists; nothing for a rare signature.
std::optional<torch::CppFunction> foreach_kernel(Operator& op);

}  // namespace causeway
