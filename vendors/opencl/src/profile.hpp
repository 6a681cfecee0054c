// profile.v1: what each queue did, at the times that OpenCL's own events tell.
#pragma once

#include "causeway/abi.h"

namespace opencl {
extern const cw_profile_v1 profile_table;
}  // namespace opencl
