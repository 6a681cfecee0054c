// Streams are command queues that work in order. Each remembers the last thing put on it, which is what a query or an
// event without timing looks at, and what was put before it until it was seen to have gone well.
#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "device.hpp"
#include "launch.hpp"

namespace opencl {

// A counted reference to an OpenCL event.
class Event {
 public:
  Event() = default;
  explicit Event(cl_event owned) : event_(owned) {}
  Event(const Event& other) : event_(other.event_) {
    if (event_) cl.clRetainEvent(event_);
  }
  Event(Event&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  Event& operator=(Event other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_) cl.clReleaseEvent(event_);
  }
  cl_event get() const { return event_; }
  explicit operator bool() const { return event_ != nullptr; }
  // CL_COMPLETE is 0, an error is below it, what is not done is above.
  cl_int status() const;

 private:
  cl_event event_ = nullptr;
};

}  // namespace opencl

struct cw_stream_t {
  opencl::Device* device = nullptr;
  cl_command_queue queue = nullptr;
  std::mutex mutex;      // of what follows; held while something is put on the queue
  opencl::Event last;    // the newest thing on the queue
  std::deque<opencl::Event> before;  // older ones whose end was not looked at yet
  cw_status failed = CW_OK;  // the first failure since the last sync
  std::string words;
  opencl::HeldLaunches held;  // behind `last`

  // Put one thing on the queue: `put(queue, event)` enqueues it and gives its event.
  template <typename Put>
  cw_status enqueue(const char* what, Put put);
  // Wait until the queue is empty; the first failure since the last time.
  cw_status sync();
  // CW_OK or CW_NOT_READY.
  cw_status query();
  // Whether nothing is on it; false, too, while another thread is at it.
  bool is_idle();
  // `work` by this thread, where all that was put on it has ended well; false: it was not called.
  template <typename Work>
  bool when_idle(Work work);

  // With the lock held, for what goes to the queue by another way: give the runtime what was held back, make `event` the
  // newest thing on the queue (owned from now on), keep a failure until the next sync.
  void put_held() {
    if (!held.empty()) held.put(*this);
  }
  void follow(cl_event event);
  void note_failure(cw_status status);

 private:
  void look_back();  // at those of `before` that have ended
};

namespace opencl {

cw_status find_stream(const char* entry, Device& device, cw_stream handle, cw_stream_t** out);

cw_status sync(int32_t index);
cw_status stream_create(int32_t index, int32_t priority, cw_stream* out);
cw_status stream_destroy(int32_t index, cw_stream stream);
cw_status stream_query(int32_t index, cw_stream stream);
cw_status stream_sync(int32_t index, cw_stream stream);
cw_status stream_callback(int32_t index, cw_stream stream, void (*function)(void* context), void* context);

// While profiling: `event` is the newest of what was put on a queue.
void note(const char* name, const Event& event);
bool profiling();

}  // namespace opencl

template <typename Put>
cw_status cw_stream_t::enqueue(const char* what, Put put) {
  std::lock_guard<std::mutex> lock(mutex);
  put_held();
  cl_event event = nullptr;
  if (cw_status status = put(queue, &event)) return status;
  follow(event);
  if (opencl::profiling()) opencl::note(what, last);
  return CW_OK;
}

template <typename Work>
bool cw_stream_t::when_idle(Work work) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!held.empty() || last.status() != CL_COMPLETE || failed != CW_OK || opencl::profiling()) return false;
  work();
  return true;
}
