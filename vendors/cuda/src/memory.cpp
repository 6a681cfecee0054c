#include "memory.hpp"

#include <cstring>

#include "error.hpp"
#include "stream.hpp"

namespace cuda {

cw_status mem_alloc(int32_t index, uint64_t bytes, void** out) {
  Device* device = nullptr;
  TRY(find_device("mem_alloc", index, &device));
  *out = nullptr;
  if (bytes == 0) return CW_OK;
  Address found = 0;
  TRY(check(cu.alloc(&found, bytes), symbols.alloc));
  *out = reinterpret_cast<void*>(found);
  return CW_OK;
}

cw_status mem_free(int32_t index, void* ptr) {
  Device* device = nullptr;
  TRY(find_device("mem_free", index, &device));
  return ptr ? check_freed(cu.free(address(ptr)), symbols.free) : CW_OK;
}

cw_status mem_copy(void* dst, int32_t dst_index, const void* src, int32_t src_index, uint64_t bytes, cw_stream handle) {
  Device *to = nullptr, *from = nullptr;
  if (src_index != CW_HOST) TRY(find_device("mem_copy", src_index, &from));
  if (dst_index != CW_HOST) TRY(find_device("mem_copy", dst_index, &to));  // last: the stream is this one's
  if (bytes == 0 || (dst == src && to == from)) return CW_OK;
  if (!to && !from) return memmove(dst, src, bytes), CW_OK;
  Stream stream = nullptr;
  TRY(find_stream("mem_copy", to ? *to : *from, handle, &stream));
  if (!from) return check(cu.copy_in(address(dst), src, bytes, stream), symbols.copy_in);
  if (!to) return check(cu.copy_out(dst, address(src), bytes, stream), symbols.copy_out);
  if (to == from) return check(cu.copy_within(address(dst), address(src), bytes, stream), symbols.copy_within);
  if (!cu.copy_across) return fail(CW_UNSUPPORTED, "the driver copies nothing between devices");
  return check(cu.copy_across(address(dst), to->context, address(src), from->context, bytes, stream),
               symbols.copy_across);
}

cw_status mem_set(int32_t index, void* ptr, int32_t byte, uint64_t bytes, cw_stream handle) {
  Device* device = nullptr;
  TRY(find_device("mem_set", index, &device));
  if (bytes == 0) return CW_OK;
  Stream stream = nullptr;
  TRY(find_stream("mem_set", *device, handle, &stream));
  return check(cu.set8(address(ptr), static_cast<unsigned char>(byte), bytes, stream), symbols.set8);
}

cw_status mem_info(int32_t index, uint64_t* free, uint64_t* total) {
  Device* device = nullptr;
  TRY(find_device("mem_info", index, &device));
  size_t left = 0, all = 0;
  TRY(check(cu.mem_info(&left, &all), symbols.mem_info));
  return *free = left, *total = all, CW_OK;
}

cw_status host_alloc(uint64_t bytes, void** out) {
  Device* device = nullptr;
  TRY(find_any_device("host_alloc", &device));  // a context must be current; portable: it serves all
  *out = nullptr;
  return bytes ? check(cu.host_alloc(out, bytes, kHostPortable), symbols.host_alloc) : CW_OK;
}

cw_status host_free(void* ptr) {
  Device* device = nullptr;
  TRY(find_any_device("host_free", &device));
  return ptr ? check_freed(cu.host_free(ptr), symbols.host_free) : CW_OK;
}

cw_status host_register(int32_t index, void* ptr, uint64_t bytes) {
  Device* device = nullptr;
  TRY(find_device("host_register", index, &device));
  return check(cu.host_register(ptr, bytes, kHostPortable), symbols.host_register);
}

cw_status host_unregister(int32_t index, void* ptr) {
  Device* device = nullptr;
  TRY(find_device("host_unregister", index, &device));
  return check_freed(cu.host_unregister(ptr), symbols.host_unregister);
}

namespace {

constexpr uint64_t kLargestPage = UINT64_C(2) << 20;

// Its page; CW_UNSUPPORTED where the driver or the GPU has no virtual memory.
cw_status virtual_memory(const char* entry, int32_t index, Device** device, MemoryProperties* properties,
                         uint64_t* page) {
  TRY(find_device(entry, index, device));
  if (!cu.reserve || !cu.address_free || !cu.memory_create || !cu.memory_release || !cu.map || !cu.unmap ||
      !cu.set_access || !cu.granularity || !(*device)->attribute(kVirtualMemory))
    return fail(CW_UNSUPPORTED, "%s: device %d has no virtual memory", entry, index);
  properties->location.id = (*device)->id;
  size_t found = 0;
  TRY(check(cu.granularity(&found, properties, 0), symbols.granularity));
  if (!found || kLargestPage % found) return fail(CW_UNSUPPORTED, "%s: pages of %zu bytes", entry, found);
  return *page = found, CW_OK;
}

cw_status map_page(Device& device, const MemoryProperties& properties, Address at, uint64_t page) {
  MemoryHandle memory = {};
  TRY(check(cu.memory_create(&memory, page, &properties, 0), symbols.memory_create));
  const cw_status mapped = check(cu.map(at, page, 0, memory, 0), symbols.map);
  cu.memory_release(memory);  // lives as long as it is mapped
  if (mapped) return mapped;
  const MemoryAccess access = {{1, device.id}};
  const cw_status seen = check(cu.set_access(at, page, &access, 1), symbols.set_access);
  if (seen) cu.unmap(at, page);
  return seen;
}

}  // namespace

cw_status mem_reserve(int32_t index, uint64_t bytes, uint64_t* page, void** out) {
  Device* device = nullptr;
  MemoryProperties properties;
  TRY(virtual_memory("mem_reserve", index, &device, &properties, page));
  if (!bytes || bytes % kLargestPage)
    return fail(CW_INVALID, "mem_reserve: %llu bytes are no whole pages", static_cast<unsigned long long>(bytes));
  Address found = 0;
  TRY(check(cu.reserve(&found, bytes, *page, 0, 0), symbols.reserve));
  return *out = reinterpret_cast<void*>(found), CW_OK;
}

cw_status mem_map(int32_t index, void* ptr, uint64_t bytes) {
  Device* device = nullptr;
  MemoryProperties properties;
  uint64_t page = 0;
  TRY(virtual_memory("mem_map", index, &device, &properties, &page));
  for (uint64_t at = 0; at < bytes; at += page) {
    const cw_status status = map_page(*device, properties, address(ptr) + at, page);
    if (status == CW_OK) continue;
    for (uint64_t mapped = 0; mapped < at; mapped += page) cu.unmap(address(ptr) + mapped, page);
    return status;
  }
  return CW_OK;
}

cw_status mem_unmap(int32_t index, void* ptr, uint64_t bytes) {
  Device* device = nullptr;
  TRY(find_device("mem_unmap", index, &device));
  return cu.unmap ? check_freed(cu.unmap(address(ptr), bytes), symbols.unmap)
                  : fail(CW_INVALID, "mem_unmap: nothing is mapped");
}

cw_status mem_release(int32_t index, void* ptr, uint64_t bytes) {
  Device* device = nullptr;
  TRY(find_device("mem_release", index, &device));
  if (!cu.address_free) return fail(CW_INVALID, "mem_release: nothing is reserved");
  return check_freed(cu.address_free(address(ptr), bytes), symbols.address_free);
}

}  // namespace cuda
