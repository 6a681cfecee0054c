// Products of matrices and vectors. Transposed factors go as they are: aclnn takes strides.
#include "../call.hpp"

namespace ascend {

void add_products(Lines& lines) {
  const auto floats = whole(kFloats);
  lines.push_back(row<aten::mm_out, With<1, 2, 0, Cube::product>>(floats, "Mm"));
  lines.push_back(row<aten::bmm_out, With<1, 2, 0, Cube::product>>(floats, "BatchMatMul"));
  lines.push_back(row<aten::addmm_out, With<1, 2, 3, 4, 5, 0, Cube::product>>(floats, "Addmm"));
  lines.push_back(row<aten::baddbmm_out, With<1, 2, 3, 4, 5, 0, Cube::product>>(floats, "Baddbmm"));
  lines.push_back(row<aten::addbmm_out, With<1, 2, 3, 4, 5, 0, Cube::product>>(floats, "Addbmm"));
  // Its alpha comes before its beta.
  lines.push_back(row<aten::addmv_out, With<1, 2, 3, 5, 4, 0, Cube::product>>(floats, "Addmv"));
  lines.push_back(row<aten::addr_out, With<1, 2, 3, 4, 5, 0>>(floats, "Addr"));
  lines.push_back(row<aten::dot_out, With<1, 2, 0>>(floats, "Dot"));
  lines.push_back(row<aten::linalg_cross_out, With<1, 2, 3, 0>>(floats, "LinalgCross"));
}

}  // namespace ascend
