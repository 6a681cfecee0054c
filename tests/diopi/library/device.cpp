// The functions of a device that DIOPI's own conformance tests ask a chip for. Its memory is apart: a host's pointer into it is
// refused, and so is one of the host where the device's is asked for.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <diopi/diopirt.h>

namespace {

std::mutex g_mutex;
std::map<char*, uint64_t>& blocks() {
  static auto& all = *new std::map<char*, uint64_t>;
  return all;
}

bool has(const void* begin, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  auto* const p = static_cast<char*>(const_cast<void*>(begin));
  auto found = blocks().upper_bound(p);
  if (found == blocks().begin()) return false;
  --found;
  return p + bytes <= found->first + found->second;
}

diopiError_t copy(diopiStreamHandle_t stream, void* dst, const void* src, uint64_t bytes, bool to, bool from) {
  if (!stream || has(dst, bytes) != to || has(src, bytes) != from) return diopiErrorOccurred;
  return memcpy(dst, src, bytes), diopiSuccess;
}

}  // namespace

extern "C" {

diopiError_t initLibrary() { return diopiSuccess; }
diopiError_t finalizeLibrary() {
  if (getenv("PLAIN_DEVICE_SAYS")) puts("finalizeLibrary");
  return fflush(stdout), diopiSuccess;
}

void* device_malloc(uint64_t bytes) {
  auto* const made = static_cast<char*>(bytes > uint64_t{1} << 40 ? nullptr : malloc(bytes));
  std::lock_guard<std::mutex> lock(g_mutex);
  if (made) blocks()[made] = bytes;
  return made;
}
void device_free(void* ptr) {
  std::lock_guard<std::mutex> lock(g_mutex);
  blocks().erase(static_cast<char*>(ptr));
  free(ptr);
}
diopiError_t device_memcpy_h2d_async(diopiStreamHandle_t stream, void* dst, const void* src, uint64_t bytes) {
  return copy(stream, dst, src, bytes, true, false);
}
diopiError_t device_memcpy_d2h_async(diopiStreamHandle_t stream, void* dst, const void* src, uint64_t bytes) {
  return copy(stream, dst, src, bytes, false, true);
}
diopiError_t device_memcpy_d2d_async(diopiStreamHandle_t stream, void* dst, const void* src, uint64_t bytes) {
  return copy(stream, dst, src, bytes, true, true);
}
diopiError_t device_make_stream(diopiStreamHandle_t* out) { return *out = new int(0), diopiSuccess; }
diopiError_t device_destroy_stream(diopiStreamHandle_t stream) {
  return delete static_cast<int*>(stream), diopiSuccess;
}
diopiError_t device_synchronize_stream(diopiStreamHandle_t stream) {
  return stream ? diopiSuccess : diopiErrorOccurred;
}

}  // extern "C"
