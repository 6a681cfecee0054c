// The rungs that the vendor serves, and the decomposed one, which stands on them. See native.cpp.
#pragma once

#include "ladder/call.h"

namespace causeway {

// Decide every route again: what serves a call depends on the policy too.
void forget_routes();

// Python's planner of decompositions, `f(name, args, kwargs) -> callable | None`; NULL for none.
void set_decomposer(PyObject* f);
bool has_decomposer();

}  // namespace causeway
