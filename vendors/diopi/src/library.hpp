// The library of operators, and the functions of a device beside it. Opened once, when a device or an operator is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "causeway/abi.h"
#include "diopi/diopirt.h"

namespace diopi {

extern cw_host host;
std::string setting(const char* key);

// What DIOPI's own conformance tests ask of a chip, by these names, and so every chip with a DIOPI library has them: in that
// library, or in the one of its tests (libdiopirt.so). All NULL: operators work on the memory of the host.
struct DeviceFunctions {
  void* (*malloc)(uint64_t bytes) = nullptr;
  void (*free)(void*) = nullptr;
  diopiError_t (*h2d)(diopiStreamHandle_t, void* dst, const void* src, uint64_t bytes) = nullptr;
  diopiError_t (*d2h)(diopiStreamHandle_t, void* dst, const void* src, uint64_t bytes) = nullptr;
  diopiError_t (*d2d)(diopiStreamHandle_t, void* dst, const void* src, uint64_t bytes) = nullptr;
  diopiError_t (*make_stream)(diopiStreamHandle_t*) = nullptr;
  diopiError_t (*sync_stream)(diopiStreamHandle_t) = nullptr;
  diopiError_t (*init)() = nullptr;  // these two may be absent
  diopiError_t (*finalize)() = nullptr;
};

// CW_OK, or why the library of operators cannot be used, in words for a person.
cw_status open_library();
void* find_function(const char* name);  // NULL: the library does not have it
const char* said_last();  // the library's own words, or NULL

// The device's functions, or why they cannot be used. NULL in `out`: the host's memory is the device's.
cw_status open_device(const DeviceFunctions** out);

std::string words_for_library();  // for `causeway doctor`

}  // namespace diopi
