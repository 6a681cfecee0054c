// The rungs that the vendor serves, and the decomposed one, which stands on them. See native.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "call.h"

namespace causeway {

struct Routes;

// What the vendor offers that can serve an operator.
struct NativeForms {
  bool any = false;         // worth a look: a kernel, or operators that a decomposition may stand on
  cw_op own{};              // under the operator's own name
  cw_op out{};              // under the name of its out= form, for functional and in-place operators
  std::string own_name, out_name;  // as the vendor knows them
  int left_out = -1;        // the argument that `own` does not take
  std::unique_ptr<Routes> routes;
};

// Decide every route anew: what serves a call depends on the policy too.
void forget_routes();

// Ask the vendor once. Never returns NULL.
NativeForms* resolve_native(Operator& op);

// Every operator that the vendor's op_find answers for.
std::vector<std::pair<std::string, cw_op>> offered();

// Python's planner of decompositions, `f(name, args, kwargs) -> callable | None`; NULL for none.
void set_decomposer(PyObject* f);

}  // namespace causeway
