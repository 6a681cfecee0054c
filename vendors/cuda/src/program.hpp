// code.v1: programs compiled at run time or taken from the cache on disk, and their functions launched.
#pragma once

#include "device.hpp"

namespace cuda {

extern const cw_code_v1 code_table;

// Function `name` of a text of this vendor's own, compiled once for a device and these options; it may use `bytes` of
// shared memory that the launch gives. `source` lasts as long as the process.
cw_status kernel_of(int32_t index, const char* source, const std::vector<std::string>& options, const char* name,
                    unsigned bytes, Function* out);

// For kin_*.cpp: CW_OK, or the compiler's words; a compiled program's bytes by these two functions of the compiler's;
// whether all of an ELF file is there, by its own tables.
cw_status check_compiler(int result, const char* function);
cw_status read_code(CompilerProgram program, int (*size_of)(CompilerProgram, size_t*),
                    int (*code)(CompilerProgram, char*), std::vector<unsigned char>* out);
bool is_whole_elf(const unsigned char* data, uint64_t bytes);

}  // namespace cuda
