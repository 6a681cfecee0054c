#include "memory.hpp"

#include <cstring>
#include <map>
#include <shared_mutex>

#include "error.hpp"
#include "profile.hpp"
#include "stream.hpp"

namespace ascend {

namespace {

// What was given and not freed: an address and its bytes.
struct Given {
  std::shared_mutex mutex;
  std::map<uintptr_t, uint64_t> spans;

  void add(const void* ptr, uint64_t bytes) {
    std::unique_lock<std::shared_mutex> lock(mutex);
    spans[reinterpret_cast<uintptr_t>(ptr)] = bytes;
  }
  void remove(const void* ptr) {
    std::unique_lock<std::shared_mutex> lock(mutex);
    spans.erase(reinterpret_cast<uintptr_t>(ptr));
  }
  // The bytes of the span that starts here; 0: none does.
  uint64_t whole(const void* ptr) {
    std::shared_lock<std::shared_mutex> lock(mutex);
    const auto found = spans.find(reinterpret_cast<uintptr_t>(ptr));
    return found == spans.end() ? 0 : found->second;
  }
  // From this address to the end of the span that it is in; 0: in none.
  uint64_t left(const void* ptr) {
    const auto address = reinterpret_cast<uintptr_t>(ptr);
    std::shared_lock<std::shared_mutex> lock(mutex);
    const auto after = spans.upper_bound(address);
    if (after == spans.begin()) return 0;
    const auto& [start, bytes] = *std::prev(after);
    return address < start + bytes ? start + bytes - address : 0;
  }
};
auto& g_host = *new Given;  // only this may be copied in the background
auto& g_device = *new Given;

}  // namespace

cw_status mem_alloc(int32_t index, uint64_t bytes, void** out) {
  Device* device = nullptr;
  TRY(find_device("mem_alloc", index, &device));
  *out = nullptr;
  if (!bytes) return CW_OK;
  TRY(check(acl.alloc(out, bytes, kHugeFirst), "aclrtMalloc"));
  return g_device.add(*out, bytes), CW_OK;
}

cw_status mem_free(int32_t index, void* ptr) {
  Device* device = nullptr;
  TRY(find_device("mem_free", index, &device));
  if (!ptr) return CW_OK;
  g_device.remove(ptr);
  return check(acl.free(ptr), "aclrtFree");
}

cw_status mem_copy(void* dst, int32_t dst_index, const void* src, int32_t src_index, uint64_t bytes, cw_stream handle) {
  Device *to = nullptr, *from = nullptr;
  if (src_index != CW_HOST) TRY(find_device("mem_copy", src_index, &from));
  if (dst_index != CW_HOST) TRY(find_device("mem_copy", dst_index, &to));  // last: the stream is this one's
  if (bytes == 0 || (dst == src && to == from)) return CW_OK;
  if (!to && !from) return memmove(dst, src, bytes), CW_OK;
  if (to && from && to != from) {
    bool can = false;
    TRY(enable_peers(to->index, from->index, &can));
    if (!can)
      return fail(CW_INVALID, "mem_copy: devices %d and %d have no access to each other", to->index, from->index);
  }
  Stream stream = nullptr;
  TRY(find_stream("mem_copy", to ? *to : *from, handle, &stream));
  // What the runtime does with other memory differs between its versions: so in the stream's order, and waited for.
  const bool by_host = !(from && to) && g_host.left(to ? src : dst) < bytes;
  if (by_host) TRY(check(acl.stream_sync(stream), "aclrtSynchronizeStream"));
  const Timed timed(to ? *to : *from, handle, by_host);
  if (from && to) return check(acl.copy_async(dst, bytes, src, bytes, kDeviceToDevice, stream), "aclrtMemcpyAsync");
  const int kind = to ? kHostToDevice : kDeviceToHost;
  if (by_host) return check(acl.copy(dst, bytes, src, bytes, kind), "aclrtMemcpy");
  return check(acl.copy_async(dst, bytes, src, bytes, kind, stream), "aclrtMemcpyAsync");
}

cw_status mem_set(int32_t index, void* ptr, int32_t byte, uint64_t bytes, cw_stream handle) {
  Device* device = nullptr;
  TRY(find_device("mem_set", index, &device));
  if (bytes == 0) return CW_OK;
  Stream stream = nullptr;
  TRY(find_stream("mem_set", *device, handle, &stream));
  const Timed timed(*device, handle);
  return check(acl.set_async(ptr, bytes, byte & 0xff, bytes, stream), "aclrtMemsetAsync");
}

cw_status mem_info(int32_t index, uint64_t* free, uint64_t* total) {
  Device* device = nullptr;
  TRY(find_device("mem_info", index, &device));
  size_t left = 0, all = 0;
  TRY(check(acl.mem_info(kMemoryHbm, &left, &all), "aclrtGetMemInfo"));
  if (!all) TRY(check(acl.mem_info(kMemoryDdr, &left, &all), "aclrtGetMemInfo"));
  return *free = left, *total = all, CW_OK;
}

cw_status host_alloc(uint64_t bytes, void** out) {
  Device* device = nullptr;
  TRY(find_any_device("host_alloc", &device));  // a context must be current
  *out = nullptr;
  if (!bytes) return CW_OK;
  TRY(check(acl.host_alloc(out, bytes), "aclrtMallocHost"));
  g_host.add(*out, bytes);
  return CW_OK;
}

cw_status host_free(void* ptr) {
  Device* device = nullptr;
  TRY(find_any_device("host_free", &device));
  if (!ptr) return CW_OK;
  g_host.remove(ptr);
  return check(acl.host_free(ptr), "aclrtFreeHost");
}

uint64_t bytes_from(const void* ptr) { return g_device.left(ptr); }

uint64_t bytes_of(const void* ptr) { return g_device.whole(ptr); }

}  // namespace ascend
