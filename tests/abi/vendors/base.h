/* The least that a vendor's library has: one device of malloc'ed memory. The libraries beside this file include
 * it and break one thing each, for the tests of the loader. */
#include <stdlib.h>
#include <string.h>

#include "causeway/abi.h"

static cw_status base_device_count(int32_t* out) {
  *out = 1;
  return CW_OK;
}

static cw_status base_device_info(int32_t device, cw_device_info* out) {
  cw_device_info info;
  (void)device;
  memset(&info, 0, sizeof(info));
  info.struct_size = out->struct_size;
  info.flags = CW_HOST_ADDRESSABLE;
  strcpy(info.name, "Test");
  info.memory = 1u << 30;
  info.dtypes = CW_ALL_DTYPES;
  info.alignment = 64;
  memcpy(out, &info, out->struct_size < sizeof(info) ? out->struct_size : sizeof(info));
  return CW_OK;
}

static cw_status base_sync(int32_t device) {
  (void)device;
  return CW_OK;
}

static cw_status base_mem_alloc(int32_t device, uint64_t bytes, void** out) {
  (void)device;
  *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
  return *out || !bytes ? CW_OK : CW_OUT_OF_MEMORY;
}

static cw_status base_mem_free(int32_t device, void* ptr) {
  (void)device;
  free(ptr);
  return CW_OK;
}

static cw_status base_mem_copy(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes,
                               cw_stream stream) {
  (void)dst_device;
  (void)src_device;
  (void)stream;
  memmove(dst, src, bytes);
  return CW_OK;
}

#define BASE_LEVEL_0                                                                                                  \
  .device_count = base_device_count, .device_info = base_device_info, .sync = base_sync, .mem_alloc = base_mem_alloc, \
  .mem_free = base_mem_free, .mem_copy = base_mem_copy
#define BASE_HEAD .struct_size = sizeof(cw_backend), .abi_version = CW_ABI_VERSION, .name = "test", .version = "1"
