// Texts of softmax.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// forward: A row has n elements, `stride` apart; 16 lanes keep a vector busy where they are neighbours.
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx base = (u / inner) * n * inner + u % inner;
  T most[ABREAST], sums[ABREAST], m, sum = 0;
  idx j = 0;
  for (int l = 0; l < ABREAST; ++l) { most[l] = IN(base); sums[l] = 0; }
  for (; j + ABREAST <= n; j += ABREAST)
    for (int l = 0; l < ABREAST; ++l) { const T v = IN(base + (j + l) * STRIDE); most[l] = MAXIMUM(v, most[l]); }
  for (; j < n; ++j) { const T v = IN(base + j * STRIDE); most[0] = MAXIMUM(v, most[0]); }
  m = most[0];
  for (int l = 1; l < ABREAST; ++l) m = MAXIMUM(m, most[l]);
  for (j = 0; j + ABREAST <= n; j += ABREAST)
    for (int l = 0; l < ABREAST; ++l) {
      const T v = EXP(IN(base + (j + l) * STRIDE) - m);
      sums[l] += v;
#if KEEPS
      out[base + (j + l) * STRIDE] = v;
#endif
    }
  for (; j < n; ++j) {
    const T v = EXP(IN(base + j * STRIDE) - m);
    sums[0] += v;
#if KEEPS
    out[base + j * STRIDE] = v;
#endif
  }
  for (int l = 0; l < ABREAST; ++l) sum += sums[l];
#if LOG
  sum = log(sum);
  INDEPENDENT
  for (j = 0; j < n; ++j) OUT(base + j * STRIDE, IN(base + j * STRIDE) - m - sum);
#elif KEEPS
  sum = 1 / sum;
  INDEPENDENT
  for (j = 0; j < n; ++j) out[base + j * STRIDE] *= sum;
#else
  sum = 1 / sum;
  INDEPENDENT
  for (j = 0; j < n; ++j) OUT(base + j * STRIDE, EXP(IN(base + j * STRIDE) - m) * sum);
#endif
}

//// vectors: The same of neighbouring float32 on CPUs, by vectors that no compiler has to find.
typedef f32x16 V;
#define LARGER(v, most) WHEREV((v > most) | (v != v), v, most)
FUNCTION V exp_down(V x) {
  const V z = FMAV_f32(x, ZERO_f32 + 1.44269504088896341f, ZERO_f32 + 12582912.0f), n = z - 12582912.0f;
  const V r = FMAV_f32(n, ZERO_f32 + 2.12194440e-4f, FMAV_f32(n, ZERO_f32 - 0.693359375f, x));
  V p = FMAV_f32(ZERO_f32 + 1.9875691500e-4f, r, ZERO_f32 + 1.3981999507e-3f);
  p = FMAV_f32(p, r, ZERO_f32 + 8.3334519073e-3f);
  p = FMAV_f32(p, r, ZERO_f32 + 4.1665795894e-2f);
  p = FMAV_f32(p, r, ZERO_f32 + 1.6666665459e-1f);
  p = FMAV_f32(p, r, ZERO_f32 + 5.0000001201e-1f);
  p = FMAV_f32(p, r * r, r) + 1.0f;
  return WHEREV(x < -87.0f, ZERO_f32, p * FLOATV((BITSV(z) << 23) + 0x3f800000u));
}

//// forward_vectors
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
#if WIDENED
  f32 row[WIDENED];
  const f32* from = row;
  f32* to = row;
  INDEPENDENT
  for (idx j = 0; j < n; ++j) row[j] = IN(u * n + j);
#else
  GLOBAL const f32* from = in + u * n;
  GLOBAL f32* to = out + u * n;
#endif
  const idx whole = n / 32 * 32;
  f32 lanes[16], m = from[0], sum = 0;
  V most = ZERO_f32 + m, more = most, part = ZERO_f32, rest = ZERO_f32;
  for (idx j = 0; j < whole; j += 32) {
    const V v = LOADV_f32(from + j), w = LOADV_f32(from + j + 16);
    most = LARGER(v, most);
    more = LARGER(w, more);
  }
  most = LARGER(more, most);
  STOREV_f32(lanes, most);
  for (int l = 0; l < 16; ++l) m = MAXIMUM(lanes[l], m);
  for (idx j = whole; j < n; ++j) m = MAXIMUM(from[j], m);
  for (idx j = 0; j < whole; j += 32) {
    const V v = exp_down(LOADV_f32(from + j) - m), w = exp_down(LOADV_f32(from + j + 16) - m);
    part += v;
    rest += w;
#if KEEPS
    STOREV_f32(to + j, v);
    STOREV_f32(to + j + 16, w);
#endif
  }
  part += rest;
  STOREV_f32(lanes, part);
  for (int l = 0; l < 16; ++l) sum += lanes[l];
  for (idx j = whole; j < n; ++j) {
    const f32 v = exp_down_f32(from[j] - m);
    sum += v;
#if KEEPS
    to[j] = v;
#endif
  }
#if LOG
  sum = log(sum);
  INDEPENDENT
  for (idx j = 0; j < n; ++j) OUT(u * n + j, from[j] - m - sum);
#else
  sum = 1 / sum;
  INDEPENDENT
  for (idx j = 0; j < n; ++j) OUT(u * n + j, to[j] * sum);
#endif
}

//// backward
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx base = (u / inner) * n * inner + u % inner;
  T sums[ABREAST], sum = 0;
  idx j = 0;
  for (int l = 0; l < ABREAST; ++l) sums[l] = 0;
  for (; j + ABREAST <= n; j += ABREAST)
    for (int l = 0; l < ABREAST; ++l) {
      const idx at = base + (j + l) * STRIDE;
#if LOG
      sums[l] += GRAD(at);
#else
      sums[l] += GRAD(at) * IN(at);
#endif
    }
  for (; j < n; ++j) {
    const idx at = base + j * STRIDE;
#if LOG
    sums[0] += GRAD(at);
#else
    sums[0] += GRAD(at) * IN(at);
#endif
  }
  for (int l = 0; l < ABREAST; ++l) sum += sums[l];
  INDEPENDENT
  for (j = 0; j < n; ++j) {
    const idx at = base + j * STRIDE;
#if LOG
    OUT(at, GRAD(at) - EXP(IN(at)) * sum);
#else
    OUT(at, IN(at) * (GRAD(at) - sum));
#endif
  }
}

//// forward_columns: WIDTH rows that lie side by side, all at once: their neighbours are those of a vector.
for (idx u = FIRST(units), end = LAST(units), blocks = (inner + WIDTH - 1) / WIDTH; u < end; u += STEP) {
  const idx from = u % blocks * WIDTH, base = u / blocks * n * inner + from;
  const int lanes = inner - from < WIDTH ? (int)(inner - from) : WIDTH;
  T most[WIDTH], sums[WIDTH];
  for (int l = 0; l < lanes; ++l) { most[l] = IN(base + l); sums[l] = 0; }
  for (idx j = 1, at = base + inner; j < n; ++j, at += inner) {
    INDEPENDENT
    for (int l = 0; l < lanes; ++l) { const T v = IN(at + l); most[l] = MAXIMUM(v, most[l]); }
  }
  for (idx j = 0, at = base; j < n; ++j, at += inner) {
    INDEPENDENT
    for (int l = 0; l < lanes; ++l) {
      const T v = EXP(IN(at + l) - most[l]);
      sums[l] += v;
#if KEEPS
      out[at + l] = v;
#endif
    }
  }
#if LOG
  for (int l = 0; l < lanes; ++l) sums[l] = log(sums[l]);
#else
  for (int l = 0; l < lanes; ++l) sums[l] = 1 / sums[l];
#endif
  for (idx j = 0, at = base; j < n; ++j, at += inner) {
    INDEPENDENT
    for (int l = 0; l < lanes; ++l) {
#if LOG
      OUT(at + l, IN(at + l) - most[l] - sums[l]);
#elif KEEPS
      out[at + l] *= sums[l];
#else
      OUT(at + l, EXP(IN(at + l) - most[l]) * sums[l]);
#endif
    }
  }
}

//// backward_columns
for (idx u = FIRST(units), end = LAST(units), blocks = (inner + WIDTH - 1) / WIDTH; u < end; u += STEP) {
  const idx from = u % blocks * WIDTH, base = u / blocks * n * inner + from;
  const int lanes = inner - from < WIDTH ? (int)(inner - from) : WIDTH;
  T sums[WIDTH];
  for (int l = 0; l < lanes; ++l) sums[l] = 0;
  for (idx j = 0, at = base; j < n; ++j, at += inner) {
    INDEPENDENT
    for (int l = 0; l < lanes; ++l) {
#if LOG
      sums[l] += GRAD(at + l);
#else
      sums[l] += GRAD(at + l) * IN(at + l);
#endif
    }
  }
  for (idx j = 0, at = base; j < n; ++j, at += inner) {
    INDEPENDENT
    for (int l = 0; l < lanes; ++l) {
#if LOG
      OUT(at + l, GRAD(at + l) - EXP(IN(at + l)) * sums[l]);
#else
      OUT(at + l, IN(at + l) * (GRAD(at + l) - sums[l]));
#endif
    }
  }
}

//// forward_teams: By teams, a body for each row. Rows that are not held are read twice: the maximum and the sum of what an item
//// has seen are corrected as the maximum grows (Milakov and Gimelshein, 2018).
const idx base = (u / inner) * n * inner + u % inner;
T most = -INFINITY, sum = 0, low = 0;
HOLDS(T)
#if KEPT
EACH(j) { const T v = IN(base + j * STRIDE); HOLD(v) most = MAXIMUM(v, most); }
most = team_max(cells, LANE, most);
EACH(j) {
  const T v = EXP(HELD(0) - most);
  sum += v;
#if !LOG
  HOLD(v)
#endif
}
#else
EACH(j) {
  const T v = IN(base + j * STRIDE);
  if (v > most) { const T factor = EXP(most - v); sum *= factor; low *= factor; most = v; }
  const T one = most == -INFINITY && v == v ? 0 : EXP(v - most);
  ADD(sum, low, one)
}
const T own = most;
most = team_max(cells, LANE, most);
sum = TOTAL(sum, low);
if (own != most) sum *= EXP(own - most);
#endif
sum = team_sum(cells, LANE, sum);
#if LOG
sum = log(sum);
if (mine) EACH(j) OUT(base + j * STRIDE, HELD(IN(base + j * STRIDE)) - most - sum);
#else
sum = 1 / sum;
if (mine) EACH(j) OUT(base + j * STRIDE, HELD(EXP(IN(base + j * STRIDE) - most)) * sum);
#endif

//// backward_teams
const idx base = (u / inner) * n * inner + u % inner;
T sum = 0, low = 0;
HOLDS(T)
EACH(j) {
  const idx at = base + j * STRIDE;
  const T g = GRAD(at);
  HOLD(g)
#if LOG
  ADD(sum, low, g)
#else
  ADD(sum, low, g * IN(at))
#endif
}
sum = team_sum(cells, LANE, TOTAL(sum, low));
if (mine) EACH(j) {
  const idx at = base + j * STRIDE;
  const T g = HELD(GRAD(at));
#if LOG
  OUT(at, g - EXP(IN(at)) * sum);
#else
  OUT(at, IN(at) * (g - sum));
#endif
}
