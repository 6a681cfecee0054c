// Element by element: arithmetic, comparisons, activations and their gradients, copies and fills.
#include <limits>
#include <string_view>

#include "../call.hpp"

namespace ascend {

namespace {

constexpr cw_dtypes kArithmetic = kNumbers;
constexpr cw_dtypes kBits = kInts | CW_BOOL;
constexpr cw_dtypes kReals = kFloats | CW_FLOAT64;

// torch.div's rounding_mode: 0 none, 1 to zero, 2 down.
int rounding(Frame& f) {
  const cw_arg& mode = f[3];
  if (mode.tag == CW_NONE) return 0;
  const std::string_view words(mode.v.string, mode.n);
  if (words == "trunc") return 1;
  if (words == "floor") return 2;
  return f.decline(), 0;
}

// "none": 0, "tanh": 1.
int64_t gelu_mode(Frame& f) { return std::string_view(f[2].v.string, f[2].n) == "tanh" ? 1 : 0; }
const char* gelu_words(Frame& f) { return f[3].v.string; }

double logit_eps(Frame& f) { return f[2].tag == CW_NONE ? -1.0 : f[2].v.d; }

// What nan_to_num puts for infinities where nothing was given: the dtype's ends.
float largest(const DLTensor* t) {
  switch (cw::dtype_of_dl(t->dtype)) {
    case cw::Dtype::float16:
      return 65504.0f;
    case cw::Dtype::bfloat16:
      return 3.38953139e38f;
    default:
      return std::numeric_limits<float>::max();
  }
}
float nan_number(Frame& f) { return f[2].tag == CW_NONE ? 0.0f : static_cast<float>(f[2].v.d); }
float high_number(Frame& f) { return f[3].tag == CW_NONE ? largest(f[1].v.tensor) : static_cast<float>(f[3].v.d); }
float low_number(Frame& f) { return f[4].tag == CW_NONE ? -largest(f[1].v.tensor) : static_cast<float>(f[4].v.d); }

// What a bound that is NaN does is not documented: another rung gives torch's NaN.
template <int place>
AclScalar* bound(Frame& f) {
  if (f[place].tag == CW_DOUBLE && f[place].v.d != f[place].v.d) return f.decline(), nullptr;
  return f.scalar(f[place]);
}

// aclnn takes log_sigmoid's buffer and leaves it as it is: its own backward does not read it. Other rungs' do: the CPU's
// has exp(-|x|) there, made by three more calls.
struct Exponential {
  Operation abs{"Abs"}, neg{"Neg"}, exp{"Exp"};
};
Exponential& exponential() {
  static Exponential made;
  return made;
}
AclTensor* log_sigmoid_input(Frame& f) {
  const Exponential& all = exponential();
  if (!(all.abs.run && all.neg.run && all.exp.run)) f.decline();  // before anything runs
  return f.tensor(f[2]);
}
cw_status fill_buffer(Frame& f) {
  AclTensor* buffer = f.tensor(f[1]);
  TRY(f.call(exponential().abs, f.tensor(f[2]), buffer));
  TRY(f.call(exponential().neg, buffer, buffer));
  return f.call(exponential().exp, buffer, buffer);
}

using Unary = With<1, 0>;
using Binary = With<1, 2, 0>;
using BinaryNumber = With<1, Number{2}, 0>;

}  // namespace

void add_pointwise(Lines& lines) {
  const auto reals = pointwise(kReals);
  const auto floats = pointwise(kFloats);
  const auto numbers = pointwise(kArithmetic);
  const auto any = pointwise(kAny);
  const auto bits = pointwise(kBits);
  const auto as_they_come = whole(kAny);

  // copies, casts, fills
  lines.push_back(row<aten::copy_, With<0, 1>>(as_they_come, "InplaceCopy"));
  lines.push_back(row<aten::fill__Scalar, With<0, 1>>(as_they_come, "InplaceFillScalar"));
  lines.push_back(row<aten::fill__Tensor, With<0, 1>>(as_they_come, "InplaceFillTensor"));
  lines.push_back(row<aten::zero_, With<0>>(as_they_come, "InplaceZero"));

  // one tensor
  lines.push_back(row<aten::abs_out, Unary>(numbers, "Abs"));
  lines.push_back(row<aten::neg_out, Unary>(numbers, "Neg"));
  lines.push_back(row<aten::sign_out, Unary>(numbers, "Sign"));
  lines.push_back(row<aten::signbit_out, Unary>(any, "Signbit"));
  lines.push_back(row<aten::acos_out, Unary>(reals, "Acos"));
  lines.push_back(row<aten::acosh_out, Unary>(reals, "Acosh"));
  lines.push_back(row<aten::asin_out, Unary>(reals, "Asin"));
  lines.push_back(row<aten::asinh_out, Unary>(reals, "Asinh"));
  lines.push_back(row<aten::atan_out, Unary>(reals, "Atan"));
  lines.push_back(row<aten::atanh_out, Unary>(reals, "Atanh"));
  lines.push_back(row<aten::ceil_out, Unary>(reals, "Ceil"));
  lines.push_back(row<aten::cos_out, Unary>(reals, "Cos"));
  lines.push_back(row<aten::cosh_out, Unary>(reals, "Cosh"));
  lines.push_back(row<aten::erf_out, Unary>(reals, "Erf"));
  lines.push_back(row<aten::erfc_out, Unary>(reals, "Erfc"));
  lines.push_back(row<aten::erfinv_out, Unary>(floats, "Erfinv"));
  lines.push_back(row<aten::exp_out, Unary>(reals, "Exp"));
  lines.push_back(row<aten::exp2_out, Unary>(reals, "Exp2"));
  lines.push_back(row<aten::expm1_out, Unary>(reals, "Expm1"));
  lines.push_back(row<aten::floor_out, Unary>(reals, "Floor"));
  lines.push_back(row<aten::frac_out, Unary>(floats, "Frac"));
  lines.push_back(row<aten::log_out, Unary>(reals, "Log"));
  lines.push_back(row<aten::log10_out, Unary>(reals, "Log10"));
  lines.push_back(row<aten::log1p_out, Unary>(reals, "Log1p"));
  lines.push_back(row<aten::log2_out, Unary>(reals, "Log2"));
  lines.push_back(row<aten::reciprocal_out, Unary>(reals, "Reciprocal"));
  lines.push_back(row<aten::round_out, Unary>(reals, "Round"));
  lines.push_back(row<aten::round_decimals_out, With<1, 2, 0>>(floats, "RoundDecimals"));
  lines.push_back(row<aten::rsqrt_out, Unary>(reals, "Rsqrt"));
  lines.push_back(row<aten::sin_out, Unary>(reals, "Sin"));
  lines.push_back(row<aten::sinc_out, Unary>(floats, "Sinc"));
  lines.push_back(row<aten::sinh_out, Unary>(reals, "Sinh"));
  lines.push_back(row<aten::sqrt_out, Unary>(reals, "Sqrt"));
  lines.push_back(row<aten::tan_out, Unary>(reals, "Tan"));
  lines.push_back(row<aten::tanh_out, Unary>(reals, "Tanh"));
  lines.push_back(row<aten::trunc_out, Unary>(reals, "Trunc"));
  lines.push_back(row<aten::isposinf_out, Unary>(any, "IsPosInf"));
  lines.push_back(row<aten::isneginf_out, Unary>(any, "IsNegInf"));
  lines.push_back(row<aten::logical_not_out, Unary>(any, "LogicalNot"));
  lines.push_back(row<aten::bitwise_not_out, Unary>(bits, "BitwiseNot"));
  lines.push_back(row<aten::nan_to_num_out, With<1, &nan_number, &high_number, &low_number, 0>>(floats, "NanToNum"));

  // two tensors, or a tensor and a number
  lines.push_back(row<aten::add_out, With<1, 2, 3, 0>, With<1, Number{2}, 3, 0>, With<Number{1}, 2, 3, 0>>(
      numbers, "Add", "Adds", "AddV3"));
  lines.push_back(row<aten::sub_out, With<1, 2, 3, 0>, With<1, Number{2}, 3, 0>, With<2, Number{1}, 3, 0>>(
      numbers, "Sub", "Subs", "Rsubs"));
  lines.push_back(row<aten::mul_out, Binary, BinaryNumber, With<2, Number{1}, 0>>(any, "Mul", "Muls", "Muls"));
  lines.push_back(row<aten::div_out, Binary, BinaryNumber>(reals, "Div", "Divs"));
  lines.push_back(
      row<aten::div_out_mode, With<1, 2, &rounding, 0>, With<1, Number{2}, &rounding, 0>>(reals, "DivMod", "DivMods"));
  lines.push_back(row<aten::floor_divide_out, Binary, BinaryNumber>(reals, "FloorDivide", "FloorDivides"));
  lines.push_back(row<aten::remainder_Tensor_out, Binary, BinaryNumber, With<Number{1}, 2, 0>>(
      numbers, "RemainderTensorTensor", "RemainderTensorScalar", "RemainderScalarTensor"));
  lines.push_back(row<aten::fmod_Tensor_out, Binary, BinaryNumber>(numbers, "FmodTensor", "FmodScalar"));
  lines.push_back(row<aten::pow_Tensor_Tensor_out, Binary, BinaryNumber, With<Number{1}, 2, 0>>(
      reals, "PowTensorTensor", "PowTensorScalar", "PowScalarTensor"));
  lines.push_back(row<aten::pow_Tensor_Scalar_out, Binary>(reals, "PowTensorScalar"));
  lines.push_back(row<aten::pow_Scalar_out, Binary>(reals, "PowScalarTensor"));
  lines.push_back(row<aten::maximum_out, Binary>(numbers, "Maximum"));
  lines.push_back(row<aten::minimum_out, Binary>(numbers, "Minimum"));
  lines.push_back(row<aten::atan2_out, Binary>(reals, "Atan2"));
  lines.push_back(row<aten::logaddexp_out, Binary>(floats, "LogAddExp"));
  lines.push_back(row<aten::logaddexp2_out, Binary>(floats, "LogAddExp2"));
  lines.push_back(row<aten::xlogy_OutTensor, Binary, BinaryNumber, With<Number{1}, 2, 0>>(
      floats, "XLogYTensor", "XLogYScalarOther", "XLogYScalarSelf"));
  lines.push_back(row<aten::gcd_out, Binary>(pointwise(CW_INT16 | CW_INT32 | CW_INT64), "Gcd"));

  // comparisons
  lines.push_back(row<aten::eq_Tensor_out, Binary, BinaryNumber>(any, "EqTensor", "EqScalar"));
  lines.push_back(row<aten::ne_Tensor_out, Binary, BinaryNumber>(any, "NeTensor", "NeScalar"));
  lines.push_back(row<aten::lt_Tensor_out, Binary, BinaryNumber>(any, "LtTensor", "LtScalar"));
  lines.push_back(row<aten::le_Tensor_out, Binary, BinaryNumber>(any, "LeTensor", "LeScalar"));
  lines.push_back(row<aten::gt_Tensor_out, Binary, BinaryNumber>(any, "GtTensor", "GtScalar"));
  lines.push_back(row<aten::ge_Tensor_out, Binary, BinaryNumber>(any, "GeTensor", "GeScalar"));
  lines.push_back(row<aten::eq_Scalar_out, Binary>(any, "EqScalar"));
  lines.push_back(row<aten::ne_Scalar_out, Binary>(any, "NeScalar"));
  lines.push_back(row<aten::lt_Scalar_out, Binary>(any, "LtScalar"));
  lines.push_back(row<aten::le_Scalar_out, Binary>(any, "LeScalar"));
  lines.push_back(row<aten::gt_Scalar_out, Binary>(any, "GtScalar"));
  lines.push_back(row<aten::ge_Scalar_out, Binary>(any, "GeScalar"));
  lines.push_back(row<aten::logical_and_out, Binary>(any, "LogicalAnd"));
  lines.push_back(row<aten::logical_or_out, Binary>(any, "LogicalOr"));
  lines.push_back(row<aten::logical_xor_out, Binary>(any, "LogicalXor"));
  lines.push_back(
      row<aten::bitwise_and_Tensor_out, Binary, BinaryNumber>(bits, "BitwiseAndTensor", "BitwiseAndScalar"));
  lines.push_back(row<aten::bitwise_or_Tensor_out, Binary, BinaryNumber>(bits, "BitwiseOrTensor", "BitwiseOrScalar"));
  lines.push_back(
      row<aten::bitwise_xor_Tensor_out, Binary, BinaryNumber>(bits, "BitwiseXorTensor", "BitwiseXorScalar"));
  // Without the core's common dtype, in which its condition would count.
  lines.push_back(row<aten::where_self_out, With<1, 2, 3, 0>>(whole(kAny).needs(CW_TAKES_NUMBERS), "SWhere"));

  // bounds and mixtures
  lines.push_back(row<aten::clamp_out, With<1, &bound<2>, &bound<3>, 0>>(numbers, "Clamp"));
  lines.push_back(row<aten::clamp_Tensor_out, With<1, 2, 3, 0>>(numbers, "ClampTensor"));
  lines.push_back(row<aten::clamp_min_out, With<1, &bound<2>, 0>>(numbers, "ClampMin"));
  lines.push_back(row<aten::clamp_max_out, With<1, &bound<2>, 0>>(numbers, "ClampMax"));
  lines.push_back(row<aten::clamp_min_Tensor_out, Binary>(numbers, "ClampMinTensor"));
  lines.push_back(row<aten::clamp_max_Tensor_out, Binary>(numbers, "ClampMaxTensor"));
  lines.push_back(row<aten::addcmul_out, With<1, 2, 3, 4, 0>>(reals, "Addcmul"));
  lines.push_back(row<aten::addcdiv_out, With<1, 2, 3, 4, 0>>(reals, "Addcdiv"));
  lines.push_back(row<aten::lerp_Scalar_out, With<1, 2, 3, 0>>(floats, "Lerps"));
  lines.push_back(row<aten::lerp_Tensor_out, With<1, 2, 3, 0>>(floats, "Lerp"));

  // activations and their gradients
  lines.push_back(row<aten::relu_out, Unary>(pointwise(kFloats | CW_INT8 | CW_UINT8 | CW_INT32), "Relu"));
  lines.push_back(row<aten::threshold_out, With<1, 2, 3, 0>>(floats, "Threshold"));
  lines.push_back(row<aten::threshold_backward_grad_input, With<1, 2, 3, 0>>(floats, "ThresholdBackward"));
  lines.push_back(row<aten::sigmoid_out, Unary>(reals, "Sigmoid"));
  lines.push_back(row<aten::sigmoid_backward_grad_input, Binary>(floats, "SigmoidBackward"));
  lines.push_back(row<aten::tanh_backward_grad_input, Binary>(floats, "TanhBackward"));
  lines.push_back(row<aten::silu_out, Unary>(floats, "Silu"));
  lines.push_back(row<aten::silu_backward_grad_input, Binary>(floats, "SiluBackward"));
  lines.push_back(row<aten::mish_out, Unary>(floats, "Mish"));
  lines.push_back(row<aten::gelu_out, With<1, &gelu_mode, 0>>(floats, "GeluV2"));
  lines.push_back(row<aten::gelu_backward_grad_input, With<1, 2, &gelu_words, 0>>(floats, "GeluBackwardV2"));
  lines.push_back(row<aten::leaky_relu_out, Binary>(floats, "LeakyRelu"));
  lines.push_back(row<aten::leaky_relu_backward_grad_input, With<1, 2, 3, 4, 0>>(floats, "LeakyReluBackward"));
  lines.push_back(row<aten::elu_out, With<1, 2, 3, 4, 0>>(floats, "Elu"));
  lines.push_back(row<aten::elu_backward_grad_input, With<1, 2, 3, 4, 5, 6, 0>>(whole(kFloats), "EluBackward"));
  lines.push_back(row<aten::softplus_out, With<1, 2, 3, 0>>(floats, "Softplus"));
  lines.push_back(row<aten::softplus_backward_grad_input, With<1, 2, 3, 4, 0>>(whole(kFloats), "SoftplusBackward"));
  lines.push_back(row<aten::hardtanh_out, With<1, 2, 3, 0>>(floats, "Hardtanh"));
  lines.push_back(row<aten::hardtanh_backward_grad_input, With<1, 2, 3, 4, 0>>(whole(kFloats), "HardtanhBackward"));
  lines.push_back(row<aten::hardshrink_out, Binary>(floats, "Hardshrink"));
  lines.push_back(row<aten::hardshrink_backward_grad_input, With<1, 2, 3, 0>>(whole(kFloats), "HardshrinkBackward"));
  lines.push_back(row<aten::softshrink_out, Binary>(floats, "Softshrink"));
  lines.push_back(row<aten::softshrink_backward_grad_input, With<1, 2, 3, 0>>(whole(kFloats), "SoftshrinkBackward"));
  lines.push_back(row<aten::hardsigmoid_out, Unary>(floats, "Hardsigmoid"));
  lines.push_back(row<aten::hardsigmoid_backward_grad_input, Binary>(whole(kFloats), "HardsigmoidBackward"));
  lines.push_back(row<aten::hardswish_out, Unary>(floats, "Hardswish"));
  lines.push_back(row<aten::hardswish_backward_out, Binary>(whole(kFloats), "HardswishBackward"));
  lines.push_back(row<aten::glu_out, With<1, 2, 0>>(whole(kFloats), "Glu"));
  lines.push_back(row<aten::glu_backward_grad_input, With<1, 2, 3, 0>>(whole(kFloats), "GluBackward"));
  lines.push_back(row<aten::logit_out, With<1, &logit_eps, 0>>(floats, "Logit"));
  lines.push_back(row<aten::log_sigmoid_forward_output, Then<With<&log_sigmoid_input, 0, 1>, &fill_buffer>>(
      whole(kFloats), "LogSigmoidForward"));
  lines.push_back(row<aten::log_sigmoid_backward_grad_input, With<1, 2, 3, 0>>(whole(kFloats), "LogSigmoidBackward"));
  lines.push_back(
      row<aten::native_dropout_backward_out, With<1, 2, Float{3}, 0>>(whole(kFloats | CW_BOOL), "MaskedScale"));
}

}  // namespace ascend
