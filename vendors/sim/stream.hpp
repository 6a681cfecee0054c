// A stream: a queue and the thread that empties it, in order. With `execution` inline there is neither: the
// caller does the work before it returns, which keeps every promise of order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "causeway/abi.h"
#include "device.hpp"
#include "fault.hpp"
#include "profile.hpp"
#include "settings.hpp"

namespace sim {

struct Task {
  const char* name;
  bool always;  // also on a lost device: an event must happen, or its waiters hang
  std::function<cw_status()> work;
  uint64_t address = 0;  // of what it writes, for entry `fault`; 0: not known
};
// The address that the work which this thread puts on a stream next writes to.
extern thread_local uint64_t next_address;

void simulate_latency();
void end_at_exit();
bool ending();  // the process is: nothing may wait any more

}  // namespace sim

struct cw_stream_t {
  sim::Device* device = nullptr;
  int32_t priority = 0;
  bool live = true;  // handles are never freed, so that a stale one is recognised
  cw_graph graph = nullptr;  // that notes what it is given: graph.cpp

  void push(sim::Task task);
  cw_status sync();  // and the first error of the work since the last sync
  bool idle();
  void abandon();  // at exit: drop what is queued, wait for what runs

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<sim::Task> queue_;
  std::thread thread_;
  bool busy_ = false;
  cw_status status_ = CW_OK;
  std::string words_;
  std::string failed_;  // the work whose status is kept, and what it wrote to
  uint64_t failed_at_ = 0;
};

namespace sim {

void note(cw_graph_t& graph, Task task);

// The stream behind a handle of this device; NULL is its default stream.
cw_status find_stream(Device& device, cw_stream handle, cw_stream_t** out);

template <class Work>
cw_status put_unprofiled(Device& device, cw_stream handle, const char* name, Work&& work, bool always = false) {
  if (!settings().async && !handle) {  // the hot path
    if (settings().latency_us && !always) simulate_latency();
    return work();
  }
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream(device, handle, &stream)) return status;
  if (stream->graph) {
    note(*stream->graph, Task{name, always, std::forward<Work>(work), next_address});
    return CW_OK;
  }
  if (skips_wait(name)) return work();
  if (!settings().async || ending()) {
    if (settings().latency_us && !always) simulate_latency();
    return work();
  }
  stream->push(Task{name, always, std::forward<Work>(work), next_address});
  return CW_OK;
}

// Run `work` in the order of the stream: now, or on its thread. What is done `always` is an event's and no activity.
template <class Work>
cw_status put(Device& device, cw_stream handle, const char* name, Work&& work, bool always = false) {
  if (__builtin_expect(profiling.load(std::memory_order_relaxed), false) && !always) {
    auto timed = [name, id = correlation(), work = std::forward<Work>(work)]() mutable {
      const int64_t begin = clock_ns();
      const cw_status status = work();
      note(name, id, begin, clock_ns());
      return status;
    };
    return put_unprofiled(device, handle, name, std::move(timed));
  }
  return put_unprofiled(device, handle, name, std::forward<Work>(work), always);
}

bool busy(Device& device);  // one of its streams has work

// Entries of the table.
cw_status sync(int32_t device);
cw_status close_chip();
cw_status stream_create(int32_t device, int32_t priority, cw_stream* out);
cw_status stream_destroy(int32_t device, cw_stream stream);
cw_status stream_query(int32_t device, cw_stream stream);
cw_status stream_sync(int32_t device, cw_stream stream);
cw_status stream_callback(int32_t device, cw_stream stream, void (*function)(void* context), void* context);

}  // namespace sim
