// Functions of float32 that become vectors on devices which compute one element after the other.
#pragma once

#include <string>

namespace causeway::portable {

// What stands before a text that calls `log`, `sin` and the like of float32: their definitions, where the device wants
// them, and macros by which the text gets them.
std::string functions_of(const std::string& text);

// The same for a text that calls `log_32`, `sin_32` and the like, and means by `log` that of the argument's own type.
std::string typed_functions_of(const std::string& text);

}  // namespace causeway::portable
