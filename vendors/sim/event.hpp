// An event: a place in a stream's order that others can ask about and wait for.
#pragma once

#include "causeway/abi.h"

namespace sim {

// Entries of the table.
cw_status stream_wait(int32_t device, cw_stream stream, cw_event event);
cw_status event_create(int32_t device, int32_t timing, cw_event* out);
cw_status event_destroy(int32_t device, cw_event event);
cw_status event_record(int32_t device, cw_event event, cw_stream stream);
cw_status event_query(int32_t device, cw_event event);
cw_status event_sync(int32_t device, cw_event event);
cw_status event_elapsed(int32_t device, cw_event start, cw_event end, double* ms);

}  // namespace sim
