// Device memory, pinned host memory, copies and fills.
#pragma once

#include "device.hpp"

namespace cuda {

cw_status mem_alloc(int32_t index, uint64_t bytes, void** out);
cw_status mem_free(int32_t index, void* ptr);
cw_status mem_copy(void* dst, int32_t dst_index, const void* src, int32_t src_index, uint64_t bytes, cw_stream stream);
cw_status mem_set(int32_t index, void* ptr, int32_t byte, uint64_t bytes, cw_stream stream);
cw_status mem_info(int32_t index, uint64_t* free, uint64_t* total);
cw_status host_alloc(uint64_t bytes, void** out);
cw_status host_free(void* ptr);
cw_status host_register(int32_t index, void* ptr, uint64_t bytes);
cw_status host_unregister(int32_t index, void* ptr);

// Memory behind addresses, by pages of one cuMemCreate each: cuMemUnmap takes whole ones only.
cw_status mem_reserve(int32_t index, uint64_t bytes, uint64_t* page, void** out);
cw_status mem_map(int32_t index, void* ptr, uint64_t bytes);
cw_status mem_unmap(int32_t index, void* ptr, uint64_t bytes);
cw_status mem_release(int32_t index, void* ptr, uint64_t bytes);

inline Address address(const void* ptr) { return reinterpret_cast<Address>(ptr); }

}  // namespace cuda
