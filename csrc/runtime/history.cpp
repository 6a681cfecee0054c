#include "runtime/history.h"

#include <mutex>

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/combined_traceback.h>

namespace causeway {

std::atomic<bool> g_history_on{false};

namespace {
std::mutex g_history_mutex;
HistoryOptions g_options;
}  // namespace

const char* action_name(MemoryAction action) {
  constexpr const char* names[] = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
                                   "oom",   "segment_map",    "segment_unmap",  "snapshot"};
  return names[static_cast<int>(action)];
}

void set_history(const HistoryOptions& o) {
  std::lock_guard lock(g_history_mutex);
  g_options = o;
  g_history_on.store(o.on);
}

Frames gather_frames(Stacks level) {
  if (C10_LIKELY(!g_history_on.load(std::memory_order_relaxed))) return nullptr;
  bool cpp = false;
  {
    std::lock_guard lock(g_history_mutex);
    if (!g_options.on || g_options.stacks < level) return nullptr;
    cpp = g_options.cpp;
  }
  return torch::CapturedTraceback::gather(true, true, cpp);
}

void History::add(MemoryAction action, size_t address, size_t size, c10::StreamId stream, Frames frames) {
  std::lock_guard lock(g_history_mutex);
  const HistoryOptions& o = g_options;
  if (!o.on || !o.events || o.skip.count(action)) return;
  while (!events_.empty() && events_.size() >= o.max_events) events_.pop_front();
  const Stacks level =
      action == MemoryAction::FreeRequested || action == MemoryAction::FreeCompleted ? Stacks::All : Stacks::Alloc;
  if (o.stacks < level) frames = nullptr;
  events_.push_back({action, address, size, stream, c10::getTime() / 1000, std::move(frames)});
}

}  // namespace causeway
