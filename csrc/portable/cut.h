// How work is cut: what tuning chooses among. Every cut of a device gives the same bits: each element of a product is one
// sum over k in order, and in which order memory is read changes no sum, so what is chosen never shows in a number.
#pragma once

#include <string>
#include <vector>

#include "portable/device.h"
#include "portable/dtype.h"

namespace causeway::portable {

struct ProductSize {
  int64_t batch, m, n, k;

  double multiplications() const {
    return static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  bool operator==(const ProductSize& o) const { return batch == o.batch && m == o.m && n == o.n && k == o.k; }
};

// On CPUs an item takes panels of `columns` columns, `depth` of k at a time, with tiles of `rows` rows in registers.
// Elsewhere a group of `lanes` x `lanes` items computes a square of `rows` x `columns` from stretches of `depth` of
// both matrices in its own memory; or, where a group has too little of either, an item one element.
// Memory that no cache holds, a CPU reads page after page, in order, or from several pages interleaved.
struct Cut {
  enum Kind : uint8_t { panels, squares, elements, sums, by_turns, in_order };
  Kind kind = elements;
  uint8_t lanes = 1;
  uint16_t rows = 1, columns = 1, depth = 1;
  // Not a CPU's: k is cut into parts whose sums are kept, and a function of kind `sums` adds them up in order. The
  // number follows from sizes and device alone, as another order of a sum would be other bits.
  uint16_t parts = 1;

  uint64_t id() const;  // part of a function's key
  std::string text() const;  // "8x16 k1024": rows, columns, depth, and lanes where they are not 16
  bool operator==(const Cut& o) const { return id() == o.id(); }
};

// Those worth trying, where the device has the memory for them. Never empty; the first is for large products.
std::vector<Cut> cuts_for(const Device& device, Dtype type);
// The orders in which a CPU may read.
std::vector<Cut> orders();
// The one to take where nothing was measured: its place in `cuts`.
size_t usual_cut(const Device& device, const std::vector<Cut>& cuts, const ProductSize& size);
// Into how many parts k is cut.
int parts_of(const Device& device, const ProductSize& size);
// The function that adds up the parts of `cut`.
Cut sums_of(const Cut& cut);

}  // namespace causeway::portable
