// code.v1: C source built by the machine's compiler and run on the streams' threads. Off unless CAUSEWAY_SIM_CODE=1.
#pragma once

#include "causeway/abi.h"

namespace sim {
const cw_code_v1& code_table();
}  // namespace sim
