/* Loads, with no device: the driver is missing, and the words say so. */
#include "base.h"

static const char* last_error(void) { return "libtestdriver.so.1 is not installed"; }

static cw_status no_driver(int32_t* out) {
  *out = 0;
  return CW_FAILED;
}

static const cw_backend table = {BASE_HEAD, BASE_LEVEL_0, .last_error = last_error, .device_count = no_driver};

const cw_backend* cw_open_v1(const cw_host* host) {
  (void)host;
  return &table;
}
