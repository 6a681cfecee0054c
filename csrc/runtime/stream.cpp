#include "runtime/stream.h"

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/kernel_error.h"
#include "runtime/profile.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"
#include "runtime/watched.h"

namespace causeway {

namespace {

constexpr int kPoolSize = 32;  // streams per device and priority, handed out in turn as torch.cuda's are
constexpr int kPriorities = 4; // levels kept apart; a vendor with more has the rest clamped

struct DeviceStreams {
  StreamState main;
  std::array<std::array<std::atomic<StreamState*>, kPoolSize>, kPriorities> pool{};
  std::array<std::atomic<uint32_t>, kPriorities> next{};
  std::deque<StreamState> adopted;  // under g_streams_mutex; their ids follow those of the pool
};
std::array<std::atomic<DeviceStreams*>, kMaxDevices> g_streams{};
std::mutex g_streams_mutex;
thread_local std::array<StreamState*, kMaxDevices> t_current{};

DeviceStreams& streams(int device_index) {
  DeviceStreams* s = g_streams[device_index].load(std::memory_order_acquire);
  if (C10_LIKELY(s != nullptr)) return *s;
  std::lock_guard lock(g_streams_mutex);
  s = g_streams[device_index].load();
  if (!s) {
    s = new DeviceStreams;
    s->main.device = device_index;
    g_streams[device_index].store(s, std::memory_order_release);
  }
  return *s;
}

thread_local double t_waited = 0;

// The time of a wait, where somebody looks.
class Wait {
 public:
  Wait() : on_(watched_by(Watcher::Ledger, Watcher::Observer)) {
    if (on_) start_ = std::chrono::steady_clock::now();
  }
  ~Wait() {
    if (on_) t_waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  bool on_;
  std::chrono::steady_clock::time_point start_;
};

double host_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double waited_seconds() { return t_waited; }

std::atomic<OnWait> g_on_wait{OnWait::Nothing};

namespace {
void before_wait(int device) {
  const OnWait what = g_on_wait.load(std::memory_order_relaxed);
  if (C10_LIKELY(what == OnWait::Nothing)) return;
  const std::string words = c10::str("the host waits for a stream of ", device_name(device));
  if (what == OnWait::Fail)
    fail(Kind::Causeway, words, ", and set_sync_debug_mode(\"error\") forbids it; the stack shows for what");
  TORCH_WARN(words, " (set_sync_debug_mode)");
}
}  // namespace

void StreamState::wait() {
  if (Graph* graph = graph_of(*this); C10_UNLIKELY(graph != nullptr))
    graph->refuse("a wait of the host", "Wait, and read what the device computed, after a replay");
  if (pending()) before_wait(device);
  Wait wait;
  const uint64_t until = given.load(std::memory_order_acquire);
  const DeviceState& d = causeway::device(device);
  Profiled span(Work::Call, api().stream_sync ? "stream_sync" : "sync");
  if (api().stream_sync)
    check(api().stream_sync(d.vendor_id, handle), "stream_sync", device);
  else
    check(api().sync(d.vendor_id), "sync", device);
  span.waited(device, api().stream_sync ? this : nullptr);
  if (C10_UNLIKELY(past_use())) causeway::device(device);  // holds a thread that comes back while the process ends
  uint64_t seen = done.load();
  while (!adopted && seen < until && !done.compare_exchange_weak(seen, until)) {
  }
  raise_kernel_errors(*this);
}

bool StreamState::query() {
  if (Graph* graph = graph_of(*this); C10_UNLIKELY(graph != nullptr))
    graph->refuse("a question whether the stream is done", "Ask after a replay");
  if (!api().stream_query) {
    sync();
    return true;
  }
  const DeviceState& d = causeway::device(device);
  const cw_status status = api().stream_query(d.vendor_id, handle);
  if (status == CW_NOT_READY) return false;
  check(status, "stream_query", device);
  return true;
}

StreamState& default_stream(int device) { return streams(device).main; }

StreamState& current_stream(int device) {
  StreamState* s = t_current[device];
  return C10_LIKELY(s != nullptr) ? *s : streams(device).main;
}

StreamState& stream_of(const c10::Stream& stream) {
  const int index = stream.device_index() < 0 ? current_device() : stream.device_index();
  if (C10_UNLIKELY(index >= device_count())) device(index);  // throws with the words for a bad index
  const c10::StreamId id = stream.id();
  if (id == 0) return streams(index).main;
  const int64_t slot = id - 1;
  if (slot >= 0 && slot < kPriorities * kPoolSize)
    if (StreamState* s = streams(index).pool[slot / kPoolSize][slot % kPoolSize].load(std::memory_order_acquire))
      return *s;
  if (const int64_t place = slot - kPriorities * kPoolSize; place >= 0) {
    DeviceStreams& all = streams(index);
    std::lock_guard lock(g_streams_mutex);
    if (place < static_cast<int64_t>(all.adopted.size())) return all.adopted[place];
  }
  fail(Kind::Causeway, "stream id ", id, " of ", device_name(index),
       " was not made by this process; make one with torch.Stream()");
}

c10::Stream as_torch(const StreamState& s) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(s.device)), s.id);
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  StreamState& next = stream_of(stream);
  StreamState& old = current_stream(next.device);
  t_current[next.device] = &next;
  return as_torch(old);
}

std::pair<int, int> stream_priorities(int device_index) {
  const auto& info = device(device_index).info;
  if (!api().stream_create) return {0, 0};
  return {info.priority_lowest, std::max(info.priority_highest, info.priority_lowest - kPriorities + 1)};
}

StreamState& stream_from_pool(int device_index, int priority) {
  const DeviceState& d = device(device_index);
  DeviceStreams& all = streams(device_index);
  if (!api().stream_create) return all.main;
  // Lower numbers run first, as CUDA has it; level 0 is the lowest priority.
  const auto [lowest, highest] = stream_priorities(device_index);
  const int level = lowest - std::clamp(priority, highest, lowest);
  const uint32_t slot = all.next[level].fetch_add(1) % kPoolSize;
  auto& place = all.pool[level][slot];
  if (StreamState* s = place.load(std::memory_order_acquire)) return *s;
  std::lock_guard lock(g_streams_mutex);
  if (StreamState* s = place.load()) return *s;
  auto s = std::make_unique<StreamState>();
  s->device = device_index;
  s->priority = d.info.priority_lowest - level;
  s->id = 1 + level * kPoolSize + slot;
  check(api().stream_create(d.vendor_id, s->priority, &s->handle), "stream_create", device_index);
  if (!s->handle)
    fail(Kind::Vendor, device_name(device_index),
         ": stream_create gave NULL, which is the default stream. This is a bug of ", vendor_path());
  place.store(s.get(), std::memory_order_release);
  return *s.release();
}

StreamState& adopt_stream(int device_index, cw_stream handle) {
  (void)device(device_index);  // opened
  DeviceStreams& all = streams(device_index);
  if (!handle) return all.main;
  if (!api().stream_create)
    fail(Kind::Causeway, device_name(device_index), ": ", vendor_name(),
         " offers no streams, so there is none to adopt; everything runs on the default stream");
  std::lock_guard lock(g_streams_mutex);
  for (auto& level : all.pool)
    for (auto& place : level)
      if (StreamState* s = place.load(); s && s->handle == handle) return *s;
  for (StreamState& s : all.adopted)
    if (s.handle == handle) return s;
  StreamState& s = all.adopted.emplace_back();
  s.handle = handle;
  s.device = device_index;
  s.id = static_cast<c10::StreamId>(1 + kPriorities * kPoolSize + all.adopted.size() - 1);
  s.adopted = true;
  s.give();
  return s;
}

void sync_device(int device_index) {
  Wait wait;
  const DeviceState& d = device(device_index);
  Profiled span(Work::Call, "sync");
  check(api().sync(d.vendor_id), "sync", device_index);
  span.waited(device_index, nullptr);
  if (C10_UNLIKELY(past_use())) causeway::device(device_index);
  raise_kernel_errors(device_index);
}

bool call_after(StreamState& stream, std::function<void()> function) {
  if (!api().stream_callback) return false;
  auto context = std::make_unique<std::function<void()>>(std::move(function));
  const auto call = [](void* given) {
    const std::unique_ptr<std::function<void()>> taken(static_cast<std::function<void()>*>(given));
    (*taken)();
  };
  const cw_status status = api().stream_callback(device(stream.device).vendor_id, stream.handle, call, context.get());
  if (status == CW_UNSUPPORTED) return false;
  check(status, "stream_callback", stream.device);
  (void)context.release();  // the vendor's until it calls
  return true;
}

Event* new_event(int device_index, bool timing) {
  auto event = std::make_unique<Event>();
  event->device = device_index;
  event->timing = timing;
  if (api().event_create) {
    const DeviceState& d = device(device_index);
    check(api().event_create(d.vendor_id, timing, &event->handle), "event_create", device_index);
  }
  return event.release();
}

namespace {
void destroy_handle(int index, cw_event handle) noexcept {
  try {
    // A failure here has nobody to tell: the event is gone either way, and a lost device says so elsewhere.
    if (handle && !past_use()) (void)api().event_destroy(device(index).vendor_id, handle);
  } catch (...) {
    TORCH_WARN("while an event was destroyed: ", words_of(std::current_exception()));
  }
}
}  // namespace

void destroy_event(Event* event) noexcept {
  if (!event) return;
  if (!event->external) destroy_handle(event->device, event->handle);
  delete event;
}

ExternalEvent::~ExternalEvent() { destroy_handle(device, handle); }

void make_external(Event& event) {
  if (!event.handle)
    fail(Kind::Causeway, "Event(external=True) needs events of the vendor's, and ", vendor_name(), " offers none");
  event.external = std::make_shared<ExternalEvent>(event.device, event.handle);
}

void record_event(Event& event, StreamState& stream) {
  if (event.device != stream.device)
    fail(Kind::Causeway, "an event of ", device_name(event.device), " cannot be recorded on a stream of ",
         device_name(stream.device), "; make the event on the stream's device");
  event.capture = 0;
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph && event.external))
    return graph->use_external(stream, event.external, /*wait=*/false);
  event.recorded = true;
  if (event.external) event.external->recorded = true;
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr)) return graph->record(event, stream);
  if (!event.handle) {
    stream.sync();
    event.ms = host_ms();
    return;
  }
  const DeviceState& d = device(event.device);
  check(api().event_record(d.vendor_id, event.handle, stream.handle), "event_record", event.device);
}

void block_stream(StreamState& stream, const Event& event) {
  if (C10_UNLIKELY(event.external && graph_of(stream)))
    return graph_of(stream)->use_external(stream, event.external, /*wait=*/true);
  if (!event.was_recorded()) return;
  if (C10_UNLIKELY(event.capture || graph_of(stream))) return wait_in_capture(stream, event);
  if (!event.handle) return;
  if (!api().stream_wait) return sync_event(event);
  const DeviceState& d = device(stream.device);
  check(api().stream_wait(d.vendor_id, stream.handle, event.handle), "stream_wait", stream.device);
  stream.give();
}

bool query_event(const Event& event) {
  refuse_captured(event, "a question for");
  if (!event.was_recorded() || !event.handle) return true;
  const cw_status status = api().event_query(device(event.device).vendor_id, event.handle);
  if (status == CW_NOT_READY) return false;
  check(status, "event_query", event.device);
  return true;
}

void sync_event(const Event& event) {
  refuse_captured(event, "a wait of the host for");
  if (!event.was_recorded() || !event.handle) return;
  Wait wait;
  Profiled span(Work::Call, "event_sync");
  check(api().event_sync(device(event.device).vendor_id, event.handle), "event_sync", event.device);
}

double elapsed_ms(const Event& start, const Event& end) {
  if (!start.was_recorded() || !end.was_recorded())
    fail(Kind::Causeway, "elapsed_time needs two recorded events; record() the ",
         start.was_recorded() ? "end" : "start", " event first");
  if (!start.timing || !end.timing) fail(Kind::Causeway, "elapsed_time needs events made with enable_timing=True");
  for (const Event* e : {&start, &end}) refuse_captured(*e, "the time of");
  if (!start.handle) return end.ms - start.ms;
  if (!query_event(start) || !query_event(end))
    fail(Kind::Causeway, "elapsed_time: the work before the events is not done; synchronize() the end event first");
  double ms = 0;
  check(api().event_elapsed(device(start.device).vendor_id, start.handle, end.handle, &ms), "event_elapsed",
        start.device);
  return ms;
}

}  // namespace causeway
