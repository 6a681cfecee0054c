// A kernel's call while a graph is captured. Causeway's own kernels run as ever, and what they launch becomes steps. A
// vendor's kernel is not called: its call is the step, with a copy of all that its arguments point to. Whether it would
// decline must then be known without it.
#include <cstring>

#include "ladder/arguments.h"
#include "ladder/fill.h"
#include "portable/portable.h"
#include "runtime/check.h"
#include "runtime/graph.h"
#include "runtime/thrown.h"

namespace causeway {

namespace {

// The call of a kernel with all that its arguments point to.
class KernelStep final : public Step {
 public:
  // `tensor_of`: what is behind an argument, or nullptr.
  using TensorOf = std::function<const at::Tensor*(const DLTensor*)>;
  KernelStep(std::string name, cw_kernel kernel, const c10::ArrayRef<cw_arg> args, int device, TensorOf tensor_of)
      : Step(Work::Kernel, std::move(name)), kernel_(kernel), args_(args.begin(), args.end()), device_(device) {
    tensor_of_ = std::move(tensor_of);
    for (cw_arg& a : args_) own(a);
    tensor_of_ = nullptr;
  }
  cw_status run(StreamState& stream) override {
    const Workspace workspace(device_, stream, read_);
    return shielded([&] { return kernel_(args_.data(), static_cast<int32_t>(args_.size()), stream.handle); });
  }
  cw_status run_noted(StreamState& stream, Noted& noted) override {
    const Workspace workspace(device_, stream, read_, &noted);
    return shielded([&] { return kernel_(args_.data(), static_cast<int32_t>(args_.size()), stream.handle); });
  }
  void find(uint64_t token, const std::function<void(uint64_t*)>& found) override {
    for (cw_philox* p : philox_) {
      if (p->seed == token) found(&p->seed);
      if (p->offset == token) found(&p->offset);
    }
  }

 private:
  template <class T>
  T* own(const T* from, size_t n) {
    kept_.push_back(std::make_unique<char[]>(n * sizeof(T) + 1));
    auto* to = reinterpret_cast<T*>(kept_.back().get());
    if (n) std::memcpy(to, from, n * sizeof(T));
    return to;
  }
  const DLTensor* own(const DLTensor* t) {
    if (!t) return nullptr;
    DLTensor* copy = own(t, 1);
    copy->shape = own(t->shape, t->ndim);
    copy->strides = own(t->strides, t->ndim);
    if (const at::Tensor* tensor = tensor_of_ ? tensor_of_(t) : nullptr) read_.emplace_back(copy, tensor->storage());
    return copy;
  }
  void own(cw_arg& a) {
    switch (a.tag) {
      case CW_COMPLEX:
        a.v.complex = own(a.v.complex, 2);
        break;
      case CW_STRING:
        a.v.string = own(a.v.string, a.n + 1);
        break;
      case CW_TENSOR:
        a.v.tensor = own(a.v.tensor);
        break;
      case CW_GENERATOR:
        philox_.push_back(own(a.v.philox, 1));
        a.v.philox = philox_.back();
        break;
      case CW_INT_LIST:
      case CW_BOOLEAN_LIST:
        a.v.ints = own(a.v.ints, a.n);
        break;
      case CW_DOUBLE_LIST:
        a.v.doubles = own(a.v.doubles, a.n);
        break;
      case CW_TENSOR_LIST: {
        auto* list = own(a.v.tensors, a.n);
        for (uint32_t i = 0; i < a.n; ++i) list[i] = own(list[i]);
        a.v.tensors = list;
        break;
      }
      case CW_SCALAR_LIST: {
        auto* list = own(a.v.args, a.n);
        for (uint32_t i = 0; i < a.n; ++i) own(list[i]);
        a.v.args = list;
        break;
      }
      default:
        break;
    }
  }

  cw_kernel kernel_;
  std::vector<cw_arg> args_;
  int device_;
  std::vector<std::unique_ptr<char[]>> kept_;
  std::vector<cw_philox*> philox_;
  std::vector<Reread> read_;
  TensorOf tensor_of_;  // while it is made
};

// Whether a vendor's kernel takes these arguments: what the vendor says, or that it took such ones before.
cw_status asked(const CalledKernel& called, c10::ArrayRef<cw_arg> args, Graph& graph) {
  static const auto* check = static_cast<const cw_check_v1*>(vendor_extension("check.v1"));
  if (check && check->op_check)
    return shielded(
        [&] { return check->op_check(called.kernel_name, args.data(), static_cast<int32_t>(args.size())); });
  if (called.took_such) return CW_OK;
  graph.refuse(c10::str(called.operator_name,
                        ", whose kernel this process has not called with such arguments and which may decline them,"),
               c10::str("Run the same work once before the capture. ", vendor_name(),
                        " could say it without a call, by check.v1"));
}

}  // namespace

cw_status Arguments::run_in_capture(Graph& graph, const CalledKernel& called, StreamState& stream) {
  const size_t first = graph.noted();
  cw_status status = CW_OK;
  if (called.ours) {
    const Recording recording(&graph, called.operator_name);
    const Current current(this);
    status = shielded([&] { return called.kernel(args_.data(), static_cast<int32_t>(args_.size()), stream.handle); });
  } else {
    status = asked(called, args_, graph);
    if (status == CW_OK) {
      KernelStep::TensorOf tensor_of;
      if (layouts_offered())
        tensor_of = [this](const DLTensor* t) {
          const Held* h = behind(t);
          return h && h->tensor.has_storage() ? &h->tensor : nullptr;
        };
      graph.add(stream, std::make_unique<KernelStep>(called.operator_name, called.kernel, args_, device_.index,
                                                     std::move(tensor_of)));
    }
  }
  stream.give();
  if (status == CW_UNSUPPORTED && generator_) generator_->give_back(philox_);
  if (status == CW_OK) graph.end_operator(called.operator_name, first);
  return status;
}

}  // namespace causeway
