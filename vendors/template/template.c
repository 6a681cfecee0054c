/* A vendor's library that loads as it is: one device whose memory is the host's. `causeway new NAME` writes it with
 * your chip's name; replace the bodies with calls of your runtime, from top to bottom. README.md says in which
 * order, and what each step gives your users.
 *
 * Every entry may be called from any thread at any time. Return a status, and leave words for `last_error`.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "causeway/abi.h"

enum { DEVICES = 1 };

static cw_host host; /* the core's services: settings, log, scratch memory, resize */

/* ---- errors ------------------------------------------------------------------------------------------- */
static _Thread_local char words[256];

static const char* last_error(void) { return words; }

/* Say what happened, where, and what to do; the core adds operator, shapes and device. */
static cw_status fail(cw_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof(words), format, arguments);
  va_end(arguments);
  return status;
}

static cw_status check_device(int32_t device) {
  if (device >= 0 && device < DEVICES) return CW_OK;
  return fail(CW_INVALID, "there is no device %d, there are %d", device, DEVICES);
}

/* ---- level 0: devices and memory ------------------------------------------------------------------------ */

/* The first entry that may load your driver. No driver: CW_FAILED, and say which file is missing. */
static cw_status device_count(int32_t* out) {
  *out = DEVICES;
  return CW_OK;
}

static cw_status device_info(int32_t device, cw_device_info* out) {
  cw_device_info info;
  uint32_t size = out->struct_size; /* of the core's struct, which may be shorter than this one */
  if (check_device(device)) return CW_INVALID;
  memset(&info, 0, sizeof(info));
  info.struct_size = size;
  info.flags = CW_HOST_ADDRESSABLE; /* 0 when the host cannot read device memory at the same address */
  snprintf(info.name, sizeof(info.name), "Template %d", device);
  info.memory = UINT64_C(4) << 30;
  info.dtypes = CW_ALL_DTYPES; /* leave out what the chip lacks, e.g. & ~CW_FLOAT64 */
  info.alignment = 64;
  memcpy(out, &info, size < sizeof(info) ? size : sizeof(info));
  return CW_OK;
}

/* Wait for all work on the device. */
static cw_status sync(int32_t device) { return check_device(device); }

static cw_status mem_alloc(int32_t device, uint64_t bytes, void** out) {
  if (check_device(device)) return CW_INVALID;
  *out = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
  if (*out || !bytes) return CW_OK;
  return fail(CW_OUT_OF_MEMORY, "no %llu bytes on device %d", (unsigned long long)bytes, device);
}

static cw_status mem_free(int32_t device, void* ptr) {
  if (check_device(device)) return CW_INVALID;
  free(ptr);
  return CW_OK;
}

/* Four cases: host to device, device to host, within a device, between two. CW_HOST stands for the host. */
static cw_status mem_copy(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes,
                          cw_stream stream) {
  (void)stream;
  if (dst_device != CW_HOST && check_device(dst_device)) return CW_INVALID;
  if (src_device != CW_HOST && check_device(src_device)) return CW_INVALID;
  memmove(dst, src, bytes);
  return CW_OK;
}

/* ---- level 1: operators --------------------------------------------------------------------------------- */
/* One kernel to start from: out = relu(self) for dense float32. What it does not take it declines, and the core
 * finds another way; so start with the case you have.
 *
 * static cw_status relu(const cw_arg* args, int32_t n, cw_stream stream) {
 *   const DLTensor *out = args[0].v.tensor, *self = args[1].v.tensor;   // outputs first
 *   if (self->dtype.code != kDLFloat || self->dtype.bits != 32) return CW_UNSUPPORTED;
 *   return my_launch_relu(self->data, out->data, elements_of(self), stream);
 * }
 *
 * static cw_status op_find(const char* name, cw_op* out) {
 *   if (strcmp(name, "aten::relu.out")) return CW_UNSUPPORTED;
 *   out->needs = CW_NEEDS_CONTIGUOUS;   // the core makes dense copies of what is not
 *   out->dtypes = CW_FLOAT32;
 *   out->kernel = relu;
 *   return CW_OK;
 * }
 */

/* ---- the table ------------------------------------------------------------------------------------------ */
static const cw_backend table = {
    .struct_size = sizeof(cw_backend),
    .abi_version = CW_ABI_VERSION,
    .name = "template", /* torch.device("template"): lower-case letters and '_'; abi.h says what is taken */
    .version = "0.1",
    .last_error = last_error,

    .device_count = device_count,
    .device_info = device_info,
    .sync = sync,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_copy = mem_copy,

    /* Level 0, optional: each spares the core a detour.
     * .bind = ...,                     your runtime has a current device per thread
     * .mem_set = ...,                  else zeros are copied from the host
     * .mem_info = ...,                 else the core counts what it asked for
     * .host_alloc = ..., .host_free = ..., pinned memory: copies run in the background

     * Level 1
     * .op_find = op_find,

     * Level 2: streams, all five or none; events, all six or none
     * .stream_create = ..., .stream_destroy = ..., .stream_query = ..., .stream_sync = ..., .stream_wait = ...,
     * .event_create = ..., .event_destroy = ..., .event_record = ..., .event_query = ..., .event_sync = ...,
     * .event_elapsed = ...,

     * Further tables: "ipc.v1", "profile.v1", "comm.v1", "code.v1", "graph.v1"
     * .extension = ...,
     */
};

/* Runs at `import torch`: touch no driver here. */
const cw_backend* cw_open_v1(const cw_host* given) {
  if (given->abi_version != CW_ABI_VERSION) return NULL;
  memcpy(&host, given, given->struct_size < sizeof(host) ? given->struct_size : sizeof(host));
  return &table;
}
