#include "event.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "device.hpp"
#include "error.hpp"
#include "fault.hpp"
#include "stream.hpp"

namespace sim {

using Clock = std::chrono::steady_clock;

// Shared with the work that is queued for it: the handle may go first.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;  // how often it was put on a stream ...
  uint64_t reached = 0;   // ... and the last of those that a stream came to
  Clock::time_point time;

  void reach(uint64_t record) {
    std::lock_guard<std::mutex> lock(mutex);
    if (record <= reached) return;
    reached = record;
    time = Clock::now();
    changed.notify_all();
  }
  void wait(uint64_t record) {
    std::unique_lock<std::mutex> lock(mutex);
    // Polls only for the end of the process, where the stream it waits for may already be gone.
    while (reached < record && !ending()) changed.wait_for(lock, std::chrono::milliseconds(20));
  }
};

}  // namespace sim

struct cw_event_t {
  std::shared_ptr<sim::EventState> state = std::make_shared<sim::EventState>();
  sim::Device* device;
  bool timing;
};

namespace sim {

namespace {

uint64_t last_record(EventState& state) {
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.recorded;
}

bool is_reached(EventState& state) {
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.reached >= state.recorded;
}

cw_status check(const char* entry, cw_event event) {
  return event ? CW_OK : fail(CW_INVALID, "%s: the event is NULL", entry);
}

}  // namespace

cw_status event_create(int32_t index, int32_t timing, cw_event* out) {
  Device* device = nullptr;
  if (cw_status status = enter("event_create", index, &device)) return status;
  *out = new cw_event_t;
  (*out)->device = device;
  (*out)->timing = timing != 0;
  return CW_OK;
}

cw_status event_destroy(int32_t index, cw_event event) {
  Device* device = nullptr;
  if (cw_status status = enter("event_destroy", index, &device)) return status;
  delete event;
  return CW_OK;
}

cw_status event_record(int32_t index, cw_event event, cw_stream stream) {
  Device* device = nullptr;
  if (cw_status status = enter_open("event_record", index, &device)) return status;
  if (cw_status status = check("event_record", event)) return status;
  if (event->device != device) {
    return fail(CW_INVALID, "event_record: the event is of device %d, the stream of device %d", event->device->index,
                index);
  }
  uint64_t record;
  {
    std::lock_guard<std::mutex> lock(event->state->mutex);
    record = ++event->state->recorded;
  }
  auto reach = [state = event->state, record] {
    state->reach(record);
    return CW_OK;
  };
  return put(*device, stream, "event_record", reach, true);
}

cw_status stream_wait(int32_t index, cw_stream stream, cw_event event) {
  Device* device = nullptr;
  if (cw_status status = enter_open("stream_wait", index, &device)) return status;
  if (cw_status status = check("stream_wait", event)) return status;
  if (skips_wait("stream_wait")) return CW_OK;
  uint64_t record = last_record(*event->state);
  auto wait = [state = event->state, record] {
    state->wait(record);
    return CW_OK;
  };
  return put(*device, stream, "stream_wait", wait, true);
}

cw_status event_query(int32_t index, cw_event event) {
  Device* device = nullptr;
  if (cw_status status = enter("event_query", index, &device)) return status;
  if (cw_status status = check("event_query", event)) return status;
  return is_reached(*event->state) ? CW_OK : fail(CW_NOT_READY, "the event is not reached yet");
}

cw_status event_sync(int32_t index, cw_event event) {
  Device* device = nullptr;
  if (cw_status status = enter("event_sync", index, &device)) return status;
  if (cw_status status = check("event_sync", event)) return status;
  std::shared_ptr<EventState> state = event->state;
  state->wait(last_record(*state));
  return CW_OK;
}

cw_status event_elapsed(int32_t index, cw_event start, cw_event end, double* ms) {
  Device* device = nullptr;
  if (cw_status status = enter("event_elapsed", index, &device)) return status;
  for (cw_event event : {start, end}) {
    if (cw_status status = check("event_elapsed", event)) return status;
    if (!event->timing) return fail(CW_INVALID, "event_elapsed: an event was created without timing");
    if (last_record(*event->state) == 0) return fail(CW_INVALID, "event_elapsed: an event was never recorded");
    if (!is_reached(*event->state)) return fail(CW_NOT_READY, "event_elapsed: an event is not reached yet");
  }
  *ms = std::chrono::duration<double, std::milli>(end->state->time - start->state->time).count();
  return CW_OK;
}

}  // namespace sim
