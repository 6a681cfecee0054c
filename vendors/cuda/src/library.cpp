#include "library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "device.hpp"

namespace cuda {

std::string folder_of(const void* function) {
  Dl_info info;
  if (!dladdr(function, &info) || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  return path.find('/') == std::string::npos ? "." : path.substr(0, path.rfind('/'));
}

namespace {

// NVIDIA's wheels lie beside this library's package.
std::string own_folder() { return folder_of(reinterpret_cast<void*>(&own_folder)); }

}  // namespace

void* symbol_of(void* library, const char* symbol) { return dlsym(library, symbol); }

std::vector<const char*> by_driver(const char* later, const char* earlier) {
  int version = 0;
  if (cu.driver_version) cu.driver_version(&version);
  return version >= 13000 ? std::vector{later, earlier} : std::vector{earlier, later};
}

void* open_library(const Places& places, std::string* words) {
  std::vector<std::string> names;
  if (const std::string asked = setting(places.key); !asked.empty()) {
    if (asked == "0") return *words = "switched off by a setting", nullptr;
    names = {asked};
  } else {
    for (const char* version : places.versions) {
      const std::string file = std::string(places.soname) + version;
      names.push_back(own_folder() + "/../nvidia/" + places.folder + "/lib/" + file);
      names.push_back(own_folder() + "/../nvidia/cu13/lib/" + file);
      names.push_back(file);
      const char* homes[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
      for (const char* home : homes)
        if (home && *home) names.push_back(std::string(home) + "/lib64/" + file);
    }
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
