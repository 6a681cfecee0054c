// Attention by kernels of this vendor's own, compiled by NVRTC.
#pragma once

#include "causeway/op.hpp"

namespace cuda {

// The kernel of this name, or CW_UNSUPPORTED.
cw_status find_attention(const char* name, cw_op* out);

}  // namespace cuda
