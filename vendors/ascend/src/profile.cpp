// MSPTI hands its records out in buffers, some time after the work: a kernel's times with a number of its own, and beside
// it which number of ours was pushed when that kernel was launched. Numbers are pushed and taken off around each launch, one
// thread at a time: the documentation says that each thread has a stack of them, and the public source has one for all.
//
// Two clocks meet here. MSPTI's is the host's wall clock, as it was when MSPTI looked; `clock` goes on from what it was at
// `start`, so that a wall clock that is set meanwhile moves nothing. That of events is the chip's, and is read beside
// the other at both ends. A copy is cut to what its launch, the kernels beside it on its stream and the wait for it leave.
#include "profile.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "error.hpp"
#include "mspti.hpp"
#include "stream.hpp"

namespace ascend {

std::atomic<bool> profiling{false};

namespace {

Mspti mspti;

using Clock = std::chrono::steady_clock;
int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}
int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Launch {
  uint64_t number;
  const Device* device;
  Stream stream;
  int64_t begun_ns;  // the host called
  bool kernels;  // MSPTI tells the times
  Event before, after;  // else they do; NULL: the host did, or they were read
  int64_t begin_ns, end_ns;
  bool by_chip;  // these are of the chip's clock
};

// The chip's clock, from an event on, beside ours.
struct Pair {
  int64_t chip_ns = 0, ns = 0;
};
struct Clocks {
  Device* device = nullptr;
  Event zero = nullptr;
  Pair first, last;
  int64_t over_ns = 0;  // of the last wait for the device, when `over` launches had been noted
  size_t over = 0;
};

struct Kernel {
  uint64_t correlation;
  int64_t begin_ns, end_ns;
  const char* name;
};

struct State {
  std::mutex control;  // start, stop and read, one at a time
  bool on = false;
  void* subscriber = nullptr;
  bool calls_on = false;
  std::vector<cw_activity> found;  // for `read`
  size_t handed_out = 0;

  std::mutex mutex;  // of what follows
  int64_t wall = 0;  // our clock is the steady one, and this
  std::vector<Launch> launches;
  std::map<int32_t, Clocks> clocks;
  std::map<int32_t, std::vector<Event>> spare;
  std::deque<size_t> waiting;  // launches whose events are not read, oldest first
  uint64_t untimed = 0;  // no event could be had, or read
  std::vector<Kernel> kernels;
  std::unordered_map<uint64_t, uint64_t> numbers;  // ours, by MSPTI's
  std::set<std::string> names;
};
State& state() {
  static auto* all = new State;  // MSPTI's threads outlive statics
  return *all;
}
std::timed_mutex& launching() {
  static auto* mutex = new std::timed_mutex;
  return *mutex;
}

thread_local uint64_t t_number = 0;

int64_t now(const State& s) { return steady_ns() + s.wall; }

const char* open_mspti() {
  static std::once_flag once;
  static char words[1024];
  std::call_once(once, [] {
    std::string path, why, missing;
    void* library = open_library("libmspti.so", &path, &why, RTLD_LOCAL);  // it has functions of the runtime's names
    if (!library) {
      snprintf(words, sizeof(words), "CANN's libmspti.so cannot be opened (%s)", why.c_str());
      return;
    }
#define FIND(name, symbol, parameters)                                            \
  mspti.name = reinterpret_cast<decltype(mspti.name)>(find_in(library, #symbol)); \
  if (!mspti.name && missing.empty()) missing = #symbol;
    MSPTI_FUNCTIONS(FIND)
#undef FIND
    if (!missing.empty()) snprintf(words, sizeof(words), "%s has no %s", path.c_str(), missing.c_str());
  });
  return words;
}

void request(uint8_t** buffer, size_t* bytes, size_t* most) {
  constexpr size_t kBytes = 4 << 20;  // 2 MiB at least are asked for
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, kBytes));
  *bytes = *buffer ? kBytes : 0, *most = 0;
}

// To its end: where it is in a buffer may be known by the thread, and not by the record.
void complete(uint8_t* buffer, size_t, size_t valid) {
  if (!buffer) return;
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  void* record = nullptr;
  while (valid && mspti.next(buffer, valid, &record) == kSuccess && record) {
    const int kind = *static_cast<const int*>(record);
    if (kind == kMsptiKernel) {
      const auto& kernel = *static_cast<const MsptiKernelRecord*>(record);
      const char* name = kernel.name && *kernel.name ? s.names.emplace(kernel.name).first->c_str() : nullptr;
      s.kernels.push_back(
          {kernel.correlation, static_cast<int64_t>(kernel.begin_ns), static_cast<int64_t>(kernel.end_ns), name});
    } else if (kind == kMsptiExternal) {
      const auto& external = *static_cast<const MsptiExternalRecord*>(record);
      if (external.external_kind == kMsptiCustom) s.numbers[external.correlation] = external.external;
    }
  }
  ::free(buffer);
}

void ignore(void*, int, uint32_t, const void*) {}

cw_status check_mspti(MsptiResult result, const char* function) {
  if (result == kSuccess) return CW_OK;
  return fail(CW_FAILED, "%s: result %d%s", function, result,
              result == kMsptiTwoSubscribers ? ", another profiler of the chip is on" : "");
}

cw_status new_event(Event* out) {
  return check(acl.event_create(out, kEventSync | kEventTimeLine), "aclrtCreateEventExWithFlag");
}

cw_status between(Event from, Event to, int64_t* ns) {
  float ms = 0;
  TRY(check(acl.event_elapsed(&ms, from, to), "aclrtEventElapsedTime"));
  return *ns = static_cast<int64_t>(static_cast<double>(ms) * 1e6), CW_OK;
}

// The shortest of five, as what is longer was interrupted. The device is this thread's.
cw_status read_clocks(State& s, const Clocks& clocks, Pair* out) {
  Event event = nullptr;
  TRY(new_event(&event));
  int64_t shortest = INT64_MAX;
  cw_status status = CW_OK;
  for (int i = 0; i < 5 && !status; ++i) {
    const int64_t before = now(s);
    int64_t chip_ns = 0;
    status = check(acl.event_record(event, clocks.device->default_stream->stream), "aclrtRecordEvent");
    if (!status) status = check(acl.event_sync(event), "aclrtSynchronizeEvent");
    const int64_t took = now(s) - before;
    if (!status) status = between(clocks.zero, event, &chip_ns);
    if (!status && took < shortest) shortest = took, *out = {chip_ns, before + took / 2};
  }
  acl.event_destroy(event);
  return status;
}

// The device's first reading: what is timed on it later is counted from here.
cw_status begin_clocks(State& s, Device& device) {
  Clocks made;
  made.device = &device;
  TRY(new_event(&made.zero));
  cw_status status = check(acl.event_record(made.zero, device.default_stream->stream), "aclrtRecordEvent");
  if (!status) status = check(acl.event_sync(made.zero), "aclrtSynchronizeEvent");
  if (!status) status = read_clocks(s, made, &made.first);
  if (status) return acl.event_destroy(made.zero), status;
  std::lock_guard<std::mutex> lock(s.mutex);
  return s.clocks[device.index] = made, CW_OK;
}

cw_status clock(int32_t index, int64_t* ns) {
  Device* device = nullptr;
  TRY(find_device("profile clock", index, &device));
  State& s = state();
  std::lock_guard<std::mutex> control(s.control);
  if (!s.wall) s.wall = wall_ns() - steady_ns();
  if (s.on && !s.clocks.count(index)) TRY(begin_clocks(s, *device));
  return *ns = now(s), CW_OK;
}

void end_session(State& s) {
  mspti.disable(kMsptiKernel);
  if (s.calls_on) mspti.disable(kMsptiAclCalls);
  mspti.disable(kMsptiExternal);
  mspti.unsubscribe(s.subscriber);
  s.subscriber = nullptr;
  mspti.flush(1);
}

cw_status start() {
  if (const std::string words = words_for_profile(); !words.empty()) return fail(CW_UNSUPPORTED, "%s", words.c_str());
  State& s = state();
  std::lock_guard<std::mutex> control(s.control);
  if (s.on) return fail(CW_INVALID, "profile start: it was started, and not stopped");
  TRY(check_mspti(mspti.subscribe(&s.subscriber, ignore, nullptr), "msptiSubscribe"));
  cw_status status = check_mspti(mspti.callbacks(request, complete), "msptiActivityRegisterCallbacks");
  if (!status) status = check_mspti(mspti.enable(kMsptiExternal), "msptiActivityEnable of correlations");
  // Numbers are documented to come with records of calls: asked for where there are such, and not read.
  if (!status) s.calls_on = mspti.enable(kMsptiAclCalls) == kSuccess;
  if (!status) status = check_mspti(mspti.enable(kMsptiKernel), "msptiActivityEnable of kernels");
  if (status) {
    const std::string words = last_error();
    end_session(s);
    return fail(status, "%s", words.c_str());
  }
  std::lock_guard<std::mutex> lock(s.mutex);
  s.launches.clear(), s.kernels.clear(), s.numbers.clear();
  for (const auto& [index, clocks] : s.clocks) acl.event_destroy(clocks.zero);
  s.clocks.clear();
  s.found.clear(), s.handed_out = 0, s.names.clear(), s.waiting.clear(), s.untimed = 0;
  s.wall = wall_ns() - steady_ns();
  s.on = true;
  profiling = true;
  return CW_OK;
}

// Until every launch has a kernel and nothing came since, or nothing came three times: a launch may have had none.
void drain(State& s) {
  constexpr auto kPause = std::chrono::milliseconds(25);
  size_t before = 0;
  for (int quiet = 0, turns = 0; turns < 400; ++turns) {
    mspti.flush(1);
    size_t kernels = 0, missing = 0;
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      kernels = s.kernels.size();
      std::set<uint64_t> seen;
      for (const Kernel& kernel : s.kernels)
        if (const auto it = s.numbers.find(kernel.correlation); it != s.numbers.end()) seen.insert(it->second);
      for (const Launch& launch : s.launches) missing += launch.kernels && !seen.count(launch.number);
    }
    quiet = kernels == before ? quiet + 1 : 0;
    if (quiet >= (missing ? 3 : 1)) return;
    before = kernels;
    std::this_thread::sleep_for(kPause);
  }
}

// Of the chip's clock as ours. Over less than a second the rate is not measured better than it is kept.
int64_t ours(const Clocks& clocks, int64_t chip_ns) {
  const int64_t since = chip_ns - clocks.first.chip_ns, length = clocks.last.chip_ns - clocks.first.chip_ns;
  const int64_t drift = clocks.last.ns - clocks.first.ns - length;
  if (length < 1'000'000'000) return clocks.first.ns + since + drift / 2;
  return clocks.first.ns + since +
         static_cast<int64_t>(static_cast<double>(since) / static_cast<double>(length) * static_cast<double>(drift));
}

// Takes the times of what has events and is over, and gives the events back, so that a long trace does not hold all.
void read_events(State& s, size_t leave) {
  for (; s.waiting.size() > leave; s.waiting.pop_front()) {
    Launch& launch = s.launches[s.waiting.front()];
    int status = 0;
    if (leave && acl.event_status(launch.after, &status) == kSuccess && status != kEventComplete) return;
    const auto clocks = s.clocks.find(launch.device->index);
    int64_t length = 0;
    if (clocks == s.clocks.end() || between(clocks->second.zero, launch.before, &launch.begin_ns) ||
        between(launch.before, launch.after, &length))
      launch.begin_ns = 0, ++s.untimed;
    launch.end_ns = launch.begin_ns + length;
    auto& spare = s.spare[launch.device->index];
    spare.push_back(launch.before), spare.push_back(launch.after);
    launch.before = launch.after = nullptr;
  }
}

// By our clock, and not before the host's call. False: there are none.
bool times_of(const State& s, Launch& launch) {
  if (!launch.by_chip) return true;
  const auto clocks = s.clocks.find(launch.device->index);
  if (!launch.begin_ns || clocks == s.clocks.end() || !clocks->second.last.ns) return false;
  const int64_t length = launch.end_ns - launch.begin_ns, begin = ours(clocks->second, launch.begin_ns);
  launch.begin_ns = std::max(launch.begun_ns, begin);
  launch.end_ns = std::max(launch.begin_ns, begin + length);
  return true;
}

void collect(State& s) {
  read_events(s, 0);
  std::unordered_map<uint64_t, std::vector<const Kernel*>> by_number;
  uint64_t timeless = 0;
  for (const Kernel& kernel : s.kernels) {
    const auto it = s.numbers.find(kernel.correlation);
    const uint64_t number = it == s.numbers.end() ? 0 : it->second;
    if (!kernel.begin_ns && !kernel.end_ns) {
      ++timeless;
      continue;
    }
    if (number) by_number[number].push_back(&kernel);
    s.found.push_back({number, kernel.begin_ns, std::max(kernel.begin_ns, kernel.end_ns), kernel.name});
  }
  struct Lane {
    int64_t end_ns = INT64_MIN;  // of what came before
    cw_activity* last = nullptr;  // a copy that the next kernel may cut
  };
  std::map<Stream, Lane> lanes;
  s.found.reserve(s.found.size() + s.launches.size());
  uint64_t launches = 0, bare = 0;
  for (size_t i = 0; i < s.launches.size(); ++i) {
    Launch& launch = s.launches[i];
    Lane& lane = lanes[launch.stream];
    if (launch.kernels) {
      const auto it = by_number.find(launch.number);
      ++launches, bare += it == by_number.end();
      if (it == by_number.end()) continue;
      int64_t begin = INT64_MAX;
      for (const Kernel* kernel : it->second)
        begin = std::min(begin, kernel->begin_ns), lane.end_ns = std::max(lane.end_ns, kernel->end_ns);
      if (cw_activity* copy = std::exchange(lane.last, nullptr)) {
        copy->end_ns = std::min(copy->end_ns, begin);
        copy->begin_ns = std::min(copy->begin_ns, copy->end_ns);
      }
      continue;
    }
    if (!times_of(s, launch)) continue;
    launch.begin_ns = std::max(launch.begin_ns, lane.end_ns);
    launch.end_ns = std::max(launch.begin_ns, launch.end_ns);
    if (const auto clocks = s.clocks.find(launch.device->index); clocks != s.clocks.end() && i < clocks->second.over) {
      launch.end_ns = std::min(launch.end_ns, clocks->second.over_ns);
      launch.begin_ns = std::min(launch.begin_ns, launch.end_ns);
    }
    lane.end_ns = launch.end_ns;
    s.found.push_back({launch.number, launch.begin_ns, launch.end_ns, nullptr});
    lane.last = &s.found.back();
  }
  if (!host.log) return;
  if (bare || timeless)
    host.log(2, ("profile: MSPTI told of no kernel for " + std::to_string(bare) + " of " + std::to_string(launches) +
                 " launches, and no times of " + std::to_string(timeless) +
                 " kernels; CAUSEWAY_PROFILE_CLOCK=events times each by events")
                    .c_str());
  if (s.untimed)
    host.log(2, ("profile: " + std::to_string(s.untimed) + " copies could not be timed by events").c_str());
}

cw_status stop() {
  State& s = state();
  std::lock_guard<std::mutex> control(s.control);
  if (!s.on) return CW_OK;
  profiling = false, s.on = false;
  drain(s);
  end_session(s);
  for (auto& [index, clocks] : s.clocks) {
    Device* device = nullptr;
    Pair last;
    if (find_device("profile stop", index, &device) == CW_OK && read_clocks(s, clocks, &last) == CW_OK)
      clocks.last = last;
  }
  std::lock_guard<std::mutex> lock(s.mutex);
  return collect(s), CW_OK;
}

cw_status correlate(uint64_t id) { return t_number = id, CW_OK; }

// All of them after `stop`: before it MSPTI may still have some.
cw_status read(cw_activity* out, uint32_t capacity, uint32_t* count) {
  State& s = state();
  std::lock_guard<std::mutex> control(s.control);
  const size_t left = s.on ? 0 : s.found.size() - s.handed_out;
  *count = static_cast<uint32_t>(std::min<size_t>(capacity, left));
  std::copy_n(s.found.begin() + static_cast<ptrdiff_t>(s.handed_out), *count, out);
  return s.handed_out += *count, CW_OK;
}

const cw_stream_t& stream_of(const Device& device, cw_stream handle) {
  return handle ? *handle : *device.default_stream;
}

}  // namespace

std::string words_for_profile() {
  if (const char* words = open_acl(); *words) return words;
  const std::string soc = soc_name();
  if (const auto is = [&](const char* with) { return soc.rfind(with, 0) == 0; };
      is("Ascend310P") || (is("Ascend910") && !is("Ascend910B") && !is("Ascend910_9")))
    return "CANN's MSPTI does not serve " + soc;
  return open_mspti();
}

std::string notes_for_profile() {
  const std::string words = words_for_profile();
  return words.empty()
             ? ""
             : "no times of the chip's own in torch.profiler, events around the work in their stead: " + words;
}

void known_over(const Device& device) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  const auto clocks = s.clocks.find(device.index);
  if (clocks != s.clocks.end()) clocks->second.over_ns = now(s), clocks->second.over = s.launches.size();
}

void Numbered::begin(Device& device, cw_stream handle) {
  // Not for ever: a thread that launches may itself wait for what another one has yet to launch.
  lock_ = std::unique_lock<std::timed_mutex>(launching(), std::chrono::seconds(1));
  const cw_stream_t& stream = stream_of(device, handle);
  begun_ = true;
  if (!lock_ || !t_number || stream.captured) return;
  State& s = state();
  pushed_ = mspti.push(kMsptiCustom, t_number) == kSuccess;
  std::lock_guard<std::mutex> lock(s.mutex);
  s.launches.push_back({t_number, &device, stream.stream, now(s), true, nullptr, nullptr, 0, 0, false});
}

void Numbered::end() {
  uint64_t last = 0;
  if (pushed_) mspti.pop(kMsptiCustom, &last);
}

void Timed::begin(Device& device, cw_stream handle, bool by_host) {
  const cw_stream_t& stream = stream_of(device, handle);
  if (stream.captured) return;
  State& s = state();
  device_ = &device, stream_ = stream.stream, begun_ns_ = now(s);
  if (by_host) return;
  std::lock_guard<std::mutex> lock(s.mutex);
  auto& spare = s.spare[device.index];
  for (int i = 0; i < 2 && spare.size() < 2; ++i) {
    Event made = nullptr;
    if (new_event(&made) == CW_OK) spare.push_back(made);
  }
  if (spare.size() < 2 || acl.event_record(spare.back(), stream_) != kSuccess) {
    device_ = nullptr;
    ++s.untimed;
    return;
  }
  before_ = spare.back(), spare.pop_back();
}

void Timed::end() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  Launch launch = {t_number, device_, stream_,   begun_ns_, false,
                   before_,  nullptr, begun_ns_, now(s),    before_ != nullptr};
  if (before_) {
    auto& spare = s.spare[device_->index];
    launch.after = spare.back(), spare.pop_back();
    if (acl.event_record(launch.after, stream_) != kSuccess) {
      spare.push_back(before_), spare.push_back(launch.after);
      ++s.untimed;
      return;
    }
  }
  s.launches.push_back(launch);
  if (!before_) return;
  constexpr size_t kWaiting = 256;
  s.waiting.push_back(s.launches.size() - 1);
  read_events(s, kWaiting);
}

const cw_profile_v1 profile_table = {sizeof(cw_profile_v1), 0, clock, start, stop, correlate, read};

}  // namespace ascend
