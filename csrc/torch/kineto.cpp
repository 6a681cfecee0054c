// torch.profiler's view of the device: an activity profiler of Kineto, which puts the device's work into torch's trace,
// and the stubs of the older profiler (use_kineto=False), which times operators by events around them.
#ifndef USE_KINETO
#define USE_KINETO  // the wheels of torch have it; where a build has not, its factories are never asked
#endif
#define FMT_HEADER_ONLY  // torch has fmt within itself, and exports none of it
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <map>
#include <set>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/profile.h"
#include "runtime/torch_version.h"
#include "runtime/vendor.h"

#if CAUSEWAY_HAS_PROFILER_REGISTRY
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#endif

namespace causeway {

namespace {

using libkineto::ActivityLogger;
using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

// Kineto writes strings of metadata as they are.
std::string plain(std::string s) {
  for (char& c : s)
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) c = '_';
  return s;
}

std::string host_name(const Span& s) {
  switch (s.work) {
    case Work::Kernel:
      return c10::str("launch ", s.name);
    case Work::Copy:
      return "mem_copy";
    case Work::Host:
      return c10::str(s.rung, " rung: ", s.name);
    default:
      return s.name;
  }
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(bool runtime) : runtime_(runtime) {}
  void start() override {
    start_trace();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    if (status_ != libkineto::TraceStatus::RECORDING) return;
    trace_ = stop_trace();
    for (const auto& e : trace_.errors) TORCH_WARN("torch.profiler on ", vendor_name(), ": ", e);
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return trace_.errors; }

  void processTrace(ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }
  void processTrace(ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t start,
                    int64_t end) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start, end, vendor_name());
    buffer_->gpuOpCount = static_cast<int>(trace_.device_spans.size());
    if (runtime_)
      for (const auto& s : trace_.spans) add_host(*s, linked, logger);
    std::map<std::tuple<int, int64_t, uint64_t>, std::pair<int64_t, int64_t>> ranges;  // of a stream
    for (const DeviceSpan& s : trace_.device_spans) {
      add_device(s, linked, logger);
      if (!s.cause->range) continue;
      auto [it, fresh] =
          ranges.try_emplace({s.cause->device, s.cause->stream->id, s.cause->range}, std::pair(s.begin_ns, s.end_ns));
      if (!fresh) it->second.second = std::max(it->second.second, s.end_ns);
    }
    for (const auto& [key, times] : ranges) {
      const auto [device, stream, id] = key;
      const auto* range = linked(static_cast<int32_t>(id));
      if (!range) continue;
      GenericTraceActivity& a = add(ActivityType::GPU_USER_ANNOTATION, range->name(), times.first, times.second);
      a.device = device;
      a.resource = static_cast<int32_t>(stream);
      a.id = static_cast<int32_t>(id);
      a.linked = range;
      a.log(logger);
    }
    logger_ = &logger;
    start_ = start;
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }  // several: see getTraceBuffer
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  // Kineto names the processes 0 to 15 as GPUs of its own, and a later name wins: this is the last that it asks for.
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    std::map<int, std::set<int64_t>> streams;
    for (const DeviceSpan& s : trace_.device_spans) streams[s.cause->device].insert(s.cause->stream->id);
    for (const auto& [index, ids] : streams) {
      if (!logger_) break;
      const std::string label = plain(device(index).info.name);
      logger_->handleDeviceInfo({index, libkineto::kExceedMaxPid + index, device_name(index), label}, start_);
      for (const int64_t id : ids)
        logger_->handleResourceInfo({id, id, index, id ? c10::str("stream ", id) : std::string("default stream")},
                                    start_);
    }
    logger_ = nullptr;
    return std::move(buffer_);
  }
  void pushCorrelationId(uint64_t id) override { push_operation(id); }
  void popCorrelationId() override { pop_operation(); }
  void pushUserCorrelationId(uint64_t id) override { push_range(id); }
  void popUserCorrelationId() override { pop_range(); }

 private:
  GenericTraceActivity& add(ActivityType type, const std::string& name, int64_t begin, int64_t end) {
    buffer_->emplace_activity(buffer_->span, type, plain(name));
    GenericTraceActivity& a = *buffer_->activities.back();
    a.startTime = begin;
    a.endTime = end;
    return a;
  }

  void describe(GenericTraceActivity& a, const Span& s, const libkineto::getLinkedActivityCallback& linked) {
    a.id = static_cast<int32_t>(s.id);
    a.linked = linked(static_cast<int32_t>(s.operation ? s.operation : s.range));
    a.threadId = s.thread;
    a.addMetadata("correlation", s.id);
    if (s.bytes) a.addMetadata("bytes", s.bytes);
    if (s.operator_name) a.addMetadataQuoted("operator", s.operator_name);
    if (s.rung) a.addMetadataQuoted("rung", s.rung);
  }

  void add_host(const Span& s, const libkineto::getLinkedActivityCallback& linked, ActivityLogger& logger) {
    GenericTraceActivity& a = add(ActivityType::PRIVATEUSE1_RUNTIME, host_name(s), s.begin_ns, s.end_ns);
    a.device = libkineto::processId();
    a.resource = s.thread;
    describe(a, s, linked);
    if (s.work == Work::Kernel || s.work == Work::Copy) {
      a.flow.id = static_cast<uint32_t>(s.id);
      a.flow.type = libkineto::kLinkAsyncCpuGpu;
      a.flow.start = true;
    }
    a.log(logger);
  }

  void add_device(const DeviceSpan& d, const libkineto::getLinkedActivityCallback& linked, ActivityLogger& logger) {
    const Span& s = *d.cause;
    const auto type = s.work == Work::Copy ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
    GenericTraceActivity& a = add(type, d.name, d.begin_ns, d.end_ns);
    a.device = s.device;
    a.resource = static_cast<int32_t>(s.stream->id);
    describe(a, s, linked);
    a.addMetadata("device", s.device);
    a.addMetadata("stream", s.stream->id);
    if (s.bytes && d.end_ns > d.begin_ns)
      a.addMetadata("memory bandwidth (GB/s)",
                    static_cast<double>(s.bytes) / static_cast<double>(d.end_ns - d.begin_ns));
    if (runtime_) {
      a.flow.id = static_cast<uint32_t>(s.id);
      a.flow.type = libkineto::kLinkAsyncCpuGpu;
      a.flow.start = false;
    }
    a.log(logger);
  }

  const bool runtime_;
  ActivityLogger* logger_ = nullptr;  // of the trace that is being processed
  int64_t start_ = 0;
  Trace trace_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "causeway";
    return name;
  }
  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                                 ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
    return types;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    if (!types.count(ActivityType::CONCURRENT_KERNEL) || !vendor_loaded()) return nullptr;
    return std::make_unique<Session>(types.count(ActivityType::PRIVATEUSE1_RUNTIME) > 0);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }
};

#if CAUSEWAY_HAS_PROFILER_REGISTRY
using torch::profiler::impl::PrivateUse1ProfilerRegistry;
const bool g_profiler_registered = [] {
  PrivateUse1ProfilerRegistry::instance().registerFactory([] { return std::make_unique<Profiler>(); });
  return true;
}();
#else
const bool g_profiler_registered = [] {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
  return true;
}();
#endif

// Of torch.autograd.profiler.profile(use_device=..., use_kineto=False).
struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* index, torch::profiler::impl::ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    const int current = current_device();
    if (index) *index = static_cast<c10::DeviceIndex>(current);
    Event* e = new_event(current, true);
    *event = std::shared_ptr<void>(e, [](void* p) { destroy_event(static_cast<Event*>(p)); });
    record_event(*e, current_stream(current));
    if (cpu_ns) *cpu_ns = c10::getTime();
  }
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* start,
                const torch::profiler::impl::ProfilerVoidEventStub* end) const override {
    const auto& a = *static_cast<Event*>(start->get());
    const auto& b = *static_cast<Event*>(end->get());
    sync_event(a);
    sync_event(b);
    return static_cast<float>(elapsed_ms(a, b) * 1000.0);  // microseconds
  }
  // Marks for a vendor's own tool: the contract has no entry for them. record_function puts ranges into torch's trace.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return vendor_loaded() && device_count_or_zero() > 0; }
  void onEachDevice(std::function<void(int)> f) const override {
    const int old = current_device();
    for (int i = 0, n = device_count_or_zero(); i < n; ++i) {
      set_device(i);
      f(i);
    }
    set_device(old);
  }
  void synchronize() const override { sync_device(current_device()); }
};

const bool g_stubs = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);  // torch keeps it for the life of the process
  return true;
}();

}  // namespace

}  // namespace causeway
