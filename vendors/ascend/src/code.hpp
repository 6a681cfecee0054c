// code.v1: kernels of threads, by CANN's run-time compiler, on the chips that have them.
#pragma once

#include <string>

#include "causeway/abi.h"

namespace ascend {

extern const cw_code_v1 code_table;

// Why there is none: what is missing. Empty where there is one.
std::string words_for_code();
// The same for `causeway doctor`, which also says what there is.
std::string notes_for_code();

}  // namespace ascend
