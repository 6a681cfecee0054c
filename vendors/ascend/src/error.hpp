// The words that go with a status, one buffer per thread, and CANN's results in those terms.
#pragma once

#include "acl.hpp"
#include "causeway/abi.h"

// Leave the function with the status unless it is CW_OK.
#define TRY(expression) \
  if (cw_status try_status = (expression)) return try_status

namespace ascend {

// Keep the words for this thread's `last_error` and give `status` back: `return fail(CW_INVALID, ...)`.
cw_status fail(cw_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));
const char* last_error();

// CW_OK, or the status that fits `result`, with words that name the function and what CANN said of it.
cw_status check(Status result, const char* function);
std::string words_of(Status result);  // "result 107002: ..."

}  // namespace ascend
