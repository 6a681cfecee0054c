// What is known of the failure of work that ran later than its call: the kernel, and the memory at which it failed.
#pragma once

#include <cstdint>
#include <string>

namespace causeway {

// Words to follow the vendor's, " (aten::neg.out at 0x7f..., byte 16 of ...)", or none. Of this thread's last failure.
std::string fault_words(int device);

// What lies at an address of the device: a block of the cache, freed memory, or none of it. In allocator.cpp.
std::string words_for_address(int device, uint64_t address);

}  // namespace causeway
