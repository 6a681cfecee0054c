#include "acl.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "device.hpp"

namespace ascend {

Acl acl;
Aclnn aclnn;
Rtc rtc;

namespace {

// Operators may be found in any of these. libnnopbase.so makes tensors; the others were split off from libopapi.so.
constexpr const char* kOperatorLibraries[] = {
    "libopapi.so",           "libopapi_math.so",      "libopapi_nn.so",   "libopapi_transformer.so", "libopapi_cv.so",
    "libaclnn_ops_infer.so", "libaclnn_ops_train.so", "libaclnn_math.so", "libaclnn_rand.so"};

auto& g_runtime_file = *new std::string;
auto& g_operators = *new std::vector<void*>;
auto& g_operator_files = *new std::vector<std::string>;

// The folders in which a library may be, an empty one for the loader's own. A setting leaves no other.
std::vector<std::string> folders() {
  if (const std::string asked = setting("libraries"); !asked.empty()) return {asked + "/"};
  std::vector<std::string> found = {""};
  for (const char* key : {"ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"})
    if (const char* home = getenv(key); home && *home) found.push_back(std::string(home) + "/lib64/");
  for (const char* home :
       {"/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/latest"})
    found.push_back(std::string(home) + "/lib64/");
  return found;
}

}  // namespace

// The words are of the place that was tried first: the loader's, or the setting's.
void* open_library(const char* file, std::string* path, std::string* words, int scope) {
  for (const std::string& folder : folders()) {
    const std::string name = folder + file;
    if (void* found = dlopen(name.c_str(), RTLD_NOW | scope)) return *path = name, found;
    const char* error = dlerror();
    if (words->empty()) *words = error ? error : "no words";
  }
  return nullptr;
}

void* find_in(void* library, const char* symbol) { return dlsym(library, symbol); }

namespace {

template <class T>
void find_symbol(void* library, const char* symbol, T* out, std::string* missing) {
  *out = reinterpret_cast<T>(dlsym(library, symbol));
  if (!*out && missing && missing->empty()) *missing = symbol;
}

constexpr const char* kInstall =
    "install CANN and `source set_env.sh` of it, or name the folder with its libraries in CAUSEWAY_ASCEND_LIBRARIES";

}  // namespace

const char* open_acl() {
  static std::once_flag once;
  static char words[1024];
  std::call_once(once, [] {
    std::string why, missing;
    void* library = open_library("libascendcl.so", &g_runtime_file, &why);
    if (!library) {
      snprintf(words, sizeof(words), "CANN's runtime libascendcl.so cannot be opened (%s): %s", why.c_str(), kInstall);
      return;
    }
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &acl.name, &missing);
    ACL_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &acl.name, nullptr);
    ACL_LATER_FUNCTIONS(FIND)
    ACL_NEWEST_FUNCTIONS(FIND)
#undef FIND
    find_symbol(library, "aclGetRecentErrMsg", &acl.words, nullptr);
    find_symbol(library, "aclrtGetSocName", &acl.soc_name, nullptr);
    if (missing.empty()) return;
    snprintf(words, sizeof(words), "CANN's runtime %s cannot be used: it has no %s, and CANN 8.0 or later is needed",
             g_runtime_file.c_str(), missing.c_str());
    acl = {};
  });
  return words;
}

const char* open_aclnn() {
  static std::once_flag once;
  static char words[1024];
  std::call_once(once, [] {
    open_acl();  // first: the operators' libraries need it
    std::string why, path, ignored;
    void* base = open_library("libnnopbase.so", &path, &ignored);
    for (const char* file : kOperatorLibraries)
      if (void* library = open_library(file, &path, &why))
        g_operators.push_back(library), g_operator_files.push_back(path);
    if (g_operators.empty()) {
      snprintf(words, sizeof(words), "CANN's operators libopapi.so cannot be opened (%s): %s", why.c_str(), kInstall);
      return;
    }
    if (base) g_operators.push_back(base);
    std::string missing;
#define FIND(name, result, symbol, parameters)                              \
  aclnn.name = reinterpret_cast<result(*) parameters>(find_aclnn(#symbol)); \
  if (!aclnn.name && missing.empty()) missing = #symbol;
    ACLNN_CREATES(FIND)
#undef FIND
#define FIND(name, result, symbol, parameters) aclnn.name = reinterpret_cast<result(*) parameters>(find_aclnn(#symbol));
    ACLNN_LATER(FIND)
#undef FIND
    if (!missing.empty())
      snprintf(words, sizeof(words),
               "CANN's operators %s cannot be used: they have no %s, and CANN 8.0 or later is needed",
               g_operator_files[0].c_str(), missing.c_str());
  });
  return words;
}

const char* open_rtc() {
  static std::once_flag once;
  static char words[1024];
  std::call_once(once, [] {
    open_acl();  // first: it may need it
    std::string why, missing;
    void* library = open_library("libacl_rtc.so", &rtc.file, &why);
    if (!library) {
      snprintf(words, sizeof(words), "CANN's run-time compiler libacl_rtc.so cannot be opened (%s): %s", why.c_str(),
               kInstall);
      return;
    }
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &rtc.name, &missing);
    RTC_FUNCTIONS(FIND)
#undef FIND
    if (!missing.empty())
      snprintf(words, sizeof(words), "CANN's run-time compiler %s cannot be used: it has no %s", rtc.file.c_str(),
               missing.c_str());
  });
  return words;
}

void* find_aclnn(const std::string& symbol) {
  for (void* library : g_operators)
    if (void* found = dlsym(library, symbol.c_str())) return found;
  return nullptr;
}

std::string cann_version() {
  PackageVersion found = {};
  if (acl.cann_version && acl.cann_version(kPackageCann, &found) == kSuccess && *found.version) return found.version;
  return "";
}

std::string places_of_libraries() {
  std::string text = g_runtime_file;
  for (const std::string& file : g_operator_files) text += ", " + file;
  return text;
}

}  // namespace ascend
