// Device memory is a file in memory that is mapped twice: at addresses that are handed out and that nobody may touch,
// and at others that only this library knows. So a program that reads device memory by itself dies, and the chip's own
// work needs no change of protection. Behind each block are 32 bytes and more that the chip may overwrite.
#include "memory.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.hpp"

namespace stand_in {
namespace {

constexpr size_t kStep = 512;
constexpr size_t kPadding = 32;   // Which the 950 does not touch.
constexpr int kFresh = 0xff;    // Memory that nobody has written: NaN in every float format.
constexpr int kSpilled = 0xa5;  // What the chip leaves behind a storage.

size_t up(size_t value, size_t step) { return (value + step - 1) / step * step; }

struct Arena {
  char* front = nullptr;
  char* back = nullptr;
  size_t size = 0;
  int file = -1;
  std::map<size_t, size_t> holes;  // Offset to size.
  size_t used = 0;
};

struct Block {
  size_t size;   // As asked for.
  size_t whole;  // With padding and rounding.
  char* back;
  int device;
  Arena* arena;  // nullptr: memory of another process.
};

std::mutex lock;
Arena arenas[kMaxDevices];
std::map<char*, Block>& blocks() {
  static auto* all = new std::map<char*, Block>;
  return *all;
}

struct Pinned {
  size_t size;
  bool owned;
};
std::map<char*, Pinned>& pinned() {
  static auto* all = new std::map<char*, Pinned>;
  return *all;
}

struct Import {
  char* front;
  char* back;
  size_t size;
};
std::map<std::string, Import>& imports() {
  static auto* all = new std::map<std::string, Import>;
  return *all;
}

size_t memory_size() { return size_t(number("MEMORY_MB", 4096)) << 20; }

Arena& arena_of(int index) {
  Arena& arena = arenas[index];
  if (arena.front) return arena;
  arena.size = memory_size();
  arena.file = memfd_create("ascend-stand-in", MFD_CLOEXEC);
  if (arena.file < 0 || ftruncate(arena.file, off_t(arena.size))) {
    fprintf(stderr, "ascend stand-in: no memory of %zu bytes for device %d: %s\n", arena.size, index, strerror(errno));
    abort();
  }
  void* front = mmap(nullptr, arena.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* back = mmap(nullptr, arena.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena.file, 0);
  if (front == MAP_FAILED || back == MAP_FAILED) {
    fprintf(stderr, "ascend stand-in: cannot map %zu bytes for device %d: %s\n", arena.size, index, strerror(errno));
    abort();
  }
  arena.front = static_cast<char*>(front);
  arena.back = static_cast<char*>(back);
  arena.holes[0] = arena.size;
  return arena;
}

// The block that an address is in, also in its padding.
std::map<char*, Block>::iterator around(const void* address) {
  auto& all = blocks();
  auto at = all.upper_bound(static_cast<char*>(const_cast<void*>(address)));
  if (at == all.begin()) return all.end();
  --at;
  return static_cast<const char*>(address) < at->first + at->second.whole ? at : all.end();
}

bool within(const std::map<char*, Block>::iterator& at, const void* address, size_t bytes) {
  size_t offset = size_t(static_cast<const char*>(address) - at->first);
  return offset <= at->second.size && bytes <= at->second.size - offset;
}

bool is_pinned(const void* address) {
  auto& all = pinned();
  auto at = all.upper_bound(static_cast<char*>(const_cast<void*>(address)));
  if (at == all.begin()) return false;
  --at;
  return static_cast<const char*>(address) < at->first + at->second.size;
}

// An address of some device that is not of a live block: freed, or never handed out.
bool in_arena(const void* address) {
  for (const Arena& arena : arenas)
    if (arena.front && address >= arena.front && address < arena.front + arena.size) return true;
  return false;
}

Code allocate(const char* who, void** result, size_t bytes) {
  if (Code code = need_context(who)) return code;
  if (!result) return refuse(kInvalidParameter, "%s: the place for the address is NULL", who);
  if (!bytes) return refuse(kInvalidParameter, "%s: the size is 0", who);
  int index = current_device();
  std::lock_guard<std::mutex> guard(lock);
  Arena& arena = arena_of(index);
  if (bytes > arena.size)
    return refuse(kOutOfMemory, "%s: %zu bytes, device %d has %zu", who, bytes, index, arena.size);
  size_t whole = up(up(bytes, 32) + kPadding, kStep);
  for (auto hole = arena.holes.begin(); hole != arena.holes.end(); ++hole) {
    if (hole->second < whole) continue;
    auto [offset, size] = *hole;
    arena.holes.erase(hole);
    if (size > whole) arena.holes[offset + whole] = size - whole;
    arena.used += whole;
    char* front = arena.front + offset;
    blocks()[front] = {bytes, whole, arena.back + offset, index, &arena};
    memset(arena.back + offset, kFresh, std::min(whole, size_t(64) << 20));
    *result = front;
    return kGood;
  }
  return refuse(kOutOfMemory, "%s: %zu bytes, device %d has %zu of %zu left, in pieces", who, bytes, index,
                arena.size - arena.used, arena.size);
}

void give_back(Arena& arena, size_t offset, size_t size) {
  arena.used -= size;
  if (size >= size_t(1) << 20)
    fallocate(arena.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(size));
  auto next = arena.holes.lower_bound(offset);
  if (next != arena.holes.end() && next->first == offset + size) {
    size += next->second;
    next = arena.holes.erase(next);
  }
  if (next != arena.holes.begin()) {
    auto last = std::prev(next);
    if (last->first + last->second == offset) {
      last->second += size;
      return;
    }
  }
  arena.holes[offset] = size;
}

enum Kind { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault, kInner = 6, kInter = 7 };

struct Side {
  char* bytes;
  bool device;
  bool pinned;
  int index;
};

// What one end of a copy is, and whether it is long enough.
Code look(const char* who, const char* end, const void* address, size_t bytes, Side* side) {
  std::lock_guard<std::mutex> guard(lock);
  auto at = around(address);
  if (at != blocks().end()) {
    if (!within(at, address, bytes))
      return refuse(kInvalidParameter, "%s: the %s %p is %zu bytes into a block of %zu, %zu bytes do not fit", who, end,
                    address, size_t(static_cast<const char*>(address) - at->first), at->second.size, bytes);
    *side = {at->second.back + (static_cast<const char*>(address) - at->first), true, false, at->second.device};
    return kGood;
  }
  if (in_arena(address))
    return refuse(kInvalidParameter, "%s: the %s %p is device memory of no live block", who, end, address);
  *side = {static_cast<char*>(const_cast<void*>(address)), false, is_pinned(address), -1};
  return kGood;
}

struct Copy {
  Side to, from;
};

Code check_copy(const char* who, void* to, size_t most, const void* from, size_t bytes, int kind, Copy* copy) {
  if (Code code = need_context(who)) return code;
  if (!to || !from) return refuse(kInvalidParameter, "%s: the %s is NULL", who, to ? "source" : "destination");
  if (bytes > most)
    return refuse(kInvalidParameter, "%s: %zu bytes do not fit into a destination of %zu", who, bytes, most);
  if (Code code = look(who, "destination", to, bytes, &copy->to)) return code;
  if (Code code = look(who, "source", from, bytes, &copy->from)) return code;
  int real = (copy->from.device ? 2 : 0) + (copy->to.device ? 1 : 0);
  int told = kind == kInner || kind == kInter ? int(kDeviceToDevice) : kind;
  if (kind < 0 || kind > kInter || kind == 5) return refuse(kInvalidParameter, "%s: %d is no kind of copy", who, kind);
  static const char* const names[] = {"host to host", "host to device", "device to host", "device to device"};
  if (kind != kDefault && told != real)
    return refuse(kInvalidParameter, "%s: the kind says %s, the addresses are %s", who, names[told], names[real]);
  int a = copy->from.index, b = copy->to.index;
  if (real == kDeviceToDevice && a != b && !device(a)->peers[b] && !device(b)->peers[a])
    return refuse(kInvalidParameter, "%s: devices %d and %d are no peers; aclrtDeviceEnablePeerAccess is missing", who,
                  a, b);
  return kGood;
}

Code copy_async(const char* who, void* to, size_t most, const void* from, size_t bytes, int kind, void* stream) {
  Copy copy;
  if (Code code = check_copy(who, to, most, from, bytes, kind, &copy)) return code;
  if (!bytes) return kGood;
  // The blocks are looked up again when the copy runs: who frees them before has made a mistake.
  Code code = enqueue(stream, who, [=]() -> Code {
    char* target = copy.to.device ? resolve(to, bytes) : copy.to.bytes;
    char* source = copy.from.device ? resolve(from, bytes) : copy.from.bytes;
    if (!target || !source)
      return broken(kInternal,
                    text("%s: the %s was freed before the copy ran", who, target ? "source" : "destination"));
    memmove(target, source, bytes);
    return kGood;
  });
  if (code) return code;
  bool pageable = (!copy.to.device && !copy.to.pinned) || (!copy.from.device && !copy.from.pinned);
  Stream* queue = find_stream(stream, &code);
  return pageable && queue && !queue->graph ? drain(queue, -1) : kGood;
}

Code set_bytes(const char* who, void* address, size_t most, size_t bytes) {
  if (Code code = need_context(who)) return code;
  if (!address) return refuse(kInvalidParameter, "%s: the address is NULL", who);
  if (bytes > most) return refuse(kInvalidParameter, "%s: %zu bytes do not fit into %zu", who, bytes, most);
  Side side;
  return look(who, "destination", address, bytes, &side);
}

}  // namespace

char* resolve(const void* address, size_t bytes) {
  std::lock_guard<std::mutex> guard(lock);
  auto at = around(address);
  if (at == blocks().end() || !within(at, address, bytes)) return nullptr;
  return at->second.back + (static_cast<const char*>(address) - at->first);
}

void spill(const void* storage, size_t bytes) {
  static bool on = number("PADDING", 1);
  static size_t padding = strncmp(chip(), "Ascend950", 9) ? kPadding : 0;
  if (!on) return;
  std::lock_guard<std::mutex> guard(lock);
  auto at = around(storage);
  if (at == blocks().end() || !within(at, storage, bytes)) return;
  // By addresses: where a storage begins between multiples of 32, its end is what is rounded.
  size_t end = size_t(static_cast<const char*>(storage) - at->first) + bytes;
  memset(at->second.back + end, kSpilled, std::min(up(end, 32) + padding, at->second.whole) - end);
}

void memory_of(int index, size_t* free, size_t* total) {
  std::lock_guard<std::mutex> guard(lock);
  Arena& arena = arena_of(index);
  *total = arena.size;
  *free = arena.size - arena.used;
}

void forget_memory(int index) {
  std::lock_guard<std::mutex> guard(lock);
  auto& all = blocks();
  for (auto at = all.begin(); at != all.end();) {
    if (at->second.device != index || !at->second.arena) {
      ++at;
      continue;
    }
    give_back(*at->second.arena, size_t(at->first - at->second.arena->front), at->second.whole);
    at = all.erase(at);
  }
}

}  // namespace stand_in

using namespace stand_in;

ENTRY Code aclrtMalloc(void** result, size_t bytes, int) {
  CALL();
  return allocate(__func__, result, bytes);
}

ENTRY Code aclrtMallocAlign32(void** result, size_t bytes, int) {
  CALL();
  return allocate(__func__, result, bytes);
}

ENTRY Code aclrtMallocCached(void** result, size_t bytes, int) {
  CALL();
  return allocate(__func__, result, bytes);
}

ENTRY Code aclrtFree(void* address) {
  CALL();
  std::lock_guard<std::mutex> guard(lock);
  auto at = blocks().find(static_cast<char*>(address));
  if (at == blocks().end()) return refuse(kInvalidParameter, "aclrtFree: %p is not the start of a live block", address);
  if (!at->second.arena)
    return refuse(kInvalidParameter, "aclrtFree: %p is another process's; aclrtIpcMemClose gives it back", address);
  give_back(*at->second.arena, size_t(at->first - at->second.arena->front), at->second.whole);
  blocks().erase(at);
  return kGood;
}

ENTRY Code aclrtMallocHost(void** result, size_t bytes) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (!result || !bytes)
    return refuse(kInvalidParameter, "aclrtMallocHost: %s",
                  result ? "the size is 0" : "the place for the address is NULL");
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return refuse(kOutOfMemory, "aclrtMallocHost: no memory for %zu bytes", bytes);
  std::lock_guard<std::mutex> guard(lock);
  pinned()[static_cast<char*>(address)] = {bytes, true};
  *result = address;
  return kGood;
}

ENTRY Code aclrtMallocHostWithCfg(void** result, uint64_t bytes, void*) {
  CALL();
  return aclrtMallocHost(result, bytes);
}

ENTRY Code aclrtFreeHost(void* address) {
  CALL();
  std::lock_guard<std::mutex> guard(lock);
  auto at = pinned().find(static_cast<char*>(address));
  if (at == pinned().end() || !at->second.owned)
    return refuse(kInvalidParameter, "aclrtFreeHost: %p is not of aclrtMallocHost", address);
  munmap(address, at->second.size);
  pinned().erase(at);
  return kGood;
}

ENTRY Code aclrtHostRegister(void* address, uint64_t bytes, int, void** seen_by_device) {
  CALL();
  if (!address || !bytes) return refuse(kInvalidParameter, "aclrtHostRegister: nothing to register");
  std::lock_guard<std::mutex> guard(lock);
  pinned()[static_cast<char*>(address)] = {size_t(bytes), false};
  if (seen_by_device) *seen_by_device = address;
  return kGood;
}

ENTRY Code aclrtHostRegisterV2(void* address, uint64_t bytes, uint32_t) {
  CALL();
  return aclrtHostRegister(address, bytes, 0, nullptr);
}

ENTRY Code aclrtHostUnregister(void* address) {
  CALL();
  std::lock_guard<std::mutex> guard(lock);
  auto at = pinned().find(static_cast<char*>(address));
  if (at == pinned().end() || at->second.owned)
    return refuse(kInvalidParameter, "aclrtHostUnregister: %p is not registered", address);
  pinned().erase(at);
  return kGood;
}

ENTRY Code aclrtMemcpy(void* to, size_t most, const void* from, size_t bytes, int kind) {
  CALL();
  Copy copy;
  if (Code code = check_copy(__func__, to, most, from, bytes, kind, &copy)) return code;
  if (Code code = capture_forbids(__func__, context())) return code;
  // In the order of the default stream, as on the chip: other streams have to be waited for.
  if (Code code = drain(context()->stream, -1)) return code;
  if (bytes) memmove(copy.to.bytes, copy.from.bytes, bytes);
  return kGood;
}

ENTRY Code aclrtMemcpyAsync(void* to, size_t most, const void* from, size_t bytes, int kind, void* stream) {
  CALL();
  return copy_async(__func__, to, most, from, bytes, kind, stream);
}

ENTRY Code aclrtMemcpyAsyncWithCondition(void* to, size_t most, const void* from, size_t bytes, int kind,
                                         void* stream) {
  CALL();
  return copy_async(__func__, to, most, from, bytes, kind, stream);
}

ENTRY Code aclrtMemset(void* address, size_t most, int32_t value, size_t bytes) {
  CALL();
  if (Code code = set_bytes(__func__, address, most, bytes)) return code;
  if (Code code = capture_forbids(__func__, context())) return code;
  if (Code code = drain(context()->stream, -1)) return code;
  Side side;
  if (Code code = look(__func__, "destination", address, bytes, &side)) return code;
  memset(side.bytes, value, bytes);
  return kGood;
}

ENTRY Code aclrtMemsetAsync(void* address, size_t most, int32_t value, size_t bytes, void* stream) {
  CALL();
  if (Code code = set_bytes(__func__, address, most, bytes)) return code;
  Side side;
  if (Code code = look(__func__, "destination", address, bytes, &side)) return code;
  return enqueue(stream, __func__, [=]() -> Code {
    char* target = side.device ? resolve(address, bytes) : side.bytes;
    if (!target) return broken(kInternal, "aclrtMemsetAsync: the destination was freed before it ran");
    memset(target, value, bytes);
    return kGood;
  });
}

ENTRY Code aclrtGetMemInfo(int, size_t* free, size_t* total) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (!free || !total) return refuse(kInvalidParameter, "aclrtGetMemInfo: a result's place is NULL");
  memory_of(current_device(), free, total);
  return kGood;
}

struct Attributes {
  uint32_t device;
  uint32_t where;  // 0 host, 1 device, 2 not registered.
  uint32_t page;
  uint32_t reserved[4];
};

ENTRY Code aclrtPointerGetAttributes(const void* address, Attributes* result) {
  CALL();
  if (!result) return refuse(kInvalidParameter, "aclrtPointerGetAttributes: the result's place is NULL");
  std::lock_guard<std::mutex> guard(lock);
  *result = {};
  auto at = around(address);
  if (at != blocks().end()) {
    result->device = uint32_t(at->second.device);
    result->where = 1;
  } else {
    result->where = is_pinned(address) ? 0 : 2;
  }
  return kGood;
}

// Memory shared with another process: the key names this process's file, the place in it and the size. 65 characters
// with the NUL are the documented length.
ENTRY Code aclrtIpcMemGetExportKey(void* address, size_t bytes, char* key, size_t length, uint64_t) {
  CALL();
  if (length < 65 || !key)
    return refuse(kInvalidParameter, "aclrtIpcMemGetExportKey: the key has %zu characters, it needs 65", length);
  std::lock_guard<std::mutex> guard(lock);
  auto at = around(address);
  if (at == blocks().end() || !within(at, address, bytes) || !at->second.arena)
    return refuse(kInvalidParameter, "aclrtIpcMemGetExportKey: %p is not of a live block of %zu bytes", address, bytes);
  size_t offset = size_t(static_cast<char*>(address) - at->second.arena->front);
  memset(key, 0, length);
  snprintf(key, length, "%x.%x.%zx.%zx.%x.", getpid(), at->second.arena->file, offset, bytes, at->second.device);
  memset(key + strlen(key), '-', 64 - strlen(key));
  return kGood;
}

ENTRY Code aclrtIpcMemSetImportPid(const char*, int32_t*, size_t) {
  CALL();
  return kGood;
}

ENTRY Code aclrtIpcMemImportByKey(void** result, const char* key, uint64_t) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  unsigned pid, file, index;
  size_t offset, bytes;
  if (!result || !key || sscanf(key, "%x.%x.%zx.%zx.%x.", &pid, &file, &offset, &bytes, &index) != 5)
    return refuse(kInvalidParameter, "aclrtIpcMemImportByKey: \"%.64s\" is no key", key ? key : "");
  int shared = open(text("/proc/%u/fd/%u", pid, file).c_str(), O_RDWR | O_CLOEXEC);
  if (shared < 0)
    return refuse(kInvalidParameter, "aclrtIpcMemImportByKey: process %u does not share this memory: %s", pid,
                  strerror(errno));
  size_t page = size_t(sysconf(_SC_PAGESIZE)), skip = offset % page, span = up(skip + bytes, page);
  void* back = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_SHARED, shared, off_t(offset - skip));
  void* front = mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  close(shared);
  if (back == MAP_FAILED || front == MAP_FAILED)
    return refuse(kOutOfMemory, "aclrtIpcMemImportByKey: cannot map %zu bytes", span);
  std::lock_guard<std::mutex> guard(lock);
  char* address = static_cast<char*>(front) + skip;
  blocks()[address] = {bytes, bytes, static_cast<char*>(back) + skip, current_device(), nullptr};
  imports()[key] = {static_cast<char*>(front), static_cast<char*>(back), span};
  *result = address;
  return kGood;
}

ENTRY Code aclrtIpcMemClose(const char* key) {
  CALL();
  std::lock_guard<std::mutex> guard(lock);
  auto at = key ? imports().find(key) : imports().end();
  if (at == imports().end()) {
    unsigned pid = 0;
    if (key && sscanf(key, "%x.", &pid) == 1 && int(pid) == getpid()) return kGood;  // Who exported it closes too.
    return refuse(kInvalidParameter, "aclrtIpcMemClose: \"%.64s\" was not imported", key ? key : "");
  }
  Import& import = at->second;
  for (auto block = blocks().begin(); block != blocks().end();)
    block = block->first >= import.front && block->first < import.front + import.size ? blocks().erase(block)
                                                                                      : std::next(block);
  munmap(import.front, import.size);
  munmap(import.back, import.size);
  imports().erase(at);
  return kGood;
}
