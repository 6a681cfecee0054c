// A chip on paper: what a vendor offers, known from its published report or from its library, without the chip.
// See paper.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vendor.h"

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
};

// Take the chip for the process's vendor, as load_vendor does with a library. `path` names it in messages.
void load_paper(Paper paper, const std::string& path, Settings settings);

}  // namespace causeway
