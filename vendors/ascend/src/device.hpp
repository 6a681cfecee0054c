// The NPUs, and what is known of each while it works.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "acl.hpp"
#include "causeway/abi.h"

namespace ascend {

extern cw_host host;  // what the core gave us
std::string setting(const char* key);
// Whether torch's own setting has this value now; an older core knows none.
bool torch_asks(const char* key, const char* value);

struct Device {
  int32_t index = 0;
  std::atomic<bool> started{false};  // the default stream is there
  cw_stream_t* default_stream = nullptr;
  std::mutex mutex;  // of what follows
  std::vector<cw_stream_t*> streams;
};

cw_status device_count(int32_t* out);
cw_status device_info(int32_t index, cw_device_info* out);
cw_status sync(int32_t index);
cw_status bind(int32_t index);
cw_status peer_access(int32_t index, int32_t peer, int32_t* out);
cw_status enable_peers(int32_t index, int32_t peer, bool* can);
cw_status device_attribute(int32_t index, const char* key, cw_arg* out);

// The device of an entry's argument, made this thread's; the words for a number that is none. Opens the runtime.
cw_status find_device(const char* entry, int32_t index, Device** out);
// One that is in use already, else the first.
cw_status find_any_device(const char* entry, Device** out);

// A number of aclrtDevAttr; 0: not known.
int64_t attribute(int32_t index, int which);
std::string soc_name();  // "Ascend910B1", or empty: no runtime
// What the chip's own operators compute with: no bfloat16 on 310P and 910A.
cw_dtypes computed_dtypes();
// For `causeway doctor`: what is here, what is missing and what to do.
const char* notes();

}  // namespace ascend
