// libmspti.so: records of kernels, and of the numbers that a program pushed when they were launched, in buffers of the
// program's. Names, numbers and layouts are those of MSPTI's public documentation. As on a chip a kernel's record comes some
// time after its end, so the first flush may lack it.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <stack>
#include <thread>
#include <vector>

#include <time.h>

#include "core.hpp"

using namespace stand_in;

namespace {

using Result = int;
enum : Result { kInvalid = 1, kTwoSubscribers = 2, kEnd = 3, kEmpty = 5, kNotPreloaded = 6, kInner = 999 };
enum Kind {
  kMarker = 1,
  kKernel,
  kApi,
  kHccl,
  kMemory,
  kMemset,
  kMemcpy,
  kExternal,
  kCommunication,
  kAclApi,
  kNodeApi,
  kRuntimeApi,
  kKinds
};
constexpr int kExternalKinds = 5;  // CUSTOM2 is 4

struct __attribute__((packed, aligned(8))) KernelRecord {
  int kind;
  uint64_t start, end;
  uint32_t device, stream;
  uint64_t correlation;
  const char *type, *name;
};
struct __attribute__((packed, aligned(8))) ExternalRecord {
  int kind, external_kind;
  uint64_t external, correlation;
};
static_assert(sizeof(KernelRecord) == 56 && sizeof(ExternalRecord) == 24, "packed, in multiples of 8");

struct Waiting {
  KernelRecord record;
  int64_t known_ns;
};

struct State {
  std::mutex lock;
  bool subscribed = false;
  void (*request)(uint8_t**, size_t*, size_t*) = nullptr;
  void (*complete)(uint8_t*, size_t, size_t) = nullptr;
  bool enabled[kKinds] = {};
  int64_t to_wall = 0;  // from the steady clock, as it was at the subscription
  uint64_t next = 1;
  std::deque<Waiting> waiting;
  std::set<std::string> names;
  std::stack<uint64_t> pushed[kExternalKinds];  // of all threads: so it is in MSPTI's public source
  uint8_t* buffer = nullptr;
  size_t size = 0, valid = 0;
};
State& state() {
  static auto* all = new State;  // streams outlive statics
  return *all;
}

int64_t wall_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

struct Full {
  uint8_t* buffer;
  size_t size, valid;
};

// Into the program's buffer. The lock is held; what is full is handed out when it is not.
void put_record(State& s, const void* record, size_t bytes, std::vector<Full>* full) {
  if (s.buffer && s.size - s.valid < bytes) {
    full->push_back({s.buffer, s.size, s.valid});
    s.buffer = nullptr;
  }
  if (!s.buffer) {
    size_t most = 0;
    s.valid = 0;
    s.request(&s.buffer, &s.size, &most);
    if (!s.buffer || s.size < bytes) return;  // it gave none: the record is lost
  }
  memcpy(s.buffer + s.valid, record, bytes);
  s.valid += bytes;
}

// On a thread of the library's, as documented.
void hand_out(const std::vector<Full>& full) {
  if (full.empty()) return;
  std::thread([&] {
    for (const Full& one : full) state().complete(one.buffer, one.size, one.valid);
  }).join();
}

uint64_t launched() {
  State& s = state();
  std::vector<Full> full;
  uint64_t number = 0;
  {
    std::lock_guard<std::mutex> guard(s.lock);
    if (!s.enabled[kKernel]) return 0;
    number = s.next++;
    for (int kind = 1; kind < kExternalKinds; ++kind) {
      if (!s.enabled[kExternal] || s.pushed[kind].empty()) continue;
      const ExternalRecord record = {kExternal, kind, s.pushed[kind].top(), number};
      put_record(s, &record, sizeof record, &full);
    }
  }
  hand_out(full);
  return number;
}

void ran(const std::string& name, uint64_t id, int device, int stream, int64_t begin_ns, int64_t end_ns) {
  static const int64_t late_ns = number("MSPTI_LATE_MS", 5) * 1000000;
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  if (!s.enabled[kKernel]) return;
  const char* kept = s.names.insert(name).first->c_str();
  s.waiting.push_back({{kKernel, uint64_t(begin_ns + s.to_wall), uint64_t(end_ns + s.to_wall), uint32_t(device),
                        uint32_t(stream), id, "KERNEL_AIVEC", kept},
                       end_ns + late_ns});
}

constexpr KernelWatch watch = {launched, ran};

}  // namespace

ENTRY Result msptiSubscribe(void** subscriber, void (*)(void*, int, uint32_t, const void*), void*) {
  CALL();
  if (!subscriber) return kInvalid;
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  if (s.subscribed) return kTwoSubscribers;
  s.subscribed = true;
  s.to_wall = wall_ns() - steady_ns();
  *subscriber = &s;
  watch_kernels(&watch);
  return kGood;
}

ENTRY Result msptiUnsubscribe(void* subscriber) {
  CALL();
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  if (!s.subscribed || subscriber != &s) return kInvalid;
  s.subscribed = false;
  watch_kernels(nullptr);
  return kGood;
}

ENTRY Result msptiActivityRegisterCallbacks(void (*request)(uint8_t**, size_t*, size_t*),
                                            void (*complete)(uint8_t*, size_t, size_t)) {
  CALL();
  if (!request || !complete) return kInvalid;
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  s.request = request, s.complete = complete;
  return kGood;
}

static Result set_kind(int kind, bool on) {
  if (kind < kMarker || kind >= kKinds) return kInvalid;
  // Memory and the older records of collectives come by functions that only a preloaded library has.
  if (kind == kHccl || kind == kMemory || kind == kMemset || kind == kMemcpy) return kNotPreloaded;
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  if (on && !s.request) return kInner;
  s.enabled[kind] = on;
  if (kind == kKernel && !on) s.waiting.clear();  // what has not come is lost
  return kGood;
}

ENTRY Result msptiActivityEnable(int kind) {
  CALL();
  return set_kind(kind, true);
}

ENTRY Result msptiActivityDisable(int kind) {
  CALL();
  return set_kind(kind, false);
}

ENTRY bool msptiActivityIsEnabled(int kind) {
  CALL_ONLY();
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  return kind >= kMarker && kind < kKinds && s.enabled[kind];
}

// Where a thread is in its buffer it knows itself, as in MSPTI's public source: who stops in the middle begins the next
// buffer there.
ENTRY Result msptiActivityGetNextRecord(uint8_t* buffer, size_t valid, void** record) {
  CALL();
  if (!buffer || !record) return kInvalid;
  thread_local size_t at = 0;
  if (at >= valid) {
    at = 0;
    return kEnd;
  }
  int kind;
  memcpy(&kind, buffer + at, sizeof kind);
  if (kind != kKernel && kind != kExternal) return kInner;
  *record = buffer + at;
  at += kind == kKernel ? sizeof(KernelRecord) : sizeof(ExternalRecord);
  return kGood;
}

ENTRY Result msptiActivityFlushAll(uint32_t) {
  CALL();
  State& s = state();
  std::vector<Full> full;
  {
    std::lock_guard<std::mutex> guard(s.lock);
    const int64_t now = steady_ns();
    for (; !s.waiting.empty() && s.waiting.front().known_ns <= now; s.waiting.pop_front())
      put_record(s, &s.waiting.front().record, sizeof(KernelRecord), &full);
    if (s.buffer) full.push_back({s.buffer, s.size, s.valid});
    s.buffer = nullptr;
  }
  hand_out(full);
  return kGood;
}

ENTRY Result msptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
  CALL();
  if (kind < 1 || kind >= kExternalKinds) return kInvalid;
  State& s = state();
  {
    std::lock_guard<std::mutex> guard(s.lock);
    s.pushed[kind].push(id);
  }
  std::this_thread::yield();  // so that who does not keep other threads from pushing meets them
  return kGood;
}

ENTRY Result msptiActivityPopExternalCorrelationId(int kind, uint64_t* last) {
  CALL();
  if (kind < 1 || kind >= kExternalKinds || !last) return kInvalid;
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  if (s.pushed[kind].empty()) return kEmpty;
  *last = s.pushed[kind].top();
  s.pushed[kind].pop();
  return kGood;
}
