// profile.v1: kernels at the times that MSPTI tells. It times no copy (its records of copies are of the host's calls, and
// need it to be preloaded), so copies and replays of graphs have an event before and behind them. profile.cpp says more.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "causeway/abi.h"
#include "device.hpp"

namespace ascend {

extern const cw_profile_v1 profile_table;
extern std::atomic<bool> profiling;

std::string words_for_profile();  // why there is none; empty: there is
std::string notes_for_profile();  // for `causeway doctor`

// The device was waited for: what was timed on it before is over.
void known_over(const Device& device);

// Around a launch of kernels: they bear this thread's number.
class Numbered {
 public:
  Numbered(Device& device, cw_stream stream) {
    if (profiling.load(std::memory_order_relaxed)) begin(device, stream);
  }
  ~Numbered() {
    if (begun_) end();
  }
  Numbered(const Numbered&) = delete;
  Numbered& operator=(const Numbered&) = delete;

 private:
  void begin(Device& device, cw_stream stream);
  void end();
  bool begun_ = false, pushed_ = false;
  std::unique_lock<std::timed_mutex> lock_;
};

// Around work on a stream that MSPTI does not time; `by_host`: which is done when the call returns.
class Timed {
 public:
  Timed(Device& device, cw_stream stream, bool by_host = false) {
    if (profiling.load(std::memory_order_relaxed)) begin(device, stream, by_host);
  }
  ~Timed() {
    if (device_) end();
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  void begin(Device& device, cw_stream stream, bool by_host);
  void end();
  Device* device_ = nullptr;
  Stream stream_ = nullptr;
  Event before_ = nullptr;  // NULL: by the host
  int64_t begun_ns_ = 0;
};

}  // namespace ascend
