#include "runtime/storage.h"

#include <mutex>

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/COW.h>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/packed.h"
#include "runtime/profile.h"
#include "runtime/torch_version.h"

namespace causeway {

namespace {

thread_local int t_device = -1;
thread_local StreamState* t_stream = nullptr;

// torch's CPU allocator, but for the host rung's thread, which gets device memory.
struct CpuAllocator final : c10::Allocator {
  explicit CpuAllocator(c10::Allocator* torch) : torch(torch) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (C10_LIKELY(t_device < 0)) return torch->allocate(bytes);
    return allocate_for_host(t_device, *t_stream, bytes);
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return is_block_for_host(data) || torch->is_simple_data_ptr(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return raw_free; }
  static void raw_free(void* start);
  void copy_data(void* to, const void* from, size_t bytes) const override { torch->copy_data(to, from, bytes); }
  c10::Allocator* torch;
};

CpuAllocator* g_cpu = nullptr;

void CpuAllocator::raw_free(void* start) {
  if (start && !free_for_host(start)) g_cpu->torch->raw_deallocate(start);
}

void keep_alive(void* storage) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(storage)); }

// Memory of the core's own that nobody else knows yet. The one branch that a vendor without layouts pays.
void watch_new(DeviceStorage& storage) {
  if (C10_LIKELY(!watches_storages())) return;
  if (current_stream(storage.device().index()).graph.load(std::memory_order_relaxed)) return replays_write(storage);
  if (storage.nbytes() >= kLeastWatched && is_block(storage.data_ptr())) watch(storage);
}

StoragePtr create(c10::StorageImpl::use_byte_size_t how, c10::SymInt bytes, c10::DataPtr data,
                  c10::Allocator* allocator, bool resizable) {
  // Also for no bytes: a storage's device is that of its DataPtr.
  const bool fresh = !data && !bytes.is_heap_allocated() && allocator;
  if (fresh) data = allocator->allocate(bytes.as_int_unchecked());
  auto storage = c10::make_intrusive<DeviceStorage>(how, std::move(bytes), std::move(data), allocator, resizable);
  if (fresh) watch_new(*storage);
  return storage;
}

bool is_shared_until_written(const c10::StorageImpl& storage) {
#if CAUSEWAY_TORCH_AT_LEAST(2, 13)
  return storage.has_materializer();
#else
  return c10::impl::cow::is_cow_data_ptr(storage.data_ptr());
#endif
}

const bool g_registered = [] {
  c10::SetStorageImplCreate(kDeviceType, create);
  return true;
}();

}  // namespace

void DeviceStorage::release_resources() {
  c10::StorageImpl::release_resources();
  delete forms.exchange(nullptr);
}

DeviceStorage::~DeviceStorage() {
  delete forms.load(std::memory_order_relaxed);
  if (auto* t = twin_.load(std::memory_order_relaxed)) c10::raw::intrusive_ptr::decref(t);
}

c10::StorageImpl* DeviceStorage::twin() {
  c10::StorageImpl* t = twin_.load(std::memory_order_acquire);
  // Never materialises copy-on-write memory: who writes does that first.
  void* bytes = const_cast<void*>(static_cast<const void*>(data()));
  if (C10_UNLIKELY(!t)) {
    auto made = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes(),
                                                      c10::DataPtr(bytes, c10::DeviceType::CPU), c10::GetCPUAllocator(),
                                                      resizable());
    t = made.get();
    c10::StorageImpl* none = nullptr;
    if (twin_.compare_exchange_strong(none, t, std::memory_order_acq_rel))
      made.release();
    else
      t = none;
  } else if (C10_UNLIKELY(t->data() != bytes || t->nbytes() != nbytes())) {
    t->set_data_ptr_noswap(c10::DataPtr(bytes, c10::DeviceType::CPU));
    t->set_nbytes(nbytes());
    if (t->resizable() != resizable()) t->set_resizable(resizable());
  }
  return t;
}

void DeviceStorage::adopt_twin(StoragePtr storage) {
  storage->set_data_ptr_noswap(c10::DataPtr(data_ptr().get(), c10::DeviceType::CPU));
  c10::StorageImpl* none = nullptr;
  if (twin_.compare_exchange_strong(none, storage.get())) storage.release();
}

void DeviceStorage::release_twin() {
  c10::StorageImpl* t = twin_.exchange(nullptr);
  if (!t) return;
  give_up(*this);
  c10::raw::intrusive_ptr::incref(this);
  t->set_data_ptr_noswap(c10::DataPtr(t->data_ptr().get(), this, keep_alive, c10::DeviceType::CPU));
  c10::raw::intrusive_ptr::decref(t);
}

StoragePtr make_storage(c10::DataPtr data, size_t bytes, bool resizable) {
  auto storage = c10::make_intrusive<DeviceStorage>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
                                                    std::move(data), device_allocator(), resizable);
  watch_new(*storage);
  return storage;
}

at::Tensor make_device_tensor(c10::Storage storage, c10::DispatchKeySet keys, c10::ScalarType dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(dtype));
}

HostAlias::HostAlias()
    : c10::TensorImpl(c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(c10::ScalarType::Float),
                      c10::Device(c10::DeviceType::CPU)) {}

void HostAlias::bind(const c10::TensorImpl& source, c10::Storage storage, int64_t storage_offset) {
  storage_ = std::move(storage);
  const auto& s = static_cast<const HostAlias&>(source);  // for its protected fields; same layout
  data_type_ = s.data_type_;
  sizes_and_strides_ = s.sizes_and_strides_;
  storage_offset_ = storage_offset;
  numel_ = s.numel_;
  is_contiguous_ = s.is_contiguous_;
  is_channels_last_contiguous_ = s.is_channels_last_contiguous_;
  is_channels_last_3d_contiguous_ = s.is_channels_last_3d_contiguous_;
  is_channels_last_ = s.is_channels_last_;
  is_channels_last_3d_ = s.is_channels_last_3d_;
  is_non_overlapping_and_dense_ = s.is_non_overlapping_and_dense_;
  is_wrapped_number_ = s.is_wrapped_number_;
  constexpr c10::DispatchKeySet kBits(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  key_set_ = c10::DispatchKeySet(c10::DispatchKey::CPU) | (s.key_set_ & kBits);
}

DeviceStorage* watched(c10::StorageImpl& storage) {
  if (typeid(storage) != typeid(DeviceStorage)) return nullptr;
  auto& ours = static_cast<DeviceStorage&>(storage);
  return ours.watched.load(std::memory_order_acquire) ? &ours : nullptr;
}

bool materialize(c10::StorageImpl& storage) {
  if (C10_LIKELY(!is_shared_until_written(storage))) return false;
  if (auto* ours = watched(storage)) {
    note_write(*ours);
    return true;
  }
  // The allocator, which knows no storage, copies within the current device.
  const int old = exchange_device(storage.device().index());
  storage.mutable_data_ptr();
  exchange_device(old);
  return false;
}

void wrote(c10::StorageImpl& storage) {
  if (auto* ours = watched(storage)) note_write(*ours);
}

void* materialized_data(const at::Tensor& t) {
  materialize(*t.storage().unsafeGetStorageImpl());
  return const_cast<void*>(t.const_data_ptr());
}

c10::DispatchKeySet kind_of(const c10::TensorImpl& t) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kinds({DispatchKey::Quantized, DispatchKey::Sparse, DispatchKey::SparseCsr,
                                       DispatchKey::NestedTensor, DispatchKey::Python});
  return t.key_set() & kinds;
}

void HostAlias::unbind() {
  storage_ = c10::Storage();
  if (C10_UNLIKELY(autograd_meta() != nullptr)) set_autograd_meta(nullptr);
}

AllocateOnDevice::AllocateOnDevice(int device, StreamState& stream) : old_device_(t_device), old_stream_(t_stream) {
  t_device = device;
  t_stream = &stream;
}

AllocateOnDevice::~AllocateOnDevice() {
  t_device = old_device_;
  t_stream = old_stream_;
}

void install_cpu_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_cpu = new CpuAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(g_cpu, /*priority=*/255);
  });
}

c10::Allocator* cpu_allocator() { return g_cpu ? g_cpu->torch : c10::GetCPUAllocator(); }

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const int index = storage.device().index();
  DeviceState& d = device(index);
  StreamState& stream = current_stream(index);
  materialize(storage);
  c10::DataPtr data = allocate(index, stream, bytes);
  const size_t keep = std::min(bytes, storage.nbytes());
  if (keep) copy_on(stream, data.get(), d.vendor_id, storage.data(), d.vendor_id, keep);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
  wrote(storage);
}

}  // namespace causeway
