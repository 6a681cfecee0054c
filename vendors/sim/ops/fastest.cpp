// What `ops=fastest` offers: the operators that are no slower here than torch's CPU kernel on the same bytes.
//
// The CPU kernels are vectorised for the machine they run on and use two threads and MKL; these are portable
// code on one thread. So an operator belongs here when it is bound by memory or by the cost of the call, and
// only after both sides were measured in one run, from tiny to large tensors.
#include <cstring>

#include "ops/registry.hpp"

namespace sim {

bool is_fast(const char* name) {
  static const char* const fast[] = {
      "aten::zero_",         // memset
      "aten::fill_.Scalar",  // one store per element; the CPU kernel goes through a TensorIterator
  };
  for (const char* entry : fast) {
    if (strcmp(entry, name) == 0) return true;
  }
  return false;
}

}  // namespace sim
