// A device's compiler: what it is, the functions built so far, launches.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "causeway/abi.h"

namespace causeway::portable {

// What a function is specialised on. The first word is the kernel's own number, from `family`.
using Key = std::array<uint64_t, 4>;

struct HashKey {
  size_t operator()(const Key& key) const {
    uint64_t h = 0x9E3779B97F4A7C15ull;
    for (uint64_t v : key) h = (h ^ v) * 0xff51afd7ed558ccdull, h ^= h >> 32;
    return h;
  }
};

// Of CPUs, in bytes. What a core fetches ahead ends with a page. Results of kPastCaches and more are written past the
// caches, which would read each line first.
constexpr int64_t kPage = 4096, kPastCaches = int64_t{32} << 20;

struct Services;
struct Tuning;

struct Device {
  int32_t index = 0;
  cw_code_info info{};
  std::shared_mutex mutex;
  std::unordered_map<Key, cw_function, HashKey> functions;  // NULL: it could not be built
  std::atomic<Tuning*> tuning{nullptr};  // tune.h

  bool in_turn() const { return info.flags & CW_CODE_IN_TURN; }
  // Small launches of a graph become one there (runtime/merged.h), for which the sources of what is built are kept.
  bool merges() const { return in_turn() && info.language == CW_CODE_OPENCL_C; }
  // The function for `key`; `source` is called once, and its function is called "kernel". Where it cannot be built, that
  // is said once, and this and all later calls answer CW_UNSUPPORTED: the operator goes on down the ladder.
  cw_status function(const Key& key, const std::function<std::string()>& source, cw_function* out);
  cw_status without(const Key& key, cw_status status);
  // A program of its own, and a function of it by its name.
  cw_status build(const std::string& source, cw_program* out) const;
  cw_status function_of(cw_program program, const char* name, cw_function* out) const;
};

// From now on the sources of what is built are kept on all devices, and functions known so far are built anew: for writing
// a file.
void keep_sources(bool on);
// Of a function that was built while they were kept: its name, and its program's source; NULL where it was not.
struct SourceOf {
  std::string name;
  std::shared_ptr<const std::string> source;
};
SourceOf source_of(cw_function function);

// What the vendor says of the call that failed last on this thread.
std::string last_error();

// A kernel for torch's operator `name` begins on this thread.
void begin_operator(const char* name);

// NULL where the vendor has no compiler for it.
Device* device_at(int32_t index);
const Services& services();
cw_status scratch(const Device& device, cw_stream stream, uint64_t bytes, void** out);
// For shapes that depend on data: a result's shape, known after a number was fetched.
cw_status resize(const DLTensor* tensor, const std::vector<int64_t>& shape);
cw_status fetch(const Device& device, cw_stream stream, const void* from, uint64_t bytes, void* to);

// The arguments of one launch, in the order of the source's parameters. All values go as one structure, where the compiler
// takes one: a runtime copies each argument by itself (PoCL allocates for each), and a small operator is little else.
class Launch {
 public:
  Launch& pointer(const void* p);
  template <class T>
  Launch& value(T v) {
    static_assert(sizeof(T) <= 8, "by value");
    if (n_values_ < kMost) __builtin_memcpy(values_[n_values_].bytes, &v, sizeof v);
    ++n_values_;
    return *this;
  }
  Launch& append(const Launch& other);  // its arguments
  // For a source that `tells`, in the same place.
  cw_status tells(const char* name);
  // `units` of work of about `cost` arithmetic operations each, shared out among as many items as are worth it. CW_UNSUPPORTED where that
  // may be more turns of loops than the device makes.
  cw_status run(const Device& device, cw_function function, int64_t units, double cost, cw_stream stream);

  // `groups` groups of `lanes` items that share memory: not for devices that run them in turn. `turns`: of an item's loops
  // for one of them, for devices with a limit.
  cw_status run_groups(const Device& device, cw_function function, int64_t groups, uint32_t lanes, cw_stream stream,
                       double turns = 0);

  static constexpr uint32_t kMost = 96;  // pointers, and values

 private:
  struct Slot {
    alignas(8) char bytes[8];
  };
  cw_status put(const Device& device, cw_function function, const uint32_t grid[3], const uint32_t group[3],
                cw_stream stream);

  Slot values_[kMost];
  cw_code_arg args_[2 * kMost];
  uint32_t n_ = 0, n_values_ = 0;
};

}  // namespace causeway::portable
