/* Refused: streams without stream_wait; a group comes whole or not at all. */
#include "base.h"

static cw_status stream_create(int32_t device, int32_t priority, cw_stream* out) {
  (void)device;
  (void)priority;
  *out = NULL;
  return CW_OK;
}

static cw_status any_stream(int32_t device, cw_stream stream) {
  (void)device;
  (void)stream;
  return CW_OK;
}

static const cw_backend table = {BASE_HEAD,
                                 BASE_LEVEL_0,
                                 .stream_create = stream_create,
                                 .stream_destroy = any_stream,
                                 .stream_query = any_stream,
                                 .stream_sync = any_stream};

const cw_backend* cw_open_v1(const cw_host* host) {
  (void)host;
  return &table;
}
