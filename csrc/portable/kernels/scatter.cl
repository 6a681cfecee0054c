// Texts of scatter.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. An item has a column of the
// result, or a part of one, PART of PARTS, and goes over all indices of the column: nobody else writes there. With ROWS one index is for
// all `row` columns that lie side by side, and an item has `wide` of them.

//// scatter
const idx lo = size * PART / PARTS, hi = size * (PART + 1) / PARTS, ob = OUT_BASE, ib = INDEX_BASE;
#if ROWS
const idx first = BLOCK * wide, past = first + wide < row ? first + wide : row;
#define COLUMN_OF(at) (at) + x_
#else
#define COLUMN_OF(at) (at)
#endif
#if FROM_SOURCE
const idx sb = SOURCE_BASE;
#define VALUE src(COLUMN_OF(sb + i * SOURCE_STRIDE))
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
#if ROWS
  INDEPENDENT
  for (idx x_ = first; x_ < past; ++x_)
#endif
  {
    const idx o = COLUMN_OF(ob + k * STRIDE);
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
