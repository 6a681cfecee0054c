#include "driver.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "device.hpp"

namespace cuda {

Driver cu;
Compiler nvrtc;

namespace {

template <class T>
bool find(void* library, const char* symbol, T* out, char* words, size_t size) {
  *out = reinterpret_cast<T>(dlsym(library, symbol));
  if (!*out && !*words) snprintf(words, size, "it has no %s: it is too old", symbol);
  return *out != nullptr;
}

// The folder that this library lies in: NVRTC's wheel lies beside its package.
std::string own_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&own_folder), &info) || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  return path.find('/') == std::string::npos ? "." : path.substr(0, path.rfind('/'));
}

}  // namespace

const char* open_driver() {
  static std::once_flag once;
  static char words[512];
  std::call_once(once, [] {
    if (const std::string paper = setting("paper"); !paper.empty()) {
      int number = 0;
      if (sscanf(paper.c_str(), "sm_%d", &number) != 1 || number < 50 || number > 999) {
        snprintf(words, sizeof(words), "CAUSEWAY_NVIDIA_PAPER is '%.40s': expected an architecture, as sm_90",
                 paper.c_str());
        return;
      }
      cu = paper_driver(number / 10, number % 10);
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
    char missing[160] = "";
#define FIND(name, symbol, parameters) find(library, symbol, &cu.name, missing, sizeof(missing));
    CUDA_FUNCTIONS(FIND)
#undef FIND
    if (*missing) {
      snprintf(words, sizeof(words), "CUDA's driver libcuda.so.1 cannot be used: %s", missing);
      return;
    }
#define FIND(name, symbol, parameters) find(library, symbol, &cu.name, missing, sizeof(missing));
    CUDA_LATER_FUNCTIONS(FIND)
#undef FIND
  });
  return words;
}

const char* open_compiler() {
  static std::once_flag once;
  static char words[1024];
  std::call_once(once, [] {
    std::vector<std::string> names;
    if (const std::string asked = setting("nvrtc"); !asked.empty()) {
      names = {asked};
    } else {
      for (const char* version : {"13", "12", "11.2"}) names.push_back(std::string("libnvrtc.so.") + version);
      for (const char* at : {"/../nvidia/cu13/lib/libnvrtc.so.13", "/../nvidia/cuda_nvrtc/lib/libnvrtc.so.12"})
        names.push_back(own_folder() + at);
      names.push_back("/usr/local/cuda/lib64/libnvrtc.so");
    }
    void* library = nullptr;
    for (const std::string& name : names)
      if ((library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
    if (!library) {
      snprintf(words, sizeof(words),
               "CUDA's run-time compiler cannot be opened (%s): `pip install nvidia-cuda-nvrtc-cu12`, or name the "
               "library in CAUSEWAY_NVIDIA_NVRTC",
               dlerror());
      return;
    }
    char missing[160] = "";
#define FIND(name, symbol, parameters) find(library, symbol, &nvrtc.name, missing, sizeof(missing));
    NVRTC_FUNCTIONS(FIND)
#undef FIND
    find(library, "nvrtcGetErrorString", &nvrtc.error_text, missing, sizeof(missing));
    if (*missing) snprintf(words, sizeof(words), "CUDA's run-time compiler cannot be used: %s", missing);
  });
  return words;
}

}  // namespace cuda
