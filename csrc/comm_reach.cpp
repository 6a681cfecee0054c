#include "comm_reach.h"

#include <unistd.h>

#include <cstring>
#include <fstream>

#include <ATen/ATen.h>

namespace causeway {

namespace {

void put(char* to, size_t room, const std::string& text) { std::strncpy(to, text.c_str(), room - 1); }

}  // namespace

CommReach CommReach::mine(bool connected, const std::string& words) {
  CommReach r{};
  r.connected = connected;
  gethostname(r.host, sizeof r.host - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  put(r.machine, sizeof r.machine, boot);
  put(r.words, sizeof r.words, words);
  return r;
}

std::vector<CommReach> tell_all(c10d::Backend& gloo, const CommReach& mine, int size) {
  constexpr int64_t bytes = sizeof(CommReach);
  at::Tensor one = at::empty({bytes}, at::TensorOptions().dtype(c10::kByte));
  at::Tensor all = at::empty({size * bytes}, one.options());
  std::memcpy(one.mutable_data_ptr(), &mine, bytes);
  gloo._allgather_base(all, one, c10d::AllgatherOptions{})->wait();
  std::vector<CommReach> out(size);
  std::memcpy(out.data(), all.const_data_ptr(), size * bytes);
  return out;
}

std::string name_of_rank(const std::vector<uint64_t>& ranks, int rank) {
  return std::to_string(ranks.empty() ? rank : ranks.at(rank));
}

std::string hosts_in_words(const std::vector<CommReach>& all, const std::vector<uint64_t>& ranks) {
  struct Host {
    const CommReach* first;
    std::string ranks;
  };
  std::vector<Host> hosts;
  for (size_t r = 0; r < all.size(); ++r) {
    auto same = [&](const Host& h) {
      return !std::strcmp(h.first->host, all[r].host) && !std::strcmp(h.first->machine, all[r].machine);
    };
    auto at = std::find_if(hosts.begin(), hosts.end(), same);
    if (at == hosts.end()) at = hosts.insert(at, {&all[r], ""});
    at->ranks += (at->ranks.empty() ? "" : ", ") + name_of_rank(ranks, static_cast<int>(r));
  }
  if (hosts.size() == 1) return std::string("on host ") + hosts[0].first->host;
  std::string out = "on " + std::to_string(hosts.size()) + " hosts (";
  for (const Host& h : hosts) out += (&h == &hosts[0] ? "" : "; ") + std::string(h.first->host) + ": rank " + h.ranks;
  return out + ")";
}

}  // namespace causeway
