#include "stream.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>

#include "error.hpp"

namespace sim {

namespace {

std::atomic<bool> is_ending{false};
pid_t owner = 0;  // a forked child has the streams but not their threads

// The process may end with work queued. Threads that run into the destructors of others crash, and a join on a
// full queue hangs: so drop what is queued, wait for the one task that runs, and join.
void end_streams() {
  if (getpid() != owner) return;
  is_ending = true;
  for (int32_t index = 0; index < settings().devices; ++index) {
    Device* device = device_at(index);
    std::vector<cw_stream_t*> streams;
    {
      std::lock_guard<std::mutex> lock(device->stream_mutex);
      streams = device->streams;
    }
    for (cw_stream_t* stream : streams) stream->abandon();
  }
}

void own_threads() {
  static std::once_flag once;
  std::call_once(once, [] { owner = getpid(); });
}

cw_stream_t* new_stream(Device& device, int32_t priority) {
  auto* stream = new cw_stream_t;
  stream->device = &device;
  stream->priority = priority;
  device.streams.push_back(stream);
  return stream;
}

}  // namespace

thread_local uint64_t next_address = 0;

bool ending() { return is_ending; }

bool busy(Device& device) {
  std::lock_guard<std::mutex> lock(device.stream_mutex);
  return std::any_of(device.streams.begin(), device.streams.end(), [](cw_stream_t* s) { return !s->idle(); });
}

// Before any stream is there, so that it comes after the handler in which the core waits and calls `close`.
void end_at_exit() { std::atexit(end_streams); }

cw_status close_chip() {
  if (cw_status status = injected_fault("close", nullptr)) return status;
  if (closed.exchange(true)) return fail(CW_FAILED, "close: the chip is closed already");
  for (int32_t index = 0; index < settings().devices; ++index) {
    if (busy(*device_at(index))) return fail(CW_FAILED, "close: a stream of device %d still has work", index);
  }
  return CW_OK;
}

void simulate_latency() {
  using namespace std::chrono;
  auto until = steady_clock::now() + microseconds(settings().latency_us);
  // In slices, so that a process that ends is not held up by a sleep.
  while (!ending() && steady_clock::now() < until) {
    std::this_thread::sleep_for(std::min<nanoseconds>(until - steady_clock::now(), milliseconds(5)));
  }
}

cw_status find_stream(Device& device, cw_stream handle, cw_stream_t** out) {
  if (handle) {
    if (!handle->live || handle->device != &device) {
      return fail(CW_INVALID, "stream %p %s", static_cast<void*>(handle),
                  handle->live ? "belongs to another device" : "is destroyed");
    }
    *out = handle;
    return CW_OK;
  }
  *out = device.default_stream.load(std::memory_order_acquire);
  if (*out) return CW_OK;
  std::lock_guard<std::mutex> lock(device.stream_mutex);
  if (!device.default_stream) device.default_stream = new_stream(device, 0);
  *out = device.default_stream;
  return CW_OK;
}

cw_status sync(int32_t index) {
  Device* device = nullptr;
  if (cw_status status = enter("sync", index, &device)) return status;
  std::vector<cw_stream_t*> streams;
  {
    std::lock_guard<std::mutex> lock(device->stream_mutex);
    streams = device->streams;
  }
  cw_status first = CW_OK;
  std::string words;
  cw_fault known{};
  for (cw_stream_t* stream : streams) {
    cw_status status = stream->sync();
    if (first == CW_OK && status != CW_OK) {
      first = status;
      words = last_error();
      known.struct_size = sizeof(known);
      fault(index, &known);
    }
  }
  if (first == CW_OK) return CW_OK;
  fail(first, "%s", words.c_str());
  know_fault(known.kernel, known.address);
  return first;
}

cw_status stream_create(int32_t index, int32_t priority, cw_stream* out) {
  Device* device = nullptr;
  if (cw_status status = enter_open("stream_create", index, &device)) return status;
  std::lock_guard<std::mutex> lock(device->stream_mutex);
  *out = new_stream(*device, std::max(-1, std::min(0, priority)));
  return CW_OK;
}

cw_status stream_destroy(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  if (cw_status status = enter("stream_destroy", index, &device)) return status;
  if (!handle) return fail(CW_INVALID, "stream_destroy: the default stream always exists");
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream(*device, handle, &stream)) return status;
  stream->sync();
  stream->abandon();
  std::lock_guard<std::mutex> lock(device->stream_mutex);
  stream->live = false;
  device->streams.erase(std::find(device->streams.begin(), device->streams.end(), stream));
  return CW_OK;
}

cw_status stream_query(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  if (cw_status status = enter("stream_query", index, &device)) return status;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream(*device, handle, &stream)) return status;
  return stream->idle() ? CW_OK : fail(CW_NOT_READY, "the stream has work");
}

cw_status stream_sync(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  if (cw_status status = enter("stream_sync", index, &device)) return status;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream(*device, handle, &stream)) return status;
  return stream->sync();
}

cw_status stream_callback(int32_t index, cw_stream handle, void (*function)(void* context), void* context) {
  Device* device = nullptr;
  if (cw_status status = enter_open("stream_callback", index, &device)) return status;
  return put(
      *device, handle, "stream_callback",
      [function, context] {
        function(context);
        return CW_OK;
      },
      /*always=*/true);
}

}  // namespace sim

void cw_stream_t::push(sim::Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) {
    sim::own_threads();
    thread_ = std::thread([this] { run(); });
  }
  queue_.push_back(std::move(task));
  work_.notify_one();
}

void cw_stream_t::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return !queue_.empty() || !live || sim::ending(); });
    if (queue_.empty()) return;
    sim::Task task = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    cw_status status = CW_OK;
    if (!device->lost || task.always) {
      if (!task.always && sim::settings().latency_us) sim::simulate_latency();
      status = task.work();
    }
    std::string words = status == CW_OK ? "" : std::string(task.name) + ": " + sim::last_error();
    task.work = nullptr;  // what it holds goes before anyone is told that it is done
    lock.lock();
    if (status != CW_OK && status_ == CW_OK) {
      status_ = status;
      words_ = words;
      failed_ = task.name;
      failed_at_ = task.address;
    }
    busy_ = false;
    if (queue_.empty()) done_.notify_all();
  }
}

cw_status cw_stream_t::sync() {
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [&] { return queue_.empty() && !busy_; });
  cw_status status = std::exchange(status_, CW_OK);
  if (status != CW_OK) {
    sim::fail(status, "%s", words_.c_str());
    sim::know_fault(failed_.c_str(), failed_at_);
    return status;
  }
  if (device->lost) return sim::fail(CW_DEVICE_LOST, "device %d was lost", device->index);
  return CW_OK;
}

bool cw_stream_t::idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return queue_.empty() && !busy_;
}

void cw_stream_t::abandon() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!sim::ending()) live = false;
    std::deque<sim::Task> dropped;
    for (sim::Task& task : queue_) {
      if (task.always) dropped.push_back(std::move(task));  // events still happen
    }
    queue_.swap(dropped);
    work_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}
