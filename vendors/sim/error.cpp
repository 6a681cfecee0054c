#include "error.hpp"

#include <cstdarg>
#include <cstdio>

namespace sim {

static thread_local char words[1024];

cw_status fail(cw_status status, const char* format, ...) {
  // Formatted aside first: an argument may be last_error() itself.
  char fresh[sizeof(words)];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fresh, sizeof(fresh), format, arguments);
  va_end(arguments);
  __builtin_memcpy(words, fresh, sizeof(words));
  return status;
}

const char* last_error() { return words; }

const char* status_name(cw_status status) {
  static const char* const names[] = {"OK",          "UNSUPPORTED", "OUT_OF_MEMORY", "INVALID",
                                      "DEVICE_LOST", "FAILED",      "NOT_READY"};
  return status >= 0 && status <= CW_NOT_READY ? names[status] : "an unknown status";
}

}  // namespace sim
