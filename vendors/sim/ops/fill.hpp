#pragma once

#include "ops/loop.hpp"

namespace sim {

// Copy operand 1 to operand 0, converting between real dtypes.
void copy_rows(const Rows<2>& rows);

}  // namespace sim
