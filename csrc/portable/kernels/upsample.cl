// Texts of upsample.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// taps: Places and weights of position o of a dimension of n elements, as torch's area_pixel_compute_source_index has them.
//// Without `floor`, which some runtimes call for each element: what is not negative is cut off.
FUNCTION void taps(idx o_, idx n_, T scale, i32* at, T* weight) {
  const i32 o = (i32)o_, n = (i32)n_;  // 32 bits become vectors
#if WAY == 0 || WAY == 1
  const i32 i = (i32)((WAY == 1 ? (T)o + (T)0.5 : (T)o) * scale);
  at[0] = i < n ? i : n - 1;
  weight[0] = 1;
#else
  T from = ALIGNED ? scale * (T)o : scale * ((T)o + (T)0.5) - (T)0.5;
#if WAY == 2
  if (!ALIGNED && from < 0) from = 0;
  i32 i = (i32)from;
  if (i > n - 1) i = n - 1;
  T t = from - (T)i;
  t = t < 0 ? 0 : t > 1 ? 1 : t;
  at[0] = i;
  at[1] = i < n - 1 ? i + 1 : i;
  weight[0] = 1 - t;
  weight[1] = t;
#else
  const T cut = (T)(i32)from, low = from < cut ? cut - 1 : cut, t = from - low, a = (T)-0.75, u = 1 - t, t1 = t + 1, u1 = u + 1;
  UNROLL for (int k = 0; k < 4; ++k) {
    const i32 i = (i32)low + k - 1;
    at[k] = i < 0 ? 0 : i < n ? i : n - 1;
  }
  weight[0] = ((a * t1 - 5 * a) * t1 + 8 * a) * t1 - 4 * a;
  weight[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
  weight[2] = ((a + 2) * u - (a + 3)) * u * u + 1;
  weight[3] = ((a * u1 - 5 * a) * u1 + 8 * a) * u1 - 4 * a;
#endif
#endif
}

//// forward
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx oy = u % oh, oz = u / oh % od, base = u / oh / od * d * h * w;
  i32 az[TAPS_Z], ay[TAPS_Y];
  T wz[TAPS_Z], wy[TAPS_Y];
  TAPS_AT_Z;
  TAPS_AT_Y;
  INDEPENDENT
  for (idx ox = 0; ox < ow; ++ox) {
    i32 ax[TAPS];
    T wx[TAPS];
    taps(ox, w, scale_x, ax, wx);
#if TAPS == 1
    ST(out, u * ow + ox, LD(in, base + (az[0] * h + ay[0]) * w + ax[0]));
#else
    T sum = 0;
    UNROLL for (int k = 0; k < TAPS_Z; ++k)
      UNROLL for (int j = 0; j < TAPS_Y; ++j) {
        const idx row = base + (az[k] * h + ay[j]) * w;
        T part = 0;
        UNROLL for (int i = 0; i < TAPS; ++i) part += wx[i] * (T)LD(in, row + ax[i]);
        sum += wz[k] * wy[j] * part;
      }
    ST(out, u * ow + ox, sum);
#endif
  }
}

//// backward: An item owns a plane, so nobody else adds to what it adds to.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx base = u * d * h * w;
  i32 az[TAPS_Z], ay[TAPS_Y], ax[TAPS];
  T wz[TAPS_Z], wy[TAPS_Y], wx[TAPS];
  for (idx i = 0; i < d * h * w; ++i) SUM(base + i) = 0;
  for (idx oz = 0; oz < od; ++oz) {
    TAPS_AT_Z;
    for (idx oy = 0; oy < oh; ++oy) {
      TAPS_AT_Y;
      for (idx ox = 0; ox < ow; ++ox) {
        const T g = LD(grad, ((u * od + oz) * oh + oy) * ow + ox);
        taps(ox, w, scale_x, ax, wx);
        UNROLL for (int k = 0; k < TAPS_Z; ++k)
          UNROLL for (int j = 0; j < TAPS_Y; ++j)
            UNROLL for (int i = 0; i < TAPS; ++i) SUM(base + (az[k] * h + ay[j]) * w + ax[i]) += wz[k] * wy[j] * wx[i] * g;
      }
    }
  }
#if STAGED
  for (idx i = 0; i < d * h * w; ++i) ST(out, base + i, sums[base + i]);
#endif
}
