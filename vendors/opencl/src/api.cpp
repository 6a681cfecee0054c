#include "api.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <mutex>

namespace opencl {

Api cl;

const char* open_loader() {
  static std::once_flag once;
  static char words[512];
  std::call_once(once, [] {
    void* loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!loader) {
      snprintf(words, sizeof(words),
               "OpenCL's loader libOpenCL.so.1 cannot be opened (%s): install it and a driver, for a CPU "
               "`apt-get install ocl-icd-libopencl1 pocl-opencl-icd`",
               dlerror());
      return;
    }
#define FIND(name)                                                            \
  if (!(cl.name = reinterpret_cast<decltype(cl.name)>(dlsym(loader, #name)))) \
    snprintf(words, sizeof(words), "libOpenCL.so.1 has no " #name ": it is older than OpenCL 1.2");
    OPENCL_FUNCTIONS(FIND)
#undef FIND
#define FIND(name) cl.name = reinterpret_cast<decltype(cl.name)>(dlsym(loader, #name));
    OPENCL_2_FUNCTIONS(FIND)
#undef FIND
  });
  return words;
}

}  // namespace opencl
