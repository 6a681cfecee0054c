// What Python sees of torch.distributed's backend; see src/causeway/dist.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace causeway {

void bind_comm(pybind11::module_& m);

}  // namespace causeway
