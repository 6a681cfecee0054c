// Texts of pointwise.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. Loops around BODY, which is what
// is done for element j of a row of INNER: operand 0 is read at AT0, and so on. OFFSETS declares o0, o1 .., where rows begin,
// and WALK adds to them what row `row` has.

//// dense
OFFSETS
const idx last = LAST(n);
INDEPENDENT_MANY
for (idx j = FIRST(n); j < last; ++j) {
BODY
}

//// passing: Into a tile that stays in the nearest cache, and from there to memory in whole lines; what is left at either end as
//// ever. Where `by_turns`, tiles interleave four pages.
OFFSETS
for (idx i = FIRST(n), last = LAST(n); i < last;) {
  const idx over = (idx)((u64)(p0 + i) & 63);
  if (over != 0 || last - i < 256) {
    const idx ahead = i + (64 - over) / (idx)sizeof(STORED), to = over != 0 && ahead < last ? ahead : last;
    INDEPENDENT_MANY
    for (idx j = i; j < to; ++j) {
BODY
    }
    i = to;
  } else {
    const idx pages = by_turns && last - i >= 4 * 1024 ? 4 : 1;
    for (idx t = 0; t < (pages == 1 ? 1 : 16); ++t) {
      const idx at = i + t % pages * 1024 + t / pages * 256;
      __attribute__((aligned(64))) STORED tile[256];
      GLOBAL f32* const whole = (GLOBAL f32*)(p0 + at);
      {
        STORED* const p0 = tile;
#undef AT0
#define AT0 (j - at)
        INDEPENDENT_MANY
        for (idx j = at; j < at + 256; ++j) {
BODY
        }
      }
      for (int v = 0; v < (int)sizeof tile / 64; ++v) PASSV(whole + 16 * v, ((const f32x16*)tile)[v]);
    }
    i += pages == 1 ? 256 : 4 * 1024;
  }
}
PASSED;

//// rows: an item takes parts of rows
for (idx i = FIRST(n), last = LAST(n); i < last;) {
  const idx row = i / INNER, from = i - row * INNER, left = last - i;
  const idx to = INNER - from < left ? INNER : from + left;
  OFFSETS
  WALK
  INDEPENDENT_MANY
  for (idx j = from; j < to; ++j) {
BODY
  }
  i += to - from;
}

//// tiles: ACROSS is the dimension in which the operands of TILES lie close: HEIGHT elements there by WIDTH of a row, read in whole
//// lines. ROW is where each operand's row of the tile begins.
#define WIDTH 64
#define FILL(tile, p, from, step) \
  for (idx j = left; j < right; ++j) { \
    const idx line_ = from + top + j * step; \
    if (rows == HEIGHT) { \
      for (int t = 0; t < HEIGHT; ++t) tile[(j - left) * HEIGHT + t] = p[line_ + t]; \
    } else { \
      for (int t = 0; t < rows; ++t) tile[(j - left) * HEIGHT + t] = p[line_ + t]; \
    } \
  }
const idx high = (ACROSS + HEIGHT - 1) / HEIGHT, wide = (INNER + WIDTH - 1) / WIDTH;
const idx tiles = n / (ACROSS * INNER) * wide * high;
for (idx u = FIRST(tiles), last = LAST(tiles); u < last; ++u) {
  const idx row = u / (wide * high), v = u - row * (wide * high), top = v % high * HEIGHT, left = v / high * WIDTH;
  const int rows = ACROSS - top < HEIGHT ? (int)(ACROSS - top) : HEIGHT;
  const idx right = INNER - left < WIDTH ? INNER : left + WIDTH;
  OFFSETS
  WALK
  TILES
  for (int t = 0; t < rows; ++t) {
    ROW
    INDEPENDENT
    for (idx j = left; j < right; ++j) {
BODY
    }
  }
}

//// elements: an item takes one after the other
for (idx i = FIRST(n), last = LAST(n); i < last; i += STEP) {
  const idx row = i / INNER, j = i - row * INNER;
  OFFSETS
  WALK
BODY
}
