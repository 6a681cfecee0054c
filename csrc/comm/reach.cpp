#include "comm/reach.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include <ATen/ATen.h>

#include "runtime/device.h"

namespace causeway {

namespace {

void put(char* to, size_t room, const std::string& text) { std::strncpy(to, text.c_str(), room - 1); }

bool same_host(const CommReach& a, const CommReach& b) {
  return !std::strcmp(a.host, b.host) && !std::strcmp(a.machine, b.machine);
}

}  // namespace

CommReach CommReach::mine(int device, bool connected, const std::string& words) {
  CommReach r{};
  r.connected = connected;
  r.devices = static_cast<uint8_t>(std::min(device_count(), 255));
  std::memcpy(r.uuid, causeway::device(device).info.uuid, sizeof r.uuid);
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
    auto same = [&](const Host& h) { return same_host(*h.first, all[r]); };
    auto at = std::find_if(hosts.begin(), hosts.end(), same);
    if (at == hosts.end()) at = hosts.insert(at, {&all[r], ""});
    at->ranks += (at->ranks.empty() ? "" : ", ") + name_of_rank(ranks, static_cast<int>(r));
  }
  if (hosts.size() == 1) return std::string("on host ") + hosts[0].first->host;
  std::string out = "on " + std::to_string(hosts.size()) + " hosts (";
  for (const Host& h : hosts) out += (&h == &hosts[0] ? "" : "; ") + std::string(h.first->host) + ": rank " + h.ranks;
  return out + ")";
}

std::string shared_in_words(const std::vector<CommReach>& all, const std::vector<uint64_t>& ranks) {
  constexpr uint8_t none[sizeof all[0].uuid] = {};
  for (size_t a = 0; a < all.size(); ++a) {
    if (all[a].devices < 2 || std::memcmp(all[a].uuid, none, sizeof none) == 0) continue;
    for (size_t b = a + 1; b < all.size(); ++b) {
      if (!same_host(all[a], all[b]) || std::memcmp(all[a].uuid, all[b].uuid, sizeof none) != 0) continue;
      return "ranks " + name_of_rank(ranks, static_cast<int>(a)) + " and " + name_of_rank(ranks, static_cast<int>(b)) +
             " are on one device, though this host has " + std::to_string(all[a].devices) +
             ": call torch.accelerator.set_device_index(int(os.environ[\"LOCAL_RANK\"])) before the first tensor, or "
             "init_process_group(device_id=...)";
    }
  }
  return "";
}

}  // namespace causeway
