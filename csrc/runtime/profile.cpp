#include "runtime/profile.h"

#include <ThreadUtil.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/check.h"
#include "runtime/device.h"
#include "portable/portable.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"

namespace causeway {

std::atomic<bool> g_times_of_vendor{true};

namespace {

// The device's clock against the host's, read together.
struct Reading {
  int64_t device_ns = 0, host_ns = 0;
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
  std::optional<c10::ApproximateClockToUnixTimeConverter> converter;
  std::unordered_map<int, Clock> clocks;
  std::unordered_map<int, std::vector<Event*>> spare;  // events to use again, by device
  // Spans that wait for their events, oldest first.
  std::deque<Span*> waiting;
  struct Times {
    double begin_ms, end_ms;
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
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = c10::getTime();
    const int64_t device_ns = read();
    const int64_t took = c10::getTime() - before;
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

// Take the times of spans that are over, so that a long trace does not hold all its events at once.
void collect(Recorder& r, size_t leave) {
  while (r.waiting.size() > leave) {
    Span* span = r.waiting.front();
    if (leave && !query_event(*span->after)) return;
    Event* zero = clock_of(r, span->device).zero;
    r.times[span] = {elapsed_ms(*zero, *span->before), elapsed_ms(*zero, *span->after)};
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
  r.converter.emplace();
  g_epoch.fetch_add(1);
  watch(Watcher::Trace, true);
}

namespace {

void read_events(Recorder& r) {
  collect(r, 0);
  // How far apart the clocks are is known to half of a wait, which is long where threads take turns. But the event after
  // the work was recorded when the host had put the work there: no zero may be earlier than that says.
  std::unordered_map<int, int64_t> zeros;
  for (const auto& [index, clock] : r.clocks) zeros[index] = clock.first.host_ns - clock.first.device_ns;
  for (const auto& span : r.trace.spans)
    if (const auto it = r.times.find(span.get()); it != r.times.end())
      zeros[span->device] = std::max(zeros[span->device], span->end_ns - static_cast<int64_t>(it->second.end_ms * 1e6));
  for (const auto& span : r.trace.spans) {
    const auto it = r.times.find(span.get());
    if (it == r.times.end()) continue;
    const int64_t zero = zeros[span->device];
    const int64_t end = zero + static_cast<int64_t>(it->second.end_ms * 1e6);
    int64_t begin = zero + static_cast<int64_t>(it->second.begin_ms * 1e6);
    // An idle stream comes to the event before the host has put the work there.
    begin = std::max(begin, std::min(span->begin_ns, end));
    r.trace.device_spans.push_back({span.get(), span->name, begin, end});
  }
  for (auto& [index, clock] : r.clocks) destroy_event(clock.zero);
}

void read_vendor(Recorder& r) {
  check(r.vendor->stop(), "profile.v1 stop", -1);
  for (auto& [index, clock] : r.clocks) clock.last = read_clock(*r.vendor, device(index));
  std::unordered_map<uint64_t, const Span*> by_id;
  for (const auto& span : r.trace.spans) by_id[span->id] = span.get();
  std::vector<cw_activity> chunk(1024);
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
      const Clock& clock = clock_of(r, it->second->device);
      auto to_host = [&](int64_t ns) {
        const double length = static_cast<double>(clock.last.device_ns - clock.first.device_ns);
        const double rate = length > 0 ? static_cast<double>(clock.last.host_ns - clock.first.host_ns) / length : 1.0;
        return clock.first.host_ns + static_cast<int64_t>(static_cast<double>(ns - clock.first.device_ns) * rate);
      };
      const int64_t begin = std::max(to_host(a.begin_ns), it->second->begin_ns);  // the clocks agree to a microsecond
      // A portable kernel's function has the name that all have; the call's says more.
      const bool named = a.name && it->second->work == Work::Kernel && std::strcmp(a.name, portable::kFunction) != 0;
      r.trace.device_spans.push_back(
          {it->second, named ? a.name : it->second->name, begin, std::max(begin, to_host(a.end_ns))});
    }
    if (n < chunk.size()) break;
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
  const auto to_unix = r.converter->makeConverter();
  for (const auto& span : r.trace.spans) {
    span->begin_ns = to_unix(span->begin);
    span->end_ns = to_unix(span->end);
  }
  try {
    if (r.vendor)
      read_vendor(r);
    else
      read_events(r);
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
  Profiled span(Work::Copy, name, &stream, bytes);
  check(api().mem_copy(to, to_device, from, from_device, bytes, stream.handle), "mem_copy", stream.device);
  stream.give();
}

}  // namespace causeway
