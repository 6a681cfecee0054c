// What the allocator did, and who asked for it: kept from record_history() on, for torch's memory viewer.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <c10/core/Stream.h>

namespace torch {
struct CapturedTraceback;
}

namespace causeway {

enum class MemoryAction : uint8_t {
  Alloc,
  FreeRequested,
  FreeCompleted,  // other streams that used the block are done too
  SegmentAlloc,
  SegmentFree,
  OutOfMemory,
  SegmentMap,  // one that grows
  SegmentUnmap,
  Snapshot
};
const char* action_name(MemoryAction action);  // torch's: "alloc", "segment_free"

// Which calls keep the stack of who asked: none; blocks in use; also each allocation noted; also each release.
enum class Stacks : uint8_t { None, State, Alloc, All };

using Frames = std::shared_ptr<torch::CapturedTraceback>;

struct HistoryOptions {
  bool on = false;
  bool events = true;  // keep what happened, beside what is
  Stacks stacks = Stacks::All;
  bool cpp = false;    // frames of C++ too
  size_t max_events = SIZE_MAX;
  std::set<MemoryAction> skip;
};

struct MemoryEvent {
  MemoryAction action;
  size_t address;  // of OutOfMemory: what was free
  size_t size;
  c10::StreamId stream;
  int64_t time_us;  // since 1970
  Frames frames;
};

extern std::atomic<bool> g_history_on;
void set_history(const HistoryOptions& options);

// The stack of this thread, where `level` is asked for. It may take the GIL, so no lock may be held.
Frames gather_frames(Stacks level);

// Of one device; the lock of its cache is held.
class History {
 public:
  void add(MemoryAction action, size_t address, size_t size, c10::StreamId stream, Frames frames);
  void clear() { events_.clear(); }
  std::vector<MemoryEvent> events() const { return {events_.begin(), events_.end()}; }

 private:
  std::deque<MemoryEvent> events_;
};

}  // namespace causeway
