// The words that go with a status, one buffer per thread, and the driver's results in those terms.
#pragma once

#include <string>

#include "causeway/abi.h"
#include "driver.hpp"

// Leave the function with the status unless it is CW_OK.
#define TRY(expression) \
  if (cw_status try_status = (expression)) return try_status

namespace cuda {

// Keep the words for this thread's `last_error` and give `status` back: `return fail(CW_INVALID, ...)`.
cw_status fail(cw_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));
const char* last_error();

// A function as documentation calls it: without the `_v2` of its symbol.
std::string plain(const char* symbol);

// CW_OK, or the status that fits `result`, with words that name the function of the driver.
cw_status check(Result result, const char* function);
// Of what frees something: at the end of a process the driver may be gone already, and all with it.
cw_status check_freed(Result result, const char* function);

}  // namespace cuda
