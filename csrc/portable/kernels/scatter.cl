// Texts of scatter.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. An item has a column of the
// result, or a part of one, PART of PARTS, and goes over all indices of the column: nobody else writes there.

//// scatter
const idx lo = size * PART / PARTS, hi = size * (PART + 1) / PARTS, ob = OUT_BASE, ib = INDEX_BASE;
#if FROM_SOURCE
const idx sb = SOURCE_BASE;
#define VALUE src(sb + i * SOURCE_STRIDE)
#else
#define VALUE fixed
#endif
#if SCALED
#define SCALE * alpha
#else
#define SCALE
#endif
#if COUNTED
const idx nb = (COLUMN) * size;
for (idx k = lo; k < hi; ++k) counts_set(nb + k, INCLUDES_SELF);
#endif
for (idx i = 0; i < count; ++i) {
#if WRAPS
  const idx given = index(ib + i * INDEX_STRIDE), k = given < 0 ? given + size : given;
#else
  const idx given = index(ib + i * INDEX_STRIDE), k = given;
#endif
#if SKIPS
  if (k == skip) continue;
#endif
  if (k < 0 || k >= size) { TELL(OUT_OF_RANGE, given, size); continue; }
  if (k < lo || k >= hi) continue;
  const idx o = ob + k * STRIDE;
  const A v = VALUE SCALE;
#if SETS
  out_set(o, v);
#elif COUNTED
  const A old = out(o);
  const i32 had = counts(nb + k);
  out_set(o, had == 0 ? v : (A)(COMBINED));
  counts_set(nb + k, had + 1);
#else
  const A old = out(o);
  out_set(o, (COMBINED));
#endif
}
#if MEAN
for (idx k = lo; k < hi; ++k) {
  const i32 had = counts(nb + k);
  if (had < 2) continue;
  const idx o = ob + k * STRIDE;
  const A old = out(o);
#if FLOATS
  out_set(o, old / (A)had);
#else
  A v = (A)(old / (A)had);
  if (old < (A)0 && v * (A)had != old) v -= (A)1;
  out_set(o, v);
#endif
}
#endif

//// rows: The same where one index is for all `row` columns that lie side by side: `wide` of them at once.
const idx lo = size * PART / PARTS, hi = size * (PART + 1) / PARTS, ob = OUT_BASE, ib = INDEX_BASE;
const idx first = BLOCK * wide, past = first + wide < row ? first + wide : row;
#if FROM_SOURCE
const idx sb = SOURCE_BASE;
#define VALUE src(sb + i * SOURCE_STRIDE + x_)
#else
#define VALUE fixed
#endif
#if SCALED
#define SCALE * alpha
#else
#define SCALE
#endif
for (idx i = 0; i < count; ++i) {
#if WRAPS
  const idx given = index(ib + i * INDEX_STRIDE), k = given < 0 ? given + size : given;
#else
  const idx given = index(ib + i * INDEX_STRIDE), k = given;
#endif
#if SKIPS
  if (k == skip) continue;
#endif
  if (k < 0 || k >= size) { TELL(OUT_OF_RANGE, given, size); continue; }
  if (k < lo || k >= hi) continue;
  const idx o = ob + k * STRIDE;
  INDEPENDENT
  for (idx x_ = first; x_ < past; ++x_) {
    const A v = VALUE SCALE;
#if SETS
    out_set(o + x_, v);
#else
    const A old = out(o + x_);
    out_set(o + x_, (COMBINED));
#endif
  }
}

//// accumulate: index_put where indices may name a place again. `at` has the numbers of all `count` places within the indexed
//// dimensions. COLUMNS, PLACES and VALUES are the following of each dimension.
#define COLUMN(c_, out_, v_) ob += c_ * out_; vb += c_ * v_;
#define DIGIT(to, number, n, stride) to += number % n * stride; number /= n;
#define FIRST_DIGIT(to, number, stride) to += number * stride;
idx ob = 0, vb = 0;
COLUMNS
const idx lo = places * PART / PARTS, hi = places * (PART + 1) / PARTS;
for (idx b = 0; b < count; ++b) {
  idx k = at(b), o = ob, w = vb, rest = b;
  if (k < lo || k >= hi) continue;
  PLACES
  VALUES
#if FLAGS
  out_set(o, out(o) | v(w));
#else
  out_set(o, out(o) + v(w));
#endif
}
