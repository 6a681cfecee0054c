// Extension "comm.v1": collectives between processes of one machine, over memory that they share.
#pragma once

#include "causeway/comm.h"

namespace sim {

// As setting "comm" wants it; NULL: not offered.
const cw_comm_v1* comm_table();

}  // namespace sim
