/* cw: look at a model file, run it, measure it, and compare it with the test vectors that it has. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "causeway/run.h"
#include "check.h"

static const char usage[] =
    "usage: cw inspect FILE                  what is in it; needs no chip\n"
    "       cw verify  --vendor LIB FILE     run its test vectors and compare\n"
    "       cw bench   --vendor LIB FILE     measure it\n"
    "       cw run     --vendor LIB FILE --input NAME=PATH ... --output NAME=PATH ...\n"
    "\n"
    "  --vendor LIB         a vendor's library, such as libcw_opencl.so\n"
    "  --device N           which of its devices (0)\n"
    "  --allow-host-code    let a file's C kernels be built and run in this process\n"
    "  --input, --output    raw bytes of a tensor, row-major\n"
    "  --rounds N           of bench: measured runs (200)\n"
    "  --steps              of bench: the time of each step\n";

static const char* const dtypes[] = {"bool",    "uint8",     "int8",      "uint16",    "int16",    "uint32",
                                     "int32",   "uint64",    "int64",     "float16",   "bfloat16", "float32",
                                     "float64", "complex32", "complex64", "complex128"};

typedef struct {
  const char *vendor, *file;
  int device, steps;
  uint32_t flags;
  long rounds;
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

static void print_port(const file_port* p, const char* strings) {
  printf("  %s  %s [", strings + p->name, p->dtype < 16 ? dtypes[p->dtype] : "?");
  for (uint32_t d = 0; d < p->ndim; ++d) printf("%s%lld", d ? ", " : "", (long long)p->shape[d]);
  printf("]\n");
}

static int load_checked(const options* o, void** data, checked_file* f) {
  uint64_t bytes = 0;
  char words[512], more[600];
  *data = read_file(o->file, &bytes);
  if (!*data) return die("the file cannot be read");
  if (check_file(*data, bytes, f, words, sizeof words)) {
    snprintf(more, sizeof more, "%.60s is refused: %s", o->file, words);
    return die(more);
  }
  return 0;
}

static int inspect(const options* o) {
  static const char* const languages[] = {"?", "C", "OpenCL C", "CUDA C"};
  void* data;
  checked_file f;
  if (load_checked(o, &data, &f)) return 1;
  printf("for %s (kernels in %s)\n", f.strings + f.target->vendor, languages[f.target->language & 3]);
  for (int output = 0; output < 2; ++output) {
    printf(output ? "outputs\n" : "inputs\n");
    for (uint64_t i = 0; i < f.n_ports; ++i)
      if (f.ports[i].kind == (uint32_t)output) print_port(&f.ports[i], f.strings);
  }
  printf("weights  %llu bytes, shared by sessions\narena    %llu bytes for each session, the peak\n",
         (unsigned long long)f.n_constants, (unsigned long long)f.target->arena);
  printf("%llu steps of %llu kernels in %llu sources\n", (unsigned long long)f.n_steps,
         (unsigned long long)f.n_functions, (unsigned long long)f.n_texts);
  for (uint64_t i = 0; i < f.n_steps; ++i) {
    const file_step* s = &f.steps[i];
    printf("%5llu  %s", (unsigned long long)i, f.strings + s->name);
    if (s->kind == LAUNCH)
      printf("  %u x %u x %u groups of %u\n", s->grid[0], s->grid[1], s->grid[2],
             s->group[0] * s->group[1] * s->group[2]);
    else
      printf("  %llu bytes\n", (unsigned long long)s->bytes);
  }
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
  if (dtype < 9 || dtype > 12) return memcmp(got, want, bytes) ? INFINITY : 0;
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

static int verify(const options* o) {
  running r;
  void* data;
  checked_file f;
  if (load_checked(o, &data, &f) || begin(o, &r)) return 1;
  uint32_t inputs = 0, outputs = 0, bad = 0, seen = 0;
  for (uint64_t i = 0; i < f.n_ports; ++i) {
    const file_port* p = &f.ports[i];
    if (p->kind != INPUT) continue;
    if (p->vector == NO_VECTOR) return die("the file has no test vectors; export it with vectors=True");
    CHECK(cw_run_set(r.session, inputs++, f.vectors + p->vector, p->bytes));
  }
  CHECK(cw_run(r.session));
  for (uint64_t i = 0; i < f.n_ports; ++i) {
    const file_port* p = &f.ports[i];
    if (p->kind != OUTPUT || p->vector == NO_VECTOR) continue;
    void* got = malloc(p->bytes + 1);
    double most;
    CHECK(cw_run_get(r.session, outputs++, got, p->bytes));
    const int same = !memcmp(got, f.vectors + p->vector, p->bytes);
    const double off = distance(got, f.vectors + p->vector, p->bytes, p->dtype, &most);
    printf("%s: %s", f.strings + p->name,
           same       ? "equal bit for bit"
           : off <= 1 ? "equal within its tolerance"
                      : "WRONG");
    printf(same ? "\n" : ", off by %g at most\n", most);
    bad += off > 1, ++seen;
    free(got);
  }
  free(data);
  if (!seen) return die("the file has no test vectors; export it with vectors=True");
  return end(&r, bad ? 1 : 0);
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

static int bench(const options* o) {
  running r;
  cw_run_port p = {0};
  if (begin(o, &r)) return 1;
  if (r.info.outputs) CHECK(cw_run_port_of(r.model, 1, 0, &p));
  const long n = o->rounds, warm = n / 10 + 1;
  double *all = calloc((size_t)n, sizeof *all), host = 0, total = 0;
  void* output = malloc(p.bytes + 1);
  if (!all || !output) return die("the host is out of memory");
  for (long i = -warm; i < n; ++i) {
    const double from = now();
    CHECK(cw_run_start(r.session));
    const double given = now();
    if (r.info.outputs) CHECK(cw_run_get(r.session, 0, output, p.bytes)); /* waits */
    const double to = now();
    if (i < 0) continue;
    all[i] = to - from;
    host += given - from, total += to - from;
  }
  qsort(all, (size_t)n, sizeof *all, by_size);
  printf(
      "runs %ld after %ld, each with its first output copied: median %.4f ms, least %.4f, 90 %% within %.4f, 99 %% "
      "within %.4f\n",
      n, warm, all[n / 2], all[0], all[n * 9 / 10], all[n * 99 / 100]);
  printf("throughput %.1f runs a second; the host gives the work in %.0f %% of a run\n", 1e3 * (double)n / total,
         100 * host / total);
  if (host > 0.5 * total)
    printf("advice: the host is the limit; larger batches, or fewer and larger steps, use the chip better\n");
  free(all), free(output);
  for (uint32_t i = 0; o->steps && i < r.info.steps; ++i) {
    cw_run_step step;
    CHECK(cw_run_step_of(r.session, i, i == 0, &step));
    printf("%5u  %9.4f ms  %s %s\n", i, step.ms, step.name, step.line);
  }
  return end(&r, 0);
}

static int run(const options* o) {
  running r;
  if (begin(o, &r)) return 1;
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
        void* data = malloc(p.bytes + 1);
        if (!data) return die("the host is out of memory");
        CHECK(cw_run_get(r.session, i, data, p.bytes));
        FILE* f = fopen(path, "wb");
        if (!f || fwrite(data, 1, p.bytes, f) != p.bytes || fclose(f))
          return fprintf(stderr, "cw: %s cannot be written\n", path), 1;
        free(data);
      }
    }
    if (!pass) CHECK(cw_run(r.session));
  }
  return end(&r, 0);
}

int main(int argc, char** argv) {
  static const struct option known[] = {{"vendor", 1, 0, 'v'}, {"device", 1, 0, 'd'}, {"allow-host-code", 0, 0, 'a'},
                                        {"input", 1, 0, 'i'},  {"output", 1, 0, 'o'}, {"rounds", 1, 0, 'r'},
                                        {"steps", 0, 0, 's'},  {"help", 0, 0, 'h'},   {0, 0, 0, 0}};
  options o = {.rounds = 200};
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
    else if (c == 's')
      o.steps = 1;
    else if (c == 'h')
      return fputs(usage, stdout), 0;
    else if ((c == 'i' || c == 'o') && o.n_given < 64)
      o.is_output[o.n_given] = c == 'o', o.given[o.n_given++] = optarg;
    else
      return fputs(usage, stderr), 2;
    if (rest && (*rest || o.rounds < 1)) return die("--device and --rounds are whole numbers, and --rounds at least 1");
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
