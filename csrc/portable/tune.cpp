#include "tune.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>

#include "causeway/program_cache.hpp"
#include "gemm.h"
#include "kept.h"
#include "portable.h"

namespace causeway::portable {

namespace {

constexpr double kLeast = 1 << 23;   // multiplications that are worth a measurement
constexpr size_t kRounds = 5;        // measurements of each cut
constexpr double kHopeless = 1.5;    // of the best one's time, after one measurement: not measured again
constexpr double kGain = 0.97;       // of the usual one's time: else that stays
constexpr double kShare = 0.1;       // of the time of the products themselves that trying may add, in mode `passing`
constexpr int kElsewhere = 64;       // calls of other sizes after which another size is measured instead

constexpr const char* kUses[] = {"mm", "bmm", "conv", "conv gradient"};
constexpr const char* kShapes[] = {"small", "tall", "wide", "few", "some", "many"};
constexpr Dtype kTypes[] = {kF16, kBF16, kF32, kF64};
constexpr size_t kClasses = std::size(kTypes) * std::size(kUses) * std::size(kShapes);

std::atomic<TuneMode> g_mode{TuneMode::passing};
std::atomic<int> g_forced{-1};
std::mutex g_folder_mutex;
std::string* g_folder = new std::string;

double now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// What disturbs a measurement only makes it longer, so the shortest one counts.
double least(const std::vector<double>& v) { return v.empty() ? INFINITY : *std::min_element(v.begin(), v.end()); }

// Which shapes want the same cut: a side of at most a tile; else how many squares there are for each unit.
size_t shape_of(const Device& device, const ProductSize& size) {
  constexpr int64_t kThin = 32;
  if (size.m <= kThin || size.n <= kThin) return size.m > kThin ? 1 : size.n > kThin ? 2 : 0;
  const int64_t squares = size.batch * ((size.m + 63) / 64) * ((size.n + 63) / 64);
  const int64_t units = device.info.compute_units;
  return squares < units ? 3 : squares < 8 * units ? 4 : 5;
}

}  // namespace

// What is tried of one class of products.
struct Class {
  std::atomic<int> chosen{-1};
  std::mutex mutex;  // of what follows
  struct Try {
    bool built = false, dropped = false;
    std::vector<double> ms;
  };
  std::vector<Try> tries;
  ProductSize probe{};  // the only size that is measured, until it does not come any more
  int elsewhere = 0;
  double spent = 0, work = 0, build = 0;  // ms: by trying, in products, of one build
  bool busy = false;     // a call is between its constructor and its end
  int pending = -1;      // whose events are on the stream
  cw_event from = nullptr, to = nullptr;
  bool kept = false;     // from the file
  double gain = 1;       // speed, to the usual cut's
};

struct Tuning {
  int32_t device = 0;
  std::vector<Cut> f32, f64;
  std::string key;
  Class classes[kClasses];

  const std::vector<Cut>& cuts(Dtype dtype) const { return dtype == kF64 ? f64 : f32; }
};

namespace {

Class& class_at(Tuning& t, size_t dtype, size_t use, size_t shape) {
  return t.classes[(dtype * std::size(kUses) + use) * std::size(kShapes) + shape];
}

std::string name_at(size_t at) {
  const size_t shape = at % std::size(kShapes), use = at / std::size(kShapes) % std::size(kUses);
  return std::string(name_of(kTypes[at / std::size(kShapes) / std::size(kUses)])) + " " + kUses[use] + " " +
         kShapes[shape];
}

std::string folder() {
  std::lock_guard lock(g_folder_mutex);
  return ProgramCache::folder(g_folder->c_str(), "tune");
}

// What was kept by an earlier process; a line that is not understood is as good as none.
void load(Tuning& t) {
  for (const Kept& line : read_kept(folder(), t.key))
    for (size_t i = 0; i < kClasses; ++i) {
      if (name_at(i) != line.name) continue;
      const auto& cuts = t.cuts(kTypes[i / std::size(kShapes) / std::size(kUses)]);
      for (size_t c = 0; c < cuts.size(); ++c)
        if (cuts[c].text() == line.cut) {
          t.classes[i].gain = line.gain;
          t.classes[i].kept = true;
          t.classes[i].chosen.store(static_cast<int>(c), std::memory_order_release);
        }
    }
}

Tuning& tuning_of(Device& device) {
  if (Tuning* known = device.tuning.load(std::memory_order_acquire)) return *known;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (Tuning* known = device.tuning.load()) return *known;
  auto* made = new Tuning;  // as long as the device
  made->device = device.index;
  made->f32 = cuts_for(device, kF32);
  made->f64 = cuts_for(device, kF64);
  std::string& key = made->key = "causeway tuned cuts 1\n";
  key += services().identity(device.index) + "\n" + device.info.driver + "\n";
  for (const uint64_t word : {uint64_t{device.info.language}, uint64_t{device.info.flags & CW_CODE_IN_TURN},
                              uint64_t{device.info.compute_units}, device.info.local_memory, product_version()})
    key += std::to_string(word) + " ";
  for (const auto* cuts : {&made->f32, &made->f64})
    for (const Cut& c : *cuts) key += c.text() + ";";
  const TuneMode mode = g_mode.load();
  if (mode != TuneMode::off && mode != TuneMode::again) load(*made);
  device.tuning.store(made, std::memory_order_release);
  return *made;
}

void keep(Tuning& t, size_t at, const Class& c, const Cut& cut) {
  const std::string probe = std::to_string(c.probe.batch) + "x" + std::to_string(c.probe.m) + "x" +
                            std::to_string(c.probe.n) + "x" + std::to_string(c.probe.k);
  const std::string where = folder();
  if (where.empty() || write_kept(where, t.key, {name_at(at), cut.text(), probe, c.gain})) return;
  static std::atomic<bool> said{false};
  if (!said.exchange(true))
    services().log(("what was measured of products cannot be kept in " + where +
                    ", so each process measures anew; CAUSEWAY_TUNE_FOLDER names another folder")
                       .c_str());
}

// A measurement is over: note it, and choose once there are enough. The class is locked.
void note(Tuning& t, Class& c, const std::vector<Cut>& cuts, size_t usual, size_t index, double ms) {
  Class::Try& mine = c.tries[index];
  mine.ms.push_back(ms);
  const double usually = least(c.tries[usual].ms);
  if (std::isfinite(usually)) c.spent += std::max(0.0, ms - usually);
  double best = INFINITY;
  for (const Class::Try& one : c.tries) best = std::min(best, least(one.ms));
  bool over = true;
  for (size_t i = 0; i < c.tries.size(); ++i) {
    Class::Try& one = c.tries[i];
    if (!one.ms.empty() && i != usual && least(one.ms) > kHopeless * best) one.dropped = true;
    over &= one.dropped || one.ms.size() >= kRounds;
  }
  if (!over) return;
  size_t chosen = usual;
  for (size_t i = 0; i < c.tries.size(); ++i)
    if (!c.tries[i].dropped && least(c.tries[i].ms) < least(c.tries[chosen].ms)) chosen = i;
  const cw_backend& table = services().table();
  table.event_destroy(t.device, c.from), table.event_destroy(t.device, c.to);
  c.from = c.to = nullptr;
  c.gain = usually / least(c.tries[chosen].ms);
  if (c.gain < 1 / kGain) chosen = usual, c.gain = 1;
  c.chosen.store(static_cast<int>(chosen), std::memory_order_release);
  keep(t, static_cast<size_t>(&c - t.classes), c, cuts[chosen]);
}

// Reads the pending measurement. False: it is not there yet.
bool collect(Tuning& t, Class& c, const std::vector<Cut>& cuts, size_t usual, bool wait) {
  if (c.pending < 0) return true;
  const cw_backend& table = services().table();
  const cw_status status = wait ? table.event_sync(t.device, c.to) : table.event_query(t.device, c.to);
  if (status == CW_NOT_READY) return false;
  double ms = 0;
  const auto index = static_cast<size_t>(c.pending);
  c.pending = -1;
  if (status != CW_OK || table.event_elapsed(t.device, c.from, c.to, &ms) != CW_OK || !(ms > 0)) {
    c.tries[index].dropped = index != usual;
    if (index == usual) c.chosen.store(static_cast<int>(usual));  // there is no measuring here
    return true;
  }
  note(t, c, cuts, usual, index, ms);
  return true;
}

// Which cut this call tries: the usual one first, then those with the fewest measurements. -1: none, for now.
int next_try(const Class& c, size_t usual, bool passing) {
  if (c.tries[usual].ms.empty()) return static_cast<int>(usual);
  int next = -1;
  for (size_t i = 0; i < c.tries.size(); ++i) {
    const Class::Try& one = c.tries[i];
    if (one.dropped || one.ms.size() >= kRounds) continue;
    if (passing && !one.built && c.spent + c.build > kShare * c.work) continue;
    if (next < 0 || one.ms.size() < c.tries[static_cast<size_t>(next)].ms.size()) next = static_cast<int>(i);
  }
  return next;
}

}  // namespace

void set_tune(TuneMode mode, const std::string& folder) {
  g_mode.store(mode);
  std::lock_guard lock(g_folder_mutex);
  *g_folder = folder;
}

void force_cut(int index) { g_forced.store(index); }

void Turn::take(size_t index) {
  index_ = index;
  cut_ = (*cuts_)[index];
  if (cut_.kind == Cut::squares) cut_.parts = static_cast<uint16_t>(parts_of(*call_.device, size_));
}

Turn::Turn(const Call& call, Use use, Dtype dtype, const ProductSize& size) : call_(call), size_(size) {
  tuning_ = &tuning_of(*call.device);
  cuts_ = &tuning_->cuts(dtype);
  if (const int forced = g_forced.load(std::memory_order_relaxed); forced >= 0) {
    take(std::min(static_cast<size_t>(forced), cuts_->size() - 1));
    return;
  }
  const TuneMode mode = g_mode.load(std::memory_order_relaxed);
  const size_t usual = usual_cut(*call.device, *cuts_, size);
  if (mode == TuneMode::off || cuts_->size() == 1) {
    take(usual);
    return;
  }
  const size_t type = dtype == kF16 ? 0 : dtype == kBF16 ? 1 : dtype == kF32 ? 2 : 3;
  Class& c = class_at(*tuning_, type, use, shape_of(*call.device, size));
  if (const int chosen = c.chosen.load(std::memory_order_acquire); chosen >= 0) {
    settled_ = &c;
    take(static_cast<size_t>(chosen));
    return;
  }
  take(usual);
  if (size.multiplications() < kLeast || !services().table().event_create) return;
  std::unique_lock lock(c.mutex, std::try_to_lock);
  if (!lock || c.busy) return;
  const bool passing = mode == TuneMode::passing;
  if (c.tries.empty()) c.tries.resize(cuts_->size()), c.probe = size;
  if (!(c.probe == size)) {
    if (++c.elsewhere < kElsewhere || c.pending >= 0) return;
    c.tries.assign(cuts_->size(), {});
    c.probe = size;
  }
  c.elsewhere = 0;
  if (const double usually = least(c.tries[usual].ms); std::isfinite(usually)) c.work += usually;
  if (!collect(*tuning_, c, *cuts_, usual, !passing)) return;
  if (const int chosen = c.chosen.load(); chosen >= 0) {
    take(static_cast<size_t>(chosen));
    return;
  }
  const int next = next_try(c, usual, passing);
  if (next < 0) return;
  take(static_cast<size_t>(next));
  timed_ = c.tries[index_].built;
  if (timed_ && !c.from &&
      (services().table().event_create(tuning_->device, 1, &c.from) != CW_OK ||
       services().table().event_create(tuning_->device, 1, &c.to) != CW_OK)) {
    c.chosen.store(static_cast<int>(usual));
    {
      take(usual);
      return;
    }
  }
  c.busy = true;
  class_ = &c;
  began_ = now();
}

cw_status Turn::start() {
  if (!class_) return CW_OK;
  if (timed_) return services().table().event_record(tuning_->device, class_->from, call_.stream);
  return CW_OK;
}

cw_status Turn::end() {
  if (!class_) return CW_OK;
  std::lock_guard lock(class_->mutex);
  Class& c = *class_;
  c.busy = false;
  class_ = nullptr;
  if (!timed_) {  // built, and launched for the first time
    const double took = now() - began_;
    c.tries[index_].built = true;
    c.build = std::max(c.build, took);
    if (!c.tries[usual_cut(*call_.device, *cuts_, size_)].ms.empty()) c.spent += took;
    return CW_OK;
  }
  c.pending = static_cast<int>(index_);
  return services().table().event_record(tuning_->device, c.to, call_.stream);
}

bool Turn::refused() {
  const size_t usual = usual_cut(*call_.device, *cuts_, size_);
  if (index_ == usual) return false;
  if (class_) {
    std::lock_guard lock(class_->mutex);
    class_->busy = false;
    class_->tries[index_].dropped = true;
    class_ = nullptr;
  } else if (settled_) {  // what an earlier process kept
    settled_->chosen.store(static_cast<int>(usual), std::memory_order_release);
  } else {
    return false;
  }
  take(usual);
  return true;
}

Turn::~Turn() {
  if (!class_) return;
  std::lock_guard lock(class_->mutex);
  class_->busy = false;
}

std::vector<Tuned> tuned(int32_t index) {
  std::vector<Tuned> list;
  Device* device = device_at(index);
  if (!device) return list;
  Tuning& t = tuning_of(*device);
  for (size_t i = 0; i < kClasses; ++i) {
    Class& c = t.classes[i];
    const int chosen = c.chosen.load(std::memory_order_acquire);
    std::lock_guard lock(c.mutex);
    if (chosen < 0 && c.tries.empty()) continue;
    const auto& cuts = t.cuts(kTypes[i / std::size(kShapes) / std::size(kUses)]);
    size_t measured = 0;
    for (const Class::Try& one : c.tries) measured += one.ms.size();
    list.push_back({name_at(i), chosen < 0 ? "" : cuts[static_cast<size_t>(chosen)].text(),
                    c.kept       ? "kept"
                    : chosen < 0 ? "under way"
                                 : "measured",
                    c.gain, measured});
  }
  return list;
}

uint32_t units(int32_t index) {
  const Device* device = device_at(index);
  return device ? device->info.compute_units : 0;
}

std::vector<std::string> cut_names(int32_t index, bool f64) {
  std::vector<std::string> names;
  if (Device* device = device_at(index))
    for (const Cut& c : cuts_for(*device, f64 ? kF64 : kF32)) names.push_back(c.text());
  return names;
}

}  // namespace causeway::portable
