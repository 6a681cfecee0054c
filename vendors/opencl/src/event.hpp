// Events: a place in a stream that others wait for, and, with timing, when it was reached.
#pragma once

#include "device.hpp"

namespace opencl {

cw_status event_create(int32_t index, int32_t timing, cw_event* out);
cw_status event_destroy(int32_t index, cw_event event);
cw_status event_record(int32_t index, cw_event event, cw_stream stream);
cw_status event_query(int32_t index, cw_event event);
cw_status event_sync(int32_t index, cw_event event);
cw_status event_elapsed(int32_t index, cw_event start, cw_event end, double* ms);
cw_status stream_wait(int32_t index, cw_stream stream, cw_event event);

}  // namespace opencl
