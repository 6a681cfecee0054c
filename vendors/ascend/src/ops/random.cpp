// Random numbers: the chip's own generator, by the core's seed and offset. The same seed gives the same numbers on the
// same chip; they are not the CPU's.
#include "../call.hpp"

namespace ascend {

void add_random(Lines& lines) {
  const auto floats = whole(kFloats);
  const auto numbers = whole(kNumbers | CW_BOOL);
  lines.push_back(row<aten::uniform_, With<0, 1, 2, Seed{3}>>(floats, "InplaceUniform"));
  lines.push_back(row<aten::normal_, With<0, Float{1}, Float{2}, Seed{3}>>(floats, "InplaceNormal"));
  lines.push_back(row<aten::normal_Tensor_Tensor_out, With<1, 2, Seed{3}, 0>>(floats, "NormalTensorTensor"));
  lines.push_back(row<aten::normal_Tensor_float_out, With<1, Float{2}, Seed{3}, 0>>(floats, "NormalTensorFloat"));
  lines.push_back(row<aten::normal_float_Tensor_out, With<Float{1}, 2, Seed{3}, 0>>(floats, "NormalFloatTensor"));
  lines.push_back(row<aten::bernoulli__float, With<0, Number{1}, Seed{2}>>(numbers, "InplaceBernoulli"));
  lines.push_back(row<aten::bernoulli__Tensor, With<0, 1, Seed{2}>>(numbers, "InplaceBernoulliTensor"));
  lines.push_back(row<aten::random__from, With<0, 1, Single{2}, Seed{3}>>(numbers, "InplaceRandom"));
  lines.push_back(row<aten::random__to, With<0, Integer{0}, 1, Seed{2}>>(numbers, "InplaceRandom"));
  lines.push_back(row<aten::randperm_generator_out, With<1, Seed{2}, 0>>(numbers, "Randperm"));
  lines.push_back(row<aten::multinomial_out, With<1, 2, 3, Seed{4}, 0>>(whole(kFloats | CW_INT64), "Multinomial"));
}

}  // namespace ascend
