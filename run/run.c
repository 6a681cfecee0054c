#include "causeway/run.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "internal.h"

struct cw_run_model {
  cw_run_device* device;
  void* file; /* a copy in pages of its own, less the weights */
  uint64_t bytes;
  checked_file f;
  cw_program* programs;
  cw_function* functions;
  model_weights weights;
  uint32_t flags, inputs, outputs, from_binaries;
};

struct cw_run_session {
  cw_run_model* model;
  cw_stream stream;
  char *arena, *told;
  int owns_arena, tells, given; /* given: nobody has asked yet what kernels of the last run told */
  int busy;                     /* since the last wait, something was put on its stream */
  uint64_t said[2];             /* what they did */
  cw_code_arg* arguments; /* of all launches, with this session's addresses */
  double* ms;
  uint64_t first, count; /* the steps of a run */
  /* Where a size may differ: that of the last run, of each input (0: none was given), and copies that are patched. */
  uint64_t size, *sizes;
  const file_profile* profile;
  file_step* steps;
  unsigned char* values;
};

static _Thread_local char last_words[MOST_WORDS] = "no error";

const char* cw_run_error(void) { return last_words; }

cw_status fail(cw_status status, const char* format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(last_words, sizeof last_words, format, list);
  va_end(list);
  return status;
}

/* ---- the vendor ------------------------------------------------------------------------------------------------------- */

static cw_backend g_table;
static cw_code_v1 g_code;
static char g_library[4096];
static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Called by its own kernels alone, which no file has. */
static cw_status no_scratch(int32_t device, cw_stream stream, uint64_t bytes, void** out) {
  (void)device, (void)stream, (void)bytes, (void)out;
  return CW_UNSUPPORTED;
}
static cw_status no_resize(const DLTensor* tensor, int32_t ndim, const int64_t* shape) {
  (void)tensor, (void)ndim, (void)shape;
  return CW_UNSUPPORTED;
}
/* CAUSEWAY_<VENDOR>_<KEY>; the vendor's name is known once its table is, so that of its library serves before. */
static char g_vendor[64];
static const char* setting(const char* key) {
  if (!key) return NULL;
  if (!strcmp(key, "torch.deterministic")) return "0";
  if (!strncmp(key, "torch.", 6)) return strstr(key, "precision") ? "ieee" : NULL;
  char name[256];
  snprintf(name, sizeof name, "CAUSEWAY_%s_%s", g_vendor, key);
  for (char* c = name; *c; ++c) *c = (char)toupper((unsigned char)*c);
  return getenv(name);
}
static void say(int32_t level, const char* message) {
  if (level >= 2 && message) fprintf(stderr, "%s: %s\n", g_vendor, message);
}
static const cw_host host = {sizeof host, CW_ABI_VERSION, no_scratch, no_resize, setting, say, NULL, NULL};

cw_status by_vendor(const cw_run_device* d, cw_status status, const char* entry) {
  const char* words = d->table->last_error ? d->table->last_error() : NULL;
  return status ? fail(status, "device %d of %s: %s failed: %s", d->index, d->table->name, entry,
                       words && *words ? words : "the vendor gave no message")
                : CW_OK;
}

cw_status bind_thread(const cw_run_device* d) {
  if (d->table->bind) TRY(d, "bind", d->table->bind(d->index));
  return CW_OK;
}

static void copy_table(void* to, size_t room, const void* from) {
  uint32_t bytes;
  memcpy(&bytes, from, sizeof bytes);
  memset(to, 0, room);
  memcpy(to, from, bytes < room ? bytes : room);
}

static cw_status open_library(const char* library) {
  if (g_library[0])
    return strcmp(g_library, library)
               ? fail(CW_INVALID, "this process has opened %s; one process has one vendor", g_library)
               : CW_OK;
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return fail(CW_INVALID, "the vendor's library does not open: %s", dlerror());
  cw_open_fn open = NULL;
  *(void**)&open = dlsym(handle, "cw_open_v1");
  if (!open)
    return dlclose(handle), fail(CW_INVALID, "%s does not export cw_open_v1: it is no Causeway vendor", library);
  const char* base = strrchr(library, '/');
  base = base ? base + 1 : library;
  const char* name = strncmp(base, "libcw_", 6) ? base : base + 6;
  snprintf(g_vendor, sizeof g_vendor, "%.*s", (int)strcspn(name, "."), name);
  const cw_backend* given = open(&host);
  if (!given || given->struct_size < offsetof(cw_backend, bind) || given->abi_version != CW_ABI_VERSION)
    return fail(CW_INVALID, "%s does not work with this runtime (abi version %d)", library, CW_ABI_VERSION);
  copy_table(&g_table, sizeof g_table, given);
  if (!g_table.name || !g_table.device_info || !g_table.sync || !g_table.mem_alloc || !g_table.mem_free ||
      !g_table.mem_copy)
    return fail(CW_INVALID, "%s lacks an entry that level 0 needs", library);
  snprintf(g_vendor, sizeof g_vendor, "%s", g_table.name);
  const void* code = NULL;
  if (!g_table.extension || g_table.extension("code.v1", &code) != CW_OK || !code)
    return fail(CW_INVALID, "%s has no compiler (code.v1), which builds a file's kernels", library);
  copy_table(&g_code, sizeof g_code, code);
  snprintf(g_library, sizeof g_library, "%s", library);
  return CW_OK;
}

cw_status cw_run_open(const char* library, int32_t index, cw_run_device** out) {
  if (!library || !out) return fail(CW_INVALID, "cw_run_open: a NULL argument");
  pthread_mutex_lock(&g_mutex);
  cw_status status = open_library(library);
  pthread_mutex_unlock(&g_mutex);
  if (status) return status;
  cw_run_device d = {&g_table, &g_code, {0}, {0}, index};
  int32_t count = 0;
  TRY(&d, "device_count", g_table.device_count(&count));
  if (index < 0 || index >= count)
    return fail(CW_INVALID, "there is no device %d: %s has %d", index, g_table.name, count);
  d.info.struct_size = sizeof d.info;
  TRY(&d, "device_info", g_table.device_info(index, &d.info));
  if ((status = bind_thread(&d))) return status;
  d.compiler.struct_size = sizeof d.compiler;
  TRY(&d, "code.info", g_code.info(index, &d.compiler));
  if (!(*out = malloc(sizeof d))) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  **out = d;
  return CW_OK;
}

cw_status cw_run_close(cw_run_device* device) { return free(device), CW_OK; }

/* ---- a model ---------------------------------------------------------------------------------------------------------- */

static const char* text(const cw_run_model* m, uint32_t string) { return m->f.strings + string; }

static cw_status fits(const cw_run_model* m, uint32_t flags) {
  static const char* const languages[] = {"nothing", "C", "OpenCL C", "CUDA C", "Ascend SIMT C"};
  const file_target* t = m->f.target;
  const cw_code_info* c = &m->device->compiler;
  if (m->device->info.padding)
    return fail(CW_INVALID, "%s may write %u bytes behind each tensor, and files leave no room for that yet",
                m->device->table->name, m->device->info.padding);
  const char* wanted = t->language < 5 ? languages[t->language] : "an unknown language";
  if (t->language != c->language)
    return fail(CW_INVALID, "its kernels are in %s, and %s builds %s; export it for this chip", wanted,
                m->device->table->name, c->language < 5 ? languages[c->language] : "another language");
  /* Sources have another way where the chip lacks the first two; of the third, remainders of subnormal numbers depend. */
  const uint32_t either = CW_CODE_DOT_BYTES | CW_CODE_DOT_TILES | CW_CODE_FLUSHES;
  if ((t->flags ^ c->flags) & ~either || (t->arithmetic & c->arithmetic) != t->arithmetic)
    return fail(CW_INVALID,
                "its kernels are for a chip like %s, and this %s differs (how groups run, how addresses are passed, or "
                "dtypes); "
                "export it for this chip",
                text(m, t->vendor), m->device->table->name);
  if (t->language == CW_CODE_C && !(flags & CW_RUN_ALLOW_HOST_CODE))
    return fail(CW_INVALID,
                "its kernels are C, which would be built and run in this process; pass CW_RUN_ALLOW_HOST_CODE if "
                "the file comes from where programs come from");
  return CW_OK;
}

/* Who takes a binary: the vendor, and its chip's name with its driver, or its architecture alone. */
static void binary_key(const cw_run_device* d, char* out, size_t room) {
  cw_arg of = {0};
  if ((d->compiler.binaries & CW_BINARY_ARCHITECTURE) && d->table->device_attribute &&
      !d->table->device_attribute(d->index, "architecture", &of) && of.tag == CW_STRING)
    snprintf(out, room, "%.100s\n%.*s\n", d->table->name, of.n < 100 ? (int)of.n : 100, of.v.string);
  else
    snprintf(out, room, "%.100s\n%.*s\n%.*s", d->table->name, (int)sizeof d->info.name, d->info.name,
             (int)sizeof d->compiler.driver, d->compiler.driver);
}

/* The binary of a source that is for this chip, or NULL. Without consent there is none. */
static const file_binary* binary_of(const cw_run_model* m, uint64_t text_index) {
  const cw_run_device* d = m->device;
  char key[sizeof d->info.name + sizeof d->compiler.driver + 128];
  if (!(m->flags & CW_RUN_TRUST_BINARIES) || !d->code->build_binary || !(d->compiler.binaries & CW_BINARY_OWN))
    return NULL;
  binary_key(d, key, sizeof key);
  for (uint64_t i = 0; i < m->f.n_binaries; ++i)
    if (m->f.binaries[i].text == text_index && !strcmp(text(m, m->f.binaries[i].key), key)) return &m->f.binaries[i];
  return NULL;
}

static cw_status build(cw_run_model* m) {
  const checked_file* f = &m->f;
  const cw_run_device* d = m->device;
  m->programs = calloc(f->n_texts + 1, sizeof *m->programs);
  m->functions = calloc(f->n_functions + 1, sizeof *m->functions);
  if (!m->programs || !m->functions) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  const char* options = d->compiler.language == CW_CODE_OPENCL_C ? "-w" : NULL;
  for (uint64_t i = 0; i < f->n_texts; ++i) {
    const file_binary* b = binary_of(m, i);
    /* One that the chip refuses is no error: the source is there. */
    if (b && !d->code->build_binary(d->index, f->made + b->place, b->bytes, options, &m->programs[i])) {
      ++m->from_binaries;
      continue;
    }
    const file_piece* pieces = f->pieces + f->texts[i].piece;
    size_t bytes = 0;
    for (uint32_t p = 0; p < f->texts[i].pieces; ++p) bytes += pieces[p].bytes;
    char* source = malloc(bytes + 1);
    if (!source) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
    char* at = source;
    for (uint32_t p = 0; p < f->texts[i].pieces; at += pieces[p++].bytes)
      memcpy(at, f->strings + pieces[p].string, pieces[p].bytes);
    *at = 0;
    const cw_status status =
        strlen(source) == bytes ? d->code->build(d->index, source, options, &m->programs[i]) : CW_INVALID;
    free(source);
    if (status) return by_vendor(d, status, "code.build of the file's kernels");
  }
  for (uint64_t i = 0; i < f->n_functions; ++i)
    TRY(d, "code.function",
        d->code->function(m->programs[f->functions[i].text], text(m, f->functions[i].name), &m->functions[i]));
  return CW_OK;
}

/* On a thread of its own, beside the kernels. */
typedef struct {
  cw_run_model* model;
  const file_source* from;
  const char* name;
  cw_status status;
  char words[sizeof last_words];
} weights_job;

static void* do_weights(void* given) {
  weights_job* job = given;
  cw_run_model* m = job->model;
  job->status = put_weights(m->device, &m->f, job->from, job->name, &m->weights);
  if (job->status) snprintf(job->words, sizeof job->words, "%s", last_words);
  return NULL;
}

static cw_status build_and_put(cw_run_model* m, const file_source* from, const char* name) {
  weights_job job = {m, from, name, CW_OK, ""};
  pthread_t thread;
  char more[sizeof last_words];
  const int beside = m->f.n_constants >= 1 << 20 && !pthread_create(&thread, NULL, do_weights, &job);
  if (!beside) do_weights(&job);
  const cw_status status = build(m);
  if (beside) pthread_join(thread, NULL);
  if (job.status) return fail(job.status, "%s", job.words);
  if (!status) return CW_OK;
  snprintf(more, sizeof more, "%s", last_words);
  return fail(status, "%s: %.900s", name, more);
}

cw_status cw_run_unload(cw_run_model* m) {
  if (!m) return CW_OK;
  const cw_run_device* d = m->device;
  (void)bind_thread(d);
  (void)d->table->sync(d->index);
  for (uint64_t i = 0; m->programs && i < m->f.n_texts; ++i)
    if (m->programs[i]) (void)d->code->release(m->programs[i]);
  drop_weights(d, &m->weights);
  free(m->programs), free(m->functions);
  munmap(m->file, m->bytes);
  free(m);
  return CW_OK;
}

/* Memory for a file. Not the file's own pages, which another process may change after they were checked, or cut. */
static cw_status get_room(uint64_t bytes, void** out) {
  if (bytes > SIZE_MAX / 2) return fail(CW_INVALID, "a file of %llu bytes", (unsigned long long)bytes);
  *out = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return *out == MAP_FAILED
             ? fail(CW_OUT_OF_MEMORY, "the host has no %llu bytes for the file", (unsigned long long)bytes)
             : CW_OK;
}

/* A file in pages of its own, checked: those of the weights are never touched. */
static cw_status read_model(cw_run_device* device, const file_source* from, uint64_t bytes, const char* name,
                            uint32_t flags, cw_run_model** out) {
  void* file;
  const cw_status room = get_room(bytes, &file);
  if (room) return room;
  const uint64_t front = bytes < FILE_FRONT ? bytes : FILE_FRONT;
  uint64_t at = bytes, count = 0;
  int whole = !get_bytes(from, file, 0, front);
  if (whole && front == FILE_FRONT) find_constants(file, bytes, &at, &count);
  whole = whole && !get_bytes(from, (char*)file + front, front, at - front) &&
          !get_bytes(from, (char*)file + at + count, at + count, bytes - at - count);
  if (!whole) return munmap(file, bytes), fail(CW_INVALID, "%s cannot be read to its end", name);
  cw_run_model* m = calloc(1, sizeof *m);
  if (!m) return munmap(file, bytes), fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  *m = (cw_run_model){.device = device, .file = file, .bytes = bytes, .flags = flags};
  char words[512];
  const cw_status status = check_but_constants(file, bytes, &m->f, words, sizeof words);
  if (status) {
    memset(&m->f, 0, sizeof m->f);
    cw_run_unload(m);
    return fail(status, "%s is refused: %s", name, words);
  }
  *out = m;
  return CW_OK;
}

/* Build its kernels and put its weights; on an error it is gone. */
static cw_status make_ready(cw_run_model* m, const file_source* from, const char* name, cw_run_model** out) {
  char more[MOST_WORDS];
  cw_status status = bind_thread(m->device);
  if (!status) status = build_and_put(m, from, name);
  if (status) {
    snprintf(more, sizeof more, "%s", last_words);
    cw_run_unload(m);
    return fail(status, "%s", more);
  }
  for (uint64_t i = 0; i < m->f.n_ports; ++i) m->f.ports[i].kind == INPUT ? ++m->inputs : ++m->outputs;
  *out = m;
  return CW_OK;
}

static cw_status take_one(cw_run_device* device, const file_source* from, uint64_t bytes, const char* name,
                          uint32_t flags, cw_run_model** out) {
  cw_run_model* m = NULL;
  char more[MOST_WORDS];
  cw_status status = read_model(device, from, bytes, name, flags, &m);
  if (status) return status;
  if ((status = fits(m, flags))) {
    snprintf(more, sizeof more, "%s", last_words);
    cw_run_unload(m);
    return fail(status, "%s: %.900s", name, more);
  }
  return make_ready(m, from, name, out);
}

/* Of several targets the first that this chip runs, or of these the first with binaries for it. */
static cw_status take_target(cw_run_device* device, const file_source* from, uint64_t bytes, const char* name,
                             uint32_t flags, cw_run_model** out) {
  unsigned char front[TARGETS_FRONT];
  targets_header header;
  file_image images[MOST_TARGETS];
  char words[512], part[600], others[400] = "", last[MOST_WORDS] = "";
  if (get_bytes(from, front, 0, bytes < sizeof front ? bytes : sizeof front))
    return fail(CW_INVALID, "%s cannot be read", name);
  if (check_targets(front, bytes, &header, images, words, sizeof words))
    return fail(CW_INVALID, "%s is refused: %s", name, words);
  cw_run_model* best = NULL;
  file_source best_from = *from;
  cw_status status = CW_OK;
  for (uint32_t i = 0; !status && i < header.count && !(best && binary_of(best, 0)); ++i) {
    file_source own = *from;
    own.base = images[i].place, own.weights = header.weights, own.weights_bytes = header.weights_bytes;
    snprintf(part, sizeof part, "%.500s, target %u", name, i + 1);
    cw_run_model* m = NULL;
    if ((status = read_model(device, &own, images[i].bytes, part, flags, &m))) break;
    const size_t n = strlen(others);
    snprintf(others + n, sizeof others - n, "%s%.80s", n ? "; " : "", text(m, m->f.target->vendor));
    if (fits(m, flags)) { /* of a target in the chip's language the reason is of more use */
      if (!*last || m->f.target->language == device->compiler.language) snprintf(last, sizeof last, "%s", last_words);
      cw_run_unload(m);
    } else if (!best || binary_of(m, 0)) {
      if (best) cw_run_unload(best);
      best = m, best_from = own;
    } else {
      cw_run_unload(m);
    }
  }
  if (status) {
    snprintf(last, sizeof last, "%s", last_words);
    if (best) cw_run_unload(best);
    return fail(status, "%s", last);
  }
  if (!best)
    return fail(CW_INVALID, "%s: none of its %u targets (%s) is taken for this chip: %.400s", name, header.count,
                others, last);
  return make_ready(best, &best_from, name, out);
}

static cw_status take(cw_run_device* device, const file_source* from, uint64_t bytes, const char* name, uint32_t flags,
                      cw_run_model** out) {
  char magic[sizeof(targets_header)] = "";
  if (bytes >= sizeof magic && !get_bytes(from, magic, 0, sizeof magic) && is_of_targets(magic, bytes))
    return take_target(device, from, bytes, name, flags, out);
  return take_one(device, from, bytes, name, flags, out);
}

cw_status cw_run_load(cw_run_device* device, const char* path, uint32_t flags, cw_run_model** out) {
  if (!device || !path || !out) return fail(CW_INVALID, "cw_run_load: a NULL argument");
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat s;
  if (fd < 0 || fstat(fd, &s)) return fail(CW_INVALID, "%s cannot be opened", path);
  if (!S_ISREG(s.st_mode) || s.st_size <= 0)
    return close(fd), fail(CW_INVALID, "%s is refused: it is empty, or no file", path);
  const file_source from = {.fd = fd, .path = path};
  const cw_status status = take(device, &from, (uint64_t)s.st_size, path, flags, out);
  close(fd);
  return status;
}

cw_status cw_run_load_memory(cw_run_device* device, const void* file, uint64_t bytes, uint32_t flags,
                             cw_run_model** out) {
  if (!device || !file || !out) return fail(CW_INVALID, "cw_run_load_memory: a NULL argument");
  if (!bytes) return fail(CW_INVALID, "the file is refused: it is empty");
  const file_source from = {.fd = -1, .memory = file};
  return take(device, &from, bytes, "the file", flags, out);
}

cw_status cw_run_describe(const cw_run_model* m, cw_run_info* out) {
  if (!m || !out) return fail(CW_INVALID, "cw_run_describe: a NULL argument");
  *out = (cw_run_info){
      text(m, m->f.target->about), m->f.n_constants,           m->f.target->arena, m->inputs,       m->outputs,
      (uint32_t)m->f.n_steps,      (uint32_t)m->f.n_functions, m->f.n_vectors > 0, m->from_binaries};
  return CW_OK;
}

static const file_port* port(const cw_run_model* m, int32_t output, uint32_t index) {
  for (uint64_t i = 0; i < m->f.n_ports; ++i)
    if (m->f.ports[i].kind == (output ? OUTPUT : INPUT) && index-- == 0) return &m->f.ports[i];
  return NULL;
}

static cw_status find_port(const cw_run_model* m, int32_t output, uint32_t index, const file_port** out) {
  *out = port(m, output, index);
  if (*out) return CW_OK;
  return fail(CW_INVALID, "there is no %s %u: the model has %u", output ? "output" : "input", index,
              output ? m->outputs : m->inputs);
}

cw_status cw_run_port_of(const cw_run_model* m, int32_t output, uint32_t index, cw_run_port* out) {
  const file_port* p;
  if (!m || !out) return fail(CW_INVALID, "cw_run_port_of: a NULL argument");
  const cw_status status = find_port(m, output, index, &p);
  if (status) return status;
  *out = (cw_run_port){text(m, p->name), (int32_t)p->dtype, (int32_t)p->ndim, {0}, p->bytes};
  for (uint32_t d = 0; d < p->ndim; ++d)
    out->shape[d] = dimension_patch(&m->f, (uint64_t)(p - m->f.ports), d) ? -1 : p->shape[d];
  return CW_OK;
}

/* ---- a session -------------------------------------------------------------------------------------------------------- */

static char* address(const cw_run_session* s, uint32_t buffer, uint64_t place) {
  const file_buffer* b = &s->model->f.buffers[buffer];
  if (b->kind == CONSTANT) return weights_at(&s->model->weights, &s->model->f, buffer) + place;
  return (b->kind == IN_ARENA ? s->arena : s->told) + b->place + place;
}

/* ---- a size that may differ ------------------------------------------------------------------------------------------- */

static cw_status wait_for(cw_run_session* s);

static const file_step* step_at(const cw_run_session* s, uint64_t i) {
  return s->steps ? &s->steps[i] : &s->model->f.steps[i];
}

static void set_arguments(cw_run_session* s) {
  const checked_file* f = &s->model->f;
  for (uint64_t i = 0; i < f->n_arguments; ++i) {
    const file_argument* a = &f->arguments[i];
    if (a->kind == ADDRESS)
      s->arguments[i].v.address = address(s, a->of, a->place);
    else
      s->arguments[i].bytes = a->of, s->arguments[i].v.value = (s->values ? s->values : f->values) + a->place;
  }
}

/* Put the numbers of `size`, which is in the range, into the session's copies. The check has seen that all fit. */
static cw_status take_size(cw_run_session* s, uint64_t size) {
  const checked_file* f = &s->model->f;
  if (s->size == size) return CW_OK;
  const cw_status status = wait_for(s); /* the run before may still read them */
  if (status) return status;
  const file_profile* p = f->profiles;
  while (p->last < size) ++p;
  if (p != s->profile) {
    memcpy(s->steps, f->steps, f->n_steps * sizeof *s->steps);
    if (f->n_values) memcpy(s->values, f->values, f->n_values);
    set_arguments(s);
  }
  for (uint32_t i = 0; i < p->patches; ++i) {
    const file_patch* patch = &f->patches[p->patch + i];
    const int64_t n = patched(f, patch, p->first, size);
    if (patch->what == OPERATIONS || patch->what == MOVED) continue;
    const file_argument* a = &f->arguments[patch->what >= PLACE ? patch->of : 0];
    if (patch->what == GRID)
      s->steps[patch->of].grid[patch->place] = (uint32_t)n;
    else if (patch->what == BYTES)
      s->steps[patch->of].bytes = (uint64_t)n;
    else if (patch->what == PLACE)
      s->arguments[patch->of].v.address = address(s, a->of, (uint64_t)n);
    else /* little-endian, as the file is */
      memcpy(s->values + a->place + patch->place, &n, patch->what == WORD ? 8 : 4);
  }
  s->profile = p, s->size = size, s->first = p->step, s->count = p->steps;
  return CW_OK;
}

/* The size that an input of `bytes` has. */
static cw_status size_of_input(cw_run_session* s, uint64_t port, uint64_t bytes) {
  const checked_file* f = &s->model->f;
  const file_port* p = &f->ports[port];
  uint32_t dim = 0;
  while (dim < p->ndim && !dimension_patch(f, port, dim)) ++dim;
  const file_patch* patch = dimension_patch(f, port, dim);
  uint64_t each = bytes_of(p->dtype); /* of one in that dimension */
  for (uint32_t d = 0; d < p->ndim; ++d)
    if (d != dim) each *= (uint64_t)p->shape[d];
  int64_t over = 0;
  const int fits_in = bytes <= p->bytes && !__builtin_sub_overflow((int64_t)(bytes / each), patch->base, &over);
  const int64_t size = fits_in && over > 0 ? over / patch->slope : 0;
  if (bytes % each || size < (int64_t)f->size->least || size > (int64_t)f->size->most || over % patch->slope)
    return fail(
        CW_INVALID,
        "input \"%s\" was given %llu bytes, which is no size of it: \"%s\" is from %llu to %llu, and dimension %u "
        "has %llu bytes for each of its numbers",
        text(s->model, p->name), (unsigned long long)bytes, text(s->model, f->size->name),
        (unsigned long long)f->size->least, (unsigned long long)f->size->most, dim, (unsigned long long)each);
  s->sizes[port] = (uint64_t)size;
  return CW_OK;
}

/* Before a run: the size of its inputs, which is one. */
static cw_status settle(cw_run_session* s) {
  const checked_file* f = &s->model->f;
  if (!f->size) return CW_OK;
  uint64_t port = UINT64_MAX;
  for (uint64_t i = 0; i < f->n_ports; ++i) {
    if (!s->sizes[i]) continue;
    if (port != UINT64_MAX && s->sizes[port] != s->sizes[i])
      return fail(CW_INVALID, "\"%s\" is %llu in input \"%s\" and %llu in input \"%s\"; set both for one size",
                  text(s->model, f->size->name), (unsigned long long)s->sizes[port],
                  text(s->model, f->ports[port].name), (unsigned long long)s->sizes[i],
                  text(s->model, f->ports[i].name));
    port = i;
  }
  return take_size(s, port != UINT64_MAX ? s->sizes[port] : s->size);
}

static int is_dynamic(const cw_run_session* s, uint64_t port) {
  for (uint32_t d = 0; d < s->model->f.ports[port].ndim; ++d)
    if (dimension_patch(&s->model->f, port, d)) return 1;
  return 0;
}

static cw_status prepare(cw_run_session* s, void* arena) {
  const checked_file* f = &s->model->f;
  const cw_run_device* d = s->model->device;
  const cw_status bound = bind_thread(d);
  if (bound) return bound;
  if (d->table->stream_create) TRY(d, "stream_create", d->table->stream_create(d->index, 0, &s->stream));
  if (arena)
    s->arena = arena;
  else if (f->target->arena) {
    TRY(d, "mem_alloc", d->table->mem_alloc(d->index, f->target->arena, (void**)&s->arena));
    s->owns_arena = 1;
  }
  for (uint64_t i = 0; i < f->n_buffers; ++i) s->tells |= f->buffers[i].kind == TOLD;
  if (s->tells) {
    const uint64_t none[2] = {0, 0};
    TRY(d, "mem_alloc", d->table->mem_alloc(d->index, sizeof none, (void**)&s->told));
    TRY(d, "mem_copy", d->table->mem_copy(s->told, d->index, none, CW_HOST, sizeof none, s->stream));
  }
  s->arguments = calloc(f->n_arguments + 1, sizeof *s->arguments);
  s->ms = calloc(f->n_steps + 1, sizeof *s->ms);
  if (!s->arguments || !s->ms) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  s->count = f->n_steps;
  if (f->size) {
    s->steps = malloc((f->n_steps + 1) * sizeof *s->steps);
    s->values = malloc(f->n_values + 1);
    s->sizes = calloc(f->n_ports + 1, sizeof *s->sizes);
    if (!s->steps || !s->values || !s->sizes) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  } else {
    set_arguments(s);
  }
  TRY(d, "sync", d->table->sync(d->index));
  return f->size ? take_size(s, f->size->most) : CW_OK;
}

cw_status cw_run_begin(cw_run_model* model, void* arena, cw_run_session** out) {
  if (!model || !out) return fail(CW_INVALID, "cw_run_begin: a NULL argument");
  if ((uintptr_t)arena % 64) return fail(CW_INVALID, "cw_run_begin: the arena %p is at no multiple of 64", arena);
  cw_arg paper = {0};
  const cw_run_device* d = model->device;
  if (d->table->device_attribute && !d->table->device_attribute(d->index, "on_paper", &paper) && paper.tag == CW_INT &&
      paper.v.i)
    return fail(CW_UNSUPPORTED, "%.*s runs no kernel: a file can be loaded there, and not run",
                (int)sizeof d->info.name, d->info.name);
  cw_run_session* s = calloc(1, sizeof *s);
  if (!s) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  s->model = model;
  const cw_status status = prepare(s, arena);
  if (status) {
    char words[sizeof last_words];
    memcpy(words, last_words, sizeof words);
    cw_run_end(s);
    return fail(status, "%s", words);
  }
  *out = s;
  return CW_OK;
}

cw_status cw_run_end(cw_run_session* s) {
  if (!s) return CW_OK;
  const cw_run_device* d = s->model->device;
  (void)bind_thread(d);
  (void)d->table->sync(d->index);
  if (s->owns_arena) (void)d->table->mem_free(d->index, s->arena);
  if (s->told) (void)d->table->mem_free(d->index, s->told);
  if (s->stream) (void)d->table->stream_destroy(d->index, s->stream);
  free(s->arguments), free(s->ms), free(s->steps), free(s->values), free(s->sizes), free(s);
  return CW_OK;
}

static cw_status wait_for(cw_run_session* s) {
  const cw_run_device* d = s->model->device;
  if (!s->busy) return CW_OK;
  if (d->table->stream_sync)
    TRY(d, "stream_sync", d->table->stream_sync(d->index, s->stream));
  else
    TRY(d, "sync", d->table->sync(d->index));
  s->busy = 0;
  return CW_OK;
}

/* Before a run: what kernels of the one before told is not this one's. */
static cw_status forget(cw_run_session* s) {
  static const uint64_t none[2] = {0, 0};
  const cw_run_device* d = s->model->device;
  if (s->tells && (s->given || s->said[0])) {
    s->busy = 1;
    TRY(d, "mem_copy", d->table->mem_copy(s->told, d->index, none, CW_HOST, sizeof none, s->stream));
  }
  s->said[0] = 0;
  s->given = 1;
  return CW_OK;
}

/* What a kernel told that it could not raise: two words, as csrc/runtime/kernel_error.cpp reads them. */
static cw_status told(cw_run_session* s) {
  const cw_run_device* d = s->model->device;
  const uint64_t* words = s->said;
  if (!s->tells) return CW_OK;
  if (s->given) {
    s->busy = 1;
    TRY(d, "mem_copy", d->table->mem_copy(s->said, CW_HOST, s->told, d->index, sizeof s->said, s->stream));
    const cw_status status = wait_for(s);
    if (status) return status;
    s->given = 0;
  }
  if (!words[0]) return CW_OK;
  const char* name = text(s->model, s->model->f.target->tellers);
  for (uint64_t n = words[0] >> 56; n > 1 && *name; --n) {
    name += strcspn(name, "\n");
    name += *name == '\n';
  }
  const int length = (int)strcspn(name, "\n");
  const long long value = (long long)(words[0] << 16) >> 16;
  if ((words[0] >> 48 & 0xff) == 1)
    return fail(
        CW_INVALID,
        "index %lld is out of range for a dimension of size %llu in %.*s; the outputs are no values to go on with",
        value, (unsigned long long)words[1], length, name);
  return fail(CW_INVALID, "%s in %.*s; the outputs are no values to go on with",
              (words[0] >> 48 & 0xff) == 2 ? "an integer was divided by zero" : "numbers that it cannot take", length,
              name);
}

static cw_status move(cw_run_session* s, int32_t output, uint32_t index, void* data, uint64_t bytes) {
  if (!s || (!data && bytes)) return fail(CW_INVALID, "a NULL argument");
  const file_port* p;
  cw_status status = find_port(s->model, output, index, &p);
  if (status) return status;
  const uint64_t number = (uint64_t)(p - s->model->f.ports);
  const int sized = is_dynamic(s, number);
  const uint64_t wanted = sized ? bytes_at(&s->model->f, number, s->size) : p->bytes;
  if (sized && !output) {
    if ((status = size_of_input(s, number, bytes))) return status;
  } else if (bytes != wanted) {
    return fail(CW_INVALID, "%s \"%s\" has %llu bytes, and %llu were given", output ? "output" : "input",
                text(s->model, p->name), (unsigned long long)wanted, (unsigned long long)bytes);
  }
  const cw_run_device* d = s->model->device;
  if ((status = bind_thread(d))) return status;
  char* at = address(s, p->buffer, p->place);
  s->busy |= data != at;
  if (data == at) {
    /* Written in place. */
  } else if (bytes && output)
    TRY(d, "mem_copy", d->table->mem_copy(data, CW_HOST, at, d->index, bytes, s->stream));
  else if (bytes)
    TRY(d, "mem_copy", d->table->mem_copy(at, d->index, data, CW_HOST, bytes, s->stream));
  if ((status = wait_for(s))) return status;
  return output ? told(s) : CW_OK;
}

cw_status cw_run_set(cw_run_session* s, uint32_t input, const void* data, uint64_t bytes) {
  return move(s, 0, input, (void*)data, bytes);
}
static cw_status place_of(cw_run_session* s, int32_t output, uint32_t index, void** out) {
  const file_port* p;
  if (!s || !out) return fail(CW_INVALID, "a NULL argument");
  cw_status status = find_port(s->model, output, index, &p);
  if (status) return status;
  const cw_run_device* d = s->model->device;
  if (!(d->info.flags & CW_HOST_ADDRESSABLE))
    return fail(CW_UNSUPPORTED, "the host cannot address the memory of %.*s: copy with cw_run_set and cw_run_get",
                (int)sizeof d->info.name, d->info.name);
  if ((status = bind_thread(d)) || (status = wait_for(s))) return status;
  *out = address(s, p->buffer, p->place);
  return output ? told(s) : CW_OK;
}
cw_status cw_run_get(cw_run_session* s, uint32_t output, void* data, uint64_t bytes) {
  if (bytes == CW_RUN_PLACE) return place_of(s, !(output & CW_RUN_INPUT), output & ~CW_RUN_INPUT, data);
  return move(s, 1, output, data, bytes);
}

static cw_status run_step(cw_run_session* s, uint64_t i) {
  const cw_run_device* d = s->model->device;
  const file_step* step = step_at(s, i);
  const cw_code_arg* a = s->arguments + step->argument;
  cw_status status;
  s->busy = 1;
  if (step->kind == LAUNCH) {
    status =
        d->code->launch(s->model->functions[step->function], step->grid, step->group, a, step->arguments, s->stream);
  } else if (step->kind == COPY) {
    status = d->table->mem_copy((void*)a[0].v.address, d->index, a[1].v.address, d->index, step->bytes, s->stream);
  } else {
    status = d->table->mem_set
                 ? d->table->mem_set(d->index, (void*)a[0].v.address, (int32_t)step->byte, step->bytes, s->stream)
                 : CW_UNSUPPORTED;
  }
  if (status) {
    by_vendor(d, status, text(s->model, step->name));
    return status == CW_UNSUPPORTED ? CW_FAILED : status;
  }
  return CW_OK;
}

cw_status cw_run_start(cw_run_session* s) {
  if (!s) return fail(CW_INVALID, "cw_run_start: a NULL argument");
  cw_status status = bind_thread(s->model->device);
  if (!status) status = settle(s);
  if (!status) status = forget(s);
  for (uint64_t i = 0; !status && i < s->count; ++i) status = run_step(s, s->first + i);
  return status;
}

cw_status cw_run(cw_run_session* s) {
  cw_status status = cw_run_start(s);
  if (!status) status = wait_for(s);
  return status ? status : told(s);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

cw_status cw_run_step_of(cw_run_session* s, uint32_t index, int32_t profile, cw_run_step* out) {
  if (!s || !out) return fail(CW_INVALID, "cw_run_step_of: a NULL argument");
  if (index >= s->model->f.n_steps)
    return fail(CW_INVALID, "there is no step %u: the model has %llu", index, (unsigned long long)s->model->f.n_steps);
  cw_status status = bind_thread(s->model->device);
  if (profile && !status) status = settle(s);
  if (profile && !status) status = forget(s);
  if (profile) memset(s->ms, 0, s->model->f.n_steps * sizeof *s->ms); /* steps of other sizes take none */
  for (uint64_t i = s->first; profile && !status && i < s->first + s->count; ++i) {
    const double from = now();
    if (!(status = run_step(s, i))) status = wait_for(s);
    s->ms[i] = now() - from;
  }
  if (!status) status = told(s); /* else the next run would report it */
  if (status) return status;
  const file_step* step = &s->model->f.steps[index];
  *out = (cw_run_step){text(s->model, step->name), text(s->model, step->line), s->ms[index]};
  return CW_OK;
}

/* ---- for `cw` --------------------------------------------------------------------------------------------------------- */

const checked_file* file_of(const cw_run_model* m) { return &m->f; }

cw_status session_settle(cw_run_session* s, uint64_t* size, uint64_t* first, uint64_t* count) {
  cw_status status = bind_thread(s->model->device);
  if (!status) status = settle(s);
  *size = s->size, *first = s->first, *count = s->count;
  return status;
}

cw_status session_step(cw_run_session* s, uint64_t i) {
  if (i < s->first || i >= s->first + s->count)
    return fail(CW_INVALID, "step %llu is of another size", (unsigned long long)i);
  s->given = 1;
  const cw_status status = run_step(s, i);
  return status ? status : wait_for(s);
}

cw_status session_wait(cw_run_session* s) { return wait_for(s); }

cw_status session_read(cw_run_session* s, const file_check* c, void* out) {
  const checked_file* f = &s->model->f;
  const cw_run_device* d = s->model->device;
  const file_buffer* b = &f->buffers[f->arguments[c->argument].of];
  const uint64_t each = bytes_of(c->dtype), bytes = (((uint64_t)c->count - 1) * c->stride + 1) * each;
  const char* at = s->arguments[c->argument].v.address;
  const uint64_t place = (uint64_t)(at - address(s, f->arguments[c->argument].of, 0));
  if (place > b->bytes || bytes > b->bytes - place)
    return fail(CW_INVALID, "a check of step %u is outside of its buffer", c->step);
  char* whole = malloc(bytes + 1);
  if (!whole) return fail(CW_OUT_OF_MEMORY, "the host is out of memory");
  s->busy = 1;
  cw_status status = by_vendor(d, d->table->mem_copy(whole, CW_HOST, at, d->index, bytes, s->stream), "mem_copy");
  if (!status) status = wait_for(s);
  for (uint64_t i = 0; !status && i < c->count; ++i) memcpy((char*)out + i * each, whole + i * c->stride * each, each);
  free(whole);
  return status;
}
