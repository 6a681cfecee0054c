// Device memory, and host memory that copies read in the background.
#pragma once

#include "device.hpp"

namespace ascend {

cw_status mem_alloc(int32_t index, uint64_t bytes, void** out);
cw_status mem_free(int32_t index, void* ptr);
cw_status mem_copy(void* dst, int32_t dst_index, const void* src, int32_t src_index, uint64_t bytes, cw_stream handle);
cw_status mem_set(int32_t index, void* ptr, int32_t byte, uint64_t bytes, cw_stream handle);
cw_status mem_info(int32_t index, uint64_t* free, uint64_t* total);
cw_status host_alloc(uint64_t bytes, void** out);
cw_status host_free(void* ptr);

// From an address in device memory to the end of its mem_alloc.
uint64_t bytes_from(const void* ptr);
// Of the mem_alloc that starts there; 0: none does.
uint64_t bytes_of(const void* ptr);

}  // namespace ascend
