// A small cache of pinned blocks: power-of-two sizes, a list each, for each device where the vendor pins by device. A block
// that copies in the background still read or write waits, after its release, until their streams have passed.
#include "runtime/host_allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>

#include <ATen/Context.h>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/passing.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

constexpr size_t kSmallest = 4096;

struct PinnedBlock {
  char* start;
  size_t size;
  int device;  // that it is pinned for; -1: all
  std::vector<StreamState*> used_on;
  int graphs = 0;  // that copy from it or to it
  bool released = false;
};

// Memory of others that host_register pinned.
struct Registered {
  size_t bytes;
  int device;
  std::vector<StreamState*> used_on;
};

struct PinnedCache final : at::HostAllocator {
  std::mutex mutex;
  std::map<const char*, PinnedBlock*> blocks;  // all, by address
  std::map<char*, Registered> registered;
  std::map<int, std::array<std::vector<PinnedBlock*>, 64>> free;  // by device
  struct Waiting {
    PinnedBlock* block;
    Passing streams;
  };
  std::vector<Waiting> waiting;
  at::HostStats stats;

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::DeviceType::CPU};
    device(current_device());
    const int place = api().host_alloc_for ? current_device() : -1;
    const size_t size = std::bit_ceil(std::max(bytes, kSmallest));
    std::lock_guard lock(mutex);
    collect(false);
    auto& list = free[place][std::countr_zero(size)];
    PinnedBlock* block;
    if (!list.empty()) {
      block = list.back();
      list.pop_back();
      block->released = false;
    } else {
      block = take(size, place);
    }
    stats.active_requests.increase(1);
    stats.active_bytes.increase(size);
    return {block->start, block, release_block, c10::DeviceType::CPU};
  }

  PinnedBlock* take(size_t size, int place) {
    void* start = nullptr;
    const char* entry = place >= 0 ? "host_alloc_for" : "host_alloc";
    const auto ask = [&] {
      return place >= 0 ? api().host_alloc_for(device(place).vendor_id, size, &start) : api().host_alloc(size, &start);
    };
    if (place >= 0 || api().host_alloc) {
      cw_status status = ask();
      if (status == CW_OUT_OF_MEMORY && drop_free()) status = ask();
      check(status, entry, place);
      if (!start) fail(Kind::Vendor, vendor_name(), ": ", entry, " gave no address for ", size, " bytes");
    } else if (!(start = std::aligned_alloc(kSmallest, size))) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the host is out of memory: cannot allocate ", size, " bytes to pin");
    }
    ++stats.num_host_alloc;
    stats.allocations.increase(1);
    stats.allocated_bytes.increase(size);
    auto* block = new PinnedBlock{static_cast<char*>(start), size, place, {}};
    blocks.emplace(block->start, block);
    return block;
  }

  static void release_block(void* context);

  void release(PinnedBlock* block) {
    std::lock_guard lock(mutex);
    stats.active_requests.decrease(1);
    stats.active_bytes.decrease(block->size);
    wait_or_keep(block);
  }

  void wait_or_keep(PinnedBlock* block) {
    block->released = true;
    if (block->graphs) return;
    if (block->used_on.empty()) return keep(block);
    waiting.push_back({block, {}});
    const std::exception_ptr error = waiting.back().streams.begin(block->used_on, Passing::Ask::Told);
    block->used_on.clear();
    if (C10_UNLIKELY(error)) std::rethrow_exception(error);
  }

  // Replays of the graph copy from it or to it.
  void hold_for(Graph& graph, PinnedBlock* block) {
    ++block->graphs;
    graph.hold([this, block] {
      std::lock_guard lock(mutex);
      if (--block->graphs == 0 && block->released) wait_or_keep(block);
    });
  }

  void keep(PinnedBlock* block) { free[block->device][std::countr_zero(block->size)].push_back(block); }

  void collect(bool wait) {
    for (size_t i = 0; i < waiting.size();) {
      Waiting& w = waiting[i];
      if (!w.streams.passed(wait)) {
        ++i;
        continue;
      }
      PinnedBlock* block = w.block;
      if (&w != &waiting.back()) w = std::move(waiting.back());
      waiting.pop_back();
      keep(block);
    }
  }

  bool drop_free() {
    bool any = false;
    for (auto& [_, lists] : free)
      for (auto& list : lists) any |= drop(list);
    return any;
  }

  bool drop(std::vector<PinnedBlock*>& list) {
    bool any = false;
    while (!list.empty()) {
      // A call that fails has done nothing: until it did, the block is ours and stays in the list.
      PinnedBlock* block = list.back();
      if (block->device >= 0)
        check(api().host_free_for(device(block->device).vendor_id, block->start), "host_free_for", block->device);
      else if (api().host_free)
        check(api().host_free(block->start), "host_free", -1);
      else
        std::free(block->start);
      any = true;
      list.pop_back();
      blocks.erase(block->start);
      ++stats.num_host_free;
      stats.allocations.decrease(1);
      stats.allocated_bytes.decrease(block->size);
      delete block;
    }
    return any;
  }

  PinnedBlock* find(const void* pointer) {
    auto* p = static_cast<const char*>(pointer);
    auto it = blocks.upper_bound(p);
    if (it == blocks.begin()) return nullptr;
    PinnedBlock* block = (--it)->second;
    return p < block->start + block->size ? block : nullptr;
  }

  Registered* find_registered(const void* pointer) {
    auto* p = static_cast<char*>(const_cast<void*>(pointer));
    auto it = registered.upper_bound(p);
    if (it == registered.begin()) return nullptr;
    --it;
    return p < it->first + it->second.bytes ? &it->second : nullptr;
  }

  bool is_simple_data_ptr(const c10::DataPtr&) const override { return true; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool record_event(void* pointer, void*, c10::Stream stream) override {
    return record_pinned(pointer, stream_of(stream));
  }
  void empty_cache() override {
    std::lock_guard lock(mutex);
    collect(true);
    drop_free();
  }
  at::HostStats get_stats() override {
    std::lock_guard lock(mutex);
    return stats;
  }
  void reset_accumulated_stats() override {
    std::lock_guard lock(mutex);
    for (auto* s : each()) s->reset_accumulated();
    stats.num_host_alloc = stats.num_host_free = 0;
  }
  void reset_peak_stats() override {
    std::lock_guard lock(mutex);
    for (auto* s : each()) s->reset_peak();
  }
  std::array<c10::CachingAllocator::Stat*, 4> each() {
    return {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes};
  }
};

PinnedCache& pinned() {
  static PinnedCache& cache = *new PinnedCache;  // outlives every tensor
  return cache;
}

void PinnedCache::release_block(void* context) {
  if (past_use()) return;
  try {
    pinned().release(static_cast<PinnedBlock*>(context));
  } catch (...) {
    TORCH_WARN("while pinned memory was freed: ", words_of(std::current_exception()));
  }
}

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &pinned())

}  // namespace

at::HostAllocator* pinned_allocator() { return &pinned(); }

bool is_pinned(const void* pointer, int device) {
  PinnedCache& cache = pinned();
  std::lock_guard lock(cache.mutex);
  if (const PinnedBlock* block = cache.find(pointer)) return device < 0 || block->device < 0 || block->device == device;
  return cache.find_registered(pointer);
}

void register_host(void* start, size_t bytes) {
  if (!api().host_register)
    fail(Kind::Vendor, vendor_name(), " cannot pin memory that is there already: its library has no host_register; ",
         "copy it to pinned memory with tensor.pin_memory()");
  if (!start || !bytes) fail(Kind::Causeway, "there is no memory to pin: ", bytes, " bytes at ", start);
  const DeviceState& d = device(current_device());
  at::globalContext().lazyInitDevice(kDeviceType);  // else torch takes no memory for pinned
  PinnedCache& cache = pinned();
  std::lock_guard lock(cache.mutex);
  auto* first = static_cast<char*>(start);
  const auto next = cache.registered.lower_bound(first + bytes);
  if (next != cache.registered.begin())
    if (const auto& [at, known] = *std::prev(next); first < at + known.bytes)
      fail(Kind::Causeway, "the ", bytes, " bytes at ", start, " overlap ", known.bytes, " bytes at ",
           static_cast<const void*>(at), " that are pinned already");
  check(api().host_register(d.vendor_id, start, bytes), "host_register", d.index);
  cache.registered.emplace(first, Registered{bytes, d.index, {}});
}

void unregister_host(void* start) {
  PinnedCache& cache = pinned();
  Registered gone;
  {
    std::lock_guard lock(cache.mutex);
    const auto it = cache.registered.find(static_cast<char*>(start));
    if (it == cache.registered.end()) fail(Kind::Causeway, "the memory at ", start, " was not pinned by host_register");
    gone = it->second;
    cache.registered.erase(it);
  }
  for (StreamState* s : gone.used_on) s->wait();
  check(api().host_unregister(device(gone.device).vendor_id, start), "host_unregister", gone.device);
}

bool record_pinned(const void* pointer, StreamState& stream) {
  PinnedCache& cache = pinned();
  std::lock_guard lock(cache.mutex);
  std::vector<StreamState*>* used_on = nullptr;
  PinnedBlock* block = cache.find(pointer);
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr) && block)
    return cache.hold_for(*graph, block), true;
  if (block)
    used_on = &block->used_on;
  else if (Registered* known = cache.find_registered(pointer))
    used_on = &known->used_on;
  if (!used_on) return false;
  if (std::find(used_on->begin(), used_on->end(), &stream) == used_on->end()) used_on->push_back(&stream);
  return true;
}

}  // namespace causeway
