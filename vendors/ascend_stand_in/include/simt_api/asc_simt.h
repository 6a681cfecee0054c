// The functions of CANN's header of this name, by its public documentation, as far as the host's libm has them: mathematics of
// float32, its bits and classes, synchronisation. What is not here a kernel cannot call; there is nothing of float64.
#pragma once

#define SIMT_FUNCTION static __aicore__ inline
SIMT_FUNCTION void asc_syncthreads() { simt_item.wait(); }
SIMT_FUNCTION void asc_threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
SIMT_FUNCTION void asc_threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

extern "C" {
float truncf(float), roundf(float), rintf(float), nearbyintf(float), floorf(float), ceilf(float);
float fabsf(float), sqrtf(float), cbrtf(float), logbf(float);
float expf(float), exp2f(float), exp10f(float), expm1f(float);
float logf(float), log2f(float), log10f(float), log1pf(float);
float sinf(float), cosf(float), tanf(float), asinf(float), acosf(float), atanf(float);
float sinhf(float), coshf(float), tanhf(float), asinhf(float), acoshf(float), atanhf(float);
float erff(float), erfcf(float), tgammaf(float), lgammaf(float), j0f(float), j1f(float), y0f(float), y1f(float);
float powf(float, float), fmodf(float, float), remainderf(float, float), copysignf(float, float);
float nextafterf(float, float), fdimf(float, float), fmaxf(float, float), fminf(float, float);
float atan2f(float, float), hypotf(float, float), fmaf(float, float, float);
float ldexpf(float, int), scalbnf(float, int), frexpf(float, int*), modff(float, float*), remquof(float, float, int*);
int ilogbf(float);
long lrintf(float), lroundf(float);
long long llrintf(float), llroundf(float);
}
SIMT_FUNCTION float rsqrtf(float x) { return 1 / sqrtf(x); }

SIMT_FUNCTION float __uint_as_float(const unsigned int x) {
  float y;
  __builtin_memcpy(&y, &x, 4);
  return y;
}
SIMT_FUNCTION float __int_as_float(const int x) { return __uint_as_float((unsigned)x); }
SIMT_FUNCTION unsigned int __float_as_uint(const float x) {
  unsigned int y;
  __builtin_memcpy(&y, &x, 4);
  return y;
}
SIMT_FUNCTION int __float_as_int(const float x) { return (int)__float_as_uint(x); }
SIMT_FUNCTION bool isnan(float x) { return x != x; }
SIMT_FUNCTION bool isinf(float x) { return (__float_as_uint(x) & 0x7fffffffu) == 0x7f800000u; }
SIMT_FUNCTION bool isfinite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }
#undef SIMT_FUNCTION

// No type of the chip's. What comes of numbers that are written without an f is found in what the compiler makes.
#pragma GCC poison double
