#pragma once

#include "causeway/abi.h"

namespace sim {

extern const cw_ipc_v1 ipc_table;

}  // namespace sim
