// causeway._C.Redirect: a function of torch's with one argument looked at. See redirect.cpp.
#pragma once

#include <pybind11/pytypes.h>

namespace causeway {

// The type object, to be put into the module.
pybind11::object redirect_type();

}  // namespace causeway
