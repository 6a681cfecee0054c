/* Refused: torch takes lower-case letters, digits and '_' in a device's name. */
#include "base.h"

static const cw_backend table = {BASE_HEAD, BASE_LEVEL_0, .name = "My Chip!"};

const cw_backend* cw_open_v1(const cw_host* host) {
  (void)host;
  return &table;
}
