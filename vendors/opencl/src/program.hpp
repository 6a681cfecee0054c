// code.v1: programs built from source or taken from the cache on disk, and their functions launched.
#pragma once

#include <string>
#include <vector>

#include "device.hpp"

namespace opencl {

extern const cw_code_v1 code_table;

// What was built before for this `key`, in the folder CAUSEWAY_OPENCL_CACHE; empty: nothing, or a damaged file.
std::vector<unsigned char> find_binary(const std::string& key);
// Keep it; a folder that cannot be written is logged once and costs building anew.
void keep_binary(const std::string& key, const std::vector<unsigned char>& binary);

std::string device_words(cl_device_id device, cl_device_info what);

}  // namespace opencl
