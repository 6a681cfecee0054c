/* A vendor whose device is a thread's own, as that of many a driver: the simulated chip, with entries that end the process
 * where the thread that calls has not bound the device. BOUND_SIM is the path of the simulated chip's library. */
#include <causeway/abi.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cw_backend* sim;
static const cw_code_v1* sim_code;
static cw_backend table;
static cw_code_v1 code;
static _Thread_local int bound;

static void need(const char* entry) {
  if (bound) return;
  fprintf(stderr, "%s: the device is not bound to this thread\n", entry);
  _Exit(98);
}

static cw_status bind(int32_t device) {
  bound = 1;
  return sim->bind ? sim->bind(device) : CW_OK;
}
static cw_status sync_device(int32_t device) {
  need("sync");
  return sim->sync(device);
}
static cw_status mem_alloc(int32_t device, uint64_t bytes, void** out) {
  need("mem_alloc");
  return sim->mem_alloc(device, bytes, out);
}
static cw_status mem_free(int32_t device, void* memory) {
  need("mem_free");
  return sim->mem_free(device, memory);
}
static cw_status mem_copy(void* to, int32_t to_device, const void* from, int32_t from_device, uint64_t bytes,
                          cw_stream stream) {
  need("mem_copy");
  return sim->mem_copy(to, to_device, from, from_device, bytes, stream);
}
static cw_status build(int32_t device, const char* source, const char* options, cw_program* out) {
  need("code.build");
  return sim_code->build(device, source, options, out);
}
static cw_status extension(const char* name, const void** out) {
  const cw_status status = sim->extension(name, out);
  if (status != CW_OK || strcmp(name, "code.v1") != 0) return status;
  sim_code = *out;
  memcpy(&code, sim_code, sim_code->struct_size < sizeof code ? sim_code->struct_size : sizeof code);
  code.build = build;
  *out = &code;
  return CW_OK;
}

/* Device memory of the program's own. */
CW_EXPORT void* own_memory(uint64_t bytes) {
  void* memory = NULL;
  return sim && sim->mem_alloc(0, bytes, &memory) == CW_OK ? memory : NULL;
}

CW_EXPORT const cw_backend* cw_open_v1(const cw_host* host) {
  void* library = dlopen(getenv("BOUND_SIM"), RTLD_NOW | RTLD_LOCAL);
  cw_open_fn open = NULL;
  if (library) *(void**)&open = dlsym(library, "cw_open_v1");
  if (!open || !(sim = open(host))) return NULL;
  memcpy(&table, sim, sim->struct_size < sizeof table ? sim->struct_size : sizeof table);
  table.bind = bind, table.sync = sync_device, table.extension = extension;
  table.mem_alloc = mem_alloc, table.mem_free = mem_free, table.mem_copy = mem_copy;
  return &table;
}
