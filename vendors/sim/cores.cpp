#include "cores.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "device.hpp"
#include "error.hpp"
#include "fault.hpp"
#include "stream.hpp"
#include "workers.hpp"

namespace sim {

namespace {

std::mutex mutex;
using Limits = std::map<std::pair<int32_t, cw_stream>, uint32_t>;  // of a process's device: by a stream that is none
Limits& limits() {
  static auto* all = new Limits;  // threads may outlive static destructors
  return *all;
}
const cw_stream whole = reinterpret_cast<cw_stream>(-1);

uint32_t limit_of(int32_t device, cw_stream stream) {
  const auto found = limits().find({device, stream});
  return found == limits().end() ? compute_units() : found->second;
}

cw_status set(const char* entry, int32_t device, cw_stream stream, uint32_t cores) {
  if (cores > compute_units()) return fail(CW_INVALID, "%s: %u of %u cores", entry, cores, compute_units());
  std::lock_guard<std::mutex> lock(mutex);
  if (cores)
    limits()[{device, stream}] = cores;
  else
    limits().erase({device, stream});
  return CW_OK;
}

cw_status find(const char* entry, int32_t index, cw_stream stream) {
  if (cw_status status = injected_fault(entry, nullptr)) return status;
  if (index < 0 || index >= settings().devices) return fail(CW_INVALID, "%s: there is no device %d", entry, index);
  cw_stream_t* found = nullptr;
  return stream ? find_stream(*device_at(index), stream, &found) : CW_OK;
}

cw_status device_cores(int32_t device, uint32_t* now, uint32_t* most) {
  if (cw_status status = find("device_cores", device, nullptr)) return status;
  std::lock_guard<std::mutex> lock(mutex);
  return *now = limit_of(device, whole), *most = compute_units(), CW_OK;
}

cw_status set_device_cores(int32_t device, uint32_t cores) {
  if (cw_status status = find("set_device_cores", device, nullptr)) return status;
  return set("set_device_cores", device, whole, cores);
}

cw_status stream_cores(int32_t device, cw_stream stream, uint32_t* now) {
  if (cw_status status = find("stream_cores", device, stream)) return status;
  return *now = cores_of(device, stream), CW_OK;
}

cw_status set_stream_cores(int32_t device, cw_stream stream, uint32_t cores) {
  if (cw_status status = find("set_stream_cores", device, stream)) return status;
  return set("set_stream_cores", device, stream, cores);
}

}  // namespace

const cw_cores_v1 cores_table = {sizeof(cw_cores_v1), 0, device_cores, set_device_cores, stream_cores,
                                 set_stream_cores};

uint32_t cores_of(int32_t device, cw_stream stream) {
  std::lock_guard<std::mutex> lock(mutex);
  return std::min(limit_of(device, whole), limit_of(device, stream));
}

}  // namespace sim
