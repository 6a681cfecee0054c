// Errors that kernels find while they run, and cannot raise: an index out of range, a division by zero. A kernel tells
// them in two words of its device's memory, the first one counts, and where the host waits for the stream it is raised.
#pragma once

#include <string>
#include <vector>

#include "causeway/abi.h"
#include "runtime/stream.h"

namespace causeway {

// Where a kernel of the operator `name` (kept), put on this thread's current stream of the device, tells errors, and by
// which number.
cw_status kernel_tells(int device, const char* name, void** words, int64_t* teller);

// Kernels that tell errors were put on the stream.
void kernel_may_tell(StreamState& stream);

// Where kernels of a device tell, or nullptr, and the operators by their numbers, from 1.
const void* told_at(int device);
std::vector<std::string> tellers();

// After a wait for the stream: throw what a kernel told, once.
void raise_kernel_errors(StreamState& stream);

// After a wait for all of the device.
void raise_kernel_errors(int device);

}  // namespace causeway
