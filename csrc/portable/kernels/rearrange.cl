// Texts of rearrange.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// shuffle: `c` channels of the wide image, which is `h` x `w` and has `r` * `r` times fewer of them than the deep one.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx x = u % w, y = u / w % h, plane = u / w / h;
  const idx deep = ((plane * r + y % r) * r + x % r) * (h / r) * (w / r) + y / r * (w / r) + x / r;
#if BACK
  out[deep] = in[u];
#else
  out[u] = in[deep];
#endif
}

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
