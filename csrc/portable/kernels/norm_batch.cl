// Texts of norm_batch.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. A channel's elements are
// `parts` stretches of n, STRIDE apart; by teams, whose texts are a body for each channel, AT(j) is where element j lies.
// SUM and SUM_BOTH are those of norms.cl.

//// scale_and_shift: of channel c
#if WEIGHTED
#define SCALE(c) scale *= WEIGHT(c);
#else
#define SCALE(c)
#endif
#if BIASED
#define SHIFT(c) shift = BIAS(c);
#else
#define SHIFT(c)
#endif
#define SCALE_AND_SHIFT(c) T scale = r, shift = 0; SCALE(c) SHIFT(c)

//// running: The statistics over all batches, after this one's mean m and squares q.
#if RUNNING_M
#define RUN_M(c) RUN_MEAN(c, (A)RUN_MEAN_IN(c) * (1 - momentum) + (A)m * momentum);
#else
#define RUN_M(c)
#endif
#if RUNNING_V
#define RUN_V(c) RUN_VAR(c, (A)RUN_VAR_IN(c) * (1 - momentum) + q / (count - 1) * momentum);
#else
#define RUN_V(c)
#endif

//// training: behind both; a channel is seen three times, for its mean, its variance and its result
for (idx c = FIRST(channels), end = LAST(channels); c < end; c += STEP) {
  const A count = (A)parts * (A)n;
  A s = 0, q = 0;
  for (idx part = 0; part < parts; ++part) {
    const idx base = c * first + part * step;
    SUM(s, IN(i), base + j * STRIDE)
  }
  const T m = (T)(s / count);
  for (idx part = 0; part < parts; ++part) {
    const idx base = c * first + part * step;
    SUM(q, (IN(i) - m) * (IN(i) - m), base + j * STRIDE)
  }
  const T r = (T)(1 / sqrt(q / count + eps));
  SAVE_MEAN(c, m);
  SAVE_RSTD(c, r);
  RUN_M(c)
  RUN_V(c)
  SCALE_AND_SHIFT(c)
  for (idx part = 0; part < parts; ++part) {
    const idx base = c * first + part * step;
    INDEPENDENT
    for (idx j = 0; j < n; ++j) OUT(base + j * STRIDE, (IN(base + j * STRIDE) - m) * scale + shift);
  }
}

//// training_teams
const idx c = u, n = parts * plane;
const A count = (A)n;
A s = 0, q = 0;
HOLDS(T)
SUM(s, IN(i), AT(j), HOLD(IN(i)))
const T m = (T)(s / count);
#define OFF (HELD(IN(AT(j))) - m)
SUM(q, OFF * OFF, 0, )
const T r = (T)(1 / sqrt(q / count + eps));
if (mine) {
  SCALE_AND_SHIFT(c)
  if (place == 0) {
    SAVE_MEAN(c, m);
    SAVE_RSTD(c, r);
    RUN_M(c)
    RUN_V(c)
  }
  EACH(j) { const idx i = AT(j); OUT(i, OFF * scale + shift); }
}

//// evaluation: With given statistics: a unit is a plane on CPUs, an element elsewhere.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx c = u / each % channels, base = u * per;
  const T r = (T)(1 / sqrt((A)RUN_VAR(c) + eps));
  SCALE_AND_SHIFT(c)
  const T m = RUN_MEAN(c);
  INDEPENDENT
  for (idx j = 0; j < per; ++j) OUT(base + j, (IN(base + j) - m) * scale + shift);
}

//// backward
for (idx c = FIRST(channels), end = LAST(channels); c < end; c += STEP) {
#if TRAINING
  const T m = MEAN(c), r = RSTD(c);
#else
  const T m = MEAN(c), r = (T)(1 / sqrt((A)RSTD(c) + eps));
#endif
  const A count = (A)parts * (A)n;
  A a = 0, b = 0;
#if SUMS
  for (idx part = 0; part < parts; ++part) {
    const idx base = c * first + part * step;
    SUM_BOTH(a, GRAD(i), b, GRAD(i) * (IN(i) - m), base + j * STRIDE)
  }
#endif
#if HAS_WEIGHT
  TO_WEIGHT(c, b * (A)r);
#endif
#if HAS_BIAS
  TO_BIAS(c, a);
#endif
#if HAS_OUT
  T scale = r;
#if WEIGHTED
  scale *= WEIGHT(c);
#endif
#if TRAINING
  const T c0 = (T)(a / count), c1 = (T)(b / count) * r * r;
#else
  const T c0 = 0, c1 = 0;
#endif
  for (idx part = 0; part < parts; ++part) {
    const idx base = c * first + part * step;
    INDEPENDENT
    for (idx j = 0; j < n; ++j) {
      const idx i = base + j * STRIDE;
#if TRAINING
      OUT(i, scale * (GRAD(i) - c0 - (IN(i) - m) * c1));
#else
      OUT(i, scale * GRAD(i));
#endif
    }
  }
#endif
}

//// backward_teams
const idx c = u, n = parts * plane;
#if TRAINING
const T m = MEAN(c), r = RSTD(c);
#else
const T m = MEAN(c), r = (T)(1 / sqrt((A)RSTD(c) + eps));
#endif
const A count = (A)n;
A a = 0, b = 0;
HOLDS(T)
#if SUMS
SUM_BOTH(a, GRAD(i), b, GRAD(i) * (IN(i) - m), AT(j), HOLD(GRAD(i)))
#elif KEPT
EACH(j) { HOLD(GRAD(AT(j))) }
#endif
if (mine) {
  if (place == 0) {
#if HAS_WEIGHT
    TO_WEIGHT(c, b * (A)r);
#endif
#if HAS_BIAS
    TO_BIAS(c, a);
#endif
  }
#if HAS_OUT
  T scale = r;
#if WEIGHTED
  scale *= WEIGHT(c);
#endif
  const T c0 = (T)(a / count), c1 = (T)(b / count) * r * r;
  EACH(j) {
    const idx i = AT(j);
#if TRAINING
    OUT(i, scale * (HELD(GRAD(i)) - c0 - (IN(i) - m) * c1));
#else
    OUT(i, scale * HELD(GRAD(i)));
#endif
  }
#endif
}
