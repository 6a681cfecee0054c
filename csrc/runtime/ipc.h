// Device memory shared between processes, by the vendor's extension "ipc.v1".
#pragma once

#include <string>

#include <c10/core/Storage.h>

namespace causeway {

struct SharedMemory {
  int device;
  std::string handle;  // of a whole allocation of the vendor
  size_t offset;       // bytes from its start
  size_t bytes;
};

// Throws Kind::Vendor where the vendor has no ipc.v1.
SharedMemory ipc_export(const c10::Storage& storage);
c10::Storage ipc_import(const SharedMemory& shared);

}  // namespace causeway
