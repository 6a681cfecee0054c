// torch.accelerator.Graph for the device, and what torch.<name> needs of graphs in Python.
#pragma once

#include <pybind11/pybind11.h>

namespace causeway {

void bind_graphs(pybind11::module_& m);

}  // namespace causeway
