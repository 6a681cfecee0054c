/* Stands where libcudnn would, on paper: the entry points that the vendor asks for, as cuDNN 9 documents them, by plain
 * loops over the host's memory. Its heuristics propose first what the vendor must not take: an algorithm of Winograd's,
 * then one that is not deterministic. What cuDNN would refuse is refused. */
#include "numbers.h"

enum { OK = 0, NOT_INITIALIZED = 1001, BAD = 2000, UNSUPPORTED = 3000, FAILED = 5000, MOST = 5 };
enum { FORWARD, IMAGE, FILTER };

struct handle {
  void* stream;
};
struct tensor {
  enum kind kind;
  int dims, shape[MOST], strides[MOST];
};
struct convolution {
  int spatial, padding[3], stride[3], dilation[3], groups, math, type;
};
struct found {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

size_t cudnnGetVersion(void) { return 90000; }
const char* cudnnGetErrorString(int status) {
  return status == NOT_INITIALIZED ? "the stand-in was told to fail" : "the stand-in refused";
}
int cudnnCreate(struct handle** out) {
  if (getenv("STAND_IN_FAILS")) return NOT_INITIALIZED;
  return *out = calloc(1, sizeof **out), OK;
}
int cudnnDestroy(struct handle* h) { return free(h), OK; }
int cudnnSetStream(struct handle* h, void* stream) { return h->stream = stream, OK; }

static enum kind kind_of(int type) {
  return type == 0 ? F32 : type == 1 ? F64 : type == 2 ? F16 : type == 9 ? BF16 : NO_KIND;
}

int cudnnCreateTensorDescriptor(struct tensor** out) { return *out = calloc(1, sizeof **out), OK; }
int cudnnDestroyTensorDescriptor(struct tensor* t) { return free(t), OK; }
int cudnnSetTensorNdDescriptor(struct tensor* t, int type, int dims, const int* shape, const int* strides) {
  if (dims < 4 || dims > MOST || kind_of(type) == NO_KIND) return BAD;
  t->kind = kind_of(type), t->dims = dims;
  for (int d = 0; d < dims; ++d) {
    if (shape[d] < 1 || strides[d] < 1) return BAD;
    t->shape[d] = shape[d], t->strides[d] = strides[d];
  }
  return OK;
}
int cudnnCreateFilterDescriptor(struct tensor** out) { return cudnnCreateTensorDescriptor(out); }
int cudnnDestroyFilterDescriptor(struct tensor* t) { return free(t), OK; }
int cudnnSetFilterNdDescriptor(struct tensor* t, int type, int format, int dims, const int* shape) {
  int strides[MOST], step = 1;
  if (dims < 4 || dims > MOST || (format != 0 && format != 1)) return BAD;
  if (format) strides[1] = 1, step = shape[1];
  for (int d = dims - 1; d >= 0; --d)
    if (!format || d != 1) strides[d] = step, step *= shape[d];
  return cudnnSetTensorNdDescriptor(t, type, dims, shape, strides);
}
int cudnnCreateConvolutionDescriptor(struct convolution** out) { return *out = calloc(1, sizeof **out), OK; }
int cudnnDestroyConvolutionDescriptor(struct convolution* c) { return free(c), OK; }
int cudnnSetConvolutionNdDescriptor(struct convolution* c, int spatial, const int* padding, const int* stride,
                                    const int* dilation, int mode, int type) {
  if (spatial < 2 || spatial > 3 || mode != 1) return BAD;
  c->spatial = spatial, c->groups = 1, c->type = type;
  for (int d = 0; d < spatial; ++d) {
    if (padding[d] < 0 || stride[d] < 1 || dilation[d] < 1) return BAD;
    c->padding[d] = padding[d], c->stride[d] = stride[d], c->dilation[d] = dilation[d];
  }
  return OK;
}
int cudnnSetConvolutionGroupCount(struct convolution* c, int groups) { return c->groups = groups, OK; }
int cudnnSetConvolutionMathType(struct convolution* c, int math) { return c->math = math, OK; }

/* Whether the shapes belong to each other, as cuDNN checks them. */
static int fits(const struct tensor* x, const struct tensor* w, const struct convolution* c, const struct tensor* y) {
  if (x->dims != w->dims || x->dims != y->dims || c->spatial != x->dims - 2) return BAD;
  if (x->kind != w->kind || x->kind != y->kind) return BAD;
  if (x->shape[0] != y->shape[0] || x->shape[1] != w->shape[1] * c->groups) return BAD;
  if (y->shape[1] != w->shape[0] || w->shape[0] % c->groups) return BAD;
  for (int d = 0; d < c->spatial; ++d) {
    const int reach = (w->shape[d + 2] - 1) * c->dilation[d] + 1;
    if (y->shape[d + 2] != (x->shape[d + 2] + 2 * c->padding[d] - reach) / c->stride[d] + 1) return BAD;
  }
  if ((c->type == 1) != (x->kind == F64)) return UNSUPPORTED;
  /* Without TF32: FMA for float32, tensor cores for half types. */
  const int math = x->kind == F32 ? 3 : x->kind == F64 ? 0 : 1;
  return c->math == math || (x->kind == F32 && c->math == 0) ? OK : UNSUPPORTED;
}

static int propose(int room, int* count, struct found* to, int kind) {
  const struct found all[] = {{kind == FORWARD ? 6 : 5, 0, 1, 0, 1, 0, {0}},
                              {0, 0, 2, 0, 0, 0, {0}},
                              {2, UNSUPPORTED, -1, 0, 1, 0, {0}},
                              {1, 0, 3, 4096, 1, 0, {0}}};
  *count = room < 4 ? room : 4;
  memcpy(to, all, sizeof *all * (size_t)*count);
  return OK;
}
static int bytes(int algorithm, size_t* out) {
  return algorithm == 1 ? (*out = 4096, OK) : algorithm == 0 ? (*out = 0, OK) : UNSUPPORTED;
}

/* Kernels read pieces of 16 bytes: the context of a real one would end. */
static int is_odd(const void* a, const void* b, const void* c) {
  const int odd = (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & 15) != 0;
  if (odd) fprintf(stderr, "the stand-in was given an address that is no multiple of 16 bytes\n");
  return odd;
}

/* The sum over all that belong together: y += x w, x += y w, or w += x y. */
static int convolve(int kind, struct handle* h, const void* alpha, const struct tensor* tx, void* x,
                    const struct tensor* tw, void* w, const struct tensor* ty, void* y, const struct convolution* c,
                    int algorithm, const void* workspace, size_t size, const void* beta) {
  int status = fits(tx, tw, c, ty);
  if (!h || !h->stream || status) return status ? status : BAD;
  if (is_odd(x, w, y)) return FAILED;
  if (kind != FORWARD && tx->kind != F32 && tx->kind != F64 && algorithm != 1)
    return FAILED; /* sums in half precision */
  if (getenv("STAND_IN_SAYS")) fprintf(stderr, "algorithm %d math %d\n", algorithm, c->math);
  if (algorithm != 0 && algorithm != 1) return FAILED;
  if (algorithm == 1 && (!workspace || size < 4096)) return BAD;
  const double one = tx->kind == F64 ? *(const double*)alpha : *(const float*)alpha;
  const double keep = tx->kind == F64 ? *(const double*)beta : *(const float*)beta;
  if (one != 1 || (keep != 0 && keep != 1)) return UNSUPPORTED; /* the vendor asks for nothing else */
  const struct tensor* to = kind == FORWARD ? ty : kind == IMAGE ? tx : tw;
  void* data = kind == FORWARD ? y : kind == IMAGE ? x : w;
  int64_t span = 1;
  for (int d = 0; d < to->dims; ++d) span += (int64_t)(to->shape[d] - 1) * to->strides[d];
  double* sums = calloc((size_t)span, sizeof *sums);
  for (int64_t i = 0; keep != 0 && i < span; ++i) sums[i] = creal(load(data, to->kind, i));
  const int g = c->groups, in = tw->shape[1], out = tw->shape[0] / g, deep = c->spatial == 3;
  const int *os = ty->shape + 2, *ks = tw->shape + 2, *is = tx->shape + 2;
  for (int n = 0; n < ty->shape[0]; ++n)
    for (int o = 0; o < out * g; ++o)
      for (int i = 0; i < in; ++i)
        for (int64_t place = 0; place < (int64_t)os[0] * os[1] * (deep ? os[2] : 1); ++place)
          for (int64_t tap = 0; tap < (int64_t)ks[0] * ks[1] * (deep ? ks[2] : 1); ++tap) {
            const int channel = o / out * in + i;
            int64_t p = place, t = tap, inside = 1;
            int64_t ax = n * (int64_t)tx->strides[0] + channel * (int64_t)tx->strides[1];
            int64_t ay = n * (int64_t)ty->strides[0] + o * (int64_t)ty->strides[1];
            int64_t aw = o * (int64_t)tw->strides[0] + i * (int64_t)tw->strides[1];
            for (int d = c->spatial - 1; d >= 0; --d) {
              const int64_t py = p % os[d], pk = t % ks[d];
              const int64_t px = py * c->stride[d] - c->padding[d] + pk * c->dilation[d];
              p /= os[d], t /= ks[d];
              inside &= px >= 0 && px < is[d];
              ax += px * tx->strides[d + 2], ay += py * ty->strides[d + 2], aw += pk * tw->strides[d + 2];
            }
            if (!inside) continue;
            if (kind == FORWARD) sums[ay] += creal(load(x, tx->kind, ax)) * creal(load(w, tx->kind, aw));
            if (kind == IMAGE) sums[ax] += creal(load(y, tx->kind, ay)) * creal(load(w, tx->kind, aw));
            if (kind == FILTER) sums[aw] += creal(load(x, tx->kind, ax)) * creal(load(y, tx->kind, ay));
          }
  for (int64_t i = 0; i < span; ++i) store(data, to->kind, i, sums[i]); /* all are dense */
  free(sums);
  return OK;
}

#define T const struct tensor*
#define C const struct convolution*
typedef struct handle* H;
int cudnnGetConvolutionForwardAlgorithm_v7(H h, T x, T w, C c, T y, int room, int* count, struct found* to) {
  return (void)h, fits(x, w, c, y) ? BAD : propose(room, count, to, FORWARD);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(H h, T w, T y, C c, T x, int room, int* count, struct found* to) {
  return (void)h, fits(x, w, c, y) ? BAD : propose(room, count, to, IMAGE);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(H h, T x, T y, C c, T w, int room, int* count, struct found* to) {
  return (void)h, fits(x, w, c, y) ? BAD : propose(room, count, to, FILTER);
}
int cudnnGetConvolutionForwardWorkspaceSize(H h, T x, T w, C c, T y, int algorithm, size_t* out) {
  return (void)h, fits(x, w, c, y) ? BAD : bytes(algorithm, out);
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(H h, T w, T y, C c, T x, int algorithm, size_t* out) {
  return (void)h, fits(x, w, c, y) ? BAD : bytes(algorithm, out);
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(H h, T x, T y, C c, T w, int algorithm, size_t* out) {
  return (void)h, fits(x, w, c, y) ? BAD : bytes(algorithm, out);
}
int cudnnConvolutionForward(H h, const void* alpha, T tx, const void* x, T tw, const void* w, C c, int algorithm,
                            void* workspace, size_t size, const void* beta, T ty, void* y) {
  return convolve(FORWARD, h, alpha, tx, (void*)x, tw, (void*)w, ty, y, c, algorithm, workspace, size, beta);
}
int cudnnConvolutionBackwardData(H h, const void* alpha, T tw, const void* w, T ty, const void* y, C c, int algorithm,
                                 void* workspace, size_t size, const void* beta, T tx, void* x) {
  return convolve(IMAGE, h, alpha, tx, x, tw, (void*)w, ty, (void*)y, c, algorithm, workspace, size, beta);
}
int cudnnConvolutionBackwardFilter(H h, const void* alpha, T tx, const void* x, T ty, const void* y, C c, int algorithm,
                                   void* workspace, size_t size, const void* beta, T tw, void* w) {
  return convolve(FILTER, h, alpha, tx, (void*)x, tw, w, ty, (void*)y, c, algorithm, workspace, size, beta);
}

/* Where element number `i`, row-major, lies. */
static int64_t place(T t, int64_t i) {
  int64_t at = 0;
  for (int d = t->dims - 1; d >= 0; i /= t->shape[d--]) at += i % t->shape[d] * t->strides[d];
  return at;
}
static int64_t elements(T t) {
  int64_t n = 1;
  for (int d = 0; d < t->dims; ++d) n *= t->shape[d];
  return n;
}

int cudnnAddTensor(H h, const void* alpha, T ta, const void* a, const void* beta, T tc, void* c) {
  if (!h->stream || ta->kind != tc->kind || ta->dims != tc->dims) return BAD;
  if (is_odd(a, c, NULL)) return FAILED;
  struct tensor wide = *ta; /* as large as c: what has one element is used again and again */
  for (int d = 0; d < tc->dims; ++d) {
    if (ta->shape[d] != tc->shape[d] && ta->shape[d] != 1) return BAD;
    wide.shape[d] = tc->shape[d];
    if (ta->shape[d] == 1) wide.strides[d] = 0;
  }
  const double one = tc->kind == F64 ? *(const double*)alpha : *(const float*)alpha;
  const double keep = tc->kind == F64 ? *(const double*)beta : *(const float*)beta;
  for (int64_t i = 0, n = elements(tc); i < n; ++i) {
    const int64_t at = place(tc, i);
    const double old = keep != 0 ? keep * creal(load(c, tc->kind, at)) : 0;
    store(c, tc->kind, at, old + one * creal(load(a, ta->kind, place(&wide, i))));
  }
  return OK;
}
int cudnnConvolutionBackwardBias(H h, const void* alpha, T ty, const void* y, const void* beta, T tb, void* b) {
  if (!h->stream || elements(tb) != ty->shape[1]) return BAD;
  if (is_odd(y, b, NULL)) return FAILED;
  (void)alpha, (void)beta; /* 1 and 0 */
  const int64_t plane = elements(ty) / ty->shape[0] / ty->shape[1];
  double* sums = calloc((size_t)ty->shape[1], sizeof *sums);
  for (int64_t i = 0, n = elements(ty); i < n; ++i)
    sums[i / plane % ty->shape[1]] += creal(load(y, ty->kind, place(ty, i)));
  for (int i = 0; i < ty->shape[1]; ++i) store(b, tb->kind, i, sums[i]);
  free(sums);
  return OK;
}
int cudnnTransformTensor(H h, const void* alpha, T tx, const void* x, const void* beta, T ty, void* y) {
  if (!h->stream || tx->kind != ty->kind || elements(tx) != elements(ty)) return BAD;
  if (is_odd(x, y, NULL)) return FAILED;
  (void)alpha, (void)beta; /* 1 and 0 */
  for (int64_t i = 0, n = elements(tx); i < n; ++i) store(y, ty->kind, place(ty, i), load(x, tx->kind, place(tx, i)));
  return OK;
}
