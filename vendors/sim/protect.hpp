// Discrete memory: the host cannot touch a device address, and is told so when it tries.
#pragma once

namespace sim {

void protect_ranges();  // installs the handler once

}  // namespace sim
