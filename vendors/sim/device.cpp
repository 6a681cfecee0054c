#include "device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "error.hpp"
#include "fault.hpp"
#include "protect.hpp"
#include "settings.hpp"
#include "stream.hpp"
#include "workers.hpp"

namespace sim {

static std::vector<Device*>* devices = new std::vector<Device*>;
static thread_local int32_t bound = 0;
std::atomic<bool> closed{false};

void make_devices() {
  for (int32_t index = 0; index < settings().devices; ++index) {
    devices->push_back(new Device);
    devices->back()->index = index;
  }
}

Device* device_at(int32_t index) { return (*devices)[size_t(index)]; }
int32_t bound_device() { return bound; }

cw_status enter(const char* entry, int32_t index, Device** out) {
  if (!settings().error.empty()) return fail(CW_INVALID, "%s", settings().error.c_str());
  if (closed.load(std::memory_order_relaxed)) {
    fprintf(stderr, "causeway-sim: %s was called after close\n", entry);
    return fail(CW_INVALID, "%s: the chip is closed", entry);
  }
  if (index < 0 || size_t(index) >= devices->size()) {
    return fail(CW_INVALID, "%s: there is no device %d; the simulated chip has %zu (setting \"devices\")", entry, index,
                devices->size());
  }
  Device* device = device_at(index);
  if (device->lost) {
    return fail(CW_DEVICE_LOST, "%s: device %d is lost; only a new process can use it again", entry, index);
  }
  if (cw_status status = injected_fault(entry, device)) return status;
  *out = device;
  return CW_OK;
}

cw_status enter_open(const char* entry, int32_t index, Device** out) {
  if (cw_status status = enter(entry, index, out)) return status;
  return (*out)->opened.load(std::memory_order_acquire) ? CW_OK : (*out)->open();
}

static void* reserve(uint64_t bytes, int protection) {
  void* p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

cw_status Device::open() {
  std::lock_guard<std::mutex> lock(memory_mutex);
  if (opened) return CW_OK;
  // Eight times the memory, so that holes between allocations never make an allocation fail that would fit, and there
  // are addresses to reserve.
  const uint64_t align = UINT64_C(2) << 20;
  uint64_t bytes = (settings().memory * 8 + align - 1) / align * align;
  uint64_t slots = bytes / granule;
  void* own = reserve(bytes + align, PROT_NONE);
  void* shadow = settings().discrete ? reserve(bytes + align, PROT_NONE) : own;
  void* table = reserve(slots * (sizeof(*first) + sizeof(*allocations)), PROT_READ | PROT_WRITE);
  if (!own || !shadow || !table) {
    return fail(CW_OUT_OF_MEMORY, "device %d: no address space for %llu bytes (setting \"memory\"): %s", index,
                static_cast<unsigned long long>(bytes), strerror(errno));
  }
  auto aligned = [&](void* p) { return (reinterpret_cast<uintptr_t>(p) + align - 1) / align * align; };
  base = aligned(own);
  range = bytes;
  shift = intptr_t(aligned(shadow) - base);
  allocations = static_cast<Allocation*>(table);
  first = reinterpret_cast<std::atomic<uint32_t>*>(allocations + slots);
  holes[0] = bytes;
  if (settings().discrete) protect_ranges();
  opened.store(true, std::memory_order_release);
  if (host().log) {
    char words[96];
    snprintf(words, sizeof(words), "sim: device %d opened, %s, %s", index, settings().discrete ? "discrete" : "unified",
             settings().async ? "async" : "inline");
    host().log(0, words);
  }
  return CW_OK;
}

void Device::lose() { lost = true; }

cw_status resolve(const Device& device, const void* ptr, uint64_t bytes, const char* what, char** out) {
  uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
  const Allocation* found = device.opened ? device.find(address, bytes) : nullptr;
  if (!found) {
    return fail(CW_INVALID, "%s: %llu bytes at %p are not inside one live allocation of device %d", what,
                static_cast<unsigned long long>(bytes), ptr, device.index);
  }
  *out = reinterpret_cast<char*>(address + uintptr_t(device.shift));
  return CW_OK;
}

cw_status device_count(int32_t* out) {
  if (!settings().error.empty()) return fail(CW_INVALID, "%s", settings().error.c_str());
  if (cw_status status = injected_fault("device_count", nullptr)) return status;
  *out = settings().devices;
  return CW_OK;
}

cw_status device_info(int32_t index, cw_device_info* out) {
  Device* device = nullptr;
  if (cw_status status = enter("device_info", index, &device)) return status;
  cw_device_info info = {};
  info.flags = settings().discrete ? 0 : CW_HOST_ADDRESSABLE;
  snprintf(info.name, sizeof(info.name), "Sim %d", index);
  info.memory = settings().memory;
  info.dtypes = settings().dtypes;
  info.alignment = 64;
  info.padding = uint32_t(settings().padding);
  info.compute_units = 1;
  info.capability_major = 1;
  info.capability_minor = 0;
  memcpy(info.uuid, "causeway-sim", 12);
  info.uuid[15] = uint8_t(index);
  info.priority_lowest = 0;
  info.priority_highest = -1;
  // The core may know a shorter struct than this library does.
  info.struct_size = out->struct_size;
  memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof(info)));
  return CW_OK;
}

cw_status bind(int32_t index) {
  Device* device = nullptr;
  if (cw_status status = enter_open("bind", index, &device)) return status;
  bound = index;
  return CW_OK;
}

cw_status peer_access(int32_t index, int32_t peer, int32_t* out) {
  Device *device = nullptr, *other = nullptr;
  if (cw_status status = enter("peer_access", index, &device)) return status;
  if (cw_status status = enter("peer_access", peer, &other)) return status;
  *out = settings().peers && index != peer;
  return CW_OK;
}

cw_status device_attribute(int32_t index, const char* key, cw_arg* out) {
  Device* device = nullptr;
  if (cw_status status = enter("device_attribute", index, &device)) return status;
  const auto is = [key](const char* name) { return strcmp(key, name) == 0; };
  const auto number = [out](int64_t value) {
    *out = cw_arg{};
    out->tag = CW_INT;
    out->v.i = value;
    return CW_OK;
  };
  const auto text = [out](const char* words) {
    *out = cw_arg{};
    out->tag = CW_STRING;
    out->n = uint32_t(strlen(words));
    out->v.string = words;
    return CW_OK;
  };
  static thread_local char bus[16];
  if (is("pci_bus_id")) {
    snprintf(bus, sizeof(bus), "0000:%02x:00.0", unsigned(index) & 0xff);
    return text(bus);
  }
  if (is("driver_version")) return text("1.0");
  if (is("cores_used")) return number(cores_used());  // the simulated chip's own: of launches since it was last asked
  if (is("architecture")) return text("sim");
  if (is("clock_rate_khz") || is("clock_rate_now_khz")) return number(1000000);
  if (is("memory_clock_rate_khz")) return number(2000000);
  if (is("memory_bus_width")) return number(64);
  if (is("l2_cache_bytes")) return number(INT64_C(1) << 20);
  if (is("temperature")) {
    *out = cw_arg{};
    out->tag = CW_DOUBLE;
    out->v.d = 36.5;
    return CW_OK;
  }
  if (is("power_mw")) return number(1000);
  if (is("pinned_bytes")) return number(int64_t(device->pinned.load()));
  if (is("utilization")) return number(busy(*device) ? 100 : 0);
  if (is("memory_utilization")) {
    std::lock_guard<std::mutex> lock(device->memory_mutex);
    return number(int64_t(device->used * 100 / settings().memory));
  }
  return fail(CW_UNSUPPORTED, "the simulated chip has no attribute %s", key);
}

}  // namespace sim
