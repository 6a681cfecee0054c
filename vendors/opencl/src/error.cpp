#include "error.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace opencl {

static thread_local char words[2048];

cw_status fail(cw_status status, const char* format, ...) {
  char fresh[sizeof(words)];  // formatted aside: an argument may be last_error() itself
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fresh, sizeof(fresh), format, arguments);
  va_end(arguments);
  memcpy(words, fresh, sizeof(words));
  return status;
}

const char* last_error() { return words; }

const char* error_name(cl_int error) {
  switch (error) {
#define NAME(code) \
  case code:       \
    return #code;
    NAME(CL_SUCCESS)
    NAME(CL_DEVICE_NOT_FOUND)
    NAME(CL_DEVICE_NOT_AVAILABLE)
    NAME(CL_COMPILER_NOT_AVAILABLE)
    NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    NAME(CL_OUT_OF_RESOURCES)
    NAME(CL_OUT_OF_HOST_MEMORY)
    NAME(CL_PROFILING_INFO_NOT_AVAILABLE)
    NAME(CL_MEM_COPY_OVERLAP)
    NAME(CL_BUILD_PROGRAM_FAILURE)
    NAME(CL_MAP_FAILURE)
    NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET)
    NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    NAME(CL_INVALID_VALUE)
    NAME(CL_INVALID_DEVICE)
    NAME(CL_INVALID_CONTEXT)
    NAME(CL_INVALID_QUEUE_PROPERTIES)
    NAME(CL_INVALID_COMMAND_QUEUE)
    NAME(CL_INVALID_HOST_PTR)
    NAME(CL_INVALID_MEM_OBJECT)
    NAME(CL_INVALID_BINARY)
    NAME(CL_INVALID_BUILD_OPTIONS)
    NAME(CL_INVALID_PROGRAM)
    NAME(CL_INVALID_PROGRAM_EXECUTABLE)
    NAME(CL_INVALID_KERNEL_NAME)
    NAME(CL_INVALID_KERNEL)
    NAME(CL_INVALID_ARG_INDEX)
    NAME(CL_INVALID_ARG_VALUE)
    NAME(CL_INVALID_ARG_SIZE)
    NAME(CL_INVALID_KERNEL_ARGS)
    NAME(CL_INVALID_WORK_DIMENSION)
    NAME(CL_INVALID_WORK_GROUP_SIZE)
    NAME(CL_INVALID_WORK_ITEM_SIZE)
    NAME(CL_INVALID_EVENT_WAIT_LIST)
    NAME(CL_INVALID_EVENT)
    NAME(CL_INVALID_OPERATION)
    NAME(CL_INVALID_BUFFER_SIZE)
    NAME(CL_INVALID_GLOBAL_WORK_SIZE)
    NAME(CL_INVALID_PROPERTY)
#undef NAME
    default:
      break;
  }
  static thread_local char number[32];
  snprintf(number, sizeof(number), "OpenCL error %d", error);
  return number;
}

cw_status check(cl_int error, const char* function) {
  cw_status status = CW_FAILED;
  switch (error) {
    case CL_SUCCESS:
      return CW_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
      status = CW_OUT_OF_MEMORY;
      break;
    case CL_DEVICE_NOT_AVAILABLE:
      status = CW_DEVICE_LOST;
      break;
    default:
      break;
  }
  return fail(status, "%s: %s", function, error_name(error));
}

}  // namespace opencl
