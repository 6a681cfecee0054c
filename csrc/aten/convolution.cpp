// torch's convolution with cuDNN's flags, which traced models call: its composite asks for the device's type and ends at
// an operator that is not there. The flags say how cuDNN computes, not what.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace causeway {

namespace {

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::SymIntArrayRef stride, at::SymIntArrayRef padding, at::SymIntArrayRef dilation,
                       bool transposed, at::SymIntArrayRef output_padding, c10::SymInt groups, bool, bool, bool, bool) {
  return at::convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_convolution", convolution); }

}  // namespace

}  // namespace causeway
