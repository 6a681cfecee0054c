// `causeway::max_pool2d`: the largest numbers of windows, without their places, which are eight times the bytes of int8 and
// which inference does not read. Compiled graphs have it (compile/integers.py); in eager torch asks for both.
#include <ATen/ops/max_pool2d_with_indices.h>
#include <torch/library.h>

namespace causeway {

namespace {

using at::Tensor;

// On the CPU, and of tensors without memory.
Tensor max_pool2d(const Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                  at::IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(at::max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

TORCH_LIBRARY_FRAGMENT(causeway, m) {
  m.def(
      "max_pool2d(Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> "
      "Tensor",
      {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(causeway, CPU, m) { m.impl("max_pool2d", max_pool2d); }

TORCH_LIBRARY_IMPL(causeway, Meta, m) { m.impl("max_pool2d", max_pool2d); }

}  // namespace

}  // namespace causeway
