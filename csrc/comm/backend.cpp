// What torch calls becomes a HostTask: which bytes, and which collective of gloo. Tensors that are only moved go as
// bytes, so that all dtypes do; what gloo does not reduce is gathered and reduced here, in the order of the ranks.
#include "comm/backend.h"

#include <Python.h>

#include <mutex>
#include <numeric>
#include <set>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/library.h>

#include "runtime/check.h"
#include "comm/reach.h"
#include "runtime/device.h"
#include "runtime/graph.h"

namespace causeway {

using c10d::OpType;
using Milliseconds = std::chrono::milliseconds;

namespace {

std::mutex g_mutex;
std::set<CommBackend*>& living() {
  static auto& all = *new std::set<CommBackend*>;
  return all;
}

// How long the end of a group waits for what it was given: the device may be far behind the program, as with NCCL, whose
// shutdown flushes. At the end of a process it is less, since an error may have ended it.
constexpr auto kFlush = Milliseconds(30000), kFlushAtExit = Milliseconds(2000);

// For one who may hold Python's lock, while others may need it.
struct WithoutGil {
  PyThreadState* const state = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  ~WithoutGil() {
    if (state) PyEval_RestoreThread(state);
  }
};

constexpr auto kGrace = Milliseconds(1000);  // gloo ends this much later than we do, whose words say more

}  // namespace

struct CommBackend::Begun {
  c10::intrusive_ptr<CommWork> work;
};

CommBackend::CommBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout,
                         GlooMaker gloo, CommOptions options)
    : c10d::Backend(rank, size),
      make_gloo_(std::move(gloo)),
      gloo_(make_gloo_(c10::make_intrusive<c10d::PrefixStore>("gloo/", store), rank, size, timeout)),
      options_(std::move(options)),
      group_(c10::intrusive_ptr<c10d::ProcessGroup>()),
      timeout_(timeout),
      split_(c10::intrusive_ptr<c10d::Backend>()),
      watch_(std::make_shared<CommWatch>(c10::make_intrusive<c10d::PrefixStore>("cwcl/", store), rank, size,
                                         options_.ranks)),
      host_(std::make_shared<CommHost>(options_.chunk_bytes, [watch = watch_](const CommWork& w, std::exception_ptr e) {
        return watch->explain(w, e);
      })) {
  init();
  gloo_->setTimeout(timeout_ + kGrace);
  std::lock_guard lock(g_mutex);
  living().insert(this);
}

CommBackend::~CommBackend() {
  {
    std::lock_guard lock(g_mutex);
    living().erase(this);
  }
  if (closed_) return;
  const WithoutGil released;
  end(kFlush);
}

void CommBackend::shutdown() { end(kFlush); }

void CommBackend::end(Milliseconds patience) {
  if (closed_.exchange(true)) return;
  watch_->settle(patience);
  host_->stop();
  const bool idle = watch_->stop();
  {
    std::lock_guard lock(vendor_mutex_);
    if (vendor_ && !idle) vendor_->abort();
    vendor_.reset();
  }
  // gloo's destructor waits for what runs; a peer that does not answer would hold this process up for a whole timeout.
  if (idle)
    gloo_.reset();
  else
    (void)gloo_.release();
}

void CommBackend::abort() {
  watch_->poison(c10::str("rank ", rank_, " aborted group ", options_.group));
  end(Milliseconds(0));
}

void close_comm() {
  std::vector<CommBackend*> all;
  {
    std::lock_guard lock(g_mutex);
    all.assign(living().begin(), living().end());
  }
  for (CommBackend* b : all) b->end(kFlushAtExit);
}

c10d::ErrorType CommBackend::getError() {
  return watch_->broken() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

c10::intrusive_ptr<c10d::Backend::Options> CommBackend::getBackendOptions() {
  auto o = c10::make_intrusive<CommGroupOptions>(options_.name, timeout_);
  o->group_name = options_.group;
  o->global_ranks_in_group = options_.ranks;
  return o;
}

void CommBackend::setTimeout(Milliseconds timeout) {
  check_open("set_timeout");
  timeout_ = timeout;
  gloo_->setTimeout(timeout + kGrace);
}

std::map<std::string, std::string> CommBackend::routes() {
  {
    std::lock_guard lock(vendor_mutex_);
    if (vendor_ || (!tried_ && comm_entries() && !options_.through_host)) {
      auto out = CommVendor::routes(*comm_entries());
      if (bound_ >= 0 && comm_entries()->send) out["send"] = out["recv"] = "native";
      return out;
    }
  }
  std::map<std::string, std::string> out;
  for (const char* name : {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather",
                           "scatter", "send", "recv", "barrier"})
    out[name] = "host";
  return out;
}

void CommBackend::check_open(const char* name) const {
  if (closed_)
    std::rethrow_exception(
        comm_error(c10::str("torch.distributed.", name, ": group ", options_.group, " was shut down or aborted")));
}

// Whether gloo serves the call as it is. Raises for a mixture, and for a kind of tensor that nobody serves.
bool CommBackend::on_cpu(const Tensors& tensors, const char* name) const {
  check_open(name);
  size_t cpu = 0;
  for (const at::Tensor& t : tensors) {
    const bool host = t.device().is_cpu();
    cpu += host;
    if (!host && t.device().type() != kDeviceType)
      fail(Kind::Causeway, "torch.distributed.", name, " of backend ", options_.name, " got a tensor on ", t.device(),
           "; it serves those on ", device_name(0).substr(0, device_name(0).find(':')), " and on the CPU");
    if (t.device() != tensors[0].device())
      fail(Kind::Causeway, "torch.distributed.", name, " got tensors on ", tensors[0].device(), " and on ", t.device(),
           "; all of one call must be on one device");
  }
  // gloo numbers its collectives as they come, and some of the device's may still be on their way to it.
  if (cpu) host_->drain();
  return cpu != 0;
}

namespace {
// Of the stream that this thread gives its work to.
Graph* captured() {
  const int device = current_device();
  return device_opened(device) ? graph_of(current_stream(device)) : nullptr;
}

[[noreturn]] void refuse_in(Graph& graph, const char* name) {
  graph.refuse(c10::str("a collective (", name, "), in which the host takes part,"),
               "Capture what comes before it and after it, and call it between their replays");
}
}  // namespace

CommBackend::Begun CommBackend::begin(OpType type, const char* name, Tensors inputs, Tensors outputs,
                                      Milliseconds timeout, const std::string& more) {
  watch_->check();
  check_open(name);
  const bool p2p = c10d::isP2POp(type);
  // Before it is counted, so that the ranks stay in step.
  if (Graph* graph = captured(); C10_UNLIKELY(graph != nullptr)) {
    try {
      std::lock_guard lock(vendor_mutex_);
      if (!options_.through_host && comm_entries() && !tried_)
        graph->refuse(
            c10::str("the first collective of group ", options_.group, " (", name, "), which connects its ranks,"),
            "Call one before the capture");
      if (!vendor_ || type == OpType::BARRIER) refuse_in(*graph, name);
    } catch (...) {
      if (!p2p || !refused_later(std::current_exception())) throw;
    }
  }
  CommWork::Task task;
  task.name = name;
  task.type = type;
  task.timeout = timeout.count() > 0 ? timeout : timeout_;
  task.sequence = p2p ? 0 : ++sequence_;
  const Tensors& some = inputs.empty() ? outputs : inputs;
  int64_t elements = 0;
  for (const at::Tensor& t : some) elements += t.numel();
  if (!some.empty()) task.device = some[0].device().index();
  if (options_.through_host) say_through_host(task.device);
  task.text = c10::str(name, more, some.empty() ? "" : c10::str(" of ", elements, " ", some[0].scalar_type()),
                       p2p ? "" : c10::str(" (number ", task.sequence, ")"), " in group ", options_.group, ", rank ",
                       rank_, " of ", size_);
  const std::string title = c10::str(options_.name, ":", name);
  auto work =
      c10::make_intrusive<CommWork>(std::move(task), rank_, title.c_str(), std::move(inputs), std::move(outputs));
  work->set_blocking(options_.blocking);
  return {std::move(work)};
}

// Whether the vendor took it, or ended it with an error.
bool CommBackend::began_by_vendor(const Begun& begun, const ByVendor& by_vendor) {
  {
    std::lock_guard lock(coalescing_mutex_);
    if (coalescing_) {
      coalesced_.push_back(begun.work);
      coalesced_device_ = begun.work->task().device;
    }
    if (refusal_) return true;
  }
  // Sends and receives are two ranks' affair: only a communicator that all ranks made at once serves them.
  std::shared_ptr<CommVendor> vendor;
  if (by_vendor) {
    const int device = begun.work->task().device;
    vendor = c10d::isP2POp(begun.work->task().type) && bound_ < 0 ? nullptr : connected(device);
  }
  Graph* graph = captured();
  if (C10_LIKELY(!graph)) watch_->add(begun.work);
  if (vendor) {
    try {
      if (const bool took = by_vendor(*vendor); took || !graph) return took;
    } catch (...) {
      if (graph && refused_later(std::current_exception())) return true;
      if (graph) throw;
      begun.work->fail(watch_->explain(*begun.work, std::current_exception()));
      return true;
    }
  }
  try {
    if (graph) refuse_in(*graph, begun.work->task().name);
  } catch (...) {
    if (refused_later(std::current_exception())) return true;
    throw;
  }
  return false;
}

WorkPtr CommBackend::run(const Begun& begun, HostTask task, const ByVendor& by_vendor) {
  if (!began_by_vendor(begun, by_vendor)) host_->start(std::move(task), begun.work);
  return begun.work;
}

WorkPtr CommBackend::run_self(const Begun& begun, const ByVendor& by_vendor, const std::function<void()>& by_copy) {
  if (!began_by_vendor(begun, by_vendor)) by_copy();
  return begun.work;
}

// The vendor's communicator, made by the first collective on tensors of a device; nullptr: there is none.
std::shared_ptr<CommVendor> CommBackend::connected(int device) {
  if (options_.through_host || !comm_entries()) return nullptr;
  std::lock_guard lock(vendor_mutex_);
  if (!tried_) {
    if (device < 0) return nullptr;  // a barrier before any tensor
    connect(device);
  }
  if (vendor_ && device >= 0 && device != vendor_->device())
    fail(Kind::Causeway, "group ", options_.group, " was first used with tensors on ", device_name(vendor_->device()),
         ", and now with some on ", device_name(device),
         "; a process takes part with one device: call set_device before the first collective, or make another group");
  return vendor_;
}

// The program asked for gloo by name. NCCL's users do so too, and hand it tensors of the GPU.
void CommBackend::say_through_host(int device) {
  if (rank_ != 0 || device < 0 || said_.exchange(true)) return;
  TORCH_WARN_ONCE("collectives of ", device_name(device), " in group ", options_.group,
                  " go through the host: its backend is gloo. init_process_group() without a backend takes the "
                  "device's own, and serves tensors of the CPU too");
}

void CommBackend::connect(int device) {
  tried_ = true;
  std::string words;
  auto vendor =
      CommVendor::create({watch_->store(), rank_, size_, device, options_.group, timeout_, options_.checked}, words);
  // One rank that declines is enough: gloo tells all.
  host_->drain();
  const std::vector<CommReach> all = tell_all(*gloo_, CommReach::mine(device, vendor != nullptr, words), size_);
  hosts_ = hosts_in_words(all, options_.ranks);
  // NCCL refuses it; here it works, and one device does the work of several.
  const std::string shared = shared_in_words(all, options_.ranks);
  if (rank_ == 0 && !shared.empty()) {
    TORCH_WARN_ONCE(shared);
  }
  const auto declined = std::find_if(all.begin(), all.end(), [](const CommReach& r) { return !r.connected; });
  if (declined == all.end()) {
    vendor_ = std::move(vendor);
    watch_->set_vendor(
        [v = std::weak_ptr(vendor_)] {
          auto there = v.lock();
          return there ? there->error() : std::string();
        },
        [v = std::weak_ptr(vendor_)] {
          if (auto there = v.lock()) there->abort();
        });
    return;
  }
  declined_ = c10::str("; rank ", name_of_rank(options_.ranks, static_cast<int>(declined - all.begin())), ": ",
                       declined->words[0] ? declined->words : "its device declined");
  // Sooner or later a person wonders about the speed.
  if (rank_ == 0) {
    TORCH_WARN_ONCE("collectives of ", device_name(device), " go through the host (gloo): ", size_, " ranks ", hosts_,
                    declined_);
  }
}

std::string CommBackend::report() {
  std::lock_guard lock(vendor_mutex_);
  const std::string head = c10::str("group ", options_.group, ", ", size_, size_ == 1 ? " rank" : " ranks");
  if (options_.through_host)
    return c10::str(head, ": collectives go through the host (gloo), as the program asked for gloo; ", sequence_.load(),
                    " so far");
  if (!comm_entries()) return head + ": collectives go through the host (gloo), as the vendor offers none";
  if (!tried_) return head + ": no collective on tensors of the device yet";
  return c10::str(head, " ", hosts_, ": collectives go ", vendor_ ? "by the vendor" : "through the host (gloo)",
                  declined_);
}

// --- groups ---------------------------------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::ProcessGroup> CommBackend::group_of(const c10::intrusive_ptr<CommBackend>& backend,
                                                             const c10::intrusive_ptr<c10d::Backend>& seen) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(backend->watch_->store(), backend->rank_, backend->size_);
  for (const auto type : {kDeviceType, c10::kCPU})
    group->setBackend(type, c10d::ProcessGroup::BackendType::CUSTOM, seen);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  backend->group_ = group;
  return group;
}

void CommBackend::eagerConnectSingleDevice(at::Device device) {
  // torch gives this to the group that it made itself, and forgets it where the group is ours.
  if (auto group = group_.lock()) group->setBoundDeviceId(device);
  setBoundDeviceId(device);
  bound_ = device.index();
  connected(device.index());
}

c10::intrusive_ptr<c10d::Backend> CommBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<Options>& options) {
  check_open("split_group");
  const auto at = std::find(ranks.begin(), ranks.end(), rank_);
  if (at == ranks.end()) return nullptr;
  // torch asks once for each kind of device that this serves; one backend serves them all.
  const std::string name = options ? options->group_name : "";
  if (auto same = split_.lock(); same && split_name_ == name) return same;
  CommOptions of = options_;
  of.group = name;
  of.ranks.clear();
  for (const int r : ranks) of.ranks.push_back(options_.ranks.empty() ? r : options_.ranks.at(r));
  auto child = c10::make_intrusive<CommBackend>(c10::make_intrusive<c10d::PrefixStore>("split/", store),
                                                static_cast<int>(at - ranks.begin()), static_cast<int>(ranks.size()),
                                                options ? options->timeout : timeout_, make_gloo_, of);
  // All of its ranks are in this call, as all of a group's are in eagerConnectSingleDevice.
  if (bound_ >= 0) child->eagerConnectSingleDevice(at::Device(kDeviceType, static_cast<c10::DeviceIndex>(bound_)));
  split_name_ = name;
  split_ = c10::weak_intrusive_ptr<c10d::Backend>(c10::intrusive_ptr<c10d::Backend>(child));
  return child;
}

// Of one of several calls that torch coalesces: at their end. torch forgets none of them where one throws in between, and
// would take what is called later for one of them.
bool CommBackend::refused_later(const std::exception_ptr& refusal) {
  std::lock_guard lock(coalescing_mutex_);
  if (coalescing_ && !refusal_) refusal_ = refusal;
  return coalescing_;
}

void CommBackend::startCoalescing() {
  std::lock_guard lock(coalescing_mutex_);
  coalescing_ = true;
  refusal_ = nullptr;
  coalesced_.clear();
  if (bound_ >= 0 && vendor_) vendor_->group_start();
}

WorkPtr CommBackend::endCoalescing() {
  std::lock_guard lock(coalescing_mutex_);
  coalescing_ = false;
  if (bound_ >= 0 && vendor_) vendor_->group_end();
  std::vector<WorkPtr> works;
  works.swap(coalesced_);
  if (refusal_) std::rethrow_exception(std::exchange(refusal_, nullptr));
  return c10::make_intrusive<CommWorks>(rank_, std::move(works), Tensors{}, coalesced_device_);
}

WorkPtr CommBackend::together(std::vector<WorkPtr> works, Tensors outputs) {
  const int device = outputs.empty() || outputs[0].device().is_cpu() ? -1 : outputs[0].device().index();
  return c10::make_intrusive<CommWorks>(rank_, std::move(works), std::move(outputs), device);
}

namespace {

// gloo takes lists.
Tensors list(const at::Tensor& t) { return {t}; }

template <class Options>
Options with_timeout(Options o, Milliseconds timeout) {
  o.timeout = timeout + kGrace;
  return o;
}

HostTask moved(std::vector<Piece> pieces) {
  HostTask task;
  task.pieces = std::move(pieces);
  task.view = c10::ScalarType::Byte;
  return task;
}

void need_one(const Tensors& tensors, const char* name) {
  TORCH_CHECK(tensors.size() == 1, "torch.distributed.", name, " takes one tensor of a device, but got ",
              tensors.size());
}

}  // namespace

WorkPtr CommBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& o) {
  if (on_cpu(tensors, "broadcast")) return gloo_->broadcast(tensors, o);
  need_one(tensors, "broadcast");
  return move_to_all(tensors[0], static_cast<int>(o.rootRank), o.timeout);
}

WorkPtr CommBackend::move_to_all(at::Tensor& t, int root, Milliseconds timeout) {
  auto begun = begin(OpType::BROADCAST, "broadcast", {t}, {t}, timeout, c10::str(" from rank ", root));
  const bool source = root == rank_;
  const Piece piece = dense_piece(t, source, !source);
  HostTask task = moved({piece});
  task.in_chunks = true;
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = begun.work->task().timeout + kGrace;
  task.issue = [gloo = gloo_, options](HostTensors& h) {
    auto tensors = list(h[0]);
    return gloo->broadcast(tensors, options);
  };
  return run(begun, std::move(task), [&](CommVendor& v) { return v.broadcast(begun.work, piece, root); });
}

WorkPtr CommBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& o) {
  if (on_cpu(tensors, "all_reduce")) return gloo_->allreduce(tensors, o);
  need_one(tensors, "all_reduce");
  at::Tensor& t = tensors[0];
  if (t.layout() == c10::kSparse) return allreduce_sparse(tensors, o);
  const Reduction r = reduction_of(o.reduceOp, t.scalar_type());
  auto begun = begin(OpType::ALLREDUCE, "all_reduce", {t}, {t}, o.timeout);
  const auto timeout = begun.work->task().timeout;
  HostTask task;
  const Piece piece = dense_piece(t, true, true);
  task.pieces = {piece};
  task.view = r.view;
  task.in_chunks = true;
  if (r.direct) {
    c10d::AllreduceOptions options = with_timeout(o, timeout);
    options.reduceOp = c10d::ReduceOp(r.op);
    task.issue = [gloo = gloo_, options, r](HostTensors& h) {
      before(h[0], r);
      auto tensors = list(h[0]);
      return gloo->allreduce(tensors, options);
    };
    if (r.average) task.after = [r, size = size_](HostTensors& h) { after(h[0], r, size); };
  } else {
    // The gathered parts outlive the call in what `after` shares with `issue`; chunks have one each.
    c10d::AllgatherOptions options = with_timeout(c10d::AllgatherOptions{}, timeout);
    auto parts = std::make_shared<std::map<void*, at::Tensor>>();
    auto lock = std::make_shared<std::mutex>();
    task.issue = [gloo = gloo_, size = size_, options, parts, lock](HostTensors& h) {
      at::Tensor all = at::empty({size, h[0].numel()}, h[0].options());
      {
        std::lock_guard guard(*lock);
        (*parts)[h[0].data_ptr()] = all;
      }
      at::Tensor out = all.view(-1).view(c10::kByte), in = h[0].view(c10::kByte);
      return gloo->_allgather_base(out, in, options);
    };
    task.after = [r, parts, lock](HostTensors& h) {
      at::Tensor all;
      {
        std::lock_guard guard(*lock);
        all = parts->at(h[0].data_ptr());
        parts->erase(h[0].data_ptr());
      }
      reduce_parts(all, h[0], r);
    };
  }
  return run(begun, std::move(task), [&](CommVendor& v) { return v.all_reduce(begun.work, piece, r); });
}

WorkPtr CommBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& o) {
  need_one(tensors, "all_reduce");
  at::Tensor t = tensors[0];
  const Reduction r = reduction_of(o.reduceOp, t.scalar_type());
  TORCH_CHECK(r.op == c10d::ReduceOp::SUM, "torch.distributed.all_reduce of sparse tensors can only sum, as gloo's");
  auto begun = begin(OpType::_ALLREDUCE_SPARSE, "all_reduce", {t}, {t}, o.timeout, " (sparse)");
  // How many elements there are in the sum is known only afterwards, so no memory is ready for it: what gloo adds up are
  // copies on the CPU, made when the device has come to the call.
  c10d::AllreduceOptions options = with_timeout(o, begun.work->task().timeout);
  options.reduceOp = c10d::ReduceOp(c10d::ReduceOp::SUM);
  auto hosts = std::make_shared<Tensors>();
  HostTask task;
  task.issue = [gloo = gloo_, options, hosts, t](HostTensors&) {
    *hosts = {t.detach().cpu()};
    return gloo->allreduce(*hosts, options);
  };
  task.after = [hosts, t, r, size = size_](HostTensors&) {
    const at::Tensor& sum = hosts->at(0);  // gloo puts it there, whatever elements it has
    at::Tensor(t).copy_(r.average ? sum / size : sum);
    current_stream(t.device().index()).sync();
  };
  return run(begun, std::move(task));
}

WorkPtr CommBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& o) {
  if (on_cpu(tensors, "all_reduce")) return gloo_->allreduce_coalesced(tensors, o);
  std::vector<WorkPtr> works;
  for (at::Tensor& t : tensors) {
    Tensors one{t};
    works.push_back(allreduce(one, o));
  }
  return together(std::move(works), tensors);
}

WorkPtr CommBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& o) {
  if (on_cpu(tensors, "reduce")) return gloo_->reduce(tensors, o);
  need_one(tensors, "reduce");
  at::Tensor& t = tensors[0];
  const Reduction r = reduction_of(o.reduceOp, t.scalar_type());
  auto begun = begin(OpType::REDUCE, "reduce", {t}, {t}, o.timeout, c10::str(" to rank ", o.rootRank));
  const bool root = o.rootRank == rank_;
  HostTask task;
  const Piece piece = dense_piece(t, true, root);
  task.pieces = {piece};
  task.view = r.view;
  if (r.direct) {
    c10d::ReduceOptions options = with_timeout(o, begun.work->task().timeout);
    options.reduceOp = c10d::ReduceOp(r.op);
    task.issue = [gloo = gloo_, options, r, root](HostTensors& h) {
      // gloo leaves what it has added up in the other ranks' tensors.
      auto tensors = list(root ? h[0] : h[0].clone());
      before(tensors[0], r);
      return gloo->reduce(tensors, options);
    };
    if (r.average && root) task.after = [r, size = size_](HostTensors& h) { after(h[0], r, size); };
  } else {
    c10d::AllgatherOptions options = with_timeout(c10d::AllgatherOptions{}, begun.work->task().timeout);
    auto all = std::make_shared<at::Tensor>();
    task.issue = [gloo = gloo_, size = size_, options, all](HostTensors& h) {
      *all = at::empty({size, h[0].numel()}, h[0].options());
      at::Tensor out = all->view(-1).view(c10::kByte), in = h[0].view(c10::kByte);
      return gloo->_allgather_base(out, in, options);
    };
    if (root) task.after = [r, all](HostTensors& h) { reduce_parts(*all, h[0], r); };
  }
  return run(begun, std::move(task),
             [&](CommVendor& v) { return v.reduce(begun.work, piece, r, static_cast<int>(o.rootRank)); });
}

WorkPtr CommBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) {
  if (on_cpu(inputs, "all_gather")) return gloo_->allgather(outputs, inputs, o);
  need_one(inputs, "all_gather");
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_),
              "torch.distributed.all_gather takes a list of ", size_, " tensors, one for each rank");
  Tensors& places = outputs[0];
  const bool even =
      std::all_of(places.begin(), places.end(), [&](const at::Tensor& t) { return t.nbytes() == places[0].nbytes(); });
  TORCH_CHECK(places[rank_].nbytes() == inputs[0].nbytes(), "torch.distributed.all_gather: this rank gives ",
              inputs[0].numel(), " ", inputs[0].scalar_type(), ", and its place in the list has ",
              places[rank_].numel(), " ", places[rank_].scalar_type());
  if (!even) {
    // Places of different sizes: each rank's part by itself, as NCCL does.
    std::vector<WorkPtr> works;
    places[rank_].view_as(inputs[0]).copy_(inputs[0]);
    for (int r = 0; r < size_; ++r) works.push_back(move_to_all(places[r], r, o.timeout));
    return together(std::move(works), places);
  }
  auto begun = begin(OpType::ALLGATHER, "all_gather", inputs, places, o.timeout);
  std::vector<Piece> pieces{contiguous_piece(inputs[0], true, false)};
  for (at::Tensor& t : places) pieces.push_back(contiguous_piece(t, false, true));
  HostTask task = moved(std::move(pieces));
  task.in_chunks = true;
  c10d::AllgatherOptions options = with_timeout(o, begun.work->task().timeout);
  task.issue = [gloo = gloo_, options](HostTensors& h) {
    std::vector<Tensors> outs{Tensors(h.begin() + 1, h.end())};
    auto in = list(h[0]);
    return gloo->allgather(outs, in, options);
  };
  const Piece in = task.pieces[0];
  return run(begun, std::move(task), [&](CommVendor& v) { return v.gather(begun.work, in, places); });
}

WorkPtr CommBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& o) {
  if (on_cpu({input, output}, "all_gather_into_tensor")) return gloo_->_allgather_base(output, input, o);
  TORCH_CHECK(output.scalar_type() == input.scalar_type() && output.numel() == input.numel() * size_,
              "torch.distributed.all_gather_into_tensor: the output needs ", size_, " times the ", input.numel(), " ",
              input.scalar_type(), " of the input, but has ", output.numel(), " ", output.scalar_type());
  auto begun = begin(OpType::_ALLGATHER_BASE, "all_gather_into_tensor", {input}, {output}, o.timeout);
  const Piece in = contiguous_piece(input, true, false), out = contiguous_piece(output, false, true);
  HostTask task = moved({in, out});
  c10d::AllgatherOptions options = with_timeout(o, begun.work->task().timeout);
  task.issue = [gloo = gloo_, options](HostTensors& h) { return gloo->_allgather_base(h[1], h[0], options); };
  return run(begun, std::move(task), [&](CommVendor& v) { return v.all_gather(begun.work, in, out); });
}

WorkPtr CommBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& o) {
  if (on_cpu(inputs, "all_gather")) return gloo_->allgather_coalesced(outputs, inputs, o);
  std::vector<WorkPtr> works;
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensors> places(1);
    for (Tensors& of_rank : outputs) places[0].push_back(of_rank.at(i));
    all.insert(all.end(), places[0].begin(), places[0].end());
    Tensors one{inputs[i]};
    works.push_back(allgather(places, one, o));
  }
  return together(std::move(works), std::move(all));
}

WorkPtr CommBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& o) {
  if (on_cpu(inputs, "all_gather_into_tensor")) return gloo_->allgather_into_tensor_coalesced(outputs, inputs, o);
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) works.push_back(_allgather_base(outputs.at(i), inputs[i], o));
  return together(std::move(works), outputs);
}

WorkPtr CommBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& o) {
  if (on_cpu(inputs, "gather")) return gloo_->gather(outputs, inputs, o);
  need_one(inputs, "gather");
  const bool root = o.rootRank == rank_;
  TORCH_CHECK(!root || (outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_)),
              "torch.distributed.gather takes a list of ", size_, " tensors on the rank that gathers");
  Tensors places = root ? outputs[0] : Tensors{};
  auto begun = begin(OpType::GATHER, "gather", inputs, places, o.timeout, c10::str(" to rank ", o.rootRank));
  std::vector<Piece> pieces{contiguous_piece(inputs[0], true, false)};
  for (at::Tensor& t : places) {
    TORCH_CHECK(t.nbytes() == inputs[0].nbytes(), "torch.distributed.gather: all tensors must be of one size");
    pieces.push_back(contiguous_piece(t, false, true));
  }
  HostTask task = moved(std::move(pieces));
  c10d::GatherOptions options = with_timeout(o, begun.work->task().timeout);
  task.issue = [gloo = gloo_, options, root](HostTensors& h) {
    std::vector<Tensors> outs;
    if (root) outs.emplace_back(h.begin() + 1, h.end());
    auto in = list(h[0]);
    return gloo->gather(outs, in, options);
  };
  const Piece in = task.pieces[0];
  return run(begun, std::move(task), [&](CommVendor& v) { return v.gather(begun.work, in, places); });
}

WorkPtr CommBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& o) {
  if (on_cpu(outputs, "scatter")) return gloo_->scatter(outputs, inputs, o);
  need_one(outputs, "scatter");
  const bool root = o.rootRank == rank_;
  TORCH_CHECK(!root || (inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_)),
              "torch.distributed.scatter takes a list of ", size_, " tensors on the rank that scatters");
  Tensors parts = root ? inputs[0] : Tensors{};
  auto begun = begin(OpType::SCATTER, "scatter", root ? parts : outputs, outputs, o.timeout,
                     c10::str(" from rank ", o.rootRank));
  std::vector<Piece> pieces{contiguous_piece(outputs[0], false, true)};
  for (at::Tensor& t : parts) {
    TORCH_CHECK(t.nbytes() == outputs[0].nbytes(), "torch.distributed.scatter: all tensors must be of one size");
    pieces.push_back(contiguous_piece(t, true, false));
  }
  HostTask task = moved(std::move(pieces));
  c10d::ScatterOptions options = with_timeout(o, begun.work->task().timeout);
  task.issue = [gloo = gloo_, options, root](HostTensors& h) {
    std::vector<Tensors> ins;
    if (root) ins.emplace_back(h.begin() + 1, h.end());
    auto out = list(h[0]);
    return gloo->scatter(out, ins, options);
  };
  return run(begun, std::move(task),
             [&](CommVendor& v) { return v.scatter(begun.work, outputs[0], parts, static_cast<int>(o.rootRank)); });
}

WorkPtr CommBackend::reduce_scattered(const Piece& out, const Piece& in, const Reduction& r, Begun begun) {
  // gloo's own does the work of an all_reduce; this sends each part to its rank only.
  HostTask task;
  task.pieces = {in, out};
  if (r.view != in.tensor.scalar_type() && in.tensor.scalar_type() == c10::ScalarType::Bool) task.view = r.view;
  c10d::AllToAllOptions options = with_timeout(c10d::AllToAllOptions{}, begun.work->task().timeout);
  auto all = std::make_shared<at::Tensor>();
  task.issue = [gloo = gloo_, size = size_, options, all](HostTensors& h) {
    *all = at::empty({size, h[1].numel()}, h[1].options());
    at::Tensor to = all->view(-1).view(c10::kByte), from = h[0].view(c10::kByte);
    std::vector<int64_t> even_to, even_from;
    return gloo->alltoall_base(to, from, even_to, even_from, options);
  };
  task.after = [all, r](HostTensors& h) { reduce_parts(*all, h[1], r); };
  return run(begun, std::move(task), [&](CommVendor& v) { return v.reduce_scatter(begun.work, in, out, r); });
}

WorkPtr CommBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& o) {
  if (on_cpu({input, output}, "reduce_scatter_tensor")) return gloo_->_reduce_scatter_base(output, input, o);
  TORCH_CHECK(output.scalar_type() == input.scalar_type() && input.numel() == output.numel() * size_,
              "torch.distributed.reduce_scatter_tensor: the input needs ", size_, " times the ", output.numel(), " ",
              output.scalar_type(), " of the output, but has ", input.numel(), " ", input.scalar_type());
  const Reduction r = reduction_of(o.reduceOp, input.scalar_type());
  auto begun = begin(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", {input}, {output}, o.timeout);
  return reduce_scattered(contiguous_piece(output, false, true), contiguous_piece(input, true, false), r,
                          std::move(begun));
}

WorkPtr CommBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ReduceScatterOptions& o) {
  if (on_cpu(outputs, "reduce_scatter")) return gloo_->reduce_scatter(outputs, inputs, o);
  need_one(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
              "torch.distributed.reduce_scatter takes a list of ", size_, " tensors, one for each rank");
  Tensors& parts = inputs[0];
  TORCH_CHECK(parts[rank_].numel() == outputs[0].numel(), "torch.distributed.reduce_scatter: this rank's part has ",
              parts[rank_].numel(), " elements, and the output ", outputs[0].numel());
  const bool even =
      std::all_of(parts.begin(), parts.end(), [&](const at::Tensor& t) { return t.numel() == parts[0].numel(); });
  if (!even) {
    std::vector<WorkPtr> works;
    for (int r = 0; r < size_; ++r) {
      Tensors one{r == rank_ ? outputs[0] : parts[r]};
      if (r == rank_) outputs[0].view_as(parts[r]).copy_(parts[r]);
      c10d::ReduceOptions options;
      options.reduceOp = o.reduceOp;
      options.rootRank = r;
      options.timeout = o.timeout;
      works.push_back(reduce(one, options));
    }
    return together(std::move(works), outputs);
  }
  const Reduction r = reduction_of(o.reduceOp, outputs[0].scalar_type());
  auto begun = begin(OpType::REDUCE_SCATTER, "reduce_scatter", parts, outputs, o.timeout);
  Tensors flat;
  for (const at::Tensor& t : parts) flat.push_back(t.detach().reshape(-1));
  return reduce_scattered(contiguous_piece(outputs[0], false, true), contiguous_piece(at::cat(flat), true, false), r,
                          std::move(begun));
}

WorkPtr CommBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                     const c10d::ReduceScatterOptions& o) {
  if (on_cpu(inputs, "reduce_scatter_tensor")) return gloo_->reduce_scatter_tensor_coalesced(outputs, inputs, o);
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) works.push_back(_reduce_scatter_base(outputs.at(i), inputs[i], o));
  return together(std::move(works), outputs);
}

WorkPtr CommBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                   std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& o) {
  if (on_cpu({input, output}, "all_to_all_single"))
    return gloo_->alltoall_base(output, input, output_splits, input_splits, o);
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  auto begun = begin(OpType::ALLTOALL_BASE, "all_to_all_single", {input}, {output}, o.timeout);
  const Piece in = contiguous_piece(input, true, false), out = contiguous_piece(output, false, true);
  HostTask task = moved({in, out});
  auto in_bytes = [](const std::vector<int64_t>& splits, const at::Tensor& t) {
    std::vector<int64_t> out;
    const int64_t row = t.size(0) ? static_cast<int64_t>(t.nbytes()) / t.size(0) : 0;
    for (const int64_t n : splits) out.push_back(n * row);
    return out;
  };
  auto even = [&](std::vector<int64_t> bytes, const at::Tensor& t) {
    return bytes.empty() ? std::vector<int64_t>(size_, static_cast<int64_t>(t.nbytes()) / size_) : bytes;
  };
  c10d::AllToAllOptions options = with_timeout(o, begun.work->task().timeout);
  task.issue = [gloo = gloo_, options, outs = in_bytes(output_splits, output), ins = in_bytes(input_splits, input)](
                   HostTensors& h) mutable { return gloo->alltoall_base(h[1], h[0], outs, ins, options); };
  return run(begun, std::move(task), [&](CommVendor& v) {
    return v.all_to_all(begun.work, in, out, even(in_bytes(input_splits, input), input),
                        even(in_bytes(output_splits, output), output));
  });
}

WorkPtr CommBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& o) {
  Tensors all = inputs;
  all.insert(all.end(), outputs.begin(), outputs.end());
  const bool cpu = on_cpu(all, "all_to_all");
  TORCH_CHECK(inputs.size() == static_cast<size_t>(size_) && outputs.size() == static_cast<size_t>(size_),
              "torch.distributed.all_to_all takes two lists of ", size_, " tensors, one for each rank");
  // One tensor with splits, of which gloo takes every mixture of sizes.
  auto lengths = [](const Tensors& tensors) {
    std::vector<int64_t> out;
    for (const at::Tensor& t : tensors) out.push_back(static_cast<int64_t>(t.nbytes()));
    return out;
  };
  auto ins = lengths(inputs), outs = lengths(outputs);
  const int64_t in_total = std::accumulate(ins.begin(), ins.end(), int64_t{0});
  const int64_t out_total = std::accumulate(outs.begin(), outs.end(), int64_t{0});
  auto begun = begin(OpType::ALLTOALL, "all_to_all", inputs, outputs, o.timeout);
  if (cpu) {
    Tensors flat;
    for (const at::Tensor& t : inputs) flat.push_back(t.detach().contiguous().view(-1).view(c10::kByte));
    at::Tensor in = at::cat(flat), out = at::empty({out_total}, in.options());
    auto to = outs, from = ins;  // gloo takes the lists away
    gloo_->alltoall_base(out, in, to, from, o)->wait();
    int64_t begin = 0;
    for (size_t i = 0; i < outputs.size(); begin += outs[i++])
      outputs[i].detach().copy_(
          out.narrow(0, begin, outs[i]).clone().view(outputs[i].scalar_type()).view(outputs[i].sizes()));
    begun.work->post(nullptr, nullptr, nullptr);
    return begun.work;
  }
  std::vector<Piece> pieces;
  for (at::Tensor& t : inputs) pieces.push_back(contiguous_piece(t, true, false));
  for (at::Tensor& t : outputs) pieces.push_back(contiguous_piece(t, false, true));
  HostTask task = moved(std::move(pieces));
  c10d::AllToAllOptions options = with_timeout(o, begun.work->task().timeout);
  auto result = std::make_shared<at::Tensor>();
  task.issue = [gloo = gloo_, size = size_, options, outs, ins, in_total, out_total, result](HostTensors& h) mutable {
    at::Tensor in = at::cat(Tensors(h.begin(), h.begin() + size));
    *result = at::empty({out_total}, in.options());
    return gloo->alltoall_base(*result, in, outs, ins, options);
  };
  task.after = [result, outs, size = size_](HostTensors& h) {
    int64_t begin = 0;
    for (int i = 0; i < size; begin += outs[i++]) h[size + i].copy_(result->narrow(0, begin, outs[i]));
  };
  return run(begun, std::move(task), [&](CommVendor& v) { return v.all_to_all_parts(begun.work, inputs, outputs); });
}

WorkPtr CommBackend::send(Tensors& tensors, int to, int tag) {
  if (on_cpu(tensors, "send")) return gloo_->send(tensors, to, tag);
  need_one(tensors, "send");
  auto begun = begin(OpType::SEND, "send", tensors, {}, Milliseconds(0), c10::str(" to rank ", to));
  const Piece piece = contiguous_piece(tensors[0], true, false);
  auto by_vendor = [&](CommVendor& v) { return v.send(begun.work, piece, to); };
  if (to == rank_) return run_self(begun, by_vendor, [&] { self_.send(tensors[0], tag, begun.work); });
  HostTask task = moved({piece});
  task.issue = [gloo = gloo_, to, tag](HostTensors& h) { return gloo->send(h, to, tag); };
  return run(begun, std::move(task), by_vendor);
}

WorkPtr CommBackend::recv(Tensors& tensors, int from, int tag) {
  if (on_cpu(tensors, "recv")) return gloo_->recv(tensors, from, tag);
  need_one(tensors, "recv");
  auto begun = begin(OpType::RECV, "recv", {}, tensors, Milliseconds(0), c10::str(" from rank ", from));
  const Piece piece = contiguous_piece(tensors[0], false, true);
  auto by_vendor = [&](CommVendor& v) { return v.recv(begun.work, piece, from); };
  if (from == rank_) return run_self(begun, by_vendor, [&] { self_.recv(tensors[0], tag, begun.work); });
  HostTask task = moved({piece});
  task.issue = [gloo = gloo_, from, tag](HostTensors& h) { return gloo->recv(h, from, tag); };
  return run(begun, std::move(task), by_vendor);
}

WorkPtr CommBackend::recvAnysource(Tensors& tensors, int tag) {
  if (on_cpu(tensors, "recv")) return gloo_->recvAnysource(tensors, tag);
  need_one(tensors, "recv");
  auto begun = begin(OpType::RECVANYSOURCE, "recv", {}, tensors, Milliseconds(0), " from any rank");
  HostTask task = moved({contiguous_piece(tensors[0], false, true)});
  task.issue = [gloo = gloo_, tag](HostTensors& h) { return gloo->recvAnysource(h, tag); };
  return run(begun, std::move(task));
}

WorkPtr CommBackend::barrier(const c10d::BarrierOptions& o) {
  auto begun = begin(OpType::BARRIER, "barrier", {}, {}, o.timeout);
  // All that the device was given is done before this rank says that it is here.
  if (any_device_opened()) current_stream(current_device()).sync();
  begun.work->set_blocking(true);
  HostTask task;
  c10d::BarrierOptions options = with_timeout(o, begun.work->task().timeout);
  options.device_ids.clear();
  options.device = c10::Device(c10::kCPU);
  task.issue = [gloo = gloo_, options](HostTensors&) { return gloo->barrier(options); };
  return run(begun, std::move(task), [&](CommVendor& v) { return v.barrier(begun.work); });
}

namespace {

// torch has this for the CPU's and CUDA's sparse tensors only; without it the call would go to the host rung, which
// does not know that the operator changes its arguments.
std::tuple<Tensors, WorkPtr> sparse_all_reduce(at::TensorList tensors,
                                               const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                               const c10::intrusive_ptr<c10d::ReduceOp>& op,
                                               const std::optional<at::Tensor>& indices, bool async, int64_t timeout) {
  Tensors all = tensors.vec();
  c10d::AllreduceOptions options;
  options.reduceOp = *op;
  options.timeout = Milliseconds(timeout);
  options.sparseIndices = indices;
  options.asyncOp = async;
  auto work = group->getBackend(kDeviceType)->allreduce_sparse(all, options);
  return {std::move(all), std::move(work)};
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) { m.impl("allreduce_", sparse_all_reduce); }

}  // namespace

void CommBackend::monitoredBarrier(const c10d::BarrierOptions& o, bool all_ranks) {
  check_open("monitored_barrier");
  host_->drain();
  gloo_->monitoredBarrier(o, all_ranks);
}

}  // namespace causeway
