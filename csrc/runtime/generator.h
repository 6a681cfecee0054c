// The device's random numbers: a seed and an offset, as CUDA's. See generator.cpp.
#pragma once

#include <memory>
#include <mutex>

#include <ATen/core/Generator.h>
#include <ATen/CPUGeneratorImpl.h>

#include "causeway/abi.h"

namespace causeway {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(int device);
  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // Seed and offset shared with another generator: where one goes on, so does the other.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  bool shares_with(const Generator& other) const { return state_ == other.state_; }
  static c10::DeviceType device_type();

  // The numbers of the next operator, which may use `count` of them. Takes the state's lock.
  cw_philox next(uint64_t count);
  // They were not drawn after all.
  void give_back(const cw_philox& numbers);
  // A CPU generator for the next operator on the host rung, a function of seed and offset alone.
  at::Generator next_for_host();

 private:
  Generator* clone_impl() const override;
  void not_in_capture() const;
  struct State {
    std::mutex mutex;
    cw_philox now{c10::default_rng_seed_val, 0};
  };
  cw_philox now() const;
  void set(const cw_philox& now);
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// The CPU's generator that draws what the host rung draws at this place of a device's numbers.
at::Generator host_generator(const cw_philox& numbers);

const at::Generator& default_generator(int device);
Generator& device_generator(const std::optional<at::Generator>& given, int device);

}  // namespace causeway
