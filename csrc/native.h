// The rungs that the vendor serves, and the decomposed one, which stands on them. See native.cpp.
#pragma once

#include "call.h"

namespace causeway {

// Decide every route anew: what serves a call depends on the policy too.
void forget_routes();

// Run the operator on meta tensors; `meta` gets its arguments (outputs resized) and its results. False where torch cannot.
// `form`: another form of the operator, with the first of its arguments.
bool run_meta(const Operator& op, const Stack& stack, Stack& meta, const c10::OperatorHandle* form = nullptr);

// Python's planner of decompositions, `f(name, args, kwargs) -> callable | None`; NULL for none.
void set_decomposer(PyObject* f);
bool has_decomposer();

}  // namespace causeway
