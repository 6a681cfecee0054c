#include "profile.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "error.hpp"
#include "stream.hpp"

namespace opencl {

namespace {

struct Noted {
  uint64_t correlation;
  const char* name;
  Event event;
};

std::atomic<bool> on{false};
std::mutex mutex;
std::deque<Noted>& noted() {
  static auto* all = new std::deque<Noted>;  // queues outlive statics
  return *all;
}
thread_local uint64_t current = 0;

// The clock of the events' times is the runtime's own (PoCL's is not the host's steady clock, and OpenCL 2.1's
// clGetDeviceAndHostTimer is in few runtimes): so it is read off a marker, on a queue with nothing else on it.
cw_status read_clock(const Device& device, int64_t* ns) {
  cl_int error = CL_SUCCESS;
  cl_command_queue queue = cl.clCreateCommandQueue(context(), device.id, CL_QUEUE_PROFILING_ENABLE, &error);
  if (cw_status status = check(error, "clCreateCommandQueue")) return status;
  cl_event marker = nullptr;
  cl_ulong now = 0;
  error = cl.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker);
  if (error == CL_SUCCESS) {
    Event event(marker);
    error = cl.clFinish(queue);
    if (error == CL_SUCCESS) {
      error = cl.clGetEventProfilingInfo(marker, CL_PROFILING_COMMAND_END, sizeof(now), &now, nullptr);
    }
  }
  cl.clReleaseCommandQueue(queue);
  *ns = static_cast<int64_t>(now);
  return check(error, "a marker for the clock");
}

cw_status clock(int32_t index, int64_t* ns) {
  Device* device = nullptr;
  if (cw_status status = find_device("profile clock", index, &device)) return status;
  return read_clock(*device, ns);
}

cw_status start() {
  std::lock_guard<std::mutex> lock(mutex);
  noted().clear();
  on = true;
  return CW_OK;
}

cw_status stop() {
  on = false;
  return CW_OK;
}

cw_status correlate(uint64_t id) {
  current = id;
  return CW_OK;
}

cw_status read(cw_activity* out, uint32_t capacity, uint32_t* count) {
  std::lock_guard<std::mutex> lock(mutex);
  *count = 0;
  while (*count < capacity && !noted().empty()) {
    Noted& next = noted().front();
    cl_ulong begin = 0, end = 0;
    cl_event event = next.event.get();
    if (cl.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(begin), &begin, nullptr) == CL_SUCCESS &&
        cl.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, nullptr) == CL_SUCCESS) {
      out[(*count)++] = {next.correlation, static_cast<int64_t>(begin), static_cast<int64_t>(end), next.name};
    }
    noted().pop_front();
  }
  return CW_OK;
}

}  // namespace

bool measures(Device& device) {
  std::call_once(device.asked, [&] {
    int64_t before = 0, after = 0;
    const bool told = read_clock(device, &before) == CW_OK;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    device.measures = told && read_clock(device, &after) == CW_OK && after != before;
  });
  return device.measures;
}

bool profiling() { return on.load(std::memory_order_relaxed); }

void note(const char* name, const Event& event) {
  std::lock_guard<std::mutex> lock(mutex);
  noted().push_back({current, name, event});
}

const cw_profile_v1 profile_table = {sizeof(cw_profile_v1), 0, clock, start, stop, correlate, read};

}  // namespace opencl
