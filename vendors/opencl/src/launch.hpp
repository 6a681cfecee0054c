// Launches of functions on streams.
//
// A CPU's runtime wakes its threads at each launch, which costs as much as a small kernel and its dispatch together. So
// on CPUs launches of a single group are held back, until there are kMostHeld of them or anything else is put on the
// stream or asked of it, and go to the runtime together: it wakes once. CAUSEWAY_OPENCL_HOLD_LAUNCHES=0 switches it off.
#pragma once

#include <array>
#include <vector>

#include "device.hpp"

namespace opencl {

cw_status launch(cw_function f, const uint32_t grid[3], const uint32_t group[3], const cw_code_arg* args, uint32_t n,
                 cw_stream handle);

// A launch that the runtime will take, with its values copied.
struct HeldLaunch {
  cw_function_t* function = nullptr;
  size_t group[3] = {1, 1, 1};
  std::vector<cw_code_arg> args;
  std::vector<char> values;
};

constexpr size_t kMostHeld = 16;

// Those of one stream, in order.
class HeldLaunches {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kMostHeld; }
  void add(cw_function f, const uint32_t group[3], const cw_code_arg* args, uint32_t n);
  // Give all to the runtime. What fails is the stream's to tell.
  void put(cw_stream_t& stream);

 private:
  std::array<HeldLaunch, kMostHeld> held_;  // used again and again, so that they keep their memory
  size_t count_ = 0;
};

}  // namespace opencl
