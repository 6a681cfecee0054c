// cuDNN as a library: opened, its results as statuses, a handle for each stream.
#include "dnn.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "error.hpp"
#include "library.hpp"
#include "stream.hpp"

namespace cuda {

Dnn cudnn;

const char* open_dnn() {
  static std::once_flag once;
  static auto& words = *new std::string;
  std::call_once(once, [] {
    open_driver();
    open_compiler();  // which it wants for kernels made to order, and finds by name where it is open
    void* library = open_library(kin::dnn_places(), &words);
    if (!library) return;
    words.clear();
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cudnn.name, &words);
    DNN_FUNCTIONS(FIND)
#undef FIND
    std::string missing;
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cudnn.name, &missing);
    DNN_GRAPHS(FIND)
#undef FIND
    if (!missing.empty()) cudnn.make = nullptr;
    find_symbol(library, "cudnnGetVersion", &cudnn.version, &words);
    find_symbol(library, "cudnnGetErrorString", &cudnn.error_text, &words);
    // 9.0.0 is 90000; 8.9.7 was 8907, with other statuses.
    if (words.empty() && cudnn.version() / 10000 != 9)
      words = "it is of version " + std::to_string(cudnn.version()) + ", and cuDNN 9 is needed";
  });
  return words.c_str();
}

std::string dnn_version() {
  const size_t v = cudnn.version();
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

DnnStream::~DnnStream() {
  for (const auto& [key, plan] : plans)
    if (plan.it) cudnn.unmake(plan.it);
  if (handle) cudnn.destroy(handle);
}

cw_status check_dnn(int result, const char* function) {
  if (result == dnn::kSuccess) return CW_OK;
  const int category = result / 1000 * 1000;
  const char* text = cudnn.error_text(result);
  if (category == dnn::kNotSupported) return fail(CW_UNSUPPORTED, "%s declined: %s", function, text);
  if (category == dnn::kBadParameter) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true) && host.log)
      host.log(2, (std::string(function) + ": " + text +
                   "; the portable kernel serves such calls. That is a mistake of this vendor's library: please report")
                      .c_str());
    return fail(CW_UNSUPPORTED, "%s: %s", function, text);
  }
  return fail(result == dnn::kNoMemory ? CW_OUT_OF_MEMORY : CW_FAILED, "%s: %s", function, text);
}

cw_status dnn_of(cw_stream_t& stream, DnnStream** out) {
  static std::atomic<bool> broken{false};
  if (broken) return CW_UNSUPPORTED;
  if (!stream.dnn) {
    auto made = std::make_unique<DnnStream>();
    if (const int result = cudnn.create(&made->handle); result != dnn::kSuccess) {
      made->handle = nullptr;
      if (!broken.exchange(true) && host.log)
        host.log(2, (std::string("cuDNN cannot be used (cudnnCreate: ") + cudnn.error_text(result) +
                     "), so portable kernels compute convolutions; CAUSEWAY_NVIDIA_CUDNN=0 silences this")
                        .c_str());
      return CW_UNSUPPORTED;
    }
    TRY(check_dnn(cudnn.set_stream(made->handle, stream.stream), "cudnnSetStream"));
    stream.dnn = std::move(made);
  }
  return *out = stream.dnn.get(), CW_OK;
}

}  // namespace cuda
