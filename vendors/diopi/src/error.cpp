#include "error.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "causeway/op.hpp"
#include "library.hpp"

namespace diopi {

static thread_local char words[2048];

cw_status fail(cw_status status, const char* format, ...) {
  char fresh[sizeof(words)];  // formatted aside: an argument may be last_error() itself
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fresh, sizeof(fresh), format, arguments);
  va_end(arguments);
  memcpy(words, fresh, strlen(fresh) + 1);
  cw::words[0] = 0;
  return status;
}

// Of op.hpp where a kernel's arguments did not fit, which is later than what we kept.
const char* last_error() { return cw::words[0] ? cw::words : words; }

static const char* name_of(diopiError_t result) {
  switch (result) {
    case diopiErrorOccurred:
      return "diopiErrorOccurred";
    case diopiNotInited:
      return "diopiNotInited";
    case diopi5DNotSupported:
      return "diopi5DNotSupported";
    case diopiNoImplement:
      return "diopiNoImplement";
    case diopiForceFallbackToCPU:
      return "diopiForceFallbackToCPU";
    case diopiDtypeNotSupported:
      return "diopiDtypeNotSupported";
    default:
      return "an error";
  }
}

cw_status check(diopiError_t result, const char* name, const char* function) {
  if (result == diopiSuccess) return CW_OK;
  const bool declined = result == diopi5DNotSupported || result == diopiNoImplement ||
                        result == diopiForceFallbackToCPU || result == diopiDtypeNotSupported;
  const char* said = said_last();
  return fail(declined ? CW_UNSUPPORTED : CW_FAILED, "%s: %s gave %s (%d): %s", name, function, name_of(result),
              static_cast<int>(result), said && *said ? said : "the library gave no words");
}

}  // namespace diopi
