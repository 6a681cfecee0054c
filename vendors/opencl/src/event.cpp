#include "event.hpp"

#include <chrono>

#include "error.hpp"
#include "profile.hpp"
#include "stream.hpp"

struct cw_event_t {
  opencl::Device* device = nullptr;
  bool timing = false;
  std::mutex mutex;  // of what follows
  bool recorded = false;
  opencl::Event place;  // none: the stream was idle
  cl_ulong reached = 0;  // when, by the host's clock in ns, where the driver measures nothing
};

namespace opencl {

namespace {

cw_status check_event(const char* entry, cw_event event) {
  return event ? CW_OK : fail(CW_INVALID, "%s: the event is NULL", entry);
}

Event place_of(cw_event event) {
  std::lock_guard<std::mutex> lock(event->mutex);
  return event->place;
}

cw_status time_of(cw_event event, cl_ulong* ns) {
  if (cw_status status = check_event("event_elapsed", event)) return status;
  if (!event->timing) return fail(CW_INVALID, "event_elapsed: an event was created without timing");
  Event place = place_of(event);
  if (!place) return fail(CW_INVALID, "event_elapsed: an event was never recorded");
  if (place.status() > CL_COMPLETE) return fail(CW_NOT_READY, "event_elapsed: an event is not reached yet");
  if (!measures(*event->device)) {
    std::lock_guard<std::mutex> lock(event->mutex);
    return *ns = event->reached, CW_OK;
  }
  return check(cl.clGetEventProfilingInfo(place.get(), CL_PROFILING_COMMAND_END, sizeof(*ns), ns, nullptr),
               "clGetEventProfilingInfo");
}

}  // namespace

cw_status event_create(int32_t index, int32_t timing, cw_event* out) {
  Device* device = nullptr;
  if (cw_status status = find_device("event_create", index, &device)) return status;
  *out = new cw_event_t;
  (*out)->device = device;
  (*out)->timing = timing != 0;
  return CW_OK;
}

cw_status event_destroy(int32_t, cw_event event) {
  if (cw_status status = check_event("event_destroy", event)) return status;
  delete event;
  return CW_OK;
}

cw_status event_record(int32_t index, cw_event event, cw_stream handle) {
  Device* device = nullptr;
  if (cw_status status = find_device("event_record", index, &device)) return status;
  if (cw_status status = check_event("event_record", event)) return status;
  if (event->device != device) {
    return fail(CW_INVALID, "event_record: the event is of device %d, the stream of device %d", event->device->index,
                index);
  }
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream("event_record", *device, handle, &stream)) return status;
  Event place;
  if (event->timing) {  // when it is reached: a marker of its own
    cl_event marker = nullptr;
    std::lock_guard<std::mutex> lock(stream->mutex);
    stream->put_held();
    cl_int error = cl.clEnqueueMarkerWithWaitList(stream->queue, 0, nullptr, &marker);
    if (cw_status status = check(error, "clEnqueueMarkerWithWaitList")) return status;
    stream->follow(marker);
    place = stream->last;
  } else {  // that it is reached: the newest thing there is
    std::lock_guard<std::mutex> lock(stream->mutex);
    stream->put_held();
    place = stream->last;
  }
  // Else another stream, or the host, could wait for what was never handed to the device.
  cl.clFlush(stream->queue);
  cl_ulong reached = 0;
  if (event->timing && !measures(*device)) {
    // The host has to see it: Mesa's driver tells that a marker was reached only when it is waited for.
    cl_event waited = place.get();
    cl.clWaitForEvents(1, &waited);  // what failed is the stream's to tell
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    reached = static_cast<cl_ulong>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }
  std::lock_guard<std::mutex> lock(event->mutex);
  event->reached = reached;
  event->recorded = true;
  event->place = std::move(place);
  return CW_OK;
}

cw_status stream_wait(int32_t index, cw_stream handle, cw_event event) {
  Device* device = nullptr;
  if (cw_status status = find_device("stream_wait", index, &device)) return status;
  if (cw_status status = check_event("stream_wait", event)) return status;
  Event place = place_of(event);
  if (!place || place.status() <= CL_COMPLETE) return CW_OK;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream("stream_wait", *device, handle, &stream)) return status;
  std::lock_guard<std::mutex> lock(stream->mutex);
  stream->put_held();
  cl_event waited = place.get(), barrier = nullptr;
  cl_int error = cl.clEnqueueBarrierWithWaitList(stream->queue, 1, &waited, &barrier);
  if (cw_status status = check(error, "clEnqueueBarrierWithWaitList")) return status;
  stream->follow(barrier);
  return CW_OK;
}

cw_status event_query(int32_t, cw_event event) {
  if (cw_status status = check_event("event_query", event)) return status;
  Event place = place_of(event);
  return !place || place.status() <= CL_COMPLETE ? CW_OK : fail(CW_NOT_READY, "the event is not reached yet");
}

cw_status event_sync(int32_t, cw_event event) {
  if (cw_status status = check_event("event_sync", event)) return status;
  Event place = place_of(event);
  if (!place) return CW_OK;
  cl_event waited = place.get();
  cl_int error = cl.clWaitForEvents(1, &waited);
  // What failed is the stream's to tell, and is told by its next sync.
  return error == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST ? CW_OK : check(error, "clWaitForEvents");
}

cw_status event_elapsed(int32_t, cw_event start, cw_event end, double* ms) {
  cl_ulong from = 0, to = 0;
  if (cw_status status = time_of(start, &from)) return status;
  if (cw_status status = time_of(end, &to)) return status;
  *ms = (static_cast<double>(to) - static_cast<double>(from)) * 1e-6;
  return CW_OK;
}

}  // namespace opencl
