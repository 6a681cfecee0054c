// What torch asks of an accelerator as a whole: is there one, whose memory is this, pinned memory, generators.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "runtime/allocator.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/generator.h"
#include "runtime/host_allocator.h"
#include "runtime/storage.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return vendor_loaded() && device_count_or_zero() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return device_opened(index); }
  void init() const override { device(current_device()); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count_or_zero()); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return static_cast<c10::DeviceIndex>(causeway::exchange_device(index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    if (index < 0) return static_cast<c10::DeviceIndex>(current_device());
    return exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    if (index >= device_count()) device(index);  // throws with the message for a bad index
    return at::make_generator<Generator>(index < 0 ? current_device() : index);
  }
  at::Device getDeviceFromPtr(void* pointer) const override {
    for (int i = 0, n = device_count_or_zero(); i < n; ++i) {
      if (!device_opened(i)) continue;
      for (const SegmentView& s : memory_snapshot(i))
        if (auto p = reinterpret_cast<size_t>(pointer); p >= s.address && p < s.address + s.size)
          return {kDeviceType, static_cast<c10::DeviceIndex>(i)};
    }
    fail(Kind::Causeway, "the address ", pointer, " lies in the memory of no ", vendor_name(),
         " device of this process");
  }
  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

const bool g_registered = [] {
  // torch keeps the pointer for the life of the process.
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

}  // namespace causeway
