// torch's autograd threads, at the end of the process. See autograd.cpp.
#pragma once

namespace causeway {

// Wait until no autograd thread of our devices holds anything of Python. Call it without the GIL.
void drain_autograd_threads();

}  // namespace causeway
