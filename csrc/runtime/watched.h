// Who looks at the calls that operators make. One word of bits, so that the hot path reads one word; each owner sets its
// own bit.
#pragma once

#include <atomic>
#include <cstdint>

namespace causeway {

enum class Watcher : uint32_t {
  Policy = 1,  // a fallback policy other than "allow" holds
  Ledger = 2,  // a ledger is open
  Trace = 4,  // a trace is being taken
  Observer = 8,  // an observer asks for rungs
};

inline std::atomic<uint32_t> g_watchers{0};

inline void watch(Watcher who, bool on) {
  const auto bit = static_cast<uint32_t>(who);
  if (on)
    g_watchers.fetch_or(bit);
  else
    g_watchers.fetch_and(~bit);
}

template <class... Watchers>
bool watched_by(Watchers... who) {
  return g_watchers.load(std::memory_order_relaxed) & (static_cast<uint32_t>(who) | ...);
}

}  // namespace causeway
