// The rungs that the vendor serves, and the decomposed one, which stands on them. See device_call.cpp.
#pragma once

#include "ladder/call.h"
#include "ladder/routes.h"

namespace causeway {

// Decide every route again: what serves a call depends on the policy too.
void forget_routes();

}  // namespace causeway
