#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "error.hpp"
#include "stream.hpp"

namespace opencl {

namespace {

struct Allocation {
  uint64_t bytes;
  int32_t device;
  cl_mem buffer;  // in the model `buffer`
};

std::shared_mutex table_mutex;
std::map<uintptr_t, Allocation>& table() {
  static auto* all = new std::map<uintptr_t, Allocation>;  // tensors may outlive statics
  return *all;
}

uintptr_t number(const void* ptr) { return reinterpret_cast<uintptr_t>(ptr); }

cw_status refuse(Device& device, uint64_t bytes, const char* why) {
  return fail(CW_OUT_OF_MEMORY, "device %d has no %llu bytes: %llu of %llu are in use%s", device.index,
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(device.used.load()),
              static_cast<unsigned long long>(device.total), why);
}

// Addresses that nothing else has and that fault when they are followed: a buffer has none of its own.
void* reserve(uint64_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

cw_status allocate(Device& device, uint64_t bytes, void** out, cl_mem* buffer) {
  cl_int error = CL_SUCCESS;
  if (device.memory != Memory::buffer) {
    cl_svm_mem_flags fine = device.memory == Memory::fine ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0;
    *out = cl.clSVMAlloc(context(), CL_MEM_READ_WRITE | fine, bytes, 0);
    return *out ? CW_OK : refuse(device, bytes, " (clSVMAlloc)");
  }
  *buffer = cl.clCreateBuffer(context(), CL_MEM_READ_WRITE, bytes, nullptr, &error);
  if (error == CL_INVALID_BUFFER_SIZE || error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_RESOURCES) {
    return refuse(device, bytes, " (clCreateBuffer)");
  }
  if (cw_status status = check(error, "clCreateBuffer")) return status;
  *out = reserve(bytes);
  if (*out) return CW_OK;
  cl.clReleaseMemObject(*buffer);
  return refuse(device, bytes, " (no addresses)");
}

void release(void* ptr, const Allocation& allocation) {
  if (!allocation.buffer) return cl.clSVMFree(context(), ptr);
  cl.clReleaseMemObject(allocation.buffer);
  munmap(ptr, allocation.bytes);
}

// One copy that touches the memory of `device` on at least one side, on a queue of it.
cw_status enqueue_copy(Device& device, cl_command_queue queue, void* dst, bool to_device, const void* src,
                       bool from_device, uint64_t bytes, cl_event* event) {
  if (device.memory != Memory::buffer) {
    return check(cl.clEnqueueSVMMemcpy(queue, CL_FALSE, dst, src, bytes, 0, nullptr, event), "clEnqueueSVMMemcpy");
  }
  Place to, from;
  if (to_device) {
    if (cw_status status = find_place(device, dst, bytes, &to)) return status;
  }
  if (from_device) {
    if (cw_status status = find_place(device, src, bytes, &from)) return status;
  }
  if (to_device && from_device) {
    return check(
        cl.clEnqueueCopyBuffer(queue, from.buffer, to.buffer, from.offset, to.offset, bytes, 0, nullptr, event),
        "clEnqueueCopyBuffer");
  }
  if (to_device) {
    return check(cl.clEnqueueWriteBuffer(queue, to.buffer, CL_FALSE, to.offset, bytes, src, 0, nullptr, event),
                 "clEnqueueWriteBuffer");
  }
  return check(cl.clEnqueueReadBuffer(queue, from.buffer, CL_FALSE, from.offset, bytes, dst, 0, nullptr, event),
               "clEnqueueReadBuffer");
}

}  // namespace

cw_status find_place(const Device& device, const void* ptr, uint64_t bytes, Place* out) {
  std::shared_lock<std::shared_mutex> lock(table_mutex);
  auto after = table().upper_bound(number(ptr));
  if (after != table().begin()) {
    auto& [base, allocation] = *std::prev(after);
    uint64_t offset = number(ptr) - base;
    if (allocation.buffer && offset + bytes <= allocation.bytes) {
      return *out = {allocation.buffer, offset}, CW_OK;
    }
  }
  return fail(CW_INVALID, "%llu bytes at %p are not memory of device %d", static_cast<unsigned long long>(bytes), ptr,
              device.index);
}

cw_status mem_alloc(int32_t index, uint64_t bytes, void** out) {
  Device* device = nullptr;
  if (cw_status status = find_device("mem_alloc", index, &device)) return status;
  *out = nullptr;
  if (bytes == 0) return CW_OK;
  // A runtime on a CPU promises more than there is; what is counted here is refused in time.
  uint64_t before = device->used.fetch_add(bytes);
  const char* why = before + bytes > device->total               ? ""
                    : device->largest && bytes > device->largest ? ", and it is more than one allocation may have"
                                                                 : nullptr;
  if (why || before + bytes < before) {
    device->used -= bytes;
    return refuse(*device, bytes, why ? why : "");
  }
  cl_mem buffer = nullptr;
  if (cw_status status = allocate(*device, bytes, out, &buffer)) {
    device->used -= bytes;
    *out = nullptr;
    return status;
  }
  std::unique_lock<std::shared_mutex> lock(table_mutex);
  table()[number(*out)] = {bytes, index, buffer};
  return CW_OK;
}

cw_status mem_free(int32_t index, void* ptr) {
  Device* device = nullptr;
  if (cw_status status = find_device("mem_free", index, &device)) return status;
  if (!ptr) return CW_OK;
  Allocation allocation;
  {
    std::unique_lock<std::shared_mutex> lock(table_mutex);
    auto found = table().find(number(ptr));
    if (found == table().end()) return fail(CW_INVALID, "mem_free: %p was not allocated, or is free already", ptr);
    if (found->second.device != index) {
      return fail(CW_INVALID, "mem_free: %p is memory of device %d, not of %d", ptr, found->second.device, index);
    }
    allocation = found->second;
    table().erase(found);
  }
  release(ptr, allocation);
  device->used -= allocation.bytes;
  return CW_OK;
}

// Bytes of which a copy takes less than a runtime's thread takes to wake.
constexpr uint64_t kSmall = 64 << 10;

cw_status mem_copy(void* dst, int32_t dst_index, const void* src, int32_t src_index, uint64_t bytes, cw_stream handle) {
  Device *to = nullptr, *from = nullptr;
  if (dst_index != CW_HOST) {
    if (cw_status status = find_device("mem_copy", dst_index, &to)) return status;
  }
  if (src_index != CW_HOST) {
    if (cw_status status = find_device("mem_copy", src_index, &from)) return status;
  }
  if (bytes == 0 || (dst == src && to == from)) return CW_OK;
  if (!to && !from) return memmove(dst, src, bytes), CW_OK;
  Device& device = to ? *to : *from;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream("mem_copy", device, handle, &stream)) return status;
  if (device.memory == Memory::fine && bytes <= kSmall && stream->when_idle([&] { memmove(dst, src, bytes); }))
    return CW_OK;
  return stream->enqueue("mem_copy", [&](cl_command_queue queue, cl_event* event) {
    return enqueue_copy(device, queue, dst, to != nullptr, src, from != nullptr, bytes, event);
  });
}

cw_status mem_set(int32_t index, void* ptr, int32_t byte, uint64_t bytes, cw_stream handle) {
  Device* device = nullptr;
  if (cw_status status = find_device("mem_set", index, &device)) return status;
  if (bytes == 0) return CW_OK;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream("mem_set", *device, handle, &stream)) return status;
  // The widest pattern that fits: runtimes fill pattern by pattern.
  uint8_t pattern[128];
  memset(pattern, byte, sizeof(pattern));
  size_t wide = sizeof(pattern);
  while (wide > 1 && (number(ptr) % wide || bytes % wide)) wide /= 2;
  return stream->enqueue("mem_set", [&](cl_command_queue queue, cl_event* event) {
    if (device->memory != Memory::buffer) {
      return check(cl.clEnqueueSVMMemFill(queue, ptr, pattern, wide, bytes, 0, nullptr, event), "clEnqueueSVMMemFill");
    }
    Place place;
    if (cw_status status = find_place(*device, ptr, bytes, &place)) return status;
    return check(cl.clEnqueueFillBuffer(queue, place.buffer, pattern, wide, place.offset, bytes, 0, nullptr, event),
                 "clEnqueueFillBuffer");
  });
}

cw_status mem_info(int32_t index, uint64_t* free, uint64_t* total) {
  Device* device = nullptr;
  if (cw_status status = find_device("mem_info", index, &device)) return status;
  uint64_t used = device->used;
  *total = device->total;
  *free = used < device->total ? device->total - used : 0;
  return CW_OK;
}

}  // namespace opencl
