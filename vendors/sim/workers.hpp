#pragma once

#include <cstdint>
#include <functional>

namespace sim {

// How many groups of a launch run at once: the processors that this process may use, at least two, so that work is
// split as on chips with more.
uint32_t compute_units();

// Calls `run(0)` to `run(count - 1)`, each once, on this thread and the chip's others, `cores` at most, and returns when
// all are done.
void run_groups(uint64_t count, uint32_t cores, const std::function<void(uint64_t)>& run);

// The most threads that took part in a launch since this was last asked; 0: there was none.
uint32_t cores_used();

}  // namespace sim
