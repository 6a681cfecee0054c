// Texts of rows.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// teams: after TEAM, ITEMS, WIDTH, KEPT, ACROSS and COMPENSATED
#ifdef __OPENCL_VERSION__
#define IN_LOCAL __local
#else
#define IN_LOCAL
#endif
#define TEAMS (ITEMS / TEAM)
#if ACROSS
#define PLACE(lane) ((lane) / TEAMS)
#define WHICH(lane) ((lane) % TEAMS)
#define CELL(p, wide) ((p) * TEAMS + which)
#else
#define PLACE(lane) ((lane) % TEAM)
#define WHICH(lane) ((lane) / TEAM)
#define CELL(p, wide) (which * (wide) + (p))
#endif
#if KEPT
#define EACH(j) _Pragma("unroll") for (idx j = place, e_ = 0; e_ < KEPT; ++e_, j += TEAM) if (j < n)
#define HOLDS(type) type held_[KEPT];
#define HOLD(v) held_[e_] = (v);
#define HELD(w) held_[e_]
#else
#define EACH(j) for (idx j = place; j < n; j += TEAM)
#define HOLDS(type)
#define HOLD(v)
#define HELD(w) (w)
#endif
/* What a sum loses is exact (Knuth's two-sum); infinities make it NaN, and are not put right. */
#if COMPENSATED
#define ADD(s, low, v) { const A v_ = (v), t_ = s + v_, z_ = t_ - s; low += (s - (t_ - z_)) + (v_ - z_); s = t_; }
#define TOTAL(s, low) (low - low == 0 ? s + low : s)
#else
#define ADD(s, low, v) s += v;
#define TOTAL(s, low) (s)
#endif
/* Of a and b, what an item of a team has: the first WIDTH items fold what TEAM / WIDTH of them have, and all fold those.
   The next call writes `cells` behind this one's second barrier, and what is behind ITEMS behind its own first one. */
#if TEAM == 1
#define TEAM_FOLD(name, type, fold) \
  FUNCTION type name(IN_LOCAL type* cells, const idx lane, const type v) { return v; }
#else
#define TEAM_FOLD(name, type, fold) \
  FUNCTION type name(IN_LOCAL type* cells, const idx lane, const type v) { \
    const idx place = PLACE(lane), which = WHICH(lane); \
    type a = v; \
    cells[CELL(place, TEAM)] = v; \
    BARRIER; \
    if (place < WIDTH) { \
      for (idx k = place + WIDTH; k < TEAM; k += WIDTH) { const type b = cells[CELL(k, TEAM)]; a = fold; } \
      cells[ITEMS + CELL(place, WIDTH)] = a; \
    } \
    BARRIER; \
    a = cells[ITEMS + CELL(0, WIDTH)]; \
    for (idx k = 1; k < WIDTH; ++k) { const type b = cells[ITEMS + CELL(k, WIDTH)]; a = fold; } \
    return a; \
  }
#endif

//// best: of pairs of a value and its place, after BETTER and BEST_OF
FUNCTION void team_best(IN_LOCAL BEST_OF* cells, IN_LOCAL idx* ats, const idx lane, BEST_OF* v, idx* at) {
#if TEAM > 1
  const idx place = PLACE(lane), which = WHICH(lane);
  cells[CELL(place, TEAM)] = *v;
  ats[CELL(place, TEAM)] = *at;
  BARRIER;
  if (place < WIDTH) {
    for (idx k = place + WIDTH; k < TEAM; k += WIDTH) {
      const BEST_OF w = cells[CELL(k, TEAM)];
      const idx j = ats[CELL(k, TEAM)];
      if (j >= 0 && (*at < 0 || BETTER(w, j, *v, *at))) { *v = w; *at = j; }
    }
    cells[ITEMS + CELL(place, WIDTH)] = *v;
    ats[ITEMS + CELL(place, WIDTH)] = *at;
  }
  BARRIER;
  *v = cells[ITEMS + CELL(0, WIDTH)];
  *at = ats[ITEMS + CELL(0, WIDTH)];
  for (idx k = 1; k < WIDTH; ++k) {
    const BEST_OF w = cells[ITEMS + CELL(k, WIDTH)];
    const idx j = ats[ITEMS + CELL(k, WIDTH)];
    if (j >= 0 && (*at < 0 || BETTER(w, j, *v, *at))) { *v = w; *at = j; }
  }
#endif
}

//// each_row: A loop around BODY for each row u < TEAM_ROWS of this item's team. `mine` is false where a team has no row any
//// more: it goes along with the last one.
const idx place = PLACE(LANE), which = WHICH(LANE);
for (idx u_from = GROUP * TEAMS; u_from < TEAM_ROWS; u_from += GROUPS * TEAMS) {
  const int mine = u_from + which < TEAM_ROWS;
  const idx u = mine ? u_from + which : TEAM_ROWS - 1;
BODY
}
