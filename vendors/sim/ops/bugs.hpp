// Faulty kernels, one for each mistake that kernels are known to make: `CAUSEWAY_SIM_BUG` plants them, to show
// that tests notice.
#pragma once

#include <string>

#include "ops/call.hpp"

namespace sim {

std::string bug_names();
bool is_bug(const std::string& name);
bool plants_bug(const char* name, const char* op);  // in this operator, and switched on

// The faulty kernel that is planted in place of `op`, or null.
using FaultyKernel = cw_status (*)(const OpDef& op, const cw_arg* args, int32_t n, Device& device, cw_stream stream);
FaultyKernel planted_bug(const OpDef& op);

}  // namespace sim
