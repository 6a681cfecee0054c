// Extension "profile.v1": streams note when their work began and ended, while somebody wants to know.
#pragma once

#include <atomic>
#include <cstdint>

#include "causeway/abi.h"

namespace sim {

extern const cw_profile_v1 profile_table;

extern std::atomic<bool> profiling;
uint64_t correlation();  // of this thread
int64_t clock_ns();
void note(const char* name, uint64_t id, int64_t begin_ns, int64_t end_ns);  // `name` lives as long as the process

}  // namespace sim
