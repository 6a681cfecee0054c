// Texts of scan.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

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
