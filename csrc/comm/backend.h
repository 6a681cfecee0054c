// torch.distributed's backend "cwcl" for tensors of the device (and, through gloo, for those of the CPU).
#pragma once

#include <map>
#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/host.h"
#include "comm/reduce.h"
#include "comm/self.h"
#include "comm/vendor.h"
#include "comm/watch.h"

namespace causeway {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// Makes the gloo beneath a group; a split of the group has one of its own.
using GlooMaker = std::function<c10::intrusive_ptr<c10d::Backend>(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                                  int size, std::chrono::milliseconds timeout)>;

struct CommOptions {
  std::string name;                 // under which it is registered: "cwcl", or a vendor's own
  std::string group;                // torch's name of the group
  std::vector<uint64_t> ranks;      // of the group, in the world; empty: all
  size_t chunk_bytes = 8 << 20;     // of what passes through pinned memory
  bool blocking = false;  // wait() holds the host up
  bool checked = false;             // the vendor looks for data that changed on its way
  bool through_host = false;        // the program asked for gloo, so the vendor's collectives are left alone
};

// What torch.distributed.split_group copies from the parent; a type of its own so that Python can copy it.
struct CommGroupOptions final : public c10d::Backend::Options {
  using c10d::Backend::Options::Options;
};

class CommBackend final : public c10d::Backend {
 public:
  CommBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
              GlooMaker gloo, CommOptions options);
  ~CommBackend() override;

  const std::string getBackendName() const override { return options_.name; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  // A process group that this backend serves alone: tensors of the device, and those of the CPU.
  static c10::intrusive_ptr<c10d::ProcessGroup> group_of(const c10::intrusive_ptr<CommBackend>& backend,
                                                         const c10::intrusive_ptr<c10d::Backend>& seen);
  // torch says with it which device the group is for (device_id=), in all ranks at once.
  void eagerConnectSingleDevice(at::Device device) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& o) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& o) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& o) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& o) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& o) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& o) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& o) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& o) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& o) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& o) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& o) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& o) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& o) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& o) override;
  void monitoredBarrier(const c10d::BarrierOptions& o, bool all_ranks) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  // Waits for what is under way for so long, and aborts the rest.
  void end(std::chrono::milliseconds patience);

  // Which way each collective takes: "native", "host", or those that it is put together from.
  std::map<std::string, std::string> routes();
  // One line: how many ranks, on which hosts, and by what their collectives go.
  std::string report();

 private:
  struct Begun;
  bool refused_later(const std::exception_ptr& refusal);
  Begun begin(c10d::OpType type, const char* name, Tensors inputs, Tensors outputs, std::chrono::milliseconds timeout,
              const std::string& more = "");
  // `by_vendor` puts the work on the device's stream, and says whether it did; else `task` is the host's.
  using ByVendor = std::function<bool(CommVendor&)>;
  WorkPtr run(const Begun& begun, HostTask task, const ByVendor& by_vendor = {});
  WorkPtr run_self(const Begun& begun, const ByVendor& by_vendor, const std::function<void()>& by_copy);
  bool began_by_vendor(const Begun& begun, const ByVendor& by_vendor);
  std::shared_ptr<CommVendor> connected(int device);
  void connect(int device);
  void say_through_host(int device);
  WorkPtr together(std::vector<WorkPtr> works, Tensors outputs);
  void check_open(const char* name) const;
  bool on_cpu(const Tensors& tensors, const char* name) const;
  WorkPtr move_to_all(at::Tensor& t, int root, std::chrono::milliseconds timeout);
  WorkPtr reduce_scattered(const Piece& out, const Piece& in, const Reduction& r, Begun begun);

  const GlooMaker make_gloo_;
  c10::intrusive_ptr<c10d::Backend> gloo_;
  const CommOptions options_;
  c10::weak_intrusive_ptr<c10d::ProcessGroup> group_;
  std::chrono::milliseconds timeout_;
  std::atomic<uint64_t> sequence_{0};
  std::atomic<bool> closed_{false};
  std::mutex coalescing_mutex_;
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
  int coalesced_device_ = -1;
  std::exception_ptr refusal_;  // of the first of them that a capture refuses
  std::mutex vendor_mutex_;
  bool tried_ = false;
  std::atomic<bool> said_{false};
  std::shared_ptr<CommVendor> vendor_;
  std::string hosts_, declined_;  // of the ranks; why the vendor's collectives are not used
  std::atomic<int> bound_{-1};  // the device that the group was made for; -1: the one of its first tensor
  std::string split_name_;
  c10::weak_intrusive_ptr<c10d::Backend> split_;
  const std::shared_ptr<CommWatch> watch_;
  const std::shared_ptr<CommHost> host_;
  CommSelf self_;
};

// Of all backends that still live, at the end of the process: threads end before what they use.
void close_comm();

}  // namespace causeway
