// What the kernels of norms are written with: parameters by name, and sums, which are in norms.cl.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "portable/kernels/gemm.h"
#include "portable/rows.h"

namespace causeway::portable {

// What is in front of every kernel of a norm: T computes, A adds up.
struct Types {
  Dtype compute, wide;
};
Types types_of(const KernelCall& call, Dtype dtype);
void define(Source& s, const Types& types, const Teams& teams = {});

// A parameter that is read as NAME(i) of type T.
void reads(Source& s, const char* macro, const char* name, const Tensor& t);
// One that is written as NAME(i, v), and may be read as NAME_IN(i).
void writes(Source& s, const char* macro, const char* name, const Tensor& t);
void add_wide(Launch& l, const Types& types, double v);

// `body` for each row of a team, with the memory in which SUM of norms.cl adds up.
std::string team_rows(const char* body, const std::string& rows = "rows");

// Floats, and of those what the device computes in.
bool takes(const KernelCall& call, std::initializer_list<const Tensor*> tensors);
uint64_t bits_of(std::initializer_list<const Tensor*> tensors, std::initializer_list<bool> flags);
Tensor flat(const Tensor& t);

// What the gradients of all norms have: those to be made, and what they are made of.
struct NormBackward {
  Tensor to_in, to_weight, to_bias, grad, in, mean, rstd, weight;
  bool has_in = false, has_weight = false, has_bias = false, weighted = false;
};

// What each file of norms offers; norm_kernels() has all of them.
Kernels row_norm_kernels();
Kernels batch_norm_kernels();

}  // namespace causeway::portable
