#include "runtime/kernel_error.h"

#include <array>
#include <cstring>
#include <mutex>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

// A word of teller (8 bits), kind (8) and value (48, signed), and one of a bound: TELL in portable/source.cpp.
using Words = std::array<uint64_t, 2>;
enum : uint64_t { kOutOfRange = 1, kZeroDivision = 2, kNoChances = 3 };

constexpr int kMostTellers = 255;
std::array<std::atomic<const char*>, kMostTellers + 1> g_tellers{};
std::array<std::atomic<void*>, kMaxDevices> g_words{};
std::array<std::atomic<bool>, kMaxDevices> g_may_tell{};

// Names are literals, so that their addresses tell them apart. The last number is for all that are too many.
int64_t number_of(const char* name) {
  for (int i = 1; i < kMostTellers; ++i) {
    const char* known = nullptr;
    if (g_tellers[i].load(std::memory_order_acquire) == name) return i;
    if (!g_tellers[i].load() && (g_tellers[i].compare_exchange_strong(known, name) || known == name)) return i;
  }
  return kMostTellers;
}

void copy(const DeviceState& d, cw_stream stream, void* dst, int32_t to, const void* src, int32_t from) {
  check(api().mem_copy(dst, to, src, from, sizeof(Words), stream), "mem_copy", d.index);
  if (api().stream_sync)
    check(api().stream_sync(d.vendor_id, stream), "stream_sync", d.index);
  else
    check(api().sync(d.vendor_id), "sync", d.index);
}

void* words_of(const DeviceState& d) {
  if (void* words = g_words[d.index].load(std::memory_order_acquire)) return words;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (void* words = g_words[d.index].load()) return words;
  void* words = nullptr;
  const Words none{};
  if (api().mem_alloc(d.vendor_id, sizeof none, &words) != CW_OK) return nullptr;
  try {
    copy(d, default_stream(d.index).handle, words, d.vendor_id, none.data(), CW_HOST);
  } catch (...) {
    (void)api().mem_free(d.vendor_id, words);
    throw;
  }
  g_words[d.index].store(words, std::memory_order_release);
  return words;
}

[[noreturn]] void raise(int device, const Words& told) {
  const auto value = static_cast<int64_t>(told[0] << 16) >> 16;
  const char* name = g_tellers[told[0] >> 56].load();
  const std::string where = c10::str(" in a call of ", name ? name : "an operator", " on ", device_name(device),
                                     " before this wait. Its result there is no value to go on with. With "
                                     "CAUSEWAY_PORTABLE=0 the call itself raises, on the host");
  switch (told[0] >> 48 & 0xff) {
    case kOutOfRange:
      fail(Kind::Index, "index ", value, " is out of range for a dimension of size ", told[1], where);
    case kZeroDivision:
      fail(Kind::Causeway, "ZeroDivisionError: an integer was divided by zero", where);
    case kNoChances:
      fail(Kind::Causeway, "probabilities that are infinite, NaN, negative, or all zero", where);
    default:
      fail(Kind::Causeway, "an error of a kind that is not known, ", told[0] >> 48 & 0xff, where);
  }
}

// `may_tell` is set again where the words could not be read: what was told waits for the next to ask.
void raise_told(const DeviceState& d, cw_stream stream, std::atomic<bool>& may_tell) {
  void* words = g_words[d.index].load(std::memory_order_acquire);
  Words told{};
  const Words none{};
  if (d.host_addressable) {
    std::memcpy(told.data(), words, sizeof told);
    if (!told[0]) return;
    std::memcpy(words, none.data(), sizeof none);
  } else {
    try {
      copy(d, stream, told.data(), CW_HOST, words, d.vendor_id);
      if (!told[0]) return;
      copy(d, stream, words, d.vendor_id, none.data(), CW_HOST);
    } catch (...) {
      may_tell.store(true);
      throw;
    }
  }
  raise(d.index, told);
}

}  // namespace

cw_status kernel_tells(int index, const char* name, void** words, int64_t* teller) {
  *words = words_of(device(index));
  if (!*words) return CW_OUT_OF_MEMORY;
  *teller = number_of(name) << 56;
  StreamState& stream = current_stream(index);
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr))
    graph->tells();
  else
    kernel_may_tell(stream);
  return CW_OK;
}

const void* told_at(int device) { return g_words[device].load(std::memory_order_acquire); }

std::vector<std::string> tellers() {
  std::vector<std::string> names;
  for (int i = 1; i < kMostTellers && g_tellers[i].load(); ++i) names.emplace_back(g_tellers[i].load());
  return names;
}

void kernel_may_tell(StreamState& stream) {
  stream.may_tell.store(true, std::memory_order_release);
  g_may_tell[stream.device].store(true, std::memory_order_release);
}

void raise_kernel_errors(StreamState& stream) {
  if (C10_LIKELY(!stream.may_tell.load(std::memory_order_acquire))) return;
  if (stream.may_tell.exchange(false)) raise_told(device(stream.device), stream.handle, stream.may_tell);
}

void raise_kernel_errors(int index) {
  if (C10_LIKELY(!g_may_tell[index].exchange(false))) return;
  raise_told(device(index), default_stream(index).handle, g_may_tell[index]);
}

}  // namespace causeway
