// code.v1: programs compiled by NVRTC or taken from the cache on disk, and their functions launched.
#pragma once

#include "device.hpp"

namespace cuda {
extern const cw_code_v1 code_table;
}  // namespace cuda
