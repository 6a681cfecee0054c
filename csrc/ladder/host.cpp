// The host rung: an operator runs as torch's CPU kernel.
//
// Where the host can address device memory, nothing is copied: each device tensor is handed to the CPU kernel as an
// alias on the same bytes, and what the kernel allocates comes from device memory already (AllocateOnDevice), so a
// result only changes its label. Where it cannot, the bytes that the arguments span are staged through pinned memory,
// each storage once so that arguments which alias each other still do, and what was written goes back.
//
// Either way the result is the operator's in every respect: values, strides, views of inputs, conj and neg bits,
// outputs that were resized.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/quantized/QTensorImpl.h>

#include <c10/core/CPUAllocator.h>

#include "runtime/allocator.h"
#include "runtime/check.h"
#include "ladder/dry.h"
#include "runtime/generator.h"
#include "runtime/graph.h"
#include "ladder/host.h"
#include "runtime/host_allocator.h"
#include "ladder/python.h"
#include "ladder/layouts.h"
#include "ladder/norm.h"
#include "runtime/profile.h"
#include "runtime/storage.h"
#include "runtime/vendor.h"
#include "runtime/watched.h"
#include "ladder/wide.h"

namespace causeway {

namespace {

using c10::TensorImpl;

struct AliasPool {
  std::vector<c10::intrusive_ptr<HostAlias>> free;
};
thread_local AliasPool t_pool;

bool is_plain(const TensorImpl& impl) { return kind_of(impl).empty(); }

bool is_device(const at::Tensor& t) { return t.device().type() == kDeviceType; }

// Bytes [begin, end) of its storage that a tensor spans.
std::pair<size_t, size_t> span(const TensorImpl& t) {
  const size_t item = t.itemsize();
  size_t begin = t.storage_offset() * item, end = begin;
  if (t.numel() == 0) return {begin, begin};
  for (int64_t d = 0; d < t.dim(); ++d) end += (t.sizes()[d] - 1) * t.strides()[d] * item;
  return {begin, end + item};
}

}  // namespace

void refuse_host_rung(const Operator& op, const StreamState& stream) {
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr))
    graph->refuse(c10::str(op.name, ", which runs on the host (", vendor_name(), " does not offer it for this call),"),
                  "Call it outside of the capture; `with causeway.ledger()` lists such operators");
}

void HostCall::run(Stack& stack, Entry& entry) {
  collect(stack);
  entry.served(Rung::Host, dtype_);
  if (C10_UNLIKELY(is_dry()) && run_dry(stack)) return;
  refuse_host_rung(op_, stream_);
  stream_.sync();
  if (!device_.host_addressable) stage();
  substitute(stack);
  call(stack);
  if (!device_.host_addressable) write_back();
  update_written();
  results(stack);
  if (C10_UNLIKELY(is_dry())) note_contents(stack);
}

// The stand of the same tensor, if it came before: kernels tell an output that is also an input by its identity. Long
// lists are of the foreach operators, which do not.
Stand* HostCall::earlier(const at::Tensor& t) {
  constexpr size_t few = 16;
  for (size_t i = 0, n = std::min(few, stands_.size()); i < n; ++i)
    if (stands_[i].original.unsafeGetTensorImpl() == t.unsafeGetTensorImpl() && !stands_[i].same) return &stands_[i];
  return nullptr;
}

const at::Tensor& HostCall::stand_in(const at::Tensor& t, bool write) {
  if (Stand* s = earlier(t); C10_UNLIKELY(s != nullptr)) {
    if (write && !s->write) materialize(*t.storage().unsafeGetStorageImpl());
    s->write |= write;
    return s->alias;
  }
  auto& s = stands_.emplace_back();
  s.original = t;
  s.write = write;
  s.alias = alias_of(s);
  return s.alias;
}

void HostCall::collect(const at::Tensor& t, size_t arg, bool write) {
  if (!t.defined()) return;
  if (is_device(t)) {
    if (t.device().index() != device_.index && !op_.facts.mixed_devices)
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                  device_name(device_.index), " and ", t.device(), "! (when checking argument ",
                  op_.handle.schema().arguments()[arg].name(), " of ", op_.name, ")");
    // Copies of sparse tensors have both ends; a storage is read once its own device is done with it.
    if (C10_UNLIKELY(t.device().index() != device_.index)) current_stream(t.device().index()).sync();
    if (dtype_ == c10::ScalarType::Undefined) dtype_ = t.scalar_type();
    Stand* first = earlier(t);
    if (first && write)
      for (Stand* part = first - first->parts; part <= first; ++part) part->write = true;
    if (!first && C10_UNLIKELY(has_parts(*t.unsafeGetTensorImpl()))) return collect_parts(t, arg, write);
    auto& s = stands_.emplace_back();
    s.original = t;
    s.arg = static_cast<uint16_t>(arg);
    s.write = write;
    s.same = first != nullptr;
    return;
  }
  writes_host_ |= write;
  // As with torch.cuda, a zero-dim CPU tensor is a number, unless it would be written.
  if (op_.facts.mixed_devices || (t.dim() == 0 && !write && t.is_cpu())) return;
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              device_name(device_.index), " and ", t.device(), "! (when checking argument ",
              op_.handle.schema().arguments()[arg].name(), " of ", op_.name, ")");
}

void HostCall::collect_parts(const at::Tensor& t, size_t arg, bool write) {
  const Parts parts = parts_of(t);
  for (const at::Tensor& part : parts) {
    auto& s = stands_.emplace_back();
    s.original = part;
    s.arg = kPart;
    s.write = write;
  }
  auto& s = stands_.emplace_back();
  s.original = t;
  s.arg = static_cast<uint16_t>(arg);
  s.parts = static_cast<uint8_t>(parts.size());
  s.write = write;
  lists_ = true;  // arguments and stands no longer go in step
}

void HostCall::collect(Stack& stack) {
  const size_t base = stack.size() - op_.args.size();
  for (size_t i = 0; i < op_.args.size(); ++i) {
    c10::IValue& v = stack[base + i];
    const ArgInfo& info = op_.args[i];
    switch (info.kind) {
      case ArgKind::Other:
        break;
      case ArgKind::Tensor:
        if (v.isTensor()) collect(v.toTensor(), i, info.write);
        break;
      case ArgKind::TensorList:
        if (!v.isTensorList()) break;
        lists_ = true;
        for (const at::Tensor& t : v.toTensorVector()) collect(t, i, info.write);
        break;
      case ArgKind::OptionalTensorList:
        if (!v.isList()) break;
        lists_ = true;
        for (const auto& t : v.toListRef())
          if (t.isTensor()) collect(t.toTensor(), i, info.write);
        break;
      case ArgKind::Generator: {
        std::optional<at::Generator> given;
        if (v.isGenerator()) given = v.toGenerator();
        v = device_generator(given, device_.index).next_for_host();
        break;
      }
      case ArgKind::Device:
        to_host_ |= v.isDevice() && v.toDevice().type() != kDeviceType;
        v = c10::IValue(c10::Device(c10::DeviceType::CPU));
        break;
      case ArgKind::Pin:
        v = c10::IValue();
        break;
    }
  }
}

void HostCall::stage() {
  for (Stand& s : stands_) {
    if (s.parts || s.same) continue;
    TensorImpl* t = s.original.unsafeGetTensorImpl();
    c10::StorageImpl* storage = t->unsafe_storage().unsafeGetStorageImpl();
    if (s.write) materialize(*storage);
    const auto [begin, end] = span(*t);
    auto it =
        std::find_if(staged_.begin(), staged_.end(), [&](const Staged& x) { return x.device_storage == storage; });
    if (it == staged_.end()) {
      staged_.emplace_back().device_storage = storage;
      it = std::prev(staged_.end());
    }
    it->write |= s.write;
    if (begin == end && !s.write) continue;  // no elements, wherever it begins; but an output may get some there
    it->begin = it->placed ? std::min(it->begin, begin) : begin;
    it->end = it->placed ? std::max(it->end, end) : end;
    it->placed = true;
  }
  for (Staged& x : staged_) {
    x.end = std::min(x.end, x.device_storage->nbytes());
    x.begin = std::min(x.begin, x.end);
    x.begin = x.begin / 64 * 64;  // whole elements of every dtype, and the alignment that kernels were tuned for
    const size_t bytes = x.end - x.begin;
    c10::DataPtr data = pinned_allocator()->allocate(bytes);
    if (bytes) {
      const char* from = static_cast<const char*>(x.device_storage->data()) + x.begin;
      DeviceState& home = device(x.device_storage->device().index());  // of a sparse copy it may be another
      StreamState& stream = home.index == device_.index ? stream_ : current_stream(home.index);
      copy_on(stream, data.get(), CW_HOST, from, home.vendor_id, bytes);
      if (&stream != &stream_) stream.sync();
      Entry::add_bytes(bytes);
    }
    x.host_data = data.get();
    x.host = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
                                                   std::move(data), cpu_allocator(), true);
  }
  stream_.sync();
}

at::Tensor HostCall::assembled(const Stand& s) {
  Parts parts;
  for (const Stand* part = &s - s.parts; part != &s; ++part) parts.push_back(part->alias);
  return assemble(s.original, parts);
}

at::Tensor HostCall::alias_of(Stand& s) {
  if (C10_UNLIKELY(s.same)) {
    Stand* first = earlier(s.original);
    s.host_storage = first->host_storage;
    return first->alias;
  }
  if (C10_UNLIKELY(s.parts)) return assembled(s);
  TensorImpl* t = s.original.unsafeGetTensorImpl();
  c10::StorageImpl* storage = t->unsafe_storage().unsafeGetStorageImpl();
  if (!storage)
    fail(Kind::Causeway, op_.name, ": a ", t->layout(), " tensor of ", device_name(device_.index), " has no host form");
  int64_t offset = t->storage_offset();
  StoragePtr host;
  if (!device_.host_addressable) {
    for (Staged& x : staged_) {
      if (x.device_storage != storage) continue;
      host = x.host;
      offset = t->numel() || s.write ? offset - static_cast<int64_t>(x.begin / t->itemsize()) : 0;
    }
  } else {
    if (s.write) materialize(*storage);
    if (auto* d = dynamic_cast<DeviceStorage*>(storage); C10_LIKELY(d != nullptr))
      host = StoragePtr::reclaim_copy(d->twin());
    else  // made by torch itself, from_blob for one
      host = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(storage->nbytes()),
          c10::DataPtr(const_cast<void*>(storage->data()), c10::DeviceType::CPU), c10::GetCPUAllocator(),
          storage->resizable());
  }
  s.host_storage = host.get();
  if (C10_UNLIKELY(!is_plain(*t))) {
    auto impl = t->shallow_copy_and_detach(c10::VariableVersion(0), true);
    impl->set_storage_keep_dtype(c10::Storage(std::move(host)));
    impl->set_storage_offset(offset);
    impl->_change_backend_component_keys(c10::Device(c10::DeviceType::CPU));
    return at::Tensor(std::move(impl));
  }
  auto& pool = t_pool.free;
  c10::intrusive_ptr<HostAlias> alias;
  if (C10_LIKELY(!pool.empty())) {
    alias = std::move(pool.back());
    pool.pop_back();
  } else {
    alias = c10::make_intrusive<HostAlias>();
  }
  alias->bind(*t, c10::Storage(std::move(host)), offset);
  s.pooled = true;
  return at::Tensor(c10::intrusive_ptr<TensorImpl>(std::move(alias)));
}

void HostCall::substitute(Stack& stack) {
  const size_t base = stack.size() - op_.args.size();
  for (Stand& s : stands_) s.alias = alias_of(s);
  if (C10_UNLIKELY(!kinds_.empty()))  // sparse kernels ask whether to note what the backward needs
    for (Stand& s : stands_)
      if (s.original.requires_grad()) {
        TensorImpl* alias = s.alias.unsafeGetTensorImpl();
        alias->set_autograd_meta(c10::impl::GetAutogradMetaFactory()->make());
        alias->autograd_meta()->set_requires_grad(true, alias);
      }
  if (C10_LIKELY(!lists_)) {
    for (Stand& s : stands_) stack[base + s.arg] = s.alias;
    return;
  }
  size_t next = 0;
  for (size_t i = 0; i < op_.args.size(); ++i) {
    c10::IValue& v = stack[base + i];
    auto stand_in = [&](const at::Tensor& t) {
      if (!t.defined() || !is_device(t)) return t;
      while (stands_[next].arg == kPart) ++next;
      return stands_[next++].alias;
    };
    if (op_.args[i].kind == ArgKind::Tensor) {
      if (v.isTensor()) v = stand_in(v.toTensor());
    } else if (op_.args[i].kind == ArgKind::TensorList && v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(stand_in(t));
      v = std::move(list);
    } else if (op_.args[i].kind == ArgKind::OptionalTensorList && v.isList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue& t : v.toListRef())
        list.push_back(t.isTensor() ? std::optional<at::Tensor>(stand_in(t.toTensor())) : std::nullopt);
      v = std::move(list);
    }
  }
}

namespace {

// Operators that draw without a generator argument draw from the CPU's default generator: lend it the device's numbers.
class LendRandom {
 public:
  explicit LendRandom(int device) : cpu_(at::detail::getDefaultCPUGenerator()) {
    at::Generator ours = device_generator(std::nullopt, device).next_for_host();
    std::lock_guard lock(cpu_.mutex());
    state_ = cpu_.get_state();
    cpu_.set_state(ours.get_state());
  }
  ~LendRandom() {
    std::lock_guard lock(cpu_.mutex());
    cpu_.set_state(state_);
  }

 private:
  at::Generator cpu_;
  at::Tensor state_;
};

}  // namespace

void HostCall::call(Stack& stack) {
  // Below autograd also where no autograd key led here (factories, inference tensors): aliases have no history.
  at::AutoDispatchBelowADInplaceOrView below;
  std::optional<LendRandom> random;
  if (C10_UNLIKELY(op_.hidden_random)) random.emplace(device_.index);
  constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
  c10::DispatchKeySet keys = cpu | kinds_;
  for (const Stand& s : stands_)
    if (C10_UNLIKELY(!s.pooled && !s.same)) keys = keys | kind_of(*s.alias.unsafeGetTensorImpl());
  std::optional<AllocateOnDevice> hook;
  if (device_.host_addressable && C10_LIKELY(!writes_host_ && !to_host_)) hook.emplace(device_.index, stream_);
  if (C10_UNLIKELY(op_.facts.wide)) return call_wide(op_, stack, keys);
  if (C10_UNLIKELY(policy().narrow && !has_dtype(device_, at::kLong))) return call_widening(stack, keys);
  op_.handle.redispatchBoxed(keys, &stack);
}

// Indices and classes that were narrowed to int32: many CPU kernels take int64 only, and say so before they do anything.
void HostCall::call_widening(Stack& stack, c10::DispatchKeySet keys) {
  const size_t base = stack.size() - op_.args.size();
  Stack given(stack.begin() + static_cast<std::ptrdiff_t>(base), stack.end());
  try {
    op_.handle.redispatchBoxed(keys, &stack);
    return;
  } catch (const c10::Error& error) {
    const std::string words = error.what_without_backtrace();
    if (words.find("Long") == std::string::npos && words.find("int64") == std::string::npos) throw;
    bool any = false;
    for (size_t i = 0; i < given.size(); ++i) {
      if (op_.args[i].kind != ArgKind::Tensor || op_.args[i].write || !given[i].isTensor()) continue;
      const at::Tensor& t = given[i].toTensor();
      if (!t.defined() || t.scalar_type() != at::kInt) continue;
      given[i] = at::_to_copy(t, at::TensorOptions().dtype(at::kLong));
      any = true;
    }
    if (!any) throw;
  }
  stack.resize(base);
  for (c10::IValue& v : given) stack.push_back(std::move(v));
  op_.handle.redispatchBoxed(keys, &stack);
}

void HostCall::copy_to_device(void* to, const void* from, size_t bytes) {
  if (!bytes) return;
  copy_on(stream_, to, device_.vendor_id, from, CW_HOST, bytes);
  Entry::add_bytes(bytes);
}

void HostCall::write_back() {
  for (Staged& x : staged_) {
    if (!x.write) continue;
    if (x.host->data() == x.host_data) {
      copy_to_device(static_cast<char*>(x.device_storage->mutable_data()) + x.begin, x.host_data, x.end - x.begin);
      continue;
    }
    // The kernel resized an output: where the storage is too small for it, it gets new memory.
    const size_t bytes = x.begin + x.host->nbytes();
    if (bytes > x.device_storage->nbytes()) resize_storage(*x.device_storage, bytes);
    copy_to_device(static_cast<char*>(x.device_storage->mutable_data()) + x.begin, x.host->data(), x.host->nbytes());
  }
  stream_.sync();
}

// Bring an argument that was written up to date with its alias: sizes, bits, and memory if it was resized.
void HostCall::update(Stand& s) {
  if (s.same) return;
  if (C10_UNLIKELY(s.parts)) return update_parts(s);
  TensorImpl* t = s.original.unsafeGetTensorImpl();
  TensorImpl* a = s.alias.unsafeGetTensorImpl();
  c10::StorageImpl* storage = t->unsafe_storage().unsafeGetStorageImpl();
  if (device_.host_addressable &&
      C10_UNLIKELY(s.host_storage->data() != storage->data() || s.host_storage->nbytes() != storage->nbytes())) {
    const size_t bytes = s.host_storage->nbytes();
    c10::DataPtr data = std::move(s.host_storage->_mutable_data_ptr_no_checks());
    if (!bytes || is_block_for_host(data)) {
      storage->set_data_ptr_noswap(bytes ? as_device(std::move(data), device_.index)
                                         : allocate(device_.index, stream_, 0));
    } else {
      c10::DataPtr ours = allocate(device_.index, stream_, bytes);
      copy_to_device(ours.get(), data.get(), bytes);
      stream_.sync();
      storage->set_data_ptr_noswap(std::move(ours));
    }
    storage->set_nbytes(bytes);
    s.host_storage->set_data_ptr_noswap(c10::DataPtr(storage->data_ptr().get(), c10::DeviceType::CPU));
  }
  if (C10_UNLIKELY(t->sizes() != a->sizes() || t->strides() != a->strides())) {
    const int64_t offset = a->storage_offset() + static_cast<int64_t>(staged_offset(s.host_storage) / t->itemsize());
    t->set_sizes_and_strides(a->sizes(), a->strides(), offset);
  }
  if (C10_UNLIKELY(s.original.is_conj() != s.alias.is_conj())) s.original._set_conj(s.alias.is_conj());
  if (C10_UNLIKELY(s.original.is_neg() != s.alias.is_neg())) s.original._set_neg(s.alias.is_neg());
  wrote(*storage);
}

void HostCall::update_parts(Stand& s) {
  Parts ours;
  for (at::Tensor& part : parts_of(s.alias)) ours.push_back(result(std::move(part)));
  replace_parts(s.original, s.alias, ours);
}

size_t HostCall::staged_offset(const c10::StorageImpl* host) const {
  for (const Staged& x : staged_)
    if (x.host.get() == host) return x.begin;
  return 0;
}

at::Tensor HostCall::view(const Stand& s, TensorImpl* host) {
  TensorImpl* original = s.original.unsafeGetTensorImpl();
  constexpr c10::DispatchKeySet bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  const auto keys = (original->key_set() - bits) | (host->key_set() & bits);
  c10::Storage storage = original->storage();
  auto t = C10_UNLIKELY(keys.has(c10::DispatchKey::Quantized))
               ? at::detail::make_tensor<at::QTensorImpl>(TensorImpl::VIEW, std::move(storage), keys, host->dtype(),
                                                          static_cast<at::QTensorImpl*>(host)->quantizer())
               : at::detail::make_tensor<TensorImpl>(TensorImpl::VIEW, std::move(storage), keys, host->dtype());
  const int64_t offset =
      host->storage_offset() + static_cast<int64_t>(staged_offset(s.host_storage) / host->itemsize());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(host->sizes(), host->strides(), offset);
  return t;
}

at::Tensor HostCall::adopt(at::Tensor t) {
  if (C10_UNLIKELY(!has_dtype(device_, t.scalar_type())))
    t = at::_to_copy(t, at::TensorOptions().dtype(stored_dtype(device_, t.scalar_type(), op_.name.c_str())));
  TensorImpl* impl = t.unsafeGetTensorImpl();
  if (C10_UNLIKELY(c10::raw::intrusive_ptr::use_count(impl) > 1)) {
    t = at::Tensor(impl->shallow_copy_and_detach(c10::VariableVersion(0), true));
    impl = t.unsafeGetTensorImpl();
  }
  if (C10_UNLIKELY(!impl->has_storage()))
    TORCH_CHECK_NOT_IMPLEMENTED(false, op_.name, " gives a ", t.toString(), ", which cannot live on ",
                                device_name(device_.index), "; move the input to the CPU first");
  c10::StorageImpl* host = impl->unsafe_storage().unsafeGetStorageImpl();
  StoragePtr ours;
  for (auto& [from, to] : adopted_)
    if (from == host) ours = to;
  if (!ours) {
    const size_t bytes = host->nbytes();
    const bool born_there = is_block_for_host(host->data_ptr()) || !host->data();  // a ZeroTensor has no memory
    if (C10_LIKELY(born_there)) {
      ours = make_storage(as_device(std::move(host->_mutable_data_ptr_no_checks()), device_.index), bytes,
                          host->resizable());
      auto keep = StoragePtr::reclaim_copy(host);
      if (C10_UNLIKELY(c10::raw::intrusive_ptr::use_count(host) > 2)) adopted_.emplace_back(host, ours);
      static_cast<DeviceStorage*>(ours.get())->adopt_twin(std::move(keep));
    } else {
      c10::DataPtr data = allocate(device_.index, stream_, bytes);
      copy_to_device(data.get(), host->data(), bytes);
      stream_.sync();
      ours = make_storage(std::move(data), bytes, host->resizable());
      if (c10::raw::intrusive_ptr::use_count(host) > 1) adopted_.emplace_back(host, ours);
    }
  }
  impl->set_storage_keep_dtype(c10::Storage(std::move(ours)));
  impl->_change_backend_component_keys(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device_.index)));
  return t;
}

at::Tensor HostCall::result(at::Tensor t) {
  if (!t.defined() || !t.is_cpu()) return t;
  TensorImpl* impl = t.unsafeGetTensorImpl();
  if (C10_UNLIKELY(has_parts(*impl))) {
    for (const Stand& s : stands_)
      if (impl == s.alias.unsafeGetTensorImpl()) return s.original;
    if (to_host_) return t.clone();
    Parts ours;
    for (at::Tensor& part : parts_of(t)) ours.push_back(result(std::move(part)));
    // A view is an inference tensor if its base is one, whatever the mode is now.
    std::optional<c10::InferenceMode> mode;
    const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    for (const Stand* s = stands_.begin(); storage && s != stands_.end(); ++s)
      if (s->parts && (s - 1)->host_storage == storage) mode.emplace(s->original.is_inference());
    return assemble(t, ours);
  }
  if (C10_UNLIKELY(to_host_)) return t.clone();
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  for (const Stand& s : stands_) {
    if (impl == s.alias.unsafeGetTensorImpl()) return s.original;
    if (storage && storage == s.host_storage) return view(s, impl);
  }
  return adopt(std::move(t));
}

void HostCall::results(Stack& stack) {
  const size_t n = op_.return_of.size();
  const size_t first = stack.size() - n;
  for (size_t r = 0; r < n; ++r) {
    c10::IValue& v = stack[first + r];
    if (v.isTensor()) {
      if (const int arg = op_.return_of[r]; arg >= 0) {
        for (const Stand& s : stands_) {
          if (s.arg != arg) continue;
          v = s.original;
          break;
        }
        continue;
      }
      v = result(std::move(v).toTensor());
    } else if (v.isTensorList()) {
      if (op_.return_of[r] >= 0) {
        c10::List<at::Tensor> list;
        for (const Stand& s : stands_)
          if (s.arg == op_.return_of[r]) list.push_back(s.original);
        v = std::move(list);
        continue;
      }
      std::vector<at::Tensor> in = v.toTensorVector();
      v = c10::IValue();
      c10::List<at::Tensor> list;
      for (at::Tensor& t : in) list.push_back(result(std::move(t)));
      v = std::move(list);
    }
  }
}

// Give aliases back to the pool. One that somebody kept (a Python kernel can) owns its memory from now on.
void HostCall::drop() {
  for (Stand& s : stands_)
    if (C10_UNLIKELY(s.same)) s.alias.reset();
  for (Stand& s : stands_) {
    if (!s.alias.defined()) continue;
    auto impl = s.alias.unsafeReleaseIntrusivePtr();
    if (C10_LIKELY(impl.use_count() == 1 && s.pooled && !impl->pyobj_slot()->load_pyobj() && t_pool.free.size() < 64)) {
      auto* alias = static_cast<HostAlias*>(impl.release());
      alias->unbind();
      t_pool.free.push_back(c10::intrusive_ptr<HostAlias>::reclaim(alias));
    } else if (impl.use_count() > 1 && device_.host_addressable && !s.parts) {
      if (auto* d = dynamic_cast<DeviceStorage*>(s.original.storage().unsafeGetStorageImpl())) d->release_twin();
    }
  }
}

void call_host(Operator& op, Stack& stack, Entry& entry, c10::DispatchKeySet kinds) {
  const c10::DispatchKey on_host = (c10::DispatchKeySet(c10::DispatchKey::CPU) | kinds).highestPriorityTypeId();
  if (C10_UNLIKELY(!op.handle.hasComputedKernelForDispatchKey(on_host))) {
    if (kinds.empty() && compose(op, stack)) return entry.served(Rung::Decomposed, c10::ScalarType::Undefined);
    TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", op.name, "' with arguments from the '",
                                c10::toString(on_host), "' backend, which stands in for ", vendor_name(),
                                ": neither has a kernel for this call. Register one with torch.library.impl(\"",
                                op.name, "\", \"PrivateUse1\")");
  }
  if (C10_UNLIKELY(watched_by(Watcher::Policy))) check_fallback(op);
  DeviceState& d = device(device_of_call(op, stack));
  if (C10_UNLIKELY(takes_statistics(op))) fit_statistics(op, stack);
  Profiled span(Work::Host, op.name.c_str());
  span.serves(op.name.c_str(), kRungNames[static_cast<int>(Rung::Host)]);
  HostCall(op, d, current_stream(d.index), kinds).run(stack, entry);
}

}  // namespace causeway
