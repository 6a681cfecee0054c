#include "comm/work.h"

#include <thread>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "runtime/check.h"
#include "runtime/device.h"

namespace causeway {

std::exception_ptr comm_error(const std::string& words) {
  try {
    TORCH_CHECK_WITH(DistBackendError, false, words);
  } catch (...) {
    return std::current_exception();
  }
}

c10::intrusive_ptr<c10::ivalue::Future> new_future(int device) {
  std::vector<c10::Device> devices;
  if (device >= 0) devices.emplace_back(kDeviceType, static_cast<c10::DeviceIndex>(device));
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), std::move(devices));
}

CommWork::CommWork(Task task, int rank, const char* title, std::vector<at::Tensor> inputs,
                   std::vector<at::Tensor> outputs)
    : c10d::Work(rank, task.type, title, std::optional<std::vector<at::Tensor>>(inputs)),
      task_(std::move(task)),
      deadline_(Clock::now() + task_.timeout),
      note_time_(Clock::now() + task_.timeout / 8),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)) {}

CommWork::~CommWork() { destroy_event(done_); }

void CommWork::keep(std::vector<at::Tensor> tensors) {
  std::lock_guard lock(mutex_);
  for (at::Tensor& t : tensors) kept_.push_back(std::move(t));
}

void CommWork::drop_kept() {
  std::vector<at::Tensor> inputs, kept;  // may free memory, which takes locks
  std::lock_guard lock(mutex_);
  inputs.swap(inputs_);
  kept.swap(kept_);
}

void CommWork::post(Event* done, StreamState* stream, std::exception_ptr error) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::function<void()> end;
  {
    std::lock_guard lock(mutex_);
    if (posted_) {
      destroy_event(done);
      return;
    }
    error_ = error;
    done_ = done;
    stream_ = stream;
    if (done && stream && !done->capture) {
      auto told = std::make_shared<Told>();
      const auto tell = [told] {
        std::lock_guard inner(told->mutex);
        told->over = true;
        told->cv.notify_all();
      };
      try {
        if (call_after(*stream, tell)) told_ = std::move(told);
      } catch (const std::exception&) {
        // The event is asked then, and has the words.
      }
    }
    posted_ = true;
    future = future_;
    std::swap(end, recordFunctionEndCallback_);
    cv_.notify_all();
  }
  if (end) end();
  if (future) complete(*future);
}

void CommWork::spoil(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  cv_.notify_all();
  if (!told_) return;
  std::lock_guard inner(told_->mutex);
  told_->cv.notify_all();
}

// Of an all_gather into a list NCCL's future has one tensor, the ranks' parts stacked, and torch's own hooks of
// DistributedDataParallel rely on that. Made only for those who ask for a future; work.result() is the list.
std::vector<at::Tensor> CommWork::value() const {
  const bool even = std::all_of(outputs_.begin(), outputs_.end(),
                                [&](const at::Tensor& t) { return t.sizes() == outputs_[0].sizes(); });
  if (task_.type != c10d::OpType::ALLGATHER || !even) return outputs_;
  at::NoGradGuard no_grad;
  return {at::stack(outputs_)};
}

void CommWork::complete(c10::ivalue::Future& future) {
  if (error_) return future.setErrorIfNeeded(error_);
  if (!stream_) return future.markCompleted(c10::IValue(value()));
  // The future notes how far this thread's streams are.
  OnStream on(*stream_);
  future.markCompleted(c10::IValue(value()));
}

bool CommWork::over() {
  if (!posted_) return false;
  std::lock_guard lock(mutex_);
  if (error_ || !done_ || done_->capture) return true;  // in a graph, whose replays do it
  if (!told_) return query_event(*done_);
  std::lock_guard inner(told_->mutex);
  return told_->over;
}

bool CommWork::isCompleted() { return over(); }

bool CommWork::isSuccess() const {
  std::lock_guard lock(mutex_);
  return posted_ && !error_;
}

std::exception_ptr CommWork::exception() const {
  std::lock_guard lock(mutex_);
  return error_;
}

void CommWork::synchronize() {
  if (!posted_) return;
  {
    std::lock_guard lock(mutex_);
    if (done_ && task_.device >= 0) block_stream(current_stream(task_.device), *done_);
  }
  drop_kept();
}

bool CommWork::wait(Milliseconds timeout) {
  const bool limited = timeout != kNoTimeout && timeout.count() > 0;
  const auto until = Clock::now() + timeout;
  auto late = [&] {
    std::rethrow_exception(comm_error(
        c10::str(task_.text, ": wait(timeout) gave up after ", timeout.count(), " ms; the collective itself goes on")));
  };
  {
    std::unique_lock lock(mutex_);
    auto there = [&] { return posted_.load(); };
    if (!limited)
      cv_.wait(lock, there);
    else if (!cv_.wait_until(lock, until, there))
      late();
  }
  // As torch.cuda's: the host goes on, unless it was asked to wait itself.
  while ((limited || blocking_) && !over()) {
    if (limited && Clock::now() > until) late();
    if (!told_) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      continue;
    }
    // Woken at the end, and looks itself now and then: for an error, a limit, or a device that was lost.
    std::unique_lock lock(told_->mutex);
    told_->cv.wait_for(lock, std::chrono::milliseconds(20), [this] { return told_->over; });
  }
  if (auto error = exception()) std::rethrow_exception(error);
  synchronize();
  return true;
}

void CommWork::abort() { fail(comm_error(task_.text + " was aborted")); }

c10::intrusive_ptr<c10::ivalue::Future> CommWork::getFuture() {
  bool posted;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard lock(mutex_);
    if (future_) return future_;
    future = future_ = new_future(task_.device);
    posted = posted_;
  }
  if (posted) complete(*future);
  return future;
}

CommWorks::CommWorks(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works, std::vector<at::Tensor> outputs,
                     int device)
    : c10d::Work(rank, c10d::OpType::COALESCED),
      works_(std::move(works)),
      outputs_(std::move(outputs)),
      device_(device) {}

bool CommWorks::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](auto& w) { return w->isCompleted(); });
}

bool CommWorks::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](auto& w) { return w->isSuccess(); });
}

std::exception_ptr CommWorks::exception() const {
  for (auto& w : works_)
    if (auto error = w->exception()) return error;
  return nullptr;
}

void CommWorks::synchronize() {
  for (auto& w : works_) w->synchronize();
}

bool CommWorks::wait(std::chrono::milliseconds timeout) {
  for (auto& w : works_) w->wait(timeout);
  return true;
}

void CommWorks::abort() {
  for (auto& w : works_) w->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> CommWorks::getFuture() {
  auto future = new_future(device_);
  if (works_.empty()) {
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }
  struct State {
    std::atomic<size_t> left;
    std::atomic<bool> failed{false};
  };
  auto state = std::make_shared<State>();
  state->left = works_.size();
  for (auto& w : works_)
    w->getFuture()->addCallback([state, future, outputs = outputs_](c10::ivalue::Future& one) {
      if (one.hasError() && !state->failed.exchange(true)) future->setErrorIfNeeded(one.exception_ptr());
      if (--state->left == 0 && !state->failed) future->markCompleted(c10::IValue(outputs));
    });
  return future;
}

}  // namespace causeway
