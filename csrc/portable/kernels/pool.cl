// Texts of pool.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// max: NaN wins, and the first of equals: as torch's. With no tap inside it is LOWEST, of the first tap's place. Places
//// are written where there are PLACES.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx ox = u % ow, oy = u / ow % oh, oz = u / ow / oh % od, plane = u / ow / oh / od;
#if STRIDED
  const idx b = plane / channels, c = plane % channels;
  const idx base = b * in_b + c * in_c, to = b * out_b + c * out_c + oz * out_z + oy * out_y + ox * out_x;
  const idx note = b * index_b + c * index_c + oz * index_z + oy * index_y + ox * index_x;
#define PLACE(z, y, x) (base + (z) * in_z + (y) * in_y + (x) * in_x)
#else
  const idx base = plane * d * h * w, to = u, note = u;
#define PLACE(z, y, x) (base + ((z) * h + (y)) * w + (x))
#endif
  BOUNDS
  idx best_at = (Z0 * h + Y0) * w + X0;
  T best = LOWEST;
  for (idx z = Z0; z < z1; z += dz)
    for (idx y = Y0; y < y1; y += dy)
      for (idx x = X0; x < x1; x += dx) {
        const T v = LD(in, PLACE(z, y, x));
        if (v > best || v != v) { best = v; best_at = (z * h + y) * w + x; }
      }
  ST(out, to, best);
#if PLACES
  index[note] = best_at;
#endif
}

//// max_rows: On CPUs, a row of the result at a time: each tap for all places that have it inside, in a loop that becomes
//// vectors. The same taps in the same order as above.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx oy = u % oh, oz = u / oh % od, base = u / oh / od * d * h * w;
  SIDE(oz, kd, sz, pz, dz, d, Z0, z1) SIDE(oy, kh, sy, py, dy, h, Y0, y1)
  for (idx ox = 0; ox < ow; ox += ROW) {
    const idx n = ow - ox < ROW ? ow - ox : ROW;
    T best[ROW];
    i32 best_at[ROW];
    const i32 start = (i32)((Z0 * h + Y0) * w + ox * SX - px);
    for (int l = 0; l < ROW; ++l) best[l] = LOWEST, best_at[l] = start + l * (i32)SX;
    for (idx l = 0; l < n; ++l) {  // those whose first taps are outside
      const idx at = (ox + l) * SX - px;
      if (at >= 0) break;
      best_at[l] += (i32)((-at + dx - 1) / dx * dx);
    }
    for (idx z = Z0; z < z1; z += dz)
      for (idx y = Y0; y < y1; y += dy)
        for (idx q = 0; q < kw; ++q) {
          const idx off = q * dx - px, low = off < 0 ? (-off + SX - 1) / SX : 0, past = w > off ? (w - off + SX - 1) / SX : 0;
          const int from = low > ox ? (int)(low - ox) : 0, to = past - ox < n ? (int)(past - ox) : (int)n;
          const i32 first = (i32)((z * h + y) * w + off + ox * SX);
          GLOBAL const S* row = in + base + first;
          INDEPENDENT
          for (int l = from; l < to; ++l) {
            const T v = LD(row, l * SX);
            const int wins = v > best[l] || v != v;
            best[l] = wins ? v : best[l];
            best_at[l] = wins ? first + l * (i32)SX : best_at[l];
          }
        }
    for (idx l = 0; l < n; ++l) ST(out, u * ow + ox + l, best[l]);
#if PLACES
    for (idx l = 0; l < n; ++l) index[u * ow + ox + l] = best_at[l];
#endif
  }
}

//// max_channels: On CPUs, of channels that are neighbours: a row of the result at a time, and of each place the channels, in
//// a loop that becomes vectors. The same taps in the same order.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx oy = u % oh, oz = u / oh % od, b = u / oh / od;
  SIDE(oz, kd, sz, pz, dz, d, Z0, z1) SIDE(oy, kh, sy, py, dy, h, Y0, y1)
  for (idx ox = 0; ox < ow; ++ox) {
    SIDE(ox, kw, sx, px, dx, w, X0, x1)
    for (idx c = 0; c < channels; c += ROW) {
      const int n = channels - c < ROW ? (int)(channels - c) : ROW;
      T best[ROW];
      for (int l = 0; l < ROW; ++l) best[l] = LOWEST;
#if PLACES
      i32 best_at[ROW];
      const i32 start = (i32)((Z0 * h + Y0) * w + X0);
      for (int l = 0; l < ROW; ++l) best_at[l] = start;
#endif
      for (idx z = Z0; z < z1; z += dz)
        for (idx y = Y0; y < y1; y += dy)
          for (idx x = X0; x < x1; x += dx) {
            const i32 at = (i32)((z * h + y) * w + x);
            GLOBAL const S* row = in + (b * d * h * w + at) * channels + c;
            INDEPENDENT
            for (int l = 0; l < n; ++l) {
              const T v = LD(row, l);
              const int wins = v > best[l] || v != v;
              best[l] = wins ? v : best[l];
#if PLACES
              best_at[l] = wins ? at : best_at[l];
#endif
            }
          }
      const idx to = (u * ow + ox) * channels + c;
      for (int l = 0; l < n; ++l) ST(out, to + l, best[l]);
#if PLACES
      for (int l = 0; l < n; ++l) index[to + l] = best_at[l];
#endif
    }
  }
}

//// max_backward: An item owns a plane, so nobody else adds to what it adds to.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  for (idx i = 0; i < count; ++i) SUM(u * count + i) = 0;
  for (idx i = 0; i < results; ++i) {
    const idx at = index[u * results + i];
    if (at >= 0 && at < count) SUM(u * count + at) += (T)LD(grad, u * results + i);
  }
#if STAGED
  for (idx i = 0; i < count; ++i) ST(out, u * count + i, sums[u * count + i]);
#endif
}

//// mean
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx ox = u % ow, oy = u / ow % oh, oz = u / ow / oh % od, base = u / ow / oh / od * d * h * w;
  BOUNDS
  T sum = 0;
  for (idx z = Z0; z < z1; ++z)
    for (idx y = Y0; y < y1; ++y)
      for (idx x = X0; x < x1; ++x) sum += (T)LD(in, base + (z * h + y) * w + x);
  ST(out, u, COUNT != 0 ? sum / (T)(COUNT) : sum);
}

//// mean_backward: Of each element, the windows that it is in.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx x = u % w, y = u / w % h, z = u / w / h % d, base = u / w / h / d * od * oh * ow;
  T sum = 0;
  for (idx oz = FROM(z, d, od, kd, sz, pz), pz_ = PAST(z, d, od, sz, pz); oz < pz_; ++oz)
    for (idx oy = FROM(y, h, oh, kh, sy, py), py_ = PAST(y, h, oh, sy, py); oy < py_; ++oy)
      for (idx ox = FROM(x, w, ow, kw, sx, px), px_ = PAST(x, w, ow, sx, px); ox < px_; ++ox) {
        BOUNDS
        const T g = LD(grad, base + (oz * oh + oy) * ow + ox);
        sum += COUNT != 0 ? g / (T)(COUNT) : g;
      }
  ST(out, u, sum);
}

//// adaptive: bounds that adapt to the size of the result
#define BOUNDS const idx Z0 = oz * d / od, z1 = ((oz + 1) * d + od - 1) / od, Y0 = oy * h / oh, y1 = ((oy + 1) * h + oh - 1) / oh, X0 = ox * w / ow, x1 = ((ox + 1) * w + ow - 1) / ow;
#define COUNT ((z1 - Z0) * (y1 - Y0) * (x1 - X0))
#define FROM(i, n, o, k, s, p) ((i) * (o) / (n))
#define PAST(i, n, o, s, p) ((((i) + 1) * (o) + (n) - 1) / (n))

//// window: with dilation, the first tap inside; means have none
#define SIDE(o, k, s, p, g, n, from, past) const idx from##_ = (o) * (s) - (p), from = from##_ < 0 ? from##_ + (-from##_ + (g) - 1) / (g) * (g) : from##_, past##_ = from##_ + ((k) - 1) * (g) + 1, past = past##_ < (n) ? past##_ : (n);
#define BOUNDS SIDE(oz, kd, sz, pz, dz, d, Z0, z1) SIDE(oy, kh, sy, py, dy, h, Y0, y1) SIDE(ox, kw, sx, px, dx, w, X0, x1)
#define PADDED(past_, n, p, from_) (((past_) < (n) + (p) ? (past_) : (n) + (p)) - (from_))
#define COUNT (divisor != 0 ? divisor : padded ? PADDED(z1_, d, pz, Z0_) * PADDED(y1_, h, py, Y0_) * PADDED(x1_, w, px, X0_) : (z1 - Z0) * (y1 - Y0) * (x1 - X0))
#define FROM(i, n, o, k, s, p) ((i) + (p) < (k) ? 0 : ((i) + (p) - (k)) / (s) + 1)
#define PAST(i, n, o, s, p) (((i) + (p)) / (s) + 1 < (o) ? ((i) + (p)) / (s) + 1 : (o))
