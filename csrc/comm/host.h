// Collectives that gloo does on the host, for tensors of the device. See comm_host.cpp for how.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/work.h"

namespace causeway {

// Bytes of one tensor of the device that a collective reads or writes.
struct Piece {
  at::Tensor tensor;    // dense: its elements are those of its memory, in order
  at::Tensor original;  // where `tensor` is a copy that must go back there
  bool in = true, out = true;
};

// A piece for a collective in which the same place of each rank's memory meets: any dense tensor will do.
Piece dense_piece(const at::Tensor& t, bool in, bool out);
// A piece for one in which elements change their place: row-major.
Piece contiguous_piece(const at::Tensor& t, bool in, bool out);

using HostTensors = std::vector<at::Tensor>;  // a flat one of the CPU for each piece

struct HostTask {
  std::vector<Piece> pieces;
  // The dtype of the host's tensors; Byte for what is only moved. Undefined: the tensor's own.
  c10::ScalarType view = c10::ScalarType::Undefined;
  // Begin it; what comes back is gloo's work, or nullptr when it is over already.
  std::function<c10::intrusive_ptr<c10d::Work>(HostTensors&)> issue;
  std::function<void(HostTensors&)> after;  // on the host, when gloo is done
  bool in_chunks = false;                   // may run on a part of each piece at a time
};

class CommHost : public std::enable_shared_from_this<CommHost> {
 public:
  using Explain = std::function<std::exception_ptr(const CommWork&, std::exception_ptr)>;

  // `explain` puts an error of gloo's into words that help.
  CommHost(size_t chunk_bytes, Explain explain) : chunk_bytes_(chunk_bytes), explain_(std::move(explain)) {}
  void start(HostTask task, c10::intrusive_ptr<CommWork> work);
  void stop();   // what is queued fails
  void drain();  // until gloo has all of it, so that what comes next is in the same order on all ranks

 private:
  struct Run;
  void issue(const std::shared_ptr<Run>& run);
  void issue_chunks(const std::shared_ptr<Run>& run);
  void follow(const c10::intrusive_ptr<c10d::Work>& work, std::function<void(std::exception_ptr)> then);
  void finish(const std::shared_ptr<Run>& run, std::exception_ptr error);
  void loop();
  void wait_for(std::function<void()> task);  // on a thread that may block
  void waiter();

  const size_t chunk_bytes_;
  const Explain explain_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Run>> queue_;
  bool busy_ = false, stopped_ = false;
  std::thread thread_;

  std::mutex waiters_mutex_;
  std::condition_variable waiters_changed_;
  std::deque<std::function<void()>> waits_;
  std::vector<std::thread> waiters_;
  size_t idle_ = 0;
};

}  // namespace causeway
