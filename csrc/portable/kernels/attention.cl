// Texts of attention.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// tile: c[M, N] = a[M, K] * b[K, N], or added to it; M a multiple of 8, N of 16; c and b are dense in N.
FUNCTION void tile(GLOBAL T* c, idx c_row, GLOBAL const T* a, idx a_row, idx a_step, GLOBAL const T* b, idx b_row,
                   idx M, idx K, idx N, int adds) {
  for (idx n0 = 0; n0 < N; n0 += 16)
    for (idx m0 = 0; m0 < M; m0 += 8) {
      GLOBAL T* to = c + m0 * c_row + n0;
      GLOBAL const T* left = a + m0 * a_row;
      GLOBAL const T* right = b + n0;
#define EACH ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#define ROW(i) V c##i = ZERO;
      EACH
#undef ROW
      if (adds) {
#define ROW(i) c##i = LOADV(to + i * c_row);
        EACH
#undef ROW
      }
      for (idx k = 0; k < K; ++k) {
        const V v = LOADV(right);
#define ROW(i) c##i = FMAV(left[i * a_row], v, c##i);
        EACH
#undef ROW
        left += a_step;
        right += b_row;
      }
#define ROW(i) STOREV(to + i * c_row, c##i);
      EACH
#undef ROW
#undef EACH
    }
}

//// forward_tiles
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx blocks = (L + 63) / 64, i0 = (blocks - 1 - u % blocks) * 64, h = u / blocks % H, b = u / blocks / H;
  const idx rows = L - i0 < 64 ? L - i0 : 64, rows8 = (rows + 7) / 8 * 8;
  const idx past = CAUSAL && i0 + rows < S ? i0 + rows : S;
  GLOBAL T* qs = work + item * slot;
  GLOBAL T* kt = qs + 64 * D16;
  GLOBAL T* vs = kt + 64 * D16;
  GLOBAL T* o = vs + 64 * D16;
  GLOBAL T* s = o + 64 * D16;
  T most[64], sums[64];
  for (idx r = 0; r < 64; ++r) {
    const idx from = Q_AT(b, h, i0 + r);
    most[r] = -INFINITY;
    sums[r] = 0;
    for (idx d = 0; d < D16; ++d) {
      qs[r * D16 + d] = r < rows && d < D ? scale * LD(q, from + d) : 0;
      o[r * D16 + d] = 0;
    }
  }
  for (idx j0 = 0; j0 < past; j0 += 64) {
    const idx cols = S - j0 < 64 ? S - j0 : 64;
    for (idx c = 0; c < 64; ++c) {
      const idx from = K_AT(b, h / shared, j0 + c), other = V_AT(b, h / shared, j0 + c);
      for (idx d = 0; d < D; ++d) kt[d * 64 + c] = c < cols ? LD(k, from + d) : 0;
      for (idx d = 0; d < D16; ++d) vs[c * D16 + d] = c < cols && d < D ? LD(v, other + d) : 0;
    }
    tile(s, 64, qs, D16, 1, kt, 64, rows8, D, 64, 0);
    for (idx r = 0; r < rows; ++r) {
      GLOBAL T* row = s + r * 64;
      idx seen = cols;
#if CAUSAL
      if (i0 + r - j0 + 1 < seen) seen = i0 + r - j0 + 1;
      if (seen < 0) seen = 0;
#endif
#if MASKED
      for (idx c = 0; c < seen; ++c) row[c] += MASK(b, h, i0 + r, j0 + c);
#endif
      for (idx c = seen; c < 64; ++c) row[c] = -INFINITY;
      T lanes[16], high = most[r], sum = 0;
      for (int l = 0; l < 16; ++l) lanes[l] = row[l];
      for (idx c = 16; c < 64; c += 16)
        for (int l = 0; l < 16; ++l) { const T x = row[c + l]; lanes[l] = MAXIMUM(x, lanes[l]); }
      for (int l = 0; l < 16; ++l) { const T x = lanes[l]; high = MAXIMUM(x, high); }
      const T base = high == -INFINITY ? 0 : high;
      for (int l = 0; l < 16; ++l) lanes[l] = 0;
      for (idx c = 0; c < 64; c += 16)
        for (int l = 0; l < 16; ++l) { const T x = EXP(row[c + l] - base); row[c + l] = x; lanes[l] += x; }
      for (int l = 0; l < 16; ++l) sum += lanes[l];
      const T factor = EXP(most[r] - base);
      sums[r] = sums[r] * factor + sum;
      most[r] = high;
      for (idx d = 0; d < D16; ++d) o[r * D16 + d] *= factor;
    }
    tile(o, D16, s, 64, 1, vs, D16, rows8, cols, D16, 1);
  }
  for (idx r = 0; r < rows; ++r) {
    const idx to = O_AT(b, h, i0 + r);
    const T part = most[r] == -INFINITY ? 0 : 1 / sums[r];
    for (idx d = 0; d < D; ++d) ST(out, to + d, o[r * D16 + d] * part);
    lse[b * lse0 + h * lse1 + (i0 + r) * lse2] = most[r] == -INFINITY ? most[r] : most[r] + log(sums[r]);
  }
}

//// forward_rows
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx i = u % L, h = u / L % H, b = u / L / H, from = Q_AT(b, h, i), to = O_AT(b, h, i);
  const idx past = CAUSAL && i + 1 < S ? i + 1 : S;
  T row[DEPTH], o[DEPTH], most = -INFINITY, sum = 0;
  for (int d = 0; d < DEPTH; ++d) { row[d] = scale * LD(q, from + d); o[d] = 0; }
  for (idx j = 0; j < past; ++j) {
    const idx key = K_AT(b, h / shared, j), value = V_AT(b, h / shared, j);
    T s = 0;
    for (int d = 0; d < DEPTH; ++d) s = FMA(row[d], (T)LD(k, key + d), s);
#if MASKED
    s += MASK(b, h, i, j);
#endif
    const T high = MAXIMUM(s, most), base = high == -INFINITY ? 0 : high;
    const T factor = EXP(most - base), p = EXP(s - base);
    sum = sum * factor + p;
    for (int d = 0; d < DEPTH; ++d) o[d] = FMA(p, (T)LD(v, value + d), o[d] * factor);
    most = high;
  }
  const T part = most == -INFINITY ? 0 : 1 / sum;
  for (int d = 0; d < DEPTH; ++d) ST(out, to + d, o[d] * part);
  lse[b * lse0 + h * lse1 + i * lse2] = most == -INFINITY ? most : most + log(sum);
}

//// backward_tiles: A unit is a head of keys: nobody else adds to its gradients.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx g = u % (H / shared), b = u / (H / shared);
  GLOBAL T* qs = work + item * slot;
  GLOBAL T* gs = qs + 64 * D16;
  GLOBAL T* ks = gs + 64 * D16;
  GLOBAL T* kt = ks + 64 * D16;
  GLOBAL T* vt = kt + 64 * D16;
  GLOBAL T* dk = vt + 64 * D16;
  GLOBAL T* dv = dk + 64 * D16;
  GLOBAL T* p = dv + 64 * D16;
  GLOBAL T* ds = p + 64 * 64;
  GLOBAL T* dq = ds + 64 * 64;
  const idx L8 = (L + 63) / 64 * 64;
  for (idx n = 0; n < shared * L8 * D16; ++n) dq[n] = 0;
  for (idx j0 = 0; j0 < S; j0 += 64) {
    const idx cols = S - j0 < 64 ? S - j0 : 64, cols8 = (cols + 7) / 8 * 8;
    for (idx c = 0; c < 64; ++c) {
      const idx from = K_AT(b, g, j0 + c), other = V_AT(b, g, j0 + c);
      for (idx d = 0; d < D16; ++d) {
        ks[c * D16 + d] = c < cols && d < D ? LD(k, from + d) : 0;
        dk[c * D16 + d] = 0;
        dv[c * D16 + d] = 0;
      }
      for (idx d = 0; d < D; ++d) {
        kt[d * 64 + c] = ks[c * D16 + d];
        vt[d * 64 + c] = c < cols ? LD(v, other + d) : 0;
      }
    }
    for (idx h = g * shared; h < (g + 1) * shared; ++h)
      for (idx i0 = CAUSAL ? j0 : 0; i0 < L; i0 += 64) {
        const idx rows = L - i0 < 64 ? L - i0 : 64, rows8 = (rows + 7) / 8 * 8;
        T delta[64];
        for (idx r = 0; r < rows8; ++r) {
          const idx from = Q_AT(b, h, i0 + r), grads = G_AT(b, h, i0 + r), results = O_AT(b, h, i0 + r);
          T sum = 0;
          for (idx d = 0; d < D16; ++d) {
            const int there = r < rows && d < D;
            const T x = there ? LD(grad, grads + d) : 0;
            qs[r * D16 + d] = there ? scale * LD(q, from + d) : 0;
            gs[r * D16 + d] = x;
            sum += there ? x * LD(result, results + d) : 0;
          }
          delta[r] = sum;
        }
        tile(p, 64, qs, D16, 1, kt, 64, rows8, D, 64, 0);
        tile(ds, 64, gs, D16, 1, vt, 64, rows8, D, 64, 0);
        for (idx r = 0; r < rows8; ++r) {
          GLOBAL T* row = p + r * 64;
          GLOBAL T* drow = ds + r * 64;
          idx seen = r < rows ? cols : 0;
#if CAUSAL
          if (i0 + r - j0 + 1 < seen) seen = i0 + r - j0 + 1;
          if (seen < 0) seen = 0;
#endif
          const T sum = r < rows ? lse[b * lse0 + h * lse1 + (i0 + r) * lse2] : 0, base = sum == -INFINITY ? 0 : sum;
          const T less = delta[r];
#if MASKED
          for (idx c = 0; c < seen; ++c) row[c] += MASK(b, h, i0 + r, j0 + c);
#endif
          for (idx c = seen; c < 64; ++c) row[c] = -INFINITY;
          INDEPENDENT
          for (idx c = 0; c < 64; ++c) {
            const T x = c < seen ? EXP(row[c] - base) : 0;
            row[c] = x;
            drow[c] = x * (drow[c] - less);
          }
        }
        tile(dv, D16, p, 1, 64, gs, D16, cols8, rows8, D16, 1);
        tile(dk, D16, ds, 1, 64, qs, D16, cols8, rows8, D16, 1);
        tile(dq + ((h - g * shared) * L8 + i0) * D16, D16, ds, 64, 1, ks, D16, rows8, cols, D16, 1);
      }
    for (idx c = 0; c < cols; ++c) {
      const idx to = DK_AT(b, g, j0 + c), other = DV_AT(b, g, j0 + c);
      for (idx d = 0; d < D; ++d) {
        ST(to_k, to + d, dk[c * D16 + d]);
        ST(to_v, other + d, dv[c * D16 + d]);
      }
    }
  }
  for (idx h = g * shared; h < (g + 1) * shared; ++h)
    for (idx i = 0; i < L; ++i) {
      const idx to = DQ_AT(b, h, i);
      for (idx d = 0; d < D; ++d) ST(to_q, to + d, scale * dq[((h - g * shared) * L8 + i) * D16 + d]);
    }
}

//// backward_rows: Units below `queries` are rows of the queries' gradient, the others of the keys' and values'.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  T a[DEPTH], x[DEPTH], y[DEPTH], z[DEPTH];
  if (u < queries) {
    const idx i = u % L, h = u / L % H, b = u / L / H, from = Q_AT(b, h, i), grads = G_AT(b, h, i);
    const idx results = O_AT(b, h, i), to = DQ_AT(b, h, i), past = CAUSAL && i + 1 < S ? i + 1 : S;
    const T sum = lse[b * lse0 + h * lse1 + i * lse2], base = sum == -INFINITY ? 0 : sum;
    T delta = 0;
    for (int d = 0; d < DEPTH; ++d) {
      x[d] = scale * LD(q, from + d);
      y[d] = LD(grad, grads + d);
      delta = FMA(y[d], (T)LD(result, results + d), delta);
      a[d] = 0;
    }
    for (idx j = 0; j < past; ++j) {
      const idx key = K_AT(b, h / shared, j), value = V_AT(b, h / shared, j);
      T s = 0, dp = 0;
      for (int d = 0; d < DEPTH; ++d) {
        s = FMA(x[d], (T)LD(k, key + d), s);
        dp = FMA(y[d], (T)LD(v, value + d), dp);
      }
#if MASKED
      s += MASK(b, h, i, j);
#endif
      s = EXP(s - base) * (dp - delta);
      for (int d = 0; d < DEPTH; ++d) a[d] = FMA(s, (T)LD(k, key + d), a[d]);
    }
    for (int d = 0; d < DEPTH; ++d) ST(to_q, to + d, scale * a[d]);
  } else {
    const idx w = u - queries, heads = H / shared, j = w % S, g = w / S % heads, b = w / S / heads;
    const idx key = K_AT(b, g, j), value = V_AT(b, g, j), to = DK_AT(b, g, j), other = DV_AT(b, g, j);
    for (int d = 0; d < DEPTH; ++d) { x[d] = LD(k, key + d); y[d] = LD(v, value + d); a[d] = 0; z[d] = 0; }
    for (idx h = g * shared; h < (g + 1) * shared; ++h)
      for (idx i = CAUSAL ? j : 0; i < L; ++i) {
        const idx from = Q_AT(b, h, i), grads = G_AT(b, h, i), results = O_AT(b, h, i);
        const T sum = lse[b * lse0 + h * lse1 + i * lse2], base = sum == -INFINITY ? 0 : sum;
        T s = 0, dp = 0, delta = 0;
        for (int d = 0; d < DEPTH; ++d) {
          const T one = LD(grad, grads + d);
          s = FMA(scale * (T)LD(q, from + d), x[d], s);
          dp = FMA(one, y[d], dp);
          delta = FMA(one, (T)LD(result, results + d), delta);
        }
#if MASKED
        s += MASK(b, h, i, j);
#endif
        const T p = EXP(s - base), ds = p * (dp - delta);
        for (int d = 0; d < DEPTH; ++d) {
          a[d] = FMA(ds, scale * (T)LD(q, from + d), a[d]);
          z[d] = FMA(p, (T)LD(grad, grads + d), z[d]);
        }
      }
    for (int d = 0; d < DEPTH; ++d) { ST(to_k, to + d, a[d]); ST(to_v, other + d, z[d]); }
  }
}
