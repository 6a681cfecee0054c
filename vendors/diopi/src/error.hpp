// The words that go with a status, one buffer per thread, and DIOPI's results in those terms.
#pragma once

#include "causeway/abi.h"
#include "diopi/diopirt.h"

// Leave the function with the status unless it is CW_OK.
#define TRY(expression) \
  if (cw_status try_status = (expression)) return try_status

namespace diopi {

// Keep the words for this thread's `last_error` and give `status` back: `return fail(CW_INVALID, ...)`.
cw_status fail(cw_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));
const char* last_error();

// CW_OK, or the status that fits `result`, with words that name the operator, the function, and what the library said.
cw_status check(diopiError_t result, const char* name, const char* function);

}  // namespace diopi
