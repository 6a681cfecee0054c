// How long the parts of a step of DistributedDataParallel take on the device, for `_get_ddp_logging_data`. Without a timer
// torch warns in each such program that it has none for this kind of device.
#include <map>
#include <memory>

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "runtime/device.h"
#include "runtime/stream.h"

namespace causeway {

namespace {

class StepTimer final : public c10d::Timer {
 public:
  explicit StepTimer(c10::Device device) : device_(device.has_index() ? device.index() : current_device()) {}

  void record(Event event) override {
    Timer::record(event);  // the host's time
    auto& there = events_[event];
    if (!there) there.reset(new_event(device_, true));
    record_event(*there, current_stream(device_));
  }

  // Waits for `end`: torch asks in some steps only.
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto first = events_.find(start), last = events_.find(end);
    if (first == events_.end() || last == events_.end()) return std::nullopt;
    sync_event(*last->second);
    const double ms = elapsed_ms(*first->second, *last->second);
    // torch's own, for CUDA: an earlier step's event may come after this one's.
    if (ms < 0) return std::nullopt;
    return static_cast<int64_t>(ms * 1e6);
  }

 private:
  struct Destroy {
    void operator()(causeway::Event* e) const noexcept { destroy_event(e); }
  };
  const int device_;
  std::map<Event, std::unique_ptr<causeway::Event, Destroy>> events_;
};

}  // namespace

}  // namespace causeway

namespace c10d {
// The macro names the registry without its namespace.
C10_REGISTER_TYPED_CLASS(TimerRegistry, causeway::kDeviceType, causeway::StepTimer)
}  // namespace c10d
