#include "profile.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>

#include "device.hpp"
#include "fault.hpp"

namespace sim {

std::atomic<bool> profiling{false};

namespace {

std::mutex mutex;
std::deque<cw_activity>& noted() {
  static auto* all = new std::deque<cw_activity>;  // streams outlive statics
  return *all;
}
thread_local uint64_t current = 0;

cw_status clock(int32_t index, int64_t* ns) {
  Device* device = nullptr;
  if (cw_status status = enter("profile_clock", index, &device)) return status;
  *ns = clock_ns();
  return CW_OK;
}

cw_status start() {
  if (cw_status status = injected_fault("profile_start", nullptr)) return status;
  std::lock_guard<std::mutex> lock(mutex);
  noted().clear();
  profiling = true;
  return CW_OK;
}

cw_status stop() {
  if (cw_status status = injected_fault("profile_stop", nullptr)) return status;
  profiling = false;
  return CW_OK;
}

cw_status correlate(uint64_t id) {
  current = id;
  return CW_OK;
}

cw_status read(cw_activity* out, uint32_t capacity, uint32_t* count) {
  if (cw_status status = injected_fault("profile_read", nullptr)) return status;
  std::lock_guard<std::mutex> lock(mutex);
  *count = static_cast<uint32_t>(std::min<size_t>(capacity, noted().size()));
  std::copy_n(noted().begin(), *count, out);
  noted().erase(noted().begin(), noted().begin() + *count);
  return CW_OK;
}

}  // namespace

uint64_t correlation() { return current; }

int64_t clock_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

void note(const char* name, uint64_t id, int64_t begin_ns, int64_t end_ns) {
  std::lock_guard<std::mutex> lock(mutex);
  noted().push_back({id, begin_ns, end_ns, name});
}

const cw_profile_v1 profile_table = {sizeof(cw_profile_v1), 0, clock, start, stop, correlate, read};

}  // namespace sim
