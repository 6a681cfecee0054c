// Operators over lists of tensors: optimizers' steps. aclnn's take a limited number of tensors at once, so a long list goes
// in parts.
#include "../call.hpp"

namespace ascend {

namespace {

using Lists = cw::List<cw::Tensor>;
using Scalars = cw::List<cw::Scalar>;

template <class... T>
constexpr uint32_t lists_of(void (*)(T...)) {
  return (0u + ... + (std::is_same_v<T, Lists> ? 1u : 0u));
}

// torch's, which operators.hpp leaves out. aclnn takes 48 tensors in all lists that a call reads.
#define LIST_OPERATOR(base, overload, ...)                                                                            \
  struct base##_##overload : cw::Operator<1, void(Lists out, Lists self __VA_OPT__(, ) __VA_ARGS__)> {                \
    static constexpr const char* name = "aten::_foreach_" #base "." #overload;                                        \
    static constexpr uint32_t most = 48 / lists_of(static_cast<void (*)(Lists __VA_OPT__(, ) __VA_ARGS__)>(nullptr)); \
  }
LIST_OPERATOR(add, List_out, Lists other, cw::Scalar alpha);
LIST_OPERATOR(sub, List_out, Lists other, cw::Scalar alpha);
LIST_OPERATOR(add, Scalar_out, cw::Scalar scalar);
LIST_OPERATOR(sub, Scalar_out, cw::Scalar scalar);
LIST_OPERATOR(mul, Scalar_out, cw::Scalar scalar);
LIST_OPERATOR(div, Scalar_out, cw::Scalar scalar);
LIST_OPERATOR(maximum, Scalar_out, cw::Scalar scalar);
LIST_OPERATOR(minimum, Scalar_out, cw::Scalar scalar);
LIST_OPERATOR(pow, Scalar_out, cw::Scalar scalar);
LIST_OPERATOR(mul, List_out, Lists other);
LIST_OPERATOR(div, List_out, Lists other);
LIST_OPERATOR(maximum, List_out, Lists other);
LIST_OPERATOR(minimum, List_out, Lists other);
LIST_OPERATOR(pow, List_out, Lists other);
LIST_OPERATOR(addcmul, Scalar_out, Lists tensor1, Lists tensor2, cw::Scalar value);
LIST_OPERATOR(addcdiv, Scalar_out, Lists tensor1, Lists tensor2, cw::Scalar value);
LIST_OPERATOR(lerp, List_out, Lists tensors1, Lists weights);
LIST_OPERATOR(lerp, Scalar_out, Lists tensors1, cw::Scalar weight);
LIST_OPERATOR(add, ScalarList_out, Scalars scalars);
LIST_OPERATOR(sub, ScalarList_out, Scalars scalars);
LIST_OPERATOR(mul, ScalarList_out, Scalars scalars);
LIST_OPERATOR(div, ScalarList_out, Scalars scalars);
LIST_OPERATOR(maximum, ScalarList_out, Scalars scalars);
LIST_OPERATOR(minimum, ScalarList_out, Scalars scalars);
LIST_OPERATOR(pow, ScalarList_out, Scalars scalars);
LIST_OPERATOR(addcmul, ScalarList_out, Lists tensor1, Lists tensor2, Scalars scalars);
LIST_OPERATOR(addcdiv, ScalarList_out, Lists tensor1, Lists tensor2, Scalars scalars);
LIST_OPERATOR(sqrt, out);
LIST_OPERATOR(abs, out);
LIST_OPERATOR(neg, out);
LIST_OPERATOR(exp, out);
LIST_OPERATOR(expm1, out);
LIST_OPERATOR(log, out);
LIST_OPERATOR(log1p, out);
LIST_OPERATOR(log2, out);
LIST_OPERATOR(log10, out);
LIST_OPERATOR(reciprocal, out);
LIST_OPERATOR(sigmoid, out);
LIST_OPERATOR(sign, out);
LIST_OPERATOR(sin, out);
LIST_OPERATOR(cos, out);
LIST_OPERATOR(tan, out);
LIST_OPERATOR(asin, out);
LIST_OPERATOR(acos, out);
LIST_OPERATOR(atan, out);
LIST_OPERATOR(sinh, out);
LIST_OPERATOR(cosh, out);
LIST_OPERATOR(tanh, out);
LIST_OPERATOR(erf, out);
LIST_OPERATOR(erfc, out);
#undef LIST_OPERATOR

}  // namespace

void add_lists(Lines& lines) {
  const auto floats = whole(kFloats);
  const auto numbers = whole(kFloats | CW_INT32);
  using Unary = With<1, 0>;
  using Binary = With<1, 2, 0>;
  using Scaled = With<1, 2, 3, 0>;
  using Ternary = With<1, 2, 3, 4, 0>;

  lines.push_back(row<add_List_out, Scaled>(numbers, "ForeachAddListV2"));
  lines.push_back(row<add_Scalar_out, Binary>(numbers, "ForeachAddScalarV2"));
  lines.push_back(row<sub_List_out, Scaled>(numbers, "ForeachSubListV2"));
  lines.push_back(row<sub_Scalar_out, Binary>(numbers, "ForeachSubScalarV2"));
  lines.push_back(row<mul_List_out, Binary>(numbers, "ForeachMulList"));
  lines.push_back(row<mul_Scalar_out, Binary>(numbers, "ForeachMulScalarV2"));
  lines.push_back(row<div_List_out, Binary>(floats, "ForeachDivList"));
  lines.push_back(row<div_Scalar_out, Binary>(floats, "ForeachDivScalarV2"));
  lines.push_back(row<maximum_List_out, Binary>(numbers, "ForeachMaximumList"));
  lines.push_back(row<minimum_List_out, Binary>(numbers, "ForeachMinimumList"));
  lines.push_back(row<maximum_Scalar_out, Binary>(numbers, "ForeachMaximumScalarV2"));
  lines.push_back(row<minimum_Scalar_out, Binary>(numbers, "ForeachMinimumScalarV2"));
  lines.push_back(row<pow_List_out, Binary>(floats, "ForeachPowList"));
  lines.push_back(row<pow_Scalar_out, Binary>(floats, "ForeachPowScalarV2"));
  lines.push_back(row<addcmul_Scalar_out, Ternary>(floats, "ForeachAddcmulScalarV2"));
  lines.push_back(row<addcdiv_Scalar_out, Ternary>(floats, "ForeachAddcdivScalarV2"));
  lines.push_back(row<lerp_List_out, Scaled>(floats, "ForeachLerpList"));
  lines.push_back(row<lerp_Scalar_out, Scaled>(floats, "ForeachLerpScalar"));
  // A number for each tensor: the steps of optimizers that correct their bias.
  lines.push_back(row<add_ScalarList_out, Binary>(numbers, "ForeachAddScalarList"));
  lines.push_back(row<sub_ScalarList_out, Binary>(numbers, "ForeachSubScalarList"));
  lines.push_back(row<mul_ScalarList_out, Binary>(numbers, "ForeachMulScalarList"));
  lines.push_back(row<div_ScalarList_out, Binary>(floats, "ForeachDivScalarList"));
  lines.push_back(row<maximum_ScalarList_out, Binary>(numbers, "ForeachMaximumScalarList"));
  lines.push_back(row<minimum_ScalarList_out, Binary>(numbers, "ForeachMinimumScalarList"));
  lines.push_back(row<pow_ScalarList_out, Binary>(floats, "ForeachPowScalarList"));
  lines.push_back(row<addcmul_ScalarList_out, Ternary>(floats, "ForeachAddcmulScalarList"));
  lines.push_back(row<addcdiv_ScalarList_out, Ternary>(floats, "ForeachAddcdivScalarList"));
  lines.push_back(row<sqrt_out, Unary>(floats, "ForeachSqrt"));
  lines.push_back(row<abs_out, Unary>(floats, "ForeachAbs"));
  lines.push_back(row<neg_out, Unary>(numbers, "ForeachNeg"));
  lines.push_back(row<exp_out, Unary>(floats, "ForeachExp"));
  lines.push_back(row<expm1_out, Unary>(floats, "ForeachExpm1"));
  lines.push_back(row<log_out, Unary>(floats, "ForeachLog"));
  lines.push_back(row<log1p_out, Unary>(floats, "ForeachLog1p"));
  lines.push_back(row<log2_out, Unary>(floats, "ForeachLog2"));
  lines.push_back(row<log10_out, Unary>(floats, "ForeachLog10"));
  lines.push_back(row<reciprocal_out, Unary>(floats, "ForeachReciprocal"));
  lines.push_back(row<sigmoid_out, Unary>(floats, "ForeachSigmoid"));
  lines.push_back(row<sign_out, Unary>(floats, "ForeachSign"));
  lines.push_back(row<sin_out, Unary>(floats, "ForeachSin"));
  lines.push_back(row<cos_out, Unary>(floats, "ForeachCos"));
  lines.push_back(row<tan_out, Unary>(floats, "ForeachTan"));
  lines.push_back(row<asin_out, Unary>(floats, "ForeachAsin"));
  lines.push_back(row<acos_out, Unary>(floats, "ForeachAcos"));
  lines.push_back(row<atan_out, Unary>(floats, "ForeachAtan"));
  lines.push_back(row<sinh_out, Unary>(floats, "ForeachSinh"));
  lines.push_back(row<cosh_out, Unary>(floats, "ForeachCosh"));
  lines.push_back(row<tanh_out, Unary>(floats, "ForeachTanh"));
  lines.push_back(row<erf_out, Unary>(floats, "ForeachErf"));
  lines.push_back(row<erfc_out, Unary>(floats, "ForeachErfc"));
}

}  // namespace ascend
