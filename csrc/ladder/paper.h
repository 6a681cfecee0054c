// A chip on paper: what a vendor offers, known from its published report or from its library, without the chip.
// See paper.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vendor.h"

namespace causeway {

struct PaperOperator {
  std::string name;
  uint32_t needs;
  cw_dtypes dtypes;
};

struct Paper {
  std::string name, version, device;
  uint64_t memory = 0;
  cw_dtypes dtypes = 0;
  bool host_addressable = false;
  std::vector<PaperOperator> operators;
  std::string library;  // of the vendor, if it is here: it knows its operators itself
  bool compiler = false;  // code.v1: Causeway's own kernels run there
};

// Take the chip for the process's vendor, as load_vendor does with a library. `path` names it in messages.
void load_paper(Paper paper, const std::string& path);

// Whether the process's chip is on paper and has a compiler, and what then stands for a kernel of Causeway's own.
bool paper_has_compiler();
cw_op paper_kernel(const std::string& name, cw_op offered);

}  // namespace causeway
