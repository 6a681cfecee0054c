#include "runtime/vendor.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "causeway/comm.h"
#include "causeway/cores.h"
#include "causeway/library_file.hpp"
#include "runtime/check.h"
#include "runtime/graph.h"
#include "runtime/name_check.h"
#include "runtime/thrown.h"

namespace causeway {

namespace {

struct Vendor {
  cw_backend table{};
  std::string path, name, version;
  std::vector<std::string> named;
};
Vendor* g_vendor = nullptr;  // never freed: the table outlives every thread
NameCheck g_name_check;

struct SettingsTable {
  std::mutex mutex;
  Settings now;
  std::set<std::string> given;  // for good: a vendor may keep what it was given
};
SettingsTable& settings_table() {
  static auto& table = *new SettingsTable;
  return table;
}

// The library's own tables, behind what catches its exceptions.
template <class Table>
Table g_library{};

template <auto entry>
struct Shielded;
template <class Table, class... A, cw_status (*Table::*entry)(A...)>
struct Shielded<entry> {
  static cw_status call(A... a) {
    return shielded([&] { return (g_library<Table>.*entry)(a...); });
  }
};
template <auto entry, class Table>
void shield(Table& table) {
  if (table.*entry) table.*entry = Shielded<entry>::call;
}

void shield_entries(cw_comm_v1& t) {
  using T = cw_comm_v1;
  shield<&T::create>(t), shield<&T::destroy>(t), shield<&T::abort>(t), shield<&T::error>(t);
  shield<&T::all_reduce>(t), shield<&T::broadcast>(t), shield<&T::reduce>(t), shield<&T::all_gather>(t),
      shield<&T::reduce_scatter>(t), shield<&T::all_to_all>(t), shield<&T::barrier>(t), shield<&T::send>(t),
      shield<&T::recv>(t), shield<&T::group_start>(t), shield<&T::group_end>(t);
}
void shield_entries(cw_code_v1& t) {
  using T = cw_code_v1;
  shield<&T::info>(t), shield<&T::build>(t), shield<&T::release>(t), shield<&T::function>(t), shield<&T::launch>(t);
  shield<&T::build_binary>(t), shield<&T::binary>(t);
}
void shield_entries(cw_ipc_v1& t) {
  using T = cw_ipc_v1;
  shield<&T::mem_export>(t), shield<&T::mem_import>(t), shield<&T::mem_close>(t);
}
void shield_entries(cw_graph_v1& t) {
  using T = cw_graph_v1;
  shield<&T::begin>(t), shield<&T::end>(t), shield<&T::launch>(t), shield<&T::destroy>(t);
}
void shield_entries(cw_cores_v1& t) {
  using T = cw_cores_v1;
  shield<&T::device_cores>(t), shield<&T::set_device_cores>(t);
  shield<&T::stream_cores>(t), shield<&T::set_stream_cores>(t);
}
void shield_entries(cw_layout_v1& t) {
  using T = cw_layout_v1;
  shield<&T::packed_bytes>(t), shield<&T::pack>(t), shield<&T::unpack>(t);
}
void shield_entries(cw_profile_v1& t) {
  using T = cw_profile_v1;
  shield<&T::clock>(t), shield<&T::start>(t), shield<&T::stop>(t), shield<&T::correlate>(t), shield<&T::read>(t);
}

// An extension's table, which begins with its size: copied once, as the main one is.
template <class Table>
const Table* shielded_extension(const void* given) {
  static const Table* made = [given] {
    uint32_t size;
    std::memcpy(&size, given, sizeof size);
    std::memcpy(&g_library<Table>, given, std::min<size_t>(size, sizeof(Table)));
    auto* table = new Table(g_library<Table>);  // for the life of the process
    shield_entries(*table);
    if constexpr (std::is_same_v<Table, cw_code_v1>) *table = recording_table(*table);
    return table;
  }();
  return made;
}

const char* shielded_words() {
  try {
    return g_library<cw_backend>.last_error();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return "last_error() threw a C++ exception";
  }
}

cw_backend shielded_table(const cw_backend& library) {
  g_library<cw_backend> = library;
  cw_backend t = library;
#define SHIELD(name) shield<&cw_backend::name>(t)
  SHIELD(device_count), SHIELD(device_info), SHIELD(sync), SHIELD(mem_alloc), SHIELD(mem_free), SHIELD(mem_copy);
  SHIELD(bind), SHIELD(mem_set), SHIELD(mem_info), SHIELD(host_alloc), SHIELD(host_free), SHIELD(op_find);
  SHIELD(stream_create), SHIELD(stream_destroy), SHIELD(stream_query), SHIELD(stream_sync), SHIELD(stream_wait);
  SHIELD(event_create), SHIELD(event_destroy), SHIELD(event_record), SHIELD(event_query), SHIELD(event_sync);
  SHIELD(event_elapsed), SHIELD(extension), SHIELD(close), SHIELD(peer_access), SHIELD(device_attribute);
  SHIELD(host_register), SHIELD(host_unregister), SHIELD(fault), SHIELD(stream_callback), SHIELD(host_alloc_for);
  SHIELD(host_free_for), SHIELD(mem_alloc_on), SHIELD(mem_free_on), SHIELD(mem_reserve), SHIELD(mem_map);
  SHIELD(mem_unmap), SHIELD(mem_release), SHIELD(op_find_for);
#undef SHIELD
  if (t.last_error) t.last_error = shielded_words;
  return t;
}

const cw_backend* open_table(cw_open_fn open, const cw_host* host, const std::string& path) {
  try {
    return open(host);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    fail(Kind::Vendor, path, " is refused: cw_open_v1 threw ", thrown_words());
  }
}

// One process has one vendor.
void check_only(const std::string& path) {
  if (g_vendor && g_vendor->path != path)
    fail(Kind::Vendor, "the vendor of this process is ", g_vendor->path, "; one process has one vendor, so ", path,
         " needs another process");
}

struct Entry {
  const char* name;
  size_t offset;
  int group;  // entries of one group come whole or not at all; 0: needed, -1: on its own
};

#define ENTRY(field, group) {#field, offsetof(cw_backend, field), group}
constexpr Entry kEntries[] = {
    ENTRY(device_count, 0),
    ENTRY(device_info, 0),
    ENTRY(sync, 0),
    ENTRY(mem_alloc, 0),
    ENTRY(mem_free, 0),
    ENTRY(mem_copy, 0),
    ENTRY(bind, -1),
    ENTRY(mem_set, -1),
    ENTRY(mem_info, -1),
    ENTRY(host_alloc, 1),
    ENTRY(host_free, 1),
    ENTRY(op_find, -1),
    ENTRY(stream_create, 2),
    ENTRY(stream_destroy, 2),
    ENTRY(stream_query, 2),
    ENTRY(stream_sync, 2),
    ENTRY(stream_wait, 2),
    ENTRY(event_create, 3),
    ENTRY(event_destroy, 3),
    ENTRY(event_record, 3),
    ENTRY(event_query, 3),
    ENTRY(event_sync, 3),
    ENTRY(event_elapsed, 3),
    ENTRY(extension, -1),
    ENTRY(close, -1),
    ENTRY(peer_access, -1),
    ENTRY(device_attribute, -1),
    ENTRY(host_register, 4),
    ENTRY(host_unregister, 4),
    ENTRY(fault, -1),
    ENTRY(stream_callback, -1),
    ENTRY(host_alloc_for, 5),
    ENTRY(host_free_for, 5),
    ENTRY(mem_alloc_on, 6),
    ENTRY(mem_free_on, 6),
    ENTRY(mem_reserve, 7),
    ENTRY(mem_map, 7),
    ENTRY(mem_unmap, 7),
    ENTRY(mem_release, 7),
    ENTRY(op_find_for, -1),
};
#undef ENTRY
constexpr const char* kGroups[] = {"",
                                   "host memory",
                                   "streams",
                                   "events",
                                   "registering of host memory",
                                   "host memory of a device",
                                   "memory in the order of a stream",
                                   "virtual memory"};
constexpr int kGroupCount = std::size(kGroups);

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
cw_status packed(const DLTensor* tensor, uint32_t layout, cw_stream stream, const void** out) {
  return host_services().packed(tensor, layout, stream, out);
}
cw_status storage(const DLTensor* tensor, uint64_t* before, uint64_t* bytes) {
  return host_services().storage(tensor, before, bytes);
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
  if (!key) return nullptr;
  if (std::strncmp(key, "torch.", 6) == 0) return torch_setting(key + 6);
  SettingsTable& t = settings_table();
  std::lock_guard lock(t.mutex);
  std::string name = key;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (const auto it = t.now.values.find(name); it != t.now.values.end())
    return it->second ? t.given.insert(*it->second).first->c_str() : nullptr;
  std::string variable = "CAUSEWAY_" + t.now.vendor + "_" + name;
  for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const char* text = std::getenv(variable.c_str());
  return text ? t.given.insert(text).first->c_str() : nullptr;
}
void log(int32_t level, const char* message) {
  if (level >= 2 && message) TORCH_WARN(vendor_name(), ": ", valid_utf8(message));
}

const cw_host kHost = {sizeof(cw_host), CW_ABI_VERSION, scratch, resize, setting, log, packed, storage};

// The table of library `path`, checked; throws with the reason why it is refused.
cw_backend checked_table(const cw_backend* given, const std::string& path) {
  auto refuse = [&](const auto&... why) { fail(Kind::Vendor, path, " is refused: ", why...); };
  if (!given) refuse("cw_open_v1 returned NULL, so it cannot work with this Causeway (abi ", CW_ABI_VERSION, ")");
  if (given->struct_size < offsetof(cw_backend, name))
    refuse("its table says that it has ", given->struct_size, " bytes; struct_size is sizeof(cw_backend)");
  if (given->abi_version != CW_ABI_VERSION)
    refuse("its table is of abi version ", given->abi_version, ", this Causeway speaks ", CW_ABI_VERSION,
           "; rebuild it with include/causeway/abi.h of this release");
  cw_backend table{};
  std::memcpy(&table, given, std::min<size_t>(given->struct_size, sizeof table));
  if (!table.name || !*table.name) refuse("it has no name (cw_backend.name is ", table.name ? "empty" : "NULL", ")");
  if (g_name_check)
    if (auto why = g_name_check(table.name)) refuse("its name is \"", valid_utf8(table.name), "\": ", *why);
  bool any[kGroupCount] = {};
  std::string missing[kGroupCount];
  for (const Entry& e : kEntries) {
    if (e.group < 0) continue;
    const bool offered = entry(table, e) != nullptr;
    any[e.group] |= offered;
    if (!offered) missing[e.group] += (missing[e.group].empty() ? "" : ", ") + std::string(e.name);
  }
  if (!missing[0].empty())
    refuse("it lacks ", missing[0], ", which level 0 needs (its table has ", given->struct_size, " bytes)");
  for (int g = 1; g < kGroupCount; ++g)
    if (any[g] && !missing[g].empty())
      refuse("it offers ", kGroups[g], " without ", missing[g], "; offer all of the group or none");
  return table;
}

// Why a vendor cannot name this operator, or nullptr.
const char* refusal(const std::string& name) {
  const auto word = [](std::string_view text) {
    return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
           std::all_of(text.begin(), text.end(),
                       [](unsigned char c) { return c < 128 && (std::isalnum(c) || c == '_'); });
  };
  const auto colons = name.find("::");
  if (colons == std::string::npos) return "it has no namespace: a name is \"torchvision::nms\" or \"mylib::op.out\"";
  const std::string_view space = std::string_view(name).substr(0, colons);
  std::string_view rest = std::string_view(name).substr(colons + 2);
  const auto dot = rest.find('.');
  if (dot != std::string_view::npos && !word(rest.substr(dot + 1))) return "its overload is no name";
  if (!word(space) || !word(rest.substr(0, dot))) return "it is no name of torch's, such as \"torchvision::nms\"";
  for (const char* of_torch : {"aten", "prim", "prims", "_"})
    if (space == of_torch) return "torch's own operators are asked for by op_find without being named";
  return nullptr;
}

// The names of extension "operators.v1", a line each; throws with the reason why one is refused.
std::vector<std::string> names_of(const cw_backend& table, const std::string& path) {
  const void* text = nullptr;
  if (!table.extension || table.extension("operators.v1", &text) != CW_OK || !text) return {};
  std::vector<std::string> out;
  std::istringstream lines(static_cast<const char*>(text));
  for (std::string name; std::getline(lines, name);) {
    if (name.empty()) continue;
    const char* why = refusal(name);
    if (!why && std::count(out.begin(), out.end(), name)) why = "it is there twice";
    if (!why && !table.op_find && !table.op_find_for) why = "there is no op_find that would give its kernel";
    if (why) fail(Kind::Vendor, path, " is refused: its operators.v1 names \"", valid_utf8(name.c_str()), "\": ", why);
    out.push_back(std::move(name));
  }
  return out;
}

}  // namespace

void set_name_check(NameCheck check) { g_name_check = std::move(check); }

HostServices& host_services() {
  static HostServices services;
  return services;
}

void set_settings(Settings settings) {
  SettingsTable& t = settings_table();
  std::lock_guard lock(t.mutex);
  t.now = std::move(settings);
}

cw_backend open_library(const std::string& path) {
  check_only(path);
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
  try {
    return shielded_table(checked_table(open_table(open, &kHost, path), path));
  } catch (...) {
    dlclose(library);
    throw;
  }
}

void use_table(const cw_backend& table, const std::string& path) {
  check_only(path);
  if (g_vendor) return;
  auto vendor = std::make_unique<Vendor>();
  vendor->table = checked_table(&table, path);
  record_fills(vendor->table);
  vendor->path = path;
  vendor->name = vendor->table.name;
  vendor->version = valid_utf8(vendor->table.version ? vendor->table.version : "");
  vendor->named = names_of(vendor->table, path);
  g_vendor = vendor.release();
}

void load_vendor(const std::string& path) { use_table(g_vendor ? cw_backend{} : open_library(path), path); }

bool vendor_loaded() { return g_vendor != nullptr; }

const cw_backend& api() {
  if (C10_UNLIKELY(!g_vendor)) fail(Kind::Vendor, "no vendor's library is loaded; `causeway doctor` says why");
  return g_vendor->table;
}

const std::string& vendor_path() {
  static const std::string none;
  return g_vendor ? g_vendor->path : none;
}

const std::vector<std::string>& vendor_named() {
  static const std::vector<std::string> none;
  return g_vendor ? g_vendor->named : none;
}

std::string vendor_name() { return g_vendor ? g_vendor->name : "no vendor"; }

const std::string& vendor_version() {
  static const std::string none;
  return g_vendor ? g_vendor->version : none;
}

std::string last_words() {
  if (t_thrown) return c10::str("it threw ", *t_thrown);
  const char* words = g_vendor && g_vendor->table.last_error ? g_vendor->table.last_error() : nullptr;
  return words && *words ? valid_utf8(words) : "the vendor gave no words";
}

// Well-formed UTF-8 as Unicode has it: no overlong forms, no surrogates, none beyond U+10FFFF.
std::string valid_utf8(const char* bytes, size_t most) {
  std::string out;
  const auto* p = reinterpret_cast<const unsigned char*>(bytes);
  while (*p) {
    const int more = *p < 0x80                 ? 0
                     : *p >= 0xc2 && *p < 0xe0 ? 1
                     : *p >= 0xe0 && *p < 0xf0 ? 2
                     : *p >= 0xf0 && *p < 0xf5 ? 3
                                               : -1;
    bool good = more >= 0;
    for (int i = 1; good && i <= more; ++i) good = (p[i] & 0xc0) == 0x80;  // a NUL ends it
    if (good && more == 2) good = !(p[0] == 0xe0 && p[1] < 0xa0) && !(p[0] == 0xed && p[1] >= 0xa0);
    if (good && more == 3) good = !(p[0] == 0xf0 && p[1] < 0x90) && !(p[0] == 0xf4 && p[1] >= 0x90);
    if (out.size() + (good ? more + 1 : 4) > most) break;
    if (good) {
      out.append(reinterpret_cast<const char*>(p), more + 1);
      p += more + 1;
    } else {
      constexpr char digits[] = "0123456789abcdef";
      out += {'\\', 'x', digits[*p >> 4], digits[*p & 15]};
      ++p;
    }
  }
  return out;
}

std::vector<std::pair<std::string, bool>> vendor_entries() {
  std::vector<std::pair<std::string, bool>> out;
  for (const Entry& e : kEntries) out.emplace_back(e.name, entry(api(), e) != nullptr);
  return out;
}

const void* vendor_extension(const char* name) {
  const void* table = nullptr;
  if (!api().extension || api().extension(name, &table) != CW_OK || !table) return nullptr;
  const auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
  if (is("comm.v1")) return shielded_extension<cw_comm_v1>(table);
  if (is("code.v1")) return shielded_extension<cw_code_v1>(table);
  if (is("ipc.v1")) return shielded_extension<cw_ipc_v1>(table);
  if (is("graph.v1")) return shielded_extension<cw_graph_v1>(table);
  if (is("cores.v1")) return shielded_extension<cw_cores_v1>(table);
  if (is("layout.v1")) return shielded_extension<cw_layout_v1>(table);
  if (is("profile.v1")) return shielded_extension<cw_profile_v1>(table);
  return table;
}

std::vector<std::string> vendor_extensions() {
  std::vector<std::string> out;
  for (const char* name :
       {"comm.v1", "code.v1", "graph.v1", "ipc.v1", "check.v1", "profile.v1", "operators.v1", "cores.v1", "layout.v1"})
    if (vendor_extension(name)) out.emplace_back(name);
  return out;
}

bool finds_operators() { return api().op_find || api().op_find_for; }

int vendor_level() {
  if (!finds_operators()) return 0;
  if (!api().stream_create || !api().event_create) return 1;
  if (!vendor_extension("comm.v1")) return 2;
  return vendor_extension("code.v1") || vendor_extension("graph.v1") ? 4 : 3;
}

}  // namespace causeway
