/* What the parts of the runtime share, and what `cw` needs of a session beyond run.h: its steps one by one, and what they
 * wrote. */
#ifndef CAUSEWAY_RUN_INTERNAL_H
#define CAUSEWAY_RUN_INTERNAL_H

#include "causeway/run.h"
#include "check.h"

struct cw_run_device {
  const cw_backend* table; /* a copy: what the vendor does not offer is NULL */
  const cw_code_v1* code;
  cw_code_info compiler;
  cw_device_info info;
  int32_t index;
};

#define MOST_WORDS 1024 /* of a message */
/* Note this thread's last message, and return `status`. */
cw_status fail(cw_status status, const char* format, ...);
/* The status of an entry of the vendor's, with the message of one that failed. */
cw_status by_vendor(const cw_run_device* d, cw_status status, const char* entry);
#define TRY(device, entry, call)                                   \
  do {                                                             \
    const cw_status try_status = (call);                           \
    if (try_status) return by_vendor((device), try_status, entry); \
  } while (0)
/* A vendor's runtime may have a current device for each thread, and any thread may call. */
cw_status bind_thread(const cw_run_device* d);

/* Where a file's bytes come from: an open file, or memory. */
typedef struct {
  int fd; /* -1: memory */
  const char* memory;
  const char* path; /* NULL: memory */
  uint64_t base; /* where it begins there */
  uint64_t weights, weights_bytes; /* where its weights file begins there; 0 bytes: it has none */
} file_source;
/* CW_INVALID: the file ends before, or cannot be read. */
cw_status get_bytes(const file_source* from, void* to, uint64_t at, uint64_t bytes);

/* A model's weights on the device. */
typedef struct shared_weight shared_weight;
typedef struct {
  char* own; /* of the file, or NULL */
  shared_weight** shared; /* of another one: `count` of them, by place */
  uint64_t count;
} model_weights;
/* `name` is that of the model's file in messages. On an error, `out` has what there is to drop. */
cw_status put_weights(const cw_run_device* d, const checked_file* f, const file_source* from, const char* name,
                      model_weights* out);
void drop_weights(const cw_run_device* d, model_weights* w);
/* Where a buffer of weights begins; NULL: it has no bytes. */
char* weights_at(const model_weights* w, const checked_file* f, uint32_t buffer);
/* The path of the file that has the weights of the model at `path` (NULL: it is in memory). CW_INVALID: too long. */
cw_status find_elsewhere(const checked_file* f, const char* path, char* out, size_t room);
/* Read its header and index, which the caller frees. `name` as above. */
cw_status open_elsewhere(const char* path, const char* name, file_source* from, weights_header* header,
                         file_weight** index);
/* What a loaded model has of its file: all but the bytes of its weights. */
const checked_file* file_of(const cw_run_model* model);

/* The size of the next run (0: it is fixed), and its steps. */
cw_status session_settle(cw_run_session* session, uint64_t* size, uint64_t* first, uint64_t* count);
/* Run one step of these, and wait. */
cw_status session_step(cw_run_session* session, uint64_t step);
/* Wait for what was started. */
cw_status session_wait(cw_run_session* session);
/* The elements of a check, as the session's memory has them now, to `out`. */
cw_status session_read(cw_run_session* session, const file_check* check, void* out);

#endif
