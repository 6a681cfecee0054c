// One device: its memory, its copies, its one stream.
#pragma once

#include "causeway/abi.h"
#include "diopi/diopirt.h"

namespace diopi {

cw_status device_count(int32_t* out);
cw_status device_info(int32_t device, cw_device_info* out);
cw_status sync(int32_t device);
cw_status mem_alloc(int32_t device, uint64_t bytes, void** out);
cw_status mem_free(int32_t device, void* ptr);
cw_status mem_copy(void* dst, int32_t dst_device, const void* src, int32_t src_device, uint64_t bytes,
                   cw_stream stream);
cw_status close();

cw_status find_stream(diopiStreamHandle_t* out);  // the device's, made at first
constexpr cw_dtypes kDtypes = CW_BOOL | CW_UINT8 | CW_INT8 | CW_UINT16 | CW_INT16 | CW_UINT32 | CW_INT32 | CW_UINT64 |
                              CW_INT64 | CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_FLOAT64 | CW_COMPLEX32 |
                              CW_COMPLEX64 | CW_COMPLEX128;  // that DIOPI has numbers for

}  // namespace diopi
