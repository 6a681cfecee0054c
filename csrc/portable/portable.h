// Causeway's own kernels, for every chip with code.v1: source in one dialect of C, built by the chip's compiler.
//
// It knows no torch: to the core it is one more vendor, with the same boxed kernels that op_find would give. A kernel
// answers CW_UNSUPPORTED to what it does not take, and the ladder goes on.
#pragma once

#include <string>
#include <vector>

#include "causeway/abi.h"

namespace causeway::portable {

struct Services {
  cw_status (*scratch)(int32_t device, cw_stream stream, uint64_t bytes, void** out);
  cw_status (*resize)(const DLTensor* tensor, int32_t ndim, const int64_t* shape);
  // Bytes of the device once all before them on the stream is done: the host waits.
  cw_status (*fetch)(int32_t device, cw_stream stream, const void* from, uint64_t bytes, void* to);
  // Where the running call's kernel of the operator `name` tells what it cannot raise, and by which number: TELL.
  cw_status (*tells)(const char* name, void** words, int64_t* teller);
  const cw_backend& (*table)();               // for events
  std::string (*identity)(int32_t device);    // the vendor, its version and the device's name
  void (*log)(const char* warning);
  bool (*recording)();  // what is launched is not run but noted, so that nothing can be measured
};

// Once, with the vendor's table; until then `find` offers nothing.
void open(const cw_code_v1* code, const Services& services);

// What every kernel's function is called in its program.
constexpr const char* kFunction = "kernel_main";

// The kernel for torch's operator `name`, or one whose `kernel` is NULL.
cw_op find(const char* name);
// The same where nothing is open, to say what a chip with a compiler would get.
cw_op listed(const char* name);

// Where products find how to cut their work, and loops over memory their order: `off`, as built in. `passing`: as kept on disk, else measured in passing,
// for at most a tenth of the time of the products themselves. `now`: the same without that limit, and the host waits.
// `again`: as `now`, and what is kept is not read. A device reads its file at its first product.
enum class TuneMode : uint8_t { off, passing, now, again };
void set_tune(TuneMode mode, const std::string& folder);

// What is known of a device's classes of products, and of its loops.
struct Tuned {
  std::string name, cut, source;  // "f32 mm many", "12x32 k256" or "", "kept", "measured" or "under way"
  double gain;                    // speed, to the built-in cut's
  size_t measurements;
};
std::vector<Tuned> tuned(int32_t device);
uint32_t units(int32_t device);  // how many groups run at once; 0 without a compiler
std::vector<std::string> cut_names(int32_t device, bool f64);
// For tests: all products take this one of `cut_names`, and so does every convolution; -1: as tuned.
void force_cut(int index);
bool cut_is_forced();

}  // namespace causeway::portable
