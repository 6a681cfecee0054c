#include "vendor.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "causeway/library_file.hpp"
#include "check.h"
#include "name_check.h"

namespace causeway {

namespace {

struct Vendor {
  cw_backend table{};
  std::string path, name, version;
  Settings settings;
};
Vendor* g_vendor = nullptr;  // never freed: the table outlives every thread
// While cw_open_v1 runs the vendor may already ask for settings.
Settings g_opening;
NameCheck g_name_check;

struct Entry {
  const char* name;
  size_t offset;
  int group;  // entries of one group come whole or not at all; 0: needed, -1: on its own
};

#define ENTRY(field, group) {#field, offsetof(cw_backend, field), group}
constexpr Entry kEntries[] = {
    ENTRY(device_count, 0),  ENTRY(device_info, 0),     ENTRY(sync, 0),
    ENTRY(mem_alloc, 0),     ENTRY(mem_free, 0),        ENTRY(mem_copy, 0),
    ENTRY(bind, -1),         ENTRY(mem_set, -1),        ENTRY(mem_info, -1),
    ENTRY(host_alloc, 1),    ENTRY(host_free, 1),       ENTRY(op_find, -1),
    ENTRY(stream_create, 2), ENTRY(stream_destroy, 2),  ENTRY(stream_query, 2),
    ENTRY(stream_sync, 2),   ENTRY(stream_wait, 2),     ENTRY(event_create, 3),
    ENTRY(event_destroy, 3), ENTRY(event_record, 3),    ENTRY(event_query, 3),
    ENTRY(event_sync, 3),    ENTRY(event_elapsed, 3),   ENTRY(extension, -1),
    ENTRY(close, -1),        ENTRY(peer_access, -1),    ENTRY(device_attribute, -1),
    ENTRY(host_register, 4), ENTRY(host_unregister, 4), ENTRY(fault, -1),
};
#undef ENTRY
constexpr const char* kGroups[] = {"", "host memory", "streams", "events", "registering of host memory"};

void* entry(const cw_backend& table, const Entry& e) {
  void* p;
  std::memcpy(&p, reinterpret_cast<const char*>(&table) + e.offset, sizeof p);
  return p;
}

cw_status scratch(int32_t device, cw_stream stream, uint64_t bytes, void** out) {
  return host_services().scratch(device, stream, bytes, out);
}
cw_status resize(const DLTensor* tensor, int32_t ndim, const int64_t* shape) {
  return host_services().resize(tensor, ndim, shape);
}
// What torch's own settings ask of arithmetic now, for keys "torch....": cheap enough to ask in each kernel. CUDA's
// precisions stand for every device here: programs set them and mean the accelerator. torch's default allows TF32 in
// convolutions; here a program must have asked for it in products, as numbers are to be the CPU's otherwise.
const char* torch_setting(const char* key) {
  using at::Float32Backend, at::Float32Op, at::Float32Precision;
  at::Context& context = at::globalContext();
  const auto is = [key](const char* name) { return std::strcmp(key, name) == 0; };
  if (is("deterministic")) return context.deterministicAlgorithms() ? "1" : "0";
  if (!is("matmul_precision") && !is("conv_precision")) return nullptr;
  bool tf32 = context.float32Precision(Float32Backend::CUDA, Float32Op::MATMUL) == Float32Precision::TF32;
  if (is("conv_precision"))
    tf32 &= context.float32Precision(Float32Backend::CUDA, Float32Op::CONV) != Float32Precision::IEEE;
  return tf32 ? "tf32" : "ieee";
}
const char* setting(const char* key) {
  if (std::strncmp(key, "torch.", 6) == 0) return torch_setting(key + 6);
  static std::mutex mutex;
  static auto& values = *new std::map<std::string, std::string>;
  const Settings& settings = g_vendor ? g_vendor->settings : g_opening;
  if (!settings) return nullptr;
  auto value = settings(key);  // may take the GIL, so before the lock
  if (!value) return nullptr;
  std::lock_guard lock(mutex);
  return (values[key] = *value).c_str();
}
void log(int32_t level, const char* message) {
  if (level >= 2) TORCH_WARN(vendor_name(), ": ", message);
}

const cw_host kHost = {sizeof(cw_host), CW_ABI_VERSION, scratch, resize, setting, log};

// The table of library `path`, checked; throws with the reason why it is refused.
cw_backend checked_table(const cw_backend* given, const std::string& path) {
  auto refuse = [&](const auto&... why) { fail(Kind::Vendor, path, " is refused: ", why...); };
  if (!given) refuse("cw_open_v1 returned NULL, so it cannot work with this Causeway (abi ", CW_ABI_VERSION, ")");
  if (given->struct_size < offsetof(cw_backend, name) || given->abi_version != CW_ABI_VERSION)
    refuse("its table is of abi version ", given->abi_version, ", this Causeway speaks ", CW_ABI_VERSION,
           "; rebuild it with include/causeway/abi.h of this release");
  cw_backend table{};
  std::memcpy(&table, given, std::min<size_t>(given->struct_size, sizeof table));
  if (!table.name || !*table.name) refuse("it has no name (cw_backend.name is ", table.name ? "empty" : "NULL", ")");
  if (g_name_check)
    if (auto why = g_name_check(table.name)) refuse("its name is \"", table.name, "\": ", *why);
  bool any[5] = {}, all[5] = {true, true, true, true, true};
  std::string missing[5];
  for (const Entry& e : kEntries) {
    if (e.group < 0) continue;
    const bool offered = entry(table, e) != nullptr;
    any[e.group] |= offered;
    if (!offered) {
      all[e.group] = false;
      missing[e.group] += (missing[e.group].empty() ? "" : ", ") + std::string(e.name);
    }
  }
  if (!all[0]) refuse("it lacks ", missing[0], ", which level 0 needs (its table has ", given->struct_size, " bytes)");
  for (int g = 1; g < 5; ++g)
    if (any[g] && !all[g])
      refuse("it offers ", kGroups[g], " without ", missing[g], "; offer all of the group or none");
  return table;
}

}  // namespace

void set_name_check(NameCheck check) { g_name_check = std::move(check); }

HostServices& host_services() {
  static HostServices services;
  return services;
}

cw_backend open_library(const std::string& path, const Settings& settings) {
  // dlopen maps what the headers say, and a page behind the file's end is a SIGBUS.
  if (const std::string cut = missing_bytes(path); !cut.empty())
    fail(Kind::Vendor, path, " is refused: ", cut, "; copy or build it again");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(Kind::Vendor, "cannot open the vendor's library: ", dlerror());
  auto open = reinterpret_cast<cw_open_fn>(dlsym(library, "cw_open_v1"));
  if (!open) {
    dlclose(library);
    fail(Kind::Vendor, path, " is refused: it does not export cw_open_v1, so it is no Causeway vendor");
  }
  g_opening = settings;
  try {
    const cw_backend table = checked_table(open(&kHost), path);
    g_opening = nullptr;
    return table;
  } catch (...) {
    g_opening = nullptr;
    dlclose(library);
    throw;
  }
}

void use_table(const cw_backend& table, const std::string& path, Settings settings) {
  if (g_vendor) {
    if (g_vendor->path == path) return;
    fail(Kind::Vendor, "the vendor of this process is ", g_vendor->path, "; one process has one vendor, so ", path,
         " needs another process");
  }
  auto vendor = std::make_unique<Vendor>();
  vendor->table = checked_table(&table, path);
  vendor->path = path;
  vendor->name = vendor->table.name;
  vendor->version = vendor->table.version ? vendor->table.version : "";
  vendor->settings = std::move(settings);
  g_vendor = vendor.release();
}

void load_vendor(const std::string& path, Settings settings) {
  use_table(g_vendor ? cw_backend{} : open_library(path, settings), path, settings);
}

bool vendor_loaded() { return g_vendor != nullptr; }

const cw_backend& api() {
  if (C10_UNLIKELY(!g_vendor)) fail(Kind::Vendor, "no vendor's library is loaded; `causeway doctor` says why");
  return g_vendor->table;
}

const std::string& vendor_path() {
  static const std::string none;
  return g_vendor ? g_vendor->path : none;
}

std::string vendor_name() { return g_vendor ? g_vendor->name : "no vendor"; }

std::string last_words() {
  const char* words = g_vendor && g_vendor->table.last_error ? g_vendor->table.last_error() : nullptr;
  return words && *words ? words : "the vendor gave no words";
}

std::vector<std::pair<std::string, bool>> vendor_entries() {
  std::vector<std::pair<std::string, bool>> out;
  for (const Entry& e : kEntries) out.emplace_back(e.name, entry(api(), e) != nullptr);
  return out;
}

const void* vendor_extension(const char* name) {
  const void* table = nullptr;
  if (!api().extension || api().extension(name, &table) != CW_OK) return nullptr;
  return table;
}

std::vector<std::string> vendor_extensions() {
  std::vector<std::string> out;
  for (const char* name : {"comm.v1", "code.v1", "graph.v1", "ipc.v1", "check.v1", "profile.v1"})
    if (vendor_extension(name)) out.emplace_back(name);
  return out;
}

int vendor_level() {
  if (!api().op_find) return 0;
  if (!api().stream_create || !api().event_create) return 1;
  if (!vendor_extension("comm.v1")) return 2;
  return vendor_extension("code.v1") || vendor_extension("graph.v1") ? 4 : 3;
}

}  // namespace causeway
