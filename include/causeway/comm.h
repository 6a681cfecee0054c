/* Extension "comm.v1" of abi.h, in a file of its own: only those who connect devices need it. C11 and C++17. */
#ifndef CAUSEWAY_COMM_H
#define CAUSEWAY_COMM_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- extension "comm.v1": collectives between processes -------------------------------------------------------
 * For torch.distributed. Without it all goes through the host and gloo. Each rank of a communicator is a process with one
 * device. Work is put on a stream like a kernel, and all ranks put the same collectives in the same order. `count` is in
 * elements, of one rank unless a line says otherwise; `dtype` is a bit number; tensors are dense. An entry that is NULL,
 * or that declines with CW_UNSUPPORTED (on all ranks alike), is done with those that are there, else through the host. */
typedef struct cw_comm_t* cw_comm;

#define CW_SUM 0u
#define CW_PRODUCT 1u
#define CW_MIN 2u
#define CW_MAX 3u
#define CW_BAND 4u
#define CW_BOR 5u
#define CW_BXOR 6u
#define CW_AVERAGE 7u /* the sum, divided by the number of ranks; floating point only */

#define CW_COMM_CHECKED 1u /* find data that was changed on its way, and ranks that do different things */

/* How the ranks find each other: what one sets, all can get. Valid during `create`. */
typedef struct cw_comm_store {
  void* context;
  cw_status (*set)(void* context, const char* key, const void* data, uint64_t bytes);
  /* Waits for the key. *bytes: room in `data`, then the value's size. */
  cw_status (*get)(void* context, const char* key, void* data, uint64_t* bytes);
} cw_comm_store;

typedef struct cw_comm_info {
  uint32_t struct_size; /* set by the core */
  uint32_t flags;       /* CW_COMM_CHECKED */
  int32_t device;
  int32_t rank;
  int32_t size;
  int32_t reserved;
  int64_t timeout_ms; /* of one collective: then its stream goes on with CW_FAILED */
  const char* name;   /* of the group, for people */
  const cw_comm_store* store;
} cw_comm_info;

typedef struct cw_comm_v1 {
  uint32_t struct_size;
  uint32_t operations; /* that reductions take, a bit (1u << CW_SUM) each */
  cw_dtypes dtypes;    /* that reductions take; what is only moved may be of any */

  /* All four are needed. `create` is called by all ranks; CW_UNSUPPORTED on any of them (they are on machines that the
   * vendor does not connect): the core goes through the host on all. It does not wait for the others but by `store`. */
  cw_status (*create)(const cw_comm_info* info, cw_comm* out);
  cw_status (*destroy)(cw_comm comm); /* what is under way is over or aborted */
  /* From any thread: what is under way, and all that comes after, ends with CW_FAILED soon. */
  cw_status (*abort)(cw_comm comm);
  cw_status (*error)(cw_comm comm); /* CW_OK, or what went wrong with work that was put on a stream */

  cw_status (*all_reduce)(cw_comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                          cw_stream); /* in == out is allowed */
  cw_status (*broadcast)(cw_comm, void* data, uint64_t count, int32_t dtype, int32_t root, cw_stream);
  cw_status (*reduce)(cw_comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                      int32_t root, cw_stream); /* `out` of the root only; in == out is allowed */
  cw_status (*all_gather)(cw_comm, const void* in, void* out, uint64_t count, int32_t dtype, cw_stream);
  cw_status (*reduce_scatter)(cw_comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                              cw_stream); /* count: of `out` */
  /* Counts and offsets in elements, one for each rank. The arrays are the core's again on return. */
  cw_status (*all_to_all)(cw_comm, const void* in, const uint64_t* in_counts, const uint64_t* in_offsets, void* out,
                          const uint64_t* out_counts, const uint64_t* out_offsets, int32_t dtype, cw_stream);
  cw_status (*barrier)(cw_comm, cw_stream);

  /* Both or none. Sends and receives (nothing else) between group_start and group_end make progress together, and are on
   * the stream when group_end returns. They serve groups that were made with a device_id; others' go through the host. */
  cw_status (*send)(cw_comm, const void* in, uint64_t count, int32_t dtype, int32_t peer, cw_stream);
  cw_status (*recv)(cw_comm, void* out, uint64_t count, int32_t dtype, int32_t peer, cw_stream);
  cw_status (*group_start)(cw_comm);
  cw_status (*group_end)(cw_comm);
} cw_comm_v1;

#ifdef __cplusplus
}
#endif
#endif /* CAUSEWAY_COMM_H */
