// Extension "ipc.v1". A handle names the exporter's descriptor; the importer opens it through /proc, which also
// asks the system whether this user may.
#include "ipc.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "device.hpp"
#include "error.hpp"
#include "memory.hpp"

namespace sim {

namespace {

struct Handle {
  char magic[8];
  int64_t pid;
  int64_t fd;
  uint64_t bytes;
  uint64_t inode;  // descriptors are reused: the file behind it must still be the same
  uint64_t filesystem;
  uint64_t unused[2];
};
static_assert(sizeof(Handle) == CW_IPC_HANDLE_SIZE, "a handle has a fixed size");
const char magic[8] = {'c', 'w', '-', 's', 'i', 'm', '-', '1'};

cw_status mem_export(int32_t index, void* ptr, uint8_t out[CW_IPC_HANDLE_SIZE]) {
  Device* device = nullptr;
  if (cw_status status = enter("mem_export", index, &device)) return status;
  std::lock_guard<std::mutex> lock(device->memory_mutex);
  uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
  const Allocation* found = device->opened ? device->find(address, 0) : nullptr;
  if (!found || found->base != address) {
    return fail(CW_INVALID, "mem_export: %p is not the start of an allocation of device %d", ptr, index);
  }
  struct stat file;
  if (found->fd < 0 || fstat(found->fd, &file)) {
    return fail(CW_FAILED, "mem_export: this allocation has no descriptor to share; raise `ulimit -n`");
  }
  Handle handle = {};
  memcpy(handle.magic, magic, sizeof(magic));
  handle.pid = getpid();
  handle.fd = found->fd;
  handle.bytes = found->bytes;
  handle.inode = file.st_ino;
  handle.filesystem = file.st_dev;
  memcpy(out, &handle, sizeof(handle));
  return CW_OK;
}

cw_status mem_import(int32_t index, const uint8_t in[CW_IPC_HANDLE_SIZE], void** out) {
  Device* device = nullptr;
  if (cw_status status = enter_open("mem_import", index, &device)) return status;
  Handle handle;
  memcpy(&handle, in, sizeof(handle));
  if (memcmp(handle.magic, magic, sizeof(magic)) != 0) {
    return fail(CW_INVALID, "mem_import: not a handle of the simulated chip");
  }
  char path[64];
  snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", static_cast<long long>(handle.pid),
           static_cast<long long>(handle.fd));
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    int error = errno;
    return fail(CW_FAILED, "mem_import: process %lld, which exported the memory, %s (%s)",
                static_cast<long long>(handle.pid),
                error == ENOENT ? "is gone or has freed it" : "does not let this one have it", strerror(error));
  }
  struct stat file;
  if (fstat(fd, &file) || file.st_ino != handle.inode || file.st_dev != handle.filesystem) {
    close(fd);
    return fail(CW_FAILED, "mem_import: process %lld has freed the memory that it exported",
                static_cast<long long>(handle.pid));
  }
  return map_memory(*device, handle.bytes, fd, true, out);
}

cw_status mem_close(int32_t index, void* ptr) {
  Device* device = nullptr;
  if (cw_status status = enter("mem_close", index, &device)) return status;
  return unmap_memory(*device, ptr, true);
}

}  // namespace

const cw_ipc_v1 ipc_table = {sizeof(cw_ipc_v1), 0, mem_export, mem_import, mem_close};

}  // namespace sim
