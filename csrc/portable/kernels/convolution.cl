// Texts of convolution.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. S is what elements are
// kept as, T what is computed in. A gather's source is a plane of f? elements, of which the result's position t? reads
// m? * t? + o? + s? * tap, in each of the dimensions z, y and x; of taps there are kd, kh and kw.

//// tap: Element by element, for what has no vectors: position s, t, u of channel c, 0 outside of the image.
#define TAP(c, s, t, u) \
  ((s) >= 0 && (s) < fz && (t) >= 0 && (t) < fy && (u) >= 0 && (u) < fx ? FROM((c) * plane + ((s) * fy + (t)) * fx + (u)) : 0)

//// surrounded: A copy with zeros around it.
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  GLOBAL S* to = out + u * w;
  const idx y = u % h + ly, z = u / h % d + lz;
  const idx at = ((u / h / d * fz + z) * fy + y) * fx;
  for (idx x = 0; x < w; ++x) to[x] = 0;
  if (y < 0 || z < 0 || y >= fy || z >= fz) continue;
  const idx from = lx > 0 ? lx : 0, past = w + lx < fx ? w + lx : fx;
  for (idx x = from; x < past; ++x) to[x - lx] = in[at + x];
}

//// depthwise: behind `tap`
#define FROM(at) LD(from, at)
#if BIASED
#define BIAS LD(bias, group)
#else
#define BIAS 0
#endif
#if SLACK
#define ALL x < tx
#else
#define ALL x + LANES_OF_V <= tx
#endif
const idx plane = fz * fy * fx, taps = kd * kh * kw;
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
#ifdef IN_TURN
  const idx blocks = (ty + 3) / 4, y0 = u % blocks * 4, z = u / blocks % tz, at = u / blocks / tz, group = at % groups;
  const idx rows = ty - y0 < 4 ? ty - y0 : 4;
  GLOBAL const S* w = a + group * taps;
  GLOBAL const S* f0 = image + at * plane + ((z * mz + oz) * fy + y0 * my + oy) * fx + ox;
  GLOBAL const S* f1 = f0 + (rows > 1 ? my * fx : 0);
  GLOBAL const S* f2 = f1 + (rows > 2 ? my * fx : 0);
  GLOBAL const S* f3 = f2 + (rows > 3 ? my * fx : 0);
  GLOBAL S* to = out + ((at * tz + z) * ty + y0) * tx;
  const T more = BIAS;
  idx x = 0;
#if VECTORS
  for (; ALL; x += LANES_OF_V) {
    V c0 = ZERO, c1 = ZERO, c2 = ZERO, c3 = ZERO;
    for (idx e = 0, tap = 0; e < kd; ++e)
      for (idx r = 0; r < kh; ++r) {
        idx o = (e * sz * fy + r * sy) * fx + x;
        for (idx q = 0; q < kw; ++q, ++tap, o += sx) {
          const T v = LD(w, tap);
          c0 = FMAV(v, LOADV(f0 + o), c0); c1 = FMAV(v, LOADV(f1 + o), c1);
          c2 = FMAV(v, LOADV(f2 + o), c2); c3 = FMAV(v, LOADV(f3 + o), c3);
        }
      }
    T tile[4 * LANES_OF_V];
    STORETILE(tile, c0); STORETILE(tile + LANES_OF_V, c1); STORETILE(tile + 2 * LANES_OF_V, c2);
    STORETILE(tile + 3 * LANES_OF_V, c3);
    const int left = tx - x < LANES_OF_V ? (int)(tx - x) : LANES_OF_V;
    for (int i = 0; i < rows; ++i)
      for (int l = 0; l < left; ++l) ST(to, i * tx + x + l, tile[i * LANES_OF_V + l] + more);
  }
#endif
  for (; x < tx; ++x) {
    T c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    for (idx e = 0, tap = 0; e < kd; ++e)
      for (idx r = 0; r < kh; ++r) {
        idx o = (e * sz * fy + r * sy) * fx + x * mx;
        for (idx q = 0; q < kw; ++q, ++tap, o += sx) {
          const T v = LD(w, tap);
          c0 = FMA(v, (T)LD(f0, o), c0); c1 = FMA(v, (T)LD(f1, o), c1);
          c2 = FMA(v, (T)LD(f2, o), c2); c3 = FMA(v, (T)LD(f3, o), c3);
        }
      }
    ST(to, x, c0 + more);
    if (rows > 1) ST(to, tx + x, c1 + more);
    if (rows > 2) ST(to, 2 * tx + x, c2 + more);
    if (rows > 3) ST(to, 3 * tx + x, c3 + more);
  }
#else
  const u32 spots = (u32)(tz * ty * tx), n = (u32)(u % spots);
  const idx at = u / spots, group = at % groups;
  GLOBAL const S* from = image + at * plane;
  const i32 z = (i32)(n / (u32)(ty * tx) * mz + oz), y = (i32)(n / (u32)tx % (u32)ty * my + oy);
  const i32 x = (i32)(n % (u32)tx * mx + ox);
  T v = 0;
  for (i32 e = 0, tap = 0; e < (i32)kd; ++e)
    for (i32 r = 0; r < (i32)kh; ++r)
      for (i32 q = 0; q < (i32)kw; ++q, ++tap)
        v = FMA((T)LD(a, group * taps + tap), (T)(TAP(0, z + e * (i32)sz, y + r * (i32)sy, x + q * (i32)sx)), v);
  v += BIAS;
  ST(out, u, v);
#endif
}

//// gathered: What a product of gemm.cl is made of, behind `tap`: weights times what is gathered from the image.
#define BEGIN \
  const idx plane = fz * fy * fx, channels = K / (kd * kh * kw), group = batch % groups; \
  const idx a_base = group * M * K, o_base = batch * M * N; \
  GLOBAL const AT* from = image + batch * channels * plane;
#define FROM(at) LDA(from, at)
/* Divided in 32 bits, as positions of one image are: 64 take GPUs several times as long. */
#define B_AT \
  TAP((u32)k / (u32)(kd * kh * kw), \
      (i32)((u32)n / (u32)(ty * tx) * mz + oz + (u32)k / (u32)(kh * kw) % (u32)kd * sz), \
      (i32)((u32)n / (u32)tx % (u32)ty * my + oy + (u32)k / (u32)kw % (u32)kh * sy), \
      (i32)((u32)n % (u32)tx * mx + ox + (u32)k % (u32)kw * sx))
/* Positions side by side in the image are copied a vector at a time, a tail as one more where there is memory behind it:
   what that writes too much is written again after it. Others are gathered. */
#define PANEL \
  i32 at0[WIDE]; \
  int run[WIDE + 1], runs = 0; \
  for (int l = 0; l < WIDE; ++l) { \
    const idx n = l < wide ? n0 + l : n0; \
    at0[l] = (i32)(((n / (ty * tx) * mz + oz) * fy + n / tx % ty * my + oy) * fx + n % tx * mx + ox); \
    if (l < wide && (l == 0 || at0[l] != at0[l - 1] + 1)) run[runs++] = l; \
  } \
  run[runs] = (int)wide;
#if SLACK
#define COPY_TAIL if (l < past) STOREV(to + l, LOADV(g + l));
#else
#define COPY_TAIL for (; l < past; ++l) to[l] = g[l];
#endif
#if VECTORS
#define COPY_RUNS_ELSE \
  if (runs <= WIDE / 4) { \
    for (int j = 0; j < runs; ++j) { \
      const int past = run[j + 1]; \
      int l = run[j]; \
      GLOBAL const T* g = f + at0[l] - l; \
      for (; l + LANES_OF_V <= past; l += LANES_OF_V) STOREV(to + l, LOADV(g + l)); \
      COPY_TAIL \
    } \
  } else
#else
#define COPY_RUNS_ELSE
#endif
#define PACK \
  idx c = k0 / (kd * kh * kw), e = k0 / (kh * kw) % kd, r = k0 / kw % kh, q = k0 % kw; \
  for (idx k = k0; k < k1; ++k) { \
    GLOBAL T* to = pack + (k - k0) * WIDE; \
    GLOBAL const AT* f = from + c * plane + (e * sz * fy + r * sy) * fx + q * sx; \
    COPY_RUNS_ELSE for (int l = 0; l < WIDE; ++l) to[l] = LDA(f, at0[l]); \
    if (++q == kw) { q = 0; if (++r == kh) { r = 0; if (++e == kd) { e = 0; ++c; } } } \
  }
#if BIASED
#define PUT v = v + LDA(bias, group * M + m); FINISH(o_base + m * N + n)
#else
#define PUT FINISH(o_base + m * N + n)
#endif
#define AT_BATCH (batch / groups)
#define AT_ROW (group * M + m)
#define AT_COLUMN n

//// swapped: Of weights [groups, m, n, taps] those that a phase reads, as [groups, n, m, its taps]. Loops over taps are
//// constants: most have 9, 4 or 1 of them.
for (idx u = FIRST(count), end = LAST(count); u < end; u += STEP) {
#ifdef IN_TURN
  const idx g = u / blocks, o0 = 0, o1 = m;
#else
  const idx g = u / m / blocks, o0 = u / blocks % m, o1 = o0 + 1;
#endif
  const idx c0 = u % blocks * side, c1 = n - c0 < side ? n : c0 + side;
  for (idx o = o0; o < o1; ++o)
    for (idx c = c0; c < c1; ++c) {
      GLOBAL const S* from = in + ((g * m + o) * n + c) * (KD * KH * KW) + (fd * KH + fh) * KW + fw;
      GLOBAL S* to = out + ((g * n + c) * m + o) * (TD * TH * TW);
      for (int e = 0; e < TD; ++e)
        for (int r = 0; r < TH; ++r)
          UNROLL for (int q = 0; q < TW; ++q) to[(e * TH + r) * TW + q] = from[(e * ad * KH + r * ah) * KW + q * aw];
    }
}

//// filled: The bias, or 0, everywhere.
for (idx u = FIRST(planes), end = LAST(planes); u < end; u += STEP) {
#if BIASED
  const S v = bias[u % channels];
#else
  const S v = 0;
#endif
  for (idx x = 0; x < size; ++x) out[u * size + x] = v;
}

//// interleaved: Rows of what each phase gave: of the first from `in` on, of each next one `apart` elements on.
#define PART(size, at, step) (((size) - (at) + (step) - 1) / (step))
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx y = u % h, z = u / h % d, plane = u / h / d, pz = z % sz, py = y % sy;
  const idx down = (plane * PART(d, pz, sz) + z / sz) * PART(h, py, sy) + y / sy;
  for (idx px = 0; px < nx; ++px) {
    const idx wide = PART(w, px, sx);
    GLOBAL const S* from = in + ((pz * ny + py) * nx + px) * apart + down * wide;
    GLOBAL S* to = out + u * w + px;
    if (sx == 2) {
      INDEPENDENT for (idx x = 0; x < wide; ++x) to[x * 2] = from[x];
    } else {
      for (idx x = 0; x < wide; ++x) to[x * sx] = from[x];
    }
  }
}

//// channels_last: The image with its channels last and zeros around it, by squares of 16 channels and positions.
T square[256];
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  GLOBAL T* to = out + u * w * channels;
  const idx y = u % h + ly, z = u / h % d + lz, plane = fz * fy * fx;
  GLOBAL const S* from = in + u / h / d * channels * plane + (z * fy + y) * fx + lx;
  const int blank = y < 0 || z < 0 || y >= fy || z >= fz;
  const idx low = lx < 0 ? -lx : 0, high = fx - lx < w ? fx - lx : w;
  const idx x0 = low < w ? low : w, x1 = blank || high < x0 ? x0 : high;
  for (idx i = 0; i < x0 * channels; ++i) to[i] = 0;
  for (idx i = x1 * channels; i < w * channels; ++i) to[i] = 0;
  for (idx c = 0; c < channels; c += 16)
    for (idx x = x0; x < x1; x += 16) {
      const int cs = channels - c < 16 ? (int)(channels - c) : 16, xs = x1 - x < 16 ? (int)(x1 - x) : 16;
      for (int j = 0; j < cs; ++j) {
        GLOBAL const S* f = from + (c + j) * plane + x;
        for (int i = 0; i < xs; ++i) square[i * 16 + j] = LD(f, i);
      }
      for (int i = 0; i < xs; ++i)
        for (int j = 0; j < cs; ++j) to[(x + i) * channels + c + j] = square[i * 16 + j];
    }
}

//// rows_in_tiles: The rows of the result's gradient in tiles, which lie side by side.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx k0 = u % blocks * together, k1 = spots - k0 < together ? spots : k0 + together;
  const idx tile = u / blocks % tiles, image = u / blocks / tiles;
  for (idx i = 0; i < TILE; ++i) {
    const idx m = tile * TILE + i;
    GLOBAL const S* from = in + (image * M + (m < M ? m : 0)) * spots;
    for (idx k = k0; k < k1; ++k) out[((image * tiles + tile) * spots + k) * TILE + i] = LD(from, k);
  }
}

//// gradient_in_panels: From `channels_last` and `rows_in_tiles`, by tiles in registers (gemm.cl).
#if TOGETHER
#define TAP n / channels
#define CHANNEL n % channels
#else
#define TAP line % runs
#define CHANNEL n
#endif
#if PARTS
#define PUT_AT(at, v) out[at] = v;
#else
#define PUT_AT(at, v) ST(out, at, v);
#endif
const idx longest = (images + shares - 1) / shares, spots = tz * ty * tx;
for (idx c0 = 0; c0 < longest; c0 += chunk)
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx line = u % lines, panel = u / lines % panels, down = u / lines / panels % tiles;
  const idx group = u / lines / panels / tiles % groups, share = u / lines / panels / tiles / groups;
  const idx i0 = images * share / shares + c0, past = images * (share + 1) / shares;
  const idx i1 = past - i0 < chunk ? past : i0 + chunk;
  if (i0 >= i1) continue;
  const idx q0 = line % runs, r = line / runs % kh, e = line / runs / kh;
  const idx n0 = panel * WIDE, wide = run - n0 < WIDE ? run - n0 : WIDE;
  GLOBAL T* kept = acc + u * (TILE * WIDE);
  TILE_ZERO
  if (c0 > 0) { TILE_TAKE }
  for (idx i = i0; i < i1; ++i)
    for (idx z = 0; z < tz; ++z)
      for (idx y = 0; y < ty; ++y) {
        GLOBAL const T* row = a + (((i * groups + group) * tiles + down) * spots + (z * ty + y) * tx) * TILE;
        GLOBAL const T* b = image + ((((i * groups + group) * fz + z * mz + e * sz) * fy + y * my + r * sy) * fx +
                                     q0 * sx) * channels + n0;
        for (idx x = 0; x < tx; ++x, row += TILE, b += mx * channels) { TILE_STEP }
      }
  if (i1 < past) {
    TILE_KEEP
  } else {
    T tile[TILE * WIDE];
    const idx rows = M - down * TILE < TILE ? M - down * TILE : TILE;
    TILE_OUT
    idx at[WIDE];
    for (idx l = 0; l < wide; ++l) { const idx n = n0 + l; at[l] = (CHANNEL * kd + e) * (kh * kw) + r * kw + TAP; }
    for (idx i = 0; i < rows; ++i) {
      const idx first = ((share * groups + group) * M + down * TILE + i) * channels * (kd * kh * kw);
      for (idx l = 0; l < wide; ++l) { const T v = tile[i * WIDE + l]; PUT_AT(first + at[l], v) }
    }
  }
}

//// depthwise_gradient: ZEROS, VECTOR_STEP, STEP_OF_ONE and SUMS are of as many sums as a line of taps has.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx r = u % kh, e = u / kh % kd, group = u / kh / kd % groups, share = u / kh / kd / groups;
  const idx to = ((share * groups + group) * kd + e) * kh * kw + r * kw;
  T lane[LANES_OF_V];
  ZEROS
  for (idx i = images * share / shares; i < images * (share + 1) / shares; ++i)
    for (idx z = 0; z < tz; ++z)
      for (idx y = 0; y < ty; ++y) {
        GLOBAL const S* rows = a + (((i * groups + group) * tz + z) * ty + y) * tx;
        GLOBAL const S* f =
            image + (((i * groups + group) * fz + z * mz + oz + e * sz) * fy + y * my + oy + r * sy) * fx + ox;
        idx x = 0;
#if VECTORS
        for (; x + LANES_OF_V <= tx; x += LANES_OF_V) { const V v = LOADV(rows + x); VECTOR_STEP }
#endif
        for (; x < tx; ++x) { const T v = LD(rows, x); STEP_OF_ONE }
      }
  (void)lane;
  SUMS
}

//// gradient_in_squares: What a product of gemm.cl is made of, behind `tap`: k goes over all positions of all images.
#define BEGIN \
  const idx plane = fz * fy * fx, group = batch; \
  const u32 spots = (u32)(tz * ty * tx), taps = (u32)(kd * kh * kw);
#define A_AT LDA(a, (((u32)k / spots * groups + group) * M + m) * spots + (u32)k % spots)
#define FROM(at) LDA(image, at)
#define B_AT \
  TAP(((u32)k / spots * groups + group) * channels + (u32)n / taps, \
      (i32)((u32)k % spots / (u32)(ty * tx) * mz + oz + (u32)n % taps / (u32)(kh * kw) * sz), \
      (i32)((u32)k % spots / (u32)tx % (u32)ty * my + oy + (u32)n / (u32)kw % (u32)kh * sy), \
      (i32)((u32)k % (u32)tx * mx + ox + (u32)n % (u32)kw * sx))
#define PUT ST(out, (group * M + m) * N + n, v);
