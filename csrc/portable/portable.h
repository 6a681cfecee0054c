// Causeway's own kernels, for every chip with code.v1: source in one dialect of C, built by the chip's compiler.
//
// It knows no torch: to the core it is one more vendor, with the same boxed kernels that op_find would give. A kernel
// answers CW_UNSUPPORTED to what it does not take, and the ladder goes on.
#pragma once

#include "causeway/abi.h"

namespace causeway::portable {

struct Services {
  cw_status (*scratch)(int32_t device, cw_stream stream, uint64_t bytes, void** out);
  cw_status (*resize)(const DLTensor* tensor, int32_t ndim, const int64_t* shape);
  // Bytes of the device once all before them on the stream is done: the host waits.
  cw_status (*fetch)(int32_t device, cw_stream stream, const void* from, uint64_t bytes, void* to);
};

// Once, with the vendor's table; until then `find` offers nothing.
void open(const cw_code_v1* code, const Services& services);

// The kernel for torch's operator `name`, or one whose `kernel` is NULL.
cw_op find(const char* name);

}  // namespace causeway::portable
