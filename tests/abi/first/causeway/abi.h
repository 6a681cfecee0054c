/* Causeway's contract with a chip: one exported symbol, one table of C functions.
 *
 * A vendor's library exports `cw_open_v1`. It is given a table of services (`cw_host`) and returns a table of
 * entries (`cw_backend`). Nothing else is shared: no torch header, no C++ type, no allocation that one side
 * makes and the other frees. The library is built once and works with every torch that Causeway supports.
 *
 * Rules that hold for every entry:
 *  - It returns a cw_status. On anything but CW_OK the thread's `last_error` has the words for a person.
 *  - CW_UNSUPPORTED means "declined before doing anything": the core goes one rung down its ladder.
 *  - Any thread may call any entry at any time, unless its line says otherwise.
 *  - Devices are numbered from 0; CW_HOST (-1) stands for host memory in `mem_copy`.
 *  - A NULL stream is the device's default stream. It always exists, also where streams are not offered.
 *  - Sizes are in bytes, shapes and strides in elements, times in milliseconds.
 *  - Work on one stream runs in the order in which it was given. Nothing orders two streams but events.
 *
 * Rules of growth: new entries go at the end of a table, and `struct_size` says where the vendor's table ends.
 * The core copies min(struct_size, its own size) bytes into a zeroed table once, so an entry that one side does
 * not know is NULL: "not offered". A change that breaks this is a new symbol, cw_open_v2.
 *
 * C11 and C++17. Needs only dlpack.h.
 */
#ifndef CAUSEWAY_ABI_H
#define CAUSEWAY_ABI_H

#include <stdint.h>

#include "dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CW_ABI_VERSION 1
#define CW_HOST (-1)

/* ---- status ------------------------------------------------------------------------------------------ */
typedef int32_t cw_status;
#define CW_OK 0
#define CW_UNSUPPORTED 1   /* declined before doing anything; not an error */
#define CW_OUT_OF_MEMORY 2 /* the core frees its cache and asks once more */
#define CW_INVALID 3       /* the caller's mistake */
#define CW_DEVICE_LOST 4   /* every later call on this device fails at once, without asking the vendor */
#define CW_FAILED 5        /* anything else */
#define CW_NOT_READY 6     /* the answer "no" of stream_query and event_query */

/* ---- dtypes: a bit each, in the sets of cw_device_info and cw_op --------------------------------------- */
typedef uint64_t cw_dtypes;
#define CW_BOOL (UINT64_C(1) << 0)
#define CW_UINT8 (UINT64_C(1) << 1)
#define CW_INT8 (UINT64_C(1) << 2)
#define CW_UINT16 (UINT64_C(1) << 3)
#define CW_INT16 (UINT64_C(1) << 4)
#define CW_UINT32 (UINT64_C(1) << 5)
#define CW_INT32 (UINT64_C(1) << 6)
#define CW_UINT64 (UINT64_C(1) << 7)
#define CW_INT64 (UINT64_C(1) << 8)
#define CW_FLOAT16 (UINT64_C(1) << 9)
#define CW_BFLOAT16 (UINT64_C(1) << 10)
#define CW_FLOAT32 (UINT64_C(1) << 11)
#define CW_FLOAT64 (UINT64_C(1) << 12)
#define CW_COMPLEX32 (UINT64_C(1) << 13)
#define CW_COMPLEX64 (UINT64_C(1) << 14)
#define CW_COMPLEX128 (UINT64_C(1) << 15)
#define CW_FLOAT8_E4M3FN (UINT64_C(1) << 16)
#define CW_FLOAT8_E5M2 (UINT64_C(1) << 17)
#define CW_FLOAT8_E4M3FNUZ (UINT64_C(1) << 18)
#define CW_FLOAT8_E5M2FNUZ (UINT64_C(1) << 19)
#define CW_FLOAT8_E8M0FNU (UINT64_C(1) << 20)
#define CW_FLOAT4_E2M1 (UINT64_C(1) << 21)
#define CW_ALL_DTYPES (~UINT64_C(0))

/* ---- handles ------------------------------------------------------------------------------------------ */
typedef struct cw_stream_t* cw_stream; /* NULL: the default stream */
typedef struct cw_event_t* cw_event;

/* ---- a device ------------------------------------------------------------------------------------------ */
#define CW_HOST_ADDRESSABLE 1u /* the host reads and writes device memory at the same addresses, at full speed */

typedef struct cw_device_info {
  uint32_t struct_size;    /* set by the core: write no further */
  uint32_t flags;          /* CW_HOST_ADDRESSABLE */
  char name[64];           /* "Sim 1", NUL-terminated */
  uint64_t memory;         /* bytes in all */
  cw_dtypes dtypes;        /* those the chip stores and computes; tensors of others are refused or narrowed */
  uint32_t alignment;      /* of mem_alloc, a power of two; 0 is read as 64 */
  uint32_t compute_units;  /* cores, SMs, ...; 0: not known */
  int32_t capability_major;
  int32_t capability_minor;
  uint8_t uuid[16];        /* all zero: none */
  int32_t priority_lowest; /* of streams, as CUDA's: lower numbers run first, e.g. 0 */
  int32_t priority_highest; /* e.g. -1 */
} cw_device_info;

/* ---- operators ------------------------------------------------------------------------------------------- */
/* One argument of an operator. Outputs come first, in the order of the schema's returns, then the other
 * arguments in the schema's order; a tensor that an in-place operator changes comes once, as its output.
 * Outputs are allocated. Undefined optional arguments are CW_NONE. */
#define CW_NONE 0u
#define CW_INT 1u         /* i: int, SymInt, an enum (memory format, layout), device index */
#define CW_DOUBLE 2u      /* d */
#define CW_BOOLEAN 3u     /* i: 0 or 1 */
#define CW_COMPLEX 4u     /* complex: real and imaginary part */
#define CW_DTYPE 5u       /* i: the dtype's bit number, e.g. 11 for float32 */
#define CW_STRING 6u      /* string, n bytes and a NUL */
#define CW_TENSOR 7u      /* tensor; strides are never NULL; data already includes the offset */
#define CW_GENERATOR 8u   /* philox */
#define CW_INT_LIST 9u    /* ints, n of them */
#define CW_DOUBLE_LIST 10u
#define CW_BOOLEAN_LIST 11u /* ints, 0 or 1 */
#define CW_TENSOR_LIST 12u  /* tensors, n of them; an undefined one is NULL */
#define CW_SCALAR_LIST 13u  /* args, n of them, each CW_INT, CW_DOUBLE, CW_BOOLEAN or CW_COMPLEX */

/* Random operators draw from Philox-4x32-10 with this key, from this counter on. The core has already moved the
 * generator's own counter past what the operator may use. */
typedef struct cw_philox {
  uint64_t seed;
  uint64_t offset;
} cw_philox;

typedef struct cw_arg {
  uint32_t tag;
  uint32_t n;
  union {
    int64_t i;
    double d;
    const double* complex;
    const char* string;
    const DLTensor* tensor;
    const int64_t* ints;
    const double* doubles;
    const DLTensor* const* tensors;
    const struct cw_arg* args;
    const cw_philox* philox;
    uint64_t bits; /* so that the size is 16 everywhere */
  } v;
} cw_arg;

/* Put the operator on `stream`; it may return before the work is done. Everything in `args` but tensor data is
 * the core's again on return. The device is bound. */
typedef cw_status (*cw_kernel)(const cw_arg* args, int32_t n, cw_stream stream);

/* What the core does for the kernel before it calls it: say what the kernel cannot take. */
#define CW_NEEDS_CONTIGUOUS 1u /* tensors are dense and row-major */
#define CW_NEEDS_BROADCAST 2u  /* inputs are expanded to the (first) output's shape */
#define CW_NEEDS_PROMOTION 4u  /* inputs are cast to their common dtype by torch's rules */
#define CW_NEEDS_ELEMENTS 8u   /* never called when the (first) output has none */

typedef struct cw_op {
  uint32_t struct_size; /* set by the core: write no further */
  uint32_t needs;       /* CW_NEEDS_... */
  cw_dtypes dtypes;     /* that the kernel takes; 0 is read as "all that the device has" */
  cw_kernel kernel;
} cw_op;

/* ---- what the core gives the vendor ----------------------------------------------------------------------- */
typedef struct cw_host {
  uint32_t struct_size;
  uint32_t abi_version;
  /* `bytes` of device memory that a kernel may use as workspace until its work on `stream` is done. */
  cw_status (*scratch)(int32_t device, cw_stream stream, uint64_t bytes, void** out);
  /* Give output `tensor` (a pointer from `args`) this shape: for shapes that depend on data. May move it: read
   * its data pointer again. Call it in the kernel, before the kernel returns. */
  cw_status (*resize)(const DLTensor* tensor, int32_t ndim, const int64_t* shape);
  /* The value of setting `key` of this vendor ("memory" is CAUSEWAY_SIM_MEMORY for sim), or NULL. The string
   * lives until the next call with the same key. */
  const char* (*setting)(const char* key);
  /* level: 0 debug, 1 info, 2 warning, 3 error. */
  void (*log)(int32_t level, const char* message);
} cw_host;

/* ---- what the vendor gives the core ------------------------------------------------------------------------ */
typedef struct cw_backend {
  uint32_t struct_size; /* sizeof(cw_backend) of the header that the vendor was built with */
  uint32_t abi_version; /* CW_ABI_VERSION */
  const char* name;     /* torch's name of the device: lower-case letters, digits, '_' */
  const char* version;  /* of the vendor's library and driver, for people */
  /* Words for this thread's last status that was not CW_OK. NULL: "the vendor gave no words". */
  const char* (*last_error)(void);

  /* Level 0, memory. These six are needed, and enough: every operator then works on the host rung. */
  cw_status (*device_count)(int32_t* out);                    /* 0 devices is CW_OK; no driver: a failure with words */
  cw_status (*device_info)(int32_t device, cw_device_info* out);
  cw_status (*sync)(int32_t device);                          /* wait for all work on the device */
  cw_status (*mem_alloc)(int32_t device, uint64_t bytes, void** out);
  cw_status (*mem_free)(int32_t device, void* ptr);           /* the core has synchronised what used it */
  /* In the order of `stream`, which belongs to the destination's device, or the source's when the destination is
   * the host. May return early; host memory stays valid and unchanged until the stream passed this point. */
  cw_status (*mem_copy)(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes,
                        cw_stream stream);

  /* Level 0, optional. */
  cw_status (*bind)(int32_t device);                          /* make it this thread's; NULL: nothing to do */
  cw_status (*mem_set)(int32_t device, void* ptr, int32_t byte, uint64_t bytes, cw_stream stream); /* NULL: copies */
  cw_status (*mem_info)(int32_t device, uint64_t* free, uint64_t* total); /* NULL: counted by the core */
  /* Host memory that `mem_copy` reads and writes at full speed and in the background. Both or none; NULL: the
   * core takes ordinary aligned memory. */
  cw_status (*host_alloc)(uint64_t bytes, void** out);
  cw_status (*host_free)(void* ptr);

  /* Level 1, operators. `name` is torch's: "aten::add.out", "aten::_softmax.out", "mylib::op". UNSUPPORTED: not
   * offered. NULL: none is. Asked once per name and process. */
  cw_status (*op_find)(const char* name, cw_op* out);

  /* Level 2, streams: all five or none. NULL: the default stream is the only one. */
  cw_status (*stream_create)(int32_t device, int32_t priority, cw_stream* out);
  cw_status (*stream_destroy)(int32_t device, cw_stream stream);
  cw_status (*stream_query)(int32_t device, cw_stream stream); /* CW_OK: all done; CW_NOT_READY */
  cw_status (*stream_sync)(int32_t device, cw_stream stream);
  cw_status (*stream_wait)(int32_t device, cw_stream stream, cw_event event); /* later work waits for the event */

  /* Level 2, events: all six or none. NULL: an event is the host's clock after a sync. */
  cw_status (*event_create)(int32_t device, int32_t timing, cw_event* out);
  cw_status (*event_destroy)(int32_t device, cw_event event);
  cw_status (*event_record)(int32_t device, cw_event event, cw_stream stream); /* again: forgets the last one */
  cw_status (*event_query)(int32_t device, cw_event event); /* never recorded: CW_OK */
  cw_status (*event_sync)(int32_t device, cw_event event);
  cw_status (*event_elapsed)(int32_t device, cw_event start, cw_event end, double* ms);

  /* A further table by name, "comm.v1", "code.v1", "graph.v1", "ipc.v1"; it starts with its own struct_size.
   * UNSUPPORTED: not offered. NULL: none is. */
  cw_status (*extension)(const char* name, const void** out);
} cw_backend;

/* ---- extension "ipc.v1": device memory shared between processes --------------------------------------------- */
#define CW_IPC_HANDLE_SIZE 64
typedef struct cw_ipc_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* `ptr` is the start of a mem_alloc. The handle may be sent to another process in any way. */
  cw_status (*mem_export)(int32_t device, void* ptr, uint8_t handle[CW_IPC_HANDLE_SIZE]);
  /* The same bytes in this process; they stay valid when the exporting process ends. */
  cw_status (*mem_import)(int32_t device, const uint8_t handle[CW_IPC_HANDLE_SIZE], void** out);
  cw_status (*mem_close)(int32_t device, void* ptr); /* of mem_import */
} cw_ipc_v1;

/* The one symbol. Must not touch a driver or a device: it runs at `import torch`. Returns NULL with nothing
 * opened when it cannot work with `host`. The table lives as long as the process. */
#if defined(_WIN32)
#define CW_EXPORT __declspec(dllexport)
#else
#define CW_EXPORT __attribute__((visibility("default")))
#endif
CW_EXPORT const cw_backend* cw_open_v1(const cw_host* host);
typedef const cw_backend* (*cw_open_fn)(const cw_host* host);

#ifdef __cplusplus
}
#endif
#endif /* CAUSEWAY_ABI_H */
