// Extension layout.v1: right factors of products in panels, as ops/matmul.cpp reads them.
#pragma once

#include "causeway/layout.h"

namespace sim {

const cw_layout_v1* layout_table();  // nullptr: not offered

}  // namespace sim
