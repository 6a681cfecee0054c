#include "stream.hpp"

#include <algorithm>

#include "error.hpp"

struct cw_event_t {
  cuda::Device* device = nullptr;
  cuda::Event event = nullptr;
  bool timing = false;
};

namespace cuda {

namespace {

cw_status check_event(const char* entry, cw_event event, Device** device) {
  if (!event) return fail(CW_INVALID, "%s: the event is NULL", entry);
  return find_device(entry, event->device->index, device);
}

}  // namespace

cw_status new_stream(Device& device, int32_t priority, cw_stream_t** out) {
  Stream made = nullptr;
  TRY(check(cu.stream_create(&made, kStreamNonBlocking, priority), symbols.stream_create));
  *out = new cw_stream_t;
  (*out)->device = &device, (*out)->stream = made;
  device.streams.push_back(*out);
  return CW_OK;
}

cw_status find_stream(const char* entry, Device& device, cw_stream handle, cw_stream_t** out) {
  if (!handle) return *out = device.default_stream, CW_OK;
  if (handle->device != &device)
    return fail(CW_INVALID, "%s: the stream is of device %d, not of %d", entry, handle->device->index, device.index);
  return *out = handle, CW_OK;
}

cw_status find_stream(const char* entry, Device& device, cw_stream handle, Stream* out) {
  cw_stream_t* found = nullptr;
  TRY(find_stream(entry, device, handle, &found));
  return *out = found->stream, CW_OK;
}

cw_status stream_create(int32_t index, int32_t priority, cw_stream* out) {
  Device* device = nullptr;
  TRY(find_device("stream_create", index, &device));
  std::lock_guard<std::mutex> lock(device->mutex);
  return new_stream(*device, priority, out);
}

cw_status stream_destroy(int32_t index, cw_stream stream) {
  Device* device = nullptr;
  TRY(find_device("stream_destroy", index, &device));
  if (!stream) return fail(CW_INVALID, "stream_destroy: the default stream always exists");
  if (stream->device != device) return fail(CW_INVALID, "stream_destroy: the stream is of another device");
  {
    std::lock_guard<std::mutex> lock(device->mutex);
    auto found = std::find(device->streams.begin(), device->streams.end(), stream);
    if (found == device->streams.end()) return fail(CW_INVALID, "stream_destroy: the stream is gone already");
    device->streams.erase(found);
  }
  const Result ended = cu.stream_sync(stream->stream);
  stream->blas.reset();
#ifdef KIN_HAS_DNN
  stream->dnn.reset();
#endif
  // before the stream that they were told of
  cu.stream_destroy(stream->stream);
  delete stream;
  return check_freed(ended, symbols.stream_sync);
}

cw_status stream_query(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("stream_query", index, &device));
  TRY(find_stream("stream_query", *device, handle, &stream));
  return check(cu.stream_query(stream), symbols.stream_query);
}

cw_status stream_sync(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("stream_sync", index, &device));
  TRY(find_stream("stream_sync", *device, handle, &stream));
  return check(cu.stream_sync(stream), symbols.stream_sync);
}

cw_status stream_wait(int32_t index, cw_stream handle, cw_event event) {
  Device* device = nullptr;
  Stream stream = nullptr;
  if (!event) return fail(CW_INVALID, "stream_wait: the event is NULL");
  TRY(find_device("stream_wait", index, &device));  // the event may be of another device
  TRY(find_stream("stream_wait", *device, handle, &stream));
  return check(cu.stream_wait(stream, event->event, 0), symbols.stream_wait);
}

cw_status stream_callback(int32_t index, cw_stream handle, void (*function)(void* context), void* context) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("stream_callback", index, &device));
  TRY(find_stream("stream_callback", *device, handle, &stream));
  if (!cu.host_function) return fail(CW_UNSUPPORTED, "the driver has no %s", symbols.host_function);
  return check(cu.host_function(stream, function, context), symbols.host_function);
}

cw_status event_create(int32_t index, int32_t timing, cw_event* out) {
  Device* device = nullptr;
  TRY(find_device("event_create", index, &device));
  Event made = nullptr;
  TRY(check(cu.event_create(&made, timing ? 0 : kEventDisableTiming), symbols.event_create));
  *out = new cw_event_t{device, made, timing != 0};
  return CW_OK;
}

cw_status event_destroy(int32_t, cw_event event) {
  Device* device = nullptr;
  TRY(check_event("event_destroy", event, &device));
  const Result ended = cu.event_destroy(event->event);
  delete event;
  return check_freed(ended, symbols.event_destroy);
}

cw_status event_record(int32_t index, cw_event event, cw_stream handle) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(check_event("event_record", event, &device));
  if (device->index != index)
    return fail(CW_INVALID, "event_record: the event is of device %d, the stream of %d", device->index, index);
  TRY(find_stream("event_record", *device, handle, &stream));
  return check(cu.event_record(event->event, stream), symbols.event_record);
}

cw_status event_query(int32_t, cw_event event) {
  Device* device = nullptr;
  TRY(check_event("event_query", event, &device));
  return check(cu.event_query(event->event), symbols.event_query);
}

cw_status event_sync(int32_t, cw_event event) {
  Device* device = nullptr;
  TRY(check_event("event_sync", event, &device));
  return check(cu.event_sync(event->event), symbols.event_sync);
}

cw_status event_elapsed(int32_t, cw_event start, cw_event end, double* ms) {
  Device* device = nullptr;
  TRY(check_event("event_elapsed", start, &device));
  TRY(check_event("event_elapsed", end, &device));
  if (!start->timing || !end->timing) return fail(CW_INVALID, "event_elapsed: an event was created without timing");
  float found = 0;
  TRY(check(cu.event_elapsed(&found, start->event, end->event), symbols.event_elapsed));
  return *ms = static_cast<double>(found), CW_OK;
}

}  // namespace cuda
