#include "device.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "call.hpp"
#include "code.hpp"
#include "error.hpp"
#include "layout.hpp"
#include "profile.hpp"
#include "stream.hpp"

namespace ascend {

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

// The driver's files: /dev/davinci0 and so on, and those that this user may not open.
struct Files {
  int all = 0;
  std::vector<std::string> closed;
};

Files device_files() {
  Files found;
  DIR* folder = opendir("/dev");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    const bool card = name.rfind("davinci", 0) == 0 && name.size() > 7 && isdigit(name[7]);
    if (!card && name != "davinci_manager" && name != "devmm_svm" && name != "hisi_hdc") continue;
    found.all += card;
    const std::string path = "/dev/" + name;
    if (access(path.c_str(), R_OK | W_OK) != 0) found.closed.push_back(path);
  }
  closedir(folder);
  return found;
}

std::string words_for_files() {
  const Files found = device_files();
  if (found.all == 0)
    return "there is no /dev/davinci0: no driver is loaded, or a container was started without --device=/dev/davinci0 "
           "--device=/dev/davinci_manager --device=/dev/devmm_svm --device=/dev/hisi_hdc";
  if (found.closed.empty()) return "";
  std::string text = "this user may not open";
  for (const std::string& path : found.closed) text += " " + path;
  return text + ": add the user to the driver's group (HwHiAiUser), or give the container these files";
}

cw_status open_devices(Opened& all) {
  if (const char* words = open_acl(); *words) return fail(CW_FAILED, "%s", words);
  const Status started = acl.init(nullptr);
  if (started != kRepeatInitialize && started != kSuccess) {
    const std::string files = words_for_files();
    TRY(check(started, "aclInit") ? fail(CW_FAILED, "%s%s%s", last_error(), files.empty() ? "" : "; ", files.c_str())
                                  : CW_OK);
  }
  uint32_t count = 0;
  const Status counted = acl.device_count(&count);
  if (counted == kRuntimeNoDevice) return CW_OK;  // no device is no error
  TRY(check(counted, "aclrtGetDeviceCount"));
  for (uint32_t i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    device->index = static_cast<int32_t>(i);
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

bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

// 310, 310P and 910A: no bfloat16, and saturation instead of infinities.
bool is_first_generation() {
  const std::string soc = soc_name();
  return begins(soc, "Ascend310") ||
         (begins(soc, "Ascend910") && !begins(soc, "Ascend910B") && !begins(soc, "Ascend910_9"));
}

// As torch_npu has it.
bool asks_for_saturation() {
  const char* asked = getenv("INF_NAN_MODE_FORCE_DISABLE");
  return asked && strcmp(asked, "1") == 0;
}

// What is too large for a dtype is an infinity, as torch's GradScaler needs it to find an overflow.
cw_status choose_overflow() {
  if (is_first_generation() || !acl.set_saturation) return CW_OK;
  return check(acl.set_saturation(asks_for_saturation() ? kSaturates : kInfinities), "aclrtSetDeviceSatMode");
}

thread_local int32_t t_device = -1;

// A device's context is this thread's until another is set; setting it again would count it again.
cw_status start(Device& device) {
  if (t_device != device.index) {
    TRY(check(acl.set_device(device.index), "aclrtSetDevice"));
    t_device = device.index;
  }
  if (device.started.load(std::memory_order_acquire)) return CW_OK;
  std::lock_guard<std::mutex> lock(device.mutex);
  TRY(choose_overflow());
  if (!device.default_stream) TRY(new_stream(device, &device.default_stream));
  device.started.store(true, std::memory_order_release);
  return CW_OK;
}

// 950 needs nothing behind a block; the others write and read up to 32 bytes there.
uint32_t padding_of(const std::string& soc) { return begins(soc, "Ascend950") ? 0 : 32; }

}  // namespace

int64_t attribute(int32_t index, int which) {
  int64_t value = 0;
  if (!acl.device_attribute) return 0;
  return acl.device_attribute(static_cast<uint32_t>(index), which, &value) == kSuccess ? value : 0;
}

std::string soc_name() {
  if (!acl.soc_name) return "";
  const char* name = acl.soc_name();
  return name ? name : "";
}

cw_dtypes computed_dtypes() { return is_first_generation() ? CW_ALL_DTYPES & ~CW_BFLOAT16 : CW_ALL_DTYPES; }

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
  const std::string soc = soc_name();
  snprintf(info.name, sizeof(info.name), "%s", soc.empty() ? "Ascend" : soc.c_str());
  size_t free = 0, all = 0;
  TRY(check(acl.mem_info(kMemoryHbm, &free, &all), "aclrtGetMemInfo"));
  if (!all) TRY(check(acl.mem_info(kMemoryDdr, &free, &all), "aclrtGetMemInfo"));  // chips without HBM
  info.memory = all;
  info.dtypes = CW_ALL_DTYPES;  // stored; what no operator of the chip takes goes down the ladder
  info.alignment = 64;
  info.padding = padding_of(soc);
  const int64_t cubes = attribute(index, kCubeCores), vectors = attribute(index, kVectorCores);
  info.compute_units = static_cast<uint32_t>(cubes > 0 ? cubes : std::max<int64_t>(vectors, 0));
  const int64_t architecture = attribute(index, kArchitecture);  // 2201: dav-2201
  info.capability_major = static_cast<int32_t>(architecture / 100);
  info.capability_minor = static_cast<int32_t>(architecture % 100);
  if (acl.device_uuid && acl.device_uuid(device->index, info.uuid) != kSuccess) memset(info.uuid, 0, sizeof(info.uuid));
  memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof(info)));
  return CW_OK;
}

cw_status sync(int32_t index) {
  Device* device = nullptr;
  TRY(find_device("sync", index, &device));
  TRY(check(acl.synchronize(), "aclrtSynchronizeDevice"));
  if (profiling.load(std::memory_order_relaxed)) known_over(*device);
  return CW_OK;
}

// Access is one way, and a copy wants it both ways. Each pair is asked and enabled once.
cw_status enable_peers(int32_t index, int32_t peer, bool* can) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<int32_t, int32_t>, bool>;
  const std::pair<int32_t, int32_t> pair = std::minmax(index, peer);
  std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = known.find(pair); found != known.end()) return *can = found->second, CW_OK;
  *can = false;
  if (acl.enable_peer && acl.can_access) {
    int32_t there = 0, back = 0;
    TRY(check(acl.can_access(&there, index, peer), "aclrtDeviceCanAccessPeer"));
    TRY(check(acl.can_access(&back, peer, index), "aclrtDeviceCanAccessPeer"));
    Device *device = nullptr, *other = nullptr;
    if (there && back) {
      TRY(find_device("peer_access", peer, &other));
      const Status first = acl.enable_peer(index, 0);
      TRY(find_device("peer_access", index, &device));  // last: it is this thread's
      *can = first == kSuccess && acl.enable_peer(peer, 0) == kSuccess;
    }
  }
  return known[pair] = *can, CW_OK;
}

cw_status peer_access(int32_t index, int32_t peer, int32_t* out) {
  Device *device = nullptr, *other = nullptr;
  TRY(find_device("peer_access", peer, &other));
  TRY(find_device("peer_access", index, &device));
  bool can = false;
  TRY(enable_peers(index, peer, &can));
  return *out = can, CW_OK;
}

cw_status device_attribute(int32_t index, const char* key, cw_arg* out) {
  Device* device = nullptr;
  TRY(find_device("device_attribute", index, &device));
  struct Number {
    const char* key;
    int attribute;
  };
  static constexpr Number numbers[] = {{"l2_cache_bytes", kCacheBytes}, {"cube_cores", kCubeCores},
                                       {"vector_cores", kVectorCores},  {"local_memory_bytes", kLocalMemory},
                                       {"group_limit", kGroupLimit},    {"simd_width", kWarp}};
  for (const Number& n : numbers) {
    if (strcmp(key, n.key) != 0) continue;
    const int64_t value = attribute(index, n.attribute);
    if (value <= 0) return fail(CW_UNSUPPORTED, "%s is not known", key);
    *out = {};
    out->tag = CW_INT, out->v.i = value;
    return CW_OK;
  }
  thread_local std::string text;  // until this thread's next call
  text.clear();
  if (const int64_t number = attribute(index, kArchitecture); strcmp(key, "architecture") == 0)
    text = number > 0 ? "dav-" + std::to_string(number) : soc_name();
  if (strcmp(key, "driver_version") == 0) text = cann_version().empty() ? "" : "CANN " + cann_version();
  if (text.empty()) return fail(CW_UNSUPPORTED, "%s is not known", key);
  *out = {};
  out->tag = CW_STRING, out->n = static_cast<uint32_t>(text.size()), out->v.string = text.c_str();
  return CW_OK;
}

const char* notes() {
  static const auto& text = *[] {
    auto* made = new std::string;
    const auto line = [&](const std::string& words) {
      if (!words.empty()) *made += (made->empty() ? "" : "\n") + words;
    };
    line(words_for_files());
    const std::string runtime = open_acl(), operators = open_aclnn();
    line(runtime);
    if (runtime.empty()) {
      const std::string version = cann_version(), soc = soc_name();
      line("CANN " + (version.empty() ? "of a version that it does not tell" : version) +
           (soc.empty() ? "" : ", chip " + soc) + ": " + places_of_libraries());
      if (is_first_generation() || asks_for_saturation())
        line("a float16 that is too large is 65504 here, not an infinity, and NaN is 0 (" +
             std::string(is_first_generation() ? "this chip saturates" : "INF_NAN_MODE_FORCE_DISABLE is 1") +
             "): GradScaler finds no overflow, so scale losses by a fixed number");
    }
    line(operators);
    if (operators.empty()) line(words_for_operators());
    if (runtime.empty()) line(notes_for_code()), line(notes_for_profile());
    if (operators.empty()) line(notes_for_layouts());
    return made;
  }();
  return text.c_str();
}

}  // namespace ascend
