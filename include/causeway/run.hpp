// run.h for C++17: objects that release themselves, inputs and outputs by name, and errors as exceptions.
//
//   cw::run::Device device("libcw_opencl.so");
//   cw::run::Model model(device, "model.cw");
//   cw::run::Session session(model);
//   session.set("image", image);  // a std::vector<float>
//   session.run();
//   std::vector<float> logits = session.get<float>("logits");
//
// A copy of an object is the same device, model or session. A model keeps its device, a session its model. Threads are as in
// run.h: a session is used by one at a time. Half-precision numbers are std::uint16_t, as bits.
#ifndef CAUSEWAY_RUN_HPP
#define CAUSEWAY_RUN_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "run.h"

namespace cw::run {

// What the runtime refuses or cannot do, with its message.
struct Error : std::runtime_error {
  Error(cw_status given, const std::string& message) : std::runtime_error(message), status(given) {}
  cw_status status;
};

inline void check(cw_status status) {
  if (status) throw Error(status, cw_run_error());
}

// Whether a tensor of a dtype, by its bit number in cw_dtypes, is an array of T.
template <class T>
bool holds(std::int32_t dtype) {
  if constexpr (std::is_same_v<T, bool>) return dtype == 0;
  if constexpr (std::is_same_v<T, std::uint8_t>) return dtype == 1 || dtype == 0;
  if constexpr (std::is_same_v<T, std::int8_t>) return dtype == 2;
  if constexpr (std::is_same_v<T, std::uint16_t>) return dtype == 3 || dtype == 9 || dtype == 10;
  if constexpr (std::is_same_v<T, std::int16_t>) return dtype == 4;
  if constexpr (std::is_same_v<T, std::uint32_t>) return dtype == 5;
  if constexpr (std::is_same_v<T, std::int32_t>) return dtype == 6;
  if constexpr (std::is_same_v<T, std::uint64_t>) return dtype == 7;
  if constexpr (std::is_same_v<T, std::int64_t>) return dtype == 8;
  if constexpr (std::is_same_v<T, float>) return dtype == 11;
  if constexpr (std::is_same_v<T, double>) return dtype == 12;
  return false;
}

class Device {
 public:
  // A vendor's library, a path, and one of its devices.
  explicit Device(const std::string& library, std::int32_t index = 0) {
    cw_run_device* made = nullptr;
    check(cw_run_open(library.c_str(), index, &made));
    handle_.reset(made, cw_run_close);
  }
  cw_run_device* get() const { return handle_.get(); }

 private:
  std::shared_ptr<cw_run_device> handle_;
};

class Model {
 public:
  // `flags`: CW_RUN_ALLOW_HOST_CODE, CW_RUN_TRUST_BINARIES, or none.
  Model(Device device, const std::string& path, std::uint32_t flags = 0) : device_(std::move(device)) {
    cw_run_model* made = nullptr;
    check(cw_run_load(device_.get(), path.c_str(), flags, &made));
    handle_.reset(made, cw_run_unload);
  }
  cw_run_info info() const {
    cw_run_info info;
    check(cw_run_describe(get(), &info));
    return info;
  }
  std::vector<cw_run_port> inputs() const { return ports(0, info().inputs); }
  std::vector<cw_run_port> outputs() const { return ports(1, info().outputs); }
  cw_run_model* get() const { return handle_.get(); }

 private:
  std::vector<cw_run_port> ports(std::int32_t output, std::uint32_t count) const {
    std::vector<cw_run_port> found(count);
    for (std::uint32_t i = 0; i < count; ++i) check(cw_run_port_of(get(), output, i, &found[i]));
    return found;
  }
  Device device_;  // goes after the model
  std::shared_ptr<cw_run_model> handle_;
};

class Session {
 public:
  explicit Session(Model model) : model_(std::move(model)), inputs_(model_.inputs()), outputs_(model_.outputs()) {
    cw_run_session* made = nullptr;
    check(cw_run_begin(model_.get(), nullptr, &made));
    handle_.reset(made, cw_run_end);
  }
  // Copy an input to the device: as many numbers as it has, row-major. Waits.
  template <class T>
  void set(const std::string& name, const T* data, std::size_t count) {
    const std::uint32_t i = find<T>(inputs_, "input", name);
    check(cw_run_set(get(), i, data, count * sizeof(T)));
  }
  template <class T>
  void set(const std::string& name, const std::vector<T>& data) {
    set(name, data.data(), data.size());
  }
  // Run it and wait.
  void run() { check(cw_run(get())); }
  // Copy an output from the device.
  template <class T>
  std::vector<T> get(const std::string& name) {
    return get<T>(name, static_cast<std::size_t>(outputs_[find<T>(outputs_, "output", name)].bytes / sizeof(T)));
  }
  // The same of an output whose size differs from run to run: `count` numbers, as many as the last run gave.
  template <class T>
  std::vector<T> get(const std::string& name, std::size_t count) {
    const std::uint32_t i = find<T>(outputs_, "output", name);
    std::vector<T> data(count);
    check(cw_run_get(get(), i, data.data(), count * sizeof(T)));
    return data;
  }
  // Where an input is read from, to be written in place of `set` before each run that it changes for, and where the last
  // run's output is, in place of a copy. Both last as long as the session. The host must be able to address the chip's memory.
  template <class T>
  T* place(const std::string& name) {
    return at<T>(CW_RUN_INPUT | find<T>(inputs_, "input", name));
  }
  template <class T>
  const T* output(const std::string& name) {
    return at<T>(find<T>(outputs_, "output", name));
  }
  cw_run_session* get() const { return handle_.get(); }

 private:
  template <class T>
  T* at(std::uint32_t number) {
    void* address = nullptr;
    check(cw_run_get(get(), number, &address, CW_RUN_PLACE));
    return static_cast<T*>(address);
  }
  template <class T>
  static std::uint32_t find(const std::vector<cw_run_port>& ports, const std::string& kind, const std::string& name) {
    for (std::uint32_t i = 0; i < ports.size(); ++i) {
      if (name != ports[i].name) continue;
      if (holds<T>(ports[i].dtype)) return i;
      throw Error(CW_INVALID, kind + " \"" + name + "\" has numbers of another type (dtype " +
                                  std::to_string(ports[i].dtype) + " of cw_dtypes)");
    }
    throw Error(CW_INVALID, "there is no " + kind + " \"" + name + "\"");
  }
  Model model_;  // goes after the session
  std::vector<cw_run_port> inputs_, outputs_;
  std::shared_ptr<cw_run_session> handle_;
};

}  // namespace cw::run
#endif  // CAUSEWAY_RUN_HPP
