// Operators over lists of tensors: optimizers' steps, and the scaler of mixed precision.
#include "../call.hpp"

namespace diopi {

namespace {

using Lists = cw::List<cw::Tensor>;

// torch's, which operators.hpp leaves out.
struct foreach_add : cw::Operator<1, void(Lists out, Lists self, cw::Scalar scalar)> {
  static constexpr const char* name = "aten::_foreach_add.Scalar_out";
};
struct foreach_mul : cw::Operator<1, void(Lists out, Lists self, cw::Scalar scalar)> {
  static constexpr const char* name = "aten::_foreach_mul.Scalar_out";
};
struct foreach_mul_tensor : cw::Operator<1, void(Lists out, Lists self, cw::Tensor other)> {
  static constexpr const char* name = "aten::_foreach_mul.Tensor_out";
};

// Gradients that are scaled still, or a step that may be left out, are not DIOPI's.
bool is_plain(const cw_arg* args) { return args[13].tag == CW_NONE && args[14].tag == CW_NONE; }

}  // namespace

void add_lists(Lines& lines) {
  const auto reals = whole(kReals);
  const auto numbers = whole(kNumbers);

  // torch has eps behind weight_decay.
  lines.push_back(row<aten::_fused_adamw_, If<&is_plain, Outputs{0}, Inputs{1}, Outputs{2}, Outputs{3}, Outputs{4},
                                              Inputs{5}, Count{0}, 6, 7, 8, 10, 9, 11, 12>>(reals, F(diopiFusedAdamW)));
  lines.push_back(row<aten::_amp_foreach_non_finite_check_and_unscale_, With<Outputs{0}, Count{0}, 1, 2>>(
      reals, F(diopiAmpForeachNonFiniteCheckAndUnscaleInp)));
  lines.push_back(row<aten::_amp_update_scale_, With<0, 1, 2, 3, 4, Int32{5}>>(whole(kReals | CW_INT32),
                                                                               F(diopiAmpUpdateScaleInp)));
  lines.push_back(row<foreach_add, With<Outputs{0}, Items{1}, 2>>(numbers, F(diopiForeachaddScalar)));
  lines.push_back(row<foreach_mul, With<Outputs{0}, Items{1}, 2>>(numbers, F(diopiForeachmulScalar)));
  lines.push_back(row<foreach_mul_tensor, With<Outputs{0}, Items{1}, 2>>(numbers, F(diopiForeachmulTensor)));
}

}  // namespace diopi
