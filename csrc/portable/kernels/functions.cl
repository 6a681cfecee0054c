// Texts of functions.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. Functions of float32 for
// devices that compute one element after the other: polynomials are those of Cephes, but where it says otherwise.

//// rint
FUNCTION f32 rint_f32(f32 x) {
  const f32 t = FLOAT(BITS(x) & 0x7fffffffu), r = t < 8388608.0f ? t + 8388608.0f - 8388608.0f : t;
  return FLOAT(BITS(r) | (BITS(x) & 0x80000000u));
}

//// log_of: log(m) = f - f^2/2 + f^3 P(f) for f = m - 1, sqrt(1/2) <= m < sqrt(2).
#define SPLIT(x) \
  const f32 split_ = (x) < 1.17549435e-38f ? (x) * 8388608.0f : (x); \
  const u32 bits_ = BITS(split_) - 0x3f3504f3u; \
  const f32 f = FLOAT((bits_ & 0x007fffffu) + 0x3f3504f3u) - 1.0f; \
  const f32 k = (f32)((i32)bits_ >> 23) - ((x) < 1.17549435e-38f ? 23.0f : 0.0f)
#define OF_LOG(x, r) ((x) != (x) || (x) < 0.0f ? NAN : (x) == 0.0f ? -INFINITY : (x) == INFINITY ? (x) : (r))
FUNCTION f32 log_of(f32 f) {
  const f32 z = f * f;
  f32 p = FMA(7.0376836292e-2f, f, -1.1514610310e-1f);
  p = FMA(p, f, 1.1676998740e-1f);
  p = FMA(p, f, -1.2420140846e-1f);
  p = FMA(p, f, 1.4249322787e-1f);
  p = FMA(p, f, -1.6668057665e-1f);
  p = FMA(p, f, 2.0000714765e-1f);
  p = FMA(p, f, -2.4999993993e-1f);
  p = FMA(p, f, 3.3333331174e-1f);
  return FMA(-0.5f, z, f * z * p);
}

//// log
FUNCTION f32 log_f32(f32 x) {
  SPLIT(x);
  const f32 r = FMA(k, 0.693359375f, f + FMA(k, -2.12194440e-4f, log_of(f)));
  return OF_LOG(x, r);
}

//// log2
FUNCTION f32 log2_f32(f32 x) {
  SPLIT(x);
  const f32 y = log_of(f), r = k + FMA(f, 1.44269504f, FMA(f, 1.925963033e-8f, y * 1.44269504f));
  return OF_LOG(x, r);
}

//// log10
FUNCTION f32 log10_f32(f32 x) {
  SPLIT(x);
  const f32 y = log_of(f), low = FMA(k, 4.60503898e-6f, y * 0.4342944819f);
  const f32 r = FMA(k, 0.301025391f, FMA(f, 0.4342944819f, low));
  return OF_LOG(x, r);
}

//// log1p
FUNCTION f32 log1p_f32(f32 x) {
  const f32 u = 1.0f + x, lost = (x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x)) / u;
  SPLIT(u);
  const f32 r = FMA(k, 0.693359375f, f + (FMA(k, -2.12194440e-4f, log_of(f)) + lost));
  return x == 0.0f ? x : OF_LOG(u, r);
}

//// exp2
FUNCTION f32 exp2_f32(f32 x) {
  f32 n;
  x = x < -160.0f ? -160.0f : x;
  x = x > 129.0f ? 129.0f : x;
  n = NEAREST(x);
  return times_two_to(exp_beyond_1((x - n) * 0.693147181f) + 1.0f, (i32)n);
}

//// expm1
FUNCTION f32 expm1_f32(f32 v) {
  f32 n, r, p, s, x = v < -30.0f ? -30.0f : v;
  x = x > 88.0f ? 88.0f : x;
  n = NEAREST(x * 1.44269504088896341f);
  r = FMA(n, -0.693359375f, x);
  r = FMA(n, 2.12194440e-4f, r);
  p = exp_beyond_1(r);
  s = FLOAT((u32)((i32)n + 127) << 23);
  r = v > 80.0f ? exp_f32(v) : FMA(p, s, s - 1.0f);
  return v == 0.0f ? v : r;
}

//// quarters: x in quarters of a turn: the product with 2/pi modulo 4, of which 106 bits lie in a table for each power of 2. Any
//// finite x is right.
#define QUARTERS(x) \
  const i32 power_ = (i32)(BITS(x) >> 23 & 255u) - 150, at_ = power_ < 0 ? 0 : power_ > 104 ? 104 : power_; \
  const f64 m_ = (f64)(x) * DOUBLE((u64)(1023 - at_) << 52), h_ = quarters_high[at_], p_ = m_ * h_, n_ = p_ + 6755399441055744.0 - 6755399441055744.0; \
  const f64 r_ = (p_ - n_) + FMA(m_, quarters_low[at_], FMA(m_, h_, -p_)); \
  const i32 q = (i32)n_; \
  const f32 u = (f32)(r_ * 1.57079632679489662), z = u * u; \
  f32 sine = FMA(-1.9515295891e-4f, z, 8.3321608736e-3f), cosine = FMA(2.443315711809948e-5f, z, -1.388731625493765e-3f); \
  sine = FMA(FMA(sine, z, -1.6666654611e-1f) * z, u, u); \
  cosine = FMA(FMA(cosine, z, 4.166664568298827e-2f) * z, z, FMA(-0.5f, z, 1.0f))

//// sin
FUNCTION f32 sin_f32(f32 x) {
  QUARTERS(x);
  const f32 v = q & 1 ? cosine : sine, r = q & 2 ? -v : v;
  return x - x != 0.0f ? NAN : x == 0.0f ? x : r;
}

//// cos
FUNCTION f32 cos_f32(f32 x) {
  QUARTERS(x);
  const f32 v = q & 1 ? sine : cosine, r = (q + 1) & 2 ? -v : v;
  return x - x != 0.0f ? NAN : r;
}

//// tan
FUNCTION f32 tan_f32(f32 x) {
  QUARTERS(x);
  const f32 r = (q & 1 ? -cosine : sine) / (q & 1 ? sine : cosine);
  return x - x != 0.0f ? NAN : x == 0.0f ? x : r;
}

//// asin_of
FUNCTION f32 asin_of(f32 s, f32 z) {
  f32 p = FMA(4.2163199048e-2f, z, 2.4181311049e-2f);
  p = FMA(p, z, 4.5470025998e-2f);
  p = FMA(p, z, 7.4953002686e-2f);
  p = FMA(p, z, 1.6666752422e-1f);
  return FMA(p * z, s, s);
}

//// asin
FUNCTION f32 asin_f32(f32 x) {
  const f32 t = x < 0.0f ? -x : x, z = t > 0.5f ? 0.5f * (1.0f - t) : x * x;
  const f32 p = asin_of(t > 0.5f ? sqrt(z) : t, z);
  const f32 r = t > 0.5f ? 1.57079632679489662f - (p + p + 4.37113883e-8f) : p;
  return x == 0.0f ? x : x < 0.0f ? -r : r;
}

//// acos
FUNCTION f32 acos_f32(f32 x) {
  const f32 t = x < 0.0f ? -x : x, z = t > 0.5f ? 0.5f * (1.0f - t) : x * x;
  const f32 p = asin_of(t > 0.5f ? sqrt(z) : x, z);
  return t > 0.5f ? (x < 0.0f ? 3.14159265358979324f - (p + p + 8.74227766e-8f) : p + p)
                  : 1.57079632679489662f - (p + 4.37113883e-8f);
}

//// atan_of: Of a quotient, of which more than 1 is turned over.
FUNCTION f32 atan_of(f32 over, f32 under) {
  const f32 far = over > 0.414213562f * under ? 1.0f : 0.0f;
  const f32 x = far != 0.0f ? (over - under) / (over + under) : over / under, z = x * x;
  f32 p = FMA(8.05374449538e-2f, z, -1.38776856032e-1f);
  p = FMA(p, z, 1.99777106478e-1f);
  p = FMA(p, z, -3.33329491539e-1f);
  return far != 0.0f ? 0.785398163f + (FMA(p * z, x, x) - 2.18556941e-8f) : FMA(p * z, x, x);
}

//// atan
FUNCTION f32 atan_f32(f32 x) {
  const f32 t = x < 0.0f ? -x : x, q = atan_of(t > 1.0f ? 1.0f / t : t, 1.0f);
  const f32 p = t > 1.0f ? 1.57079632679489662f - (q + 4.37113883e-8f) : q;
  return x == 0.0f || x != x ? x : x < 0.0f ? -p : p;
}

//// atan2
FUNCTION f32 atan2_f32(f32 y, f32 x) {
  const f32 s = y < 0.0f ? -y : y, t = x < 0.0f ? -x : x, more = s > t ? s : t, less = s > t ? t : s;
  const f32 scale = more > 1e30f ? 1e-10f : more < 1e-30f ? 1e20f : 1.0f;
  const f32 p = more == 0.0f ? 0.0f : less == INFINITY ? 0.785398163f : more == INFINITY ? 0.0f
      : atan_of(less * scale, more * scale);
  const f32 q = s > t ? 1.57079632679489662f - (p + 4.37113883e-8f) : p;
  const f32 r = BITS(x) >> 31 ? 3.14159265358979324f - (q + 8.74227766e-8f) : q;
  return x != x || y != y ? NAN : BITS(y) >> 31 ? -r : r;
}

//// sinh
FUNCTION f32 sinh_f32(f32 x) {
  const f32 t = x < 0.0f ? -x : x, e = exp_f32(0.5f * t), d = expm1_f32(t > 80.0f ? 80.0f : t);
  const f32 r = t > 80.0f ? 0.5f * e * e : 0.5f * (d + d / (d + 1.0f));
  return x == 0.0f || x != x ? x : x < 0.0f ? -r : r;
}

//// cosh
FUNCTION f32 cosh_f32(f32 x) {
  const f32 t = x < 0.0f ? -x : x, e = exp_f32(t > 80.0f ? 0.5f * t : t);
  return t > 80.0f ? 0.5f * e * e : 0.5f * (e + 1.0f / e);
}

//// atanh
FUNCTION f32 atanh_f32(f32 x) {
  const f32 t = x < 0.0f ? -x : x, r = 0.5f * log1p_f32((t + t) / (1.0f - t));
  return x == 0.0f || x != x ? x : t > 1.0f ? NAN : x < 0.0f ? -r : r;
}

//// hypot
FUNCTION f32 hypot_f32(f32 x, f32 y) {
  const f64 a = x, b = y;
  const f32 s = x < 0.0f ? -x : x, t = y < 0.0f ? -y : y;
  return s == INFINITY || t == INFINITY ? INFINITY : (f32)sqrt(FMA(a, a, b * b));
}

//// two_to: 2 ** e in float64 for -1000 < e < 1000, to 2e-10 of it.
FUNCTION f64 two_to(f64 e) {
  const f64 n = e + 6755399441055744.0 - 6755399441055744.0, r = (e - n) * 0.693147180559945309;
  f64 p = FMA(r, 1.0 / 362880, 1.0 / 40320);
  p = FMA(p, r, 1.0 / 5040);
  p = FMA(p, r, 1.0 / 720);
  p = FMA(p, r, 1.0 / 120);
  p = FMA(p, r, 1.0 / 24);
  p = FMA(p, r, 1.0 / 6);
  p = FMA(p, r, 0.5);
  p = FMA(p, r, 1.0);
  return FMA(p, r, 1.0) * DOUBLE((u64)((i32)n + 1023) << 52);
}

//// erfc: erfc(z) = t exp(-z^2 + P(v)) in float64, t = 2 / (2 + z), by a polynomial in v, which is t stretched to -1 .. 1,
//// fitted at Chebyshev's points up to z = 10.3, beyond which all is 0.
FUNCTION f32 erfc_f32(f32 x) {
  const f32 size = x < 0.0f ? -x : x;
  const f64 z = size > 10.3f ? 10.3f : size, t = 2.0 / (2.0 + z), v = FMA(t, 2.3883495145631068, -1.3883495145631068);
  f64 p = FMA(v, 5.62476039955988e-06, -5.306038641972081e-06);
  p = FMA(p, v, -4.0442216215733756e-05);
  p = FMA(p, v, 7.284881612040635e-05);
  p = FMA(p, v, 0.0001505253789898551);
  p = FMA(p, v, -0.0005721777633094121);
  p = FMA(p, v, -0.000274373235927912);
  p = FMA(p, v, 0.0038128866202388127);
  p = FMA(p, v, -0.001156324177449179);
  p = FMA(p, v, -0.02988319247402418);
  p = FMA(p, v, 0.016334221453144372);
  p = FMA(p, v, 0.572932668306285);
  p = FMA(p, v, -0.5613769591662542);
  p = (p - z * z) * 1.44269504088896341;
  p = size > 10.3f ? 0.0 : t * two_to(p);
  return x != x ? x : (f32)(x < 0.0f ? 2.0 - p : p);
}

//// pow: 2 ** (y log2(x)) in float64: the logarithm by the series of artanh, the power by that of exp.
FUNCTION f32 pow_f32(f32 x, f32 y) {
  const f32 t = x < 0.0f ? -x : x, size = y < 0.0f ? -y : y;
  const u64 bits = BITS_OF_DOUBLE((f64)t) - 0x3fe6a09e667f3bcdul;
  const f64 m = DOUBLE((bits & 0x000ffffffffffffful) + 0x3fe6a09e667f3bcdul), s = (m - 1.0) / (m + 1.0), z = s * s;
  f64 p = FMA(z, 1.0 / 15, 1.0 / 13), e;
  p = FMA(p, z, 1.0 / 11);
  p = FMA(p, z, 1.0 / 9);
  p = FMA(p, z, 1.0 / 7);
  p = FMA(p, z, 1.0 / 5);
  p = FMA(p, z, 1.0 / 3);
  p = FMA(p * z, s, s) * 2.88539008177792681 + (f64)((i32)(bits >> 32) >> 20);
  p = t == 0.0f ? -INFINITY : t == INFINITY ? INFINITY : p;
  e = t == 1.0f ? 0.0 : p * (f64)y;
  e = e < -200.0 ? -200.0 : e;
  e = e > 200.0 ? 200.0 : e;
  const f32 power = (f32)two_to(e);
  const f32 whole = rint_f32(y), halved = size < 16777216.0f ? 0.5f * y : 0.0f;
  const int odd = size < 16777216.0f && whole == y && rint_f32(halved) != halved;
  const f32 signed_ = odd && BITS(x) >> 31 ? -power : power;
  const f32 out = x != x || y != y ? NAN : x < 0.0f && t != INFINITY && whole != y ? NAN : signed_;
  return y == 0.0f || x == 1.0f ? 1.0f : out;
}
