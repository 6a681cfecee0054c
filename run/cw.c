/* cw: look at a model file, run it, measure it, and compare it with the test vectors that it has. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "causeway/run.h"
#include "check.h"
#include "internal.h"
#include "sha256.h"

static const char usage[] =
    "usage: cw inspect FILE                  what is in it; needs no chip\n"
    "       cw verify  --vendor LIB FILE     run its test vectors and compare\n"
    "       cw bench   --vendor LIB FILE     measure it\n"
    "       cw run     --vendor LIB FILE --input NAME=PATH ... --output NAME=PATH ...\n"
    "\n"
    "  --vendor LIB         a vendor's library, such as libcw_opencl.so\n"
    "  --device N           which of its devices (0)\n"
    "  --trust-binaries     take what a compiler made of a file's kernels, where it is for this chip and driver\n"
    "  --target N           of inspect: which target of a file for several chips (1)\n"
    "  --allow-host-code    let a file's C kernels be built and run in this process\n"
    "  --weights FOLDER     where weights files are, if not beside the models\n"
    "  --input, --output    raw bytes of a tensor, row-major\n"
    "  --rounds N           of bench: measured runs (200)\n"
    "  --streams N          of bench: runs at once, each on a stream of its own (1)\n"
    "  --no-copies          of bench: leave inputs and outputs on the chip\n"
    "  --size N             of bench: the size that may differ (the largest); of inspect: the steps of that\n"
    "  --steps              of bench: the time of each step, and what it computes and moves in a second\n"
    "  --compare FILE       of bench: another file, in turns with the first\n";

static const char* const dtypes[] = {"bool",    "uint8",     "int8",      "uint16",    "int16",    "uint32",
                                     "int32",   "uint64",    "int64",     "float16",   "bfloat16", "float32",
                                     "float64", "complex32", "complex64", "complex128"};

typedef struct {
  const char *vendor, *file, *compare;
  int device, steps, no_copies;
  uint32_t flags;
  long rounds, streams, size, target;
  const char* given[64];
  int is_output[64], n_given;
} options;

static int die(const char* words) { return fprintf(stderr, "cw: %s\n", words), 1; }
#define CHECK(call)                       \
  do {                                    \
    if (call) return die(cw_run_error()); \
  } while (0)

static void* read_file(const char* path, uint64_t* bytes) {
  FILE* f = fopen(path, "rb");
  if (!f) return NULL;
  size_t room = 1 << 16, n = 0;
  char* data = aligned_alloc(64, room);
  for (size_t got; data && (got = fread(data + n, 1, room - n, f)) > 0;) {
    if ((n += got) < room) continue;
    char* more = aligned_alloc(64, room * 2);
    if (more) memcpy(more, data, n);
    free(data);
    data = more, room *= 2;
  }
  fclose(f);
  *bytes = n;
  return data;
}

/* base + slope * name, as a reader writes it. */
static void print_expression(const file_patch* p, const char* name) {
  if (p->divisor > 1) printf("(");
  if (p->slope != 1) printf("%lld * ", (long long)p->slope);
  printf("%s", name);
  if (p->base) printf(" %c %lld", p->base < 0 ? '-' : '+', llabs((long long)p->base));
  if (p->divisor > 1) printf(") / %llu", (unsigned long long)p->divisor);
}

static void print_port(const checked_file* f, uint64_t i) {
  const file_port* p = &f->ports[i];
  printf("  %s  %s [", f->strings + p->name, p->dtype < 16 ? dtypes[p->dtype] : "?");
  for (uint32_t d = 0; d < p->ndim; ++d) {
    const file_patch* patch = dimension_patch(f, i, d);
    if (d) printf(", ");
    if (patch)
      print_expression(patch, f->strings + f->size->name);
    else
      printf("%lld", (long long)p->shape[d]);
  }
  printf("]\n");
}

/* A file, or of a file for several chips the target that was asked for. What it is a part of is in `whole`. */
static int load_checked(const options* o, void** data, checked_file* f, targets_header* whole) {
  uint64_t bytes = 0;
  char words[512], more[600];
  file_image images[MOST_TARGETS] = {{0, 0}};
  *whole = (targets_header){.count = 0};
  *data = read_file(o->file, &bytes);
  if (!*data) return die("the file cannot be read");
  cw_status status = CW_OK;
  images[0].bytes = bytes;
  uint64_t at = 0;
  if (is_of_targets(*data, bytes)) {
    status = check_targets(*data, bytes, whole, images, words, sizeof words);
    if (!status && (uint64_t)o->target > whole->count) return die("there is no such --target; `cw inspect` lists them");
    if (!status) at = (uint64_t)o->target - 1;
  }
  if (!status) status = check_file((const char*)*data + images[at].place, images[at].bytes, f, words, sizeof words);
  if (status) {
    snprintf(more, sizeof more, "%.60s is refused: %s", o->file, words);
    return die(more);
  }
  return 0;
}

static uint64_t tables_of(const checked_file* f) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < f->n_patches; ++i) n += !f->patches[i].divisor;
  return n;
}

/* What steps compute and move, as they are printed: at a size, or as expressions. */
typedef struct {
  const checked_file* f;
  file_cost* costs;                  /* at `size` */
  const file_patch **operations, **moved; /* what depends on the size, by step */
  uint64_t size;                     /* 0: expressions */
} work;

static void print_number(const checked_file* f, const file_patch* p, uint64_t at_size, uint64_t number) {
  if (!p || at_size) {
    printf("%llu", (unsigned long long)number);
    return;
  }
  if (p->divisor) {
    print_expression(p, f->strings + f->size->name);
    return;
  }
  const file_profile* profile = f->profiles;
  while (profile->last < f->size->most && p >= f->patches + profile->patch + profile->patches) ++profile;
  printf("%lld to %lld", (long long)patched(f, p, profile->first, profile->first),
         (long long)patched(f, p, profile->first, profile->last));
}

/* The costs of a file, and where they depend on its size. 0: the host is out of memory. */
static int find_work(const checked_file* f, uint64_t size, work* out) {
  *out = (work){f, calloc(f->n_steps + 1, sizeof *out->costs), calloc(f->n_steps + 1, sizeof *out->operations),
                calloc(f->n_steps + 1, sizeof *out->moved), size};
  if (!out->costs || !out->operations || !out->moved) return 0;
  costs_at(f, size, out->costs);
  for (uint64_t i = 0; i < f->n_profiles; ++i)
    for (uint32_t k = 0; k < f->profiles[i].patches; ++k) {
      const file_patch* p = &f->patches[f->profiles[i].patch + k];
      if (p->what == OPERATIONS) out->operations[p->of] = p;
      if (p->what == MOVED) out->moved[p->of] = p;
    }
  return 1;
}

static void print_work(const work* w, uint64_t i) {
  if (!w->f->n_costs) return;
  printf("  ");
  print_number(w->f, w->operations[i], w->size, w->costs[i].operations);
  printf(" FLOP, ");
  print_number(w->f, w->moved[i], w->size, w->costs[i].bytes);
  printf(" bytes");
}

/* The sum of steps, of numbers that are each at most 2^56. */
static file_cost sum_of_steps(const file_cost* costs, uint64_t first, uint64_t count) {
  file_cost sum = {0, 0};
  for (uint64_t i = first; i < first + count; ++i) {
    if (__builtin_add_overflow(sum.operations, costs[i].operations, &sum.operations)) sum.operations = UINT64_MAX;
    if (__builtin_add_overflow(sum.bytes, costs[i].bytes, &sum.bytes)) sum.bytes = UINT64_MAX;
  }
  return sum;
}

/* Of a run, at a size that is in the range, or 0 where none may differ. */
static void print_sum(const checked_file* f, const work* w, uint64_t size) {
  const file_profile* p = f->profiles;
  while (size && p->last < size) ++p;
  costs_at(f, size, w->costs);
  const file_cost sum = size ? sum_of_steps(w->costs, p->step, p->steps) : sum_of_steps(w->costs, 0, f->n_steps);
  printf("a run");
  if (size) printf(" with %s %llu", f->strings + f->size->name, (unsigned long long)size);
  printf("  %llu FLOP, %llu bytes read and written\n", (unsigned long long)sum.operations,
         (unsigned long long)sum.bytes);
}

static void drop_work(work* w) { free(w->costs), free(w->operations), free(w->moved); }

/* Whether a run of `size` has step `i`. */
static int is_of_size(const checked_file* f, uint64_t i, uint64_t size) {
  const file_profile* p = f->profiles;
  while (p->last < size) ++p;
  return i >= p->step && i - p->step < p->steps;
}

static int size_is_wrong(const checked_file* f, const options* o) {
  if (f->size && o->size && ((uint64_t)o->size < f->size->least || (uint64_t)o->size > f->size->most))
    return die("--size is not in the file's range; `cw inspect` says it");
  return !f->size && o->size ? die("--size is of files with a size that may differ") : 0;
}

/* Which file has the weights, and whether it has all; their bytes are not read. */
static void print_elsewhere(const checked_file* f, const char* model, const void* data, const targets_header* whole) {
  char path[4096], words[512];
  file_source from = {.fd = -1};
  weights_header header;
  file_weight* own = NULL;
  const file_weight* index = NULL;
  printf("  in %llu parts of %s", (unsigned long long)f->n_weights,
         whole->weights_bytes ? "this file" : f->strings + f->elsewhere->name);
  if (whole->weights_bytes) {
    const char* weights = (const char*)data + whole->weights;
    if (!check_weights_header(weights, whole->weights_bytes, &header, words, sizeof words) &&
        !check_weights_index(&header, weights + header.index, words, sizeof words))
      index = (const file_weight*)(weights + header.index);
    else
      printf("; its weights are refused: %s\n", words);
  } else if (find_elsewhere(f, model, path, sizeof path) || open_elsewhere(path, model, &from, &header, &own)) {
    printf("; %s\n", cw_run_error());
  } else {
    index = own;
  }
  if (!index) return;
  uint64_t missing = 0, all = 0;
  for (uint64_t i = 0; i < f->n_weights; ++i) {
    const file_weight* found = find_weight(index, header.entries, f->weights[i].digest);
    missing += !found || found->bytes != f->weights[i].bytes;
  }
  for (uint64_t i = 0; i < header.entries; ++i) all += index[i].bytes;
  printf(", which has %llu parts with %llu bytes", (unsigned long long)header.entries, (unsigned long long)all);
  if (missing) printf(", and lacks %llu of these", (unsigned long long)missing);
  printf("\n");
  free(own);
  if (from.fd >= 0) close(from.fd);
}

static void print_target(const checked_file* f) {
  static const char* const languages[] = {"?", "C", "OpenCL C", "CUDA C", "Ascend SIMT C"};
  printf("for %s (kernels in %s)\n", f->strings + f->target->vendor,
         languages[f->target->language < 5 ? f->target->language : 0]);
  for (uint64_t i = 0, n; i < f->n_binaries; i += n) {
    uint64_t bytes = 0;
    for (n = 0; i + n < f->n_binaries && f->binaries[i + n].key == f->binaries[i].key; ++n)
      bytes += f->binaries[i + n].bytes;
    printf("  and binaries of %llu sources, %llu bytes, for ", (unsigned long long)n, (unsigned long long)bytes);
    for (const char* c = f->strings + f->binaries[i].key; *c; ++c)
      if (*c != '\n')
        putchar(*c);
      else if (c[1])
        printf(", ");
    printf("\n");
  }
}

/* A line or two for each target; all of one comes after. */
static int print_targets(const void* data, const targets_header* whole, long wanted) {
  const file_image* images = (const file_image*)((const char*)data + sizeof *whole);
  char words[512];
  for (uint32_t i = 0; i < whole->count; ++i) {
    checked_file f;
    if (check_file((const char*)data + images[i].place, images[i].bytes, &f, words, sizeof words))
      return fprintf(stderr, "cw: target %u is refused: %s\n", i + 1, words), 1;
    printf("target %u of %u, %llu steps, %llu bytes: ", i + 1, whole->count, (unsigned long long)f.n_steps,
           (unsigned long long)images[i].bytes);
    print_target(&f);
  }
  printf("target %ld\n", wanted);
  return 0;
}

static int inspect(const options* o) {
  void* data;
  checked_file f;
  targets_header whole;
  if (load_checked(o, &data, &f, &whole)) return 1;
  if (whole.count && print_targets(data, &whole, o->target)) return 1;
  print_target(&f);
  for (int output = 0; output < 2; ++output) {
    printf(output ? "outputs\n" : "inputs\n");
    for (uint64_t i = 0; i < f.n_ports; ++i)
      if (f.ports[i].kind == (uint32_t)output) print_port(&f, i);
  }
  printf("weights  %llu bytes, shared by sessions\narena    %llu bytes for each session, the peak\n",
         (unsigned long long)f.n_constants, (unsigned long long)f.target->arena);
  if (f.elsewhere) print_elsewhere(&f, o->file, data, &whole);
  printf("%llu steps of %llu kernels in %llu sources\n", (unsigned long long)f.n_steps,
         (unsigned long long)f.n_functions, (unsigned long long)f.n_texts);
  if (f.size)
    printf("%s is from %llu to %llu: %llu numbers depend on it, of which %llu tables have %llu entries\n",
           f.strings + f.size->name, (unsigned long long)f.size->least, (unsigned long long)f.size->most,
           (unsigned long long)f.n_patches, (unsigned long long)tables_of(&f), (unsigned long long)f.n_tables);
  work w;
  const uint64_t size = (uint64_t)o->size;
  if (size_is_wrong(&f, o)) return 1;
  if (!find_work(&f, size, &w)) return die("the host is out of memory");
  if (f.n_checks) printf("%llu results of steps are kept for `cw verify`\n", (unsigned long long)f.n_checks);
  uint64_t profile = 0;
  for (uint64_t i = 0; i < f.n_steps; ++i) {
    if (size && !is_of_size(&f, i, size)) continue;
    for (; profile < f.n_profiles && f.profiles[profile].step <= i; ++profile)
      printf("%s from %llu to %llu\n", f.strings + f.size->name, (unsigned long long)f.profiles[profile].first,
             (unsigned long long)f.profiles[profile].last);
    const file_step* s = &f.steps[i];
    printf("%5llu  %s", (unsigned long long)i, f.strings + s->name);
    if (s->kind == LAUNCH)
      printf("  %u x %u x %u groups of %u", s->grid[0], s->grid[1], s->grid[2],
             s->group[0] * s->group[1] * s->group[2]);
    else
      printf(s->kind == COPY ? "  a copy of %llu bytes" : "  a fill of %llu bytes", (unsigned long long)s->bytes);
    print_work(&w, i);
    printf(f.strings[s->line] ? "  %s\n" : "%s\n", f.strings + s->line);
  }
  if (f.n_costs && f.size && !size) print_sum(&f, &w, f.size->least);
  if (f.n_costs) print_sum(&f, &w, f.size && !size ? f.size->most : size);
  drop_work(&w);
  free(data);
  return 0;
}

typedef struct {
  cw_run_device* device;
  cw_run_model* model;
  cw_run_session* session;
  cw_run_info info;
} running;

static int begin(const options* o, running* r) {
  if (!o->vendor) return die("--vendor says which library runs the file, such as libcw_opencl.so");
  CHECK(cw_run_open(o->vendor, o->device, &r->device));
  CHECK(cw_run_load(r->device, o->file, o->flags, &r->model));
  CHECK(cw_run_describe(r->model, &r->info));
  CHECK(cw_run_begin(r->model, NULL, &r->session));
  return 0;
}

static int end(running* r, int status) {
  cw_run_end(r->session);
  cw_run_unload(r->model);
  cw_run_close(r->device);
  return status;
}

static double half(uint16_t h, int is_bfloat) {
  if (is_bfloat) {
    const uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
  }
  const int e = h >> 10 & 31;
  const double m = h & 1023, v = e == 31 ? (m != 0 ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
  return h >> 15 ? -v : v;
}

static double element(const void* data, uint64_t i, uint32_t dtype) {
  if (dtype == 11) return ((const float*)data)[i];
  if (dtype == 12) return ((const double*)data)[i];
  return half(((const uint16_t*)data)[i], dtype == 10);
}

/* How far `got` is from `want`, by what is allowed: at most 1 is equal. Integers must be equal. */
static double distance(const void* got, const void* want, uint64_t bytes, uint32_t dtype, double* most) {
  *most = 0;
  if (dtype < 9 || dtype > 12) return memcmp(got, want, bytes) ? (*most = INFINITY) : 0;
  const double tolerance = dtype == 9 ? 1e-3 : dtype == 10 ? 1.6e-2 : dtype == 11 ? 1e-4 : 1e-7;
  double worst = 0;
  for (uint64_t i = 0; i < bytes / (dtype == 12 ? 8 : dtype == 11 ? 4 : 2); ++i) {
    const double a = element(got, i, dtype), b = element(want, i, dtype);
    if (a == b || (isnan(a) && isnan(b))) continue;
    const double d = fabs(a - b), part = d / (tolerance * (fabs(b) + 0.1));
    if (!(part <= worst)) worst = isnan(part) ? INFINITY : part;
    if (!(d <= *most)) *most = d;
  }
  return worst;
}

/* Runs the steps one by one, and names the first whose result is not the one that was kept. 1: there was such a one. */
static int verify_steps(const running* r, const checked_file* f, uint64_t first, uint64_t count, int* differs) {
  uint64_t seen = 0;
  *differs = 0;
  for (uint64_t i = first; i < first + count; ++i) {
    CHECK(session_step(r->session, i));
    for (uint64_t k = 0; k < f->n_checks && !*differs; ++k) {
      const file_check* c = &f->checks[k];
      if (c->step != i) continue;
      double most;
      void* got = malloc(c->count * bytes_of(c->dtype));
      if (!got) return die("the host is out of memory");
      CHECK(session_read(r->session, c, got));
      const double off = distance(got, f->vectors + c->vector, c->count * bytes_of(c->dtype), c->dtype, &most);
      ++seen;
      if (off > 1) {
        const char* line = f->strings + f->steps[i].line;
        printf("step %llu, %s%s%s: WRONG, off by %g at most: the first that differs from the exported model\n",
               (unsigned long long)i, f->strings + f->steps[i].name, *line ? ", from " : "", line, most);
        *differs = 1;
      }
      free(got);
    }
  }
  if (!*differs && !seen) return die("no kept result is of a step that its test vectors run");
  if (!*differs)
    printf("%llu results of %llu steps: as in the exported model\n", (unsigned long long)seen,
           (unsigned long long)count);
  return 0;
}

/* The SHA-256 of each part of the weights. Those of another file were summed as they were loaded. */
static int verify_weights(const options* o, const checked_file* f) {
  options own = *o;
  void* data;
  checked_file one;
  targets_header whole;
  if (f->elsewhere)
    printf("weights: %llu parts of %s have their SHA-256\n", (unsigned long long)f->n_weights,
           f->strings + f->elsewhere->name);
  if (f->elsewhere || !f->n_weights) return 0;
  do {
    if (load_checked(&own, &data, &one, &whole)) return 1;
    for (uint64_t i = 0; i < one.n_weights && !one.elsewhere; ++i) {
      const file_weight* w = &one.weights[i];
      uint8_t digest[DIGEST];
      sha256 sum;
      sha256_begin(&sum);
      sha256_add(&sum, one.constants + w->place, w->bytes);
      sha256_end(&sum, digest);
      if (memcmp(digest, w->digest, DIGEST) == 0) continue;
      printf("weights: WRONG, their %llu bytes at %llu do not have the SHA-256 that the file says\n",
             (unsigned long long)w->bytes, (unsigned long long)w->place);
      return 1;
    }
    free(data);
  } while (++own.target <= (long)whole.count);
  return 0;
}

static int verify(const options* o) {
  running r;
  if (begin(o, &r) || verify_weights(o, file_of(r.model))) return 1;
  const checked_file f = *file_of(r.model);
  uint32_t inputs = 0, outputs = 0, bad = 0, seen = 0;
  uint64_t size, first, count;
  int differs = 0;
  const uint64_t example = f.size ? f.size->example : 0;
  for (uint64_t i = 0; i < f.n_ports; ++i) {
    const file_port* p = &f.ports[i];
    if (p->kind != INPUT) continue;
    if (p->vector == NO_VECTOR) return die("the file has no test vectors; export it with vectors=True");
    CHECK(cw_run_set(r.session, inputs++, f.vectors + p->vector, bytes_at(&f, i, example)));
  }
  if (f.n_checks) {
    CHECK(session_settle(r.session, &size, &first, &count));
    if (verify_steps(&r, &f, first, count, &differs)) return 1;
  } else {
    CHECK(cw_run(r.session));
  }
  for (uint64_t i = 0; i < f.n_ports; ++i) {
    const file_port* p = &f.ports[i];
    const uint64_t bytes = bytes_at(&f, i, example);
    if (p->kind != OUTPUT) continue;
    const uint32_t output = outputs++;
    if (p->vector == NO_VECTOR) continue;
    void* got = malloc(bytes + 1);
    double most;
    if (!got) return die("the host is out of memory");
    CHECK(cw_run_get(r.session, output, got, bytes));
    const int same = !memcmp(got, f.vectors + p->vector, bytes);
    const double off = distance(got, f.vectors + p->vector, bytes, p->dtype, &most);
    printf("%s: %s", f.strings + p->name,
           same       ? "equal bit for bit"
           : off <= 1 ? "equal within its tolerance"
                      : "WRONG");
    printf(same ? "\n" : ", off by %g at most\n", most);
    bad += off > 1, ++seen;
    free(got);
  }
  if (!seen) return die("the file has no test vectors; export it with vectors=True");
  return end(&r, bad || differs ? 1 : 0);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

#define MOST_STREAMS 64
enum { TOTAL, COPIES_IN, HOST, CHIP, COPIES_OUT, KINDS };

/* A file that is measured: sessions, memory of the host for its inputs and outputs, and the times of its runs. */
typedef struct {
  const char* path;
  running r;
  checked_file f;
  void *inputs[64], *outputs[64];
  uint64_t bytes_in, bytes_out;
  cw_run_session* sessions[MOST_STREAMS];
  double began[MOST_STREAMS], part[MOST_STREAMS][KINDS], *times[KINDS], busy;
  long done;
} bench_file;

static uint64_t port_bytes(const bench_file* b, int kind, uint32_t index, const options* o) {
  for (uint64_t i = 0; i < b->f.n_ports; ++i)
    if (b->f.ports[i].kind == (uint32_t)kind && index-- == 0)
      return b->f.size ? bytes_at(&b->f, i, o->size ? (uint64_t)o->size : b->f.size->most) : b->f.ports[i].bytes;
  return 0;
}

static int prepare(bench_file* b, const options* o, running* device) {
  options own = *o;
  own.file = b->path;
  if (!device) {
    if (begin(&own, &b->r)) return 1;
  } else {
    b->r.device = device->device;
    CHECK(cw_run_load(b->r.device, b->path, o->flags, &b->r.model));
    CHECK(cw_run_describe(b->r.model, &b->r.info));
    CHECK(cw_run_begin(b->r.model, NULL, &b->r.session));
  }
  b->f = *file_of(b->r.model);
  if (size_is_wrong(&b->f, o)) return 1;
  if (b->r.info.inputs > 64 || b->r.info.outputs > 64)
    return die("bench measures models of at most 64 inputs and outputs");
  b->sessions[0] = b->r.session;
  for (long s = 1; s < o->streams; ++s) CHECK(cw_run_begin(b->r.model, NULL, &b->sessions[s]));
  for (int kind = 0; kind < 2; ++kind)
    for (uint32_t i = 0; i < (kind ? b->r.info.outputs : b->r.info.inputs); ++i) {
      const uint64_t bytes = port_bytes(b, kind, i, o);
      *(kind ? &b->bytes_out : &b->bytes_in) += bytes;
      if (!((kind ? b->outputs : b->inputs)[i] = calloc(bytes + 1, 1))) return die("the host is out of memory");
    }
  for (uint64_t i = 0, input = 0; i < b->f.n_ports; ++i) { /* the test vectors, where they are of this size */
    const file_port* p = &b->f.ports[i];
    if (p->kind != INPUT) continue;
    const uint64_t bytes = port_bytes(b, 0, (uint32_t)input, o);
    if (p->vector != NO_VECTOR) {
      const uint64_t have = b->f.size ? bytes_at(&b->f, i, b->f.size->example) : p->bytes;
      for (uint64_t at = 0; have && at < bytes; at += have)
        memcpy((char*)b->inputs[input] + at, b->f.vectors + p->vector, bytes - at < have ? bytes - at : have);
    }
    for (long s = 0; s < o->streams; ++s) CHECK(cw_run_set(b->sessions[s], (uint32_t)input, b->inputs[input], bytes));
    ++input;
  }
  for (int k = 0; k < KINDS; ++k)
    if (!(b->times[k] = calloc((size_t)o->rounds, sizeof(double)))) return die("the host is out of memory");
  return 0;
}

/* Wait for a session's run, and note its times unless `keep` is 0. */
static int finish(bench_file* b, const options* o, long s, int keep) {
  if (b->began[s] == 0) return 0;
  const double from = now();
  CHECK(session_wait(b->sessions[s]));
  const double ran = now();
  b->part[s][CHIP] = ran - from + b->part[s][HOST];
  for (uint32_t i = 0; !o->no_copies && i < b->r.info.outputs; ++i)
    CHECK(cw_run_get(b->sessions[s], i, b->outputs[i], port_bytes(b, 1, i, o)));
  const double to = now();
  b->part[s][COPIES_OUT] = to - ran;
  b->part[s][TOTAL] = to - b->began[s];
  b->began[s] = 0;
  if (keep && b->done < o->rounds) {
    for (int k = 0; k < KINDS; ++k) b->times[k][b->done] = b->part[s][k];
    ++b->done;
  }
  return 0;
}

static int start(bench_file* b, const options* o, long s) {
  const double from = now();
  for (uint32_t i = 0; !o->no_copies && i < b->r.info.inputs; ++i)
    CHECK(cw_run_set(b->sessions[s], i, b->inputs[i], port_bytes(b, 0, i, o)));
  const double set = now();
  CHECK(cw_run_start(b->sessions[s]));
  b->part[s][COPIES_IN] = set - from, b->part[s][HOST] = now() - set;
  b->began[s] = from;
  return 0;
}

/* `count` runs, on all streams in turn, all of which are over at the end. */
static int measure(bench_file* b, const options* o, long count, int keep) {
  const double from = now();
  for (long i = 0; i < count; ++i)
    if (finish(b, o, i % o->streams, keep) || start(b, o, i % o->streams)) return 1;
  for (long s = 0; s < o->streams; ++s)
    if (finish(b, o, (count + s) % o->streams, keep)) return 1;
  if (keep) b->busy += now() - from;
  return 0;
}

static double sum_of(const bench_file* b, int kind) {
  double sum = 0;
  for (long i = 0; i < b->done; ++i) sum += b->times[kind][i];
  return sum;
}

static void report(bench_file* b, const options* o, long warm) {
  static const char* const titles[] = {"a run", "  inputs to the chip", "  the host gives the work",
                                       "  until the chip is done", "  outputs from the chip"};
  const long n = b->done;
  printf("%s\nruns %ld after %ld, on %ld stream%s%s; in ms\n", b->path, n, warm, o->streams, o->streams > 1 ? "s" : "",
         o->no_copies ? ", without copies" : "");
  printf("%-26s %9s %9s %9s %9s %9s %9s %9s\n", "", "median", "mean", "least", "90 %", "95 %", "99 %", "most");
  const double total = sum_of(b, TOTAL), host = sum_of(b, HOST), copies = sum_of(b, COPIES_IN) + sum_of(b, COPIES_OUT);
  for (int k = 0; k < KINDS; ++k) {
    double* t = b->times[k];
    const double mean = sum_of(b, k) / (double)n;
    qsort(t, (size_t)n, sizeof *t, by_size);
    printf("%-26s %9.4f %9.4f %9.4f %9.4f %9.4f %9.4f %9.4f\n", titles[k], t[n / 2], mean, t[0], t[n * 9 / 10],
           t[n * 95 / 100], t[n * 99 / 100], t[n - 1]);
  }
  printf(
      "throughput %.1f runs a second; the host gives the work in %.0f %% of a run, copies of %llu and %llu bytes take "
      "%.0f %%\n",
      1e3 * (double)n / b->busy, 100 * host / total, (unsigned long long)b->bytes_in, (unsigned long long)b->bytes_out,
      100 * copies / total);
  if (host > 0.5 * total)
    printf("advice: the host is the limit; larger batches, or fewer and larger steps, use the chip better\n");
  if (copies > 0.3 * total)
    printf(
        "advice: copies are a large part; keep what stays the same on the chip, or make inputs and outputs smaller\n");
  if (o->streams == 1 && host + copies > 0.3 * total)
    printf("advice: with --streams 2 the chip may compute while the host copies and gives the next run\n");
  if (b->times[TOTAL][n * 99 / 100] > 2 * b->times[TOTAL][n / 2])
    printf("advice: times spread widely; something else uses this machine, or more --rounds are needed\n");
}

/* 10^9 in a second are 10^6 in a millisecond. */
static void print_speed(const file_cost* cost, double ms) {
  const double each = ms > 0 ? 1e-6 / ms : 0;
  printf("  %9.3f GFLOP/s %9.3f GB/s", (double)cost->operations * each, (double)cost->bytes * each);
}

static int print_steps(bench_file* b) {
  uint64_t size, first, count;
  cw_run_step step;
  double sum = 0;
  CHECK(session_settle(b->r.session, &size, &first, &count));
  if (!count) return 0;
  CHECK(cw_run_step_of(b->r.session, (uint32_t)first, 1, &step));
  file_cost* costs = calloc(b->f.n_steps + 1, sizeof *costs);
  if (!costs) return die("the host is out of memory");
  costs_at(&b->f, size, costs);
  for (int pass = 0; pass < 2; ++pass)
    for (uint64_t i = first; i < first + count; ++i) {
      CHECK(cw_run_step_of(b->r.session, (uint32_t)i, 0, &step));
      if (pass) {
        printf("%5llu  %9.4f ms %3.0f %%", (unsigned long long)i, step.ms, 100 * step.ms / sum);
        if (b->f.n_costs) print_speed(&costs[i], step.ms);
        printf("  %s  %s\n", step.name, step.line);
      } else {
        sum += step.ms;
      }
    }
  const file_cost all = sum_of_steps(costs, first, count);
  printf("  all  %9.4f ms 100 %%", sum);
  if (b->f.n_costs) print_speed(&all, sum);
  printf("  one by one\n");
  free(costs);
  return 0;
}

static void release(bench_file* b, const options* o) {
  for (long s = 1; s < o->streams; ++s) cw_run_end(b->sessions[s]);
  for (int i = 0; i < 64; ++i) free(b->inputs[i]), free(b->outputs[i]);
  for (int k = 0; k < KINDS; ++k) free(b->times[k]);
  cw_run_end(b->r.session);
  cw_run_unload(b->r.model);
}

static int bench(const options* o) {
  static bench_file files[2];
  const int n = o->compare ? 2 : 1;
  const long warm = o->rounds / 10 + 1;
  if (o->streams < 1 || o->streams > MOST_STREAMS) return die("--streams is from 1 to 64");
  for (int i = 0; i < n; ++i) {
    files[i].path = i ? o->compare : o->file;
    if (prepare(&files[i], o, i ? &files[0].r : NULL) || measure(&files[i], o, warm, 0)) return 1;
  }
  /* In turns, so that what else the machine does meets both. */
  for (long left = o->rounds, part = o->rounds / (n > 1 ? 10 : 1) + 1; left > 0; left -= part)
    for (int i = 0; i < n; ++i)
      if (measure(&files[i], o, left < part ? left : part, 1)) return 1;
  for (int i = 0; i < n; ++i) {
    report(&files[i], o, warm);
    if (o->steps && print_steps(&files[i])) return 1;
  }
  if (n > 1) {
    const double a = files[0].times[TOTAL][files[0].done / 2], b = files[1].times[TOTAL][files[1].done / 2];
    printf("%s takes %.2f of the time of %s: %llu steps and an arena of %llu bytes to %llu steps and %llu bytes\n",
           o->compare, b / a, o->file, (unsigned long long)files[1].f.n_steps,
           (unsigned long long)files[1].f.target->arena, (unsigned long long)files[0].f.n_steps,
           (unsigned long long)files[0].f.target->arena);
  }
  cw_run_device* device = files[0].r.device;
  for (int i = n; i-- > 0;) release(&files[i], o);
  cw_run_close(device);
  return 0;
}

static int run(const options* o) {
  running r;
  uint64_t size = 0, first, count;
  if (begin(o, &r)) return 1;
  const checked_file f = *file_of(r.model);
  for (int pass = 0; pass < 2; ++pass) {
    for (uint32_t i = 0; i < (pass ? r.info.outputs : r.info.inputs); ++i) {
      cw_run_port p;
      CHECK(cw_run_port_of(r.model, pass, i, &p));
      const char* path = NULL;
      for (int g = 0; g < o->n_given; ++g)
        if (o->is_output[g] == pass && !strncmp(o->given[g], p.name, strlen(p.name)) &&
            o->given[g][strlen(p.name)] == '=')
          path = o->given[g] + strlen(p.name) + 1;
      if (!pass) {
        uint64_t bytes = 0;
        void* data = path ? read_file(path, &bytes) : NULL;
        if (!data)
          return fprintf(stderr, "cw: --input %s=PATH: %s\n", p.name,
                         path ? "the file cannot be read" : "it is not given"),
                 1;
        CHECK(cw_run_set(r.session, i, data, bytes));
        free(data);
      } else if (path) {
        uint64_t port = 0;
        for (uint32_t left = i; f.ports[port].kind != OUTPUT || left-- > 0;) ++port;
        const uint64_t bytes = f.size ? bytes_at(&f, port, size) : p.bytes;
        void* data = malloc(bytes + 1);
        if (!data) return die("the host is out of memory");
        CHECK(cw_run_get(r.session, i, data, bytes));
        FILE* out = fopen(path, "wb");
        if (!out || fwrite(data, 1, bytes, out) != bytes || fclose(out))
          return fprintf(stderr, "cw: %s cannot be written\n", path), 1;
        free(data);
      }
    }
    if (!pass) {
      CHECK(session_settle(r.session, &size, &first, &count));
      CHECK(cw_run(r.session));
    }
  }
  return end(&r, 0);
}

int main(int argc, char** argv) {
  static const struct option known[] = {
      {"vendor", 1, 0, 'v'},  {"device", 1, 0, 'd'}, {"allow-host-code", 0, 0, 'a'}, {"input", 1, 0, 'i'},
      {"output", 1, 0, 'o'},  {"rounds", 1, 0, 'r'}, {"steps", 0, 0, 's'},           {"help", 0, 0, 'h'},
      {"streams", 1, 0, 'n'}, {"size", 1, 0, 'z'},   {"compare", 1, 0, 'c'},         {"no-copies", 0, 0, 'x'},
      {"weights", 1, 0, 'w'}, {"target", 1, 0, 't'}, {"trust-binaries", 0, 0, 'b'},  {0, 0, 0, 0}};
  options o = {.rounds = 200, .streams = 1, .target = 1};
  for (int c; (c = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
    char* rest = NULL;
    if (c == 'v')
      o.vendor = optarg;
    else if (c == 'd')
      o.device = (int)strtol(optarg, &rest, 10);
    else if (c == 'a')
      o.flags |= CW_RUN_ALLOW_HOST_CODE;
    else if (c == 'r')
      o.rounds = strtol(optarg, &rest, 10);
    else if (c == 'n')
      o.streams = strtol(optarg, &rest, 10);
    else if (c == 'z')
      o.size = strtol(optarg, &rest, 10);
    else if (c == 'c')
      o.compare = optarg;
    else if (c == 'b')
      o.flags |= CW_RUN_TRUST_BINARIES;
    else if (c == 't')
      o.target = strtol(optarg, &rest, 10);
    else if (c == 'w')
      (void)setenv("CAUSEWAY_WEIGHTS", optarg, 1);
    else if (c == 'x')
      o.no_copies = 1;
    else if (c == 's')
      o.steps = 1;
    else if (c == 'h')
      return fputs(usage, stdout), 0;
    else if ((c == 'i' || c == 'o') && o.n_given < 64)
      o.is_output[o.n_given] = c == 'o', o.given[o.n_given++] = optarg;
    else
      return fputs(usage, stderr), 2;
    if (rest && (*rest || o.rounds < 1 || o.size < 0 || o.target < 1))
      return die("numbers are whole ones, and those of --rounds and --target at least 1");
  }
  if (optind + 2 != argc) return fputs(usage, stderr), 2;
  o.file = argv[optind + 1];
  const char* what = argv[optind];
  if (!strcmp(what, "inspect")) return inspect(&o);
  if (!strcmp(what, "verify")) return verify(&o);
  if (!strcmp(what, "bench")) return bench(&o);
  if (!strcmp(what, "run")) return run(&o);
  return fputs(usage, stderr), 2;
}
