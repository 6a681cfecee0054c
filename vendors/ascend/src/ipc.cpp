// A key of AscendCL's has 64 characters and a NUL: without the NUL it is a handle. The list of processes that may open it
// is left out, as the handle may go to any.
#include "ipc.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "acl.hpp"
#include "device.hpp"
#include "error.hpp"
#include "memory.hpp"

namespace ascend {

bool has_ipc() { return !*open_acl() && acl.ipc_export && acl.ipc_import && acl.ipc_close; }

namespace {

constexpr size_t kKey = 65;
constexpr uint64_t kNoList = 1;  // ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION
static_assert(kKey == CW_IPC_HANDLE_SIZE + 1, "a key without its NUL is a handle");

// One key is opened once in a process, however often it is asked for.
struct Imported {
  void* ptr;
  int count;
};
std::mutex g_mutex;
auto& g_imported = *new std::map<std::string, Imported>;

cw_status mem_export(int32_t index, void* ptr, uint8_t handle[CW_IPC_HANDLE_SIZE]) {
  Device* device = nullptr;
  TRY(find_device("mem_export", index, &device));
  const uint64_t bytes = bytes_of(ptr);
  if (!bytes) return fail(CW_INVALID, "mem_export: %p is not the start of a mem_alloc of device %d", ptr, index);
  char key[kKey] = {};
  TRY(check(acl.ipc_export(ptr, bytes, key, kKey, kNoList), "aclrtIpcMemGetExportKey"));
  if (key[CW_IPC_HANDLE_SIZE])
    return fail(CW_FAILED, "mem_export: the key has more than %d characters", CW_IPC_HANDLE_SIZE);
  memcpy(handle, key, CW_IPC_HANDLE_SIZE);
  return CW_OK;
}

cw_status mem_import(int32_t index, const uint8_t handle[CW_IPC_HANDLE_SIZE], void** out) {
  Device* device = nullptr;
  TRY(find_device("mem_import", index, &device));
  char key[kKey] = {};
  memcpy(key, handle, CW_IPC_HANDLE_SIZE);
  std::lock_guard<std::mutex> lock(g_mutex);
  if (const auto found = g_imported.find(key); found != g_imported.end()) {
    ++found->second.count;
    return *out = found->second.ptr, CW_OK;
  }
  TRY(check(acl.ipc_import(out, key, 0), "aclrtIpcMemImportByKey"));
  g_imported[key] = {*out, 1};
  return CW_OK;
}

cw_status mem_close(int32_t index, void* ptr) {
  Device* device = nullptr;
  TRY(find_device("mem_close", index, &device));
  std::lock_guard<std::mutex> lock(g_mutex);
  for (auto it = g_imported.begin(); it != g_imported.end(); ++it) {
    if (it->second.ptr != ptr) continue;
    if (--it->second.count) return CW_OK;
    const std::string key = it->first;
    g_imported.erase(it);
    return check(acl.ipc_close(key.c_str()), "aclrtIpcMemClose");
  }
  return fail(CW_INVALID, "mem_close: %p was not imported", ptr);
}

}  // namespace

const cw_ipc_v1 ipc_table = {sizeof(cw_ipc_v1), 0, mem_export, mem_import, mem_close};

}  // namespace ascend
