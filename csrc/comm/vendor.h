// Collectives that the vendor does on the device's streams (comm.v1), and those put together from others that it has.
#pragma once

#include <map>

#include "causeway/comm.h"

#include "comm/host.h"
#include "comm/reduce.h"

namespace causeway {

const cw_comm_v1* comm_entries();  // checked; nullptr: the vendor offers none

class CommVendor : public std::enable_shared_from_this<CommVendor> {
 public:
  struct Setup {
    c10::intrusive_ptr<c10d::Store> store;
    int rank, size, device;
    std::string group;
    std::chrono::milliseconds timeout;
    bool checked;
  };
  // nullptr where the vendor declines, with its message.
  static std::shared_ptr<CommVendor> create(const Setup& setup, std::string& words);
  ~CommVendor();

  int device() const { return device_; }
  void abort();
  std::string error();  // of work on the stream; empty: none

  // Each puts its work on the communicator's stream and posts `work`; false: not by this vendor, nothing was done.
  bool all_reduce(const c10::intrusive_ptr<CommWork>& work, Piece data, const Reduction& r);
  bool broadcast(const c10::intrusive_ptr<CommWork>& work, Piece data, int root);
  bool reduce(const c10::intrusive_ptr<CommWork>& work, Piece data, const Reduction& r, int root);
  bool all_gather(const c10::intrusive_ptr<CommWork>& work, Piece in, Piece out);
  bool reduce_scatter(const c10::intrusive_ptr<CommWork>& work, Piece in, Piece out, const Reduction& r);
  // Bytes that go to, and come from, each rank.
  bool all_to_all(const c10::intrusive_ptr<CommWork>& work, Piece in, Piece out, std::vector<int64_t> ins,
                  std::vector<int64_t> outs, const std::function<void()>& after = {});
  // Parts that are tensors of their own; `places` is empty on ranks that get none.
  bool gather(const c10::intrusive_ptr<CommWork>& work, Piece in, std::vector<at::Tensor> places);
  bool scatter(const c10::intrusive_ptr<CommWork>& work, at::Tensor out, std::vector<at::Tensor> parts, int root);
  bool all_to_all_parts(const c10::intrusive_ptr<CommWork>& work, const std::vector<at::Tensor>& inputs,
                        const std::vector<at::Tensor>& outputs);
  bool send(const c10::intrusive_ptr<CommWork>& work, Piece data, int peer);
  bool recv(const c10::intrusive_ptr<CommWork>& work, Piece data, int peer);
  bool barrier(const c10::intrusive_ptr<CommWork>& work);
  // Sends and receives in between go together.
  void group_start();
  void group_end();

  // "native", "all_reduce, on a copy" or "host" for each.
  static std::map<std::string, std::string> routes(const cw_comm_v1& t);

 private:
  CommVendor(cw_comm comm, const Setup& setup);
  using Call = std::function<cw_status(StreamState&)>;
  bool put(const c10::intrusive_ptr<CommWork>& work, const std::vector<Piece>& pieces, const Call& call,
           const std::function<void()>& after = {});
  void finish(const c10::intrusive_ptr<CommWork>& work, const std::vector<Piece>& pieces);
  bool takes(const Reduction& r) const;
  uint32_t operation(const Reduction& r) const;
  void end_group();
  // The emulations, on the stream.
  cw_status all_reduce_on(const at::Tensor& t, const Reduction& r, StreamState& s);
  cw_status broadcast_on(const at::Tensor& bytes, int root, StreamState& s);
  cw_status all_gather_on(const at::Tensor& in, const at::Tensor& out, StreamState& s);

  const cw_comm_v1& t_;
  cw_comm comm_;
  const int rank_, size_, device_;
  const std::string group_;
  StreamState& stream_;
  std::mutex mutex_;  // of what is put on the stream: all ranks do so in one order
  bool group_wanted_ = false, grouping_ = false;
  std::vector<std::pair<c10::intrusive_ptr<CommWork>, std::vector<Piece>>> grouped_;
};

}  // namespace causeway
