// Collectives between processes of one host. Ranks meet in a file of shared memory: each has a slot, and a collective is
// rounds of "write my piece, wait for all, read the others', wait for all". Messages have a slot for each pair.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core.hpp"
#include "ops/tensor.hpp"

using namespace stand_in;

namespace {

// HCCL's own codes.
enum : int { kOk = 0, kBadArgument = 1, kNullPointer = 2, kNoMemory = 3, kInside = 4, kNotSupported = 5, kTooLate = 9 };

constexpr size_t kPiece = size_t(256) << 10;
constexpr size_t kRootBytes = 4108;
constexpr uint32_t kMostRanks = 64;

struct Slot {
  std::atomic<uint64_t> bytes;
  std::atomic<uint32_t> more;
  std::atomic<uint32_t> full;
  char data[kPiece];
};

struct Meeting {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> round;
  std::atomic<uint32_t> failed;
  char rest[4096 - 12];
};

int64_t seconds() {
  static int64_t limit = number("HCCL_TIMEOUT", 120);
  return limit;
}

struct Late : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Aborted {};

struct Comm {
  std::string name;
  uint32_t ranks, rank;
  char* memory;
  size_t size;

  ~Comm() { munmap(memory, size); }
  Meeting* meeting() const { return reinterpret_cast<Meeting*>(memory); }
  Slot* slot(uint32_t rank) const { return reinterpret_cast<Slot*>(memory + sizeof(Meeting)) + rank; }
  Slot* mail(uint32_t from, uint32_t to) const { return slot(ranks + from * ranks + to); }

  // Waits until `done`, and throws when it takes too long or another rank has given up.
  template <class Done>
  void until(Done done, const char* what) const {
    auto start = std::chrono::steady_clock::now();
    for (int spins = 0; !done(); ++spins) {
      if (aborted()) throw Aborted();
      if (meeting()->failed) throw Late("another rank has failed");
      if (spins > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (spins % 1000 == 999 && std::chrono::steady_clock::now() - start > std::chrono::seconds(seconds())) {
        meeting()->failed = 1;
        throw Late(text("rank %u of %u has waited %ld s for %s", rank, ranks, long(seconds()), what));
      }
    }
  }
  void wait() const {
    Meeting* m = meeting();
    uint32_t round = m->round;
    if (++m->arrived == ranks) {
      m->arrived = 0;
      ++m->round;
      return;
    }
    until([&] { return m->round != round; }, "the others");
  }

  // Each rank gives `bytes` of `from`; read(rank, offset, piece, size) gets every rank's pieces.
  template <class Read>
  void share(const char* from, size_t bytes, Read read) const {
    for (size_t offset = 0;; offset += kPiece) {
      Slot* own = slot(rank);
      size_t size = offset < bytes ? std::min(kPiece, bytes - offset) : 0;
      if (size) memcpy(own->data, from + offset, size);
      own->bytes = size;
      own->more = offset + kPiece < bytes;
      wait();
      bool more = false;
      for (uint32_t r = 0; r < ranks; ++r) {
        if (slot(r)->bytes) read(r, offset, slot(r)->data, size_t(slot(r)->bytes));
        more = more || slot(r)->more;
      }
      wait();
      if (!more) return;
    }
  }
};

std::mutex lock;
std::map<void*, std::shared_ptr<Comm>>& comms() {
  static auto* all = new std::map<void*, std::shared_ptr<Comm>>;
  return *all;
}

size_t bytes_of(int dtype) {
  static const size_t sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
  return dtype >= 0 && dtype < 12 ? sizes[dtype] : 0;
}

template <class V>
V reduced(V a, V b, int how) {
  return how == 0 ? V(a + b) : how == 1 ? V(a * b) : how == 2 ? (a != a || a > b ? a : b) : (a != a || a < b ? a : b);
}
template <class Raw>
void reduce_as(char* into, const char* from, size_t count, int how) {
  auto* a = reinterpret_cast<Raw*>(into);
  auto* b = reinterpret_cast<const Raw*>(from);
  for (size_t i = 0; i < count; ++i) a[i] = reduced(a[i], b[i], how);
}
template <class Value, class Bits>
void reduce_halves(char* into, const char* from, size_t count, int how, Value value, Bits bits) {
  auto* a = reinterpret_cast<uint16_t*>(into);
  auto* b = reinterpret_cast<const uint16_t*>(from);
  for (size_t i = 0; i < count; ++i) a[i] = bits(reduced(value(a[i]), value(b[i]), how));
}
void reduce(int dtype, int how, char* into, const char* from, size_t bytes) {
  size_t count = bytes / bytes_of(dtype);
  switch (dtype) {
    case 0:
      return reduce_as<int8_t>(into, from, count, how);
    case 1:
      return reduce_as<int16_t>(into, from, count, how);
    case 2:
      return reduce_as<int32_t>(into, from, count, how);
    case 3:
      return reduce_halves(into, from, count, how, ops::half_value, ops::half_bits);
    case 4:
      return reduce_as<float>(into, from, count, how);
    case 5:
      return reduce_as<int64_t>(into, from, count, how);
    case 6:
      return reduce_as<uint64_t>(into, from, count, how);
    case 7:
      return reduce_as<uint8_t>(into, from, count, how);
    case 8:
      return reduce_as<uint16_t>(into, from, count, how);
    case 9:
      return reduce_as<uint32_t>(into, from, count, how);
    case 10:
      return reduce_as<double>(into, from, count, how);
    default:
      return reduce_halves(into, from, count, how, ops::bfloat_value, ops::bfloat_bits);
  }
}

// A range of device memory, looked up when the work runs.
char* memory_of(const void* address, size_t bytes) {
  if (!bytes) return nullptr;
  char* real = resolve(address, bytes);
  if (!real)
    throw std::runtime_error(text("%zu bytes at %p are not in one live block of device memory", bytes, address));
  return real;
}

// What is on a stream keeps its communicator.
std::shared_ptr<Comm> check(const char* who, void* handle, int dtype, int how, int* code) {
  std::lock_guard<std::mutex> guard(lock);
  *code = kBadArgument;
  if (!comms().count(handle)) return refuse(kInvalidHandle, "%s: %p is no communicator", who, handle), nullptr;
  if (!bytes_of(dtype)) return refuse(kInvalidParameter, "%s: dtype %d is not known", who, dtype), nullptr;
  if (how < 0 || how > 3)
    return refuse(kInvalidParameter, "%s: reduction %d; sum, product, maximum and minimum are 0 to 3", who, how),
           nullptr;
  *code = kOk;
  return comms()[handle];
}

template <class Work>
int collective(const char* who, void* handle, int dtype, int how, uint32_t peer, void* stream, Work work) {
  int code;
  auto comm = check(who, handle, dtype, how, &code);
  if (!comm) return code;
  if (peer >= comm->ranks) {
    refuse(kInvalidParameter, "%s: there is no rank %u, there are %u", who, peer, comm->ranks);
    return kBadArgument;
  }
  return enqueue(stream, who,
                 [=]() -> Code {
                   try {
                     work(*comm);
                     return kGood;
                   } catch (const Aborted&) {
                     return broken(kStreamAborted, "aborted");
                   } catch (const Late& late) {
                     return broken(kSyncTimeout, late.what());
                   } catch (const std::exception& failure) {
                     return broken(kInternal, failure.what());
                   }
                 })
             ? kInside
             : kOk;
}

struct Message {
  bool sends;
  void* buffer;
  size_t bytes;
  uint32_t peer;
};

// All together: two ranks that send to each other first do not wait for each other.
void deliver(const Comm& comm, std::vector<Message> messages) {
  std::vector<size_t> done(messages.size());
  std::vector<char*> real;
  for (const Message& m : messages) real.push_back(memory_of(m.buffer, m.bytes));
  size_t left = 0;
  for (const Message& m : messages) left += m.bytes > 0;
  while (left) {
    bool moved = false;
    std::set<std::pair<bool, uint32_t>> taken;  // Of a pair, in the order in which they were given.
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& m = messages[i];
      if (done[i] == m.bytes || !taken.insert({m.sends, m.peer}).second) continue;
      Slot* mail = m.sends ? comm.mail(comm.rank, m.peer) : comm.mail(m.peer, comm.rank);
      if (bool(mail->full) == m.sends) continue;
      size_t size = std::min(kPiece, m.bytes - done[i]);
      if (m.sends)
        memcpy(mail->data, real[i] + done[i], size);
      else
        memcpy(real[i] + done[i], mail->data, size);
      mail->full = m.sends;
      done[i] += size;
      left -= done[i] == m.bytes;
      moved = true;
    }
    if (!moved && left)
      comm.until(
          [&] {
            for (size_t i = 0; i < messages.size(); ++i)
              if (done[i] != messages[i].bytes) {
                const Message& m = messages[i];
                Slot* mail = m.sends ? comm.mail(comm.rank, m.peer) : comm.mail(m.peer, comm.rank);
                if (bool(mail->full) != m.sends) return true;
              }
            return false;
          },
          "a message");
  }
}

// Between HcclGroupStart and HcclGroupEnd messages are collected.
struct Group {
  int depth = 0;
  void* comm = nullptr;
  void* stream = nullptr;
  std::vector<Message> messages;
};
thread_local Group group;

int message(const char* who, bool sends, void* buffer, uint64_t count, int dtype, uint32_t peer, void* handle,
            void* stream) {
  Message one{sends, buffer, size_t(count) * bytes_of(dtype), peer};
  if (group.depth) {
    int code;
    if (!check(who, handle, dtype, 0, &code)) return code;
    group.comm = handle;
    group.stream = stream;
    group.messages.push_back(one);
    return kOk;
  }
  return collective(who, handle, dtype, 0, peer, stream, [=](const Comm& comm) { deliver(comm, {one}); });
}

struct Root {
  char name[64];
  char rest[kRootBytes - 64];
};

}  // namespace

ENTRY int HcclGetRootInfo(void* result) {
  CALL_ONLY();
  if (!result) return kNullPointer;
  static std::atomic<int> made{0};
  auto* root = static_cast<Root*>(result);
  memset(root, 0, sizeof *root);
  unsigned random = 0;
  FILE* source = fopen("/dev/urandom", "rb");
  if (!source || fread(&random, sizeof random, 1, source) != 1) random = unsigned(time(nullptr));
  if (source) fclose(source);
  snprintf(root->name, sizeof root->name, "/ascend-stand-in-%d-%d-%08x", getpid(), made++, random);
  return kOk;
}

// Waits until every rank is there.
ENTRY int HcclCommInitRootInfo(uint32_t ranks, const void* info, uint32_t rank, void** result) {
  CALL_ONLY();
  if (!info || !result) return kNullPointer;
  const char* name = static_cast<const Root*>(info)->name;
  if (!ranks || ranks > kMostRanks || rank >= ranks || strncmp(name, "/ascend-stand-in-", 17)) {
    refuse(kInvalidParameter, "HcclCommInitRootInfo: rank %u of %u, or a root that is none", rank, ranks);
    return kBadArgument;
  }
  if (need_context("HcclCommInitRootInfo")) return kInside;
  size_t size = sizeof(Meeting) + sizeof(Slot) * ranks * (1 + ranks);
  int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, off_t(size))) {
    refuse(kOutOfMemory, "HcclCommInitRootInfo: no shared memory of %zu bytes: %s", size, strerror(errno));
    if (file >= 0) close(file);
    return kNoMemory;
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) {
    refuse(kOutOfMemory, "HcclCommInitRootInfo: cannot map %zu bytes", size);
    return kNoMemory;
  }
  std::shared_ptr<Comm> comm(new Comm{name, ranks, rank, static_cast<char*>(memory), size});
  try {
    comm->wait();
  } catch (const Late& late) {
    refuse(kSyncTimeout, "HcclCommInitRootInfo: %s", late.what());
    shm_unlink(name);
    return kTooLate;
  }
  if (!rank) shm_unlink(name);
  std::lock_guard<std::mutex> guard(lock);
  *result = comm.get();
  comms()[*result] = std::move(comm);
  return kOk;
}

ENTRY int HcclCommInitRootInfoConfig(uint32_t ranks, const void* info, uint32_t rank, const void*, void** result) {
  CALL_ONLY();
  return HcclCommInitRootInfo(ranks, info, rank, result);
}

ENTRY int HcclCommDestroy(void* handle) {
  CALL_ONLY();
  std::lock_guard<std::mutex> guard(lock);
  return comms().erase(handle) ? kOk : kBadArgument;
}

ENTRY int HcclGetRankSize(void* comm, uint32_t* ranks) {
  CALL_ONLY();
  *ranks = static_cast<Comm*>(comm)->ranks;
  return kOk;
}
ENTRY int HcclGetRankId(void* comm, uint32_t* rank) {
  CALL_ONLY();
  *rank = static_cast<Comm*>(comm)->rank;
  return kOk;
}
ENTRY int HcclGetCommName(void* comm, char* name) {
  CALL_ONLY();
  snprintf(name, 128, "%s", static_cast<Comm*>(comm)->name.c_str() + 1);
  return kOk;
}
ENTRY int HcclGetCommAsyncError(void* comm, int* error) {
  CALL_ONLY();
  *error = static_cast<Comm*>(comm)->meeting()->failed ? 21 : kOk;  // A remote failure.
  return kOk;
}
ENTRY const char* HcclGetErrorString(int code) {
  CALL_ONLY();
  switch (code) {
    case kOk:
      return "no error";
    case kBadArgument:
      return "parameter error";
    case kNullPointer:
      return "empty pointer";
    case kNoMemory:
      return "memory error";
    case kNotSupported:
      return "not supported";
    case kTooLate:
      return "timeout";
    default:
      return "internal error";
  }
}
// Which fields of a configuration have an effect: none.
ENTRY uint32_t HcclGetCommConfigCapability() {
  CALL_ONLY();
  return 0;
}

ENTRY int HcclBarrier(void* comm, void* stream) {
  CALL_ONLY();
  return collective(__func__, comm, 0, 0, 0, stream, [](const Comm& c) { c.wait(); });
}
ENTRY int HcclAllReduce(void* in, void* out, uint64_t count, int dtype, int how, void* comm, void* stream) {
  CALL_ONLY();
  size_t bytes = size_t(count) * bytes_of(dtype);
  return collective(__func__, comm, dtype, how, 0, stream, [=](const Comm& c) {
    std::vector<char> all(bytes);
    c.share(memory_of(in, bytes), bytes, [&](uint32_t r, size_t offset, const char* piece, size_t size) {
      if (!r)
        memcpy(all.data() + offset, piece, size);
      else
        reduce(dtype, how, all.data() + offset, piece, size);
    });
    static const bool wrong = !strcmp(setting("WRONG", ""), "HcclAllReduce");
    if (wrong && bytes) all[0] ^= 1;
    if (bytes) memcpy(memory_of(out, bytes), all.data(), bytes);
  });
}
ENTRY int HcclReduce(void* in, void* out, uint64_t count, int dtype, int how, uint32_t root, void* comm, void* stream) {
  CALL_ONLY();
  size_t bytes = size_t(count) * bytes_of(dtype);
  return collective(__func__, comm, dtype, how, root, stream, [=](const Comm& c) {
    std::vector<char> all(bytes);
    c.share(memory_of(in, bytes), bytes, [&](uint32_t r, size_t offset, const char* piece, size_t size) {
      if (!r)
        memcpy(all.data() + offset, piece, size);
      else
        reduce(dtype, how, all.data() + offset, piece, size);
    });
    if (bytes && c.rank == root) memcpy(memory_of(out, bytes), all.data(), bytes);
  });
}
ENTRY int HcclBroadcast(void* buffer, uint64_t count, int dtype, uint32_t root, void* comm, void* stream) {
  CALL_ONLY();
  size_t bytes = size_t(count) * bytes_of(dtype);
  return collective(__func__, comm, dtype, 0, root, stream, [=](const Comm& c) {
    char* real = memory_of(buffer, bytes);
    c.share(real, c.rank == root ? bytes : 0, [&](uint32_t, size_t offset, const char* piece, size_t size) {
      if (offset + size > bytes) throw std::runtime_error("the root gives more than this rank takes");
      memcpy(real + offset, piece, size);
    });
  });
}
ENTRY int HcclAllGather(void* in, void* out, uint64_t count, int dtype, void* comm, void* stream) {
  CALL_ONLY();
  size_t bytes = size_t(count) * bytes_of(dtype);
  return collective(__func__, comm, dtype, 0, 0, stream, [=](const Comm& c) {
    char* to = memory_of(out, bytes * c.ranks);
    c.share(memory_of(in, bytes), bytes, [&](uint32_t r, size_t offset, const char* piece, size_t size) {
      memcpy(to + r * bytes + offset, piece, size);
    });
  });
}
ENTRY int HcclReduceScatter(void* in, void* out, uint64_t count, int dtype, int how, void* comm, void* stream) {
  CALL_ONLY();
  size_t bytes = size_t(count) * bytes_of(dtype);
  return collective(__func__, comm, dtype, how, 0, stream, [=](const Comm& c) {
    const char* from = memory_of(in, bytes * c.ranks);
    std::vector<char> all(bytes);
    for (uint32_t to = 0; to < c.ranks; ++to)
      c.share(from + to * bytes, bytes, [&](uint32_t r, size_t offset, const char* piece, size_t size) {
        if (to != c.rank) return;
        if (!r)
          memcpy(all.data() + offset, piece, size);
        else
          reduce(dtype, how, all.data() + offset, piece, size);
      });
    if (bytes) memcpy(memory_of(out, bytes), all.data(), bytes);
  });
}
ENTRY int HcclScatter(void* in, void* out, uint64_t count, int dtype, uint32_t root, void* comm, void* stream) {
  CALL_ONLY();
  size_t bytes = size_t(count) * bytes_of(dtype);
  return collective(__func__, comm, dtype, 0, root, stream, [=](const Comm& c) {
    const char* from = c.rank == root ? memory_of(in, bytes * c.ranks) : nullptr;
    char* real = memory_of(out, bytes);
    for (uint32_t to = 0; to < c.ranks; ++to)
      c.share(from ? from + to * bytes : nullptr, from ? bytes : 0,
              [&](uint32_t, size_t offset, const char* piece, size_t size) {
                if (to == c.rank) memcpy(real + offset, piece, size);
              });
  });
}
// Counts and places are in elements, as numbers of 64 bits on the host.
static void all_to_all(const Comm& c, const void* in, const std::vector<uint64_t>& counts,
                       const std::vector<uint64_t>& starts, size_t size_in, const void* out,
                       const std::vector<uint64_t>& taken, const std::vector<uint64_t>& places, size_t size_out) {
  for (uint32_t to = 0; to < c.ranks; ++to) {
    size_t bytes = counts[to] * size_in;
    const char* from = bytes ? memory_of(static_cast<const char*>(in) + starts[to] * size_in, bytes) : nullptr;
    c.share(from, bytes, [&](uint32_t r, size_t offset, const char* piece, size_t size) {
      if (to != c.rank) return;
      if (offset + size > taken[r] * size_out)
        throw std::runtime_error(text("rank %u gives more than this rank takes", r));
      memcpy(memory_of(static_cast<const char*>(out) + places[r] * size_out + offset, size), piece, size);
    });
  }
}
ENTRY int HcclAlltoAllV(const void* in, const void* counts, const void* starts, int dtype, const void* out,
                        const void* taken, const void* places, int dtype_out, void* comm, void* stream) {
  CALL_ONLY();
  int code;
  auto known = check(__func__, comm, dtype, 0, &code);
  if (!known) return code;
  if (!counts || !starts || !taken || !places || !bytes_of(dtype_out)) return kNullPointer;
  auto list = [&](const void* numbers) {
    auto* first = static_cast<const uint64_t*>(numbers);
    return std::vector<uint64_t>(first, first + known->ranks);
  };
  return collective(__func__, comm, dtype, 0, 0, stream,
                    [=, a = list(counts), b = list(starts), d = list(taken), e = list(places)](const Comm& c) {
                      all_to_all(c, in, a, b, bytes_of(dtype), out, d, e, bytes_of(dtype_out));
                    });
}
ENTRY int HcclAlltoAll(const void* in, uint64_t count, int dtype, const void* out, uint64_t taken, int dtype_out,
                       void* comm, void* stream) {
  CALL_ONLY();
  return collective(__func__, comm, dtype, 0, 0, stream, [=](const Comm& c) {
    std::vector<uint64_t> a(c.ranks, count), b(c.ranks), d(c.ranks, taken), e(c.ranks);
    for (uint32_t r = 0; r < c.ranks; ++r) b[r] = r * count, e[r] = r * taken;
    all_to_all(c, in, a, b, bytes_of(dtype), out, d, e, bytes_of(dtype_out));
  });
}

ENTRY int HcclSend(void* buffer, uint64_t count, int dtype, uint32_t peer, void* comm, void* stream) {
  CALL_ONLY();
  return message(__func__, true, buffer, count, dtype, peer, comm, stream);
}
ENTRY int HcclRecv(void* buffer, uint64_t count, int dtype, uint32_t peer, void* comm, void* stream) {
  CALL_ONLY();
  return message(__func__, false, buffer, count, dtype, peer, comm, stream);
}

struct SendRecvItem {
  int kind;  // 0 send, 1 receive.
  void* buffer;
  uint64_t count;
  int dtype;
  uint32_t peer;
};
ENTRY int HcclBatchSendRecv(SendRecvItem* items, uint32_t count, void* comm, void* stream) {
  CALL_ONLY();
  if (!items) return kNullPointer;
  std::vector<Message> messages;
  for (uint32_t i = 0; i < count; ++i) {
    int code;
    if (!check(__func__, comm, items[i].dtype, 0, &code)) return code;
    messages.push_back(
        {items[i].kind == 0, items[i].buffer, size_t(items[i].count) * bytes_of(items[i].dtype), items[i].peer});
  }
  return collective(__func__, comm, 0, 0, 0, stream, [=](const Comm& c) { deliver(c, messages); });
}
ENTRY int HcclGroupStart() {
  CALL_ONLY();
  ++group.depth;
  return kOk;
}
ENTRY int HcclGroupEnd() {
  CALL_ONLY();
  if (!group.depth) return kBadArgument;
  if (--group.depth || group.messages.empty()) return kOk;
  auto messages = std::move(group.messages);
  group.messages.clear();
  return collective(__func__, group.comm, 0, 0, 0, group.stream, [=](const Comm& c) { deliver(c, messages); });
}
