// What the device does while torch.profiler takes a trace: each kernel and copy that is put on a stream, what the host
// computes in the device's stead, and the calls of the vendor that make the host wait. kineto.cpp hands it to torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/ApproximateClock.h>

#include "runtime/stream.h"
#include "runtime/watched.h"

namespace causeway {

enum class Work : uint8_t {
  Kernel,    // of the vendor, on a stream
  Copy,      // of the vendor, on a stream
  Host,      // an operator on a rung that is the host's: decomposed or host
  HostCopy,  // between host and device, moved by the host itself
  Call,      // of the vendor: a wait, memory
};

// Something that a thread of the host did, and what came of it on the device.
struct Span {
  Work work;
  const char* name;  // lives as long as the process
  const char* operator_name = nullptr;
  const char* rung = nullptr;
  int device = -1;
  StreamState* stream = nullptr;  // that the work was put on
  uint64_t bytes = 0;
  uint64_t id = 0;        // from 1
  uint64_t operation = 0; // torch's number of the operator that runs on this thread, 0: none
  uint64_t range = 0;     // torch's number of the innermost record_function
  int32_t thread = 0;     // the system's number
  c10::approx_time_t begin{}, end{};
  int64_t begin_ns = 0, end_ns = 0;  // since 1970, known when the trace ends
  Event *before = nullptr, *after = nullptr;
  bool dropped = false;
  bool waited = false;  // until the work on `stream`, or on all of `device` where that is null, was over
};

// Something that the device did.
struct DeviceSpan {
  const Span* cause;
  std::string name;
  int64_t begin_ns, end_ns;  // since 1970
};

// One span, from its construction to its end; costs a load where no trace is taken.
class Profiled {
 public:
  Profiled(Work work, const char* name, StreamState* stream = nullptr, uint64_t bytes = 0) {
    if (C10_UNLIKELY(watched_by(Watcher::Trace))) begin(work, name, stream, bytes);
  }
  ~Profiled() {
    if (C10_UNLIKELY(span_ != nullptr)) end();
  }
  Profiled(const Profiled&) = delete;
  Profiled& operator=(const Profiled&) = delete;

  void serves(const char* operator_name, const char* rung) {
    if (C10_UNLIKELY(span_ != nullptr)) span_->operator_name = operator_name, span_->rung = rung;
  }
  // What was put on `stream` of the device, nullptr for all of them, before this span began is over now.
  void waited(int device, StreamState* stream) {
    if (C10_UNLIKELY(span_ != nullptr)) span_->waited = true, span_->device = device, span_->stream = stream;
  }
  // It came to nothing: the vendor declined.
  void drop() {
    if (C10_UNLIKELY(span_ != nullptr)) span_->dropped = true;
  }

 private:
  void begin(Work work, const char* name, StreamState* stream, uint64_t bytes);
  void end() noexcept;
  std::unique_ptr<Span> span_;
};

// A trace, from start to stop. Where the vendor has extension "profile.v1" the device's times are its own, else they
// are those of events around each kernel and copy (where it has no events either, of the host's clock after a wait).
struct Trace {
  std::vector<std::unique_ptr<Span>> spans;
  std::vector<DeviceSpan> device_spans;  // of a stream in order of their begin
  std::vector<std::string> errors;
};
void start_trace();
Trace stop_trace();
extern std::atomic<bool> g_times_of_vendor;  // else of events, also where the vendor has its own

// The operators and ranges that this thread is in, as torch numbers them.
void push_operation(uint64_t id);
void pop_operation();
void push_range(uint64_t id);
void pop_range();

// mem_copy on `stream`, in a trace as what it is. CW_HOST stands for the host, else the vendor's device numbers.
void copy_on(StreamState& stream, void* to, int32_t to_device, const void* from, int32_t from_device, size_t bytes);

}  // namespace causeway
