#include "runtime/passing.h"

#include <utility>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

// Errors of kernels stay where they are: they belong to the program's next wait, not to whoever needs memory.
bool done(StreamState& stream, bool wait) {
  const DeviceState& d = device(stream.device);
  if (!wait && api().stream_query) {
    const cw_status status = api().stream_query(d.vendor_id, stream.handle);
    if (status == CW_NOT_READY) return false;
    check(status, "stream_query", stream.device);
  } else if (api().stream_sync) {
    check(api().stream_sync(d.vendor_id, stream.handle), "stream_sync", stream.device);
  } else {
    check(api().sync(d.vendor_id), "sync", stream.device);
  }
  return true;
}

}  // namespace

void Passing::record(Mark& mark, Ask ask, std::exception_ptr& error) {
  Event* event = nullptr;
  try {
    if (ask == Ask::Told && api().stream_callback) {
      auto told = std::make_shared<std::atomic<bool>>(false);
      if (call_after(*mark.stream, [told] { told->store(true, std::memory_order_release); }))
        return void(mark.told = std::move(told));
    }
    event = new_event(mark.stream->device, false);
    record_event(*event, *mark.stream);
    mark.event = event;
  } catch (...) {
    destroy_event(event);
    if (!error) error = std::current_exception();
  }
}

bool Passing::passed(Mark& mark, bool wait) {
  if (mark.told) return mark.told->load(std::memory_order_acquire) || (wait && done(*mark.stream, true));
  if (!mark.event) return done(*mark.stream, wait);
  try {
    if (wait)
      sync_event(*mark.event);
    else if (!query_event(*mark.event))
      return false;
  } catch (...) {
    destroy_event(std::exchange(mark.event, nullptr));
    throw;
  }
  destroy_event(std::exchange(mark.event, nullptr));
  return true;
}

bool Passing::passed(bool wait) {
  while (!marks_.empty()) {
    if (!passed(marks_.back(), wait)) return false;
    marks_.pop_back();
  }
  return true;
}

}  // namespace causeway
