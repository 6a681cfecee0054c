// A driver on paper: memory is the host's, copies are done at once, kernels are accepted and not run. With a compiler it
// shows that every kernel compiles for an architecture where there is no GPU; what a kernel would have written stays 0.
//
// It is strict where the driver is: a call without a current context, a handle that is gone or of another device, memory
// outside of an allocation, a group or a grid too large are refused as the driver refuses them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <type_traits>

#include "driver.hpp"

namespace cuda {

namespace {

constexpr size_t kMemory = size_t{1} << 34;
constexpr int kMostDevices = 8;

Paper& g_paper = *new Paper;
thread_local Context t_current = kNoContext;

// What lives: an allocation's bytes, or 0 for a stream, an event, a module or a function; and whose it is.
struct Owned {
  size_t bytes;
  Context context;
};
std::mutex g_mutex;
auto& g_live = *new std::map<Address, Owned>;
auto& g_shared = *new std::map<Function, int>;  // of launches, where more than every kernel may have was asked for
auto& g_captured = *new std::set<Stream>;

// A device's number where that stands for a context; else a handle that is made up.
template <class C>
C context_of(DeviceId id) {
  if constexpr (std::is_pointer_v<C>)
    return reinterpret_cast<C>(static_cast<uintptr_t>(id) + 1);
  else
    return id;
}
bool has_current() { return t_current != kNoContext; }

template <class T>
Address address_of(T* handle) {
  return reinterpret_cast<Address>(handle);
}
void* at(Address address) { return reinterpret_cast<void*>(address); }

Address keep(void* made, size_t bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_live[reinterpret_cast<Address>(made)] = {bytes, t_current};
  return reinterpret_cast<Address>(made);
}

template <class T>
Result create(T** out) {
  if (!has_current()) return kInvalidContext;
  *out = reinterpret_cast<T*>(keep(calloc(1, 8), 0));
  return kSuccess;
}

// Whether a handle is there; `anywhere`: also with another device's context.
Result use(Address handle, bool anywhere = false) {
  if (!has_current()) return kInvalidContext;
  std::lock_guard<std::mutex> lock(g_mutex);
  const auto found = g_live.find(handle);
  if (found == g_live.end()) return kInvalidHandle;
  return anywhere || found->second.context == t_current ? kSuccess : kInvalidContext;
}

Result end(Address handle) {
  if (!has_current()) return kInvalidContext;
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!g_live.erase(handle)) return kInvalidHandle;
  return free(at(handle)), kSuccess;
}

// Where HIP's properties have the architecture.
void give_properties([[maybe_unused]] Driver& t) {
#if defined(CAUSEWAY_KIN_HIP)
  t.properties_6 = [](void* out, int) {
    strcpy(static_cast<char*>(out) + kNameInProperties6, g_paper.architecture.c_str());
    return kSuccess;
  };
#endif
}

// Whether these bytes lie in one allocation.
bool in_pages(Address address, size_t bytes);

bool inside(Address address, size_t bytes) {
  if (in_pages(address, bytes)) return true;
  std::lock_guard<std::mutex> lock(g_mutex);
  auto after = g_live.upper_bound(address);
  if (after == g_live.begin()) return false;
  const auto& [start, owned] = *std::prev(after);
  return address + bytes <= start + owned.bytes;
}

const char* error_name(Result result) {
  return result == kOutOfMemory      ? "OUT_OF_MEMORY"
         : result == kInvalidContext ? "INVALID_CONTEXT"
         : result == kInvalidHandle  ? "INVALID_HANDLE"
         : result == kInvalidValue   ? "INVALID_VALUE"
                                     : "ERROR";
}
// As CUDA writes words, or as its kin give them back.
template <class Table>
void give_words(Table& t) {
  if constexpr (std::is_same_v<decltype(t.error_name), Result (*)(Result, const char**)>) {
    t.error_name = [](Result result, const char** out) { return *out = error_name(result), kSuccess; };
    t.error_text = [](Result, const char** out) { return *out = "on paper", kSuccess; };
  } else {
    t.error_name = error_name;
    t.error_text = [](Result) { return "on paper"; };
  }
}

Result attribute(int* out, int which, DeviceId) {
  switch (which) {
    case kMaxThreadsPerBlock:
      return *out = 1024, kSuccess;
    case kSharedMemoryPerBlock:
      return *out = g_paper.shared_kilobytes << 10, kSuccess;
    case kWarpSize:
      return *out = g_paper.wave, kSuccess;
    case kMultiprocessors:
      return *out = 100, kSuccess;
    case kMaxBlockDimX:
    case kMaxBlockDimY:
      return *out = 1024, kSuccess;
    case kMaxBlockDimZ:
      return *out = 64, kSuccess;
    case kVirtualMemory:
      return *out = 1, kSuccess;
    case kCapabilityMajor:
      return *out = g_paper.major, kSuccess;
    case kCapabilityMinor:
      return *out = g_paper.minor, kSuccess;
    default:
      return kInvalidValue;
  }
}

Result alloc(Address* out, size_t bytes) {
  if (!has_current()) return kInvalidContext;
  if (!bytes) return kInvalidValue;
  void* found = bytes > kMemory ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!found) return kOutOfMemory;
  memset(found, 0, bytes);
  return *out = keep(found, bytes), kSuccess;
}

// Addresses with pages behind them: all of it is the host's memory from the start, and a page counts where it is mapped.
constexpr size_t kPage = size_t{2} << 20;
auto& g_reserved = *new std::map<Address, size_t>;
auto& g_registered = *new std::set<void*>;
auto& g_mapped = *new std::map<Address, bool>;  // and whether it may be used

bool whole_pages(Address a, size_t bytes) {
  const auto after = g_reserved.upper_bound(a);
  if (after == g_reserved.begin() || !bytes || a % kPage || bytes % kPage) return false;
  return a + bytes <= std::prev(after)->first + std::prev(after)->second;
}

// Whether these bytes lie in mapped pages that may be used.
bool in_pages(Address a, size_t bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (Address page = a / kPage * kPage; page < a + bytes; page += kPage) {
    const auto found = g_mapped.find(page);
    if (found == g_mapped.end() || !found->second) return false;
  }
  return bytes > 0;
}

Result reserve(Address* out, size_t bytes, size_t, Address, unsigned long long) {
  if (!has_current()) return kInvalidContext;
  void* found = bytes % kPage || bytes > kMemory * 4 ? nullptr : aligned_alloc(kPage, bytes);
  if (!found) return kOutOfMemory;
  std::lock_guard<std::mutex> lock(g_mutex);
  *out = reinterpret_cast<Address>(found);
  return g_reserved[*out] = bytes, kSuccess;
}

Result address_free(Address a, size_t bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  const auto found = g_reserved.find(a);
  const auto mapped = g_mapped.lower_bound(a);
  if (found == g_reserved.end() || found->second != bytes || (mapped != g_mapped.end() && mapped->first < a + bytes))
    return kInvalidValue;
  g_reserved.erase(found);
  return free(at(a)), kSuccess;
}

// One made memory for each mapping, whole pages that have none, as the driver has it.
Result map(Address a, size_t bytes, size_t, MemoryHandle memory, unsigned long long) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (memory != bytes || !whole_pages(a, bytes) || g_mapped.count(a)) return kInvalidValue;
  return g_mapped[a] = false, kSuccess;
}

Result unmap(Address a, size_t bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!whole_pages(a, bytes)) return kInvalidValue;
  for (Address page = a; page < a + bytes; page += kPage)
    if (!g_mapped.count(page)) return kInvalidValue;
  for (Address page = a; page < a + bytes; page += kPage) g_mapped.erase(page);
  return kSuccess;
}

Result set_access(Address a, size_t bytes, const MemoryAccess* access, size_t n) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!whole_pages(a, bytes) || !g_mapped.count(a) || n != 1 || access->flags != 3) return kInvalidValue;
  return g_mapped[a] = true, kSuccess;
}

Result copy(void* to, const void* from, size_t bytes, bool good, Stream stream) {
  if (const Result used = use(address_of(stream))) return used;
  if (!good) return kInvalidValue;
  return memmove(to, from, bytes), kSuccess;
}

Result module_load(Module* out, const void* image) {
  const bool known = !memcmp(image,
                             "\x7f"
                             "ELF",
                             4) ||
                     strstr(static_cast<const char*>(image), ".version");
  return known ? create(out) : kInvalidImage;
}

Result launch(Function f, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z, unsigned shared,
              Stream stream, void**, void**) {
  if (const Result used = use(address_of(f))) return used;
  if (const Result used = use(address_of(stream))) return used;
  const auto known = g_shared.find(f);
  const auto most = static_cast<unsigned>(known == g_shared.end() ? g_paper.shared_kilobytes << 10 : known->second);
  if (uint64_t{gx} * x > kMostItems) return kInvalidValue;
  if (!gx || !gy || !gz || gx > 0x7fffffffu || gy > 65535 || gz > 65535 || shared > most) return kInvalidValue;
  if (!x || !y || !z || x > 1024 || y > 1024 || z > 64 || x * y * z > 1024) return kInvalidValue;
  return kSuccess;
}

}  // namespace

Driver paper_driver(const Paper& paper) {
  g_paper = paper;
  if (g_paper.devices > kMostDevices) g_paper.devices = kMostDevices;
  Driver t;
  t.init = [](unsigned) { return kSuccess; };
  t.driver_version = [](int* out) { return *out = 0, kSuccess; };
  give_words(t);
  give_properties(t);
  t.device_count = [](int* out) { return *out = g_paper.devices, kSuccess; };
  t.device_get = [](DeviceId* out, int i) { return *out = i, kSuccess; };
  t.device_name = [](char* out, int n, DeviceId) {
    return snprintf(out, static_cast<size_t>(n), "%s on paper", g_paper.architecture.c_str()), kSuccess;
  };
  t.device_memory = [](size_t* out, DeviceId) { return *out = kMemory, kSuccess; };
  t.device_uuid = [](unsigned char*, DeviceId) { return kSuccess; };
  t.attribute = attribute;
  t.retain = [](Context* out, DeviceId id) { return *out = context_of<Context>(id), kSuccess; };
  t.set_current = [](Context context) { return t_current = context, kSuccess; };
  t.synchronize = [] { return has_current() ? kSuccess : kInvalidContext; };
  t.priorities = [](int* low, int* high) { return *low = *high = 0, has_current() ? kSuccess : kInvalidContext; };
  t.alloc = alloc;
  t.free = [](Address a) { return end(a) == kSuccess ? kSuccess : kInvalidValue; };
  t.mem_info = [](size_t* left, size_t* all) {
    return *left = *all = kMemory, has_current() ? kSuccess : kInvalidContext;
  };
  t.host_alloc = [](void** out, size_t n, unsigned) {
    if (!has_current()) return kInvalidContext;
    return *out = malloc(n), *out ? kSuccess : kOutOfMemory;
  };
  t.host_register = [](void* p, size_t bytes, unsigned) {
    if (!has_current()) return kInvalidContext;
    std::lock_guard<std::mutex> lock(g_mutex);
    return p && bytes && g_registered.insert(p).second ? kSuccess : kInvalidValue;
  };
  t.host_unregister = [](void* p) {
    std::lock_guard<std::mutex> lock(g_mutex);
    return g_registered.erase(p) ? kSuccess : kInvalidValue;
  };
  t.can_access = [](int* out, DeviceId a, DeviceId b) { return *out = a != b, kSuccess; };
  t.enable_peer = [](Context, unsigned) { return has_current() ? kSuccess : kInvalidContext; };
  t.bus_id = [](char* out, int n, DeviceId id) {
    return snprintf(out, static_cast<size_t>(n), "0000:%02x:00.0", id + 1), kSuccess;
  };
  t.host_function = [](Stream s, void (*function)(void*), void* context) {
    if (const Result used = use(address_of(s))) return used;
    return function(context), kSuccess;
  };
  t.capture_begin = [](Stream s, int) {
    if (const Result used = use(address_of(s))) return used;
    std::lock_guard<std::mutex> lock(g_mutex);
    return g_captured.insert(s).second ? kSuccess : kIllegalState;
  };
  t.capture_end = [](Stream s, Graph* out) {
    {
      std::lock_guard<std::mutex> lock(g_mutex);
      if (!g_captured.erase(s)) return kIllegalState;
    }
    return create(out);
  };
  t.graph_instantiate = [](GraphExec* out, Graph g, unsigned long long) {
    const Result used = use(address_of(g));
    return used ? used : create(out);
  };
  t.graph_launch = [](GraphExec g, Stream s) {
    const Result used = use(address_of(g));
    return used ? used : use(address_of(s));
  };
  t.graph_destroy = [](Graph g) { return end(address_of(g)); };
  t.exec_destroy = [](GraphExec g) { return end(address_of(g)); };
  t.reserve = reserve;
  t.address_free = address_free;
  t.memory_create = [](MemoryHandle* out, size_t bytes, const MemoryProperties*, unsigned long long) {
    return bytes == kPage ? (*out = bytes, kSuccess) : kInvalidValue;
  };
  t.memory_release = [](MemoryHandle) { return kSuccess; };
  t.map = map;
  t.unmap = unmap;
  t.set_access = set_access;
  t.granularity = [](size_t* out, const MemoryProperties*, int) { return *out = kPage, kSuccess; };
  t.host_free = [](void* p) { return free(p), has_current() ? kSuccess : kInvalidContext; };
  t.copy_in = [](Address to, const void* from, size_t n, Stream s) { return copy(at(to), from, n, inside(to, n), s); };
  t.copy_in_now = [](Address to, const void* from, size_t n) {
    if (!has_current()) return kInvalidContext;
    if (!inside(to, n)) return kInvalidValue;
    return memcpy(at(to), from, n), kSuccess;
  };
  t.copy_out = [](void* to, Address from, size_t n, Stream s) { return copy(to, at(from), n, inside(from, n), s); };
  t.copy_within = [](Address to, Address from, size_t n, Stream s) {
    return copy(at(to), at(from), n, inside(to, n) && inside(from, n), s);
  };
  t.copy_across = [](Address to, Context, Address from, Context, size_t n, Stream s) {
    return copy(at(to), at(from), n, inside(to, n) && inside(from, n), s);
  };
  t.set8 = [](Address to, auto byte, size_t n, Stream s) {
    if (const Result used = use(address_of(s))) return used;
    if (!inside(to, n)) return kInvalidValue;
    return memset(at(to), byte, n), kSuccess;
  };
  t.stream_create = [](Stream* out, unsigned, int) { return create(out); };
  t.stream_destroy = [](Stream s) { return end(address_of(s)); };
  t.stream_query = [](Stream s) { return use(address_of(s), true); };
  t.stream_sync = [](Stream s) { return use(address_of(s), true); };
  t.stream_wait = [](Stream s, Event e, unsigned) {
    const Result used = use(address_of(s));
    return used ? used : use(address_of(e), true);
  };
  t.event_create = [](Event* out, unsigned) { return create(out); };
  t.event_destroy = [](Event e) { return end(address_of(e)); };
  t.event_record = [](Event e, Stream s) {
    const Result used = use(address_of(e));
    return used ? used : use(address_of(s));
  };
  t.event_query = [](Event e) { return use(address_of(e), true); };
  t.event_sync = [](Event e) { return use(address_of(e), true); };
  t.event_elapsed = [](float* out, Event a, Event b) {
    const Result used = use(address_of(a), true);
    return *out = 0, used ? used : use(address_of(b), true);
  };
  t.module_load = module_load;
  t.module_unload = [](Module m) { return end(address_of(m)); };
  t.module_function = [](Function* out, Module m, const char*) {
    const Result used = use(address_of(m));
    return used ? used : create(out);
  };
  t.function_set = [](Function f, int which, int value) {
    if (const Result used = use(address_of(f))) return used;
    if (which != kMostSharedMemory || value > 227 << 10) return kInvalidValue;
    return g_shared[f] = value, kSuccess;
  };
  t.launch = launch;
  return t;
}

}  // namespace cuda
