// Texts of reduce.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. A is the accumulator's type;
// ROW and STRIDE are of the innermost dimension that is reduced. WALK_KEPT, WALK_REDUCED and WALK_ROWS, which add up
// offsets of an index in as many dimensions as there are, are generated.

//// rows: each sums up along the innermost stride, in lanes
const idx begin = FIRST(n), end = LAST(n);
#if FOUR_ROWS
/* Interleaved from four runs of neighbours. */
const idx whole = 4 * PAGE / ROW, apart = whole > 1 ? whole : 1;
idx four = begin;
for (; by_turns && four + 4 * apart <= end; four += 4 * apart)
  for (idx at = four; at < four + apart; ++at) {
    A all[4 * ABREAST];
    idx starts[4];
    for (int q = 0; q < 4; ++q) {
      A* const lanes = all + q * ABREAST;
      idx ib = 0, ob = 0;
      WALK_KEPT(at + q * apart)
      starts[q] = ib;
      const A first = IN(ib);
      A acc = START;
      for (int l = 0; l < ABREAST; ++l) lanes[l] = acc;
    }
    for (idx row = 0; row < R / ROW; ++row) {
      const idx to = ROW;
      idx in_row = 0, i = 0;
      WALK_ROWS(row, in_row)
      for (; i + 8 * ABREAST <= to; i += 8 * ABREAST)
        for (int q = 0; q < 4; ++q) {
          A* const lanes = all + q * ABREAST;
          const idx off = starts[q] + in_row;
          INDEPENDENT
          for (int l = 0; l < ABREAST; ++l) {
            A lane = lanes[l];
            UNROLL for (int k = 0; k < 8; ++k) {
              const A v = IN(off + (i + k * ABREAST + l) * STRIDE);
              lane = STEP_(lane, v);
            }
            lanes[l] = lane;
          }
        }
      for (int q = 0; q < 4; ++q) {
        A* const lanes = all + q * ABREAST;
        const idx off = starts[q] + in_row;
        idx j = i;
        for (; j + ABREAST <= to; j += ABREAST)
          for (int l = 0; l < ABREAST; ++l) { const A v = IN(off + (j + l) * STRIDE); lanes[l] = STEP_(lanes[l], v); }
        for (; j < to; ++j) { const A v = IN(off + j * STRIDE); lanes[0] = STEP_(lanes[0], v); }
      }
    }
    for (int q = 0; q < 4; ++q) {
      A* const lanes = all + q * ABREAST;
      const idx u = at + q * apart;
      idx ib = 0, ob = 0;
      WALK_KEPT(u)
      UNROLL for (int h = ABREAST / 2; h > 0; h /= 2)
        for (int l = 0; l < h; ++l) { const A w = lanes[l], v = lanes[h + l]; lanes[l] = MERGE_(w, v); }
      const A acc = lanes[0];
#if KEEPS
      out[u] = acc;
#else
      OUT(ob, (FINISH(acc)));
#endif
    }
  }
for (idx u = four; u < end; u += STEP) {
#else
for (idx u = begin; u < end; u += STEP) {
#endif
#if PART
  const idx o = u / parts, part = u % parts;
  const idx from_ = R * part / parts, to_ = R * (part + 1) / parts;
#else
  const idx o = u, from_ = 0, to_ = R;
#endif
  idx ib = 0, ob = 0;
  WALK_KEPT(o)
  A lanes[ABREAST];
  {
    const A first = IN(ib);
    A acc = START;
    for (int l = 0; l < ABREAST; ++l) lanes[l] = acc;
  }
#if PAGES
  A in_page[8 * ABREAST];
  for (int l = 0; l < 8 * ABREAST; ++l) in_page[l] = lanes[0];
#endif
  for (idx i = from_; i < to_;) {
    const idx row = ONE_ROW ? 0 : i / ROW, from = i - row * ROW, left = to_ - i;
    const idx to = ROW - from < left ? ROW : from + left;
    idx off = ib, j = from;
    WALK_ROWS(row, off)
#if PAGES
    for (; j + 8 * PAGE <= to; j += 8 * PAGE)
      for (int t = 0; t < 8 * STEPS; ++t) {
        const int page = by_turns ? t % 8 : t / STEPS, step = by_turns ? t / 8 : t % STEPS;
        const idx at = j + page * PAGE + step * 8 * ABREAST;
        A* const lanes = in_page + page * ABREAST;
        INDEPENDENT
        for (int l = 0; l < ABREAST; ++l) {
          A lane = lanes[l];
          UNROLL for (int k = 0; k < 8; ++k) {
            const A v = IN(off + (at + k * ABREAST + l) * STRIDE);
            lane = STEP_(lane, v);
          }
          lanes[l] = lane;
        }
      }
#endif
    /* A lane goes on in its register for 8 steps: an array of all is in memory between two of them. */
    for (; j + 8 * ABREAST <= to; j += 8 * ABREAST)
      INDEPENDENT
      for (int l = 0; l < ABREAST; ++l) {
        A lane = lanes[l];
        UNROLL for (int k = 0; k < 8; ++k) {
          const A v = IN(off + (j + k * ABREAST + l) * STRIDE);
          lane = STEP_(lane, v);
        }
        lanes[l] = lane;
      }
    for (; j + ABREAST <= to; j += ABREAST)
      for (int l = 0; l < ABREAST; ++l) { const A v = IN(off + (j + l) * STRIDE); lanes[l] = STEP_(lanes[l], v); }
    for (; j < to; ++j) { const A v = IN(off + j * STRIDE); lanes[0] = STEP_(lanes[0], v); }
    i += to - from;
  }
#if PAGES
  for (int page = 0; page < 8; ++page)
    for (int l = 0; l < ABREAST; ++l) {
      const A w = lanes[l], v = in_page[page * ABREAST + l];
      lanes[l] = MERGE_(w, v);
    }
#endif
  /* By halves: lane after lane, each addition would wait for the one before. */
  UNROLL for (int h = ABREAST / 2; h > 0; h /= 2)
    for (int l = 0; l < h; ++l) { const A w = lanes[l], v = lanes[h + l]; lanes[l] = MERGE_(w, v); }
  const A acc = lanes[0];
#if KEEPS
  out[u] = acc;
#else
  OUT(ob, (FINISH(acc)));
#endif
}

//// columns: WIDE neighbours go down together; N and O are the size and the result's stride of their dimension
for (idx u = FIRST(n), end = LAST(n); u < end; u += STEP) {
  const idx blocks = (N + WIDE - 1) / WIDE;
  const idx part = u % parts, block = u / parts % blocks, o = u / parts / blocks, k = block * WIDE;
  const idx wide = N - k < WIDE ? N - k : WIDE;
  idx ib = k, ob = k * O, from_ = R * part / parts, to_ = R * (part + 1) / parts;
  WALK_KEPT(o)
  A accs[WIDE];
  for (idx l = 0; l < wide; ++l) { const A first = IN(ib + l); accs[l] = START; }
  idx i = from_;
  for (; i + 4 <= to_; i += 4) {
    idx off0 = ib, off1 = ib, off2 = ib, off3 = ib;
    WALK_REDUCED(i, off0)
    WALK_REDUCED(i + 1, off1)
    WALK_REDUCED(i + 2, off2)
    WALK_REDUCED(i + 3, off3)
    INDEPENDENT
    for (idx l = 0; l < wide; ++l) {
      A acc = accs[l];
      { const A v = IN(off0 + l); acc = STEP_(acc, v); }
      { const A v = IN(off1 + l); acc = STEP_(acc, v); }
      { const A v = IN(off2 + l); acc = STEP_(acc, v); }
      { const A v = IN(off3 + l); acc = STEP_(acc, v); }
      accs[l] = acc;
    }
  }
  for (; i < to_; ++i) {
    idx off = ib;
    WALK_REDUCED(i, off)
    INDEPENDENT
    for (idx l = 0; l < wide; ++l) {
      A acc = accs[l];
      { const A v = IN(off + l); acc = STEP_(acc, v); }
      accs[l] = acc;
    }
  }
  for (idx l = 0; l < wide; ++l) {
    const A acc = accs[l];
#if PART
    out[(o * N + k + l) * parts + part] = acc;
#else
    OUT(ob + l * O, (FINISH(acc)));
#endif
  }
}

//// teams: the parts of an output lie `outputs` apart, so that neighbours stay neighbours
const idx outputs = n / parts, part = u / outputs, o = u - part * outputs;
const idx from_ = R * part / parts, to_ = R * (part + 1) / parts;
idx ib = 0, ob = 0;
WALK_KEPT(o)
const A first = IN(ib);
A acc = START, low = 0;
(void)first;
(void)low;
_Pragma("unroll 4") for (idx i = from_ + place; i < to_; i += TEAM) {
  idx off = ib;
  WALK_REDUCED(i, off)
  const A v = IN(off);
#if ADDS
  ADD(acc, low, STEP_((A)0, v))
#else
  acc = STEP_(acc, v);
#endif
}
#if ADDS
acc = TOTAL(acc, low);
#endif
acc = team_fold(cells, LANE, acc);
if (mine && place == 0) {
#if PART
  out[u] = acc;
#else
  OUT(ob, (FINISH(acc)));
#endif
}

//// search_teams: the place of the largest or the smallest
const idx outputs = n / parts, part = u / outputs, o = u - part * outputs;
const idx from_ = R * part / parts, to_ = R * (part + 1) / parts;
idx ib = 0, ob = 0;
WALK_KEPT(o)
A best = 0;
idx best_at = -1;
for (idx i = from_ + place < to_ ? from_ + place : from_; i < to_; i += TEAM) {
  idx off = ib;
  WALK_REDUCED(i, off)
  const A v = IN(off);
#if LAST_STAGE
  const idx at = in_at[off];
#else
  const idx at = i;
#endif
  if (best_at < 0 || BETTER(v, at, best, best_at)) { best = v; best_at = at; }
}
team_best(cells, ats, LANE, &best, &best_at);
if (mine && place == 0) {
#if PART
  index[u] = best_at;
  value[u] = best;
#else
  index[ob] = best_at;
#if HAS_VALUE
  VALUE(ob, best);
#endif
#endif
}

//// search: by one item for each result
for (idx u = FIRST(n), end = LAST(n); u < end; u += STEP) {
  idx ib = 0, ob = 0, best_at = 0;
  WALK_KEPT(u)
  A best = IN(ib);
  for (idx i = 1; i < R; ++i) {
    idx off = ib;
    WALK_REDUCED(i, off)
    const A v = IN(off);
    if (v BEYOND best || (v != v && best == best)) { best = v; best_at = i; }
  }
  index[ob] = best_at;
#if HAS_VALUE
  VALUE(ob, best);
#endif
}
