// Sums, means, extremes and their places, scans, orders, softmax.
#include "../call.hpp"

namespace ascend {

namespace {

constexpr cw_dtypes kOrdered = kFloats | kInts;

bool is_stable(Frame& f) { return f[3].tag != CW_NONE && f[3].v.i != 0; }

}  // namespace

void add_reductions(Lines& lines) {
  const auto floats = whole(kFloats);
  const auto numbers = whole(kNumbers);
  const auto ordered = whole(kOrdered | CW_INT64);
  const auto truth = whole(kAny);

  lines.push_back(row<aten::sum_IntList_out, With<1, Dims{2}, 3, Type{0}, 0>>(whole(kAny), "ReduceSum"));
  lines.push_back(row<aten::nansum_out, With<1, Dims{2}, 3, Type{0}, 0>>(floats, "ReduceNansum"));
  lines.push_back(row<aten::mean_out, With<1, Dims{2}, 3, Type{0}, 0>>(floats, "Mean"));
  lines.push_back(row<aten::prod_out, With<1, Type{0}, 0>>(numbers, "Prod"));
  lines.push_back(row<aten::prod_int_out, With<1, 2, 3, Type{0}, 0>>(numbers, "ProdDim"));
  lines.push_back(row<aten::amax_out, With<1, Dims{2}, 3, 0>>(numbers, "Amax"));
  lines.push_back(row<aten::amin_out, With<1, Dims{2}, 3, 0>>(numbers, "Amin"));
  lines.push_back(row<aten::aminmax_out, With<2, Single{3}, 4, 0, 1>>(ordered, "AminmaxDim"));
  lines.push_back(row<aten::max_unary_out, With<1, 0>>(numbers, "Max"));
  lines.push_back(row<aten::min_unary_out, With<1, 0>>(numbers, "Min"));
  lines.push_back(row<aten::max_dim_max, With<2, 3, 4, 0, 1>>(ordered, "MaxDim"));
  lines.push_back(row<aten::min_dim_min, With<2, 3, 4, 0, 1>>(ordered, "MinDim"));
  lines.push_back(row<aten::argmax_out, With<1, Single{2}, 3, 0>>(ordered, "ArgMax"));
  lines.push_back(row<aten::argmin_out, With<1, Single{2}, 3, 0>>(ordered, "ArgMin"));
  lines.push_back(row<aten::any_out, With<1, Dim{2}, 3, 0>>(truth, "Any"));
  lines.push_back(row<aten::any_all_out, With<1, Everything{1}, Flag::no, 0>>(truth, "Any"));
  lines.push_back(row<aten::any_dims_out, With<1, Dims{2}, 3, 0>>(truth, "Any"));
  lines.push_back(row<aten::all_out, With<1, Dim{2}, 3, 0>>(truth, "All"));
  lines.push_back(row<aten::all_all_out, With<1, Everything{1}, Flag::no, 0>>(truth, "All"));
  lines.push_back(row<aten::all_dims_out, With<1, Dims{2}, 3, 0>>(truth, "All"));
  lines.push_back(row<aten::std_correction_out, With<1, Dims{2}, Correction{3}, 4, 0>>(floats, "Std"));
  lines.push_back(row<aten::var_correction_out, With<1, Dims{2}, Correction{3}, 4, 0>>(floats, "VarCorrection"));
  lines.push_back(row<aten::var_mean_correction_out, With<2, Dims{3}, Correction{4}, 5, 0, 1>>(floats, "VarMean"));
  lines.push_back(
      row<aten::std_mean_correction_out, With<2, Dims{3}, Correction{4}, 5, 0, 1>>(floats, "StdMeanCorrection"));
  lines.push_back(row<aten::linalg_vector_norm_out, With<1, 2, Dims{3}, 4, Type{0}, 0>>(floats, "LinalgVectorNorm"));
  lines.push_back(row<aten::cumsum_out, With<1, 2, Type{0}, 0>>(numbers, "Cumsum"));
  lines.push_back(row<aten::cumprod_out, With<1, Number{2}, Type{0}, 0>>(numbers, "Cumprod"));
  lines.push_back(row<aten::topk_values, With<2, 3, 4, 5, 6, 0, 1>>(ordered, "Topk"));
  lines.push_back(row<aten::sort_values_stable, With<2, &is_stable, 4, 5, 0, 1>>(ordered, "Sort"));
  lines.push_back(row<aten::median_dim_values, With<2, 3, 4, 0, 1>>(ordered, "MedianDim"));
  lines.push_back(row<aten::nanmedian_dim_values, With<2, 3, 4, 0, 1>>(ordered, "NanMedianDim"));
  lines.push_back(row<aten::kthvalue_values, With<2, 3, 4, 5, 0, 1>>(ordered, "Kthvalue"));
  lines.push_back(row<aten::trace_out, With<1, 0>>(floats, "Trace"));

  lines.push_back(row<aten::_softmax_out, With<1, 2, 0>>(floats, "Softmax"));
  lines.push_back(row<aten::_log_softmax_out, With<1, 2, 0>>(floats, "LogSoftmax"));
  lines.push_back(row<aten::_softmax_backward_data_out, With<1, 2, 3, 0>>(floats, "SoftmaxBackward"));
  lines.push_back(row<aten::_log_softmax_backward_data_out, With<1, 2, 3, 0>>(floats, "LogSoftmaxBackward"));
}

}  // namespace ascend
