// Sums, means, extremes and their places, scans, orders, softmax, products of matrices.
#include "../call.hpp"

namespace diopi {

void add_reductions(Lines& lines) {
  const auto reals = whole(kReals);
  const auto numbers = whole(kNumbers);
  const auto any = whole(kAny);
  // Places are int64, and so kInts has it.
  const auto ordered = whole(kNumbers);

  // DIOPI's have no dtype of their own: the input is cast to the output's first.
  lines.push_back(row<aten::sum_IntList_out, With<0, Like{1}, Dims{2}>>(any, F(diopiSum)));
  lines.push_back(row<aten::mean_out, With<0, Like{1}, Dims{2}>>(reals, F(diopiMean)));
  lines.push_back(row<aten::prod_out, With<0, Like{1}, None::dim>>(any, F(diopiProd)));
  lines.push_back(row<aten::prod_int_out, With<0, Like{1}, AtDim{2}>>(any, F(diopiProd)));
  lines.push_back(row<aten::cumsum_out, With<0, Like{1}, Dim{2}>>(any, F(diopiCumsum)));
  lines.push_back(row<aten::std_correction_out, With<0, 1, Dims{2}, 3>>(reals, F(diopiStd)));
  lines.push_back(row<aten::linalg_vector_norm_out, With<0, Like{1}, 2, Dims{3}, 4>, With<0, Like{1}, 2, Dims{3}>>(
      reals, F(diopiLinalgVecNorm), F(diopiNorm)));
  lines.push_back(row<aten::amax_out, With<0, 1, Dims{2}, 3>>(numbers, F(diopiAmax)));
  lines.push_back(row<aten::max_unary_out, With<0, 1>>(numbers, F(diopiMaxAll)));
  lines.push_back(row<aten::min_unary_out, With<0, 1>>(numbers, F(diopiMinAll)));
  lines.push_back(row<aten::max_dim_max, With<0, 1, 2, Dim{3}>>(ordered, F(diopiMax)));
  lines.push_back(row<aten::min_dim_min, With<0, 1, 2, Dim{3}>>(ordered, F(diopiMin)));
  lines.push_back(row<aten::argmax_out, With<0, 1, AtDim{2}, 3>>(ordered, F(diopiArgmax)));
  lines.push_back(row<aten::argmin_out, With<0, 1, AtDim{2}, 3>>(ordered, F(diopiArgmin)));
  lines.push_back(row<aten::any_out, With<0, 1, AtDim{2}>>(any, F(diopiAny)));
  lines.push_back(row<aten::any_all_out, With<0, 1, None::dim>>(any, F(diopiAny)));
  lines.push_back(row<aten::all_out, With<0, 1, AtDim{2}>>(any, F(diopiAll)));
  lines.push_back(row<aten::all_all_out, With<0, 1, None::dim>>(any, F(diopiAll)));
  lines.push_back(row<aten::topk_values, With<0, 1, 2, 3, Dim{4}, 5, 6>>(ordered, F(diopiTopk)));
  lines.push_back(row<aten::sort_values_stable, With<0, 1, 2, Dim{4}, 5, 3>>(ordered, F(diopiSort)));

  lines.push_back(row<aten::_softmax_out, With<0, 1, Dim{2}>>(reals, F(diopiSoftmax)));
  lines.push_back(row<aten::_log_softmax_out, With<0, 1, Dim{2}>>(reals, F(diopiLogSoftmax)));
  lines.push_back(row<aten::_softmax_backward_data_out, With<0, 1, 2, Dim{3}>>(reals, F(diopiSoftmaxBackward)));
  lines.push_back(row<aten::_log_softmax_backward_data_out, With<0, 1, 2, Dim{3}>>(reals, F(diopiLogSoftmaxBackward)));

  lines.push_back(row<aten::mm_out, With<0, 1, 2>>(reals, F(diopiMm)));
  lines.push_back(row<aten::bmm_out, With<0, 1, 2>>(reals, F(diopiBmm)));
  lines.push_back(row<aten::dot_out, With<0, 1, 2>>(reals, F(diopiMatmul)));
  lines.push_back(row<aten::addmm_out, With<0, 1, 2, 3, 4, 5>>(reals, F(diopiAddmm)));
  lines.push_back(row<aten::baddbmm_out, Inplace<0, 2, 3, Real{4}, Real{5}>, With<0, 1, 2, 3, Real{4}, Real{5}>>(
      reals, F(diopiBaddbmmInp), F(diopiBaddbmm)));
}

}  // namespace diopi
