#include "comm/vendor.h"

#include <numeric>

#include <ATen/ATen.h>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/profile.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

constexpr auto kComesLast = std::chrono::milliseconds(5000);  // after our own message

struct StoreContext {
  c10d::Store* store;
  std::string words;
};

cw_status store_set(void* context, const char* key, const void* data, uint64_t bytes) {
  auto* c = static_cast<StoreContext*>(context);
  try {
    const auto* from = static_cast<const uint8_t*>(data);
    c->store->set(key, std::vector<uint8_t>(from, from + bytes));
    return CW_OK;
  } catch (const std::exception& e) {
    c->words = e.what();
    return CW_FAILED;
  }
}

cw_status store_get(void* context, const char* key, void* data, uint64_t* bytes) {
  auto* c = static_cast<StoreContext*>(context);
  try {
    const auto value = c->store->get(key);
    if (value.size() > *bytes) return CW_INVALID;
    std::copy(value.begin(), value.end(), static_cast<uint8_t*>(data));
    *bytes = value.size();
    return CW_OK;
  } catch (const std::exception& e) {
    c->words = e.what();
    return CW_FAILED;
  }
}

at::Tensor as_bytes(const at::Tensor& t) {
  // Of a dense tensor, whatever its strides.
  return t.as_strided({t.numel()}, {1}).view(c10::kByte);
}

constexpr int kByteBit = 1;

cw_comm_v1 g_given{};  // as the vendor gave it

// An entry that puts work on the stream, its last argument. While a graph is recorded it is noted, and each replay calls it.
template <auto Member, class Entry>
struct Noted;
template <auto Member, class... A>
struct Noted<Member, cw_status (*)(A...)> {
  inline static const char* name = "";
  static cw_status call(A... args) {
    Graph* graph = Recording::graph();
    if (C10_LIKELY(!graph)) return (g_given.*Member)(args...);
    constexpr size_t kStream = sizeof...(A) - 1;
    std::tuple<A...> all(args...);
    graph->add(std::get<kStream>(all), call_step(name, [all](cw_stream stream) mutable {
                 std::get<kStream>(all) = stream;
                 return std::apply(g_given.*Member, all);
               }));
    return CW_OK;
  }
};
template <auto Member, class Entry>
void note(Entry& entry, const char* name) {
  Noted<Member, Entry>::name = name;
  if (entry) entry = Noted<Member, Entry>::call;
}

[[noreturn]] void refuse_group(Graph& graph) {
  graph.refuse("a group of sends and receives", "Capture what comes before it and after it, and call it between them");
}

}  // namespace

const cw_comm_v1* comm_entries() {
  static const cw_comm_v1* entries = []() -> const cw_comm_v1* {
    const auto* given = static_cast<const cw_comm_v1*>(vendor_loaded() ? vendor_extension("comm.v1") : nullptr);
    if (!given) return nullptr;
    auto* t = new cw_comm_v1{};  // for the life of the process
    std::memcpy(t, given, std::min<size_t>(given->struct_size, sizeof *t));
    if (!t->create || !t->destroy || !t->abort || !t->error) {
      TORCH_WARN(vendor_name(),
                 ": its comm.v1 lacks create, destroy, abort or error, so collectives go through the host");
      return nullptr;
    }
    if (!t->send || !t->recv) t->send = nullptr, t->recv = nullptr;
    if (!t->group_start || !t->group_end) t->group_start = nullptr, t->group_end = nullptr;
    g_given = *t;
    note<&cw_comm_v1::all_reduce>(t->all_reduce, "all_reduce");
    note<&cw_comm_v1::broadcast>(t->broadcast, "broadcast");
    note<&cw_comm_v1::reduce>(t->reduce, "reduce");
    note<&cw_comm_v1::all_gather>(t->all_gather, "all_gather");
    note<&cw_comm_v1::reduce_scatter>(t->reduce_scatter, "reduce_scatter");
    note<&cw_comm_v1::all_to_all>(t->all_to_all, "all_to_all");
    note<&cw_comm_v1::send>(t->send, "send");
    note<&cw_comm_v1::recv>(t->recv, "recv");
    return t;
  }();
  return entries;
}

std::shared_ptr<CommVendor> CommVendor::create(const Setup& setup, std::string& words) {
  const cw_comm_v1& t = *comm_entries();
  StoreContext context{setup.store.get(), ""};
  const cw_comm_store store{&context, store_set, store_get};
  cw_comm_info info{};
  info.struct_size = sizeof info;
  info.flags = setup.checked ? CW_COMM_CHECKED : 0;
  info.device = causeway::device(setup.device).vendor_id;
  info.rank = setup.rank;
  info.size = setup.size;
  info.timeout_ms = (setup.timeout + kComesLast).count();
  info.name = setup.group.c_str();
  info.store = &store;
  cw_comm comm = nullptr;
  const cw_status status = t.create(&info, &comm);
  if (status != CW_OK) {
    words = context.words.empty() ? last_words() : context.words;
    return nullptr;
  }
  return std::shared_ptr<CommVendor>(new CommVendor(comm, setup));
}

CommVendor::CommVendor(cw_comm comm, const Setup& setup)
    : t_(*comm_entries()),
      comm_(comm),
      rank_(setup.rank),
      size_(setup.size),
      device_(setup.device),
      group_(setup.group),
      stream_(stream_from_pool(setup.device, causeway::device(setup.device).info.priority_highest)) {}

CommVendor::~CommVendor() {
  if (past_use()) return;
  if (t_.destroy(comm_) != CW_OK) TORCH_WARN("while a communicator was destroyed: ", last_words());
}

void CommVendor::abort() {
  if (t_.abort(comm_) != CW_OK) TORCH_WARN("while a communicator was aborted: ", last_words());
}

std::string CommVendor::error() { return t_.error(comm_) == CW_OK ? "" : last_words(); }

bool CommVendor::takes(const Reduction& r) const {
  const int bit = bit_of_dtype(r.view);
  return r.direct && r.factor == 1 && bit >= 0 && (t_.dtypes >> bit & 1) && (t_.operations >> operation(r) & 1);
}

uint32_t CommVendor::operation(const Reduction& r) const {
  using Op = c10d::ReduceOp;
  if (r.average) return CW_AVERAGE;
  switch (r.op) {
    case Op::SUM:
      return CW_SUM;
    case Op::PRODUCT:
      return CW_PRODUCT;
    case Op::MIN:
      return CW_MIN;
    case Op::MAX:
      return CW_MAX;
    case Op::BAND:
      return CW_BAND;
    case Op::BOR:
      return CW_BOR;
    case Op::BXOR:
      return CW_BXOR;
    default:
      return 31;  // of no vendor
  }
}

namespace {

uint64_t count_as(const at::Tensor& t, c10::ScalarType view) { return t.nbytes() / c10::elementSize(view); }

}  // namespace

// What is put on the stream comes after all that this thread's stream has, and posts an event of its end.
bool CommVendor::put(const c10::intrusive_ptr<CommWork>& work, const std::vector<Piece>& pieces, const Call& call,
                     const std::function<void()>& after) {
  std::lock_guard lock(mutex_);
  at::NoGradGuard no_grad;
  StreamState& current = current_stream(device_);
  if (&current != &stream_) {
    std::unique_ptr<Event, void (*)(Event*)> ready(new_event(device_, false), [](Event* e) { destroy_event(e); });
    record_event(*ready, current);
    block_stream(stream_, *ready);
  }
  Graph* graph = graph_of(stream_);
  if (C10_UNLIKELY(graph && group_wanted_)) refuse_group(*graph);
  if (c10d::isP2POp(work->task().type)) {
    if (group_wanted_ && !grouping_) grouping_ = t_.group_start(comm_) == CW_OK;
  } else {
    end_group();
  }
  OnStream on(stream_);
  cw_status status;
  {
    Profiled span(Work::Kernel, work->task().name, &stream_);
    const Recording recording(graph, work->task().name);
    status = call(stream_);
    if (status == CW_UNSUPPORTED || grouping_) span.drop();  // a group is put there at its end
  }
  if (status == CW_UNSUPPORTED) return false;
  if (status != CW_OK)
    std::rethrow_exception(
        comm_error(c10::str(device_name(device_), " answered ", status_name(status), ": ", last_words())));
  stream_.give();
  if (C10_UNLIKELY(graph != nullptr)) {
    graph->hold([self = shared_from_this()] {});  // replays call the communicator
    graph->at_end([work] { work->drop_kept(); });  // of one that nobody waits for, too
  }
  if (after) after();
  if (grouping_)
    grouped_.emplace_back(work, pieces);
  else
    finish(work, pieces);
  return true;
}

void CommVendor::finish(const c10::intrusive_ptr<CommWork>& work, const std::vector<Piece>& pieces) {
  OnStream on(stream_);
  std::vector<at::Tensor> kept;
  for (const Piece& p : pieces) {
    if (p.original.defined() && p.out) p.original.copy_(p.tensor.view(p.original.sizes()));
    kept.push_back(p.tensor);
  }
  work->keep(std::move(kept));
  std::unique_ptr<Event, void (*)(Event*)> done(new_event(device_, false), [](Event* e) { destroy_event(e); });
  record_event(*done, stream_);
  work->post(done.release(), &stream_, nullptr);
}

void CommVendor::group_start() {
  std::lock_guard lock(mutex_);
  group_wanted_ = t_.group_start != nullptr;
}

void CommVendor::group_end() {
  std::lock_guard lock(mutex_);
  group_wanted_ = false;
  end_group();
}

void CommVendor::end_group() {
  if (!grouping_) return;
  grouping_ = false;
  auto grouped = std::move(grouped_);
  grouped_.clear();
  cw_status status;
  {
    Profiled span(Work::Kernel, "batch_isend_irecv", &stream_);
    status = t_.group_end(comm_);
  }
  if (status != CW_OK) {
    const auto error = comm_error(c10::str(device_name(device_), " failed to end a group: ", last_words()));
    for (auto& [work, pieces] : grouped) work->fail(error);
    return;
  }
  stream_.give();
  for (auto& [work, pieces] : grouped) {
    try {
      finish(work, pieces);
    } catch (...) {
      work->fail(std::current_exception());  // the others have an end of their own
    }
  }
}

// --- collectives ------------------------------------------------------------------------------------------------

cw_status CommVendor::all_reduce_on(const at::Tensor& t, const Reduction& r, StreamState& s) {
  void* data = t.mutable_data_ptr();
  const uint64_t n = count_as(t, r.view);
  const int32_t dtype = bit_of_dtype(r.view);
  if (t_.all_reduce) return t_.all_reduce(comm_, data, data, n, dtype, operation(r), s.handle);
  if (t_.reduce && t_.broadcast) {
    if (cw_status status = t_.reduce(comm_, data, data, n, dtype, operation(r), 0, s.handle)) return status;
    s.give();
    return t_.broadcast(comm_, data, n, dtype, 0, s.handle);
  }
  // All parts, and then each rank reduces them itself.
  at::Tensor flat = t.as_strided({t.numel()}, {1});
  if (r.view == c10::kByte) flat = flat.view(c10::kByte);
  at::Tensor all = at::empty({size_, flat.numel()}, flat.options());
  if (cw_status status = all_gather_on(flat.clone(), all, s)) return status;
  s.give();
  reduce_parts(all, flat, r);
  return CW_OK;
}

cw_status CommVendor::broadcast_on(const at::Tensor& t, int root, StreamState& s) {
  if (t_.broadcast) return t_.broadcast(comm_, t.mutable_data_ptr(), t.nbytes(), kByteBit, root, s.handle);
  at::Tensor bytes = as_bytes(t);
  if (t_.all_reduce && (t_.dtypes & CW_UINT8) && (t_.operations >> CW_SUM & 1)) {
    if (rank_ != root) bytes.zero_();
    return t_.all_reduce(comm_, bytes.mutable_data_ptr(), bytes.mutable_data_ptr(), bytes.numel(), kByteBit, CW_SUM,
                         s.handle);
  }
  if (!t_.all_gather) return CW_UNSUPPORTED;
  at::Tensor all = at::empty({size_, bytes.numel()}, bytes.options());
  if (cw_status status =
          t_.all_gather(comm_, bytes.const_data_ptr(), all.mutable_data_ptr(), bytes.numel(), kByteBit, s.handle))
    return status;
  s.give();
  bytes.copy_(all[root]);
  return CW_OK;
}

cw_status CommVendor::all_gather_on(const at::Tensor& in, const at::Tensor& out, StreamState& s) {
  if (t_.all_gather)
    return t_.all_gather(comm_, in.const_data_ptr(), out.mutable_data_ptr(), in.nbytes(), kByteBit, s.handle);
  at::Tensor parts = as_bytes(out).view({size_, -1});
  const bool sums = t_.all_reduce && (t_.dtypes & CW_UINT8) && (t_.operations >> CW_SUM & 1);
  if (!t_.broadcast && !sums) return CW_UNSUPPORTED;
  if (!t_.broadcast) parts.zero_();
  parts[rank_].copy_(as_bytes(in));
  if (!t_.broadcast)
    return t_.all_reduce(comm_, parts.mutable_data_ptr(), parts.mutable_data_ptr(), parts.numel(), kByteBit, CW_SUM,
                         s.handle);
  for (int r = 0; r < size_; ++r) {
    if (cw_status status = broadcast_on(parts[r], r, s)) return status;
    s.give();
  }
  return CW_OK;
}

bool CommVendor::all_reduce(const c10::intrusive_ptr<CommWork>& work, Piece data, const Reduction& r) {
  if (data.tensor.numel() == 0 || !takes(r)) return false;
  return put(work, {data}, [&](StreamState& s) { return all_reduce_on(data.tensor, r, s); });
}

bool CommVendor::broadcast(const c10::intrusive_ptr<CommWork>& work, Piece data, int root) {
  if (data.tensor.nbytes() == 0) return false;
  return put(work, {data}, [&](StreamState& s) { return broadcast_on(data.tensor, root, s); });
}

bool CommVendor::reduce(const c10::intrusive_ptr<CommWork>& work, Piece data, const Reduction& r, int root) {
  if (data.tensor.numel() == 0 || !takes(r)) return false;
  return put(work, {data}, [&](StreamState& s) -> cw_status {
    void* at = data.tensor.mutable_data_ptr();
    if (t_.reduce)
      return t_.reduce(comm_, at, at, count_as(data.tensor, r.view), bit_of_dtype(r.view), operation(r), root,
                       s.handle);
    at::Tensor copy = data.tensor.clone();
    work->keep({copy});
    if (cw_status status = all_reduce_on(copy, r, s)) return status;
    s.give();
    if (rank_ == root) data.tensor.copy_(copy);
    return CW_OK;
  });
}

bool CommVendor::all_gather(const c10::intrusive_ptr<CommWork>& work, Piece in, Piece out) {
  if (in.tensor.nbytes() == 0) return false;
  return put(work, {in, out}, [&](StreamState& s) { return all_gather_on(in.tensor, out.tensor, s); });
}

bool CommVendor::reduce_scatter(const c10::intrusive_ptr<CommWork>& work, Piece in, Piece out, const Reduction& r) {
  if (out.tensor.numel() == 0 || !takes(r)) return false;
  return put(work, {in, out}, [&](StreamState& s) -> cw_status {
    if (t_.reduce_scatter)
      return t_.reduce_scatter(comm_, in.tensor.const_data_ptr(), out.tensor.mutable_data_ptr(),
                               count_as(out.tensor, r.view), bit_of_dtype(r.view), operation(r), s.handle);
    at::Tensor copy = in.tensor.clone();
    work->keep({copy});
    if (cw_status status = all_reduce_on(copy, r, s)) return status;
    s.give();
    out.tensor.view(-1).copy_(copy.view({size_, -1})[rank_]);
    return CW_OK;
  });
}

bool CommVendor::all_to_all(const c10::intrusive_ptr<CommWork>& work, Piece in, Piece out, std::vector<int64_t> ins,
                            std::vector<int64_t> outs, const std::function<void()>& after) {
  if (!t_.all_to_all && !(t_.send && t_.group_start)) return false;
  struct Counts {
    std::vector<uint64_t> in, out, in_offsets, out_offsets;
  };
  const auto counts = std::make_shared<Counts>();  // a graph keeps them
  auto &in_counts = counts->in, &out_counts = counts->out;
  auto &in_offsets = counts->in_offsets, &out_offsets = counts->out_offsets;
  in_counts.assign(ins.begin(), ins.end()), out_counts.assign(outs.begin(), outs.end());
  in_offsets.resize(size_), out_offsets.resize(size_);
  std::exclusive_scan(in_counts.begin(), in_counts.end(), in_offsets.begin(), uint64_t{0});
  std::exclusive_scan(out_counts.begin(), out_counts.end(), out_offsets.begin(), uint64_t{0});
  auto call = [&](StreamState& s) -> cw_status {
    const char* from = static_cast<const char*>(in.tensor.numel() ? in.tensor.const_data_ptr() : nullptr);
    char* to = static_cast<char*>(out.tensor.numel() ? out.tensor.mutable_data_ptr() : nullptr);
    Graph* graph = graph_of(s);
    if (t_.all_to_all) {
      if (graph) graph->hold([counts] {});
      return t_.all_to_all(comm_, from, in_counts.data(), in_offsets.data(), to, out_counts.data(), out_offsets.data(),
                           kByteBit, s.handle);
    }
    if (graph) refuse_group(*graph);
    if (cw_status status = t_.group_start(comm_)) return status;
    for (int r = 0; r < size_; ++r) {
      cw_status status = CW_OK;
      if (in_counts[r]) status = t_.send(comm_, from + in_offsets[r], in_counts[r], kByteBit, r, s.handle);
      if (status == CW_OK && out_counts[r])
        status = t_.recv(comm_, to + out_offsets[r], out_counts[r], kByteBit, r, s.handle);
      if (status != CW_OK) return status == CW_UNSUPPORTED ? CW_FAILED : status;
    }
    return t_.group_end(comm_);
  };
  return put(work, {in, out}, call, after);
}

bool CommVendor::gather(const c10::intrusive_ptr<CommWork>& work, Piece in, std::vector<at::Tensor> places) {
  if (in.tensor.nbytes() == 0) return false;
  at::Tensor whole = at::empty({size_, in.tensor.numel()}, in.tensor.options());
  return put(
      work, {in, {whole, {}, false, true}}, [&](StreamState& s) { return all_gather_on(in.tensor, whole, s); },
      [&] {
        for (size_t r = 0; r < places.size(); ++r) places[r].detach().copy_(whole[r].view(places[r].sizes()));
      });
}

bool CommVendor::scatter(const c10::intrusive_ptr<CommWork>& work, at::Tensor out, std::vector<at::Tensor> parts,
                         int root) {
  if (out.nbytes() == 0) return false;
  at::Tensor whole = at::empty({size_, out.numel()}, out.options());
  for (size_t r = 0; r < parts.size(); ++r) whole[r].copy_(parts[r].detach().reshape(-1));
  return put(
      work, {{whole, {}, true, false}}, [&](StreamState& s) { return broadcast_on(whole, root, s); },
      [&] { out.detach().copy_(whole[rank_].view(out.sizes())); });
}

bool CommVendor::all_to_all_parts(const c10::intrusive_ptr<CommWork>& work, const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Tensor>& outputs) {
  std::vector<int64_t> ins, outs;
  std::vector<at::Tensor> flat;
  for (const at::Tensor& t : inputs) {
    ins.push_back(static_cast<int64_t>(t.nbytes()));
    flat.push_back(t.detach().contiguous().view(-1).view(c10::kByte));
  }
  for (const at::Tensor& t : outputs) outs.push_back(static_cast<int64_t>(t.nbytes()));
  at::Tensor in = at::cat(flat);
  at::Tensor out = at::empty({std::accumulate(outs.begin(), outs.end(), int64_t{0})}, in.options());
  return all_to_all(work, {in, {}, true, false}, {out, {}, false, true}, ins, outs, [&] {
    int64_t begin = 0;
    for (size_t r = 0; r < outputs.size(); begin += outs[r++]) {
      const at::Tensor part = out.narrow(0, begin, outs[r]).clone();  // where its dtype's alignment is
      outputs[r].detach().copy_(part.view(outputs[r].scalar_type()).view(outputs[r].sizes()));
    }
  });
}

bool CommVendor::send(const c10::intrusive_ptr<CommWork>& work, Piece data, int peer) {
  return put(work, {data}, [&](StreamState& s) {
    return t_.send(comm_, data.tensor.const_data_ptr(), data.tensor.nbytes(), kByteBit, peer, s.handle);
  });
}

bool CommVendor::recv(const c10::intrusive_ptr<CommWork>& work, Piece data, int peer) {
  return put(work, {data}, [&](StreamState& s) {
    return t_.recv(comm_, data.tensor.mutable_data_ptr(), data.tensor.nbytes(), kByteBit, peer, s.handle);
  });
}

bool CommVendor::barrier(const c10::intrusive_ptr<CommWork>& work) {
  if (!t_.barrier) return false;
  return put(work, {}, [&](StreamState& s) { return t_.barrier(comm_, s.handle); });
}

std::map<std::string, std::string> CommVendor::routes(const cw_comm_v1& t) {
  std::map<std::string, std::string> out;
  const bool sums = t.all_reduce && (t.dtypes & CW_UINT8) && (t.operations >> CW_SUM & 1);
  auto way = [&](const char* name, bool native, std::initializer_list<std::pair<bool, const char*>> others) {
    std::string& way_of = out[name] = native ? "native" : "host";
    if (native) return;
    for (const auto& [there, how] : others)
      if (there) {
        way_of = how;
        return;
      }
  };
  const bool gathers = t.all_gather || t.broadcast || sums;
  way("all_reduce", t.all_reduce, {{t.reduce && t.broadcast, "reduce, broadcast"}, {gathers, "all_gather"}});
  way("broadcast", t.broadcast, {{sums, "all_reduce"}, {t.all_gather, "all_gather"}});
  way("all_gather", t.all_gather, {{t.broadcast, "broadcast"}, {sums, "all_reduce"}});
  const bool reduces = out["all_reduce"] != "host";
  way("reduce", t.reduce, {{reduces, "all_reduce"}});
  way("reduce_scatter", t.reduce_scatter, {{reduces, "all_reduce"}});
  way("all_to_all", t.all_to_all, {{t.send && t.group_start, "send, recv"}});
  way("gather", false, {{gathers, "all_gather"}});
  way("scatter", false, {{out["broadcast"] != "host", "broadcast"}});
  way("barrier", t.barrier, {});
  way("send", false, {});
  way("recv", false, {});
  return out;
}

}  // namespace causeway
