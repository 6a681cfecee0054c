// Layers of networks and losses: convolutions, norms, pools, interpolation, embeddings.
#include "../call.hpp"

namespace diopi {

namespace {

template <int input, int transposed, int64_t ndim, bool asked>
bool convolves(const cw_arg* args) {
  return args[input].v.tensor->ndim == ndim && (args[transposed].v.i != 0) == asked;
}

// How DIOPI says that a bias has a gradient: the sizes of the bias.
diopiSize_t* bias_sizes(Frame& f) {
  if (f[2].tag == CW_NONE) return nullptr;
  static thread_local diopiSize_t sizes;
  const DLTensor* grad = f[2].v.tensor;
  return sizes = {grad->shape, grad->ndim}, &sizes;
}

// DIOPI's takes no scale: it must be that of the sizes.
template <int input, int size, int scale>
diopiSize_t scaled(Frame& f) {
  const DLTensor* t = f[input].v.tensor;
  for (int i = 0; i < 2; ++i) {
    const cw_arg& given = f[scale + i];
    const auto from = static_cast<double>(t->shape[2 + i]), to = static_cast<double>(f[size].v.ints[i]);
    if (given.tag != CW_NONE && given.v.d * from != to) f.decline();
  }
  return f.ints(f[size]);
}
template <int scale>
diopiSize_t scaled_back(Frame& f) {  // of a gradient: from the input's size to the output's
  for (int i = 0; i < 2; ++i) {
    const cw_arg& given = f[scale + i];
    const auto from = static_cast<double>(f[3].v.ints[2 + i]), to = static_cast<double>(f[2].v.ints[i]);
    if (given.tag != CW_NONE && given.v.d * from != to) f.decline();
  }
  return f.ints(f[2]);
}
// Of one class alone torch gives the weight in sum, which DIOPI's leaves out where nothing is reduced.
template <int input, int reduction>
bool has_total(const cw_arg* args) {
  return args[input].v.tensor->ndim > 1 || args[reduction].v.i != 0;
}
const char* bilinear(Frame&) { return "bilinear"; }

}  // namespace

void add_networks(Lines& lines) {
  const auto reals = whole(kReals);
  // Places and targets are integers.
  const auto indexed = whole(kReals | CW_INT32 | CW_INT64);
  const auto targets = whole(kReals | CW_INT32 | CW_INT64 | CW_UINT8);

  // convolutions
  lines.push_back(row<aten::convolution_overrideable, If<&convolves<1, 7, 4, false>, 0, 1, 2, 3, 4, 5, 6, 9>,
                      If<&convolves<1, 7, 5, false>, 0, 1, 2, 3, 4, 5, 6, 9>,
                      If<&convolves<1, 7, 4, true>, 0, 1, 2, 3, 4, 5, 8, 9, 6>,
                      If<&convolves<1, 7, 5, true>, 0, 1, 2, 3, 4, 5, 8, 9, 6>>(
      reals, F(diopiConvolution2d), F(diopiConvolution3d), F(diopiConvTranspose2d), F(diopiConvTranspose3d)));
  lines.push_back(
      row<aten::convolution_backward, If<&convolves<4, 10, 4, false>, 0, 1, 2, 3, 4, 5, &bias_sizes, 7, 8, 9, 12>,
          If<&convolves<4, 10, 5, false>, 0, 1, 2, 3, 4, 5, &bias_sizes, 7, 8, 9, 12>,
          If<&convolves<4, 10, 4, true>, 0, 1, 2, 3, 4, 5, &bias_sizes, 7, 8, 9, 11, 12>,
          If<&convolves<4, 10, 5, true>, 0, 1, 2, 3, 4, 5, &bias_sizes, 7, 8, 9, 11, 12>>(
          reals, F(diopiConvolution2dBackward), F(diopiConvolution3dBackward), F(diopiConvTranspose2dBackward),
          F(diopiConvTranspose3dBackward)));

  // norms
  lines.push_back(row<aten::native_batch_norm_out, With<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10>>(reals, F(diopiBatchNorm)));
  lines.push_back(row<aten::native_batch_norm_backward, With<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11>>(
      reals, F(diopiBatchNormBackward)));
  lines.push_back(row<aten::native_layer_norm_out, With<0, 1, 2, 3, 5, 6, 4, 7>>(reals, F(diopiLayerNorm)));
  lines.push_back(
      row<aten::native_layer_norm_backward, With<0, 1, 2, 3, 4, 8, 9, 6, 7, 5>>(reals, F(diopiLayerNormBackward)));
  lines.push_back(row<aten::native_group_norm_out, With<0, 1, 2, 3, 4, 5, 9, 10>>(reals, F(diopiGroupNorm)));
  lines.push_back(
      row<aten::native_group_norm_backward, With<0, 1, 2, 3, 4, 7, 5, 6, 11>>(reals, F(diopiGroupNormBackward)));

  // pools
  lines.push_back(row<aten::max_pool2d_with_indices_out, With<0, 1, 2, Pair{3}, Stride{4}, Pair{5}, Pair{6}, 7>>(
      indexed, F(diopiMaxPool2dWithIndices)));
  lines.push_back(
      row<aten::max_pool2d_with_indices_backward_grad_input, With<0, 1, 2, Pair{3}, Stride{4}, Pair{5}, Pair{6}, 7, 8>>(
          indexed, F(diopiMaxPool2dBackward)));
  lines.push_back(
      row<aten::avg_pool2d_out, With<0, 1, Pair{2}, Stride{3}, Pair{4}, 5, 6, At{7}>>(reals, F(diopiAvgPool2d)));
  lines.push_back(row<aten::avg_pool2d_backward_grad_input, With<0, 1, 2, Pair{3}, Stride{4}, Pair{5}, 6, 7, At{8}>>(
      reals, F(diopiAvgPool2dBackward)));
  lines.push_back(row<aten::_adaptive_avg_pool2d_out, With<0, 1, 2>>(reals, F(diopiAdaptiveAvgPool2d)));
  lines.push_back(
      row<aten::_adaptive_avg_pool2d_backward_out, With<0, 1, 2>>(reals, F(diopiAdaptiveAvgPool2dBackward)));
  lines.push_back(row<aten::adaptive_max_pool2d_out, With<0, 1, 2, 3>>(indexed, F(diopiAdaptiveMaxPool2dWithIndices)));
  lines.push_back(
      row<aten::adaptive_max_pool2d_backward_grad_input, With<0, 1, 2, 3>>(indexed, F(diopiAdaptiveMaxPool2dBackward)));

  // interpolation
  lines.push_back(row<aten::upsample_nearest2d_out, With<0, 1, &scaled<1, 2, 3>>>(reals, F(diopiUpsampleNearest)));
  lines.push_back(row<aten::upsample_nearest2d_backward_grad_input, With<0, 1, &scaled_back<4>, 3>>(
      reals, F(diopiUpsampleNearestBackward)));
  lines.push_back(
      row<aten::upsample_bilinear2d_out, With<0, 1, &scaled<1, 2, 4>, 3, &bilinear>>(reals, F(diopiUpsampleLinear)));
  lines.push_back(row<aten::upsample_bilinear2d_backward_grad_input, With<0, 1, &scaled_back<5>, 3, 4, &bilinear>>(
      reals, F(diopiUpsampleLinearBackward)));
  lines.push_back(row<aten::im2col_out, With<0, 1, 2, 3, 4, 5>>(reals, F(diopiIm2Col)));
  lines.push_back(row<aten::col2im_out, With<0, 1, 2, 3, 4, 5, 6>>(reals, F(diopiCol2Im)));

  // embeddings; the lookup itself is aten::index_select
  lines.push_back(
      row<aten::embedding_dense_backward_out, With<0, 1, 2, 3, 4, 5, Flag::no>>(indexed, F(diopiEmbeddingBackward)));

  // losses and their gradients
  lines.push_back(row<aten::mse_loss_out, With<0, 1, 2, Reduction{3}>>(reals, F(diopiMSELoss)));
  lines.push_back(
      row<aten::mse_loss_backward_grad_input, With<0, 1, 2, 3, Reduction{4}>>(reals, F(diopiMSELossBackward)));
  lines.push_back(row<aten::smooth_l1_loss_out, With<0, 1, 2, Reduction{3}, 4>>(reals, F(diopiSmoothL1Loss)));
  lines.push_back(row<aten::smooth_l1_loss_backward_grad_input, With<0, 1, 2, 3, Reduction{4}, 5>>(
      reals, F(diopiSmoothL1LossBackward)));
  lines.push_back(row<aten::binary_cross_entropy_out, With<0, 1, 2, 3, Reduction{4}>>(reals, F(diopiBCELoss)));
  lines.push_back(row<aten::binary_cross_entropy_backward_grad_input, With<0, 1, 2, 3, 4, Reduction{5}>>(
      reals, F(diopiBCELossBackward)));
  using Loss = If<&has_total<2, 5>, 0, 1, 2, 3, 4, Reduction{5}, 6>;
  using LossBackward = With<0, 1, 2, 3, 4, 7, Reduction{5}, 6>;
  lines.push_back(row<aten::nll_loss_forward_output, Loss>(targets, F(diopiNLLLossV2)));
  lines.push_back(row<aten::nll_loss_backward_grad_input, LossBackward>(targets, F(diopiNLLLossV2Backward)));
  lines.push_back(row<aten::nll_loss2d_forward_output, Loss>(targets, F(diopiNLLLossV2)));
  lines.push_back(row<aten::nll_loss2d_backward_grad_input, LossBackward>(targets, F(diopiNLLLossV2Backward)));
}

}  // namespace diopi
