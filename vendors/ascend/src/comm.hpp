// Extension "comm.v1": collectives by HCCL (libhccl.so), which is opened when the first group is made.
#pragma once

#include "causeway/comm.h"

namespace ascend {

extern const cw_comm_v1 comm_table;

}  // namespace ascend
