#include "stream.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "error.hpp"

namespace opencl {

cl_int Event::status() const {
  cl_int status = CL_COMPLETE;
  if (event_) cl.clGetEventInfo(event_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
  return status;
}

namespace {

pid_t owner = 0;

// On a CPU commands run on threads of this process. At its end they would go on while what they use is taken down, so
// they are waited for; not for ever, as one may hang.
void wait_at_exit() {
  if (getpid() != owner) return;  // a fork has no such threads
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (Device* device : devices()) {
    std::unique_lock<std::mutex> lock(device->mutex, std::try_to_lock);
    if (!lock) continue;
    for (cw_stream_t* stream : device->streams) {
      while (!stream->is_idle() && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
}

struct WaitsAtExit {
  ~WaitsAtExit() { wait_at_exit(); }
};

// A handler of atexit comes too late where a runtime makes static objects as it first compiles: what was made last goes
// first. What belongs to the thread that ends the process goes before all of them; that thread is nearly always the
// first one. Where it is not, the handler is better than nothing.
void wait_before_exit() {
  static const bool late = (owner = getpid(), atexit(wait_at_exit)) == 0;
  (void)late;
  if (syscall(SYS_gettid) != owner) return;
  static thread_local const WaitsAtExit early;
  (void)early;
}

cw_status new_stream(Device& device, cw_stream_t** out) {
  cl_int error = CL_SUCCESS;
  cl_command_queue queue = cl.clCreateCommandQueue(context(), device.id, CL_QUEUE_PROFILING_ENABLE, &error);
  if (cw_status status = check(error, "clCreateCommandQueue")) return status;
  auto* stream = new cw_stream_t;
  stream->device = &device;
  stream->queue = queue;
  device.streams.push_back(stream);
  wait_before_exit();
  *out = stream;
  return CW_OK;
}

}  // namespace

cw_status find_stream(const char* entry, Device& device, cw_stream handle, cw_stream_t** out) {
  if (handle) {
    if (handle->device != &device) {
      return fail(CW_INVALID, "%s: the stream is of device %d, not of %d", entry, handle->device->index, device.index);
    }
    return *out = handle, CW_OK;
  }
  *out = device.default_stream.load(std::memory_order_acquire);
  if (*out) return CW_OK;
  std::lock_guard<std::mutex> lock(device.mutex);
  *out = device.default_stream;
  if (*out) return CW_OK;
  if (cw_status status = new_stream(device, out)) return status;
  device.default_stream = *out;
  return CW_OK;
}

cw_status sync(int32_t index) {
  Device* device = nullptr;
  if (cw_status status = find_device("sync", index, &device)) return status;
  std::vector<cw_stream_t*> streams;
  {
    std::lock_guard<std::mutex> lock(device->mutex);
    streams = device->streams;
  }
  cw_status first = CW_OK;
  std::string words;
  for (cw_stream_t* stream : streams) {
    cw_status status = stream->sync();
    if (first == CW_OK && status != CW_OK) {
      first = status;
      words = last_error();
    }
  }
  return first == CW_OK ? CW_OK : fail(first, "%s", words.c_str());
}

cw_status stream_create(int32_t index, int32_t, cw_stream* out) {
  Device* device = nullptr;
  if (cw_status status = find_device("stream_create", index, &device)) return status;
  std::lock_guard<std::mutex> lock(device->mutex);
  return new_stream(*device, out);
}

cw_status stream_destroy(int32_t index, cw_stream stream) {
  Device* device = nullptr;
  if (cw_status status = find_device("stream_destroy", index, &device)) return status;
  if (!stream) return fail(CW_INVALID, "stream_destroy: the default stream always exists");
  if (stream->device != device) return fail(CW_INVALID, "stream_destroy: the stream is of another device");
  {
    std::lock_guard<std::mutex> lock(device->mutex);
    auto found = std::find(device->streams.begin(), device->streams.end(), stream);
    if (found == device->streams.end()) return fail(CW_INVALID, "stream_destroy: the stream is gone already");
    device->streams.erase(found);
  }
  cw_status status = stream->sync();
  cl.clReleaseCommandQueue(stream->queue);
  delete stream;
  return status;
}

cw_status stream_query(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  if (cw_status status = find_device("stream_query", index, &device)) return status;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream("stream_query", *device, handle, &stream)) return status;
  return stream->query();
}

cw_status stream_sync(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  if (cw_status status = find_device("stream_sync", index, &device)) return status;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream("stream_sync", *device, handle, &stream)) return status;
  return stream->sync();
}

namespace {

struct Called {
  void (*function)(void* context);
  void* context;
};

// Also where the command failed: the stream's next sync says so.
void CL_CALLBACK call(cl_event, cl_int, void* given) {
  const std::unique_ptr<Called> called(static_cast<Called*>(given));
  called->function(called->context);
}

}  // namespace

cw_status stream_callback(int32_t index, cw_stream handle, void (*function)(void* context), void* context) {
  Device* device = nullptr;
  if (cw_status status = find_device("stream_callback", index, &device)) return status;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream("stream_callback", *device, handle, &stream)) return status;
  auto called = std::make_unique<Called>(Called{function, context});
  Event marker;
  {
    std::lock_guard<std::mutex> lock(stream->mutex);
    stream->put_held();
    cl_event event = nullptr;
    const cl_int error = cl.clEnqueueMarkerWithWaitList(stream->queue, 0, nullptr, &event);
    if (cw_status status = check(error, "clEnqueueMarkerWithWaitList")) return status;
    stream->follow(event);
    marker = stream->last;
  }
  // Not under the lock: a runtime may call at once, in this thread.
  if (cw_status status =
          check(cl.clSetEventCallback(marker.get(), CL_COMPLETE, call, called.get()), "clSetEventCallback"))
    return status;
  (void)called.release();  // the runtime's until it calls
  cl.clFlush(stream->queue);
  return CW_OK;
}

}  // namespace opencl

cw_status cw_stream_t::sync() {
  opencl::Event newest;
  {
    std::lock_guard<std::mutex> lock(mutex);
    put_held();
    newest = last;
  }
  // Not under the lock: others may go on putting work there.
  cl_int error = opencl::cl.clFinish(queue);
  std::lock_guard<std::mutex> lock(mutex);
  look_back();
  if (newest.status() < 0) note_failure(opencl::check(newest.status(), "a command"));
  if (last.get() == newest.get()) last = {};
  if (error != CL_SUCCESS) note_failure(opencl::check(error, "clFinish"));
  if (failed == CW_OK) return CW_OK;
  cw_status status = failed;
  failed = CW_OK;
  return opencl::fail(status, "%s", words.c_str());
}

cw_status cw_stream_t::query() {
  std::lock_guard<std::mutex> lock(mutex);
  put_held();
  if (!last) return CW_OK;
  opencl::cl.clFlush(queue);
  return last.status() <= CL_COMPLETE ? CW_OK : opencl::fail(CW_NOT_READY, "the stream has work");
}

bool cw_stream_t::is_idle() {
  std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (!lock) return false;
  put_held();
  if (last) opencl::cl.clFlush(queue);
  return last.status() <= CL_COMPLETE;
}

void cw_stream_t::follow(cl_event event) {
  constexpr size_t kMany = 32;  // by then the first have ended, and asking does not make a runtime's threads wait
  if (last) before.push_back(std::move(last));
  last = opencl::Event(event);
  if (before.size() >= kMany) look_back();
}

void cw_stream_t::look_back() {
  for (; !before.empty(); before.pop_front()) {
    const cl_int status = before.front().status();
    if (status > CL_COMPLETE) return;
    if (status < 0) note_failure(opencl::check(status, "an earlier command"));
  }
}

void cw_stream_t::note_failure(cw_status status) {
  if (failed != CW_OK) return;
  failed = status;
  words = opencl::last_error();
}
