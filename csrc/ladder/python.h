// What of the ladder is written in Python: the planner of decompositions, operators that torch has for CUDA alone, and
// what describes the results of foreign operators. Each takes the GIL.
#pragma once

#include <Python.h>

#include "ladder/routes.h"

namespace causeway {

// The planner, `f(name, args, kwargs, in_capture) -> callable | None`; NULL for none.
void set_decomposer(PyObject* f);
bool has_decomposer();
// Its plan for the last arguments on the stack, a program of served operators; NULL: there is none.
std::shared_ptr<PyObject> plan_in_python(const Operator& op, const Stack& stack, bool in_capture);
// A program's results for the last arguments on the stack.
std::vector<c10::IValue> run_in_python(PyObject* program, const Operator& op, const Stack& stack);

// The describer gives what describes the results of operator `name` by its kernel for fake tensors, or None.
void set_describer(PyObject* f);
bool describe_by_python(const Operator& op, const Stack& stack, std::vector<OutMeta>* outs);

// Python's own functions for operators that torch has kernels for on CUDA alone, `f(name) -> callable | None`: what the
// ladder ends with where the CPU has none. `compose` calls one with the last arguments on the stack, which its results
// replace; false: there is none. Whatever it calls goes through the ladder; on meta tensors it says the results' shapes.
void set_composer(PyObject* f);
bool compose(const Operator& op, Stack& stack);

}  // namespace causeway
