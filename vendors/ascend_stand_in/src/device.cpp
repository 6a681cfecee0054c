// Start and end, devices, contexts and what can be asked of them.
#include "device.hpp"

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "memory.hpp"

namespace stand_in {
namespace {

std::atomic<bool> initialized{false};
thread_local Context* set = nullptr;

}  // namespace

const char* chip() {
  static const char* name = setting("SOC", "Ascend910B1");
  return name;
}

int device_count() {
  static int count = [] {
    long here = number("DEVICES", 2);
    if (here < 0 || here > kMaxDevices) {
      fprintf(stderr, "ascend stand-in: ASCEND_STAND_IN_DEVICES is %ld; it has to be between 0 and %d\n", here,
              kMaxDevices);
      abort();
    }
    const char* visible = getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (!visible) return int(here);
    // As documented: ascending numbers; what follows a wrong one does not count.
    int shown = 0;
    long last = -1;
    for (const char* at = visible; *at;) {
      char* end = nullptr;
      long index = strtol(at, &end, 10);
      if (end == at || index <= last || index >= here) break;
      ++shown;
      last = index;
      at = *end == ',' ? end + 1 : end;
      if (*end && *end != ',') break;
    }
    return shown;
  }();
  return count;
}

Device* device(int index) {
  static Device* all = [] {
    auto* devices = new Device[kMaxDevices];
    for (int i = 0; i < kMaxDevices; ++i) devices[i].index = i;
    return devices;
  }();
  return index >= 0 && index < device_count() ? all + index : nullptr;
}

Context* context() { return set; }
int current_device() { return set ? set->device->index : -1; }

Code need_context(const char* who) {
  if (set) return kGood;
  return refuse(kNoContext, "%s: this thread has no context; aclrtSetDevice is missing", who);
}

bool deterministic() {
  if (!set) return false;
  auto at = set->device->parameters.find(0);
  return at != set->device->parameters.end() && at->second;
}

Stream* new_stream(Context* context, uint32_t priority, uint32_t flags);
void end_stream(Stream* stream, bool force);

}  // namespace stand_in

using namespace stand_in;

ENTRY Code aclInit(const char*) {
  CALL();
  if (initialized.exchange(true)) return refuse(kInitializedTwice, "aclInit: called before");
  return kGood;
}

ENTRY Code aclFinalize() {
  CALL();
  if (!initialized.exchange(false)) return refuse(kFinalizedTwice, "aclFinalize: aclInit was not called");
  return kGood;
}

ENTRY Code aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  CALL();
  if (!major || !minor || !patch) return refuse(kInvalidParameter, "aclrtGetVersion: a result's place is NULL");
  *major = 1, *minor = 15, *patch = 0;
  return kGood;
}

ENTRY const char* aclrtGetSocName() {
  CALL_ONLY();
  return chip();
}

ENTRY Code aclrtGetRunMode(int* mode) {
  CALL();
  *mode = 1;
  return kGood;
}

ENTRY Code aclrtGetDeviceCount(uint32_t* count) {
  CALL();
  if (!count) return refuse(kInvalidParameter, "aclrtGetDeviceCount: the result's place is NULL");
  *count = uint32_t(device_count());
  return kGood;
}

ENTRY Code aclrtSetDevice(int32_t index) {
  CALL();
  Device* here = device(index);
  if (!here)
    return refuse(kInvalidDevice, "aclrtSetDevice: there is no device %d, there are %d", index, device_count());
  std::lock_guard<std::mutex> guard(here->lock);
  if (!here->active) {
    here->active = true;
    here->primary.device = here;
    here->primary.stream = new_stream(&here->primary, 0, 0);
  }
  set = &here->primary;
  return kGood;
}

ENTRY Code aclrtGetDevice(int32_t* index) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  *index = current_device();
  return kGood;
}

static Code reset_device(const char* who, int32_t index, bool force) {
  Device* here = device(index);
  if (!here) return refuse(kInvalidDevice, "%s: there is no device %d, there are %d", who, index, device_count());
  if (!here->active) return kGood;
  if (!force) drain_device(here, -1);
  std::vector<Stream*> streams;
  {
    std::lock_guard<std::mutex> guard(here->lock);
    streams.swap(here->streams);
    here->active = false;
    here->failure = kGood;
    here->message.clear();
    memset(here->peers, 0, sizeof here->peers);
    here->parameters.clear();
  }
  for (Stream* stream : streams) end_stream(stream, true);
  forget_memory(index);
  if (set == &here->primary) set = nullptr;
  return kGood;
}

ENTRY Code aclrtResetDevice(int32_t index) {
  CALL();
  return reset_device(__func__, index, false);
}

ENTRY Code aclrtResetDeviceForce(int32_t index) {
  CALL();
  return reset_device(__func__, index, true);
}

ENTRY Code aclrtCreateContext(void** result, int32_t index) {
  CALL();
  if (Code code = aclrtSetDevice(index)) return code;
  auto* fresh = new Context{device(index), nullptr};
  std::lock_guard<std::mutex> guard(fresh->device->lock);
  fresh->stream = new_stream(fresh, 0, 0);
  *result = set = fresh;
  return kGood;
}

ENTRY Code aclrtDestroyContext(void* handle) {
  CALL();
  auto* which = static_cast<Context*>(handle);
  if (!which || which == &which->device->primary)
    return refuse(kInvalidParameter, "aclrtDestroyContext: not of aclrtCreateContext");
  if (set == which) set = nullptr;
  return kGood;
}

ENTRY Code aclrtGetCurrentContext(void** result) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  *result = set;
  return kGood;
}

ENTRY Code aclrtSetCurrentContext(void* handle) {
  CALL();
  if (!handle) return refuse(kInvalidParameter, "aclrtSetCurrentContext: the context is NULL");
  set = static_cast<Context*>(handle);
  return kGood;
}

ENTRY Code aclrtGetPrimaryCtxState(int32_t index, uint32_t* flags, int32_t* active) {
  CALL();
  Device* here = device(index);
  if (!here) return refuse(kInvalidDevice, "aclrtGetPrimaryCtxState: there is no device %d", index);
  if (flags) *flags = 0;
  if (active) *active = here->active;
  return kGood;
}

ENTRY Code aclrtCtxGetCurrentDefaultStream(void** result) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  *result = set->stream;
  return kGood;
}

ENTRY Code aclrtGetDeviceInfo(uint32_t index, int attribute, int64_t* value) {
  CALL();
  if (!device(int(index))) return refuse(kInvalidDevice, "aclrtGetDeviceInfo: there is no device %u", index);
  bool simt = !strncmp(chip(), "Ascend950", 9);
  switch (attribute) {
    case 1:  // Cores of the control processor.
      *value = 6;
      return kGood;
    case 101:  // Cores, those for products, those for vectors.
    case 102:
      *value = 24;
      return kGood;
    case 201:
      *value = 48;
      return kGood;
    case 202:  // Threads of a warp; none where kernels have no threads.
      *value = simt ? 32 : 0;
      return kGood;
    case 203:
    case 209:
      *value = simt ? 2048 : 1;
      return kGood;
    case 204:  // Bytes of a core's own memory.
      *value = simt ? 256 << 10 : 192 << 10;
      return kGood;
    case 208:
      *value = 65535;
      return kGood;
    case 301: {
      *value = int64_t(number("MEMORY_MB", 4096)) << 20;
      return kGood;
    }
    case 302:
      *value = int64_t(192) << 20;
      return kGood;
    case 402:
      *value = index;
      return kGood;
    case 501:
      *value = 0;
      return kGood;
    case 601:
      *value = simt ? 3510 : 2201;
      return kGood;
    default:
      return refuse(kUnsupported, "aclrtGetDeviceInfo: attribute %d is not known", attribute);
  }
}

ENTRY Code aclGetDeviceCapability(uint32_t index, int which, int64_t* value) {
  CALL();
  if (!device(int(index))) return refuse(kInvalidDevice, "aclGetDeviceCapability: there is no device %u", index);
  if (which < 0 || which > 2) return refuse(kBadParameter, "aclGetDeviceCapability: %d is not known", which);
  *value = which == 0 ? 24 : which == 1 ? 48 : int64_t(192) << 20;
  return kGood;
}

ENTRY Code aclrtDeviceGetUuid(int32_t index, unsigned char* bytes) {
  CALL();
  if (!device(index)) return refuse(kInvalidDevice, "aclrtDeviceGetUuid: there is no device %d", index);
  memcpy(bytes, "ascend-stand-in", 16);
  bytes[15] = static_cast<unsigned char>(index);
  return kGood;
}

ENTRY Code aclrtDeviceGetBareTgid(int32_t* pid) {
  CALL();
  *pid = getpid();
  return kGood;
}

ENTRY Code aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t* logical) {
  CALL();
  if (!device(user)) return refuse(kInvalidDevice, "aclrtGetLogicDevIdByUserDevId: there is no device %d", user);
  *logical = user;
  return kGood;
}

ENTRY Code aclrtDeviceCanAccessPeer(int32_t* can, int32_t index, int32_t peer) {
  CALL();
  if (!device(index) || !device(peer))
    return refuse(kInvalidDevice, "aclrtDeviceCanAccessPeer: there is no device %d or %d", index, peer);
  *can = index != peer;
  return kGood;
}

ENTRY Code aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (flags) return refuse(kInvalidParameter, "aclrtDeviceEnablePeerAccess: flags have to be 0");
  if (!device(peer) || peer == current_device())
    return refuse(kInvalidDevice, "aclrtDeviceEnablePeerAccess: %d is no peer", peer);
  set->device->peers[peer] = true;
  return kGood;
}

ENTRY Code aclrtDeviceDisablePeerAccess(int32_t peer) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (!device(peer)) return refuse(kInvalidDevice, "aclrtDeviceDisablePeerAccess: there is no device %d", peer);
  set->device->peers[peer] = false;
  return kGood;
}

static Code set_parameter(const char* who, int option, int64_t value) {
  if (Code code = need_context(who)) return code;
  if (option < 0 || option > 2) return refuse(kInvalidParameter, "%s: there is no parameter %d", who, option);
  set->device->parameters[option] = value;
  return kGood;
}

static Code get_parameter(const char* who, int option, int64_t* value) {
  if (Code code = need_context(who)) return code;
  if (option < 0 || option > 2) return refuse(kInvalidParameter, "%s: there is no parameter %d", who, option);
  auto at = set->device->parameters.find(option);
  *value = at == set->device->parameters.end() ? 0 : at->second;  // torch_npu asks before anyone has set it.
  return kGood;
}

ENTRY Code aclrtSetSysParamOpt(int option, int64_t value) {
  CALL();
  return set_parameter(__func__, option, value);
}

ENTRY Code aclrtCtxSetSysParamOpt(int option, int64_t value) {
  CALL();
  return set_parameter(__func__, option, value);
}

ENTRY Code aclrtGetSysParamOpt(int option, int64_t* value) {
  CALL();
  return get_parameter(__func__, option, value);
}

ENTRY Code aclrtCtxGetSysParamOpt(int option, int64_t* value) {
  CALL();
  return get_parameter(__func__, option, value);
}

// A2 and those after it give infinities unless a program asks otherwise; the first chips saturate, and take no mode.
static bool takes_modes() {
  const std::string soc = aclrtGetSocName();
  for (const char* begin : {"Ascend910B", "Ascend910_9", "Ascend950"})
    if (soc.rfind(begin, 0) == 0) return true;
  return false;
}

static std::atomic<bool> asked_to_saturate{false};

namespace stand_in {
bool saturates() { return !takes_modes() || asked_to_saturate; }
}  // namespace stand_in

ENTRY Code aclrtSetDeviceSatMode(int mode) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (mode != 0 && mode != 1) return refuse(kInvalidParameter, "aclrtSetDeviceSatMode: %d is no mode", mode);
  if (!takes_modes()) return refuse(kUnsupported, "aclrtSetDeviceSatMode: this chip saturates, and has no other mode");
  asked_to_saturate = mode == 0;
  return kGood;
}

ENTRY Code aclrtSetOpExecuteTimeOut(uint32_t) {
  CALL();
  return kGood;
}

ENTRY Code aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actual) {
  CALL();
  *actual = timeout;
  return kGood;
}

ENTRY Code aclrtSetOpWaitTimeout(uint32_t) {
  CALL();
  return kGood;
}

ENTRY Code aclrtGetLastError(int) {
  CALL();
  if (!set) return kGood;
  return set->device->failure;
}

ENTRY Code aclrtPeekAtLastError(int) {
  CALL();
  if (!set) return kGood;
  return set->device->failure;
}

ENTRY Code aclrtGetDeviceUtilizationRate(int32_t, int32_t* rates) {
  CALL();
  for (int i = 0; i < 4; ++i) rates[i] = 0;
  return kGood;
}
