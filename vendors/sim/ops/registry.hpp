// Which operators the chip has: each family's file ends with its list.
#pragma once

#include <vector>

#include "ops/call.hpp"

namespace sim {

using OpList = std::vector<OpDef>;

const OpList& pointwise_ops();
const OpList& fill_ops();
const OpList& reduce_ops();
const OpList& search_ops();
const OpList& matmul_ops();
const OpList& softmax_ops();
const OpList& norm_ops();
const OpList& convolution_ops();
const OpList& pool_ops();
const OpList& index_ops();
const OpList& loss_ops();
const OpList& random_ops();
const OpList& sort_ops();
const OpList& library_ops();

int64_t fast_up_to(const char* name);  // elements of the first output; 0: slower at any size. fastest.cpp

}  // namespace sim
