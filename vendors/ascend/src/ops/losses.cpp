// Losses and their gradients.
#include "../call.hpp"

namespace ascend {

namespace {

// aclnn takes no absent weight: ones, one for each class.
template <int self, int weight>
AclTensor* class_weights(Frame& f) {
  const DLTensor* t = f[self].v.tensor;
  if (t->ndim == 1 && f[5].v.i == 0) return f.decline(), nullptr;  // torch still gives the weight of its one class
  if (f[weight].tag != CW_NONE) return f.tensor(f[weight]);
  const int64_t classes = t->shape[t->ndim == 1 ? 0 : 1];
  if (AclTensor* kept = f.ones(t->dtype, classes)) return kept;
  cw_arg one = {};
  one.tag = CW_INT, one.v.i = 1;
  return f.filled(one, type_of(t->dtype), (t->dtype.bits + 7) / 8, &classes, 1);
}

}  // namespace

void add_losses(Lines& lines) {
  const auto floats = whole(kFloats);
  const auto targets = whole(kFloats | CW_INT32 | CW_INT64 | CW_UINT8);
  using Loss = With<1, 2, 3, 0>;
  using LossBackward = With<1, 2, 3, 4, 0>;

  lines.push_back(row<aten::mse_loss_out, Loss>(floats, "MseLoss"));
  lines.push_back(row<aten::mse_loss_backward_grad_input, LossBackward>(floats, "MseLossBackward"));
  lines.push_back(row<aten::smooth_l1_loss_out, With<1, 2, 3, Float{4}, 0>>(floats, "SmoothL1Loss"));
  lines.push_back(
      row<aten::smooth_l1_loss_backward_grad_input, With<1, 2, 3, 4, Float{5}, 0>>(floats, "SmoothL1LossBackward"));
  lines.push_back(row<aten::binary_cross_entropy_out, With<1, 2, 3, 4, 0>>(floats, "BinaryCrossEntropy"));
  lines.push_back(row<aten::binary_cross_entropy_backward_grad_input, With<1, 2, 3, 4, 5, 0>>(
      floats, "BinaryCrossEntropyBackward"));
  lines.push_back(row<aten::nll_loss_forward_output, With<2, 3, &class_weights<2, 4>, 5, 6, 0, 1>>(targets, "NLLLoss"));
  lines.push_back(row<aten::nll_loss_backward_grad_input, With<1, 2, 3, &class_weights<2, 4>, 5, 6, 7, 0>>(
      targets, "NLLLossBackward"));
  lines.push_back(
      row<aten::nll_loss2d_forward_output, With<2, 3, &class_weights<2, 4>, 5, 6, 0, 1>>(targets, "NLLLoss2d"));
  lines.push_back(row<aten::nll_loss2d_backward_grad_input, With<1, 2, 3, &class_weights<2, 4>, 5, 6, 7, 0>>(
      targets, "NLLLoss2dBackward"));
}

}  // namespace ascend
