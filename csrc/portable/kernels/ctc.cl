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

//// gradient: for each element of log_probs
const T loss = nll(c1 * nll_s0), v = lp(lp_at);
T r = 0;
if (c0 < lengths(c1 * 3) && !(zero_infinity && loss == (T)INFINITY))
  r = (EXP(v) - EXP(out(out_at) + loss - v)) * grad(c1 * grad_s0);
out_set(out_at, r);

//// memory: what an item needs beside, of each state; `wide` states lie beside each other
#define LP(t, c) lp((t) * lp_s0 + u * lp_s1 + (c) * lp_s2)
#define LOWEST (-(T)INFINITY)
#define CLASS(s) cls(u * wide + (s))
#define PAST(s) w(u * 4 * wide + (s))
#define NOW(s) w((u * 4 + 1) * wide + (s))
#define ROW(k, s) w((u * 4 + 2 + (k)) * wide + (s))
#define SET_PAST(s, v) w_set(u * 4 * wide + (s), v)
#define SET_NOW(s, v) w_set((u * 4 + 1) * wide + (s), v)
#define SET_ROW(k, s, v) w_set((u * 4 + 2 + (k)) * wide + (s), v)

//// lengths: EACH is LENGTHS of each sample
#define LENGTHS(i) \
  lengths_set((first + i) * 3, f##i); lengths_set((first + i) * 3 + 1, l##i); lengths_set((first + i) * 3 + 2, s##i);
EACH
