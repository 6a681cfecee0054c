// Random numbers: the library's own generator, by the core's seed and offset. The same seed gives the same numbers on the same
// chip; they are not the CPU's.
#include "../call.hpp"

namespace diopi {

void add_random(Lines& lines) {
  const auto reals = whole(kReals);
  const auto numbers = whole(kNumbers);
  const auto any = whole(kAny);
  lines.push_back(row<aten::uniform_, With<0, 1, 2, 3>>(reals, F(diopiUniformInp)));
  lines.push_back(row<aten::normal_, With<0, 1, 2, 3>>(reals, F(diopiNormalInp)));
  lines.push_back(row<aten::random__from, With<0, 1, At{2}, 3>>(numbers, F(diopiRandomInp)));
  lines.push_back(row<aten::random__to, With<0, Integer{0}, At{1}, 2>>(numbers, F(diopiRandomInp)));
  lines.push_back(row<aten::bernoulli__float, With<0, 1, 2>>(any, F(diopiBernoulliScalar)));
  lines.push_back(row<aten::bernoulli_out, With<0, 1, 2>>(reals, F(diopiBernoulli)));
  lines.push_back(row<aten::randperm_generator_out, With<0, 1, 2>>(whole(kInts), F(diopiRandperm)));
  lines.push_back(row<aten::multinomial_out, With<0, 1, 2, 3, 4>>(whole(kReals | CW_INT64), F(diopiMultinomial)));
}

}  // namespace diopi
