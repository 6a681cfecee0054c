// Errors that C++ raises: each becomes a class of causeway.errors in Python and carries what happened, where, and
// what to do. torch carries them through autograd threads and its own catch-alls unchanged.
#pragma once

#include <torch/csrc/Exceptions.h>

#include <c10/util/StringUtil.h>

#include "causeway/abi.h"

namespace causeway {

enum class Kind { Causeway, Vendor, DeviceLost, Fallback, UnsupportedDtype, Index };
constexpr int kKinds = 6;

struct Error : torch::PyTorchError {
  Error(Kind kind, std::string message) : torch::PyTorchError(std::move(message)), kind(kind) {}
  PyObject* python_type() override;
  Kind kind;
};

// The Python class that stands for `kind`, by its name without "Error"; a new reference is kept for good.
void set_error_type(const std::string& name, PyObject* type);

template <class... Parts>
[[noreturn]] void fail(Kind kind, const Parts&... parts) {
  throw Error(kind, c10::str(parts...));
}

const char* status_name(cw_status status);

// Throw for a status that is not CW_OK: what was asked of which device, and the vendor's message. Remembers that a
// device is lost, so that later calls say so at once.
[[noreturn]] void fail_status(cw_status status, const char* entry, int device, const std::string& detail = "");

inline void check(cw_status status, const char* entry, int device) {
  if (C10_UNLIKELY(status != CW_OK)) fail_status(status, entry, device);
}

}  // namespace causeway
