// Elementwise operators: each is a function of one element, here a few lines; loop.hpp does the rest.
#include <cmath>

#include "ops/loop.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

enum class Kind {
  any,       // computed in the type of the inputs: add, maximum, eq
  floating,  // integers become floats first: exp, div
  bits,      // integers and bool only
  moves,     // chooses between elements of the last two inputs
};

// What torch computes in: double when a tensor that counts has it, int64_t when all are integers. Numbers that
// came in a tensor's place tell integers from floats, and nothing else.
template <int inputs>
Dtype compute_dtype(const Call& call, Kind kind, const Tensor& out, const Tensor* in) {
  bool all_integers = true, any_double = out.dtype == kDouble, all_zero_dim = true;
  for (int k = 0; k < inputs; ++k) {
    all_integers = all_integers && !is_floating(in[k].dtype);
    if (in[k].is_host_scalar) continue;
    any_double = any_double || (in[k].dtype == kDouble && in[k].ndim > 0);
    all_zero_dim = all_zero_dim && in[k].ndim == 0;
  }
  for (int k = 0; k < inputs && all_zero_dim; ++k) {
    any_double = any_double || (in[k].dtype == kDouble && !in[k].is_host_scalar);
  }
  for (int i = inputs + 1; i < call.size(); ++i) all_integers = all_integers && !call.is_double(i);
  if (any_double) return kDouble;
  return all_integers && kind != Kind::floating ? kInt64 : kFloat;
}

// Beside a tensor of its kind a number takes the tensor's dtype before the two are compared: 0.1 is 0.09998 for
// float16. Where the result is rounded anyway it stays exact, as in torch's CPU kernels.
template <int inputs>
void round_numbers(const Call& call, Tensor* in) {
  if (!(call.op().needs & CW_NEEDS_PROMOTION)) return;
  for (int k = 0; k < inputs; ++k) {
    if (!in[k].is_host_scalar) continue;
    for (int other = 0; other < inputs; ++other) {
      const Dtype dtype = in[other].dtype;
      if (in[other].is_host_scalar || dtype == kBool || is_floating(dtype) < is_floating(in[k].dtype)) continue;
      const double real_value = load_one<double>(in[k].value, in[k].dtype);
      const int64_t integer = load_one<int64_t>(in[k].value, in[k].dtype);
      in[k].dtype = dtype;
      if (is_floating(dtype))
        store_one(in[k].value, real_value, dtype);
      else
        store_one(in[k].value, integer, dtype);
    }
  }
}

// The kernel of operator F, whose element function is made from the call: F<float>(call)(a, b).
template <template <class> class F, int inputs, Kind kind = Kind::any>
cw_status map(Call& call) {
  Tensor out, in[inputs];
  TRY(call.tensor(0, &out));
  const Tensor* tensors[inputs + 1] = {&out};
  for (int k = 0; k < inputs; ++k) {
    TRY(call.tensor(k + 1, &in[k]));
    tensors[k + 1] = &in[k];
  }
  round_numbers<inputs>(call, in);
  if constexpr (kind == Kind::moves) {  // by their bits: through float some halves that are NaN become others
    const bool halves = out.dtype == kHalf || out.dtype == kBFloat16;
    if (halves && in[1].dtype == out.dtype && in[2].dtype == out.dtype && !in[1].is_host_scalar &&
        !in[2].is_host_scalar) {
      out.dtype = in[1].dtype = in[2].dtype = kInt16;
    }
  }
  Rows<inputs + 1> rows;
  if (!rows.make(tensors)) return fail(CW_INVALID, "%s: the shapes do not broadcast", call.op().name);
  auto compute_in = [&](auto example) {
    using Compute = decltype(example);
    F<Compute> f(call);
    return call.launch([rows, f] {
      map_rows<Compute, inputs>(rows, f);
      return CW_OK;
    });
  };
  Dtype compute = compute_dtype<inputs>(call, kind, out, in);
  if constexpr (kind == Kind::bits) {
    return compute == kInt64 ? compute_in(int64_t{}) : call.declined("only for integers");
  } else {
    if (compute == kDouble) return compute_in(double{});
    if (kind != Kind::floating && compute == kInt64) return compute_in(int64_t{});
    return compute_in(float{});
  }
}

// A number beside a tensor takes the tensor's dtype first, as torch has it: 0.1 beside float16 is 0.09998, and
// -1 beside uint8 is 255.
template <class C>
C number_beside(const Call& call, int i) {
  Tensor tensor;
  const C number = call.number<C>(i);
  if (call.tensor(1, &tensor) != CW_OK || tensor.dtype == kBool) return number;
  if (!is_floating(tensor.dtype) && call.is_double(i)) return number;
  char stored[8];
  store_one(stored, number, tensor.dtype);
  return load_one<C>(stored, tensor.dtype);
}

// ---- one input ---------------------------------------------------------------------------------------------
#define UNARY(Name, expression)                              \
  template <class C>                                         \
  struct Name {                                              \
    explicit Name(const Call&) {}                            \
    inline C operator()(C a) const { return C(expression); } \
  };

template <class C>
inline C nan_safe_relu(C a) {
  return a < C(0) ? C(0) : a;
}
template <class C>
inline C sigmoid(C a) {
  return C(1) / (C(1) + std::exp(-a));
}
template <class C>
inline C sign_of(C a) {
  return C((a > C(0)) - (a < C(0)));
}  // of NaN 0, as torch's

UNARY(Neg, -a)
UNARY(Abs, a < C(0) ? -a : (a == C(0) ? C(0) : a))
UNARY(Sign, sign_of(a))
UNARY(Relu, nan_safe_relu(a))
UNARY(LogicalNot, a == C(0))
UNARY(IsNan, a != a)
UNARY(Exp, std::exp(a))
UNARY(Log, std::log(a))
UNARY(Sqrt, std::sqrt(a))
UNARY(Rsqrt, C(1) / std::sqrt(a))
UNARY(Reciprocal, C(1) / a)
UNARY(Sin, std::sin(a))
UNARY(Cos, std::cos(a))
UNARY(Tanh, std::tanh(a))
UNARY(Erf, std::erf(a))
UNARY(Floor, std::floor(a))
UNARY(Ceil, std::ceil(a))
UNARY(Sigmoid, sigmoid(a))
UNARY(Silu, a* sigmoid(a))
UNARY(BitwiseNot, ~a)

constexpr double sqrt_half = 0.70710678118654752440, sqrt_2_over_pi = 0.79788456080286535588;
constexpr double inverse_sqrt_2pi = 0.39894228040143267794, gelu_cubic = 0.044715;

template <class C>
struct Gelu {
  bool tanh;
  explicit Gelu(const Call& call) : tanh(call.string(2) == "tanh") {}
  C operator()(C a) const {
    if (tanh) return C(0.5) * a * (C(1) + std::tanh(C(sqrt_2_over_pi) * (a + C(gelu_cubic) * a * a * a)));
    return C(0.5) * a * (C(1) + std::erf(a * C(sqrt_half)));
  }
};

// Bounds that were not given are infinite. A NaN stays one, also when it is the bound.
template <class C, int low_at, int high_at>
struct ClampFrom {
  bool has_low, has_high;
  C low, high;
  explicit ClampFrom(const Call& call)
      : has_low(low_at > 0 && !call.is_none(low_at)),
        has_high(high_at > 0 && !call.is_none(high_at)),
        low(has_low ? number_beside<C>(call, low_at) : C(0)),
        high(has_high ? number_beside<C>(call, high_at) : C(0)) {}
  C operator()(C a) const {
    C result = has_low && (a < low || low != low) ? low : a;
    return has_high && (result > high || high != high) ? high : result;
  }
};
template <class C>
struct Clamp : ClampFrom<C, 2, 3> {
  using ClampFrom<C, 2, 3>::ClampFrom;
};
template <class C>
struct ClampMin : ClampFrom<C, 2, -1> {
  using ClampFrom<C, 2, -1>::ClampFrom;
};
template <class C>
struct ClampMax : ClampFrom<C, -1, 2> {
  using ClampFrom<C, -1, 2>::ClampFrom;
};

// ---- two inputs --------------------------------------------------------------------------------------------
#define BINARY(Name, expression)                                  \
  template <class C>                                              \
  struct Name {                                                   \
    explicit Name(const Call&) {}                                 \
    inline C operator()(C a, C b) const { return C(expression); } \
  };

// Squares in integers: exact, and wrapping as the stored type does. Negative exponents are 1 / a ** -b.
template <class C>
inline C power(C a, C b) {
  if constexpr (std::is_same<C, int64_t>::value) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    uint64_t result = 1, square = uint64_t(a);
    for (uint64_t left = uint64_t(b); left; left >>= 1, square *= square) {
      if (left & 1) result *= square;
    }
    return C(result);
  } else {
    return std::pow(a, b);
  }
}
template <class C>
inline C larger(C a, C b) {
  return a != a ? a : b != b ? b : a > b ? a : b;
}
template <class C>
inline C smaller(C a, C b) {
  return a != a ? a : b != b ? b : a < b ? a : b;
}

BINARY(Plus, a + b)
BINARY(Minus, a - b)
BINARY(Mul, a* b)
BINARY(Div, a / b)
BINARY(Maximum, larger(a, b))
BINARY(Minimum, smaller(a, b))
BINARY(Pow, power(a, b))
BINARY(Eq, a == b)
BINARY(Ne, a != b)
BINARY(Lt, a < b)
BINARY(Le, a <= b)
BINARY(Gt, a > b)
BINARY(Ge, a >= b)
BINARY(LogicalAnd, a != C(0) && b != C(0))
BINARY(LogicalOr, a != C(0) || b != C(0))
BINARY(LogicalXor, (a != C(0)) != (b != C(0)))
BINARY(BitwiseAnd, a& b)
BINARY(BitwiseOr, a | b)
BINARY(BitwiseXor, a ^ b)
BINARY(TanhBackward, a*(C(1) - b * b))
BINARY(SigmoidBackward, a*(C(1) - b) * b)
BINARY(SiluBackward, a* sigmoid(b) * (C(1) + b * (C(1) - sigmoid(b))))

template <class C>
struct Add {
  C alpha;
  explicit Add(const Call& call) : alpha(call.number<C>(3, C(1))) {}
  C operator()(C a, C b) const { return a + alpha * b; }
};
template <class C>
struct Sub {
  C alpha;
  explicit Sub(const Call& call) : alpha(call.number<C>(3, C(1))) {}
  C operator()(C a, C b) const { return a - alpha * b; }
};
template <class C>
struct ThresholdBackward {
  C threshold;
  explicit ThresholdBackward(const Call& call) : threshold(call.number<C>(3)) {}
  C operator()(C grad, C a) const { return a <= threshold ? C(0) : grad; }
};
template <class C>
struct GeluBackward {
  bool tanh;
  explicit GeluBackward(const Call& call) : tanh(call.string(3) == "tanh") {}
  C operator()(C grad, C a) const {
    if (!tanh) {
      C cdf = C(0.5) * (C(1) + std::erf(a * C(sqrt_half)));
      return grad * (cdf + a * C(inverse_sqrt_2pi) * std::exp(C(-0.5) * a * a));
    }
    C t = std::tanh(C(sqrt_2_over_pi) * (a + C(gelu_cubic) * a * a * a));
    C slope = C(sqrt_2_over_pi) * (C(1) + C(3 * gelu_cubic) * a * a);
    return grad * (C(0.5) * (C(1) + t) + C(0.5) * a * (C(1) - t * t) * slope);
  }
};

// ---- a tensor and a number: the number is bound, and it is one of the two-input functions --------------------
template <class C, template <class> class F>
struct WithNumber {
  F<C> f;
  C number;
  explicit WithNumber(const Call& call) : f(call), number(number_beside<C>(call, 2)) {}
  C operator()(C a) const { return f(a, number); }
};
template <class C>
struct PowNumber {
  C exponent;
  explicit PowNumber(const Call& call) : exponent(call.number<C>(2)) {}
  C operator()(C a) const { return power(a, exponent); }
};
#define WITH_NUMBER(Name, F)            \
  template <class C>                    \
  struct Name : WithNumber<C, F> {      \
    using WithNumber<C, F>::WithNumber; \
  };
WITH_NUMBER(EqNumber, Eq)
WITH_NUMBER(NeNumber, Ne)
WITH_NUMBER(LtNumber, Lt)
WITH_NUMBER(LeNumber, Le)
WITH_NUMBER(GtNumber, Gt)
WITH_NUMBER(GeNumber, Ge)

// ---- three inputs ------------------------------------------------------------------------------------------
template <class C>
struct Where {
  explicit Where(const Call&) {}
  C operator()(C condition, C a, C b) const { return condition != C(0) ? a : b; }
};
template <class C>
struct Addcmul {
  C value;
  explicit Addcmul(const Call& call) : value(call.number<C>(4, C(1))) {}
  C operator()(C a, C b, C c) const { return a + value * b * c; }
};
template <class C>
struct Addcdiv {
  C value;
  explicit Addcdiv(const Call& call) : value(call.number<C>(4, C(1))) {}
  C operator()(C a, C b, C c) const { return a + value * b / c; }
};

// alpha is 1 in nearly every call.
cw_status add(Call& call) { return call.number<double>(3, 1) == 1 ? map<Plus, 2>(call) : map<Add, 2>(call); }
cw_status sub(Call& call) { return call.number<double>(3, 1) == 1 ? map<Minus, 2>(call) : map<Sub, 2>(call); }

template <template <class> class F>
constexpr auto floating_unary = map<F, 1, Kind::floating>;

constexpr uint32_t numbers_too = CW_TAKES_NUMBERS;
constexpr cw_dtypes float_results = real;  // an integer input has a float result

}  // namespace

const OpList& pointwise_ops() {
  static const OpList list = {
      {"aten::neg.out", map<Neg, 1>, numbers},
      {"aten::abs.out", map<Abs, 1>, numbers},
      {"aten::sign.out", map<Sign, 1>, numbers},
      {"aten::relu.out", map<Relu, 1>, numbers},
      {"aten::clamp.out", map<Clamp, 1>, numbers},
      {"aten::clamp_min.out", map<ClampMin, 1>, numbers},
      {"aten::clamp_max.out", map<ClampMax, 1>, numbers},
      {"aten::logical_not.out", map<LogicalNot, 1>, real},
      {"aten::isnan.out", map<IsNan, 1>, real},
      {"aten::bitwise_not.out", map<BitwiseNot, 1, Kind::bits>, integers},
      {"aten::exp.out", floating_unary<Exp>, float_results},
      {"aten::log.out", floating_unary<Log>, float_results},
      {"aten::sqrt.out", floating_unary<Sqrt>, float_results},
      {"aten::rsqrt.out", floating_unary<Rsqrt>, float_results},
      {"aten::reciprocal.out", floating_unary<Reciprocal>, float_results},
      {"aten::sin.out", floating_unary<Sin>, float_results},
      {"aten::cos.out", floating_unary<Cos>, float_results},
      {"aten::tanh.out", floating_unary<Tanh>, float_results},
      {"aten::erf.out", floating_unary<Erf>, float_results},
      {"aten::sigmoid.out", floating_unary<Sigmoid>, float_results},
      {"aten::floor.out", floating_unary<Floor>, floats},
      {"aten::ceil.out", floating_unary<Ceil>, floats},
      {"aten::silu.out", floating_unary<Silu>, floats},
      {"aten::gelu.out", floating_unary<Gelu>, floats},

      {"aten::add.out", add, real, numbers_too},
      {"aten::sub.out", sub, numbers, numbers_too},
      {"aten::mul.out", map<Mul, 2>, real, numbers_too},
      {"aten::div.out", map<Div, 2, Kind::floating>, real, numbers_too},
      {"aten::pow.Tensor_Tensor_out", map<Pow, 2>, numbers, numbers_too},
      {"aten::pow.Tensor_Scalar_out", map<PowNumber, 1>, numbers},
      // A comparison must be made in the common dtype, and the output does not tell it: the core casts.
      {"aten::maximum.out", map<Maximum, 2>, real, CW_NEEDS_PROMOTION | numbers_too},
      {"aten::minimum.out", map<Minimum, 2>, real, CW_NEEDS_PROMOTION | numbers_too},
      {"aten::eq.Tensor_out", map<Eq, 2>, real, CW_NEEDS_PROMOTION | numbers_too},
      {"aten::ne.Tensor_out", map<Ne, 2>, real, CW_NEEDS_PROMOTION | numbers_too},
      {"aten::lt.Tensor_out", map<Lt, 2>, real, CW_NEEDS_PROMOTION | numbers_too},
      {"aten::le.Tensor_out", map<Le, 2>, real, CW_NEEDS_PROMOTION | numbers_too},
      {"aten::gt.Tensor_out", map<Gt, 2>, real, CW_NEEDS_PROMOTION | numbers_too},
      {"aten::ge.Tensor_out", map<Ge, 2>, real, CW_NEEDS_PROMOTION | numbers_too},
      {"aten::eq.Scalar_out", map<EqNumber, 1>, real},
      {"aten::ne.Scalar_out", map<NeNumber, 1>, real},
      {"aten::lt.Scalar_out", map<LtNumber, 1>, real},
      {"aten::le.Scalar_out", map<LeNumber, 1>, real},
      {"aten::gt.Scalar_out", map<GtNumber, 1>, real},
      {"aten::ge.Scalar_out", map<GeNumber, 1>, real},
      {"aten::logical_and.out", map<LogicalAnd, 2>, real, numbers_too},
      {"aten::logical_or.out", map<LogicalOr, 2>, real, numbers_too},
      {"aten::logical_xor.out", map<LogicalXor, 2>, real, numbers_too},
      {"aten::bitwise_and.Tensor_out", map<BitwiseAnd, 2, Kind::bits>, integers | CW_BOOL, numbers_too},
      {"aten::bitwise_or.Tensor_out", map<BitwiseOr, 2, Kind::bits>, integers | CW_BOOL, numbers_too},
      {"aten::bitwise_xor.Tensor_out", map<BitwiseXor, 2, Kind::bits>, integers | CW_BOOL, numbers_too},
      {"aten::threshold_backward.grad_input", map<ThresholdBackward, 2>, numbers},
      {"aten::tanh_backward.grad_input", map<TanhBackward, 2, Kind::floating>, floats},
      {"aten::sigmoid_backward.grad_input", map<SigmoidBackward, 2, Kind::floating>, floats},
      {"aten::silu_backward.grad_input", map<SiluBackward, 2, Kind::floating>, floats},
      {"aten::gelu_backward.grad_input", map<GeluBackward, 2, Kind::floating>, floats},

      {"aten::where.self_out", map<Where, 3, Kind::moves>, real, numbers_too},
      {"aten::addcmul.out", map<Addcmul, 3>, numbers, numbers_too},
      {"aten::addcdiv.out", map<Addcdiv, 3, Kind::floating>, floats, numbers_too},
  };
  return list;
}

}  // namespace sim
