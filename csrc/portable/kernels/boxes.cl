// Texts of boxes.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// lay: The boxes from the best down, each coordinate beside its kind, and their areas.
const idx from = place(u) * box_s0;
const T left = (T)box(from), top = (T)box(from + box_s1), right = (T)box(from + 2 * box_s1), bottom = (T)box(from + 3 * box_s1);
side_set(u, left);
side_set(n + u, top);
side_set(2 * n + u, right);
side_set(3 * n + u, bottom);
side_set(4 * n + u, (right - left) * (bottom - top));

//// overlap: What two boxes share, of all that they cover.
#define LARGER(a, b) ((a) < (b) ? (b) : (a))
#define SMALLER(a, b) ((b) < (a) ? (b) : (a))
FUNCTION T overlap(T left, T top, T right, T bottom, T area, T left2, T top2, T right2, T bottom2, T area2) {
  const T width = LARGER(left, left2), high = LARGER(top, top2);
  const T w = SMALLER(right, right2) - width, h = SMALLER(bottom, bottom2) - high;
  const T both = LARGER((T)0, w) * LARGER((T)0, h);
  return both / (area + area2 - both);
}
#define OVERLAP(i, j) overlap(side(i), side(n + (i)), side(2 * n + (i)), side(3 * n + (i)), side(4 * n + (i)), side(j), side(n + (j)), side(2 * n + (j)), side(3 * n + (j)), side(4 * n + (j)))

//// choose: One item, for all boxes: from the best down, each that is left takes away those that it overlaps.
idx had = 0;
for (idx i = 0; i < n; ++i) gone_set(i, 0);
for (idx i = 0; i < n; ++i) {
  if (gone(i) != 0) continue;
  kept_set(had, place(i));
  ++had;
  const T left = side(i), top = side(n + i), right = side(2 * n + i), bottom = side(3 * n + i), area = side(4 * n + i);
  INDEPENDENT
  for (idx j = i + 1; j < n; ++j) {
    const T share = overlap(left, top, right, bottom, area, side(j), side(n + j), side(2 * n + j), side(3 * n + j), side(4 * n + j));
    gone_set(j, gone(j) | (share > threshold ? 1 : 0));
  }
}
kept_set(n, had);

//// masks: Of box c0, which of the 64 boxes of block c1 it would take away: those behind it.
if (c1 < c0 / 64) continue;
const idx first = c1 * 64, past = first + 64 < n ? first + 64 : n;
u64 bits = 0;
for (idx j = first > c0 ? first : c0 + 1; j < past; ++j)
  if (OVERLAP(c0, j) > threshold) bits |= (u64)1 << (j - first);
mask_set(u, bits);

//// choose_teams: One group. A block of 64 boxes is settled by the item that owns its bits, in turn; then each item takes
//// what was kept out of the later blocks that it owns.
LOCAL u64 fresh[1];
LOCAL i64 had[1];
for (idx b = LANE; b < blocks; b += LANES) gone_set(b, 0);
if (LANE == 0) had[0] = 0;
BARRIER;
for (idx b = 0; b < blocks; ++b) {
  const idx size = n - b * 64 < 64 ? n - b * 64 : 64;
  if (LANE == b % LANES) {
    u64 lost = gone(b), found = 0;
    i64 at = had[0];
    for (idx k = 0; k < size; ++k)
      if ((lost >> k & 1) == 0) {
        found |= (u64)1 << k;
        lost |= mask((b * 64 + k) * blocks + b);
        kept_set(at, place(b * 64 + k));
        ++at;
      }
    fresh[0] = found;
    had[0] = at;
  }
  BARRIER;
  const u64 found = fresh[0];
  for (idx w = LANE > b ? LANE : LANE + ((b - LANE) / LANES + 1) * LANES; w < blocks; w += LANES) {
    u64 lost = gone(w);
    for (idx k = 0; k < size; ++k)
      if (found >> k & 1) lost |= mask((b * 64 + k) * blocks + w);
    gone_set(w, lost);
  }
  BARRIER;
}
if (LANE == 0) kept_set(n, had[0]);

//// roi: Where region r lies in its image, and how its bins are sampled; `bad` where there is no such image.
#define REGION(r) \
  const T image_ = (T)roi((r) * roi_s0); \
  const idx bad = !(image_ >= 0 && image_ < (T)images), image = bad ? 0 : (idx)image_; \
  const T left = (T)roi((r) * roi_s0 + roi_s1) * scale - offset, top = (T)roi((r) * roi_s0 + 2 * roi_s1) * scale - offset; \
  const T wide_ = (T)roi((r) * roi_s0 + 3 * roi_s1) * scale - offset - left; \
  const T high_ = (T)roi((r) * roi_s0 + 4 * roi_s1) * scale - offset - top; \
  const T wide = ALIGNED_ROI || wide_ > 1 ? wide_ : (T)1, high = ALIGNED_ROI || high_ > 1 ? high_ : (T)1; \
  const T bin_w = wide / (T)bins_x, bin_h = high / (T)bins_y; \
  const idx grid_x = ratio > 0 ? ratio : (idx)ceil(bin_w), grid_y = ratio > 0 ? ratio : (idx)ceil(bin_h); \
  const T all = grid_x * grid_y > 1 ? (T)(grid_x * grid_y) : (T)1;
/* Sample `k` of bin `b` along one side of `size`: the two places that it lies between, and their weights. */
#define SAMPLE(start, b, bin, k, grid, size, low, past, w_low, w_past, at) \
  T at = start + (T)(b) * bin + ((T)(k) + (T)0.5) * bin / (T)(grid); \
  const idx outside_##low = at < -1 || at > (T)(size); \
  at = at > 0 ? at : (T)0; \
  idx low = outside_##low ? 0 : (idx)at, past = low + 1; \
  if (low >= (size) - 1) { low = past = (size) - 1; at = (T)low; } \
  const T w_past = outside_##low ? (T)0 : at - (T)low, w_low = outside_##low ? (T)0 : 1 - w_past;

//// roi_align: The mean of samples between four places each.
REGION(c0)
if (bad) { TELL(OUT_OF_RANGE, image_, images); continue; }
const idx base = image * x_s0 + c1 * x_s1;
T sum = 0;
for (idx j = 0; j < grid_y; ++j) {
  SAMPLE(top, c2, bin_h, j, grid_y, rows, y0, y1, wy0, wy1, y)
  for (idx i = 0; i < grid_x; ++i) {
    SAMPLE(left, c3, bin_w, i, grid_x, columns, x0, x1, wx0, wx1, x_)
    sum += wy0 * (wx0 * (T)x(base + y0 * x_s2 + x0 * x_s3) + wx1 * (T)x(base + y0 * x_s2 + x1 * x_s3)) +
           wy1 * (wx0 * (T)x(base + y1 * x_s2 + x0 * x_s3) + wx1 * (T)x(base + y1 * x_s2 + x1 * x_s3));
  }
}
out_set(out_at, sum / all);

//// roi_align_backward: An item owns a plane, so nobody else adds to what it adds to.
const idx of = u / channels, c = u % channels, base = u * rows * columns;
for (idx i = 0; i < rows * columns; ++i) sum_set(base + i, 0);
for (idx r = 0; r < regions; ++r) {
  REGION(r)
  if (bad) { TELL(OUT_OF_RANGE, image_, images); continue; }
  if (image != of) continue;
  for (idx by = 0; by < bins_y; ++by)
    for (idx bx = 0; bx < bins_x; ++bx) {
      const T g = (T)grad(r * grad_s0 + c * grad_s1 + by * grad_s2 + bx * grad_s3) / all;
      for (idx j = 0; j < grid_y; ++j) {
        SAMPLE(top, by, bin_h, j, grid_y, rows, y0, y1, wy0, wy1, y)
        for (idx i = 0; i < grid_x; ++i) {
          SAMPLE(left, bx, bin_w, i, grid_x, columns, x0, x1, wx0, wx1, x_)
          const idx a = base + y0 * columns, b = base + y1 * columns;
          sum_set(a + x0, sum(a + x0) + g * wy0 * wx0);
          sum_set(a + x1, sum(a + x1) + g * wy0 * wx1);
          sum_set(b + x0, sum(b + x0) + g * wy1 * wx0);
          sum_set(b + x1, sum(b + x1) + g * wy1 * wx1);
        }
      }
    }
}
#if STAGED
for (idx i = 0; i < rows * columns; ++i) out_set(base + i, sum(base + i));
#endif
