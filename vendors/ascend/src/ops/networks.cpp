// Layers of networks: convolutions, norms, pools, paddings, interpolation, embeddings.
#include <utility>

#include "../call.hpp"
#include "../device.hpp"

namespace ascend {

namespace {

// Where torch says none, the channels that a bias would have.
AclIntArray* bias_sizes(Frame& f) {
  if (f[6].tag != CW_NONE) return f.ints(f[6]);
  const DLTensor* weight = f[5].v.tensor;
  const int64_t channels = f[10].v.i ? weight->shape[1] * f[12].v.i : weight->shape[0];
  return f.ints(&channels, 1);
}

// In training all chips but the 950 save the variance where torch keeps 1 / sqrt(variance + eps), which other rungs and
// programs may read. So it is made torch's behind the call, and the chip's again before the backward's.
struct Deviation {
  Operation adds{"InplaceAdds"}, rsqrt{"InplaceRsqrt"}, power{"PowTensorScalar"}, cast{"Cast"};
};
Deviation* deviation() {
  static Deviation* made = soc_name().rfind("Ascend950", 0) == 0 ? nullptr : new Deviation;
  return made;
}

// What is missing is found before anything runs.
template <int place>
bool training(Frame& f) {
  const bool asked = f[place].v.i != 0;
  const Deviation* chip = deviation();
  if (asked && chip && !(chip->adds.run && chip->rsqrt.run && chip->power.run && chip->cast.run)) f.decline();
  return asked;
}

cw_status save_deviation(Frame& f) {
  Deviation* chip = deviation();
  if (!chip || !f[8].v.i || f[2].tag == CW_NONE) return CW_OK;
  AclTensor* saved = f.tensor(f[2]);
  TRY(f.call(chip->adds, saved, f.scalar(f[10]), f.scalar(int64_t{1})));
  return f.call(chip->rsqrt, saved);
}

AclTensor* saved_deviation(Frame& f) {
  Deviation* chip = deviation();
  AclTensor* saved = f.tensor(f[9]);
  if (!chip || !saved || !training<10>(f)) return saved;
  // In float32, as torch_npu has it: in 16 bits most of the variance would be lost. Where it is small against eps it is
  // not what it was, and the sum with eps is.
  const DLTensor* t = f[9].v.tensor;
  AclTensor* variance = f.scratch(kFloat, 4, t->shape, t->ndim);
  if (f.status()) return nullptr;
  if (t->dtype.bits != 32 && f.call(chip->cast, std::exchange(saved, variance), kFloat, variance)) return nullptr;
  if (f.call(chip->power, saved, f.scalar(-2.0), variance)) return nullptr;
  return f.call(chip->adds, variance, f.scalar(-f[11].v.d), f.scalar(int64_t{1})) ? nullptr : variance;
}

// Nearest neighbours go by the sizes: some of aclnn's take no scales, and by CANN's public sources others keep six
// decimals of them, or forget them in the gradient of a small plane. So a scale must be that of the sizes.
AclIntArray* sizes_alone(Frame& f, const int64_t* from, const cw_arg* scales, int dims) {
  for (int d = 0; d < dims; ++d)
    if (scales[d].tag != CW_NONE && scales[d].v.d * static_cast<double>(from[d]) != static_cast<double>(f[2].v.ints[d]))
      return f.decline(), nullptr;
  return f.ints(f[2]);
}
template <int dims>
AclIntArray* nearest_size(Frame& f) {
  return sizes_alone(f, f[1].v.tensor->shape + 2, &f[3], dims);
}
template <int dims>
AclIntArray* nearest_backward_size(Frame& f) {
  return sizes_alone(f, f[3].v.ints + 2, &f[4], dims);
}
float no_scale(Frame&) { return 0.0f; }

}  // namespace

void add_networks(Lines& lines) {
  const auto floats = whole(kFloats);
  const auto indexed = whole(kFloats | CW_INT32 | CW_INT64);

  // convolutions
  using Convolution = With<1, 2, 3, 4, 5, 6, 7, 8, 9, 0, Cube::convolution>;
  using ConvolutionBackward = With<3, 4, 5, &bias_sizes, 7, 8, 9, 10, 11, Int32{12}, 13, Cube::convolution, 0, 1, 2>;
  lines.push_back(row<aten::convolution_overrideable, Convolution>(floats, "Convolution"));
  lines.push_back(row<aten::convolution_backward, ConvolutionBackward>(floats, "ConvolutionBackward"));

  // norms
  using BatchNorm = Then<With<3, 4, 5, 6, 7, &training<8>, 9, 10, 0, 1, 2>, &save_deviation>;
  using BatchNormBackward = With<3, 4, 5, 6, 7, 8, &saved_deviation, 10, 11, 12, 0, 1, 2>;
  lines.push_back(row<aten::native_batch_norm_out, BatchNorm>(floats, "BatchNorm"));
  lines.push_back(row<aten::native_batch_norm_backward, BatchNormBackward>(floats, "BatchNormBackward"));
  lines.push_back(row<aten::native_layer_norm_out, With<3, 4, 5, 6, 7, 0, 1, 2>>(floats, "LayerNorm"));
  lines.push_back(
      row<aten::native_layer_norm_backward, With<3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2>>(floats, "LayerNormBackward"));
  // aclnn's group norm asks for dense tensors.
  lines.push_back(
      row<aten::native_group_norm_out, With<3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2>>(dense(kFloats), "GroupNorm"));
  lines.push_back(row<aten::native_group_norm_backward, With<3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2>>(
      dense(kFloats), "GroupNormBackward"));
  lines.push_back(row<aten::renorm_out, With<1, 2, 3, 4, 0>>(floats, "Renorm"));

  // pools
  using MaxPool = With<2, Pair{3}, Stride2{4}, Pair{5}, Pair{6}, 7, 0, 1>;
  using MaxPoolBackward = With<1, 2, 8, Pair{3}, Stride2{4}, Pair{5}, Pair{6}, 7, 0>;
  lines.push_back(row<aten::max_pool2d_with_indices_out, MaxPool>(indexed, "MaxPool2dWithIndices"));
  lines.push_back(
      row<aten::max_pool2d_with_indices_backward_grad_input, MaxPoolBackward>(indexed, "MaxPool2dWithIndicesBackward"));
  lines.push_back(
      row<aten::avg_pool2d_out, With<1, Pair{2}, Stride2{3}, Pair{4}, 5, 6, OrZero{7}, Cube::convolution, 0>>(
          floats, "AvgPool2d"));
  lines.push_back(row<aten::avg_pool2d_backward_grad_input,
                      With<1, 2, Pair{3}, Stride2{4}, Pair{5}, 6, 7, OrZero{8}, Cube::convolution, 0>>(
      floats, "AvgPool2dBackward"));
  lines.push_back(
      row<aten::avg_pool3d_out, With<1, Triple{2}, Stride3{3}, Triple{4}, 5, 6, OrZero{7}, 0>>(floats, "AvgPool3d"));
  lines.push_back(
      row<aten::avg_pool3d_backward_grad_input, With<1, 2, Triple{3}, Stride3{4}, Triple{5}, 6, 7, OrZero{8}, 0>>(
          floats, "AvgPool3dBackward"));
  lines.push_back(row<aten::_adaptive_avg_pool2d_out, With<1, 2, 0>>(floats, "AdaptiveAvgPool2d"));
  lines.push_back(row<aten::_adaptive_avg_pool2d_backward_out, With<1, 2, 0>>(floats, "AdaptiveAvgPool2dBackward"));
  lines.push_back(row<aten::_adaptive_avg_pool3d_out, With<1, 2, 0>>(floats, "AdaptiveAvgPool3d"));
  lines.push_back(row<aten::_adaptive_avg_pool3d_backward_out, With<1, 2, 0>>(floats, "AdaptiveAvgPool3dBackward"));
  lines.push_back(row<aten::adaptive_max_pool2d_out, With<2, 3, 0, 1>>(indexed, "AdaptiveMaxPool2d"));
  lines.push_back(
      row<aten::adaptive_max_pool2d_backward_grad_input, With<1, 2, 3, 0>>(indexed, "AdaptiveMaxPool2dBackward"));
  lines.push_back(row<aten::max_unpool2d_out, With<1, 2, 3, 0>>(indexed, "MaxUnpool2d"));

  // paddings
  using Padded = With<1, 2, 0>;
  using PaddedBackward = With<1, 2, 3, 0>;
  lines.push_back(row<aten::reflection_pad1d_out, Padded>(floats, "ReflectionPad1d"));
  lines.push_back(row<aten::reflection_pad1d_backward_grad_input, PaddedBackward>(floats, "ReflectionPad1dBackward"));
  lines.push_back(row<aten::reflection_pad2d_out, Padded>(floats, "ReflectionPad2d"));
  lines.push_back(row<aten::reflection_pad2d_backward_grad_input, PaddedBackward>(floats, "ReflectionPad2dBackward"));
  lines.push_back(row<aten::reflection_pad3d_out, Padded>(floats, "ReflectionPad3d"));
  lines.push_back(row<aten::reflection_pad3d_backward_grad_input, PaddedBackward>(floats, "ReflectionPad3dBackward"));
  lines.push_back(row<aten::replication_pad1d_out, Padded>(floats, "ReplicationPad1d"));
  lines.push_back(row<aten::replication_pad1d_backward_grad_input, PaddedBackward>(floats, "ReplicationPad1dBackward"));
  lines.push_back(row<aten::replication_pad2d_out, Padded>(floats, "ReplicationPad2d"));
  lines.push_back(row<aten::replication_pad2d_backward_grad_input, PaddedBackward>(floats, "ReplicationPad2dBackward"));
  lines.push_back(row<aten::replication_pad3d_out, Padded>(floats, "ReplicationPad3d"));
  lines.push_back(row<aten::replication_pad3d_backward_grad_input, PaddedBackward>(floats, "ReplicationPad3dBackward"));

  // interpolation and sampling
  lines.push_back(row<aten::upsample_nearest2d_out, With<1, &nearest_size<2>, &no_scale, &no_scale, 0>>(
      floats, "UpsampleNearest2dV2"));
  lines.push_back(
      row<aten::upsample_nearest2d_backward_grad_input, With<1, &nearest_backward_size<2>, 3, Real{0}, Real{0}, 0>>(
          floats, "UpsampleNearest2dBackward"));
  lines.push_back(row<aten::upsample_nearest1d_out, With<1, &nearest_size<1>, 0>>(floats, "UpsampleNearest1d"));
  lines.push_back(row<aten::upsample_nearest1d_backward_grad_input, With<1, &nearest_backward_size<1>, 3, Real{0}, 0>>(
      floats, "UpsampleNearest1dBackward"));
  lines.push_back(
      row<aten::upsample_nearest3d_out, With<1, 2, Scale{3}, Scale{4}, Scale{5}, 0>>(floats, "UpsampleNearest3d"));
  lines.push_back(row<aten::upsample_nearest3d_backward_grad_input, With<1, 2, 3, Scale{4}, Scale{5}, Scale{6}, 0>>(
      floats, "UpsampleNearest3dBackward"));
  lines.push_back(
      row<aten::upsample_bilinear2d_out, With<1, 2, 3, Scale{4}, Scale{5}, 0>>(floats, "UpsampleBilinear2d"));
  lines.push_back(row<aten::upsample_bilinear2d_backward_grad_input, With<1, 2, 3, 4, Scale{5}, Scale{6}, 0>>(
      floats, "UpsampleBilinear2dBackward"));
  lines.push_back(row<aten::upsample_bicubic2d_out, With<1, 2, 3, Scale{4}, Scale{5}, 0>>(floats, "UpsampleBicubic2d"));
  lines.push_back(row<aten::upsample_bicubic2d_backward_grad_input, With<1, 2, 3, 4, Scale{5}, Scale{6}, 0>>(
      floats, "UpsampleBicubic2dBackward"));
  lines.push_back(row<aten::upsample_linear1d_out, With<1, 2, 3, Scale{4}, 0>>(floats, "UpsampleLinear1d"));
  lines.push_back(row<aten::upsample_linear1d_backward_grad_input, With<1, 2, 3, 4, Scale{5}, 0>>(
      floats, "UpsampleLinear1dBackward"));
  lines.push_back(row<aten::upsample_trilinear3d_out, With<1, 2, 3, Scale{4}, Scale{5}, Scale{6}, 0>>(
      floats, "UpsampleTrilinear3d"));
  lines.push_back(
      row<aten::upsample_trilinear3d_backward_grad_input, With<1, 2, 3, 4, Scale{5}, Scale{6}, Scale{7}, 0>>(
          floats, "UpsampleTrilinear3dBackward"));
  lines.push_back(row<aten::grid_sampler_2d_out, With<1, 2, 3, 4, 5, 0>>(floats, "GridSampler2D"));
  lines.push_back(row<aten::grid_sampler_3d_out, With<1, 2, 3, 4, 5, 0>>(floats, "GridSampler3D"));
  lines.push_back(row<aten::im2col_out, With<1, 2, 3, 4, 5, 0>>(floats, "Im2col"));
  lines.push_back(row<aten::col2im_out, With<1, 2, 3, 4, 5, 6, 0>>(floats, "Im2colBackward"));
  lines.push_back(row<aten::channel_shuffle_out, With<1, 2, 0>>(floats, "ChannelShuffle"));

  // embeddings
  lines.push_back(row<aten::embedding_dense_backward_out, With<1, 2, 3, 4, 5, 0>>(indexed, "EmbeddingDenseBackward"));
}

}  // namespace ascend
