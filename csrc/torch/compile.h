// What torch.compile's code generator (src/causeway/compile) wants of the core: the device's compiler as Python sees it,
// kernels of a graph in one program, and their launches.
#pragma once

#include <pybind11/pybind11.h>

namespace causeway {

void bind_compile(pybind11::module_& m);

}  // namespace causeway
