// The product of matrices that matmul and the convolutions share: C[m, n] = sum over k of A[m, k] * B[k, n], where B
// may be anything that an expression can read.
#pragma once

#include "call.h"

namespace causeway::portable {

struct ProductSize {
  int64_t batch, m, n, k;
};

// How the work is cut: on CPUs into panels of 16 columns; else a group of 16 x 16 items computes a square of the result
// from stretches of both matrices in its own memory, or, where a group has too little of either, an item one element.
enum class Cut : uint8_t { panels, elements, squares_of_32, squares_of_64 };
// Part of the function's key.
Cut cut_of(const Device& device, const ProductSize& size, Dtype type);

// The source of a product. A is read at `a_base + m * am + k * ak`; all of the following are text of the dialect.
struct Product {
  Cut cut;
  Dtype a, type;           // of A's elements; what is computed in: f32 or f64
  bool a_dense = false;    // ak is 1
  std::string begin;       // declarations for this `batch`: sets a_base
  std::string panel;       // for the columns n0 .. n0 + wide - 1 of it (CPUs)
  std::string pack;        // fills pack[(k - k0) * 16 + l] for k0 <= k < k1 and l < 16 (CPUs); empty: with `b`
  std::string b;           // B[k, n]
  std::string store;       // puts the value v at m, n
};

constexpr int64_t kProductDepth = 1024;  // of k that is packed at once: 64 KiB of float32

// Adds the parameters that the product needs after the caller's, and gives the kernel's text.
std::string product_text(Source& source, const Product& product, const Device& device);

// Adds their values and launches; the first parameter of the function must be the workspace, which `work` gets first.
cw_status product_scratch(Call& call, const ProductSize& size, Dtype type, void** out);
cw_status product_launch(Call& call, Launch& launch, cw_function function, const ProductSize& size, Dtype type,
                         int64_t am, int64_t ak);

// The sum of `in` over `dims` into `out`, on the call's stream.
cw_status sum_into(Call& call, const Tensor& out, const Tensor& in, const std::vector<int64_t>& dims);

}  // namespace causeway::portable
