// Streams and events are CUDA's own. None of our streams is CUDA's default one, which would wait for all others.
#pragma once

#include <memory>

#include "blas.hpp"
#include "device.hpp"
#ifdef KIN_HAS_DNN
#include "dnn.hpp"
#endif

struct cw_stream_t {
  cuda::Device* device = nullptr;
  cuda::Stream stream = nullptr;
  // Libraries' handles are for one thread at a time, and bound to this stream; made when first used.
  std::mutex libraries;
  std::unique_ptr<cuda::BlasStream> blas;
#ifdef KIN_HAS_DNN
  std::unique_ptr<cuda::DnnStream> dnn;
#endif
};

namespace cuda {

// A NULL handle is the device's default stream.
cw_status find_stream(const char* entry, Device& device, cw_stream handle, Stream* out);
cw_status find_stream(const char* entry, Device& device, cw_stream handle, cw_stream_t** out);
// The device is current, and its mutex is held.
cw_status new_stream(Device& device, int32_t priority, cw_stream_t** out);

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

}  // namespace cuda
