#include "device.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

#include "error.hpp"
#include "stream.hpp"

namespace cuda {

cw_host host = {};

std::string setting(const char* key) {
  const char* text = host.setting ? host.setting(key) : nullptr;
  return text ? text : "";
}

bool torch_asks(const char* key, const char* value) {
  const char* text = host.setting ? host.setting(key) : nullptr;
  return text && strcmp(text, value) == 0;
}

namespace {

struct Opened {
  cw_status status = CW_OK;
  std::string words;
  std::vector<std::unique_ptr<Device>> devices;
};

cw_status open_devices(Opened& all) {
  if (const char* words = open_driver(); *words) return fail(CW_FAILED, "%s", words);
  const Result started = cu.init(0);
  if (started == kNoDevice) return CW_OK;  // no device is no error
  TRY(check(started, symbols.init));
  int count = 0;
  const Result counted = cu.device_count(&count);
  if (counted == kNoDevice) return CW_OK;  // HIP says so here
  TRY(check(counted, symbols.device_count));
  for (int i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    device->index = i;
    TRY(check(cu.device_get(&device->id, i), symbols.device_get));
    device->major = device->attribute(kCapabilityMajor);
    device->minor = device->attribute(kCapabilityMinor);
    device->warp = device->attribute(kWarpSize);
    TRY(kin::architecture_of(*device, &device->architecture));
    all.devices.push_back(std::move(device));
  }
  return CW_OK;
}

cw_status open(Opened** out) {
  static const auto& all = *[] {
    auto* made = new Opened;  // as long as the process
    made->status = open_devices(*made);
    if (made->status) {
      made->words = last_error();
      made->devices.clear();
    }
    return made;
  }();
  *out = const_cast<Opened*>(&all);
  return all.status ? fail(all.status, "%s", all.words.c_str()) : CW_OK;
}

// The context and its default stream cost memory on the GPU: not before the device is used.
cw_status start(Device& device) {
  if (device.started.load(std::memory_order_acquire)) return check(cu.set_current(device.context), symbols.set_current);
  std::lock_guard<std::mutex> lock(device.mutex);
  if (device.context == kNoContext) TRY(check(cu.retain(&device.context, device.id), symbols.retain));
  TRY(check(cu.set_current(device.context), symbols.set_current));
  if (!device.default_stream) TRY(new_stream(device, 0, &device.default_stream));
  device.started.store(true, std::memory_order_release);
  return CW_OK;
}

}  // namespace

int Device::attribute(int which) const {
  int value = 0;
  return cu.attribute(&value, which, id) == kSuccess ? value : 0;
}

cw_status find_device(const char* entry, int32_t index, Device** out) {
  Opened* all = nullptr;
  TRY(open(&all));
  const auto count = static_cast<int32_t>(all->devices.size());
  if (index < 0 || index >= count)
    return fail(CW_INVALID, "%s: there is no device %d, there are %d", entry, index, count);
  *out = all->devices[static_cast<size_t>(index)].get();
  return start(**out);
}

cw_status find_any_device(const char* entry, Device** out) {
  Opened* all = nullptr;
  TRY(open(&all));
  for (const auto& device : all->devices)
    if (device->started.load(std::memory_order_acquire)) return find_device(entry, device->index, out);
  return find_device(entry, 0, out);
}

cw_status bind(int32_t index) {
  Device* device = nullptr;
  return find_device("bind", index, &device);
}

cw_status device_count(int32_t* out) {
  Opened* all = nullptr;
  TRY(open(&all));
  *out = static_cast<int32_t>(all->devices.size());
  return CW_OK;
}

cw_status device_info(int32_t index, cw_device_info* out) {
  Device* device = nullptr;
  TRY(find_device("device_info", index, &device));
  cw_device_info info = {};
  info.struct_size = out->struct_size;
  cu.device_name(info.name, sizeof(info.name) - 1, device->id);
  size_t bytes = 0;
  TRY(check(cu.device_memory(&bytes, device->id), symbols.device_memory));
  info.memory = bytes;
  info.dtypes = CW_ALL_DTYPES;
  info.alignment = 256;
  info.compute_units = static_cast<uint32_t>(device->attribute(kMultiprocessors));
  info.capability_major = device->major;
  info.capability_minor = device->minor;
  if (cu.device_uuid) cu.device_uuid(info.uuid, device->id);
  if (cu.priorities) cu.priorities(&info.priority_lowest, &info.priority_highest);
  memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof(info)));
  return CW_OK;
}

cw_status sync(int32_t index) {
  Device* device = nullptr;
  TRY(find_device("sync", index, &device));
  return check(cu.synchronize(), symbols.synchronize);
}

cw_status peer_access(int32_t index, int32_t peer, int32_t* out) {
  Device *device = nullptr, *other = nullptr;
  TRY(find_device("peer_access", peer, &other));
  TRY(find_device("peer_access", index, &device));  // last: it is this thread's
  if (!cu.can_access || !cu.enable_peer) return *out = 0, CW_OK;
  int can = 0;
  TRY(check(cu.can_access(&can, device->id, other->id), symbols.can_access));
  *out = can != 0;
  if (!can) return CW_OK;
  const Result enabled = cu.enable_peer(other->context, 0);
  return enabled == kPeerAlreadyEnabled ? CW_OK : check(enabled, symbols.enable_peer);
}

cw_status device_attribute(int32_t index, const char* key, cw_arg* out) {
  Device* device = nullptr;
  TRY(find_device("device_attribute", index, &device));
  struct Number {
    const char* key;
    int attribute;
  };
  static constexpr Number numbers[] = {{"clock_rate_khz", kClockRate},
                                       {"memory_clock_rate_khz", kMemoryClockRate},
                                       {"memory_bus_width", kMemoryBusWidth},
                                       {"l2_cache_bytes", kL2CacheSize},
                                       {"local_memory_bytes", kSharedMemoryPerBlock},
                                       {"group_limit", kMaxThreadsPerBlock},
                                       {"simd_width", kWarpSize},
                                       {"threads_per_unit", kMaxThreadsPerMultiprocessor}};
  for (const Number& n : numbers) {
    if (strcmp(key, n.key) != 0) continue;
    const int value = device->attribute(n.attribute);
    if (value <= 0) return fail(CW_UNSUPPORTED, "%s is not known", key);
    *out = {};
    out->tag = CW_INT, out->v.i = value;
    return CW_OK;
  }
  if (strcmp(key, "on_paper") == 0) {
    *out = {};
    out->tag = CW_INT, out->v.i = !setting("paper").empty();
    return CW_OK;
  }
  thread_local char text[64];  // until this thread's next call
  *text = 0;
  if (strcmp(key, "architecture") == 0) snprintf(text, sizeof(text), "%s", device->architecture.c_str());
  if (strcmp(key, "pci_bus_id") == 0 && cu.bus_id && cu.bus_id(text, sizeof(text), device->id) != kSuccess) *text = 0;
  if (int version = 0; strcmp(key, "driver_version") == 0 && cu.driver_version(&version) == kSuccess && version)
    snprintf(text, sizeof(text), KIN_NAME " %s", kin::version_text(version).c_str());
  if (!*text) return fail(CW_UNSUPPORTED, "%s is not known", key);
  *out = {};
  out->tag = CW_STRING, out->n = static_cast<uint32_t>(strlen(text)), out->v.string = text;
  return CW_OK;
}

}  // namespace cuda
