#pragma once

#include <cstdint>
#include <functional>

namespace sim {

// How many groups of a launch run at once: the processors that this process may use, at least two, so that work is
// split as on chips with more.
uint32_t compute_units();

// Calls `run(0)` to `run(count - 1)`, each once, on this thread and the chip's others, and returns when all are done.
void run_groups(uint64_t count, const std::function<void(uint64_t)>& run);

}  // namespace sim
