// Boxing an operator's arguments and unboxing them again for the CPU kernel costs about as much as everything else that
// the host rung does for a small tensor. So operators of the commonest signatures (some 900 of torch's) are registered
// with a kernel that passes arguments on as they come: when nothing but the host rung can serve the operator, nobody
// watches, and the host can address the memory. In all other cases the arguments are boxed and go up the ladder.
#include "ladder/unboxed.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "ladder/host.h"
#include "runtime/watched.h"

namespace causeway {

namespace {

using at::Scalar;
using at::Tensor;

template <class T>
constexpr bool is_tensor = std::is_same_v<std::decay_t<T>, Tensor>;
template <class T>
constexpr bool is_written = std::is_same_v<T, Tensor&>;

// Whether `schema` says in torch's words what C++ type T says.
template <class T>
bool same_type(const c10::Argument& a) {
  using U = std::decay_t<T>;
  const c10::TypePtr& type = a.real_type();
  const bool written = a.alias_info() && a.alias_info()->isWrite();
  if constexpr (is_tensor<T>) return type->kind() == c10::TypeKind::TensorType && written == is_written<T>;
  if constexpr (std::is_same_v<U, Scalar>) return type->kind() == c10::TypeKind::NumberType;
  if constexpr (std::is_same_v<U, int64_t>) return type->kind() == c10::TypeKind::IntType;
  if constexpr (std::is_same_v<U, bool>) return type->kind() == c10::TypeKind::BoolType;
  if constexpr (std::is_same_v<U, std::optional<at::ScalarType>>) {
    auto o = type->cast<c10::OptionalType>();
    return o && o->getElementType()->kind() == c10::TypeKind::ScalarTypeType;
  }
  return false;
}

// The kernel: `Return` is Tensor for a functional operator, Tensor& for one in place, whose first argument it returns.
template <class Return, class... Args>
struct Unboxed {
  Operator* op;

  Return operator()(Args... args) {
    const Tensor& first = std::get<0>(std::forward_as_tuple(args...));
    if (C10_LIKELY(op->host_only.load(std::memory_order_acquire) &&
                   !watched_by(Watcher::Policy, Watcher::Ledger, Watcher::Trace) && plain(args...))) {
      DeviceState& d = device(first.device().index());
      if (C10_LIKELY(d.host_addressable)) return direct(d, args...);
    }
    return boxed(args...);
  }

 private:
  bool plain(const Args&... args) const {
    c10::Device where(kDeviceType, -1);
    bool good = true, any = false;
    auto look = [&](const auto& a) {
      if constexpr (is_tensor<decltype(a)>) {
        const c10::TensorImpl* t = a.unsafeGetTensorImpl();
        if (!a.defined() || t->device_type() != kDeviceType || (any && t->device() != where) || !kind_of(*t).empty() ||
            (C10_UNLIKELY(op->facts.wide) && may_widen(*op, a)))
          good = false;
        if (good) where = t->device();
        any = true;
      }
      if constexpr (std::is_same_v<std::decay_t<decltype(a)>, Scalar>)
        if (C10_UNLIKELY(op->facts.wide) && a.isComplex()) good = false;
      if constexpr (std::is_same_v<std::decay_t<decltype(a)>, std::optional<at::ScalarType>>)
        if (a && op->facts.wide & bit_of(*a)) good = false;
    };
    (look(args), ...);
    return good;
  }

  template <class T>
  static T substitute(HostCall& call, T arg) {
    if constexpr (is_tensor<T>)
      return const_cast<T>(call.stand_in(arg, is_written<T>));
    else
      return arg;
  }

  Return direct(DeviceState& d, Args... args) {
    StreamState& stream = current_stream(d.index);
    refuse_host_rung(*op, stream);
    stream.sync();
    op->calls[static_cast<int>(Rung::Host)].fetch_add(1, std::memory_order_relaxed);
    HostCall call(*op, d, stream);
    at::AutoDispatchBelowADInplaceOrView below;
    const auto typed = op->handle.typed<Return(Args...)>();
    constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
    if constexpr (std::is_same_v<Return, Tensor>) {
      Tensor out;
      {
        AllocateOnDevice hook(d.index, stream);
        out = typed.redispatch(cpu, substitute<Args>(call, args)...);
      }
      return call.result(std::move(out));
    } else {
      {
        AllocateOnDevice hook(d.index, stream);
        typed.redispatch(cpu, substitute<Args>(call, args)...);
      }
      call.update_written();
      return std::get<0>(std::tie(args...));
    }
  }

  Return boxed(Args... args) {
    Stack stack;
    stack.reserve(sizeof...(Args));
    (stack.emplace_back(args), ...);
    (*op)(op->handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &stack);
    if constexpr (std::is_same_v<Return, Tensor>)
      return std::move(stack.back()).toTensor();
    else
      return std::get<0>(std::tie(args...));
  }
};

template <class Return, class... Args>
bool matches(const Operator& op) {
  const auto& schema = op.handle.schema();
  if (schema.arguments().size() != sizeof...(Args) || schema.returns().size() != 1 || op.facts.mixed_devices ||
      op.hidden_random)
    return false;
  const auto& ret = schema.returns()[0];
  if (ret.type()->kind() != c10::TypeKind::TensorType) return false;
  const bool aliases = ret.alias_info() != nullptr;
  if (aliases != std::is_same_v<Return, Tensor&>) return false;
  if (aliases && (!ret.alias_info()->isWrite() || op.return_of[0] != 0)) return false;
  size_t i = 0;
  return (same_type<Args>(schema.arguments()[i++]) && ...);
}

template <class Return, class... Args>
bool add(Operator& op, std::optional<torch::CppFunction>& out) {
  if (!matches<Return, Args...>(op)) return false;
  out.emplace(Unboxed<Return, Args...>{&op});
  return true;
}

}  // namespace

std::optional<torch::CppFunction> unboxed_kernel(Operator& op) {
  using T = const Tensor&;
  using S = const Scalar&;
  using D = std::optional<at::ScalarType>;
  std::optional<torch::CppFunction> out;
  (void)(add<Tensor, T>(op, out) || add<Tensor, T, T>(op, out) || add<Tensor, T, T, S>(op, out) ||
         add<Tensor, T, S>(op, out) || add<Tensor, T, S, S>(op, out) || add<Tensor, T, T, T>(op, out) ||
         add<Tensor, T, T, T, S>(op, out) || add<Tensor, T, T, T, S, S>(op, out) ||
         add<Tensor, T, int64_t, bool>(op, out) || add<Tensor, T, T, int64_t>(op, out) || add<Tensor, T, D>(op, out) ||
         add<Tensor&, Tensor&>(op, out) || add<Tensor&, Tensor&, T>(op, out) || add<Tensor&, Tensor&, T, S>(op, out) ||
         add<Tensor&, Tensor&, S>(op, out) || add<Tensor&, Tensor&, T, T, S>(op, out));
  return out;
}

}  // namespace causeway
