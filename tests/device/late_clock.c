/* The simulated chip (CW_SIM_LIBRARY), but a question for the time takes 60 ms: LATE=before sleeps before the clock is read
 * or the event is recorded, LATE=after when it has been. What is read is half of that away from the middle of the call. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "causeway/abi.h"

static const cw_backend* sim;
static cw_backend table;
static const cw_profile_v1* profile;
static cw_profile_v1 late_profile;
static char when[8];

static void wait_if(const char* now) {
  struct timespec a_while = {0, 60000000};
  if (strcmp(when, now) == 0) nanosleep(&a_while, NULL);
}

static cw_status now(int32_t device, int64_t* ns) {
  wait_if("before");
  cw_status status = profile->clock(device, ns);
  wait_if("after");
  return status;
}

static cw_status event_record(int32_t device, cw_event event, cw_stream stream) {
  wait_if("before");
  return sim->event_record(device, event, stream);
}

static cw_status event_sync(int32_t device, cw_event event) {
  cw_status status = sim->event_sync(device, event);
  wait_if("after");
  return status;
}

static cw_status extension(const char* name, const void** out) {
  cw_status status = sim->extension(name, out);
  if (status == CW_OK && strcmp(name, "profile.v1") == 0) {
    profile = (const cw_profile_v1*)*out;
    late_profile = *profile;
    late_profile.clock = now;
    *out = &late_profile;
  }
  return status;
}

const cw_backend* cw_open_v1(const cw_host* host) {
  void* library = dlopen(getenv("CW_SIM_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  if (!library) return NULL;
  const cw_backend* (*open)(const cw_host*);
  *(void**)&open = dlsym(library, "cw_open_v1");
  sim = open(host);
  if (!sim) return NULL;
  strncpy(when, getenv("LATE") ? getenv("LATE") : "", sizeof(when) - 1);
  table = *sim;
  table.extension = extension;
  table.event_record = event_record;
  table.event_sync = event_sync;
  return &table;
}
