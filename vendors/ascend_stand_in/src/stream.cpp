// A stream is a thread with a queue. An operator, a copy, an event's record and the wait for one are tasks in it.
#include "calls.hpp"
#include "device.hpp"

#include <cstdio>
#include <cstring>
#include <set>

namespace stand_in {
namespace {

constexpr size_t kMostStreams = 1984;
constexpr uint32_t kTimeLine = 8;

std::mutex lock;
std::set<void*>& streams() {
  static auto* all = new std::set<void*>;
  return *all;
}
std::set<void*>& events() {
  static auto* all = new std::set<void*>;
  return *all;
}
int next_id = 1;

std::atomic<const KernelWatch*> kernel_watch{nullptr};

thread_local std::string failure_message;
thread_local const Stream* running = nullptr;

// The first failure is the device's until it is reset; what comes later on it does not run.
void fail(Device* device, Code code, const std::string& message) {
  std::lock_guard<std::mutex> guard(device->lock);
  if (device->failure) return;
  device->message = message;
  device->failure = code;
}

void run(Stream* stream) {
  Device* device = stream->context->device;
  running = stream;
  for (;;) {
    Task task;
    {
      std::unique_lock<std::mutex> hold(stream->lock);
      stream->changed.wait(hold, [&] { return stream->stop || !stream->tasks.empty(); });
      if (stream->tasks.empty()) return;
      task = std::move(stream->tasks.front());
      stream->tasks.pop_front();
      stream->busy = true;
    }
    // Records of events run in any case: who waits for them must not hang.
    bool event = task.name.empty();
    if (event || !device->failure) {
      failure_message.clear();
      Code code = event ? kGood : planted_work(task.name.c_str());
      if (code) failure_message = "fault on demand";
      const int64_t begin = task.number ? steady_ns() : 0;
      if (!code) code = task.work();
      if (const KernelWatch* watch = task.number ? kernel_watch.load() : nullptr)
        watch->ran(task.name, task.number, device->index, stream->id, begin, steady_ns());
      if (code && code != kStreamAborted)
        fail(device, code,
             text("E%d: %s: %s, on stream %d of device %d", code, task.name.c_str(), failure_message.c_str(),
                  stream->id, device->index));
    }
    task.work = nullptr;
    std::lock_guard<std::mutex> hold(stream->lock);
    stream->busy = false;
    stream->aborting = false;
    stream->changed.notify_all();
  }
}

Code failure_of(Device* device) {
  Code code = device->failure;
  if (!code) return kGood;
  std::lock_guard<std::mutex> guard(device->lock);
  set_message(device->message);
  return code;
}

void push(Stream* stream, Task task) {
  std::lock_guard<std::mutex> hold(stream->lock);
  if (!stream->thread.joinable()) {
    stream->thread = std::thread(run, stream);
    // So that who measures a program can leave out what stands for the chip.
    pthread_setname_np(stream->thread.native_handle(), "ascend-stream");
  }
  stream->tasks.push_back(std::move(task));
  stream->changed.notify_all();
}

Code bad_event(const char* who, const void* handle) {
  return refuse(kInvalidHandle, "%s: %p is no event", who, handle);
}

}  // namespace

void watch_kernels(const KernelWatch* watch) { kernel_watch = watch; }

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool aborted() { return running && running->aborting; }

Code broken(Code code, const std::string& message) {
  failure_message = message;
  return code;
}

Stream* new_stream(Context* context, uint32_t priority, uint32_t flags) {
  auto* stream = new Stream;
  stream->context = context;
  stream->priority = priority;
  stream->flags = flags;
  context->device->streams.push_back(stream);
  std::lock_guard<std::mutex> guard(lock);
  stream->id = next_id++;
  streams().insert(stream);
  return stream;
}

void end_stream(Stream* stream, bool force) {
  {
    std::lock_guard<std::mutex> guard(lock);
    streams().erase(stream);
  }
  {
    std::lock_guard<std::mutex> hold(stream->lock);
    if (force) stream->tasks.clear();
    stream->stop = true;
    stream->changed.notify_all();
  }
  if (stream->thread.joinable()) stream->thread.join();
  delete stream;
}

Stream* find_stream(void* handle, Code* code) {
  *code = kGood;
  Context* here = context();
  if (!here) {
    *code = need_context("the stream");
    return nullptr;
  }
  if (!handle) return here->stream;
  bool known;
  {
    std::lock_guard<std::mutex> guard(lock);
    known = streams().count(handle);
  }
  if (!known) {
    *code = refuse(kInvalidHandle, "%p is no stream", handle);
    return nullptr;
  }
  auto* stream = static_cast<Stream*>(handle);
  if (stream->context->device != here->device) {
    *code = refuse(kStreamOfOtherContext, "stream %d is of device %d, this thread's context of device %d", stream->id,
                   stream->context->device->index, here->device->index);
    return nullptr;
  }
  return stream;
}

Event* find_event(void* handle) {
  std::lock_guard<std::mutex> guard(lock);
  return events().count(handle) ? static_cast<Event*>(handle) : nullptr;
}

Code enqueue(void* handle, const char* name, std::function<Code()> work, bool kernel) {
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  const KernelWatch* watch = kernel ? kernel_watch.load() : nullptr;
  return put(stream, {name, std::move(work), watch ? watch->launched() : 0});
}

Code put(Stream* stream, Task task) {
  if (stream->graph) {
    stream->graph->tasks.push_back(std::move(task));
    ++stream->seen[stream];
    return kGood;
  }
  if (Code code = failure_of(stream->context->device)) return code;
  push(stream, std::move(task));
  static bool blocking = number("BLOCKING", 0);
  return blocking ? drain(stream, -1) : kGood;
}

Code wait_for(void* handle) {
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  if (stream->graph) return refuse(kCaptured, "stream %d is in a capture", stream->id);
  return drain(stream, -1);
}

Code drain(Stream* stream, int timeout_ms) {
  std::unique_lock<std::mutex> hold(stream->lock);
  auto idle = [&] { return stream->tasks.empty() && !stream->busy; };
  if (timeout_ms < 0) {
    stream->changed.wait(hold, idle);
  } else if (!stream->changed.wait_for(hold, std::chrono::milliseconds(timeout_ms), idle)) {
    return refuse(kSyncTimeout, "stream %d is not done after %d ms", stream->id, timeout_ms);
  }
  hold.unlock();
  return failure_of(stream->context->device);
}

Code drain_device(Device* device, int timeout_ms) {
  std::vector<Stream*> all;
  {
    std::lock_guard<std::mutex> guard(device->lock);
    all = device->streams;
  }
  for (Stream* stream : all)
    if (Code code = drain(stream, timeout_ms)) return code;
  return failure_of(device);
}

Code capture_forbids(const char* who, Context* context) {
  std::lock_guard<std::mutex> guard(context->device->lock);
  for (Stream* stream : context->device->streams) {
    if (!stream->graph) continue;
    stream->graph->invalid = true;
    stream->graph->why = who;
    return refuse(kCaptured, "%s: stream %d is in a capture; nothing may wait for the device before its end", who,
                  stream->id);
  }
  return kGood;
}

}  // namespace stand_in

using namespace stand_in;

static Code make_stream(const char* who, void** result, uint32_t priority, uint32_t flags) {
  if (Code code = need_context(who)) return code;
  if (!result) return refuse(kInvalidParameter, "%s: the result's place is NULL", who);
  Device* here = context()->device;
  std::lock_guard<std::mutex> guard(here->lock);
  if (here->streams.size() >= kMostStreams)
    return refuse(kNoStream, "%s: device %d has its %zu streams", who, here->index, kMostStreams);
  *result = new_stream(context(), priority, flags);
  return kGood;
}

ENTRY Code aclrtCreateStream(void** result) {
  CALL();
  return make_stream(__func__, result, 0, 0);
}

ENTRY Code aclrtCreateStreamWithConfig(void** result, uint32_t priority, uint32_t flags) {
  CALL();
  return make_stream(__func__, result, priority, flags);
}

static Code destroy_stream(const char* who, void* handle, bool force) {
  if (!handle) return refuse(kInvalidHandle, "%s: the stream is NULL", who);
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  if (stream == stream->context->stream)
    return refuse(kInvalidHandle, "%s: a default stream ends with its context", who);
  if (stream->graph) return refuse(kCaptured, "%s: stream %d is in a capture", who, stream->id);
  Device* device = stream->context->device;
  {
    std::lock_guard<std::mutex> guard(device->lock);
    auto& all = device->streams;
    for (auto at = all.begin(); at != all.end(); ++at)
      if (*at == stream) {
        all.erase(at);
        break;
      }
  }
  end_stream(stream, force);
  return kGood;
}

ENTRY Code aclrtDestroyStream(void* handle) {
  CALL();
  return destroy_stream(__func__, handle, false);
}

ENTRY Code aclrtDestroyStreamForce(void* handle) {
  CALL();
  return destroy_stream(__func__, handle, true);
}

static Code synchronize(const char* who, void* handle, int timeout_ms) {
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  if (stream->graph) {
    stream->graph->invalid = true;
    stream->graph->why = who;
    return refuse(kCaptured, "%s: stream %d is in a capture", who, stream->id);
  }
  return drain(stream, timeout_ms);
}

ENTRY Code aclrtSynchronizeStream(void* handle) {
  CALL();
  return synchronize(__func__, handle, -1);
}

ENTRY Code aclrtSynchronizeStreamWithTimeout(void* handle, int32_t timeout_ms) {
  CALL();
  return synchronize(__func__, handle, timeout_ms);
}

ENTRY Code aclrtSynchronizeDevice(void) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (Code code = capture_forbids(__func__, context())) return code;
  return drain_device(context()->device, -1);
}

ENTRY Code aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (Code code = capture_forbids(__func__, context())) return code;
  return drain_device(context()->device, timeout_ms);
}

ENTRY Code aclrtStreamQuery(void* handle, int* status) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  if (stream->graph) return refuse(kCaptured, "aclrtStreamQuery: stream %d is in a capture", stream->id);
  std::lock_guard<std::mutex> hold(stream->lock);
  *status = stream->tasks.empty() && !stream->busy ? 0 : 1;
  return kGood;
}

// Events are recorded all the same, as after a failure: who waits for them must not hang. The stream's lock is held.
static void drop_tasks(Stream* stream) {
  std::deque<Task> events;
  for (Task& task : stream->tasks)
    if (task.name.empty()) events.push_back(std::move(task));
  stream->tasks.swap(events);
  stream->aborting = stream->busy;
  stream->changed.notify_all();
}

ENTRY Code aclrtStreamAbort(void* handle) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  std::lock_guard<std::mutex> hold(stream->lock);
  drop_tasks(stream);
  return kGood;
}

ENTRY Code aclrtDeviceTaskAbort(int32_t index, uint32_t) {
  CALL();
  Device* here = device(index);
  if (!here) return refuse(kInvalidDevice, "aclrtDeviceTaskAbort: there is no device %d", index);
  std::lock_guard<std::mutex> guard(here->lock);
  for (Stream* stream : here->streams) {
    std::lock_guard<std::mutex> hold(stream->lock);
    drop_tasks(stream);
  }
  return kGood;
}

ENTRY Code aclrtStreamGetId(void* handle, int32_t* id) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  *id = stream->id;
  return kGood;
}

ENTRY Code aclrtStreamGetPriority(void* handle, uint32_t* priority) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  *priority = stream->priority;
  return kGood;
}

ENTRY Code aclrtStreamGetFlags(void* handle, uint32_t* flags) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  *flags = stream->flags;
  return kGood;
}

ENTRY Code aclrtSetStreamFailureMode(void* handle, uint64_t mode) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  stream->stop_at_failure = mode;
  return kGood;
}

ENTRY Code aclrtSetStreamAttribute(void* handle, int, const void*) {
  CALL();
  Code code;
  return find_stream(handle, &code) ? kGood : code;
}

static Code make_event(const char* who, void** result, uint32_t flags) {
  if (Code code = need_context(who)) return code;
  if (!result) return refuse(kInvalidParameter, "%s: the result's place is NULL", who);
  auto* event = new Event;
  event->flags = flags;
  std::lock_guard<std::mutex> guard(lock);
  events().insert(event);
  *result = event;
  return kGood;
}

ENTRY Code aclrtCreateEvent(void** result) {
  CALL();
  return make_event(__func__, result, 1 | kTimeLine);
}

ENTRY Code aclrtCreateEventWithFlag(void** result, uint32_t flags) {
  CALL();
  return make_event(__func__, result, flags);
}

ENTRY Code aclrtCreateEventExWithFlag(void** result, uint32_t flags) {
  CALL();
  return make_event(__func__, result, flags);
}

ENTRY Code aclrtDestroyEvent(void* handle) {
  CALL();
  std::lock_guard<std::mutex> guard(lock);
  if (!events().erase(handle)) return bad_event(__func__, handle);
  delete static_cast<Event*>(handle);
  return kGood;
}

ENTRY Code aclrtRecordEvent(void* handle, void* stream_handle) {
  CALL();
  Event* event = find_event(handle);
  if (!event) return bad_event(__func__, handle);
  Code code;
  Stream* stream = find_stream(stream_handle, &code);
  if (!stream) return code;
  auto record = std::make_shared<Record>();
  {
    std::lock_guard<std::mutex> guard(event->lock);
    event->record = record;
  }
  if (stream->graph) {
    record->graph = stream->graph;
    record->seen = stream->seen;
    return kGood;
  }
  push(stream, {"", [record]() -> Code {
                  std::lock_guard<std::mutex> guard(record->lock);
                  record->done = true;
                  record->when = std::chrono::steady_clock::now();
                  record->changed.notify_all();
                  return kGood;
                }});
  return kGood;
}

static std::shared_ptr<Record> record_of(Event* event) {
  std::lock_guard<std::mutex> guard(event->lock);
  return event->record;
}

ENTRY Code aclrtResetEvent(void* handle, void* stream) {
  CALL();
  Event* event = find_event(handle);
  if (!event) return bad_event(__func__, handle);
  Code code;
  return find_stream(stream, &code) ? kGood : code;
}

ENTRY Code aclrtStreamWaitEvent(void* stream_handle, void* handle) {
  CALL();
  Event* event = find_event(handle);
  if (!event) return bad_event(__func__, handle);
  Context* here = context();
  if (!here) return need_context(__func__);
  Code code;
  Stream* stream = find_stream(stream_handle, &code);
  if (!stream) return code;
  auto record = record_of(event);
  if (!record) return kGood;  // Never recorded: complete.
  if (record->graph) {
    if (stream->graph && stream->graph != record->graph)
      return refuse(kCaptured, "aclrtStreamWaitEvent: the event is of another capture");
    stream->graph = record->graph;  // Joins the capture.
    for (auto& [other, count] : record->seen) stream->seen[other] = std::max(stream->seen[other], count);
    return kGood;
  }
  if (stream->graph)
    return refuse(kCaptured, "aclrtStreamWaitEvent: stream %d is in a capture, the event was recorded outside",
                  stream->id);
  push(stream, {"", [record]() -> Code {
                  std::unique_lock<std::mutex> hold(record->lock);
                  record->changed.wait(hold, [&] { return record->done; });
                  return kGood;
                }});
  return kGood;
}

ENTRY Code aclrtStreamWaitEventWithTimeout(void* stream, void* event, int32_t) {
  CALL();
  return aclrtStreamWaitEvent(stream, event);
}

ENTRY Code aclrtQueryEventStatus(void* handle, int* status) {
  CALL();
  Event* event = find_event(handle);
  if (!event) return bad_event(__func__, handle);
  auto record = record_of(event);
  if (record && record->graph) return refuse(kCaptured, "aclrtQueryEventStatus: the event was recorded in a capture");
  if (!record) {
    *status = 1;
    return kGood;
  }
  std::lock_guard<std::mutex> guard(record->lock);
  *status = record->done ? 1 : 0;
  return kGood;
}

ENTRY Code aclrtQueryEventWaitStatus(void* handle, int* status) {
  CALL();
  int recorded = 0;
  if (Code code = aclrtQueryEventStatus(handle, &recorded)) return code;
  *status = recorded ? 0 : 1;
  return kGood;
}

static Code wait_event(const char* who, void* handle, int timeout_ms) {
  Event* event = find_event(handle);
  if (!event) return bad_event(who, handle);
  if (Code code = need_context(who)) return code;
  auto record = record_of(event);
  if (!record) return kGood;
  if (record->graph) return refuse(kCaptured, "%s: the event was recorded in a capture", who);
  {
    std::unique_lock<std::mutex> hold(record->lock);
    if (timeout_ms < 0)
      record->changed.wait(hold, [&] { return record->done; });
    else if (!record->changed.wait_for(hold, std::chrono::milliseconds(timeout_ms), [&] { return record->done; }))
      return refuse(kSyncTimeout, "%s: not done after %d ms", who, timeout_ms);
  }
  return failure_of(context()->device);
}

ENTRY Code aclrtSynchronizeEvent(void* handle) {
  CALL();
  return wait_event(__func__, handle, -1);
}

ENTRY Code aclrtSynchronizeEventWithTimeout(void* handle, int32_t timeout_ms) {
  CALL();
  return wait_event(__func__, handle, timeout_ms);
}

static Code time_of(const char* who, void* handle, std::chrono::steady_clock::time_point* when) {
  Event* event = find_event(handle);
  if (!event) return bad_event(who, handle);
  if (!(event->flags & kTimeLine))
    return refuse(kNoTimestamp, "%s: the event was made without ACL_EVENT_TIME_LINE", who);
  auto record = record_of(event);
  if (!record) return refuse(kNoTimestamp, "%s: the event was never recorded", who);
  std::lock_guard<std::mutex> guard(record->lock);
  if (!record->done) return refuse(kNoTimestamp, "%s: the event is not complete", who);
  *when = record->when;
  return kGood;
}

ENTRY Code aclrtEventElapsedTime(float* ms, void* start, void* end) {
  CALL();
  std::chrono::steady_clock::time_point from, to;
  if (Code code = time_of(__func__, start, &from)) return code;
  if (Code code = time_of(__func__, end, &to)) return code;
  *ms = std::chrono::duration<float, std::milli>(to - from).count();
  return kGood;
}

ENTRY Code aclrtEventGetTimestamp(void* event, uint64_t* us) {
  CALL();
  std::chrono::steady_clock::time_point when;
  if (Code code = time_of(__func__, event, &when)) return code;
  *us = uint64_t(std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count());
  return kGood;
}

ENTRY Code aclrtLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  CALL();
  if (!function) return refuse(kInvalidParameter, "aclrtLaunchHostFunc: the function is NULL");
  return enqueue(stream, __func__, [=]() -> Code {
    function(data);
    return kGood;
  });
}

// Callbacks run on a thread that the program lends by aclrtProcessReport; here the stream's own calls them.
ENTRY Code aclrtSubscribeReport(uint64_t, void* stream) {
  CALL();
  Code code;
  return find_stream(stream, &code) ? kGood : code;
}

ENTRY Code aclrtUnSubscribeReport(uint64_t, void* stream) {
  CALL();
  Code code;
  return find_stream(stream, &code) ? kGood : code;
}

ENTRY Code aclrtProcessReport(int32_t timeout_ms) {
  CALL();
  std::this_thread::sleep_for(std::chrono::milliseconds(timeout_ms < 0 || timeout_ms > 10 ? 10 : timeout_ms));
  return refuse(507012, "aclrtProcessReport: nothing to report");
}

ENTRY Code aclrtLaunchCallback(void (*function)(void*), void* data, int, void* stream) {
  CALL();
  return aclrtLaunchHostFunc(stream, function, data);
}
