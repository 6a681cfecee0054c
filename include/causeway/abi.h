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
  uint32_t padding; /* bytes behind each tensor that kernels and copies may read and overwrite: the core cuts the memory
                            * of mem_alloc so that nothing lies there. At most 4096; 0: they touch nothing */
  uint32_t reserved;
} cw_device_info;

/* ---- operators ------------------------------------------------------------------------------------------- */
/* One argument of an operator. Outputs come first, in the order of the schema's returns, then the other
 * arguments in the schema's order; a tensor that an in-place operator changes comes once, as its output.
 * Outputs are allocated. Undefined optional arguments are CW_NONE, and so are outputs that the caller switched off
 * (output_mask) and numbers. Tensors say device_type kDLExtDev and the vendor's device number. Lists of tensors that an
 * operator without a return changes in place (_fused_sgd_) come where the schema has them. */
#define CW_NONE 0u
#define CW_INT 1u /* i: int, SymInt, an enum (memory format, layout), device index */
#define CW_DOUBLE 2u /* d */
#define CW_BOOLEAN 3u /* i: 0 or 1 */
#define CW_COMPLEX 4u /* complex: real and imaginary part */
#define CW_DTYPE 5u /* i: the dtype's bit number, e.g. 11 for float32 */
#define CW_STRING 6u /* string, n bytes and a NUL */
#define CW_TENSOR 7u /* tensor; strides are never NULL; data already includes the offset */
#define CW_GENERATOR 8u /* philox */
#define CW_INT_LIST 9u /* ints, n of them */
#define CW_DOUBLE_LIST 10u
#define CW_BOOLEAN_LIST 11u /* ints, 0 or 1 */
#define CW_TENSOR_LIST 12u /* tensors, n of them; an undefined one is NULL */
#define CW_SCALAR_LIST 13u /* args, n of them, each CW_INT, CW_DOUBLE, CW_BOOLEAN or CW_COMPLEX */

/* Random operators draw from Philox-4x32-10 with this key, from this counter on, four numbers a counter: an operator
 * with n elements may use counters offset to offset + ceil(n / 4). The core has already moved the generator past
 * them. */
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
#define CW_NEEDS_BROADCAST 2u /* inputs are expanded to the (first) output's shape */
#define CW_NEEDS_PROMOTION 4u /* inputs are cast to their common dtype by torch's rules */
#define CW_NEEDS_ELEMENTS 8u /* never called when the (first) output has none */
#define CW_TAKES_NUMBERS 16u /* a zero-dim tensor of the host may come as a number; else it is put on the device */

typedef struct cw_op {
  uint32_t struct_size; /* set by the core: write no further */
  uint32_t needs; /* CW_NEEDS_... */
  cw_dtypes dtypes; /* that the kernel takes; 0 is read as "all that the device has" */
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
   * lives until the next call with the same key.
   * Keys "torch...." are what the program asks of torch now, cheap enough for each kernel to ask: "torch.deterministic"
   * is "0" or "1"; "torch.matmul_precision" and "torch.conv_precision" are "ieee" or "tf32", of float32's factors. */
  const char* (*setting)(const char* key);
  /* level: 0 debug, 1 info, 2 warning, 3 error. */
  void (*log)(int32_t level, const char* message);

  /* Further services: a core that was built before one was here ends its table before it, so look at struct_size. */

  /* Input `tensor` (a pointer from `args`) in layout number `layout` of "layout.v1", see layout.h: memory that holds it as
   * `pack` wrote it, for work that the kernel puts on `stream`. UNSUPPORTED: there is no such form of it now; compute from
   * the tensor. Counts as a use of it, so ask where the form would serve. Call it in the kernel. */
  cw_status (*packed)(const DLTensor* tensor, uint32_t layout, cw_stream stream, const void** out);
  /* The memory that `tensor` (a pointer from `args`) is a part of: how many bytes lie before its data, and how many there
   * are in all. No other tensor's memory begins before `padding` bytes behind its end. UNSUPPORTED: it is not known. Call
   * it in the kernel. */
  cw_status (*storage)(const DLTensor* tensor, uint64_t* before, uint64_t* bytes);
} cw_host;

/* ---- a fault of work that ran later than its call ------------------------------------------------------------ */
typedef struct cw_fault {
  uint32_t struct_size; /* set by the core: write no further */
  uint32_t reserved;
  char kernel[64]; /* the operator or kernel that failed, NUL-terminated; empty: not known */
  uint64_t address; /* in device memory, at which it failed; 0: not known */
} cw_fault;

/* ---- what the vendor gives the core ------------------------------------------------------------------------ */
typedef struct cw_backend {
  uint32_t struct_size; /* sizeof(cw_backend) of the header that the vendor was built with */
  uint32_t abi_version; /* CW_ABI_VERSION */
  const char* name; /* lower-case letters and '_'; no digits, no word of torch's (docs/packaging.md) */
  const char* version; /* of the vendor's library and driver, for people */
  /* Words for this thread's last status that was not CW_OK. NULL: "the vendor gave no words". */
  const char* (*last_error)(void);

  /* Level 0, memory. These six are needed, and enough: every operator then works on the host rung. */
  cw_status (*device_count)(int32_t* out); /* 0 devices is CW_OK; no driver: a failure with words */
  cw_status (*device_info)(int32_t device, cw_device_info* out);
  cw_status (*sync)(int32_t device); /* wait for all work on the device */
  cw_status (*mem_alloc)(int32_t device, uint64_t bytes, void** out);
  cw_status (*mem_free)(int32_t device, void* ptr); /* the core has synchronised what used it */
  /* In the order of `stream`, which belongs to the destination's device, or the source's when the destination is
   * the host. May return early; host memory stays valid and unchanged until the stream passed this point. */
  cw_status (*mem_copy)(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes,
                        cw_stream stream);

  /* Level 0, optional. */
  cw_status (*bind)(int32_t device); /* make it this thread's; NULL: nothing to do */
  cw_status (*mem_set)(int32_t device, void* ptr, int32_t byte, uint64_t bytes, cw_stream stream); /* NULL: copies */
  cw_status (*mem_info)(int32_t device, uint64_t* free, uint64_t* total); /* NULL: counted by the core */
  /* Host memory that `mem_copy` reads and writes at full speed and in the background. Both or none; NULL: the
   * core takes ordinary aligned memory. */
  cw_status (*host_alloc)(uint64_t bytes, void** out);
  cw_status (*host_free)(void* ptr);

  /* Level 1, operators. `name` is torch's: "aten::add.out", "aten::_softmax.out", "mylib::op" of another library (see
   * "operators.v1" below). UNSUPPORTED: not offered. NULL: none is. Asked once per name and process. */
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

  /* A further table by name, "comm.v1", "code.v1", "graph.v1", "ipc.v1", "check.v1", "profile.v1"; it starts with
   * its own struct_size; those of headers beside this one: "cores.v1", "layout.v1". "notes.v1" is
   * no table but a string, lines for people that `causeway doctor` prints.
   * "operators.v1" is one too, read once at load: names of other libraries' operators that op_find gives kernels for,
   * a line each ("torchvision::nms\nmylib::op"). torch asks a device for those that it can take apart only where they
   * are named. Their library may be imported later, or never.
   * UNSUPPORTED: not offered. NULL: none is. */
  cw_status (*extension)(const char* name, const void** out);

  /* Further entries, each on its own. A library that was built before an entry was here does not offer it. */

  /* The process is at its end, in the handlers of exit(): write out and shut down what is to be. Called once, and only
   * in a process that opened a device; never in a forked child of it, nor at _exit() or after a signal. The core has
   * waited for all work of every device, and begins no call after it: but a thread of the program may still be inside
   * one, so what threads use stays in place. Not called where work does not end within 30 seconds, or a device is lost.
   * NULL: nothing is waited for, and the process just ends. */
  cw_status (*close)(void);

  /* Whether `device` and `peer`, two different devices, exchange data without the host: 1 or 0. Asked once for each
   * pair, before the first copy between them, so it is the place to enable access. Where it is 0 the core copies
   * through the host, and `mem_copy` is never given such a pair. NULL: `mem_copy` takes every pair, by a way that is
   * not known. */
  cw_status (*peer_access)(int32_t device, int32_t peer, int32_t* out);

  /* What else is to be known of a device, by key: a CW_INT, CW_DOUBLE or CW_STRING, whose text lives until this
   * thread's next call. Asked anew each time, so that it may change. UNSUPPORTED: not known, as all is with NULL.
   *   "pci_bus_id" a string such as "0000:3b:00.0"; "driver_version", "architecture" strings;
   *   "on_paper" 1: the chip is not here; memory is, and kernels compile, but none runs;
   *   "clock_rate_khz", "memory_clock_rate_khz" (the highest; of now: "clock_rate_now_khz"); "memory_bus_width" in bits;
   *   "l2_cache_bytes"; "local_memory_bytes" that a group shares; "group_limit" items; "simd_width" items;
   *   "threads_per_unit" that a compute unit holds;
   *   sensors: "temperature" in degrees Celsius, "power_mw", "utilization" and "memory_utilization" in percent.
   * Further keys are the vendor's own, and reach people by torch.<name>.get_device_properties(). */
  cw_status (*device_attribute)(int32_t device, const char* key, cw_arg* out);

  /* Make memory that the host has already as good for `mem_copy` as host_alloc's, until host_unregister of the same
   * address. Any address and size; the core registers no byte twice. UNSUPPORTED: not this memory. Both or none; NULL:
   * none can be registered. */
  cw_status (*host_register)(int32_t device, void* ptr, uint64_t bytes);
  cw_status (*host_unregister)(int32_t device, void* ptr);

  /* More about the last failure of work that this device was given: the core asks it in the same thread, after any
   * entry but this said something else than CW_OK, CW_UNSUPPORTED or CW_NOT_READY. UNSUPPORTED: nothing is known. NULL:
   * errors have the vendor's words alone. */
  cw_status (*fault)(int32_t device, cw_fault* out);

  /* Call `function(context)` once, from any thread, when the work that `stream` was given before is done. Later work and
   * waits need not wait for it, and it may come moments after them. It returns soon and calls no entry. Where that work
   * failed it is called all the same; on a lost device it may never be. NULL: the core records events and asks them. */
  cw_status (*stream_callback)(int32_t device, cw_stream stream, void (*function)(void* context), void* context);

  /* host_alloc and host_free of memory for the copies of one device: for chips where pinning is a device's affair, not
   * the machine's. Copies of other devices take it as they take any memory. Both or none; NULL: host_alloc's serves all. */
  cw_status (*host_alloc_for)(int32_t device, uint64_t bytes, void** out);
  cw_status (*host_free_for)(int32_t device, void* ptr);

  /* mem_alloc and mem_free in the order of a stream: the memory may be used from here on by what `stream` is given, and
   * by others once an event says so; it is given back when `stream` has passed `mem_free_on`, and until then at most to a
   * mem_alloc_on of this stream. `mem_free` takes it too, and so does ipc.v1 where it is offered. Both or none; NULL: the
   * core waits for the whole device before it gives memory back. */
  cw_status (*mem_alloc_on)(int32_t device, cw_stream stream, uint64_t bytes, void** out);
  cw_status (*mem_free_on)(int32_t device, cw_stream stream, void* ptr);

  /* Addresses and the memory behind them apart, so that segments of the core's cache grow and shrink in place: torch's
   * setting expandable_segments. All four or none; NULL: a segment keeps its size.
   * mem_reserve: addresses with nothing behind them. `page` is what memory comes in: `bytes` is a multiple of 2 MiB and
   * `page` divides that, and `ptr` and `bytes` of mem_map and mem_unmap are multiples of it. OUT_OF_MEMORY: not so many.
   * mem_map: memory behind addresses that have none. Pages side by side are one memory for every other entry, as of one
   * mem_alloc, but ipc.v1's. OUT_OF_MEMORY: none of it was mapped.
   * mem_unmap: of any mapped pages, by whichever calls; the core has synchronised what used them.
   * mem_release: all that one mem_reserve gave; nothing is mapped any more. */
  cw_status (*mem_reserve)(int32_t device, uint64_t bytes, uint64_t* page, void** out);
  cw_status (*mem_map)(int32_t device, void* ptr, uint64_t bytes);
  cw_status (*mem_unmap)(int32_t device, void* ptr, uint64_t bytes);
  cw_status (*mem_release)(int32_t device, void* ptr, uint64_t bytes);

  /* op_find with more to go by, asked in its place where there is a device: torch's whole schema as text,
   * "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", for vendors that make
   * kernels from it, and the device, for libraries that serve several kinds. Asked once per name, device and process,
   * before the device is opened; the kernel is called for this device alone. NULL: op_find's answer holds for all. */
  cw_status (*op_find_for)(const char* name, const char* schema, int32_t device, cw_op* out);
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

/* ---- extension "check.v1": what a kernel would answer -------------------------------------------------------- *
 * For those who ask what a model needs with no chip at hand (`causeway coverage`). Without it each kernel counts as
 * taking all that its `cw_op` says. */
typedef struct cw_check_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* CW_OK or CW_UNSUPPORTED, as the kernel of operator `name` would answer to these arguments. Opens no device and
   * does nothing: tensors have a shape, strides and a dtype, and their data is not to be touched. */
  cw_status (*op_check)(const char* name, const cw_arg* args, int32_t n);
} cw_check_v1;

/* ---- extension "profile.v1": what the chip did, and when ------------------------------------------------------
 * Without it the core times work by events around each kernel and copy. That works for any chip, but the time between
 * two events also holds what the host took to put the work there; here the chip says when it began and ended. */
typedef struct cw_activity {
  uint64_t correlation; /* the last `correlate` of the thread that put the work there; 0: none */
  int64_t begin_ns; /* on the clock that `clock` reads */
  int64_t end_ns;
  const char* name; /* the chip's own name of a kernel; valid until the next `start` */
} cw_activity;
typedef struct cw_profile_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  cw_status (*clock)(int32_t device, int64_t* ns); /* now; any start, but steady and in real nanoseconds */
  cw_status (*start)(void); /* note work that is put on any stream of any device from now on; forget what was noted */
  cw_status (*stop)(void);
  cw_status (*correlate)(uint64_t id); /* what this thread puts on streams from now on bears this number */
  /* Hand out up to `capacity` activities that are over, each once, in any order; fewer than `capacity`: that is all.
   * The core has synchronised the devices. Events and waits are no activities. */
  cw_status (*read)(cw_activity* out, uint32_t capacity, uint32_t* count);
} cw_profile_v1;

/* ---- extension "code.v1": source built by the chip's compiler, and launched ------------------------------------ *
 * With it Causeway's own kernels run on the chip (csrc/portable). A launch is a grid of groups of work items. */
typedef struct cw_program_t* cw_program;
typedef struct cw_function_t* cw_function;
#define CW_CODE_C \
  1u /* C11: `void name(void* const* args, const uint32_t* group, const uint32_t* grid)` is called
                             * once a group (three numbers each), groups have one item, args[i] points to argument i;
                             * `const uint32_t name_arguments` says how many there are. A chip whose groups have more
                             * items calls it once an item, and its compiler defines CW_LANE (the item's number in its
                             * group), CW_LANES (of how many), CW_BARRIER (a statement) and CW_LOCAL (before what a
                             * group's items share) */
#define CW_CODE_OPENCL_C 2u /* OpenCL C 1.2 */
#define CW_CODE_CUDA_C 3u /* CUDA C++, `extern "C" __global__` */
#define CW_CODE_ASCEND_SIMT 4u /* C++ for threads of Ascend's NPUs, `extern "C" __global__`: no float64 */
#define CW_CODE_IN_TURN \
  1u /* a core runs the items of a group in turn (CPUs): best is one item a group, with long loops */
#define CW_CODE_SPLIT_POINTERS \
  2u /* an address is two parameters of a function: the start of its allocation, and a
                                   * 64-bit number of bytes to add to it */
#define CW_CODE_SINGLE_VALUES \
  4u /* a function takes no structures by value: each number is a parameter of its own. Those of
                                   * Causeway's own kernels have 8 bytes each */
#define CW_CODE_DOT_BYTES \
  8u /* a CPU of x86-64 that has AVX-512 with VNNI: the assembler behind the compiler takes
                                   * `vpdpbusd`, in clang's and GCC's `__asm__`, and the compiler defines CW_DOT_BYTES */
#define CW_CODE_DOT_TILES \
  16u /* with CW_CODE_DOT_BYTES: one with AMX, whose tiles the process may use. The assembler
                                   * takes `tdpbssd` and `tdpbsud`, and the compiler defines CW_DOT_TILES */
#define CW_CODE_FLUSHES \
  32u /* arithmetic may take subnormal numbers of float32 for 0, as what goes in or as what comes out */
#define CW_BINARY_OWN 1u /* the chip's own format: what `binary` gives, or its maker's compiler */
#define CW_BINARY_SPIRV 2u /* SPIR-V, a multiple of 4 bytes */
#define CW_BINARY_ARCHITECTURE \
  4u /* an own binary serves every device with the same attribute "architecture", whatever its name and driver */
typedef struct cw_code_info {
  uint32_t struct_size; /* set by the core: write no further */
  uint32_t language; /* CW_CODE_C, ... */
  uint32_t flags; /* CW_CODE_IN_TURN, ... */
  uint32_t compute_units; /* how many groups run at once */
  uint32_t group_limit; /* most items in a group */
  uint32_t simd_width; /* of float32, in elements; 0: not known */
  uint64_t local_memory; /* bytes a group may share */
  cw_dtypes arithmetic; /* dtypes that the compiler computes with; others are converted in the source */
  char driver[64]; /* its version, NUL-terminated: what is measured on the device is kept by it; empty: not known */
  uint32_t grid_limits[3]; /* most groups in each dimension; 0: 65535 */
  uint32_t group_limits[3]; /* most items of a group in each dimension; 0: group_limit */
  uint32_t
      argument_limit; /* most bytes of all arguments of a launch, 8 for an address; 0: what Causeway launches fits */
  uint32_t binaries; /* what build_binary takes: CW_BINARY_... */
  uint32_t loop_limit; /* most turns of all loops of an item together; 0: loops end when they are done */
  uint32_t reserved;
} cw_code_info;
typedef struct cw_code_arg {
  uint32_t bytes; /* of a value; 0: `address` is passed */
  uint32_t reserved;
  union {
    const void* address; /* device memory of one mem_alloc, or within it; NULL is allowed */
    const void* value;
  } v;
} cw_code_arg;
typedef struct cw_code_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  cw_status (*info)(int32_t device, cw_code_info* out);
  /* Compile for this device. CW_INVALID: the source is wrong, and the words hold the compiler's. May be served from
   * a cache. `options` are the compiler's own, or NULL. Any failure of one of Causeway's own kernels but DEVICE_LOST and
   * OUT_OF_MEMORY, here or in `function`, sends its operator down the ladder, with a warning, and it is not asked again. */
  cw_status (*build)(int32_t device, const char* source, const char* options, cw_program* out);
  cw_status (*release)(cw_program program); /* nothing runs any more of what was launched; functions end with it */
  cw_status (*function)(cw_program program, const char* name, cw_function* out); /* CW_INVALID: has none such */
  /* Put grid[0..2] groups of group[0..2] items on the stream of the program's device. Values are copied before it
   * returns. CW_INVALID: not as many arguments as the function has, a group too large, an address of other memory. */
  cw_status (*launch)(cw_function function, const uint32_t grid[3], const uint32_t group[3], const cw_code_arg* args,
                      uint32_t n, cw_stream stream);
  /* `build` from `bytes` of a binary, which need not be kept or end with a NUL. CW_INVALID: of another chip or driver, or
   * damaged. NULL, or a cw_code_info without `binaries`: source only. */
  cw_status (*build_binary)(int32_t device, const void* binary, uint64_t bytes, const char* options, cw_program* out);
  /* The program as CW_BINARY_OWN. `bytes` says how much room `out` has, and then how many bytes it takes; where that is
   * more than the room, as with none, nothing is written. NULL: a program cannot be had back. */
  cw_status (*binary)(cw_program program, void* out, uint64_t* bytes);
} cw_code_v1;

/* ---- extension "graph.v1": work that is put on a stream once, and launched again as one -------------------------- *
 * Causeway's graphs work without it: the core notes the calls of this table while a program captures, and makes them
 * again at each replay. With it the core makes them once between `begin` and `end`, and a replay is a `launch`. What
 * changes from replay to replay, random numbers for one, stays outside. The core knows by then that nothing waits and
 * that all memory lasts as long as the graph. */
typedef struct cw_graph_t* cw_graph;
typedef struct cw_graph_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* What this thread gives `stream` (never the default one, where there are streams) until `end` is noted and not run:
   * kernels, launches of code.v1, mem_copy, mem_set. UNSUPPORTED: not now; the calls are then made at each replay. */
  cw_status (*begin)(int32_t device, cw_stream stream);
  /* The stream runs what it is given again, whatever this answers. UNSUPPORTED: of something that was given no graph can
   * be made; then, and where one of the calls was declined, there is none, and the calls are made at each replay. */
  cw_status (*end)(int32_t device, cw_stream stream, cw_graph* out);
  /* Put it on a stream of its device, any number of times, also while an earlier launch runs on the same stream. */
  cw_status (*launch)(cw_graph graph, cw_stream stream);
  cw_status (*destroy)(cw_graph graph); /* no launch of it runs any more */
} cw_graph_v1;

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
