// Texts of rearrange.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// unfold: A row of the columns is a tap of a channel; an element of it, a place of the window.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx ox = u % ow, oy = u / ow % oh, row = u / ow / oh, j = row % kw, i = row / kw % kh, plane = row / kw / kh;
  const idx y = oy * sy - py + i * dy, x = ox * sx - px + j * dx;
  ST(out, u, y >= 0 && y < h && x >= 0 && x < w ? LD(in, (plane * h + y) * w + x) : 0);
}

//// fold: Of each element of the image, what all windows that it is in have for it.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx x = u % w, y = u / w % h, plane = u / w / h;
  T sum = 0;
  for (idx i = 0; i < kh; ++i) {
    const idx ty = y + py - i * dy, oy = ty / sy;
    if (ty < 0 || ty % sy != 0 || oy >= oh) continue;
    for (idx j = 0; j < kw; ++j) {
      const idx tx = x + px - j * dx, ox = tx / sx;
      if (tx < 0 || tx % sx != 0 || ox >= ow) continue;
      sum += (T)LD(in, (((plane * kh + i) * kw + j) * oh + oy) * ow + ox);
    }
  }
  ST(out, u, sum);
}

//// bounds: Of the places of a window from `begin` on, the first that is not before what has `size` elements, and the first behind it.
#define INSIDE(begin, step, size, count, low, high) \
  const idx low##_ = (begin) >= 0 ? 0 : (-(begin) + (step) - 1) / (step), low = low##_ < (count) ? low##_ : (count); \
  const idx high##_ = (begin) < (size) ? ((size) - 1 - (begin)) / (step) + 1 : 0; \
  const idx high = high##_ < low ? low : high##_ < (count) ? high##_ : (count)

//// unfold_rows: The same by items in turn, a row of places after the other.
for (idx v = FIRST(units / ow), end = LAST(units / ow); v < end; v += STEP) {
  const idx oy = v % oh, row = v / oh, j = row % kw, i = row / kw % kh, plane = row / kw / kh;
  const idx y = oy * sy - py + i * dy, begin = j * dx - px, at = (plane * h + y) * w + begin, to = v * ow;
  INSIDE(begin, sx, w, ow, low, high);
  if (y < 0 || y >= h) {
    for (idx ox = 0; ox < ow; ++ox) ST(out, to + ox, 0);
  } else {
    for (idx ox = 0; ox < low; ++ox) ST(out, to + ox, 0);
    INDEPENDENT
    for (idx ox = low; ox < high; ++ox) ST(out, to + ox, LD(in, at + ox * sx));
    for (idx ox = high; ox < ow; ++ox) ST(out, to + ox, 0);
  }
}

//// fold_rows: The same by items in turn, WIDTH elements of a row at once; a sum's parts come in the same order.
for (idx v = FIRST(units / w), end = LAST(units / w); v < end; v += STEP) {
  const idx y = v % h, plane = v / h;
  for (idx left = 0; left < w; left += WIDTH) {
    const idx lanes = w - left < WIDTH ? w - left : WIDTH;
    T sums[WIDTH];
    for (idx l = 0; l < lanes; ++l) sums[l] = 0;
    for (idx i = 0; i < kh; ++i) {
      const idx ty = y + py - i * dy, oy = ty / sy;
      if (ty < 0 || ty % sy != 0 || oy >= oh) continue;
      for (idx j = 0; j < kw; ++j) {
        const idx begin = j * dx - px - left, at = (((plane * kh + i) * kw + j) * oh + oy) * ow;
        INSIDE(begin, sx, lanes, ow, low, high);
        INDEPENDENT
        for (idx ox = low; ox < high; ++ox) sums[begin + ox * sx] += (T)LD(in, at + ox);
      }
    }
    INDEPENDENT
    for (idx l = 0; l < lanes; ++l) ST(out, v * w + left + l, sums[l]);
  }
}
