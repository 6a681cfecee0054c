// torch's view of devices, streams and events (DeviceGuardImplInterface), over device.h and stream.h.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/stream.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

c10::Device torch_device(int index) { return c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(index)); }
int index_of(c10::Device d) { return d.has_index() ? d.index() : current_device(); }
// What a user wrote may be of no device.
int checked_index(c10::Device d) {
  const int index = index_of(d);
  if (C10_UNLIKELY(index >= device_count())) device(index);  // throws with the message for a bad index
  return index;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device d) const override { return torch_device(exchange_device(index_of(d))); }
  c10::Device getDevice() const override { return torch_device(current_device()); }
  void setDevice(c10::Device d) const override { set_device(index_of(d)); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { set_device_unchecked(index_of(d)); }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count_or_zero());
  }

  c10::Stream getStream(c10::Device d) const override { return as_torch(current_stream(checked_index(d))); }
  c10::Stream getDefaultStream(c10::Device d) const override { return as_torch(default_stream(checked_index(d))); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool high) const override {
    const int index = index_of(d);
    const auto& info = device(index).info;
    return as_torch(stream_from_pool(index, high ? info.priority_highest : info.priority_lowest));
  }
  c10::Stream getNewStream(c10::Device d, int priority) const override {
    return as_torch(stream_from_pool(index_of(d), priority));
  }
  c10::Stream exchangeStream(c10::Stream s) const override { return exchange_stream(s); }
  bool queryStream(const c10::Stream& s) const override { return stream_of(s).query(); }
  // Without `override`: torch 2.11 does not ask for it.
  bool isStreamCapturing(const c10::Stream& s) const {
    return graph_of(stream_of(s)) != nullptr;
  }  // NOLINT(*-override)
  void synchronizeStream(const c10::Stream& s) const override { stream_of(s).wait(); }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    const int which = index < 0 ? current_device() : index;
    refuse_in_capture(which, "a wait of the host for the device");
    sync_device(which);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& s) const override { record_stream(data, s); }
  void* getStreamNativeHandle(const c10::Stream s) const override { return stream_of(s).handle; }
  c10::DeviceCapability getDeviceCapability(c10::Device d) const override {
    c10::DeviceCapability capability;
    const DeviceState& state = device(index_of(d));
    // Bit i of torch's mask is scalar type i.
    for (int i = 0; i < static_cast<int>(c10::NUMBER_OF_DEVICE_CAPABILITIES) && i < 64; ++i) {
      const auto dtype = static_cast<c10::ScalarType>(i);
      if (bit_of_dtype(dtype) < 0 || !has_dtype(state, dtype))
        capability.capability_data.capability_bits &= ~(1ULL << i);
    }
    return capability;
  }

  void record(void** event, const c10::Stream& s, const c10::DeviceIndex index,
              const c10::EventFlag flag) const override {
    StreamState& stream = stream_of(s);
    if (!*event) *event = new_event(index < 0 ? stream.device : index, flag == c10::EventFlag::BACKEND_DEFAULT);
    record_event(*static_cast<Event*>(*event), stream);
  }
  void block(void* event, const c10::Stream& s) const override {
    if (event) block_stream(stream_of(s), *static_cast<Event*>(event));
  }
  bool queryEvent(void* event) const override { return !event || query_event(*static_cast<Event*>(event)); }
  void synchronizeEvent(void* event) const override {
    if (event) sync_event(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    destroy_event(static_cast<Event*>(event));
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    static const Event none{};
    return elapsed_ms(start ? *static_cast<Event*>(start) : none, end ? *static_cast<Event*>(end) : none);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

}  // namespace causeway
