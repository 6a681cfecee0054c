// The vendor's library: opened, its table copied into ours and checked once, so that no call site looks at a version.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "causeway/abi.h"

namespace causeway {

using Settings = std::function<std::optional<std::string>(const std::string&)>;

// Open `path`, copy and check its table. Opens no device. Throws Kind::Vendor with the reason; then nothing is kept.
void load_vendor(const std::string& path, Settings settings);

// The two steps of it, for a table that wraps a library's or comes from none; see paper.cpp.
cw_backend open_library(const std::string& path, const Settings& settings);
void use_table(const cw_backend& table, const std::string& path, Settings settings);

bool vendor_loaded();
const cw_backend& api();  // throws while no vendor is loaded
const std::string& vendor_path();
std::string vendor_name();
std::string last_words();  // of this thread's last failed call, never empty

int vendor_level();  // 0 to 4, as `causeway doctor` prints it
std::vector<std::pair<std::string, bool>> vendor_entries();
std::vector<std::string> vendor_extensions();
const void* vendor_extension(const char* name);  // nullptr: not offered

// Stands in for the services that other files give the vendor.
struct HostServices {
  cw_status (*scratch)(int32_t, cw_stream, uint64_t, void**) = nullptr;
  cw_status (*resize)(const DLTensor*, int32_t, const int64_t*) = nullptr;
};
HostServices& host_services();

}  // namespace causeway
