// A device: its range of addresses, its allocations, its streams. Opened at the first use, never closed.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "causeway/abi.h"

struct cw_stream_t;

namespace sim {

// Allocations start on a granule, so that one table answers "which allocation is this address in?" at once.
constexpr uint64_t granule = UINT64_C(64) << 10;

struct Allocation {
  uintptr_t base = 0;   // device address
  uint64_t bytes = 0;   // as asked for
  uint64_t mapped = 0;  // whole granules
  int fd = -1;          // of the memory; -1: private to the process, cannot be exported
  bool imported = false;
  bool grows = false;  // of mem_reserve: granules without a slot have no memory
};

struct Device {
  int32_t index = 0;
  std::atomic<bool> opened{false};
  std::atomic<bool> lost{false};

  // Device addresses are [base, base + range). The kernels reach the bytes at address + shift: 0 when unified;
  // when discrete the device's own range stays unreadable, and the bytes are mapped elsewhere.
  uintptr_t base = 0;
  uint64_t range = 0;
  intptr_t shift = 0;

  std::mutex memory_mutex;  // of what follows, but the lookup tables are read without it
  std::map<uint64_t, uint64_t> holes;  // free offsets and their lengths
  uint64_t used = 0;
  std::map<uint64_t, uint64_t> reserved;  // offsets and lengths of mem_reserve
  std::atomic<uint64_t> pinned{0};        // bytes of the host, by host_alloc_for
  std::atomic<uint32_t>* first = nullptr;  // per granule: 1 + first granule of its allocation, 0: none
  std::deque<Allocation> retired;          // freed last, poisoned: see retire() in memory.cpp
  Allocation* allocations = nullptr;       // at the index of the first granule

  std::mutex stream_mutex;
  std::vector<cw_stream_t*> streams;  // the default stream first
  std::atomic<cw_stream_t*> default_stream{nullptr};

  cw_status open();
  void lose();
  // The allocation that holds all of [address, address + bytes), or NULL.
  const Allocation* find(uintptr_t address, uint64_t bytes) const {
    if (address - base >= range) return nullptr;
    uint32_t slot = first[(address - base) / granule].load(std::memory_order_acquire);
    if (slot == 0) return nullptr;
    const Allocation& a = allocations[slot - 1];
    if (address - a.base > a.bytes || bytes > a.bytes - (address - a.base)) return nullptr;
    if (a.grows) {
      for (uint64_t at = (address - base) / granule, end = (address - base + bytes + granule - 1) / granule; at < end;
           ++at)
        if (first[at].load(std::memory_order_acquire) != slot) return nullptr;
    }
    return &a;
  }
  bool contains(uintptr_t address) const { return opened && address - base < range; }
};

extern std::atomic<bool> closed;  // by entry `close`: every call after it is told on stderr and refused

void make_devices();  // once, from the settings; opens none
Device* device_at(int32_t index);  // no checks
int32_t bound_device();            // of this thread

// What every entry does first: settings good, the index known, no fault planted here, the device not lost.
cw_status enter(const char* entry, int32_t index, Device** out);
cw_status enter_open(const char* entry, int32_t index, Device** out);  // and opens the device

// The address at which this process reaches [ptr, ptr + bytes) of the device; CW_INVALID unless all of it lies
// in one live allocation.
cw_status resolve(const Device& device, const void* ptr, uint64_t bytes, const char* what, char** out);

// Entries of the table.
cw_status device_count(int32_t* out);
cw_status device_info(int32_t device, cw_device_info* out);
cw_status bind(int32_t device);
cw_status peer_access(int32_t device, int32_t peer, int32_t* out);
cw_status device_attribute(int32_t device, const char* key, cw_arg* out);

}  // namespace sim
