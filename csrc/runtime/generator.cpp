// State is 16 bytes, seed and offset, whatever rung serves an operator: each random operator takes the offset it
// needs and moves it on, so the same seed gives the same numbers again, independent of the host's generator, and a
// state saved in the middle of a run continues it exactly.
//
// On the host rung the CPU kernel draws from a Mersenne twister seeded by (seed, offset). At offset 0 that is the
// seed itself, so the first operator after manual_seed equals the CPU's.
#include "runtime/generator.h"

#include <array>
#include <cstring>
#include <mutex>

#include <ATen/Utils.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/ops/empty.h>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/graph.h"

namespace causeway {

constexpr int64_t kStateBytes = 2 * sizeof(uint64_t);

Generator::Generator(int device)
    : c10::GeneratorImpl(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device)),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

// A replay takes its numbers from where the generator then is: within a capture no seed can be set, and no state but one
// that the same capture gave.
void Generator::not_in_capture() const { refuse_in_capture(device().index(), "a generator's seed, offset or state"); }

void Generator::set_current_seed(uint64_t seed) {
  not_in_capture();
  set({seed, 0});
}
void Generator::set_offset(uint64_t offset) {
  not_in_capture();
  std::lock_guard lock(state_->mutex);
  state_->now.offset = offset;
}
uint64_t Generator::get_offset() const { return now().offset; }
uint64_t Generator::current_seed() const { return now().seed; }
cw_philox Generator::now() const {
  std::lock_guard lock(state_->mutex);
  return state_->now;
}
void Generator::set(const cw_philox& now) {
  std::lock_guard lock(state_->mutex);
  state_->now = now;
}
uint64_t Generator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom(true);
  set_current_seed(random);
  return random;
}

void Generator::set_state(const c10::TensorImpl& state) {
  if (state.numel() != kStateBytes || state.dtype() != c10::scalarTypeToTypeMeta(c10::ScalarType::Byte) ||
      !state.is_cpu() || !state.is_contiguous())
    fail(Kind::Causeway, "a generator state of ", device().str(), " is a contiguous CPU tensor of ", kStateBytes,
         " bytes (seed and offset); got ", state.numel(), " elements of ", state.dtype(), " on ", state.device(),
         ". A state saved by another kind of device does not fit");
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  cw_philox now;
  std::memcpy(&now, bytes, sizeof now);
  if (Graph* graph = graph_of(current_stream(device().index())); C10_UNLIKELY(graph != nullptr)) {
    if (!graph->set_state(*this, now)) not_in_capture();
    return;
  }
  set(now);
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  at::Tensor state = at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  Graph* graph = graph_of(current_stream(device().index()));
  const cw_philox at = C10_UNLIKELY(graph != nullptr) ? graph->state_of(*this) : now();
  std::memcpy(state.mutable_data_ptr<uint8_t>(), &at, kStateBytes);
  return state.getIntrusivePtr();
}

void Generator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* given = dynamic_cast<const Generator*>(other.get());
  if (!given || given->device() != device())
    fail(Kind::Causeway, "graphsafe_set_state takes a generator of ", device().str(), ", got ",
         other ? other->device().str() : "none");
  state_ = given->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> Generator::graphsafe_get_state() const {
  auto shared = c10::make_intrusive<Generator>(device().index());
  shared->state_ = state_;
  return shared;
}

c10::DeviceType Generator::device_type() { return kDeviceType; }

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());
  copy->set(now());
  return copy;
}

cw_philox Generator::next(uint64_t count) {
  if (Graph* graph = graph_of(current_stream(device().index())); C10_UNLIKELY(graph != nullptr))
    return graph->draw(*this, count);
  std::lock_guard lock(state_->mutex);
  const cw_philox now = state_->now;
  state_->now.offset += (count + 3) / 4 * 4;  // Philox gives four at a time; CUDA's offsets are multiples of 4 too
  return now;
}

void Generator::give_back(const cw_philox& numbers) {
  if (Graph* graph = graph_of(current_stream(device().index())); C10_UNLIKELY(graph != nullptr))
    return graph->give_back(numbers);
  std::lock_guard lock(state_->mutex);
  if (state_->now.seed == numbers.seed) state_->now.offset = numbers.offset;
}

at::Generator Generator::next_for_host() { return host_generator(next(4)); }

at::Generator host_generator(const cw_philox& now) {
  uint64_t mixed = now.seed;
  if (now.offset) {  // splitmix64's finaliser, so that neighbouring offsets give unrelated streams
    mixed += 0x9E3779B97F4A7C15ull * (now.offset / 4);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
    mixed ^= mixed >> 31;
  }
  return at::make_generator<at::CPUGeneratorImpl>(mixed);
}

const at::Generator& default_generator(int device) {
  static std::array<at::Generator, kMaxDevices> generators;
  static std::mutex mutex;
  if (device < 0) device = current_device();
  if (device >= device_count()) causeway::device(device);  // throws with the message for a bad index
  std::lock_guard lock(mutex);
  auto& g = generators[device];
  if (!g.defined()) g = at::make_generator<Generator>(device);
  return g;
}

Generator& device_generator(const std::optional<at::Generator>& given, int device) {
  const at::Generator& g = given && given->defined() ? *given : default_generator(device);
  if (g.device().type() != kDeviceType)
    fail(Kind::Causeway, "Expected a '", c10::DeviceTypeName(kDeviceType, true),
         "' device type for generator but found '", g.device().str(), "'; make it with torch.Generator(device=...)");
  return *g.get<Generator>();
}

}  // namespace causeway
