// Extension "graph.v1": captures of AscendCL (aclmdlRI*).
#pragma once

#include "causeway/abi.h"

namespace ascend {

extern const cw_graph_v1 graph_table;
bool has_graphs();  // this CANN has the functions

}  // namespace ascend
