#include "error.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "causeway/op.hpp"

namespace ascend {

static thread_local char words[4096];

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

// What a core did wrong, or the chip, spoils a context: every later call on it fails.
static bool is_lost(Status result) {
  return result == kRuntimeLostHeartbeat || (result >= kRuntimeCoreTimeout && result <= kRuntimeCpuException) ||
         (result >= kRuntimeVectorTimeout && result <= kRuntimeVectorTrap) ||
         (result >= kRuntimeTrapRead && result <= kRuntimeVectorTrapWrite) || result == kRuntimeMemoryError ||
         result == kRuntimeEccError;
}

static cw_status status_of(Status result) {
  switch (result) {
    case kBadAllocation:
    case kStorageOverLimit:
    case kRuntimeAllocation:
    case kRuntimeDeviceMemory:
      return CW_OUT_OF_MEMORY;
    case kInvalidParameter:
    case kInvalidDevice:
    case kRuntimeInvalidParameter:
    case kRuntimeInvalidDevice:
    case kRuntimeInvalidHandle:
      return CW_INVALID;
    case kFeatureUnsupported:
    case kRuntimeUnsupported:
      return CW_UNSUPPORTED;
    default:
      return is_lost(result) ? CW_DEVICE_LOST : CW_FAILED;
  }
}

std::string words_of(Status result) {
  const char* said = acl.words ? acl.words() : nullptr;
  std::string text = said ? said : "";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return "result " + std::to_string(result) + (text.empty() ? ", CANN gave no words" : ": " + text);
}

cw_status check(Status result, const char* function) {
  if (result == kSuccess) return CW_OK;
  const cw_status status = status_of(result);
  // Which call is told is chance; CANN's words name the work that failed.
  const char* text = status == CW_DEVICE_LOST ? "work that it was given has failed, as %s was told: %s" : "%s: %s";
  return fail(status, text, function, words_of(result).c_str());
}

}  // namespace ascend
