/* A model's weights, from its file or from one that several models share, to the device.
 *
 * They go there piece by piece and are summed on the way, or there where the host can read it: what was summed is what the
 * kernels read. No file is mapped, as another process may cut or change it after it was checked. Weights of a file of their
 * own are on a device once for all models of the process that name that file: by device, the file's real path, and digest. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"
#include "sha256.h"

struct shared_weight {
  shared_weight* next;
  int32_t device;
  uint64_t users, bytes;
  char* memory;
  uint8_t digest[DIGEST];
  char path[];
};

static shared_weight* g_shared;
static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER; /* also while some are read: nobody reads the same beside */

cw_status get_bytes(const file_source* from, void* to, uint64_t at, uint64_t bytes) {
  at += from->base;
  if (from->fd < 0) return memcpy(to, from->memory + at, (size_t)bytes), CW_OK;
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(from->fd, (char*)to + done, (size_t)(bytes - done), (off_t)(at + done));
    if (got > 0)
      done += (uint64_t)got;
    else if (got == 0 || errno != EINTR)
      return CW_INVALID;
  }
  return CW_OK;
}

/* `bytes` from `at` of a file to the device's memory `to`, each piece given to `sum` where it lies in the caches. */
static cw_status move_bytes(const cw_run_device* d, const file_source* from, uint64_t at, uint64_t bytes, char* to,
                            void (*sum)(void* with, const void* piece, uint64_t bytes), void* with, const char* name) {
  enum { PIECE = 1 << 20 };
  const int in_place = (d->info.flags & CW_HOST_ADDRESSABLE) != 0;
  char* room = in_place ? NULL : malloc(bytes < PIECE ? (size_t)bytes : PIECE);
  if (!in_place && !room) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  cw_status status = CW_OK;
  for (uint64_t done = 0; !status && done < bytes; done += PIECE) {
    const uint64_t n = bytes - done < PIECE ? bytes - done : PIECE;
    char* piece = in_place ? to + done : room;
    if (get_bytes(from, piece, at + done, n)) {
      status = fail(CW_INVALID, "%s cannot be read to its end", name);
      break;
    }
    sum(with, piece, n);
    if (in_place) continue;
    status = by_vendor(d, d->table->mem_copy(to + done, d->index, piece, CW_HOST, n, NULL), "mem_copy");
    if (!status) status = by_vendor(d, d->table->sync(d->index), "sync"); /* the piece is filled anew */
  }
  free(room);
  return status;
}

static void add_crc(void* sum, const void* piece, uint64_t bytes) {
  *(uint32_t*)sum = crc32_of(*(uint32_t*)sum, piece, bytes);
}
static void add_digest(void* sum, const void* piece, uint64_t bytes) { sha256_add(sum, piece, bytes); }

/* ---- in the model's file ---------------------------------------------------------------------------------------------- */

static cw_status put_own(const cw_run_device* d, const checked_file* f, const file_source* from, const char* name,
                         model_weights* out) {
  uint32_t sum = 0;
  char words[512];
  if (f->n_constants) {
    TRY(d, "mem_alloc of the weights", d->table->mem_alloc(d->index, f->n_constants, (void**)&out->own));
    const cw_status status = move_bytes(d, from, f->constants_at, f->n_constants, out->own, add_crc, &sum, name);
    if (status) return status;
  }
  if (check_constants(f, sum, words, sizeof words)) return fail(CW_INVALID, "%s is refused: %s", name, words);
  return CW_OK;
}

/* ---- in a file of their own ------------------------------------------------------------------------------------------- */

cw_status find_elsewhere(const checked_file* f, const char* path, char* out, size_t room) {
  const char* name = f->strings + f->elsewhere->name;
  const char* folder = getenv("CAUSEWAY_WEIGHTS");
  const char* end = path ? strrchr(path, '/') : NULL;
  int n;
  if (folder && *folder)
    n = snprintf(out, room, "%s/%s", folder, name);
  else
    n = snprintf(out, room, "%.*s%s", end ? (int)(end - path + 1) : 0, path, name);
  return n >= 0 && (size_t)n < room ? CW_OK : fail(CW_INVALID, "the path of the weights file %s is too long", name);
}

/* The header and the index of a weights file of `bytes`, called `path` in messages. */
static cw_status read_index(const file_source* from, uint64_t bytes, const char* path, const char* name,
                            weights_header* header, file_weight** index) {
  char words[512];
  unsigned char front[sizeof *header];
  cw_status status = CW_INVALID;
  *index = NULL;
  if (get_bytes(from, front, 0, bytes < sizeof front ? bytes : sizeof front))
    fail(status, "%s cannot be read", path);
  else if (check_weights_header(front, bytes, header, words, sizeof words))
    fail(status, "%s, which has the weights of %s, is refused: %s", path, name, words);
  else if (!(*index = malloc(header->entries * sizeof **index + 1)))
    status = fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  else if (get_bytes(from, *index, header->index, header->entries * sizeof **index))
    fail(status, "%s cannot be read to its end", path);
  else if (check_weights_index(header, *index, words, sizeof words))
    fail(status, "%s, which has the weights of %s, is refused: %s", path, name, words);
  else
    return CW_OK;
  free(*index), *index = NULL;
  return status;
}

cw_status open_elsewhere(const char* path, const char* name, file_source* from, weights_header* header,
                         file_weight** index) {
  struct stat s;
  *from = (file_source){.fd = open(path, O_RDONLY | O_CLOEXEC), .path = path};
  if (from->fd < 0)
    return fail(
        CW_INVALID,
        "%s: its weights are in a file of their own, and %s cannot be opened (%s); put that file there, or say in "
        "CAUSEWAY_WEIGHTS which folder it is in",
        name, path, strerror(errno));
  const cw_status status = fstat(from->fd, &s) || !S_ISREG(s.st_mode)
                               ? fail(CW_INVALID, "%s: its weights should be in %s, which is no file", name, path)
                               : read_index(from, (uint64_t)s.st_size, path, name, header, index);
  if (status) close(from->fd), from->fd = -1;
  return status;
}

static void as_text(const uint8_t digest[DIGEST], char out[2 * DIGEST + 1]) {
  for (int i = 0; i < DIGEST; ++i) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* One that is not on the device yet. */
static cw_status read_shared(const cw_run_device* d, const file_source* from, const file_weight* entry,
                             const file_weight* wanted, const char* name, shared_weight** out) {
  char text[2 * DIGEST + 1];
  uint8_t digest[DIGEST];
  sha256 sum;
  as_text(wanted->digest, text);
  if (!entry)
    return fail(
        CW_INVALID,
        "%s has no weights with the SHA-256 %s, which %s needs: it is an older file or another one of this name; "
        "take the one that the model was exported with, or export into this one again",
        from->path, text, name);
  if (entry->bytes != wanted->bytes)
    return fail(CW_INVALID, "%s has %llu bytes with the SHA-256 %s, and %s says that they are %llu; export it again",
                *from->path ? from->path : name, (unsigned long long)entry->bytes, text, name,
                (unsigned long long)wanted->bytes);
  const size_t path = strlen(from->path) + 1;
  shared_weight* made = calloc(1, sizeof *made + path);
  if (!made) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  *made = (shared_weight){.device = d->index, .bytes = wanted->bytes};
  memcpy(made->digest, wanted->digest, DIGEST);
  memcpy(made->path, from->path, path);
  cw_status status =
      by_vendor(d, d->table->mem_alloc(d->index, wanted->bytes, (void**)&made->memory), "mem_alloc of the weights");
  if (status) return free(made), status;
  sha256_begin(&sum);
  status =
      move_bytes(d, from, entry->place, entry->bytes, made->memory, add_digest, &sum, *from->path ? from->path : name);
  sha256_end(&sum, digest);
  if (!status && memcmp(digest, wanted->digest, DIGEST) != 0)
    status =
        fail(CW_INVALID, "%s is damaged: its %llu bytes at %llu do not have the SHA-256 %s; copy the file anew",
             *from->path ? from->path : name, (unsigned long long)entry->bytes, (unsigned long long)entry->place, text);
  if (status) {
    (void)d->table->mem_free(d->index, made->memory);
    return free(made), status;
  }
  *out = made;
  return CW_OK;
}

/* The weights of a model are in a file of their own, or in the part of a model for several chips that is one. */
static cw_status put_shared(const cw_run_device* d, const checked_file* f, const file_source* from, const char* name,
                            model_weights* out) {
  char path[PATH_MAX], real[PATH_MAX];
  const int inside = from->weights_bytes != 0;
  file_source weights = *from;
  weights_header header;
  file_weight* index = NULL;
  cw_status status = CW_OK;
  if (!(out->shared = calloc(f->n_weights + 1, sizeof *out->shared)))
    return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  if (inside) {
    weights.base = from->weights, weights.path = from->path ? from->path : "";
    status = read_index(&weights, from->weights_bytes, name, name, &header, &index);
  } else {
    status = find_elsewhere(f, from->path, path, sizeof path);
    if (!status) status = open_elsewhere(path, name, &weights, &header, &index);
  }
  if (status) return status;
  if (*weights.path && realpath(weights.path, real)) weights.path = real;
  pthread_mutex_lock(&g_mutex);
  for (uint64_t i = 0; !status && i < f->n_weights; ++i) {
    const file_weight* w = &f->weights[i];
    shared_weight* s = *weights.path ? g_shared : NULL; /* what is in memory is shared with nothing */
    while (s && (s->device != d->index || s->bytes != w->bytes || memcmp(s->digest, w->digest, DIGEST) != 0 ||
                 strcmp(s->path, weights.path) != 0))
      s = s->next;
    if (!s) {
      status = read_shared(d, &weights, find_weight(index, header.entries, w->digest), w, name, &s);
      if (status) break;
      s->next = g_shared, g_shared = s;
    }
    ++s->users;
    out->shared[out->count++] = s;
  }
  pthread_mutex_unlock(&g_mutex);
  if (!inside) close(weights.fd);
  free(index);
  return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ */

cw_status put_weights(const cw_run_device* d, const checked_file* f, const file_source* from, const char* name,
                      model_weights* out) {
  const cw_status status = bind_thread(d);
  if (status) return status;
  return f->elsewhere ? put_shared(d, f, from, name, out) : put_own(d, f, from, name, out);
}

void drop_weights(const cw_run_device* d, model_weights* w) {
  if (w->own) (void)d->table->mem_free(d->index, w->own);
  pthread_mutex_lock(&g_mutex);
  for (uint64_t i = 0; i < w->count; ++i) {
    shared_weight* s = w->shared[i];
    if (--s->users) continue;
    shared_weight** at = &g_shared;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    (void)d->table->mem_free(d->index, s->memory);
    free(s);
  }
  pthread_mutex_unlock(&g_mutex);
  free(w->shared);
  *w = (model_weights){NULL, NULL, 0};
}

char* weights_at(const model_weights* w, const checked_file* f, uint32_t buffer) {
  const file_buffer* b = &f->buffers[buffer];
  if (!f->elsewhere) return w->own + b->place;
  const file_weight* of = weight_of(f, b);
  return of ? w->shared[of - f->weights]->memory + (b->place - of->place) : NULL;
}
