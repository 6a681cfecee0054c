// The rungs that the vendor serves: native and derived. See native.cpp.
#pragma once

#include <string>
#include <vector>

#include "call.h"

namespace causeway {

// What the vendor offers that can serve an operator.
struct NativeForms {
  bool any = false;
  cw_op own{};          // under the operator's own name
  cw_op out{};          // under the name of its out= form, for functional and in-place operators
  std::string out_name;
  Operator* out_op = nullptr;
  struct Routes;
  Routes* routes = nullptr;
};

// Ask the vendor once. Never returns NULL.
NativeForms* resolve_native(Operator& op);

// Every operator that the vendor's op_find answers for.
std::vector<std::pair<std::string, cw_op>> offered();

}  // namespace causeway
