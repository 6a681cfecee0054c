// The words that go with a status, one buffer per thread.
#pragma once

#include "causeway/abi.h"

namespace sim {

// Keep the words for this thread's `last_error` and give `status` back: `return fail(CW_INVALID, ...)`.
cw_status fail(cw_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));
const char* last_error();
// What entry `fault` says of this thread's last failure; `fail` forgets it.
void know_fault(const char* kernel, uint64_t address);
cw_status fault(int32_t device, cw_fault* out);
const char* status_name(cw_status status);

}  // namespace sim
