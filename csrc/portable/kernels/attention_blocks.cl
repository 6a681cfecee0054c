// Texts of attention_blocks.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// blocks: The result; or, BACKWARD, the gradient of the queries; or, KEYS too, those of keys and values.
LOCAL T piece[PIECE];
#if BACKWARD
LOCAL T slopes[BLOCK * PAD];
#endif
#if KEYS || !BACKWARD
LOCAL T weights[BLOCK * PAD];
#endif
/* to[i * DR + n] += the sum over e0 + e < BLOCK of `factor`, of row i and that line, times the line's elements: 16 lines at
   once pass through the group's memory, and `of_line` is element d of one. */
#define ADD_LINES(to, factor, of_line) \
  for (idx e0 = 0; e0 < BLOCK; e0 += 16) { \
    for (idx e = LANE; e < 16 * DP; e += ITEMS) { \
      const idx d = e % DP, line = e0 + e / DP; \
      piece[e] = of_line; \
    } \
    BARRIER; \
    for (int e = 0; e < 16; ++e) { \
      T x[R]; \
      for (int i = 0; i < R; ++i) x[i] = factor; \
      for (int n = 0; n < DR; ++n) { \
        const T y = piece[e * DP + lx + n * 16]; \
        for (int i = 0; i < R; ++i) to[i * DR + n] = FMA(x[i], y, to[i * DR + n]); \
      } \
    } \
    BARRIER; \
  }
const idx lx = LANE % 16, ly = LANE / 16;
#if KEYS
const idx blocks = (S + BLOCK - 1) / BLOCK, heads = H / shared;
for (idx u = GROUP; u < units; u += GROUPS) {
  const idx j0 = u % blocks * BLOCK, g = u / blocks % heads, b = u / blocks / heads;
  T dk[R * DR], dv[R * DR];
  for (int e = 0; e < R * DR; ++e) { dk[e] = 0; dv[e] = 0; }
  for (idx h = g * shared; h < (g + 1) * shared; ++h)
  for (idx i0 = CAUSAL ? j0 : 0; i0 < L; i0 += BLOCK) {
#else
const idx blocks = (L + BLOCK - 1) / BLOCK;
for (idx u = GROUP; u < units; u += GROUPS) {
  const idx i0 = (blocks - 1 - u % blocks) * BLOCK, h = u / blocks % H, b = u / blocks / H, g = h / shared;
  const idx past = CAUSAL && i0 + BLOCK < S ? i0 + BLOCK : S;
#if BACKWARD
  T o[R * DR];
  for (int e = 0; e < R * DR; ++e) o[e] = 0;
#else
  T o[R * DR], most[R], sums[R];
  for (int e = 0; e < R * DR; ++e) o[e] = 0;
  for (int i = 0; i < R; ++i) { most[i] = -INFINITY; sums[i] = 0; }
#endif
  for (idx j0 = 0; j0 < past; j0 += BLOCK) {
#endif
    /* s[R * R], scores of rows i0 + ly + 16 * i and columns j0 + lx + 16 * j, and on the way back dp, of the gradient
       with the values. What is no score is -INFINITY. */
    T s[R * R];
#if BACKWARD
    T dp[R * R];
    for (int e = 0; e < R * R; ++e) dp[e] = 0;
#endif
    for (int e = 0; e < R * R; ++e) s[e] = 0;
    for (idx d0 = 0; d0 < D; d0 += 16) {
      for (idx e = LANE; e < 16 * BLOCK; e += ITEMS) {
        const idx r = e / 16, depth = e % 16, d = d0 + depth, row = i0 + r, column = j0 + r, to = depth * PAD + r;
        const int in_row = row < L && d < D, in_column = column < S && d < D;
        piece[to] = in_row ? scale * LD(q, Q_AT(b, h, row) + d) : 0;
        piece[16 * PAD + to] = in_column ? LD(k, K_AT(b, g, column) + d) : 0;
#if BACKWARD
        piece[32 * PAD + to] = in_row ? LD(grad, G_AT(b, h, row) + d * GRAD_STEP) : 0;
        piece[48 * PAD + to] = in_column ? LD(v, V_AT(b, g, column) + d) : 0;
#endif
      }
      BARRIER;
      for (int depth = 0; depth < 16; ++depth) {
        IN_LOCAL const T* from = piece + depth * PAD;
        T x[R], y[R];
        for (int i = 0; i < R; ++i) { x[i] = from[ly + i * 16]; y[i] = from[16 * PAD + lx + i * 16]; }
        for (int i = 0; i < R; ++i)
          for (int j = 0; j < R; ++j) s[i * R + j] = FMA(x[i], y[j], s[i * R + j]);
#if BACKWARD
        for (int i = 0; i < R; ++i) { x[i] = from[32 * PAD + ly + i * 16]; y[i] = from[48 * PAD + lx + i * 16]; }
        for (int i = 0; i < R; ++i)
          for (int j = 0; j < R; ++j) dp[i * R + j] = FMA(x[i], y[j], dp[i * R + j]);
#endif
      }
      BARRIER;
    }
    for (int i = 0; i < R; ++i)
      for (int j = 0; j < R; ++j) {
        const idx row = i0 + ly + i * 16, column = j0 + lx + j * 16;
        const int there = row < L && column < S && (!CAUSAL || column <= row);
#if MASKED
        if (there) s[i * R + j] += MASK(b, h, row, column);
#endif
        if (!there) s[i * R + j] = -INFINITY;
      }
#if BACKWARD
    /* From scores to what they weigh and to their gradients. */
    for (int i = 0; i < R; ++i) {
      const idx row = i0 + ly + i * 16;
      const T sum = row < L ? lse[b * lse0 + h * lse1 + row * lse2] : 0, base = sum == -INFINITY ? 0 : sum;
      const T less = row < L ? delta[(b * H + h) * L + row] : 0;
      for (int j = 0; j < R; ++j) {
        const T x = s[i * R + j] == -INFINITY ? 0 : EXP(s[i * R + j] - base);
        const idx to = (ly + i * 16) * PAD + lx + j * 16;
        slopes[to] = x * (dp[i * R + j] - less);
#if KEYS
        weights[to] = x;
#endif
      }
    }
    BARRIER;
#if KEYS
    ADD_LINES(dv, weights[(e0 + e) * PAD + ly + i * 16],
              i0 + line < L && d < D ? LD(grad, G_AT(b, h, i0 + line) + d * GRAD_STEP) : 0)
    ADD_LINES(dk, slopes[(e0 + e) * PAD + ly + i * 16],
              i0 + line < L && d < D ? scale * LD(q, Q_AT(b, h, i0 + line) + d) : 0)
#else
    ADD_LINES(o, slopes[(ly + i * 16) * PAD + e0 + e],
              j0 + line < S && d < D ? LD(k, K_AT(b, g, j0 + line) + d) : 0)
#endif
#else
    for (int i = 0; i < R; ++i) {
      T high = s[i * R];
      for (int j = 1; j < R; ++j) { const T x = s[i * R + j]; high = MAXIMUM(x, high); }
      piece[i * ITEMS + LANE] = high;
    }
    BARRIER;
    for (int i = 0; i < R; ++i) {
      T high = most[i];
      for (int e = 0; e < 16; ++e) { const T x = piece[i * ITEMS + ly * 16 + e]; high = MAXIMUM(x, high); }
      const T base = high == -INFINITY ? 0 : high, factor = EXP(most[i] - base);
      most[i] = high;
      sums[i] *= factor;
      for (int j = 0; j < R; ++j) {
        const T x = EXP(s[i * R + j] - base);
        sums[i] += x;
        weights[(ly + i * 16) * PAD + lx + j * 16] = x;
      }
      for (int n = 0; n < DR; ++n) o[i * DR + n] *= factor;
    }
    BARRIER;
    ADD_LINES(o, weights[(ly + i * 16) * PAD + e0 + e],
              j0 + line < S && d < D ? LD(v, V_AT(b, g, j0 + line) + d) : 0)
#endif
  }
#if KEYS
  for (int i = 0; i < R; ++i) {
    const idx row = j0 + ly + i * 16;
    for (int n = 0; n < DR; ++n) {
      const idx d = lx + n * 16;
      if (row < S && d < D) {
        ST(to_k, DK_AT(b, g, row) + d, dk[i * DR + n]);
        ST(to_v, DV_AT(b, g, row) + d, dv[i * DR + n]);
      }
    }
  }
#elif BACKWARD
  for (int i = 0; i < R; ++i) {
    const idx row = i0 + ly + i * 16;
    for (int n = 0; n < DR; ++n) {
      const idx d = lx + n * 16;
      if (row < L && d < D) ST(to_q, DQ_AT(b, h, row) + d, scale * o[i * DR + n]);
    }
  }
#else
  for (int i = 0; i < R; ++i) piece[i * ITEMS + LANE] = sums[i];
  BARRIER;
  for (int i = 0; i < R; ++i) {
    const idx row = i0 + ly + i * 16;
    T sum = 0;
    for (int e = 0; e < 16; ++e) sum += piece[i * ITEMS + ly * 16 + e];
    const T part = most[i] == -INFINITY ? 0 : 1 / sum;
    if (row < L) {
      for (int n = 0; n < DR; ++n) {
        const idx d = lx + n * 16;
        if (d < D) ST(out, O_AT(b, h, row) + d, o[i * DR + n] * part);
      }
      if (lx == 0) lse[b * lse0 + h * lse1 + row * lse2] = most[i] == -INFINITY ? most[i] : most[i] + log(sum);
    }
  }
  BARRIER;
#endif
}

//// delta: The sum of each row's gradient times its result: a body for each row of a team.
const idx i = u % L, h = u / L % H, b = u / L / H, grads = G_AT(b, h, i), results = O_AT(b, h, i);
T sum = 0;
EACH(j) sum += LD(grad, grads + j * GRAD_STEP) * LD(result, results + j);
sum = team_sum(cells, LANE, sum);
if (mine && place == 0) delta[u] = sum;
