// Texts of random.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// philox
FUNCTION u32 high32(u32 a, u32 b) { return (u32)(((u64)a * (u64)b) >> 32); }
/* Word `word` of the counter's four. */
FUNCTION u32 philox(u64 key, u64 at, u32 sequence, u32 word) {
  u32 c0 = (u32)at, c1 = (u32)(at >> 32), c2 = sequence, c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
  for (int i = 0; i < 10; ++i) {
    const u32 h0 = high32(0xD2511F53u, c0), h1 = high32(0xCD9E8D57u, c2);
    const u32 l0 = 0xD2511F53u * c0, l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}
#define ROUND(a) { const u32 h0 = high32(0xD2511F53u, c0), h1 = high32(0xCD9E8D57u, c2), \
  l0 = 0xD2511F53u * c0, l1 = 0xCD9E8D57u * c2; \
  c0 = h1 ^ c1 ^ (k0 + a * 0x9E3779B9u); c1 = l1; c2 = h0 ^ c3 ^ (k1 + a * 0xBB67AE85u); c3 = l0; }
/* All four words of a counter, without a loop in the way of vectors. */
#define PHILOX(at, sequence) { const u64 at_ = (at); const u32 k0 = (u32)seed, k1 = (u32)(seed >> 32); \
  c0 = (u32)at_; c1 = (u32)(at_ >> 32); c2 = sequence; c3 = 0; \
  ROUND(0) ROUND(1u) ROUND(2u) ROUND(3u) ROUND(4u) ROUND(5u) ROUND(6u) ROUND(7u) ROUND(8u) \
  ROUND(9u) }
#define DRAW(i, sequence) philox(seed, offset + (u64)((i) / 4), sequence, (u32)((i) % 4))

//// drawn: Of what is drawn, the same bits on every device, and without branches. ln(m) = 2 artanh((m - 1) / (m + 1)) by its
//// series, and those of sine and cosine up to an eighth of a turn: all to the last place but one of float64.
FUNCTION f64 ln_drawn(f64 v) {
  const u64 bits = BITS_OF_DOUBLE(v) - 0x3fe6a09e667f3bcdul;
  const f64 m = DOUBLE((bits & 0x000ffffffffffffful) + 0x3fe6a09e667f3bcdul), k = (f64)((i32)(bits >> 32) >> 20);
  const f64 s = (m - 1.0) / (m + 1.0), z = s * s, t = s + s;
  f64 p = FMA(z, 1.0 / 21, 1.0 / 19);
  p = FMA(p, z, 1.0 / 17);
  p = FMA(p, z, 1.0 / 15);
  p = FMA(p, z, 1.0 / 13);
  p = FMA(p, z, 1.0 / 11);
  p = FMA(p, z, 1.0 / 9);
  p = FMA(p, z, 1.0 / 7);
  p = FMA(p, z, 1.0 / 5);
  p = FMA(p, z, 1.0 / 3);
  return FMA(k, 6.93147180369123816490e-01, FMA(p * z, t, FMA(k, 1.90821492927058770002e-10, t)));
}
/* cos(2 pi b / 2^32) */
FUNCTION f64 cos_drawn(u32 b) {
  const u32 q = (b + 0x20000000u) >> 30;
  const f64 r = (f64)(i32)(b - (q << 30)) * 1.46291807926715968e-9, z = r * r;
  f64 sine = FMA(z, -1.0 / 1307674368000.0, 1.0 / 6227020800.0), cosine = FMA(z, 1.0 / 20922789888000.0, -1.0 / 87178291200.0);
  sine = FMA(sine, z, -1.0 / 39916800);
  sine = FMA(sine, z, 1.0 / 362880);
  sine = FMA(sine, z, -1.0 / 5040);
  sine = FMA(sine, z, 1.0 / 120);
  sine = FMA(sine, z, -1.0 / 6);
  cosine = FMA(cosine, z, 1.0 / 479001600);
  cosine = FMA(cosine, z, -1.0 / 3628800);
  cosine = FMA(cosine, z, 1.0 / 40320);
  cosine = FMA(cosine, z, -1.0 / 720);
  cosine = FMA(cosine, z, 1.0 / 24);
  cosine = FMA(cosine, z, -0.5);
  sine = FMA(sine * z, r, r);
  cosine = FMA(cosine, z, 1.0);
  return q & 1u ? (q & 2u ? sine : -sine) : q & 2u ? -cosine : cosine;
}

//// fill: an element a number; SET makes r of u, a and b
for (idx i = FIRST(n), end = LAST(n); i < end; i += STEP) {
  const u32 a = DRAW(i, 0), b = DRAW(i, 1);
  const f64 u = UNIFORM;
  f64 r;
  (void)u;
  SET
  OUT(i, r);
}

//// fill_blocks: 16 counters at a time, a lane of a vector each
const idx blocks = (n + 63) / 64;
for (idx block = FIRST(blocks), end = LAST(blocks); block < end; block += STEP) {
  const u64 from = offset + (u64)block * 16;
  u32 first[64];
  INDEPENDENT_MANY
  for (int l = 0; l < 16; ++l) {
    u32 c0, c1, c2, c3;
    PHILOX(from + l, 0)
    first[l * 4] = c0;
    first[l * 4 + 1] = c1;
    first[l * 4 + 2] = c2;
    first[l * 4 + 3] = c3;
  }
#if BOTH
  u32 second[64];
  INDEPENDENT_MANY
  for (int l = 0; l < 16; ++l) {
    u32 c0, c1, c2, c3;
    PHILOX(from + l, 1)
    second[l * 4] = c0;
    second[l * 4 + 1] = c1;
    second[l * 4 + 2] = c2;
    second[l * 4 + 3] = c3;
  }
#endif
  const idx most = n - block * 64 < 64 ? n - block * 64 : 64;
  INDEPENDENT_MANY
  for (idx l = 0; l < most; ++l) {
    const idx i = block * 64 + l;
    const u32 a = first[l];
#if BOTH
    const u32 b = second[l];
#endif
    const f64 u = UNIFORM;
    f64 r;
    (void)u;
    SET
    OUT(i, r);
  }
}

//// dropout: what is multiplied by 0 keeps a NaN, as on the CPU
const idx blocks = (n + 63) / 64;
for (idx i = FIRST(blocks), end = LAST(blocks); i < end; i += STEP) {
  u8 keep[64];
  const u64 from = offset + (u64)i * 16;
  INDEPENDENT_MANY
  for (int l = 0; l < 16; ++l) {
    u32 c0, c1, c2, c3;
    PHILOX(from + l, 0)
    keep[l * 4] = c0 < limit;
    keep[l * 4 + 1] = c1 < limit;
    keep[l * 4 + 2] = c2 < limit;
    keep[l * 4 + 3] = c3 < limit;
  }
  const idx most = n - i * 64 < 64 ? n - i * 64 : 64;
  INDEPENDENT_MANY
  for (idx l = 0; l < most; ++l) {
    const idx j = i * 64 + l;
    mask[j] = keep[l];
    const T v = IN(j);
    OUT(j, v * (keep[l] ? scale : 0));
  }
}

//// permutation: swaps from the last place down, by one item, since each depends on those before it
if (item == 0) {
  for (idx i = 0; i < n; ++i) out[i] = (T)i;
  for (idx i = n - 1; i > 0; --i) {
    const idx j = (idx)((((u64)DRAW(i, 0) << 32) | DRAW(i, 1)) % (u64)(i + 1));
    const T kept = out[i];
    out[i] = out[j];
    out[j] = kept;
  }
}

//// whole_numbers
const u64 seed = (u64)key, offset = (u64)first;
const u64 v = ((u64)DRAW(u, 0) << 32) | DRAW(u, 1);
out_set(u, (i64)((u64)from + v % (u64)range));

//// bernoulli
const u64 seed = (u64)key, offset = (u64)first;
const idx place = u;
out_set(u, (f64)DRAW(place, 0) * 2.3283064365386963e-10 < (f64)p(p_at) ? 1 : 0);

//// running_sums: of a row of chances
f64 all = 0;
int good = 1;
for (idx i = u * size; i < (u + 1) * size; ++i) {
  const f64 c = p(i);
  good &= c >= 0 && c < INFINITY;
  all += c;
  sum_set(i, all);
}
if (!good || all == 0) TELL(NO_CHANCES, 0, 0);

//// multinomial: with replacement, where a uniform number falls in the running sum
const u64 seed = (u64)key, offset = (u64)first;
const idx place = u, base = u / k * size;
const f64 v = (f64)DRAW(place, 0) * 2.3283064365386963e-10 * sum(base + size - 1);
idx lo = 0, hi = size - 1;
while (lo < hi) {
  const idx mid = (lo + hi) / 2;
  if (sum(base + mid) <= v) lo = mid + 1; else hi = mid;
}
out_set(u, lo);

//// multinomial_keys: counters are lent for the result's elements alone; what is beyond takes further sequences
const u64 seed = (u64)key, offset = (u64)first;
const idx place = u % most;
const f64 v = ((f64)DRAW(place, 2 + (u32)(u / most)) + 0.5) * 2.3283064365386963e-10;
const f64 c = p(u);
if (!(c >= 0 && c < INFINITY)) TELL(NO_CHANCES, 0, 0);
to_set(u, c > 0 ? c / -log(v) : -1.0);
