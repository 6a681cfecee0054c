// A vendor that breaks the contract in the one way that the variable HOSTILE names: "throw:sync" throws in entry sync,
// "number:sync" throws 42 there, "bytes:sync" fails with words that are not UTF-8, "status:sync" answers 77.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "causeway/abi.h"

namespace {

const char* const kBytes = "\xb4\xed\xce\xf3: GBK";  // a driver that speaks Chinese

cw_host host;
const std::string& how() {
  static const std::string text = std::getenv("HOSTILE") ? std::getenv("HOSTILE") : "";
  return text;
}
bool is(const char* what) { return how() == what; }
thread_local const char* words = "";

cw_status fault(const char* entry) {
  if (is((std::string("throw:") + entry).c_str())) throw std::runtime_error("no driver");
  if (is((std::string("number:") + entry).c_str())) throw 42;
  if (is((std::string("status:") + entry).c_str())) return 77;
  if (is((std::string("bytes:") + entry).c_str())) return words = kBytes, CW_FAILED;
  return CW_OK;
}

// While another thread has Python's lock and waits for a lock that the core holds now.
void ask_for_a_setting() {
  usleep(200000);
  host.setting("pool");
}

const char* last_error() {
  if (is("throw:last_error")) throw 42;
  return words;
}

cw_status device_count(int32_t* out) {
  if (cw_status s = fault("device_count")) return s;
  *out = is("count:-5") ? -5 : is("count:100") ? 100 : 2;
  return CW_OK;
}

cw_status device_info(int32_t, cw_device_info* out) {
  if (cw_status s = fault("device_info")) return s;
  if (is("asks:device_info")) ask_for_a_setting();
  const uint32_t size = out->struct_size;
  cw_device_info info{};
  info.struct_size = size;
  info.flags = CW_HOST_ADDRESSABLE;
  std::strcpy(info.name, is("bytes:name") ? kBytes : "Hostile");
  info.memory = is("memory:0") ? 0 : UINT64_C(4) << 30;
  info.dtypes = CW_ALL_DTYPES;
  info.alignment = is("alignment:3") ? 3 : is("alignment:big") ? 1u << 31 : 64;
  if (is("priorities")) info.priority_highest = 5;
  std::memcpy(out, &info, size < sizeof info ? size : sizeof info);
  return CW_OK;
}

cw_status sync(int32_t) { return fault("sync"); }

cw_status mem_alloc(int32_t, uint64_t bytes, void** out) {
  if (cw_status s = fault("mem_alloc")) return s;
  if (is("asks:mem_alloc")) ask_for_a_setting();
  char* start = static_cast<char*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
  *out = is("unaligned") ? start + 1 : start;
  return CW_OK;
}

cw_status mem_free(int32_t, void* p) {
  std::free(is("unaligned") ? static_cast<char*>(p) - 1 : p);
  return CW_OK;
}

cw_status mem_copy(void* to, int32_t, const void* from, int32_t, uint64_t bytes, cw_stream) {
  std::memmove(to, from, bytes);
  return CW_OK;
}

cw_status relu(const cw_arg* args, int32_t, cw_stream) {
  if (cw_status s = fault("kernel")) return s;
  if (is("bytes:log")) host.log(2, kBytes);
  if (is("null")) {
    host.log(3, nullptr);
    if (host.setting(nullptr)) return CW_FAILED;
  }
  const DLTensor &out = *args[0].v.tensor, &in = *args[1].v.tensor;
  for (int64_t i = 0; i < in.shape[0]; ++i) {
    const float x = static_cast<float*>(in.data)[i];
    static_cast<float*>(out.data)[i] = x > 0 ? x : 0;
  }
  return CW_OK;
}

cw_status op_find(const char* name, cw_op* out) {
  if (cw_status s = fault("op_find")) return s;
  if (std::strcmp(name, "aten::relu.out") != 0 && std::strcmp(name, "aten::relu") != 0) return CW_UNSUPPORTED;
  if (std::strcmp(name, "aten::relu") == 0) return CW_UNSUPPORTED;
  out->needs = CW_NEEDS_CONTIGUOUS;
  out->dtypes = CW_FLOAT32;
  out->kernel = relu;
  return CW_OK;
}

cw_status extension(const char* name, const void** out) {
  if (is("bytes:notes") && std::strcmp(name, "notes.v1") == 0) return *out = kBytes, CW_OK;
  return CW_UNSUPPORTED;
}

}  // namespace

extern "C" CW_EXPORT const cw_backend* cw_open_v1(const cw_host* given) {
  if (is("number:open")) throw 42;
  std::memcpy(&host, given, sizeof host);
  static cw_backend table{};
  table.struct_size = is("size:0") ? 0 : sizeof table;
  table.abi_version = CW_ABI_VERSION;
  table.name = "hostile";
  table.version = is("bytes:version") ? kBytes : "1";
  table.last_error = last_error;
  table.device_count = device_count;
  table.device_info = device_info;
  table.sync = sync;
  table.mem_alloc = mem_alloc;
  table.mem_free = mem_free;
  table.mem_copy = mem_copy;
  table.op_find = op_find;
  table.extension = extension;
  return &table;
}
