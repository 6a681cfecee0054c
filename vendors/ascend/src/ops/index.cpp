// Places: cat, gather, scatter, indices, masks, triangles, ranges.
#include "../call.hpp"

namespace ascend {

namespace {

bool from_right(Frame& f) {
  const bool right = f[4].v.i != 0;
  if (f[5].tag == CW_NONE) return right;
  return std::string_view(f[5].v.string, f[5].n) == "right";
}

// aclnn leaves the output as it is where there is nothing to put.
AclTensor* some_index(Frame& f) {
  const DLTensor* t = f[3].v.tensor;
  for (int32_t d = 0; d < t->ndim; ++d)
    if (t->shape[d] == 0) return f.decline(), nullptr;
  return f.tensor(f[3]);
}

}  // namespace

void add_index(Lines& lines) {
  const auto any = whole(kAny);
  const auto numbers = whole(kNumbers);

  lines.push_back(row<aten::cat_out, With<1, 2, 0>>(any, "Cat"));
  lines.push_back(row<aten::_stack_out, With<1, 2, 0>>(any, "Stack"));
  lines.push_back(row<aten::index_Tensor_out, With<1, 2, 0>>(any, "Index"));
  lines.push_back(row<aten::_index_put_impl_, With<0, 1, 2, 3, 4>>(any, "IndexPutImpl"));
  lines.push_back(row<aten::index_select_out, With<1, 2, 3, 0>>(any, "IndexSelect"));
  lines.push_back(row<aten::index_add_out, With<1, 2, &some_index, 4, 5, 0>>(numbers, "IndexAdd"));
  lines.push_back(row<aten::index_copy_out, With<1, 2, &some_index, 4, 0>>(numbers, "IndexCopy"));
  lines.push_back(row<aten::index_fill_int_Scalar_out, With<1, 2, 3, 4, 0>>(numbers, "IndexFill"));
  lines.push_back(row<aten::gather_out, With<1, 2, 3, 0>>(any, "Gather"));
  lines.push_back(row<aten::scatter_src_out, With<1, 2, 3, 4, Integer{0}, 0>>(any, "Scatter"));
  lines.push_back(row<aten::scatter_value_out, With<1, 2, 3, 4, Integer{0}, 0>>(any, "ScatterValue"));
  lines.push_back(row<aten::scatter_add_out, With<1, 2, 3, 4, 0>>(numbers, "ScatterAdd"));
  lines.push_back(row<aten::take_out, With<1, 2, 0>>(any, "Take"));
  lines.push_back(row<aten::put_, With<0, 1, 2, 3>>(numbers, "InplacePut"));
  lines.push_back(row<aten::masked_fill__Scalar, With<0, 1, 2>>(any, "InplaceMaskedFillScalar"));
  lines.push_back(row<aten::masked_fill__Tensor, With<0, 1, 2>>(any, "InplaceMaskedFillTensor"));
  lines.push_back(row<aten::masked_scatter_, With<0, 1, 2>>(any, "InplaceMaskedScatter"));
  lines.push_back(row<aten::flip_out, With<1, 2, 0>>(any, "Flip"));
  lines.push_back(row<aten::roll_out, With<1, 2, 3, 0>>(any, "Roll"));
  lines.push_back(row<aten::tril_out, With<1, 2, 0>>(any, "Tril"));
  lines.push_back(row<aten::triu_out, With<1, 2, 0>>(any, "Triu"));
  lines.push_back(row<aten::arange_start_out, With<1, 2, 3, 0>>(whole(kFloats | CW_INT32 | CW_INT64), "Arange"));
  lines.push_back(row<aten::linspace_out, With<1, 2, 3, 0>>(whole(kFloats), "Linspace"));
  lines.push_back(row<aten::eye_m_out, With<1, 2, 0>>(whole(kFloats | CW_INT32 | CW_INT64), "Eye"));
  lines.push_back(row<aten::searchsorted_Tensor_out, With<1, 2, 3, &from_right, 6, 0>>(numbers, "SearchSorted"));
  lines.push_back(row<aten::bucketize_Tensor_out, With<1, 2, 3, 4, 0>>(numbers, "Bucketize"));
  lines.push_back(row<aten::unfold_backward_out, With<1, 2, 3, 4, 5, 0>>(whole(kFloats), "UnfoldGrad"));
}

}  // namespace ascend
