// Texts of sort.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

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
