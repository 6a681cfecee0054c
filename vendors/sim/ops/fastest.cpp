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
      // Through the core, 4 to 10,000 elements: 1.4 to 2.5 us, the host rung 1.6 to 2.4 us; one store per element.
      "aten::fill_.Scalar",
      // 64 x 10: 14 us, the host rung 76 us, which fills first and then starts a parallel loop.
      "aten::nll_loss_backward.grad_input",
  };
  for (const char* entry : fast) {
    if (strcmp(entry, name) == 0) return true;
  }
  return false;
}

}  // namespace sim
