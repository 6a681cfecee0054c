// Extension cores.v1: how many of the chip's threads a launch may use.
#pragma once

#include <cstdint>

#include "causeway/cores.h"

namespace sim {

extern const cw_cores_v1 cores_table;

// How many threads a launch on this stream may use, as of now.
uint32_t cores_of(int32_t device, cw_stream stream);

}  // namespace sim
