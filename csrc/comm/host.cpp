// A collective of the host begins when the device's stream has come to it. Where nothing is pending on the stream it
// begins in the caller's thread, else a thread of its own waits for the stream and the caller goes on; either way in
// the order of the calls, which is how gloo knows which of its collectives belong together.
//
// Where the host can address device memory gloo works on the tensors' own bytes. Where not, they pass through pinned
// memory: large ones in chunks, so that the device copies the next while gloo sends this one.
#include "comm/host.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/from_blob.h>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/host_allocator.h"
#include "runtime/profile.h"

namespace causeway {

namespace {

at::Tensor host_view(void* data, int64_t bytes, c10::ScalarType dtype, std::shared_ptr<void> keep) {
  const int64_t n = bytes / static_cast<int64_t>(c10::elementSize(dtype));
  return at::from_blob(data, {n}, [keep = std::move(keep)](void*) {}, at::TensorOptions().dtype(dtype));
}

// Refused before any rank does something: copied back at the end, it would fail for one rank after all have met.
void check_writable(const at::Tensor& t) {
  TORCH_CHECK_VALUE(
      at::has_internal_overlap(t) != at::MemOverlap::Yes,
      "torch.distributed cannot write into a tensor whose elements share memory, as those of expand() do (", "sizes ",
      t.sizes(), ", strides ", t.strides(), "); give it a clone()");
}

}  // namespace

Piece dense_piece(const at::Tensor& t, bool in, bool out) {
  if (out) check_writable(t);
  if (t.is_non_overlapping_and_dense() && !t.is_conj() && !t.is_neg()) return {t.detach(), {}, in, out};
  return {t.detach().clone(at::MemoryFormat::Contiguous), out ? t.detach() : at::Tensor(), in, out};
}

Piece contiguous_piece(const at::Tensor& t, bool in, bool out) {
  if (out) check_writable(t);
  if (t.is_contiguous() && !t.is_conj() && !t.is_neg()) return {t.detach(), {}, in, out};
  return {t.detach().clone(at::MemoryFormat::Contiguous), out ? t.detach() : at::Tensor(), in, out};
}

struct CommHost::Run {
  struct Place {
    char* device = nullptr;  // address on the device
    size_t bytes = 0;
    at::Tensor host;  // all of it, flat
  };
  HostTask task;
  c10::intrusive_ptr<CommWork> work;
  int device = -1;
  Event* ready = nullptr;
  std::vector<Place> places;
  HostTensors host;
  bool staged = false;
  StreamState* out = nullptr;  // for copies back
  std::atomic<int64_t> left{1};
  std::mutex mutex;
  std::exception_ptr error;
  ~Run() { destroy_event(ready); }

  void prepare() {
    if (device < 0) return;
    DeviceState& d = causeway::device(device);
    staged = !d.host_addressable;
    if (staged) out = &stream_from_pool(device, d.info.priority_lowest);
    for (Piece& p : task.pieces) {
      Place place;
      place.bytes = p.tensor.nbytes();
      place.device = static_cast<char*>(place.bytes ? p.tensor.mutable_data_ptr() : nullptr);
      const auto dtype = task.view == c10::ScalarType::Undefined ? p.tensor.scalar_type() : task.view;
      if (staged) {
        auto memory = std::make_shared<c10::DataPtr>(pinned_allocator()->allocate(place.bytes));
        place.host = host_view(memory->get(), place.bytes, dtype, memory);
      } else {
        place.host = host_view(place.device, place.bytes, dtype, std::make_shared<at::Tensor>(p.tensor));
      }
      host.push_back(place.host);
      places.push_back(std::move(place));
    }
  }

  // Bytes [begin, end) of each piece that is read or written.
  void copy(bool to_host, size_t begin, size_t end, StreamState& stream) {
    const int32_t id = causeway::device(device).vendor_id;
    for (size_t i = 0; i < places.size(); ++i) {
      const Piece& p = task.pieces[i];
      Place& place = places[i];
      const size_t last = std::min(end, place.bytes);
      if (!(to_host ? p.in : p.out) || begin >= last) continue;
      char* host_data = static_cast<char*>(place.host.mutable_data_ptr());
      if (to_host) {
        copy_on(stream, host_data + begin, CW_HOST, place.device + begin, id, last - begin);
      } else {
        copy_on(stream, place.device + begin, id, host_data + begin, CW_HOST, last - begin);
        record_pinned(host_data, stream);
      }
    }
  }

  // Results that were put into a copy.
  bool put_back() {
    bool any = false;
    for (Piece& p : task.pieces)
      if (p.original.defined() && p.out) p.original.copy_(p.tensor.view(p.original.sizes())), any = true;
    return any;
  }
};

void CommHost::start(HostTask task, c10::intrusive_ptr<CommWork> work) {
  auto run = std::make_shared<Run>();
  run->task = std::move(task);
  run->work = std::move(work);
  run->device = run->work->task().device;
  run->prepare();
  std::unique_lock lock(mutex_);
  if (stopped_) {
    lock.unlock();
    return run->work->fail(comm_error(run->work->task().text + ": the process group was shut down or aborted"));
  }
  bool direct = queue_.empty() && !busy_ && !(run->staged && run->task.in_chunks);
  if (run->device >= 0) {
    StreamState& stream = current_stream(run->device);
    if (!direct || !stream.query()) {
      direct = false;
      run->ready = new_event(run->device, false);
      record_event(*run->ready, stream);
    }
  }
  if (direct) {
    // Under the lock: another thread's collective must not overtake this one.
    return issue(run);
  }
  queue_.push_back(std::move(run));
  if (!thread_.joinable()) thread_ = std::thread([self = shared_from_this()] { self->loop(); });
  changed_.notify_all();
}

void CommHost::loop() {
  at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
    if (stopped_) return;
    auto run = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    try {
      if (run->ready) sync_event(*run->ready);
      issue(run);
    } catch (...) {
      run->work->fail(std::current_exception());
    }
    run.reset();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void CommHost::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || (queue_.empty() && !busy_); });
}

void CommHost::stop() {
  std::deque<std::shared_ptr<Run>> dropped;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(queue_);
    changed_.notify_all();
  }
  for (auto& run : dropped)
    run->work->fail(comm_error(run->work->task().text + ": the process group was shut down or aborted"));
  // A thread that waits for a device or a peer that never answers must not be waited for in its turn.
  auto leave = [](std::thread& t) {
    if (t.joinable()) t.detach();
  };
  {
    std::unique_lock lock(mutex_);
    for (int i = 0; busy_ && i < 200; ++i) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      lock.lock();
    }
    if (busy_) {
      leave(thread_);
    } else {
      lock.unlock();
      if (thread_.joinable()) thread_.join();
    }
  }
  std::unique_lock lock(waiters_mutex_);
  waits_.clear();
  waiters_changed_.notify_all();
  for (int i = 0; idle_ < waiters_.size() && i < 200; ++i) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    lock.lock();
  }
  const bool all = idle_ == waiters_.size();
  std::vector<std::thread> threads;
  threads.swap(waiters_);
  lock.unlock();
  for (std::thread& t : threads) all ? t.join() : leave(t);
}

// gloo's collectives have a future. Its sends and receives can only be waited for.
void CommHost::follow(const c10::intrusive_ptr<c10d::Work>& work, std::function<void(std::exception_ptr)> then) {
  if (!work) return then(nullptr);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  if (work->retrieveOpType() != c10d::OpType::SEND && work->retrieveOpType() != c10d::OpType::RECV &&
      work->retrieveOpType() != c10d::OpType::RECVANYSOURCE && work->retrieveOpType() != c10d::OpType::UNKNOWN)
    future = work->getFuture();
  if (future) {
    future->addCallback(
        [work, then = std::move(then)](c10::ivalue::Future& f) { then(f.hasError() ? f.exception_ptr() : nullptr); });
    return;
  }
  wait_for([work, then = std::move(then)] {
    std::exception_ptr error;
    try {
      work->wait();
    } catch (...) {
      error = std::current_exception();
    }
    then(error);
  });
}

void CommHost::wait_for(std::function<void()> task) {
  std::lock_guard lock(waiters_mutex_);
  waits_.push_back(std::move(task));
  // Each wait may depend on another one's end, so none may wait for a thread.
  if (idle_ < waits_.size()) waiters_.emplace_back([self = shared_from_this()] { self->waiter(); });
  waiters_changed_.notify_one();
}

void CommHost::waiter() {
  at::NoGradGuard no_grad;
  std::unique_lock lock(waiters_mutex_);
  while (true) {
    ++idle_;
    waiters_changed_.wait(lock, [&] { return stopped_ || !waits_.empty(); });
    if (stopped_) return;
    --idle_;
    auto task = std::move(waits_.front());
    waits_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

void CommHost::issue(const std::shared_ptr<Run>& run) {
  at::NoGradGuard no_grad;
  if (run->staged) {
    if (run->task.in_chunks) return issue_chunks(run);
    StreamState& in = *run->out;
    run->copy(true, 0, SIZE_MAX, in);
    in.sync();
  }
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = run->task.issue(run->host);
  } catch (...) {
    return run->work->fail(std::current_exception());
  }
  // It holds gloo, whose destructor must not run on a thread of gloo's.
  run->task.issue = nullptr;
  follow(work, [self = shared_from_this(), run, work](std::exception_ptr error) {
    if (work && work->retrieveOpType() == c10d::OpType::RECVANYSOURCE && !error)
      run->work->set_source(work->sourceRank());
    if (!error && run->staged) {
      try {
        at::NoGradGuard no_grad;
        if (run->task.after) run->task.after(run->host);
        run->task.after = nullptr;
        run->copy(false, 0, SIZE_MAX, *run->out);
      } catch (...) {
        error = std::current_exception();
      }
    }
    self->finish(run, error);
  });
}

void CommHost::issue_chunks(const std::shared_ptr<Run>& run) {
  const int64_t n = run->host.at(0).numel(), item = run->host.at(0).itemsize();
  const int64_t length = std::max<int64_t>(1, static_cast<int64_t>(chunk_bytes_) / item);
  const int64_t chunks = std::max<int64_t>(1, (n + length - 1) / length);
  run->left = chunks;
  StreamState& in = stream_from_pool(run->device, device(run->device).info.priority_lowest);
  for (int64_t k = 0; k < chunks; ++k) {
    const int64_t begin = k * length, end = std::min(n, begin + length);
    const size_t first = begin * item, last = end * item;
    run->copy(true, first, last, in);
    in.sync();  // the chunk before is with gloo meanwhile
    auto part = std::make_shared<HostTensors>();
    for (at::Tensor& t : run->host) part->push_back(t.narrow(0, begin, end - begin));
    auto then = [self = shared_from_this(), run, part, first, last](std::exception_ptr error) {
      if (!error) {
        try {
          at::NoGradGuard no_grad;
          if (run->task.after) run->task.after(*part);
          run->copy(false, first, last, *run->out);
        } catch (...) {
          error = std::current_exception();
        }
      }
      if (error) {
        std::lock_guard lock(run->mutex);
        run->error = error;
      }
      if (--run->left == 0) self->finish(run, run->error);
    };
    c10::intrusive_ptr<c10d::Work> work;
    try {
      work = run->task.issue(*part);
    } catch (...) {
      then(std::current_exception());
      continue;
    }
    if (k + 1 == chunks) run->task.issue = nullptr;  // as above
    follow(work, then);
  }
}

void CommHost::finish(const std::shared_ptr<Run>& run, std::exception_ptr error) {
  if (error) return run->work->fail(explain_(*run->work, error));
  try {
    at::NoGradGuard no_grad;
    if (!run->staged && run->task.after) run->task.after(run->host);
    if (run->device < 0) return run->work->post(nullptr, nullptr, nullptr);
    StreamState& stream = run->staged ? *run->out : default_stream(run->device);
    OnStream on(stream);
    const bool copied = run->put_back();
    if (!run->staged && !copied) return run->work->post(nullptr, &stream, nullptr);
    Event* done = new_event(run->device, false);
    record_event(*done, stream);
    run->work->keep([&] {
      std::vector<at::Tensor> tensors;
      for (Piece& p : run->task.pieces) tensors.push_back(p.tensor);
      return tensors;
    }());
    run->work->post(done, &stream, nullptr);
  } catch (...) {
    run->work->fail(comm_error(c10::str(run->work->task().text, " failed: ", words_of(std::current_exception()))));
  }
}

}  // namespace causeway
