#pragma once

#include "core.hpp"

namespace stand_in {

Code planted_work(const char* name);

}  // namespace stand_in
