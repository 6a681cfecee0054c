#include "comm/self.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "runtime/check.h"
#include "runtime/device.h"

namespace causeway {

namespace {

void post(const c10::intrusive_ptr<CommWork>& work, std::vector<at::Tensor> kept) {
  const int device = work->task().device;
  StreamState& stream = current_stream(device);
  work->keep(std::move(kept));
  Event* done = new_event(device, false);
  record_event(*done, stream);
  work->post(done, &stream, nullptr);
}

}  // namespace

CommSelf::Here CommSelf::here(at::Tensor t, c10::intrusive_ptr<CommWork> work) {
  const int device = t.device().index();
  std::shared_ptr<Event> when(new_event(device, false), [](Event* e) { destroy_event(e); });
  record_event(*when, current_stream(device));
  return {std::move(t), std::move(when), std::move(work)};
}

// On this thread's stream, after what the receiver's had been given.
void CommSelf::deliver(const at::Tensor& from, const Here& to) {
  block_stream(current_stream(to.tensor.device().index()), *to.when);
  TORCH_CHECK_VALUE(from.nbytes() == to.tensor.nbytes(), "torch.distributed.recv: this rank sent itself ", from.numel(),
                    " ", from.scalar_type(), ", and the receive has room for ", to.tensor.numel(), " ",
                    to.tensor.scalar_type());
  to.tensor.copy_(from.view(-1).view(to.tensor.scalar_type()).view(to.tensor.sizes()));
  post(to.work, {from, to.tensor});
}

void CommSelf::send(const at::Tensor& t, int tag, const c10::intrusive_ptr<CommWork>& work) {
  at::NoGradGuard no_grad;
  at::Tensor copy = t.detach().clone(at::MemoryFormat::Contiguous);
  std::lock_guard lock(mutex_);
  auto& waiting = wanted_[tag];
  if (waiting.empty()) {
    sent_[tag].push_back(here(copy, work));
  } else {
    const Here to = std::move(waiting.front());
    waiting.pop_front();
    deliver(copy, to);
  }
  post(work, {copy});
}

void CommSelf::recv(const at::Tensor& t, int tag, const c10::intrusive_ptr<CommWork>& work) {
  at::NoGradGuard no_grad;
  std::lock_guard lock(mutex_);
  auto& there = sent_[tag];
  const Here to = here(t.detach(), work);
  if (there.empty()) {
    wanted_[tag].push_back(to);
    return;
  }
  const Here from = std::move(there.front());
  there.pop_front();
  block_stream(current_stream(t.device().index()), *from.when);
  deliver(from.tensor, to);
}

}  // namespace causeway
