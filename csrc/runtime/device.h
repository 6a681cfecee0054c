// Devices: how many, which is this thread's, and what each is. A device opens at its first use, never at import.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "causeway/abi.h"

namespace causeway {

constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 64;

struct DeviceState {
  int index;         // torch's
  int32_t vendor_id; // the vendor's, after CAUSEWAY_VISIBLE_DEVICES
  cw_device_info info;
  bool host_addressable;
  size_t alignment;
};

int device_count();             // throws with the driver's message when it cannot tell
int device_count_or_zero() noexcept;
int vendor_device_count();
int32_t vendor_index(int device);  // the vendor's number of a device, which need not be open
// `f` runs calls that Python deferred, once, before this process counts or opens its first device.
void set_first_use(std::function<void()> f);
void set_visible_devices(std::vector<int> indices);

int current_device() noexcept;
void set_device(int device);               // checks the index; opens nothing
int exchange_device(int device);
void set_device_unchecked(int device) noexcept;
std::string device_name(int device);       // "sim:1"

// The device, opened if need be and bound to this thread. Throws after a fork, and when the device is lost.
DeviceState& device(int index);
bool device_opened(int index) noexcept;
bool any_device_opened() noexcept;
bool in_bad_fork() noexcept;
// After a fork, and once the vendor is closed: what is freed then belongs to nobody here.
bool past_use() noexcept;

void mark_lost(int device, const std::string& words);
[[noreturn]] void fail_lost(int device);

// Devices whose autograd thread may exist; see drain_autograd_threads in autograd.cpp.
uint64_t devices_with_threads() noexcept;

c10::ScalarType dtype_of_bit(int bit);     // of cw_dtypes; Undefined where torch has none
int bit_of_dtype(c10::ScalarType dtype);   // -1 where abi.h has none
DLDataType dl_dtype(c10::ScalarType dtype);

inline bool has_dtype(const DeviceState& d, c10::ScalarType dtype) {
  const int bit = bit_of_dtype(dtype);
  return bit < 0 || ((d.info.dtypes >> bit) & 1);
}

}  // namespace causeway
