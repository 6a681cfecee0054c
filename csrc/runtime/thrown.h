// What a vendor's entry throws. The contract is one of C, but many who fill it write C++: an exception of theirs, of
// any type, becomes CW_FAILED with a message, so that it names vendor and entry as every failure does, and ends no process.
#pragma once

#include <exception>
#include <string>
#include <type_traits>

#include <c10/macros/Macros.h>

#include "causeway/abi.h"

namespace causeway {

// What the last failed call of this thread threw, or nullptr: the message for last_words().
extern constinit thread_local std::string* t_thrown;
void forget_thrown() noexcept;

// What an error says, without torch's C++ backtrace.
std::string words_of(const std::exception_ptr& error);

// Of the exception that is being handled: "a C++ exception, std::runtime_error: no driver".
std::string thrown_words();
// Keep them. Rethrows what is torch's or ours, and a thread's cancellation.
cw_status keep_thrown();

// Call an entry. Costs nothing where it does not throw.
template <class F>
cw_status shielded(F&& call) {
  try {
    const cw_status status = call();
    if (C10_UNLIKELY(status != CW_OK && t_thrown != nullptr)) forget_thrown();
    return status;
  } catch (...) {
    return keep_thrown();
  }
}

}  // namespace causeway
