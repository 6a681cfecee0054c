// Operators of other namespaces than torch's own, which a vendor names: extension "operators.v1".
#pragma once

#include "ladder/call.h"

namespace causeway {

// Puts the ladder in front of what torch would do with the operators that the vendor named: also of a library that is
// imported later, as torch keeps a kernel for a name whose schema is still to come. Once, after the vendor is loaded.
void register_named();

// What torch would do with a call of an operator whose kernel on this device is ours: its composite, which leaves the
// results on the stack. False where it has none.
bool call_composite(const Operator& op, c10::DispatchKeySet keys, Stack& stack);

}  // namespace causeway
