// Element by element.
#include <algorithm>
#include <string_view>

#include "tensor.hpp"

namespace {

template <class F>
diopiError_t map(Out out, In x, F f) {
  return body([&] {
    by_kind(x, [&](auto kind) {
      using T = decltype(kind);
      Array<T> values = read<T>(x);
      for (T& v : values) v = static_cast<T>(f(v));
      write<T>(out, values);
    });
  });
}

template <class F>
diopiError_t map(Out out, In a, In b, F f) {
  return body([&] {
    by_kind(a, b, [&](auto kind) {
      using T = decltype(kind);
      const Shape shape = shape_of(out);
      Array<T> x = read<T>(a, shape);
      const Array<T> y = read<T>(b, shape);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(f(x[i], y[i]));
      write<T>(out, x);
    });
  });
}

// With a number: of the tensor's kind, but a fraction with ints is compared as one.
template <class F>
diopiError_t map(Out out, In a, Number b, F f) {
  return body([&] {
    const bool fraction = b->stype == diopi_dtype_float64;
    const auto with = [&](auto kind) {
      using T = decltype(kind);
      Array<T> x = read<T>(a);
      const T y = number<T>(b);
      for (T& v : x) v = static_cast<T>(f(v, y));
      write<T>(out, x);
    };
    is_whole(a) && !fraction ? with(int64_t{}) : with(double{});
  });
}

// Three tensors, and gradients of two, in double.
template <class F>
diopiError_t reals(Out out, In a, In b, F f) {
  return body([&] {
    const Shape shape = shape_of(out);
    Array<double> x = read<double>(a, shape);
    const Array<double> y = read<double>(b, shape);
    for (size_t i = 0; i < x.size(); ++i) x[i] = f(x[i], y[i]);
    write<double>(out, x);
  });
}
template <class F>
diopiError_t reals(Out out, In a, In b, In c, F f) {
  return body([&] {
    const Shape shape = shape_of(out);
    Array<double> x = read<double>(a, shape);
    const Array<double> y = read<double>(b, shape), z = read<double>(c, shape);
    for (size_t i = 0; i < x.size(); ++i) x[i] = f(x[i], y[i], z[i]);
    write<double>(out, x);
  });
}

template <class T>
T greater(T a, T b) {
  return a != a ? a : b != b ? b : std::max(a, b);
}
template <class T>
T lesser(T a, T b) {
  return a != a ? a : b != b ? b : std::min(a, b);
}
template <class T>
T clamped(T x, T low, T high) {
  return lesser(greater(x, low), high);
}

double divide(double a, double b, diopiRoundMode_t mode) {
  if (mode == RoundModeNone) return a / b;
  if (mode == RoundModeTrunc) return std::trunc(a / b);
  double rest = std::fmod(a, b), whole = (a - rest) / b;
  if (b == 0) return a / b;
  if (rest != 0 && (b < 0) != (rest < 0)) whole -= 1;
  if (whole == 0) return std::copysign(0.0, a / b);
  double floored = std::floor(whole);
  return whole - floored > 0.5 ? floored + 1 : floored;
}

template <class T>
T remainder_of(T a, T b) {
  if constexpr (std::is_same_v<T, double>) {
    const double rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    check(b != 0, "remainder: an integer by zero");
    const T rest = b == -1 ? 0 : a % b;  // of the least integer there is no quotient
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
}

double between(double x, double y, double w) { return std::fabs(w) < 0.5 ? x + w * (y - x) : y - (y - x) * (1 - w); }

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
constexpr double kTwoOverPi = 0.63661977236758134308;

double gelu(double x, bool tanh) {
  if (tanh) return 0.5 * x * (1 + std::tanh(std::sqrt(kTwoOverPi) * (x + 0.044715 * x * x * x)));
  return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
}
double gelu_slope(double x, bool tanh) {
  if (tanh) {
    const double scale = std::sqrt(kTwoOverPi), t = std::tanh(scale * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
  }
  return 0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-0.5 * x * x) * std::sqrt(0.25 * kTwoOverPi);
}

}  // namespace

extern "C" {

// f(x), and the same into the input.
#define UNARY(name, value)                            \
  diopiError_t diopi##name(Context, Out out, In t) {  \
    return map(out, t, [](auto x) { return value; }); \
  }                                                   \
  diopiError_t diopi##name##Inp(Context c, Out t) { return diopi##name(c, t, t); }
UNARY(Abs, x < 0 ? -x : x == 0 ? 0 : x)
UNARY(Neg, -x)
UNARY(Floor, std::floor(x))
UNARY(Ceil, std::ceil(x))
UNARY(Sqrt, std::sqrt(x))
UNARY(Rsqrt, 1 / std::sqrt(x))
UNARY(Reciprocal, 1 / static_cast<double>(x))
UNARY(Sin, std::sin(x))
UNARY(Cos, std::cos(x))
UNARY(Tan, std::tan(x))
UNARY(Asin, std::asin(x))
UNARY(Acos, std::acos(x))
UNARY(Atan, std::atan(x))
UNARY(Sinh, std::sinh(x))
UNARY(Cosh, std::cosh(x))
UNARY(Tanh, std::tanh(x))
UNARY(Exp, std::exp(x))
UNARY(Expm1, std::expm1(x))
UNARY(Log, std::log(x))
UNARY(Log2, std::log2(x))
UNARY(Log10, std::log10(x))
UNARY(Log1p, std::log1p(x))
UNARY(Erf, std::erf(x))
UNARY(Sigmoid, sigmoid(x))
UNARY(Silu, x / (1 + std::exp(-static_cast<double>(x))))
UNARY(Relu, x < 0 ? 0 : x)
UNARY(Hardswish, (x * clamped(x + 3.0, 0.0, 6.0) / 6))
UNARY(LogicalNot, x == 0)
#undef UNARY

diopiError_t diopiBitwiseNot(Context, Out out, In t) {
  return body([&] {
    const bool truth = dtype_of(t) == diopi_dtype_bool;
    Array<int64_t> x = read<int64_t>(t);
    for (int64_t& v : x) v = truth ? !v : ~v;
    write<int64_t>(out, x);
  });
}
diopiError_t diopiSign(Context, Out out, In t) {
  return map(out, t, [](auto x) { return (x > 0) - (x < 0); });
}
diopiError_t diopiIsNan(Context, Out out, In t) {
  return map(out, t, [](auto x) { return x != x; });
}

diopiError_t diopiAdd(Context, Out out, In a, In b, Number alpha) {
  return map(out, a, b, [&](auto x, auto y) { return x + number<decltype(x)>(alpha) * y; });
}
diopiError_t diopiAddInp(Context c, Out t, In b, Number alpha) { return diopiAdd(c, t, t, b, alpha); }
diopiError_t diopiAddScalar(Context, Out out, In a, Number b, Number alpha) {
  return map(out, a, b, [&](auto x, auto y) { return x + number<decltype(x)>(alpha) * y; });
}
diopiError_t diopiAddInpScalar(Context c, Out t, Number b, Number alpha) { return diopiAddScalar(c, t, t, b, alpha); }
diopiError_t diopiSub(Context, Out out, In a, In b, Number alpha) {
  return map(out, a, b, [&](auto x, auto y) { return x - number<decltype(x)>(alpha) * y; });
}
diopiError_t diopiSubInp(Context c, Out t, In b, Number alpha) { return diopiSub(c, t, t, b, alpha); }
diopiError_t diopiSubScalar(Context, Out out, In a, Number b, Number alpha) {
  return map(out, a, b, [&](auto x, auto y) { return x - number<decltype(x)>(alpha) * y; });
}
diopiError_t diopiSubInpScalar(Context c, Out t, Number b, Number alpha) { return diopiSubScalar(c, t, t, b, alpha); }

// f(x, y) of tensors and of a tensor and a number, and both into the input.
#define BINARY(name, value)                                      \
  diopiError_t diopi##name(Context, Out out, In a, In b) {       \
    return map(out, a, b, [](auto x, auto y) { return value; }); \
  }                                                              \
  diopiError_t diopi##name##Inp(Context c, Out t, In b) { return diopi##name(c, t, t, b); }
#define BINARY_NUMBER(name, value)                                     \
  BINARY(name, value)                                                  \
  diopiError_t diopi##name##Scalar(Context, Out out, In a, Number b) { \
    return map(out, a, b, [](auto x, auto y) { return value; });       \
  }                                                                    \
  diopiError_t diopi##name##InpScalar(Context c, Out t, Number b) { return diopi##name##Scalar(c, t, t, b); }
BINARY_NUMBER(Mul, x* y)
BINARY_NUMBER(Eq, x == y)
BINARY_NUMBER(Ne, x != y)
BINARY_NUMBER(Lt, x < y)
BINARY_NUMBER(Le, x <= y)
BINARY_NUMBER(Gt, x > y)
BINARY_NUMBER(Ge, x >= y)
BINARY_NUMBER(BitwiseAnd, static_cast<int64_t>(x) & static_cast<int64_t>(y))
BINARY_NUMBER(BitwiseOr, static_cast<int64_t>(x) | static_cast<int64_t>(y))
BINARY(LogicalAnd, x != 0 && y != 0)
BINARY(LogicalOr, x != 0 || y != 0)
#undef BINARY_NUMBER
#undef BINARY

diopiError_t diopiDiv(Context, Out out, In a, In b, diopiRoundMode_t mode) {
  return reals(out, a, b, [&](double x, double y) { return divide(x, y, mode); });
}
diopiError_t diopiDivInp(Context c, Out t, In b, diopiRoundMode_t mode) { return diopiDiv(c, t, t, b, mode); }
diopiError_t diopiDivScalar(Context, Out out, In a, Number b, diopiRoundMode_t mode) {
  return map(out, a, b, [&](auto x, auto y) { return divide(x, y, mode); });
}
diopiError_t diopiDivInpScalar(Context c, Out t, Number b, diopiRoundMode_t mode) {
  return diopiDivScalar(c, t, t, b, mode);
}
diopiError_t diopiRemainderTensor(Context, Out out, In a, In b) {
  return map(out, a, b, [](auto x, auto y) { return remainder_of(x, y); });
}
diopiError_t diopiRemainderScalar(Context, Out out, In a, Number b) {
  return map(out, a, b, [](auto x, auto y) { return remainder_of(x, y); });
}
diopiError_t diopiPow(Context, Out out, In a, Number b) {
  return map(out, a, b, [](auto x, auto y) { return std::pow(x, y); });
}
diopiError_t diopiPowInp(Context c, Out t, Number b) { return diopiPow(c, t, t, b); }
diopiError_t diopiPowTensor(Context, Out out, In a, In b) {
  return reals(out, a, b, [](double x, double y) { return std::pow(x, y); });
}
diopiError_t diopiPowInpTensor(Context c, Out t, In b) { return diopiPowTensor(c, t, t, b); }
diopiError_t diopiPowScalar(Context, Out out, Number a, In b) {
  return map(out, b, a, [](auto y, auto x) { return std::pow(x, y); });
}
diopiError_t diopiMaximum(Context, Out out, In a, In b) {
  return map(out, a, b, [](auto x, auto y) { return greater(x, y); });
}
diopiError_t diopiMinimum(Context, Out out, In a, In b) {
  return map(out, a, b, [](auto x, auto y) { return lesser(x, y); });
}

diopiError_t diopiWhere(Context, Out out, In condition, In a, In b) {
  return body([&] {
    by_kind(a, b, [&](auto kind) {
      using T = decltype(kind);
      const Shape shape = shape_of(out);
      const Array<int64_t> chosen = read<int64_t>(condition, shape);
      const Array<T> y = read<T>(b, shape);
      Array<T> x = read<T>(a, shape);
      for (size_t i = 0; i < x.size(); ++i)
        if (!chosen[i]) x[i] = y[i];
      write<T>(out, x);
    });
  });
}
diopiError_t diopiMaskedFillInp(Context c, Out t, In mask, In value) { return diopiWhere(c, t, mask, value, t); }
diopiError_t diopiMaskedFillInpScalar(Context, Out t, In mask, Number value) {
  return body([&] {
    by_kind(t, [&](auto kind) {
      using T = decltype(kind);
      const Array<int64_t> chosen = read<int64_t>(mask, shape_of(t));
      Array<T> x = read<T>(t);
      for (size_t i = 0; i < x.size(); ++i)
        if (chosen[i]) x[i] = number<T>(value);
      write<T>(t, x);
    });
  });
}
diopiError_t diopiClampScalar(Context, Out out, In t, Number low, Number high) {
  return map(out, t, [&](auto x) {
    using T = decltype(x);
    if (low) x = greater(x, number<T>(low));
    return high ? lesser(x, number<T>(high)) : x;
  });
}
diopiError_t diopiClampInpScalar(Context c, Out t, Number low, Number high) {
  return diopiClampScalar(c, t, t, low, high);
}
diopiError_t diopiClampMinScalar(Context c, Out out, In t, Number low) {
  return diopiClampScalar(c, out, t, low, nullptr);
}
diopiError_t diopiClampMaxScalar(Context c, Out out, In t, Number high) {
  return diopiClampScalar(c, out, t, nullptr, high);
}
diopiError_t diopiAddcmul(Context, Out out, In a, In b, In c, Number value) {
  return reals(out, a, b, c, [&](double x, double y, double z) { return x + number<double>(value) * y * z; });
}
diopiError_t diopiAddcmulInp(Context c, Out t, In a, In b, Number value) { return diopiAddcmul(c, t, t, a, b, value); }
diopiError_t diopiAddcdiv(Context, Out out, In a, In b, In c, Number value) {
  return reals(out, a, b, c, [&](double x, double y, double z) { return x + number<double>(value) * y / z; });
}
diopiError_t diopiAddcdivInp(Context c, Out t, In a, In b, Number value) { return diopiAddcdiv(c, t, t, a, b, value); }
diopiError_t diopiLerpScalar(Context, Out out, In a, In b, Number w) {
  return reals(out, a, b, [&](double x, double y) { return between(x, y, number<double>(w)); });
}
diopiError_t diopiLerpTensor(Context, Out out, In a, In b, In c) { return reals(out, a, b, c, between); }

diopiError_t diopiFill(Context, Out t, Number value) {
  return body([&] {
    by_kind(t, [&](auto kind) {
      using T = decltype(kind);
      write<T>(t, Array<T>(static_cast<size_t>(numel(t)), number<T>(value)));
    });
  });
}
diopiError_t diopiZeroInp(Context, Out t) {
  return body([&] { write<int64_t>(t, Array<int64_t>(static_cast<size_t>(numel(t)))); });
}
diopiError_t diopiCopyInp(Context, In source, Out t) {
  return body([&] {
    by_kind(source, [&](auto kind) {
      using T = decltype(kind);
      write<T>(t, read<T>(source, shape_of(t)));
    });
  });
}
diopiError_t diopiCastDtype(Context c, Out out, In t) { return diopiCopyInp(c, t, out); }

diopiError_t diopiSigmoidBackward(Context, Out out, In grad, In y) {
  return reals(out, grad, y, [](double g, double s) { return g * s * (1 - s); });
}
diopiError_t diopiTanhBackward(Context, Out out, In grad, In y) {
  return reals(out, grad, y, [](double g, double s) { return g * (1 - s * s); });
}
diopiError_t diopiSiluBackward(Context, Out out, In grad, In x) {
  return reals(out, grad, x, [](double g, double v) { return g * sigmoid(v) * (1 + v * (1 - sigmoid(v))); });
}
diopiError_t diopiGelu(Context, Out out, In t, const char* approximate) {
  const bool tanh = std::string_view(approximate) == "tanh";
  return map(out, t, [&](auto x) { return gelu(x, tanh); });
}
diopiError_t diopiGeluBackward(Context, Out out, In grad, In x, const char* approximate) {
  const bool tanh = std::string_view(approximate) == "tanh";
  return reals(out, grad, x, [&](double g, double v) { return g * gelu_slope(v, tanh); });
}
diopiError_t diopiLeakyRelu(Context, Out out, In t, Number slope) {
  return map(out, t, [&](auto x) { return x > 0 ? x : x * number<double>(slope); });
}
diopiError_t diopiLeakyReluInp(Context c, Out t, Number slope) { return diopiLeakyRelu(c, t, t, slope); }
diopiError_t diopiLeakyReluBackward(Context, Out out, In grad, In x, Number slope, bool) {
  return reals(out, grad, x, [&](double g, double v) { return v > 0 ? g : g * number<double>(slope); });
}
diopiError_t diopiHardtanh(Context c, Out out, In t, Number low, Number high) {
  return diopiClampScalar(c, out, t, low, high);
}
diopiError_t diopiHardtanhInp(Context c, Out t, Number low, Number high) { return diopiHardtanh(c, t, t, low, high); }
diopiError_t diopiHardtanhBackward(Context, Out out, In grad, In x, Number low, Number high) {
  return reals(out, grad, x,
               [&](double g, double v) { return v <= number<double>(low) || v >= number<double>(high) ? 0 : g; });
}
diopiError_t diopiThreshold(Context, Out out, In t, Number threshold, Number value) {
  return map(out, t, [&](auto x) {
    using T = decltype(x);
    return x <= number<T>(threshold) ? number<T>(value) : x;
  });
}
diopiError_t diopiThresholdInp(Context c, Out t, Number threshold, Number value) {
  return diopiThreshold(c, t, t, threshold, value);
}
diopiError_t diopiThresholdBackward(Context, Out out, In grad, In x, Number threshold) {
  return reals(out, grad, x, [&](double g, double v) { return v <= number<double>(threshold) ? 0 : g; });
}

}  // extern "C"
