#include "runtime/profile.h"

#include <ThreadUtil.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "portable/portable.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"

// Of Kineto's ApproximateClock.h, which torch exports and does not ship: how the times of the trace that ends now become
// those of the trace that is written. A conversion of our own would be another: each is measured anew, and where the host's
// threads take turns two of them are 100 us and more apart, a launch beside its operator.
namespace libkineto {
std::function<c10::time_t(c10::approx_time_t)>& get_time_converter();
}

namespace causeway {

std::atomic<bool> g_times_of_vendor{true};

namespace {

// The device's clock against the host's, read together.
struct Reading {
  int64_t device_ns = 0;
  c10::approx_time_t host{};
};

struct Clock {
  Event* zero = nullptr;  // of events: times are counted from here
  Reading first, last;    // of a vendor's own clock, at both ends of the trace
};

struct Recorder {
  std::mutex mutex;
  uint64_t next = 1;
  const cw_profile_v1* vendor = nullptr;
  Trace trace;
  std::unordered_map<int, Clock> clocks;
  std::unordered_map<int, std::vector<Event*>> spare;  // events to use again, by device
  // Spans that wait for their events, oldest first.
  std::deque<Span*> waiting;
  struct Times {
    double begin_ms, end_ms;
    c10::approx_time_t over;  // the host had been told by then that it was
  };
  std::unordered_map<const Span*, Times> times;
};

Recorder& recorder() {
  static auto& r = *new Recorder;
  return r;
}

std::atomic<uint64_t> g_epoch{0};

struct Nesting {
  uint64_t epoch = 0;
  std::vector<uint64_t> operations, ranges;
};
thread_local Nesting t_nesting;
thread_local bool t_inside = false;  // this thread takes times: what that makes it wait for is not the program's

// Work within work: a kernel that has its output resized copies what was there.
thread_local std::vector<uint64_t> t_correlated;

void correlate(const cw_profile_v1& vendor, int device) {
  check(vendor.correlate(t_correlated.empty() ? 0 : t_correlated.back()), "profile.v1 correlate", device);
}

struct Inside {
  Inside() { t_inside = true; }
  ~Inside() { t_inside = false; }
};

// What an earlier trace left, cut off in the middle of an operator, is not of this one.
Nesting& nesting() {
  const uint64_t epoch = g_epoch.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(t_nesting.epoch != epoch)) {
    t_nesting.operations.clear();
    t_nesting.ranges.clear();
    t_nesting.epoch = epoch;
  }
  return t_nesting;
}

template <class Read>
Reading closest(Read read) {
  Reading best;
  auto shortest = std::numeric_limits<c10::approx_time_t>::max();
  for (int i = 0; i < 5; ++i) {
    const auto before = c10::getApproximateTime();
    const int64_t device_ns = read();
    const auto took = c10::getApproximateTime() - before;
    if (took >= shortest) continue;
    shortest = took;
    best = {device_ns, before + took / 2};
  }
  return best;
}

Reading read_clock(const cw_profile_v1& vendor, const DeviceState& d) {
  return closest([&] {
    int64_t ns = 0;
    check(vendor.clock(d.vendor_id, &ns), "profile.v1 clock", d.index);
    return ns;
  });
}

// The lock is held for what follows.

Clock& clock_of(Recorder& r, int index) {
  if (auto it = r.clocks.find(index); it != r.clocks.end()) return it->second;
  Clock clock;
  DeviceState& d = device(index);
  if (r.vendor) {
    clock.first = read_clock(*r.vendor, d);
  } else {
    // The last of five is the zero; the shortest wait of the five says how far it is from the host's clock.
    StreamState& stream = default_stream(index);
    stream.wait();
    clock.zero = new_event(index, true);
    std::unique_ptr<Event, void (*)(Event*)> other(new_event(index, true), [](Event* e) { destroy_event(e); });
    record_event(*clock.zero, stream);
    sync_event(*clock.zero);
    clock.first = closest([&] {
      record_event(*other, stream);
      sync_event(*other);
      return static_cast<int64_t>(elapsed_ms(*clock.zero, *other) * 1e6);
    });
  }
  return r.clocks.emplace(index, clock).first->second;
}

Event* event_for(Recorder& r, int index) {
  auto& spare = r.spare[index];
  if (spare.empty()) return new_event(index, true);
  Event* e = spare.back();
  spare.pop_back();
  return e;
}

// Take the times of spans that are over, so that a long trace does not hold all its events at once. What is taken last
// was known to be at `over`.
void collect(Recorder& r, size_t leave, c10::approx_time_t over = {}) {
  while (r.waiting.size() > leave) {
    Span* span = r.waiting.front();
    if (leave && !query_event(*span->after)) return;
    Event* zero = clock_of(r, span->device).zero;
    r.times[span] = {elapsed_ms(*zero, *span->before), elapsed_ms(*zero, *span->after),
                     leave ? c10::getApproximateTime() : over};
    auto& spare = r.spare[span->device];
    spare.push_back(span->before);
    spare.push_back(span->after);
    span->before = span->after = nullptr;
    r.waiting.pop_front();
  }
}

constexpr size_t kWaiting = 256;

bool on_device(const Span& s) { return s.work == Work::Kernel || s.work == Work::Copy; }

}  // namespace

void Profiled::begin(Work work, const char* name, StreamState* stream, uint64_t bytes) {
  if (t_inside) return;
  Inside inside;
  auto span = std::make_unique<Span>();
  span->work = work;
  span->name = name;
  span->stream = stream;
  span->bytes = bytes;
  if (stream) span->device = stream->device;
  span->thread = libkineto::systemThreadId();
  const Nesting& n = nesting();
  if (!n.operations.empty()) span->operation = n.operations.back();
  if (!n.ranges.empty()) span->range = n.ranges.back();
  span->begin = c10::getApproximateTime();
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  if (!watched_by(Watcher::Trace)) return;  // it ended meanwhile
  span->id = r.next++;
  try {
    if (on_device(*span)) {
      clock_of(r, span->device);
      if (r.vendor) {
        t_correlated.push_back(span->id);
        correlate(*r.vendor, span->device);
      } else {
        span->before = event_for(r, span->device);
        record_event(*span->before, *stream);
        span->begin = c10::getApproximateTime();  // asking for the event is not the work's
      }
    }
  } catch (const std::exception&) {
    // The work itself has its own way to fail; a trace that lacks a time says so.
    span->before = nullptr;
    r.trace.errors.push_back(c10::str(name, ": ", words_of(std::current_exception())));
  }
  span_ = std::move(span);
}

void Profiled::end() noexcept {
  span_->end = c10::getApproximateTime();
  Inside inside;
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  try {
    if (!t_correlated.empty() && t_correlated.back() == span_->id) {
      t_correlated.pop_back();
      if (r.vendor) correlate(*r.vendor, span_->device);
    }
    if (!watched_by(Watcher::Trace)) return;
    if (span_->dropped) {
      if (span_->before) r.spare[span_->device].push_back(span_->before);
      return;
    }
    if (span_->before) {
      span_->after = event_for(r, span_->device);
      record_event(*span_->after, *span_->stream);
      r.waiting.push_back(span_.get());
      collect(r, kWaiting);
    }
  } catch (const std::exception&) {
    r.trace.errors.push_back(c10::str(span_->name, ": ", words_of(std::current_exception())));
    if (!r.waiting.empty() && r.waiting.back() == span_.get()) r.waiting.pop_back();
  }
  r.trace.spans.push_back(std::move(span_));
}

void start_trace() {
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  r.trace = {};
  r.times.clear();
  r.waiting.clear();
  r.clocks.clear();
  r.next = 1;
  r.vendor = nullptr;
  if (g_times_of_vendor.load()) {
    r.vendor = static_cast<const cw_profile_v1*>(vendor_extension("profile.v1"));
    if (r.vendor && !(r.vendor->clock && r.vendor->start && r.vendor->stop && r.vendor->correlate && r.vendor->read)) {
      TORCH_WARN(vendor_name(), ": its profile.v1 lacks entries. The trace has the times of events in its stead");
      r.vendor = nullptr;
    }
    if (r.vendor)
      if (const cw_status status = r.vendor->start(); status != CW_OK) {
        TORCH_WARN(vendor_name(), ": profile.v1 start failed with ", status_name(status), ": ", last_words(),
                   ". The trace has the times of events in its stead");
        r.vendor = nullptr;
      }
  }
  for (int i = 0; i < kMaxDevices; ++i)
    if (device_opened(i)) clock_of(r, i);
  g_epoch.fetch_add(1);
  watch(Watcher::Trace, true);
}

namespace {

using UnixTime = std::function<c10::time_t(c10::approx_time_t)>;

// When the host knew that work was over: at the end of the first wait that began after its launch, or at the trace's end.
class Waits {
 public:
  Waits(const std::vector<std::unique_ptr<Span>>& spans, int64_t over_ns) : over_ns_(over_ns) {
    for (const auto& span : spans)
      if (span->waited) of_[{span->device, span->stream}].push_back({span->begin_ns, span->end_ns});
    for (auto& [place, waits] : of_) {
      std::sort(waits.begin(), waits.end());
      for (size_t i = waits.size() - 1; i-- > 0;) waits[i].second = std::min(waits[i].second, waits[i + 1].second);
    }
  }
  int64_t over_ns(const Span& work) const { return std::min(first(work, work.stream), first(work, nullptr)); }

 private:
  int64_t first(const Span& work, const StreamState* stream) const {
    const auto it = of_.find({work.device, stream});
    if (it == of_.end()) return over_ns_;
    const auto wait = std::lower_bound(it->second.begin(), it->second.end(), std::pair{work.end_ns, int64_t{0}});
    return wait == it->second.end() ? over_ns_ : wait->second;
  }
  int64_t over_ns_;
  std::map<std::pair<int, const StreamState*>, std::vector<std::pair<int64_t, int64_t>>> of_;  // (begin, first end)
};

// How far apart two clocks are. One reading says it to half of what the reading took, which is long where threads take
// turns. The work says more: none begins before its launch, and all is over when the host has been told so.
struct Bounds {
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  void no_less(int64_t ns) { low = std::max(low, ns); }
  void no_more(int64_t ns) { high = std::min(high, ns); }
  // Where a clock drifts so that no number serves, the launch counts.
  int64_t nearest(int64_t ns) const { return std::max(low, std::min(ns, high)); }
};

void read_events(Recorder& r, c10::approx_time_t over, const Waits& waits, const UnixTime& unix_ns) {
  collect(r, 0, over);
  auto ns = [](double ms) { return static_cast<int64_t>(ms * 1e6); };
  std::unordered_map<int, Bounds> bounds;
  std::unordered_map<int, int64_t> zeros;
  for (const auto& [span, times] : r.times) {
    Bounds& b = bounds[span->device];
    b.no_less(span->end_ns - ns(times.end_ms));  // the event after the work was recorded when the work was launched
    b.no_more(std::min(unix_ns(times.over), waits.over_ns(*span)) - ns(times.end_ms));
  }
  for (const auto& [index, clock] : r.clocks)
    zeros[index] = bounds[index].nearest(unix_ns(clock.first.host) - clock.first.device_ns);
  for (const auto& span : r.trace.spans) {
    const auto it = r.times.find(span.get());
    if (it == r.times.end()) continue;
    const int64_t zero = zeros[span->device];
    const int64_t end = zero + ns(it->second.end_ms);
    int64_t begin = zero + ns(it->second.begin_ms);
    // An idle stream comes to the event before the host has put the work there.
    begin = std::max(begin, std::min(span->begin_ns, end));
    r.trace.device_spans.push_back({span.get(), span->name, begin, end});
  }
  for (auto& [index, clock] : r.clocks) destroy_event(clock.zero);
}

void read_vendor(Recorder& r, const Waits& waits, const UnixTime& unix_ns) {
  check(r.vendor->stop(), "profile.v1 stop", -1);
  for (auto& [index, clock] : r.clocks) clock.last = read_clock(*r.vendor, device(index));
  std::unordered_map<uint64_t, const Span*> by_id;
  for (const auto& span : r.trace.spans) by_id[span->id] = span.get();
  std::vector<cw_activity> chunk(1024);
  struct Activity {
    const Span* cause;
    const char* name;
    int64_t begin_ns, end_ns;  // by the readings of the clock
  };
  std::vector<Activity> all;
  std::unordered_map<int, Bounds> bounds;
  uint64_t lost = 0;
  for (;;) {
    uint32_t n = 0;
    check(r.vendor->read(chunk.data(), static_cast<uint32_t>(chunk.size()), &n), "profile.v1 read", -1);
    for (uint32_t i = 0; i < n; ++i) {
      const cw_activity& a = chunk[i];
      const auto it = by_id.find(a.correlation);
      if (it == by_id.end()) {
        ++lost;  // of a span that was dropped, or the vendor's own
        continue;
      }
      const Span* cause = it->second;
      const Clock& clock = clock_of(r, cause->device);
      auto to_host = [&](int64_t ns) {
        const double length = static_cast<double>(clock.last.device_ns - clock.first.device_ns);
        const int64_t first_ns = unix_ns(clock.first.host);
        const double rate = length > 0 ? static_cast<double>(unix_ns(clock.last.host) - first_ns) / length : 1.0;
        return first_ns + static_cast<int64_t>(static_cast<double>(ns - clock.first.device_ns) * rate);
      };
      // A portable kernel's function has the name that all have; the call's says more.
      const bool named = a.name && cause->work == Work::Kernel && std::strcmp(a.name, portable::kFunction) != 0;
      all.push_back({cause, named ? a.name : cause->name, to_host(a.begin_ns), to_host(a.end_ns)});
      bounds[cause->device].no_less(cause->begin_ns - all.back().begin_ns);
      bounds[cause->device].no_more(waits.over_ns(*cause) - all.back().end_ns);
    }
    if (n < chunk.size()) break;
  }
  for (const Activity& a : all) {
    const int64_t late = bounds[a.cause->device].nearest(0);
    r.trace.device_spans.push_back({a.cause, a.name, a.begin_ns + late, std::max(a.begin_ns, a.end_ns) + late});
  }
  if (lost) r.trace.errors.push_back(c10::str(lost, " activities of the device are of no known call and are left out"));
}

}  // namespace

Trace stop_trace() {
  watch(Watcher::Trace, false);
  for (int i = 0; i < kMaxDevices; ++i)
    if (device_opened(i)) sync_device(i);
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  const auto over = c10::getApproximateTime();
  const UnixTime unix_ns = libkineto::get_time_converter();
  // A host of traces that set none would put the device's work beside everything else.
  if (std::abs(unix_ns(over) - c10::getTime()) > 1'000'000'000)
    r.trace.errors.push_back("torch has no conversion of this trace's times: the device's work is not where it was");
  for (const auto& span : r.trace.spans) {
    span->begin_ns = unix_ns(span->begin);
    span->end_ns = unix_ns(span->end);
  }
  const Waits waits(r.trace.spans, unix_ns(over));
  try {
    if (r.vendor)
      read_vendor(r, waits, unix_ns);
    else
      read_events(r, over, waits, unix_ns);
  } catch (const std::exception&) {
    r.trace.errors.push_back(c10::str("the device's times could not be read: ", words_of(std::current_exception())));
  }
  std::stable_sort(r.trace.device_spans.begin(), r.trace.device_spans.end(),
                   [](const DeviceSpan& a, const DeviceSpan& b) { return a.begin_ns < b.begin_ns; });
  r.clocks.clear();
  return std::move(r.trace);
}

void push_operation(uint64_t id) { nesting().operations.push_back(id); }
void pop_operation() {
  if (auto& all = nesting().operations; !all.empty()) all.pop_back();
}
void push_range(uint64_t id) { nesting().ranges.push_back(id); }
void pop_range() {
  if (auto& all = nesting().ranges; !all.empty()) all.pop_back();
}

void copy_on(StreamState& stream, void* to, int32_t to_device, const void* from, int32_t from_device, size_t bytes) {
  const char* name = to_device == CW_HOST       ? "Memcpy DtoH"
                     : from_device == CW_HOST   ? "Memcpy HtoD"
                     : to_device == from_device ? "Memcpy DtoD"
                                                : "Memcpy PtoP";
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr)) {
    graph->add(stream, copy_step(name, to, to_device, from, from_device, bytes));
    return stream.give();
  }
  Profiled span(Work::Copy, name, &stream, bytes);
  check(api().mem_copy(to, to_device, from, from_device, bytes, stream.handle), "mem_copy", stream.device);
  stream.give();
}

}  // namespace causeway
