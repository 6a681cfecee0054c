// What makes an operator over lists servable as a whole is found by torch's own rules: its functional form runs on meta
// tensors, tensor by tensor, and says shapes and dtypes of the results. An in-place form is served only where each result
// is what its target is, so a call that torch refuses (a float result for an integer) is torch's to refuse.
//
// Nothing is prepared for such a kernel: lists that it does not take as they are go torch's way. A kernel for given
// outputs (`_foreach_add.Scalar_out`) serves all three forms: fresh outputs, or the list itself as output and input.
#include "ladder/foreach.h"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/strides.h>

#include "ladder/arguments.h"
#include "runtime/check.h"
#include "ladder/outputs.h"
#include "ladder/overlap.h"
#include "runtime/profile.h"
#include "ladder/served.h"
#include "runtime/storage.h"

namespace causeway {

namespace {

constexpr const char* kPrefix = "aten::_foreach_";

struct Span {
  const char *begin, *end;
  const at::Tensor* tensor;
  int64_t place;  // in its list; -1: not in a list
};

Span span_of(const at::Tensor& t, int64_t place) {
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  const char* begin = static_cast<const char*>(t.const_data_ptr());
  return {begin, t.numel() ? begin + (last + 1) * static_cast<int64_t>(t.element_size()) : begin, &t, place};
}

class ForeachCall : ServedCall {
 public:
  ForeachCall(Operator& op, Offers& offers, Stack& stack) : ServedCall(op, offers, stack) {}

  bool serve(Entry& entry);

 private:
  bool in_place() const { return op_.return_of.empty(); }
  bool overlaps() const;
  bool refuses_bool() const;
  std::shared_ptr<Route> decide() const;
  Serve after(Serve serve, const Route& route) const;
  bool any_number() const;
  bool fits(const cw_op& form, const Route& route) const;
  bool run(const Route& route, Entry& entry);
};

// Whether something written shares memory with another tensor of the call, but for an input in its own place. torch does
// one tensor after the other, so the second sees what the first wrote; or it refuses.
bool ForeachCall::overlaps() const {
  if (!in_place()) return false;
  std::vector<Span> written, read;
  each_tensor([&](const at::Tensor& t, const ArgInfo& info, int64_t place) {
    if (t.numel() && t.device().type() == kDeviceType) (info.write ? written : read).push_back(span_of(t, place));
    return true;
  });
  const auto by_begin = [](const Span& a, const Span& b) { return a.begin < b.begin; };
  if (!std::is_sorted(written.begin(), written.end(), by_begin)) std::sort(written.begin(), written.end(), by_begin);
  for (size_t i = 0; i < written.size(); ++i) {
    if (i && written[i].begin < written[i - 1].end) return true;
    if (overlaps_itself(*written[i].tensor)) return true;
  }
  for (const Span& r : read) {
    auto w = std::lower_bound(written.begin(), written.end(), r,
                              [](const Span& a, const Span& b) { return a.end <= b.begin; });
    for (; w != written.end() && w->begin < r.end; ++w)
      if (w->place != r.place || w->begin != r.begin || w->tensor->sizes() != r.tensor->sizes() ||
          w->tensor->strides() != r.tensor->strides())
        return true;
  }
  return false;
}

// Where torch's kernels refuse bool and its meta kernels do not: of a difference, and of a sign turned around.
bool ForeachCall::refuses_bool() const {
  if (!op_.facts.refuses_bool) return false;
  const auto is_bool = [](const c10::IValue& v) {
    return v.isBool() || (v.isTensor() && v.toTensor().defined() && v.toTensor().scalar_type() == at::kBool);
  };
  for (size_t i = 0; i < op_.args.size(); ++i) {
    if (is_bool(arg(i))) return true;
    if (!arg(i).isList()) continue;
    const auto list = arg(i).toListRef();
    if (std::any_of(list.begin(), list.end(), is_bool)) return true;
  }
  return false;
}

std::shared_ptr<Route> ForeachCall::decide() const {
  auto route = std::make_shared<Route>();
  if (refuses_bool()) return route;
  const bool plain = each_tensor([&](const at::Tensor& t, const ArgInfo& info, int64_t place) {
    if (!t.defined() || t.layout() != at::kStrided || t.is_quantized() || t.is_nested() || t.is_conj() || t.is_neg())
      return false;
    if (t.device().type() == kDeviceType) return t.device().index() == device_.index;
    return t.is_cpu() && t.dim() == 0 && !info.write && place < 0;
  });
  if (!plain) return route;
  at::AutoDispatchBelowADInplaceOrView below;
  std::optional<c10::OperatorHandle> functional;
  if (in_place() && !(functional = functional_form(op_.handle.schema()))) return route;
  Stack meta;
  if (!run_meta(op_, stack_, meta, functional ? &*functional : nullptr)) return route;
  if (!meta.back().isTensorList()) return route;
  size_t k = 0;
  const auto results = meta.back().toListRef();
  for (const c10::IValue& e : results) {
    const at::Tensor& t = e.toTensor();
    if (t.layout() != at::kStrided || !has_dtype(device_, t.scalar_type())) return route;
    if (in_place()) {
      const auto targets = arg(0).toListRef();
      if (results.size() != targets.size()) return route;
      const at::Tensor& target = targets[k++].toTensor();
      if (target.scalar_type() != t.scalar_type() || target.sizes() != t.sizes()) return route;
    }
    route->outs.push_back({c10::DimVector(t.sizes()), c10::DimVector(t.strides()), t.scalar_type()});
  }
  route->serve = after(Serve::Nobody, *route);
  return route;
}

// The first way after `serve` that takes the call.
Serve ForeachCall::after(Serve serve, const Route& route) const {
  for (Serve next : {Serve::Own, Serve::Out, Serve::PortableOwn, Serve::PortableOut}) {
    if (next <= serve || !fits(form_of(next), route)) continue;
    if (next < Serve::PortableOwn || portable_serves(op_)) return next;
  }
  return Serve::Nobody;
}

// Whether something is given that the signature may leave out.
bool ForeachCall::any_number() const {
  const auto is_number = [](const c10::IValue& v) {
    return v.isScalar() || v.isDoubleList() || (v.isTensor() && v.toTensor().defined() && v.toTensor().is_cpu());
  };
  for (size_t i = 0; i < op_.args.size(); ++i) {
    if (is_number(arg(i))) return true;
    if (!arg(i).isList()) continue;
    const auto list = arg(i).toListRef();
    if (std::any_of(list.begin(), list.end(), is_number)) return true;
  }
  return false;
}

// Whether `form` takes the lists as they are.
bool ForeachCall::fits(const cw_op& form, const Route& route) const {
  if (!form.kernel) return false;
  c10::ScalarType common = c10::ScalarType::Undefined;
  const auto taken = [&](c10::ScalarType dtype) {
    if (!takes(form, dtype)) return false;
    if (common == c10::ScalarType::Undefined) common = dtype;
    return dtype == common || !(form.needs & CW_NEEDS_PROMOTION);
  };
  const auto counts = [&](int64_t numel) { return numel > 0 || !(form.needs & CW_NEEDS_ELEMENTS); };
  for (const OutMeta& out : route.outs) {
    if (!taken(out.dtype) || !counts(c10::multiply_integers(out.sizes))) return false;
    if ((form.needs & CW_NEEDS_CONTIGUOUS) && !in_place() &&
        at::IntArrayRef(c10::contiguous_strides(out.sizes)) != at::IntArrayRef(out.strides))
      return false;
  }
  return each_tensor([&](const at::Tensor& t, const ArgInfo&, int64_t place) {
    if (t.device().type() != kDeviceType) return (form.needs & CW_TAKES_NUMBERS) != 0;
    if (!taken(t.scalar_type()) || !counts(t.numel())) return false;
    if ((form.needs & CW_NEEDS_CONTIGUOUS) && !t.is_contiguous()) return false;
    return !(form.needs & CW_NEEDS_BROADCAST) || place < 0 || place >= static_cast<int64_t>(route.outs.size()) ||
           t.sizes() == at::IntArrayRef(route.outs[place].sizes);
  });
}

bool ForeachCall::run(const Route& route, Entry& entry) {
  const Serve serve = route.serve;
  const bool through_out = serve == Serve::Out || serve == Serve::PortableOut;
  const bool portable = serve >= Serve::PortableOwn;
  const Rung rung = portable ? Rung::Portable : through_out ? Rung::Derived : Rung::Native;
  const cw_op& form = form_of(serve);
  const auto& schema = op_.handle.schema().arguments();
  at::AutoDispatchBelowADInplaceOrView below;
  bool watched = false;  // something that is written to
  each_tensor([&](const at::Tensor& t, const ArgInfo& info, int64_t) {
    if (info.write) watched |= materialize(*t.storage().unsafeGetStorageImpl());
    return true;
  });
  c10::IValue outs;
  if (in_place()) {
    outs = arg(0);
  } else {
    c10::List<at::Tensor> fresh;
    fresh.reserve(route.outs.size());
    const c10::Device where(kDeviceType, static_cast<c10::DeviceIndex>(device_.index));
    for (const OutMeta& out : route.outs)
      fresh.push_back(at::empty_strided(out.sizes, out.strides, at::TensorOptions().dtype(out.dtype).device(where)));
    outs = std::move(fresh);
  }
  Arguments arguments(device_);
  if (through_out || !in_place()) arguments.add_list(outs);
  for (size_t i = 0; i < op_.args.size(); ++i)
    arguments.add(arg(i), schema[i], form.needs & CW_TAKES_NUMBERS, /*random_count=*/0);
  Profiled span(Work::Kernel, (through_out ? offers_.out_name : offers_.own_name).c_str(), &stream_);
  span.serves(op_.name.c_str(), kRungNames[static_cast<int>(rung)]);
  const cw_status status =
      arguments.run({form.kernel, op_.name.c_str(), (through_out ? offers_.out_name : offers_.own_name).c_str(),
                     rung == Rung::Portable, route.has_taken()},
                    stream_);
  if (status != CW_OK) span.drop();
  if (status == CW_UNSUPPORTED) return false;
  if (status != CW_OK)
    fail_status(status, op_.name.c_str(), device_.index, c10::str(" of ", route.outs.size(), " tensors"));
  route.took_call();
  if (C10_UNLIKELY(watched))
    each_tensor([](const at::Tensor& t, const ArgInfo& info, int64_t) {
      if (info.write) wrote(*t.storage().unsafeGetStorageImpl());
      return true;
    });
  entry.served(rung, route.outs.empty() ? c10::ScalarType::Undefined : route.outs[0].dtype);
  // torch leaves this to the kernel of an operator over lists; the CPU's calls the operator of each tensor, which does it.
  each_tensor([](const at::Tensor& t, const ArgInfo& info, int64_t) {
    if (info.write && !t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
    return true;
  });
  torch::jit::drop(stack_, op_.args.size());
  if (!op_.return_of.empty()) stack_.push_back(std::move(outs));
  return true;
}

bool ForeachCall::serve(Entry& entry) {
  Key key = signature(op_, stack_);
  std::shared_ptr<Route> route = offers_.routes.find(key);
  if (!route) offers_.routes.remember(key, route = decide());
  if (route->serve == Serve::Nobody || overlaps()) return false;
  // Declined: one rung down, and for good, unless it may have been for a number that the signature leaves out.
  const bool for_good = !any_number();
  while (!run(*route, entry)) {
    auto next = std::make_shared<Route>();
    next->outs = route->outs, next->serve = after(route->serve, *route);
    route = std::move(next);
    if (for_good) offers_.routes.remember(key, route);
    if (route->serve == Serve::Nobody) return false;
  }
  return true;
}

// ---- registration -------------------------------------------------------------------------------------------------------

using List = at::TensorList;
using Lists = std::vector<at::Tensor>;
using Numbers = at::ArrayRef<at::Scalar>;

// Whether `schema` says in torch's words what C++ type T says.
template <class T>
bool same_type(const c10::Argument& a) {
  using U = std::decay_t<T>;
  const c10::TypePtr& type = a.real_type();
  const auto element = [&] {
    return type->kind() == c10::TypeKind::ListType ? type->expectRef<c10::ListType>().getElementType()->kind()
                                                   : c10::TypeKind::AnyType;
  };
  if constexpr (std::is_same_v<U, List>) return element() == c10::TypeKind::TensorType;
  if constexpr (std::is_same_v<U, Numbers>) return element() == c10::TypeKind::NumberType;
  if constexpr (std::is_same_v<U, at::Tensor>) return type->kind() == c10::TypeKind::TensorType;
  if constexpr (std::is_same_v<U, at::Scalar>) return type->kind() == c10::TypeKind::NumberType;
  return false;
}

constexpr c10::DispatchKeySet kAsTheCpu(
    c10::DispatchKey::CPU);  // finds torch's composite, which has no keys of its own

template <class Return, class... Args>
struct Unboxed {
  Operator* op;

  Return operator()(Args... args) {
    if (C10_LIKELY(op->host_only.load(std::memory_order_acquire)))
      return op->handle.typed<Return(Args...)>().redispatch(kAsTheCpu, args...);
    Stack stack;
    stack.reserve(sizeof...(Args));
    (stack.emplace_back(args), ...);
    (*op)(op->handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &stack);
    if constexpr (!std::is_void_v<Return>) return std::move(stack.back()).toTensorVector();
  }
};

template <class... Args>
bool add(Operator& op, std::optional<torch::CppFunction>& out) {
  const auto& arguments = op.handle.schema().arguments();
  if (arguments.size() != sizeof...(Args)) return false;
  size_t i = 0;
  if (!(same_type<Args>(arguments[i++]) && ...)) return false;
  if (op.return_of.empty())
    out.emplace(Unboxed<void, Args...>{&op});
  else
    out.emplace(Unboxed<Lists, Args...>{&op});
  return true;
}

}  // namespace

bool is_foreach(const c10::FunctionSchema& schema) {
  if (schema.name().rfind(kPrefix, 0) != 0) return false;
  const auto& args = schema.arguments();
  if (std::any_of(args.begin(), args.end(), [](const c10::Argument& a) { return a.is_out(); })) return false;
  const auto is_list = [](const c10::TypePtr& type) {
    return type->kind() == c10::TypeKind::ListType &&
           type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::TensorType;
  };
  const auto& returns = schema.returns();
  if (returns.empty()) return !args.empty() && args[0].alias_info() && is_list(args[0].type());
  return returns.size() == 1 && is_list(returns[0].type());
}

bool call_foreach(Operator& op, Stack& stack, Entry& entry) {
  return ForeachCall(op, offers_of_call(op, stack), stack).serve(entry);
}

void call_each(Operator& op, Stack& stack) { op.handle.redispatchBoxed(kAsTheCpu, &stack); }

std::optional<torch::CppFunction> foreach_kernel(Operator& op) {
  using S = const at::Scalar&;
  using T = const at::Tensor&;
  std::optional<torch::CppFunction> out;
  (void)(add<List>(op, out) || add<List, S>(op, out) || add<List, Numbers>(op, out) || add<List, List>(op, out) ||
         add<List, List, S>(op, out) || add<List, List, Numbers>(op, out) || add<List, List, List>(op, out) ||
         add<List, List, List, S>(op, out) || add<List, List, List, Numbers>(op, out) || add<List, T>(op, out) ||
         add<List, T, S>(op, out));
  return out;
}

}  // namespace causeway
