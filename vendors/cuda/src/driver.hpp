// A GPU's driver and its run-time compiler as tables of functions: CUDA's, or those of one of its kin, HIP and MACA. The
// names, parameters and numbers of each are in kin_*.hpp, and what they do differently in kin_*.cpp; all other code is
// one. A library of this vendor's is built for one of them. No header of theirs is needed to build, no library to load:
// both are opened when the first device is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "causeway/abi.h"

namespace cuda {

using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;
using CompilerProgram = struct CompilerProgram_*;

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc, which HIP has since 5.7
struct MemoryLocation {
  int type, id;
};
struct MemoryProperties {
  int type = 1, handle_types = 0;  // pinned to the device, not exported
  MemoryLocation location = {1, 0};  // a device
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;  // to read and write
};
// flags, the same for all kin
constexpr int kCaptureRelaxed = 2;  // CUstreamCaptureMode
constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2, kHostPortable = 1;

}  // namespace cuda

#if defined(CAUSEWAY_KIN_HIP)
#include "kin_hip.hpp"
#elif defined(CAUSEWAY_KIN_MACA)
#include "kin_maca.hpp"
#else
#include "kin_cuda.hpp"
#endif

namespace cuda {

struct Driver {
#define MEMBER(name, symbol, parameters) Result(*name) parameters = nullptr;
  DRIVER_FUNCTIONS(MEMBER)
  DRIVER_LATER_FUNCTIONS(MEMBER)
  DRIVER_OTHER_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(name, symbol) const char* (*name)(Result) = nullptr;
  DRIVER_WORDS(MEMBER)
#undef MEMBER
};

// What each function is called, for messages.
struct Symbols {
#define MEMBER(name, symbol, parameters) const char* name = #symbol;
  DRIVER_FUNCTIONS(MEMBER)
  DRIVER_LATER_FUNCTIONS(MEMBER)
  DRIVER_OTHER_FUNCTIONS(MEMBER)
#undef MEMBER
};
constexpr Symbols symbols;

extern Driver cu;  // filled by `open_driver`

// Empty when the driver is open, else why it is not and what to do. Once a process.
const char* open_driver();

// A device on paper (CAUSEWAY_NVIDIA_PAPER=sm_90, or sm_90x2 for two): memory is the host's, launches do nothing.
struct Paper {
  std::string architecture;
  int major = 0, minor = 0, devices = 1;
  int wave = 32, shared_kilobytes = 48;
};
Driver paper_driver(const Paper& paper);

struct Compiler {
#define MEMBER(name, symbol, parameters) int(*name) parameters = nullptr;
  COMPILER_FUNCTIONS(MEMBER)
#undef MEMBER
  const char* (*error_text)(int) = nullptr;
};
struct CompilerSymbols {
#define MEMBER(name, symbol, parameters) const char* name = #symbol;
  COMPILER_FUNCTIONS(MEMBER)
#undef MEMBER
};
constexpr CompilerSymbols compiler_symbols;

extern Compiler rtc;  // filled by `open_compiler`
const char* open_compiler();

struct Device;

// What CUDA and its kin do differently.
namespace kin {

// Where libraries may be, best first, each a name for the loader or a path; `key` is the setting that names the file.
struct Places {
  const char* key;
  std::vector<std::string> files;
};
Places driver_places();
Places compiler_places();
Places blas_places();
#ifdef KIN_HAS_DNN
Places dnn_places();
#endif

// Whether there is such an architecture, and then its numbers.
bool read_architecture(const std::string& name, Paper* out);
// Fill in what the library has no function for.
void complete(Driver& driver);
// What a compiler needs beside it is opened, where it does not find it by itself.
void open_beside_compiler();

// "sm_90", "gfx90a:sramecc+:xnack-": what programs are compiled for, and by which they are known.
cw_status architecture_of(const Device& device, std::string* out);
// "12.9" of the number that the driver gives.
std::string version_text(int number);

// How a program is compiled for a device. `intermediate`: to text that the driver translates.
struct Target {
  std::vector<std::string> options;
  bool intermediate = false;
};
cw_status target_of(const Device& device, Target* out);
// Of a compiled program: its bytes, as the driver loads them.
cw_status code_of(CompilerProgram program, const Target& target, std::vector<unsigned char>* out);
// Whether these bytes are a program that is whole, as far as they say: the driver is not told where it ends.
bool is_whole(const unsigned char* data, uint64_t bytes);

// For `causeway doctor`: why there may be no device although the driver is here; "" where nothing is known.
std::string hint();

}  // namespace kin

}  // namespace cuda
