// One launch for many tensors: their elements are cut into blocks, and a block finds its tensor. The text is the same for
// up to `tensors_of(count)` tensors; absent tensors get no block.
#pragma once

#include "portable/call.h"

namespace causeway::portable {

// A pointer or number that each tensor has: parameters NAME_0SUFFIX, NAME_1SUFFIX .., and NAMESUFFIX of the tensor at hand.
struct Picked {
  std::string type;  // "GLOBAL f32*", "T"
  std::string name, suffix;
};

struct Lists {
  size_t count = 0;  // parameters of each kind
  int64_t block = 0;  // elements
  std::vector<Picked> picked;
};

// How many tensors a text is made for, so that few texts are made.
size_t tensors_of(size_t count, size_t most);
// How many tensors a launch has room for, where each has so many pointers and numbers (and its size), and all so many more.
size_t most_tensors(size_t pointers, size_t numbers, size_t more);

// Elements of a block: an item's on a CPU, a group's elsewhere.
int64_t block_of(const Device& device);
uint32_t lanes_of(const Device& device);  // a power of two

// Text: the number `u_` of a block becomes `k_`, its tensor's, `from_` and `to_`, its elements; and all that is picked is
// set. Sizes are called size_0, size_1 ..
std::string find_block(const Lists& lists);
// Text: of tensor number `u_`, `from_` and `to_` count its blocks among all.
std::string find_tensor(const Lists& lists);
// Text: `element` for each `i` of each block; `blocks_` is how many there are. On CPUs a loop that may become vectors.
std::string each_block(const Device& device, const Lists& lists, const std::string& element);
// Its launch.
cw_status run_blocks(const KernelCall& call, Launch& launch, cw_function function, int64_t blocks, double cost);

// Each tensor of `from` into that of `to`, of its shape and dtype.
cw_status copy_each(KernelCall& call, const std::vector<const DLTensor*>& to, const std::vector<const DLTensor*>& from);

}  // namespace causeway::portable
