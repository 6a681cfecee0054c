// Places: cat, gather, scatter, indices, triangles, ranges.
#include "../call.hpp"

namespace diopi {

namespace {

const char* put(Frame&) { return ""; }
const char* add(Frame&) { return "add"; }

// Where none is given torch rolls what was made flat, and flips nothing: no dimensions are none here, and not all.
template <int place>
diopiSize_t given_dims(Frame& f) {
  if (f[place].n == 0) f.decline();
  return f.dims(f[place]);
}

}  // namespace

void add_index(Lines& lines) {
  const auto any = whole(kAny);
  const auto numbers = whole(kNumbers);

  lines.push_back(row<aten::cat_out, With<0, Items{1}, Dim{2}>>(any, F(diopiCat)));
  lines.push_back(row<aten::_stack_out, With<0, Items{1}, NewDim{2}>>(any, F(diopiStack)));
  lines.push_back(row<aten::index_Tensor_out, With<Made{0}, 1, Items{2}>>(any, F(diopiIndex)));
  lines.push_back(row<aten::_index_put_impl_, With<0, 2, Items{1}, 3>>(any, F(diopiIndexPutInp)));
  lines.push_back(row<aten::index_select_out, With<0, 1, Dim{2}, 3>>(any, F(diopiIndexSelect)));
  lines.push_back(row<aten::index_fill_int_Scalar_out, With<0, 1, Dim{2}, 3, 4>>(any, F(diopiIndexFillScalar)));
  lines.push_back(row<aten::gather_out, With<0, 1, Dim{2}, 3>>(any, F(diopiGather)));
  lines.push_back(row<aten::scatter_src_out, With<0, 1, Dim{2}, 4, 3, &put>>(any, F(diopiScatter)));
  lines.push_back(row<aten::scatter_value_out, With<0, 1, Dim{2}, 4, 3, &put>>(any, F(diopiScatterScalar)));
  lines.push_back(row<aten::scatter_add_out, With<0, 1, Dim{2}, 4, 3, &add>>(numbers, F(diopiScatter)));
  lines.push_back(row<aten::scatter_reduce_out, With<0, 1, Dim{2}, 4, 3, 5>>(numbers, F(diopiScatter)));
  lines.push_back(row<aten::scatter_value_reduce_out, With<0, 1, Dim{2}, 4, 3, 5>>(numbers, F(diopiScatterScalar)));
  lines.push_back(row<aten::nonzero_out, With<Made{0}, 1>>(any.takes(CW_NEEDS_ELEMENTS), F(diopiNonzero)));
  lines.push_back(row<aten::tril_out, With<0, 1, 2>>(any, F(diopiTril)));
  lines.push_back(row<aten::triu_out, With<0, 1, 2>>(any, F(diopiTriu)));
  lines.push_back(row<aten::flip_out, With<0, 1, &given_dims<2>>>(any, F(diopiFlip)));
  lines.push_back(row<aten::roll_out, With<0, 1, 2, &given_dims<3>>>(any, F(diopiRoll)));
  lines.push_back(row<aten::arange_start_out, With<0, 1, 2, 3>>(numbers, F(diopiArange)));
  lines.push_back(row<aten::linspace_out, With<0, 1, 2, 3>>(whole(kReals), F(diopiLinspace)));
}

}  // namespace diopi
