// Streams and events are AscendCL's own. The default stream is one of ours: some chips take no NULL stream.
#pragma once

#include "device.hpp"

struct cw_stream_t {
  ascend::Device* device = nullptr;
  ascend::Stream stream = nullptr;
  std::atomic<bool> captured{false};  // into a graph
};

namespace ascend {

// A NULL handle is the device's default stream.
cw_status find_stream(const char* entry, Device& device, cw_stream handle, Stream* out);
// The device is current, and its mutex is held.
cw_status new_stream(Device& device, cw_stream_t** out);

cw_status stream_create(int32_t index, int32_t priority, cw_stream* out);
cw_status stream_destroy(int32_t index, cw_stream stream);
cw_status stream_query(int32_t index, cw_stream stream);
cw_status stream_sync(int32_t index, cw_stream stream);
cw_status stream_wait(int32_t index, cw_stream stream, cw_event event);
cw_status stream_callback(int32_t index, cw_stream stream, void (*function)(void* context), void* context);

cw_status event_create(int32_t index, int32_t timing, cw_event* out);
cw_status event_destroy(int32_t index, cw_event event);
cw_status event_record(int32_t index, cw_event event, cw_stream stream);
cw_status event_query(int32_t index, cw_event event);
cw_status event_sync(int32_t index, cw_event event);
cw_status event_elapsed(int32_t index, cw_event start, cw_event end, double* ms);

}  // namespace ascend
