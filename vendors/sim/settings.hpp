// What CAUSEWAY_SIM_... says about the chip to simulate. docs/sim.md explains each setting.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "causeway/abi.h"

namespace sim {

enum class Offer { all, fastest, none };

// "The nth call of `target` answers `status`"; nth 0 means every call.
struct FaultSetting {
  std::string target;  // a table entry, or "op:" and an operator's name
  int64_t nth;
  cw_status status;
};

struct Settings {
  int32_t devices = 2;
  uint64_t memory = uint64_t(16) << 30;  // per device; address space until it is used
  cw_dtypes dtypes = (UINT64_C(1) << 22) - 1;
  bool discrete = false;
  bool async = false;
  Offer ops = Offer::fastest;
  bool dense = false;  // kernels ask for dense memory, as those of many chips do
  int level = 2;
  std::set<std::string> without;  // entries that the table leaves out
  bool peers = true;  // devices copy to each other without the host
  bool code = false;     // offer code.v1, with the machine's C compiler
  bool teams = false;    // offer it as a GPU would: teams.hpp
  int64_t seed = 0;      // of the order of a group's items there
  bool graphs = false;   // offer graph.v1
  int64_t grid_limit = 0;      // of code.v1: most groups in each dimension, 0: 65535
  int64_t argument_limit = 0;  // and bytes of arguments, 0: none is reported
  int64_t loop_limit = 0;      // and turns of an item's loops, which is reported and not kept
  std::set<int32_t> bare;      // devices of another kind, without operators
  std::string cache;     // the folder for what it built, or empty
  int64_t overrun = 0;  // bytes behind an output that kernels overwrite
  int64_t padding = 0;  // what device_info says of that
  int64_t latency_us = 0;
  std::vector<FaultSetting> faults;
  std::set<std::string> skip_wait;
  std::string corrupt;     // an operator's name, or empty
  int64_t corrupt_nth = 0;
  std::set<std::string> bugs;  // names of ops/bugs.cpp
  std::string error;       // words about the first bad value; every entry answers CW_INVALID with them
};

// Reads all settings through `host`. Never fails: a bad value is kept in `error`.
void read_settings(const cw_host& host);
const Settings& settings();
const cw_host& host();  // a zeroed table has no entry: check before the call

}  // namespace sim
