#include "runtime/check.h"

#include <cstdio>

#include "runtime/device.h"
#include "runtime/fault.h"
#include "runtime/vendor.h"

namespace causeway {

static PyObject* g_types[kKinds];
static const char* const kKindNames[kKinds] = {"Causeway", "Vendor",           "DeviceLost",
                                               "Fallback", "UnsupportedDtype", "Index"};

void set_error_type(const std::string& name, PyObject* type) {
  for (int i = 0; i < kKinds; ++i) {
    if (name == kKindNames[i]) {
      Py_INCREF(type);
      g_types[i] = type;
      return;
    }
  }
  throw torch::TypeError("no error kind is called " + name);
}

PyObject* Error::python_type() {
  PyObject* type = g_types[static_cast<int>(kind)];
  return type ? type : PyExc_RuntimeError;
}

const char* status_name(cw_status status) {
  static const char* const names[] = {"OK",          "UNSUPPORTED", "OUT_OF_MEMORY", "INVALID",
                                      "DEVICE_LOST", "FAILED",      "NOT_READY"};
  if (status >= 0 && status < 7) return names[status];
  static thread_local char number[64];
  std::snprintf(number, sizeof number, "status %d, which abi.h does not know", static_cast<int>(status));
  return number;
}

void fail_status(cw_status status, const char* entry, int device, const std::string& detail) {
  const std::string where = device >= 0 ? c10::str(device_name(device)) : vendor_name();
  std::string words = last_words();
  if (status != CW_OUT_OF_MEMORY) words += fault_words(device);
  if (status == CW_DEVICE_LOST) {
    mark_lost(device, words);
    fail_lost(device);
  }
  if (status == CW_OUT_OF_MEMORY) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, where, " is out of memory in ", entry, detail, ": ", words,
                     ". Use smaller batches, or free tensors first.");
  }
  const char* remedy =
      status == CW_INVALID
          ? "The call was wrong for this device: this is a bug of Causeway or of the vendor's library unless "
            "the words above name a setting."
          : "Run `causeway doctor`; the vendor's log may say more.";
  fail(Kind::Vendor, where, ": ", entry, " failed with ", status_name(status), detail, ": ", words, ". ", remedy);
}

}  // namespace causeway
