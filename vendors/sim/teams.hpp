// How a GPU runs a kernel, in one thread of the host: CAUSEWAY_SIM_CODE=teams. The items of a group are fibers, which take
// turns at random places between two barriers, and each access of memory is looked at. What a GPU would do at some time, or
// on some day, is an error here at once:
//
//   two items of a group touch the same bytes, one of them writes, and no barrier is between; across groups, at any time
//   a read of local memory that no item of the group wrote
//   a read of device memory that nothing wrote since it was allocated (discrete memory only: else the host may have)
//   an access outside what the launch was given, or outside an array
//   a barrier that not all items of a group reach
//
// The compiler's own hooks for ThreadSanitizer tell of the accesses, so that kernels are built from the text they have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "causeway/abi.h"
#include "device.hpp"

namespace sim::teams {

constexpr uint32_t most_items = 1024;  // of a group
constexpr uint64_t local_memory = 48u << 10;  // as the least of today's GPUs

// What comes before a kernel's text, and how it is built.
extern const char* const preamble;
extern const std::vector<const char*> flags;

// A program that was built so.
class Code {
 public:
  // `library`: an open one; `bytes`: its file; `source`: without the preamble, empty where it is not known. NULL: it was
  // built in another way.
  static std::unique_ptr<Code> open(void* library, const std::vector<unsigned char>& bytes, std::string source);

  struct Array {
    uintptr_t start;
    uint64_t bytes;
    std::string name;
    bool local;
  };
  const Array* array_at(uintptr_t address, uint64_t bytes) const;
  std::string line_at(uintptr_t address) const;  // of the source: "line 12: text"
  uintptr_t base() const { return base_; }
  void* hooks() const { return hooks_; }
  const std::vector<Array>& arrays() const { return arrays_; }

 private:
  uintptr_t base_ = 0;
  void* hooks_ = nullptr;
  std::vector<Array> arrays_;  // in order of address
  std::vector<unsigned char> bytes_;
  std::string source_;
};

// Device memory of a launch.
struct Region {
  uintptr_t start;
  uint64_t bytes;
};
Region region_of(const Device& device, const void* address);  // the allocation, as kernels reach it
struct Launch {
  const char* name;
  const Code* code;
  void (*run)(void* const* args, const uint32_t* group, const uint32_t* grid);
  std::vector<void*> args;
  const char* values;  // what args point to
  uint64_t values_bytes;
  std::vector<Region> regions;
  uint32_t grid[3], lanes;
};
cw_status run(const Launch& launch);

// Device memory was allocated, or written by something other than a kernel.
void allocated(const Device& device, uintptr_t start, uint64_t bytes);
void written(const void* start, uint64_t bytes);

}  // namespace sim::teams
