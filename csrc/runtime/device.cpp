#include "runtime/device.h"

#include <pthread.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/allocator.h"
#include "runtime/packed.h"
#include "runtime/check.h"
#include "runtime/storage.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

constexpr uint32_t kMostAlignment = 1u << 20;  // half of the allocator's smallest segment
constexpr uint32_t kMostPadding = 4096;

std::mutex g_mutex;
std::array<std::atomic<DeviceState*>, kMaxDevices> g_devices{};  // never freed
std::array<std::atomic<const std::string*>, kMaxDevices> g_lost{};
std::vector<int>* g_visible = nullptr;
std::atomic<int> g_count{-1};
enum Phase { kNone, kOpened, kForked, kClosed };  // no device is open; one is; a child forked after that; the end
std::atomic<int> g_phase{kNone};
std::atomic<bool> g_any_lost{false};
std::atomic<uint64_t> g_threads{0};
const std::thread::id g_loader = std::this_thread::get_id();

thread_local int t_current = 0;
thread_local int t_bound = -1;

void after_fork_in_child() {
  if (g_phase.load() == kOpened) g_phase.store(kForked);
}

[[noreturn]] void fail_fork() {
  fail(Kind::Causeway, "Cannot re-initialize ", vendor_name(),
       " in forked subprocess. The parent had opened a device, and a device does not survive a fork. To use it with "
       "multiprocessing, use the 'spawn' start method.");
}

std::function<void()>* g_first_use = nullptr;
std::atomic<bool> g_first_use_waits{false};

// What `f` does may come here again; then it is done already.
void first_use() {
  if (g_first_use_waits.load() && g_first_use_waits.exchange(false)) (*g_first_use)();
}

// Wait for all work of the open devices, on a thread of its own: a device that hangs must not keep the process. The
// thread and what it shares outlive a wait that is given up.
bool drained(std::chrono::seconds limit) {
  struct Shared {
    std::promise<bool> done;
  };
  auto shared = std::make_shared<Shared>();
  auto done = shared->done.get_future();
  std::thread([shared] {
    bool all = true;
    for (int i = 0; i < kMaxDevices; ++i) {
      const DeviceState* d = g_devices[i].load();
      if (!d) continue;
      // An error of work that nobody waited for has nobody to tell; what counts is that nothing runs any more.
      if (g_lost[i].load() || (api().bind && api().bind(d->vendor_id) != CW_OK) ||
          api().sync(d->vendor_id) == CW_DEVICE_LOST)
        all = false;
    }
    shared->done.set_value(all);
  }).detach();
  return done.wait_for(limit) == std::future_status::ready && done.get();
}

std::atomic<std::thread::id> g_ending{};

// The vendor is closed. A thread that goes on would end in Python, which is gone and aborts the process for it; so it
// stays here until the process is.
void hold() {
  if (g_ending.load() == std::this_thread::get_id())
    fail(Kind::Causeway, "the process is ending, and ", vendor_name(), " is closed");
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// A handler of exit(): Python is gone by then, and its tensors with it.
void close_vendor() {
  int opened = kOpened;
  g_ending.store(std::this_thread::get_id());
  if (!g_phase.compare_exchange_strong(opened, kClosed)) return;
  if (!drained(std::chrono::seconds(30))) return;
  if (api().close() != CW_OK)
    std::fprintf(stderr, "causeway: %s failed to close: %s\n", vendor_name().c_str(), last_words().c_str());
}

// What the rest of the core takes for granted.
void check_info(const DeviceState& d) {
  const cw_device_info& i = d.info;
  const auto refuse = [&](const auto&... why) {
    fail(Kind::Vendor, device_name(d.index), " cannot be used: its device_info says ", why..., ". This is a bug of ",
         vendor_path(), "; `causeway conformance` tests what it says");
  };
  if (i.memory == 0) refuse("that it has no memory");
  if (i.alignment & (i.alignment - 1)) refuse("alignment ", i.alignment, ", which is no power of two");
  if (i.alignment > kMostAlignment) refuse("alignment ", i.alignment, "; the most is ", kMostAlignment);
  if (i.padding > kMostPadding) refuse("padding ", i.padding, "; the most is ", kMostPadding);
  if (i.priority_highest > i.priority_lowest)
    refuse("priority_highest ", i.priority_highest, " and priority_lowest ", i.priority_lowest,
           "; lower numbers run first, so the highest priority is the smaller number");
}

DeviceState& open(int index) {
  std::lock_guard lock(g_mutex);
  if (DeviceState* d = g_devices[index].load()) return *d;
  auto d = std::make_unique<DeviceState>();
  d->index = index;
  d->vendor_id = g_visible ? (*g_visible)[index] : index;
  d->info.struct_size = sizeof(cw_device_info);
  check(api().device_info(d->vendor_id, &d->info), "device_info", index);
  d->info.name[sizeof d->info.name - 1] = 0;
  const std::string name = valid_utf8(d->info.name, sizeof d->info.name - 1);
  std::memcpy(d->info.name, name.c_str(), name.size() + 1);
  check_info(*d);
  d->host_addressable = d->info.flags & CW_HOST_ADDRESSABLE;
  d->alignment = d->info.alignment ? d->info.alignment : 64;
  if (g_phase.load() == kNone) {
    static std::once_flag once;
    std::call_once(once, [] {
      pthread_atfork(nullptr, nullptr, after_fork_in_child);
      if (api().close) std::atexit(close_vendor);
    });
    g_phase.store(kOpened);
  }
  open_cache(*d);
  g_watches_storages.store(layouts_offered());
  if (d->host_addressable) install_cpu_allocator();
  g_devices[index].store(d.get(), std::memory_order_release);
  return *d.release();
}

}  // namespace

int vendor_device_count() {
  int32_t n = 0;
  check(api().device_count(&n), "device_count", -1);
  if (n < 0)
    fail(Kind::Vendor, vendor_name(), ": device_count answered ", n, " devices. This is a bug of ", vendor_path());
  static std::atomic<bool> said{false};
  if (n > kMaxDevices && !said.exchange(true))
    TORCH_WARN(vendor_name(), " has ", n, " devices; the first ", kMaxDevices,
               " can be used, which is as many as there may be");
  return std::min<int>(n, kMaxDevices);
}

int32_t vendor_index(int index) {
  return g_visible && static_cast<size_t>(index) < g_visible->size() ? (*g_visible)[index] : index;
}

int device_count() {
  int n = g_count.load(std::memory_order_acquire);
  if (C10_LIKELY(n >= 0)) return n;
  first_use();
  n = g_visible ? static_cast<int>(g_visible->size()) : vendor_device_count();
  g_count.store(n);
  return n;
}

int device_count_or_zero() noexcept {
  try {
    return device_count();
  } catch (const std::exception&) {
    return 0;  // torch asks this of a noexcept interface; `causeway doctor` has the reason
  }
}

void set_first_use(std::function<void()> f) {
  g_first_use = new std::function<void()>(std::move(f));
  g_first_use_waits.store(true);
}

void set_visible_devices(std::vector<int> indices) {
  std::lock_guard lock(g_mutex);
  if (g_phase.load() != kNone) fail(Kind::Causeway, "visible devices are chosen before the first device is opened");
  delete g_visible;
  g_visible = new std::vector<int>(std::move(indices));
  g_count.store(-1);
}

std::string device_name(int device) { return c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device)).str(); }

int current_device() noexcept { return t_current; }

static void check_index(int device) {
  const int n = device_count();
  if (C10_UNLIKELY(device < 0 || device >= n))
    fail(Kind::Causeway, "there is no device ", device_name(std::max(device, 0)), " (index ", device, "): ", n,
         n == 1 ? " device is" : " devices are", " visible. Choose an index below ", n,
         ", or see CAUSEWAY_VISIBLE_DEVICES");
}

void set_device_unchecked(int device) noexcept {
  t_current = device;
  // Autograd's device threads set their device once, at their start.
  if (device >= 0 && device < kMaxDevices && std::this_thread::get_id() != g_loader)
    g_threads.fetch_or(uint64_t{1} << device, std::memory_order_relaxed);
}

void set_device(int device) {
  if (device == t_current && device_opened(device)) return;
  check_index(device);
  set_device_unchecked(device);
}

int exchange_device(int device) {
  const int old = t_current;
  if (device != old) set_device(device);
  return old;
}

DeviceState& device(int index) {
  if (C10_UNLIKELY(index < 0 || index >= kMaxDevices)) check_index(index);
  DeviceState* d = g_devices[index].load(std::memory_order_acquire);
  if (C10_UNLIKELY(!d || g_phase.load(std::memory_order_relaxed) >= kForked)) {
    if (in_bad_fork()) fail_fork();
    if (past_use()) hold();
    first_use();
    check_index(index);
    d = &open(index);
  }
  if (C10_UNLIKELY(g_any_lost.load(std::memory_order_relaxed)) && g_lost[index].load()) fail_lost(index);
  if (C10_UNLIKELY(t_bound != index)) {
    if (api().bind) check(api().bind(d->vendor_id), "bind", index);
    t_bound = index;
  }
  return *d;
}

bool device_opened(int index) noexcept {
  return index >= 0 && index < kMaxDevices && g_devices[index].load() != nullptr;
}
bool any_device_opened() noexcept { return g_phase.load() == kOpened; }
bool in_bad_fork() noexcept { return g_phase.load() == kForked; }
bool past_use() noexcept { return g_phase.load() >= kForked; }

void mark_lost(int device, const std::string& words) {
  if (device < 0 || device >= kMaxDevices) return;
  const std::string* expected = nullptr;
  auto* kept = new std::string(words);
  if (!g_lost[device].compare_exchange_strong(expected, kept)) delete kept;
  g_any_lost.store(true);
}

void fail_lost(int device) {
  const std::string* words = device >= 0 && device < kMaxDevices ? g_lost[device].load() : nullptr;
  fail(Kind::DeviceLost, device >= 0 ? device_name(device) : vendor_name(), " is lost: ", words ? *words : last_words(),
       ". Its memory is gone and every later call on it fails; start a new process and load the last checkpoint");
}

uint64_t devices_with_threads() noexcept { return g_threads.load(); }

namespace {
struct DtypeRow {
  c10::ScalarType dtype;
  uint8_t code, bits;
};
using T = c10::ScalarType;
constexpr DtypeRow kDtypes[] = {
    {T::Bool, kDLBool, 8},
    {T::Byte, kDLUInt, 8},
    {T::Char, kDLInt, 8},
    {T::UInt16, kDLUInt, 16},
    {T::Short, kDLInt, 16},
    {T::UInt32, kDLUInt, 32},
    {T::Int, kDLInt, 32},
    {T::UInt64, kDLUInt, 64},
    {T::Long, kDLInt, 64},
    {T::Half, kDLFloat, 16},
    {T::BFloat16, kDLBfloat, 16},
    {T::Float, kDLFloat, 32},
    {T::Double, kDLFloat, 64},
    {T::ComplexHalf, kDLComplex, 32},
    {T::ComplexFloat, kDLComplex, 64},
    {T::ComplexDouble, kDLComplex, 128},
    {T::Float8_e4m3fn, kDLFloat8_e4m3fn, 8},
    {T::Float8_e5m2, kDLFloat8_e5m2, 8},
    {T::Float8_e4m3fnuz, kDLFloat8_e4m3fnuz, 8},
    {T::Float8_e5m2fnuz, kDLFloat8_e5m2fnuz, 8},
    {T::Float8_e8m0fnu, kDLFloat8_e8m0fnu, 8},
    {T::Float4_e2m1fn_x2, kDLFloat4_e2m1fn, 4},
};
constexpr int kDtypeCount = sizeof kDtypes / sizeof kDtypes[0];

constexpr auto kBits = [] {
  std::array<int8_t, 256> bits{};
  for (auto& b : bits) b = -1;
  for (int i = 0; i < kDtypeCount; ++i) bits[static_cast<uint8_t>(kDtypes[i].dtype)] = static_cast<int8_t>(i);
  return bits;
}();
}  // namespace

c10::ScalarType dtype_of_bit(int bit) { return bit >= 0 && bit < kDtypeCount ? kDtypes[bit].dtype : T::Undefined; }
int bit_of_dtype(c10::ScalarType dtype) { return kBits[static_cast<uint8_t>(dtype)]; }
DLDataType dl_dtype(c10::ScalarType dtype) {
  const int bit = bit_of_dtype(dtype);
  if (bit < 0) return {kDLOpaqueHandle, static_cast<uint8_t>(8 * c10::elementSize(dtype)), 1};
  return {kDtypes[bit].code, kDtypes[bit].bits, static_cast<uint16_t>(dtype == T::Float4_e2m1fn_x2 ? 2 : 1)};
}

}  // namespace causeway
