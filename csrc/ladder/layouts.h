// Tensors that are made of tensors: sparse (COO and compressed) and strided nested ones. See layouts.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/SmallVector.h>

namespace causeway {

using Parts = c10::SmallVector<at::Tensor, 3>;

// The kinds of tensors that are not plain: the functionality keys, whatever the device.
inline constexpr c10::DispatchKeySet kLayouts({c10::DispatchKey::Quantized, c10::DispatchKey::Sparse,
                                               c10::DispatchKey::SparseCsr, c10::DispatchKey::NestedTensor});

// Whether a tensor is made of others: sparse or nested.
bool has_parts(const c10::TensorImpl& t);

// The dense tensors that hold its data: indices and values; compressed indices, plain indices and values; the buffer.
Parts parts_of(const at::Tensor& t);

// A tensor as `like` (shape, layout, coalesced or not) whose data are these parts, on their device.
at::Tensor assemble(const at::Tensor& like, const Parts& parts);

// Give `t` the shape of `like` and these parts.
void replace_parts(const at::Tensor& t, const at::Tensor& like, const Parts& parts);

// Registers operators of these kinds: those that torch would take from a composite made for dense tensors.
void register_layouts();

}  // namespace causeway
