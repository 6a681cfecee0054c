#include "device.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "error.hpp"
#include "library.hpp"

namespace diopi {

namespace {

constexpr size_t kAlignment = 64;  // of the host's memory

// The functions of the device, or none where the host's memory is its own.
cw_status find(int32_t device, const DeviceFunctions** out) {
  TRY(open_device(out));
  return device == 0 ? CW_OK : fail(CW_INVALID, "there is no device %d: DIOPI's functions know one", device);
}

uint64_t host_memory() { return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

}  // namespace

cw_status find_stream(diopiStreamHandle_t* out) {
  const DeviceFunctions* device = nullptr;
  TRY(open_device(&device));
  if (!device) return *out = nullptr, CW_OK;
  static std::mutex mutex;
  static diopiStreamHandle_t stream = nullptr;
  static bool made = false;
  std::lock_guard<std::mutex> lock(mutex);
  if (!made) TRY(check(device->make_stream(&stream), "the device", "device_make_stream"));
  made = true;
  return *out = stream, CW_OK;
}

cw_status device_count(int32_t* out) {
  const DeviceFunctions* device = nullptr;
  TRY(open_device(&device));
  return *out = 1, CW_OK;  // DIOPI's functions have no word for another
}

cw_status device_info(int32_t index, cw_device_info* out) {
  const DeviceFunctions* device = nullptr;
  TRY(find(index, &device));
  cw_device_info info = {};
  info.struct_size = out->struct_size;
  info.flags = device ? 0 : CW_HOST_ADDRESSABLE;
  const auto vendor = reinterpret_cast<const char* (*)()>(find_function("diopiGetVendorName"));
  const char* name = vendor ? vendor() : nullptr;
  snprintf(info.name, sizeof(info.name), "%s", name && *name ? name : "DIOPI");
  const std::string memory = setting("memory");
  info.memory = memory.empty() ? 0 : strtoull(memory.c_str(), nullptr, 10);
  if (!info.memory) info.memory = host_memory();  // no function of the device's tells
  info.dtypes = kDtypes;
  info.alignment = device ? alignof(max_align_t) : kAlignment;  // what no function tells is not promised
  memcpy(out, &info, out->struct_size < sizeof(info) ? out->struct_size : sizeof(info));
  return CW_OK;
}

cw_status sync(int32_t index) {
  const DeviceFunctions* device = nullptr;
  TRY(find(index, &device));
  if (!device) return CW_OK;
  diopiStreamHandle_t stream = nullptr;
  TRY(find_stream(&stream));
  return check(device->sync_stream(stream), "the device", "device_synchronize_stream");
}

cw_status mem_alloc(int32_t index, uint64_t bytes, void** out) {
  const DeviceFunctions* device = nullptr;
  TRY(find(index, &device));
  *out = nullptr;
  if (!bytes) return CW_OK;
  *out = device ? device->malloc(bytes) : aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (*out) return CW_OK;
  return fail(CW_OUT_OF_MEMORY, "%s gave no memory for %llu bytes", device ? "device_malloc" : "the host",
              static_cast<unsigned long long>(bytes));
}

cw_status mem_free(int32_t index, void* ptr) {
  const DeviceFunctions* device = nullptr;
  TRY(find(index, &device));
  if (ptr) device ? device->free(ptr) : free(ptr);
  return CW_OK;
}

cw_status mem_copy(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes, cw_stream) {
  const DeviceFunctions* device = nullptr;
  TRY(find(dst_device == CW_HOST ? src_device : dst_device, &device));
  if (src_device != CW_HOST) TRY(find(src_device, &device));
  if (!bytes) return CW_OK;
  if (!device) return memmove(dst, src, bytes), CW_OK;
  diopiStreamHandle_t stream = nullptr;
  TRY(find_stream(&stream));
  const bool to_host = dst_device == CW_HOST, from_host = src_device == CW_HOST;
  const auto copy = to_host ? device->d2h : from_host ? device->h2d : device->d2d;
  const char* name = to_host     ? "device_memcpy_d2h_async"
                     : from_host ? "device_memcpy_h2d_async"
                                 : "device_memcpy_d2d_async";
  return check(copy(stream, dst, src, bytes), "a copy", name);
}

cw_status close() {
  const DeviceFunctions* device = nullptr;
  if (open_device(&device) || !device || !device->finalize) return CW_OK;
  return check(device->finalize(), "the end of the process", "finalizeLibrary");
}

}  // namespace diopi
