// Element by element: arithmetic, comparisons, activations and their gradients, copies and fills.
#include "../call.hpp"

namespace diopi {

namespace {

constexpr cw_dtypes kBits = kInts | CW_BOOL;

diopiRoundMode_t unrounded(Frame&) { return RoundModeNone; }
diopiRoundMode_t rounding(Frame& f) {
  if (f[3].tag == CW_NONE) return RoundModeNone;
  return std::string_view(f[3].v.string, f[3].n) == "trunc" ? RoundModeTrunc : RoundModeFloor;
}

// Some bound must be there, and what one that is NaN does is not said: another rung gives torch's NaN.
template <int place>
diopiScalar_t* bound(Frame& f) {
  if (f[place].tag == CW_DOUBLE && f[place].v.d != f[place].v.d) return f.decline(), nullptr;
  return f.scalar(f[place]);
}

bool of_one_dtype(const cw_arg* args) {
  const DLDataType a = args[0].v.tensor->dtype, b = args[1].v.tensor->dtype;
  return a.code == b.code && a.bits == b.bits;
}
bool of_two_dtypes(const cw_arg* args) { return !of_one_dtype(args); }

using Unary = With<0, 1>;
using UnaryIn = Inplace<0>;
using Binary = With<0, 1, 2>;
using BinaryIn = Inplace<0, 2>;
using BinaryNumber = With<0, 1, Number{2}>;
using BinaryNumberIn = Inplace<0, Number{2}>;
using Ternary = With<0, 1, 2, 3>;

}  // namespace

// torch's operator and DIOPI's function, where there is one for the input as the output too.
#define UNARY(op, needs, name) \
  lines.push_back(row<aten::op##_out, UnaryIn, Unary>(needs, F(diopi##name##Inp), F(diopi##name)))
#define COMPARISON(op, name)                                                                               \
  lines.push_back(row<aten::op##_Tensor_out, BinaryIn, BinaryNumberIn, Binary, BinaryNumber>(              \
      any, F(diopi##name##Inp), F(diopi##name##InpScalar), F(diopi##name), F(diopi##name##Scalar)));       \
  lines.push_back(row<aten::op##_Scalar_out, Inplace<0, 2>, With<0, 1, 2>>(any, F(diopi##name##InpScalar), \
                                                                           F(diopi##name##Scalar)))

void add_pointwise(Lines& lines) {
  const auto reals = pointwise(kReals);
  const auto numbers = pointwise(kNumbers);
  const auto any = pointwise(kAny);
  const auto bits = pointwise(kBits);
  const auto as_they_come = whole(kAny);

  // copies, casts, fills
  lines.push_back(row<aten::copy_, If<&of_one_dtype, 1, 0>, If<&of_two_dtypes, 0, 1>>(as_they_come, F(diopiCopyInp),
                                                                                      F(diopiCastDtype)));
  lines.push_back(row<aten::fill__Scalar, With<0, 1>>(as_they_come, F(diopiFill)));
  lines.push_back(row<aten::zero_, With<0>>(as_they_come, F(diopiZeroInp)));

  // one tensor
  UNARY(abs, numbers, Abs);
  UNARY(neg, numbers, Neg);
  UNARY(acos, reals, Acos);
  UNARY(acosh, reals, Acosh);
  UNARY(asin, reals, Asin);
  UNARY(asinh, reals, Asinh);
  UNARY(atan, reals, Atan);
  UNARY(atanh, reals, Atanh);
  UNARY(ceil, reals, Ceil);
  UNARY(cos, reals, Cos);
  UNARY(cosh, reals, Cosh);
  UNARY(erf, reals, Erf);
  UNARY(erfinv, reals, Erfinv);
  UNARY(exp, reals, Exp);
  UNARY(expm1, reals, Expm1);
  UNARY(floor, reals, Floor);
  UNARY(log, reals, Log);
  UNARY(log10, reals, Log10);
  UNARY(log1p, reals, Log1p);
  UNARY(log2, reals, Log2);
  UNARY(reciprocal, reals, Reciprocal);
  UNARY(rsqrt, reals, Rsqrt);
  UNARY(sin, reals, Sin);
  UNARY(sinh, reals, Sinh);
  UNARY(sqrt, reals, Sqrt);
  UNARY(tan, reals, Tan);
  UNARY(tanh, reals, Tanh);
  UNARY(sigmoid, reals, Sigmoid);
  UNARY(silu, reals, Silu);
  UNARY(relu, numbers, Relu);
  UNARY(hardswish, reals, Hardswish);
  UNARY(logical_not, any, LogicalNot);
  UNARY(bitwise_not, bits, BitwiseNot);
  lines.push_back(row<aten::sign_out, Unary>(numbers, F(diopiSign)));
  lines.push_back(row<aten::isnan_out, Unary>(any, F(diopiIsNan)));

  // two tensors, or a tensor and a number
  lines.push_back(row<aten::add_out, Inplace<0, 2, 3>, Inplace<0, Number{2}, 3>, Ternary, With<0, 1, Number{2}, 3>>(
      numbers, F(diopiAddInp), F(diopiAddInpScalar), F(diopiAdd), F(diopiAddScalar)));
  lines.push_back(row<aten::sub_out, Inplace<0, 2, 3>, Inplace<0, Number{2}, 3>, Ternary, With<0, 1, Number{2}, 3>>(
      numbers, F(diopiSubInp), F(diopiSubInpScalar), F(diopiSub), F(diopiSubScalar)));
  lines.push_back(row<aten::mul_out, BinaryIn, BinaryNumberIn, Binary, BinaryNumber, With<0, 2, Number{1}>>(
      any, F(diopiMulInp), F(diopiMulInpScalar), F(diopiMul), F(diopiMulScalar), F(diopiMulScalar)));
  lines.push_back(row<aten::div_out, Inplace<0, 2, &unrounded>, Inplace<0, Number{2}, &unrounded>,
                      With<0, 1, 2, &unrounded>, With<0, 1, Number{2}, &unrounded>>(
      reals, F(diopiDivInp), F(diopiDivInpScalar), F(diopiDiv), F(diopiDivScalar)));
  lines.push_back(row<aten::div_out_mode, Inplace<0, 2, &rounding>, Inplace<0, Number{2}, &rounding>,
                      With<0, 1, 2, &rounding>, With<0, 1, Number{2}, &rounding>>(
      reals, F(diopiDivInp), F(diopiDivInpScalar), F(diopiDiv), F(diopiDivScalar)));
  lines.push_back(row<aten::remainder_Tensor_out, Binary, BinaryNumber, With<0, Number{1}, 2>>(
      numbers, F(diopiRemainderTensor), F(diopiRemainderScalar), F(diopiRemainder)));
  lines.push_back(row<aten::pow_Tensor_Tensor_out, BinaryIn, Binary, BinaryNumber, With<0, Number{1}, 2>>(
      reals, F(diopiPowInpTensor), F(diopiPowTensor), F(diopiPow), F(diopiPowScalar)));
  lines.push_back(row<aten::pow_Tensor_Scalar_out, BinaryIn, Binary>(reals, F(diopiPowInp), F(diopiPow)));
  lines.push_back(row<aten::pow_Scalar_out, Binary>(reals, F(diopiPowScalar)));
  lines.push_back(row<aten::maximum_out, Binary>(numbers, F(diopiMaximum)));
  lines.push_back(row<aten::minimum_out, Binary>(numbers, F(diopiMinimum)));

  // comparisons
  COMPARISON(eq, Eq);
  COMPARISON(ne, Ne);
  COMPARISON(lt, Lt);
  COMPARISON(le, Le);
  COMPARISON(gt, Gt);
  COMPARISON(ge, Ge);
  lines.push_back(row<aten::logical_and_out, BinaryIn, Binary>(any, F(diopiLogicalAndInp), F(diopiLogicalAnd)));
  lines.push_back(row<aten::logical_or_out, BinaryIn, Binary>(any, F(diopiLogicalOrInp), F(diopiLogicalOr)));
  lines.push_back(row<aten::bitwise_and_Tensor_out, BinaryIn, BinaryNumberIn, Binary, BinaryNumber>(
      bits, F(diopiBitwiseAndInp), F(diopiBitwiseAndInpScalar), F(diopiBitwiseAnd), F(diopiBitwiseAndScalar)));
  lines.push_back(row<aten::bitwise_or_Tensor_out, BinaryIn, BinaryNumberIn, Binary, BinaryNumber>(
      bits, F(diopiBitwiseOrInp), F(diopiBitwiseOrInpScalar), F(diopiBitwiseOr), F(diopiBitwiseOrScalar)));

  // bounds, masks and mixtures. Conditions and masks have a dtype of their own.
  lines.push_back(row<aten::where_self_out, Ternary>(as_they_come, F(diopiWhere)));
  lines.push_back(row<aten::masked_fill__Scalar, With<0, 1, 2>>(as_they_come, F(diopiMaskedFillInpScalar)));
  lines.push_back(row<aten::masked_fill__Tensor, With<0, 1, 2>>(as_they_come, F(diopiMaskedFillInp)));
  lines.push_back(row<aten::clamp_out, Inplace<0, &bound<2>, &bound<3>>, With<0, 1, &bound<2>, &bound<3>>>(
      numbers, F(diopiClampInpScalar), F(diopiClampScalar)));
  lines.push_back(row<aten::clamp_Tensor_out, Inplace<0, 2, 3>, Ternary>(numbers, F(diopiClampInp), F(diopiClamp)));
  lines.push_back(row<aten::clamp_min_out, Inplace<0, &bound<2>>, With<0, 1, &bound<2>>>(
      numbers, F(diopiClampMinInpScalar), F(diopiClampMinScalar)));
  lines.push_back(row<aten::clamp_max_out, Inplace<0, &bound<2>>, With<0, 1, &bound<2>>>(
      numbers, F(diopiClampMaxInpScalar), F(diopiClampMaxScalar)));
  lines.push_back(row<aten::clamp_min_Tensor_out, BinaryIn, Binary>(numbers, F(diopiClampMinInp), F(diopiClampMin)));
  lines.push_back(row<aten::clamp_max_Tensor_out, BinaryIn, Binary>(numbers, F(diopiClampMaxInp), F(diopiClampMax)));
  lines.push_back(
      row<aten::addcmul_out, Inplace<0, 2, 3, 4>, With<0, 1, 2, 3, 4>>(reals, F(diopiAddcmulInp), F(diopiAddcmul)));
  lines.push_back(
      row<aten::addcdiv_out, Inplace<0, 2, 3, 4>, With<0, 1, 2, 3, 4>>(reals, F(diopiAddcdivInp), F(diopiAddcdiv)));
  lines.push_back(row<aten::lerp_Scalar_out, Ternary>(reals, F(diopiLerpScalar)));
  lines.push_back(row<aten::lerp_Tensor_out, Ternary>(reals, F(diopiLerpTensor)));

  // activations and their gradients
  lines.push_back(row<aten::threshold_out, Inplace<0, 2, 3>, Ternary>(reals, F(diopiThresholdInp), F(diopiThreshold)));
  lines.push_back(row<aten::threshold_backward_grad_input, Ternary>(reals, F(diopiThresholdBackward)));
  lines.push_back(row<aten::sigmoid_backward_grad_input, Binary>(reals, F(diopiSigmoidBackward)));
  lines.push_back(row<aten::tanh_backward_grad_input, Binary>(reals, F(diopiTanhBackward)));
  lines.push_back(row<aten::silu_backward_grad_input, Binary>(reals, F(diopiSiluBackward)));
  lines.push_back(row<aten::gelu_out, Binary>(reals, F(diopiGelu)));
  lines.push_back(row<aten::gelu_backward_grad_input, Ternary>(reals, F(diopiGeluBackward)));
  lines.push_back(row<aten::leaky_relu_out, BinaryIn, Binary>(reals, F(diopiLeakyReluInp), F(diopiLeakyRelu)));
  lines.push_back(row<aten::leaky_relu_backward_grad_input, With<0, 1, 2, 3, 4>>(reals, F(diopiLeakyReluBackward)));
  lines.push_back(row<aten::hardtanh_out, Inplace<0, 2, 3>, Ternary>(reals, F(diopiHardtanhInp), F(diopiHardtanh)));
  lines.push_back(row<aten::hardtanh_backward_grad_input, With<0, 1, 2, 3, 4>>(reals, F(diopiHardtanhBackward)));
  lines.push_back(row<aten::hardswish_backward_out, Binary>(reals, F(diopiHardswishBackward)));
}

}  // namespace diopi
