// Texts of gather.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. Bodies for each place of the
// result: c0, c1 .. are its coordinates. COORDINATE and STRIDE are of the dimension that a call is about.

//// gather
const idx k = index(index_at);
if (k < 0 || k >= size) { TELL(OUT_OF_RANGE, k, size); out_set(out_at, -1); continue; }
out_set(out_at, x(x_at + (k - COORDINATE) * STRIDE));

//// take
const idx k = index(index_at);
if (k < -size || k >= size) { TELL(OUT_OF_RANGE, k, size); out_set(out_at, -1); continue; }
out_set(out_at, x(k < 0 ? k + size : k));

//// roll: EACH is ROLLED of each dimension
#define ROLLED(d) s = c##d - by##d; from += (s < 0 ? s + n##d : s) * x_s##d;
idx from = 0, s;
EACH
out_set(out_at, x(from));

//// pad: EACH is FRONT of each dimension in front of those that are padded, then PADDED of each of these.
#define FRONT(d) from += c##d * x_s##d;
#if REFLECT
#define PADDED(d) \
  { \
    idx i = c##d - pl##d; \
    if (i < 0) i = -i; \
    if (i >= m##d) i = 2 * (m##d - 1) - i; \
    from += i * x_s##d; \
  }
#else
#define PADDED(d) { idx i = c##d - pl##d; i = i < 0 ? 0 : i >= m##d ? m##d - 1 : i; from += i * x_s##d; }
#endif
idx from = 0;
EACH
out_set(out_at, x(from));

//// pad_backward: The sum of what came from here. FRONTS is FRONT of each dimension in front; EACH is EACH_OF the first padded
//// dimension, from `from`, around that of the next, from what this one calls f and its number, around `sum += x(..);`.
#define FRONT(d) from += c##d * x_s##d;
#if REFLECT
/* Itself, mirrored at the beginning, mirrored at the end. */
#define EACH_OF(d, before, body) \
  for (int t##d = 0; t##d < 3; ++t##d) { \
    const idx i##d = t##d == 0 ? c##d + pl##d : t##d == 1 ? pl##d - c##d : pl##d + 2 * (n##d - 1) - c##d; \
    if (i##d < 0 || i##d >= m##d || (t##d == 1 && c##d == 0) || (t##d == 2 && c##d == n##d - 1)) continue; \
    const idx f##d = before + i##d * x_s##d; \
    body \
  }
#else
#define EACH_OF(d, before, body) \
  for (idx i##d = c##d == 0 ? 0 : c##d + pl##d; i##d <= (c##d == n##d - 1 ? m##d - 1 : c##d + pl##d); ++i##d) { \
    if (i##d < 0 || i##d >= m##d) continue; \
    const idx f##d = before + i##d * x_s##d; \
    body \
  }
#endif
idx from = 0;
FRONTS
T sum = 0;
EACH
out_set(out_at, sum);

//// unfold_backward: BASE is the offset of all other dimensions, WITHIN the stride within a window.
T sum = 0;
const idx base = BASE;
for (idx w = COORDINATE < size ? 0 : (COORDINATE - size) / step + 1; w < windows && w * step <= COORDINATE; ++w)
  sum += x(base + w * STRIDE + (COORDINATE - w * step) * WITHIN);
out_set(out_at, sum);

//// spaced: from both ends, as torch does, so that the last is the end
const T v = n0 == 1 ? first : (c0 < n0 / 2 ? first + step * (T)c0 : last - step * (T)(n0 - 1 - c0));
#if POWERS
out_set(out_at, pow(base, v));
#else
out_set(out_at, v);
#endif

//// trace
A sum = 0;
for (idx i = 0; i < n; ++i) sum += x(i * stride);
out_set(0, sum);

//// indexed: `then` with k, element `at` of `index`, counted from the front; where that is not within <index>_n it is told, and
//// `good` is 0.
#define INDEXED(index, at, then) \
  { \
    const idx given = index(at), k = given < 0 ? given + index##_n : given; \
    if (k < 0 || k >= index##_n) { TELL(OUT_OF_RANGE, given, index##_n); good = 0; } \
    then \
  }
