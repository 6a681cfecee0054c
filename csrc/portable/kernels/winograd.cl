// Texts of winograd.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. A result's places lie in
// tiles of 2 x 2, `across` of them in a row and `down` in a column of an image; a tile reads 4 x 4 places of each channel.
// Both sides are transformed to 16 matrices, whose products are transformed back. What is transformed is kept as the
// products read it:
//   tiles    [16][channels][WIDE], for a panel of WIDE tiles
//   weights  [16][blocks][channels][TILE], for a group of `blocks` blocks of TILE rows
// Of each 16 one begins a cache line later than a power of 2 would have it, lest all need the same places of the first cache.

//// shuffles: Of vectors a and b side by side what is at even places, and at odd ones; both interleaved, the lower half of that
//// and the higher. For compilers that have none.
#ifndef EVENS
FUNCTION V shuffled(V a, V b, int first, int step, int apart) {
  T from[2 * LANES_OF_V], to[LANES_OF_V];
  STORETILE(from, a);
  STORETILE(from + LANES_OF_V, b);
  for (int i = 0; i < LANES_OF_V; ++i) to[i] = from[apart ? first + i / 2 + i % 2 * LANES_OF_V : first + i * step];
  return LOADV(to);
}
#define EVENS(a, b) shuffled(a, b, 0, 2, 0)
#define ODDS(a, b) shuffled(a, b, 1, 2, 0)
#define LOWS(a, b) shuffled(a, b, 0, 0, 1)
#define HIGHS(a, b) shuffled(a, b, LANES_OF_V / 2, 0, 1)
#endif

//// pieces
#ifndef FINISH
#define FINISH(at) out[at] = v;
#endif
#ifndef FINISH_ROW
#define FINISH_ROW
#endif
#define ROOM (2 * WIDE + 4 * LANES_OF_V)
#define OF_TILES (channels * WIDE + 16)
#define OF_WEIGHTS (blocks * channels * TILE + 16)
#define OF_SUMS (blocks * (TILE * WIDE) + 16)

/* Tiles of a panel that lie side by side in an image. */
typedef struct { idx image, y, x, first, count; } Run;

FUNCTION int runs_of(Run* runs, idx n0, idx wide, idx across, idx down) {
  int count = 0;
  for (idx l = 0; l < wide; ++count) {
    const idx n = n0 + l, x = n % across;
    runs[count].image = n / across / down, runs[count].y = n / across % down, runs[count].x = x;
    runs[count].first = l, runs[count].count = across - x < wide - l ? across - x : wide - l;
    l += runs[count].count;
  }
  return count;
}

/* The channels c0 .. c1 - 1 of a panel. Lanes that are no tile are 0. */
FUNCTION void transform_tiles(GLOBAL const T* in, idx size, GLOBAL T* to, const Run* runs, int n_runs, idx wide, idx c0,
                              idx c1, idx channels, idx h, idx w, idx oy, idx ox) {
  T rows[4 * ROOM];
  for (int i = 0; i < 4 * ROOM; ++i) rows[i] = 0;
  for (int k = 0; k < n_runs; ++k) {
    const idx count = runs[k].count, y0 = runs[k].y * 2 + oy, x0 = runs[k].x * 2 + ox, width = count * 2 + 2;
    const idx low = x0 >= 0 ? 0 : -x0 < width ? -x0 : width, past = w - x0 < width ? w - x0 : width;
    const idx high = past < low ? low : past;
    for (idx c = c0; c < c1; ++c) {
      for (int r = 0; r < 4; ++r) {
        T* row = rows + r * ROOM;
        const idx y = y0 + r, end = y < 0 || y >= h ? low : high;
        idx x = 0;
        for (; x < low; ++x) row[x] = 0;
        const idx at = ((runs[k].image * channels + c) * h + y) * w + x0;
        for (; x + LANES_OF_V <= end; x += LANES_OF_V) STORETILE(row + x, LOADV(in + at + x));
        if (x < end && at + x + LANES_OF_V <= size) {
          STORETILE(row + x, LOADV(in + at + x));
          x = end;
        }
        for (; x < end; ++x) row[x] = in[at + x];
        for (; x < width; ++x) row[x] = 0;
      }
      GLOBAL T* v = to + c * WIDE + runs[k].first;
      for (idx i = 0; i < count; i += LANES_OF_V) {
        const T* row = rows + 2 * i;
        const idx left = WIDE - runs[k].first - i;
        V a[4], b[4], e[4], f[4];
        UNROLL for (int j = 0; j < 4; ++j) {
          const T* from = row + (j < 2 ? 0 : 2) + j % 2 * LANES_OF_V;
          const V d0 = LOADV(from), d1 = LOADV(from + ROOM), d2 = LOADV(from + 2 * ROOM), d3 = LOADV(from + 3 * ROOM);
          a[j] = d0 - d2, b[j] = d1 + d2, e[j] = d2 - d1, f[j] = d1 - d3;
        }
#define ACROSS(s, xi) { \
    const V d0 = EVENS(s[0], s[1]), d1 = ODDS(s[0], s[1]), d2 = EVENS(s[2], s[3]), d3 = ODDS(s[2], s[3]); \
    const V v0 = d0 - d2, v1 = d1 + d2, v2 = d2 - d1, v3 = d1 - d3; \
    PUT_TILES(v + i + (xi) * OF_TILES, v0) PUT_TILES(v + i + (xi + 1) * OF_TILES, v1) \
    PUT_TILES(v + i + (xi + 2) * OF_TILES, v2) PUT_TILES(v + i + (xi + 3) * OF_TILES, v3) \
  }
        if (left >= LANES_OF_V) {
          /* Past this run: lanes of the next, which comes later. */
#define PUT_TILES(p, v) STOREV(p, v);
          ACROSS(a, 0) ACROSS(b, 4) ACROSS(e, 8) ACROSS(f, 12)
#undef PUT_TILES
        } else {
          T lane[LANES_OF_V];
#define PUT_TILES(p, v) STORETILE(lane, v); for (int l = 0; l < left; ++l) (p)[l] = lane[l];
          ACROSS(a, 0) ACROSS(b, 4) ACROSS(e, 8) ACROSS(f, 12)
#undef PUT_TILES
        }
      }
    }
  }
  if (wide == WIDE) return;
  for (int xi = 0; xi < 16; ++xi)
    for (idx c = c0; c < c1; ++c)
      for (idx l = wide; l < WIDE; ++l) to[xi * OF_TILES + c * WIDE + l] = 0;
}

/* The blocks b0 .. b1 - 1 of a group, whose rows are `m0` and on. Rows from M on are 0. A vector's lanes are rows of a block,
   then channels: LANES_OF_V channels are so many vectors as a block has rows. */
FUNCTION void transform_weights(GLOBAL const T* weight, GLOBAL T* to, idx m0, idx b0, idx b1, idx blocks, idx M,
                                idx channels, idx apart_m, idx apart_c, idx turned) {
#define LANES_OF_TAP (TILE * LANES_OF_V)
  T taps[9 * LANES_OF_TAP], lane[LANES_OF_V];
  for (int i = 0; i < 9 * LANES_OF_TAP; ++i) taps[i] = 0;
  for (idx b = b0; b < b1; ++b)
    for (idx c0 = 0; c0 < channels; c0 += LANES_OF_V) {
      const idx some = channels - c0 < LANES_OF_V ? channels - c0 : LANES_OF_V, m = m0 + b * TILE;
      for (int r = 0; r < TILE; ++r) {
        const int there = m + r < M;
        GLOBAL const T* g = weight + (there ? m + r : 0) * apart_m + c0 * apart_c;
        for (idx c = 0; c < some; ++c, g += apart_c)
          UNROLL for (int t = 0; t < 9; ++t) taps[t * LANES_OF_TAP + c * TILE + r] = there ? g[t] : 0;
      }
      GLOBAL T* u = to + (b * channels + c0) * TILE;
      for (idx at = 0; at < some * TILE; at += LANES_OF_V, u += LANES_OF_V) {
        const idx left = some * TILE - at;
        V a[3], d[3], e[3], f[3];
        UNROLL for (int j = 0; j < 3; ++j) {
          const V g0 = LOADV(taps + at + (turned ? 8 - j : j) * LANES_OF_TAP);
          const V g1 = LOADV(taps + at + (turned ? 5 - j : 3 + j) * LANES_OF_TAP);
          const V g2 = LOADV(taps + at + (turned ? 2 - j : 6 + j) * LANES_OF_TAP);
          const V s = (g0 + g2) * (T)0.5, h = g1 * (T)0.5;
          a[j] = g0, d[j] = s + h, e[j] = s - h, f[j] = g2;
        }
#define ACROSS_WEIGHTS(g, xi) { \
    const V s = (g[0] + g[2]) * (T)0.5, h = g[1] * (T)0.5, u1 = s + h, u2 = s - h; \
    PUT_WEIGHTS(u + (xi) * OF_WEIGHTS, g[0]) PUT_WEIGHTS(u + (xi + 1) * OF_WEIGHTS, u1) \
    PUT_WEIGHTS(u + (xi + 2) * OF_WEIGHTS, u2) PUT_WEIGHTS(u + (xi + 3) * OF_WEIGHTS, g[2]) \
  }
        if (left >= LANES_OF_V) {
#define PUT_WEIGHTS(p, v) STOREV(p, v);
          ACROSS_WEIGHTS(a, 0) ACROSS_WEIGHTS(d, 4) ACROSS_WEIGHTS(e, 8) ACROSS_WEIGHTS(f, 12)
#undef PUT_WEIGHTS
        } else {
#define PUT_WEIGHTS(p, v) STORETILE(lane, v); for (int l = 0; l < left; ++l) (p)[l] = lane[l];
          ACROSS_WEIGHTS(a, 0) ACROSS_WEIGHTS(d, 4) ACROSS_WEIGHTS(e, 8) ACROSS_WEIGHTS(f, 12)
#undef PUT_WEIGHTS
        }
      }
    }
}

/* One element by its own window, in the order of a product. */
FUNCTION T direct(GLOBAL const T* in, GLOBAL const T* weight, idx image, idx m, idx y, idx x, idx channels, idx h, idx w,
                  idx apart_m, idx apart_c, idx turned) {
  T v = 0;
  for (idx c = 0; c < channels; ++c)
    for (int t = 0; t < 9; ++t) {
      const idx s = y + t / 3, q = x + t % 3;
      const int inside = s >= 0 && s < h && q >= 0 && q < w;
      const T d = inside ? in[((image * channels + c) * h + s) * w + q] : (T)0;
      v = FMA(weight[m * apart_m + c * apart_c + (turned ? 8 - t : t)], d, v);
    }
  return v;
}

//// tiles: All panels, `some` channels of one at a time.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  Run runs[WIDE];
  const idx panel = u / parts, c0 = u % parts * some, c1 = channels - c0 < some ? channels : c0 + some;
  const idx n0 = panel * WIDE, wide = N - n0 < WIDE ? N - n0 : WIDE;
  const int count = runs_of(runs, n0, wide, across, down);
  transform_tiles(in, size, to + panel * 16 * OF_TILES, runs, count, wide, c0, c1, channels, h, w, oy, ox);
}

//// weights: All groups, a block of rows at a time.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx group = u / blocks, b = u % blocks;
  transform_weights(weight, to + group * 16 * OF_WEIGHTS, group * blocks * TILE, b, b + 1, blocks, M, channels, apart_m,
                    apart_c, turned);
}

//// products: What is larger is transformed here, a piece at a time, which stays in the second cache for all that it meets;
//// the other, `ahead`, was transformed before. Items take pieces as they get done, and count them in the workspace's first
//// word.
for (idx u = taken ? 0 : FIRST(units), end = taken ? 0 : LAST(units);; ++u) {
  if (taken) u = COUNT(packs);
  if (u >= (taken ? units : end)) break;
  GLOBAL T* sums = packs + HEAD + item * slot;
  GLOBAL T* piece = sums + 16 * OF_SUMS;
  Run runs[WIDE];
#if TILES_AHEAD
  const idx g0 = u / parts, g1 = g0 + 1, p0 = panels * (u % parts) / parts, p1 = panels * (u % parts + 1) / parts;
  transform_weights(weight, piece, g0 * blocks * TILE, 0, blocks, blocks, M, channels, apart_m, apart_c, turned);
#else
  const idx p0 = u / parts, p1 = p0 + 1, g0 = groups * (u % parts) / parts, g1 = groups * (u % parts + 1) / parts;
#endif
  for (idx p = p0; p < p1; ++p) {
    const idx n0 = p * WIDE, wide = N - n0 < WIDE ? N - n0 : WIDE;
    const int n_runs = runs_of(runs, n0, wide, across, down);
#if !TILES_AHEAD
    transform_tiles(in, size, piece, runs, n_runs, wide, 0, channels, channels, h, w, oy, ox);
#endif
    for (idx g = g0; g < g1; ++g) {
      const idx m0 = g * blocks * TILE, rows = M - m0 < blocks * TILE ? M - m0 : blocks * TILE;
      for (int xi = 0; xi < 16; ++xi) {
#if TILES_AHEAD
        GLOBAL const T* from_u = piece + xi * OF_WEIGHTS;
        GLOBAL const T* from_v = ahead + (p * 16 + xi) * OF_TILES;
#else
        GLOBAL const T* from_u = ahead + (g * 16 + xi) * OF_WEIGHTS;
        GLOBAL const T* from_v = piece + xi * OF_TILES;
#endif
        for (idx i = 0; i * TILE < rows; ++i) {
          GLOBAL const T* row = from_u + i * channels * TILE;
          GLOBAL const T* b = from_v;
          GLOBAL T* kept = sums + xi * OF_SUMS + i * (TILE * WIDE);
          TILE_ZERO
          for (idx c = 0; c < channels; ++c, row += TILE, b += WIDE) { TILE_STEP }
          TILE_KEEP
        }
      }
      for (idx i = 0; i < rows; ++i) {
        T line[4 * WIDE], lane[LANES_OF_V], bad = 0;
        V wrong = ZERO;
        GLOBAL const T* s = sums + i * WIDE;
        for (idx l = 0; l < wide; l += LANES_OF_V) {
          V y0[4], y1[4];
          UNROLL for (int j = 0; j < 4; ++j) {
            const V s0 = LOADV(s + l + j * OF_SUMS), s1 = LOADV(s + l + (4 + j) * OF_SUMS);
            const V s2 = LOADV(s + l + (8 + j) * OF_SUMS), s3 = LOADV(s + l + (12 + j) * OF_SUMS);
            y0[j] = s0 + s1 + s2, y1[j] = s1 - s2 - s3;
          }
          const V a = y0[0] + y0[1] + y0[2], b = y0[1] - y0[2] - y0[3];
          const V e = y1[0] + y1[1] + y1[2], f = y1[1] - y1[2] - y1[3];
          wrong = FMAV((T)0, a, wrong), wrong = FMAV((T)0, b, wrong);
          wrong = FMAV((T)0, e, wrong), wrong = FMAV((T)0, f, wrong);
          STORETILE(line + 2 * l, LOWS(a, b)); STORETILE(line + 2 * l + LANES_OF_V, HIGHS(a, b));
          STORETILE(line + 2 * WIDE + 2 * l, LOWS(e, f));
          STORETILE(line + 2 * WIDE + 2 * l + LANES_OF_V, HIGHS(e, f));
        }
        STORETILE(lane, wrong);
        for (int l = 0; l < LANES_OF_V; ++l) bad += lane[l];
        const idx m = m0 + i;
#if BIASED
        const T more = bias[m];
#endif
#define AT_ROW m
        FINISH_ROW
        for (int k = 0; k < n_runs; ++k) {
          const idx x0 = runs[k].x * 2, left = tx - x0 < runs[k].count * 2 ? tx - x0 : runs[k].count * 2;
          for (int r = 0; r < 2; ++r) {
            const idx y = runs[k].y * 2 + r;
            if (y >= ty) break;
            T* from = line + r * (2 * WIDE) + runs[k].first * 2;
            /* Infinity less infinity is no number, and a window need not add up to one: what is not finite is summed up as
               elsewhere. */
            if (bad != 0)
              for (idx x = 0; x < left; ++x)
                if (from[x] * (T)NOUGHT != 0)
                  from[x] = direct(in, weight, runs[k].image, m, y + oy, x0 + x + ox, channels, h, w, apart_m, apart_c,
                                   turned);
            const idx at_row = (runs[k].image * M + m) * (ty * tx), first = y * tx + x0;
#define AT_BATCH runs[k].image
#define AT_COLUMN (first + x)
#if BIASED
            INDEPENDENT for (idx x = 0; x < left; ++x) { const T v = from[x] + more; FINISH(at_row + AT_COLUMN) }
#else
            INDEPENDENT for (idx x = 0; x < left; ++x) { const T v = from[x]; FINISH(at_row + AT_COLUMN) }
#endif
          }
        }
      }
    }
  }
}
