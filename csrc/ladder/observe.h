// Python looks on: a call before and after each selected operator, on whatever thread it runs.
//
// Two ways lead here. Operators of the ladder ask their own flag in Operator::operator(); the unboxed kernels need not,
// since an observed operator is not `host_only`. Kernels of our own that torch calls directly are registered through
// `own`, which asks a flag of that kernel and boxes the arguments only where it is set.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/boxing/impl/boxing.h>
#include <pybind11/pytypes.h>
#include <torch/library.h>

#include "ladder/call.h"

namespace causeway {

// What one observed call was: shared with Python, which may keep it.
struct ObservedCall {
  const Operator* op;
  std::vector<c10::IValue> args, results;
  std::string rung = "core", error;
  uint64_t sequence = 0, thread = 0;
  int depth = 0;  // observed calls that this one is part of
  bool backward = false, after = false, own = false;
  std::string node;  // in backward: the autograd node, and what tells which forward call recorded it
  uint64_t node_sequence = 0, node_thread = 0;
};

// Around one call. The constructor calls Python, and so may throw; whoever made it says what came of the call.
class Observation {
 public:
  Observation(Operator& op, std::vector<c10::IValue> args, bool own);
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

  void returned(std::vector<c10::IValue> results);
  void raised() noexcept;  // within a catch block

 private:
  void end();
  std::shared_ptr<ObservedCall> call_;
  PyObject* token_ = nullptr;  // what Python's `begin` returned
  Observation* outer_ = nullptr;
  friend void note_rung(const Operator&, Rung);
};

// Whether this thread is inside Python's observers, whose own calls are not observed.
bool observers_are_running();

// The running observed call of `op`, if there is one, was served by `rung`.
void note_rung(const Operator& op, Rung rung);

// Python's `begin(call) -> token` and `end(call, token)`; NULL for none. A token None: the operator is of no interest.
// `names`: operators to observe; operators that torch makes known later are observed until `begin` says None.
// `values`: they look at what tensors hold.
void set_observers(PyObject* begin, PyObject* end, const std::vector<std::string>& names, bool values);
bool observers_see_values();
std::vector<std::string> own_kernels();
bool pause_observers(bool on);  // on this thread; gives what was before
pybind11::object to_python(const c10::IValue& value, const c10::TypePtr& type);

// ---- kernels of our own ---------------------------------------------------------------------------------------------

// One registered kernel. As long as the process.
struct OwnKernel {
  explicit OwnKernel(std::string name);
  const std::string name;
  std::atomic<bool> observed{false};
  std::atomic<Operator*> op{nullptr};  // made when it is first observed
  Operator& operator_of();
};

template <class R>
void box_result(std::vector<c10::IValue>& out, const R& value) {
  out.emplace_back(value);
}
template <class... R>
void box_result(std::vector<c10::IValue>& out, const std::tuple<R...>& values) {
  std::apply([&](const auto&... v) { (out.emplace_back(v), ...); }, values);
}

template <auto F>
struct Own;

template <class R, class... Args, R (*F)(Args...)>
struct Own<F> {
  OwnKernel* kernel;

  R operator()(Args... args) {
    if (C10_LIKELY(!kernel->observed.load(std::memory_order_relaxed)) || observers_are_running())
      return F(std::forward<Args>(args)...);
    std::vector<c10::IValue> boxed;
    boxed.reserve(sizeof...(Args));
    (boxed.emplace_back(args), ...);
    Observation observation(kernel->operator_of(), std::move(boxed), true);
    try {
      std::vector<c10::IValue> results;
      if constexpr (std::is_void_v<R>) {
        F(std::forward<Args>(args)...);
        observation.returned({});
      } else {
        R result = F(std::forward<Args>(args)...);
        box_result(results, result);
        observation.returned(std::move(results));
        return std::forward<R>(result);
      }
    } catch (...) {
      observation.raised();
      throw;
    }
  }
};

// `m.impl("view", own<&at::native::view>("view"))`
template <auto F>
Own<F> own(const char* name) {
  return Own<F>{new OwnKernel(std::string("aten::") + name)};
}

}  // namespace causeway
