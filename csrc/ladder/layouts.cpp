// Sparse and strided nested tensors. Their data are dense tensors, which live on the device like any other; their
// shape lives in the TensorImpl. On the host rung a CPU tensor of the same kind stands in, made of the stand-ins of
// the parts.
#include "ladder/layouts.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include <ATen/ops/_dimI_native.h>
#include <ATen/ops/_dimV_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_pin_memory_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/is_pinned_native.h>
#include <ATen/ops/is_same_size_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/native/DispatchStub.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "ladder/observe.h"

namespace causeway {

namespace {

using at::SparseCsrTensorImpl;
using at::SparseTensorImpl;
using at::native::NestedTensorImpl;
using c10::DispatchKey;
using c10::DispatchKeySet;

bool has(const c10::TensorImpl& t, DispatchKey functionality) { return t.key_set().has(functionality); }

// The kind's key on the parts' device.
DispatchKeySet key_on(DispatchKey cpu, DispatchKey device, const at::Tensor& part) {
  return DispatchKeySet(part.is_cpu() ? cpu : device);
}

template <typename Impl>
Impl* impl(const at::Tensor& t) {
  return static_cast<Impl*>(t.unsafeGetTensorImpl());
}

void fill(SparseTensorImpl* to, const SparseTensorImpl* like, const Parts& parts) {
  to->raw_resize_(like->sparse_dim(), like->dense_dim(), like->sizes());
  to->set_indices_and_values_unsafe(parts[0], parts[1]);
  to->set_coalesced(like->coalesced());
}

}  // namespace

bool has_parts(const c10::TensorImpl& t) {
  constexpr DispatchKeySet made({DispatchKey::Sparse, DispatchKey::SparseCsr, DispatchKey::NestedTensor});
  return !(t.key_set() & made).empty();
}

Parts parts_of(const at::Tensor& t) {
  const auto& base = *t.unsafeGetTensorImpl();
  if (has(base, DispatchKey::Sparse))
    return {impl<SparseTensorImpl>(t)->indices(), impl<SparseTensorImpl>(t)->values()};
  if (has(base, DispatchKey::SparseCsr)) {
    const auto* csr = impl<SparseCsrTensorImpl>(t);
    return {csr->compressed_indices(), csr->plain_indices(), csr->values()};
  }
  return {impl<NestedTensorImpl>(t)->get_unsafe_storage_as_tensor()};
}

at::Tensor assemble(const at::Tensor& like, const Parts& parts) {
  const auto& base = *like.unsafeGetTensorImpl();
  const c10::Device place = parts.back().device();
  if (has(base, DispatchKey::Sparse)) {
    const c10::DeviceGuard guard(place);  // where it is made is where it stays
    auto t = at::detail::make_tensor<SparseTensorImpl>(
        key_on(DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1, parts[1]), like.dtype());
    fill(impl<SparseTensorImpl>(t), impl<SparseTensorImpl>(like), parts);
    return t;
  }
  if (has(base, DispatchKey::SparseCsr)) {
    auto t = at::detail::make_tensor<SparseCsrTensorImpl>(
        key_on(DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1, parts[2]), place, like.layout(),
        like.dtype());
    impl<SparseCsrTensorImpl>(t)->set_member_tensors(parts[0], parts[1], parts[2], like.sizes());
    return t;
  }
  const auto* nested = impl<NestedTensorImpl>(like);
  // Shapes always live on the host, in memory of their own.
  return at::detail::make_tensor<NestedTensorImpl>(parts[0], nested->get_nested_sizes().clone(),
                                                   nested->get_nested_strides().clone(),
                                                   nested->get_storage_offsets().clone());
}

void replace_parts(const at::Tensor& t, const at::Tensor& like, const Parts& parts) {
  const auto& base = *t.unsafeGetTensorImpl();
  if (has(base, DispatchKey::Sparse)) {
    fill(impl<SparseTensorImpl>(t), impl<SparseTensorImpl>(like), parts);
  } else if (has(base, DispatchKey::SparseCsr)) {
    impl<SparseCsrTensorImpl>(t)->set_member_tensors(parts[0], parts[1], parts[2], like.sizes());
  } else {
    const auto* ours = impl<NestedTensorImpl>(t);
    const auto* theirs = impl<NestedTensorImpl>(like);
    TORCH_CHECK(ours->get_nested_sizes().equal(theirs->get_nested_sizes()) &&
                    ours->get_nested_strides().equal(theirs->get_nested_strides()),
                "A nested tensor of ", t.device(), " cannot change its shape in place; use the operator's result");
  }
}

// What only reads a tensor's own fields is torch's on every device.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_indices", own<&at::native::_indices_sparse>("_indices"));
  m.impl("_values", own<&at::native::_values_sparse>("_values"));
  m.impl("indices", own<&at::native::indices_sparse>("indices"));
  m.impl("values", own<&at::native::values_sparse>("values"));
  m.impl("sparse_dim", own<&at::native::sparse_dim_sparse>("sparse_dim"));
  m.impl("dense_dim", own<&at::native::dense_dim_sparse>("dense_dim"));
  m.impl("_dimI", own<&at::native::sparse_dim_sparse>("_dimI"));
  m.impl("_dimV", own<&at::native::dense_dim_sparse>("_dimV"));
  m.impl("_nnz", own<&at::native::_nnz_sparse>("_nnz"));
  m.impl("is_coalesced", own<&at::native::is_coalesced_sparse>("is_coalesced"));
  m.impl("_pin_memory", own<&at::native::_pin_memory_sparse_coo>("_pin_memory"));
  m.impl("is_pinned", own<&at::native::is_pinned_sparse_coo>("is_pinned"));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("crow_indices", own<&at::native::crow_indices_sparse_csr>("crow_indices"));
  m.impl("col_indices", own<&at::native::col_indices_sparse_csr>("col_indices"));
  m.impl("ccol_indices", own<&at::native::ccol_indices_sparse_csr>("ccol_indices"));
  m.impl("row_indices", own<&at::native::row_indices_sparse_csr>("row_indices"));
  m.impl("values", own<&at::native::values_sparse_csr>("values"));
  m.impl("sparse_dim", own<&at::native::sparse_dim_sparse_csr>("sparse_dim"));
  m.impl("dense_dim", own<&at::native::dense_dim_sparse_csr>("dense_dim"));
  m.impl("_nnz", own<&at::native::_nnz_sparse_csr>("_nnz"));
  m.impl("_pin_memory", own<&at::native::_pin_memory_sparse_compressed>("_pin_memory"));
  m.impl("is_pinned", own<&at::native::is_pinned_sparse_compressed>("is_pinned"));
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_nested_tensor_size", own<&at::native::_nested_tensor_size>("_nested_tensor_size"));
  m.impl("_nested_tensor_strides", own<&at::native::_nested_tensor_strides>("_nested_tensor_strides"));
  m.impl("_nested_tensor_storage_offsets",
         own<&at::native::_nested_tensor_storage_offsets>("_nested_tensor_storage_offsets"));
  m.impl("_to_copy", own<&at::native::_to_copy_nested>("_to_copy"));
  m.impl("is_same_size", own<&at::native::nested_is_same_size>("is_same_size"));
  m.impl("_pin_memory", own<&at::native::_pin_memory_nested>("_pin_memory"));
}

// Each element's place in the dense tensor, row-major: [sparse_dim, nnz] -> [nnz].
at::Tensor flatten_indices(const at::Tensor& indices, c10::IntArrayRef size) {
  std::vector<int64_t> strides(size.size(), 1);
  for (size_t d = size.size(); d-- > 1;) strides[d - 1] = strides[d] * size[d];
  at::Tensor flat = at::zeros({indices.size(1)}, indices.options());
  for (size_t d = 0; d < size.size(); ++d) flat.add_(indices.select(0, static_cast<int64_t>(d)), strides[d]);
  return flat;
}

}  // namespace causeway

namespace at::native {
// Declared in a header that the wheel does not carry.
DECLARE_DISPATCH(at::Tensor (*)(const at::Tensor&, c10::IntArrayRef), flatten_indices_stub)
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &causeway::flatten_indices)
}  // namespace at::native
