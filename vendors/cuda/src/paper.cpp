// A driver on paper: memory is the host's, copies are done at once, kernels are accepted and not run. With NVRTC it
// shows that every kernel compiles for an architecture where there is no GPU; what a kernel would have written stays 0.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.hpp"

namespace cuda {

namespace {

int g_major = 0, g_minor = 0;
constexpr size_t kMemory = size_t{1} << 34;

template <class T>
T* handle() {
  return static_cast<T*>(calloc(1, 1));
}

Result error_name(Result result, const char** out) {
  return *out = result == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR", kSuccess;
}
Result error_text(Result, const char** out) { return *out = "on paper", kSuccess; }

Result attribute(int* out, int which, DeviceId) {
  switch (which) {
    case kMaxThreadsPerBlock:
      return *out = 1024, kSuccess;
    case kSharedMemoryPerBlock:
      return *out = 48 << 10, kSuccess;
    case kWarpSize:
      return *out = 32, kSuccess;
    case kMultiprocessors:
      return *out = 100, kSuccess;
    case kCapabilityMajor:
      return *out = g_major, kSuccess;
    case kCapabilityMinor:
      return *out = g_minor, kSuccess;
    default:
      return kInvalidValue;
  }
}

Result alloc(Address* out, size_t bytes) {
  void* found = bytes > kMemory ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!found) return kOutOfMemory;
  memset(found, 0, bytes);
  return *out = reinterpret_cast<Address>(found), kSuccess;
}

void* at(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

Driver paper_driver(int major, int minor) {
  g_major = major, g_minor = minor;
  Driver t;
  t.init = [](unsigned) { return kSuccess; };
  t.driver_version = [](int* out) { return *out = 0, kSuccess; };
  t.error_name = error_name;
  t.error_text = error_text;
  t.device_count = [](int* out) { return *out = 1, kSuccess; };
  t.device_get = [](DeviceId* out, int) { return *out = 0, kSuccess; };
  t.device_name = [](char* out, int n, DeviceId) {
    return snprintf(out, static_cast<size_t>(n), "sm_%d%d on paper", g_major, g_minor), kSuccess;
  };
  t.device_memory = [](size_t* out, DeviceId) { return *out = kMemory, kSuccess; };
  t.device_uuid = [](unsigned char*, DeviceId) { return kSuccess; };
  t.attribute = attribute;
  t.retain = [](Context* out, DeviceId) { return *out = handle<CUctx_st>(), kSuccess; };
  t.set_current = [](Context) { return kSuccess; };
  t.synchronize = [] { return kSuccess; };
  t.priorities = [](int* low, int* high) { return *low = 0, *high = 0, kSuccess; };
  t.alloc = alloc;
  t.free = [](Address a) { return free(at(a)), kSuccess; };
  t.mem_info = [](size_t* left, size_t* all) { return *left = *all = kMemory, kSuccess; };
  t.host_alloc = [](void** out, size_t n, unsigned) { return *out = malloc(n), *out ? kSuccess : kOutOfMemory; };
  t.host_free = [](void* p) { return free(p), kSuccess; };
  t.copy_in = [](Address to, const void* from, size_t n, Stream) { return memcpy(at(to), from, n), kSuccess; };
  t.copy_out = [](void* to, Address from, size_t n, Stream) { return memcpy(to, at(from), n), kSuccess; };
  t.copy_within = [](Address to, Address from, size_t n, Stream) { return memmove(at(to), at(from), n), kSuccess; };
  t.copy_across = [](Address to, Context, Address from, Context, size_t n, Stream) {
    return memmove(at(to), at(from), n), kSuccess;
  };
  t.set8 = [](Address to, unsigned char byte, size_t n, Stream) { return memset(at(to), byte, n), kSuccess; };
  t.stream_create = [](Stream* out, unsigned, int) { return *out = handle<CUstream_st>(), kSuccess; };
  t.stream_destroy = [](Stream s) { return free(s), kSuccess; };
  t.stream_query = [](Stream) { return kSuccess; };
  t.stream_sync = [](Stream) { return kSuccess; };
  t.stream_wait = [](Stream, Event, unsigned) { return kSuccess; };
  t.event_create = [](Event* out, unsigned) { return *out = handle<CUevent_st>(), kSuccess; };
  t.event_destroy = [](Event e) { return free(e), kSuccess; };
  t.event_record = [](Event, Stream) { return kSuccess; };
  t.event_query = [](Event) { return kSuccess; };
  t.event_sync = [](Event) { return kSuccess; };
  t.event_elapsed = [](float* out, Event, Event) { return *out = 0, kSuccess; };
  t.module_load = [](Module* out, const void*) { return *out = handle<CUmod_st>(), kSuccess; };
  t.module_unload = [](Module m) { return free(m), kSuccess; };
  t.module_function = [](Function* out, Module, const char*) { return *out = handle<CUfunc_st>(), kSuccess; };
  t.launch = [](Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**,
                void**) { return kSuccess; };
  return t;
}

}  // namespace cuda
