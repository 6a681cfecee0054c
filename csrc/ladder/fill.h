// Fills by the table's mem_set, for vendors that offer that and no kernel for them.
#pragma once

#include <string>

#include "causeway/abi.h"

namespace causeway {

// The kernel of `name` that fills with a repeated byte; none for other operators, and where there is no mem_set. It
// declines numbers whose bytes differ and tensors with gaps.
cw_op fill_kernel(const std::string& name);
bool is_fill_kernel(cw_kernel kernel);

}  // namespace causeway
