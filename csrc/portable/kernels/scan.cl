// Texts of scan.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. START is the accumulator of
// nothing, STEP_(acc, v) takes one more; PART of PARTS is a coordinate, ROW the number of the part.

//// log_add
FUNCTION A log_add(A a, A b) {
  const A m = MAXIMUM(a, b), d = a < b ? a - b : b - a;
  return m - m != m - m && a == b ? a : m + log1p(exp(d));
}

//// scan_tiles: The tile goes through the team's memory, so that neighbours read neighbours; an item adds up its four, each item what
//// stands before those, from sums of WIDTH items and of single ones. Every team of a group has the same number of tiles.
const idx row = u / parts, part = u - row * parts, lo = size * part / parts, n = size * (part + 1) / parts - lo;
const idx most = (size + parts - 1) / parts;
OFFSETS
A carry = START;
if (part > 0) carry = SUMS(row * parts + part - 1);
for (idx t0 = 0; t0 < most; t0 += 4 * TEAM) {
  A mine_[4];
  for (int k = 0; k < 4; ++k) {
    const idx at = k * TEAM + place, j = t0 + at;
    A v = START;
    if (j < n) v = (A)x(ib + (lo + j) * step_in);
    tile[TILE_AT(at)] = v;
  }
  BARRIER;
  mine_[0] = tile[TILE_AT(place * 4)];
  for (int k = 1; k < 4; ++k) { const A v = tile[TILE_AT(place * 4 + k)]; mine_[k] = STEP_(mine_[k - 1], v); }
  cells[which * TEAM + place] = mine_[3];
  BARRIER;
  if (place < WIDTH) {
    A acc = cells[which * TEAM + place * CHUNK];
    for (int k = 1; k < CHUNK; ++k) { const A v = cells[which * TEAM + place * CHUNK + k]; acc = STEP_(acc, v); }
    cells[ITEMS + which * WIDTH + place] = acc;
  }
  BARRIER;
  A acc = carry;
  for (idx k = 0; k < place / CHUNK; ++k) { const A v = cells[ITEMS + which * WIDTH + k]; acc = STEP_(acc, v); }
  for (idx k = place / CHUNK * CHUNK; k < place; ++k) { const A v = cells[which * TEAM + k]; acc = STEP_(acc, v); }
  for (idx k = 0; k < WIDTH; ++k) { const A v = cells[ITEMS + which * WIDTH + k]; carry = STEP_(carry, v); }
  for (int k = 0; k < 4; ++k) { const A v = mine_[k]; tile[TILE_AT(place * 4 + k)] = STEP_(acc, v); }
  BARRIER;
  for (int k = 0; k < 4; ++k) {
    const idx at = k * TEAM + place, j = t0 + at;
    if (mine && j < n) out_set(ob + (lo + j) * step_out, tile[TILE_AT(at)]);
  }
  BARRIER;
}

//// part_sums: of a part of a row, by a team
const idx row = u / parts, part = u - row * parts, lo = size * part / parts;
const idx n = size * (part + 1) / parts - lo;
OFFSETS
A acc = START;
EACH(j) { const A v = (A)x(ib + (lo + j) * step_in); acc = STEP_(acc, v); }
acc = team_fold(cells, LANE, acc);
if (mine && place == 0) sums_set(u, acc);

//// parts: of a part of a row, by an item
const idx lo = size * PART / PARTS, hi = size * (PART + 1) / PARTS, row = ROW;
const idx ib = IN_BASE;
A acc = START;
for (idx i = lo; i < hi; ++i) { const A v = (A)x(ib + i * IN_STRIDE); acc = STEP_(acc, v); }
sums_set(row + PART, acc);

//// between: what stands before each part of a row
A acc = START;
for (idx i = u * parts; i < (u + 1) * parts; ++i) { const A v = sums(i); sums_set(i, acc); acc = STEP_(acc, v); }

//// whole: the parts again, from what stands before them on
const idx lo = size * PART / PARTS, hi = size * (PART + 1) / PARTS, row = ROW;
const idx ib = IN_BASE, ob = OUT_BASE;
#if SEVERAL
A acc = sums(row + PART);
#else
A acc = START;
#endif
for (idx i = lo; i < hi; ++i) {
  const A v = (A)x(ib + i * IN_STRIDE); acc = STEP_(acc, v);
  out_set(ob + i * OUT_STRIDE, acc);
}

//// extreme: The last of equal ones, and NaN for good.
T best = x(x_at);
idx at = 0;
for (idx i = 0; i < size; ++i) {
  const T v = x(x_at + i * IN_STRIDE);
  if (v != v || (best == best && v BEYOND best)) { best = v; at = i; }
  values_set(values_at + i * VALUES_STRIDE, best);
  places_set(places_at + i * PLACES_STRIDE, at);
}
