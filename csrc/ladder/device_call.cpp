// The rungs that the vendor serves: native, where its kernel has the operator's own form, and derived, where another
// form of it does (functional and in-place through out=), or where inputs must be prepared first: made contiguous,
// expanded, cast to their common dtype. And the decomposed rung, which computes an operator from served ones.
//
// How a call is served is decided once per signature (routes.h). Shapes of outputs come from torch's meta kernels.
#include "ladder/device_call.h"
#include "ladder/observe.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty_strided.h>

#include "ladder/arguments.h"
#include "runtime/check.h"
#include "runtime/graph.h"
#include "ladder/outputs.h"
#include "ladder/fill.h"
#include "ladder/overlap.h"
#include "ladder/python.h"
#include "runtime/profile.h"
#include "ladder/served.h"
#include "runtime/storage.h"
#include "ladder/strides.h"

namespace causeway {

namespace {

// ---- serving --------------------------------------------------------------------------------------------------------------

bool has_memory(const at::Tensor& t) { return t.layout() == at::kStrided && t.has_storage(); }

// `materialize` of a tensor, or of each in a list.
bool materialize_all(const c10::IValue& v) {
  if (v.isTensor())
    return v.toTensor().defined() && has_memory(v.toTensor()) &&
           materialize(*v.toTensor().storage().unsafeGetStorageImpl());
  bool watched = false;
  if (v.isTensorList())
    for (const c10::IValue& e : v.toListRef()) watched |= materialize_all(e);
  return watched;
}

class DeviceCall : ServedCall {
 public:
  DeviceCall(Operator& op, Offers& offers, Stack& stack) : ServedCall(op, offers, stack) {}

  bool serve(Entry& entry);

 private:
  std::pair<std::shared_ptr<Route>, Key> route();
  std::shared_ptr<Route> route_in_capture(const Key& key);
  std::shared_ptr<Route> decide();
  bool may_serve() const;
  std::shared_ptr<Route> after(const Route& route);
  bool has_kernel() const;
  bool any_float() const;
  bool host_would_take() const;
  bool fits(const cw_op& form, Route& route) const;
  bool plan_decomposition(Route& route, bool in_capture = false);
  bool run(const Route& route, const cw_op& form, Entry& entry);
  bool run_program(const Route& route, Entry& entry);
  at::Tensor prepared(const at::Tensor& t, const cw_op& form, at::IntArrayRef shape, c10::ScalarType common) const;
  c10::ScalarType common_dtype() const;
  at::MemOverlapStatus read_at(const at::Tensor& written) const;
  bool overlaps() const;
  std::string words() const;
};

c10::ScalarType DeviceCall::common_dtype() const {
  at::native::ResultTypeState state{};
  each_tensor([&](const at::Tensor& t, const ArgInfo& info, int64_t) {
    if (!info.write || op_.return_of.empty() || op_.args[0].write)
      state = at::native::update_result_type_state(t, state);
    return true;
  });
  return at::native::result_type(state);
}

// Whether `form` takes this call, after the preparation that it asked for.
bool DeviceCall::fits(const cw_op& form, Route& route) const {
  if (!form.kernel) return false;
  const bool promotes = form.needs & CW_NEEDS_PROMOTION;
  const c10::ScalarType common = promotes ? common_dtype() : c10::ScalarType::Undefined;
  const bool contiguous = form.needs & CW_NEEDS_CONTIGUOUS;
  const bool broadcast = form.needs & CW_NEEDS_BROADCAST;
  std::optional<c10::DimVector> shape;
  if (!route.outs.empty()) shape = route.outs[0].sizes;
  const bool all = each_tensor([&](const at::Tensor& t, const ArgInfo& info, int64_t) {
    if (t.layout() != at::kStrided || t.is_quantized() || t.is_nested()) return false;
    const bool on_host = t.device().type() != kDeviceType;
    if (on_host && (t.dim() > 0 || info.write || !t.is_cpu() || info.kind != ArgKind::Tensor)) return false;
    if (!on_host && t.device().index() != device_.index) return false;
    if (!takes(form, !info.write && promotes ? common : t.scalar_type()) &&
        !(on_host && (form.needs & CW_TAKES_NUMBERS)))
      return false;
    if (on_host && !(form.needs & CW_TAKES_NUMBERS)) route.prepare = true;
    if (t.is_conj() || t.is_neg()) route.prepare = true;
    if (contiguous && !t.is_contiguous()) route.prepare = true;
    if (!info.write && promotes && t.scalar_type() != common) route.prepare = true;
    if (!info.write && broadcast && shape && t.sizes() != at::IntArrayRef(*shape)) route.prepare = true;
    return true;
  });
  return all && !(route.prepare && op_.facts.copies);  // what prepares is a copy itself
}

bool DeviceCall::may_serve() const {
  bool mixed = true;
  each_tensor([&](const at::Tensor& t, const ArgInfo& info, int64_t) {
    mixed = t.device().type() == kDeviceType || (t.is_cpu() && t.dim() == 0 && !info.write);
    if (t.device().type() == kDeviceType && t.device().index() != device_.index) mixed = false;
    return mixed;
  });
  if (!mixed) return false;  // the host rung has the words for it, or knows that the operator takes both
  for (const auto& r : op_.handle.schema().returns())
    if (r.alias_info() && !r.alias_info()->isWrite()) return false;  // a view is no kernel's business
  at::AutoDispatchBelowADInplaceOrView below;
  return host_would_take();
}

std::shared_ptr<Route> DeviceCall::decide() {
  auto route = std::make_shared<Route>();
  if (!may_serve()) return route;
  at::AutoDispatchBelowADInplaceOrView below;
  const bool any_kernel = has_kernel();
  if (any_kernel) {
    // Nothing to allocate, or nothing yet, or what torch says.
    if (op_.return_of.empty() || begin_empty(op_, stack_, &route->outs) ||
        describe_outputs(op_, stack_, device_, &route->outs)) {
      if (fits(offers_.own, *route)) {
        route->serve = Serve::Own;
        return route;
      }
      return after({Serve::Own, false, route->outs, nullptr});
    }
    route->outs.clear();
  }
  plan_decomposition(*route);
  return route;
}

// False for calls that torch's CPU kernel refuses and nothing on the way here would: the host rung has the words.
bool DeviceCall::host_would_take() const {
  bool any_read = false, any_element = false, any_bool = false, any_write = false;
  each_tensor([&](const at::Tensor& t, const ArgInfo& info, int64_t) {
    any_read |= !info.write;
    any_element |= !info.write && t.numel() > 0;
    any_bool |= t.scalar_type() == at::kBool;
    any_write |= info.write;
    return true;
  });
  if (!op_.pointwise && any_read && !any_element)
    return false;  // the largest of nothing; there is nothing to compute either
  // A convolution whose weight has no elements: torch refuses most, and says why.
  if (op_.facts.layout == ResultLayout::Convolution && arg(op_.facts.layout_of + 1).isTensor() &&
      arg(op_.facts.layout_of + 1).toTensor().numel() == 0)
    return false;
  if (op_.facts.picks && arg(0).toTensor().numel() == 0) return false;  // any index is out of range
  if (op_.pointwise && any_bool && !has_kernel()) return false;  // decompositions take it for a number
  if (op_.pointwise && any_bool && op_.facts.refuses_bool) return false;
  if (!any_write) return true;
  const auto& schema = op_.handle.schema();
  const auto functional = functional_form(schema);
  Stack meta;
  if (!functional || !run_meta(op_, stack_, meta, &*functional)) return true;
  // Written over, a result keeps its target's shape; and it is computed in its own dtype before it becomes the target's,
  // which not every operator allows.
  const bool out = schema.arguments().back().is_out();
  const size_t results = meta.size() - functional->schema().returns().size();
  for (size_t r = 0; r < op_.return_of.size(); ++r) {
    const int of = op_.return_of[r];
    if (of < 0 || !meta[results + r].isTensor() || !arg(of).isTensor()) continue;
    const at::Tensor &target = arg(of).toTensor(), &result = meta[results + r].toTensor();
    if (!target.defined() || !result.defined()) continue;
    if (target.scalar_type() != result.scalar_type()) return false;
    if (target.sizes() != result.sizes() && (!out || read_at(target) != at::MemOverlapStatus::No)) return false;
  }
  return true;
}

// The next way to serve the call after `route` was declined.
std::shared_ptr<Route> DeviceCall::after(const Route& route) {
  auto next = std::make_shared<Route>();
  next->outs = route.outs;
  for (Serve serve : {Serve::Out, Serve::PortableOwn, Serve::PortableOut}) {
    if (serve <= route.serve || (serve != Serve::Out && !portable_serves(op_))) continue;
    next->prepare = false;
    if (!fits(form_of(serve), *next)) continue;
    next->serve = serve;
    return next;
  }
  next->prepare = false;
  if (route.serve != Serve::Decomposed) plan_decomposition(*next);
  return next;
}

bool DeviceCall::has_kernel() const {
  return offers_.own.kernel || offers_.out.kernel ||
         (portable_serves(op_) && (offers_.portable_own.kernel || offers_.portable_out.kernel));
}

bool DeviceCall::any_float() const {
  for (size_t i = 0; i < op_.args.size(); ++i) {
    if (arg(i).isDouble() || arg(i).isDoubleList() || arg(i).isComplexDouble()) return true;
    if (arg(i).isTensor() && arg(i).toTensor().defined() && arg(i).toTensor().is_cpu()) return true;
  }
  return false;
}

bool DeviceCall::plan_decomposition(Route& route, bool in_capture) {
  auto program = plan_in_python(op_, stack_, in_capture);
  if (!program) return false;
  route.serve = Serve::Decomposed;
  route.program = std::move(program);
  return true;
}

std::pair<std::shared_ptr<Route>, Key> DeviceCall::route() {
  Key key = signature(op_, stack_);
  if (auto known = offers_.routes.find(key)) return {std::move(known), std::move(key)};
  auto route = decide();
  offers_.routes.remember(key, route);
  return {route, std::move(key)};
}

// Where the host shares the device's memory its kernel is taken before a decomposition, and a graph cannot hold it.
std::shared_ptr<Route> DeviceCall::route_in_capture(const Key& key) {
  if (auto known = offers_.routes_in_capture.find(key)) return known;
  auto route = std::make_shared<Route>();
  if (may_serve()) plan_decomposition(*route, /*in_capture=*/true);
  offers_.routes_in_capture.remember(key, route);
  return route;
}

at::Tensor DeviceCall::prepared(const at::Tensor& t, const cw_op& form, at::IntArrayRef shape,
                                c10::ScalarType common) const {
  at::Tensor p = t;
  if (p.device().type() != kDeviceType) {
    if (form.needs & CW_TAKES_NUMBERS) return p;
    p = p.to(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device_.index)));
  }
  p = p.resolve_conj().resolve_neg();
  // Whatever is needed, in one copy: views first where the result is to be dense, else after the conversion.
  const bool dense = form.needs & CW_NEEDS_CONTIGUOUS, broadcast = form.needs & CW_NEEDS_BROADCAST;
  if (dense && broadcast && p.sizes() != shape) p = p.expand(shape);
  if ((form.needs & CW_NEEDS_PROMOTION) && p.scalar_type() != common)
    p = dense ? p.to(common, /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::Contiguous) : p.to(common);
  if (broadcast && p.sizes() != shape) p = p.expand(shape);
  if (dense && !p.is_contiguous()) p = p.contiguous();
  return p;
}

// How what the call reads overlaps a tensor that it writes: not at all, in place, or shifted.
at::MemOverlapStatus DeviceCall::read_at(const at::Tensor& written) const {
  auto most = at::MemOverlapStatus::No;
  if (!has_memory(written)) return most;
  const auto* storage = written.storage().unsafeGetStorageImpl();
  each_tensor([&](const at::Tensor& read, const ArgInfo& info, int64_t) {
    if (info.write || !has_memory(read) || read.storage().unsafeGetStorageImpl() != storage) return true;
    const auto status = overlap_of(written, read);
    if (status == at::MemOverlapStatus::Partial || status == at::MemOverlapStatus::Full) most = status;
    return most != at::MemOverlapStatus::Partial;
  });
  return most;
}

// Whether an element that the call writes is another one too, or is read in another's place. torch's kernels refuse most
// such calls, warn of some and define the others by their order: the host rung does what each of them does.
bool DeviceCall::overlaps() const {
  // Some refuse an output that is an input; of others, which are to write over what they still read, `run` takes care.
  const auto& schema = op_.handle.schema();
  for (size_t i = 0; i < op_.args.size(); ++i) {
    if (!op_.args[i].write || !schema.arguments()[i].alias_info()) continue;  // a norm's statistics may share memory
    if (!arg(i).isTensor() || !arg(i).toTensor().defined()) continue;
    const at::Tensor& written = arg(i).toTensor();
    if (has_memory(written) && overlaps_itself(written)) return true;
    const auto status = read_at(written);
    if (status == at::MemOverlapStatus::Partial) return true;
    if (status == at::MemOverlapStatus::Full && !op_.pointwise &&
        (!schema.arguments()[i].is_out() || op_.facts.refuses_overlap))
      return true;
  }
  return false;
}

std::string DeviceCall::words() const {
  std::string s;
  each_tensor([&](const at::Tensor& t, const ArgInfo&, int64_t) {
    s += c10::str(s.empty() ? " of " : ", ", c10::toString(t.scalar_type()), t.sizes());
    return true;
  });
  return s;
}

bool DeviceCall::run(const Route& route, const cw_op& form, Entry& entry) {
  const bool through_out = route.serve == Serve::Out || route.serve == Serve::PortableOut;
  const bool portable = route.serve == Serve::PortableOwn || route.serve == Serve::PortableOut;
  const Rung rung = portable ? Rung::Portable : !through_out && !route.prepare ? Rung::Native : Rung::Derived;
  const auto& schema = op_.handle.schema().arguments();
  const c10::ScalarType common = form.needs & CW_NEEDS_PROMOTION ? common_dtype() : c10::ScalarType::Undefined;
  at::AutoDispatchBelowADInplaceOrView below;
  const bool begins_empty =
      finds_shape(op_) || std::any_of(route.outs.begin(), route.outs.end(), [](const OutMeta& o) { return o.found; });
  if (begins_empty)
    if (Graph* graph = graph_of(stream_); C10_UNLIKELY(graph != nullptr))
      graph->refuse(op_.name + ", the size of whose result depends on data,",
                    "Call it outside of the capture, or compute with masks of a fixed size");

  // Outputs: given ones, or fresh ones of the shape that torch says.
  c10::SmallVector<at::Tensor, 4> outs, targets;
  bool watched = false;  // something that is written to
  for (size_t r = 0; r < op_.return_of.size(); ++r) {
    const OutMeta& meta = route.outs[r];
    if (meta.dtype == c10::ScalarType::Undefined) {
      outs.emplace_back();
      targets.emplace_back();
      continue;
    }
    const int of = op_.return_of[r];
    at::Tensor target;
    bool is_read = false;  // elsewhere in the call
    if (of >= 0) {
      target = arg(of).toTensor();
      is_read = schema[of].is_out() && read_at(target) != at::MemOverlapStatus::No;
      if (is_read && target.sizes() != at::IntArrayRef(meta.sizes))
        return false;  // resized, it would no longer be the input: the host has the words
      if (schema[of].is_out() && at::native::resize_output(target, meta.sizes))
        target.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes, meta.strides);
      watched |= materialize(*target.storage().unsafeGetStorageImpl());
    }
    at::Tensor out = target;
    // A kernel may read its inputs after it wrote outputs, so only a pointwise one may write over them.
    const bool own_memory = of >= 0 && !((through_out || is_read) && !op_.pointwise) && !target.is_conj() &&
                            !target.is_neg() && (!(form.needs & CW_NEEDS_CONTIGUOUS) || target.is_contiguous()) &&
                            target.scalar_type() == meta.dtype;
    if (!own_memory) {
      const auto options = at::TensorOptions()
                               .dtype(meta.dtype)
                               .device(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device_.index)));
      const auto dense = c10::contiguous_strides(meta.sizes);
      const bool as_asked =
          !(form.needs & CW_NEEDS_CONTIGUOUS) || at::IntArrayRef(dense) == at::IntArrayRef(meta.strides);
      out = at::empty_strided(meta.sizes, as_asked ? meta.strides : dense, options);
      if (!target.defined() && !as_asked) target = at::empty_strided(meta.sizes, meta.strides, options);
      if (of >= 0 && !through_out && !schema[of].is_out()) out.copy_(target);  // in place: it is read as well
    }
    outs.push_back(out);
    targets.push_back(target);
  }
  const auto is_empty = [](const at::Tensor& o) { return o.defined() && o.numel() == 0; };
  const bool skip = (form.needs & CW_NEEDS_ELEMENTS) && !outs.empty() && is_empty(outs[0]) && !begins_empty;
  if (skip && !std::all_of(outs.begin(), outs.end(), [&](const at::Tensor& o) { return !o.defined() || is_empty(o); }))
    return false;  // statistics of nothing, say
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> beside;  // written, no results: running statistics
  if (!skip) {
    const at::IntArrayRef shape = outs.empty() || !outs[0].defined() ? at::IntArrayRef() : outs[0].sizes();
    uint64_t count = 0;
    for (const auto& o : outs)
      if (o.defined()) count = std::max<uint64_t>(count, o.numel());
    if (outs.empty())
      each_tensor([&](const at::Tensor& t, const ArgInfo&, int64_t) { return count = t.numel(), false; });
    const bool numbers = form.needs & CW_TAKES_NUMBERS;
    Arguments arguments(device_);
    for (const auto& o : outs) arguments.add(o);
    for (size_t i = 0; i < op_.args.size(); ++i) {
      const bool is_result =
          std::find(op_.return_of.begin(), op_.return_of.end(), static_cast<int>(i)) != op_.return_of.end();
      if (is_result && !(through_out && !schema[i].is_out())) continue;
      if (!portable && static_cast<int>(i) == offers_.left_out) continue;
      const c10::IValue& v = arg(i);
      if (op_.args[i].write && !is_result) watched |= materialize_all(v);
      if (!route.prepare || op_.args[i].kind == ArgKind::Other) {
        arguments.add(v, schema[i], numbers, count);
      } else if (v.isTensor() && v.toTensor().defined()) {
        const at::Tensor fit = prepared(v.toTensor(), form, shape, common);
        if (op_.args[i].write && !is_result && !fit.is_same(v.toTensor())) beside.emplace_back(v.toTensor(), fit);
        arguments.add(c10::IValue(fit), schema[i], numbers, count);
      } else if (v.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : v.toTensorVector()) list.push_back(prepared(t, form, shape, common));
        arguments.add(c10::IValue(list), schema[i], numbers, count);
      } else {
        arguments.add(v, schema[i], numbers, count);
      }
    }
    if (portable && op_.hidden_random) arguments.add_random(count);
    Profiled span(Work::Kernel, (through_out ? offers_.out_name : offers_.own_name).c_str(), &stream_);
    span.serves(op_.name.c_str(), kRungNames[static_cast<int>(rung)]);
    const cw_status status =
        arguments.run({form.kernel, op_.name.c_str(), (through_out ? offers_.out_name : offers_.own_name).c_str(),
                       portable || is_fill_kernel(form.kernel), route.has_taken()},
                      stream_);
    if (status != CW_OK) span.drop();
    if (status == CW_UNSUPPORTED) return false;
    if (status != CW_OK) fail_status(status, op_.name.c_str(), device_.index, words());
    route.took_call();
    if (C10_UNLIKELY(watched))
      each_tensor([](const at::Tensor& t, const ArgInfo& info, int64_t) {
        if (info.write && has_memory(t)) wrote(*t.storage().unsafeGetStorageImpl());
        return true;
      });
  }
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  each_tensor([&](const at::Tensor& t, const ArgInfo&, int64_t) { return dtype = t.scalar_type(), false; });
  entry.served(rung, dtype);
  if (begins_empty) outs[0] = laid_out_as_found(op_, stack_, std::move(outs[0]));
  for (size_t r = 0; r < outs.size(); ++r)
    if (targets[r].defined() && !outs[r].is_same(targets[r])) targets[r].copy_(outs[r]);
  for (auto& [given, fit] : beside) given.copy_(fit);
  torch::jit::drop(stack_, op_.args.size());
  for (size_t r = 0; r < outs.size(); ++r) {
    if (const auto& number = route.outs[r].number)
      stack_.emplace_back(*number);
    else
      stack_.emplace_back(targets[r].defined() ? targets[r] : outs[r]);
  }
  return true;
}

bool DeviceCall::run_program(const Route& route, Entry& entry) {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  each_tensor([&](const at::Tensor& t, const ArgInfo&, int64_t) { return dtype = t.scalar_type(), false; });
  Profiled span(Work::Host, op_.name.c_str());
  span.serves(op_.name.c_str(), kRungNames[static_cast<int>(Rung::Decomposed)]);
  std::vector<bool> empty;  // what the call gave to be resized
  for (const int of : op_.return_of)
    empty.push_back(of >= 0 && arg(of).isTensor() && arg(of).toTensor().defined() && arg(of).toTensor().numel() == 0);
  std::vector<c10::IValue> results = run_in_python(route.program.get(), op_, stack_);
  entry.served(Rung::Decomposed, dtype);
  for (size_t r = 0; r < results.size(); ++r) {
    if (!results[r].isTensor() || !results[r].toTensor().defined()) continue;
    const at::Tensor t = results[r].toTensor();
    const bool given = op_.return_of[r] >= 0;
    if (given && (!empty[r] || t.numel() == 0)) continue;  // it keeps its own strides
    const auto strides = strides_of_cpu(op_, stack_, r, like(t));
    if (!strides || t.strides() == at::IntArrayRef(*strides)) continue;
    const at::Tensor laid_out = at::empty_strided(t.sizes(), *strides, t.options()).copy_(t);
    if (given)
      t.as_strided_(t.sizes(), *strides).copy_(laid_out);
    else
      results[r] = laid_out;
  }
  torch::jit::drop(stack_, op_.args.size());
  for (auto& value : results) stack_.push_back(std::move(value));
  return true;
}

bool DeviceCall::serve(Entry& entry) {
  if (overlaps()) return false;
  auto [r, key] = route();
  for (;;) {
    if (C10_UNLIKELY(r->serve == Serve::Nobody && graph_of(stream_))) r = route_in_capture(key);
    bool done = false;
    switch (r->serve) {
      case Serve::Nobody:
        return false;
      case Serve::Own:
      case Serve::Out:
      case Serve::PortableOwn:
      case Serve::PortableOut:
        done = run(*r, form_of(r->serve), entry);
        break;
      case Serve::Decomposed:
        done = run_program(*r, entry);
        break;
    }
    if (done) return true;
    // Declined: one rung down, and for good, unless it may have been for a number that the signature leaves out.
    r = after(*r);
    if (!any_float()) offers_.routes.remember(key, r);
  }
}

}  // namespace

bool call_device(Operator& op, Stack& stack, Entry& entry) {
  return DeviceCall(op, offers_of_call(op, stack), stack).serve(entry);
}

void forget_routes() {
  for (Operator* op : operators())
    if (Offers* offers = op->resolved.load()) {
      offers->routes.forget();
      offers->routes_in_capture.forget();
      for (auto& one : offers->by_device) one->routes.forget(), one->routes_in_capture.forget();
    }
}

}  // namespace causeway
