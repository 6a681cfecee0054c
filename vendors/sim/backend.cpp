// The one exported symbol and the table behind it. Read this first, then the file of each group.
#include <cstring>

#include "causeway/abi.h"
#include "comm.hpp"
#include "code.hpp"
#include "cores.hpp"
#include "device.hpp"
#include "error.hpp"
#include "event.hpp"
#include "fault.hpp"
#include "graph.hpp"
#include "ipc.hpp"
#include "layout.hpp"
#include "memory.hpp"
#include "ops/call.hpp"
#include "profile.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace sim {

static cw_status extension(const char* name, const void** out) {
  if (cw_status status = injected_fault("extension", nullptr)) return status;
  if (strcmp(name, "ipc.v1") == 0) return *out = &ipc_table, CW_OK;
  if (strcmp(name, "comm.v1") == 0 && comm_table()) return *out = comm_table(), CW_OK;
  if (!settings().without.count("check.v1") && strcmp(name, "check.v1") == 0) return *out = &check_table, CW_OK;
  if (settings().ops == Offer::all && strcmp(name, "operators.v1") == 0) return *out = library_names, CW_OK;
  if (strcmp(name, "profile.v1") == 0) return *out = &profile_table, CW_OK;
  if (settings().graphs && strcmp(name, "graph.v1") == 0) return *out = &graph_table, CW_OK;
  const bool code = settings().code || settings().teams;
  if (code && !settings().without.count("cores.v1") && strcmp(name, "cores.v1") == 0) return *out = &cores_table, CW_OK;
  if (layout_table() && strcmp(name, "layout.v1") == 0) return *out = layout_table(), CW_OK;
  if (code && strcmp(name, "code.v1") == 0) return *out = &code_table(), CW_OK;
  return fail(CW_UNSUPPORTED, "extension %s is not offered", name);
}

// Entries that stand alone, for setting "without".
static void leave_out(cw_backend* table) {
  const auto without = [](const char* entry) { return settings().without.count(entry) != 0; };
#define ENTRY(name) \
  if (without(#name)) table->name = nullptr
  ENTRY(bind);
  ENTRY(mem_set);
  ENTRY(mem_info);
  ENTRY(host_alloc);
  if (without("host_alloc")) table->host_free = nullptr;
  ENTRY(close);
  ENTRY(peer_access);
  ENTRY(device_attribute);
  ENTRY(host_register);
  if (without("host_register")) table->host_unregister = nullptr;
  ENTRY(fault);
  ENTRY(stream_callback);
  ENTRY(host_alloc_for);
  if (without("host_alloc_for")) table->host_free_for = nullptr;
  ENTRY(mem_alloc_on);
  if (without("mem_alloc_on")) table->mem_free_on = nullptr;
  ENTRY(mem_reserve);
  if (without("mem_reserve")) table->mem_map = table->mem_unmap = table->mem_release = nullptr;
  ENTRY(op_find_for);
#undef ENTRY
}

static cw_backend* make_full_table() {
  auto* table = new cw_backend{};  // lives as long as the process
  table->struct_size = sizeof(cw_backend);
  table->abi_version = CW_ABI_VERSION;
  table->name = "sim";
  table->version = "1.0";
  table->last_error = last_error;

  table->device_count = device_count;
  table->device_info = device_info;
  table->sync = sync;
  table->mem_alloc = mem_alloc;
  table->mem_free = mem_free;
  table->mem_copy = mem_copy;
  table->bind = bind;
  table->mem_set = mem_set;
  table->mem_info = mem_info;
  table->host_alloc = host_alloc;
  table->host_free = host_free;
  table->close = close_chip;
  table->peer_access = peer_access;
  table->device_attribute = device_attribute;
  table->host_register = host_register;
  table->host_unregister = host_unregister;
  table->fault = fault;
  table->stream_callback = stream_callback;
  table->host_alloc_for = host_alloc_for;
  table->host_free_for = host_free_for;
  table->mem_alloc_on = mem_alloc_on;
  table->mem_free_on = mem_free_on;
  table->mem_reserve = mem_reserve;
  table->mem_map = mem_map;
  table->mem_unmap = mem_unmap;
  table->mem_release = mem_release;
  if (settings().level < 1) return table;

  table->op_find = op_find;
  table->op_find_for = op_find_for;
  if (settings().level < 2) return table;

  table->stream_create = stream_create;
  table->stream_destroy = stream_destroy;
  table->stream_query = stream_query;
  table->stream_sync = stream_sync;
  table->stream_wait = stream_wait;
  table->event_create = event_create;
  table->event_destroy = event_destroy;
  table->event_record = event_record;
  table->event_query = event_query;
  table->event_sync = event_sync;
  table->event_elapsed = event_elapsed;
  table->extension = extension;
  return table;
}

static cw_backend* make_table() {
  cw_backend* table = make_full_table();
  leave_out(table);
  return table;
}

}  // namespace sim

// Reads settings and builds the table. Touches no device: this runs at `import torch`.
const cw_backend* cw_open_v1(const cw_host* host) {
  if (!host || host->abi_version != CW_ABI_VERSION) return nullptr;
  static const cw_backend* table = [host] {
    sim::read_settings(*host);
    sim::make_devices();
    sim::arm_faults();
    sim::end_at_exit();
    return sim::make_table();
  }();
  return table;
}
