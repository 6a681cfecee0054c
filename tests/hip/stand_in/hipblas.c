/* Stands where libhipblas would, on paper: cuBLAS's stand-in by hipBLAS's names and numbers. As ROCm 5 has them, or with
 * RELEASE=6, whose products with newer numbers end with `_v2` beside the older ones, or 7, where only the newer ones are. */
#include "../../cuda/stand_in/blas.c"

static char workspace[256] __attribute__((aligned(256)));

int hipblasCreate(struct handle** out) {
  if (getenv("STAND_IN_FAILS")) return 1;
  cublasCreate_v2(out);
  return (*out)->workspace = workspace, 0;
}
int hipblasDestroy(struct handle* h) { return cublasDestroy_v2(h); }
int hipblasSetStream(struct handle* h, void* stream) {
  cublasSetStream_v2(h, stream);
  return h->workspace = workspace, 0;
}
const char* hipblasStatusToString(int status) {
  return status == 1 ? "the stand-in was told to fail" : "the stand-in refused";
}

/* hipblasStatus_t, hipblasOperation_t */
static int status_of(int found) { return found == UNSUPPORTED ? 7 : found == INVALID ? 3 : found; }
static int operation(int given) { return given == 111 ? 0 : given == 112 ? 1 : -1; }

/* hipblasDatatype_t, for memory and for what is computed in. */
static int older_type(int given) {
  switch (given) {
    case 150:
      return 2;
    case 151:
      return 0;
    case 152:
      return 1;
    case 154:
      return 4;
    case 155:
      return 5;
    case 160:
      return 3;
    case 162:
      return 10;
    case 168:
      return 14;
    default:
      return -1;
  }
}
/* rocBLAS computes complex products in the complex type. */
static int older_compute(int given, int type) {
  const int wants = type == 154 || type == 155 || type == 152 ? type : type == 160 ? 162 : 151;
  if (given != wants) return -1;
  return given == 152 || given == 155 ? 70 : given == 162 ? 72 : 68;
}
/* hipDataType has CUDA's numbers, hipblasComputeType_t its own. */
static int newer_compute(int given) {
  return given == 2 ? 68 : given == 6 ? 77 : given == 7 ? 70 : given == 9 ? 72 : -1;
}

#define PARAMETERS                                                                                            \
  struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda,   \
      long long as, const void *b, int bt, int ldb, long long bs, const void *beta, void *c, int ct, int ldc, \
      long long cs, int batches, int compute, int algorithm

static int multiply(PARAMETERS, int older) {
  if (algorithm != 160) return 3;
  if (older)
    compute = older_compute(compute, at), at = older_type(at), bt = older_type(bt), ct = older_type(ct);
  else
    compute = newer_compute(compute);
  return status_of(cublasGemmStridedBatchedEx(h, operation(ta), operation(tb), m, n, k, alpha, a, at, lda, as, b, bt,
                                              ldb, bs, beta, c, ct, ldc, cs, batches, compute, -1));
}

#define PRODUCTS(batched, plain, older)                                                                                \
  int batched(PARAMETERS) {                                                                                            \
    return multiply(h, ta, tb, m, n, k, alpha, a, at, lda, as, b, bt, ldb, bs, beta, c, ct, ldc, cs, batches, compute, \
                    algorithm, older);                                                                                 \
  }                                                                                                                    \
  int plain(struct handle* h, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int at, int lda,  \
            const void* b, int bt, int ldb, const void* beta, void* c, int ct, int ldc, int compute, int algorithm) {  \
    return multiply(h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1, compute,          \
                    algorithm, older);                                                                                 \
  }
PRODUCTS(hipblasGemmStridedBatchedEx, hipblasGemmEx, RELEASE < 7)
#if RELEASE == 6
PRODUCTS(hipblasGemmStridedBatchedEx_v2, hipblasGemmEx_v2, 0)
#endif
