// code.v1: programs built from source or taken from the cache on disk, and their functions launched.
#pragma once

#include <string>

#include "device.hpp"

namespace opencl {

extern const cw_code_v1 code_table;

std::string device_words(cl_device_id device, cl_device_info what);

}  // namespace opencl
