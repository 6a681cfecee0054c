// The statistics of norms, between one rung and another.
#pragma once

#include "ladder/call.h"

namespace causeway {

// Whether it is the backward of a norm that takes statistics from the forward.
inline bool takes_statistics(const Operator& op) { return op.facts.statistics != kNowhere; }

// Give the statistics of such a call, among the last arguments on the stack, the dtype that torch's CPU kernel wants.
void fit_statistics(const Operator& op, Stack& stack);

}  // namespace causeway
