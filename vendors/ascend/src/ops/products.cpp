// Products of matrices and vectors. Transposed factors go as they are: aclnn takes strides. A weight that is kept in the
// chip's format (layout.hpp) goes in that.
#include "../call.hpp"

namespace ascend {

void add_products(Lines& lines) {
  const auto floats = whole(kFloats);
  using Product = With<1, 2, 0, Cube::product>;
  using Sum = With<1, 2, 3, 4, 5, 0, Cube::product>;
  lines.push_back(row<aten::mm_out, Product, With<1, Weight{2}, 0, Cube::product>>(floats, "Mm", "MatmulWeightNz"));
  lines.push_back(row<aten::bmm_out, Product>(floats, "BatchMatMul"));
  lines.push_back(
      row<aten::addmm_out, Sum, With<1, 2, Weight{3}, 4, 5, 0, Cube::product>>(floats, "Addmm", "AddmmWeightNz"));
  lines.push_back(row<aten::baddbmm_out, Sum>(floats, "Baddbmm"));
  lines.push_back(row<aten::addbmm_out, Sum>(floats, "Addbmm"));
  // Its alpha comes before its beta.
  lines.push_back(row<aten::addmv_out, With<1, 2, 3, 5, 4, 0, Cube::product>>(floats, "Addmv"));
  lines.push_back(row<aten::addr_out, With<1, 2, 3, 4, 5, 0>>(floats, "Addr"));
  lines.push_back(row<aten::dot_out, With<1, 2, 0>>(floats, "Dot"));
  lines.push_back(row<aten::linalg_cross_out, With<1, 2, 3, 0>>(floats, "LinalgCross"));
}

}  // namespace ascend
