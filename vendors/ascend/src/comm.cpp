// Collectives by HCCL. It sums and takes the least and the largest: it has no average and no operations on bits, multiplies
// neither int16 nor bfloat16 (so no product is offered), and reduces no uint8 and no float64. The core does those with
// what there is. What is only moved goes as whole numbers of its size.
//
// HCCL has no timeout for one collective and no abort: a thread of each communicator watches an event behind each
// collective, and at its deadline the streams are told to drop what they have (aclrtStreamAbort).
#include "comm.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "acl.hpp"
#include "device.hpp"
#include "error.hpp"
#include "hccl.hpp"
#include "profile.hpp"
#include "stream.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Pending {
  ascend::Event event;
  ascend::Stream stream;
  Clock::time_point deadline;
  std::string what;
};

}  // namespace

struct cw_comm_t {
  ascend::Device* device = nullptr;
  ascend::HcclComm hccl = nullptr;
  int32_t rank = 0, size = 0;
  std::chrono::milliseconds timeout{0};
  std::string name;

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::deque<Pending> pending;
  std::vector<std::pair<void*, uint64_t>> lent;  // device memory, by size; freed with the group
  std::string failure;  // why all that comes after fails; empty: nothing has failed
  bool ended = false;
  std::thread watcher;

  bool grouping = false;  // of the thread between group_start and group_end
  std::vector<ascend::HcclItem> items;
  cw_stream group_stream = nullptr;
};

namespace ascend {

Hccl hccl;

const char* open_hccl() {
  static std::once_flag once;
  static char words[1024];
  std::call_once(once, [] {
    open_acl();
    std::string path, why, missing;
    void* library = open_library("libhccl.so", &path, &why);
    if (!library) {
      snprintf(words, sizeof(words), "HCCL's libhccl.so cannot be opened (%s)", why.c_str());
      return;
    }
#define FIND(name, symbol, parameters)                                               \
  hccl.name = reinterpret_cast<HcclResult(*) parameters>(find_in(library, #symbol)); \
  if (!hccl.name && missing.empty()) missing = #symbol;
    HCCL_FUNCTIONS(FIND)
#undef FIND
    hccl.words = reinterpret_cast<const char* (*)(HcclResult)>(find_in(library, "HcclGetErrorString"));
    if (!missing.empty())
      snprintf(words, sizeof(words), "HCCL's %s cannot be used: it has no %s", path.c_str(), missing.c_str());
  });
  return words;
}

namespace {

cw_status check_hccl(HcclResult result, const char* function) {
  if (!result) return CW_OK;
  const char* said = hccl.words ? hccl.words(result) : nullptr;
  const char* more = acl.words ? acl.words() : nullptr;
  const cw_status status = result == kHcclParameter || result == kHcclPointer ? CW_INVALID
                           : result == kHcclMemory                            ? CW_OUT_OF_MEMORY
                           : result == kHcclUnsupported                       ? CW_UNSUPPORTED
                                                                              : CW_FAILED;
  return fail(status, "%s: result %d%s%s%s%s", function, result, said ? ", " : "", said ? said : "",
              more && *more ? ": " : "", more ? more : "");
}

struct Type {
  int hccl = -1;
  uint64_t times = 1;  // HCCL's elements for one
};

// What HCCL reduces; -1: not this dtype.
int reduced_type(int32_t dtype) {
  switch (uint64_t{1} << dtype) {
    case CW_INT8:
      return 0;
    case CW_INT16:
      return 1;
    case CW_INT32:
      return 2;
    case CW_FLOAT16:
      return 3;
    case CW_FLOAT32:
      return 4;
    case CW_INT64:
      return 5;
    case CW_BFLOAT16:
      return 11;
    default:
      return -1;
  }
}
constexpr cw_dtypes kReduced = CW_INT8 | CW_INT16 | CW_INT32 | CW_INT64 | CW_FLOAT16 | CW_FLOAT32 | CW_BFLOAT16;

// Moved as whole numbers of the same size.
Type moved_type(int32_t dtype) {
  const uint64_t bit = uint64_t{1} << dtype;
  if (bit & (CW_COMPLEX128)) return {5, 2};
  if (bit & (CW_INT64 | CW_UINT64 | CW_FLOAT64 | CW_COMPLEX64)) return {5, 1};
  if (bit & (CW_INT32 | CW_UINT32 | CW_FLOAT32 | CW_COMPLEX32)) return {2, 1};
  if (bit & (CW_INT16 | CW_UINT16 | CW_FLOAT16 | CW_BFLOAT16)) return {1, 1};
  return {0, 1};
}

int reduction(uint32_t operation) {
  switch (operation) {
    case CW_SUM:
      return 0;
    case CW_MAX:
      return 2;
    case CW_MIN:
      return 3;
    default:
      return -1;
  }
}

// Says why, once, and drops what the streams have.
void break_up(cw_comm_t& comm, const std::string& why) {
  std::vector<Stream> streams;
  {
    std::lock_guard<std::mutex> lock(comm.mutex);
    if (!comm.failure.empty()) return;
    comm.failure = why;
    for (const Pending& p : comm.pending) streams.push_back(p.stream);
  }
  if (acl.stream_abort)
    for (Stream stream : streams) acl.stream_abort(stream);
}

void watch(cw_comm_t* comm) {
  Device* device = nullptr;
  if (find_device("comm", comm->device->index, &device)) return;
  std::unique_lock<std::mutex> lock(comm->mutex);
  while (!comm->ended) {
    if (comm->pending.empty()) {
      comm->changed.wait(lock);
      continue;
    }
    Pending& first = comm->pending.front();
    int status = kEventComplete;
    if (acl.event_status(first.event, &status) != kSuccess || status == kEventComplete) {
      acl.event_destroy(first.event);
      comm->pending.pop_front();
      continue;
    }
    if (comm->failure.empty() && Clock::now() > first.deadline) {
      const std::string why = first.what + " of group " + comm->name + ", rank " + std::to_string(comm->rank) +
                              ": not done after " + std::to_string(comm->timeout.count()) + " ms";
      lock.unlock();
      break_up(*comm, why);
      lock.lock();
      continue;
    }
    comm->changed.wait_for(lock, std::chrono::milliseconds(5));
  }
  for (const Pending& p : comm->pending) acl.event_destroy(p.event);
  comm->pending.clear();
}

cw_status error(cw_comm comm) {
  std::lock_guard<std::mutex> lock(comm->mutex);
  if (!comm->failure.empty()) return fail(CW_FAILED, "%s", comm->failure.c_str());
  HcclResult result = 0;
  TRY(check_hccl(hccl.async_error(comm->hccl, &result), "HcclGetCommAsyncError"));
  return check_hccl(result, "HCCL");
}

// The device made this thread's, and HCCL's stream; fails where something has failed before.
cw_status enter(const char* entry, cw_comm comm, cw_stream handle, Stream* stream) {
  Device* device = nullptr;
  TRY(find_device(entry, comm->device->index, &device));
  TRY(find_stream(entry, *device, handle, stream));
  std::lock_guard<std::mutex> lock(comm->mutex);
  return comm->failure.empty() ? CW_OK : fail(CW_FAILED, "%s: %s", entry, comm->failure.c_str());
}

// Puts a collective on a stream, and an event behind it, for the watcher. A trace has events around it: HCCL's kernels,
// on whatever streams it has, are not told apart.
template <class Call>
cw_status put(const char* entry, cw_comm comm, cw_stream handle, Stream stream, Call call) {
  HcclResult result = 0;
  {
    const Timed timed(*comm->device, handle);
    result = call();
  }
  TRY(check_hccl(result, entry));
  Event event = nullptr;
  TRY(check(acl.event_create(&event, kEventSync), "aclrtCreateEventExWithFlag"));
  TRY(check(acl.event_record(event, stream), "aclrtRecordEvent"));
  std::lock_guard<std::mutex> lock(comm->mutex);
  comm->pending.push_back({event, stream, Clock::now() + comm->timeout, entry});
  comm->changed.notify_all();
  return CW_OK;
}

cw_status reduces(const char* entry, int32_t dtype, uint32_t operation, int* type, int* how) {
  *type = reduced_type(dtype), *how = reduction(operation);
  if (*how < 0) return fail(CW_UNSUPPORTED, "%s: HCCL has no reduction %u", entry, operation);
  if (*type < 0) return fail(CW_UNSUPPORTED, "%s: HCCL does not reduce dtype %d", entry, dtype);
  return CW_OK;
}

// Memory whose content nobody reads: the same for all who ask.
cw_status lend(cw_comm_t& comm, uint64_t bytes, void** out) {
  std::lock_guard<std::mutex> lock(comm.mutex);
  if (comm.lent.empty() || comm.lent.back().second < bytes) {
    void* made = nullptr;
    TRY(check(acl.alloc(&made, std::max<uint64_t>(bytes, 64), kHugeFirst), "aclrtMalloc"));
    comm.lent.emplace_back(made, bytes);
  }
  return *out = comm.lent.back().first, CW_OK;
}

// ---- groups ----------------------------------------------------------------------------------------------------------
// All ranks say by the store whether they can, so that none waits within HCCL for one that cannot.
cw_status all_can(const cw_comm_info& info, const std::string& why) {
  const cw_comm_store& store = *info.store;
  const std::string mine = "hccl.rank." + std::to_string(info.rank);
  TRY(store.set(store.context, mine.c_str(), why.data(), why.size()));
  for (int32_t r = 0; r < info.size; ++r) {
    char text[512];
    uint64_t bytes = sizeof(text);
    TRY(store.get(store.context, ("hccl.rank." + std::to_string(r)).c_str(), text, &bytes));
    if (bytes) return fail(CW_UNSUPPORTED, "rank %d of group %s: %.*s", r, info.name, static_cast<int>(bytes), text);
  }
  return CW_OK;
}

cw_status create(const cw_comm_info* info, cw_comm* out) {
  Device* device = nullptr;
  TRY(find_device("comm_create", info->device, &device));
  std::string why = open_hccl();
  if (info->flags & CW_COMM_CHECKED) why = "HCCL finds neither changed data nor ranks that do different things";
  TRY(all_can(*info, why.substr(0, 500)));
  HcclRoot root = {};
  uint64_t bytes = sizeof(root);
  const cw_comm_store& store = *info->store;
  if (info->rank == 0) {
    TRY(check_hccl(hccl.root(&root), "HcclGetRootInfo"));
    TRY(store.set(store.context, "hccl.root", &root, bytes));
  } else {
    TRY(store.get(store.context, "hccl.root", &root, &bytes));
  }
  HcclComm made = nullptr;
  TRY(check_hccl(hccl.init(static_cast<uint32_t>(info->size), &root, static_cast<uint32_t>(info->rank), &made),
                 "HcclCommInitRootInfo"));
  auto comm = std::make_unique<cw_comm_t>();
  comm->device = device, comm->hccl = made, comm->rank = info->rank, comm->size = info->size;
  comm->timeout = std::chrono::milliseconds(info->timeout_ms), comm->name = info->name ? info->name : "";
  comm->watcher = std::thread(watch, comm.get());
  return *out = comm.release(), CW_OK;
}

cw_status destroy(cw_comm comm) {
  Device* device = nullptr;
  TRY(find_device("comm_destroy", comm->device->index, &device));
  {
    std::lock_guard<std::mutex> lock(comm->mutex);
    comm->ended = true;
    comm->changed.notify_all();
  }
  comm->watcher.join();
  const HcclResult result = hccl.destroy(comm->hccl);
  for (const auto& given : comm->lent) acl.free(given.first);
  delete comm;
  return check_hccl(result, "HcclCommDestroy");
}

cw_status abort(cw_comm comm) {
  Device* device = nullptr;
  TRY(find_device("comm_abort", comm->device->index, &device));
  break_up(*comm, "group " + comm->name + " was aborted");
  return CW_OK;
}

// ---- collectives -----------------------------------------------------------------------------------------------------
cw_status all_reduce(cw_comm comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                     cw_stream handle) {
  int type, how;
  Stream stream;
  TRY(reduces("all_reduce", dtype, operation, &type, &how));
  TRY(enter("all_reduce", comm, handle, &stream));
  return put("HcclAllReduce", comm, handle, stream,
             [&] { return hccl.all_reduce(const_cast<void*>(in), out, count, type, how, comm->hccl, stream); });
}

cw_status broadcast(cw_comm comm, void* data, uint64_t count, int32_t dtype, int32_t root, cw_stream handle) {
  Stream stream;
  TRY(enter("broadcast", comm, handle, &stream));
  const Type type = moved_type(dtype);
  return put("HcclBroadcast", comm, handle, stream, [&] {
    return hccl.broadcast(data, count * type.times, type.hccl, static_cast<uint32_t>(root), comm->hccl, stream);
  });
}

cw_status reduce(cw_comm comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                 int32_t root, cw_stream handle) {
  int type, how;
  Stream stream;
  TRY(reduces("reduce", dtype, operation, &type, &how));
  TRY(enter("reduce", comm, handle, &stream));
  if (comm->rank != root) {  // HCCL wants a place on every rank; what it does with it is not said
    static constexpr uint64_t sizes[] = {1, 2, 4, 2, 4, 8, 0, 0, 0, 0, 0, 2};
    TRY(lend(*comm, count * sizes[type], &out));
  }
  return put("HcclReduce", comm, handle, stream, [&] {
    return hccl.reduce(const_cast<void*>(in), out, count, type, how, static_cast<uint32_t>(root), comm->hccl, stream);
  });
}

cw_status all_gather(cw_comm comm, const void* in, void* out, uint64_t count, int32_t dtype, cw_stream handle) {
  Stream stream;
  TRY(enter("all_gather", comm, handle, &stream));
  const Type type = moved_type(dtype);
  return put("HcclAllGather", comm, handle, stream, [&] {
    return hccl.all_gather(const_cast<void*>(in), out, count * type.times, type.hccl, comm->hccl, stream);
  });
}

cw_status reduce_scatter(cw_comm comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                         cw_stream handle) {
  int type, how;
  Stream stream;
  TRY(reduces("reduce_scatter", dtype, operation, &type, &how));
  TRY(enter("reduce_scatter", comm, handle, &stream));
  return put("HcclReduceScatter", comm, handle, stream,
             [&] { return hccl.reduce_scatter(const_cast<void*>(in), out, count, type, how, comm->hccl, stream); });
}

cw_status all_to_all(cw_comm comm, const void* in, const uint64_t* in_counts, const uint64_t* in_offsets, void* out,
                     const uint64_t* out_counts, const uint64_t* out_offsets, int32_t dtype, cw_stream handle) {
  Stream stream;
  TRY(enter("all_to_all", comm, handle, &stream));
  const Type type = moved_type(dtype);
  const auto times = [&](const uint64_t* from) {
    std::vector<uint64_t> all(from, from + comm->size);
    for (uint64_t& n : all) n *= type.times;
    return all;
  };
  const auto a = times(in_counts), b = times(in_offsets), c = times(out_counts), d = times(out_offsets);
  return put("HcclAlltoAllV", comm, handle, stream, [&] {
    return hccl.all_to_all(in, a.data(), b.data(), type.hccl, out, c.data(), d.data(), type.hccl, comm->hccl, stream);
  });
}

cw_status barrier(cw_comm comm, cw_stream handle) {
  Stream stream;
  TRY(enter("barrier", comm, handle, &stream));
  return put("HcclBarrier", comm, handle, stream, [&] { return hccl.barrier(comm->hccl, stream); });
}

// ---- messages --------------------------------------------------------------------------------------------------------
cw_status message(const char* entry, int kind, cw_comm comm, void* data, uint64_t count, int32_t dtype, int32_t peer,
                  cw_stream handle) {
  Stream stream;
  TRY(enter(entry, comm, handle, &stream));
  const Type type = moved_type(dtype);
  const HcclItem item{kind, data, count * type.times, type.hccl, static_cast<uint32_t>(peer)};
  if (comm->grouping) {
    if (!comm->items.empty() && comm->group_stream != handle)
      return fail(CW_INVALID, "%s: the messages of a group are of one stream", entry);
    comm->group_stream = handle;
    return comm->items.push_back(item), CW_OK;
  }
  return kind ? put("HcclRecv", comm, handle, stream,
                    [&] { return hccl.recv(data, item.count, item.type, item.peer, comm->hccl, stream); })
              : put("HcclSend", comm, handle, stream,
                    [&] { return hccl.send(data, item.count, item.type, item.peer, comm->hccl, stream); });
}

cw_status send(cw_comm comm, const void* in, uint64_t count, int32_t dtype, int32_t peer, cw_stream handle) {
  return message("send", 0, comm, const_cast<void*>(in), count, dtype, peer, handle);
}

cw_status recv(cw_comm comm, void* out, uint64_t count, int32_t dtype, int32_t peer, cw_stream handle) {
  return message("recv", 1, comm, out, count, dtype, peer, handle);
}

cw_status group_start(cw_comm comm) {
  if (comm->grouping) return fail(CW_INVALID, "group_start: a group has begun already");
  return comm->grouping = true, CW_OK;
}

// In a batch of HCCL's a pair of ranks has one message each way: the second of a pair goes into the next batch.
cw_status group_end(cw_comm comm) {
  if (!comm->grouping) return fail(CW_INVALID, "group_end: no group has begun");
  comm->grouping = false;
  std::vector<HcclItem> left;
  left.swap(comm->items);
  Stream stream;
  if (!left.empty()) TRY(enter("group_end", comm, comm->group_stream, &stream));
  while (!left.empty()) {
    std::vector<HcclItem> batch, later;
    for (const HcclItem& item : left) {
      bool taken = false;
      for (const HcclItem& other : batch) taken = taken || (other.kind == item.kind && other.peer == item.peer);
      (taken ? later : batch).push_back(item);
    }
    TRY(put("HcclBatchSendRecv", comm, comm->group_stream, stream,
            [&] { return hccl.batch(batch.data(), static_cast<uint32_t>(batch.size()), comm->hccl, stream); }));
    left.swap(later);
  }
  return CW_OK;
}

}  // namespace

const cw_comm_v1 comm_table = {sizeof(cw_comm_v1),
                               1u << CW_SUM | 1u << CW_MAX | 1u << CW_MIN,
                               kReduced,
                               create,
                               destroy,
                               abort,
                               error,
                               all_reduce,
                               broadcast,
                               reduce,
                               all_gather,
                               reduce_scatter,
                               all_to_all,
                               barrier,
                               send,
                               recv,
                               group_start,
                               group_end};

}  // namespace ascend
