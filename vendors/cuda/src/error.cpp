#include "error.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "causeway/op.hpp"

namespace cuda {

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

std::string plain(const char* symbol) {
  const std::string name = symbol;
  const size_t at = name.rfind("_v2");
  return at != std::string::npos && at + 3 == name.size() ? name.substr(0, at) : name;
}

// What a kernel did wrong, or the chip, spoils a context: every later call fails with the same result.
static bool is_lost(Result result) {
  switch (result) {
    case kEccError:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kContextDestroyed:
    case kAssertFailed:
      return true;
    default:
      return result >= kStackError && result <= kLaunchFailed;  // and instructions, alignment, counters
  }
}

// CUDA writes a result's words, its kin give them back.
[[maybe_unused]] static void read_words(Result (*function)(Result, const char**), Result result, const char** out) {
  function(result, out);
}
[[maybe_unused]] static void read_words(const char* (*function)(Result), Result result, const char** out) {
  *out = function(result);
}

cw_status check_freed(Result result, const char* function) {
  return result == kDeinitialized ? CW_OK : check(result, function);
}

cw_status check(Result result, const char* function) {
  if (result == kSuccess) return CW_OK;
  if (result == kNotReady) return CW_NOT_READY;  // an answer, asked for often: no words
  cw_status status = CW_FAILED;
  if (result == kOutOfMemory) status = CW_OUT_OF_MEMORY;
  if (result == kInvalidValue || result == kInvalidHandle) status = CW_INVALID;
  if (is_lost(result)) status = CW_DEVICE_LOST;
  const char *name = nullptr, *text = nullptr;
  read_words(cu.error_name, result, &name);
  read_words(cu.error_text, result, &text);
  return fail(status, "%s: %s, %s", plain(function).c_str(), name ? name : "an unknown result",
              text ? text : "no words");
}

}  // namespace cuda
