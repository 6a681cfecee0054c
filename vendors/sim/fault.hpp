// Planted faults: what a real chip does on a bad day, on demand.
#pragma once

#include <string>

#include "causeway/abi.h"

namespace sim {

struct Device;

void arm_faults();  // once, from the settings
// The status that this call of table entry (or "op:" operator) `target` must answer with, CW_OK for none.
// DEVICE_LOST also loses the device.
cw_status injected_fault(const char* target, Device* device);

bool skips_wait(const char* target);
bool corrupts(const char* op);  // counts the call

// For the settings: does the name stand for something that can fail, or that waits?
bool is_fault_target(const std::string& target);
bool is_skip_target(const std::string& target);

}  // namespace sim
