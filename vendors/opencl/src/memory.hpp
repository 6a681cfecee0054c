// Device memory behind pointers, in each of the three models; copies and fills.
#pragma once

#include "device.hpp"

namespace opencl {

cw_status mem_alloc(int32_t index, uint64_t bytes, void** out);
cw_status mem_free(int32_t index, void* ptr);
cw_status mem_copy(void* dst, int32_t dst_index, const void* src, int32_t src_index, uint64_t bytes, cw_stream stream);
cw_status mem_set(int32_t index, void* ptr, int32_t byte, uint64_t bytes, cw_stream stream);
cw_status mem_info(int32_t index, uint64_t* free, uint64_t* total);

// The buffer and the offset in it behind a device's address, in the model `buffer`.
struct Place {
  cl_mem buffer = nullptr;
  uint64_t offset = 0;
};
cw_status find_place(const Device& device, const void* ptr, uint64_t bytes, Place* out);

}  // namespace opencl
