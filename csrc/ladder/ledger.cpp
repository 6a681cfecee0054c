#include "ladder/ledger.h"

#include <map>
#include <mutex>

#include "ladder/call.h"
#include "ladder/observe.h"
#include "runtime/stream.h"
#include "runtime/watched.h"

namespace causeway {

const char* const kRungNames[kRungs] = {"native", "derived", "portable", "decomposed", "host"};

namespace {

struct Key {
  const Operator* op;
  Rung rung;
  c10::ScalarType dtype;
  auto operator<=>(const Key&) const = default;
};
struct Sums {
  uint64_t calls = 0, bytes = 0;
  double worked = 0, waited = 0;
};
std::mutex g_ledger_mutex;
std::map<Key, Sums> g_rows;
std::map<std::pair<c10::ScalarType, c10::ScalarType>, uint64_t> g_narrowed;
thread_local Entry* t_entry = nullptr;

}  // namespace

Entry::Entry(Operator& op) : op_(op), on_(watched_by(Watcher::Ledger, Watcher::Observer)) {
  if (C10_LIKELY(!on_)) return;
  outer_ = t_entry;
  t_entry = this;
  waited_before_ = waited_seconds();
  start_ = std::chrono::steady_clock::now();
}

Entry::~Entry() {
  if (C10_LIKELY(set_)) op_.calls[static_cast<int>(rung_)].fetch_add(1, std::memory_order_relaxed);
  if (C10_LIKELY(!on_)) return;
  t_entry = outer_;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double waited = waited_seconds() - waited_before_, worked = seconds - waited;
  if (outer_) outer_->inner_worked_ += worked, outer_->inner_waited_ += waited;
  if (!set_) return;  // it threw
  note_rung(op_, rung_);
  if (!watched_by(Watcher::Ledger)) return;
  std::lock_guard lock(g_ledger_mutex);
  Sums& sums = g_rows[{&op_, rung_, dtype_}];
  ++sums.calls;
  sums.bytes += bytes_;
  sums.worked += worked - inner_worked_;
  sums.waited += waited - inner_waited_;
}

void Entry::add_bytes(uint64_t bytes) {
  if (t_entry) t_entry->bytes_ += bytes;
}

void count_narrowed(c10::ScalarType from, c10::ScalarType to) {
  std::lock_guard lock(g_ledger_mutex);
  ++g_narrowed[{from, to}];
}

std::vector<LedgerRow> read_ledger() {
  std::vector<LedgerRow> rows;
  std::lock_guard lock(g_ledger_mutex);
  std::map<std::pair<const Operator*, Rung>, uint64_t> detailed;
  for (const auto& [key, sums] : g_rows) {
    const char* dtype = key.dtype == c10::ScalarType::Undefined ? "" : c10::toString(key.dtype);
    rows.emplace_back(key.op->name, kRungNames[static_cast<int>(key.rung)], dtype, sums.calls, sums.bytes, sums.worked,
                      sums.waited);
    detailed[{key.op, key.rung}] += sums.calls;
  }
  // Calls that ran while no ledger was open have no dtype.
  for (const Operator* op : operators()) {
    for (int r = 0; r < kRungs; ++r) {
      const uint64_t all = op->calls[r].load(std::memory_order_relaxed);
      const auto it = detailed.find({op, static_cast<Rung>(r)});
      const uint64_t seen = it == detailed.end() ? 0 : it->second;
      if (all > seen) rows.emplace_back(op->name, kRungNames[r], "", all - seen, 0, 0.0, 0.0);
    }
  }
  for (const auto& [pair, calls] : g_narrowed)
    rows.emplace_back(c10::str("narrowed to ", c10::toString(pair.second)), "narrowed", c10::toString(pair.first),
                      calls, 0, 0.0, 0.0);
  return rows;
}

}  // namespace causeway
