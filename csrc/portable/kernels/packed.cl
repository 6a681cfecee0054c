// Texts of packed.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// packed_number: One weight. float8_e4m3fn by integers alone: a device may take float32's smallest numbers for 0.
#if FLOAT8
FUNCTION f32 weight_of(u8 x) {
  const i32 e = x >> 3 & 15, m = x & 7;
  const f32 v = (f32)((e ? m + 8 : m) << (e ? e - 1 : 0)) * 0.001953125f;
  return (x & 127) == 127 ? v * (f32)NAN : x >> 7 ? -v : v;
}
#else
#define weight_of(x) ((f32)(i32)(x))
#endif
#if SIGNED
#define half_of(x) ((f32)(i32)(((x) ^ 8) - 8))
#else
#define half_of(x) ((f32)(i32)(x))
#endif

//// vectors_c: 16 numbers of float32, of which recurrent.cpp makes use too.
/* Two halves: GCC keeps vectors of 64 bytes in memory. */
typedef f32 f32x8 __attribute__((vector_size(32)));
typedef f32 f32x8_at __attribute__((vector_size(32), aligned(4)));
typedef struct { f32x8 a, b; } V16;
static inline V16 v_load(const f32* p) { return (V16){*(const f32x8_at*)p, *(const f32x8_at*)(p + 8)}; }
static inline void v_store(f32* p, V16 v) { *(f32x8_at*)p = v.a; *(f32x8_at*)(p + 8) = v.b; }
static inline V16 v_fma(V16 x, V16 y, V16 z) { return (V16){x.a * y.a + z.a, x.b * y.b + z.b}; }
static inline V16 v_add(V16 x, V16 y) { return (V16){x.a + y.a, x.b + y.b}; }
static inline V16 v_spread(f32 x) { f32x8 v = (f32x8){0} + x; return (V16){v, v}; }

//// vectors_open_cl
typedef f32x16 V16;
#define v_load(p) vload16(0, p)
#define v_store(p, v) vstore16(v, 0, p)
#define v_fma(x, y, z) fma(x, y, z)
#define v_add(x, y) ((x) + (y))
#define v_spread(x) ((f32x16)(x))

//// packed_vectors_c: 16 columns of weights as float32: `v_take` of 8 bits, `v_low` and `v_high` the two halves of 4.
typedef struct { u64 a, b; } BYTES;
static inline BYTES v_bytes(const void* p) { BYTES r; memcpy(&r, p, 16); return r; }
#ifdef __AVX2__
typedef char c8x16 __attribute__((vector_size(16)));
typedef i32 i32x8 __attribute__((vector_size(32)));
typedef i64 i64x2 __attribute__((vector_size(16)));
#define WIDE(x) __builtin_convertvector((i32x8)__builtin_ia32_pmovsxbd256((c8x16)(i64x2){(i64)(x), 0}), f32x8)
#else
static inline f32x8 wide_of(u64 x) {
  f32x8 v;
  for (int l = 0; l < 8; ++l) v[l] = (f32)(i8)(x >> 8 * l);
  return v;
}
#define WIDE(x) wide_of(x)
#endif
#if FLOAT8
static inline V16 v_take(const u8* p) {
  V16 v;
  for (int l = 0; l < 8; ++l) v.a[l] = weight_of(p[l]), v.b[l] = weight_of(p[l + 8]);
  return v;
}
#else
static inline V16 v_take(const i8* p) { BYTES x = v_bytes(p); return (V16){WIDE(x.a), WIDE(x.b)}; }
#endif
#define HALVES 0x0f0f0f0f0f0f0f0full
#if SIGNED
/* Byte by byte (x ^ 8) - 8; the top bits keep the bytes apart. */
#define EIGHTS 0x0808080808080808ull
#define TOPS 0x8080808080808080ull
#define HALF(x) (((((x) & HALVES) ^ EIGHTS | TOPS) - EIGHTS) ^ TOPS)
#else
#define HALF(x) ((x) & HALVES)
#endif
static inline V16 v_low(BYTES x) { return (V16){WIDE(HALF(x.a)), WIDE(HALF(x.b))}; }
static inline V16 v_high(BYTES x) { return (V16){WIDE(HALF(x.a >> 4)), WIDE(HALF(x.b >> 4))}; }
static inline f32 v_sum(V16 v) {
  f32x8 s = v.a + v.b;
  return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

//// packed_vectors_open_cl
typedef uchar16 BYTES;
#define v_bytes(p) vload16(0, p)
#if FLOAT8
static inline f32x16 v_take(GLOBAL const u8* p) {
  f32 v[16];
  for (int l = 0; l < 16; ++l) v[l] = weight_of(p[l]);
  return vload16(0, v);
}
#else
#define v_take(p) convert_float16(vload16(0, p))
#endif
#ifdef __has_builtin
#if defined(__AVX512F__) && __has_builtin(__builtin_ia32_permvarsf512)
/* Of 16 numbers those that the low halves of bytes, or what is above them, say: the instruction looks at four bits. */
#define OF_TABLE(table, b) __builtin_ia32_permvarsf512(table, b)
#if SIGNED
#define HALVES_IN_ORDER ((f32x16)(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1))
#else
#define HALVES_IN_ORDER ((f32x16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#endif
#endif
#endif
#if SIGNED
#define v_low(b) convert_float16(as_char16((b) << (uchar16)(4)) >> (char16)(4))
#define v_high(b) convert_float16(as_char16(b) >> (char16)(4))
#else
#define v_low(b) convert_float16((b) & (uchar16)(15))
#define v_high(b) convert_float16((b) >> (uchar16)(4))
#endif
static inline f32 v_sum(f32x16 v) {
  float8 s = v.lo + v.hi;
  return ((s.s0 + s.s4) + (s.s1 + s.s5)) + ((s.s2 + s.s6) + (s.s3 + s.s7));
}

//// packed_rows: Few rows: the weights are read once, and unpacked in registers. Of one row, several outputs at once: their
//// sums do not wait for each other, and the row is read once for all.
GLOBAL const STORE* w[OUTS];
idx at[OUTS];
V16 total[OUTS * ROWS];
f32 less[OUTS * ROWS];
UNROLL for (int j = 0; j < OUTS; ++j) {
  const idx n = u * OUTS + j < outs ? u * OUTS + j : outs - 1;
  w[j] = weight_p + n * bytes, at[j] = n * groups;
}
UNROLL for (int i = 0; i < OUTS * ROWS; ++i) total[i] = v_spread(0), less[i] = 0;
for (idx g = 0; g < groups; ++g) {
#if BITS_ == 4 && defined(OF_TABLE)
  V16 table[OUTS];
  UNROLL for (int j = 0; j < OUTS; ++j) {
    const f32 by = scale(at[j] + g);
#if ZEROS
    table[j] = (HALVES_IN_ORDER - v_spread(zero(at[j] + g))) * v_spread(by);
#else
    table[j] = HALVES_IN_ORDER * v_spread(by);
#endif
  }
  for (idx k = g * size; k < (g + 1) * size; k += 32) {
    UNROLL for (int j = 0; j < OUTS; ++j) {
      const int16 b = convert_int16(v_bytes(w[j] + k / 2));
      const V16 low = OF_TABLE(table[j], b), high = OF_TABLE(table[j], b >> 4);
      UNROLL for (int m = 0; m < ROWS; ++m) {
        total[j * ROWS + m] = v_fma(low, v_load(x_p + m * depth + k), total[j * ROWS + m]);
        total[j * ROWS + m] = v_fma(high, v_load(x_p + m * depth + k + 16), total[j * ROWS + m]);
      }
    }
  }
  continue;
#endif
  V16 sum[OUTS * ROWS];
  UNROLL for (int i = 0; i < OUTS * ROWS; ++i) sum[i] = v_spread(0);
#if ZEROS
  V16 off[OUTS];
  UNROLL for (int j = 0; j < OUTS; ++j) off[j] = v_spread(-zero(at[j] + g));
#define LESS_ZERO(v, j) v_add(v, off[j])
#else
#define LESS_ZERO(v, j) v
#endif
#if BITS_ == 4
  for (idx k = g * size; k < (g + 1) * size; k += 32) {
    UNROLL for (int j = 0; j < OUTS; ++j) {
      const BYTES b = v_bytes(w[j] + k / 2);
      const V16 low = LESS_ZERO(v_low(b), j), high = LESS_ZERO(v_high(b), j);
      UNROLL for (int m = 0; m < ROWS; ++m) {
        sum[j * ROWS + m] = v_fma(low, v_load(x_p + m * depth + k), sum[j * ROWS + m]);
        sum[j * ROWS + m] = v_fma(high, v_load(x_p + m * depth + k + 16), sum[j * ROWS + m]);
      }
    }
  }
#else
  idx k = g * size;
  for (; k + 16 <= (g + 1) * size; k += 16) {
    UNROLL for (int j = 0; j < OUTS; ++j) {
      const V16 q = LESS_ZERO(v_take(w[j] + k), j);
      UNROLL for (int m = 0; m < ROWS; ++m)
        sum[j * ROWS + m] = v_fma(q, v_load(x_p + m * depth + k), sum[j * ROWS + m]);
    }
  }
  for (; k < (g + 1) * size; ++k)
    for (int j = 0; j < OUTS; ++j) {
#if ZEROS
      const f32 z = zero(at[j] + g);
#else
      const f32 z = 0;
#endif
      for (int m = 0; m < ROWS; ++m)
        less[j * ROWS + m] -= scale(at[j] + g) * ((weight_of(w[j][k]) - z) * x_p[m * depth + k]);
    }
#endif
  UNROLL for (int j = 0; j < OUTS; ++j) {
    const V16 by = v_spread(scale(at[j] + g));
    UNROLL for (int m = 0; m < ROWS; ++m) total[j * ROWS + m] = v_fma(by, sum[j * ROWS + m], total[j * ROWS + m]);
  }
}
for (int j = 0; j < OUTS; ++j)
  for (int m = 0; m < ROWS; ++m)
    if (u * OUTS + j < outs) out_set(m * outs + u * OUTS + j, v_sum(total[j * ROWS + m]) - less[j * ROWS + m]);

//// packed_tiles: Many rows: an item unpacks four outputs' weights, and goes down the rows with them.
GLOBAL f32* wide = workspace_p + item * 4 * depth;
const idx n0 = u * 4, n1 = outs - n0 < 4 ? outs : n0 + 4;
for (idx n = n0; n < n0 + 4; ++n) {
  const idx n_ = n < n1 ? n : n1 - 1;
  GLOBAL const STORE* w = weight_p + n_ * bytes;
  GLOBAL f32* to = wide + (n - n0) * depth;
  for (idx g = 0; g < groups; ++g) {
    const f32 by = scale(n_ * groups + g);
#if ZEROS
    const f32 z = zero(n_ * groups + g);
#else
    const f32 z = 0;
#endif
#if BITS_ == 4
    for (idx k = g * size; k < (g + 1) * size; k += 32) {
      const BYTES b = v_bytes(w + k / 2);
      v_store(to + k, v_fma(v_low(b), v_spread(by), v_spread(-z * by)));
      v_store(to + k + 16, v_fma(v_high(b), v_spread(by), v_spread(-z * by)));
    }
#else
    INDEPENDENT
    for (idx k = g * size; k < (g + 1) * size; ++k) to[k] = (weight_of(w[k]) - z) * by;
#endif
  }
}
for (idx m = 0; m < rows; ++m) {
  GLOBAL const f32* x = x_p + m * depth;
  V16 a = v_spread(0), b = v_spread(0), c = v_spread(0), d = v_spread(0);
  f32 left[4] = {0, 0, 0, 0};
  idx k = 0;
  for (; k + 16 <= depth; k += 16) {
    const V16 v = v_load(x + k);
    a = v_fma(v, v_load(wide + k), a);
    b = v_fma(v, v_load(wide + depth + k), b);
    c = v_fma(v, v_load(wide + 2 * depth + k), c);
    d = v_fma(v, v_load(wide + 3 * depth + k), d);
  }
  for (; k < depth; ++k) for (int j = 0; j < 4; ++j) left[j] += x[k] * wide[j * depth + k];
  left[0] += v_sum(a); left[1] += v_sum(b); left[2] += v_sum(c); left[3] += v_sum(d);
  for (idx n = n0; n < n1; ++n) out_set(m * outs + n, left[n - n0]);
}

//// packed_elements: Not CPUs: each output by itself.
const idx n = u % outs, m = u / outs;
GLOBAL const STORE* w = weight_p + n * bytes;
GLOBAL const f32* x = x_p + m * depth;
f32 total = 0;
for (idx g = 0; g < groups; ++g) {
  f32 sum = 0, all = 0;
#if BITS_ == 4
  for (idx k = g * size; k < (g + 1) * size; k += 32)
    for (idx l = 0; l < 16; ++l) {
      const u8 b = w[k / 2 + l];
      sum += half_of(b & 15) * x[k + l] + half_of(b >> 4) * x[k + 16 + l];
      all += x[k + l] + x[k + 16 + l];
    }
#else
  for (idx k = g * size; k < (g + 1) * size; ++k) sum += weight_of(w[k]) * x[k], all += x[k];
#endif
#if ZEROS
  sum -= zero(n * groups + g) * all;
#endif
  total += sum * scale(n * groups + g);
}
out_set(u, total);
