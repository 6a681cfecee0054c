/* The runtime of files that `causeway.export` writes: a model's kernels, weights and plan, run on a vendor's library.
 *
 * It needs the vendor's library and libc; no Python, no torch, no C++ runtime. C11 and C++.
 *
 *   cw_run_device* device;
 *   cw_run_model* model;
 *   cw_run_session* session;
 *   if (cw_run_open("libcw_opencl.so", 0, &device) || cw_run_load(device, "model.cw", 0, &model) ||
 *       cw_run_begin(model, NULL, &session)) return puts(cw_run_error()), 1;
 *   cw_run_set(session, 0, image, sizeof image);
 *   cw_run(session);
 *   cw_run_get(session, 0, logits, sizeof logits);
 *
 * Every function returns a cw_status of abi.h; on anything but CW_OK `cw_run_error` says what happened, where and what to
 * do. A device and its models may be used by several threads at once; a session is used by one at a time. Objects end in
 * the reverse order of their making.
 *
 * A file is data until it is loaded: every offset, size and index in it is checked, and so is a CRC-32 of each part.
 * Its kernels are code. Those for a chip run on that chip. Those in C are built by this machine's compiler and run in this
 * process: they need CW_RUN_ALLOW_HOST_CODE, which is for files that come from where programs come from. */
#ifndef CAUSEWAY_RUN_H
#define CAUSEWAY_RUN_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cw_run_device cw_run_device;
typedef struct cw_run_model cw_run_model;
typedef struct cw_run_session cw_run_session;

#define CW_RUN_ALLOW_HOST_CODE 1u
/* Take what a compiler made of the sources ahead of time, where it is for this chip and driver, without building the
 * sources: nobody can read what it does. For files that come from where programs come from. */
#define CW_RUN_TRUST_BINARIES 2u

/* For cw_run_get: give the address in place of a copy, and of an input in place of an output. */
#define CW_RUN_PLACE UINT64_MAX
#define CW_RUN_INPUT 0x80000000u

/* An input or an output: dense, row-major. */
typedef struct cw_run_port {
  const char* name;
  int32_t dtype; /* the dtype's bit number in cw_dtypes: 11 is float32 */
  int32_t ndim;
  int64_t shape[8]; /* -1: it may differ from run to run, in the range that the file has */
  uint64_t bytes;   /* the most */
} cw_run_port;

typedef struct cw_run_info {
  const char* about;  /* JSON: the readable twin */
  uint64_t weights;   /* bytes on the device, shared by the model's sessions */
  uint64_t arena;     /* bytes of each session, planned: the peak of everything in between, inputs and outputs */
  uint32_t inputs, outputs, steps, kernels;
  uint32_t vectors;   /* 1: the file has test vectors */
  uint32_t binaries;  /* of how many sources the file's binaries were taken */
} cw_run_info;

typedef struct cw_run_step {
  const char* name; /* of the operator or fused kernel */
  const char* line; /* of the model's source, "file:line", several of a fused kernel with commas, or "" */
  double ms;        /* of the last run with `profile`; 0 of a step that is for other sizes */
} cw_run_step;

/* Open a vendor's library (a path), once a process, and its device. */
CW_EXPORT cw_status cw_run_open(const char* library, int32_t device, cw_run_device** out);
CW_EXPORT cw_status cw_run_close(cw_run_device* device);
/* Check a file, build its kernels, and put its weights on the device. The file may go afterwards. Of a file for several
 * chips, the first target that this chip runs is taken. Weights in a file of their own are looked for beside the model's,
 * or in the folder that CAUSEWAY_WEIGHTS names. */
CW_EXPORT cw_status cw_run_load(cw_run_device* device, const char* path, uint32_t flags, cw_run_model** out);
CW_EXPORT cw_status cw_run_load_memory(cw_run_device* device, const void* file, uint64_t bytes, uint32_t flags,
                                       cw_run_model** out);
CW_EXPORT cw_status cw_run_unload(cw_run_model* model);
CW_EXPORT cw_status cw_run_describe(const cw_run_model* model, cw_run_info* out);
/* Input or output (`output` is 1) number `index`; CW_INVALID: there are not so many. */
CW_EXPORT cw_status cw_run_port_of(const cw_run_model* model, int32_t output, uint32_t index, cw_run_port* out);
/* `arena`: device memory of at least cw_run_info.arena bytes for the session, at a multiple of 64, or NULL. It must last as
 * long as the session. Sessions that never run at once may have the same. */
CW_EXPORT cw_status cw_run_begin(cw_run_model* model, void* arena, cw_run_session** out);
CW_EXPORT cw_status cw_run_end(cw_run_session* session);
/* Copy an input from, or an output to, `bytes` of host memory. Waits. Where a size may differ, the bytes of an input say
 * it; all inputs of a run must agree, and an output has the bytes of the last run's size.
 *
 * In place of copies, where the host can address the chip's memory: `cw_run_get` with CW_RUN_PLACE for `bytes` takes `data`
 * for a void**, and puts the address of the output there, or of input `i` for the number CW_RUN_INPUT + i. It lasts as long
 * as the session. The next run reads what is written to an input's, and changes what an output's holds. `cw_run_set` with
 * an input's own address copies nothing, and says the size. CW_UNSUPPORTED: the host cannot address it. */
CW_EXPORT cw_status cw_run_set(cw_run_session* session, uint32_t input, const void* data, uint64_t bytes);
CW_EXPORT cw_status cw_run_get(cw_run_session* session, uint32_t output, void* data, uint64_t bytes);
/* Run it and wait. An error that a kernel found, such as an index out of range, is CW_INVALID, of every cw_run_get until the
 * next run too. Inputs stay for further runs. */
CW_EXPORT cw_status cw_run(cw_run_session* session);
/* The same without the wait: put it on the session's stream. `cw_run_get` waits. */
CW_EXPORT cw_status cw_run_start(cw_run_session* session);
/* Step number `step`, with its time in a run of its own where `profile` is 1, which runs all once, one by one. */
CW_EXPORT cw_status cw_run_step_of(cw_run_session* session, uint32_t step, int32_t profile, cw_run_step* out);
/* This thread's last message, never NULL. */
CW_EXPORT const char* cw_run_error(void);

#ifdef __cplusplus
}
#endif
#endif /* CAUSEWAY_RUN_H */
