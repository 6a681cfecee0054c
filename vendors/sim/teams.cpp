// Fibers switch by _setjmp and _longjmp, which ask nothing of the kernel; that a stack is left by a jump is the point here.
#undef _FORTIFY_SOURCE
#include "teams.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "error.hpp"
#include "settings.hpp"

// What a program calls: its preamble has the same structure.
extern "C" struct cw_team {
  void (*access)(const void* address, unsigned long bytes, int write, const void* from);
  void (*barrier)(int which, const void* from);
  void (*outside)(const void* from);
  long (*lane)(void);
  long (*lanes)(void);
};

namespace sim::teams {

namespace {

// Who touched memory, and when: `epoch` counts the intervals between barriers, of all launches of the process.
struct Touch {
  uint32_t epoch = 0, item = 0, from = 0;
};
struct Cell {
  Touch write, read;  // the last
  Touch other;  // a read by another item than `read`, in its interval
  Touch first;  // the launch's first read
};

// Of 4 bytes together, or, from when a launch touched part of them, of each byte.
constexpr uint64_t page_bytes = 4096, together = 4;
struct Page {
  Cell cells[page_bytes / together];
  uint32_t split[page_bytes / together] = {};  // the launch that touched a part
  std::unique_ptr<Cell[]> bytes;
  uint8_t unwritten[page_bytes / 8] = {};
};

// What is known of a device's memory, by pages, or of a program's local memory.
class Shadow {
 public:
  Page& page(uintptr_t address) {
    const uint64_t number = address / page_bytes;
    if (number == last_) return *found_;
    std::unique_ptr<Page>& page = pages_[number];
    if (!page) {
      page = std::make_unique<Page>();
      const uintptr_t first = number * page_bytes;
      auto it = unwritten_.upper_bound(first);
      if (it != unwritten_.begin()) --it;
      for (; it != unwritten_.end() && it->first < first + page_bytes; ++it)
        for (uintptr_t at = std::max(it->first, first); at < std::min(it->second, first + page_bytes); ++at)
          page->unwritten[at % page_bytes / 8] |= uint8_t(1u << at % 8);
    }
    last_ = number;
    return *(found_ = page.get());
  }
  // Nothing has happened to it; `unwritten`: and a kernel may not read it.
  void allocated(uintptr_t start, uint64_t bytes, bool unwritten) {
    last_ = UINT64_MAX;
    for (uint64_t n = start / page_bytes; n <= (start + bytes - 1) / page_bytes; ++n) pages_.erase(n);
    cut(start, start + bytes);
    if (unwritten) unwritten_[start] = start + bytes;
  }
  // Epochs begin anew.
  void restart() {
    for (auto& [_, page] : pages_) {
      std::fill(std::begin(page->cells), std::end(page->cells), Cell{});
      std::fill(std::begin(page->split), std::end(page->split), 0u);
      page->bytes.reset();
    }
  }
  void written(uintptr_t start, uint64_t bytes) {
    cut(start, start + bytes);
    for (uintptr_t at = start; at < start + bytes;) {
      const uint64_t n = std::min(page_bytes - at % page_bytes, start + bytes - at);
      if (const auto found = pages_.find(at / page_bytes); found != pages_.end()) mark_written(*found->second, at, n);
      at += n;
    }
  }
  static void mark_written(Page& page, uintptr_t address, uint64_t bytes) {
    const uint64_t first = address % page_bytes;
    for (uint64_t at = first; at < first + bytes; ++at) page.unwritten[at / 8] &= uint8_t(~(1u << at % 8));
  }

 private:
  void cut(uintptr_t start, uintptr_t end) {
    auto it = unwritten_.lower_bound(start);
    if (it != unwritten_.begin() && std::prev(it)->second > start) --it;
    while (it != unwritten_.end() && it->first < end) {
      const auto [from, to] = *it;
      it = unwritten_.erase(it);
      if (from < start) unwritten_[from] = start;
      if (to > end) it = std::next(unwritten_.emplace(end, to).first);
    }
  }

  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::map<uintptr_t, uintptr_t> unwritten_;  // starts and ends, for pages that are not there yet
  uint64_t last_ = UINT64_MAX;
  Page* found_ = nullptr;
};

constexpr uint64_t stack_bytes = 256u << 10, guard_bytes = 4096;

struct Fiber {
  jmp_buf here;
  ucontext_t begin;
  bool fresh = true;  // starts at `begin`
  char* stack = nullptr;
  uint32_t lane = 0;
  int barrier = 0;  // that it waits at, and where that is
  uint32_t from = 0;
};

std::mutex g_mutex;  // of all that follows: one launch at a time
Shadow g_memory, g_local;
uint32_t g_epoch = 0;
uint64_t g_random = 0;
std::vector<Fiber> g_fibers;
jmp_buf g_home;

// Of the launch that runs.
const Launch* g_launch;
uint32_t g_group;  // its number
uint32_t g_launch_epoch, g_group_epoch;  // their first
Fiber* g_fiber;  // runs
std::vector<Fiber*> g_ready, g_waiting;
Fiber* g_ended;
uint32_t g_until_switch;
char g_words[1024];

uint32_t draw(uint32_t below) {
  g_random ^= g_random << 13;
  g_random ^= g_random >> 7;
  g_random ^= g_random << 17;
  return static_cast<uint32_t>((g_random >> 32) * below >> 32);
}

void body() {
  for (;;) {
    const uint32_t group[3] = {g_group % g_launch->grid[0], g_group / g_launch->grid[0] % g_launch->grid[1],
                               g_group / g_launch->grid[0] / g_launch->grid[1]};
    const uint32_t grid[3] = {g_launch->grid[0], g_launch->grid[1], g_launch->grid[2]};
    g_launch->run(g_launch->args.data(), group, grid);
    void ended();
    ended();
  }
}

[[noreturn]] void go(Fiber* to) {
  g_fiber = to;
  if (!to->fresh) _longjmp(to->here, 1);
  to->fresh = false;
  setcontext(&to->begin);
  abort();  // it does not return
}

Fiber* take_ready() {
  const uint32_t at = draw(static_cast<uint32_t>(g_ready.size()));
  Fiber* taken = g_ready[at];
  g_ready[at] = g_ready.back();
  g_ready.pop_back();
  return taken;
}

std::string item_name(const Fiber& fiber) { return "item " + std::to_string(fiber.lane); }

std::string line_of(uint32_t from) { return g_launch->code->line_at(g_launch->code->base() + from); }

uint32_t offset_of(const void* from) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) - g_launch->code->base());
}

[[noreturn]] void stop(const std::string& words) {
  snprintf(g_words, sizeof g_words, "function %s, group %u: %s", g_launch->name, g_group, words.c_str());
  _longjmp(g_home, 2);
}

// The next to run, where this one waits or has ended.
Fiber* next() {
  if (!g_ready.empty()) return take_ready();
  if (g_waiting.empty()) _longjmp(g_home, 1);
  const Fiber& one = *g_waiting[0];
  if (g_ended) {
    stop("a barrier that not all items reach: " + item_name(one) + " waits at " + line_of(one.from) + ", and " +
         item_name(*g_ended) + " has ended");
  }
  for (const Fiber* fiber : g_waiting) {
    if (fiber->barrier != one.barrier) {
      stop("a barrier that not all items reach: " + item_name(one) + " waits at " + line_of(one.from) + ", and " +
           item_name(*fiber) + " at " + line_of(fiber->from));
    }
  }
  ++g_epoch;
  g_ready.swap(g_waiting);
  return take_ready();
}

void ended() {
  g_ended = g_fiber;
  if (_setjmp(g_fiber->here) == 0) go(next());  // goes on with the next group
}

void barrier(int which, const void* from) {
  Fiber* self = g_fiber;
  self->barrier = which;
  self->from = offset_of(from);
  g_waiting.push_back(self);
  if (_setjmp(self->here) == 0) go(next());
}

void outside(const void* from) {
  stop(item_name(*g_fiber) + " goes past the end of an array, " + line_of(offset_of(from)));
}

long lane() { return g_fiber->lane; }
long lanes() { return g_launch->lanes; }

std::string place_of(uintptr_t address) {
  const Launch& l = *g_launch;
  if (const Code::Array* array = l.code->array_at(address, 1))
    return array->name + " + " + std::to_string(address - array->start) + " bytes";
  for (const Code::Array& array : l.code->arrays()) {
    const uint64_t past = address - array.start - array.bytes;
    if (array.local && past < local_memory) return std::to_string(past) + " bytes past the end of " + array.name;
  }
  std::string near;
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < l.regions.size(); ++i) {
    const Region& r = l.regions[i];
    const bool inside = address - r.start < r.bytes;
    const uint64_t far = inside ? 0 : address < r.start ? r.start - address : address - r.start - r.bytes + 1;
    if (far >= least) continue;
    least = far;
    near = "argument " + std::to_string(i) + "'s memory of " + std::to_string(r.bytes) + " bytes, " +
           (address < r.start ? std::to_string(r.start - address) + " bytes before it"
                              : "byte " + std::to_string(address - r.start));
  }
  return near.empty() ? "no memory" : near;
}

std::string who(const Touch& touch) {
  const uint32_t group = touch.item / g_launch->lanes;
  return "item " + std::to_string(touch.item % g_launch->lanes) +
         (group == g_group ? "" : " of group " + std::to_string(group));
}

// Two items touched the same bytes, without an order.
[[noreturn]] void race(uintptr_t address, const Touch& before, bool wrote, const Touch& now, bool writes) {
  stop(std::string("two items touch the same bytes, and no barrier orders them: ") + who(before) +
       (wrote ? " wrote " : " read ") + place_of(address) + ", " + line_of(before.from) + "; " + who(now) +
       (writes ? " writes it, " : " reads it, ") + line_of(now.from));
}

// `since`: from which epoch on two items of the group have no order. `launch`: of the first group that counts.
void touch(Cell& cell, uintptr_t address, bool write, const Touch& now, uint32_t since, uint32_t launch) {
  const auto unordered = [&](const Touch& t) {
    return t.epoch >= launch && t.item != now.item && (t.epoch >= since || t.epoch < g_group_epoch);
  };
  if (unordered(cell.write)) race(address, cell.write, true, now, write);
  if (write) {
    for (const Touch* t : {&cell.read, &cell.other, &cell.first})
      if (unordered(*t)) race(address, *t, false, now, true);
    cell.write = now;
    return;
  }
  if (cell.first.epoch < launch) cell.first = now;
  if (cell.read.epoch < since) {
    cell.read = now;
    cell.other = {};
  } else if (cell.read.item != now.item) {
    cell.other = now;
  }
}

// Each cell of [address, address + bytes), which is within a page.
template <class Each>
void cells(Page& page, uintptr_t address, uint64_t bytes, Each&& each) {
  const uint64_t first = address % page_bytes;
  for (uint64_t at = first; at < first + bytes;) {
    const uint64_t n = at / together;
    const bool whole = at % together == 0 && at + together <= first + bytes;
    if (page.split[n] < g_launch_epoch) {
      if (whole) {
        each(page.cells[n], address + (at - first));
        at += together;
        continue;
      }
      if (!page.bytes) page.bytes = std::make_unique<Cell[]>(page_bytes);
      std::fill_n(&page.bytes[n * together], together, page.cells[n]);
      page.split[n] = g_launch_epoch;
    }
    const uint64_t end = std::min((n + 1) * together, first + bytes);
    for (; at < end; ++at) each(page.bytes[at], address + (at - first));
  }
}

bool is_unwritten(const Page& page, uintptr_t address, uint64_t bytes) {
  const uint64_t first = address % page_bytes;
  for (uint64_t at = first; at < first + bytes; ++at)
    if (page.unwritten[at / 8] >> at % 8 & 1) return true;
  return false;
}

void look(uintptr_t address, uint64_t bytes, bool write, const void* from) {
  const Launch& l = *g_launch;
  const Touch now = {g_epoch, g_group * l.lanes + g_fiber->lane, offset_of(from)};
  const auto each_page = [&](Shadow& shadow, auto&& each) {
    for (uintptr_t at = address; at < address + bytes;) {
      const uint64_t n = std::min(page_bytes - at % page_bytes, address + bytes - at);
      each(shadow.page(at), at, n);
      at += n;
    }
  };
  for (const Region& r : l.regions) {
    if (address - r.start >= r.bytes || bytes > r.bytes - (address - r.start)) continue;
    // A barrier orders the group's local memory, and of the device's memory nothing, in OpenCL.
    each_page(g_memory, [&](Page& page, uintptr_t at, uint64_t n) {
      if (!write && is_unwritten(page, at, n))
        stop(item_name(*g_fiber) + " reads what nothing has written: " + place_of(at) + ", " + line_of(now.from));
      if (write) Shadow::mark_written(page, at, n);
      cells(page, at, n,
            [&](Cell& cell, uintptr_t where) { touch(cell, where, write, now, g_group_epoch, g_launch_epoch); });
    });
    return;
  }
  if (const Code::Array* array = l.code->array_at(address, bytes)) {
    if (!array->local && !write) return;
    if (!array->local) stop(item_name(*g_fiber) + " writes the constant " + array->name + ", " + line_of(now.from));
    each_page(g_local, [&](Page& page, uintptr_t at, uint64_t n) {
      cells(page, at, n, [&](Cell& cell, uintptr_t where) {
        if (!write && cell.write.epoch < g_group_epoch)
          stop(item_name(*g_fiber) + " reads local memory that its group has not written: " + place_of(where) + ", " +
               line_of(now.from));
        touch(cell, where, write, now, g_epoch, g_group_epoch);
      });
    });
    return;
  }
  const auto within = [&](const void* start, uint64_t size) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(start);
    return address - first < size && bytes <= size - (address - first);
  };
  if (!write && (within(l.values, l.values_bytes) || within(l.args.data(), l.args.size() * sizeof(void*)))) return;
  stop(item_name(*g_fiber) + (write ? " writes " : " reads ") + std::to_string(bytes) +
       " bytes outside what the launch was given: " + place_of(address) + ", " + line_of(now.from));
}

void access(const void* pointer, unsigned long bytes, int write, const void* from) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  Fiber* self = g_fiber;
  if (address - reinterpret_cast<uintptr_t>(self->stack) < stack_bytes) return;  // an item's own array
  if (bytes) look(address, bytes, write != 0, from);
  if (--g_until_switch == 0) {
    g_until_switch = 1 + draw(64);
    if (g_ready.empty()) return;
    const uint32_t at = draw(static_cast<uint32_t>(g_ready.size()));
    Fiber* to = g_ready[at];
    g_ready[at] = self;
    if (_setjmp(self->here) == 0) go(to);
  }
}

const cw_team g_team = {access, barrier, outside, lane, lanes};

bool make_fibers() {
  if (!g_fibers.empty()) return true;
  const uint64_t each = stack_bytes + guard_bytes;
  void* stacks = mmap(nullptr, each * most_items, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) return false;
  std::vector<Fiber> made(most_items);
  for (uint32_t i = 0; i < most_items; ++i) {
    made[i].lane = i;
    made[i].stack = static_cast<char*>(stacks) + i * each + guard_bytes;
    if (mprotect(made[i].stack, stack_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  }
  g_fibers.swap(made);
  return true;
}

void make_fresh(Fiber& fiber) {
  getcontext(&fiber.begin);
  fiber.begin.uc_stack.ss_sp = fiber.stack;
  fiber.begin.uc_stack.ss_size = stack_bytes;
  fiber.begin.uc_link = nullptr;
  makecontext(&fiber.begin, body, 0);
  fiber.fresh = true;
}

// The host, or kernels of the vendor's own, may have written the memory of other set-ups.
bool knows_writers() { return settings().discrete && settings().ops == Offer::none; }

// 1: all items have ended; 2: g_words say what is wrong.
int run_group() {
  const int how = _setjmp(g_home);
  if (how == 0) go(take_ready());
  return how;
}

}  // namespace

cw_status run(const Launch& launch) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!make_fibers()) return fail(CW_OUT_OF_MEMORY, "no memory for the stacks of a group's items");
  *static_cast<const cw_team**>(launch.code->hooks()) = &g_team;
  static uint64_t launches = 0;
  const uint64_t seed = static_cast<uint64_t>(settings().seed);
  g_random = ((seed + 1) * 0x9E3779B97F4A7C15ull ^ (++launches * 0xff51afd7ed558ccdull)) | 1;
  if (g_epoch > UINT32_MAX / 2) {
    g_memory.restart();
    g_local.restart();
    g_epoch = 0;
  }
  g_launch = &launch;
  g_launch_epoch = ++g_epoch;
  g_until_switch = 1;
  const uint64_t groups = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  uint64_t step = 1 + draw(static_cast<uint32_t>(std::min<uint64_t>(groups, UINT32_MAX)));  // all, in a drawn order
  while (std::gcd(step, groups) != 1) ++step;
  uint64_t at = draw(static_cast<uint32_t>(std::min<uint64_t>(groups, UINT32_MAX)));
  for (uint64_t n = 0; n < groups; ++n, at = (at + step) % groups) {
    g_group = static_cast<uint32_t>(at);
    g_group_epoch = ++g_epoch;
    g_ready.clear();
    g_waiting.clear();
    g_ended = nullptr;
    for (uint32_t i = 0; i < launch.lanes; ++i) {
      Fiber& fiber = g_fibers[i];
      if (!fiber.begin.uc_stack.ss_sp) make_fresh(fiber);
      g_ready.push_back(&fiber);
    }
    for (const Code::Array& array : launch.code->arrays())
      if (array.local) memset(reinterpret_cast<void*>(array.start), 0xff, array.bytes);
    if (run_group() == 2) {
      for (Fiber& fiber : g_fibers) fiber.begin.uc_stack.ss_sp = nullptr;  // they stopped anywhere
      return fail(CW_FAILED, "%s (CAUSEWAY_SIM_SEED=%lld)", g_words, static_cast<long long>(seed));
    }
  }
  return CW_OK;
}

Region region_of(const Device& device, const void* address) {
  const Allocation* found = device.find(reinterpret_cast<uintptr_t>(address), 0);
  return found ? Region{found->base + uintptr_t(device.shift), found->bytes} : Region{0, 0};
}

void allocated(const Device& device, uintptr_t start, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_memory.allocated(start + uintptr_t(device.shift), bytes, knows_writers());
}

void written(const void* start, uint64_t bytes) {
  if (!knows_writers()) return;
  std::lock_guard<std::mutex> lock(g_mutex);
  g_memory.written(reinterpret_cast<uintptr_t>(start), bytes);
}

}  // namespace sim::teams
