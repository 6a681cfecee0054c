// Measured on this chip's host, first touch of 256 MiB: memfd 140 ms, private pages 115 ms, private huge pages
// 37 ms; afterwards all alike. The core asks for few and large segments and keeps them, so sharing wins.
#include "memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "device.hpp"
#include "error.hpp"
#include "fault.hpp"
#include "settings.hpp"
#include "stream.hpp"
#include "teams.hpp"

namespace sim {

namespace {

constexpr uint64_t most_retired = UINT64_C(64) << 20;
constexpr int poison = 0xDD;  // as float32 -1.99e18, as int32 -572662307: seen at once in a result

uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

// A descriptor for each allocation, but never more than a quarter of what the process may open: the rest are
// the user's. Beyond that memory is private and cannot be exported.
std::atomic<int64_t> descriptors{0};

int shareable_memory(uint64_t bytes) {
  static const int64_t most = [] {
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) ? INT64_C(256) : int64_t(std::min<rlim_t>(limit.rlim_cur, 1 << 16)) / 4;
  }();
  if (descriptors.load() >= most) return -1;
  int fd = memfd_create("causeway-sim", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, off_t(bytes)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// First fit; large allocations start on a huge page. Offsets, or UINT64_MAX when no hole is long enough.
uint64_t take_hole(Device& device, uint64_t bytes) {
  const uint64_t align = bytes >= (UINT64_C(2) << 20) ? UINT64_C(2) << 20 : granule;
  for (auto hole = device.holes.begin(); hole != device.holes.end(); ++hole) {
    uint64_t start = round_up(hole->first, align), end = hole->first + hole->second;
    if (start + bytes > end) continue;
    uint64_t before = start - hole->first;
    if (before)
      hole->second = before;
    else
      device.holes.erase(hole);
    if (start + bytes < end) device.holes[start + bytes] = end - start - bytes;
    return start;
  }
  return UINT64_MAX;
}

void give_hole(Device& device, uint64_t start, uint64_t bytes) {
  auto after = device.holes.lower_bound(start);
  if (after != device.holes.end() && after->first == start + bytes) {
    bytes += after->second;
    after = device.holes.erase(after);
  }
  if (after != device.holes.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == start) {
      before->second += bytes;
      return;
    }
  }
  device.holes[start] = bytes;
}

void set_slots(Device& device, uint64_t start, uint64_t bytes, uint32_t value) {
  for (uint64_t slot = start / granule; slot < (start + bytes) / granule; ++slot) {
    device.first[slot].store(value, std::memory_order_release);
  }
}

void release_pages(Device& device, const Allocation& a) {
  // Back to the reservation: whoever still touches it faults instead of reading the next allocation.
  // Where that fails, for want of mappings, the pages stay as they are.
  (void)mmap(reinterpret_cast<void*>(a.base + uintptr_t(device.shift)), a.mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  give_hole(device, a.base - device.base, a.mapped);
}

// Discrete devices keep what was freed last, poisoned: work that should have been waited for then computes
// visible nonsense, where an unmapped page would end the process without a word.
void retire(Device& device, const Allocation& a) {
  std::deque<Allocation>& queue = device.retired;
  queue.push_back(a);
  uint64_t kept = 0;
  for (const Allocation& old : queue) kept += old.mapped;
  while (!queue.empty() && kept > most_retired) {
    kept -= queue.front().mapped;
    release_pages(device, queue.front());
    queue.pop_front();
  }
}

}  // namespace

cw_status map_memory(Device& device, uint64_t bytes, int fd, bool imported, void** out) {
  uint64_t mapped = round_up(bytes, granule);  // wraps only for sizes that are refused below
  std::lock_guard<std::mutex> lock(device.memory_mutex);
  const uint64_t left = settings().memory - device.used;
  if (!imported && bytes > left) {
    if (fd >= 0) close(fd);
    return fail(CW_OUT_OF_MEMORY, "device %d has %llu of %llu bytes free, and %llu were asked for", device.index,
                static_cast<unsigned long long>(left), static_cast<unsigned long long>(settings().memory),
                static_cast<unsigned long long>(bytes));
  }
  uint64_t start = take_hole(device, mapped);
  if (start == UINT64_MAX) {
    if (fd >= 0) close(fd);
    return fail(CW_OUT_OF_MEMORY, "device %d: no hole of %llu bytes in its address range", device.index,
                static_cast<unsigned long long>(mapped));
  }
  uintptr_t address = device.base + start;
  // Not beyond the end of the file: a touch there would be a bus error.
  uint64_t length = fd >= 0 ? round_up(bytes, uint64_t(sysconf(_SC_PAGESIZE))) : mapped;
  void* pages = mmap(reinterpret_cast<void*>(address + uintptr_t(device.shift)), length, PROT_READ | PROT_WRITE,
                     MAP_FIXED | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE), fd, 0);
  if (pages == MAP_FAILED) {
    int error = errno;
    give_hole(device, start, mapped);
    if (fd >= 0) close(fd);
    return fail(CW_OUT_OF_MEMORY, "device %d: cannot map %llu bytes: %s", device.index,
                static_cast<unsigned long long>(bytes), strerror(error));
  }
  madvise(pages, length, MADV_HUGEPAGE);  // a wish: it helps private pages, and shared ones where allowed
  if (fd >= 0) ++descriptors;
  device.allocations[start / granule] = Allocation{address, bytes, mapped, fd, imported, false};
  set_slots(device, start, mapped, uint32_t(start / granule) + 1);
  if (!imported) device.used += bytes;
  if (settings().teams && !imported) teams::allocated(device, address, bytes);
  *out = reinterpret_cast<void*>(address);
  return CW_OK;
}

cw_status unmap_memory(Device& device, void* ptr, bool imported) {
  std::lock_guard<std::mutex> lock(device.memory_mutex);
  uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
  const Allocation* found = device.opened ? device.find(address, 0) : nullptr;
  if (!found || found->base != address || found->imported != imported || found->grows) {
    return fail(CW_INVALID, "%p is not the start of %s of device %d", ptr,
                imported ? "imported memory" : "an allocation", device.index);
  }
  Allocation gone = *found;
  set_slots(device, gone.base - device.base, gone.mapped, 0);
  if (gone.fd >= 0) {
    close(gone.fd);
    --descriptors;
  }
  if (!imported) device.used -= gone.bytes;
  if (settings().discrete && !imported && gone.mapped <= most_retired) {  // larger ones go at once
    memset(reinterpret_cast<void*>(gone.base + uintptr_t(device.shift)), poison, gone.bytes);
    retire(device, gone);
  } else {
    release_pages(device, gone);
  }
  return CW_OK;
}

cw_status mem_alloc(int32_t index, uint64_t bytes, void** out) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_alloc", index, &device)) return status;
  *out = nullptr;
  if (bytes == 0) return CW_OK;
  return map_memory(*device, bytes, shareable_memory(bytes), false, out);
}

cw_status mem_free(int32_t index, void* ptr) {
  Device* device = nullptr;
  if (cw_status status = enter("mem_free", index, &device)) return status;
  return ptr ? unmap_memory(*device, ptr, false) : CW_OK;
}

cw_status mem_alloc_on(int32_t index, cw_stream stream, uint64_t bytes, void** out) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_alloc_on", index, &device)) return status;
  cw_stream_t* of = nullptr;
  if (cw_status status = find_stream(*device, stream, &of)) return status;
  *out = nullptr;
  return bytes ? map_memory(*device, bytes, shareable_memory(bytes), false, out) : CW_OK;
}

cw_status mem_free_on(int32_t index, cw_stream stream, void* ptr) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_free_on", index, &device)) return status;
  char* ignored = nullptr;
  if (!ptr) return CW_OK;
  if (cw_status status = resolve(*device, ptr, 0, "mem_free_on", &ignored)) return status;
  return put(*device, stream, "mem_free_on", [device, ptr] { return unmap_memory(*device, ptr, false); }, true);
}

namespace {

constexpr uint64_t page_bytes = UINT64_C(2) << 20;

// The reservation that holds all of [ptr, ptr + bytes), whole pages; its offset in the device, or UINT64_MAX.
uint64_t reservation(const Device& device, const void* ptr, uint64_t bytes) {
  const uint64_t at = reinterpret_cast<uintptr_t>(ptr) - device.base;
  auto next = device.reserved.upper_bound(at);
  if (next == device.reserved.begin() || bytes == 0) return UINT64_MAX;
  const auto& [start, length] = *std::prev(next);
  if (at - start >= length || bytes > length - (at - start)) return UINT64_MAX;
  return (at - start) % page_bytes || bytes % page_bytes ? UINT64_MAX : start;
}

bool all_slots(const Device& device, const void* ptr, uint64_t bytes, uint32_t value) {
  const uint64_t at = reinterpret_cast<uintptr_t>(ptr) - device.base;
  for (uint64_t slot = at / granule; slot < (at + bytes) / granule; ++slot) {
    if (device.first[slot].load(std::memory_order_acquire) != value) return false;
  }
  return true;
}

}  // namespace

cw_status mem_reserve(int32_t index, uint64_t bytes, uint64_t* page, void** out) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_reserve", index, &device)) return status;
  if (bytes == 0 || bytes % page_bytes) {
    return fail(CW_INVALID, "mem_reserve: %llu bytes are no whole pages", static_cast<unsigned long long>(bytes));
  }
  std::lock_guard<std::mutex> lock(device->memory_mutex);
  const uint64_t start = take_hole(*device, bytes);
  if (start == UINT64_MAX) {
    return fail(CW_OUT_OF_MEMORY, "device %d has no %llu bytes of addresses", index,
                static_cast<unsigned long long>(bytes));
  }
  device->reserved[start] = bytes;
  device->allocations[start / granule] = Allocation{device->base + start, bytes, bytes, -1, false, true};
  *page = page_bytes;
  *out = reinterpret_cast<void*>(device->base + start);
  return CW_OK;
}

cw_status mem_map(int32_t index, void* ptr, uint64_t bytes) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_map", index, &device)) return status;
  std::lock_guard<std::mutex> lock(device->memory_mutex);
  const uint64_t start = reservation(*device, ptr, bytes);
  if (start == UINT64_MAX || !all_slots(*device, ptr, bytes, 0)) {
    return fail(CW_INVALID, "mem_map: %llu bytes at %p are no pages of one mem_reserve, or some have memory already",
                static_cast<unsigned long long>(bytes), ptr);
  }
  if (bytes > settings().memory - device->used) {
    return fail(CW_OUT_OF_MEMORY, "device %d has %llu of %llu bytes free, and %llu are to be mapped", index,
                static_cast<unsigned long long>(settings().memory - device->used),
                static_cast<unsigned long long>(settings().memory), static_cast<unsigned long long>(bytes));
  }
  void* pages = mmap(static_cast<char*>(ptr) + device->shift, bytes, PROT_READ | PROT_WRITE,
                     MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return fail(CW_OUT_OF_MEMORY, "device %d: cannot map: %s", index, strerror(errno));
  madvise(pages, bytes, MADV_HUGEPAGE);
  set_slots(*device, reinterpret_cast<uintptr_t>(ptr) - device->base, bytes, uint32_t(start / granule) + 1);
  device->used += bytes;
  return CW_OK;
}

cw_status mem_unmap(int32_t index, void* ptr, uint64_t bytes) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_unmap", index, &device)) return status;
  std::lock_guard<std::mutex> lock(device->memory_mutex);
  const uint64_t start = reservation(*device, ptr, bytes);
  if (start == UINT64_MAX || !all_slots(*device, ptr, bytes, uint32_t(start / granule) + 1)) {
    return fail(CW_INVALID, "mem_unmap: %llu bytes at %p are no pages of one mem_reserve, or some have no memory",
                static_cast<unsigned long long>(bytes), ptr);
  }
  set_slots(*device, reinterpret_cast<uintptr_t>(ptr) - device->base, bytes, 0);
  (void)mmap(static_cast<char*>(ptr) + device->shift, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  device->used -= bytes;
  return CW_OK;
}

cw_status mem_release(int32_t index, void* ptr, uint64_t bytes) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_release", index, &device)) return status;
  std::lock_guard<std::mutex> lock(device->memory_mutex);
  const uint64_t start = reinterpret_cast<uintptr_t>(ptr) - device->base;
  const auto found = device->reserved.find(start);
  if (found == device->reserved.end() || found->second != bytes || !all_slots(*device, ptr, bytes, 0)) {
    return fail(CW_INVALID, "mem_release: %llu bytes at %p are not what mem_reserve gave, or some have memory",
                static_cast<unsigned long long>(bytes), ptr);
  }
  device->reserved.erase(found);
  give_hole(*device, start, bytes);
  return CW_OK;
}

cw_status mem_copy(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes,
                   cw_stream stream) {
  if (dst_device == CW_HOST && src_device == CW_HOST) {
    return fail(CW_INVALID, "mem_copy: both sides are the host; one must be a device");
  }
  Device* device = nullptr;
  int32_t index = dst_device == CW_HOST ? src_device : dst_device;
  if (cw_status status = enter_open("mem_copy", index, &device)) return status;
  if (bytes == 0) return CW_OK;
  char* to = static_cast<char*>(dst);
  char* from = static_cast<char*>(const_cast<void*>(src));
  if (dst_device != CW_HOST) {
    if (cw_status status = resolve(*device, dst, bytes, "mem_copy, destination", &to)) return status;
  }
  if (src_device == dst_device) {
    if (cw_status status = resolve(*device, src, bytes, "mem_copy, source", &from)) return status;
  } else if (src_device != CW_HOST) {
    Device* other = device;
    if (dst_device != CW_HOST) {
      if (src_device < 0 || src_device >= settings().devices) {
        return fail(CW_INVALID, "mem_copy: there is no device %d", src_device);
      }
      if (!settings().peers) {
        return fail(CW_INVALID, "mem_copy: devices %d and %d are no peers", dst_device, src_device);
      }
      other = device_at(src_device);
      if (other->lost) return fail(CW_DEVICE_LOST, "mem_copy: source device %d is lost", src_device);
    }
    if (cw_status status = resolve(*other, src, bytes, "mem_copy, source", &from)) return status;
  }
  return put(*device, stream, "mem_copy", [=] {
    memmove(to, from, bytes);
    if (settings().teams) teams::written(to, bytes);
    return CW_OK;
  });
}

cw_status mem_set(int32_t index, void* ptr, int32_t byte, uint64_t bytes, cw_stream stream) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_set", index, &device)) return status;
  if (bytes == 0) return CW_OK;
  char* to = nullptr;
  if (cw_status status = resolve(*device, ptr, bytes, "mem_set", &to)) return status;
  return put(*device, stream, "mem_set", [=] {
    memset(to, byte, bytes);
    if (settings().teams) teams::written(to, bytes);
    return CW_OK;
  });
}

cw_status mem_info(int32_t index, uint64_t* free, uint64_t* total) {
  Device* device = nullptr;
  if (cw_status status = enter("mem_info", index, &device)) return status;
  std::lock_guard<std::mutex> lock(device->memory_mutex);
  *total = settings().memory;
  *free = settings().memory - device->used;
  return CW_OK;
}

cw_status host_alloc(uint64_t bytes, void** out) {
  if (cw_status status = injected_fault("host_alloc", nullptr)) return status;
  *out = nullptr;
  if (bytes == 0) return CW_OK;
  if (posix_memalign(out, 4096, bytes)) {
    return fail(CW_OUT_OF_MEMORY, "the host has no %llu bytes", static_cast<unsigned long long>(bytes));
  }
  return CW_OK;
}

cw_status host_free(void* ptr) {
  if (cw_status status = injected_fault("host_free", nullptr)) return status;
  std::free(ptr);
  return CW_OK;
}

namespace {

std::mutex pinned_mutex;
std::map<void*, std::pair<int32_t, uint64_t>>& pinned() {
  static auto* all = new std::map<void*, std::pair<int32_t, uint64_t>>;
  return *all;
}

}  // namespace

cw_status host_alloc_for(int32_t index, uint64_t bytes, void** out) {
  Device* device = nullptr;
  if (cw_status status = enter_open("host_alloc_for", index, &device)) return status;
  *out = nullptr;
  if (bytes == 0) return CW_OK;
  if (posix_memalign(out, 4096, bytes)) {
    return fail(CW_OUT_OF_MEMORY, "the host has no %llu bytes", static_cast<unsigned long long>(bytes));
  }
  std::lock_guard<std::mutex> lock(pinned_mutex);
  pinned()[*out] = {index, bytes};
  device->pinned += bytes;
  return CW_OK;
}

cw_status host_free_for(int32_t index, void* ptr) {
  Device* device = nullptr;
  if (cw_status status = enter_open("host_free_for", index, &device)) return status;
  if (!ptr) return CW_OK;
  std::lock_guard<std::mutex> lock(pinned_mutex);
  const auto found = pinned().find(ptr);
  if (found == pinned().end() || found->second.first != index) {
    return fail(CW_INVALID, "host_free_for: %p is no memory of host_alloc_for of device %d", ptr, index);
  }
  device->pinned -= found->second.second;
  pinned().erase(found);
  std::free(ptr);
  return CW_OK;
}

namespace {

std::mutex registered_mutex;
std::map<uintptr_t, uint64_t>& registered() {
  static auto* all = new std::map<uintptr_t, uint64_t>;
  return *all;
}

}  // namespace

cw_status host_register(int32_t index, void* ptr, uint64_t bytes) {
  Device* device = nullptr;
  if (cw_status status = enter("host_register", index, &device)) return status;
  const uintptr_t start = reinterpret_cast<uintptr_t>(ptr);
  std::lock_guard<std::mutex> lock(registered_mutex);
  auto next = registered().lower_bound(start + bytes);
  if (next != registered().begin() && std::prev(next)->first + std::prev(next)->second > start) {
    return fail(CW_INVALID, "host_register: some of %llu bytes at %p is registered already",
                static_cast<unsigned long long>(bytes), ptr);
  }
  registered()[start] = bytes;
  return CW_OK;
}

cw_status host_unregister(int32_t index, void* ptr) {
  Device* device = nullptr;
  if (cw_status status = enter("host_unregister", index, &device)) return status;
  std::lock_guard<std::mutex> lock(registered_mutex);
  if (!registered().erase(reinterpret_cast<uintptr_t>(ptr))) {
    return fail(CW_INVALID, "host_unregister: %p was not registered", ptr);
  }
  return CW_OK;
}

}  // namespace sim
