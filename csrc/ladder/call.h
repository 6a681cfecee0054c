// The call that every operator goes through, and the ladder that finds its kernel.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "runtime/device.h"
#include "ladder/facts.h"
#include "ladder/ledger.h"

namespace causeway {

using Stack = torch::jit::Stack;

enum class ArgKind : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Generator, Device, Pin };

struct ArgInfo {
  ArgKind kind;
  bool write;  // the schema says that the operator changes it
};

struct Offers;  // what can serve an operator on the device; see forms.h

// One operator of torch: its schema, digested, what serves it, and its counts. It is the boxed kernel itself.
struct Operator final : c10::OperatorKernel {
  explicit Operator(const c10::OperatorHandle& handle);
  ~Operator() override;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack);

  const c10::OperatorHandle handle;
  const std::string name;  // "aten::add.out"
  const Facts facts;       // what is known of it beside its schema
  std::vector<ArgInfo> args;
  std::vector<int> return_of;  // for each return the argument that it is (in-place, out=), or -1
  bool hidden_random = false;  // draws random numbers without a generator argument
  bool pointwise = false;      // each element of the result depends on the same element of the inputs alone
  const bool foreign;          // of another namespace than aten
  bool over_lists = false;     // torch does it tensor by tensor where no kernel takes the lists, see foreach.h
  int generator = -1;          // index of the generator argument

  // Set from Python, by name.
  std::atomic<bool> forced{false};   // to the host rung
  std::atomic<bool> policed{true};   // the fallback policy holds for it
  std::atomic<bool> warned{false};
  std::atomic<bool> observed{false};  // see observe.h

  std::array<std::atomic<uint64_t>, kRungs> calls{};

  std::atomic<Offers*> resolved{nullptr};  // its offers, from the first call on
  std::atomic<bool> host_only{false};         // resolved, only the host rung can serve it, and nobody observes it
  Offers& offers();  // what serves it, resolved
  void force(bool on);
  void observe(bool on);

 private:
  void serve(c10::DispatchKeySet keys, Stack& stack);
  void update_host_only();
};

// Registers a kernel for every operator that has one on the CPU, and the fallback for all others.
void register_operators();
std::vector<Operator*> operators();
Operator& operator_for(const c10::OperatorHandle& handle);

// Python's `newcomer(name) -> (forced, policed)`, asked about each operator that torch makes known later; NULL for none.
void set_newcomer(PyObject* f);

// Rungs: each serves the call and leaves the results on the stack, or returns false with the stack untouched.
bool call_device(Operator& op, Stack& stack, Entry& entry);
void call_host(Operator& op, Stack& stack, Entry& entry, c10::DispatchKeySet kinds = {});

// The device that a call is about: of its first device tensor, else of its device argument, else the current one.
int device_of_call(const Operator& op, const Stack& stack);

// Settings of the ladder, from Python.
struct Policy {
  enum Fallback { Allow, Warn, Raise } fallback = Allow;
  std::atomic<int64_t> budget{-1};  // host calls left before `fallback` holds; -1: it holds at once
  bool narrow = false;              // dtypes that the chip lacks: narrowed, else refused
};
Policy& policy();
void check_fallback(Operator& op);

// `dtype` as `device` stores it: itself; or, as the policy says, a narrower one (counted), or an error.
c10::ScalarType stored_dtype(const DeviceState& device, c10::ScalarType dtype, const char* what);

}  // namespace causeway
