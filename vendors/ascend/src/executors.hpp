// Executors of aclnn that are kept. A call that came before with the same operator, shapes, strides, dtypes, numbers and
// places within their allocations runs the executors of then: no handles are made and aclnn's first phase is not asked.
// Tensors whose address is another one are told by aclSetTensorAddr, also those in lists, those in memory that is lent
// for the call, and weights in a format of the chip's.
//
// Kept is what came twice, so that what never comes again (a step's own numbers) costs nothing. Not kept are calls with
// random numbers, and with operators that CANN refuses to make repeatable.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "acl.hpp"

namespace ascend {

struct Operation;

enum class Kind { tensor, scalar, int_array, bool_array, float_array, tensor_list, scalar_list };
using Handles = std::vector<std::pair<Kind, const void*>>;
void destroy(const Handles& handles);  // the last first

// Where the memory of a tensor comes from, so that a call that comes again finds it where it is then.
struct Memory {
  enum class From { nowhere, stays, argument, item, lent, form };
  From from = From::nowhere;
  int32_t at = 0;  // which argument, or which of the blocks that were lent
  uint32_t item = 0;  // of an argument that is a list
  uint64_t offset = 0;  // in bytes
  void* address = nullptr;  // with the offset
};

// What a line's call did: its calls of aclnn in their order, those that were made beside it too.
struct Kept {
  struct Place {
    size_t index;  // among the tensors of the call
    AclTensor* tensor;
    Memory memory;  // its address: where the executor has it
  };
  struct Step {
    Operation* operation;
    AclExecutor* executor;
    uint64_t bytes;  // of workspace
    std::vector<Place> places;
  };
  std::vector<Step> steps;
  std::vector<uint64_t> lent;  // bytes of memory that the calls ask for beside their workspace
  Handles handles;  // what the executors were made of, which they refer to
  // of the cache
  bool busy = false;
  std::string key;
  Kept *before = nullptr, *after = nullptr;
};

// Whether executors can be kept here: CANN has the functions, and the setting `executors` is not 0.
bool keeps_executors();
// The one of this key, this thread's until `release`; NULL: there is none, or another thread has it.
Kept* take_executor(const std::string& key);
void release_executor(Kept* kept);
void drop_executor(Kept* kept);  // of this thread: its work failed
// Whether a call with this key came before.
bool seen_before(const std::string& key);
void end_executor(Kept* made);
// From now on the cache's, and free to take.
void keep_executor(Kept* made);

}  // namespace ascend
