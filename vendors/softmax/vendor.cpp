// The table of the vendor whose kernels are in softmax.cpp: ../template in C++, with `op_find` and with op.hpp's words.
// One device whose memory is the host's.
#include <algorithm>
#include <cstdlib>

#include "causeway/op.hpp"

cw_status op_find(const char* name, cw_op* out);

static cw_status check(int32_t device) {
  return device == 0 ? CW_OK : cw::fail(CW_INVALID, "there is no device %d, there is one", int(device));
}

static cw_status device_count(int32_t* out) {
  *out = 1;
  return CW_OK;
}

static cw_status device_info(int32_t device, cw_device_info* out) {
  if (check(device)) return CW_INVALID;
  cw_device_info info = {};
  info.struct_size = out->struct_size;
  info.flags = CW_HOST_ADDRESSABLE;
  snprintf(info.name, sizeof info.name, "Example %d", int(device));
  info.memory = UINT64_C(4) << 30;
  info.dtypes = CW_ALL_DTYPES;
  info.alignment = 64;
  memcpy(out, &info, std::min<size_t>(info.struct_size, sizeof info));
  return CW_OK;
}

static cw_status sync(int32_t device) { return check(device); }

static cw_status mem_alloc(int32_t device, uint64_t bytes, void** out) {
  if (check(device)) return CW_INVALID;
  *out = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr;
  if (*out || !bytes) return CW_OK;
  return cw::fail(CW_OUT_OF_MEMORY, "no %llu bytes on device %d", static_cast<unsigned long long>(bytes), int(device));
}

static cw_status mem_free(int32_t device, void* ptr) {
  if (check(device)) return CW_INVALID;
  free(ptr);
  return CW_OK;
}

static cw_status mem_copy(void* dst, int32_t, const void* src, int32_t, uint64_t bytes, cw_stream) {
  memmove(dst, src, bytes);
  return CW_OK;
}

const cw_backend* cw_open_v1(const cw_host* host) {
  if (host->abi_version != CW_ABI_VERSION) return nullptr;
  static const cw_backend backend = [] {
    cw_backend b = {};
    b.struct_size = sizeof b;
    b.abi_version = CW_ABI_VERSION;
    b.name = "example";
    b.version = "0.1";
    b.last_error = cw::last_error;
    b.device_count = device_count;
    b.device_info = device_info;
    b.sync = sync;
    b.mem_alloc = mem_alloc;
    b.mem_free = mem_free;
    b.mem_copy = mem_copy;
    b.op_find = op_find;
    return b;
  }();
  return &backend;
}
