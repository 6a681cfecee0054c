// Putting elements where an index says: what scatter and its like share with the gradient of embedding.
#pragma once

#include "portable/call.h"

namespace causeway::portable {

enum class Put : uint8_t { Set, Add, Multiply, Mean, Max, Min };

struct Placing {
  Put op = Put::Set;
  bool include_self = true;  // what is in the result counts too
  bool wraps = false;        // negative indices count from the end
  bool scaled = false;
  Number alpha;
  int64_t skip = -1;  // this index is left out
};

// Whether `place` takes these: ask before the result is written.
bool scatter_takes(const KernelCall& call, const Tensor& out, const Tensor& index);

// Each element of `source` (or `number`, where it is NULL) at the coordinates of the index, with the index's own value
// in dimension `dim`, goes to `out`. Out of range it goes nowhere.
cw_status place(KernelCall& call, const Tensor& out, int dim, const Tensor& index, const Tensor* source,
                const Number& number, const Placing& how);

}  // namespace causeway::portable
