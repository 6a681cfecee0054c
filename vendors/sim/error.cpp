#include "error.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace sim {

static thread_local char words[1024];
static thread_local cw_fault known;

cw_status fail(cw_status status, const char* format, ...) {
  // Formatted aside first: an argument may be last_error() itself.
  char fresh[sizeof(words)];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fresh, sizeof(fresh), format, arguments);
  va_end(arguments);
  __builtin_memcpy(words, fresh, sizeof(words));
  known = {};
  return status;
}

const char* last_error() { return words; }

void know_fault(const char* kernel, uint64_t address) {
  snprintf(known.kernel, sizeof(known.kernel), "%s", kernel);
  known.address = address;
}

cw_status fault(int32_t, cw_fault* out) {
  if (!known.kernel[0]) return CW_UNSUPPORTED;
  known.struct_size = out->struct_size;
  memcpy(out, &known, std::min<size_t>(out->struct_size, sizeof(known)));
  return CW_OK;
}

const char* status_name(cw_status status) {
  static const char* const names[] = {"OK",          "UNSUPPORTED", "OUT_OF_MEMORY", "INVALID",
                                      "DEVICE_LOST", "FAILED",      "NOT_READY"};
  return status >= 0 && status <= CW_NOT_READY ? names[status] : "an unknown status";
}

}  // namespace sim
