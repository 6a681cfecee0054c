// Device storages, and how the host rung sees them: as CPU tensors on the same bytes, with no copy.
#pragma once

#include <array>
#include <atomic>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "runtime/stream.h"

namespace causeway {

class Forms;

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

// A storage on the device. Its twin is a CPU storage on the same bytes, made at the first need and kept, so that an
// alias of a tensor costs no storage of its own.
struct DeviceStorage final : c10::StorageImpl {
  using c10::StorageImpl::StorageImpl;
  ~DeviceStorage() override;
  void release_resources() override;
  // The twin, up to date with this storage's bytes.
  c10::StorageImpl* twin();
  // Use `storage`, which just lost its bytes to this one, as the twin.
  void adopt_twin(StoragePtr storage);
  // Hand out the twin for good: it then owns this storage.
  void release_twin();

  // What packed.h keeps of it. `watched`: whoever is given a pointer to write by is noticed.
  std::atomic<bool> watched{false}, handed_out{false};
  std::atomic<uint64_t> writes{0};
  std::array<std::atomic<StreamState*>, 4> writers{};  // the streams that wrote
  std::atomic<bool> more_writers{false};
  std::atomic<bool> replayed{false};  // a graph writes to it
  std::atomic<Forms*> forms{nullptr};

 private:
  std::atomic<c10::StorageImpl*> twin_{nullptr};
};

// Give `storage` room for `bytes`, keeping what fits. Throws where the storage is not resizable.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

StoragePtr make_storage(c10::DataPtr data, size_t bytes, bool resizable = true);

// A new dense device tensor without autograd history; the caller sets sizes.
at::Tensor make_device_tensor(c10::Storage storage, c10::DispatchKeySet keys, c10::ScalarType dtype);

// To be called of a storage that the core writes to, before it does: copy-on-write memory becomes its own, and what was
// converted from it (packed.h) is dropped. True: `wrote` is to be called when the write is on its stream.
bool materialize(c10::StorageImpl& storage);
void wrote(c10::StorageImpl& storage);
DeviceStorage* watched(c10::StorageImpl& storage);  // by packed.h; else nullptr
// The memory of a tensor that the core writes to now.
void* materialized_data(const at::Tensor& t);

// Tensors of other kinds than dense ones: what their keys say, whatever the device.
c10::DispatchKeySet kind_of(const c10::TensorImpl& t);

// A CPU tensor over `source`'s bytes: same sizes, strides, offset, conj and neg bits. Below autograd only.
struct HostAlias final : c10::TensorImpl {
  HostAlias();
  void bind(const c10::TensorImpl& source, c10::Storage storage, int64_t storage_offset);
  void unbind();
};

// While one lives, this thread's CPU allocations come from device memory, so that what a CPU kernel returns already
// lies where it belongs. Only where the host can address that memory.
class AllocateOnDevice {
 public:
  AllocateOnDevice(int device, StreamState& stream);
  ~AllocateOnDevice();

 private:
  int old_device_;
  StreamState* old_stream_;
};

// Put the hook above into torch's CPU allocator; called when the first host-addressable device opens.
void install_cpu_allocator();
c10::Allocator* cpu_allocator();  // torch's own, whatever is installed

}  // namespace causeway
