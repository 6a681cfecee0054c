// The one exported symbol and the table behind it. Read this first, then the file of each group.
#include <algorithm>
#include <cstring>

#include "call.hpp"
#include "causeway/abi.h"
#include "device.hpp"
#include "error.hpp"
#include "library.hpp"

namespace diopi {

static cw_status extension(const char* name, const void** out) {
  if (strcmp(name, "notes.v1") == 0) return *out = notes(), CW_OK;
  if (strcmp(name, "diopi.rows.v1") == 0) return *out = rows(), CW_OK;
  return fail(CW_UNSUPPORTED, "extension %s is not offered", name);
}

static cw_backend make_table() {
  cw_backend table = {};
  table.struct_size = sizeof(cw_backend);
  table.abi_version = CW_ABI_VERSION;
  table.name = "diopi";
  table.version = "0.1";
  table.last_error = last_error;
  table.device_count = device_count;
  table.device_info = device_info;
  table.sync = sync;
  table.mem_alloc = mem_alloc;
  table.mem_free = mem_free;
  table.mem_copy = mem_copy;
  table.op_find = op_find;
  table.extension = extension;
  table.close = close;
  return table;
}

}  // namespace diopi

// Keeps what the core gives. Opens no library of DIOPI's: this runs at `import torch`.
const cw_backend* cw_open_v1(const cw_host* given) {
  if (!given || given->abi_version != CW_ABI_VERSION) return nullptr;
  memcpy(&diopi::host, given, std::min<size_t>(given->struct_size, sizeof(diopi::host)));
  static const cw_backend table = diopi::make_table();
  return &table;
}
