#include "library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>

#include "device.hpp"

namespace cuda {

std::string file_of_function(const void* function) {
  Dl_info info;
  return dladdr(function, &info) && info.dli_fname ? info.dli_fname : "";
}

std::string folder_of(const void* function) {
  const std::string path = file_of_function(function);
  return path.find('/') == std::string::npos ? "." : path.substr(0, path.rfind('/'));
}

std::string own_folder() { return folder_of(reinterpret_cast<void*>(&own_folder)); }

std::string file_of(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name ? map->l_name : "";
}

void* symbol_of(void* library, const char* symbol) { return dlsym(library, symbol); }

std::string environment(const char* name) {
  const char* text = getenv(name);
  return text ? text : "";
}

std::vector<std::string> files_in(const std::vector<std::string>& files, const std::vector<std::string>& folders) {
  std::vector<std::string> all = files;
  for (const std::string& folder : folders)
    if (!folder.empty())
      for (const std::string& file : files) all.push_back(folder + "/" + file);
  return all;
}

void* open_library(const kin::Places& places, std::string* words) {
  std::vector<std::string> names = places.files;
  if (const std::string asked = places.key ? setting(places.key) : ""; !asked.empty()) {
    if (asked == "0") return *words = "switched off by a setting", nullptr;
    names = {asked};
  }
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* why = dlerror();
    // The first place's reason unless a file is there and does not load: then that one.
    if (words->empty() || (why && !strstr(why, "No such file"))) *words = why ? why : "no reason was given";
  }
  return nullptr;
}

}  // namespace cuda
