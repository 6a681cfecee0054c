// The one exported symbol and the table behind it. Read this first, then the file of each group.
#include <algorithm>
#include <cstring>
#include <string>

#include "causeway/abi.h"
#include "blas.hpp"
#include "device.hpp"
#include "error.hpp"
#include "graph.hpp"
#include "memory.hpp"
#include "program.hpp"
#include "stream.hpp"
#ifdef KIN_HAS_DNN
#include "attention.hpp"
#include "dnn.hpp"
#endif

namespace cuda {

static cw_status op_find(const char* name, cw_op* out) {
#ifdef KIN_HAS_DNN
  if (find_product(name, out) == CW_OK || find_attention(name, out) == CW_OK) return CW_OK;
  return find_convolution(name, out);
#else
  return find_product(name, out);
#endif
}

// For `causeway doctor`: which of the maker's libraries are here, and what it costs where one is not.
static const char* notes() {
  static const auto& text = *[] {
    auto* made = new std::string;
    const auto line = [&](const char* words, const std::string& found, const char* without) {
      *made += (made->empty() ? "" : "\n") + (*words ? without + std::string(words) : found);
    };
    int version = 0;
    const char* driver = open_driver();
    if (!*driver) cu.driver_version(&version);
    line(driver,
         version ? "the driver is for " KIN_NAME " " + kin::version_text(version) : "no driver: a device on paper", "");
    if (setting("paper").empty())
      if (const std::string hint = kin::hint(); !hint.empty()) line("", hint, "");
    const char* compiler = open_compiler();
    int pair[2] = {0, 0};
    if (!*compiler) rtc.version(&pair[0], &pair[1]);
    line(compiler, KIN_COMPILER " " + std::to_string(pair[0]) + "." + std::to_string(pair[1]), "");
    const char* products = open_blas();
    line(products, *products ? "" : KIN_BLAS " " + blas_version() + " multiplies matrices",
         "no " KIN_BLAS ", so portable kernels multiply matrices (" KIN_INSTALL_BLAS "): ");
#ifdef KIN_HAS_DNN
    const char* convolutions = open_dnn();
    line(convolutions, *convolutions ? "" : "cuDNN " + dnn_version() + " computes convolutions",
         "no cuDNN, so portable kernels compute convolutions (pip install nvidia-cudnn-cu12, or its file in "
         "CAUSEWAY_NVIDIA_CUDNN): ");
#endif
    return made;
  }();
  return text.c_str();
}

static cw_status extension(const char* name, const void** out) {
  if (strcmp(name, "notes.v1") == 0) return *out = notes(), CW_OK;
  if (strcmp(name, "graph.v1") == 0) return *out = &graph_table, CW_OK;
  if (strcmp(name, "code.v1") == 0) return *out = &code_table, CW_OK;
  return fail(CW_UNSUPPORTED, "extension %s is not offered", name);
}

static cw_backend make_table() {
  cw_backend table = {};
  table.struct_size = sizeof(cw_backend);
  table.abi_version = CW_ABI_VERSION;
  table.name = KIN_VENDOR;
  table.version = "0.1";
  table.last_error = last_error;

  table.device_count = device_count;
  table.device_info = device_info;
  table.bind = bind;
  table.sync = sync;
  table.mem_alloc = mem_alloc;
  table.mem_free = mem_free;
  table.mem_copy = mem_copy;
  table.mem_set = mem_set;
  table.mem_info = mem_info;
  table.host_alloc = host_alloc;
  table.host_free = host_free;

  table.op_find = op_find;

  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_query = stream_query;
  table.stream_sync = stream_sync;
  table.stream_wait = stream_wait;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_query = event_query;
  table.event_sync = event_sync;
  table.event_elapsed = event_elapsed;

  table.extension = extension;
  table.peer_access = peer_access;
  table.device_attribute = device_attribute;
  table.host_register = host_register;
  table.host_unregister = host_unregister;
  table.stream_callback = stream_callback;
  table.mem_reserve = mem_reserve;
  table.mem_map = mem_map;
  table.mem_unmap = mem_unmap;
  table.mem_release = mem_release;
  return table;
}

}  // namespace cuda

// Keeps what the core gives. Opens no driver: this runs at `import torch`.
const cw_backend* cw_open_v1(const cw_host* given) {
  if (!given || given->abi_version != CW_ABI_VERSION) return nullptr;
  memcpy(&cuda::host, given, std::min<size_t>(given->struct_size, sizeof(cuda::host)));
  static const cw_backend table = cuda::make_table();
  return &table;
}
