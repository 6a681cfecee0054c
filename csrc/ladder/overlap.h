// Whether elements of tensors lie on the same bytes, found where torch's own test says "too hard".
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

namespace causeway {

// Whether two elements of `t` may be one. Never false for a tensor that has such; true for few that have none.
bool overlaps_itself(const at::Tensor& t);

// How two tensors of one storage overlap: No, Full (each element in its own place) or Partial. Never TooHard: what
// cannot be told within a bounded search is Partial.
at::MemOverlapStatus overlap_of(const at::Tensor& a, const at::Tensor& b);

}  // namespace causeway
