// Sends and receives of a rank to itself, which torch.distributed allows in batch_isend_irecv as NCCL does, and gloo has no
// connection for.
#pragma once

#include <deque>
#include <map>

#include "comm/work.h"

namespace causeway {

class CommSelf {
 public:
  // A copy is taken, so that the send is over before its receive comes.
  void send(const at::Tensor& t, int tag, const c10::intrusive_ptr<CommWork>& work);
  void recv(const at::Tensor& t, int tag, const c10::intrusive_ptr<CommWork>& work);

 private:
  // A tensor as it is at a point of the device's stream.
  struct Here {
    at::Tensor tensor;
    std::shared_ptr<Event> when;
    c10::intrusive_ptr<CommWork> work;
  };
  static Here here(at::Tensor t, c10::intrusive_ptr<CommWork> work);
  static void deliver(const at::Tensor& from, const Here& to);

  std::mutex mutex_;
  std::map<int, std::deque<Here>> sent_, wanted_;  // by tag
};

}  // namespace causeway
