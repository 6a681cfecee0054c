// A vendor around another one, for tests: it notes the source of each kernel that is built, and plants a fault.
//
// WATCH_VENDOR    the library of the vendor that does the work
// WATCH_SOURCES   a folder: each source is written there, in a file of its own
// WATCH_REPLACE   "this=>that": every "this" in a source becomes "that" before it is built
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "causeway/abi.h"

namespace {

const cw_backend* inner;
cw_code_v1 code;
decltype(code.build) inner_build;

cw_status build(int32_t device, const char* source, const char* options, cw_program* out) {
  std::string text = source;
  if (const char* folder = getenv("WATCH_SOURCES")) {
    static std::atomic<int> count{0};
    std::ofstream(std::string(folder) + "/" + std::to_string(count++) + ".txt") << text;
  }
  if (const char* replace = getenv("WATCH_REPLACE")) {
    const char* arrow = strstr(replace, "=>");
    const std::string from(replace, arrow), to = arrow + 2;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  }
  return inner_build(device, text.c_str(), options, out);
}

cw_status extension(const char* name, const void** out) {
  const cw_status status = inner->extension(name, out);
  if (status != CW_OK || strcmp(name, "code.v1") != 0) return status;
  memcpy(&code, *out, sizeof code);
  inner_build = code.build;
  code.build = build;
  return *out = &code, CW_OK;
}

}  // namespace

extern "C" const cw_backend* cw_open_v1(const cw_host* host) {
  static cw_backend table;
  void* library = dlopen(getenv("WATCH_VENDOR"), RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;
  const auto open = reinterpret_cast<decltype(&cw_open_v1)>(dlsym(library, "cw_open_v1"));
  inner = open ? open(host) : nullptr;
  if (!inner) return nullptr;
  memcpy(&table, inner, sizeof table < inner->struct_size ? sizeof table : inner->struct_size);
  table.extension = extension;
  return &table;
}
