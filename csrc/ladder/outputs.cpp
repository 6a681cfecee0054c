#include "ladder/outputs.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/index_meta_dispatch.h>
#include <c10/util/strides.h>

#include "runtime/device.h"
#include "ladder/forms.h"
#include "ladder/python.h"
#include "ladder/strides.h"

namespace causeway {

namespace {

at::Tensor as_meta(const at::Tensor& t) {
  if (!t.defined() || (t.device().type() != kDeviceType)) return t;
  at::Tensor m = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) m.unsafeGetTensorImpl()->set_wrapped_number(true);
  return m;
}

const c10::IValue& argument(const Operator& op, const Stack& stack, size_t i) {
  return stack[stack.size() - op.args.size() + i];
}

OutMeta nothing(c10::ScalarType dtype) { return {c10::DimVector{0}, c10::DimVector{1}, dtype}; }

// ---- results whose shape the kernel finds --------------------------------------------------------------------------------

using Outs = std::vector<OutMeta>;
using Args = at::ArrayRef<c10::IValue>;

// Each is empty where this call's shape does not depend on the data.

c10::ScalarType dtype_of_first(Args args) { return args[0].toTensor().scalar_type(); }

Outs begin_unique(Args args) { return {nothing(dtype_of_first(args)), nothing(at::kLong), nothing(at::kLong)}; }

Outs begin_as_first(Args args) { return {nothing(dtype_of_first(args))}; }

Outs begin_index(Args args) { return takes_mask(args[1]) ? begin_as_first(args) : Outs{}; }

Outs begin_bincount(Args args) {
  if (!args[1].isTensor() || !args[1].toTensor().defined()) return {nothing(at::kLong)};
  return {nothing(args[1].toTensor().scalar_type() == at::kFloat ? at::kFloat : at::kDouble)};  // of the weights
}

Outs begin_nonzero(Args args) {
  const c10::DimVector none{0, args[0].toTensor().dim()};
  return {{none, c10::contiguous_strides(none), at::kLong}};
}

// Into a given tensor.
Outs begin_given(Args args) {
  return args.back().toTensor().scalar_type() == dtype_of_first(args) ? begin_as_first(args) : Outs{};
}

Outs begin(Begins how, Args args) {
  switch (how) {
    case Begins::Known:
      break;
    case Begins::Unique:
      return begin_unique(args);
    case Begins::AsFirst:
      return begin_as_first(args);
    case Begins::Index:
      return begin_index(args);
    case Begins::Bincount:
      return begin_bincount(args);
    case Begins::Nonzero:
      return begin_nonzero(args);
    case Begins::Given:
      return begin_given(args);
  }
  return {};
}

// torch resizes a given tensor to a dense one; the operator that allocates its result knows the strides.
void take_strides_of_functional(const Operator& op, const Stack& stack, size_t r, OutMeta* out) {
  const auto functional = functional_form(op.handle.schema());
  Stack fresh;
  if (!functional || !run_meta(op, stack, fresh, &*functional)) return;
  const c10::IValue& result = fresh[functional->schema().arguments().size() + r];
  if (!result.isTensor() || result.toTensor().sizes() != at::IntArrayRef(out->sizes)) return;
  out->strides = c10::DimVector(result.toTensor().strides());
  if (auto strides = strides_of_cpu(op, stack, r, *out)) out->strides = std::move(*strides);
}

}  // namespace

bool takes_mask(const c10::IValue& indices) {
  if (!indices.isList()) return false;
  for (const auto& e : indices.toListRef())
    if (e.isTensor() && e.toTensor().defined() &&
        (e.toTensor().scalar_type() == at::kBool || e.toTensor().scalar_type() == at::kByte))
      return true;
  return false;
}

OutMeta like(const at::Tensor& t) { return {c10::DimVector(t.sizes()), c10::DimVector(t.strides()), t.scalar_type()}; }

Stack meta_arguments(const Operator& op, const Stack& stack) {
  const size_t base = stack.size() - op.args.size();
  Stack in;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const c10::IValue& v = stack[base + i];
    if (op.args[i].kind == ArgKind::Generator) {
      in.emplace_back();
    } else if (op.args[i].kind == ArgKind::Device) {
      in.emplace_back(c10::Device(at::kMeta));
    } else if (v.isTensor()) {
      in.emplace_back(as_meta(v.toTensor()));
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(as_meta(t));
      in.emplace_back(std::move(list));
    } else if (op.args[i].kind == ArgKind::OptionalTensorList && v.isList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& e : v.toListRef())
        list.push_back(e.isTensor() ? std::optional(as_meta(e.toTensor())) : std::nullopt);
      in.emplace_back(std::move(list));
    } else {
      in.push_back(v);
    }
  }
  return in;
}

bool run_meta(const Operator& op, const Stack& stack, Stack& meta, const c10::OperatorHandle* form) {
  for (size_t i = 0; i < op.args.size(); ++i)
    if (op.args[i].kind == ArgKind::TensorList && !stack[stack.size() - op.args.size() + i].isTensorList())
      return false;
  Stack in = meta_arguments(op, stack);
  if (form) in.resize(form->schema().arguments().size());
  meta = in;
  Stack results = std::move(in);
  try {
    (form ? *form : op.handle).redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &results);
  } catch (const std::exception&) {
    // No meta kernel, or arguments that do not fit: the host rung serves the one and has torch's own words for the other.
    // What torch has for CUDA alone is described by what computes it.
    if (form || (op.facts.reach != Reach::Offered && op.handle.hasKernelForDispatchKey(c10::DispatchKey::CPU)))
      return false;
    results = meta;
    try {
      if (!compose(op, results)) return false;
    } catch (const std::exception&) {
      return false;
    }
  }
  for (auto& r : results) meta.push_back(std::move(r));
  return true;
}

bool describe_outputs(const Operator& op, const Stack& stack, const DeviceState& device, Outs* outs) {
  const auto& arguments = op.handle.schema().arguments();
  Stack meta;
  bool known = run_meta(op, stack, meta);
  std::optional<c10::OperatorHandle> form;  // some have a meta kernel without out= only
  if (!known && !arguments.empty() && arguments.back().is_out()) {
    form = functional_form(op.handle.schema());
    known = form && run_meta(op, stack, meta, &*form);
  }
  const int8_t model = op.facts.like;  // without a meta kernel: dense, of its shape and dtype
  if (!known && model < 0) {
    if (!op.foreign || !describe_by_python(op, stack, outs)) return false;
    return std::all_of(outs->begin(), outs->end(), [&](const OutMeta& o) {
      return o.dtype == c10::ScalarType::Undefined || has_dtype(device, o.dtype);
    });
  }
  const size_t results = form ? form->schema().arguments().size() : op.args.size();
  for (size_t r = 0; r < op.return_of.size(); ++r) {
    const int of = op.return_of[r];
    const bool given = of >= 0 && !form;
    const c10::IValue& v = !known ? argument(op, stack, model) : given ? meta[of] : meta[results + r];
    if (v.isInt()) {
      outs->push_back({{}, {}, c10::ScalarType::Undefined, v.toInt()});
      continue;
    }
    if (!v.isTensor()) return false;
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) {  // switched off by an output_mask
      outs->push_back({{}, {}, c10::ScalarType::Undefined});
      continue;
    }
    if (t.layout() != at::kStrided || !has_dtype(device, t.scalar_type())) return false;
    outs->push_back(like(t));
    if (!known && !given) outs->back().strides = c10::DimVector(c10::contiguous_strides(t.sizes()));
    if (given && arguments[of].is_out() && argument(op, stack, of).toTensor().sizes() != t.sizes())
      take_strides_of_functional(op, stack, r, &outs->back());
    if (of >= 0) continue;  // it keeps its own
    if (auto strides = strides_of_cpu(op, stack, r, outs->back())) outs->back().strides = std::move(*strides);
  }
  return true;
}

bool begin_empty(const Operator& op, const Stack& stack, Outs* outs) {
  if (op.facts.begins == Begins::Known || !argument(op, stack, 0).isTensor()) return false;
  *outs = begin(op.facts.begins, at::ArrayRef(stack).slice(stack.size() - op.args.size()));
  return !outs->empty();
}

bool finds_shape(const Operator& op) {
  const auto tags = op.handle.getTags();
  return std::find(tags.begin(), tags.end(), at::Tag::dynamic_output_shape) != tags.end();
}

at::Tensor laid_out_as_found(const Operator& op, const Stack& stack, at::Tensor found) {
  if (op.facts.begins == Begins::Nonzero)  // column-major
    return at::empty_strided(found.sizes(), {1, found.size(0)}, found.options()).copy_(found);
  if (op.facts.begins != Begins::Index || !takes_mask(argument(op, stack, 1))) return found;
  const at::Tensor& self = argument(op, stack, 0).toTensor();
  if (self.strides() == at::IntArrayRef(c10::contiguous_strides(self.sizes()))) return found;
  // What one mask picks lies as what an index for each of its dimensions picks.
  const auto given = argument(op, stack, 1).toListRef();
  const auto is_index = [](const c10::IValue& e) {
    return e.isTensor() && e.toTensor().defined() && e.toTensor().dim();
  };
  if (std::count_if(given.begin(), given.end(), is_index) != 1) return found;
  c10::List<std::optional<at::Tensor>> indices;
  for (const auto& e : given)
    if (!is_index(e))
      indices.push_back(std::nullopt);
    else
      for (int64_t d = 0, at = static_cast<int64_t>(indices.size()); d < e.toTensor().dim(); ++d)
        indices.push_back(at::empty({found.size(at)}, at::TensorOptions(at::kMeta).dtype(at::kLong)));
  const at::Tensor model = at::meta::index(as_meta(self), indices);
  if (model.sizes() != found.sizes() || model.strides() == found.strides()) return found;
  return at::empty_strided(found.sizes(), model.strides(), found.options()).copy_(found);
}

}  // namespace causeway
