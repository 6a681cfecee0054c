// The ranks share one file of memory. Each has a page of counters and two buffers there. A collective goes in rounds: a
// rank puts a chunk of what it gives into one of its buffers and counts itself as posted, waits until all have, reads
// theirs, and counts itself as done; a buffer is written again when all are done with it. Sends have a buffer pair for
// each ordered pair of ranks. Waiting is a short spin, then a futex.
//
// Every rank reduces all chunks in the order of the ranks, so that results are the same bits everywhere.
#include "comm.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device.hpp"
#include "error.hpp"
#include "ops/dtype.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace sim {

namespace {

using Clock = std::chrono::steady_clock;
using Counter = std::atomic<uint32_t>;  // wraps around; differences count

constexpr uint64_t chunk_bytes = UINT64_C(1) << 20;  // of a rank, and there are two
constexpr uint64_t pair_bytes = UINT64_C(256) << 10;  // of an ordered pair of ranks, and there are two
constexpr uint64_t magic = UINT64_C(0x63772d636f6d6d31);
constexpr int32_t most_ranks = 64;

struct alignas(64) Page {
  Counter posted, done;  // rounds
  std::atomic<int32_t> pid;
  // Of the round that was posted last, and the one before it.
  struct Said {
    uint32_t collective;
    uint32_t operation;
    uint64_t bytes;
    uint64_t most;  // of all_to_all: bytes of its largest part
    uint64_t sum;  // of the chunk, where it is checked
  } said[2];
};

struct alignas(64) Pipe {
  Counter sent, taken;  // chunks
};

struct Head {
  std::atomic<uint64_t> magic;
  Counter attached, aborted;
};

uint64_t checksum(const char* data, uint64_t bytes) {
  uint64_t sum = UINT64_C(14695981039346656037), word = 0;
  uint64_t i = 0;
  for (; i + 8 <= bytes; i += 8) memcpy(&word, data + i, 8), sum = (sum ^ word) * UINT64_C(1099511628211);
  for (; i < bytes; ++i) sum = (sum ^ uint8_t(data[i])) * UINT64_C(1099511628211);
  return sum;
}

void futex_wait(Counter& counter, uint32_t seen) {
  timespec timeout{0, 5 * 1000 * 1000};  // so that whoever waits sees an end from elsewhere
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&counter), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}
void futex_wake(Counter& counter) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&counter), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Where process ids of two ranks mean the same, which is what the watch over each other needs: one kernel, and one
// namespace of process ids.
std::string neighbourhood() {
  char boot[64] = {}, space[64] = {};
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && read(fd, boot, sizeof(boot) - 1) < 0) boot[0] = 0;
  if (fd >= 0) close(fd);
  if (readlink("/proc/self/ns/pid", space, sizeof(space) - 1) < 0) space[0] = 0;
  return std::string(boot) + space;
}

// Also one that its parent has not asked after yet, which signals still reach.
bool ended(int32_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  char path[32], text[256] = {};
  snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  const char* name_end = n > 0 ? strrchr(text, ')') : nullptr;
  return name_end && name_end[1] == ' ' && (name_end[2] == 'Z' || name_end[2] == 'X');
}

// --- reductions of two dense arrays -------------------------------------------------------------------------------

template <class T, class Wide>
struct As {
  static Wide get(T v) { return Wide(v); }
  static T put(Wide v) { return T(v); }
};
template <>
struct As<Half, float> {
  static float get(Half v) { return widen(v); }
  static Half put(float v) { return to_half(v); }
};
template <>
struct As<BFloat16, float> {
  static float get(BFloat16 v) { return widen(v); }
  static BFloat16 put(float v) {
    uint32_t bits = bit_cast<uint32_t>(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return BFloat16{uint16_t(bits >> 16 | 0x40)};
    return BFloat16{uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
  }
};

template <class T, class Wide, class F>
void fold(T* out, const char* const* parts, int32_t n, uint64_t count, F f) {
  const T* first = reinterpret_cast<const T*>(parts[0]);
  if (n == 2) {  // by far the most, and the compiler makes it fast
    const T* second = reinterpret_cast<const T*>(parts[1]);
    for (uint64_t i = 0; i < count; ++i)
      out[i] = As<T, Wide>::put(f(As<T, Wide>::get(first[i]), As<T, Wide>::get(second[i])));
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    Wide total = As<T, Wide>::get(first[i]);
    for (int32_t r = 1; r < n; ++r) total = f(total, As<T, Wide>::get(reinterpret_cast<const T*>(parts[r])[i]));
    out[i] = As<T, Wide>::put(total);
  }
}

template <class T, class Wide>
cw_status reduce_as(void* out, const char* const* parts, int32_t n, uint64_t count, uint32_t operation) {
  T* to = static_cast<T*>(out);
  switch (operation) {
    case CW_SUM:
    case CW_AVERAGE:
      fold<T, Wide>(to, parts, n, count, [](Wide a, Wide b) { return Wide(a + b); });
      if (operation == CW_AVERAGE)
        for (uint64_t i = 0; i < count; ++i) to[i] = As<T, Wide>::put(Wide(As<T, Wide>::get(to[i]) / Wide(n)));
      return CW_OK;
    case CW_PRODUCT:
      fold<T, Wide>(to, parts, n, count, [](Wide a, Wide b) { return Wide(a * b); });
      return CW_OK;
    // Not a number wins, as in torch's amin and amax.
    case CW_MIN:
      fold<T, Wide>(to, parts, n, count, [](Wide a, Wide b) { return a != a || a < b ? a : b; });
      return CW_OK;
    case CW_MAX:
      fold<T, Wide>(to, parts, n, count, [](Wide a, Wide b) { return a != a || a > b ? a : b; });
      return CW_OK;
    default:
      return fail(CW_UNSUPPORTED, "a reduction of this kind is not offered");
  }
}

cw_status reduce_parts(void* out, const char* const* parts, int32_t n, uint64_t count, int32_t dtype,
                       uint32_t operation) {
  switch (dtype) {
    case kUInt8:
      return reduce_as<uint8_t, uint8_t>(out, parts, n, count, operation);
    case kInt8:
      return reduce_as<int8_t, int8_t>(out, parts, n, count, operation);
    case kInt32:
      return reduce_as<int32_t, int32_t>(out, parts, n, count, operation);
    case kInt64:
      return reduce_as<int64_t, int64_t>(out, parts, n, count, operation);
    case kHalf:
      return reduce_as<Half, float>(out, parts, n, count, operation);
    case kBFloat16:
      return reduce_as<BFloat16, float>(out, parts, n, count, operation);
    case kFloat:
      return reduce_as<float, float>(out, parts, n, count, operation);
    case kDouble:
      return reduce_as<double, double>(out, parts, n, count, operation);
    default:
      return fail(CW_UNSUPPORTED, "a reduction of dtype %d is not offered", dtype);
  }
}

constexpr cw_dtypes reduced_dtypes =
    CW_UINT8 | CW_INT8 | CW_INT32 | CW_INT64 | CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_FLOAT64;
constexpr uint32_t operations = 1u << CW_SUM | 1u << CW_PRODUCT | 1u << CW_MIN | 1u << CW_MAX | 1u << CW_AVERAGE;

enum Collective : uint32_t { kAllReduce = 1, kBroadcast, kReduce, kAllGather, kReduceScatter, kAllToAll, kBarrier };
const char* const names[] = {"",           "all_reduce",     "broadcast",  "reduce",
                             "all_gather", "reduce_scatter", "all_to_all", "barrier"};

// "Rank `rank` does `what` in its nth collective."
struct Fault {
  int32_t rank;
  std::string what;  // dies, late, corrupts, drops
  int64_t nth;
};

// Settings "comm" and "comm_fault". Words about a bad value are what `create` answers with.
struct Wanted {
  std::string entries = "shared";  // or none, or the only entries to offer
  std::vector<Fault> faults;
  std::string error;
};

bool comm_entries_known(const std::string& names);

const Wanted& wanted() {
  static const Wanted* read = [] {
    auto* w = new Wanted;  // streams' threads may outlive static destructors
    auto setting = [](const char* key) {
      const char* found = host().setting ? host().setting(key) : nullptr;
      return std::string(found ? found : "");
    };
    if (std::string value = setting("comm"); !value.empty()) w->entries = value;
    if (w->entries != "shared" && w->entries != "none" && !comm_entries_known(w->entries))
      w->error = "setting \"comm\" of the simulated chip (CAUSEWAY_SIM_COMM) is \"" + w->entries +
                 "\"; allowed: shared, none, or entries of comm.v1 joined by +, such as all_reduce+broadcast";
    const std::string list = setting("comm_fault");
    for (size_t begin = 0; begin < list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      const std::string part = list.substr(begin, end - begin);
      char what[16] = {};
      int rank = 0;
      long long nth = 0;
      Fault f;
      // So few digits that each number fits. NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion)
      if (sscanf(part.c_str(), " %9d:%15[a-z]:%18lld", &rank, what, &nth) == 3) f = {rank, what, nth};
      if (f.what != "dies" && f.what != "late" && f.what != "corrupts" && f.what != "drops")
        w->error = "setting \"comm_fault\" of the simulated chip (CAUSEWAY_SIM_COMM_FAULT) has \"" + part +
                   "\"; allowed: <rank>:<what>:<n>, what is dies, late, corrupts or drops";
      else
        w->faults.push_back(f);
      begin = end + 1;
    }
    return w;
  }();
  return *read;
}

int64_t size_of_bit(int32_t dtype) {
  static const int64_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 8, 16, 1, 1, 1, 1, 1, 1};
  return dtype >= 0 && dtype < 22 ? sizes[dtype] : 0;
}

}  // namespace

}  // namespace sim

// A communicator. Never freed by a stream's thread: tasks hold it.
struct cw_comm_t {
  sim::Device* device = nullptr;
  int32_t rank = 0, size = 0;
  bool checked = false;
  std::chrono::milliseconds timeout{0};
  std::string group, file;
  char* memory = nullptr;
  uint64_t bytes = 0;
  std::atomic<bool> aborted{false};
  uint32_t round = 0;  // of the stream's thread
  std::vector<uint32_t> sent, received;  // chunks to and from each rank
  std::atomic<int64_t> collectives{0};
  std::mutex mutex;
  std::string words;  // of the first error
  cw_status status = CW_OK;
  struct Piece {
    bool send;
    char* data;
    uint64_t bytes;
    int32_t peer;
  };
  bool grouping = false;
  cw_stream group_stream = nullptr;
  std::vector<Piece> pieces;

  ~cw_comm_t() {
    if (memory) munmap(memory, bytes);
  }

  sim::Head& head() { return *reinterpret_cast<sim::Head*>(memory); }
  sim::Page& page(int32_t r) { return reinterpret_cast<sim::Page*>(memory + 4096)[r]; }
  sim::Pipe& pipe(int32_t from, int32_t to) {
    return reinterpret_cast<sim::Pipe*>(memory + 4096 + size * sizeof(sim::Page))[from * size + to];
  }
  uint64_t buffers() const {
    return (4096 + size * sizeof(sim::Page) + uint64_t(size) * size * sizeof(sim::Pipe) + 4095) / 4096 * 4096;
  }
  char* chunk(int32_t r, uint32_t round_) {
    return memory + buffers() + (uint64_t(r) * 2 + round_ % 2) * sim::chunk_bytes;
  }
  char* pair(int32_t from, int32_t to, uint32_t n) {
    return memory + buffers() + uint64_t(size) * 2 * sim::chunk_bytes +
           ((uint64_t(from) * size + to) * 2 + n % 2) * sim::pair_bytes;
  }
  uint64_t total() const {
    return buffers() + uint64_t(size) * 2 * sim::chunk_bytes + uint64_t(size) * size * 2 * sim::pair_bytes;
  }

  cw_status broke(const char* what, const std::string& why) {
    std::lock_guard<std::mutex> lock(mutex);
    if (status == CW_OK) {
      status = CW_FAILED;
      words = std::string(what) + " of group " + group + ": " + why;
    }
    return sim::fail(CW_FAILED, "%s", words.c_str());
  }

  // Why nobody should wait for rank `r` any longer; empty: go on.
  std::string hopeless(int32_t r, sim::Clock::time_point until) {
    if (aborted || head().aborted.load()) return "it was aborted";
    if (sim::ending()) return "the process ends";
    const int32_t pid = page(r).pid.load();
    if (sim::ended(pid)) return "rank " + std::to_string(r) + " (process " + std::to_string(pid) + ") has ended";
    if (timeout.count() > 0 && sim::Clock::now() > until)
      return "rank " + std::to_string(r) + " did not come within " + std::to_string(timeout.count()) + " ms";
    return "";
  }

  // Until `counter` of rank `r` is at least `target`.
  cw_status wait(const char* what, sim::Counter& counter, uint32_t target, int32_t r, sim::Clock::time_point until) {
    for (int spin = 0;; ++spin) {
      const uint32_t seen = counter.load(std::memory_order_acquire);
      if (int32_t(seen - target) >= 0) return CW_OK;
      if (spin < 200) continue;
      if (std::string why = hopeless(r, until); !why.empty()) return broke(what, why);
      sim::futex_wait(counter, seen);
    }
  }

  // One round: `write` fills the own chunk (and gives its bytes), `read` sees all.
  template <class Write, class Read>
  cw_status exchange(sim::Collective kind, uint32_t operation, uint64_t all, uint64_t most, Write&& write,
                     Read&& read) {
    const char* what = sim::names[kind];
    const auto until = sim::Clock::now() + timeout;
    ++round;
    // Both buffers may be in use by those who are behind.
    for (int32_t r = 0; r < size; ++r)
      if (cw_status s = wait(what, page(r).done, round - 2, r, until)) return s;
    char* own = chunk(rank, round);
    const uint64_t used = write(own);
    sim::Page& mine = page(rank);
    mine.said[round % 2] = {kind, operation, all, most, checked ? sim::checksum(own, used) : 0};
    if (spoils && used) own[used / 2] ^= 1, spoils = false;
    mine.posted.store(round, std::memory_order_release);
    sim::futex_wake(mine.posted);
    for (int32_t r = 0; r < size; ++r)
      if (cw_status s = wait(what, page(r).posted, round, r, until)) return s;
    for (int32_t r = 0; r < size; ++r) {
      const auto& said = page(r).said[round % 2];
      // Lengths of what one rank alone gives or takes are its own.
      if (said.collective != uint32_t(kind) || said.operation != operation || said.bytes != all)
        return broke(what, "rank " + std::to_string(r) + " is in " + sim::names[said.collective] + " of " +
                               std::to_string(said.bytes) + " bytes, and this one in " + what + " of " +
                               std::to_string(all));
    }
    cw_status status_ = read();
    mine.done.store(round, std::memory_order_release);
    sim::futex_wake(mine.done);
    return status_;
  }

  cw_status intact(const char* what, int32_t r, uint64_t used) {
    if (!checked || sim::checksum(chunk(r, round), used) == page(r).said[round % 2].sum) return CW_OK;
    return broke(what, "what rank " + std::to_string(r) + " gave was changed on its way");
  }

  bool spoils = false, drops = false;
  // The planted faults of this collective.
  cw_status faults(const char* what) {
    const int64_t nth = ++collectives;
    drops = false;
    for (const sim::Fault& f : sim::wanted().faults) {
      if (f.rank != rank || f.nth != nth) continue;
      if (f.what == "dies") {
        fprintf(stderr, "causeway-sim: rank %d dies in collective %lld, as planted\n", rank, (long long)nth);
        kill(getpid(), SIGKILL);
      }
      if (f.what == "corrupts") spoils = true;
      if (f.what == "drops") drops = true;
      if (f.what == "late") {
        const auto until = sim::Clock::now() + timeout * 3;
        while (sim::Clock::now() < until && !aborted && !sim::ending())
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (aborted) return broke(what, "it was aborted");
      }
    }
    return CW_OK;
  }

  cw_status point_to_point(const std::vector<Piece>& list) {
    struct Part {
      Piece piece;
      uint64_t at = 0;
    };
    std::vector<Part> parts;
    for (const Piece& p : list) parts.push_back({p});
    const auto until = sim::Clock::now() + timeout;
    for (int idle = 0;;) {
      bool all = true, any = false;
      // Those of one direction and peer keep their order.
      std::vector<bool> to(size_t(size), false), from(size_t(size), false);
      for (Part& part : parts) {
        const Piece& p = part.piece;
        if (part.at == UINT64_MAX) continue;
        all = false;
        auto blocked = p.send ? std::vector<bool>::reference(to[size_t(p.peer)])
                              : std::vector<bool>::reference(from[size_t(p.peer)]);
        if (blocked) continue;
        blocked = true;
        const uint64_t n = std::min(sim::pair_bytes, p.bytes - part.at);
        if (p.send) {
          sim::Pipe& way = pipe(rank, p.peer);
          uint32_t& count = sent[size_t(p.peer)];
          if (int32_t(count - way.taken.load(std::memory_order_acquire)) >= 2) continue;
          memcpy(pair(rank, p.peer, count), p.data + part.at, n);
          way.sent.store(++count, std::memory_order_release);
          sim::futex_wake(way.sent);
        } else {
          sim::Pipe& way = pipe(p.peer, rank);
          uint32_t& count = received[size_t(p.peer)];
          if (way.sent.load(std::memory_order_acquire) == count) continue;
          memcpy(p.data + part.at, pair(p.peer, rank, count), n);
          way.taken.store(++count, std::memory_order_release);
          sim::futex_wake(way.taken);
        }
        any = true;
        part.at += n;
        if (part.at == p.bytes) part.at = UINT64_MAX;
      }
      if (all) return CW_OK;
      if (any) {
        idle = 0;
        continue;
      }
      if (++idle < 200) continue;
      for (Part& part : parts)
        if (part.at != UINT64_MAX)
          if (std::string why = hopeless(part.piece.peer, until); !why.empty())
            return broke(part.piece.send ? "send" : "recv", why);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

namespace sim {

namespace {

// Communicators stay until the end: a stale handle, or a stream's thread, then finds an aborted one.
cw_status create(const cw_comm_info* info, cw_comm* out) {
  Device* device = nullptr;
  if (cw_status status = enter_open("comm_create", info->device, &device)) return status;
  if (info->size > most_ranks)
    return fail(CW_UNSUPPORTED, "the simulated chip connects up to %d processes, not %d", most_ranks, info->size);
  if (!wanted().error.empty()) return fail(CW_INVALID, "%s", wanted().error.c_str());
  auto comm = std::make_unique<cw_comm_t>();
  comm->device = device;
  comm->rank = info->rank;
  comm->size = info->size;
  comm->checked = info->flags & CW_COMM_CHECKED;
  comm->timeout = std::chrono::milliseconds(info->timeout_ms);
  comm->group = info->name ? info->name : "";
  comm->sent.resize(size_t(info->size));
  comm->received.resize(size_t(info->size));
  comm->bytes = comm->total();
  struct {
    char name[64], where[128];
  } first = {};
  char (&name)[64] = first.name;
  const std::string here = neighbourhood();
  int fd = -1;
  if (info->rank == 0) {
    static std::atomic<int> next{0};
    snprintf(name, sizeof(name), "/cw-sim-%d-%d-%llx", int(getpid()), next++,
             static_cast<unsigned long long>(Clock::now().time_since_epoch().count()));
    fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, off_t(comm->bytes)) != 0) close(fd), shm_unlink(name), fd = -1;
    const int error = errno;
    if (fd < 0) name[0] = 0;  // the others are told
    snprintf(first.where, sizeof(first.where), "%s", here.c_str());
    if (cw_status status = info->store->set(info->store->context, "sim", &first, sizeof(first))) return status;
    if (fd < 0) return fail(CW_UNSUPPORTED, "there is no shared memory (%s)", strerror(error));
  } else {
    uint64_t bytes = sizeof(first);
    if (cw_status status = info->store->get(info->store->context, "sim", &first, &bytes)) return status;
    if (name[0] && here != first.where)
      return fail(CW_UNSUPPORTED, "rank 0 is on another machine, or in another namespace of processes");
    fd = name[0] ? shm_open(name, O_RDWR | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return fail(CW_UNSUPPORTED, "rank 0 has no memory that this process can share: another machine?");
  }
  void* memory = mmap(nullptr, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) return fail(CW_UNSUPPORTED, "shared memory cannot be mapped: %s", strerror(error));
  comm->memory = static_cast<char*>(memory);
  comm->page(info->rank).pid = int32_t(getpid());
  comm->file = name;
  // The file lives on without its name, and ends with the last process.
  if (comm->head().attached.fetch_add(1) + 1 == uint32_t(info->size)) shm_unlink(name);
  *out = comm.release();
  return CW_OK;
}

cw_status destroy(cw_comm comm) {
  comm->aborted = true;
  if (comm->head().attached.load() < uint32_t(comm->size)) shm_unlink(comm->file.c_str());
  return CW_OK;
}

cw_status abort(cw_comm comm) {
  comm->aborted = true;
  comm->head().aborted.store(1);
  return CW_OK;
}

cw_status error(cw_comm comm) {
  std::lock_guard<std::mutex> lock(comm->mutex);
  return comm->status == CW_OK ? CW_OK : fail(comm->status, "%s", comm->words.c_str());
}

// What every collective does first: data where this process reaches it.
cw_status reach(cw_comm comm, const char* what, const void* data, uint64_t bytes, char** out) {
  *out = nullptr;
  return bytes ? resolve(*comm->device, data, bytes, what, out) : CW_OK;
}

template <class Work>
cw_status put_on(cw_comm comm, cw_stream stream, const char* what, Work&& work) {
  Device* device = nullptr;
  if (cw_status status = enter(what, comm->device->index, &device)) return status;
  return put(*device, stream, what, [comm, what, work = std::forward<Work>(work)]() mutable {
    if (cw_status status = error(comm)) return status;
    if (cw_status status = comm->faults(what)) return status;
    return work();
  });
}

cw_status check_rank(cw_comm comm, const char* what, int32_t rank) {
  if (rank >= 0 && rank < comm->size) return CW_OK;
  return fail(CW_INVALID, "%s: there is no rank %d in a group of %d", what, rank, comm->size);
}

cw_status check_reduction(const char* what, int32_t dtype, uint32_t operation) {
  if ((reduced_dtypes >> dtype & 1) && (operations >> operation & 1) &&
      (operation != CW_AVERAGE || is_floating(Dtype(dtype))))
    return CW_OK;
  return fail(CW_UNSUPPORTED, "%s: dtype %d with operation %u", what, dtype, operation);
}

// Reduce n elements of this round into `to`; each rank's begin at `offset` of its chunk, of which `said` bytes are in
// use.
cw_status combine(cw_comm comm, const char* what, char* to, uint64_t offset, uint64_t said, uint64_t n, int32_t dtype,
                  uint32_t operation) {
  const char* parts[most_ranks];
  for (int32_t r = 0; r < comm->size; ++r) {
    if (cw_status status = comm->intact(what, r, said)) return status;
    parts[r] = comm->chunk(r, comm->round) + offset;
  }
  if (comm->size == 1) return memcpy(to, parts[0], n * uint64_t(size_of_bit(dtype))), CW_OK;
  return reduce_parts(to, parts, comm->drops ? comm->size - 1 : comm->size, n, dtype, operation);
}

constexpr int32_t everyone = -1;

// The sum, or another operation, of all ranks' elements at rank `root`, or at everyone.
cw_status reduce_to(cw_comm comm, Collective kind, const void* in, void* out, uint64_t count, int32_t dtype,
                    uint32_t operation, int32_t root, cw_stream stream) {
  const char* what = names[kind];
  const int64_t item = size_of_bit(dtype);
  const bool receives = root == everyone || comm->rank == root;
  const uint32_t detail = (root == everyone ? 0 : uint32_t(root) << 16) | operation << 8 | uint32_t(dtype);
  if (cw_status status = check_reduction(what, dtype, operation)) return status;
  if (root != everyone)
    if (cw_status status = check_rank(comm, what, root)) return status;
  char *from = nullptr, *to = nullptr;
  if (cw_status status = reach(comm, what, in, count * item, &from)) return status;
  if (receives)
    if (cw_status status = reach(comm, what, out, count * item, &to)) return status;
  return put_on(comm, stream, what, [=]() -> cw_status {
    const uint64_t step = chunk_bytes / item;
    for (uint64_t at = 0; at < count; at += step) {
      const uint64_t n = std::min(step, count - at), bytes = n * item;
      cw_status status = comm->exchange(
          kind, detail, count * item, 0, [&](char* own) { return memcpy(own, from + at * item, bytes), bytes; },
          [&]() -> cw_status {
            return receives ? combine(comm, what, to + at * item, 0, bytes, n, dtype, operation) : CW_OK;
          });
      if (status != CW_OK) return status;
    }
    return CW_OK;
  });
}

cw_status all_reduce(cw_comm comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                     cw_stream stream) {
  return reduce_to(comm, kAllReduce, in, out, count, dtype, operation, everyone, stream);
}

cw_status reduce(cw_comm comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                 int32_t root, cw_stream stream) {
  return reduce_to(comm, kReduce, in, out, count, dtype, operation, root, stream);
}

cw_status broadcast(cw_comm comm, void* data, uint64_t count, int32_t dtype, int32_t root, cw_stream stream) {
  const uint64_t total = count * uint64_t(size_of_bit(dtype));
  char* own_data = nullptr;
  if (cw_status status = check_rank(comm, "broadcast", root)) return status;
  if (cw_status status = reach(comm, "broadcast", data, total, &own_data)) return status;
  return put_on(comm, stream, "broadcast", [=]() -> cw_status {
    for (uint64_t at = 0; at < total; at += chunk_bytes) {
      const uint64_t bytes = std::min(chunk_bytes, total - at);
      cw_status status = comm->exchange(
          kBroadcast, uint32_t(root), total, 0,
          [&](char* own) -> uint64_t {
            if (comm->rank != root) return 0;
            return memcpy(own, own_data + at, bytes), bytes;
          },
          [&]() -> cw_status {
            if (comm->rank == root) return CW_OK;
            if (cw_status s = comm->intact("broadcast", root, bytes)) return s;
            return memcpy(own_data + at, comm->chunk(root, comm->round), bytes), CW_OK;
          });
      if (status != CW_OK) return status;
    }
    return CW_OK;
  });
}

cw_status all_gather(cw_comm comm, const void* in, void* out, uint64_t count, int32_t dtype, cw_stream stream) {
  const uint64_t total = count * uint64_t(size_of_bit(dtype));
  char *from = nullptr, *to = nullptr;
  if (cw_status status = reach(comm, "all_gather", in, total, &from)) return status;
  if (cw_status status = reach(comm, "all_gather", out, total * uint64_t(comm->size), &to)) return status;
  return put_on(comm, stream, "all_gather", [=]() -> cw_status {
    for (uint64_t at = 0; at < total; at += chunk_bytes) {
      const uint64_t bytes = std::min(chunk_bytes, total - at);
      cw_status status = comm->exchange(
          kAllGather, 0, total, 0, [&](char* own) { return memcpy(own, from + at, bytes), bytes; },
          [&]() -> cw_status {
            for (int32_t r = 0; r < comm->size; ++r) {
              if (cw_status s = comm->intact("all_gather", r, bytes)) return s;
              memcpy(to + uint64_t(r) * total + at, comm->chunk(r, comm->round), bytes);
            }
            return CW_OK;
          });
      if (status != CW_OK) return status;
    }
    return CW_OK;
  });
}

cw_status reduce_scatter(cw_comm comm, const void* in, void* out, uint64_t count, int32_t dtype, uint32_t operation,
                         cw_stream stream) {
  const int64_t item = size_of_bit(dtype);
  if (cw_status status = check_reduction("reduce_scatter", dtype, operation)) return status;
  char *from = nullptr, *to = nullptr;
  if (cw_status status = reach(comm, "reduce_scatter", in, count * item * uint64_t(comm->size), &from)) return status;
  if (cw_status status = reach(comm, "reduce_scatter", out, count * item, &to)) return status;
  return put_on(comm, stream, "reduce_scatter", [=]() -> cw_status {
    const uint64_t ranks = uint64_t(comm->size), step = chunk_bytes / item / ranks;
    for (uint64_t at = 0; at < count; at += step) {
      const uint64_t n = std::min(step, count - at), bytes = n * item;
      cw_status status = comm->exchange(
          kReduceScatter, operation << 8 | uint32_t(dtype), count * item, 0,
          [&](char* own) {
            for (uint64_t r = 0; r < ranks; ++r) memcpy(own + r * bytes, from + (r * count + at) * item, bytes);
            return bytes * ranks;
          },
          [&]() -> cw_status {
            return combine(comm, "reduce_scatter", to + at * item, uint64_t(comm->rank) * bytes, bytes * ranks, n,
                           dtype, operation);
          });
      if (status != CW_OK) return status;
    }
    return CW_OK;
  });
}

cw_status all_to_all(cw_comm comm, const void* in, const uint64_t* in_counts, const uint64_t* in_offsets, void* out,
                     const uint64_t* out_counts, const uint64_t* out_offsets, int32_t dtype, cw_stream stream) {
  const uint64_t item = uint64_t(size_of_bit(dtype)), ranks = uint64_t(comm->size);
  struct Part {
    char *from, *to;
    uint64_t in_bytes, out_bytes;
  };
  std::vector<Part> parts(ranks);
  uint64_t most = 0;
  for (uint64_t r = 0; r < ranks; ++r) {
    Part& p = parts[r];
    p.in_bytes = in_counts[r] * item;
    p.out_bytes = out_counts[r] * item;
    most = std::max(most, p.in_bytes);
    if (cw_status s =
            reach(comm, "all_to_all", static_cast<const char*>(in) + in_offsets[r] * item, p.in_bytes, &p.from))
      return s;
    if (cw_status s = reach(comm, "all_to_all", static_cast<char*>(out) + out_offsets[r] * item, p.out_bytes, &p.to))
      return s;
  }
  return put_on(comm, stream, "all_to_all", [=]() -> cw_status {
    const uint64_t step = chunk_bytes / ranks;
    uint64_t rounds = 1;  // the first one says how many there are
    for (uint64_t k = 0, at = 0; k < rounds; ++k, at += step) {
      cw_status status = comm->exchange(
          kAllToAll, 0, 0, most,
          [&](char* own) {
            for (uint64_t r = 0; r < ranks; ++r)
              if (parts[r].in_bytes > at)
                memcpy(own + r * step, parts[r].from + at, std::min(step, parts[r].in_bytes - at));
            return step * ranks;
          },
          [&]() -> cw_status {
            uint64_t longest = 0;
            for (uint64_t r = 0; r < ranks; ++r) {
              if (cw_status s = comm->intact("all_to_all", int32_t(r), step * ranks)) return s;
              longest = std::max(longest, comm->page(int32_t(r)).said[comm->round % 2].most);
              if (parts[r].out_bytes > at)
                memcpy(parts[r].to + at, comm->chunk(int32_t(r), comm->round) + uint64_t(comm->rank) * step,
                       std::min(step, parts[r].out_bytes - at));
            }
            rounds = std::max(rounds, (longest + step - 1) / step);
            return CW_OK;
          });
      if (status != CW_OK) return status;
    }
    return CW_OK;
  });
}

cw_status barrier(cw_comm comm, cw_stream stream) {
  return put_on(comm, stream, "barrier", [=]() -> cw_status {
    return comm->exchange(kBarrier, 0, 0, 0, [](char*) { return uint64_t(0); }, [] { return CW_OK; });
  });
}

cw_status point(cw_comm comm, const char* what, bool sends, const void* data, uint64_t count, int32_t dtype,
                int32_t peer, cw_stream stream) {
  const uint64_t bytes = count * uint64_t(size_of_bit(dtype));
  char* at = nullptr;
  if (cw_status status = check_rank(comm, what, peer)) return status;
  if (cw_status status = reach(comm, what, data, bytes, &at)) return status;
  cw_comm_t::Piece piece{sends, at, bytes, peer};
  if (comm->grouping) {
    comm->pieces.push_back(piece);
    comm->group_stream = stream;
    return CW_OK;
  }
  return put_on(comm, stream, what, [=] { return comm->point_to_point({piece}); });
}
cw_status send(cw_comm comm, const void* in, uint64_t count, int32_t dtype, int32_t peer, cw_stream stream) {
  return point(comm, "send", true, in, count, dtype, peer, stream);
}
cw_status recv(cw_comm comm, void* out, uint64_t count, int32_t dtype, int32_t peer, cw_stream stream) {
  return point(comm, "recv", false, out, count, dtype, peer, stream);
}
cw_status group_start(cw_comm comm) {
  comm->grouping = true;
  return CW_OK;
}
cw_status group_end(cw_comm comm) {
  comm->grouping = false;
  auto pieces = std::make_shared<std::vector<cw_comm_t::Piece>>();
  pieces->swap(comm->pieces);
  if (pieces->empty()) return CW_OK;
  return put_on(comm, comm->group_stream, "group", [=] { return comm->point_to_point(*pieces); });
}

struct Named {
  const char* name;
  void (*leave_out)(cw_comm_v1&);
};
const Named entries[] = {
    {"all_reduce", [](cw_comm_v1& t) { t.all_reduce = nullptr; }},
    {"broadcast", [](cw_comm_v1& t) { t.broadcast = nullptr; }},
    {"reduce", [](cw_comm_v1& t) { t.reduce = nullptr; }},
    {"all_gather", [](cw_comm_v1& t) { t.all_gather = nullptr; }},
    {"reduce_scatter", [](cw_comm_v1& t) { t.reduce_scatter = nullptr; }},
    {"all_to_all", [](cw_comm_v1& t) { t.all_to_all = nullptr; }},
    {"barrier", [](cw_comm_v1& t) { t.barrier = nullptr; }},
    {"send", [](cw_comm_v1& t) { t.send = nullptr, t.recv = nullptr; }},
    {"group", [](cw_comm_v1& t) { t.group_start = nullptr, t.group_end = nullptr; }},
};

bool has(const std::string& list, const std::string& name) {
  return ("+" + list + "+").find("+" + name + "+") != std::string::npos;
}

bool comm_entries_known(const std::string& list) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find('+', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    if (std::none_of(std::begin(entries), std::end(entries), [&](const Named& n) { return name == n.name; }))
      return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

const cw_comm_v1* comm_table() {
  const std::string& list = wanted().entries;
  if (list == "none") return nullptr;
  static const cw_comm_v1 table = [&] {
    cw_comm_v1 t = {
        sizeof(cw_comm_v1), operations, reduced_dtypes, create,         destroy,    abort,   error, all_reduce,
        broadcast,          reduce,     all_gather,     reduce_scatter, all_to_all, barrier, send,  recv,
        group_start,        group_end};
    if (list != "shared" && wanted().error.empty())
      for (const Named& n : entries)
        if (!has(list, n.name)) n.leave_out(t);
    return t;
  }();
  return &table;
}

}  // namespace sim
