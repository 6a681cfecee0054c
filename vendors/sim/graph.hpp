// Extension "graph.v1": what a stream is given is noted, and one task of a stream does it all again.
#pragma once

#include "causeway/abi.h"

namespace sim {

extern const cw_graph_v1 graph_table;

}  // namespace sim
