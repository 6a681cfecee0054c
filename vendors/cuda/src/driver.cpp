#include "driver.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "device.hpp"
#include "library.hpp"

namespace cuda {

Driver cu;
Compiler nvrtc;

namespace {

// NVRTC opens a second library by its bare name when it compiles. Since CUDA 13 it no longer says that it lies beside it,
// so the loader finds it only where it is open already. Where it is in no such place the loader's own paths are left.
void open_builtins() {
  int major = 0, minor = 0;
  if (nvrtc.version(&major, &minor)) return;
  const std::string version = std::to_string(major) + "." + std::to_string(minor);
  const std::string file = folder_of(reinterpret_cast<void*>(nvrtc.version)) + "/libnvrtc-builtins.so." + version;
  dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

const char* open_driver() {
  static std::once_flag once;
  static char words[512];
  std::call_once(once, [] {
    if (const std::string paper = setting("paper"); !paper.empty()) {
      int number = 0, devices = 1;
      if (sscanf(paper.c_str(), "sm_%dx%d", &number, &devices) < 1 || number < 50 || number > 999 || devices < 1) {
        snprintf(words, sizeof(words), "CAUSEWAY_NVIDIA_PAPER is '%.40s': expected an architecture, as sm_90",
                 paper.c_str());
        return;
      }
      cu = paper_driver(number / 10, number % 10, devices);
      return;
    }
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      snprintf(words, sizeof(words),
               "CUDA's driver libcuda.so.1 cannot be opened (%s): install NVIDIA's driver; without a GPU "
               "CAUSEWAY_NVIDIA_PAPER=sm_90 gives a device on paper, which compiles kernels and runs none",
               dlerror());
      return;
    }
    std::string missing;
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cu.name, &missing);
    CUDA_FUNCTIONS(FIND)
#undef FIND
    if (!missing.empty()) {
      snprintf(words, sizeof(words), "CUDA's driver libcuda.so.1 cannot be used: %s", missing.c_str());
      return;
    }
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cu.name, nullptr);
    CUDA_LATER_FUNCTIONS(FIND)
#undef FIND
  });
  return words;
}

const char* open_compiler() {
  static std::once_flag once;
  static char words[1024];
  std::call_once(once, [] {
    std::vector<const char*> versions = by_driver("13", "12");
    versions.push_back("11.2");
    std::string why;
    void* library = open_library({"nvrtc", "libnvrtc.so.", "cuda_nvrtc", versions}, &why);
    if (!library) {
      snprintf(words, sizeof(words),
               "CUDA's run-time compiler cannot be opened (%s): `pip install nvidia-cuda-nvrtc-cu12`, or name the "
               "library in CAUSEWAY_NVIDIA_NVRTC",
               why.c_str());
      return;
    }
    std::string missing;
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &nvrtc.name, &missing);
    NVRTC_FUNCTIONS(FIND)
#undef FIND
    find_symbol(library, "nvrtcGetErrorString", &nvrtc.error_text, &missing);
    if (!missing.empty()) {
      snprintf(words, sizeof(words), "CUDA's run-time compiler cannot be used: %s", missing.c_str());
      return;
    }
    open_builtins();
  });
  return words;
}

}  // namespace cuda
