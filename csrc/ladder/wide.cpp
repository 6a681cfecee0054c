#include "ladder/wide.h"

#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include "ladder/call.h"

namespace causeway {

namespace {

using T = c10::ScalarType;

// The wider dtype, and what it becomes again.
T wide_of(T t) {
  switch (t) {
    case T::Half:
    case T::BFloat16:
      return T::Float;
    case T::ComplexHalf:
      return T::ComplexFloat;
    case T::Bool:
      return T::Byte;
    case T::Byte:
    case T::Char:
    case T::Short:
    case T::Int:
    case T::Long:
      return T::Double;
    default:
      return t;
  }
}

// The dtype of a result for which the kernel gave `came`, in a call that was of `narrow`.
T narrow_of(T narrow, T came) {
  if (came == wide_of(narrow)) return narrow;
  if (narrow == T::Half && came == T::ComplexFloat) return T::ComplexHalf;
  if (narrow == T::ComplexHalf && came == T::Float) return T::Half;
  return came;
}

at::Tensor cast(const at::Tensor& t, T dtype) { return at::_to_copy(t, at::TensorOptions().dtype(dtype)); }

// One call in a wider dtype.
class WideCall {
 public:
  explicit WideCall(const Operator& op) : op_(op), dtypes_(op.facts.wide) {}

  // Whether one of the arguments from `given` on, a tensor or the dtype that is asked for, is what the CPU refuses.
  bool applies(const c10::IValue* given) {
    T asked = T::Undefined, together = T::Undefined;
    bool half = false, complex_number = false;
    for (size_t i = 0; i < op_.args.size(); ++i) {
      const c10::IValue& v = given[i];
      complex_number |= v.isComplexDouble();
      if (const T dtype = dtype_in(v, i); dtype != T::Undefined) asked = dtype;
      if (op_.args[i].kind != ArgKind::Tensor || !v.isTensor() || !v.toTensor().defined()) continue;
      const T dtype = v.toTensor().scalar_type();
      if (is_out(i)) continue;
      if (dtypes_ & bit_of(dtype)) narrow_ = dtype;
      half |= dtype == T::Half;
      complex_number |= v.toTensor().dim() == 0 && c10::isComplexType(dtype);
      if (v.toTensor().dim() > 0 && (c10::isFloatingType(dtype) || c10::isComplexType(dtype)))
        together = together == T::Undefined ? dtype : c10::promoteTypes(together, dtype);
    }
    if (asked != T::Undefined && dtypes_ & bit_of(asked)) narrow_ = asked;
    if (half && complex_number && dtypes_ & bit_of(T::ComplexHalf)) {
      dtypes_ |= bit_of(T::Half);  // a complex number makes complex halves of them
      if (narrow_ == T::Undefined) narrow_ = T::Half;
    }
    const auto is_half = [](T t) { return t == T::Half || t == T::ComplexHalf; };
    const T widest = asked != T::Undefined ? asked : together;  // beside a wider tensor the result is as wide
    rounds_ = widest == T::Undefined || widest == narrow_ || (is_half(widest) && is_half(narrow_));
    return narrow_ != T::Undefined;
  }

  void keep(const c10::IValue* given) { given_.assign(given, given + op_.args.size()); }

  void run(Stack& stack, c10::DispatchKeySet keys) {
    const size_t base = stack.size();
    for (size_t i = 0; i < given_.size(); ++i) stack.push_back(widened(i));
    redispatch(stack, base, keys);
    for (const auto& [to, from] : outputs_) {
      if (at::native::resize_output(to, from.sizes())) to.as_strided_(from.sizes(), from.strides());
      to.copy_(from);
    }
    for (size_t r = base; rounds_ && r < stack.size(); ++r) {
      if (op_.return_of[r - base] >= 0 || !stack[r].isTensor()) continue;
      const at::Tensor t = stack[r].toTensor();
      const T dtype = narrow_of(narrow_, t.scalar_type());
      if (dtype != t.scalar_type()) stack[r] = cast(t, dtype);
    }
  }

 private:
  // The dtype that argument `i` asks for, or Undefined.
  T dtype_in(const c10::IValue& v, size_t i) const {
    if (op_.args[i].kind != ArgKind::Other || !v.isInt()) return T::Undefined;
    c10::TypePtr type = op_.handle.schema().arguments()[i].real_type();
    if (auto o = type->cast<c10::OptionalType>()) type = o->getElementType();
    return type->kind() == c10::TypeKind::ScalarTypeType ? static_cast<T>(v.toInt()) : T::Undefined;
  }

  bool is_out(size_t i) const { return op_.handle.schema().arguments()[i].is_out(); }

  bool is_narrow(T dtype) const { return dtypes_ & bit_of(dtype) && wide_of(dtype) != dtype; }

  c10::IValue widened(size_t i) {
    if (const T asked = dtype_in(given_[i], i); asked != T::Undefined && is_narrow(asked))
      return static_cast<int64_t>(wide_of(asked));
    if (op_.args[i].kind != ArgKind::Tensor || !given_[i].isTensor()) return given_[i];
    const at::Tensor& t = given_[i].toTensor();
    if (!t.defined() || !is_narrow(t.scalar_type())) return given_[i];
    const T wide = wide_of(t.scalar_type());
    if (!op_.args[i].write) return cast(t, wide);
    if (is_out(i) && c10::isIntegralType(t.scalar_type(), true) && t.scalar_type() != narrow_) return given_[i];
    outputs_.emplace_back(t, is_out(i) ? at::empty({0}, at::TensorOptions().dtype(wide)) : cast(t, wide));
    return outputs_.back().second;
  }

  void redispatch(Stack& stack, size_t base, c10::DispatchKeySet keys) const {
    if (!op_.facts.real_only || !stack[base].toTensor().is_complex()) return op_.handle.redispatchBoxed(keys, &stack);
    // The sum of what is left.
    const at::Tensor x = stack[base].toTensor();
    stack[base] = at::where(at::isnan(x), at::zeros({}, x.options()), x);
    const bool out = op_.handle.schema().overload_name() == "out";
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("aten::sum", out ? "IntList_out" : "dim_IntList")
        .redispatchBoxed(keys, &stack);
  }

  const Operator& op_;
  DtypeSet dtypes_;  // that are widened
  std::vector<c10::IValue> given_;
  std::vector<std::pair<at::Tensor, at::Tensor>> outputs_;  // as given, and in the wider dtype
  T narrow_ = T::Undefined;                                 // what the CPU refuses
  bool rounds_ = false;                                     // results are of that dtype
};

}  // namespace

bool may_widen(const Operator& op, const at::Tensor& t) {
  return op.facts.wide & bit_of(t.scalar_type()) || (t.dim() == 0 && t.is_complex());
}

void call_wide(const Operator& op, Stack& stack, c10::DispatchKeySet keys) {
  const size_t base = stack.size() - op.args.size();
  WideCall wide(op);
  if (C10_LIKELY(!wide.applies(&stack[base]))) return op.handle.redispatchBoxed(keys, &stack);
  wide.keep(&stack[base]);
  try {
    return op.handle.redispatchBoxed(keys, &stack);
  } catch (const c10::Error&) {  // before it did anything: kernels look at dtypes first
    stack.resize(base);
  }
  wide.run(stack, keys);
}

}  // namespace causeway
