// Executors of aclnn that are kept. A call that came before with the same operator, shapes, strides, dtypes, numbers and
// places within their allocations runs the executor of then: no handles are made and aclnn's first phase is not asked.
// Tensors whose address is another one are told by aclSetTensorAddr; those in lists must lie where they were.
//
// Kept is what came twice, so that what never comes again (a step's own numbers) costs nothing. Not kept are calls with
// random numbers, with workspace of ours, and of operators that CANN refuses to make repeatable.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "acl.hpp"

namespace ascend {

enum class Kind { tensor, scalar, int_array, bool_array, float_array, tensor_list, scalar_list };
using Handles = std::vector<std::pair<Kind, const void*>>;
void destroy(const Handles& handles);  // the last first

struct Kept {
  AclExecutor* executor = nullptr;
  uint64_t bytes = 0;  // of workspace
  Handles handles;  // what the executor was made of, which it refers to
  struct Place {
    AclTensor* tensor;
    int32_t argument;
    const void* address;
  };
  std::vector<Place> places;
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
