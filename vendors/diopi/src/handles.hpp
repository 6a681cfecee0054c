// What is behind DIOPI's opaque handles, while one call lasts.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "causeway/abi.h"
#include "diopi/diopirt.h"

// A tensor of the core's arguments, or one that the library required.
struct diopiTensor {
  void* data = nullptr;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;  // in elements
  int64_t ndim = 0;
  diopiDtype_t dtype = diopi_dtype_unsupported;
  diopiDevice_t device = diopi_device;
  std::vector<int64_t> own;  // shape and strides of a required one
  std::unique_ptr<char[]> memory;  // of a required one of the host

  int64_t numel() const;
  int64_t reach() const;  // elements from the first to behind the last
};

struct diopiContext {
  diopiStreamHandle_t handle = nullptr;
  cw_stream stream = nullptr;
  int32_t device = 0;
  std::list<diopiTensor> required;
  cw_status status = CW_OK;  // of the last call-back that failed
};

// The numbers that one call may draw. The core has moved its own generator past them.
struct diopiGenerator {
  uint64_t seed = 0;
  uint64_t offset = 0;  // in numbers of 32 bits
};

namespace diopi {

int64_t bytes_of(diopiDtype_t dtype);  // of an element; 0: not known
diopiDtype_t dtype_of(DLDataType type);  // diopi_dtype_unsupported for none

// A dense tensor, or one of these strides, in memory that lasts until the stream has passed the call.
cw_status require(diopiContext& context, const diopiSize_t& size, const diopiSize_t* stride, diopiDtype_t dtype,
                  diopiDevice_t device, diopiTensor** out);

}  // namespace diopi
