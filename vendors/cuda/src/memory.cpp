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
  TRY(check(cu.alloc(&found, bytes), "cuMemAlloc"));
  *out = reinterpret_cast<void*>(found);
  return CW_OK;
}

cw_status mem_free(int32_t index, void* ptr) {
  Device* device = nullptr;
  TRY(find_device("mem_free", index, &device));
  return ptr ? check_freed(cu.free(address(ptr)), "cuMemFree") : CW_OK;
}

cw_status mem_copy(void* dst, int32_t dst_index, const void* src, int32_t src_index, uint64_t bytes, cw_stream handle) {
  Device *to = nullptr, *from = nullptr;
  if (src_index != CW_HOST) TRY(find_device("mem_copy", src_index, &from));
  if (dst_index != CW_HOST) TRY(find_device("mem_copy", dst_index, &to));  // last: the stream is this one's
  if (bytes == 0 || (dst == src && to == from)) return CW_OK;
  if (!to && !from) return memmove(dst, src, bytes), CW_OK;
  Stream stream = nullptr;
  TRY(find_stream("mem_copy", to ? *to : *from, handle, &stream));
  if (!from) return check(cu.copy_in(address(dst), src, bytes, stream), "cuMemcpyHtoDAsync");
  if (!to) return check(cu.copy_out(dst, address(src), bytes, stream), "cuMemcpyDtoHAsync");
  if (to == from) return check(cu.copy_within(address(dst), address(src), bytes, stream), "cuMemcpyDtoDAsync");
  return check(cu.copy_across(address(dst), to->context, address(src), from->context, bytes, stream),
               "cuMemcpyPeerAsync");
}

cw_status mem_set(int32_t index, void* ptr, int32_t byte, uint64_t bytes, cw_stream handle) {
  Device* device = nullptr;
  TRY(find_device("mem_set", index, &device));
  if (bytes == 0) return CW_OK;
  Stream stream = nullptr;
  TRY(find_stream("mem_set", *device, handle, &stream));
  return check(cu.set8(address(ptr), static_cast<unsigned char>(byte), bytes, stream), "cuMemsetD8Async");
}

cw_status mem_info(int32_t index, uint64_t* free, uint64_t* total) {
  Device* device = nullptr;
  TRY(find_device("mem_info", index, &device));
  size_t left = 0, all = 0;
  TRY(check(cu.mem_info(&left, &all), "cuMemGetInfo"));
  return *free = left, *total = all, CW_OK;
}

cw_status host_alloc(uint64_t bytes, void** out) {
  Device* device = nullptr;
  TRY(find_any_device("host_alloc", &device));  // a context must be current; portable: it serves all
  *out = nullptr;
  return bytes ? check(cu.host_alloc(out, bytes, kHostPortable), "cuMemHostAlloc") : CW_OK;
}

cw_status host_free(void* ptr) {
  Device* device = nullptr;
  TRY(find_any_device("host_free", &device));
  return ptr ? check_freed(cu.host_free(ptr), "cuMemFreeHost") : CW_OK;
}

}  // namespace cuda
