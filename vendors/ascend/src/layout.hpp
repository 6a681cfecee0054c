// layout.v1: weights of matrix products in FRACTAL_NZ, the format of the matrix unit: blocks of 16 by 16 elements, those of
// a column of blocks one behind the other. aclnnNpuFormatCast makes it, aclnnMatmulWeightNz and aclnnAddmmWeightNz read it.
//
// As with torch_npu it is of matrices of two bytes an element, with no side of 1. Where torch_npu has a program ask
// (npu_format_cast) or casts a Linear's weight as it is moved, the core casts what is read again unchanged.
#pragma once

#include <string>

#include "acl.hpp"
#include "causeway/abi.h"
#include "causeway/layout.h"

namespace ascend {

constexpr uint32_t kNzLayout = 0;  // the only one

const cw_layout_v1* layout_table();  // nullptr: this chip, this CANN or this core has none
std::string notes_for_layouts();  // for `causeway doctor`

// A matrix that is dense as it is or transposed, as its memory has it, and its form. False: there is none of this tensor.
struct Nz {
  int64_t sides[2];  // of the matrix in memory, row by row
  int64_t blocks[4];  // of the form: columns and rows of blocks, 16, 16
};
bool nz_of(const DLTensor& t, Nz* out);
// Whether it may have a form: to be asked before the core is.
bool may_have_form(const cw_arg& arg);

}  // namespace ascend
