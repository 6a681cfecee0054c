/* Extension "cores.v1" of a vendor's library: a share of a device's cores for this process, or for one of its streams.
 *
 * Where several programs share a chip each may be held to some of its compute units, and so may work that is not to
 * slow down the rest. A limit holds for what is put on streams from then on, by any thread; what a graph notes may keep
 * to the limits of its capture or to those of each launch. Where a process and a stream have one the lower holds.
 * Kernels give the same numbers under any limit. */
#ifndef CAUSEWAY_CORES_H
#define CAUSEWAY_CORES_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cw_cores_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* How many compute units there are to share, and how many this process has now: `most` without a limit. */
  cw_status (*device_cores)(int32_t device, uint32_t* now, uint32_t* most);
  /* At most `cores` of them, 1 to `most`; 0: no limit. A chip that shares in larger steps takes the next larger one, and
   * device_cores says it. */
  cw_status (*set_device_cores)(int32_t device, uint32_t cores);
  /* The same of one stream (NULL: the default one); without a limit of its own it has the process's. Both or none; NULL:
   * a stream has no share of its own. */
  cw_status (*stream_cores)(int32_t device, cw_stream stream, uint32_t* now);
  cw_status (*set_stream_cores)(int32_t device, cw_stream stream, uint32_t cores);
} cw_cores_v1;

#ifdef __cplusplus
}
#endif
#endif /* CAUSEWAY_CORES_H */
