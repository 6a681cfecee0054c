// Device memory: files without a name (memfd), so that another process can map the same pages.
#pragma once

#include "causeway/abi.h"

namespace sim {

struct Device;

// Map `fd` (-1: private pages) into a hole of the device. Takes the descriptor over, also when it fails.
cw_status map_memory(Device& device, uint64_t bytes, int fd, bool imported, void** out);
cw_status unmap_memory(Device& device, void* ptr, bool imported);

// Entries of the table.
cw_status mem_alloc(int32_t device, uint64_t bytes, void** out);
cw_status mem_free(int32_t device, void* ptr);
cw_status mem_copy(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes,
                   cw_stream stream);
cw_status mem_set(int32_t device, void* ptr, int32_t byte, uint64_t bytes, cw_stream stream);
cw_status mem_info(int32_t device, uint64_t* free, uint64_t* total);
cw_status host_alloc(uint64_t bytes, void** out);
cw_status host_free(void* ptr);
cw_status host_alloc_for(int32_t device, uint64_t bytes, void** out);
cw_status host_free_for(int32_t device, void* ptr);
cw_status mem_alloc_on(int32_t device, cw_stream stream, uint64_t bytes, void** out);
cw_status mem_free_on(int32_t device, cw_stream stream, void* ptr);
cw_status mem_reserve(int32_t device, uint64_t bytes, uint64_t* page, void** out);
cw_status mem_map(int32_t device, void* ptr, uint64_t bytes);
cw_status mem_unmap(int32_t device, void* ptr, uint64_t bytes);
cw_status mem_release(int32_t device, void* ptr, uint64_t bytes);
cw_status host_register(int32_t device, void* ptr, uint64_t bytes);
cw_status host_unregister(int32_t device, void* ptr);

}  // namespace sim
