// The one exported symbol and the table behind it. Read this first, then the file of each group.
#include <algorithm>
#include <cstring>

#include "call.hpp"
#include "code.hpp"
#include "comm.hpp"
#include "causeway/abi.h"
#include "device.hpp"
#include "error.hpp"
#include "graph.hpp"
#include "ipc.hpp"
#include "layout.hpp"
#include "memory.hpp"
#include "profile.hpp"
#include "stream.hpp"

namespace ascend {

static cw_status extension(const char* name, const void** out) {
  if (strcmp(name, "comm.v1") == 0) return *out = &comm_table, CW_OK;
  if (strcmp(name, "code.v1") == 0) {
    const std::string words = words_for_code();
    return words.empty() ? (*out = &code_table, CW_OK) : fail(CW_UNSUPPORTED, "%s", words.c_str());
  }
  if (strcmp(name, "graph.v1") == 0 && has_graphs()) return *out = &graph_table, CW_OK;
  if (strcmp(name, "ipc.v1") == 0 && has_ipc()) return *out = &ipc_table, CW_OK;
  if (strcmp(name, "layout.v1") == 0 && (*out = layout_table())) return CW_OK;
  if (strcmp(name, "profile.v1") == 0) return *out = &profile_table, CW_OK;
  if (strcmp(name, "notes.v1") == 0) return *out = notes(), CW_OK;
  if (strcmp(name, "ascend.rows.v1") == 0) return *out = rows(), CW_OK;
  return fail(CW_UNSUPPORTED, "extension %s is not offered", name);
}

static cw_backend make_table() {
  cw_backend table = {};
  table.struct_size = sizeof(cw_backend);
  table.abi_version = CW_ABI_VERSION;
  table.name = "ascend";
  table.version = "0.1";
  table.last_error = last_error;

  table.device_count = device_count;
  table.device_info = device_info;
  table.bind = bind;
  table.sync = sync;
  table.mem_alloc = mem_alloc;
  table.mem_free = mem_free;
  table.mem_copy = mem_copy;
  table.mem_set = mem_set;
  table.mem_info = mem_info;
  table.host_alloc = host_alloc;
  table.host_free = host_free;

  table.op_find = op_find;

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
  table.peer_access = peer_access;
  table.device_attribute = device_attribute;
  table.stream_callback = stream_callback;
  return table;
}

}  // namespace ascend

// Keeps what the core gives. Opens no library of CANN's: this runs at `import torch`.
const cw_backend* cw_open_v1(const cw_host* given) {
  if (!given || given->abi_version != CW_ABI_VERSION) return nullptr;
  memcpy(&ascend::host, given, std::min<size_t>(given->struct_size, sizeof(ascend::host)));
  static const cw_backend table = ascend::make_table();
  return &table;
}
