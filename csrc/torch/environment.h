// Changes of os.environ while the program runs.
#pragma once

#include <string>

#include <pybind11/pytypes.h>

namespace causeway {

// Calls `changed(name)` just before Python gives a variable of the environment another value, or takes it away, where
// its name begins with `prefix`. It cannot be taken back; a later call replaces prefix and function.
void watch_environment(std::string prefix, pybind11::object changed);

}  // namespace causeway
