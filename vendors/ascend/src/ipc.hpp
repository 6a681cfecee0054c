// Extension "ipc.v1": device memory shared between the processes of a machine.
#pragma once

#include "causeway/abi.h"

namespace ascend {

extern const cw_ipc_v1 ipc_table;
bool has_ipc();  // this CANN has the functions

}  // namespace ascend
