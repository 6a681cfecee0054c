// Pinned host memory: what the vendor copies at full speed and in the background.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "runtime/stream.h"

namespace causeway {

at::HostAllocator* pinned_allocator();
bool is_pinned(const void* pointer, int device = -1);  // for copies of `device`; -1: of any
// The memory is in use by what was given to `stream` so far. False when it is not pinned memory.
bool record_pinned(const void* pointer, StreamState& stream);

// Pin memory that is there already, for the current device, and let go of it; by its first byte. What is pinned so is
// the caller's: it stays until `unregister_host`, which waits for the copies that use it.
void register_host(void* start, size_t bytes);
void unregister_host(void* start);

}  // namespace causeway
