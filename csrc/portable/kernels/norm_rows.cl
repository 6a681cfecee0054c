// Texts of norm_rows.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// columns: What rows add to the gradients of scale and shift: a block of columns, a part of the rows.
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx block = u % blocks, part = u / blocks, j0 = block * WIDE, wide = n - j0 < WIDE ? n - j0 : WIDE;
  T scale[WIDE], shift[WIDE];
  for (int l = 0; l < WIDE; ++l) { scale[l] = 0; shift[l] = 0; }
  for (idx row = rows * part / parts, past = rows * (part + 1) / parts; row < past; ++row) {
    const idx at = row * n + j0;
    const T m = CENTERED ? MEAN(row) : 0, r = RSTD(row);
    INDEPENDENT
    for (idx l = 0; l < wide; ++l) {
      const T g = GRAD(at + l);
      scale[l] += g * (IN(at + l) - m) * r;
      shift[l] += g;
    }
  }
  for (idx l = 0; l < wide; ++l) {
    sums[part * n + j0 + l] = scale[l];
    sums[(parts + part) * n + j0 + l] = shift[l];
  }
}
