// Scans, sorts and lists of places, as the kernels that build on them share them.
#pragma once

#include "portable/program.h"

namespace causeway::portable {

// The same memory with dimension `dim` last.
Tensor to_last(const Tensor& t, int dim);

// Sums along the only dimension of `in`, into dense int64.
cw_status running_sum(KernelCall& call, const Tensor& in, void* out);

// Rows of a tensor in order, stable, NaN last (first where it is from the largest down): dense keys of the tensor's
// dtype and their int64 places in the row, the sorted dimension last, in workspace.
struct Sorted {
  Tensor keys, places;
};
cw_status sort_rows(KernelCall& call, const Tensor& in, int dim, bool descending, Sorted* out);

// The row-major places of what is not zero in `in`, expanded to `shape`: int64 in workspace. The host waits for their
// number.
cw_status places_of(KernelCall& call, const Tensor& in, const std::vector<int64_t>& shape, void** places,
                    int64_t* count);

// Result `i` of a call once it has its shape, which depends on data.
cw_status resized(KernelCall& call, int i, const std::vector<int64_t>& shape, Tensor* out);

// Text that adds to `name` the offset of row-major place `of`, by parameters that it adds to the program.
std::string offset_text(Program& p, const std::string& name, const std::string& of, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& strides);

// Strides of `t` in a shape that it broadcasts to; false where it does not.
bool expanded(const Tensor& t, const std::vector<int64_t>& shape, std::vector<int64_t>* strides);

}  // namespace causeway::portable
