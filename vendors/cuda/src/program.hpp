// code.v1: programs compiled by NVRTC or taken from the cache on disk, and their functions launched.
#pragma once

#include "device.hpp"

namespace cuda {

extern const cw_code_v1 code_table;

// Function `name` of a text of this vendor's own, compiled once for a device and these options; it may use `bytes` of
// shared memory that the launch gives. `source` lasts as long as the process.
cw_status kernel_of(int32_t index, const char* source, const std::vector<std::string>& options, const char* name,
                    unsigned bytes, Function* out);

}  // namespace cuda
