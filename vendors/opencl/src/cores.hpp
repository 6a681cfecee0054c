// A runtime on a CPU has a thread for each core, which sleep between kernels. Where the system wakes two of them on one
// core, the other stays idle for milliseconds, until they are shared out anew: a kernel of ten then takes fifteen. So
// each gets a core of its own. CAUSEWAY_OPENCL_PIN_THREADS=0 leaves them as they are.
#pragma once

#include <vector>

namespace opencl {

// The threads of this process, by their numbers; none where the system does not tell.
std::vector<int> threads();

// Those that are not among `before`, one a core of this process, where they are as many; else nothing is done.
void pin_new_threads(const std::vector<int>& before);

}  // namespace opencl
