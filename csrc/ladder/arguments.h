// The arguments of one call of a vendor's kernel, in the form of abi.h.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "ladder/call.h"
#include "runtime/generator.h"
#include "runtime/graph.h"
#include "runtime/packed.h"
#include "runtime/stream.h"
#include "runtime/vendor.h"

namespace causeway {

// A kernel that is to be called, and what a capture must know of it.
struct CalledKernel {
  cw_kernel kernel;
  const char* operator_name;
  const char* kernel_name;  // that op_find was asked for
  bool ours;  // Causeway's own, of which what it launches is captured
  bool took_such = false;  // it did not decline a call of this signature
};

// What a kernel of the vendor's asks for in a replay, which has no Arguments.
class Workspace {
 public:
  // `read`: the tensors behind its arguments. `noted`: the vendor notes the call, and keeps what it is given.
  Workspace(int device, StreamState& stream, const std::vector<Reread>& read, Noted* noted = nullptr);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  cw_status scratch(uint64_t bytes, void** out);
  cw_status packed(const DLTensor* tensor, uint32_t layout, const void** out);

 private:
  int device_;
  StreamState& stream_;
  const std::vector<Reread>& read_;
  Workspace* old_;
  Noted* noted_;
  std::vector<c10::DataPtr> own_;
  c10::SmallVector<std::shared_ptr<Form>, 1> forms_;
};

// Holds what a cw_arg points to while the kernel runs.
class Arguments {
 public:
  explicit Arguments(DeviceState& d) : device_(d) {}

  void add(at::Tensor t) { args_.push_back(tensor(std::move(t))); }

  // `numbers`: the kernel takes a number where torch has a tensor of the CPU. `random_count`: how many elements a
  // generator must be good for.
  void add(const c10::IValue& v, const c10::Argument& schema, bool numbers, uint64_t random_count);

  // A list of tensors, outputs.
  void add_list(const c10::IValue& v) { args_.push_back(list(v)); }

  // A generator that torch's operator takes without saying so.
  void add_random(uint64_t count, const std::optional<at::Generator>& given = std::nullopt);

  cw_status run(const CalledKernel& called, StreamState& stream);

  // Workspace: given back with these arguments, in the stream's order.
  cw_status scratch(uint64_t bytes, void** out);

  // For host->packed: the form of an input, which lasts until the kernel is on the stream.
  cw_status packed(const DLTensor* tensor, uint32_t layout, const void** out);

  // For host->storage: the memory that a tensor is a part of.
  cw_status storage(const DLTensor* tensor, uint64_t* before, uint64_t* bytes) const;

  // For host->resize: the tensor behind a DLTensor that the kernel was given.
  cw_status resize(const DLTensor* tensor, int32_t ndim, const int64_t* shape);

 private:
  // The arguments that this thread's kernel may ask services for.
  struct Current {
    explicit Current(Arguments* a);
    ~Current();
    Arguments* old;
  };
  struct Held {
    at::Tensor tensor;
    DLTensor dl;
  };

  cw_status run_in_capture(Graph& graph, const CalledKernel& called, StreamState& stream);
  const Held* behind(const DLTensor* tensor) const;
  cw_arg number(const at::Scalar& s);
  cw_arg tensor(at::Tensor t);
  cw_arg list(const c10::IValue& v);
  cw_arg value(const c10::IValue& v);

  void fill(Held& h);
  const DLTensor* hold(at::Tensor t);

  template <class T>
  T* keep(size_t n) {
    buffers_.push_back(std::make_unique<char[]>(n * sizeof(T) + 1));
    return reinterpret_cast<T*>(buffers_.back().get());
  }

  DeviceState& device_;
  c10::SmallVector<cw_arg, 12> args_;
  c10::SmallVector<std::unique_ptr<Held>, 8> held_;
  c10::SmallVector<std::unique_ptr<char[]>, 4> buffers_;
  c10::SmallVector<c10::DataPtr, 1> scratch_;
  c10::SmallVector<std::shared_ptr<Form>, 1> forms_;
  Generator* generator_ = nullptr;
  cw_philox philox_{};
};

}  // namespace causeway
