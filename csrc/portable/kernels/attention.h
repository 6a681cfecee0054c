// One call of attention, and what both of its forms share: parameters, and the places of heads in memory.
#pragma once

#include "portable/kernels/gemm.h"

namespace causeway::portable {

struct Attention {
  Tensor q, k, v, out, lse, mask;
  bool masked = false, causal = false;
  double scale = 0;
  Dtype type = kF32;

  int64_t batch() const { return q.shape[0]; }
  int64_t heads() const { return q.shape[1]; }
  int64_t rows() const { return q.shape[2]; }
  int64_t keys() const { return k.shape[2]; }
  int64_t depth() const { return q.shape[3]; }
  int64_t depth16() const { return (depth() + 15) / 16 * 16; }
  int64_t shared() const { return heads() / k.shape[1]; }
};

struct AttentionGradients {
  Tensor q, k, v, grad;  // of the inputs, and the result's
};

// The place of row i of a head in `tensor`, as NAME(b, h, i).
void attention_places(Source& s, const std::string& macro, const std::string& tensor);
void attention_places(Launch& l, const Tensor& t);
void attention_head(Source& s, const Attention& a, const Device& device);
void attention_sizes(Source& s, const Attention& a);
void attention_sizes(Launch& l, const Attention& a, int64_t units, int64_t slot);

// By groups of items that share memory; not taken where a device's groups have too little.
cw_status attention_by_teams(KernelCall& call, const Attention& a, bool* taken);
cw_status attention_backward_by_teams(KernelCall& call, const Attention& a, const AttentionGradients& to, bool* taken);

}  // namespace causeway::portable
