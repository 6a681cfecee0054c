#include "runtime/fault.h"

#include <cstdio>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/vendor.h"

namespace causeway {

std::string fault_words(int index) {
  // The question itself may fail, and must not be asked about.
  static thread_local bool asking = false;
  if (asking || !vendor_loaded() || !api().fault || !device_opened(index)) return "";
  asking = true;
  cw_fault fault{};
  fault.struct_size = sizeof fault;
  bool known = false;
  try {
    known = api().fault(device(index).vendor_id, &fault) == CW_OK;
  } catch (const std::exception&) {
    // The device cannot be bound any more: the first failure is reported.
  }
  asking = false;
  if (!known) return "";
  fault.kernel[sizeof fault.kernel - 1] = 0;
  std::string words = fault.kernel;
  if (fault.address) {
    char address[32];
    std::snprintf(address, sizeof address, "at 0x%llx", static_cast<unsigned long long>(fault.address));
    words += c10::str(words.empty() ? "" : " ", address, ", ", words_for_address(index, fault.address));
  }
  return words.empty() ? "" : " (" + words + ")";
}

}  // namespace causeway
