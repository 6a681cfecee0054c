// Why a device cannot have a name, or nothing. It is src/causeway/device_name.py that knows; a table is refused by it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace causeway {

using NameCheck = std::function<std::optional<std::string>(const std::string&)>;
void set_name_check(NameCheck check);

}  // namespace causeway
