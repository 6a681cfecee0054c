#include "stream.hpp"

#include <algorithm>

#include "error.hpp"

struct cw_event_t {
  ascend::Device* device = nullptr;
  ascend::Event event = nullptr;
  bool timing = false;
  std::atomic<bool> recorded{false};  // before that nothing is to be waited for, which not every version knows
};

namespace ascend {

namespace {

cw_status check_event(const char* entry, cw_event event, Device** device) {
  if (!event) return fail(CW_INVALID, "%s: the event is NULL", entry);
  return find_device(entry, event->device->index, device);
}

}  // namespace

cw_status new_stream(Device& device, cw_stream_t** out) {
  Stream made = nullptr;
  const cw_status status =
      acl.stream_create_with
          ? check(acl.stream_create_with(&made, 0, kStreamFastLaunch | kStreamFastSync), "aclrtCreateStreamWithConfig")
          : check(acl.stream_create(&made), "aclrtCreateStream");
  TRY(status);
  *out = new cw_stream_t;
  (*out)->device = &device, (*out)->stream = made;
  device.streams.push_back(*out);
  return CW_OK;
}

cw_status find_stream(const char* entry, Device& device, cw_stream handle, Stream* out) {
  const cw_stream_t* found = handle ? handle : device.default_stream;
  if (found->device != &device)
    return fail(CW_INVALID, "%s: the stream is of device %d, not of %d", entry, found->device->index, device.index);
  return *out = found->stream, CW_OK;
}

// Priorities are reserved in AscendCL: all streams are alike.
cw_status stream_create(int32_t index, int32_t, cw_stream* out) {
  Device* device = nullptr;
  TRY(find_device("stream_create", index, &device));
  std::lock_guard<std::mutex> lock(device->mutex);
  return new_stream(*device, out);
}

cw_status stream_destroy(int32_t index, cw_stream stream) {
  Device* device = nullptr;
  TRY(find_device("stream_destroy", index, &device));
  if (!stream) return fail(CW_INVALID, "stream_destroy: the default stream always exists");
  {
    std::lock_guard<std::mutex> lock(device->mutex);
    auto found = std::find(device->streams.begin(), device->streams.end(), stream);
    if (found == device->streams.end())
      return fail(CW_INVALID, "stream_destroy: device %d has no such stream", device->index);
    device->streams.erase(found);
  }
  const Status ended = acl.stream_sync(stream->stream), destroyed = acl.stream_destroy(stream->stream);
  delete stream;
  TRY(check(ended, "aclrtSynchronizeStream"));
  return check(destroyed, "aclrtDestroyStream");
}

cw_status stream_query(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("stream_query", index, &device));
  TRY(find_stream("stream_query", *device, handle, &stream));
  int status = kStreamComplete;
  TRY(check(acl.stream_status(stream, &status), "aclrtStreamQuery"));
  return status == kStreamComplete ? CW_OK : CW_NOT_READY;
}

cw_status stream_sync(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("stream_sync", index, &device));
  TRY(find_stream("stream_sync", *device, handle, &stream));
  return check(acl.stream_sync(stream), "aclrtSynchronizeStream");
}

cw_status stream_wait(int32_t index, cw_stream handle, cw_event event) {
  Device* device = nullptr;
  Stream stream = nullptr;
  if (!event) return fail(CW_INVALID, "stream_wait: the event is NULL");
  TRY(find_device("stream_wait", index, &device));  // the event may be of another device
  TRY(find_stream("stream_wait", *device, handle, &stream));
  return event->recorded ? check(acl.stream_wait(stream, event->event), "aclrtStreamWaitEvent") : CW_OK;
}

cw_status stream_callback(int32_t index, cw_stream handle, void (*function)(void* context), void* context) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("stream_callback", index, &device));
  TRY(find_stream("stream_callback", *device, handle, &stream));
  if (!acl.host_function) return fail(CW_UNSUPPORTED, "this CANN has no aclrtLaunchHostFunc");
  return check(acl.host_function(stream, function, context), "aclrtLaunchHostFunc");
}

cw_status event_create(int32_t index, int32_t timing, cw_event* out) {
  Device* device = nullptr;
  TRY(find_device("event_create", index, &device));
  Event made = nullptr;
  const uint32_t flags = timing ? kEventSync | kEventTimeLine : kEventSync;
  TRY(check(acl.event_create(&made, flags), "aclrtCreateEventExWithFlag"));
  *out = new cw_event_t;
  (*out)->device = device, (*out)->event = made, (*out)->timing = timing != 0;
  return CW_OK;
}

cw_status event_destroy(int32_t, cw_event event) {
  Device* device = nullptr;
  TRY(check_event("event_destroy", event, &device));
  const Status ended = acl.event_destroy(event->event);
  delete event;
  return check(ended, "aclrtDestroyEvent");
}

cw_status event_record(int32_t index, cw_event event, cw_stream handle) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(check_event("event_record", event, &device));
  if (device->index != index)
    return fail(CW_INVALID, "event_record: the event is of device %d, the stream of %d", device->index, index);
  TRY(find_stream("event_record", *device, handle, &stream));
  TRY(check(acl.event_record(event->event, stream), "aclrtRecordEvent"));
  return event->recorded = true, CW_OK;
}

cw_status event_query(int32_t, cw_event event) {
  Device* device = nullptr;
  TRY(check_event("event_query", event, &device));
  if (!event->recorded) return CW_OK;
  int status = kEventComplete;
  TRY(check(acl.event_status(event->event, &status), "aclrtQueryEventStatus"));
  return status == kEventComplete ? CW_OK : CW_NOT_READY;
}

cw_status event_sync(int32_t, cw_event event) {
  Device* device = nullptr;
  TRY(check_event("event_sync", event, &device));
  return event->recorded ? check(acl.event_sync(event->event), "aclrtSynchronizeEvent") : CW_OK;
}

cw_status event_elapsed(int32_t, cw_event start, cw_event end, double* ms) {
  Device* device = nullptr;
  TRY(check_event("event_elapsed", end, &device));
  TRY(check_event("event_elapsed", start, &device));
  if (!start->timing || !end->timing) return fail(CW_INVALID, "event_elapsed: an event was created without timing");
  if (!start->recorded || !end->recorded) return fail(CW_INVALID, "event_elapsed: an event was never recorded");
  float found = 0;
  TRY(check(acl.event_elapsed(&found, start->event, end->event), "aclrtEventElapsedTime"));
  return *ms = static_cast<double>(found), CW_OK;
}

}  // namespace ascend
