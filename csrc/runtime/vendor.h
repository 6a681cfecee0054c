// The vendor's library: opened, its table copied into ours and checked once, so that no call site looks at a version.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "causeway/abi.h"

namespace causeway {

// What the vendor called `vendor` is told when it asks for a setting: the text here, nothing where there is a key
// without one, else what the environment has. Never asks Python: vendors ask from any entry, also while the core holds
// a lock that a thread with Python's lock waits for.
struct Settings {
  std::string vendor;
  std::map<std::string, std::optional<std::string>> values;
};
void set_settings(Settings settings);

// Open `path`, copy and check its table. Opens no device. Throws Kind::Vendor with the reason; then nothing is kept.
void load_vendor(const std::string& path);

// The two steps of it, for a table that wraps a library's or comes from none; see paper.cpp.
// What an entry of the table throws becomes CW_FAILED.
cw_backend open_library(const std::string& path);
void use_table(const cw_backend& table, const std::string& path);

bool vendor_loaded();
const cw_backend& api();  // throws while no vendor is loaded
const std::string& vendor_path();
std::string vendor_name();
const std::string& vendor_version();  // valid UTF-8
std::string last_words();  // of this thread's last failed call, never empty

bool finds_operators();  // by either entry
int vendor_level();  // 0 to 4, as `causeway doctor` prints it
std::vector<std::pair<std::string, bool>> vendor_entries();
std::vector<std::string> vendor_extensions();
const void* vendor_extension(const char* name);  // nullptr: not offered
const std::vector<std::string>& vendor_named();  // operators of other namespaces: extension "operators.v1"

// `bytes` of a vendor, which may be of any encoding: what is not UTF-8 is written as \xff. At most `most` bytes.
std::string valid_utf8(const char* bytes, size_t most = SIZE_MAX);

// Stands in for the services that other files give the vendor.
struct HostServices {
  cw_status (*scratch)(int32_t, cw_stream, uint64_t, void**) = nullptr;
  cw_status (*resize)(const DLTensor*, int32_t, const int64_t*) = nullptr;
  cw_status (*packed)(const DLTensor*, uint32_t, cw_stream, const void**) = nullptr;
  cw_status (*storage)(const DLTensor*, uint64_t*, uint64_t*) = nullptr;
};
HostServices& host_services();

}  // namespace causeway
