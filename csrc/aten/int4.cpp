// Products with weights of 4 bits. torch has these names for CUDA only, where the packed layout is nobody's business but
// the kernel's; here it is the shape of torch's meta kernel over the bytes as they came, and the product is computed from
// operators that the ladder serves.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ladder/observe.h"

namespace causeway {

namespace {

using at::Tensor;

// Weights [n, k / 2] uint8, the even column of each pair in the high bits: int32 [n / 8, k / (tiles * 16), 32, tiles / 2].
Tensor pack(const Tensor& weight, int64_t tiles) {
  TORCH_CHECK(weight.dim() == 2 && weight.scalar_type() == at::kByte,
              "_convert_weight_to_int4pack: expected weights of 2 dimensions in uint8, but got ", weight.sizes(),
              " in ", weight.scalar_type());
  TORCH_CHECK(tiles == 2 || tiles == 4 || tiles == 8, "_convert_weight_to_int4pack: innerKTiles is 2, 4 or 8, but got ",
              tiles);
  const int64_t n = weight.size(0), k = weight.size(1) * 2;
  TORCH_CHECK(n % 8 == 0 && k % (tiles * 16) == 0, "_convert_weight_to_int4pack: expected rows by 8 and columns by ",
              tiles * 16, ", but got ", n, " and ", k);
  return weight.contiguous().view(at::kInt).clone().view({n / 8, k / (tiles * 16), 32, tiles / 2});
}

// x [m, k] times the weights' transpose: [m, n]. `scales` [k / group, n, 2] has a scale and a zero point for each group:
// a weight q stands for (q - 8) * scale + zero.
Tensor product(const Tensor& x, const Tensor& packed, int64_t group, const Tensor& scales) {
  TORCH_CHECK(x.dim() == 2 && at::isFloatingType(x.scalar_type()),
              "_weight_int4pack_mm: expected a floating-point matrix, but got ", x.sizes(), " in ", x.scalar_type());
  TORCH_CHECK(packed.dim() == 4 && packed.scalar_type() == at::kInt,
              "_weight_int4pack_mm: expected weights that _convert_weight_to_int4pack made, but got ", packed.sizes(),
              " in ", packed.scalar_type());
  const int64_t n = packed.size(0) * 8, k = x.size(1);
  TORCH_CHECK(packed.numel() * 8 == n * k, "_weight_int4pack_mm: weights of ",
              packed.numel() * 8 / std::max<int64_t>(n, 1), " columns do not go with x of ", k);
  TORCH_CHECK(group > 0 && k % group == 0, "_weight_int4pack_mm: groups of ", group, " do not divide ", k, " columns");
  TORCH_CHECK(scales.dim() == 3 && scales.size(0) == k / group && scales.size(1) == n && scales.size(2) == 2,
              "_weight_int4pack_mm: expected scales and zeros of [", k / group, ", ", n, ", 2], but got ",
              scales.sizes());
  const Tensor bytes = packed.contiguous().view({n, k / 8}).view(at::kByte);
  const Tensor q = at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, -1).view({n, k / group, group});
  const Tensor by_group = scales.to(at::kFloat).transpose(0, 1);  // [n, k / group, 2]
  const Tensor weight = (q.to(at::kFloat) - 8) * by_group.narrow(2, 0, 1) + by_group.narrow(2, 1, 1);
  return x.mm(weight.view({n, k}).to(x.scalar_type()).t());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_convert_weight_to_int4pack", own<&pack>("_convert_weight_to_int4pack"));
  m.impl("_weight_int4pack_mm", own<&product>("_weight_int4pack_mm"));
}

}  // namespace

}  // namespace causeway
