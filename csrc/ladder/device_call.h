// The rungs that the vendor serves, and the decomposed one, which stands on them. See device_call.cpp.
#pragma once

#include "ladder/call.h"
#include "ladder/routes.h"

namespace causeway {

// Decide every route again: what serves a call depends on the policy too.
void forget_routes();

// Python's planner of decompositions, `f(name, args, kwargs, in_capture) -> callable | None`; NULL for none.
void set_decomposer(PyObject* f);

// Python's describer gives what describes the results of operator `name` by its kernel for fake tensors, or None.
void set_describer(PyObject* f);
bool describe_by_python(const Operator& op, const Stack& stack, std::vector<OutMeta>* outs);

bool has_decomposer();

// Python's own functions for operators that torch has kernels for on CUDA alone, `f(name) -> callable | None`: what the
// ladder ends with where the CPU has none. `compose` calls one with the last arguments on the stack, which its results
// replace; false: there is none. Whatever it calls goes through the ladder; on meta tensors it says the results' shapes.
void set_composer(PyObject* f);
bool compose(const Operator& op, Stack& stack);

}  // namespace causeway
