/* Refused: the library itself cannot work with this core, and says so with NULL. */
#include <stddef.h>

#include "causeway/abi.h"

const cw_backend* cw_open_v1(const cw_host* host) {
  if (host->log) host->log(3, "test: this driver needs a newer core");
  return NULL;
}
