#include "runtime/cores.h"

#include "causeway/cores.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

const cw_cores_v1* table(bool of_a_stream) {
  const auto* t = static_cast<const cw_cores_v1*>(vendor_extension("cores.v1"));
  if (!t || !t->device_cores || !t->set_device_cores) return nullptr;
  return of_a_stream && !(t->stream_cores && t->set_stream_cores) ? nullptr : t;
}

}  // namespace

std::optional<std::pair<uint32_t, uint32_t>> cores(int index, const std::optional<c10::Stream>& stream) {
  const DeviceState& d = device(index);
  const cw_cores_v1* t = table(stream.has_value());
  if (!t) return std::nullopt;
  uint32_t now = 0, most = 0;
  check(t->device_cores(d.vendor_id, &now, &most), "device_cores", index);
  if (stream) check(t->stream_cores(d.vendor_id, stream_of(*stream).handle, &now), "stream_cores", index);
  return std::pair(now, most);
}

void set_cores(int index, const std::optional<c10::Stream>& stream, uint32_t limit) {
  const DeviceState& d = device(index);
  const cw_cores_v1* t = table(stream.has_value());
  if (!t)
    fail(Kind::Vendor, vendor_name(), " gives no share of a device's cores", stream ? " to a stream" : "",
         ": its library has no ", stream ? "set_stream_cores in " : "", "cores.v1");
  if (stream)
    check(t->set_stream_cores(d.vendor_id, stream_of(*stream).handle, limit), "set_stream_cores", index);
  else
    check(t->set_device_cores(d.vendor_id, limit), "set_device_cores", index);
}

}  // namespace causeway
