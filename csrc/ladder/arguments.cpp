#include "ladder/arguments.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/allocator.h"
#include "runtime/check.h"
#include "runtime/graph.h"
#include "runtime/storage.h"
#include "runtime/thrown.h"

namespace causeway {

namespace {

thread_local Arguments* t_arguments = nullptr;
thread_local Workspace* t_workspace = nullptr;

cw_arg integer(uint32_t tag, int64_t i) {
  cw_arg a{tag, 0, {}};
  a.v.i = i;
  return a;
}
cw_arg real(double d) {
  cw_arg a{CW_DOUBLE, 0, {}};
  a.v.d = d;
  return a;
}

}  // namespace

void Arguments::add(const c10::IValue& v, const c10::Argument& schema, bool numbers, uint64_t random_count) {
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
    return add_random(random_count, given);
  }
  if (type->kind() == c10::TypeKind::ScalarTypeType && v.isInt())
    return args_.push_back(integer(CW_DTYPE, bit_of_dtype(static_cast<c10::ScalarType>(v.toInt()))));
  args_.push_back(value(v));
}

void Arguments::add_random(uint64_t count, const std::optional<at::Generator>& given) {
  generator_ = &device_generator(given, device_.index);
  philox_ = generator_->next(count);
  cw_arg a{CW_GENERATOR, 0, {}};
  a.v.philox = &philox_;
  args_.push_back(a);
}

cw_arg Arguments::number(const at::Scalar& s) {
  if (s.isBoolean()) return integer(CW_BOOLEAN, s.toBool());
  if (s.isIntegral(false)) return integer(CW_INT, s.toLong());
  if (s.isFloatingPoint()) return real(s.toDouble());
  return value(c10::IValue(s.toComplexDouble()));
}

void Arguments::fill(Held& h) {
  const at::Tensor& t = h.tensor;
  h.dl.data = const_cast<void*>(t.const_data_ptr());
  h.dl.device = {kDLExtDev, device_.vendor_id};
  h.dl.ndim = static_cast<int32_t>(t.dim());
  h.dl.dtype = dl_dtype(t.scalar_type());
  h.dl.shape = const_cast<int64_t*>(t.sizes().data());
  h.dl.strides = const_cast<int64_t*>(t.strides().data());
  h.dl.byte_offset = 0;
}

const DLTensor* Arguments::hold(at::Tensor t) {
  held_.push_back(std::make_unique<Held>());
  held_.back()->tensor = std::move(t);
  fill(*held_.back());
  return &held_.back()->dl;
}

cw_arg Arguments::tensor(at::Tensor t) {
  cw_arg a{CW_NONE, 0, {}};
  if (!t.defined()) return a;
  a.tag = CW_TENSOR;
  a.v.tensor = hold(std::move(t));
  return a;
}

cw_arg Arguments::list(const c10::IValue& v) {
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

cw_arg Arguments::value(const c10::IValue& v) {
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

Arguments::Current::Current(Arguments* a) : old(t_arguments) { t_arguments = a; }
Arguments::Current::~Current() { t_arguments = old; }

Workspace::Workspace(int device, StreamState& stream, const std::vector<Reread>& read, Noted* noted)
    : device_(device), stream_(stream), read_(read), old_(t_workspace), noted_(noted) {
  t_workspace = this;
}
Workspace::~Workspace() { t_workspace = old_; }
cw_status Workspace::scratch(uint64_t bytes, void** out) {
  auto& memory = noted_ ? noted_->memory : own_;
  memory.push_back(allocate(device_, stream_, bytes));
  *out = memory.back().get();
  return CW_OK;
}
cw_status Workspace::packed(const DLTensor* tensor, uint32_t layout, const void** out) {
  const auto of = std::find_if(read_.begin(), read_.end(), [&](const Reread& r) { return r.tensor == tensor; });
  if (of == read_.end()) return CW_UNSUPPORTED;  // a temporary one of the capture's
  std::shared_ptr<Form> form;
  if (noted_) {
    noted_->forms.push_back(Asked::now(*of, layout));
    form = noted_->forms.back().form;
  } else if (const StoragePtr storage = of->alive()) {
    form = packed_form(*tensor, *storage, layout, stream_);
  }
  if (!form) return CW_UNSUPPORTED;
  *out = memory_of(*form);
  forms_.push_back(std::move(form));
  return CW_OK;
}

cw_status Arguments::run(const CalledKernel& called, StreamState& stream) {
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr)) return run_in_capture(*graph, called, stream);
  const Current current(this);
  const cw_status status =
      shielded([&] { return called.kernel(args_.data(), static_cast<int32_t>(args_.size()), stream.handle); });
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

const Arguments::Held* Arguments::behind(const DLTensor* tensor) const {
  for (const auto& h : held_)
    if (&h->dl == tensor) return h.get();
  return nullptr;
}

cw_status Arguments::packed(const DLTensor* tensor, uint32_t layout, const void** out) {
  const Held* h = behind(tensor);
  if (!h) return CW_INVALID;
  if (!h->tensor.has_storage()) return CW_UNSUPPORTED;
  std::shared_ptr<Form> form =
      packed_form(h->dl, *h->tensor.storage().unsafeGetStorageImpl(), layout, current_stream(device_.index));
  if (!form) return CW_UNSUPPORTED;
  *out = memory_of(*form);
  forms_.push_back(std::move(form));
  return CW_OK;
}

cw_status Arguments::storage(const DLTensor* tensor, uint64_t* before, uint64_t* bytes) const {
  const Held* h = behind(tensor);
  if (!h) return CW_INVALID;
  if (!h->tensor.has_storage()) return CW_UNSUPPORTED;
  const c10::StorageImpl& s = *h->tensor.storage().unsafeGetStorageImpl();
  if (typeid(s) != typeid(DeviceStorage))
    return CW_UNSUPPORTED;  // somebody else's memory, with who knows what behind it
  *before = static_cast<uint64_t>(static_cast<const char*>(h->dl.data) - static_cast<const char*>(s.data()));
  return *bytes = s.nbytes(), CW_OK;
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

namespace {

// What the vendor asks for while a kernel of its runs on this thread, by a call or in a replay.
template <class F>
cw_status for_kernel(F f) {
  try {
    if (t_arguments) return f(*t_arguments);
    if constexpr (std::is_invocable_v<F, Workspace&>)
      if (t_workspace) return f(*t_workspace);
    return CW_INVALID;
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
  return for_kernel([&](auto& asked) { return asked.scratch(bytes, out); });
}

cw_status host_packed(const DLTensor* tensor, uint32_t layout, cw_stream, const void** out) {
  return for_kernel([&](auto& asked) { return asked.packed(tensor, layout, out); });
}

cw_status host_storage(const DLTensor* tensor, uint64_t* before, uint64_t* bytes) {
  // In a replay there is no more than the pointers.
  return t_arguments ? for_kernel([&](Arguments& a) { return a.storage(tensor, before, bytes); }) : CW_UNSUPPORTED;
}

const bool g_services = [] {
  host_services().packed = host_packed;
  host_services().scratch = host_scratch;
  host_services().resize = host_resize;
  host_services().storage = host_storage;
  return true;
}();

}  // namespace

}  // namespace causeway
