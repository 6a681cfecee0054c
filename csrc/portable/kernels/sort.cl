// Texts of sort.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. BEFORE(a, b) is the order, T the
// elements' type.

//// order: NaN is last, and first where it is from the largest down.
#if DESCENDING
#define BEFORE(a, b) ((a) > (b) || ((a) != (a) && (b) == (b)))
#else
#define BEFORE(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#endif

//// runs: of 16, each sorted by insertion; BLOCK is the run's coordinate, STRIDE the elements', IN_BASE and ROW of the row
T k[16];
idx at[16];
const idx from = BLOCK * 16, many = size - from < 16 ? size - from : 16, ib = IN_BASE, ob = (ROW) * size + from;
for (idx i = 0; i < many; ++i) {
  const T v = x(ib + (from + i) * STRIDE);
  idx j = i;
  for (; j > 0 && BEFORE(v, k[j - 1]); --j) { k[j] = k[j - 1]; at[j] = at[j - 1]; }
  k[j] = v; at[j] = from + i;
}
for (idx i = 0; i < many; ++i) { key_set(ob + i, k[i]); place_set(ob + i, at[i]); }

//// merge: two runs of `width` by an item
const idx base = u / pairs * size, lo = u % pairs * 2 * width, mid = lo + width < size ? lo + width : size;
const idx hi = mid + width < size ? mid + width : size;
idx i = lo, j = mid;
for (idx o = lo; o < hi; ++o) {
  const int right = i >= mid || (j < hi && BEFORE(key(base + j), key(base + i)));
  const idx from = base + (right ? j++ : i++);
  to_set(base + o, key(from)); to_place_set(base + o, place(from));
}

//// merge_elements: an item an element, which looks for its place in the other run
const idx base = u / size * size, i = u - base, run = i / width;
const int right = run & 1;
const idx other = (right ? run - 1 : run + 1) * width;
const idx begin = other < size ? other : size, end = begin + width < size ? begin + width : size;
const T v = key(u);
idx lo = begin, hi = end;
while (lo < hi) {
  const idx mid = (lo + hi) / 2;
  const T w = key(base + mid);
  if (right ? !BEFORE(v, w) : BEFORE(w, v)) lo = mid + 1; else hi = mid;
}
const idx o = base + (right ? other : run * width) + (i - run * width) + (lo - begin);
to_set(o, v); to_place_set(o, place(u));

//// topk: k of a row, at most 64, kept in order by insertion
T best[64];
idx at[64];
idx had = 0;
for (idx i = 0; i < size; ++i) {
  const T v = x(x_at + i * STRIDE);
  if (had == k && !BEFORE(v, best[k - 1])) continue;
  idx j = had < k ? had : k - 1;
  for (; j > 0 && BEFORE(v, best[j - 1]); --j) { best[j] = best[j - 1]; at[j] = at[j - 1]; }
  best[j] = v; at[j] = i;
  if (had < k) ++had;
}
for (idx j = 0; j < k; ++j) {
  values_set(values_at + j * VALUES_STRIDE, best[j]); places_set(places_at + j * PLACES_STRIDE, at[j]);
}

//// pick: of a sorted row the k-th element, the median, that of what is no NaN, or the most frequent
idx good = size, j = k;
while (good > 0 && x(x_at + good - 1) != x(x_at + good - 1)) --good;
#if PICK == 1
j = good < size ? good : (size - 1) / 2;
#elif PICK == 2
j = good > 0 ? (good - 1) / 2 : 0;
#elif PICK == 3
idx most = 0, run = 0;
for (idx i = 0; i < size; ++i) {
  run = i > 0 && x(x_at + i) == x(x_at + i - 1) ? run + 1 : 1;
  if (run > most) { most = run; j = i; }
}
#endif
value_set(value_at, x(x_at + j));
#if WITH_PLACE
place_set(place_at, at(at_at + j));
#endif

//// best_ones: In a part of a row that a team holds: k times its best, each of which leaves its item. Parts' k are gone over again,
//// with their places in the row, until one part is left.
const idx row = u / parts, part = u - row * parts, lo = size * part / parts, n = size * (part + 1) / parts - lo;
OFFSETS
HOLDS(T)
u32 left = 0;
EACH(j) { HOLD(x(ib + (lo + j) * step)) left |= 1u << e_; }
for (idx r = 0; r < k; ++r) {
  T best = 0;
  idx at = -1;
  EACH(j) { if ((left >> e_ & 1u) && (at < 0 || BETTER(HELD(0), j, best, at))) { best = HELD(0); at = j; } }
  const idx own = at;
  team_best(cells, ats, LANE, &best, &at);
  if (own >= 0 && own == at) left &= ~(1u << (u32)(own / TEAM));
  if (mine && place == 0) {
    values_set(vb + r * values_step, best);
    places_set(pb + r * places_step, PLACE_OF(lo + at));
  }
}
