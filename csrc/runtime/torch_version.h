// Every difference between the torch releases that Causeway builds against, and nothing else.
#pragma once

#include <torch/version.h>

#include <torch/csrc/autograd/function.h>

#define CAUSEWAY_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

// Where torch forwards a backend's activity profiler to Kineto itself; before, Kineto is asked directly.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#define CAUSEWAY_HAS_PROFILER_REGISTRY 1
#else
#define CAUSEWAY_HAS_PROFILER_REGISTRY 0
#endif

namespace causeway {

// 2.13 counts references to autograd nodes intrusively; before, they were shared_ptr.
#if CAUSEWAY_TORCH_AT_LEAST(2, 13)
template <class T>
c10::intrusive_ptr<torch::autograd::Node> make_node() {
  return c10::make_intrusive<T>();
}
#else
template <class T>
std::shared_ptr<torch::autograd::Node> make_node() {
  return std::make_shared<T>();
}
#endif

}  // namespace causeway
