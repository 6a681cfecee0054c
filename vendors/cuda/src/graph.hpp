// Extension "graph.v1" by CUDA's own graphs.
#pragma once

#include "causeway/abi.h"

namespace cuda {

extern const cw_graph_v1 graph_table;
bool has_graphs();  // the driver is open, and has them

}  // namespace cuda
