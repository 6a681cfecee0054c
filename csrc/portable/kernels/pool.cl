// Texts of pool.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// max: NaN wins, and the first of equals: as torch's.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx ox = u % ow, oy = u / ow % oh, oz = u / ow / oh % od, base = u / ow / oh / od * d * h * w;
  BOUNDS
  idx best_at = (Z0 * h + Y0) * w + X0;
  T best = LD(in, base + best_at);
  for (idx z = Z0; z < z1; z += dz)
    for (idx y = Y0; y < y1; y += dy)
      for (idx x = X0; x < x1; x += dx) {
        const T v = LD(in, base + (z * h + y) * w + x);
        if (v > best || v != v) { best = v; best_at = (z * h + y) * w + x; }
      }
  ST(out, u, best);
  index[u] = best_at;
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
