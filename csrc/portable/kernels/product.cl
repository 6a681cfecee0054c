// Texts of product.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. BASE, ROW and PLACE_OF_J of
// variances are generated: offsets of an index in as many dimensions as there are.

//// sum_of_products: DOT is the sum over k < depth of a(ab + k * AK) * b(bb + k * BK), as `sum` of type A: in eight lanes, or by a
//// team, where the last row's items go along.
#if TEAM
#define DOT \
  A sum = 0, low = 0; \
  (void)low; \
  for (idx k = place; k < depth; k += TEAM) ADD(sum, low, (A)a(ab + k * AK) * (A)b(bb + k * BK)) \
  sum = team_sum(cells, LANE, TOTAL(sum, low));
#else
#define DOT \
  A lanes[8] = {0, 0, 0, 0, 0, 0, 0, 0}, sum = 0; \
  idx k = 0; \
  for (; k + 8 <= depth; k += 8) \
    for (int l = 0; l < 8; ++l) lanes[l] += (A)a(ab + (k + l) * AK) * (A)b(bb + (k + l) * BK); \
  for (; k < depth; ++k) sum += (A)a(ab + k * AK) * (A)b(bb + k * BK); \
  for (int l = 0; l < 8; ++l) sum += lanes[l];
#endif

//// integers: A_BASE and B_BASE are where a row and a column begin
const idx ab = A_BASE, bb = B_BASE;
DOT
out_set(out_at, sum);

//// addmv: ROW is the row's number
const idx ab = ROW * a_s0, bb = 0;
DOT
sum = alpha * sum;
if (beta != 0) sum += beta * (A)c(ROW * c_step);
#if TEAM
if (mine && place == 0) out_set(u * out_s0, sum);
#else
out_set(out_at, sum);
#endif

//// dot: of a part
const idx from = size * u / parts, depth = size * (u + 1) / parts - from, ab = from * a_s0, bb = from * b_s0;
DOT
#if TEAM
if (mine && place == 0) sums_set(u, sum);
#else
sums_set(u, sum);
#endif

//// dot_sum
A sum = 0;
for (idx i = 0; i < parts; ++i) sum += sums(i);
out_set(0, sum);

//// addr
A v = alpha * (A)a(c0 * a_s0) * (A)b(c1 * b_s0);
if (beta != 0) v += beta * (A)c(c_at);
out_set(out_at, v);

//// glu_backward
const T s = (T)1 / ((T)1 + exp(-b(b_at))), g = g(g_at);
first_set(first_at, g * s);
second_set(second_at, g * a(a_at) * s * ((T)1 - s));

//// variance_parts_teams: the mean of a part, then the squares of what is left
idx base = 0;
BASE
const idx part = u / each, from = count * part / parts, n = count * (part + 1) / parts - from;
A sum = 0, rest = 0;
{
  A low = 0;
  (void)low;
  EACH(j) {
    idx at = base;
    PLACE_OF_J
    const A v = x(at);
    ADD(sum, low, v)
  }
  sum = team_sum(cells, LANE, TOTAL(sum, low));
}
const A mean = sum / (A)n;
{
  A low = 0;
  (void)low;
  EACH(j) {
    idx at = base;
    PLACE_OF_J
    const A v = x(at);
    ADD(rest, low, (v - mean) * (v - mean))
  }
  rest = team_sum(cells, LANE, TOTAL(rest, low));
}
if (mine && place == 0) { sums_set(2 * u, mean); sums_set(2 * u + 1, rest); }

//// variance_teams: parts are joined by their means
const A first = sums(OF(0));
A m = 0, rest = 0;
EACH(j) m += SIZE(j) * (sums(OF(j)) - first);
m = first + team_sum(cells, LANE, m) / (A)count;
EACH(j) { const A d = sums(OF(j)) - m; rest += sums(OF(j) + 1) + SIZE(j) * d * d; }
rest = team_sum(cells, LANE, rest);
const A below = (A)count - less;
A v = rest / (below > 0 ? below : (A)0);
#if ROOT
v = sqrt(v);
#endif
if (mine && place == 0) {
  out_set(u, v);
#if MEAN
  mean_set(u, m);
#endif
}

//// variance_parts: the same by one item
idx base = 0;
BASE
const idx from = count * (u % parts) / parts, to = count * (u % parts + 1) / parts;
A sum = 0, rest = 0;
for (idx i = from; i < to;) {
  idx off = base, j = i % inner;
  ROW
  const idx last = inner - j < to - i ? inner : j + to - i;
  i += last - j;
  for (; j < last; ++j) { const A v = x(off + j * (DENSE ? 1 : step)); sum += v; }
}
const A mean = sum / (A)(to - from);
for (idx i = from; i < to;) {
  idx off = base, j = i % inner;
  ROW
  const idx last = inner - j < to - i ? inner : j + to - i;
  i += last - j;
  for (; j < last; ++j) { const A v = x(off + j * (DENSE ? 1 : step)); rest += (v - mean) * (v - mean); }
}
sums_set(2 * u, mean); sums_set(2 * u + 1, rest);

//// variance
A m = 0, rest = 0;
idx had = 0;
for (idx i = 0; i < parts; ++i) {
  const idx n = count * (i + 1) / parts - count * i / parts;
  const A d = sums(2 * (u * parts + i)) - m;
  rest += sums(2 * (u * parts + i) + 1) + d * d * ((A)had * (A)n / (A)(had + n));
  m += d * ((A)n / (A)(had + n));
  had += n;
}
const A below = (A)count - less;
A v = rest / (below > 0 ? below : (A)0);
#if ROOT
v = sqrt(v);
#endif
out_set(u, v);
#if MEAN
mean_set(u, m);
#endif
