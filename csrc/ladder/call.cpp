// Operators: their registration with torch, and the ladder.
#include "ladder/call.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <ATen/TracerMode.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include "runtime/check.h"
#include "ladder/forms.h"
#include "ladder/foreach.h"
#include "ladder/layouts.h"
#include "ladder/named.h"
#include "ladder/device_call.h"
#include "ladder/norm.h"
#include "ladder/observe.h"
#include "ladder/tracer.h"
#include "runtime/profile.h"
#include "ladder/unboxed.h"
#include "runtime/vendor.h"
#include "runtime/watched.h"

namespace py = pybind11;

namespace causeway {

namespace {

std::shared_mutex g_mutex;
std::unordered_map<const c10::FunctionSchema*, Operator*>& by_schema() {
  static auto& map = *new std::unordered_map<const c10::FunctionSchema*, Operator*>;
  return map;
}
std::vector<Operator*>& all() {
  static auto& list = *new std::vector<Operator*>;
  return list;
}

std::atomic<PyObject*> g_newcomer{nullptr};

// An operator that a library takes back: another may come under its name, and its schema at the same address.
class Retire final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    std::unique_lock lock(g_mutex);
    by_schema().erase(&op.schema());  // a call may be inside of it, and counts are read later: it is not freed
  }
};

ArgKind kind_of(const c10::Argument& arg) {
  c10::TypePtr type = arg.type();
  if (auto o = type->cast<c10::OptionalType>()) type = o->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::Tensor;
    case c10::TypeKind::GeneratorType:
      return ArgKind::Generator;
    case c10::TypeKind::DeviceObjType:
      return ArgKind::Device;
    case c10::TypeKind::ListType: {
      const auto element = type->expectRef<c10::ListType>().getElementType();
      if (element->kind() == c10::TypeKind::TensorType) return ArgKind::TensorList;
      if (auto o = element->cast<c10::OptionalType>(); o && o->getElementType()->kind() == c10::TypeKind::TensorType)
        return ArgKind::OptionalTensorList;
      return ArgKind::Other;
    }
    case c10::TypeKind::BoolType:
      return arg.name() == "pin_memory" ? ArgKind::Pin : ArgKind::Other;
    default:
      return ArgKind::Other;
  }
}

bool writes_unsaid(const Facts& facts, const std::string& arg) {
  return std::any_of(facts.writes.begin(), facts.writes.end(), [&](const char* name) { return name && arg == name; });
}

}  // namespace

Operator::Operator(const c10::OperatorHandle& h)
    : handle(h),
      name(c10::toString(h.operator_name())),
      facts(facts_of(name)),
      foreign(name.compare(0, 6, "aten::") != 0) {
  const auto& schema = h.schema();
  std::map<std::string, int> written;  // alias set -> argument
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& arg = schema.arguments()[i];
    const bool write = arg.alias_info() && arg.alias_info()->isWrite();
    args.push_back({kind_of(arg), write || writes_unsaid(facts, arg.name())});
    if (args.back().kind == ArgKind::Generator) generator = static_cast<int>(i);
    if (write)
      for (const auto& set : arg.alias_info()->beforeSets()) written[set.toQualString()] = static_cast<int>(i);
  }
  for (const auto& ret : schema.returns()) {
    int of = -1;
    if (ret.alias_info() && ret.alias_info()->isWrite())
      for (const auto& set : ret.alias_info()->afterSets())
        if (auto it = written.find(set.toQualString()); it != written.end()) of = it->second;
    return_of.push_back(of);
  }
  const auto tagged = [tags = h.getTags()](at::Tag tag) {
    return std::find(tags.begin(), tags.end(), tag) != tags.end();
  };
  hidden_random = tagged(at::Tag::nondeterministic_seeded) && generator < 0;
  const bool answers = schema.returns().size() == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::BoolType;
  pointwise = tagged(at::Tag::pointwise) && !answers;  // torch's `equal` has the tag
  over_lists = is_foreach(schema);
}

Operator::~Operator() = default;

void Operator::force(bool on) {
  forced.store(on);
  update_host_only();
}

void Operator::observe(bool on) {
  observed.store(on);
  update_host_only();
}

void Operator::update_host_only() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  const Offers* offers = resolved.load();
  host_only.store(offers && (forced.load() || !offers->any) && !observed.load());
}

Offers& Operator::offers() {
  Offers* known = resolved.load(std::memory_order_acquire);
  if (C10_UNLIKELY(!known)) {
    known = resolve_offers(*this);
    update_host_only();
  }
  return *known;
}

void Operator::operator()(const c10::OperatorHandle&, c10::DispatchKeySet keys, Stack* stack) {
  if (C10_LIKELY(!observed.load(std::memory_order_relaxed)) || observers_are_running()) return serve(keys, *stack);
  if (over_lists && (forced.load() || !offers().any)) return serve(keys, *stack);  // what it consists of is observed
  Observation observation(*this, {stack->end() - static_cast<std::ptrdiff_t>(args.size()), stack->end()}, false);
  try {
    serve(keys, *stack);
    observation.returned({stack->end() - static_cast<std::ptrdiff_t>(return_of.size()), stack->end()});
  } catch (...) {
    observation.raised();
    throw;
  }
}

void Operator::serve(c10::DispatchKeySet keys, Stack& stack) {
  if (C10_UNLIKELY(facts.unrecorded) && at::tracer::impl::is_dispatch_enabled()) return record_convolution(stack);
  Entry entry(*this);
  if (const auto kinds = keys & kLayouts; C10_UNLIKELY(!kinds.empty())) return call_host(*this, stack, entry, kinds);
  if (C10_LIKELY(!forced.load(std::memory_order_relaxed))) {
    if (C10_UNLIKELY(offers().any) && (over_lists ? call_foreach : call_device)(*this, stack, entry)) return;
  }
  if (C10_UNLIKELY(over_lists)) return call_each(*this, stack);
  if (C10_UNLIKELY(facts.reach == Reach::Offered)) {
    call_each(*this, stack);
    return entry.served(Rung::Decomposed, c10::ScalarType::Undefined);
  }
  if (C10_UNLIKELY(foreign) && !forced.load(std::memory_order_relaxed) && call_composite(*this, keys, stack))
    return entry.served(Rung::Decomposed, c10::ScalarType::Undefined);
  call_host(*this, stack, entry);
}

int device_of_call(const Operator& op, const Stack& stack) {
  const size_t base = stack.size() - op.args.size();
  int other = -1;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const c10::IValue& v = stack[base + i];
    switch (op.args[i].kind) {
      case ArgKind::Tensor:
        if (v.isTensor())
          if (const at::Tensor& t = v.toTensor(); t.defined() && t.device().type() == kDeviceType)
            return t.device().index();
        break;
      case ArgKind::TensorList:
      case ArgKind::OptionalTensorList:
        if (v.isList())
          for (const c10::IValue& e : v.toListRef())
            if (e.isTensor() && e.toTensor().defined() && e.toTensor().device().type() == kDeviceType)
              return e.toTensor().device().index();
        break;
      case ArgKind::Device:
        if (v.isDevice() && v.toDevice().type() == kDeviceType && v.toDevice().has_index())
          other = v.toDevice().index();
        break;
      default:
        break;
    }
  }
  return other >= 0 ? other : current_device();
}

// ---- policy ---------------------------------------------------------------------------------------------------

Policy& policy() {
  static Policy p;
  return p;
}

void check_fallback(Operator& op) {
  if (!op.policed.load()) return;
  Policy& p = policy();
  if (p.budget.load() >= 0 && p.budget.fetch_sub(1) > 0) return;
  if (p.budget.load() < -1) p.budget.store(0);
  if (p.fallback == Policy::Raise)
    fail(Kind::Fallback, op.name, " would run on the host: ", vendor_name(),
         " does not offer it for this call, and the fallback policy is "
         "'error'. Let the vendor offer it, or allow it with causeway.policy(fallback=\"allow\"); `with "
         "causeway.ledger()` counts all");
  if (p.fallback == Policy::Warn && !op.warned.exchange(true))
    TORCH_WARN(op.name, " runs on the host: ", vendor_name(),
               " does not offer it for this call (said once per operator; policy 'warn')");
}

c10::ScalarType stored_dtype(const DeviceState& d, c10::ScalarType dtype, const char* what) {
  if (C10_LIKELY(has_dtype(d, dtype))) return dtype;
  using T = c10::ScalarType;
  T narrow = T::Undefined;
  switch (dtype) {
    case T::Double:
      narrow = has_dtype(d, T::Float) ? T::Float : T::Half;
      break;
    case T::ComplexDouble:
      narrow = T::ComplexFloat;
      break;
    case T::Long:
      narrow = T::Int;
      break;
    case T::UInt64:
      narrow = T::UInt32;
      break;
    case T::BFloat16:
      narrow = T::Half;
      break;
    default:
      break;
  }
  const bool possible = narrow != T::Undefined && has_dtype(d, narrow);
  if (policy().narrow && possible) {
    count_narrowed(dtype, narrow);
    return narrow;
  }
  fail(Kind::UnsupportedDtype, what, ": ", device_name(d.index), " (", d.info.name, ") has no ", c10::toString(dtype),
       ". ",
       possible ? c10::str("Use ", c10::toString(narrow),
                           ", or let Causeway narrow it: causeway.policy(dtypes=\"narrow\") or CAUSEWAY_DTYPES=narrow")
                : std::string("Convert the tensor to a dtype that the device has first"));
}

// ---- registration ---------------------------------------------------------------------------------------------

Operator& operator_for(const c10::OperatorHandle& handle) {
  const auto* key = &handle.schema();
  {
    std::shared_lock lock(g_mutex);
    if (auto it = by_schema().find(key); it != by_schema().end()) return *it->second;
  }
  // Neither torch's lock nor Python's is asked for while ours is held.
  auto fresh = std::make_unique<Operator>(handle);
  fresh->observe(watched_by(Watcher::Observer));  // observers say at its first call whether they want it
  if (PyObject* newcomer = g_newcomer.load()) {
    py::gil_scoped_acquire gil;
    const auto [forced, policed] =
        py::reinterpret_borrow<py::object>(newcomer)(fresh->name).cast<std::pair<bool, bool>>();
    fresh->force(forced);
    fresh->policed.store(policed);
  }
  std::unique_lock lock(g_mutex);
  auto& slot = by_schema()[key];
  if (!slot) all().push_back(slot = fresh.release());
  return *slot;
}

void set_newcomer(PyObject* f) { g_newcomer.store(f); }

std::vector<Operator*> operators() {
  std::shared_lock lock(g_mutex);
  return all();
}

namespace {

void fallback(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  operator_for(handle)(handle, keys, stack);
}

// Never freed: taking 1,500 kernels back would cost the end of a process milliseconds.
torch::Library* g_library;

}  // namespace

void register_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  (void)new c10::RegistrationHandleRAII(dispatcher.addRegistrationListener(std::make_unique<Retire>()));
  g_library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const c10::OperatorName& n : dispatcher.getAllOpNames()) {
    if (n.name.compare(0, 6, "aten::") != 0) continue;
    auto handle = dispatcher.findSchema(n);
    if (!handle) continue;
    const std::string name = c10::toString(n);
    const bool lists = is_foreach(handle->schema());
    const Reach reach = facts_of(name).reach;
    if (!lists && reach != Reach::Whole && reach != Reach::Offered &&
        !handle->hasKernelForDispatchKey(c10::DispatchKey::CPU))
      continue;
    if (handle->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;  // our own, in csrc/aten
    auto op = std::make_unique<Operator>(*handle);
    {
      std::unique_lock lock(g_mutex);
      by_schema()[&handle->schema()] = op.get();
      all().push_back(op.get());
    }
    const std::string bare = name.substr(6);
    if (auto kernel = lists ? foreach_kernel(*op) : unboxed_kernel(*op)) {
      g_library->impl(bare.c_str(), std::move(*kernel));
      (void)op.release();  // as long as the process
    } else {
      g_library->impl(bare.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(op)));
    }
  }
}

void register_layouts() {
  // torch finds a composite made for dense tensors before it finds a fallback: where the CPU has a kernel of its own
  // for a kind of tensors, the fallback is registered by name.
  using c10::DispatchKey;
  constexpr DispatchKey composites[] = {DispatchKey::CompositeImplicitAutograd, DispatchKey::CompositeExplicitAutograd,
                                        DispatchKey::CompositeExplicitAutogradNonFunctional,
                                        DispatchKey::CompositeImplicitAutogradNestedTensor};
  constexpr std::pair<DispatchKey, DispatchKey> kinds[] = {
      {DispatchKey::QuantizedCPU, DispatchKey::QuantizedPrivateUse1},
      {DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1},
      {DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1},
      {DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1}};
  std::array<torch::Library*, std::size(kinds)> libraries{};  // never freed either
  for (size_t k = 0; k < libraries.size(); ++k)
    libraries[k] = new torch::Library(torch::Library::IMPL, "aten", kinds[k].second, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& n : dispatcher.getAllOpNames()) {
    if (n.name.compare(0, 6, "aten::") != 0) continue;
    auto handle = dispatcher.findSchema(n);
    if (!handle) continue;
    for (size_t k = 0; k < libraries.size(); ++k) {
      const auto& [cpu, ours] = kinds[k];
      if (!handle->hasKernelForDispatchKey(cpu) || handle->hasKernelForDispatchKey(ours)) continue;
      if (std::none_of(std::begin(composites), std::end(composites),
                       [&](DispatchKey key) { return handle->hasKernelForDispatchKey(key); }))
        continue;
      libraries[k]->impl(c10::toString(n).substr(6).c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace causeway
