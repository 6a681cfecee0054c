// Texts of quantized.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// vectors_c: Vectors of sums: of 16 products each time, or of 32 where segments are multiples of 32 and vectors have 512
//// bits.
#ifndef WIDE
#error "WIDE must be defined before this text"
#endif
typedef i32 i32x8 __attribute__((vector_size(32)));
#define LANE_OF(v, i) (v)[i]
#define SUM8(v) ((((v)[0] + (v)[4]) + ((v)[1] + (v)[5])) + (((v)[2] + (v)[6]) + ((v)[3] + (v)[7])))
#ifdef __AVX2__
#define PAIRS(a, b) ((i32x8)__builtin_ia32_phaddd256(a, b))
#endif
#if WIDE && defined(__AVX512BW__)
#include <immintrin.h>
#define PRODUCTS 32
typedef __m512i i16s;
typedef __m512i i32s;
#define LOAD_i16(p) _mm512_loadu_si512(p)
#define OWN_LOAD_i16 LOAD_i16
#define LOAD_i8(p) _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)(p)))
#define LOAD_u8(p) _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)(p)))
#define NO_SUMS _mm512_setzero_si512()
#ifdef __AVX512VNNI__
#define DOT(acc, a, b) _mm512_dpwssd_epi32(acc, a, b)
#else
#define DOT(acc, a, b) _mm512_add_epi32(acc, _mm512_madd_epi16(a, b))
#endif
#define EIGHT(v) (i32x8)_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1))
#else
#define PRODUCTS 16
typedef i16 i16s __attribute__((vector_size(32), aligned(2)));
typedef i32x8 i32s;
typedef i8 i8x16 __attribute__((vector_size(16), aligned(1)));
typedef u8 u8x16 __attribute__((vector_size(16), aligned(1)));
#define LOAD_i16(p) (*(const i16s*)(p))
#define OWN_LOAD_i16 LOAD_i16
#define NO_SUMS ((i32s){0})
#define EIGHT(v) (v)
#ifdef __AVX2__
typedef char c8x16 __attribute__((vector_size(16)));
#define LOAD_i8(p) ((i16s)__builtin_ia32_pmovsxbw256((c8x16)*(const i8x16*)(p)))
#define LOAD_u8(p) ((i16s)__builtin_ia32_pmovzxbw256((c8x16)*(const u8x16*)(p)))
#define DOT(acc, a, b) ((acc) + (i32s)__builtin_ia32_pmaddwd256(a, b))
#else
#define LOAD_i8(p) __builtin_convertvector(*(const i8x16*)(p), i16s)
#define LOAD_u8(p) __builtin_convertvector(*(const u8x16*)(p), i16s)
static inline i32s dot_pairs(i16s a, i16s b) {
  i32s r;
  for (int l = 0; l < 8; ++l) r[l] = (i32)a[2 * l] * b[2 * l] + (i32)a[2 * l + 1] * b[2 * l + 1];
  return r;
}
#define DOT(acc, a, b) ((acc) + dot_pairs(a, b))
#endif
#endif

//// vectors_open_cl: the same
#ifndef WIDE
#error "WIDE must be defined before this text"
#endif
typedef int8 i32x8;
#define LANE_OF(v, i) (v).s##i
#define SUM8(v) (((v).s0 + (v).s4) + ((v).s1 + (v).s5) + (((v).s2 + (v).s6) + ((v).s3 + (v).s7)))
#ifdef __has_builtin
#if defined(__AVX2__) && __has_builtin(__builtin_ia32_phaddd256)
#define PAIRS(a, b) __builtin_ia32_phaddd256(a, b)
#endif
#if defined(__AVX512BW__) && __has_builtin(__builtin_ia32_pmaddwd512)
#define HAS_WIDE WIDE
#endif
#endif
#if HAS_WIDE
#define PRODUCTS 32
typedef short i16s __attribute__((ext_vector_type(32)));
typedef short i16s_anywhere __attribute__((ext_vector_type(32), aligned(2)));
typedef char i8s_anywhere __attribute__((ext_vector_type(32), aligned(1)));
typedef uchar u8s_anywhere __attribute__((ext_vector_type(32), aligned(1)));
typedef int16 i32s;
#define LOAD_i16(p) (*(GLOBAL const i16s_anywhere*)(p))
#define OWN_LOAD_i16(p) (*(const i16s_anywhere*)(p)) /* of an item's own memory */
#define LOAD_i8(p) __builtin_convertvector(*(GLOBAL const i8s_anywhere*)(p), i16s)
#define LOAD_u8(p) __builtin_convertvector(*(GLOBAL const u8s_anywhere*)(p), i16s)
#ifdef __AVX512VNNI__
#define DOT(acc, a, b) __builtin_ia32_vpdpwssd512(acc, (int16)(a), (int16)(b))
#else
#define DOT(acc, a, b) ((acc) + __builtin_ia32_pmaddwd512(a, b))
#endif
#define EIGHT(v) ((v).lo + (v).hi)
#else
#define PRODUCTS 16
typedef short16 i16s;
typedef int8 i32s;
#define LOAD_i16(p) vload16(0, p)
#define OWN_LOAD_i16 LOAD_i16
#define LOAD_i8(p) convert_short16(vload16(0, p))
#define LOAD_u8(p) convert_short16(vload16(0, p))
#define EIGHT(v) (v)
#ifdef PAIRS
#define DOT(acc, a, b) ((acc) + __builtin_ia32_pmaddwd256(a, b))
#else
#define DOT(acc, a, b) ((acc) + convert_int8((a).even) * convert_int8((b).even) + convert_int8((a).odd) * convert_int8((b).odd))
#endif
#endif
#define NO_SUMS ((i32s)(0))

//// sums: The sums of four vectors, `apart` from each other.
#ifdef PAIRS
#define SUMS(to, apart, a, b, c, d) do { \
  const i32x8 ab_ = PAIRS(a, b), cd_ = PAIRS(c, d), all_ = PAIRS(ab_, cd_); \
  (to)[0] = LANE_OF(all_, 0) + LANE_OF(all_, 4); (to)[apart] = LANE_OF(all_, 1) + LANE_OF(all_, 5); \
  (to)[2 * (apart)] = LANE_OF(all_, 2) + LANE_OF(all_, 6); (to)[3 * (apart)] = LANE_OF(all_, 3) + LANE_OF(all_, 7); \
  } while (0)
#else
#define SUMS(to, apart, a, b, c, d) \
  do { (to)[0] = SUM8(a); (to)[apart] = SUM8(b); (to)[2 * (apart)] = SUM8(c); (to)[3 * (apart)] = SUM8(d); } while (0)
#endif

//// bytes_c: Vectors of 64 bytes, and of 16 sums of four products of an unsigned and a signed byte each. The assembler takes
//// the instruction whatever CPU the compiler compiles for; where that is one without such vectors, pairs are multiplied.
#if defined(CW_DOT_BYTES) && defined(__AVX512BW__)
#include <immintrin.h>
#define BYTES 1
typedef i32 i32x16 __attribute__((vector_size(64)));
#define BYTES_AT(p) ((i32x16)_mm512_loadu_si512(p))
#define OWN_BYTES_AT BYTES_AT
#define FOUR_TIMES(p) ((i32x16)_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)(p))))
#define SPREAD(x) ((i32x16)_mm512_set1_epi32(x))
#define LOW_32(a, b) ((i32x16)_mm512_unpacklo_epi32((__m512i)(a), (__m512i)(b)))
#define HIGH_32(a, b) ((i32x16)_mm512_unpackhi_epi32((__m512i)(a), (__m512i)(b)))
#define LOW_64(a, b) ((i32x16)_mm512_unpacklo_epi64((__m512i)(a), (__m512i)(b)))
#define HIGH_64(a, b) ((i32x16)_mm512_unpackhi_epi64((__m512i)(a), (__m512i)(b)))
#define EVEN_128(a, b) ((i32x16)_mm512_shuffle_i32x4((__m512i)(a), (__m512i)(b), 0x88))
#define ODD_128(a, b) ((i32x16)_mm512_shuffle_i32x4((__m512i)(a), (__m512i)(b), 0xdd))
#define PUT_ALL(p, v) _mm512_storeu_si512(p, (__m512i)(v))
#define PUT_FOUR(p, v, i) _mm_storeu_si128((__m128i*)(p), _mm512_extracti32x4_epi32((__m512i)(v), i))
#define F32_OF(v) ((f32x16)_mm512_cvtepi32_ps((__m512i)(v)))
#define NEAREST_OF(v) ((i32x16)_mm512_cvtps_epi32((__m512)(v)))
#define SPREAD_F32(x) ((f32x16)_mm512_set1_ps(x))
#define LARGEST(a, b) ((f32x16)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define LEAST(a, b) ((f32x16)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define KNOWN(v) ((f32x16)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask((__m512)(v), (__m512)(v), _CMP_ORD_Q), (__m512)(v)))
#define RECTIFIED(v) \
  ((f32x16)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask((__m512)(v), _mm512_setzero_ps(), _CMP_NLE_UQ), (__m512)(v)))
#define WIDE_i8(p) ((i32x16)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(p))))
#define WIDE_u8(p) ((i32x16)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(p))))
#define PUT_i8(p, v) _mm_storeu_si128((__m128i*)(p), _mm512_cvtepi32_epi8((__m512i)(v)))
#define PUT_u8 PUT_i8
#define PUT_f32 STOREV_f32
#endif

//// bytes_open_cl: the same
#if defined(CW_DOT_BYTES) && defined(__AVX512BW__)
#define BYTES 1
typedef int16 i32x16;
typedef int i32x16_anywhere __attribute__((ext_vector_type(16), aligned(1)));
#define BYTES_AT(p) (*(GLOBAL const i32x16_anywhere*)(p))
#define OWN_BYTES_AT(p) (*(const i32x16_anywhere*)(p)) /* of an item's own memory */
typedef int i32x4_anywhere __attribute__((ext_vector_type(4), aligned(1)));
static inline int16 four_times(int4 v) { return (int16)(v, v, v, v); }
#define FOUR_TIMES(p) four_times(*(GLOBAL const i32x4_anywhere*)(p))
#define SPREAD(x) ((i32x16)(x))
#define LOW_32(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define HIGH_32(a, b) __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOW_64(a, b) __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_64(a, b) __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define EVEN_128(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD_128(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#define PART_0 s0123
#define PART_1 s4567
#define PART_2 s89ab
#define PART_3 scdef
#define PUT_ALL(p, v) vstore16(v, 0, p)
#define PUT_FOUR(p, v, i) vstore4((v).PART_##i, 0, p)
#define F32_OF(v) convert_float16(v)
#define NEAREST_OF(v) __builtin_ia32_cvtps2dq512_mask(v, (i32x16)(0), (ushort)-1, 4) /* as the mode is: to even */
#define SPREAD_F32(x) ((f32x16)(x))
#define LARGEST(a, b) select(b, a, (a) > (b))
#define LEAST(a, b) select(b, a, (a) < (b))
#define KNOWN(v) select((f32x16)(0.0f), v, (v) == (v))
#define RECTIFIED(v) select(v, (f32x16)(0.0f), (v) <= (f32x16)(0.0f))
/* PoCL's vstore16 writes bytes one by one. */
typedef char i8x16_anywhere __attribute__((ext_vector_type(16), aligned(1)));
typedef uchar u8x16_anywhere __attribute__((ext_vector_type(16), aligned(1)));
#define WIDE_i8(p) __builtin_convertvector(*(GLOBAL const i8x16_anywhere*)(p), int16)
#define WIDE_u8(p) __builtin_convertvector(*(GLOBAL const u8x16_anywhere*)(p), int16)
#define PUT_i8(p, v) (*(GLOBAL i8x16_anywhere*)(p) = __builtin_convertvector(v, i8x16_anywhere))
#define PUT_u8(p, v) (*(GLOBAL u8x16_anywhere*)(p) = __builtin_convertvector(v, u8x16_anywhere))
#define PUT_f32 STOREV_f32
#endif

//// bytes: Sums of vectors.
#if BYTES
static inline i32x16 dot_bytes(i32x16 sums, i32x16 unsigned_, i32x16 signed_) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(unsigned_), "v"(signed_));
  return sums;
}
#define ADD_BYTES(to, a, b) to = dot_bytes(to, a, b)
/* Bytes with a sign are taken 128 too large, and 128 times the sum of the weights is taken off: the same, within 32 bits. */
#if SIGNED
#define OF_IMAGE(v) ((v) ^ SPREAD((i32)0x80808080u))
#else
#define OF_IMAGE(v) (v)
#endif
/* Of each 128 bits the sums of a, b, c, d. */
static inline i32x16 four_of(i32x16 a, i32x16 b, i32x16 c, i32x16 d) {
  const i32x16 ab = LOW_32(a, b) + HIGH_32(a, b), cd = LOW_32(c, d) + HIGH_32(c, d);
  return LOW_64(ab, cd) + HIGH_64(ab, cd);
}
static inline i32x16 halves_of(i32x16 a, i32x16 b) { return EVEN_128(a, b) + ODD_128(a, b); }
/* Of each four its sum, one after the other. */
static inline i32x16 all_of(i32x16 a, i32x16 b, i32x16 c, i32x16 d) {
  return halves_of(halves_of(a, b), halves_of(c, d));
}
#define SIXTEEN_PRODUCTS \
  ADD_BYTES(s00, v0, b0); ADD_BYTES(s01, v0, b1); ADD_BYTES(s02, v0, b2); ADD_BYTES(s03, v0, b3); \
  ADD_BYTES(s10, v1, b0); ADD_BYTES(s11, v1, b1); ADD_BYTES(s12, v1, b2); ADD_BYTES(s13, v1, b3); \
  ADD_BYTES(s20, v2, b0); ADD_BYTES(s21, v2, b1); ADD_BYTES(s22, v2, b2); ADD_BYTES(s23, v2, b3); \
  ADD_BYTES(s30, v3, b0); ADD_BYTES(s31, v3, b1); ADD_BYTES(s32, v3, b2); ADD_BYTES(s33, v3, b3);
#endif

//// tiles_of_bytes: AMX's: of 16 rows of 64 bytes, and of sums 16 by 16. Numbers 0 to 3 are sums, 4 and 5 are of weights, a
//// row an output; 6 and 7 are of 16 positions, in each row four bytes of all. The compiler knows of none of them, and leaves them alone.
#if defined(CW_DOT_TILES) && BYTES
#define TILES 1
#define TILE_LOAD(t, p, apart) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((i64)(apart)) : "memory")
#define TILE_STORE(t, p, apart) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((i64)(apart)) : "memory")
#define SOON(p) __builtin_prefetch((const void*)(u64)(p))
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#if SIGNED
#define TILE_ADD(to, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #to : :)
#define TILE_ADD_IMAGE TILE_ADD /* where a is of the image */
#else
#define TILE_ADD_IMAGE(to, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #to : :)
#define TILE_ADD(to, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #to : :)
#endif
static inline void begin_tiles(void) {
  u8 shape[64];
  for (int i = 0; i < 64; ++i) shape[i] = 0;
  shape[0] = 1; /* palette */
  for (int t = 0; t < 8; ++t) shape[16 + 2 * t] = 64, shape[48 + t] = 16; /* bytes of a row, rows */
  __asm__ volatile("ldtilecfg (%0)" : : "r"(shape) : "memory");
}
/* No calls where they are used: sources without tiles can be in one with others (device/merge.py). */
#define BEGIN_TILES begin_tiles();
#define END_TILES __asm__ volatile("tilerelease" : :);
/* Rows become columns, of 16 by 16: `to` has them one after the other, `apart` from each other. */
#define QUARTER(a, b, c, d, v0, v1, v2, v3) \
  const i32x16 a##l = LOW_32(a, b), a##h = HIGH_32(a, b), c##l = LOW_32(c, d), c##h = HIGH_32(c, d); \
  const i32x16 v0 = LOW_64(a##l, c##l), v1 = HIGH_64(a##l, c##l), v2 = LOW_64(a##h, c##h), v3 = HIGH_64(a##h, c##h);
#define PUT_COLUMNS(j, a, b, c, d) do { \
  const i32x16 ab_ = EVEN_128(a, b), cd_ = EVEN_128(c, d), ab_o_ = ODD_128(a, b), cd_o_ = ODD_128(c, d); \
  PUT_ALL(to + (j) * apart, EVEN_128(ab_, cd_)); PUT_ALL(to + (4 + (j)) * apart, EVEN_128(ab_o_, cd_o_)); \
  PUT_ALL(to + (8 + (j)) * apart, ODD_128(ab_, cd_)); PUT_ALL(to + (12 + (j)) * apart, ODD_128(ab_o_, cd_o_)); } while (0)
static inline void put_transposed(i32* to, idx apart, i32x16 a, i32x16 b, i32x16 c, i32x16 d, i32x16 e, i32x16 f, i32x16 g,
                              i32x16 h, i32x16 i, i32x16 j, i32x16 k, i32x16 l, i32x16 m, i32x16 n, i32x16 o, i32x16 p) {
  QUARTER(a, b, c, d, a0, a1, a2, a3)
  QUARTER(e, f, g, h, b0, b1, b2, b3)
  QUARTER(i, j, k, l, c0, c1, c2, c3)
  QUARTER(m, n, o, p, d0, d1, d2, d3)
  PUT_COLUMNS(0, a0, b0, c0, d0); PUT_COLUMNS(1, a1, b1, c1, d1);
  PUT_COLUMNS(2, a2, b2, c2, d2); PUT_COLUMNS(3, a3, b3, c3, d3);
}
#define PUT_TRANSPOSED(to, apart, AT) put_transposed(to, apart, AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7), \
                                             AT(8), AT(9), AT(10), AT(11), AT(12), AT(13), AT(14), AT(15))
#endif

//// finish
FUNCTION f32 requantized(f32 y, f32 inverse, f32 zero) {
  f32 v = y * inverse;
  v = v > 4194303.0f ? 4194303.0f : v;
  v = v < -4194303.0f ? -4194303.0f : v;
  v = NEAREST(v) + zero;
  v = v != v ? zero : v;
  v = v < (f32)LOW ? (f32)LOW : v;
  return v > (f32)HIGH ? (f32)HIGH : v;
}

//// less: What the taps inside of the input add to a sum of output o: all of them, or at a border those that are.
FUNCTION int lies_inside(idx at, idx gap, idx from) { return at >= 0 && at % gap == 0 && at / gap < from; }
FUNCTION TAP less_of(GLOBAL const TAP* taps, GLOBAL const TAP* whole, idx oz, idx oy, idx ox, idx mz, idx my, idx mx,
                     idx dz, idx dy, idx dx, idx kz, idx ky, idx kx, idx lz, idx ly, idx lx, idx gz, idx gy, idx gx,
                     idx fz, idx fy, idx fx, idx o, idx row, int inside) {
  TAP less = 0;
  idx t = 0;
  if (inside) return whole[o];
  const idx x = row % ox * mx + lx, y = row / ox % oy * my + ly, z = row / ox / oy % oz * mz + lz;
#if TURNED
  for (idx c = 0; c < kz; ++c)
    for (idx b = 0; b < ky; ++b)
      for (idx a = 0; a < kx; ++a, ++t)
        if (lies_inside(x + (kx - 1 - a) * dx, gx, fx) && lies_inside(y + (ky - 1 - b) * dy, gy, fy) &&
            lies_inside(z + (kz - 1 - c) * dz, gz, fz))
          less += taps[o * (kz * ky * kx) + t];
#else
  idx c0 = 0, b0 = 0, a0 = 0, c1 = kz, b1 = ky, a1 = kx;
  for (; c0 < kz && z + c0 * dz < 0; ++c0);
  for (; b0 < ky && y + b0 * dy < 0; ++b0);
  for (; a0 < kx && x + a0 * dx < 0; ++a0);
  for (; c1 > c0 && z + (c1 - 1) * dz >= fz; --c1);
  for (; b1 > b0 && y + (b1 - 1) * dy >= fy; --b1);
  for (; a1 > a0 && x + (a1 - 1) * dx >= fx; --a1);
  (void)t;
  for (idx c = c0; c < c1; ++c)
    for (idx b = b0; b < b1; ++b)
      for (idx a = a0; a < a1; ++a) less += taps[((o * kz + c) * ky + b) * kx + a];
#endif
  return less;
}

//// tiles: Tiles of 4 positions and 2 outputs, of bytes 4, of PACKED ones 16, or of one and 4 where positions are FEW; with
//// TILES of all 32 positions and 32 outputs. The sums of COLUMNS outputs of all a block's positions are finished together,
//// in vectors.
GLOBAL RESULT* OUT = out_p;
const idx stretch = u % stretches, block = u / stretches % blocks, g = u / stretches / blocks;
const idx m0 = block * BLOCK, m1 = rows - m0 < BLOCK ? rows : m0 + BLOCK;
const idx n0 = stretch * columns, n1 = outs - n0 < columns ? outs : n0 + columns;
idx from[BLOCK + 15], to[BLOCK];
int inside[BLOCK];
/* Of the sums that are finished together: outputs of a position, or, where those are ALONG, positions of an output. */
#if ALONG
#define TO_NEXT_M 1
#define TO_NEXT_N (BLOCK + 4)
#else
#define TO_NEXT_M COLUMNS
#define TO_NEXT_N 1
#endif
/* The weights of outputs n to n + 3; of those beyond the last, the last's. */
#define WEIGHTS_OF_FOUR \
  const idx o = g * outs + n, most = n1 - 1 - n, w = segments * padded; \
  GLOBAL const WEIGHT* w0 = weight_p + o * w; \
  GLOBAL const WEIGHT* w1 = w0 + (most < 1 ? most : 1) * w; \
  GLOBAL const WEIGHT* w2 = w0 + (most < 2 ? most : 2) * w; \
  GLOBAL const WEIGHT* w3 = w0 + (most < 3 ? most : 3) * w;
#if TILES /* the last tile begins earlier where outputs are no multiple of 16: by as many before the first */
i32 all_sums[(BLOCK + 4) * (COLUMNS + 16)];
i32* sums = all_sums + 16 * TO_NEXT_N;
#else
i32 sums[(BLOCK + 4) * COLUMNS];
#endif
idx begins[SEGMENTS];
for (idx s = 0; s < SEGMENTS; ++s) begins[s] = SEGMENT(s);
{
  idx x = m0 % ox, y = m0 / ox % oy, z = m0 / ox / oy % oz, b = m0 / places;
  for (idx m = m0; m < m1; ++m) {
    from[m - m0] = PLACE(b, z, y, x) + g * channels;
    to[m - m0] = b * o0 + z * o2 + y * o3 + x * o4;
    inside[m - m0] = INSIDE(z, y, x);
    if (++x < ox) continue;
    x = 0;
    if (++y < oy) continue;
    y = 0;
    if (++z == oz) z = 0, ++b;
  }
}
for (idx m = m1; m < m0 + BLOCK + 15; ++m) from[m - m0] = from[m1 - 1 - m0];
#if TILES
/* All bytes of the block, each 64 of 16 positions as a tile; a tile of the other positions is 16 * MOST further. */
i32 transposed[BLOCK / 4 * MOST];
for (idx m = 0; m < m1 - m0; m += 16) {
  i32* tile = transposed + m / 4 * MOST;
  for (idx s = 0; s < SEGMENTS; ++s) {
    GLOBAL const IMAGE* begin = image_p + begins[s];
    for (idx k = 0; k < padded; k += 64, tile += 256) {
#define POSITION(i) BYTES_AT(begin + from[m + i] + k)
      PUT_TRANSPOSED(tile, 16, POSITION);
    }
  }
}
BEGIN_TILES
#endif
for (idx c0 = n0; c0 < n1; c0 += COLUMNS) {
  const idx c1 = n1 - c0 < COLUMNS ? n1 : c0 + COLUMNS;
#if TILES
  {
    const idx last = outs - 16, first = c0 < last ? c0 : last, second = c0 + 16 < last ? c0 + 16 : last;
    const idx depth = segments * padded;
    GLOBAL const WEIGHT* w1 = weight_p + (g * outs + first) * depth;
    GLOBAL const WEIGHT* w2 = weight_p + (g * outs + second) * depth;
    const i32* tile = transposed;
    TILE_ZERO(0); TILE_ZERO(1); TILE_ZERO(2); TILE_ZERO(3);
    for (idx k = 0; k < depth; k += 64, tile += 256) {
      TILE_LOAD(4, w1 + k, depth); TILE_LOAD(6, tile, 64); TILE_ADD(0, 4, 6);
      TILE_LOAD(7, tile + 4 * MOST, 64); TILE_ADD(1, 4, 7);
      TILE_LOAD(5, w2 + k, depth); TILE_ADD(2, 5, 6); TILE_ADD(3, 5, 7);
    }
    i32* put1 = sums + (first - c0) * TO_NEXT_N;
    i32* put2 = sums + (second - c0) * TO_NEXT_N;
#if ALONG
    TILE_STORE(0, put1, 4 * TO_NEXT_N); TILE_STORE(1, put1 + 16, 4 * TO_NEXT_N);
    TILE_STORE(2, put2, 4 * TO_NEXT_N); TILE_STORE(3, put2 + 16, 4 * TO_NEXT_N);
#else
    i32 some[4 * 256];
    TILE_STORE(0, some, 64); TILE_STORE(1, some + 256, 64); TILE_STORE(2, some + 512, 64); TILE_STORE(3, some + 768, 64);
#define OUTPUT_1(i) OWN_BYTES_AT(some + m * 16 + (i) * 16)
#define OUTPUT_2(i) OWN_BYTES_AT(some + 512 + m * 16 + (i) * 16)
    for (idx m = 0; m < m1 - m0; m += 16) {
      PUT_TRANSPOSED(put1 + m * TO_NEXT_M, TO_NEXT_M, OUTPUT_1);
      PUT_TRANSPOSED(put2 + m * TO_NEXT_M, TO_NEXT_M, OUTPUT_2);
    }
#endif
  }
#elif PACKED
  for (idx n = c0; n < c1; n += 16) {
    GLOBAL const WEIGHT* first = weight_p + (g * packs + n / 16) * 16 * segments * padded;
#if BYTES
    const i32x16 none = SPREAD(0);
    i32x16 more0 = none, more1 = none, more2 = none, more3 = none;
#if SIGNED
    {
      const i32x16 all = SPREAD((i32)0x80808080u);
      for (idx k = 0; k < 16 * segments * padded; k += 256) {
        ADD_BYTES(more0, all, BYTES_AT(first + k)); ADD_BYTES(more1, all, BYTES_AT(first + k + 64));
        ADD_BYTES(more2, all, BYTES_AT(first + k + 128)); ADD_BYTES(more3, all, BYTES_AT(first + k + 192));
      }
#if ALONG
      more0 = four_of(more0, more0, more0, more0), more1 = four_of(more1, more1, more1, more1);
      more2 = four_of(more2, more2, more2, more2), more3 = four_of(more3, more3, more3, more3);
#else
      more0 = four_of(more0, more1, more2, more3);
#endif
    }
#endif
    for (idx m = m0; m < m1; m += 4) {
      GLOBAL const WEIGHT* w = first;
      i32x16 s00 = none, s01 = none, s02 = none, s03 = none, s10 = none, s11 = none, s12 = none, s13 = none;
      i32x16 s20 = none, s21 = none, s22 = none, s23 = none, s30 = none, s31 = none, s32 = none, s33 = none;
      for (idx s = 0; s < SEGMENTS; ++s) {
        GLOBAL const IMAGE* a0 = image_p + from[m - m0] + begins[s];
        GLOBAL const IMAGE* a1 = image_p + from[m - m0 + 1] + begins[s];
        GLOBAL const IMAGE* a2 = image_p + from[m - m0 + 2] + begins[s];
        GLOBAL const IMAGE* a3 = image_p + from[m - m0 + 3] + begins[s];
        for (idx k = 0; k < padded; k += 16, w += 256) {
          const i32x16 b0 = BYTES_AT(w), b1 = BYTES_AT(w + 64), b2 = BYTES_AT(w + 128), b3 = BYTES_AT(w + 192);
          const i32x16 v0 = OF_IMAGE(FOUR_TIMES(a0 + k)), v1 = OF_IMAGE(FOUR_TIMES(a1 + k));
          const i32x16 v2 = OF_IMAGE(FOUR_TIMES(a2 + k)), v3 = OF_IMAGE(FOUR_TIMES(a3 + k));
          SIXTEEN_PRODUCTS
        }
      }
      i32* put = sums + (m - m0) * TO_NEXT_M + (n - c0) * TO_NEXT_N;
#if ALONG
#define PUT_QUAD(q, a, b, c, d) do { \
      const i32x16 quad_ = four_of(a, b, c, d) - more##q; \
      PUT_FOUR(put + q * TO_NEXT_N, quad_, 0); PUT_FOUR(put + (q + 4) * TO_NEXT_N, quad_, 1); \
      PUT_FOUR(put + (q + 8) * TO_NEXT_N, quad_, 2); PUT_FOUR(put + (q + 12) * TO_NEXT_N, quad_, 3); } while (0)
      PUT_QUAD(0, s00, s10, s20, s30); PUT_QUAD(1, s01, s11, s21, s31);
      PUT_QUAD(2, s02, s12, s22, s32); PUT_QUAD(3, s03, s13, s23, s33);
#else
      PUT_ALL(put, four_of(s00, s01, s02, s03) - more0);
      PUT_ALL(put + TO_NEXT_M, four_of(s10, s11, s12, s13) - more0);
      PUT_ALL(put + 2 * TO_NEXT_M, four_of(s20, s21, s22, s23) - more0);
      PUT_ALL(put + 3 * TO_NEXT_M, four_of(s30, s31, s32, s33) - more0);
#endif
    }
#else /* made for VNNI, and run without */
    for (idx m = m0; m < m1; ++m) {
      GLOBAL const WEIGHT* w = first;
      i32s s_[16];
      for (int j = 0; j < 16; ++j) s_[j] = NO_SUMS;
      for (idx s = 0; s < SEGMENTS; ++s)
        for (idx k = 0; k < padded; k += 16, w += 256) {
          const i16s v = LOAD_IMAGE(image_p + from[m - m0] + begins[s] + k);
          for (int j = 0; j < 16; ++j) s_[j] = DOT(s_[j], v, LOAD_i8(w + j % 4 * 64 + j / 4 * 16));
        }
      i32* put = sums + (m - m0) * TO_NEXT_M + (n - c0) * TO_NEXT_N;
      for (int j = 0; j < 16; j += 4)
        SUMS(put + j * TO_NEXT_N, TO_NEXT_N, EIGHT(s_[j]), EIGHT(s_[j + 1]), EIGHT(s_[j + 2]), EIGHT(s_[j + 3]));
    }
#endif
  }
#elif BYTES
  for (idx n = c0; n < c1; n += 4) {
    WEIGHTS_OF_FOUR
    i32x16 more = SPREAD(0);
#if SIGNED
    {
      const i32x16 all = SPREAD((i32)0x80808080u);
      i32x16 s0 = more, s1 = more, s2 = more, s3 = more;
      for (idx k = 0; k < w; k += 64) {
        ADD_BYTES(s0, all, BYTES_AT(w0 + k)); ADD_BYTES(s1, all, BYTES_AT(w1 + k));
        ADD_BYTES(s2, all, BYTES_AT(w2 + k)); ADD_BYTES(s3, all, BYTES_AT(w3 + k));
      }
#if ALONG
      more = all_of(four_of(s0, s0, s0, s0), four_of(s1, s1, s1, s1), four_of(s2, s2, s2, s2), four_of(s3, s3, s3, s3));
#else
      more = four_of(s0, s1, s2, s3);
      more = all_of(more, more, more, more);
#endif
    }
#endif
#if FEW
    for (idx m = m0; m < m1; ++m) {
      GLOBAL const IMAGE* a0 = image_p + from[m - m0];
      i32x16 s0 = SPREAD(0), s1 = s0, s2 = s0, s3 = s0;
      for (idx s = 0; s < SEGMENTS; ++s) {
        const idx at = begins[s], first = s * padded;
        for (idx k = 0; k < padded; k += 64) {
          const i32x16 v = OF_IMAGE(BYTES_AT(a0 + at + k));
          ADD_BYTES(s0, v, BYTES_AT(w0 + first + k)); ADD_BYTES(s1, v, BYTES_AT(w1 + first + k));
          ADD_BYTES(s2, v, BYTES_AT(w2 + first + k)); ADD_BYTES(s3, v, BYTES_AT(w3 + first + k));
        }
      }
      s0 = four_of(s0, s1, s2, s3);
      PUT_FOUR(sums + (m - m0) * COLUMNS + (n - c0), all_of(s0, s0, s0, s0) - more, 0);
    }
#else
    for (idx m = m0; m < m1; m += 4) {
      i32x16 s00 = SPREAD(0), s01 = s00, s02 = s00, s03 = s00, s10 = s00, s11 = s00, s12 = s00, s13 = s00;
      i32x16 s20 = s00, s21 = s00, s22 = s00, s23 = s00, s30 = s00, s31 = s00, s32 = s00, s33 = s00;
      for (idx s = 0; s < SEGMENTS; ++s) {
        const idx first = s * padded;
        GLOBAL const IMAGE* a0 = image_p + from[m - m0] + begins[s];
        GLOBAL const IMAGE* a1 = image_p + from[m - m0 + 1] + begins[s];
        GLOBAL const IMAGE* a2 = image_p + from[m - m0 + 2] + begins[s];
        GLOBAL const IMAGE* a3 = image_p + from[m - m0 + 3] + begins[s];
        for (idx k = 0; k < padded; k += 64) {
          const i32x16 b0 = BYTES_AT(w0 + first + k), b1 = BYTES_AT(w1 + first + k);
          const i32x16 b2 = BYTES_AT(w2 + first + k), b3 = BYTES_AT(w3 + first + k);
          const i32x16 v0 = OF_IMAGE(BYTES_AT(a0 + k)), v1 = OF_IMAGE(BYTES_AT(a1 + k));
          const i32x16 v2 = OF_IMAGE(BYTES_AT(a2 + k)), v3 = OF_IMAGE(BYTES_AT(a3 + k));
          SIXTEEN_PRODUCTS
        }
      }
      i32* put = sums + (m - m0) * TO_NEXT_M + (n - c0) * TO_NEXT_N;
#if ALONG
      const i32x16 all = all_of(four_of(s00, s10, s20, s30), four_of(s01, s11, s21, s31),
                                four_of(s02, s12, s22, s32), four_of(s03, s13, s23, s33)) - more;
#define APART TO_NEXT_N
#else
      const i32x16 all = all_of(four_of(s00, s01, s02, s03), four_of(s10, s11, s12, s13),
                                four_of(s20, s21, s22, s23), four_of(s30, s31, s32, s33)) - more;
#define APART TO_NEXT_M
#endif
      PUT_FOUR(put, all, 0); PUT_FOUR(put + APART, all, 1);
      PUT_FOUR(put + 2 * APART, all, 2); PUT_FOUR(put + 3 * APART, all, 3);
    }
#endif
  }
#elif FEW
  for (idx n = c0; n < c1; n += 4) {
    WEIGHTS_OF_FOUR
    for (idx m = m0; m < m1; ++m) {
      GLOBAL const IMAGE* a0 = image_p + from[m - m0];
      i32s s0 = NO_SUMS, s1 = NO_SUMS, s2 = NO_SUMS, s3 = NO_SUMS;
      for (idx s = 0; s < SEGMENTS; ++s) {
        const idx at = begins[s], first = s * padded;
        for (idx k = 0; k < padded; k += PRODUCTS) {
          const i16s v = LOAD_IMAGE(a0 + at + k);
          s0 = DOT(s0, v, LOAD_i8(w0 + first + k)); s1 = DOT(s1, v, LOAD_i8(w1 + first + k));
          s2 = DOT(s2, v, LOAD_i8(w2 + first + k)); s3 = DOT(s3, v, LOAD_i8(w3 + first + k));
        }
      }
      i32* put = sums + (m - m0) * COLUMNS + (n - c0);
      SUMS(put, 1, EIGHT(s0), EIGHT(s1), EIGHT(s2), EIGHT(s3));
    }
  }
#else
  for (idx n = c0; n < c1; n += 2) {
    const idx o = g * outs + n, o_1 = n + 1 < n1 ? o + 1 : o;
    GLOBAL const WEIGHT* w0 = weight_p + o * segments * padded;
    GLOBAL const WEIGHT* w1 = weight_p + o_1 * segments * padded;
    for (idx m = m0; m < m1; m += 4) {
      GLOBAL const IMAGE* a0 = image_p + from[m - m0];
      GLOBAL const IMAGE* a1 = image_p + from[m - m0 + 1];
      GLOBAL const IMAGE* a2 = image_p + from[m - m0 + 2];
      GLOBAL const IMAGE* a3 = image_p + from[m - m0 + 3];
      i32s s00 = NO_SUMS, s10 = NO_SUMS, s20 = NO_SUMS, s30 = NO_SUMS;
      i32s s01 = NO_SUMS, s11 = NO_SUMS, s21 = NO_SUMS, s31 = NO_SUMS;
      for (idx s = 0; s < SEGMENTS; ++s) {
        const idx at = begins[s], w = s * padded;
        for (idx k = 0; k < padded; k += PRODUCTS) {
          const i16s b0 = LOAD_i8(w0 + w + k), b1 = LOAD_i8(w1 + w + k);
          const i16s v0 = LOAD_IMAGE(a0 + at + k), v1 = LOAD_IMAGE(a1 + at + k);
          const i16s v2 = LOAD_IMAGE(a2 + at + k), v3 = LOAD_IMAGE(a3 + at + k);
          s00 = DOT(s00, v0, b0); s01 = DOT(s01, v0, b1);
          s10 = DOT(s10, v1, b0); s11 = DOT(s11, v1, b1);
          s20 = DOT(s20, v2, b0); s21 = DOT(s21, v2, b1);
          s30 = DOT(s30, v3, b0); s31 = DOT(s31, v3, b1);
        }
      }
      i32* put = sums + (m - m0) * TO_NEXT_M + (n - c0) * TO_NEXT_N;
      SUMS(put, TO_NEXT_M, EIGHT(s00), EIGHT(s10), EIGHT(s20), EIGHT(s30));
      SUMS(put + TO_NEXT_N, TO_NEXT_M, EIGHT(s01), EIGHT(s11), EIGHT(s21), EIGHT(s31));
    }
  }
#endif
#if ALONG
  for (idx i = 0; i < c1 - c0; ++i) {
    const i32* sum = sums + i * TO_NEXT_N;
    const idx o = g * outs + c0 + i;
    for (idx a = 0, b; a < m1 - m0; a = b) { /* positions of one item */
      const idx left = places - (m0 + a) % places;
      GLOBAL RESULT* out_p = OUT + to[a] + o * o1;
      b = left < m1 - m0 - a ? a + left : m1 - m0;
#if TAPS
      const TAP all = whole_p[o];
#else
      const int all = 0;
#endif
      INDEPENDENT
      for (idx l = 0; l < b - a; ++l) FINISH(sum[a + l], all, o, l, to[a] + o * o1 + l);
#if TAPS
      for (idx l = 0; l < b - a; ++l)
        if (!inside[a + l]) FINISH(sum[a + l], LESS(o, m0 + a + l, 0), o, l, to[a] + o * o1 + l);
#endif
    }
  }
#else
  for (idx m = m0; m < m1; ++m) {
    const i32* sum = sums + (m - m0) * COLUMNS;
    const idx base = to[m - m0], first = g * outs + c0, some = c1 - c0;
#if BESIDE
    GLOBAL RESULT* out_p = OUT + base + first;
#define OUTPUT_AT(o) (base + (o))
#else
    RESULT out_p[COLUMNS];
#define OUTPUT_AT(o) (base + (o) * o1)
#endif
#if TAPS
    GLOBAL const TAP* all = whole_p + first;
    if (!inside[m - m0]) {
      for (idx i = 0; i < some; ++i) FINISH(sum[i], LESS(first + i, m, 0), first + i, i, OUTPUT_AT(first + i));
    } else
#else
#define all sum
#endif
    {
      INDEPENDENT
      for (idx i = 0; i < some; ++i) FINISH(sum[i], all[i], first + i, i, OUTPUT_AT(first + i));
    }
#if !BESIDE
    for (idx i = 0; i < some; ++i) OUT[OUTPUT_AT(first + i)] = out_p[i];
#endif
  }
#endif
}
#if TILES
END_TILES
#endif

//// tiles_of_rows: Where the outputs of a position are neighbours in the result: an item has up to 32 times WIDTH outputs of
//// many positions. It transposes their weights once; positions are rows of a tile as they lie, unless they are in several
//// rows of the image.
GLOBAL RESULT* OUT = out_p;
const idx n0 = u % cut * columns, part = u / cut % parts, g = u / cut / parts;
const idx n1 = outs - n0 < columns ? outs : n0 + columns;
const idx begin = part * each, end = rows - begin < each ? rows : begin + each;
const idx depth = segments * padded, step = mx * all_channels;
/* Of the 32 outputs from c0 on. The last tile begins earlier where outputs are no multiple of 16. */
#define TWO_TILES \
  const idx last = outs - 16, first = c0 < last ? c0 : last, second = c0 + 16 < last ? c0 + 16 : last;
i32 transposed[WIDTH * 8 * MOST], gathered[8 * MOST]; /* tiles of 64 bytes of 16 outputs, or of 16 positions */
i32 all_sums[BLOCK * COLUMNS + 16];
i32* sums = all_sums + 16;
idx begins[SEGMENTS];
for (idx s = 0; s < SEGMENTS; ++s) begins[s] = SEGMENT(s);
for (idx c0 = n0; c0 < n1; c0 += COLUMNS) {
  TWO_TILES
  i32* tile = transposed + (c0 - n0) / COLUMNS * 8 * MOST;
  for (idx k = 0; k < depth; k += 64, tile += 256) {
    GLOBAL const WEIGHT* w1 = weight_p + (g * outs + first) * depth + k;
    GLOBAL const WEIGHT* w2 = weight_p + (g * outs + second) * depth + k;
#define WEIGHTS_1(i) BYTES_AT(w1 + (i) * depth)
#define WEIGHTS_2(i) BYTES_AT(w2 + (i) * depth)
    /* Rows are read beside each other, as many as there are: more than what a CPU foresees. */
    for (int i = 0; i < 16; ++i) SOON(w1 + i * depth + 256), SOON(w2 + i * depth + 256);
    PUT_TRANSPOSED(tile, 16, WEIGHTS_1);
    PUT_TRANSPOSED(tile + 4 * MOST, 16, WEIGHTS_2);
  }
}
BEGIN_TILES
idx x = begin % ox, y = begin / ox % oy, z = begin / ox / oy % oz, b = begin / places;
for (idx m0 = begin; m0 < end; m0 += BLOCK) {
  const idx m1 = end - m0 < BLOCK ? end : m0 + BLOCK;
  idx from[BLOCK], to[BLOCK];
  int inside[BLOCK], even[2];
  for (idx m = 0; m < m1 - m0; ++m) {
    from[m] = PLACE(b, z, y, x) + g * channels;
    to[m] = b * o0 + z * o2 + y * o3 + x * o4;
    inside[m] = INSIDE(z, y, x);
    if (++x < ox) continue;
    x = 0;
    if (++y < oy) continue;
    y = 0;
    if (++z == oz) z = 0, ++b;
  }
  for (idx m = m1 - m0; m < BLOCK; ++m) from[m] = from[m1 - m0 - 1];
  for (idx side = 0; side < 2; ++side) {
    const idx* at = from + 16 * side;
    int same = 1;
    for (int i = 1; i < 16; ++i) same &= at[i] - at[i - 1] == step;
    even[side] = same;
    if (same) continue;
    i32* tile = gathered + side * 4 * MOST;
    for (idx s = 0; s < SEGMENTS; ++s) {
      GLOBAL const IMAGE* segment = image_p + begins[s];
      for (idx k = 0; k < padded; k += 64, tile += 256)
        for (int i = 0; i < 16; ++i) PUT_ALL(tile + 16 * i, BYTES_AT(segment + at[i] + k));
    }
  }
  const idx apart1 = even[0] ? step : 64, apart2 = even[1] ? step : 64;
  for (idx c0 = n0; c0 < n1; c0 += COLUMNS) {
    TWO_TILES
    const i32 *own1 = gathered, *own2 = gathered + 4 * MOST;
    const i32* tile = transposed + (c0 - n0) / COLUMNS * 8 * MOST;
    TILE_ZERO(0); TILE_ZERO(1); TILE_ZERO(2); TILE_ZERO(3);
    for (idx s = 0; s < SEGMENTS; ++s) {
      GLOBAL const IMAGE* at1 = image_p + from[0] + begins[s];
      GLOBAL const IMAGE* at2 = image_p + from[16] + begins[s];
      for (idx k = 0; k < padded; k += 64, tile += 256, own1 += 256, own2 += 256) {
        const u64 p1 = even[0] ? (u64)(at1 + k) : (u64)own1, p2 = even[1] ? (u64)(at2 + k) : (u64)own2;
        TILE_LOAD(4, p1, apart1); TILE_LOAD(6, tile, 64); TILE_ADD_IMAGE(0, 4, 6);
        TILE_LOAD(5, p2, apart2); TILE_ADD_IMAGE(2, 5, 6);
        TILE_LOAD(7, tile + 4 * MOST, 64); TILE_ADD_IMAGE(1, 4, 7); TILE_ADD_IMAGE(3, 5, 7);
      }
    }
    i32* put1 = sums + (first - c0);
    i32* put2 = sums + (second - c0);
    TILE_STORE(0, put1, 4 * COLUMNS); TILE_STORE(2, put1 + 16 * COLUMNS, 4 * COLUMNS);
    TILE_STORE(1, put2, 4 * COLUMNS); TILE_STORE(3, put2 + 16 * COLUMNS, 4 * COLUMNS);
    const idx some = n1 - c0 < COLUMNS ? n1 - c0 : COLUMNS, o = g * outs + c0;
    for (idx m = m0; m < m1; ++m) {
      const i32* sum = sums + (m - m0) * COLUMNS;
      const idx base = to[m - m0];
      GLOBAL RESULT* out_p = OUT + base + o;
      idx i = 0;
#if TAPS
      if (!inside[m - m0]) {
        for (; i < some; ++i) FINISH(sum[i], LESS(o + i, m, 0), o + i, i, base + o + i);
        continue;
      }
      GLOBAL const TAP* all = whole_p + o;
#else
#define all sum
#endif
#if VECTORS
      for (; i + 16 <= some; i += 16) FINISH_16(sum + i, o + i, i, base + o + i);
#endif
      for (; i < some; ++i) FINISH(sum[i], all[i], o + i, i, base + o + i);
    }
  }
}
END_TILES

//// finish_16: The same of 16 outputs from `sum` on.
#if BYTES && VECTORS
#if TAPS
#define TOTAL_16(sum, o) F32_OF((OWN_BYTES_AT(sum) << (i32)shift) - BYTES_AT(whole_p + (o)))
#else
#define TOTAL_16(sum, o) F32_OF(OWN_BYTES_AT(sum))
#endif
#if INTEGER
/* Between LOW and HIGH before the offset is added, which is the same: all of them are integers. */
#define PUT_RESULT_16(at, v, o) \
  do { \
    const i32x16 zero_ = ZERO_16(o); \
    f32x16 q_ = KNOWN((v) * INVERSE_16(o)); \
    const f32x16 low_ = F32_OF(SPREAD(LOW) - zero_), high_ = F32_OF(SPREAD(HIGH) - zero_); \
    q_ = LARGEST(q_, low_); \
    q_ = LEAST(q_, high_); \
    const i32x16 r_ = NEAREST_OF(q_) + zero_; \
    PUT_16(out_p + (at), r_); \
  } while (0)
#else
#define PUT_RESULT_16(at, v, o) PUT_16(out_p + (at), v)
#endif
#define FINISH_16(sum, o, at, from) \
  do { \
    f32x16 y_ = TOTAL_16(sum, o) * SCALE_16(o); \
    if (BIAS) y_ = y_ + BIAS_16(o); \
    if (ADD) y_ = y_ + ADDED_16(o, from); \
    if (RELU) y_ = RECTIFIED(y_); \
    PUT_RESULT_16(at, y_, o); \
  } while (0)
#endif

//// few_floats: A few rows of floating point: each item quantizes them and has some outputs of theirs.
const idx n0 = u * columns, n1 = outs - n0 < columns ? outs : n0 + columns;
const f32 by = INVERSE_AT(0), z = ZERO_AT(0);
#if BYTES
i8 row[MOST];
#else
i16 row[MOST];
#endif
for (idx m = 0; m < rows; ++m) {
  const idx at = m * depth;
  INDEPENDENT
  for (idx k = 0; k < depth; ++k) row[k] = (i32)requantized((f32)x(at + k), by, z);
  for (idx c0 = n0; c0 < n1; c0 += COLUMNS) {
    const idx some = n1 - c0 < COLUMNS ? n1 - c0 : COLUMNS;
    i32 sums[COLUMNS];
    for (idx n = 0; n < some; n += 4) {
      const idx most = some - 1 - n; /* of outputs beyond the last, the last's weights */
      GLOBAL const i8* w0 = weight_p + (c0 + n) * depth;
      GLOBAL const i8* w1 = w0 + (most < 1 ? most : 1) * depth;
      GLOBAL const i8* w2 = w0 + (most < 2 ? most : 2) * depth;
      GLOBAL const i8* w3 = w0 + (most < 3 ? most : 3) * depth;
#if BYTES
      const i32x16 all = SPREAD((i32)0x80808080u);
      i32x16 s0 = SPREAD(0), s1 = s0, s2 = s0, s3 = s0, t0 = s0, t1 = s0, t2 = s0, t3 = s0;
      for (idx k = 0; k < depth; k += 64) {
        const i32x16 v = OF_IMAGE(OWN_BYTES_AT(row + k));
        const i32x16 b0 = BYTES_AT(w0 + k), b1 = BYTES_AT(w1 + k), b2 = BYTES_AT(w2 + k), b3 = BYTES_AT(w3 + k);
        ADD_BYTES(s0, v, b0); ADD_BYTES(s1, v, b1); ADD_BYTES(s2, v, b2); ADD_BYTES(s3, v, b3);
        ADD_BYTES(t0, all, b0); ADD_BYTES(t1, all, b1); ADD_BYTES(t2, all, b2); ADD_BYTES(t3, all, b3);
      }
      s0 = four_of(s0 - t0, s1 - t1, s2 - t2, s3 - t3);
      PUT_FOUR(sums + n, all_of(s0, s0, s0, s0), 0);
#else
      i32s s0 = NO_SUMS, s1 = NO_SUMS, s2 = NO_SUMS, s3 = NO_SUMS;
      for (idx k = 0; k < depth; k += PRODUCTS) {
        const i16s v = OWN_LOAD_i16(row + k);
        s0 = DOT(s0, v, LOAD_i8(w0 + k)); s1 = DOT(s1, v, LOAD_i8(w1 + k));
        s2 = DOT(s2, v, LOAD_i8(w2 + k)); s3 = DOT(s3, v, LOAD_i8(w3 + k));
      }
      SUMS(sums + n, 1, EIGHT(s0), EIGHT(s1), EIGHT(s2), EIGHT(s3));
#endif
    }
    const idx to = m * outs;
    INDEPENDENT
    for (idx i = 0; i < some; ++i) FINISH(sums[i], whole(c0 + i), c0 + i, to + c0 + i, 0);
  }
}

//// flat: a block of elements in a row, which have one scale
const f32 by = INVERSE_AT(0), z = ZERO_AT(0);
const idx end = count - u * BLOCK < BLOCK ? count : u * BLOCK + BLOCK;
INDEPENDENT
for (idx i = u * BLOCK; i < end; ++i) PUT(i, requantized((f32)x(i), by, z));

//// image: The input once more, as int16 or as it is, with zeros around it and, BETWEEN, between its elements: a row an item, or an element.
#define OF_COLUMN \
  const idx t = x + lx; \
  const idx from_x = BETWEEN ? t / gx : t; \
  const int in_x = t >= 0 && from_x < fx && (!BETWEEN || t % gx == 0);
#define OF_ROW \
  const idx y = u % h + ly, z = u / h % d + lz, b = u / h / d; \
  const idx from_y = BETWEEN ? y / gy : y, from_z = BETWEEN ? z / gz : z; \
  const int in_row = \
      y >= 0 && z >= 0 && from_y < fy && from_z < fz && (!BETWEEN || (y % gy == 0 && z % gz == 0)); \
  const idx at = b * x0 + from_z * x2 + from_y * x3;
#ifdef IN_TURN
OF_ROW
GLOBAL IMAGE* to = out_p + u * w * channels;
if (!in_row) {
  for (idx i = 0; i < w * channels; ++i) to[i] = 0;
  continue;
}
#if WHOLE /* rows of the input are rows of the image */
{
  const idx before = (lx < 0 ? (-lx < w ? -lx : w) : 0) * channels, skip = (lx < 0 ? 0 : lx) * channels;
  const idx left = w * channels - before, there = fx * channels - skip, n = there < left ? there : left;
  for (idx i = 0; i < before; ++i) to[i] = 0;
  INDEPENDENT
  for (idx i = 0; i < n; ++i) to[before + i] = (IMAGE)x(at + skip + i);
  for (idx i = before + (n > 0 ? n : 0); i < w * channels; ++i) to[i] = 0;
}
#elif BESIDE
for (idx x = 0; x < w; ++x) {
  OF_COLUMN
  if (in_x) {
    INDEPENDENT
    for (idx c = 0; c < channels; ++c) to[x * channels + c] = (IMAGE)x(at + from_x * x4 + c);
  } else {
    for (idx c = 0; c < channels; ++c) to[x * channels + c] = 0;
  }
}
#else
for (idx x = 0; x < w; ++x) {
  OF_COLUMN
  if (!in_x) for (idx c = 0; c < channels; ++c) to[x * channels + c] = 0;
}
/* Where channels lie far apart, stretches of a row: each is read along it, and written again and again to few lines. Of
   bytes eight channels are written at once. */
for (idx s0 = 0; s0 < fx; s0 += 32) {
  const idx s1 = fx - s0 < 32 ? fx : s0 + 32;
#if EIGHTS
  for (idx c = 0; c < channels; c += 8) {
    u64 eight[32];
    INDEPENDENT
    for (idx s = s0; s < s1; ++s) {
      const idx o = at + c * x1 + s * x4;
      eight[s - s0] = (u64)(u8)x(o) | (u64)(u8)x(o + x1) << 8 | (u64)(u8)x(o + 2 * x1) << 16 |
                      (u64)(u8)x(o + 3 * x1) << 24 | (u64)(u8)x(o + 4 * x1) << 32 | (u64)(u8)x(o + 5 * x1) << 40 |
                      (u64)(u8)x(o + 6 * x1) << 48 | (u64)(u8)x(o + 7 * x1) << 56;
    }
    for (idx s = s0; s < s1; ++s) {
      const idx x = s * gx - lx;
      if (x >= 0 && x < w) *(GLOBAL u64*)(to + x * channels + c) = eight[s - s0];
    }
  }
#else
  for (idx c = 0; c < channels; ++c)
    for (idx s = s0; s < s1; ++s) {
      const idx x = s * gx - lx;
      if (x >= 0 && x < w) to[x * channels + c] = (IMAGE)x(at + c * x1 + s * x4);
    }
#endif
}
#endif
#else
const idx element = u, c = u % channels, x = u / channels % w;
{
  const idx u = element / channels / w;
  OF_ROW
  OF_COLUMN
  out_p[element] = in_row && in_x ? (IMAGE)x(at + c * x1 + from_x * x4) : (IMAGE)0;
}
#endif

//// weights
const idx s = u % segments, o = u / segments % outs, g = u / segments / outs;
idx x = ROWS ? 0 : s % kx, y = ROWS ? s % ky : s / kx % ky, z = ROWS ? s / ky : s / kx / ky;
if (TURNED) y = ky - 1 - y, z = kz - 1 - z;
const idx base = g * wg + o * wo + z * tz + y * ty;
idx c = 0;
for (idx i = 0; i < padded; ++i) {
  const idx tap = TURNED ? kx - 1 - x : x;
  if (i < len) out_set(u * padded + i, x(base + tap * tx + c * wc)); else out_set(u * padded + i, 0);
  if (++c == channels) c = 0, ++x;
}

//// weights_packed: The same, 16 elements of 16 outputs beside each other: output 4 l + q is number l of four in quad q.
const idx step = u % (segments * padded / 16), pack = u / (segments * padded / 16), g = pack / packs, s = step * 16 / padded;
idx x = ROWS ? 0 : s % kx, y = ROWS ? s % ky : s / kx % ky, z = ROWS ? s / ky : s / kx / ky;
if (TURNED) y = ky - 1 - y, z = kz - 1 - z;
const idx base = g * wg + z * tz + y * ty + (TURNED ? kx - 1 - x : x) * tx;
idx i = step * 16 - s * padded, c = i % channels, tap = i / channels;
GLOBAL i8* to = out_p + u * 256;
#if BESIDE
if (i + 16 <= len) { /* along memory */
  for (idx j = 0; j < 16; ++j) {
    const idx o = pack % packs * 16 + j;
    COPY_16(to + j % 4 * 64 + j / 4 * 16, x_p + base + (o < outs ? o : 0) * wo + i);
  }
  continue;
}
#endif
for (idx k = 0; k < 16; ++k, ++i) {
  const idx from = base + (TURNED ? -tap : tap) * tx + c * wc;
  for (idx j = 0; j < 16; ++j) {
    const idx o = pack % packs * 16 + j;
    to[j % 4 * 64 + j / 4 * 16 + k] = i < len && o < outs ? x(from + o * wo) : 0;
  }
  if (++c == channels) c = 0, ++tap;
}

//// taps
TAP sum = 0;
for (idx i = 0; i < n; ++i) sum += taps(u * n + i);
whole_p[u] = sum;

//// results: Where what is multiplied lies, and what becomes of sums.
/* Where segment s begins, from the place of a position's first tap. */
#define SEGMENT(s) \
  (ROWS ? (((s) / ky * dz) * iy + (s) % ky * dy) * ix * all_channels \
        : (((s) / kx / ky * dz * iy + (s) / kx % ky * dy) * ix + (s) % kx * dx) * all_channels)
#define PLACE(b, z, y, x) ((((b) * iz + (z) * mz) * iy + (y) * my) * ix + (x) * mx) * all_channels
/* The sum for output o, less what taps outside of the input would have added, into element `at`; with `from`, an element
   of the residual, where there is one. */
#define FINISH(sum, less, o, at, from) \
  do { \
    f32 y_ = TOTAL(sum, less) * SCALE(o); \
    if (BIAS) y_ = y_ + BIAS_OF(o); \
    if (ADD) y_ = y_ + ADDED(o, from); \
    if (RELU) y_ = y_ > 0 ? y_ : (y_ != y_ ? y_ : 0.0f); \
    PUT_RESULT(at, y_, o); \
  } while (0)
#if BIAS
#define BIAS_OF(o) bias(o)
#else
#define BIAS_OF(o) 0.0f
#endif
#if !ADD
#define ADDED(o, i) 0.0f
#endif
#if TAPS
#define TOTAL(sum, less) (f32)(((TAP)(sum) << shift) - (less))
#define LESS(o, row, inside) less_of(TAP_ARGUMENTS, o, row, inside)
#define TAP_ARGUMENTS \
  taps_p, whole_p, oz, oy, ox, mz, my, mx, dz, dy, dx, kz, ky, kx, lz, ly, lx, gz, gy, gx, fz, fy, fx
#else
#define TOTAL(sum, less) (f32)(sum)
#define LESS(o, row, inside) 0
#endif
#if TAPS && !TURNED
#define INSIDE(z, y, x) \
  ((z) * mz + lz >= 0 && (z) * mz + lz + (kz - 1) * dz < fz && (y) * my + ly >= 0 && \
   (y) * my + ly + (ky - 1) * dy < fy && (x) * mx + lx >= 0 && (x) * mx + lx + (kx - 1) * dx < fx)
#else
#define INSIDE(z, y, x) 0
#endif
#if INTEGER
#define PUT_RESULT(at, v, o) PUT(at, requantized(v, INVERSE(o), ZERO(o)))
#else
#define PUT_RESULT(at, v, o) PUT(at, v)
#endif

//// fours: A sum and the four products of bytes in two words, `a` with a sign where SIGNED and `b` always: an instruction where
//// the chip has it. None of them saturates.
#if SIGNED && defined(__CUDA_ARCH__)
#define DOT_FOUR(a, b, sum) __dp4a((i32)(a), (i32)(b), sum)
#elif defined(__CUDA_ARCH__)
FUNCTION i32 dot_four(u32 a, u32 b, i32 sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}
#define DOT_FOUR dot_four
#elif SIGNED && (defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx1030__))
#define DOT_FOUR(a, b, sum) __builtin_amdgcn_sdot4((i32)(a), (i32)(b), sum, 0)
#elif SIGNED && defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
#define DOT_FOUR(a, b, sum) ((sum) + dot_4x8packed_ss_int(a, b))
#elif defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
#define DOT_FOUR(a, b, sum) ((sum) + dot_4x8packed_us_int(a, b))
#else
#if SIGNED
#define BYTE_OF_IMAGE(a, i) ((i32)(i8)((a) >> 8 * (i)))
#else
#define BYTE_OF_IMAGE(a, i) ((i32)(u8)((a) >> 8 * (i)))
#endif
FUNCTION i32 dot_four(u32 a, u32 b, i32 sum) {
  for (int i = 0; i < 4; ++i) sum += BYTE_OF_IMAGE(a, i) * (i32)(i8)(b >> 8 * i);
  return sum;
}
#define DOT_FOUR dot_four
#endif

//// elements: each output by itself
const idx o = u % (outs * groups), place = u / (outs * groups), g = o / outs;
const idx x = place % ox, y = place / ox % oy, z = place / ox / oy % oz, b = place / places;
const idx base = PLACE(b, z, y, x) + g * channels;
A sum = 0;
for (idx s = 0; s < segments; ++s) {
  const idx from = base + SEGMENT(s), w = (o * segments + s) * padded;
#if FOURS
  for (idx k = 0; k < len; k += 4)
    sum = DOT_FOUR(*(GLOBAL const u32*)(image_p + from + k), *(GLOBAL const u32*)(weight_p + w + k), sum);
#else
  A part = 0;
  for (idx k = 0; k < len; ++k) part += (A)image(from + k) * (A)weight(w + k);
  sum += part;
#endif
}
const idx at = b * o0 + o * o1 + z * o2 + y * o3 + x * o4;
FINISH(sum, LESS(o, place, INSIDE(z, y, x)), o, at, at);

//// depth: One channel a group: 16 of them at once.
const idx x = u % ox, y = u / ox % oy, z = u / ox / oy % oz, b = u / places;
const idx base = PLACE(b, z, y, x), out_base = b * o0 + z * o2 + y * o3 + x * o4;
const int inside = INSIDE(z, y, x);
(void)inside;
for (idx c0 = 0; c0 < groups; c0 += 16) {
  const idx some = groups - c0 < 16 ? groups - c0 : 16;
  i32 sums[16];
  for (int l = 0; l < 16; ++l) sums[l] = 0;
  for (idx s = 0; s < segments; ++s) {
    GLOBAL const i16* a = image_p + base + SEGMENT(s) + c0;
    for (idx l = 0; l < some; ++l) sums[l] += (i32)a[l] * (i32)weight((c0 + l) * segments + s);
  }
  for (idx l = 0; l < some; ++l) {
    const idx at = out_base + (c0 + l) * o1;
    FINISH(sums[l], LESS(c0 + l, u, inside), c0 + l, at, at);
  }
}
