// Memory that was released while streams may still use it: it is free when each of them has passed the point of its
// release.
//
// Whether one has is asked of an event, or told by the vendor's stream_callback where `Ask::Told` prefers that. Told is
// for memory of the host: nothing is polled, and it is free at once. For memory of the device an event is better: on
// many chips a callback holds up the stream, and blocks that other streams touched are many in a training loop.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "runtime/stream.h"

namespace causeway {

class Passing {
 public:
  enum class Ask : uint8_t { Events, Told };
  Passing() = default;
  Passing(Passing&&) = default;
  Passing& operator=(Passing&&) = default;

  // Record an event on each stream. Where a vendor fails to, nothing is thrown and nothing is forgotten: such a stream
  // is asked itself later, whether all of its work is done. Gives the first error.
  template <class Streams>
  std::exception_ptr begin(const Streams& streams, Ask ask = Ask::Events) {
    std::exception_ptr error;
    marks_.reserve(streams.size());
    for (StreamState* s : streams) marks_.push_back({s, nullptr, nullptr});
    for (Mark& m : marks_) record(m, ask, error);
    return error;
  }

  // Whether all have passed; `wait`: they will have. Throws what the vendor's query or wait failed with; the stream is
  // then asked in place of the event, so the same failure is reported once.
  bool passed(bool wait);

 private:
  struct Mark {
    StreamState* stream;
    Event* event;  // nullptr: there is none
    std::shared_ptr<std::atomic<bool>> told;  // by a callback; nullptr: there is none
  };
  static void record(Mark& mark, Ask ask, std::exception_ptr& error);
  static bool passed(Mark& mark, bool wait);
  std::vector<Mark> marks_;
};

}  // namespace causeway
