#include "portable/device.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "portable/portable.h"

namespace causeway::portable {

namespace {

std::atomic<bool> g_keeps{false};
std::mutex g_sources_mutex;
auto& g_programs = *new std::unordered_map<cw_program, std::shared_ptr<const std::string>>;
auto& g_functions = *new std::unordered_map<cw_function, SourceOf>;
std::atomic<Device*> g_devices[256];

const cw_code_v1* g_code = nullptr;
Services g_services{};
thread_local const char* t_operator = "";  // that the thread's running kernel serves
thread_local uint32_t t_launches = 0;      // of that kernel so far
constexpr double kGrain = 32768;  // operations that are worth an item of their own on a CPU

// Where loops are left too early, a kernel with many turns would be wrong without a word.
bool may_turn(const Device& device, double turns) {
  return !device.info.loop_limit || turns <= static_cast<double>(device.info.loop_limit);
}

}  // namespace

void open(const cw_code_v1* code, const Services& services) {
  g_services = services;
  g_code = code;
}

const Services& services() { return g_services; }

bool is_open() { return g_code != nullptr; }

Device* device_at(int32_t index) {
  auto& devices = g_devices;
  constexpr int kMostDevices = std::size(g_devices);
  static std::mutex mutex;
  if (!g_code || index < 0 || index >= kMostDevices) return nullptr;
  if (Device* known = devices[index].load(std::memory_order_acquire)) return known;
  std::lock_guard lock(mutex);
  if (Device* known = devices[index].load()) return known;
  auto made = std::make_unique<Device>();
  made->index = index;
  made->info.struct_size = sizeof(cw_code_info);
  if (g_code->info(index, &made->info) != CW_OK) return nullptr;
  cw_code_info& info = made->info;
  if (info.compute_units == 0) info.compute_units = 1;
  for (uint32_t& most : info.grid_limits) most = most ? std::min(most, 65535u) : 65535;  // kernels loop over the rest
  if (info.group_limits[0]) info.group_limit = std::min(info.group_limit, info.group_limits[0]);  // groups are in a row
  // A function says how many items a group has at most; an item has 127 registers up to 256, and half of that beyond.
  if (info.language == CW_CODE_ASCEND_SIMT) info.group_limit = std::min(info.group_limit, 256u);
  devices[index].store(made.get(), std::memory_order_release);
  return made.release();  // as long as the process
}

cw_status scratch(const Device& device, cw_stream stream, uint64_t bytes, void** out) {
  return g_services.scratch(device.index, stream, bytes, out);
}

cw_status resize(const DLTensor* tensor, const std::vector<int64_t>& shape) {
  return g_services.resize(tensor, static_cast<int32_t>(shape.size()), shape.data());
}

cw_status fetch(const Device& device, cw_stream stream, const void* from, uint64_t bytes, void* to) {
  return g_services.fetch(device.index, stream, from, bytes, to);
}

void keep_sources(bool on) {
  g_keeps.store(on);
  if (!on) return;
  for (auto& slot : g_devices)
    if (Device* d = slot.load()) {
      std::unique_lock lock(d->mutex);
      d->functions.clear();
    }
}

SourceOf source_of(cw_function function) {
  std::lock_guard lock(g_sources_mutex);
  const auto it = g_functions.find(function);
  return it == g_functions.end() ? SourceOf{} : it->second;
}

std::string last_error() {
  const char* (*of_vendor)() = g_services.table().last_error;
  const char* words = of_vendor ? of_vendor() : nullptr;
  return words && *words ? words : "the vendor gave no message";
}

void begin_operator(const char* name) {
  t_operator = name;
  t_launches = 0;
}

cw_status Device::function(const Key& key, const std::function<std::string()>& source, cw_function* out) {
  {
    std::shared_lock lock(mutex);
    if (const auto it = functions.find(key); it != functions.end()) {
      *out = it->second;
      return *out ? CW_OK : CW_UNSUPPORTED;
    }
  }
  // Not under the lock: a compiler takes its time. Two threads may build the same; the first one's is kept.
  cw_program program = nullptr;
  if (cw_status status = build(source(), &program)) return without(key, status);
  if (cw_status status = function_of(program, kFunction, out)) return without(key, status);
  std::unique_lock lock(mutex);
  *out = functions.emplace(key, *out).first->second;
  return *out ? CW_OK : CW_UNSUPPORTED;
}

// A compiler that fails on one kernel leaves all others as they are. But what has begun to write cannot be declined any more,
// and a lost device or a lack of memory is no failure of the kernel.
cw_status Device::without(const Key& key, cw_status status) {
  if (status == CW_DEVICE_LOST || status == CW_OUT_OF_MEMORY || t_launches) return status;
  {
    std::unique_lock lock(mutex);
    if (!functions.emplace(key, nullptr).second) return CW_UNSUPPORTED;
  }
  g_services.log((std::string("the chip's compiler failed on the portable kernel of ") + t_operator +
                  ", which goes on down the ladder from now on: " + last_error())
                     .c_str());
  return CW_UNSUPPORTED;
}

cw_status Device::build(const std::string& source, cw_program* out) const {
  const cw_status status =
      g_code->build(index, source.c_str(), info.language == CW_CODE_OPENCL_C ? "-w" : nullptr, out);
  if (status == CW_OK && (merges() || g_keeps.load(std::memory_order_relaxed))) {
    std::lock_guard lock(g_sources_mutex);
    g_programs[*out] = std::make_shared<const std::string>(source);
  }
  return status;
}

cw_status Device::function_of(cw_program program, const char* name, cw_function* out) const {
  const cw_status status = g_code->function(program, name, out);
  if (status == CW_OK && (merges() || g_keeps.load(std::memory_order_relaxed))) {
    std::lock_guard lock(g_sources_mutex);
    if (const auto it = g_programs.find(program); it != g_programs.end()) g_functions[*out] = {name, it->second};
  }
  return status;
}

Launch& Launch::pointer(const void* p) {
  if (n_ < kMost) {
    args_[n_].bytes = 0;
    args_[n_].reserved = 0;
    args_[n_].v.address = p;
  }
  ++n_;
  return *this;
}

Launch& Launch::append(const Launch& other) {
  for (uint32_t i = 0; i < std::min(other.n_, kMost); ++i) pointer(other.args_[i].v.address);
  for (uint32_t i = 0; i < std::min(other.n_values_, kMost); ++i) {
    if (n_values_ < kMost) values_[n_values_] = other.values_[i];
    ++n_values_;
  }
  return *this;
}

cw_status Launch::tells(const char* name) {
  void* words = nullptr;
  int64_t teller = 0;
  if (cw_status status = g_services.tells(name, &words, &teller)) return status;
  pointer(words).value(teller);
  return CW_OK;
}

cw_status Launch::run(const Device& device, cw_function function, int64_t units, double cost, cw_stream stream) {
  if (units <= 0) return CW_OK;
  uint32_t grid[3] = {1, 1, 1}, group[3] = {1, 1, 1};
  if (device.in_turn()) {
    const double worth = static_cast<double>(units) * cost / kGrain;
    const int64_t most = std::min<int64_t>({units, int64_t{device.info.compute_units} * 4, device.info.grid_limits[0]});
    grid[0] = static_cast<uint32_t>(std::clamp<int64_t>(static_cast<int64_t>(worth), 1, most));
  } else {
    group[0] = std::min<uint32_t>(256, std::max<uint32_t>(1, device.info.group_limit));
    grid[0] =
        static_cast<uint32_t>(std::clamp<int64_t>((units + group[0] - 1) / group[0], 1, device.info.grid_limits[0]));
  }
  const int64_t items = int64_t{grid[0]} * group[0];
  if (!may_turn(device, static_cast<double>((units + items - 1) / items) * cost)) return CW_UNSUPPORTED;
  return put(device, function, grid, group, stream);
}

cw_status Launch::run_groups(const Device& device, cw_function function, int64_t groups, uint32_t lanes,
                             cw_stream stream, double turns) {
  if (groups <= 0) return CW_OK;
  const int64_t most = device.info.grid_limits[0];
  if (!may_turn(device, static_cast<double>((groups + most - 1) / most) * turns)) return CW_UNSUPPORTED;
  const uint32_t grid[3] = {static_cast<uint32_t>(std::min<int64_t>(groups, device.info.grid_limits[0])), 1, 1},
                 group[3] = {lanes, 1, 1};
  return put(device, function, grid, group, stream);
}

cw_status Launch::put(const Device& device, cw_function function, const uint32_t grid[3], const uint32_t group[3],
                      cw_stream stream) {
  if (n_ > kMost || n_values_ > kMost) return CW_UNSUPPORTED;
  const uint32_t limit = device.info.argument_limit;
  const uint32_t per_address = device.info.flags & CW_CODE_SPLIT_POINTERS ? 16 : 8;
  if (limit && n_ * per_address + n_values_ * sizeof(Slot) > limit) return CW_UNSUPPORTED;
  uint32_t n = n_;
  const auto add = [&](const Slot* first, uint32_t slots) {
    args_[n].bytes = slots * static_cast<uint32_t>(sizeof(Slot));
    args_[n].reserved = 0;
    args_[n++].v.value = first;
  };
  if (device.info.flags & CW_CODE_SINGLE_VALUES) {
    for (uint32_t i = 0; i < n_values_; ++i) add(values_ + i, 1);
  } else if (n_values_) {
    add(values_, n_values_);
  }
  ++t_launches;
  return g_code->launch(function, grid, group, args_, n, stream);
}

}  // namespace causeway::portable
