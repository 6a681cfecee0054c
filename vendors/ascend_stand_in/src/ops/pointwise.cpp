// Operators whose result at an index depends on the inputs at that index. A line each: the name and the formula.
// x and y are both double or both int64; where the formula is of floats alone, whole numbers go by double.
#include "op.hpp"

#include <algorithm>

using namespace ops;

namespace {

// A formula once for double and once for int64, so that the loops below are compiled once and not for each operator.
struct One {
  std::function<double(double)> real;
  std::function<int64_t(int64_t)> whole;
  template <class F>
  One(F f) : real([f](double x) { return double(f(x)); }), whole([f](int64_t x) { return int64_t(f(x)); }) {}
  double operator()(double x) const { return real(x); }
  int64_t operator()(int64_t x) const { return whole(x); }
};
struct Two {
  std::function<double(double, double)> real;
  std::function<int64_t(int64_t, int64_t)> whole;
  template <class F>
  Two(F f)
      : real([f](double x, double y) { return double(f(x, y)); }),
        whole([f](int64_t x, int64_t y) { return int64_t(f(x, y)); }) {}
  double operator()(double x, double y) const { return real(x, y); }
  int64_t operator()(int64_t x, int64_t y) const { return whole(x, y); }
};
struct Three {
  std::function<double(double, double, double)> real;
  std::function<int64_t(int64_t, int64_t, int64_t)> whole;
  template <class F>
  Three(F f)
      : real([f](double x, double y, double z) { return double(f(x, y, z)); }),
        whole([f](int64_t x, int64_t y, int64_t z) { return int64_t(f(x, y, z)); }) {}
  double operator()(double x, double y, double z) const { return real(x, y, z); }
  int64_t operator()(int64_t x, int64_t y, int64_t z) const { return whole(x, y, z); }
};
// Of tensor number i of a list.
struct Listed {
  std::function<double(size_t, double, double, double)> real;
  std::function<int64_t(size_t, int64_t, int64_t, int64_t)> whole;
  template <class F>
  Listed(F f)
      : real([f](size_t i, double x, double y, double z) { return double(f(i, x, y, z)); }),
        whole([f](size_t i, int64_t x, int64_t y, int64_t z) { return int64_t(f(i, x, y, z)); }) {}
  double operator()(size_t i, double x, double y, double z) const { return real(i, x, y, z); }
  int64_t operator()(size_t i, int64_t x, int64_t y, int64_t z) const { return whole(i, x, y, z); }
};

void unary(Op& op, const View& in, const View& out, const One& f, bool real) {
  same_shape(out, in.shape, "the result");
  if (in.dtype >= kComplex64 && !is_float(in.dtype)) reject("the input is %s", name_of(in.dtype));
  op.run([=] {
    auto apply = [&](auto sample) {
      using V = decltype(sample);
      auto values = load<V>(in);
      for (auto& x : values) x = V(f(x));
      store(out, values);
    };
    if (!real && is_whole(in.dtype))
      apply(int64_t());
    else
      apply(double());
  });
}

void binary(Op& op, const View& a, const View& b, const View& out, const Two& f, bool real = false) {
  Dims shape = broadcast(a.shape, b.shape);
  same_shape(out, shape, "the result");
  op.run([=] {
    auto apply = [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(a, shape), y = load<V>(b, shape);
      for (size_t i = 0; i < x.size(); ++i) x[i] = V(f(x[i], y[i]));
      store(out, x);
    };
    if (!real && is_whole(a.dtype) && is_whole(b.dtype))
      apply(int64_t());
    else
      apply(double());
  });
}

// The second operand is a number. With floats a whole tensor is computed in double.
void scaled(Op& op, const View& a, aclScalar b, const View& out, const Two& f, bool real = false) {
  same_shape(out, a.shape, "the result");
  op.run([=] {
    auto apply = [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(a);
      V y = value_of<V>(b);
      for (auto& each : x) each = V(f(each, y));
      store(out, x);
    };
    if (!real && is_whole(a.dtype) && is_whole(b.dtype))
      apply(int64_t());
    else
      apply(double());
  });
}

// The least number by -1 does not fit, and ends the process.
template <class V>
V quotient(V x, V y) {
  return !y ? V(-1) : y == V(-1) ? V(0 - uint64_t(x)) : V(x / y);
}
template <class V>
V remainder_of(V x, V y) {  // With the sign of the divisor.
  if constexpr (std::is_same_v<V, double>) {
    double r = std::fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
  } else {
    if (!y) return V(-1);
    V r = y == V(-1) ? V(0) : V(x % y);
    return r && (r < 0) != (y < 0) ? r + y : r;
  }
}
template <class V>
V fmod_of(V x, V y) {
  if constexpr (std::is_same_v<V, double>)
    return std::fmod(x, y);
  else
    return !y ? V(-1) : y == V(-1) ? V(0) : V(x % y);
}
template <class V>
V floor_div(V x, V y) {
  if constexpr (std::is_same_v<V, double>)
    return std::floor(x / y);
  else
    return quotient(V(x - (y ? remainder_of(x, y) : V(0))), y);
}
template <class V>
V power(V x, V y) {
  if constexpr (std::is_same_v<V, double>) {
    return std::pow(x, y);
  } else {
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
    V result = 1;
    for (V n = y; n; n >>= 1, x *= x)
      if (n & 1) result *= x;
    return result;
  }
}
template <class V>
V largest(V x, V y) {
  return x != x || x > y ? x : y;
}
template <class V>
V smallest(V x, V y) {
  return x != x || x < y ? x : y;
}
template <class V>
double sign_of(V x) {  // 0 of NaN, as the chip's kernel subtracts two comparisons.
  return double((x > 0) - (x < 0));
}
// From the nearer end, so that an infinite one does not meet its opposite.
double lerp(double x, double y, double z) { return std::fabs(z) < 0.5 ? x + z * (y - x) : y - (y - x) * (1 - z); }
// In the dtype's own width, in which the least number has no opposite.
int64_t gcd(int64_t x, int64_t y, int dtype) {
  int64_t least = INT64_MIN >> (64 - 8 * size_of(dtype));
  auto positive = [=](int64_t v) { return v < 0 && v != least ? -v : v; };
  for (x = positive(x), y = positive(y); x;) {
    int64_t rest = y % x;
    y = x;
    x = rest;
  }
  return y;
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0); }
double gelu(double x, bool tanh) {
  return tanh ? 0.5 * x * (1 + std::tanh(M_SQRT2 * M_2_SQRTPI * 0.5 * (x + 0.044715 * x * x * x)))
              : 0.5 * x * std::erfc(-x * M_SQRT1_2);
}
double gelu_slope(double x, bool tanh) {
  if (!tanh) return 0.5 * std::erfc(-x * M_SQRT1_2) + x * std::exp(-0.5 * x * x) * M_2_SQRTPI * M_SQRT1_2 * 0.5;
  double k = M_SQRT2 * M_2_SQRTPI * 0.5, t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}
double inverse_erf(double y) {  // Giles' start, and Newton.
  if (y <= -1 || y >= 1) return y == 1 ? INFINITY : y == -1 ? -INFINITY : NAN;
  double w = -std::log((1 - y) * (1 + y)), x = y * (w < 5 ? 1.2 : std::sqrt(w) / std::fabs(y)) * 0.75;
  for (int i = 0; i < 60; ++i) x -= (std::erf(x) - y) / (M_2_SQRTPI * std::exp(-x * x));
  return x;
}

}  // namespace

// Functions of floats: aclnnX, aclnnInplaceX.
#define REAL(Name, formula)                                                                     \
  OP(Name, (T self, O result), {                                                                \
    View a = op.in(self), out = op.out(result);                                                 \
    if (!is_float(out.dtype)) reject("the result is %s, expected a float", name_of(out.dtype)); \
    unary(op, a, out, [](double x) { return formula; }, true);                                  \
  })                                                                                            \
  OP(Inplace##Name, (O self), {                                                                 \
    View a = op.out(self);                                                                      \
    need_float(a, "the tensor");                                                                \
    unary(op, a, a, [](double x) { return formula; }, true);                                    \
  })

// And those that whole numbers have too.
#define ANY(Name, formula)                                    \
  OP(Name, (T self, O result), {                              \
    View a = op.in(self), out = op.out(result);               \
    unary(op, a, out, [](auto x) { return formula; }, false); \
  })                                                          \
  OP(Inplace##Name, (O self), {                               \
    View a = op.out(self);                                    \
    unary(op, a, a, [](auto x) { return formula; }, false);   \
  })

REAL(Sqrt, std::sqrt(x))
REAL(Rsqrt, 1 / std::sqrt(x))
REAL(Exp, std::exp(x))
REAL(Exp2, std::exp2(x))
REAL(Expm1, std::expm1(x))
REAL(Log, std::log(x))
REAL(Log2, std::log2(x))
REAL(Log10, std::log10(x))
REAL(Log1p, std::log1p(x))
REAL(Sin, std::sin(x))
REAL(Cos, std::cos(x))
REAL(Tan, std::tan(x))
REAL(Asin, std::asin(x))
REAL(Acos, std::acos(x))
REAL(Atan, std::atan(x))
REAL(Sinh, std::sinh(x))
REAL(Cosh, std::cosh(x))
REAL(Tanh, std::tanh(x))
REAL(Asinh, std::asinh(x))
REAL(Acosh, std::acosh(x))
REAL(Atanh, std::atanh(x))
REAL(Erf, std::erf(x))
REAL(Erfc, std::erfc(x))
REAL(Erfinv, inverse_erf(x))
REAL(Lgamma, std::lgamma(x))
REAL(Sinc, x == 0 ? 1.0 : std::sin(M_PI * x) / (M_PI * x))
REAL(Sigmoid, sigmoid(x))
REAL(Reciprocal, 1 / x)
REAL(Frac, x - std::trunc(x))
REAL(Silu, x* sigmoid(x))
REAL(Mish, x* std::tanh(softplus(x)))
REAL(Hardswish, x* std::min(std::max(x + 3, 0.0), 6.0) / 6)
REAL(Hardsigmoid, std::min(std::max(x + 3, 0.0), 6.0) / 6)
REAL(Gelu, gelu(x, true))
REAL(FastGelu, x* sigmoid(1.702 * x))
REAL(LogSigmoid, -softplus(-x))
REAL(Selu, x > 0 ? 1.0507009873554805 * x : 1.7580993408473766 * std::expm1(x))
ANY(Abs, x < 0 ? -x : x)
ANY(Neg, -x)
ANY(Relu, x < 0 ? decltype(x)(0) : x)
ANY(Sign, sign_of(x))
ANY(Square, x* x)
ANY(Ceil, std::ceil(x))
ANY(Floor, std::floor(x))
ANY(Trunc, std::trunc(x))
ANY(Round, std::nearbyint(x))
ANY(LogicalNot, x == 0)
ANY(IsFinite, std::isfinite(double(x)))
ANY(IsInf, std::isinf(double(x)))
ANY(IsNan, x != x)
ANY(IsPosInf, double(x) == INFINITY)
ANY(IsNegInf, double(x) == -INFINITY)
ANY(Signbit, std::signbit(double(x)))

OP(BitwiseNot, (T self, O result), {
  View a = op.in(self), out = op.out(result);
  need_whole(a, "the input");
  bool logical = a.dtype == kBool;
  unary(op, a, out, [=](auto x) { return logical ? int64_t(!x) : ~int64_t(x); }, false);
})
OP(GeluV2, (T self, i64 approximate, O result), {
  View a = op.in(self), out = op.out(result);
  need_float(a, "the input");
  unary(op, a, out, [=](double x) { return gelu(x, approximate == 1); }, true);
})
// The buffer is left alone, as in CANN's public source: its own backward does not read it.
OP(LogSigmoidForward, (T self, O result, O buffer), {
  View a = op.in(self), out = op.out(result);
  op.out_maybe(buffer);
  unary(op, a, out, [](double x) { return -softplus(-x); }, true);
})

// With numbers: p, q, r.
#define WITH_1(Name, formula)                                   \
  OP(Name, (T self, S first, O result), {                       \
    View a = op.in(self), out = op.out(result);                 \
    double p = number(first).real;                              \
    unary(op, a, out, [=](double x) { return formula; }, true); \
  })                                                            \
  OP(Inplace##Name, (O self, S first), {                        \
    View a = op.out(self);                                      \
    double p = number(first).real;                              \
    unary(op, a, a, [=](double x) { return formula; }, true);   \
  })
#define WITH_2(Name, formula)                                   \
  OP(Name, (T self, S first, S second, O result), {             \
    View a = op.in(self), out = op.out(result);                 \
    double p = number(first).real, q = number(second).real;     \
    unary(op, a, out, [=](double x) { return formula; }, true); \
  })                                                            \
  OP(Inplace##Name, (O self, S first, S second), {              \
    View a = op.out(self);                                      \
    double p = number(first).real, q = number(second).real;     \
    unary(op, a, a, [=](double x) { return formula; }, true);   \
  })
WITH_1(LeakyRelu, x > 0 ? x : x * p)
WITH_1(Celu, x > 0 ? x : p * std::expm1(x / p))
WITH_1(Hardshrink, x >= -p && x <= p ? 0 : x)
WITH_1(Softshrink, x > p ? x - p : x < -p ? x + p : 0 * x)
// Whole numbers stay whole: a double does not hold all of 64 bits.
#define BOUND(Name, better)                                                                              \
  static void bound_##Name(Op& op, const View& a, S first, const View& out) {                            \
    aclScalar n = number(first);                                                                         \
    bool whole = is_whole(a.dtype) && is_whole(n.dtype);                                                 \
    unary(op, a, out, [=](auto x) { return x != x ? x : better(x, value_of<decltype(x)>(n)); }, !whole); \
  }                                                                                                      \
  OP(Name, (T self, S first, O result), {                                                                \
    View a = op.in(self), out = op.out(result);                                                          \
    bound_##Name(op, a, first, out);                                                                     \
  })                                                                                                     \
  OP(Inplace##Name, (O self, S first), {                                                                 \
    View a = op.out(self);                                                                               \
    bound_##Name(op, a, first, a);                                                                       \
  })
BOUND(ClampMin, std::max)
BOUND(ClampMax, std::min)
WITH_2(Hardtanh, x != x ? x : std::min(std::max(x, p), q))
WITH_2(Threshold, x <= p ? q : x)
WITH_2(Softplus, x* p > q ? x : softplus(x * p) / p)

static auto elu_of(double p, double q, double r) {
  return [=](double x) { return x > 0 ? q * x : q * p * std::expm1(x * r); };
}
OP(Elu, (T self, S alpha, S scale, S input_scale, O result), {
  View a = op.in(self), out = op.out(result);
  unary(op, a, out, elu_of(number(alpha).real, number(scale).real, number(input_scale).real), true);
})
OP(InplaceElu, (O self, S alpha, S scale, S input_scale), {
  View a = op.out(self);
  unary(op, a, a, elu_of(number(alpha).real, number(scale).real, number(input_scale).real), true);
})

// Either bound may be missing.
OP(Clamp, (T self, S low, S high, O result), {
  View a = op.in(self), out = op.out(result);
  if (!low && !high) reject("both bounds are NULL");
  aclScalar from = low ? *low : aclScalar{kInt64, INT64_MIN, -INFINITY},
            to = high ? *high : aclScalar{kInt64, INT64_MAX, INFINITY};
  bool whole = is_whole(a.dtype) && is_whole(from.dtype) && is_whole(to.dtype);
  unary(
      op, a, out,
      [=](auto x) {
        using V = decltype(x);
        if (x != x) return x;
        return std::min(std::max(x, value_of<V>(from)), value_of<V>(to));
      },
      !whole);
})

static auto nan_to(float nan, float high, float low) {
  return [=](double x) {
    return x != x ? double(nan) : x == INFINITY ? double(high) : x == -INFINITY ? double(low) : x;
  };
}
OP(NanToNum, (T self, float nan, float high, float low, O result), {
  View a = op.in(self), out = op.out(result);
  unary(op, a, out, nan_to(nan, high, low), is_float(a.dtype));
})
OP(InplaceNanToNum, (O self, float nan, float high, float low), {
  View a = op.out(self);
  unary(op, a, a, nan_to(nan, high, low), is_float(a.dtype));
})

// Two tensors: aclnnX(self, other, result), aclnnInplaceX(self, other).
#define PAIR(Name, formula)                                        \
  OP(Name, (T self, T other, O result), {                          \
    View a = op.in(self), b = op.in(other), out = op.out(result);  \
    binary(op, a, b, out, [](auto x, auto y) { return formula; }); \
  })                                                               \
  OP(Inplace##Name, (O self, T other), {                           \
    View a = op.out(self), b = op.in(other);                       \
    binary(op, a, b, a, [](auto x, auto y) { return formula; });   \
  })
// A tensor and a number.
#define SCALED(Name, formula)                                                  \
  OP(Name, (T self, S other, O result), {                                      \
    View a = op.in(self), out = op.out(result);                                \
    scaled(op, a, number(other), out, [](auto x, auto y) { return formula; }); \
  })                                                                           \
  OP(Inplace##Name, (O self, S other), {                                       \
    View a = op.out(self);                                                     \
    scaled(op, a, number(other), a, [](auto x, auto y) { return formula; });   \
  })
#define COMPARISON(Name, sign) \
  PAIR(Name##Tensor, x sign y) \
  SCALED(Name##Scalar, x sign y)
#define BITWISE(Name, sign)                      \
  PAIR(Name##Tensor, int64_t(x) sign int64_t(y)) \
  SCALED(Name##Scalar, int64_t(x) sign int64_t(y))
#define BOTH(Name, Scaled, formula) \
  PAIR(Name, formula)               \
  SCALED(Scaled, formula)

COMPARISON(Eq, ==)
COMPARISON(Ne, !=)
COMPARISON(Gt, >)
COMPARISON(Ge, >=)
COMPARISON(Lt, <)
COMPARISON(Le, <=)
SCALED(LessScalar, x < y)
BITWISE(BitwiseAnd, &)
BITWISE(BitwiseOr, |)
BITWISE(BitwiseXor, ^)
PAIR(LogicalAnd, x != 0 && y != 0)
PAIR(LogicalOr, x != 0 || y != 0)
PAIR(LogicalXor, (x != 0) != (y != 0))
BOTH(Mul, Muls, x* y)
BOTH(FloorDivide, FloorDivides, floor_div(x, y))
BOTH(FmodTensor, FmodScalar, fmod_of(x, y))
BOTH(RemainderTensorTensor, RemainderTensorScalar, remainder_of(x, y))
BOTH(PowTensorTensor, PowTensorScalar, power(x, y))
PAIR(Maximum, largest(x, y))
PAIR(Minimum, smallest(x, y))
PAIR(ClampMinTensor, largest(x, y))
PAIR(ClampMaxTensor, smallest(x, y))
BOTH(LeftShift, LeftShifts, int64_t(x) << int64_t(y))
PAIR(RightShift, int64_t(x) >> int64_t(y))
OP(Gcd, (T self, T other, O result), {
  View a = op.in(self), b = op.in(other), out = op.out(result);
  need_whole(a, "the first input");
  need_whole(b, "the second input");
  binary(op, a, b, out, [=](auto x, auto y) { return gcd(int64_t(x), int64_t(y), out.dtype); });
})

#define REAL_PAIR(Name, formula)                                             \
  OP(Name, (T self, T other, O result), {                                    \
    View a = op.in(self), b = op.in(other), out = op.out(result);            \
    binary(op, a, b, out, [](double x, double y) { return formula; }, true); \
  })                                                                         \
  OP(Inplace##Name, (O self, T other), {                                     \
    View a = op.out(self), b = op.in(other);                                 \
    binary(op, a, b, a, [](double x, double y) { return formula; }, true);   \
  })
#define REAL_SCALED(Name, formula)                                                       \
  OP(Name, (T self, S other, O result), {                                                \
    View a = op.in(self), out = op.out(result);                                          \
    scaled(op, a, number(other), out, [](double x, double y) { return formula; }, true); \
  })                                                                                     \
  OP(Inplace##Name, (O self, S other), {                                                 \
    View a = op.out(self);                                                               \
    scaled(op, a, number(other), a, [](double x, double y) { return formula; }, true);   \
  })
REAL_PAIR(Div, x / y)
REAL_SCALED(Divs, x / y)
REAL_PAIR(Atan2, std::atan2(x, y))
REAL_PAIR(XLogYTensor, y != y ? y : x == 0 ? 0 : x * std::log(y))
REAL_SCALED(XLogYScalarOther, y != y ? y : x == 0 ? 0 : x * std::log(y))
REAL_PAIR(LogAddExp, std::isinf(x) && x == y ? x : std::max(x, y) + std::log1p(std::exp(-std::fabs(x - y))))

OP(PowScalarTensor, (S base, T exponent, O result), {
  View a = op.in(exponent), out = op.out(result);
  scaled(op, a, number(base), out, [](auto x, auto y) { return power(y, x); });
})
OP(RemainderScalarTensor, (S self, T other, O result), {
  View a = op.in(other), out = op.out(result);
  scaled(op, a, number(self), out, [](auto x, auto y) { return remainder_of(y, x); });
})
OP(XLogYScalarSelf, (S self, T other, O result), {
  View a = op.in(other), out = op.out(result);
  scaled(op, a, number(self), out, [](double y, double x) { return y != y ? y : x == 0 ? 0 : x * std::log(y); }, true);
})

// Division with a rounding: 0 none, 1 towards zero, 2 down.
static auto rounded_division(int mode) {
  return [=](auto x, auto y) {
    using V = decltype(x);
    if constexpr (std::is_same_v<V, double>)
      return mode == 1 ? std::trunc(x / y) : mode == 2 ? std::floor(x / y) : x / y;
    else
      return mode == 2 ? floor_div(x, y) : quotient(x, y);
  };
}
OP(DivMod, (T self, T other, int mode, O result), {
  View a = op.in(self), b = op.in(other), out = op.out(result);
  binary(op, a, b, out, rounded_division(mode), mode == 0);
})
OP(InplaceDivMod, (O self, T other, int mode), {
  View a = op.out(self), b = op.in(other);
  binary(op, a, b, a, rounded_division(mode), mode == 0);
})
OP(DivMods, (T self, S other, int mode, O result), {
  View a = op.in(self), out = op.out(result);
  scaled(op, a, number(other), out, rounded_division(mode), mode == 0);
})
OP(InplaceDivMods, (O self, S other, int mode), {
  View a = op.out(self);
  scaled(op, a, number(other), a, rounded_division(mode), mode == 0);
})

// self + alpha other, self - alpha other and the reverse.
static auto combine(aclScalar alpha, int self_sign, int other_sign) {
  return [=](auto x, auto y) {
    using V = decltype(x);
    return V(self_sign) * x + V(other_sign) * value_of<V>(alpha) * y;
  };
}
static bool by_double(aclScalar alpha) { return !is_whole(alpha.dtype) && alpha.real != double(alpha.whole); }
#define SUM(Name, Scaled, sign)                                                            \
  OP(Name, (T self, T other, S alpha, O result), {                                         \
    View a = op.in(self), b = op.in(other), out = op.out(result);                          \
    binary(op, a, b, out, combine(number(alpha), 1, sign), by_double(*alpha));             \
  })                                                                                       \
  OP(Inplace##Name, (O self, T other, S alpha), {                                          \
    View a = op.out(self), b = op.in(other);                                               \
    binary(op, a, b, a, combine(number(alpha), 1, sign), by_double(*alpha));               \
  })                                                                                       \
  OP(Scaled, (T self, S other, S alpha, O result), {                                       \
    View a = op.in(self), out = op.out(result);                                            \
    scaled(op, a, number(other), out, combine(number(alpha), 1, sign), by_double(*alpha)); \
  })                                                                                       \
  OP(Inplace##Scaled, (O self, S other, S alpha), {                                        \
    View a = op.out(self);                                                                 \
    scaled(op, a, number(other), a, combine(number(alpha), 1, sign), by_double(*alpha));   \
  })
SUM(Add, Adds, 1)
SUM(Sub, Subs, -1)
// other - alpha self.
static auto reverse(aclScalar alpha) {
  return [=](auto x, auto y) { return y - value_of<decltype(x)>(alpha) * x; };
}
OP(Rsub, (T self, T other, S alpha, O result), {
  View a = op.in(self), b = op.in(other), out = op.out(result);
  binary(op, a, b, out, reverse(number(alpha)), by_double(*alpha));
})
OP(Rsubs, (T self, S other, S alpha, O result), {
  View a = op.in(self), out = op.out(result);
  scaled(op, a, number(other), out, reverse(number(alpha)), by_double(*alpha));
})
OP(AddV3, (S self, T other, S alpha, O result), {
  View a = op.in(other), out = op.out(result);
  scaled(op, a, number(self), out, [by = number(alpha)](auto x, auto y) { return y + value_of<decltype(x)>(by) * x; });
})
OP(AddRelu, (T self, T other, S alpha, O result), {
  View a = op.in(self), b = op.in(other), out = op.out(result);
  binary(op, a, b, out, [by = number(alpha)](auto x, auto y) {
    auto sum = x + value_of<decltype(x)>(by) * y;
    return sum < 0 ? sum - sum : sum;
  });
})
OP(IsClose, (T self, T other, double rtol, double atol, bool equal_nan, O result), {
  View a = op.in(self), b = op.in(other), out = op.out(result);
  binary(
      op, a, b, out,
      [=](double x, double y) {
        if (x == y || (equal_nan && x != x && y != y)) return 1.0;
        return std::isfinite(y) && std::fabs(x - y) <= atol + rtol * std::fabs(y) ? 1.0 : 0.0;
      },
      true);
})

// Three tensors, all expanded to one shape, and a number p.
static void ternary(Op& op, const View& a, const View& b, const View& c, const View& out, const Three& f) {
  Dims shape = broadcast(broadcast(a.shape, b.shape), c.shape);
  same_shape(out, shape, "the result");
  op.run([=] {
    auto apply = [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(a, shape), y = load<V>(b, shape), z = load<V>(c, shape);
      for (size_t i = 0; i < x.size(); ++i) x[i] = V(f(x[i], y[i], z[i]));
      store(out, x);
    };
    if (is_whole(a.dtype) && is_whole(b.dtype) && is_whole(c.dtype))
      apply(int64_t());
    else
      apply(double());
  });
}
static auto add_product(aclScalar by) {
  return [=](auto x, auto y, auto z) { return x + value_of<decltype(x)>(by) * y * z; };
}
static auto add_quotient(aclScalar by) {
  return [=](auto x, auto y, auto z) { return double(x) + by.real * double(y) / double(z); };
}

OP(Addcmul, (T self, T first, T second, S value, O result), {
  View a = op.in(self), b = op.in(first), c = op.in(second), out = op.out(result);
  ternary(op, a, b, c, out, add_product(number(value)));
})
OP(InplaceAddcmul, (O self, T first, T second, S value), {
  View a = op.out(self), b = op.in(first), c = op.in(second);
  ternary(op, a, b, c, a, add_product(number(value)));
})
OP(Addcdiv, (T self, T first, T second, S value, O result), {
  View a = op.in(self), b = op.in(first), c = op.in(second), out = op.out(result);
  ternary(op, a, b, c, out, add_quotient(number(value)));
})
OP(InplaceAddcdiv, (O self, T first, T second, S value), {
  View a = op.out(self), b = op.in(first), c = op.in(second);
  ternary(op, a, b, c, a, add_quotient(number(value)));
})
OP(Lerp, (T self, T end, T weight, O result), {
  View a = op.in(self), b = op.in(end), c = op.in(weight), out = op.out(result);
  ternary(op, a, b, c, out, lerp);
})
OP(InplaceLerp, (O self, T end, T weight), {
  View a = op.out(self), b = op.in(end), c = op.in(weight);
  ternary(op, a, b, c, a, lerp);
})
OP(Lerps, (T self, T end, S weight, O result), {
  View a = op.in(self), b = op.in(end), out = op.out(result);
  binary(op, a, b, out, [z = number(weight).real](double x, double y) { return lerp(x, y, z); }, true);
})
OP(InplaceLerps, (O self, T end, S weight), {
  View a = op.out(self), b = op.in(end);
  binary(op, a, b, a, [z = number(weight).real](double x, double y) { return lerp(x, y, z); }, true);
})
OP(SWhere, (T condition, T self, T other, O result), {
  View c = op.in(condition), a = op.in(self), b = op.in(other), out = op.out(result);
  ternary(op, a, b, c, out, [](auto x, auto y, auto z) { return z != 0 ? x : y; });
})
OP(ClampTensor, (T self, T low, T high, O result), {
  View a = op.in(self), b = op.maybe(low), c = op.maybe(high), out = op.out(result);
  if (b && c) return ternary(op, a, b, c, out, [](auto x, auto y, auto z) { return smallest(largest(x, y), z); });
  if (b) return binary(op, a, b, out, [](auto x, auto y) { return largest(x, y); });
  if (c) return binary(op, a, c, out, [](auto x, auto y) { return smallest(x, y); });
  reject("both bounds are NULL");
})
OP(MaskedScale, (T self, T mask, float scale, O result), {
  View a = op.in(self), b = op.in(mask), out = op.out(result);
  binary(op, a, b, out, [=](double x, double y) { return x * y * double(scale); }, true);
})

// Gradients: g the gradient of the result, x the input, or y the result.
#define SLOPE(Name, formula)                                                 \
  OP(Name, (T grad, T self, O result), {                                     \
    View a = op.in(grad), b = op.in(self), out = op.out(result);             \
    binary(op, a, b, out, [](double g, double x) { return formula; }, true); \
  })
#define SLOPE_1(Name, formula)                                                \
  OP(Name, (T grad, T self, S first, O result), {                             \
    View a = op.in(grad), b = op.in(self), out = op.out(result);              \
    double p = number(first).real;                                            \
    binary(op, a, b, out, [=](double g, double x) { return formula; }, true); \
  })
#define SLOPE_2(Name, formula)                                                \
  OP(Name, (T grad, T self, S first, S second, O result), {                   \
    View a = op.in(grad), b = op.in(self), out = op.out(result);              \
    double p = number(first).real, q = number(second).real;                   \
    binary(op, a, b, out, [=](double g, double x) { return formula; }, true); \
  })
SLOPE(SigmoidBackward, g * x * (1 - x))
SLOPE(TanhBackward, g * (1 - x * x))
SLOPE(GeluBackward, g* gelu_slope(x, true))
SLOPE(SiluBackward, g* sigmoid(x) * (1 + x * (1 - sigmoid(x))))
SLOPE(MishBackward, [&] {
  double t = std::tanh(softplus(x));
  return g * (t + x * sigmoid(x) * (1 - t * t));
}())
SLOPE(HardswishBackward, x <= -3 ? 0 : x < 3 ? g * (x / 3 + 0.5) : g)
SLOPE(HardsigmoidBackward, x > -3 && x < 3 ? g / 6 : 0)
SLOPE(FastGeluBackward, g*(sigmoid(1.702 * x) + 1.702 * x * sigmoid(1.702 * x) * (1 - sigmoid(1.702 * x))))
SLOPE_1(ThresholdBackward, x <= p ? 0 : g)
SLOPE_1(HardshrinkBackward, x >= -p && x <= p ? 0 : g)
SLOPE_1(SoftshrinkBackward, x >= -p && x <= p ? 0 : g)
SLOPE_2(HardtanhBackward, x <= p || x >= q ? 0 : g)
SLOPE_2(SoftplusBackward, x* p > q ? g : g * sigmoid(x * p))
OP(LeakyReluBackward, (T grad, T self, S slope, bool, O result), {
  View a = op.in(grad), b = op.in(self), out = op.out(result);
  binary(op, a, b, out, [p = number(slope).real](double g, double x) { return x > 0 ? g : g * p; }, true);
})
OP(GeluBackwardV2, (T grad, T self, Chars approximate, O result), {
  View a = op.in(grad), b = op.in(self), out = op.out(result);
  bool tanh = approximate && !strcmp(approximate, "tanh");
  binary(op, a, b, out, [=](double g, double x) { return g * gelu_slope(x, tanh); }, true);
})
OP(LogSigmoidBackward, (T grad, T self, T, O result), {
  View a = op.in(grad), b = op.in(self), out = op.out(result);
  binary(op, a, b, out, [](double g, double x) { return g * sigmoid(-x); }, true);
})
OP(EluBackward, (T grad, S alpha, S scale, S input_scale, bool is_result, T self, O result), {
  View a = op.in(grad), b = op.in(self), out = op.out(result);
  double p = number(alpha).real, q = number(scale).real, r = number(input_scale).real;
  binary(
      op, a, b, out,
      [=](double g, double x) {
        if (x > 0) return g * q;
        return is_result ? g * r * (x + p * q) : g * r * q * p * std::exp(x * r);
      },
      true);
})

// Casts and fills.
// The real parts (0) or the imaginary ones (1) of a complex tensor, as a tensor of floats.
static View part(const View& complex, int which) {
  View other = complex;
  other.dtype = complex.dtype == kComplex64 ? kFloat : kDouble;
  for (int64_t& step : other.stride) step *= 2;
  other.offset = 2 * complex.offset + which;
  return other;
}
static bool is_complex(const View& view) { return view.dtype == kComplex64 || view.dtype == kComplex128; }
static void copy_complex(const View& from, const View& to) {
  View source = from.expanded(to.shape);
  auto real = load<double>(is_complex(source) ? part(source, 0) : source);
  auto imaginary = is_complex(source) ? load<double>(part(source, 1)) : std::vector<double>(real.size());
  if (!is_complex(to)) {
    if (to.dtype == kBool)
      for (size_t i = 0; i < real.size(); ++i) real[i] = real[i] != 0 || imaginary[i] != 0;
    return store(to, real);
  }
  store(part(to, 0), real);
  store(part(to, 1), imaginary);
}
static void copy(Op& op, const View& from, const View& to) {
  op.run([=] {
    if (is_complex(from) || is_complex(to))
      copy_complex(from, to);
    else if (is_whole(from.dtype) && !is_float(from.dtype))
      store(to, load<int64_t>(from, to.shape));
    else
      store(to, load<double>(from, to.shape));
  });
}
OP(Cast, (T self, int dtype, O result), {
  View a = op.in(self), out = op.out(result);
  if (out.dtype != dtype) reject("the result is %s, the dtype asked for %s", name_of(out.dtype), name_of(dtype));
  same_shape(out, a.shape, "the result");
  copy(op, a, out);
})
OP(InplaceCopy, (O self, T source), {
  View out = op.out(self), a = op.in(source);
  if (broadcast(a.shape, out.shape) != out.shape)
    reject("the source has shape %s, the tensor %s", text_of(a.shape).c_str(), text_of(out.shape).c_str());
  copy(op, a, out);
})
static void fill(Op& op, const View& out, aclScalar value) {
  op.run([=] {
    if (is_whole(out.dtype) && is_whole(value.dtype))
      store(out, std::vector<int64_t>(size_t(out.numel()), value.whole));
    else
      store(out, std::vector<double>(size_t(out.numel()), value.real));
  });
}
OP(InplaceZero, (O self), { fill(op, op.out(self), {kInt64, 0, 0}); })
OP(InplaceOne, (O self), { fill(op, op.out(self), {kInt64, 1, 1}); })
OP(InplaceFillScalar, (O self, S value), { fill(op, op.out(self), number(value)); })
OP(InplaceFillTensor, (O self, T value), {
  View out = op.out(self), a = op.in(value);
  if (a.numel() != 1) reject("the value has shape %s, expected one element", text_of(a.shape).c_str());
  View one = a;
  one.shape.clear();
  one.stride.clear();
  copy(op, one, out);
})
OP(InplaceMaskedFillScalar, (O self, T mask, S value), {
  View a = op.out(self), m = op.in(mask);
  aclScalar with = number(value);
  if (broadcast(m.shape, a.shape) != a.shape)
    reject("the mask has shape %s, the tensor %s", text_of(m.shape).c_str(), text_of(a.shape).c_str());
  binary(op, a, m, a, [=](auto x, auto y) { return y != 0 ? value_of<decltype(x)>(with) : x; });
})
OP(InplaceMaskedFillTensor, (O self, T mask, T value), {
  View a = op.out(self), m = op.in(mask), v = op.in(value);
  if (v.numel() != 1) reject("the value has shape %s, expected one element", text_of(v.shape).c_str());
  v.shape.clear();
  v.stride.clear();
  ternary(op, a, m, v, a, [](auto x, auto y, auto z) { return y != 0 ? z : x; });
})

// Lists of tensors: for each, as for one.
static void each(Op& op, const std::vector<View>& a, const std::vector<View>& b, const std::vector<View>& c,
                 const std::vector<View>& out, const Listed& f) {
  if (out.size() != a.size() || (!b.empty() && b.size() != a.size()) || (!c.empty() && c.size() != a.size()))
    reject("the lists have %zu, %zu, %zu and %zu tensors", a.size(), b.size(), c.size(), out.size());
  for (size_t i = 0; i < a.size(); ++i) same_shape(out[i], a[i].shape, "a result");
  op.run([=] {
    for (size_t i = 0; i < a.size(); ++i) {
      auto apply = [&](auto sample) {
        using V = decltype(sample);
        auto x = load<V>(a[i]);
        auto y = b.empty() ? std::vector<V>() : load<V>(b[i], a[i].shape);
        auto z = c.empty() ? std::vector<V>() : load<V>(c[i], a[i].shape);
        for (size_t j = 0; j < x.size(); ++j) x[j] = V(f(i, x[j], y.empty() ? V() : y[j], z.empty() ? V() : z[j]));
        store(out[i], x);
      };
      if (is_whole(a[i].dtype) && is_whole(out[i].dtype) && (b.empty() || is_whole(b[i].dtype)))
        apply(int64_t());
      else
        apply(double());
    }
  });
}
static std::vector<aclScalar> numbers(SL list, size_t size) {
  if (!list || list->scalars.size() != size)
    reject("%zu numbers for %zu tensors", list ? list->scalars.size() : 0, size);
  std::vector<aclScalar> all;
  for (S scalar : list->scalars) all.push_back(*scalar);
  return all;
}
#define EACH(Name, formula)                                                                      \
  OP(Foreach##Name, (L self, L result), {                                                        \
    auto a = op.all(self);                                                                       \
    each(op, a, {}, {}, op.all_out(result), [](size_t, auto x, auto, auto) { return formula; }); \
  })
EACH(Abs, x < 0 ? -x : x)
EACH(Neg, -x)
EACH(Sign, sign_of(x))
EACH(Sqrt, std::sqrt(x))
EACH(Exp, std::exp(x))
EACH(Expm1, std::expm1(x))
EACH(Log, std::log(x))
EACH(Log2, std::log2(x))
EACH(Log10, std::log10(x))
EACH(Log1p, std::log1p(x))
EACH(Sin, std::sin(x))
EACH(Cos, std::cos(x))
EACH(Tan, std::tan(x))
EACH(Asin, std::asin(x))
EACH(Acos, std::acos(x))
EACH(Atan, std::atan(x))
EACH(Sinh, std::sinh(x))
EACH(Cosh, std::cosh(x))
EACH(Tanh, std::tanh(x))
EACH(Erf, std::erf(x))
EACH(Erfc, std::erfc(x))
EACH(Sigmoid, sigmoid(double(x)))
EACH(Reciprocal, 1 / double(x))

#define EACH_LIST(Name, formula)                                                                  \
  OP(Foreach##Name, (L self, L other, L result), {                                                \
    auto a = op.all(self), b = op.all(other);                                                     \
    each(op, a, b, {}, op.all_out(result), [](size_t, auto x, auto y, auto) { return formula; }); \
  })
// By a number, and by a number for each tensor.
#define EACH_NUMBER(Name, formula)                                                              \
  OP(Foreach##Name##ScalarV2, (L self, S scalar, L result), {                                   \
    auto a = op.all(self);                                                                      \
    auto out = op.all_out(result);                                                              \
    each(op, a, {}, {}, out, [n = number(scalar)](size_t, auto x, auto, auto) {                 \
      auto y = value_of<decltype(x)>(n);                                                        \
      return formula;                                                                           \
    });                                                                                         \
  })                                                                                            \
  OP(Foreach##Name##ScalarList, (L self, SL scalars, L result), {                               \
    auto a = op.all(self);                                                                      \
    auto out = op.all_out(result);                                                              \
    each(op, a, {}, {}, out, [all = numbers(scalars, a.size())](size_t i, auto x, auto, auto) { \
      auto y = value_of<decltype(x)>(all[i]);                                                   \
      return formula;                                                                           \
    });                                                                                         \
  })
EACH_LIST(MulList, x* y)
EACH_LIST(DivList, double(x) / double(y))
EACH_LIST(MaximumList, largest(x, y))
EACH_LIST(MinimumList, smallest(x, y))
EACH_LIST(PowList, power(x, y))
EACH_NUMBER(Add, x + y)
EACH_NUMBER(Sub, x - y)
EACH_NUMBER(Mul, x* y)
EACH_NUMBER(Div, double(x) / double(y))
EACH_NUMBER(Maximum, largest(x, y))
EACH_NUMBER(Minimum, smallest(x, y))
EACH_NUMBER(Pow, power(x, y))

#define EACH_SUM(Name, sign)                                                                                 \
  OP(Foreach##Name##ListV2, (L self, L other, S alpha, L result), {                                          \
    auto a = op.all(self), b = op.all(other);                                                                \
    auto out = op.all_out(result);                                                                           \
    each(op, a, b, {}, out,                                                                                  \
         [n = number(alpha)](size_t, auto x, auto y, auto) { return x sign value_of<decltype(x)>(n) * y; }); \
  })
EACH_SUM(Add, +)
EACH_SUM(Sub, -)
OP(ForeachPowScalarAndTensor, (S base, L exponents, L result), {
  auto a = op.all(exponents);
  auto out = op.all_out(result);
  each(op, a, {}, {}, out,
       [n = number(base)](size_t, auto x, auto, auto) { return power(value_of<decltype(x)>(n), x); });
})
OP(ForeachLerpScalar, (L self, L end, S weight, L result), {
  auto a = op.all(self), b = op.all(end);
  auto out = op.all_out(result);
  each(op, a, b, {}, out, [z = number(weight).real](size_t, double x, double y, double) { return lerp(x, y, z); });
})
OP(ForeachLerpList, (L self, L end, L weights, L result), {
  auto a = op.all(self), b = op.all(end), c = op.all(weights);
  each(op, a, b, c, op.all_out(result), [](size_t, double x, double y, double z) { return lerp(x, y, z); });
})
#define EACH_PRODUCT(Name, formula)                                                                               \
  OP(Foreach##Name##ScalarV2, (L self, L first, L second, S scalar, L result), {                                  \
    auto a = op.all(self), b = op.all(first), c = op.all(second);                                                 \
    auto out = op.all_out(result);                                                                                \
    each(op, a, b, c, out, [by = number(scalar).real](size_t, double x, double y, double z) { return formula; }); \
  })                                                                                                              \
  OP(Foreach##Name##ScalarList, (L self, L first, L second, SL scalars, L result), {                              \
    auto a = op.all(self), b = op.all(first), c = op.all(second);                                                 \
    auto out = op.all_out(result);                                                                                \
    each(op, a, b, c, out, [all = numbers(scalars, a.size())](size_t i, double x, double y, double z) {           \
      double by = all[i].real;                                                                                    \
      return formula;                                                                                             \
    });                                                                                                           \
  })
EACH_PRODUCT(Addcmul, x + by * y * z)
EACH_PRODUCT(Addcdiv, x + by * y / z)
OP(ForeachCopy, (L source, L target), {
  auto a = op.all(source);
  each(op, a, {}, {}, op.all_out(target), [](size_t, auto x, auto, auto) { return x; });
})
OP(ForeachZeroInplace, (L self), {
  auto a = op.all_out(self);
  each(op, a, {}, {}, a, [](size_t, auto x, auto, auto) { return decltype(x)(0); });
})

// Unscales gradients and says whether one of them is not finite.
OP(ForeachNonFiniteCheckAndUnscale, (L gradients, O found, T scale), {
  auto all = op.all_out(gradients);
  View flag = op.out(found), by = op.in(scale);
  op.run([=] {
    double factor = load<double>(by)[0];
    bool any = false;
    for (const View& gradient : all) {
      auto values = load<double>(gradient);
      for (double& x : values) {
        any = any || !std::isfinite(x);
        x *= factor;
      }
      store(gradient, values);
    }
    if (any) store(flag, std::vector<double>(size_t(flag.numel()), 1));
  });
})
// growth and backoff by value as float, the interval as int; the results are the inputs.
OP(AmpUpdateScale, (T scale, T tracker, T found, float growth, float backoff, int interval, O new_scale, O new_tracker),
   {
     View s = op.in(scale), t = op.in(tracker), f = op.in(found), out = op.out(new_scale), count = op.out(new_tracker);
     op.run([=] {
       double value = load<double>(s)[0];
       int64_t steps = load<int64_t>(t)[0];
       if (load<double>(f)[0] != 0) {
         value *= double(backoff);
         steps = 0;
       } else if (++steps == interval) {
         value *= double(growth);
         steps = 0;
       }
       store(out, std::vector<double>{value});
       store(count, std::vector<int64_t>{steps});
     });
   })
// One step of AdamW: lr, the betas, weight decay and eps by value as float.
OP(ApplyAdamWV2,
   (O parameter, O mean, O square, O largest_square, T gradient, T step, float lr, float beta1, float beta2,
    float decay, float eps, bool amsgrad, bool maximize),
   {
     View p = op.out(parameter), m = op.out(mean), v = op.out(square), most = op.out_maybe(largest_square),
          g = op.in(gradient), t = op.in(step);
     if (amsgrad && !most) reject("amsgrad without its tensor");
     op.run([=] {
       auto x = load<double>(p), first = load<double>(m), second = load<double>(v), slope = load<double>(g);
       auto bound = amsgrad ? load<double>(most) : std::vector<double>();
       double steps = load<double>(t)[0], c1 = 1 - std::pow(double(beta1), steps),
              c2 = 1 - std::pow(double(beta2), steps);
       for (size_t i = 0; i < x.size(); ++i) {
         double d = maximize ? -slope[i] : slope[i];
         x[i] *= 1 - double(lr) * double(decay);
         first[i] = double(beta1) * first[i] + (1 - double(beta1)) * d;
         second[i] = double(beta2) * second[i] + (1 - double(beta2)) * d * d;
         double spread = second[i];
         if (amsgrad) spread = bound[i] = std::max(bound[i], spread);
         x[i] -= double(lr) / c1 * first[i] / (std::sqrt(spread) / std::sqrt(c2) + double(eps));
       }
       store(p, x);
       store(m, first);
       store(v, second);
       if (amsgrad) store(most, bound);
     });
   })
