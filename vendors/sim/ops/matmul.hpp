#pragma once

#include "ops/call.hpp"

namespace sim {

// A matrix somewhere in memory, strides in bytes; stride 0 broadcasts.
struct Matrix {
  char* data = nullptr;
  Dtype dtype = kOther;
  int64_t row = 0, column = 0;
};

// out (m x n) = alpha * a (m x k) @ b (k x n) + beta * add. beta 0 does not read `add`, whatever it holds.
struct Product {
  Matrix out, a, b, add;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1, beta = 0;
  const char* panels = nullptr;  // what pack_panels made of b, in the place of its data
};

// In float, double, or int64_t for integers; defined for those three.
template <class Compute>
void multiply(const Product& p);
void multiply_any(const Product& p);  // in the type that suits p.out

// A right factor (k x n) as the product reads it: panels of its columns, block by block, in the type to compute in. The
// product then need not convert and rearrange it anew for each 64 rows of the left factor.
uint64_t panels_bytes(Dtype dtype, int64_t k, int64_t n);  // 0: of this dtype none are made
void pack_panels(const Matrix& b, int64_t k, int64_t n, char* panels);
void unpack_panels(const char* panels, int64_t k, int64_t n, const Matrix& b);

}  // namespace sim
