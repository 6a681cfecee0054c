// A share of a device's cores, for this process or for one stream: extension "cores.v1".
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <c10/core/Stream.h>

namespace causeway {

// How many cores this process, or `stream`, has now, and how many there are; nothing where the vendor shares none, or none
// by stream.
std::optional<std::pair<uint32_t, uint32_t>> cores(int device, const std::optional<c10::Stream>& stream);

// Hold them to `limit`, 0: to none. Throws Kind::Vendor where the vendor shares none.
void set_cores(int device, const std::optional<c10::Stream>& stream, uint32_t limit);

}  // namespace causeway
