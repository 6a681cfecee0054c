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
};

// In float, double, or int64_t for integers; defined for those three.
template <class Compute>
void multiply(const Product& p);
void multiply_any(const Product& p);  // in the type that suits p.out

}  // namespace sim
