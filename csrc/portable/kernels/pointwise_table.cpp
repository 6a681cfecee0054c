// The table. Expressions follow the definitions in torch's documentation; what differs from the obvious says why.
// What is put together here, and is in no .cl: an operator's expression, a line of a table.
#include "portable/kernels/pointwise.h"
#include "portable/kernels/pointwise_table.cl.h"

namespace causeway::portable {

namespace {

// x << y and torch.bitwise_left_shift(x, y) are operators of their own, and the same.
constexpr const char* kLeftShift = "r = b < K(0) || b >= K(8 * sizeof(T)) ? K(0) : K((u64)a << (u32)b);";
constexpr const char* kRightShift =
    "r = b < K(0) || b >= K(8 * sizeof(T)) ? (a < K(0) ? K(-1) : K(0)) : K(a >> (u32)b);";

}  // namespace

const std::vector<Pointwise>& pointwise_table() {
  constexpr cw_dtypes F = kFloats, R = kReals, N = kReals & ~CW_BOOL, I = kInts | CW_BOOL;
  constexpr Rule S = Rule::Same, C = Rule::Compare;
  static const std::vector<Pointwise>& table = *[] {
    auto* all = new std::vector<Pointwise>{
        // moving
        {"aten::copy_", "t-", Rule::Copy, CW_ALL_DTYPES, "r = a;", 2},
        {"aten::fill_.Scalar", "s", S, R, "r = x;", 1},
        {"aten::fill_.Tensor", "t", S, R, "r = a;", 1},
        {"aten::zero_", "", S, R, "r = K(0);", 1},
        // arithmetic
        {"aten::add.out", "tts", S, R, "r = IS_BOOL ? (a || (x && b)) : a + x * b;"},
        {"aten::sub.out", "tts", S, N, "r = a - x * b;"},
        {"aten::rsub.Tensor_out", "tts", S, N, "r = b - x * a;"},
        {"aten::mul.out", "tt", S, R, "r = a * b;"},
        {"aten::div.out", "tt", S, F, "r = a / b;"},
        {"aten::div.out_mode", "tnf", S, N,
         "#if IS_FLOAT\nif (FLAG == 't') r = trunc(a / b); else if (FLAG == 'f') { r = a / b; if (b != K(0)) {"
         " const T m = FMOD(a, b); T f = (a - m) / b; if (m != K(0) && (b < K(0)) != (m < K(0))) f -= K(1);"
         " if (f != K(0)) { r = floor(f); if (f - r > K(0.5)) r += K(1); } else r = copysign(K(0), r); } } else r = a "
         "/ b;\n"
         "#else\nif (b == K(0)) r = K(-1); else if (IS_SIGNED && b == K(-1)) r = K(-a); else { r = a / b;"
         " if (FLAG == 'f' && (a < K(0)) != (b < K(0)) && r * b != a) r -= K(1); }\n#endif",
         60},
        {"aten::floor_divide.out", "tn", S, N,
         "#if IS_FLOAT\nr = a / b; if (b != K(0)) { const T m = FMOD(a, b); T f = (a - m) / b;"
         " if (m != K(0) && (b < K(0)) != (m < K(0))) f -= K(1);"
         " if (f != K(0)) { r = floor(f); if (f - r > K(0.5)) r += K(1); } else r = copysign(K(0), r); }\n"
         "#else\nif (b == K(0)) r = K(-1); else if (IS_SIGNED && b == K(-1)) r = K(-a); else { r = a / b;"
         " if ((a < K(0)) != (b < K(0)) && r * b != a) r -= K(1); }\n#endif",
         60},
        {"aten::remainder.Tensor_out", "tn", S, N,
         "#if IS_FLOAT\nr = FMOD(a, b); if (r != K(0) && (b < K(0)) != (r < K(0))) r += b;\n"
         "#else\nif (b == K(0)) r = a; else if (IS_SIGNED && b == K(-1)) r = K(0); else { r = a % b;"
         " if (r != K(0) && (b < K(0)) != (r < K(0))) r += b; }\n#endif",
         60},
        {"aten::fmod.Tensor_out", "tn", S, N,
         "#if IS_FLOAT\nr = FMOD(a, b);\n"
         "#else\nr = b == K(0) ? a : IS_SIGNED && b == K(-1) ? K(0) : a % b;\n#endif",
         60},
        {"aten::gcd.out", "tt", S, kInts, "r = common_divisor(a, b);", 100, 1, texts::pointwise_table::common_divisor},
        {"aten::lcm.out", "tt", S, kInts,
         "const T g = common_divisor(a, b); r = K(0); if (g != K(0)) {"
         " const T v = IS_SIGNED && g == K(-1) ? WRAPPED_NEGATIVE(a) : K(a / g);"
         " const i64 p = sizeof(T) == 8 ? (i64)((u64)v * (u64)b) : (i64)(i32)((u32)v * (u32)b);"
         " r = p < 0 ? WRAPPED_NEGATIVE(p) : K(p); }",
         100, 1, texts::pointwise_table::common_divisor},
        {"aten::frac.out", "t", S, F, "r = a - trunc(a);"},
        {"aten::neg.out", "t", S, N, "r = -a;"},
        {"aten::reciprocal.out", "t", S, F, "r = K(1) / a;"},
        {"aten::addcmul.out", "ttts", S, N, "r = a + x * b * c;"},
        {"aten::addcdiv.out", "ttts", S, F, "r = a + x * b / c;"},
        {"aten::lerp.Scalar_out", "tts", S, F,
         "r = (x < K(0.5) && x > K(-0.5)) ? a + x * (b - a) : b - (b - a) * (K(1) - x);"},
        {"aten::lerp.Tensor_out", "ttt", S, F,
         "r = (c < K(0.5) && c > K(-0.5)) ? a + c * (b - a) : b - (b - a) * (K(1) - c);"},
        {"aten::maximum.out", "tt", S, R, "r = MAXIMUM(a, b);"},
        {"aten::minimum.out", "tt", S, R, "r = MINIMUM(a, b);"},
        {"aten::fmax.out", "tt", S, R, "r = (a > b || b != b) ? a : b;"},
        {"aten::fmin.out", "tt", S, R, "r = (a < b || b != b) ? a : b;"},
        // A limit that is NaN makes all NaN.
        {"aten::clamp.out", "too", S, N,
         "r = a;\n#if HAS_X\nr = (r < x || x != x) ? x : r;\n#endif\n#if HAS_Y\nr = (r > y || y != y) ? y : "
         "r;\n#endif"},
        {"aten::clamp.Tensor_out", "tuu", S, N,
         "r = a;\n#if HAS_B\nr = MAXIMUM(r, b);\n#endif\n#if HAS_C\nr = MINIMUM(r, c);\n#endif"},
        {"aten::clamp_min.Tensor_out", "tt", S, N, "r = MAXIMUM(a, b);"},
        {"aten::clamp_max.Tensor_out", "tt", S, N, "r = MINIMUM(a, b);"},
        {"aten::clamp_min.out", "ts", S, N, "r = (a < x || x != x) ? x : a;"},
        {"aten::clamp_max.out", "ts", S, N, "r = (a > x || x != x) ? x : a;"},
        {"aten::hardtanh.out", "tss", S, F, "r = (a < x || x != x) ? x : a; r = (r > y || y != y) ? y : r;"},
        // mathematics
        {"aten::abs.out", "t", S, N, "r = IS_SIGNED ? (a < K(0) ? -a : a + K(0)) : a;"},
        {"aten::sqrt.out", "t", S, F, "r = sqrt(a);", 16},
        {"aten::rsqrt.out", "t", S, F, "r = K(1) / sqrt(a);", 20},
        {"aten::exp.out", "t", S, F, "r = EXP(a);", 20},
        {"aten::exp2.out", "t", S, F, "r = exp2(a);", 40},
        {"aten::expm1.out", "t", S, F, "r = expm1(a);", 60},
        {"aten::log.out", "t", S, F, "r = log(a);", 60},
        {"aten::log2.out", "t", S, F, "r = log2(a);", 60},
        {"aten::log10.out", "t", S, F, "r = log10(a);", 60},
        {"aten::log1p.out", "t", S, F, "r = log1p(a);", 60},
        {"aten::sin.out", "t", S, F, "r = sin(a);", 80},
        {"aten::cos.out", "t", S, F, "r = cos(a);", 80},
        {"aten::tan.out", "t", S, F, "r = tan(a);", 80},
        {"aten::asin.out", "t", S, F, "r = asin(a);", 80},
        {"aten::acos.out", "t", S, F, "r = acos(a);", 80},
        {"aten::atan.out", "t", S, F, "r = atan(a);", 80},
        {"aten::sinh.out", "t", S, F, "r = sinh(a);", 80},
        {"aten::cosh.out", "t", S, F, "r = cosh(a);", 80},
        {"aten::tanh.out", "t", S, F, "r = TANH(a);", 80},
        {"aten::erf.out", "t", S, F, "r = ERF(a);", 80},
        {"aten::atan2.out", "tt", S, F, "r = atan2(a, b);", 100},
        {"aten::hypot.out", "tt", S, F, "r = hypot(a, b);", 60},
        {"aten::pow.Tensor_Tensor_out", "tt", S, N,
         "#if IS_FLOAT\nr = pow(a, b);\n#else\nif (b < K(0)) r = a == K(1) ? K(1) : IS_SIGNED && a == K(-1) ?"
         " (b & 1 ? K(-1) : K(1)) : K(0); else { T e = b, m = a; r = K(1);"
         " while (e != K(0)) { if (e & 1) r = K(r * m); m = K(m * m); e >>= 1; } }\n#endif",
         120},
        {"aten::pow.Tensor_Scalar_out", "tp", S, N,
         "#if IS_FLOAT && FLAG == -4\nr = K(1) / (a * a);\n#elif IS_FLOAT && FLAG == -2\nr = K(1) / a;\n"
         "#elif IS_FLOAT && FLAG == -1\nr = K(1) / sqrt(a);\n#elif IS_FLOAT && FLAG == 1\nr = sqrt(a);\n"
         "#elif IS_FLOAT && FLAG == 2\nr = a;\n#elif IS_FLOAT && FLAG == 4\nr = a * a;\n"
         "#elif IS_FLOAT && FLAG == 6\nr = a * a * a;\n"
         "#elif IS_FLOAT\nr = x == K(2) ? a * a : x == K(0.5) ? sqrt(a) : x == K(3) ? a * a * a : x == K(-1) ? K(1) / a"
         " : pow(a, x);\n#else\nif (x < K(0)) r = a == K(1) ? K(1) : IS_SIGNED && a == K(-1) ?"
         " (x & 1 ? K(-1) : K(1)) : K(0); else { T e = x, m = a; r = K(1);"
         " while (e != K(0)) { if (e & 1) r = K(r * m); m = K(m * m); e >>= 1; } }\n#endif",
         120},
        {"aten::pow.Scalar_out", "tt", S, N,
         "#if IS_FLOAT\nr = pow(a, b);\n#else\nif (b < K(0)) r = a == K(1) ? K(1) : IS_SIGNED && a == K(-1) ?"
         " (b & 1 ? K(-1) : K(1)) : K(0); else { T e = b, m = a; r = K(1);"
         " while (e != K(0)) { if (e & 1) r = K(r * m); m = K(m * m); e >>= 1; } }\n#endif",
         120},
        {"aten::floor.out", "t", S, F, "r = floor(a);"},
        {"aten::ceil.out", "t", S, F, "r = ceil(a);"},
        {"aten::trunc.out", "t", S, F, "r = trunc(a);"},
        {"aten::round.out", "t", S, F, "r = rint(a);"},
        {"aten::sign.out", "t", S, N, "r = (T)((a > K(0)) - (a < K(0)));"},
        {"aten::sgn.out", "t", S, N, "r = (T)((a > K(0)) - (a < K(0)));"},
        // comparison and logic
        {"aten::eq.Tensor_out", "tt", C, R, "r = a == b;"},
        {"aten::ne.Tensor_out", "tt", C, R, "r = a != b;"},
        {"aten::lt.Tensor_out", "tt", C, R, "r = a < b;"},
        {"aten::le.Tensor_out", "tt", C, R, "r = a <= b;"},
        {"aten::gt.Tensor_out", "tt", C, R, "r = a > b;"},
        {"aten::ge.Tensor_out", "tt", C, R, "r = a >= b;"},
        {"aten::eq.Scalar_out", "tt", C, R, "r = a == b;"},
        {"aten::ne.Scalar_out", "tt", C, R, "r = a != b;"},
        {"aten::lt.Scalar_out", "tt", C, R, "r = a < b;"},
        {"aten::le.Scalar_out", "tt", C, R, "r = a <= b;"},
        {"aten::gt.Scalar_out", "tt", C, R, "r = a > b;"},
        {"aten::ge.Scalar_out", "tt", C, R, "r = a >= b;"},
        {"aten::logical_not.out", "t", C, R, "r = a == K(0);"},
        {"aten::logical_and.out", "tt", C, R, "r = a != K(0) && b != K(0);"},
        {"aten::logical_or.out", "tt", C, R, "r = a != K(0) || b != K(0);"},
        {"aten::logical_xor.out", "tt", C, R, "r = (a != K(0)) != (b != K(0));"},
        {"aten::isnan.out", "t", C, R, "r = a != a;"},
        {"aten::isposinf.out", "t", C, R, "r = IS_FLOAT && a > K(0) && a == a && a - a != a - a;"},
        {"aten::isneginf.out", "t", C, R, "r = IS_FLOAT && a < K(0) && a == a && a - a != a - a;"},
        {"aten::signbit.out", "t", C, R, "\n#if IS_FLOAT\nr = copysign(K(1), a) < K(0);\n#else\nr = a < K(0);\n#endif"},
        {"aten::bitwise_and.Tensor_out", "tt", S, I, "r = a & b;"},
        {"aten::bitwise_or.Tensor_out", "tt", S, I, "r = a | b;"},
        {"aten::bitwise_xor.Tensor_out", "tt", S, I, "r = a ^ b;"},
        {"aten::bitwise_not.out", "t", S, I, "r = IS_BOOL ? !a : ~a;"},
        {"aten::bitwise_left_shift.Tensor_out", "tt", S, kInts, kLeftShift},
        {"aten::bitwise_right_shift.Tensor_out", "tt", S, kInts, kRightShift},
        {"aten::__lshift__.Tensor_out", "tt", S, kInts, kLeftShift},
        {"aten::__lshift__.Scalar_out", "tt", S, kInts, kLeftShift},
        {"aten::__rshift__.Tensor_out", "tt", S, kInts, kRightShift},
        {"aten::__rshift__.Scalar_out", "tt", S, kInts, kRightShift},
        {"aten::where.self_out", "mtt", S, R, "r = a != K(0) ? b : c;"},
        {"aten::masked_fill.Scalar_out", "tms", S, R, "r = b != K(0) ? x : a;"},
        {"aten::masked_fill.Tensor_out", "tmt", S, R, "r = b != K(0) ? c : a;"},
        // activations
        {"aten::relu.out", "t", S, N, "r = a < K(0) ? K(0) : a;"},
        {"aten::sigmoid.out", "t", S, F, "r = K(1) / (K(1) + EXP(-a));", 28},
        {"aten::silu.out", "t", S, F, "r = a / (K(1) + EXP(-a));", 28},
        {"aten::softplus.out", "tss", S, F, "r = a * x > y ? a : log1p(EXP(a * x)) / x;", 120},
        {"aten::leaky_relu.out", "ts", S, F, "r = a > K(0) ? a : a * x;"},
        {"aten::elu.out", "tsss", S, F, "r = a > K(0) ? a * y : expm1(a * z) * x * y;", 60},
        {"aten::hardswish.out", "t", S, F,
         "T h = a + K(3); h = h < K(0) ? K(0) : h > K(6) ? K(6) : h; r = a * h / K(6);"},
        {"aten::hardsigmoid.out", "t", S, F,
         "T h = a + K(3); h = h < K(0) ? K(0) : h > K(6) ? K(6) : h; r = h / K(6);"},
        {"aten::threshold.out", "tss", S, N, "r = a <= x ? y : a;"},
        {"aten::mish.out", "t", S, F, "r = a > K(20) ? a : a * TANH(log1p(EXP(a)));", 160},
        {"aten::softshrink.out", "ts", S, F, "r = a > x ? a - x : a < -x ? a + x : a * K(NOUGHT);"},
        {"aten::hardshrink.out", "ts", S, F, "r = a >= -x && a <= x ? K(0) : a;"},
        {"aten::_prelu_kernel", "tt", S, F, "r = a > K(0) ? a : b * a;"},
        {"aten::log_sigmoid_forward.output", "t", S, F,
         "q = EXP_DOWN(-(a < K(0) ? -a : a)); r = MINIMUM(K(0), a) - log1p(q);", 120, 2},
        {"aten::gelu.out", "tf", S, F,
         "r = FLAG == 't' ? K(0.5) * a * (K(1) + TANH(K(0.7978845608028654) * (a + K(0.044715) * a * a * a)))"
         " : K(0.5) * a * (K(1) + ERF(a * K(0.7071067811865476)));",
         100},
        // their gradients: grad first, as torch has them
        {"aten::threshold_backward.grad_input", "tts", S, N, "r = b <= x ? K(0) : a;"},
        {"aten::sigmoid_backward.grad_input", "tt", S, F, "r = a * (K(1) - b) * b;"},
        {"aten::tanh_backward.grad_input", "tt", S, F, "r = a * (K(1) - b * b);"},
        {"aten::silu_backward.grad_input", "tt", S, F,
         "T g = K(1) / (K(1) + EXP(-b)); r = a * g * (K(1) + b * (K(1) - g));", 32},
        {"aten::elu_backward.grad_input", "tsssft", S, F,
         "r = FLAG ? (b <= K(0) ? a * z * (b + x * y) : a * y) : b <= K(0) ? a * z * x * y * EXP(b * z) : a * y;", 60},
        {"aten::hardswish_backward", "tt", S, F, "r = b <= K(-3) ? K(0) : b < K(3) ? a * (b / K(3) + K(0.5)) : a;"},
        {"aten::hardsigmoid_backward.grad_input", "tt", S, F,
         "r = b > K(-3) && b < K(3) ? a * (T)(1.0f / 6.0f) : K(0);"},
        {"aten::softplus_backward.grad_input", "ttss", S, F,
         "const T e = EXP(b * x); r = b * x > y ? a : a * e / (e + K(1));", 40},
        {"aten::softshrink_backward.grad_input", "tts", S, F, "r = b >= -x && b <= x ? K(0) : a;"},
        {"aten::hardshrink_backward.grad_input", "tts", S, F, "r = b >= -x && b <= x ? K(0) : a;"},
        {"aten::mish_backward", "tt", S, F,
         "const T g = K(1) / (K(1) + EXP(-b)), h = TANH(log1p(EXP(b))); r = a * (h + b * g * (K(1) - h * h));", 200},
        {"aten::_prelu_kernel_backward", "ttt", S, F, "r = b > K(0) ? a : c * a; q = b > K(0) ? K(0) : b * a;", 8, 2},
        {"aten::log_sigmoid_backward.grad_input", "tt-", S, F,
         "const T e = EXP_DOWN(-(b < K(0) ? -b : b)); r = a * ((b < K(0) ? K(1) : K(0)) - (b < K(0) ? K(1) : K(-1)) * "
         "(e / "
         "(K(1) + e)));",
         60},
        {"aten::leaky_relu_backward.grad_input", "ttsf", S, F, "r = b > K(0) ? a : a * x;"},
        {"aten::hardtanh_backward.grad_input", "ttss", S, F, "r = (b <= x || b >= y) ? K(0) : a;"},
        {"aten::gelu_backward.grad_input", "ttf", S, F,
         "if (FLAG == 't') { T u = K(0.7978845608028654) * (b + K(0.044715) * b * b * b), h = TANH(u);"
         " T du = K(0.7978845608028654) * (K(1) + K(0.134145) * b * b);"
         " r = a * (K(0.5) * (K(1) + h) + K(0.5) * b * (K(1) - h * h) * du); }"
         " else { T cdf = K(0.5) * (K(1) + ERF(b * K(0.7071067811865476)));"
         " r = a * (cdf + b * K(0.3989422804014327) * EXP_DOWN(K(-0.5) * b * b)); }",
         140},
        {"aten::native_dropout_backward.out", "tts", S, F, "r = a * b * x;"},
    };
    for (const Pointwise& op : special_functions()) all->push_back(op);
    return all;
  }();
  return table;
}

}  // namespace causeway::portable
