#pragma once

#include "core.hpp"

namespace stand_in {

void memory_of(int index, size_t* free, size_t* total);
// Gives back what is left on a device: it is reset.
void forget_memory(int index);

}  // namespace stand_in
