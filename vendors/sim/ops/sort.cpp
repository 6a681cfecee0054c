// Sorting along a dimension, stable: of equal keys the first stays first. NaN is larger than any number.
#include <algorithm>

#include "ops/dims.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

template <class C>
bool before(C a, C b, bool descending) {
  if (descending) return (a != a && b == b) || a > b;
  return (b != b && a == a) || a < b;
}

template <class C>
cw_status sort_in(Call& call, const Lines<3>& lines, bool descending) {
  return call.launch([lines, descending] {
    const int64_t n = lines.length;
    std::vector<C> keys(static_cast<size_t>(n));
    std::vector<int64_t> order(static_cast<size_t>(n));
    lines.each([&](char** line) {
      load(keys.data(), line[2], lines.stride[2], n, lines.dtype[2]);
      for (int64_t i = 0; i < n; ++i) order[size_t(i)] = i;
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return before(keys[size_t(a)], keys[size_t(b)], descending); });
      for (int64_t i = 0; i < n; ++i) {
        store_one(line[0] + i * lines.stride[0], keys[size_t(order[size_t(i)])], lines.dtype[0]);
      }
      store(line[1], lines.stride[1], order.data(), n, kInt64);
    });
    return CW_OK;
  });
}

// values, indices, self, stable, dim, descending
cw_status sort(Call& call) {
  Tensor values, indices, in;
  TRY(call.tensors_from(0, &values, &indices, &in));
  if (values.dtype != in.dtype || indices.dtype != kInt64) return call.declined("only with dtypes of its own");
  Lines<3> lines;
  if (!lines.make({&values, &indices, &in}, call.integer(4, -1))) return fail(CW_INVALID, "aten::sort: shapes");
  const bool descending = call.integer(5) != 0;
  return is_floating(in.dtype) ? sort_in<double>(call, lines, descending) : sort_in<int64_t>(call, lines, descending);
}

}  // namespace

const OpList& sort_ops() {
  static const OpList list = {{"aten::sort.values_stable", sort, real, CW_NEEDS_ELEMENTS, 2}};
  return list;
}

}  // namespace sim
