// profile.v1: what each queue did, at the times that OpenCL's own events tell.
#pragma once

#include "causeway/abi.h"
#include "device.hpp"

namespace opencl {
extern const cw_profile_v1 profile_table;

// Whether the driver's events have times: those of Mesa 22.3 are the same for all. Asks the device once.
bool measures(Device& device);
}  // namespace opencl
