#include "portable/tune.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>

#include "causeway/program_cache.hpp"
#include "portable/kernels/gemm.h"
#include "portable/kept.h"
#include "portable/portable.h"

namespace causeway::portable {

namespace {

constexpr double kLeast = 1 << 23;   // multiplications that are worth a measurement; or four bytes each of memory
constexpr size_t kRounds = 5;        // measurements of each cut
constexpr double kHopeless = 1.5;    // of the best one's time, after one measurement: not measured again
constexpr double kGain = 0.97;       // of the usual one's time: else that stays
constexpr double kShare = 0.1;       // of the time of the products themselves that trying may add, in mode `passing`
constexpr size_t kAside = 64;        // functions and sizes of a loop that are measured side by side
constexpr int kElsewhere = 64;       // calls of other sizes after which another size is measured instead

constexpr const char* kUses[] = {"mm", "bmm", "conv", "conv gradient"};
constexpr const char* kShapes[] = {"small", "tall", "wide", "few", "some", "many"};
constexpr Dtype kTypes[] = {kF16, kBF16, kF32, kF64};
constexpr const char* kLoops[] = {"elements", "long rows", "rows"};
constexpr size_t kProducts = std::size(kTypes) * std::size(kUses) * std::size(kShapes);
constexpr size_t kClasses = kProducts + std::size(kLoops);
static_assert(kPastCaches == int64_t{4} << 23);

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
  struct Probe {
    ProductSize size{};
    cw_function function = nullptr;  // of loops
    std::vector<Try> tries;
  };
  Probe probe;  // what is measured: of products the only size, until it does not come any more
  std::vector<Probe> aside;  // of loops, where each cut is free: others under way
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
  std::vector<Cut> f32, f64, orders;
  std::string key;
  Class classes[kClasses];

  const std::vector<Cut>& cuts(Dtype dtype) const { return dtype == kF64 ? f64 : f32; }
  const std::vector<Cut>& cuts_at(size_t at) const {
    return at >= kProducts ? orders : cuts(kTypes[at / std::size(kShapes) / std::size(kUses)]);
  }
};

namespace {

Class& class_at(Tuning& t, size_t dtype, size_t use, size_t shape) {
  return t.classes[(dtype * std::size(kUses) + use) * std::size(kShapes) + shape];
}

std::string name_at(size_t at) {
  if (at >= kProducts) return kLoops[at - kProducts];
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
      const auto& cuts = t.cuts_at(i);
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
  made->orders = orders();
  std::string& key = made->key = "causeway tuned cuts 2\n";
  key += services().identity(device.index) + "\n" + device.info.driver + "\n";
  for (const uint64_t word : {uint64_t{device.info.language}, uint64_t{device.info.flags & CW_CODE_IN_TURN},
                              uint64_t{device.info.compute_units}, device.info.local_memory, product_version()})
    key += std::to_string(word) + " ";
  for (const auto* cuts : {&made->f32, &made->f64, &made->orders})
    for (const Cut& c : *cuts) key += c.text() + ";";
  const TuneMode mode = g_mode.load();
  if (mode != TuneMode::off && mode != TuneMode::again) load(*made);
  device.tuning.store(made, std::memory_order_release);
  return *made;
}

void keep(Tuning& t, size_t at, const Class& c, const Cut& cut) {
  const std::string probe = std::to_string(c.probe.size.batch) + "x" + std::to_string(c.probe.size.m) + "x" +
                            std::to_string(c.probe.size.n) + "x" + std::to_string(c.probe.size.k);
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
  Class::Try& mine = c.probe.tries[index];
  mine.ms.push_back(ms);
  const double usually = least(c.probe.tries[usual].ms);
  if (std::isfinite(usually)) c.spent += std::max(0.0, ms - usually);
  double best = INFINITY;
  for (const Class::Try& one : c.probe.tries) best = std::min(best, least(one.ms));
  bool over = true;
  for (size_t i = 0; i < c.probe.tries.size(); ++i) {
    Class::Try& one = c.probe.tries[i];
    if (!one.ms.empty() && i != usual && least(one.ms) > kHopeless * best) one.dropped = true;
    over &= one.dropped || one.ms.size() >= kRounds;
  }
  if (!over) return;
  size_t chosen = usual;
  for (size_t i = 0; i < c.probe.tries.size(); ++i)
    if (!c.probe.tries[i].dropped && least(c.probe.tries[i].ms) < least(c.probe.tries[chosen].ms)) chosen = i;
  const cw_backend& table = services().table();
  table.event_destroy(t.device, c.from), table.event_destroy(t.device, c.to);
  c.from = c.to = nullptr;
  c.gain = usually / least(c.probe.tries[chosen].ms);
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
    c.probe.tries[index].dropped = index != usual;
    if (index == usual) c.chosen.store(static_cast<int>(usual));  // there is no measuring here
    return true;
  }
  note(t, c, cuts, usual, index, ms);
  return true;
}

// Measures something else, from here on or further.
void turn_to(Class& c, Class::Probe probe) {
  if (probe.function) {
    const auto known = std::find_if(c.aside.begin(), c.aside.end(), [&](const Class::Probe& other) {
      return other.function == probe.function && other.size == probe.size;
    });
    if (known != c.aside.end()) {
      std::swap(c.probe, *known);
      return;
    }
    if (c.aside.size() == kAside) c.aside.erase(c.aside.begin());
    if (!c.probe.tries.empty()) c.aside.push_back(std::move(c.probe));
  }
  c.probe = std::move(probe);
}

// Which cut this call tries: the usual one first, then those with the fewest measurements. -1: none, for now.
int next_try(const Class& c, size_t usual, bool passing) {
  if (c.probe.tries[usual].ms.empty()) return static_cast<int>(usual);
  int next = -1;
  for (size_t i = 0; i < c.probe.tries.size(); ++i) {
    const Class::Try& one = c.probe.tries[i];
    if (one.dropped || one.ms.size() >= kRounds) continue;
    if (passing && !one.built && c.spent + c.build > kShare * c.work) continue;
    if (next < 0 || one.ms.size() < c.probe.tries[static_cast<size_t>(next)].ms.size()) next = static_cast<int>(i);
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
bool cut_is_forced() { return g_forced.load(std::memory_order_relaxed) >= 0; }

void Turn::take(size_t index) {
  index_ = index;
  cut_ = (*cuts_)[index];
  if (cut_.kind == Cut::squares) cut_.parts = static_cast<uint16_t>(parts_of(*call_.device, size_));
}

Turn::Turn(const KernelCall& call, Use use, Dtype dtype, const ProductSize& size) : call_(call), size_(size) {
  tuning_ = &tuning_of(*call.device);
  cuts_ = &tuning_->cuts(dtype);
  const size_t type = dtype == kF16 ? 0 : dtype == kBF16 ? 1 : dtype == kF32 ? 2 : 3;
  begin(class_at(*tuning_, type, use, shape_of(*call.device, size)), nullptr);
}

Turn::Turn(const KernelCall& call, Loop loop, cw_function function, int64_t bytes)
    : call_(call), size_{1, 1, 1, bytes / 4} {
  tuning_ = &tuning_of(*call.device);
  cuts_ = &tuning_->orders;
  begin(tuning_->classes[kProducts + loop], function);
}

void Turn::begin(Class& c, cw_function function) {
  if (const int forced = g_forced.load(std::memory_order_relaxed); forced >= 0) {
    take(std::min(static_cast<size_t>(forced), cuts_->size() - 1));
    return;
  }
  const TuneMode mode = g_mode.load(std::memory_order_relaxed);
  const size_t usual = usual_cut(*call_.device, *cuts_, size_);
  if (mode == TuneMode::off || cuts_->size() == 1) {
    take(usual);
    return;
  }
  if (const int chosen = c.chosen.load(std::memory_order_acquire); chosen >= 0) {
    settled_ = &c;
    take(static_cast<size_t>(chosen));
    return;
  }
  take(usual);
  if (size_.multiplications() < kLeast || !services().table().event_create || services().recording()) return;
  std::unique_lock lock(c.mutex, std::try_to_lock);
  if (!lock || c.busy) return;
  const bool passing = mode == TuneMode::passing;
  if (!collect(*tuning_, c, *cuts_, usual, !passing)) return;
  if (const int chosen = c.chosen.load(); chosen >= 0) {
    take(static_cast<size_t>(chosen));
    return;
  }
  if (c.probe.tries.empty() || !(c.probe.size == size_) || c.probe.function != function) {
    if (!function && !c.probe.tries.empty() && ++c.elsewhere < kElsewhere) return;
    turn_to(c, {size_, function, std::vector<Class::Try>(cuts_->size(), {function != nullptr, false, {}})});
  }
  c.elsewhere = 0;
  if (const double usually = least(c.probe.tries[usual].ms); std::isfinite(usually)) c.work += usually;
  const int next = next_try(c, usual, passing);
  if (next < 0) return;
  take(static_cast<size_t>(next));
  timed_ = c.probe.tries[index_].built;
  if (timed_ && !c.from &&
      (services().table().event_create(tuning_->device, 1, &c.from) != CW_OK ||
       services().table().event_create(tuning_->device, 1, &c.to) != CW_OK)) {
    c.chosen.store(static_cast<int>(usual));
    take(usual);
    return;
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
    c.probe.tries[index_].built = true;
    c.build = std::max(c.build, took);
    if (!c.probe.tries[usual_cut(*call_.device, *cuts_, size_)].ms.empty()) c.spent += took;
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
    class_->probe.tries[index_].dropped = true;
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
    if (chosen < 0 && c.probe.tries.empty()) continue;
    const auto& cuts = t.cuts_at(i);
    size_t measured = 0;
    for (const Class::Try& one : c.probe.tries) measured += one.ms.size();
    for (const Class::Probe& probe : c.aside)
      for (const Class::Try& one : probe.tries) measured += one.ms.size();
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
