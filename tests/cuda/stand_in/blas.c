/* Stands where libcublas would, on paper: the entry points that the vendor asks for, as cuBLAS documents them (matrices
 * are column-major, leading dimensions, transposition flags, beta 0 reads nothing), by plain loops over the host's
 * memory. What cuBLAS would refuse is refused. */
#include "numbers.h"

enum { OK = 0, NOT_INITIALIZED = 1, INVALID = 7, UNSUPPORTED = 15 };
struct handle {
  void* stream;
  void* workspace;
  size_t bytes;
};

int cublasCreate_v2(struct handle** out) {
  if (getenv("STAND_IN_FAILS")) return NOT_INITIALIZED;
  return (*out = calloc(1, sizeof **out)) ? OK : 3;
}
int cublasDestroy_v2(struct handle* h) { return free(h), OK; }
int cublasGetVersion_v2(struct handle* h, int* out) { return (void)h, *out = 120000, OK; }
int cublasGetProperty(int part, int* out) { return *out = part ? 0 : 12, OK; }
int cublasSetStream_v2(struct handle* h, void* stream) { return h->workspace = 0, h->stream = stream, OK; }
int cublasSetWorkspace_v2(struct handle* h, void* workspace, size_t bytes) {
  if ((uintptr_t)workspace % 256) return INVALID;
  return h->workspace = workspace, h->bytes = bytes, OK;
}
int cublasSetMathMode(struct handle* h, int mode) { return (void)h, mode == 16 ? OK : INVALID; }
const char* cublasGetStatusString(int status) {
  return status == NOT_INITIALIZED ? "the stand-in was told to fail" : "the stand-in refused";
}

static enum kind kind_of(int type) {
  switch (type) {
    case 0:
      return F32;
    case 1:
      return F64;
    case 2:
      return F16;
    case 3:
      return I8;
    case 4:
      return C64;
    case 5:
      return C128;
    case 10:
      return I32;
    case 14:
      return BF16;
    default:
      return NO_KIND;
  }
}

/* TF32 keeps 10 bits of a float's fraction. */
static number narrowed(number v, int compute) {
  float f = (float)creal(v);
  uint32_t bits;
  if (compute != 77) return v;
  memcpy(&bits, &f, 4);
  bits = (bits + 0x1000) & 0xffffe000u;
  memcpy(&f, &bits, 4);
  return f;
}

static int at_least(int step, int rows) { return step >= (rows > 1 ? rows : 1); }

int cublasGemmStridedBatchedEx(struct handle* h, int ta, int tb, int m, int n, int k, const void* alpha, const void* a,
                               int a_type, int lda, long long a_batch, const void* b, int b_type, int ldb,
                               long long b_batch, const void* beta, void* c, int c_type, int ldc, long long c_batch,
                               int batches, int compute, int algorithm) {
  const enum kind ka = kind_of(a_type), kb = kind_of(b_type), kc = kind_of(c_type);
  const int whole = compute == 72, wide = compute == 70;
  if (!h || !h->stream || !h->workspace || algorithm != -1 || m < 0 || n < 0 || k < 0 || batches < 0) return INVALID;
  if ((ta != 0 && ta != 1) || (tb != 0 && tb != 1)) return INVALID;
  if (!at_least(lda, ta ? k : m) || !at_least(ldb, tb ? n : k) || !at_least(ldc, m)) return INVALID;
  if (ka != kb || ka == NO_KIND || kc != (ka == I8 ? I32 : ka)) return UNSUPPORTED;
  if (wide != (ka == F64 || ka == C128) || whole != (ka == I8)) return UNSUPPORTED;
  if (!wide && !whole && compute != 68 && !(compute == 77 && (ka == F32 || ka == C64))) return UNSUPPORTED;
  if (whole && (lda % 4 || ldb % 4 || (uintptr_t)a % 4 || (uintptr_t)b % 4)) return UNSUPPORTED;
  const enum kind scalar = whole ? I32 : ka == C64 ? C64 : ka == C128 ? C128 : wide ? F64 : F32;
  const number by = load(alpha, scalar, 0), keep = load(beta, scalar, 0);
  for (int batch = 0; batch < batches; ++batch)
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i) {
        number sum = 0;
        for (int p = 0; p < k; ++p) {
          const number x = load(a, ka, batch * a_batch + (ta ? (int64_t)i * lda + p : (int64_t)p * lda + i));
          const number y = load(b, kb, batch * b_batch + (tb ? (int64_t)p * ldb + j : (int64_t)j * ldb + p));
          if (ka == C64 || ka == C128)
            sum += x * y;
          else
            sum += creal(narrowed(x, compute)) * creal(narrowed(y, compute));
        }
        const int64_t at = batch * c_batch + (int64_t)j * ldc + i;
        number v = ka == C64 || ka == C128 ? by * sum : creal(by) * creal(sum);
        if (keep != 0) v += ka == C64 || ka == C128 ? keep * load(c, kc, at) : creal(keep) * creal(load(c, kc, at));
        store(c, kc, at, v);
      }
  return OK;
}

int cublasGemmEx(struct handle* h, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int a_type,
                 int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc,
                 int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type,
                                    ldc, 0, 1, compute, algorithm);
}
