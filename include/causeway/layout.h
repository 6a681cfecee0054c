/* Extension "layout.v1" of a vendor's library: tensors kept in the chip's own layout beside the plain one.
 *
 * Many chips compute products faster where the weight lies in tiles or panels of theirs, and converting it at each call
 * costs what it gains. With this table the core keeps such a form: it converts a tensor that a kernel reads again and again
 * unchanged once, and drops the form when anything writes to the tensor or memory is short. Users never see it: strides,
 * values, checkpoints and addresses are the plain tensor's, which stays.
 *
 * A kernel asks for the form of an input by `cw_host.packed` (abi.h), and computes from it or, where there is none (yet),
 * from the tensor, with the same result. A library that is opened by a core without that entry offers no formats. */
#ifndef CAUSEWAY_LAYOUT_H
#define CAUSEWAY_LAYOUT_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cw_layout_v1 {
  uint32_t struct_size;
  uint32_t layouts; /* how many there are, numbered from 0 */
  /* What people call it, such as "panels": lower-case letters, digits and '_'. Lives as long as the process. */
  const char* (*name)(uint32_t layout);
  /* How many bytes the form of `tensor` takes, which depends on its shape, strides and dtype alone: its data is not to be
   * read. `uses`: the core converts at this many uses of the unchanged tensor, this one included; 1: at the first, for a
   * conversion that one use pays for. UNSUPPORTED: this layout holds no such tensors. */
  cw_status (*packed_bytes)(int32_t device, uint32_t layout, const DLTensor* tensor, uint64_t* bytes, uint32_t* uses);
  /* Put the conversion of `tensor` on the stream. `packed` is memory of the device, aligned as mem_alloc's, of
   * packed_bytes's size, and nothing is known of what it holds. Each byte that kernels read later is written. */
  cw_status (*pack)(int32_t device, uint32_t layout, const DLTensor* tensor, void* packed, cw_stream stream);
  /* The way back, each element bit for bit. No program calls it: `causeway conformance` does. NULL: the check of the
   * layout rests on the kernels' results. */
  cw_status (*unpack)(int32_t device, uint32_t layout, const void* packed, const DLTensor* tensor, cw_stream stream);
} cw_layout_v1;

#ifdef __cplusplus
}
#endif
#endif /* CAUSEWAY_LAYOUT_H */
