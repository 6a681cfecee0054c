// Texts of index.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// pick: rows of `in`; where the index is out of range all bits are set, which is NaN
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  idx at = index[u % count];
#if WRAPS
  if (at < 0) at += size;
#endif
  const int good = at >= 0 && at < size;
  if (!good) TELL(OUT_OF_RANGE, index[u % count], size);
  GLOBAL const T* from = in + (u / count * size + (good ? at : 0)) * inner;
  GLOBAL T* to = out + u * inner;
#if ONE
  to[0] = good ? from[0] : (T)-1;
#else
  INDEPENDENT
  for (idx i = 0; i < inner; ++i) to[i] = good ? from[i] : (T)-1;
#endif
}

//// sum_rows: 16 columns an item, in the order of the index
const idx from = u * 16, to = from + 16 < wide ? from + 16 : wide;
for (idx i = 0; i < count; ++i) {
  const idx r = index(i);
  if (r == padding) continue;
  if (r < 0 || r >= rows) { TELL(OUT_OF_RANGE, r, rows); continue; }
  for (idx c = from; c < to; ++c) out_set(r * wide + c, out(r * wide + c) + grad(i * wide + c));
}

//// arange
for (idx i = FIRST(n), end = LAST(n); i < end; i += STEP) {
  const T v = start + i * step;
  OUT(i * stride, v);
}
