// Texts of source.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// open_cl
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#pragma OPENCL FP_CONTRACT OFF
typedef uchar u8; typedef char i8; typedef ushort u16; typedef short i16; typedef uint u32; typedef int i32;
typedef ulong u64; typedef long i64; typedef long idx; typedef float f32;
#ifdef cl_khr_fp64
typedef double f64;
#endif
#define GLOBAL __global
#define LOCAL __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define LANE ((idx)get_local_id(0))
#define LANES ((idx)get_local_size(0))
#define GROUP ((idx)get_group_id(0))
#define GROUPS ((idx)get_num_groups(0))
#define SLOT __attribute__((aligned(8)))
#define OF_WORD(type, word) (*(const type*)&(word))
#define FUNCTION static inline
#define BITS(x) as_uint(x)
#define FLOAT(b) as_float(b)
#define CONSTANT constant
#define FMA(a, b, c) fma(a, b, c)
/* What takes x * 0 and 0 / x for 0, whatever x is, must not know that this is 0: Mesa's compiler, and its vendor says so. */
#ifdef CW_FOLDS_ZERO
#define NOUGHT as_float((uint)(get_local_size(0) >> 31))
/* And it takes the float of a short integer for one of 16 bits where it chooses between it and a constant, and then these
   bits for an integer: 89 becomes 21904. */
#define WIDENED(x) ((int)(x) | (int)(get_local_size(0) >> 31))
#endif
/* Intel's runtime gives b, not 0, for some multiples of a subnormal b. */
#define FMOD_OF(a, b) (fabs(fmod(a, b)) == fabs(b) ? (a) * NOUGHT : fmod(a, b))
#ifdef FLUSHES
#define FMOD(a, b) (sizeof((a) + (b)) > 4 ? FMOD_OF(a, b) : fmod_f32(a, b))
/* A library that takes subnormal numbers for 0 divides by them, or has none left: so it gets no such numbers. Each step
   is exact, as a multiple of b leaves the same rest. */
static inline float fmod_f32(float a, float b) {
  const float most = fabs(a), by = fabs(b), up = 1.2676506002282294e+30f;
  float r;
  if (!(by > 0) || most - most != 0) return as_float(0x7fc00000u);
  if (most < by) return a;
  if (by >= 7.888609052210118e-31f) return fmod(a, b);
  r = most < 1048576.0f ? most : fmod(most, by * up);
  return copysign(fmod(r * up, by * up) / up, a);
}
#else
#define FMOD(a, b) FMOD_OF(a, b)
#endif
typedef float16 f32x16;
#ifdef cl_khr_fp64
typedef double16 f64x16;
#define LOADV_f64(p) vload16(0, p)
#define STOREV_f64(p, v) vstore16(v, 0, p)
#define FMAV_f64(a, b, c) fma((f64x16)(a), b, c)
#define ZERO_f64 ((f64x16)(0))
#define BITS_OF_DOUBLE(x) as_ulong(x)
#define DOUBLE(b) as_double(b)
#endif
#define LOADV_f32(p) vload16(0, p)
#define STOREV_f32(p, v) vstore16(v, 0, p)
#define FMAV_f32(a, b, c) fma((f32x16)(a), b, c)
#define ZERO_f32 ((f32x16)(0))
#define BITSV(v) as_uint16(v)
#define FLOATV(bits) as_float16(bits)
#define WHEREV(test, a, b) select(b, a, test)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
/* PoCL takes no option for the width of vectors: 512 bits are asked of the function and of its loops. */
#if defined(CW_WIDE) && defined(__AVX512F__)
#define __kernel __kernel __attribute__((min_vector_width(512)))
#define INDEPENDENT_MANY _Pragma("clang loop vectorize(assume_safety) vectorize_width(16)")
#endif
#define INDEPENDENT_FEW _Pragma("clang loop vectorize(assume_safety) vectorize_width(4) interleave_count(1)")
#define UNROLL _Pragma("unroll")
#define ALIGNED __attribute__((aligned(16)))
#ifdef __has_builtin
#if __has_builtin(__builtin_nontemporal_store)
#define PASSV(p, v) __builtin_nontemporal_store(v, (__global f32x16*)(p))
#define PASSED __sync_synchronize()
#endif
#endif
#ifndef PASSED
#define PASSV(p, v) (*(__global f32x16*)(p) = (v))
#define PASSED
#endif

//// c
#include <stdint.h>
#include <math.h>
#include <tgmath.h>
#include <string.h>
typedef uint8_t u8; typedef int8_t i8; typedef uint16_t u16; typedef int16_t i16; typedef uint32_t u32;
typedef int32_t i32; typedef uint64_t u64; typedef int64_t i64; typedef int64_t idx; typedef float f32;
typedef double f64;
#define GLOBAL
/* Where a group has several items, the chip's compiler defines these: abi.h. */
#ifdef CW_BARRIER
#define LOCAL CW_LOCAL
#define BARRIER CW_BARRIER
#define LANE ((idx)CW_LANE)
#define LANES ((idx)CW_LANES)
#else
#define LOCAL
#define BARRIER
#define LANE ((idx)0)
#define LANES ((idx)1)
#endif
#define GROUP ((idx)group_[0])
#define GROUPS ((idx)grid_[0])
#define SLOT __attribute__((aligned(8)))
#define FUNCTION static inline
static inline u32 bits_of(f32 x) { u32 b; memcpy(&b, &x, 4); return b; }
static inline f32 float_of(u32 b) { f32 x; memcpy(&x, &b, 4); return x; }
static inline u64 bits_of_double(f64 x) { u64 b; memcpy(&b, &x, 8); return b; }
static inline f64 double_of(u64 b) { f64 x; memcpy(&x, &b, 8); return x; }
#define BITS(x) bits_of(x)
#define FLOAT(b) float_of(b)
#define BITS_OF_DOUBLE(x) bits_of_double(x)
#define DOUBLE(b) double_of(b)
#define CONSTANT static const
#define FMA(a, b, c) fma(a, b, c)
#define FMOD(a, b) fmod(a, b)
#define INDEPENDENT _Pragma("GCC ivdep")
#define UNROLL
#define ALIGNED
typedef f32 f32x16 __attribute__((vector_size(64), aligned(4)));
typedef f64 f64x16 __attribute__((vector_size(128), aligned(8)));
#define LOADV_f32(p) (*(const f32x16*)(p))
#define STOREV_f32(p, v) (*(f32x16*)(p) = (v))
#define FMAV_f32(a, b, c) ((a) * (b) + (c))
#define ZERO_f32 ((f32x16){0})
typedef u32 u32x16 __attribute__((vector_size(64), aligned(4)));
#define BITSV(v) ((u32x16)(v))
#define FLOATV(bits) ((f32x16)(bits))
#define WHEREV(test, a, b) FLOATV((BITSV(a) & (u32x16)(test)) | (BITSV(b) & ~(u32x16)(test)))
#define LOADV_f64(p) (*(const f64x16*)(p))
#define STOREV_f64(p, v) (*(f64x16*)(p) = (v))
#define FMAV_f64(a, b, c) ((a) * (b) + (c))
#define ZERO_f64 ((f64x16){0})
#define rsqrt(x) (1 / sqrt(x))
/* GCC contracts in kernels of products (gemm.cpp), and its vectors pass over __builtin_assoc_barrier. So an integer is
   between, of which only the caller knows that it is 0. */
#ifndef __clang__
static inline f32 rounded_32(f32 x, u64 none) { return float_of(bits_of(x) ^ (u32)none); }
static inline f64 rounded_64(f64 x, u64 none) { return double_of(bits_of_double(x) ^ none); }
#define ROUNDED(x) _Generic((x), f64: rounded_64, default: rounded_32)(x, (u64)units >> 63)
#endif
#ifdef __SSE__
typedef f32 f32x4 __attribute__((vector_size(16)));
static inline void pass_by(void* p, f32x16 v) {
  f32x4 part[4];
  memcpy(part, &v, 64);
  for (int i = 0; i < 4; ++i) __builtin_ia32_movntps((f32*)p + 4 * i, part[i]);
}
#define PASSV(p, v) pass_by(p, v)
#define PASSED __builtin_ia32_sfence()
#else
#define PASSV(p, v) (*(f32x16*)(p) = (v))
#define PASSED
#endif

//// cuda: For NVRTC, and for hiprtc and mcrtc, which take the same C++. Nothing here may know how wide a warp is.
typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16; typedef unsigned u32;
typedef int i32; typedef unsigned long long u64; typedef long long i64; typedef long long idx; typedef float f32;
typedef double f64;
#define GLOBAL
#define LOCAL __shared__
#define BARRIER __syncthreads()
#define LANE ((idx)threadIdx.x)
#define LANES ((idx)blockDim.x)
#define GROUP ((idx)blockIdx.x)
#define GROUPS ((idx)gridDim.x)
#define SLOT alignas(8)
#define FUNCTION static __device__ inline
#define BITS(x) __float_as_uint(x)
#define BITS_OF_DOUBLE(x) (u64)__double_as_longlong(x)
#define DOUBLE(b) __longlong_as_double((i64)(b))
#define FLOAT(b) __uint_as_float(b)
#define FMA(a, b, c) fma(a, b, c)
#define FMOD(a, b) fmod(a, b)
#define INDEPENDENT
#define UNROLL _Pragma("unroll")
#define ALIGNED __align__(16)
/* AMD's compiler keeps registers for groups of 1024 items unless a kernel says how many it gets. */
#ifdef __AMDGCN__
#define ITEMS_AT_MOST(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#else
#define ITEMS_AT_MOST(n)
#endif

//// ascend_simt: The documented names of CANN's SIMT programming; its mathematics is of float32 alone, by names with an f.
#include "simt_api/asc_simt.h"
typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16; typedef unsigned u32;
typedef int i32; typedef unsigned long u64; typedef long i64; typedef long idx; typedef float f32;
#define GLOBAL
#define LOCAL __ubuf__
#define BARRIER asc_syncthreads()
#define LANE ((idx)threadIdx.x)
#define LANES ((idx)blockDim.x)
#define GROUP ((idx)blockIdx.x)
#define GROUPS ((idx)gridDim.x)
#define FUNCTION static __aicore__ inline
#define BITS(x) __float_as_uint(x)
#define FLOAT(b) __uint_as_float(b)
#define FMA(a, b, c) fmaf(a, b, c)
#define FMOD(a, b) fmodf(a, b)
#define INDEPENDENT
#define UNROLL _Pragma("unroll")
#define ALIGNED __attribute__((aligned(16)))
#undef INFINITY
#undef NAN
#define fabs(x) fabsf(x)
#define fma(a, b, c) fmaf(a, b, c)
#define sqrt(x) sqrtf(x)
#define rsqrt(x) rsqrtf(x)
#define floor(x) floorf(x)
#define ceil(x) ceilf(x)
#define rint(x) rintf(x)
#define trunc(x) truncf(x)
#define exp(x) expf(x)
#define exp2(x) exp2f(x)
#define expm1(x) expm1f(x)
#define log(x) logf(x)
#define log2(x) log2f(x)
#define log10(x) log10f(x)
#define log1p(x) log1pf(x)
#define pow(x, y) powf(x, y)
#define hypot(x, y) hypotf(x, y)
#define copysign(x, y) copysignf(x, y)
#define nextafter(x, y) nextafterf(x, y)
#define sin(x) sinf(x)
#define cos(x) cosf(x)
#define tan(x) tanf(x)
#define asin(x) asinf(x)
#define acos(x) acosf(x)
#define atan(x) atanf(x)
#define atan2(y, x) atan2f(y, x)
#define sinh(x) sinhf(x)
#define cosh(x) coshf(x)
#define tanh(x) tanhf(x)
#define asinh(x) asinhf(x)
#define acosh(x) acoshf(x)
#define atanh(x) atanhf(x)
#define erf(x) erff(x)
#define erfc(x) erfcf(x)
#define lgamma(x) lgammaf(x)
#define frexp(x, e) frexpf(x, e)
#define ldexp(x, e) ldexpf(x, e)

//// cplusplus: For CUDA, its kin and for Ascend.
template <class T> FUNCTION T of_word(u64 word) { T v; __builtin_memcpy(&v, &word, sizeof v); return v; }
#define OF_WORD(type, word) of_word<type>(word)
template <class T> struct vec16 { T v[16]; };
typedef vec16<f32> f32x16;
template <class T> FUNCTION vec16<T> load16(const T* p) {
  vec16<T> r; for (int i = 0; i < 16; ++i) r.v[i] = p[i]; return r; }
template <class T> FUNCTION void store16(T* p, const vec16<T>& v) {
  for (int i = 0; i < 16; ++i) p[i] = v.v[i]; }
template <class T> FUNCTION vec16<T> fma16(T a, const vec16<T>& b, const vec16<T>& c) {
  vec16<T> r; for (int i = 0; i < 16; ++i) r.v[i] = FMA(a, b.v[i], c.v[i]); return r; }
template <class T> FUNCTION vec16<T> zero16() { vec16<T> r; for (int i = 0; i < 16; ++i) r.v[i] = 0; return r; }
#define LOADV_f32(p) load16<f32>(p)
#define STOREV_f32(p, x) store16<f32>(p, x)
#define FMAV_f32(a, b, c) fma16<f32>(a, b, c)
#define ZERO_f32 zero16<f32>()
#define INFINITY FLOAT(0x7f800000u)
#define NAN FLOAT(0x7fc00000u)

//// cplusplus_f64
typedef vec16<f64> f64x16;
#define LOADV_f64(p) load16<f64>(p)
#define STOREV_f64(p, x) store16<f64>(p, x)
#define FMAV_f64(a, b, c) fma16<f64>(a, b, c)
#define ZERO_f64 zero16<f64>()

//// shared: Written once, in what all languages share.
/* Enough iterations for the longest vectors that there are. */
#ifndef INDEPENDENT_MANY
#define INDEPENDENT_MANY INDEPENDENT
#endif
/* A dozen iterations: vectors of as many bytes as a register has may be longer than the loop. */
#ifndef INDEPENDENT_FEW
#define INDEPENDENT_FEW INDEPENDENT
#endif
/* What an epilogue adds to is rounded before, as it is in a kernel of its own. */
#ifndef ROUNDED
#define ROUNDED(x) (x)
#endif
/* 0 as a factor. */
#ifndef NOUGHT
#define NOUGHT 0.0f
#endif
/* A short integer from memory, or before it becomes a float. */
#ifndef WIDENED
#define WIDENED(x) (x)
#endif
FUNCTION f32 half_to_float(u16 h) {
  u32 m = h & 0x7fffu, s = (u32)(h & 0x8000u) << 16;
  u32 big = m >= 0x7c00u ? (m << 13) | 0x7f800000u : (m << 13) + 0x38000000u;
  u32 b = m < 0x400u ? BITS((f32)m * 5.9604644775390625e-8f) : big;
  return FLOAT(b | s);
}
FUNCTION u16 float_to_half(f32 x) {
  u32 b = BITS(x), s = (b >> 16) & 0x8000u, h;
  b &= 0x7fffffffu;
  h = (b - 0x38000000u + 0xfffu + ((b >> 13) & 1u)) >> 13;
  if (b < 0x38800000u) h = BITS(FLOAT(b) + 0.5f) - 0x3f000000u;
  if (b >= 0x47800000u) h = b > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (u16)(h | s);
}
FUNCTION f32 bfloat_to_float(u16 h) { return FLOAT((u32)h << 16); }
FUNCTION u16 float_to_bfloat(f32 x) {
  u32 b = BITS(x);
  return x != x ? (u16)0x7fc0u : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
#define LD_b8(p, i) ((u8)((p)[i] != 0))
#define LD_u8(p, i) WIDENED((p)[i])
#define LD_i8(p, i) WIDENED((p)[i])
#define LD_u16(p, i) WIDENED((p)[i])
#define LD_i16(p, i) WIDENED((p)[i])
#define LD_u32(p, i) (p)[i]
#define LD_i32(p, i) (p)[i]
#define LD_u64(p, i) (p)[i]
#define LD_i64(p, i) (p)[i]
#define LD_f16(p, i) half_to_float((p)[i])
#define LD_bf16(p, i) bfloat_to_float((p)[i])
#define LD_f32(p, i) (p)[i]
#define LD_f64(p, i) (p)[i]
#define ST_b8(p, i, v) (p)[i] = (u8)((v) != 0)
#define ST_u8(p, i, v) (p)[i] = (u8)(i64)(v)
#define ST_i8(p, i, v) (p)[i] = (i8)(i64)(v)
#define ST_u16(p, i, v) (p)[i] = (u16)(i64)(v)
#define ST_i16(p, i, v) (p)[i] = (i16)(i64)(v)
#define ST_u32(p, i, v) (p)[i] = (u32)(i64)(v)
#define ST_i32(p, i, v) (p)[i] = (i32)(v)
#define ST_u64(p, i, v) (p)[i] = (u64)(v)
#define ST_i64(p, i, v) (p)[i] = (i64)(v)
#define ST_f16(p, i, v) (p)[i] = float_to_half((f32)(v))
#define ST_bf16(p, i, v) (p)[i] = float_to_bfloat((f32)(v))
#define ST_f32(p, i, v) (p)[i] = (f32)(v)
#define ST_f64(p, i, v) (p)[i] = (f64)(v)
/* An error for the host to raise, the first that is told: kernel_error.cpp. */
#define TELL(kind, value, bound) \
  do { \
    if (told_p[0] == 0) { \
      told_p[1] = (u64)(bound); \
      told_p[0] = (u64)teller | (u64)(kind) << 48 | (((u64)(value) << 16) >> 16); \
    } \
  } while (0)
#define OUT_OF_RANGE 1
#define ZERO_DIVISION 2
#define NO_CHANCES 3
/* Largest and smallest that let NaN through, as torch's do. */
#define MAXIMUM(a, b) (((a) > (b) || (a) != (a)) ? (a) : (b))
#define MINIMUM(a, b) (((a) < (b) || (a) != (a)) ? (a) : (b))
/* The nearest whole number of a small one: rint is 25 instructions in PoCL. */
#define NEAREST(x) ((x) + 12582912.0f - 12582912.0f)
/* exp(r) - 1 for |r| up to half of ln 2. Polynomial of Cephes' expf. */
FUNCTION f32 exp_beyond_1(f32 r) {
  f32 p = FMA(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = FMA(p, r, 8.3334519073e-3f);
  p = FMA(p, r, 4.1665795894e-2f);
  p = FMA(p, r, 1.6666665459e-1f);
  p = FMA(p, r, 5.0000001201e-1f);
  return FMA(p, r * r, r);
}
/* p * 2 ** k, in two steps, as 2 ** k alone may be beyond what there is. */
FUNCTION f32 times_two_to(f32 p, i32 k) {
  const i32 h = k >> 1;
  return p * FLOAT((u32)(h + 127) << 23) * FLOAT((u32)(k - h + 127) << 23);
}
/* Branch-free, so that loops with it become vectors; error below 2 ulp. What is 0 is not computed: CPUs take a hundred
   times as long for a product that is too small, and masks of attention give many. */
FUNCTION f32 exp_f32(f32 x) {
  const int none = x < -104.0f;
  f32 n, r;
  x = none ? 0.0f : x;
  x = x > 89.0f ? 89.0f : x;
  n = NEAREST(x * 1.44269504088896341f);
  r = FMA(n, -0.693359375f, x);
  r = FMA(n, 2.12194440e-4f, r);
  return none ? 0.0f : times_two_to(exp_beyond_1(r) + 1.0f, (i32)n);
}
/* The same of what is not above 0, as in softmax: nothing to clamp, and n is rounded by an addition. 0 below the least
   normal number. */
FUNCTION f32 exp_down_f32(f32 x) {
  const f32 z = FMA(x, 1.44269504088896341f, 12582912.0f), n = z - 12582912.0f;
  const f32 r = FMA(n, 2.12194440e-4f, FMA(n, -0.693359375f, x));
  return x < -87.0f ? 0.0f : (exp_beyond_1(r) + 1.0f) * FLOAT((BITS(z) << 23) + 0x3f800000u);
}
/* Both arms are computed and one is taken, so that loops with them become vectors: a runtime's own is a call for each
   element. Errors below 1.1 and 1.5 ulp. The inner arm of erf is N. Juffa's. The outer is 1 - 2^y, y = log2 erfc(t) by a
   polynomial of which -2t is exact; at 3.93 erf is 1. tanh's lower arm is fitted to it. */
FUNCTION f32 erf_f32(f32 x) {
  const f32 a = FLOAT(BITS(x) & 0x7fffffffu), t = a > 3.93f ? 3.93f : a, s = x * x;
  f32 y = FMA(3.08958659e-4f, t, -4.64035824e-3f), p, z, outer, inner;
  y = FMA(y, t, 3.30306825e-2f);
  y = FMA(y, t, -1.51873235e-1f);
  y = FMA(y, t, -9.17137464e-1f);
  y = FMA(FMA(y, t, 3.7189469e-1f), t, -2.0f * t);
  z = y + 12582912.0f;
  y = y - (z - 12582912.0f);
  p = FMA(1.534581144e-4f, y, 1.339993121e-3f);
  p = FMA(p, y, 9.618488959e-3f);
  p = FMA(p, y, 5.550328777e-2f);
  p = FMA(p, y, 2.402264689e-1f);
  p = FMA(p, y, 6.931472057e-1f);
  p = FMA(p, y, 1.0f);
  outer = 1.0f - FLOAT(BITS(p) + (BITS(z) << 23));
  inner = FMA(-5.96761703e-4f, s, 4.99119423e-3f);
  inner = FMA(inner, s, -2.67681349e-2f);
  inner = FMA(inner, s, 1.12819925e-1f);
  inner = FMA(inner, s, -3.76125336e-1f);
  inner = FMA(FMA(inner, s, 1.28379166e-1f), x, x);
  return t > 0.927734375f ? FLOAT(BITS(outer) | (BITS(x) & 0x80000000u)) : inner;
}
FUNCTION f32 tanh_f32(f32 x) {
  const f32 t = x < 0.0f ? -x : x, s = x * x, e = exp_down_f32(-t - t), outer = 1.0f - 2.0f * e / (e + 1.0f);
  f32 inner = FMA(-6.196294364e-3f, s, 2.101852710e-2f);
  inner = FMA(inner, s, -5.383991141e-2f);
  inner = FMA(inner, s, 1.333247293e-1f);
  inner = FMA(FMA(inner, s, -3.333331435e-1f) * s, x, x);
  return x == 0.0f ? x : t > 0.55f ? (x < 0.0f ? -outer : outer) : inner;
}
/* Runtimes' own for float32 are off by hundreds of ulp near the zeros between -10 and -2, and Mesa's is infinite just below 0
   and negative at -infinity. With float64 there is no need of this. Between -10 and -2: log |G / P|, G the gamma function of
   y = x + n from 1 to 2 by a polynomial in y - 1.5 (fitted at Chebyshev's nodes), P = x (x + 1) .. (x + n - 1), both as sums
   of two numbers; near a zero G and P are nearly the same, and their difference is exact. */
#ifdef DOUBLE
#define LGAMMA(x) lgamma(x)
#else
FUNCTION f32 lgamma_f32(f32 x) {
  const f32 c[20][2] = {
      {0.886226952f, -2.66232014e-08f}, {0.0323383957f, 1.73412562e-09f}, {0.414813459f, -5.23070298e-09f},
      {-0.107294805f, 7.82799991e-10f}, {0.144645363f, -4.11636636e-09f}, {-0.0775230527f, 4.38269643e-10f},
      {0.0586103089f, -1.60627422e-09f}, {-0.0380019397f, 1.77152026e-09f}, {0.0258375164f, 1.31997659e-11f},
      {-0.017222384f, 8.98062513e-10f}, {0.0115238428f, 1.9740902e-10f}, {-0.00769109651f, 6.70670533e-11f},
      {0.00511980057f, -1.26754059e-11f}, {-0.00341490726f, 1.09464285e-10f}, {0.00234727887f, 3.41849951e-11f},
      {-0.00156513648f, 4.07986735e-11f}, {0.000805699499f, -1.39175763e-11f}, {-0.000537177781f, 2.07593491e-11f},
      {0.000805833901f, 5.31417141e-12f}, {-0.000537231565f, -9.95949677e-12f}};
  const int n = x > -11.0f && x < -2.0f ? 1 - (int)floor(x) : 0;
  f32 high = c[19][0], low = c[19][1], p = x, q = 0.0f, t, e, d;
  if (x - x != x - x) return x != x ? x : INFINITY;
  if (fabs(x) < 1e-5f) return -log(fabs(x)) - 0.577215665f * x;
  if (n == 0) return lgamma(x);
  if (x == floor(x)) return INFINITY;
  d = x + (f32)n - 1.5f;
  for (int i = 18; i >= 0; --i) {
    t = high * d;
    e = FMA(high, d, -t) + low * d;
    high = c[i][0] + t;
    low = t - (high - c[i][0]) + e + c[i][1];
  }
  for (int i = 1; i < n; ++i) {
    const f32 f = x + (f32)i;
    t = p * f;
    e = FMA(p, f, -t) + q * f;
    p = t + e;
    q = e - (p - t);
  }
  if (p < 0.0f) { p = -p; q = -q; }
  d = high - p + (low - q);
  return fabs(d) < 0.5f * p ? log1p(d / p) : log(high / p);
}
#define LGAMMA(x) lgamma_f32(x)
#endif
