// The one exported symbol and the table behind it. Read this first, then the file of each group.
#include <algorithm>
#include <cstring>

#include "causeway/abi.h"
#include "device.hpp"
#include "error.hpp"
#include "event.hpp"
#include "memory.hpp"
#include "profile.hpp"
#include "program.hpp"
#include "stream.hpp"

namespace opencl {

static cw_status extension(const char* name, const void** out) {
  if (strcmp(name, "profile.v1") == 0) {
    // A trace of a driver that measures nothing has the times of events, which the host's clock gives.
    for (Device* device : devices())
      if (!measures(*device)) return fail(CW_UNSUPPORTED, "the driver gives no times of what it ran");
    return *out = &profile_table, CW_OK;
  }
  if (strcmp(name, "code.v1") == 0) return *out = &code_table, CW_OK;
  return fail(CW_UNSUPPORTED, "extension %s is not offered", name);
}

static cw_backend make_table() {
  cw_backend table = {};
  table.struct_size = sizeof(cw_backend);
  table.abi_version = CW_ABI_VERSION;
  table.name = "opencl";
  table.version = "0.1";
  table.last_error = last_error;

  table.device_count = device_count;
  table.device_info = device_info;
  table.sync = sync;
  table.mem_alloc = mem_alloc;
  table.mem_free = mem_free;
  table.mem_copy = mem_copy;
  table.mem_set = mem_set;
  table.mem_info = mem_info;

  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_query = stream_query;
  table.stream_sync = stream_sync;
  table.stream_wait = stream_wait;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_query = event_query;
  table.event_sync = event_sync;
  table.event_elapsed = event_elapsed;

  table.extension = extension;
  table.device_attribute = device_attribute;
  table.stream_callback = stream_callback;
  return table;
}

}  // namespace opencl

// Keeps what the core gives. Opens no driver: this runs at `import torch`.
const cw_backend* cw_open_v1(const cw_host* given) {
  if (!given || given->abi_version != CW_ABI_VERSION) return nullptr;
  memcpy(&opencl::host, given, std::min<size_t>(given->struct_size, sizeof(opencl::host)));
  static const cw_backend table = opencl::make_table();
  return &table;
}
