// On which hosts the ranks of a group are, and whether the vendor connects them: told to all through gloo, which reaches
// everywhere.
#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace causeway {

// What one rank says of itself; goes over the wire as it is.
struct CommReach {
  uint8_t connected;  // the vendor made a communicator
  uint8_t devices;  // how many it sees, 255 at most
  uint8_t uuid[16];  // of the one that it takes part with; all zero: none
  char host[64];  // its name, for people
  char machine[64];  // differs between two hosts of one name
  char words[174];  // why the vendor declined

  static CommReach mine(int device, bool connected, const std::string& words);
};

std::vector<CommReach> tell_all(c10d::Backend& gloo, const CommReach& mine, int size);

// "on host a", or "on 2 hosts (a: rank 0, 1; b: rank 2, 3)". `ranks` are the group's in the world; empty: all.
std::string hosts_in_words(const std::vector<CommReach>& all, const std::vector<uint64_t>& ranks);
// "ranks 0 and 1 share a device, though ...": two on one where there are more, which no program means; "": none.
std::string shared_in_words(const std::vector<CommReach>& all, const std::vector<uint64_t>& ranks);
std::string name_of_rank(const std::vector<uint64_t>& ranks, int rank);

}  // namespace causeway
