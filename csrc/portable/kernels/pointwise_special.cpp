// Special functions: what OpenCL C, CUDA C and C have no name for. Series were fitted for this file: Chebyshev's for the
// Bessel functions, by their values at Chebyshev's nodes; the others are textbook recurrences and asymptotic series.
#include "portable/kernels/pointwise.h"

namespace causeway::portable {

namespace {

// exp(-|x|) I0(x) and exp(-|x|) I1(x), in t = |x| / 4 - 1 up to 8, in 16 / |x| - 1 beyond.
constexpr const char* kI0 = R"(
FUNCTION T i0e_of(T v) {
  const T x = v < K(0) ? -v : v;
  T b0 = K(0), b1 = K(0), b2, y;
  if (x <= K(8)) {
    const T c[29] = {0.338397637204738042, -0.304682672343198399, 0.171620901522208775, 
-0.0949010970480476444, 0.0493052842396707085, -0.0237374148058994688, 0.0105464603945949983, 
-0.00432430999505057594, 0.0016394756169413358, -0.000576375574538582366, 0.000188502885095841656, 
-0.000057541950100821037, 0.0000164484480707288971, -4.41673835845875056e-6, 1.11738753912010372e-6, 
-2.67079385394061173e-7, 6.04699502254191895e-8, -1.30002500998624804e-8, 2.65982372468238665e-9, 
-5.18979560163526291e-10, 9.67580903537323691e-11, -1.72682629144155571e-11, 2.95505266312963983e-12, 
-4.85644678311192946e-13, 7.67618549860493562e-14, -1.16853328779934517e-14, 1.71539128555513303e-15, 
-2.43127984654795469e-16, 3.3307945188222381e-17};
    y = x / K(4) - K(1);
    for (int i = 28; i > 0; --i) { b2 = b1; b1 = b0; b0 = K(2) * y * b1 - b2 + c[i]; }
    b0 = y * b0 - b1 + c[0];
    return b0;
  } else {
    const T c[25] = {0.402245205507054416, 0.00336911647825569409, 0.0000688975834691682398, 
2.89137052083475648e-6, 2.04891858946906374e-7, 2.26666899049817806e-8, 3.39623202570838635e-9, 
4.94060238822496959e-10, 1.18891471078464383e-11, -3.14991652796324136e-11, -1.32158118404477131e-11, 
-1.79417853150680612e-12, 7.18012445138366623e-13, 3.8527783827421427e-13, 1.54008621752140983e-14, 
-4.15056934728722209e-14, -9.55484669882830765e-15, 3.81168066935262242e-15, 1.77256013305652638e-15, 
-3.42548561967721913e-16, -2.82762398051658348e-16, 3.46122286769746109e-17, 4.46562142029676e-17, 
-4.83050448594418207e-18, -7.23318048787475395e-18};
    y = K(16) / x - K(1);
    for (int i = 24; i > 0; --i) { b2 = b1; b1 = b0; b0 = K(2) * y * b1 - b2 + c[i]; }
    b0 = (y * b0 - b1 + c[0]) / sqrt(x);
    return b0;
  }
}
)";
constexpr const char* kI1 = R"(
FUNCTION T i1e_of(T v) {
  const T x = v < K(0) ? -v : v;
  T b0 = K(0), b1 = K(0), b2, y;
  if (x <= K(8)) {
    const T c[29] = {0.126293593221816827, -0.176416518357834055, 0.102643658689847095, 
-0.0529459812080949914, 0.0247264490306265168, -0.0105640848946261982, 0.00415642294431288816, 
-0.00151357245063125315, 0.000512285956168575773, -0.000161760815825896746, 0.0000478156510755005423, 
-0.0000132731636560394358, 3.47025130813767848e-6, -8.56872026469545474e-7, 2.00329475355213526e-7, 
-4.44505912879632808e-8, 9.38153738649577178e-9, -1.88724975172282929e-9, 3.62559028155211704e-10, 
-6.66348972350202774e-11, 1.17361862988909016e-11, -1.98397439776494372e-12, 3.22379336594557471e-13, 
-5.04218550472791169e-14, 7.60068429473540693e-15, -1.10559694773538631e-15, 1.55363195773620047e-16, 
-2.11142121435816608e-17, 2.77791411276104637e-18};
    y = x / K(4) - K(1);
    for (int i = 28; i > 0; --i) { b2 = b1; b1 = b0; b0 = K(2) * y * b1 - b2 + c[i]; }
    b0 = y * b0 - b1 + c[0];
    return v * b0;
  } else {
    const T c[25] = {0.38928811750914006, -0.00976109749136146841, -0.000110588938762623716, 
-3.88256480887769039e-6, -2.51223623787020893e-7, -2.63146884688951951e-8, -3.83538038596423702e-9, 
-5.58974346219658381e-10, -1.89749581235054123e-11, 3.25260358301548824e-11, 1.41258074366137813e-11, 
2.03562854414708951e-12, -7.19855177624590851e-13, -4.08355111109219732e-13, -2.10154184277266431e-14, 
4.27244001671195135e-14, 1.04202769841288028e-14, -3.8144030724370078e-15, -1.88035477551078245e-15, 
3.30820231092092828e-16, 2.96262899764595014e-16, -3.20952592199342396e-17, -4.65030536848935833e-17, 
4.41434832307170795e-18, 7.51729631084210481e-18};
    y = K(16) / x - K(1);
    for (int i = 24; i > 0; --i) { b2 = b1; b1 = b0; b0 = K(2) * y * b1 - b2 + c[i]; }
    b0 = (y * b0 - b1 + c[0]) / sqrt(x);
    return v < K(0) ? -b0 : b0;
  }
}
)";

// Digamma: reflection for the negative, recurrence up to 10, then its asymptotic series (Abramowitz and Stegun, 6.3.18).
// Trigamma: reflection, recurrence, the first terms of the asymptotic series.
// Zeta: Euler and Maclaurin's formula after 10 terms, with (2k)! / B(2k).
constexpr const char* kGamma = R"(
FUNCTION T digamma_of(T x) {
  T r = K(0), z, s;
  if (x == K(0)) return copysign(K(INFINITY), -x);
  if (x < K(0)) {
    if (x == rint(x)) return K(NAN);
    const T f = x - rint(x), a = f < K(0) ? -f : f;  // cot(pi f), by the tangent that is small
    r = a <= K(0.25) ? K(-1) / tan(K(3.14159265358979323846) * a) : -tan(K(3.14159265358979323846) * (K(0.5) - a));
    r *= f < K(0) ? K(-3.14159265358979323846) : K(3.14159265358979323846);
    x = K(1) - x;
  }
  while (x < K(10)) { r -= K(1) / x; x += K(1); }
  if (x == K(10)) return r + K(2.25175258906672110764);
  z = K(1) / (x * x);
  s = x < K(1e17) ? z * (0.0833333333333333333 - z * (0.00833333333333333333 - z * (0.00396825396825396825 - z * (0.00416666666666666667 - z * (0.00757575757575757576 - z *
    (0.0210927960927960928 - z * 0.0833333333333333333)))))) : K(0);
  return r + log(x) - K(0.5) / x - s;
}
FUNCTION T trigamma_of(T x) {
  T r = K(0), z, s, sign = K(1);
  int k;
  if (x < K(0.5)) {
    s = sin(K(3.14159265358979323846) * x);
    r = -(K(3.14159265358979323846) * K(3.14159265358979323846)) / (s * s);
    sign = K(-1);
    x = K(1) - x;
  }
  for (k = 0; k < 6; ++k) { r += K(1) / (x * x); x += K(1); }
  z = K(1) / (x * x);
  r += (K(1) + K(1) / (K(2) * x) + z * (K(1) / K(6) - z * (K(1) / K(30) - z * (K(1) / K(42))))) / x;
  return sign * r;
}
FUNCTION T zeta_of(T x, T q) {
  const T c[12] = {12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1892437580.31837916,
    74724249600.0, -2950130727918.16422, 116467828143500.672, -4597978722407472.61, 181521054019435468.0, -7.16616525617566701e+18};
  T a, b = K(0), k = K(0), s, t, w;
  if (x == K(1)) return K(INFINITY);
  if (!(x >= K(1))) return K(NAN);
  if (q <= K(0)) {
    if (q == floor(q)) return K(INFINITY);
    if (x != floor(x)) return K(NAN);
  }
  s = pow(q, -x);
  if (s - s != K(0)) return s;
  a = q;
  for (int i = 0; i < 9 || a <= K(9); ++i) {
    a += K(1);
    b = pow(a, -x);
    s += b;
    if (s != K(0) && fabs(b) <= fabs(s) * K(1e-17)) return s;
  }
  // The rest is 0 as well; the CPU's kernel multiplies it by infinity where x to the 23 is none of float64, or q.
  if (s == K(0) && b == K(0)) return x > K(2.5e13) || q == K(INFINITY) ? K(NAN) : s;
  w = a;
  s += b * w / (x - K(1)) - K(0.5) * b;
  a = K(1);
  for (int i = 0; i < 12; ++i) {
    a *= x + k;
    b /= w;
    t = a * b / c[i];
    s += t;
    if (fabs(t) <= fabs(s) * K(1e-17)) return s;
    k += K(1);
    a *= x + k;
    b /= w;
    k += K(1);
  }
  return s;
}
)";

// The scaled error function: exp(x * x) erfc(x), by Laplace's continued fraction where x is large. The inverse: the
// place where erfc has the value, by Newton's and Halley's steps from an estimate (Abramowitz and Stegun, 26.2.23).
constexpr const char* kError = R"(
FUNCTION T erfcx_of(T x) {
  if (x != x) return x;
  if (x < K(2)) return x < K(-30) ? K(INFINITY) : exp(x * x) * erfc(x);
  T f = x;
  for (int i = 80; i > 0; --i) f = x + K(0.5) * K(i) / f;
  return K(0.56418958354775628695) / f;
}
/* The x < 0 whose normal distribution is p, 0 < p <= 0.5. */
FUNCTION T below_of(T p) {
  const T t = sqrt(K(-2) * log(p));
  T x = (K(2.515517) + t * (K(0.802853) + t * K(0.010328))) /
        (K(1) + t * (K(1.432788) + t * (K(0.189269) + t * K(0.001308)))) - t;
  for (int i = 0; i < 3; ++i) {
    /* f(x) / f'(x) of f = log of the distribution - log p: well scaled in the tail too */
    const T h = erfcx_of(x * K(-0.70710678118654752440)), g = x * x * K(0.5);
    const T d = log(K(0.5) * h) - g - log(p);
    const T slope = K(0.79788456080286535588) / h;
    x -= d / slope;
  }
  return x;
}
FUNCTION T ndtri_of(T p) {
  if (p == K(0)) return K(-INFINITY);
  if (p == K(1)) return K(INFINITY);
  if (!(p > K(0) && p < K(1))) return K(NAN);
  return p <= K(0.5) ? below_of(p) : -below_of(K(1) - p);
}
FUNCTION T erfinv_of(T y) {
  const T v = y < K(0) ? -y : y;
  T x, w;
  if (v == K(1)) return copysign(K(INFINITY), y);
  if (!(v < K(1))) return K(NAN);
  if (v > K(0.5)) {
    x = below_of((K(1) - v) * K(0.5)) * K(-0.70710678118654752440);
    return copysign(x, y);
  }
  x = y * K(0.88622692545275801365) * (K(1) + y * y * K(0.26179938779914943654));
  for (int i = 0; i < 4; ++i) { w = erf(x) - y; x -= w * K(0.88622692545275801365) * exp(x * x); }
  return x;
}
)";

}  // namespace

std::vector<Pointwise> special_functions() {
  constexpr cw_dtypes F = kFloats, R = kReals, FF = CW_FLOAT32 | CW_FLOAT64;
  constexpr Rule S = Rule::Same;
  return {
      {"aten::asinh.out", "t", S, F, "r = asinh(a);", 80},
      {"aten::acosh.out", "t", S, F, "r = acosh(a);", 80},
      {"aten::atanh.out", "t", S, F, "r = atanh(a);", 80},
      {"aten::angle.out", "t", S, F, "r = a != a ? a : a < K(0) ? K(3.14159265358979323846) : K(0);"},
      {"aten::conj_physical.out", "t", S, R, "r = a;", 2},
      {"aten::copysign.out", "tt", S, F, "r = copysign(a, b);"},
      {"aten::nextafter.out", "tt", S, FF, "r = nextafter(a, b);"},
      {"aten::heaviside.out", "tt", S, R, "r = a == K(0) ? b : a != a ? K(0) : K(a > K(0));"},
      {"aten::frexp.Tensor_out", "t", S, F,
       "int e = 0; r = frexp(a, &e); if (r == K(0) || r != r || r - r != r - r) "
       "e = 0; q = K(e);",
       20, 2},
      {"aten::round.decimals_out", "tf", S, F,
       "T p = K(1); for (int i = 0; i < (FLAG < 0 ? -FLAG : FLAG); ++i) p *= K(10);"
       " r = FLAG < 0 ? rint(a / p) * p : rint(a * p) / p;",
       20},
      {"aten::nan_to_num.out", "tooo", S, R,
       "\n#if IS_FLOAT\n#if !HAS_X\nconst T x = K(0);\n#endif\n#if !HAS_Y\nconst T y = LARGEST;\n#endif\n"
       "#if !HAS_Z\nconst T z = -LARGEST;\n#endif\n"
       "r = a != a ? x : a - a == a - a ? a : a > K(0) ? y : z;\n#else\nr = a;\n#endif"},
      {"aten::logaddexp.out", "tt", S, F,
       "const T m = MAXIMUM(a, b), d = a < b ? a - b : b - a; r = m - m != m - m && a == b ? a : m + log1p(exp(d));",
       120},
      {"aten::logaddexp2.out", "tt", S, F,
       "const T m = MAXIMUM(a, b), d = a < b ? a - b : b - a; r = m - m != m - m && a == b ? a : m + log1p(exp2(d)) * "
       "K(1.44269504088896340736);",
       120},
      {"aten::logit.out", "to", S, F,
       "\n#if HAS_X\nconst T v = a < x ? x : a > K(1) - x ? K(1) - x : a;\n#else\nconst T v = a;\n#endif\n"
       "r = log(v / (K(1) - v));",
       70},
      {"aten::logit_backward.grad_input", "tto", S, F,
       "\n#if HAS_X\nr = x >= K(0) ? (b < x || b > K(1) - x ? K(0) : a / (b * (K(1) - b))) :"
       " b < K(0) || b > K(1) ? K(NAN) : a / (b * (K(1) - b));\n#else\n"
       "r = b < K(0) || b > K(1) ? K(NAN) : a / (b * (K(1) - b));\n#endif"},
      {"aten::sinc.out", "t", S, F, "const T v = a * K(3.14159265358979323846); r = a == K(0) ? K(1) : sin(v) / v;",
       90},
      {"aten::xlogy.OutTensor", "tt", S, F, "r = b != b ? b : a == K(0) ? K(0) : a * log(b);", 70},
      {"aten::special_xlog1py.out", "tt", S, F, "r = b != b ? b : a == K(0) ? K(0) : a * log1p(b);", 70},
      {"aten::special_entr.out", "t", S, F,
       "r = a != a ? a : a > K(0) ? -a * log(a) : a == K(0) ? K(0) : K(-INFINITY);", 70},
      {"aten::erfc.out", "t", S, F, "r = erfc(a);", 80},
      {"aten::lgamma.out", "t", S, F, "r = a - a != a - a ? (a != a ? a : K(INFINITY)) : lgamma(a);", 120},
      {"aten::mvlgamma.out", "tf", S, F,
       "r = K(FLAG * (FLAG - 1)) * K(0.28618247146235004354); for (int j = 0; j < FLAG; ++j) r += lgamma(a - K(0.5) * "
       "K(j));",
       400},
      {"aten::digamma.out", "t", S, F, "r = digamma_of(a);", 150, 1, kGamma},
      {"aten::special_zeta.out", "tt", S, F, "r = zeta_of(a, b);", 1500, 1, kGamma},
      {"aten::polygamma.out", "ft", S, F,
       "\n#if FLAG == 0\nr = digamma_of(a);\n#elif FLAG == 1\nr = trigamma_of(a);\n#else\nr = (FLAG % 2 ? K(1) : "
       "K(-1)) * exp(lgamma(K(FLAG + 1))) * "
       "zeta_of(K(FLAG + 1), a);\n#endif",
       1500, 1, kGamma},
      {"aten::i0.out", "t", S, F, "r = exp(a < K(0) ? -a : a) * i0e_of(a);", 120, 1, kI0},
      {"aten::special_i0e.out", "t", S, F, "r = i0e_of(a);", 100, 1, kI0},
      {"aten::special_i1.out", "t", S, F, "r = exp(a < K(0) ? -a : a) * i1e_of(a);", 120, 1, kI1},
      {"aten::special_i1e.out", "t", S, F, "r = i1e_of(a);", 100, 1, kI1},
      {"aten::special_modified_bessel_i0.out", "t", S, FF, "r = exp(a < K(0) ? -a : a) * i0e_of(a);", 120, 1, kI0},
      {"aten::special_modified_bessel_i1.out", "t", S, FF, "r = exp(a < K(0) ? -a : a) * i1e_of(a);", 120, 1, kI1},
      {"aten::special_erfcx.out", "t", S, FF, "r = erfcx_of(a);", 200, 1, kError},
      {"aten::special_log_ndtr.out", "t", S, FF,
       "const T v = a * K(0.70710678118654752440); r = v < K(-1) ? log(erfcx_of(-v) * K(0.5)) - v * v : log1p(erfc(v) "
       "* "
       "K(-0.5));",
       250, 1, kError},
      {"aten::special_ndtri.out", "t", S, FF, "r = ndtri_of(a);", 600, 1, kError},
      {"aten::erfinv.out", "t", S, F, "r = erfinv_of(a);", 600, 1, kError},
  };
}

}  // namespace causeway::portable
