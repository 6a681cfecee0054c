// Texts of attention_blocks.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// scores: s[R * R], scores of rows i0 + ly + 16 * i and columns j0 + lx + 16 * j, and on the way back dp, of the gradient with
//// the values. What is no score is -INFINITY.
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

//// gradients: From scores to what they weigh and to their gradients.
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
