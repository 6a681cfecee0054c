#include "runtime/peers.h"

#include <array>
#include <atomic>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/vendor.h"

namespace causeway {

Peers peers(int from, int peer) {
  static std::array<std::array<std::atomic<int8_t>, kMaxDevices>, kMaxDevices> known{};  // 0: not asked; 1 + Peers
  const int32_t here = device(from).vendor_id, there = device(peer).vendor_id;
  std::atomic<int8_t>& slot = known[from][peer];
  if (const int8_t k = slot.load(std::memory_order_acquire)) return static_cast<Peers>(k - 1);
  Peers answer = Peers::NotKnown;
  if (api().peer_access) {
    int32_t can = 0;
    check(api().peer_access(here, there, &can), "peer_access", from);
    answer = can ? Peers::Yes : Peers::No;
  }
  slot.store(static_cast<int8_t>(1 + static_cast<int>(answer)), std::memory_order_release);
  return answer;
}

}  // namespace causeway
