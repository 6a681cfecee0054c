// Texts of ctc.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// sample
const idx frames = lengths(u * 3), labels = lengths(u * 3 + 1), start = lengths(u * 3 + 2), used = 2 * labels + 1;
const idx wide = states + 2, base = u * most * states;
idx bad = 0;
for (idx s = 0; s < used + 2; ++s) {
  const idx c = s % 2 && s < used ? (idx)target(start + s / 2 * step) : blank;
  if (c < 0 || c >= classes) { TELL(OUT_OF_RANGE, c, classes); bad = 1; }
  cls_set(u * wide + s, c);
  SET_PAST(s, s > 1 && s < used && CLASS(s - 2) != c ? 1 : 0);
}

//// alpha
if (bad) { nll_set(u * nll_s0, NAN); continue; }
if (frames == 0) { nll_set(u * nll_s0, labels == 0 ? (T)0 : -LOWEST); continue; }
for (idx k = 0; k < 2; ++k) { SET_ROW(k, 0, LOWEST); SET_ROW(k, 1, LOWEST); }
for (idx s = 0; s < used; ++s) {
  const T v = s < 2 ? LP(0, CLASS(s)) : LOWEST;
  SET_ROW(0, s + 2, v);
  alpha_set(base + s, v);
}
for (idx t = 1; t < frames; ++t) {
  const idx now = t % 2, before = 1 - now, at = base + t * states;
  for (idx s = 0; s < used; ++s) SET_NOW(s, LP(t, CLASS(s)));
  INDEPENDENT
  for (idx s = 0; s < used; ++s) {
    const T b = ROW(before, s), v = log_sum(ROW(before, s + 2), ROW(before, s + 1), PAST(s) != 0 ? b : LOWEST) + NOW(s);
    SET_ROW(now, s + 2, v);
    alpha_set(at + s, v);
  }
}
const idx last = base + (frames - 1) * states + used - 1;
nll_set(u * nll_s0, -log_sum(alpha(last), labels > 0 ? alpha(last - 1) : LOWEST, LOWEST));

//// beta: What becomes of each class's gradient is the log of the sum, over its states, of alpha and beta.
if (bad) continue;
for (idx k = 0; k < 2; ++k) { SET_ROW(k, used, LOWEST); SET_ROW(k, used + 1, LOWEST); }
for (idx t = frames - 1; t >= 0; --t) {
  const idx now = t % 2, after = 1 - now, at = base + t * states;
  for (idx s = 0; s < used; ++s) SET_NOW(s, LP(t, CLASS(s)));
  if (t == frames - 1) {
    for (idx s = 0; s < used; ++s) SET_ROW(now, s, s < used - 2 ? LOWEST : NOW(s));
  } else {
    INDEPENDENT
    for (idx s = 0; s < used; ++s) {
      const T b = ROW(after, s + 2);
      SET_ROW(now, s, log_sum(ROW(after, s), ROW(after, s + 1), PAST(s + 2) != 0 ? b : LOWEST) + NOW(s));
    }
  }
  for (idx s = used - 1, last = t == frames - 1 && labels > 0 ? used - 2 : 0; s >= last; --s) {
    const idx to = t * out_s0 + u * out_s1 + CLASS(s) * out_s2;
    const T a = out(to), b = alpha(at + s) + ROW(now, s), m = a < b ? b : a;
    out_set(to, a == LOWEST ? b : log(EXP(a - m) + EXP(b - m)) + m);
  }
}

//// log_sum
FUNCTION T log_sum(T a, T b, T c) {
  T m = a;
  m = b > m ? b : m;
  m = c > m ? c : m;
  m = m == LOWEST ? (T)0 : m;
  return log(EXP(a - m) + EXP(b - m) + EXP(c - m)) + m;
}
