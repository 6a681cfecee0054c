// One collective under way: what torch waits for, asks and chains to. See comm_backend.h for who makes it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/stream.h"
#include "runtime/thrown.h"

namespace causeway {

// Where a collective is: posted when its results are there, or will be once an event of the device has happened. A
// collective of the host is posted when it is over, one of the vendor as soon as the stream has it.
class CommWork final : public c10d::Work {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;

  struct Task {
    const char* name;  // as torch.distributed has it, "all_reduce"
    c10d::OpType type;
    int device = -1;  // -1: no tensors of a device
    uint64_t sequence = 0;
    Milliseconds timeout{0};
    std::string text;  // for people: what, how much, of which group and rank
  };

  CommWork(Task task, int rank, const char* title, std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs);
  ~CommWork() override;

  const Task& task() const { return task_; }
  Clock::time_point deadline() const { return deadline_; }
  Clock::time_point note_time() const { return note_time_; }

  // The results are there once `done` has happened (at once: nullptr), which this takes over, or `error` says why not.
  // The first call counts.
  void post(Event* done, StreamState* stream, std::exception_ptr error);
  void fail(std::exception_ptr error) { post(nullptr, nullptr, std::move(error)); }
  // Of a posted work: fail after all. The event did not happen in time.
  void spoil(std::exception_ptr error);
  bool posted() const { return posted_; }
  bool over();  // posted, and the event happened
  void set_source(int rank) { source_ = rank; }
  // Keep these until the device has passed the collective.
  void keep(std::vector<at::Tensor> tensors);
  void drop_kept();
  void set_blocking(bool blocking) { blocking_ = blocking; }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override;
  bool wait(Milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return task_.sequence; }

 private:
  void complete(c10::ivalue::Future& future);
  std::vector<at::Tensor> value() const;

  const Task task_;
  const Clock::time_point deadline_, note_time_;
  std::vector<at::Tensor> inputs_, outputs_, kept_;
  std::atomic<bool> posted_{false};
  std::exception_ptr error_;
  Event* done_ = nullptr;
  StreamState* stream_ = nullptr;  // on which the event is
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  int source_ = -1;
  // Set by the vendor's callback when the event has happened; nullptr: the event is asked. Apart from the work, which may
  // be gone by then.
  struct Told {
    std::mutex mutex;
    std::condition_variable cv;
    bool over = false;
  };
  std::shared_ptr<Told> told_;
  bool blocking_ = false;
};

// Several collectives that count as one.
class CommWorks final : public c10d::Work {
 public:
  CommWorks(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works, std::vector<at::Tensor> outputs, int device);
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  std::vector<at::Tensor> outputs_;
  int device_;
};

// A future whose value is `outputs`; its callbacks run in the order of the device's streams.
c10::intrusive_ptr<c10::ivalue::Future> new_future(int device);

// The error that torch.distributed raises for what goes wrong between processes, to be thrown elsewhere.
std::exception_ptr comm_error(const std::string& words);

// Makes `stream` this thread's for its device while it lives.
class OnStream {
 public:
  explicit OnStream(StreamState& stream) : old_(exchange_stream(as_torch(stream))) {}
  ~OnStream() { exchange_stream(old_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  c10::Stream old_;
};

}  // namespace causeway
