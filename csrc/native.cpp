// The rungs that the vendor serves: native, where its kernel has the operator's own form, and derived, where another
// form of it does (functional and in-place through out=), or where inputs must be prepared first: made contiguous,
// expanded, cast to their common dtype. And the decomposed rung, which computes an operator from served ones.
//
// How a call is served is decided once per signature and remembered: dtypes, sizes, strides and devices of tensors, and
// the values of all arguments but floating-point numbers, which shapes depend on only where no tensor is read. Shapes of outputs come from
// torch's meta kernels.
#include "native.h"

#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "allocator.h"
#include "check.h"
#include "generator.h"
#include "profile.h"
#include "storage.h"
#include "vendor.h"

namespace causeway {

namespace {

using Key = c10::SmallVector<int64_t, 48>;

struct HashKey {
  size_t operator()(const Key& key) const {
    uint64_t h = 0x9E3779B97F4A7C15ull;
    for (int64_t v : key) h = (h ^ static_cast<uint64_t>(v)) * 0xff51afd7ed558ccdull, h ^= h >> 32;
    return h;
  }
};

struct OutMeta {
  c10::DimVector sizes, strides;
  c10::ScalarType dtype;
};

enum class Serve : uint8_t { Nobody, Own, Out, Decomposed };

struct Route {
  Serve serve = Serve::Nobody;
  bool prepare = false;  // inputs or outputs must be made fit; then the rung is derived
  std::vector<OutMeta> outs;  // of outputs that are not arguments, or sizes that out= arguments must get
  std::shared_ptr<PyObject> program;
};

constexpr size_t kMaxRoutes = 1024;  // per operator; a number that changes at each call must not fill memory

std::atomic<PyObject*> g_decomposer{nullptr};

}  // namespace

struct Routes {
  std::shared_mutex mutex;
  std::unordered_map<Key, std::shared_ptr<Route>, HashKey> map;
};

namespace {

// ---- what is offered ---------------------------------------------------------------------------------------------

cw_op find(const std::string& name) {
  cw_op op{};
  op.struct_size = sizeof op;
  const cw_status status = api().op_find(name.c_str(), &op);
  if (status == CW_UNSUPPORTED) return {};
  check(status, "op_find", -1);
  if (!op.dtypes) op.dtypes = CW_ALL_DTYPES;
  return op;
}

// Vendors know torch's convolution for foreign devices by another name, with the same arguments.
cw_op find_own(std::string& name) {
  cw_op op = find(name);
  if (!op.kernel && name == "aten::convolution") {
    op = find("aten::convolution_overrideable");
    if (op.kernel) name = "aten::convolution_overrideable";
  }
  return op;
}

// The gradient's other name leaves out the bias's shape, argument 3.
constexpr const char* kConvolutionBackward = "aten::convolution_backward";
constexpr int kBiasShape = 3;

bool same_argument(const c10::Argument& a, const c10::Argument& b) {
  return a.name() == b.name() && *a.real_type() == *b.real_type();
}

// All overloads of an operator's base name, "aten::add".
const std::vector<c10::OperatorName>& names_of(const std::string& base) {
  static const auto& all = *[] {
    auto* map = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const auto& n : c10::Dispatcher::singleton().getAllOpNames()) (*map)[n.name].push_back(n);
    return map;
  }();
  static const std::vector<c10::OperatorName> none;
  auto it = all.find(base);
  return it == all.end() ? none : it->second;
}

// The name of the form of `schema` that writes into given outputs, or "".
std::string out_form(const c10::FunctionSchema& schema) {
  std::string base = schema.name();
  const bool in_place = !schema.arguments().empty() && schema.arguments()[0].alias_info() &&
                        schema.arguments()[0].alias_info()->isWrite();
  if (in_place && base.size() > 6 && base.back() == '_') base.pop_back();
  for (const auto& name : names_of(base)) {
    auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle) continue;
    const auto& other = handle->schema();
    const size_t n = schema.arguments().size();
    if (other.arguments().size() != n + schema.returns().size() || schema.returns().empty()) continue;
    bool fits = true;
    for (size_t i = 0; fits && i < n; ++i)
      fits = same_argument(schema.arguments()[i], other.arguments()[i]) && !other.arguments()[i].is_out();
    for (size_t i = n; fits && i < other.arguments().size(); ++i) fits = other.arguments()[i].is_out();
    if (fits) return c10::toString(name);
  }
  return "";
}

// The dtype that the operator computes, before it is put into the outputs that were given; nothing where that is not
// known. torch's meta kernels do not all refuse what cannot be cast, as its CPU kernels do.
std::optional<c10::OperatorHandle> functional_form(const c10::FunctionSchema& schema) {
  std::string base = schema.name();
  const auto& args = schema.arguments();
  size_t n = 0;
  while (n < args.size() && !args[n].is_out()) ++n;
  const bool in_place = n == args.size();
  if (in_place && base.back() == '_') base.pop_back();
  for (const auto& name : names_of(base)) {
    auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle || handle->schema().arguments().size() != n) continue;
    bool fits = true;
    for (size_t k = 0; fits && k < n; ++k) {
      const auto& other = handle->schema().arguments()[k];
      fits = same_argument(args[k], other) && !(other.alias_info() && other.alias_info()->isWrite());
    }
    if (fits) return handle;
  }
  return std::nullopt;
}

// ---- signatures -----------------------------------------------------------------------------------------------------

void add_tensor(Key& key, const at::Tensor& t) {
  if (!t.defined()) return key.push_back(-2);
  const auto* impl = t.unsafeGetTensorImpl();
  key.push_back(static_cast<int64_t>(t.scalar_type()) | (t.is_conj() << 8) | (t.is_neg() << 9) |
                (impl->is_wrapped_number() << 10) | (static_cast<int64_t>(t.device().type()) << 16) |
                (int64_t{t.device().index()} << 24) | (impl->dim() << 40));
  for (int64_t s : impl->sizes()) key.push_back(s);
  for (int64_t s : impl->strides()) key.push_back(s);
}

void add_value(Key& key, const c10::IValue& v, bool floats) {
  if (v.isTensor()) return add_tensor(key, v.toTensor());
  if (v.isInt()) return key.push_back(v.toInt() * 8 + 1);
  if (v.isBool()) return key.push_back(v.toBool() * 8 + 2);
  if (v.isDouble()) {
    key.push_back(3);
    if (floats) {
      int64_t bits;
      const double d = v.toDouble();
      std::memcpy(&bits, &d, sizeof bits);
      key.push_back(bits);
    }
    return;
  }
  if (v.isNone()) return key.push_back(4);
  if (v.isIntList() || v.isTensorList() || v.isList()) {
    const auto list = v.toListRef();
    key.push_back(static_cast<int64_t>(list.size()) * 8 + 5);
    for (const auto& e : list) add_value(key, e, floats);
    return;
  }
  if (v.isDevice()) return key.push_back((int64_t{v.toDevice().index()} << 8 | int64_t(v.toDevice().type())) * 8 + 6);
  if (v.isString()) return key.push_back(static_cast<int64_t>(std::hash<std::string>()(v.toStringRef())));
  key.push_back(7);  // a generator, a complex number
}

// Outputs do not count: arange.start_out has one, and its shape still depends on floating-point numbers.
bool reads_tensor(const Operator& op) {
  for (const ArgInfo& a : op.args)
    if (!a.write &&
        (a.kind == ArgKind::Tensor || a.kind == ArgKind::TensorList || a.kind == ArgKind::OptionalTensorList))
      return true;
  return false;
}

// ---- shapes of outputs -------------------------------------------------------------------------------------------------

at::Tensor as_meta(const at::Tensor& t) {
  if (!t.defined() || (t.device().type() != kDeviceType)) return t;
  at::Tensor m = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) m.unsafeGetTensorImpl()->set_wrapped_number(true);
  return m;
}

// Run the operator on meta tensors; `meta` gets its arguments (outputs resized) and its results. False where torch cannot.
// `form`: another form of the operator, with the first of its arguments.
bool run_meta(const Operator& op, const Stack& stack, Stack& meta, const c10::OperatorHandle* form = nullptr) {
  const size_t base = stack.size() - op.args.size();
  Stack in;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const c10::IValue& v = stack[base + i];
    switch (op.args[i].kind) {
      case ArgKind::Tensor:
        in.emplace_back(v.isTensor() ? c10::IValue(as_meta(v.toTensor())) : v);
        break;
      case ArgKind::TensorList: {
        if (!v.isTensorList()) return false;
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : v.toTensorVector()) list.push_back(as_meta(t));
        in.emplace_back(std::move(list));
        break;
      }
      case ArgKind::OptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& e : v.toListRef())
          list.push_back(e.isTensor() ? std::optional(as_meta(e.toTensor())) : std::nullopt);
        in.emplace_back(std::move(list));
        break;
      }
      case ArgKind::Device:
        in.emplace_back(c10::Device(at::kMeta));
        break;
      case ArgKind::Generator:
        in.emplace_back();
        break;
      default:
        in.push_back(v);
    }
  }
  if (form) in.resize(form->schema().arguments().size());
  meta = in;
  Stack results = std::move(in);
  try {
    (form ? *form : op.handle).redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &results);
  } catch (const std::exception&) {
    // No meta kernel, or arguments that do not fit: the host rung serves the one and has torch's own words for the other.
    return false;
  }
  for (auto& r : results) meta.push_back(std::move(r));
  return true;
}

// ---- one call of a kernel ----------------------------------------------------------------------------------------------

// Holds what a cw_arg points to while the kernel runs.
class Arguments {
 public:
  explicit Arguments(DeviceState& d) : device_(d) {}

  void add(at::Tensor t) { args_.push_back(tensor(std::move(t))); }

  void add(const c10::IValue& v, const c10::Argument& schema, bool numbers, uint64_t random_count) {
    if (v.isTensor()) {
      const at::Tensor& t = v.toTensor();
      if (t.defined() && t.device().type() != kDeviceType && numbers) return args_.push_back(number(t.item()));
      return args_.push_back(tensor(t));
    }
    c10::TypePtr type = schema.real_type();
    if (auto o = type->cast<c10::OptionalType>()) type = o->getElementType();
    if (type->kind() == c10::TypeKind::GeneratorType) {
      std::optional<at::Generator> given;
      if (v.isGenerator()) given = v.toGenerator();
      generator_ = &device_generator(given, device_.index);
      philox_ = generator_->next(random_count);
      cw_arg a{CW_GENERATOR, 0, {}};
      a.v.philox = &philox_;
      return args_.push_back(a);
    }
    if (type->kind() == c10::TypeKind::ScalarTypeType && v.isInt())
      return args_.push_back(integer(CW_DTYPE, bit_of_dtype(static_cast<c10::ScalarType>(v.toInt()))));
    args_.push_back(value(v));
  }

  cw_status run(cw_kernel kernel, StreamState& stream);

  // Workspace: given back with these arguments, in the stream's order.
  cw_status scratch(uint64_t bytes, void** out);

  // For host->resize: the tensor behind a DLTensor that the kernel was given.
  cw_status resize(const DLTensor* tensor, int32_t ndim, const int64_t* shape);

 private:
  struct Held {
    at::Tensor tensor;
    DLTensor dl;
  };

  static cw_arg integer(uint32_t tag, int64_t i) {
    cw_arg a{tag, 0, {}};
    a.v.i = i;
    return a;
  }
  static cw_arg real(double d) {
    cw_arg a{CW_DOUBLE, 0, {}};
    a.v.d = d;
    return a;
  }
  cw_arg number(const at::Scalar& s) {
    if (s.isBoolean()) return integer(CW_BOOLEAN, s.toBool());
    if (s.isIntegral(false)) return integer(CW_INT, s.toLong());
    if (s.isFloatingPoint()) return real(s.toDouble());
    return value(c10::IValue(s.toComplexDouble()));
  }

  void fill(Held& h) {
    const at::Tensor& t = h.tensor;
    h.dl.data = const_cast<void*>(t.const_data_ptr());
    h.dl.device = {kDLExtDev, device_.vendor_id};
    h.dl.ndim = static_cast<int32_t>(t.dim());
    h.dl.dtype = dl_dtype(t.scalar_type());
    h.dl.shape = const_cast<int64_t*>(t.sizes().data());
    h.dl.strides = const_cast<int64_t*>(t.strides().data());
    h.dl.byte_offset = 0;
  }

  const DLTensor* hold(at::Tensor t) {
    held_.push_back(std::make_unique<Held>());
    held_.back()->tensor = std::move(t);
    fill(*held_.back());
    return &held_.back()->dl;
  }

  cw_arg tensor(at::Tensor t) {
    cw_arg a{CW_NONE, 0, {}};
    if (!t.defined()) return a;
    a.tag = CW_TENSOR;
    a.v.tensor = hold(std::move(t));
    return a;
  }

  template <class T>
  T* keep(size_t n) {
    buffers_.push_back(std::make_unique<char[]>(n * sizeof(T) + 1));
    return reinterpret_cast<T*>(buffers_.back().get());
  }

  cw_arg list(const c10::IValue& v) {
    const auto items = v.toListRef();
    cw_arg a{CW_INT_LIST, static_cast<uint32_t>(items.size()), {}};
    if (v.isTensorList() || v.isOptionalTensorList()) {
      auto** p = keep<const DLTensor*>(items.size());
      for (size_t i = 0; i < items.size(); ++i)
        p[i] = items[i].isTensor() && items[i].toTensor().defined() ? hold(items[i].toTensor()) : nullptr;
      a.tag = CW_TENSOR_LIST;
      a.v.tensors = p;
    } else if (v.isDoubleList()) {
      auto* p = keep<double>(items.size());
      for (size_t i = 0; i < items.size(); ++i) p[i] = items[i].toDouble();
      a.tag = CW_DOUBLE_LIST;
      a.v.doubles = p;
    } else if (v.isIntList() || v.isBoolList()) {
      auto* p = keep<int64_t>(items.size());
      for (size_t i = 0; i < items.size(); ++i) p[i] = v.isIntList() ? items[i].toInt() : items[i].toBool();
      a.tag = v.isIntList() ? CW_INT_LIST : CW_BOOLEAN_LIST;
      a.v.ints = p;
    } else {
      auto* p = keep<cw_arg>(items.size());
      for (size_t i = 0; i < items.size(); ++i) p[i] = value(items[i]);
      a.tag = CW_SCALAR_LIST;
      a.v.args = p;
    }
    return a;
  }

  cw_arg value(const c10::IValue& v) {
    if (v.isNone()) return {CW_NONE, 0, {}};
    if (v.isBool()) return integer(CW_BOOLEAN, v.toBool());
    if (v.isInt()) return integer(CW_INT, v.toInt());
    if (v.isDouble()) return real(v.toDouble());
    if (v.isSymInt()) return integer(CW_INT, v.toSymInt().guard_int(__FILE__, __LINE__));
    if (v.isDevice()) return integer(CW_INT, v.toDevice().index());
    if (v.isComplexDouble()) {
      auto* p = keep<double>(2);
      p[0] = v.toComplexDouble().real();
      p[1] = v.toComplexDouble().imag();
      cw_arg a{CW_COMPLEX, 2, {}};
      a.v.complex = p;
      return a;
    }
    if (v.isString()) {
      const std::string& s = v.toStringRef();
      auto* p = keep<char>(s.size() + 1);
      std::memcpy(p, s.c_str(), s.size() + 1);
      cw_arg a{CW_STRING, static_cast<uint32_t>(s.size()), {}};
      a.v.string = p;
      return a;
    }
    if (v.isList()) return list(v);
    fail(Kind::Causeway, "an argument of type ", v.tagKind(), " has no form in abi.h");
  }

  DeviceState& device_;
  c10::SmallVector<cw_arg, 12> args_;
  c10::SmallVector<std::unique_ptr<Held>, 8> held_;
  c10::SmallVector<std::unique_ptr<char[]>, 4> buffers_;
  c10::SmallVector<c10::DataPtr, 1> scratch_;
  Generator* generator_ = nullptr;
  cw_philox philox_{};
};

thread_local Arguments* t_arguments = nullptr;

cw_status Arguments::run(cw_kernel kernel, StreamState& stream) {
  struct Current {
    explicit Current(Arguments* a) : old(t_arguments) { t_arguments = a; }
    ~Current() { t_arguments = old; }
    Arguments* old;
  } current(this);
  const cw_status status = kernel(args_.data(), static_cast<int32_t>(args_.size()), stream.handle);
  stream.give();
  // A kernel that declined drew nothing: the same seed gives the same numbers whether it is asked or not.
  if (status == CW_UNSUPPORTED && generator_) generator_->give_back(philox_);
  return status;
}

cw_status Arguments::scratch(uint64_t bytes, void** out) {
  scratch_.push_back(allocate(device_.index, current_stream(device_.index), bytes));
  *out = scratch_.back().get();
  return CW_OK;
}

cw_status Arguments::resize(const DLTensor* tensor, int32_t ndim, const int64_t* shape) {
  for (auto& h : held_) {
    if (&h->dl != tensor) continue;
    h->tensor.resize_(c10::IntArrayRef(shape, ndim));
    fill(*h);
    return CW_OK;
  }
  return CW_INVALID;
}

// What the vendor asks for while a kernel of its runs on this thread.
template <class F>
cw_status for_kernel(F f) {
  try {
    return t_arguments ? f(*t_arguments) : CW_INVALID;
  } catch (const c10::OutOfMemoryError&) {
    return CW_OUT_OF_MEMORY;
  } catch (const std::exception&) {
    return CW_FAILED;
  }
}

cw_status host_resize(const DLTensor* tensor, int32_t ndim, const int64_t* shape) {
  return for_kernel([&](Arguments& a) { return a.resize(tensor, ndim, shape); });
}

cw_status host_scratch(int32_t, cw_stream, uint64_t bytes, void** out) {
  return for_kernel([&](Arguments& a) { return a.scratch(bytes, out); });
}

const bool g_services = [] {
  host_services().scratch = host_scratch;
  host_services().resize = host_resize;
  return true;
}();

// ---- serving --------------------------------------------------------------------------------------------------------------

// Whether each element of the result depends on the same element of the inputs alone.
bool is_pointwise(const Operator& op) {
  const auto tags = op.handle.getTags();
  return std::find(tags.begin(), tags.end(), at::Tag::pointwise) != tags.end();
}

// Whether the shape of the result depends on the data.
bool finds_shape(const Operator& op) {
  const auto tags = op.handle.getTags();
  return std::find(tags.begin(), tags.end(), at::Tag::dynamic_output_shape) != tags.end();
}

class NativeCall {
 public:
  NativeCall(Operator& op, NativeForms& forms, Stack& stack)
      : op_(op),
        forms_(forms),
        stack_(stack),
        base_(stack.size() - op.args.size()),
        device_(device(device_of_call(op, stack))),
        stream_(current_stream(device_.index)) {}

  bool serve(Entry& entry);

 private:
  const c10::IValue& arg(size_t i) const { return stack_[base_ + i]; }
  std::pair<std::shared_ptr<Route>, Key> route();
  std::shared_ptr<Route> decide();
  std::shared_ptr<Route> after(const Route& route);
  void remember(const Key& key, const std::shared_ptr<Route>& route);
  bool any_float() const;
  bool host_would_take() const;
  bool fits(const cw_op& form, Route& route) const;
  bool begin_empty(Route& route) const;
  bool plan_decomposition(Route& route);
  bool run(const Route& route, const cw_op& form, Entry& entry);
  bool run_program(const Route& route, Entry& entry);
  template <class F>
  bool each_tensor(F f) const;
  at::Tensor prepared(const at::Tensor& t, const cw_op& form, at::IntArrayRef shape, c10::ScalarType common) const;
  c10::ScalarType common_dtype() const;
  bool is_also_read(const at::Tensor& target) const;
  std::string words() const;

  Operator& op_;
  NativeForms& forms_;
  Stack& stack_;
  const size_t base_;
  DeviceState& device_;
  StreamState& stream_;
};

// Calls f(tensor, argument info) for every defined tensor; stops when it says false.
template <class F>
bool NativeCall::each_tensor(F f) const {
  for (size_t i = 0; i < op_.args.size(); ++i) {
    const c10::IValue& v = arg(i);
    if (op_.args[i].kind == ArgKind::Tensor) {
      if (v.isTensor() && v.toTensor().defined() && !f(v.toTensor(), op_.args[i])) return false;
    } else if (op_.args[i].kind == ArgKind::TensorList || op_.args[i].kind == ArgKind::OptionalTensorList) {
      if (!v.isList()) continue;
      for (const auto& e : v.toListRef())
        if (e.isTensor() && e.toTensor().defined() && !f(e.toTensor(), op_.args[i])) return false;
    }
  }
  return true;
}

c10::ScalarType NativeCall::common_dtype() const {
  at::native::ResultTypeState state{};
  each_tensor([&](const at::Tensor& t, const ArgInfo& info) {
    if (!info.write || op_.return_of.empty() || op_.args[0].write)
      state = at::native::update_result_type_state(t, state);
    return true;
  });
  return at::native::result_type(state);
}

// Whether `form` takes this call, after the preparation that it asked for.
bool NativeCall::fits(const cw_op& form, Route& route) const {
  if (!form.kernel) return false;
  const bool promotes = form.needs & CW_NEEDS_PROMOTION;
  const c10::ScalarType common = promotes ? common_dtype() : c10::ScalarType::Undefined;
  auto taken = [&](c10::ScalarType dtype) {
    const int bit = bit_of_dtype(dtype);
    return bit >= 0 && ((form.dtypes >> bit) & 1);
  };
  const bool contiguous = form.needs & CW_NEEDS_CONTIGUOUS;
  const bool broadcast = form.needs & CW_NEEDS_BROADCAST;
  std::optional<c10::DimVector> shape;
  if (!route.outs.empty()) shape = route.outs[0].sizes;
  const bool all = each_tensor([&](const at::Tensor& t, const ArgInfo& info) {
    if (t.layout() != at::kStrided || t.is_quantized() || t.is_nested()) return false;
    const bool on_host = t.device().type() != kDeviceType;
    if (on_host && (t.dim() > 0 || info.write || !t.is_cpu() || info.kind != ArgKind::Tensor)) return false;
    if (!on_host && t.device().index() != device_.index) return false;
    if (!taken(!info.write && promotes ? common : t.scalar_type()) && !(on_host && (form.needs & CW_TAKES_NUMBERS)))
      return false;
    if (on_host && !(form.needs & CW_TAKES_NUMBERS)) route.prepare = true;
    if (t.is_conj() || t.is_neg()) route.prepare = true;
    if (contiguous && !t.is_contiguous()) route.prepare = true;
    if (!info.write && promotes && t.scalar_type() != common) route.prepare = true;
    if (!info.write && broadcast && shape && t.sizes() != at::IntArrayRef(*shape)) route.prepare = true;
    return true;
  });
  return all && !(route.prepare && op_.name == "aten::copy_");  // what prepares is a copy itself
}

// Outputs whose shape the kernel finds while it runs (host->resize) begin empty. Not nonzero: its result is column-major.
bool NativeCall::begin_empty(Route& route) const {
  if (op_.return_of.size() != 1 || !arg(0).isTensor()) return false;
  if (op_.handle.schema().name() != "aten::masked_select") return false;
  route.outs.push_back({c10::DimVector{0}, c10::DimVector{1}, arg(0).toTensor().scalar_type()});
  const int of = op_.return_of[0];
  return of < 0 || arg(of).toTensor().scalar_type() == route.outs[0].dtype;
}

std::shared_ptr<Route> NativeCall::decide() {
  auto route = std::make_shared<Route>();
  bool mixed = true;
  each_tensor([&](const at::Tensor& t, const ArgInfo& info) {
    mixed = t.device().type() == kDeviceType || (t.is_cpu() && t.dim() == 0 && !info.write);
    if (t.device().type() == kDeviceType && t.device().index() != device_.index) mixed = false;
    return mixed;
  });
  if (!mixed) return route;  // the host rung has the words for it, or knows that the operator takes both
  for (const auto& r : op_.handle.schema().returns())
    if (r.alias_info() && !r.alias_info()->isWrite()) return route;  // a view is no kernel's business
  at::AutoDispatchBelowADInplaceOrView below;
  if (!host_would_take()) return route;
  const bool any_kernel = forms_.own.kernel || forms_.out.kernel;
  if (any_kernel) {
    Stack meta;
    if (op_.return_of.empty() || begin_empty(*route)) {  // nothing to allocate, or nothing yet
      if (fits(forms_.own, *route)) {
        route->serve = Serve::Own;
        return route;
      }
      return after({Serve::Own, false, route->outs, nullptr});
    }
    route->outs.clear();
    if (run_meta(op_, stack_, meta)) {
      const size_t n = op_.args.size();
      bool simple = true;
      for (size_t r = 0; r < op_.return_of.size(); ++r) {
        const int of = op_.return_of[r];
        const c10::IValue& v = of >= 0 ? meta[of] : meta[n + r];
        if (!v.isTensor()) {
          simple = false;
          break;
        }
        if (!v.toTensor().defined()) {  // switched off by an output_mask
          route->outs.push_back({{}, {}, c10::ScalarType::Undefined});
          continue;
        }
        const at::Tensor& t = v.toTensor();
        if (t.layout() != at::kStrided || !has_dtype(device_, t.scalar_type())) simple = false;
        route->outs.push_back({c10::DimVector(t.sizes()), c10::DimVector(t.strides()), t.scalar_type()});
        // Resized by a meta kernel it is dense; the operator that allocates its result knows the strides.
        if (of >= 0 && op_.handle.schema().arguments()[of].is_out() && arg(of).toTensor().sizes() != t.sizes()) {
          Stack fresh;
          const auto functional = functional_form(op_.handle.schema());
          if (functional && run_meta(op_, stack_, fresh, &*functional)) {
            const c10::IValue& result = fresh[functional->schema().arguments().size() + r];
            if (result.isTensor() && result.toTensor().sizes() == t.sizes())
              route->outs.back().strides = c10::DimVector(result.toTensor().strides());
          }
        }
      }
      if (simple) {
        if (fits(forms_.own, *route)) {
          route->serve = Serve::Own;
          return route;
        }
        return after({Serve::Own, false, route->outs, nullptr});
      }
    }
  }
  plan_decomposition(*route);
  return route;
}

// False for calls that torch's CPU kernel refuses and nothing on the way here would: the host rung has the words.
bool NativeCall::host_would_take() const {
  bool any_read = false, any_element = false, any_bool = false, any_write = false;
  each_tensor([&](const at::Tensor& t, const ArgInfo& info) {
    any_read |= !info.write;
    any_element |= !info.write && t.numel() > 0;
    any_bool |= t.scalar_type() == at::kBool;
    any_write |= info.write;
    return true;
  });
  const bool pointwise = is_pointwise(op_);
  if (!pointwise) return !any_read || any_element;  // the largest of nothing; there is nothing to compute either
  if (any_bool && !forms_.own.kernel && !forms_.out.kernel) return false;  // decompositions take it for a number
  static const std::set<std::string> refuse_bool = {"aten::sub",  "aten::sub_", "aten::rsub", "aten::neg",
                                                    "aten::neg_", "aten::relu", "aten::relu_"};
  if (any_bool && refuse_bool.count(op_.handle.schema().name())) return false;
  if (!any_write) return true;
  const auto functional = functional_form(op_.handle.schema());
  Stack meta;
  if (!functional || !run_meta(op_, stack_, meta, &*functional) || !meta.back().isTensor()) return true;
  // Written over, a result keeps its target's shape; and it is computed in its own dtype before it becomes the target's.
  const at::Tensor& result = meta.back().toTensor();
  const bool out = op_.handle.schema().arguments().back().is_out();
  return each_tensor([&](const at::Tensor& t, const ArgInfo& info) {
    return !info.write || (t.scalar_type() == result.scalar_type() && (out || t.sizes() == result.sizes()));
  });
}

// The next way to serve the call after `route` was declined.
std::shared_ptr<Route> NativeCall::after(const Route& route) {
  auto next = std::make_shared<Route>();
  next->outs = route.outs;
  if (route.serve == Serve::Own && fits(forms_.out, *next))
    next->serve = Serve::Out;
  else if (route.serve != Serve::Decomposed)
    plan_decomposition(*next);
  return next;
}

bool NativeCall::any_float() const {
  for (size_t i = 0; i < op_.args.size(); ++i) {
    if (arg(i).isDouble() || arg(i).isDoubleList() || arg(i).isComplexDouble()) return true;
    if (arg(i).isTensor() && arg(i).toTensor().defined() && arg(i).toTensor().is_cpu()) return true;
  }
  return false;
}

bool NativeCall::plan_decomposition(Route& route) {
  PyObject* decomposer = g_decomposer.load();
  if (!decomposer || !api().op_find) return false;
  py::gil_scoped_acquire gil;
  py::tuple args(op_.args.size());
  py::dict kwargs;
  size_t positional = 0;
  const auto& schema = op_.handle.schema().arguments();
  for (size_t i = 0; i < op_.args.size(); ++i) {
    py::object value = torch::jit::toPyObject(arg(i));
    if (schema[i].kwarg_only())
      kwargs[schema[i].name().c_str()] = value;
    else
      args[positional++] = value;
  }
  py::tuple front(positional);
  for (size_t i = 0; i < positional; ++i) front[i] = args[i];
  py::object program = py::reinterpret_borrow<py::object>(decomposer)(op_.name, front, kwargs);
  if (program.is_none()) return false;
  route.serve = Serve::Decomposed;
  route.program = std::shared_ptr<PyObject>(program.release().ptr(), [](PyObject* p) {
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire inner;
    Py_DECREF(p);
  });
  return true;
}

std::pair<std::shared_ptr<Route>, Key> NativeCall::route() {
  Key key;
  const bool floats = !reads_tensor(op_);
  for (size_t i = 0; i < op_.args.size(); ++i) add_value(key, arg(i), floats);
  Routes& routes = *forms_.routes;
  {
    std::shared_lock lock(routes.mutex);
    if (auto it = routes.map.find(key); it != routes.map.end()) return {it->second, std::move(key)};
  }
  auto route = decide();
  remember(key, route);
  return {route, std::move(key)};
}

void NativeCall::remember(const Key& key, const std::shared_ptr<Route>& route) {
  Routes& routes = *forms_.routes;
  std::unique_lock lock(routes.mutex);
  if (routes.map.size() >= kMaxRoutes) routes.map.clear();
  routes.map[key] = route;
}

at::Tensor NativeCall::prepared(const at::Tensor& t, const cw_op& form, at::IntArrayRef shape,
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

bool NativeCall::is_also_read(const at::Tensor& target) const {
  return !each_tensor([&](const at::Tensor& t, const ArgInfo& info) { return info.write || !t.is_same(target); });
}

std::string NativeCall::words() const {
  std::string s;
  each_tensor([&](const at::Tensor& t, const ArgInfo&) {
    s += c10::str(s.empty() ? " of " : ", ", c10::toString(t.scalar_type()), t.sizes());
    return true;
  });
  return s;
}

bool NativeCall::run(const Route& route, const cw_op& form, Entry& entry) {
  const bool through_out = route.serve == Serve::Out;
  const Rung rung = !through_out && !route.prepare ? Rung::Native : Rung::Derived;
  const auto& schema = op_.handle.schema().arguments();
  const bool pointwise = is_pointwise(op_);
  const c10::ScalarType common = form.needs & CW_NEEDS_PROMOTION ? common_dtype() : c10::ScalarType::Undefined;
  at::AutoDispatchBelowADInplaceOrView below;
  const bool begins_empty = finds_shape(op_);

  // Outputs: given ones, or fresh ones of the shape that torch says.
  c10::SmallVector<at::Tensor, 4> outs, targets;
  for (size_t r = 0; r < op_.return_of.size(); ++r) {
    const OutMeta& meta = route.outs[r];
    if (meta.dtype == c10::ScalarType::Undefined) {
      outs.emplace_back();
      targets.emplace_back();
      continue;
    }
    const int of = op_.return_of[r];
    at::Tensor target;
    if (of >= 0) {
      target = arg(of).toTensor();
      if (schema[of].is_out() && target.sizes() != at::IntArrayRef(meta.sizes) && is_also_read(target))
        return false;  // resized, it would no longer be the input: the host has the words
      if (schema[of].is_out() && at::native::resize_output(target, meta.sizes))
        target.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes, meta.strides);
      materialize(*target.storage().unsafeGetStorageImpl());
    }
    at::Tensor out = target;
    // A kernel may read its inputs after it wrote outputs, so only a pointwise one may write over them.
    const bool own_memory = of >= 0 && !(through_out && !pointwise) && !target.is_conj() && !target.is_neg() &&
                            (!(form.needs & CW_NEEDS_CONTIGUOUS) || target.is_contiguous()) &&
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
    }
    outs.push_back(out);
    targets.push_back(target);
  }
  const auto is_empty = [](const at::Tensor& o) { return o.defined() && o.numel() == 0; };
  const bool skip = (form.needs & CW_NEEDS_ELEMENTS) && !outs.empty() && is_empty(outs[0]) && !begins_empty;
  if (skip && !std::all_of(outs.begin(), outs.end(), [&](const at::Tensor& o) { return !o.defined() || is_empty(o); }))
    return false;  // statistics of nothing, say
  if (!skip) {
    const at::IntArrayRef shape = outs.empty() || !outs[0].defined() ? at::IntArrayRef() : outs[0].sizes();
    uint64_t count = 0;
    for (const auto& o : outs)
      if (o.defined()) count = std::max<uint64_t>(count, o.numel());
    if (outs.empty()) each_tensor([&](const at::Tensor& t, const ArgInfo&) { return count = t.numel(), false; });
    const bool numbers = form.needs & CW_TAKES_NUMBERS;
    Arguments arguments(device_);
    for (const auto& o : outs) arguments.add(o);
    for (size_t i = 0; i < op_.args.size(); ++i) {
      const bool is_result =
          std::find(op_.return_of.begin(), op_.return_of.end(), static_cast<int>(i)) != op_.return_of.end();
      if (is_result && !(through_out && !schema[i].is_out())) continue;
      if (static_cast<int>(i) == forms_.left_out) continue;
      const c10::IValue& v = arg(i);
      if (!route.prepare || op_.args[i].kind == ArgKind::Other) {
        arguments.add(v, schema[i], numbers, count);
      } else if (v.isTensor() && v.toTensor().defined()) {
        arguments.add(c10::IValue(prepared(v.toTensor(), form, shape, common)), schema[i], numbers, count);
      } else if (v.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : v.toTensorVector()) list.push_back(prepared(t, form, shape, common));
        arguments.add(c10::IValue(list), schema[i], numbers, count);
      } else {
        arguments.add(v, schema[i], numbers, count);
      }
    }
    Profiled span(Work::Kernel, (through_out ? forms_.out_name : forms_.own_name).c_str(), &stream_);
    span.serves(op_.name.c_str(), kRungNames[static_cast<int>(rung)]);
    const cw_status status = arguments.run(form.kernel, stream_);
    if (status != CW_OK) span.drop();
    if (status == CW_UNSUPPORTED) return false;
    if (status != CW_OK) fail_status(status, op_.name.c_str(), device_.index, words());
  }
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  each_tensor([&](const at::Tensor& t, const ArgInfo&) { return dtype = t.scalar_type(), false; });
  entry.served(rung, dtype);
  for (size_t r = 0; r < outs.size(); ++r)
    if (targets[r].defined() && !outs[r].is_same(targets[r])) targets[r].copy_(outs[r]);
  torch::jit::drop(stack_, op_.args.size());
  for (size_t r = 0; r < outs.size(); ++r) stack_.emplace_back(targets[r].defined() ? targets[r] : outs[r]);
  return true;
}

bool NativeCall::run_program(const Route& route, Entry& entry) {
  py::gil_scoped_acquire gil;
  at::AutoDispatchBelowADInplaceOrView below;
  const auto& schema = op_.handle.schema();
  std::vector<py::object> positional;
  py::dict kwargs;
  for (size_t i = 0; i < op_.args.size(); ++i) {
    py::object value = torch::jit::toPyObject(arg(i));
    if (schema.arguments()[i].kwarg_only())
      kwargs[schema.arguments()[i].name().c_str()] = value;
    else
      positional.push_back(value);
  }
  py::tuple args(positional.size());
  for (size_t i = 0; i < positional.size(); ++i) args[i] = positional[i];
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  each_tensor([&](const at::Tensor& t, const ArgInfo&) { return dtype = t.scalar_type(), false; });
  Profiled span(Work::Host, op_.name.c_str());
  span.serves(op_.name.c_str(), kRungNames[static_cast<int>(Rung::Decomposed)]);
  py::object result;
  try {
    result = py::reinterpret_borrow<py::object>(route.program.get())(*args, **kwargs);
  } catch (py::error_already_set& e) {
    e.restore();
    python_error error;
    error.persist();
    throw error;
  }
  entry.served(Rung::Decomposed, dtype);
  torch::jit::drop(stack_, op_.args.size());
  const auto& returns = schema.returns();
  if (returns.size() == 1)
    stack_.push_back(torch::jit::toIValue(result, returns[0].type()));
  else
    for (size_t r = 0; r < returns.size(); ++r)
      stack_.push_back(torch::jit::toIValue(result.cast<py::sequence>()[r], returns[r].type()));
  return true;
}

bool NativeCall::serve(Entry& entry) {
  auto [r, key] = route();
  for (;;) {
    bool done = false;
    switch (r->serve) {
      case Serve::Nobody:
        return false;
      case Serve::Own:
        done = run(*r, forms_.own, entry);
        break;
      case Serve::Out:
        done = run(*r, forms_.out, entry);
        break;
      case Serve::Decomposed:
        done = run_program(*r, entry);
        break;
    }
    if (done) return true;
    // Declined: one rung down, and for good, unless it may have been for a number that the signature leaves out.
    r = after(*r);
    if (!any_float()) remember(key, r);
  }
}

}  // namespace

// Hardly a decomposition gets by without these, so a vendor that lacks them is spared the planning.
static bool has_arithmetic() {
  static const bool offered = (find("aten::add.out").kernel || find("aten::add.Tensor").kernel) &&
                              (find("aten::mul.out").kernel || find("aten::mul.Tensor").kernel);
  return offered;
}

NativeForms* resolve_native(Operator& op) {
  auto forms = std::make_unique<NativeForms>();
  if (api().op_find) {
    forms->own_name = op.name;
    forms->own = find_own(forms->own_name);
    if (!forms->own.kernel && op.name == kConvolutionBackward) {
      forms->own_name = "aten::convolution_backward_overrideable";
      forms->own = find(forms->own_name);
      forms->left_out = kBiasShape;
    }
    const auto& schema = op.handle.schema();
    bool is_out = false;
    for (const auto& a : schema.arguments()) is_out |= a.is_out();
    if (!is_out)
      if (forms->out_name = out_form(schema); !forms->out_name.empty()) forms->out = find(forms->out_name);
    forms->any = forms->own.kernel || forms->out.kernel || (g_decomposer.load() && has_arithmetic());
    forms->routes = std::make_unique<Routes>();
  }
  NativeForms* none = nullptr;
  if (op.native.compare_exchange_strong(none, forms.get())) return forms.release();
  return none;
}

bool call_native(Operator& op, Stack& stack, Entry& entry) {
  return NativeCall(op, *op.native.load(std::memory_order_acquire), stack).serve(entry);
}

std::vector<std::pair<std::string, cw_op>> offered() {
  std::vector<std::pair<std::string, cw_op>> out;
  if (!api().op_find) return out;
  for (const auto& n : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::string name = c10::toString(n);
    if (cw_op op = find(name); op.kernel) out.emplace_back(name, op);
  }
  return out;
}

void forget_routes() {
  for (Operator* op : operators()) {
    NativeForms* forms = op->native.load();
    if (!forms || !forms->routes) continue;
    std::unique_lock lock(forms->routes->mutex);
    forms->routes->map.clear();
  }
}

void set_decomposer(PyObject* f) { g_decomposer.store(f); }

}  // namespace causeway
