// Device memory: a caching allocator per device, pools per stream. See allocator.cpp for how.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/device.h"
#include "runtime/history.h"
#include "runtime/stream.h"

namespace causeway {

struct Block;  // one allocation: the context of its DataPtr

// Make the cache of a device that is being opened.
void open_cache(const DeviceState& device);

c10::DeviceAllocator* device_allocator();

// `bytes` of `device` for use on `stream`; 0 bytes is a null pointer. Throws OutOfMemoryError.
c10::DataPtr allocate(int device, StreamState& stream, size_t bytes);
// The same for what can be done without: nullptr where there is no room. Nobody is told of it.
c10::DataPtr allocate_if_possible(int device, StreamState& stream, size_t bytes);
bool is_block(const c10::DataPtr& data);  // of `allocate`

// Wrap the same memory as host memory: what the CPU's allocator hands out within the host rung. `as_device` turns
// such a DataPtr back, and returns false for any other.
c10::DataPtr allocate_for_host(int device, StreamState& stream, size_t bytes);
bool is_block_for_host(const c10::DataPtr& data);
bool free_for_host(void* start);  // false when `start` is no such memory
c10::DataPtr as_device(c10::DataPtr&& data, int device);

// The same memory with its address as the context, the only form that torch's copy-on-write can share.
c10::DataPtr as_simple(c10::DataPtr&& data);

void record_stream(const c10::DataPtr& data, const c10::Stream& stream);

// Before the first device is opened.
void set_memory_caching(bool on);
void set_memory_fraction(double fraction, int device);
double memory_fraction(int device);

struct BlockView {
  size_t address, size, requested;
  bool allocated, active;
  Frames frames;  // of who asked for it, where a history is kept
};
struct SegmentView {
  size_t address, size, requested, allocated, active;
  c10::StreamId stream;
  c10::MempoolId_t pool;  // {0, 0}: the device's own
  bool large;
  bool expandable;  // one run of mapped pages in a segment that grows
  std::vector<BlockView> blocks;
  Frames frames;
};
std::vector<SegmentView> memory_snapshot(int device);

// Begin or end the history of all devices. What was kept goes with its end, or where `clear` says so.
void record_history(const HistoryOptions& options, bool clear);
std::vector<MemoryEvent> memory_history(int device);

// The block that is handed out and holds `pointer`: its start and the bytes that were asked for; {nullptr, 0}: none.
std::pair<void*, size_t> block_of(int device, const void* pointer);

// A pool of device memory of a graph's or the program's: kept, also what is free in it, until as many releases as retains.
struct PoolOptions {
  bool use_on_oom = false;  // what is free in it serves others before they are out of memory
  bool no_split = false;    // a segment is one block
};
void retain_pool(int device, c10::MempoolId_t id, const PoolOptions& options = {});
void release_pool(int device, c10::MempoolId_t id);
int pool_uses(int device, c10::MempoolId_t id);

// From now on this thread allocates from the pool, but on streams that are captured; until the end of that use.
void use_pool(int device, c10::MempoolId_t id);
void end_use_of_pool(int device, c10::MempoolId_t id);

// The segment (one mem_alloc of the vendor) that holds `pointer`: its start, and the pointer's offset in it.
std::pair<void*, size_t> segment_of(int device, const void* pointer);

}  // namespace causeway
