// What is shared is the vendor's whole allocation, a segment of the cache; a storage is an offset in it. A segment
// imported twice is opened once, and closed when the last storage in it is gone.
#include "runtime/ipc.h"

#include <map>
#include <memory>
#include <mutex>

#include "runtime/allocator.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/storage.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

const cw_ipc_v1& ipc() {
  const auto* table = static_cast<const cw_ipc_v1*>(vendor_extension("ipc.v1"));
  if (!table || table->struct_size < sizeof(cw_ipc_v1) || !table->mem_export || !table->mem_import || !table->mem_close)
    fail(Kind::Vendor, vendor_name(), " offers no memory shared between processes (ipc.v1); send tensor.cpu() instead");
  return *table;
}

struct Imported {
  int device;
  void* start;
  ~Imported() {
    try {
      if (!past_use()) check(ipc().mem_close(device_state(), start), "ipc.mem_close", device);
    } catch (...) {
      TORCH_WARN("while shared memory was closed: ", words_of(std::current_exception()));
    }
  }
  int32_t device_state() const { return causeway::device(device).vendor_id; }
};

std::mutex g_ipc_mutex;
std::map<std::pair<int, std::string>, std::weak_ptr<Imported>> g_imported;

void drop(void* context) { delete static_cast<std::shared_ptr<Imported>*>(context); }

}  // namespace

SharedMemory ipc_export(const c10::Storage& storage) {
  const int index = storage.device().index();
  const DeviceState& d = device(index);
  const cw_ipc_v1& table = ipc();
  const auto [start, offset] = segment_of(index, storage.mutable_data());  // the other process may write
  // The other process knows nothing of our streams.
  sync_device(index);
  SharedMemory shared{index, std::string(CW_IPC_HANDLE_SIZE, '\0'), offset, storage.nbytes()};
  check(table.mem_export(d.vendor_id, start, reinterpret_cast<uint8_t*>(shared.handle.data())), "ipc.mem_export",
        index);
  return shared;
}

c10::Storage ipc_import(const SharedMemory& shared) {
  const DeviceState& d = device(shared.device);
  const cw_ipc_v1& table = ipc();
  if (shared.handle.size() != CW_IPC_HANDLE_SIZE)
    fail(Kind::Causeway, "a handle of shared memory has ", CW_IPC_HANDLE_SIZE, " bytes, this one ",
         shared.handle.size());
  std::shared_ptr<Imported> segment;
  {
    std::lock_guard lock(g_ipc_mutex);
    auto& slot = g_imported[{shared.device, shared.handle}];
    segment = slot.lock();
    if (!segment) {
      void* start = nullptr;
      check(table.mem_import(d.vendor_id, reinterpret_cast<const uint8_t*>(shared.handle.data()), &start),
            "ipc.mem_import", shared.device);
      segment = std::make_shared<Imported>(shared.device, start);
      slot = segment;
    }
  }
  void* data = static_cast<char*>(segment->start) + shared.offset;
  c10::DataPtr ptr(data, new std::shared_ptr<Imported>(segment), drop,
                   c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(shared.device)));
  return c10::Storage(make_storage(std::move(ptr), shared.bytes, /*resizable=*/false));
}

}  // namespace causeway
