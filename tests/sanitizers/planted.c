/* A vendor with one fault of the four below, for the tests of the sanitizers: in the vendor's own code, and where the
 * core reads what the vendor gave it. -DPLANTED=1 to 4; 0 has none. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "causeway/abi.h"

enum { NONE, RACE, RACE_WITH_CORE, FREED, FREED_FOR_CORE };

static char* words;

static cw_status device_count(int32_t* out) {
  *out = 1;
  return CW_OK;
}

static cw_status device_info(int32_t device, cw_device_info* out) {
  cw_device_info info;
  (void)device;
  memset(&info, 0, sizeof(info));
  info.struct_size = out->struct_size;
  info.flags = CW_HOST_ADDRESSABLE;
  strcpy(info.name, "Planted");
  info.memory = 1u << 30;
  info.dtypes = CW_ALL_DTYPES;
  info.alignment = 64;
  memcpy(out, &info, out->struct_size < sizeof(info) ? out->struct_size : sizeof(info));
  return CW_OK;
}

static cw_status sync(int32_t device) {
  (void)device;
  return CW_OK;
}

/* Two threads that allocate take turns in the core, but nothing orders them and this thread. */
static uint64_t allocated;
static void* count(void* unused) {
  (void)unused;
  ++allocated;
  return NULL;
}

/* After it the words of the last error are those of memory that was given back, or that a thread writes. */
static void* write_words(void* unused) {
  (void)unused;
  for (int i = 0; i < 1000; ++i) {
    words[i % 8] = (char)('a' + i % 26);
    struct timespec a_while = {0, 1000000};
    nanosleep(&a_while, NULL);
  }
  return NULL;
}

static cw_status mem_alloc(int32_t device, uint64_t bytes, void** out) {
  (void)device;
  pthread_t thread;
  if (PLANTED == RACE) {
    pthread_create(&thread, NULL, count, NULL);
    ++allocated;
    pthread_join(thread, NULL);
  }
  *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (PLANTED == FREED) {
    free(*out);
    ((volatile char*)*out)[3] = 1;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  if (PLANTED == RACE_WITH_CORE || PLANTED == FREED_FOR_CORE) {
    free(*out);
    words = strdup("there is no memory, says the vendor");
    if (PLANTED == RACE_WITH_CORE) {
      pthread_create(&thread, NULL, write_words, NULL);
      pthread_detach(thread);
    } else {
      free(words);
    }
    return CW_FAILED;
  }
  return *out || !bytes ? CW_OK : CW_OUT_OF_MEMORY;
}

static cw_status mem_free(int32_t device, void* ptr) {
  (void)device;
  free(ptr);
  return CW_OK;
}

static cw_status mem_copy(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes,
                          cw_stream stream) {
  (void)dst_device;
  (void)src_device;
  (void)stream;
  memmove(dst, src, bytes);
  return CW_OK;
}

static const char* last_error(void) { return words ? words : ""; }

static const cw_backend table = {.struct_size = sizeof(cw_backend),
                                 .abi_version = CW_ABI_VERSION,
                                 .name = "planted",
                                 .version = "1",
                                 .device_count = device_count,
                                 .device_info = device_info,
                                 .sync = sync,
                                 .mem_alloc = mem_alloc,
                                 .mem_free = mem_free,
                                 .mem_copy = mem_copy,
                                 .last_error = last_error};

const cw_backend* cw_open_v1(const cw_host* host) {
  (void)host;
  return &table;
}
