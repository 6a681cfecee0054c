// Special functions: what OpenCL C, CUDA C and C have no name for. Series were fitted for this file: Chebyshev's for the
// Bessel functions, by their values at Chebyshev's nodes; the others are textbook recurrences and asymptotic series.
#include "portable/kernels/pointwise.h"
#include "portable/kernels/pointwise_special.cl.h"

namespace causeway::portable {

namespace {}  // namespace

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
      {"aten::lgamma.out", "t", S, F, "r = a - a != a - a ? (a != a ? a : K(INFINITY)) : LGAMMA(a);", 120},
      {"aten::mvlgamma.out", "tf", S, F,
       "r = K(FLAG * (FLAG - 1)) * K(0.28618247146235004354); for (int j = 0; j < FLAG; ++j) r += LGAMMA(a - K(0.5) * "
       "K(j));",
       400},
      {"aten::digamma.out", "t", S, F, "r = digamma_of(a);", 150, 1, texts::pointwise_special::gamma},
      {"aten::special_zeta.out", "tt", S, F, "r = zeta_of(a, b);", 1500, 1, texts::pointwise_special::gamma},
      {"aten::polygamma.out", "ft", S, F,
       "\n#if FLAG == 0\nr = digamma_of(a);\n#elif FLAG == 1\nr = trigamma_of(a);\n#else\nr = (FLAG % 2 ? K(1) : "
       "K(-1)) * exp(LGAMMA(K(FLAG + 1))) * "
       "zeta_of(K(FLAG + 1), a);\n#endif",
       1500, 1, texts::pointwise_special::gamma},
      {"aten::i0.out", "t", S, F, "r = exp(a < K(0) ? -a : a) * i0e_of(a);", 120, 1, texts::pointwise_special::i0},
      {"aten::special_i0e.out", "t", S, F, "r = i0e_of(a);", 100, 1, texts::pointwise_special::i0},
      {"aten::special_i1.out", "t", S, F, "r = exp(a < K(0) ? -a : a) * i1e_of(a);", 120, 1,
       texts::pointwise_special::i1},
      {"aten::special_i1e.out", "t", S, F, "r = i1e_of(a);", 100, 1, texts::pointwise_special::i1},
      {"aten::special_modified_bessel_i0.out", "t", S, FF, "r = exp(a < K(0) ? -a : a) * i0e_of(a);", 120, 1,
       texts::pointwise_special::i0},
      {"aten::special_modified_bessel_i1.out", "t", S, FF, "r = exp(a < K(0) ? -a : a) * i1e_of(a);", 120, 1,
       texts::pointwise_special::i1},
      {"aten::special_erfcx.out", "t", S, FF, "r = erfcx_of(a);", 200, 1, texts::pointwise_special::error},
      {"aten::special_log_ndtr.out", "t", S, FF,
       "const T v = a * K(0.70710678118654752440); r = v < K(-1) ? log(erfcx_of(-v) * K(0.5)) - v * v : log1p(erfc(v) "
       "* "
       "K(-0.5));",
       250, 1, texts::pointwise_special::error},
      {"aten::special_ndtri.out", "t", S, FF, "r = ndtri_of(a);", 600, 1, texts::pointwise_special::error},
      {"aten::erfinv.out", "t", S, F, "r = erfinv_of(a);", 600, 1, texts::pointwise_special::error},
  };
}

}  // namespace causeway::portable
