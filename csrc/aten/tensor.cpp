// The tensor operators that are the device's own: making, viewing, copying and resizing.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_empty_affine_quantized_native.h>
#include <ATen/ops/_lazy_clone_native.h>
#include <ATen/ops/_empty_per_channel_affine_quantized_native.h>
#include <ATen/ops/empty_quantized_native.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "runtime/allocator.h"
#include "ladder/call.h"
#include "runtime/check.h"
#include "ladder/forms.h"
#include "ladder/dry.h"
#include "ladder/host.h"
#include "runtime/graph.h"
#include "runtime/host_allocator.h"
#include "runtime/packed.h"
#include "ladder/observe.h"
#include "runtime/peers.h"
#include "runtime/profile.h"
#include "runtime/storage.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

int index_of(const std::optional<c10::Device>& d) { return d && d->has_index() ? d->index() : current_device(); }
DeviceState& home(const at::Tensor& t) { return device(t.device().index()); }
bool is_ours(const at::Tensor& t) { return t.device().type() == kDeviceType; }

// ---- making ------------------------------------------------------------------------------------------------------

// What torch.utils.deterministic.fill_uninitialized_memory promises: NaN, or the largest value.
void fill_if_deterministic(const at::Tensor& t) {
  if (C10_LIKELY(!at::globalContext().deterministicAlgorithms() ||
                 !at::globalContext().deterministicFillUninitializedMemory()))
    return;
  if (t.is_floating_point() || t.is_complex())
    t.fill_(std::numeric_limits<double>::quiet_NaN());
  else if (t.scalar_type() == at::kBool)
    t.fill_(true);
  else
    AT_DISPATCH_V2(t.scalar_type(), "fill_uninitialized",
                   AT_WRAP([&] { t.fill_(at::Scalar(std::numeric_limits<scalar_t>::max())); }),
                   AT_EXPAND(AT_INTEGRAL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

struct Place {
  DeviceState& device;
  c10::ScalarType dtype;
};

Place place_for(std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout, std::optional<at::Device> where,
                std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK(!layout || *layout == at::kStrided, "empty: layout ", layout.value_or(at::kStrided),
              " is made by its own constructor, not by empty()");
  DeviceState& d = device(index_of(where));
  if (C10_UNLIKELY(dtype == at::kComplexHalf)) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental: many operators lack it.");
  }
  return {d, stored_dtype(d, dtype.value_or(c10::get_default_dtype_as_scalartype()), "empty")};
}

at::Tensor make(const Place& place, size_t bytes) {
  const int index = place.device.index;
  return make_device_tensor(c10::Storage(make_storage(allocate(index, current_stream(index), bytes), bytes)),
                            c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), place.dtype);
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> where, std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  const Place place = place_for(dtype, layout, where, pin);
  at::Tensor t = make(place, at::detail::computeStorageNbytesContiguous(size, c10::elementSize(place.dtype)));
  if (size.size() != 1 || size[0] != 0) t.unsafeGetTensorImpl()->generic_set_sizes_contiguous(size);
  if (format && *format != at::MemoryFormat::Contiguous) t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  fill_if_deterministic(t);
  return t;
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> where, std::optional<bool> pin) {
  at::detail::check_size_nonnegative(size);
  const Place place = place_for(dtype, layout, where, pin);
  at::Tensor t = make(place, at::detail::computeStorageNbytes(size, stride, c10::elementSize(place.dtype)));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  fill_if_deterministic(t);
  return t;
}

// ---- resizing and set_ -----------------------------------------------------------------------------------------------

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  const auto bytes_before = impl->unsafe_storage() ? impl->unsafe_storage().nbytes() : 0;
  if (impl->sizes() != size) {
    at::detail::check_size_nonnegative(size);
    impl->set_sizes_contiguous(size);
    const size_t bytes = at::detail::computeStorageNbytesContiguous(size, impl->itemsize(), impl->storage_offset());
    if (impl->numel() > 0 && bytes > bytes_before)
      resize_storage(*impl->unsafe_storage().unsafeGetStorageImpl(), bytes);
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  const size_t bytes_after = impl->unsafe_storage().nbytes();
  if (bytes_after > bytes_before && C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                                                 at::globalContext().deterministicFillUninitializedMemory())) {
    const auto item = static_cast<int64_t>(impl->itemsize());
    at::Tensor fresh = at::empty({0}, self.options());
    fresh.set_(self.storage(), static_cast<int64_t>(bytes_before) / item,
               {static_cast<int64_t>(bytes_after - bytes_before) / item}, {1});
    fill_if_deterministic(fresh);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  TORCH_CHECK(source.device().type() == kDeviceType, "set_: expected a storage on ", self.device(), " but got one on ",
              source.device(), "; move the data with .to() instead");
  at::native::checkSetStorage(self, source, offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  c10::DimVector contiguous;
  if (!stride.data()) {
    contiguous = c10::contiguous_strides(size);
    stride = contiguous;
  }
  impl->set_sizes_and_strides(size, stride, offset);
  const size_t bytes = impl->numel() ? at::detail::computeStorageNbytes(size, stride, impl->itemsize(), offset) : 0;
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) resize_storage(*storage, bytes);
  return self;
}

at::Tensor& set_storage_all(at::Tensor& self, at::Storage source) {
  const auto n = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {n}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const Place place{home(self), self.scalar_type()};
  at::Tensor none = make(place, 0);
  return set_storage(self, none.storage(), 0, {0}, {});
}

// ---- copying -----------------------------------------------------------------------------------------------------------

Operator& copy_operator() {
  static Operator& op = operator_for(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  return op;
}

// The same elements in the same order in memory, none left out: a copy of bytes.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.strides() == b.strides() && a.is_non_overlapping_and_dense() &&
         a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

void copy_bytes(const at::Tensor& to, const at::Tensor& from, StreamState& stream) {
  auto side = [](const at::Tensor& t) { return is_ours(t) ? home(t).vendor_id : CW_HOST; };
  void* target = is_ours(to) ? materialized_data(to) : to.mutable_data_ptr();
  const void* source = from.const_data_ptr();
  copy_on(stream, target, side(to), source, side(from), to.nbytes());
  if (is_ours(to)) wrote(*to.storage().unsafeGetStorageImpl());
  Entry::add_bytes(to.nbytes());
}

// Between two devices that cannot reach each other. Returns when the source was read.
void copy_through_host(const at::Tensor& to, const at::Tensor& from, StreamState& ours, StreamState& theirs) {
  const c10::DataPtr staged = pinned_allocator()->allocate(from.nbytes());
  copy_on(theirs, staged.get(), CW_HOST, from.const_data_ptr(), home(from).vendor_id, from.nbytes());
  theirs.wait();
  copy_on(ours, materialized_data(to), home(to).vendor_id, staged.get(), CW_HOST, to.nbytes());
  wrote(*to.storage().unsafeGetStorageImpl());
  record_pinned(staged.get(), ours);
  Entry::add_bytes(to.nbytes());
}

// Between two devices: `to`'s stream waits for what `from`'s was given, and the other way round, so that neither side's
// memory is used too early or given away too soon.
void copy_across(const at::Tensor& to, const at::Tensor& from) {
  StreamState& ours = current_stream(to.device().index());
  StreamState& theirs = current_stream(from.device().index());
  if (peers(ours.device, theirs.device) == Peers::No) return copy_through_host(to, from, ours, theirs);
  std::unique_ptr<Event, void (*)(Event*)> ready(new_event(theirs.device, false), [](Event* e) { destroy_event(e); });
  record_event(*ready, theirs);
  block_stream(ours, *ready);
  copy_bytes(to, from, ours);
  std::unique_ptr<Event, void (*)(Event*)> done(new_event(ours.device, false), [](Event* e) { destroy_event(e); });
  record_event(*done, ours);
  block_stream(theirs, *done);
}

void refuse_host_copy(const at::Tensor& to, const StreamState& stream) {
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr))
    graph->refuse(c10::str("a copy ", is_ours(to) ? "from" : "to",
                           " the host that waits, or whose memory there is not pinned, or that converts,"),
                  "Copy outside of the capture, or between equal tensors with pinned memory and non_blocking=True");
}

// True when the bytes could go by the vendor's mem_copy, and went.
bool try_copy_bytes(const at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  if (C10_UNLIKELY(is_dry()) && !is_ours(self)) need_contents(from, "a copy to the host");
  if (!same_layout(self, from)) return false;
  if (is_ours(self) && is_ours(from)) {
    copy_bytes(self, from, current_stream(self.device().index()));
    return true;
  }
  const at::Tensor& on_device = is_ours(self) ? self : from;
  const at::Tensor& on_host = is_ours(self) ? from : self;
  StreamState& stream = current_stream(on_device.device().index());
  const bool background = non_blocking && is_pinned(on_host.const_data_ptr(), stream.device);
  if (!background) refuse_host_copy(self, stream);
  // In the foreground the host copies at full speed itself where it can; it has two hands, and the vendor's may have one.
  if (!background && home(on_device).host_addressable) return false;
  copy_bytes(self, from, stream);
  if (background)
    record_pinned(on_host.const_data_ptr(), stream);
  else
    stream.sync();
  return true;
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(self.defined() && source.defined(), "copy_: self and src must be defined tensors");
  if (self.is_same(source)) return self;
  TORCH_CHECK(
      !self._is_zerotensor(),
      "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a mutable zero tensor.");
  if (source._is_zerotensor()) return self.zero_();
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, source);
  at::Tensor from = source;
  if (self.sizes() != source.sizes()) {
    const auto shape = at::infer_size_dimvector(self.sizes(), source.sizes());
    TORCH_CHECK(self.sizes() == at::IntArrayRef(shape), "output with shape ", self.sizes(),
                " doesn't match the broadcast shape ", at::IntArrayRef(shape));
    from = source.expand(shape);
  }
  if (self.numel() == 0) return self;
  Operator& op = copy_operator();
  Entry entry(op);
  const bool both = is_ours(self) && is_ours(from);
  if (both && self.device() != from.device()) {
    // Prepare on the source's side, send dense bytes, finish on the target's.
    at::Tensor dense =
        same_layout(self, from) ? from : from.to(self.scalar_type()).resolve_conj().resolve_neg().contiguous();
    if (same_layout(self, dense)) {
      copy_across(self, dense);
    } else {
      at::Tensor landed = at::empty(dense.sizes(), self.options().dtype(dense.scalar_type()));
      copy_across(landed, dense);
      self.copy_(landed);
    }
    entry.served(Rung::Native, self.scalar_type());
    return self;
  }
  const bool forced = op.forced.load(std::memory_order_relaxed);
  if (!forced && try_copy_bytes(self, from, non_blocking)) {
    entry.served(Rung::Native, self.scalar_type());
    return self;
  }
  Stack stack{self, from, non_blocking};
  const bool bits = self.is_conj() || self.is_neg() || from.is_conj() || from.is_neg();  // resolving them copies
  if (both && !forced && !bits) {
    Offers* offers = op.resolved.load(std::memory_order_acquire);
    if (!offers) offers = resolve_offers(op);
    if (offers->any && call_device(op, stack, entry)) return self;
  }
  if (both || forced) {
    call_host(op, stack, entry);
    return self;
  }
  // To or from the host: the host moves the bytes, and that is no fallback.
  DeviceState& d = home(is_ours(self) ? self : from);
  refuse_host_copy(self, current_stream(d.index));
  Profiled span(Work::HostCopy, is_ours(self) ? "Memcpy HtoD (by the host)" : "Memcpy DtoH (by the host)", nullptr,
                self.nbytes());
  HostCall(op, d, current_stream(d.index)).run(stack, entry);
  entry.served(Rung::Native, self.scalar_type());
  Entry::add_bytes(self.nbytes());
  return self;
}

at::Tensor lazy_clone(const at::Tensor& self) {
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  if (auto* ours = watched(*storage)) give_up(*ours);  // torch is to watch it for its own ends
  storage->set_data_ptr_noswap(as_simple(std::move(storage->_mutable_data_ptr_no_checks())));
  return at::native::_lazy_clone(self);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  at::Tensor to = target;
  copy(to, self, non_blocking);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  target.resize_(self.sizes());
  return copy_from(self, target, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  DeviceState& d = home(self);
  StreamState& stream = current_stream(d.index);
  if (C10_UNLIKELY(is_dry())) need_contents(self, "a number (.item(), a condition)");
  if (Graph* graph = graph_of(stream); C10_UNLIKELY(graph != nullptr))
    graph->refuse("a number that the host reads (.item(), a condition)",
                  "Keep it on the device as a tensor, and read it after a replay");
  char bytes[16];
  const size_t item = self.element_size();
  const void* from = self.const_data_ptr();
  if (d.host_addressable) {
    stream.sync();
    std::memcpy(bytes, from, item);
  } else {
    copy_on(stream, bytes, CW_HOST, from, d.vendor_id, item);
    stream.sync();
  }
  at::Tensor value = at::from_blob(bytes, {}, at::TensorOptions().dtype(self.scalar_type()));
  if (self.is_conj()) value = value.conj().resolve_conj();
  if (self.is_neg()) value = value.neg();
  return at::_local_scalar_dense(value);
}

void record_stream_kernel(at::Tensor& self, at::Stream stream) { record_stream(self.storage().data_ptr(), stream); }

// nn.Module.to() keeps Parameter objects where this says yes, as it does for torch.cuda: a dense tensor may change
// between our device and the others in place.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return kind_of(*self.unsafeGetTensorImpl()) == kind_of(*from.unsafeGetTensorImpl()) &&
         self.is_meta() == from.is_meta();
}

// ---- attention ------------------------------------------------------------------------------------------------------------

// `sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)` and its like, where flash attention is not allowed.
std::optional<at::SDPBackend> fused_by_name(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            const std::optional<at::Tensor>& mask, double dropout, bool causal,
                                            bool gqa) {
  const at::Context& context = at::globalContext();
  if (context.userEnabledFlashSDP()) return std::nullopt;
  const auto plain = [](const at::Tensor& t) { return t.layout() == at::kStrided && !t.is_nested() && t.dim() == 4; };
  if (!plain(q) || !plain(k) || !plain(v) || dropout != 0 || gqa || q.numel() == 0 || k.numel() == 0)
    return std::nullopt;
  if (q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type() || !q.is_floating_point())
    return std::nullopt;
  for (int64_t d : {0, 1})
    if (q.sym_size(d) != k.sym_size(d) || q.sym_size(d) != v.sym_size(d)) return std::nullopt;
  if (q.sym_size(3) != k.sym_size(3) || q.sym_size(3) != v.sym_size(3) || k.sym_size(2) != v.sym_size(2))
    return std::nullopt;
  if (mask && (causal || mask->requires_grad() || (mask->dim() != 2 && mask->dim() != 4))) return std::nullopt;
  if (context.userEnabledMemEfficientSDP()) return at::SDPBackend::efficient_attention;
  if (context.userEnabledCuDNNSDP()) return at::SDPBackend::cudnn_attention;
  if (context.userEnabledOverrideableSDP()) return at::SDPBackend::overrideable;
  return std::nullopt;
}

// Fused where torch's CPU kernel is: the choice of the CPU holds for the host rung too.
int64_t sdp_choice(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
                   double dropout, bool causal, std::optional<double> scale, bool gqa) {
  // vmap has a rule for torch's own attentions only; what they are made of it takes apart.
  if (q.key_set().has(c10::DispatchKey::FuncTorchBatched) || k.key_set().has(c10::DispatchKey::FuncTorchBatched) ||
      v.key_set().has(c10::DispatchKey::FuncTorchBatched))
    return static_cast<int64_t>(at::SDPBackend::math);
  // A program that allows CUDA's other fused attentions alone gets one by the name that it asked for.
  if (const auto named = fused_by_name(q, k, v, mask, dropout, causal, gqa)) return static_cast<int64_t>(*named);
  // Not through the dispatcher: the answer depends on requires_grad, and vmap has no rule for the question.
  const auto choice =
      static_cast<at::SDPBackend>(at::native::_fused_sdp_choice_cpp(q, k, v, mask, dropout, causal, scale, gqa));
  return static_cast<int64_t>(choice == at::SDPBackend::flash_attention ? at::SDPBackend::overrideable : choice);
}

// `t` in the strides that torch's meta kernel promises of it, those of `like`.
at::Tensor laid_out(const at::Tensor& t, const at::Tensor& like) {
  if (!t.defined() || t.sym_sizes() != like.sym_sizes()) return t;
  at::Tensor promised = at::empty_like(like);
  return promised.sym_strides() == t.sym_strides() ? t : promised.copy_(t);
}

// torch's CPU kernel steps by one through the last dimension, whatever the stride; its own choice sees to that on the
// CPU, and here a program may ask by name (`sdpa_kernel`), or for the operator itself.
at::Tensor in_steps_of_one(const at::Tensor& t) { return t.sym_stride(-1) == 1 ? t : t.contiguous(); }

using Attention = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                             at::Tensor, at::Tensor>;
Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::optional<at::Tensor>& bias, double dropout, bool causal, bool,
                    std::optional<double> scale) {
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      in_steps_of_one(q), in_steps_of_one(k), in_steps_of_one(v), dropout, causal, bias, scale);
  // Absent and without dimensions where torch's meta kernel says so: DTensor wraps what that has said.
  at::Tensor none = at::empty({}, q.options().dtype(at::kLong).device(at::kCPU));
  return {laid_out(out, q), logsumexp.contiguous(), at::Tensor(), at::Tensor(),
          q.sym_size(2),    k.sym_size(2),          none,         none,
          at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
    std::array<bool, 4>, const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double dropout, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, in_steps_of_one(q), in_steps_of_one(k), in_steps_of_one(v), in_steps_of_one(out), logsumexp, dropout,
      causal, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt, scale);
  // They keep the CPU's strides, which are not those of this operator's meta kernel: a copy each would be for compiled
  // code alone, and that lays out itself what it was compiled for.
  return {gq, gk, gv, at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", own<&empty>("empty.memory_format"));
  m.impl("empty_strided", own<&empty_strided>("empty_strided"));
  m.impl("as_strided", own<&at::native::as_strided_tensorimpl>("as_strided"));
  m.impl("view", own<&at::native::view>("view"));
  m.impl("_reshape_alias", own<&at::native::_reshape_alias>("_reshape_alias"));
  m.impl("unfold", own<&at::native::unfold>("unfold"));
  m.impl("resize_", own<&resize>("resize_"));
  m.impl("set_", own<&set_empty>("set_"));
  m.impl("set_.source_Tensor", own<&set_tensor>("set_.source_Tensor"));
  m.impl("set_.source_Storage", own<&set_storage_all>("set_.source_Storage"));
  m.impl("set_.source_Storage_storage_offset", own<&set_storage>("set_.source_Storage_storage_offset"));
  m.impl("copy_", own<&copy>("copy_"));
  m.impl("_lazy_clone", own<&lazy_clone>("_lazy_clone"));
  m.impl("_copy_from", own<&copy_from>("_copy_from"));
  m.impl("_copy_from_and_resize", own<&copy_from_and_resize>("_copy_from_and_resize"));
  m.impl("_local_scalar_dense", own<&local_scalar_dense>("_local_scalar_dense"));
  m.impl("record_stream", own<&record_stream_kernel>("record_stream"));
  m.impl("_empty_affine_quantized", own<&at::native::empty_affine_quantized>("_empty_affine_quantized"));
  m.impl("_empty_per_channel_affine_quantized",
         own<&at::native::empty_per_channel_affine_quantized>("_empty_per_channel_affine_quantized"));
  m.impl("_has_compatible_shallow_copy_type",
         own<&has_compatible_shallow_copy_type>("_has_compatible_shallow_copy_type"));
  m.impl("_fused_sdp_choice", own<&sdp_choice>("_fused_sdp_choice"));
  m.impl("_scaled_dot_product_fused_attention_overrideable",
         own<&attention>("_scaled_dot_product_fused_attention_overrideable"));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward",
         own<&attention_backward>("_scaled_dot_product_fused_attention_overrideable_backward"));
}

// torch's own, with the quantizer that they are given; the bytes are copied as any.
TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_empty_affine_quantized", own<&at::native::empty_affine_quantized>("_empty_affine_quantized"));
  m.impl("_empty_per_channel_affine_quantized",
         own<&at::native::empty_per_channel_affine_quantized>("_empty_per_channel_affine_quantized"));
  m.impl("empty_quantized", own<&at::native::empty_quantized>("empty_quantized"));
  m.impl("_copy_from", own<&copy_from>("_copy_from"));
  m.impl("_copy_from_and_resize", own<&copy_from_and_resize>("_copy_from_and_resize"));
}

// Asked before a tensor subclass is, as the composite kernel of other devices is.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace causeway

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &causeway::sdp_choice)
}  // namespace at::native
