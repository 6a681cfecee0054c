// The GPUs, and what is known of each while it works.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "causeway/abi.h"
#include "driver.hpp"

namespace cuda {

extern cw_host host;  // what the core gave us
std::string setting(const char* key);
// Whether torch's own setting has this value now; an older core knows none.
bool torch_asks(const char* key, const char* value);

// What this vendor's own kernels are written for. Chips that go by CUDA's names may have 64.
constexpr int kWarp = 32;

struct Device {
  int32_t index = 0;
  DeviceId id = 0;
  Context context = kNoContext;  // CUDA's primary one, which its other libraries share
  int major = 0, minor = 0;
  std::string architecture;  // "sm_90"
  int warp = 0;  // lanes
  std::atomic<bool> started{false};  // the context and the default stream are there
  cw_stream_t* default_stream = nullptr;
  std::mutex mutex;  // of what follows
  std::vector<cw_stream_t*> streams;

  int attribute(int which) const;
};

cw_status device_count(int32_t* out);
cw_status device_info(int32_t index, cw_device_info* out);
cw_status sync(int32_t index);
cw_status bind(int32_t index);
cw_status peer_access(int32_t index, int32_t peer, int32_t* out);
cw_status device_attribute(int32_t index, const char* key, cw_arg* out);

// The device of an entry's argument, made this thread's; the words for a number that is none. Opens the driver.
cw_status find_device(const char* entry, int32_t index, Device** out);
// One that is in use already, else the first: a context costs hundreds of megabytes on its GPU.
cw_status find_any_device(const char* entry, Device** out);

}  // namespace cuda
