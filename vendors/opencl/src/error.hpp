// The words that go with a status, one buffer per thread, and OpenCL's errors in those terms.
#pragma once

#include "api.hpp"
#include "causeway/abi.h"

namespace opencl {

// Keep the words for this thread's `last_error` and give `status` back: `return fail(CW_INVALID, ...)`.
cw_status fail(cw_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));
const char* last_error();

// OpenCL's name of an error, "CL_OUT_OF_RESOURCES", or its number.
const char* error_name(cl_int error);
// CW_OK, or the status that fits `error`, with words that name the OpenCL function.
cw_status check(cl_int error, const char* function);

}  // namespace opencl
