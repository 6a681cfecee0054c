// Memory that was released while streams may still use it: it is free when each of them has passed the point of its
// release.
#pragma once

#include <exception>
#include <vector>

#include "runtime/stream.h"

namespace causeway {

class Passing {
 public:
  Passing() = default;
  Passing(Passing&&) = default;
  Passing& operator=(Passing&&) = default;

  // Record an event on each stream. Where a vendor fails to, nothing is thrown and nothing is forgotten: such a stream
  // is asked itself later, whether all of its work is done. Gives the first error.
  template <class Streams>
  std::exception_ptr begin(const Streams& streams) {
    std::exception_ptr error;
    marks_.reserve(streams.size());
    for (StreamState* s : streams) marks_.push_back({s, nullptr});
    for (Mark& m : marks_) record(m, error);
    return error;
  }

  // Whether all have passed; `wait`: they will have. Throws what the vendor's query or wait failed with; the stream is
  // then asked in place of the event, so the same failure is reported once.
  bool passed(bool wait);

 private:
  struct Mark {
    StreamState* stream;
    Event* event;  // nullptr: there is none
  };
  static void record(Mark& mark, std::exception_ptr& error);
  static bool passed(Mark& mark, bool wait);
  std::vector<Mark> marks_;
};

}  // namespace causeway
