// Texts of norm_rows.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. Those of teams are a body
// for each row. SUM and SUM_BOTH are those of norms.cl.

//// forward
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx base = u * n;
  A s = 0, q = 0;
#if CENTERED
  SUM(s, IN(i), base + j)
#endif
  const T m = (T)(s / (A)n);
  SUM(q, (IN(i) - m) * (IN(i) - m), base + j)
  const T r = (T)(1 / sqrt(q / (A)n + eps));
#if CENTERED
  MEAN(u, m);
#endif
  RSTD(u, r);
#if GROUPED
  for (idx c = 0; c < n / plane; ++c) {
    const idx channel = u % groups * (n / plane) + c, from = base + c * plane;
    T scale = r, shift = 0;
    (void)channel;
#if WEIGHTED
    scale *= WEIGHT(channel);
#endif
#if BIASED
    shift = BIAS(channel);
#endif
    INDEPENDENT
    for (idx j = from; j < from + plane; ++j) OUT(j, (IN(j) - m) * scale + shift);
  }
#else
  INDEPENDENT
  for (idx j = 0; j < n; ++j) {
    T v = (IN(base + j) - m) * r;
#if WEIGHTED
    v *= WEIGHT(j);
#endif
#if BIASED
    v += BIAS(j);
#endif
    OUT(base + j, v);
  }
#endif
}

//// forward_teams
const idx base = u * n;
A s = 0, q = 0;
HOLDS(T)
#if CENTERED
SUM(s, IN(i), base + j, HOLD(IN(i)))
#elif KEPT
EACH(j) { HOLD(IN(base + j)) }
#endif
const T m = (T)(s / (A)n);
#define OFF (HELD(IN(base + j)) - m)
SUM(q, OFF * OFF, base + j, )
const T r = (T)(1 / sqrt(q / (A)n + eps));
if (mine) {
  if (place == 0) {
#if CENTERED
    MEAN(u, m);
#endif
    RSTD(u, r);
  }
  EACH(j) {
#if GROUPED
    const idx which_one = u % groups * (n / plane) + PLANE(j);
#else
    const idx which_one = j;
#endif
    T v = OFF * r;
    (void)which_one;
#if WEIGHTED
    v *= WEIGHT(which_one);
#endif
#if BIASED
    v += BIAS(which_one);
#endif
    OUT(base + j, v);
  }
}

//// weighted: The gradient of element i of a row, which is its j-th, times the weight.
#if WEIGHTED
#define GW(i, j) (GRAD(i) * WEIGHT(j))
#else
#define GW(i, j) GRAD(i)
#endif

//// input_gradient: behind `weighted`
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx base = u * n;
  const T m = CENTERED ? MEAN(u) : 0, r = RSTD(u);
  A a = 0, b = 0;
  SUM_BOTH(a, GW(i, j), b, GW(i, j) * (IN(i) - m), base + j)
  const T c0 = CENTERED ? (T)(a / (A)n) : 0, c1 = (T)(b / (A)n) * r * r;
  INDEPENDENT
  for (idx j = 0; j < n; ++j) OUT(base + j, r * (GW(base + j, j) - c0 - (IN(base + j) - m) * c1));
}

//// input_gradient_teams: behind `weighted`
const idx base = u * n;
const T m = CENTERED ? MEAN(u) : 0, r = RSTD(u);
A a = 0, b = 0;
HOLDS(T)
SUM_BOTH(a, g, b, g * (IN(i) - m), base + j, const T g = GW(i, j); HOLD(g))
const T c0 = CENTERED ? (T)(a / (A)n) : 0, c1 = (T)(b / (A)n) * r * r;
if (mine) EACH(j) OUT(base + j, r * (HELD(GW(base + j, j)) - c0 - (IN(base + j) - m) * c1));

//// columns: What rows add to the gradients of scale and shift: a block of columns, a part of the rows.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx block = u % blocks, part = u / blocks, j0 = block * WIDE, wide = n - j0 < WIDE ? n - j0 : WIDE;
  T scale[WIDE], shift[WIDE];
  for (int l = 0; l < WIDE; ++l) { scale[l] = 0; shift[l] = 0; }
  for (idx row = rows * part / parts, past = rows * (part + 1) / parts; row < past; ++row) {
    const idx at = row * n + j0;
    const T m = CENTERED ? MEAN(row) : 0, r = RSTD(row);
    INDEPENDENT
    for (idx l = 0; l < wide; ++l) {
      const T g = GRAD(at + l);
      scale[l] += g * (IN(at + l) - m) * r;
      shift[l] += g;
    }
  }
  for (idx l = 0; l < wide; ++l) {
    sums[part * n + j0 + l] = scale[l];
    sums[(parts + part) * n + j0 + l] = shift[l];
  }
}

//// columns_teams: The same: a team takes a column, or a part of one, beside its neighbours.
const idx part = u / width, column = u - part * width;
const idx from = rows * part / parts, n = rows * (part + 1) / parts - from;
A a = 0, b = 0;
SUM_BOTH(a, g * (IN(i) - (CENTERED ? MEAN(from + j) : 0)) * RSTD(from + j), b, g, (from + j) * width + column,
         const T g = GRAD(i);)
if (mine && place == 0) {
  sums[u] = a;
  sums[units + u] = b;
}

//// group_backward: a group's row is `count` elements, `n` of each channel
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx channels = count / n, first = u % groups * channels;
  const T m = MEAN(u), r = RSTD(u);
  A all_a = 0, all_b = 0;
  for (idx c = 0; c < channels; ++c) {
    const idx base = u * count + c * n;
    const A w = WEIGHTED ? (A)WEIGHT(first + c) : 1;
    A a = 0, b = 0;
    SUM_BOTH(a, GRAD(i), b, GRAD(i) * (IN(i) - m), base + j)
    sums[u * channels + c] = (T)(b * (A)r);
    sums[(rows + u) * channels + c] = (T)a;
    all_a += a * w;
    all_b += b * w;
  }
#if HAS_OUT
  const T c0 = (T)(all_a / (A)count), c1 = (T)(all_b / (A)count) * r * r;
  for (idx c = 0; c < channels; ++c) {
    const idx base = u * count + c * n;
    const T w = WEIGHTED ? WEIGHT(first + c) : 1;
    INDEPENDENT
    for (idx j = base; j < base + n; ++j) OUT(j, r * (GRAD(j) * w - c0 - (IN(j) - m) * c1));
  }
#endif
}

//// group_sums_teams: By teams in two passes: the sums of each channel ...
const idx base = u * n, group = u / channels;
const T m = MEAN(group), r = RSTD(group);
A a = 0, b = 0;
SUM_BOTH(a, GRAD(i), b, GRAD(i) * (IN(i) - m), base + j, )
if (mine && place == 0) {
  sums[u] = b * r;
  sums[rows + u] = a;
}

//// group_input_teams: ... then a group's result from those of its channels.
const idx first = u % groups * channels, base = u * count;
const T m = MEAN(u), r = RSTD(u);
A all_a = 0, all_b = 0;
{
  const idx n = channels;
  for (idx c = place; c < channels; c += TEAM) {
    const A w = WEIGHTED ? (A)WEIGHT(first + c) : 1;
    all_a += sums[rows * n + u * n + c] * w;
    all_b += sums[u * n + c] * w;
  }
  all_a = team_sum(cells, LANE, all_a);
  all_b = team_sum(cells, LANE, all_b);
}
const T c0 = all_a / (A)count, c1 = all_b / (A)count * r;
if (mine) EACH(j) {
  const T w = WEIGHTED ? WEIGHT(first + PLANE(j)) : 1;
  OUT(base + j, r * (GRAD(base + j) * w - c0 - (IN(base + j) - m) * c1));
}
