// The caching allocator of device memory.
//
// A vendor's mem_alloc may cost milliseconds and may wait for the device, so memory is taken from it in segments and
// cut into blocks. A block belongs to the stream on which it was allocated: work on one stream is in order, so a
// freed block can be handed out again on that stream at once. A block that other streams touched (record_stream)
// waits until events recorded there at its release have passed.
//
// Free blocks are kept in two tiers. Small ones go to a list for their exact size, last in, first out: the common
// case of a training loop, a few dozen instructions. Everything else is merged with its free neighbours and kept in
// a tree by size, best fit first. A miss in the lists merges them into the tree before any memory is asked for.
//
// Sizes and cuts are torch.cuda's (512-byte rounding; segments of 2 MiB for blocks up to 1 MiB, of 20 MiB up to
// 10 MiB, else of whole 2 MiB), so that users' habits and tools carry over.
//
// While a graph is captured (graph.h), its streams have pools that are kept for it, or for those that share them: a block
// that is freed there is handed out again only to a capture with the same pool, as replays write to it. A program has
// pools of its own (PoolInUse) in the same way.
//
// Where the vendor offers addresses apart from memory and the program asks for torch's `expandable_segments`, a pool's
// segment is as many addresses as the device has memory, and grows in place: what is asked for next joins what is free
// before it, where a segment of its own would leave a remainder. Its blocks are in order of address; those with nothing
// behind them (`unmapped`) are in no tree, but in the segment's `holes`.
#include "runtime/allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include <c10/core/AllocatorConfig.h>
#include <c10/util/SmallVector.h>

#include "runtime/check.h"
#include "runtime/fault.h"
#include "runtime/graph.h"
#include "runtime/packed.h"
#include "runtime/passing.h"
#include "runtime/profile.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"

namespace causeway {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kRound = 512;
constexpr size_t kSmallLimit = size_t{1} << 20;  // the largest block of a small segment
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kMediumSegment = size_t{20} << 20;
constexpr size_t kMediumLimit = size_t{10} << 20;  // smaller requests share a medium segment
constexpr size_t kLargeRound = size_t{2} << 20;
constexpr size_t kListLimit = size_t{64} << 10;  // blocks up to here have a list of their exact size
constexpr size_t kLists = kListLimit / kRound + 1;

// Off: each block is a segment of its own size, and goes back when it is freed. What a graph keeps stays.
std::atomic<bool> g_caching{true};

// While one lives on a thread, memory that cannot be had is no error of the program's yet: NoRoom is thrown for it.
struct NoRoom {};
thread_local bool t_has_another_way = false;
struct HasAnotherWay {
  HasAnotherWay() { t_has_another_way = true; }
  ~HasAnotherWay() { t_has_another_way = false; }
};

struct Cache;
struct Pool;

struct Segment {
  char* start;
  size_t size;
  Pool* pool;
  bool large;
  Block* first;
  Frames frames;
  bool on_stream = false;  // the vendor gave it in the order of the pool's stream
  bool grows = false;  // then `size` is of its addresses
  size_t page = 0, mapped = 0;
  std::map<char*, Block*> holes;
};

struct Block {
  char* start;
  size_t size;
  size_t requested = 0;
  Segment* segment;
  Cache* cache;
  Block* previous = nullptr;  // neighbours within the segment
  Block* next = nullptr;
  bool allocated = false;  // handed out
  bool in_list = false;  // free, and in a list of its exact size
  bool waiting = false;  // freed, and waiting for other streams
  bool unmapped = false;  // addresses of a segment that grows, without memory
  c10::SmallVector<StreamState*, 1> used_on;
  Frames frames;  // of who asked for it, where a history is kept
};

struct BySize {
  using is_transparent = void;
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : std::less<>()(a->start, b->start);
  }
  bool operator()(const Block* a, size_t size) const { return a->size < size; }
};

// The pools of a graph or of the program, by stream.
struct KeptPools {
  c10::MempoolId_t id{0, 0};
  int uses = 0;  // graphs, and objects and contexts of the program
  PoolOptions options;
  std::unordered_map<StreamState*, std::unique_ptr<Pool>> pools;
};

// Free blocks of one stream. Small and large blocks never share a segment.
struct Pool {
  StreamState* stream;
  const KeptPools* kept = nullptr;
  std::array<std::vector<Block*>, kLists> lists;
  bool lists_used = false;
  std::set<Block*, BySize> small, large;
  std::vector<Segment*> growing[2];  // small, large
};

namespace {

void add(StatArray& stat, bool large, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
  stat[static_cast<size_t>(large ? StatType::LARGE_POOL : StatType::SMALL_POOL)].increase(amount);
}
void take(StatArray& stat, bool large, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
  stat[static_cast<size_t>(large ? StatType::LARGE_POOL : StatType::SMALL_POOL)].decrease(amount);
}
template <class F>
void each_stat(DeviceStats& s, F f) {
  for (StatArray* a : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes, &s.reserved_bytes,
                       &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes})
    for (Stat& stat : *a) f(stat);
  f(s.oversize_allocations);
  f(s.oversize_segments);
}

std::string mib(size_t bytes) { return c10::CachingAllocator::format_size(bytes); }

// A pool of the program that this thread allocates from; the last one of a device counts.
struct PoolInUse {
  int device;
  c10::MempoolId_t id;
};
thread_local std::vector<PoolInUse> t_pools;
std::atomic<int> g_pools_in_use{0};  // of all threads

const c10::MempoolId_t* pool_in_use(int device) {
  for (auto it = t_pools.rbegin(); it != t_pools.rend(); ++it)
    if (it->device == device) return &it->id;
  return nullptr;
}

}  // namespace

struct Cache {
  explicit Cache(const DeviceState& d)
      : device(d.index), vendor_id(d.vendor_id), total(d.info.memory), alignment(d.alignment), padding(d.info.padding) {
    round = std::max(kRound, d.alignment);
  }

  const int device;
  const int32_t vendor_id;
  const size_t total;
  const size_t alignment;  // of what the vendor gives
  const size_t padding;  // behind each block, which the chip may touch
  size_t round;
  size_t limit = 0;  // 0: none
  double fraction = 1.0;
  std::mutex mutex;
  DeviceStats stats;
  std::unordered_map<StreamState*, std::unique_ptr<Pool>> pools;
  std::map<c10::MempoolId_t, KeptPools> kept;
  StreamState* last_stream = nullptr;  // pools' answer for the stream of the last call
  Pool* last_pool = nullptr;
  std::map<char*, std::unique_ptr<Segment>> segments;
  std::vector<Block*> spare;  // Block objects to use again
  struct Waiting {
    Block* block;
    Passing streams;
  };
  std::vector<Waiting> waiting;
  History history;
  std::string refusal;  // what the vendor said when it last had no memory for a call that still asks
  std::atomic<bool> cannot_grow{false};  // the program asked for segments that grow, and the vendor has none

  Pool& pool(StreamState& stream) {
    if (const Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr))
      return kept_pool(graph->next_pool(), stream);
    if (C10_UNLIKELY(g_pools_in_use.load(std::memory_order_relaxed) > 0))
      if (const c10::MempoolId_t* id = pool_in_use(device)) return kept_pool(*id, stream);
    if (C10_LIKELY(last_stream == &stream)) return *last_pool;
    auto& p = pools[&stream];
    if (!p) {
      p = std::make_unique<Pool>();
      p->stream = &stream;
    }
    last_stream = &stream;
    last_pool = p.get();
    return *p;
  }

  KeptPools& kept_pools(c10::MempoolId_t id) {
    KeptPools& all = kept[id];
    all.id = id;
    return all;
  }

  Pool& kept_pool(c10::MempoolId_t id, StreamState& stream) {
    KeptPools& all = kept_pools(id);
    auto& p = all.pools[&stream];
    if (!p) {
      p = std::make_unique<Pool>();
      p->stream = &stream;
      p->kept = &all;
    }
    return *p;
  }

  template <class F>
  void each_pool(F f) {
    for (auto& [_, p] : pools) f(*p);
    for (auto& [_, all] : kept)
      for (auto& [_, p] : all.pools) f(*p);
  }

  // Whether a graph may still write to what is free, or the program keeps it.
  static bool is_kept(const Pool& p) { return p.kept && p.kept->uses > 0; }

  // Pools that nobody keeps and no memory is of any more.
  void forget_pools() {
    std::set<const KeptPools*> used;
    for (auto& [_, s] : segments) used.insert(s->pool->kept);
    std::erase_if(kept, [&](const auto& entry) { return entry.second.uses == 0 && !used.count(&entry.second); });
  }

  Block* allocate(size_t bytes, StreamState& stream) {
    const bool exact = !g_caching.load(std::memory_order_relaxed);
    const size_t size = C10_UNLIKELY(exact) ? bytes + padding : (bytes + padding + round - 1) / round * round;
    Frames frames = gather_frames(Stacks::State);
    std::lock_guard lock(mutex);
    if (C10_UNLIKELY(!waiting.empty())) collect_waiting(false);
    Pool& p = pool(stream);
    Block* block = nullptr;
    if (size <= kListLimit) {
      auto& list = p.lists[size / kRound];
      if (C10_LIKELY(!list.empty())) {
        block = list.back();
        list.pop_back();
        block->in_list = false;
      }
    }
    if (!block) block = from_tree(p, size);
    if (!block && p.lists_used && size <= kSmallLimit) {
      merge_lists(p);
      block = from_tree(p, size);
    }
    if (!block) block = from_vendor(p, size, bytes, frames);
    if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr)) graph->allocated(block->start, bytes);
    block->allocated = true;
    block->requested = bytes;
    const bool large = block->segment->large;
    add(stats.allocation, large, 1);
    add(stats.allocated_bytes, large, block->size);
    add(stats.requested_bytes, large, bytes);
    add(stats.active, large, 1);
    add(stats.active_bytes, large, block->size);
    if (C10_UNLIKELY(g_history_on.load(std::memory_order_relaxed))) {
      note(MemoryAction::Alloc, *block, frames);
      block->frames = std::move(frames);
    }
    return block;
  }

  void release(Block* block) {
    const Frames frames = gather_frames(Stacks::All);
    std::lock_guard lock(mutex);
    const bool large = block->segment->large;
    block->allocated = false;
    take(stats.allocation, large, 1);
    take(stats.allocated_bytes, large, block->size);
    take(stats.requested_bytes, large, block->requested);
    if (C10_UNLIKELY(g_history_on.load(std::memory_order_relaxed))) note(MemoryAction::FreeRequested, *block, frames);
    block->frames = nullptr;
    if (C10_UNLIKELY(!block->used_on.empty())) return wait_for_streams(block);
    make_free(block, frames);
  }

  // -- below: the lock is held ---------------------------------------------------------------------------------

  void note(MemoryAction action, const Block& b, const Frames& frames) {
    history.add(action, reinterpret_cast<size_t>(b.start), b.requested, b.segment->pool->stream->id, frames);
  }
  void note(MemoryAction action, const Segment& s, const Frames& frames) {
    history.add(action, reinterpret_cast<size_t>(s.start), s.size, s.pool->stream->id, frames);
  }

  void make_free(Block* block, const Frames& frames = nullptr) {
    const bool large = block->segment->large;
    if (C10_UNLIKELY(g_history_on.load(std::memory_order_relaxed))) note(MemoryAction::FreeCompleted, *block, frames);
    take(stats.active, large, 1);
    take(stats.active_bytes, large, block->size);
    Pool& p = *block->segment->pool;
    if (C10_UNLIKELY(!g_caching.load(std::memory_order_relaxed))) {
      merge(p, block);
      release_segments(SIZE_MAX, frames, /*later=*/true);
      return;
    }
    if (block->size <= kListLimit) {
      block->in_list = true;
      p.lists[block->size / kRound].push_back(block);
      p.lists_used = true;
      return;
    }
    merge(p, block);
  }

  std::set<Block*, BySize>& tree(Pool& p, bool large) { return large ? p.large : p.small; }

  bool in_tree(const Block* b) const { return b && !b->allocated && !b->in_list && !b->waiting && !b->unmapped; }

  bool is_split(const Block* b) const { return b->previous || b->next; }

  void count_inactive(const Block* b, bool plus) {
    if (!is_split(b)) return;
    auto f = plus ? add : take;
    f(stats.inactive_split, b->segment->large, 1);
    f(stats.inactive_split_bytes, b->segment->large, b->size);
  }

  // Put a free block into the tree, joined with free neighbours.
  void merge(Pool& p, Block* block) {
    auto& t = tree(p, block->segment->large);
    if (Block* b = block->previous; in_tree(b)) {
      count_inactive(b, false);
      t.erase(b);
      block->start = b->start;
      block->size += b->size;
      block->previous = b->previous;
      if (b->previous) b->previous->next = block;
      if (block->segment->first == b) block->segment->first = block;
      spare.push_back(b);
    }
    if (Block* b = block->next; in_tree(b)) {
      count_inactive(b, false);
      t.erase(b);
      block->size += b->size;
      block->next = b->next;
      if (b->next) b->next->previous = block;
      spare.push_back(b);
    }
    t.insert(block);
    count_inactive(block, true);
  }

  void merge_lists(Pool& p) {
    for (auto& list : p.lists) {
      for (Block* b : list) {
        b->in_list = false;
        b->waiting = true;  // not in the tree yet: a neighbour must not join it before its turn
      }
    }
    for (auto& list : p.lists) {
      for (Block* b : list) {
        b->waiting = false;
        merge(p, b);
      }
      list.clear();
    }
    p.lists_used = false;
  }

  Block* new_block() {
    if (spare.empty()) return new Block;
    Block* b = spare.back();
    spare.pop_back();
    *b = Block{};
    return b;
  }

  Block* from_tree(Pool& p, size_t size) {
    const bool large = size > kSmallLimit;
    auto& t = tree(p, large);
    auto it = t.lower_bound(size);
    if (it == t.end()) return nullptr;
    Block* block = *it;
    count_inactive(block, false);
    t.erase(it);
    return cut(p, block, size);
  }

  Block* cut(Pool& p, Block* block, size_t size) {
    const size_t rest = block->size - size;
    if (block->segment->large ? rest <= kSmallLimit : rest < round) return block;
    if (C10_UNLIKELY(p.kept != nullptr) && p.kept->options.no_split && !block->segment->grows) return block;
    Block* tail = new_block();
    tail->start = block->start + size;
    tail->size = rest;
    tail->segment = block->segment;
    tail->cache = this;
    tail->previous = block;
    tail->next = block->next;
    if (block->next) block->next->previous = tail;
    block->next = tail;
    block->size = size;
    tree(p, block->segment->large).insert(tail);
    count_inactive(tail, true);
    return block;
  }

  Block* from_vendor(Pool& p, size_t size, size_t asked, const Frames& frames) {
    const bool large = size > kSmallLimit;
    size_t bytes = !g_caching            ? size
                   : !large              ? std::max(kSmallSegment, size)
                   : size < kMediumLimit ? kMediumSegment
                                         : (size + kLargeRound - 1) / kLargeRound * kLargeRound;
    if (Block* b = more(p, size, bytes, large, frames)) return b;
    // In order of what it costs: blocks waiting for other streams, cached segments of the right size, all cached
    // segments. Each step may free what the next would have to ask for.
    ++stats.num_alloc_retries;
    refusal.clear();
    collect_waiting(true);
    each_pool([&](Pool& of_stream) { merge_lists(of_stream); });
    if (Block* b = from_tree(p, size)) return b;
    if (release_segments(bytes, frames))
      if (Block* b = more(p, size, bytes, large, frames)) return b;
    release_segments(SIZE_MAX, frames);
    if (Block* b = more(p, size, bytes, large, frames)) return b;
    if (Block* b = more(p, size, size, large, frames)) return b;  // with no room to spare
    for (auto& [_, all] : kept)
      if (all.options.use_on_oom && &all != p.kept)
        if (const auto it = all.pools.find(p.stream); it != all.pools.end())
          if (Block* b = from_tree(*it->second, size)) return b;
    if (t_has_another_way) throw NoRoom{};
    if (g_history_on.load())
      history.add(MemoryAction::OutOfMemory, free_and_total(true).first, asked, p.stream->id, frames);
    fail_out_of_memory(asked);
  }

  // A block of `size` from memory that the cache did not have, `bytes` of it; nullptr: the device has not so much.
  Block* more(Pool& p, size_t size, size_t bytes, bool large, const Frames& frames) {
    if (g_caching && c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments()) {
      if (!api().mem_reserve)
        cannot_grow = true;
      else if (can_place(p, large, size))
        return grow(p, size, bytes, large, frames);
    }
    void* start = take_segment(p, bytes);
    return start ? add_segment(p, start, bytes, large, size, frames) : nullptr;
  }

  // -- segments that grow

  static size_t free_before(const Cache& c, const Block* hole) {
    return c.in_tree(hole->previous) ? hole->previous->size : 0;
  }

  Block* hole_for(Pool& p, bool large, size_t size) const {
    for (Segment* s : p.growing[large])
      for (auto& [_, hole] : s->holes)
        if (free_before(*this, hole) + hole->size >= size) return hole;
    return nullptr;
  }

  // Whether there are addresses for a block; new ones are reserved where there are not. As many as the device has
  // memory, or what the vendor still has; false: a segment of the usual kind must do.
  bool can_place(Pool& p, bool large, size_t size) {
    if (hole_for(p, large, size)) return true;
    void* start = nullptr;
    uint64_t page = 0;
    size_t bytes = std::max(total, size + kMediumSegment) / kLargeRound * kLargeRound;
    for (; bytes >= size + kLargeRound; bytes = bytes / 2 / kLargeRound * kLargeRound) {
      const cw_status status = api().mem_reserve(vendor_id, bytes, &page, &start);
      if (status == CW_OK) break;
      if (status != CW_OUT_OF_MEMORY && status != CW_UNSUPPORTED) check(status, "mem_reserve", device);
    }
    if (!start) return false;
    if (!page || kLargeRound % page || reinterpret_cast<uintptr_t>(start) % std::max<size_t>(alignment, page)) {
      (void)api().mem_release(vendor_id, start, bytes);
      fail(Kind::Vendor, device_name(device), ": mem_reserve gave address ", start, " and pages of ", page,
           " bytes; pages divide ", kLargeRound, ", and addresses begin with one. This is a bug of ", vendor_path());
    }
    auto segment = std::make_unique<Segment>();
    segment->start = static_cast<char*>(start);
    segment->size = bytes;
    segment->pool = &p;
    segment->large = large;
    segment->grows = true;
    segment->page = page;
    Block* hole = new_block();
    hole->start = segment->start;
    hole->size = bytes;
    hole->segment = segment.get();
    hole->cache = this;
    hole->unmapped = true;
    segment->first = hole;
    segment->holes.emplace(hole->start, hole);
    p.growing[large].push_back(segment.get());
    segments.emplace(segment->start, std::move(segment));
    return true;
  }

  // The first hole in which the block fits, together with what is free before it.
  Block* grow(Pool& p, size_t size, size_t bytes, bool large, const Frames& frames) {
    Block* hole = hole_for(p, large, size);
    Segment& s = *hole->segment;
    const size_t needed = size - free_before(*this, hole);
    const size_t unit = bytes == size         ? s.page
                        : !large              ? kSmallSegment
                        : size < kMediumLimit ? kMediumSegment
                                              : kLargeRound;
    const size_t wanted = std::min((needed + unit - 1) / unit * unit, hole->size) / s.page * s.page;
    if (wanted < needed || (limit && stats.reserved_bytes[0].current + wanted > limit)) return nullptr;
    {
      Profiled span(Work::Call, "mem_map", nullptr, wanted);
      const cw_status status = api().mem_map(vendor_id, hole->start, wanted);
      if (status == CW_OUT_OF_MEMORY) return refusal = last_words(), nullptr;
      check(status, "mem_map", device);
    }
    s.holes.erase(hole->start);
    Block* block = hole;
    if (wanted < hole->size) {
      block = new_block();
      block->start = hole->start;
      block->size = wanted;
      block->segment = &s;
      block->cache = this;
      block->previous = hole->previous;
      block->next = hole;
      (hole->previous ? hole->previous->next : s.first) = block;
      hole->previous = block;
      hole->start += wanted;
      hole->size -= wanted;
      s.holes.emplace(hole->start, hole);
    }
    block->unmapped = false;
    if (!s.mapped) add(stats.segment, large, 1);
    s.mapped += wanted;
    s.frames = frames;
    ++stats.num_device_alloc;
    add(stats.reserved_bytes, large, wanted);
    if (g_history_on.load(std::memory_order_relaxed))
      history.add(MemoryAction::SegmentMap, reinterpret_cast<size_t>(block->start), wanted, p.stream->id, frames);
    merge(p, block);
    return from_tree(p, size);
  }

  // Give back the whole pages of a free block in a segment that grows. False: it has none.
  bool shrink(Block* b, const Frames& frames) {
    Segment& s = *b->segment;
    const size_t before = (s.page - (b->start - s.start) % s.page) % s.page;
    if (before >= b->size) return false;
    const size_t pages = (b->size - before) / s.page * s.page;
    if (!pages) return false;
    {
      Profiled span(Work::Call, "mem_unmap", nullptr, pages);
      check(api().mem_unmap(vendor_id, b->start + before, pages), "mem_unmap", device);
    }
    auto& t = tree(*s.pool, s.large);
    count_inactive(b, false);
    t.erase(b);
    if (g_history_on.load(std::memory_order_relaxed))
      history.add(MemoryAction::SegmentUnmap, reinterpret_cast<size_t>(b->start + before), pages, s.pool->stream->id,
                  frames);
    s.mapped -= pages;
    ++stats.num_device_free;
    take(stats.reserved_bytes, s.large, pages);
    if (!s.mapped) take(stats.segment, s.large, 1);
    const size_t after = b->size - before - pages;
    if (before) b = split_off(b, before, t);
    if (after) {
      Block* tail = split_off(b, pages, t, /*keep=*/false);
      t.insert(tail);
      count_inactive(tail, true);
    }
    b->unmapped = true;
    for (Block* side : {b->previous, b->next}) {
      if (!side || !side->unmapped) continue;
      s.holes.erase(side->start);
      b->start = std::min(b->start, side->start);
      b->size += side->size;
      if (side == b->previous) {
        b->previous = side->previous;
        (side->previous ? side->previous->next : s.first) = b;
      } else {
        b->next = side->next;
        if (side->next) side->next->previous = b;
      }
      spare.push_back(side);
    }
    s.holes.emplace(b->start, b);
    return true;
  }

  // Cut a block that is in no tree: its first `size` bytes go into the tree `t` where `keep` says so. Gives the rest.
  Block* split_off(Block* b, size_t size, std::set<Block*, BySize>& t, bool keep = true) {
    Block* rest = new_block();
    rest->start = b->start + size;
    rest->size = b->size - size;
    rest->segment = b->segment;
    rest->cache = this;
    rest->previous = b;
    rest->next = b->next;
    if (b->next) b->next->previous = rest;
    b->next = rest;
    b->size = size;
    if (keep) {
      t.insert(b);
      count_inactive(b, true);
    }
    return rest;
  }

  // Addresses of segments in which nothing is left.
  void release_addresses() {
    for (auto it = segments.begin(); it != segments.end();) {
      Segment& s = *it->second;
      if (!s.grows || s.mapped) {
        ++it;
        continue;
      }
      check(api().mem_release(vendor_id, s.start, s.size), "mem_release", device);
      auto& of_pool = s.pool->growing[s.large];
      of_pool.erase(std::find(of_pool.begin(), of_pool.end(), &s));
      spare.push_back(s.first);
      it = segments.erase(it);
    }
  }

  // -- segments that keep their size

  void* take_segment(Pool& p, size_t bytes) {
    const size_t reserved = stats.reserved_bytes[0].current;
    if (limit && reserved + bytes > limit) return nullptr;
    void* start = nullptr;
    const char* entry = api().mem_alloc_on ? "mem_alloc_on" : "mem_alloc";
    Profiled span(Work::Call, entry, nullptr, bytes);
    const cw_status status = api().mem_alloc_on ? api().mem_alloc_on(vendor_id, p.stream->handle, bytes, &start)
                                                : api().mem_alloc(vendor_id, bytes, &start);
    if (status == CW_OUT_OF_MEMORY) return refusal = last_words(), nullptr;
    check(status, entry, device);
    if (C10_UNLIKELY(reinterpret_cast<uintptr_t>(start) % alignment)) {
      (void)api().mem_free(vendor_id, start);
      fail(Kind::Vendor, device_name(device), ": ", entry, " gave address ", start, ", which is no multiple of ",
           alignment, ", the alignment that device_info names. This is a bug of ", vendor_path());
    }
    ++stats.num_device_alloc;
    return start;
  }

  Block* add_segment(Pool& p, void* start, size_t bytes, bool large, size_t size, const Frames& frames) {
    auto segment = std::make_unique<Segment>();
    segment->start = static_cast<char*>(start);
    segment->size = bytes;
    segment->pool = &p;
    segment->large = large;
    segment->on_stream = api().mem_alloc_on != nullptr;
    Block* block = new_block();
    block->start = segment->start;
    block->size = bytes;
    block->segment = segment.get();
    block->cache = this;
    segment->first = block;
    segment->frames = frames;
    if (g_history_on.load(std::memory_order_relaxed)) note(MemoryAction::SegmentAlloc, *segment, frames);
    add(stats.segment, large, 1);
    add(stats.reserved_bytes, large, bytes);
    segments.emplace(segment->start, std::move(segment));
    return cut(p, block, size);
  }

  // Give cached segments back to the vendor: the smallest single one of at least `bytes`, or all for SIZE_MAX. `later`:
  // what may go back in the order of its stream does, and nobody waits for it. `only`: those of one kept pool.
  bool release_segments(size_t bytes, const Frames& frames, bool later = false,
                        const c10::MempoolId_t* only = nullptr) {
    std::vector<Block*> whole, parts;
    each_pool([&](Pool& p) {
      if (is_kept(p) || (only && !(p.kept && p.kept->id == *only))) return;
      merge_lists(p);
      for (auto* t : {&p.small, &p.large})
        for (Block* b : *t)
          if (b->segment->grows)
            parts.push_back(b);
          else if (!is_split(b) && (bytes == SIZE_MAX || b->size >= bytes))
            whole.push_back(b);
    });
    if (bytes != SIZE_MAX) {
      parts.clear();
      std::sort(whole.begin(), whole.end(), BySize());
      whole.resize(std::min<size_t>(whole.size(), 1));
    }
    if (whole.empty() && parts.empty()) return false;
    // Nothing may still run on memory that goes back.
    if (!later || !parts.empty() || !std::all_of(whole.begin(), whole.end(), [](Block* b) {
          return b->segment->on_stream && !b->segment->pool->kept;
        }))
      check(api().sync(vendor_id), "sync", device), later = false;
    for (Block* b : parts) shrink(b, frames);
    release_addresses();
    for (Block* b : whole) {
      Segment* s = b->segment;
      {
        // A call that fails has done nothing: until it did, the segment is ours and stays in the cache.
        const char* entry = later ? "mem_free_on" : "mem_free";
        Profiled span(Work::Call, entry, nullptr, s->size);
        check(later ? api().mem_free_on(vendor_id, s->pool->stream->handle, s->start)
                    : api().mem_free(vendor_id, s->start),
              entry, device);
      }
      tree(*s->pool, s->large).erase(b);
      ++stats.num_device_free;
      if (g_history_on.load(std::memory_order_relaxed)) note(MemoryAction::SegmentFree, *s, frames);
      take(stats.segment, s->large, 1);
      take(stats.reserved_bytes, s->large, s->size);
      spare.push_back(b);
      segments.erase(s->start);
    }
    if (!kept.empty()) forget_pools();
    return true;
  }

  void wait_for_streams(Block* block) {
    // Out of use first, then the vendor is asked: whatever fails, no neighbour joins the block.
    block->waiting = true;
    // A captured stream does nothing yet, so there is nothing to ask before the capture's end.
    for (StreamState* s : block->used_on)
      if (Graph* graph = graph_of(*s); C10_UNLIKELY(graph != nullptr))
        return graph->at_end([this, block] {
          std::lock_guard lock(mutex);
          wait_for_streams(block);
        });
    waiting.push_back({block, {}});
    const std::exception_ptr error = waiting.back().streams.begin(block->used_on);
    block->used_on.clear();
    if (C10_UNLIKELY(error)) std::rethrow_exception(error);
  }

  void collect_waiting(bool wait) {
    if (wait && !waiting.empty()) ++stats.num_sync_all_streams;
    for (size_t i = 0; i < waiting.size();) {
      Waiting& w = waiting[i];
      if (!w.streams.passed(wait)) {
        ++i;
        continue;
      }
      Block* block = w.block;
      if (&w != &waiting.back()) w = std::move(waiting.back());
      waiting.pop_back();
      block->waiting = false;
      make_free(block);
    }
  }

  size_t largest_free() {
    size_t largest = 0;
    each_pool([&](Pool& p) {
      if (is_kept(p)) return;
      for (auto* t : {&p.small, &p.large})
        if (!t->empty()) largest = std::max(largest, (*t->rbegin())->size);
    });
    return largest;
  }

  [[noreturn]] void fail_out_of_memory(size_t asked) {
    ++stats.num_ooms;
    const auto [free, total] = free_and_total(true);
    const size_t reserved = stats.reserved_bytes[0].current, used = stats.allocated_bytes[0].current;
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(asked), used, reserved, c10::Device(kDeviceType, device));
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, device_name(device), " is out of memory. Tried to allocate ", mib(asked),
        ". The device has ", mib(total), ", of which ", mib(free), " is free",
        limit ? c10::str("; this process may use ", mib(limit), " (set_per_process_memory_fraction)") : "",
        ". PyTorch holds ", mib(used), " in tensors and has ", mib(reserved), " reserved; the largest free block is ",
        mib(largest_free()), ". Use smaller batches or free tensors; torch.", vendor_name(),
        ".memory_summary() shows what holds memory.", refusal.empty() ? "" : c10::str(" (Vendor: ", refusal, ")"));
  }

  // `anyhow`: by our own count where the vendor fails to tell, for the words of another error.
  std::pair<size_t, size_t> free_and_total(bool anyhow = false) {
    if (api().mem_info) {
      uint64_t free = 0, all = 0;
      const cw_status status = api().mem_info(vendor_id, &free, &all);
      if (!anyhow) check(status, "mem_info", device);
      if (status == CW_OK) return {free, all};
    }
    const size_t reserved = stats.reserved_bytes[0].current;
    return {total > reserved ? total - reserved : 0, total};
  }
};

namespace {

std::array<std::atomic<Cache*>, kMaxDevices> g_caches{};

Cache& cache(int index) {
  device(index);
  return *g_caches[index].load(std::memory_order_relaxed);
}

void report(void* ptr, int64_t bytes, Cache& c) {
  if (C10_UNLIKELY(c10::memoryProfilingEnabled()))
    c10::reportMemoryUsageToProfiler(ptr, bytes, c.stats.allocated_bytes[0].current, c.stats.reserved_bytes[0].current,
                                     c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(c.device)));
}

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  if (C10_UNLIKELY(past_use())) return;  // the parent's memory, or the vendor is closed: nothing to give back
  report(block->start, -static_cast<int64_t>(block->size), *block->cache);
  try {
    block->cache->release(block);
  } catch (...) {
    // A deleter must not throw. What failed is a vendor's event; the block stays out of use until its streams are idle.
    TORCH_WARN("while memory of ", device_name(block->cache->device),
               " was freed: ", words_of(std::current_exception()));
  }
}

// Host memory must be freed by its address alone (raw_allocate of c10::Allocator: oneDNN's scratch memory uses it), so
// its block is looked up. Nearly always it is one that this thread allocated a moment ago.
struct Recent {
  void* start;
  Block* block;
};
constexpr size_t kRecent = 64;
thread_local std::array<Recent, kRecent> t_recent{};
Recent& recent(void* start) { return t_recent[(reinterpret_cast<uintptr_t>(start) / kRound) % kRecent]; }

Block* find_block(void* start) {
  // Blocks are never deleted, and only the block that was handed out at `start` is allocated there.
  if (const Recent& r = recent(start); C10_LIKELY(r.start == start && r.block->start == start && r.block->allocated))
    return r.block;
  for (auto& slot : g_caches) {
    Cache* c = slot.load();
    if (!c) continue;
    std::lock_guard lock(c->mutex);
    auto it = c->segments.upper_bound(static_cast<char*>(start));
    if (it == c->segments.begin()) continue;
    Segment& s = *(--it)->second;
    if (static_cast<char*>(start) >= s.start + s.size) continue;
    for (Block* b = s.first; b; b = b->next)
      if (b->start == start) return b;
  }
  return nullptr;
}

void free_by_address(void* start) { free_block(find_block(start)); }

// Forms of tensors are given up before anything fails for want of memory: the tensors are there.
Block* without_forms(Cache& c, StreamState& stream, size_t bytes) {
  try {
    const HasAnotherWay drops_them;
    return c.allocate(bytes, stream);
  } catch (const NoRoom&) {
  }
  drop_forms(c.device);
  return c.allocate(bytes, stream);
}

Block* allocate_block(int index, StreamState& stream, size_t bytes) {
  Cache& c = cache(index);
  Block* block = C10_LIKELY(!bytes_of_forms(index) || t_has_another_way) ? c.allocate(bytes, stream)
                                                                         : without_forms(c, stream, bytes);
  if (C10_UNLIKELY(c.cannot_grow.load(std::memory_order_relaxed))) {
    TORCH_WARN_ONCE("expandable_segments has no effect: ", vendor_name(),
                    " does not offer addresses apart from memory (mem_reserve)");
  }
  report(block->start, static_cast<int64_t>(block->size), c);
  return block;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const int index = current_device();
    device(index);
    return causeway::allocate(index, current_stream(index), bytes);
  }
  // Copy-on-write frees memory by its address; see as_simple.
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return data.get_context() == data.get(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const int index = current_device();
    DeviceState& d = device(index);
    StreamState& stream = current_stream(index);
    copy_on(stream, to, d.vendor_id, from, d.vendor_id, bytes);
  }
  bool initialized() override { return any_device_opened(); }
  void emptyCache(c10::MempoolId_t id) override {
    const bool all = id == c10::MempoolId_t{0, 0};
    const Frames frames = gather_frames(Stacks::All);
    for (auto& slot : g_caches) {
      if (Cache* c = slot.load()) {
        std::lock_guard lock(c->mutex);
        c->collect_waiting(/*wait=*/all);  // of one pool only what is over by now: its end waits for nobody
        c->release_segments(SIZE_MAX, frames, /*later=*/true, all ? nullptr : &id);
      }
    }
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { record_stream(data, stream); }
  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    if (!device_opened(index)) return checked(index);
    Cache& c = cache(index);
    std::lock_guard lock(c.mutex);
    return c.stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    reset(index, [](DeviceStats& stats) {
      each_stat(stats, [](Stat& s) { s.reset_accumulated(); });
      stats.num_alloc_retries = stats.num_ooms = stats.num_sync_all_streams = 0;
      stats.num_device_alloc = stats.num_device_free = 0;
    });
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    reset(index, [](DeviceStats& stats) { each_stat(stats, [](Stat& s) { s.reset_peak(); }); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    Cache& c = cache(index);
    std::lock_guard lock(c.mutex);
    return c.free_and_total();
  }

 private:
  // The stats of a device that was never opened are zero; that of one which does not exist is an error.
  static DeviceStats checked(int index) {
    if (index < 0 || index >= device_count()) device(index);
    return {};
  }
  template <class F>
  static void reset(int index, F f) {
    if (!device_opened(index)) return (void)checked(index);
    Cache& c = cache(index);
    std::lock_guard lock(c.mutex);
    f(c.stats);
  }
};

Allocator g_allocator;
REGISTER_ALLOCATOR(kDeviceType, &g_allocator)

}  // namespace

void open_cache(const DeviceState& d) {
  auto c = std::make_unique<Cache>(d);
  g_caches[d.index].store(c.release());
}

c10::DeviceAllocator* device_allocator() { return &g_allocator; }

void retain_pool(int index, c10::MempoolId_t id, const PoolOptions& options) {
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  KeptPools& pools = c.kept_pools(id);
  ++pools.uses;
  pools.options.use_on_oom |= options.use_on_oom;
  pools.options.no_split |= options.no_split;
}

void release_pool(int index, c10::MempoolId_t id) {
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  if (const auto it = c.kept.find(id); it != c.kept.end() && it->second.uses > 0) --it->second.uses;
  c.forget_pools();
}

int pool_uses(int index, c10::MempoolId_t id) {
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  const auto it = c.kept.find(id);
  return it == c.kept.end() ? 0 : it->second.uses;
}

void use_pool(int index, c10::MempoolId_t id) {
  retain_pool(index, id, {});
  t_pools.push_back({index, id});
  g_pools_in_use.fetch_add(1);
}

void end_use_of_pool(int index, c10::MempoolId_t id) {
  const auto it = std::find_if(t_pools.rbegin(), t_pools.rend(),
                               [&](const PoolInUse& use) { return use.device == index && use.id == id; });
  if (it == t_pools.rend())
    fail(Kind::Causeway, "this thread does not use memory pool (", id.first, ", ", id.second, ") of ",
         device_name(index), "; leave use_mem_pool() on the thread that entered it");
  t_pools.erase(std::next(it).base());
  g_pools_in_use.fetch_sub(1);
  release_pool(index, id);
}

c10::DataPtr allocate(int index, StreamState& stream, size_t bytes) {
  const c10::Device d(kDeviceType, static_cast<c10::DeviceIndex>(index));
  if (bytes == 0) return {nullptr, d};
  Block* block = allocate_block(index, stream, bytes);
  return {block->start, block, free_block, d};
}

c10::DataPtr allocate_if_possible(int index, StreamState& stream, size_t bytes) {
  try {
    const HasAnotherWay none_at_all;
    return allocate(index, stream, bytes);
  } catch (const NoRoom&) {
    return {nullptr, c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(index))};
  }
}

bool is_block(const c10::DataPtr& data) { return data.get_deleter() == free_block; }

c10::DataPtr allocate_for_host(int index, StreamState& stream, size_t bytes) {
  if (bytes == 0) return {nullptr, c10::DeviceType::CPU};
  Block* block = allocate_block(index, stream, bytes);
  recent(block->start) = {block->start, block};
  return {block->start, block->start, free_by_address, c10::DeviceType::CPU};
}

bool free_for_host(void* start) {
  Block* block = find_block(start);
  if (block) free_block(block);
  return block != nullptr;
}

bool is_block_for_host(const c10::DataPtr& data) { return data.get_deleter() == free_by_address; }

c10::DataPtr as_device(c10::DataPtr&& data, int index) {
  void* start = data.release_context();
  if (!start) return {nullptr, c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(index))};
  return {start, find_block(start), free_block, c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(index))};
}

c10::DataPtr as_simple(c10::DataPtr&& data) {
  if (data.get_deleter() != free_block) return std::move(data);
  auto* block = static_cast<Block*>(data.release_context());
  return {block->start, block->start, free_by_address, data.device()};
}

void record_stream(const c10::DataPtr& data, const c10::Stream& stream) {
  // Memory that is not ours (shared, from a foreign producer, copy-on-write) has its own owner to ask.
  const bool simple = data.get_deleter() == free_by_address && data.get_context();
  if (data.get_deleter() != free_block && !simple) return;
  auto* block = simple ? find_block(data.get_context()) : static_cast<Block*>(data.get_context());
  StreamState& s = stream_of(stream);
  std::lock_guard lock(block->cache->mutex);
  if (&s == block->segment->pool->stream) return;
  if (std::find(block->used_on.begin(), block->used_on.end(), &s) == block->used_on.end()) block->used_on.push_back(&s);
}

void set_memory_caching(bool on) { g_caching = on; }

void set_memory_fraction(double fraction, int index) {
  if (!(fraction > 0 && fraction <= 1))
    throw std::invalid_argument(c10::str("the memory fraction is ", fraction, "; it must be above 0 and at most 1"));
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  c.fraction = fraction;
  c.limit = fraction < 1 ? static_cast<size_t>(fraction * static_cast<double>(c.total)) : 0;
}

double memory_fraction(int index) {
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  return c.fraction;
}

std::vector<SegmentView> memory_snapshot(int index) {
  std::vector<SegmentView> out;
  if (!device_opened(index)) return out;
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  for (auto& [start, s] : c.segments) {
    const auto begin = [&](char* at) {
      const c10::MempoolId_t pool = s->pool->kept ? s->pool->kept->id : c10::MempoolId_t{0, 0};
      return SegmentView{
          reinterpret_cast<size_t>(at), 0, 0, 0, 0, s->pool->stream->id, pool, s->large, s->grows, {}, s->frames};
    };
    SegmentView view = begin(start);
    for (Block* b = s->first; b; b = b->next) {
      if (b->unmapped) {
        if (view.size) out.push_back(std::move(view));
        view = begin(b->start + b->size);
        continue;
      }
      const bool active = b->allocated || b->waiting;
      view.size += b->size;
      view.blocks.push_back(
          {reinterpret_cast<size_t>(b->start), b->size, b->requested, b->allocated, active, b->frames});
      if (b->allocated) view.allocated += b->size, view.requested += b->requested;
      if (active) view.active += b->size;
    }
    if (view.size) out.push_back(std::move(view));
  }
  return out;
}

void record_history(const HistoryOptions& options, bool clear) {
  set_history(options);
  if (options.on && !clear) return;
  for (auto& slot : g_caches) {
    Cache* c = slot.load();
    if (!c) continue;
    std::lock_guard lock(c->mutex);
    c->history.clear();
  }
}

std::vector<MemoryEvent> memory_history(int index) {
  if (!device_opened(index)) return {};
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  if (g_history_on.load()) c.history.add(MemoryAction::Snapshot, 0, 0, 0, nullptr);
  return c.history.events();
}

std::string words_for_address(int index, uint64_t address) {
  Cache* c = g_caches[index].load();
  // Whoever reports a failure may be inside the cache: then nothing is said rather than waited for ever.
  std::unique_lock<std::mutex> lock;
  if (c) lock = std::unique_lock(c->mutex, std::try_to_lock);
  if (!lock) return "in memory that is not looked up now";
  auto* p = reinterpret_cast<char*>(address);
  auto it = c->segments.upper_bound(p);
  if (it == c->segments.begin() || p >= (--it)->second->start + it->second->size)
    return "in no memory that PyTorch holds";
  for (Block* b = it->second->first; b; b = b->next) {
    if (p >= b->start + b->size) continue;
    const size_t at = p - b->start;
    if (b->unmapped) break;
    if (!b->allocated) return c10::str("in memory that is free (a block of ", b->size, " bytes)");
    if (at >= b->requested) return c10::str(at - b->requested, " bytes behind the end of ", b->requested, " bytes");
    return c10::str("byte ", at, " of memory of ", b->requested, " bytes");
  }
  return "in no memory that PyTorch holds";
}

std::pair<void*, size_t> block_of(int index, const void* pointer) {
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  auto* p = const_cast<char*>(static_cast<const char*>(pointer));
  auto it = c.segments.upper_bound(p);
  if (it == c.segments.begin() || p >= (--it)->second->start + it->second->size) return {nullptr, 0};
  for (Block* b = it->second->first; b; b = b->next)
    if (p >= b->start && p < b->start + b->size)
      return b->allocated ? std::pair<void*, size_t>{b->start, b->requested} : std::pair<void*, size_t>{nullptr, 0};
  return {nullptr, 0};
}

std::pair<void*, size_t> segment_of(int index, const void* pointer) {
  Cache& c = cache(index);
  std::lock_guard lock(c.mutex);
  auto* p = const_cast<char*>(static_cast<const char*>(pointer));
  auto it = c.segments.upper_bound(p);
  if (it != c.segments.begin() && p < (--it)->second->start + it->second->size) {
    if (it->second->grows)
      fail(Kind::Causeway, "this memory of ", device_name(index),
           " lies in a segment that grows, and such memory cannot be shared with other processes; leave "
           "expandable_segments out of PYTORCH_ALLOC_CONF, or turn it off while the tensor is made");
    return {it->second->start, p - it->second->start};
  }
  fail(Kind::Causeway, "this memory of ", device_name(index),
       " was not allocated by this process, so it cannot be shared on; "
       "clone() the tensor first");
}

}  // namespace causeway
