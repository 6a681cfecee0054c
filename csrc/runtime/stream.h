// Streams and events. Where the vendor offers none, there is one stream a device, and an event is the host's clock
// after a sync.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include <c10/core/Stream.h>

#include "causeway/abi.h"

namespace causeway {

class Graph;

// A stream counts what it was given and how far it was waited for, so that the host rung, which needs all earlier
// work done, asks the vendor only when there is any. Counters and no flag: another thread's wait in progress must
// not look like a finished one.
struct StreamState {
  cw_stream handle = nullptr;
  int device = 0;
  int priority = 0;
  c10::StreamId id = 0;
  bool adopted = false;  // made by another library, which puts work on it too: then `done` stays behind `given`
  std::atomic<uint64_t> given{0};
  std::atomic<uint64_t> done{0};
  std::atomic<Graph*> graph{nullptr};  // that captures it: graph.h
  std::atomic<bool> may_tell{false};  // kernels that can find errors were put on it: kernel_error.h

  bool pending() const { return done.load(std::memory_order_acquire) < given.load(std::memory_order_acquire); }
  void sync() {
    if (pending()) wait();
  }
  void wait();   // ask the vendor, whatever the counters say
  bool query();  // whether all work is done
  // To be called when the vendor has the work, not before: a wait of another thread in between would count it as done.
  void give() { given.fetch_add(1, std::memory_order_acq_rel); }
};

// What happens where the host is to wait for a stream with work on it, as torch.cuda's set_sync_debug_mode has it.
enum class OnWait { Nothing, Warn, Fail };
extern std::atomic<OnWait> g_on_wait;

// Seconds that this thread has waited for devices while somebody watched (watched.h); it only grows.
double waited_seconds();

StreamState& default_stream(int device);
StreamState& current_stream(int device);
StreamState& stream_of(const c10::Stream& stream);
c10::Stream as_torch(const StreamState& stream);
c10::Stream exchange_stream(const c10::Stream& stream);
StreamState& stream_from_pool(int device, int priority);
// The lowest and the highest that a stream can have; (0, 0) without streams.
std::pair<int, int> stream_priorities(int device);
// A stream that another library made. It stays theirs; of what they put on it nothing is counted, so the host always asks.
StreamState& adopt_stream(int device, cw_stream handle);
void sync_device(int device);

// Have the vendor call `function` when the stream has done what it was given so far: once, on any thread, and it takes no
// lock that is held around an entry. False: the vendor has no such entry, or declined.
bool call_after(StreamState& stream, std::function<void()> function);

// The event that captures record and wait for as it is, and no edge between their streams: each replay records it anew.
// Their steps share it, so it lives as long as they.
struct ExternalEvent {
  int device;
  cw_event handle;
  std::atomic<bool> recorded{false};
  ExternalEvent(int device, cw_event handle) : device(device), handle(handle) {}
  ~ExternalEvent();
};

// An event of torch: `void*` in its interface.
struct Event {
  int device;
  cw_event handle = nullptr;  // NULL where the vendor offers no events
  double ms = 0;  // the host's clock, where it offers none
  bool recorded = false;
  bool timing = false;
  uint64_t capture = 0;  // in which it was recorded, 0: in none
  size_t mark = 0;  // of that capture
  std::shared_ptr<ExternalEvent> external;  // whose handle it then is
  bool was_recorded() const { return external ? external->recorded.load() : recorded; }
};
Event* new_event(int device, bool timing);
void destroy_event(Event* event) noexcept;
void make_external(Event& event);
void record_event(Event& event, StreamState& stream);
void block_stream(StreamState& stream, const Event& event);
bool query_event(const Event& event);
void sync_event(const Event& event);
double elapsed_ms(const Event& start, const Event& end);

}  // namespace causeway
