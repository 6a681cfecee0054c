// Reductions: what gloo has, what is done in its stead, and the reduction of gathered parts on the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace causeway {

// How a reduction of a dtype is done.
struct Reduction {
  c10d::ReduceOp::RedOpType op;  // of the tensors seen as `view`
  c10::ScalarType view;          // what the bytes are read as
  bool direct;                   // gloo and vendors have it; else parts are gathered and reduced here
  bool average = false;          // a sum, divided by the number of ranks afterwards
  double factor = 1;             // each rank's part is multiplied by this first
};

// Raises for what has no meaning, such as BXOR of float32.
Reduction reduction_of(const c10d::ReduceOp& op, c10::ScalarType dtype);

// `parts` [ranks, n] reduced to `out` [n], in the order of the ranks. 16-bit and narrower floats are added up wider.
void reduce_parts(const at::Tensor& parts, at::Tensor out, const Reduction& reduction);
// What comes before and after a direct reduction, on each rank.
void before(at::Tensor& t, const Reduction& reduction);
void after(at::Tensor& t, const Reduction& reduction, int ranks);

std::string reduce_name(c10d::ReduceOp::RedOpType op);  // "SUM"

}  // namespace causeway
