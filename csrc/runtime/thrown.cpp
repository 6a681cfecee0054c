#include "runtime/thrown.h"

#include <cxxabi.h>

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/csrc/Exceptions.h>

#include "runtime/vendor.h"

namespace causeway {

constinit thread_local std::string* t_thrown = nullptr;

void forget_thrown() noexcept {
  delete t_thrown;
  t_thrown = nullptr;
}

std::string thrown_words() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  std::string words = "a C++ exception";
  if (type) words += ", " + c10::demangle(type->name());
  try {
    throw;
  } catch (const std::exception& e) {
    words += ": " + valid_utf8(e.what());
  } catch (...) {
  }
  return words;
}

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an error without words";
  }
}

cw_status keep_thrown() {
  try {
    throw;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const torch::PyTorchError&) {
    throw;
  } catch (const c10::Error&) {
    throw;
  } catch (const python_error&) {
    throw;
  } catch (...) {
    forget_thrown();
    t_thrown = new std::string(thrown_words());
    return CW_FAILED;
  }
}

}  // namespace causeway
