// The functions of CUDA's driver and of NVRTC that are used, declared here from their documentation: no CUDA header is
// needed to build, and no CUDA library to load. Both are opened when the first device is asked for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda {

using Result = int;         // CUresult
using DeviceId = int;       // CUdevice
using Address = uint64_t;   // CUdeviceptr
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;

// CUresult
constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kDeinitialized = 4, kNoDevice = 100,
                 kInvalidImage = 200, kInvalidPtx = 218, kInvalidContext = 201, kNoBinary = 209, kEccError = 214,
                 kUnsupportedPtx = 222, kInvalidHandle = 400, kIllegalState = 401, kNotFound = 500, kNotReady = 600,
                 kIllegalAddress = 700, kLaunchOutOfResources = 701, kLaunchTimeout = 702, kPeerAlreadyEnabled = 704,
                 kContextDestroyed = 709, kAssertFailed = 710, kStackError = 714, kLaunchFailed = 719;
// CUdevice_attribute
constexpr int kMaxThreadsPerBlock = 1, kSharedMemoryPerBlock = 8, kWarpSize = 10, kMultiprocessors = 16,
              kCapabilityMajor = 75, kCapabilityMinor = 76, kMaxBlockDimX = 2, kMaxBlockDimY = 3, kMaxBlockDimZ = 4,
              kClockRate = 13, kVirtualMemory = 102, kMemoryClockRate = 36, kMemoryBusWidth = 37, kL2CacheSize = 38,
              kMaxThreadsPerMultiprocessor = 39;
// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc
struct MemoryLocation {
  int type, id;
};
struct MemoryProperties {
  int type = 1, handle_types = 0;   // pinned to the device, not exported
  MemoryLocation location = {1, 0};  // a device
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;  // to read and write
};
// flags
constexpr int kCaptureRelaxed = 2;  // CUstreamCaptureMode
constexpr int kMostSharedMemory = 8;  // CUfunction_attribute: bytes that a launch may give a block
constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2, kHostPortable = 1;

// name, the exported symbol, parameters. `_v2` is what the headers' names mean since CUDA 4.
#define CUDA_FUNCTIONS(F)                                                                 \
  F(init, cuInit, (unsigned))                                                             \
  F(driver_version, cuDriverGetVersion, (int*))                                           \
  F(error_name, cuGetErrorName, (Result, const char**))                                   \
  F(error_text, cuGetErrorString, (Result, const char**))                                 \
  F(device_count, cuDeviceGetCount, (int*))                                               \
  F(device_get, cuDeviceGet, (DeviceId*, int))                                            \
  F(device_name, cuDeviceGetName, (char*, int, DeviceId))                                 \
  F(device_memory, cuDeviceTotalMem_v2, (size_t*, DeviceId))                              \
  F(device_uuid, cuDeviceGetUuid, (unsigned char*, DeviceId))                             \
  F(attribute, cuDeviceGetAttribute, (int*, int, DeviceId))                               \
  F(retain, cuDevicePrimaryCtxRetain, (Context*, DeviceId))                               \
  F(set_current, cuCtxSetCurrent, (Context))                                              \
  F(synchronize, cuCtxSynchronize, ())                                                    \
  F(priorities, cuCtxGetStreamPriorityRange, (int*, int*))                                \
  F(alloc, cuMemAlloc_v2, (Address*, size_t))                                             \
  F(free, cuMemFree_v2, (Address))                                                        \
  F(mem_info, cuMemGetInfo_v2, (size_t*, size_t*))                                        \
  F(host_alloc, cuMemHostAlloc, (void**, size_t, unsigned))                               \
  F(host_free, cuMemFreeHost, (void*))                                                    \
  F(host_register, cuMemHostRegister_v2, (void*, size_t, unsigned))                       \
  F(host_unregister, cuMemHostUnregister, (void*))                                        \
  F(can_access, cuDeviceCanAccessPeer, (int*, DeviceId, DeviceId))                        \
  F(enable_peer, cuCtxEnablePeerAccess, (Context, unsigned))                              \
  F(bus_id, cuDeviceGetPCIBusId, (char*, int, DeviceId))                                  \
  F(copy_in, cuMemcpyHtoDAsync_v2, (Address, const void*, size_t, Stream))                \
  F(copy_in_now, cuMemcpyHtoD_v2, (Address, const void*, size_t))                         \
  F(copy_out, cuMemcpyDtoHAsync_v2, (void*, Address, size_t, Stream))                     \
  F(copy_within, cuMemcpyDtoDAsync_v2, (Address, Address, size_t, Stream))                \
  F(copy_across, cuMemcpyPeerAsync, (Address, Context, Address, Context, size_t, Stream)) \
  F(set8, cuMemsetD8Async, (Address, unsigned char, size_t, Stream))                      \
  F(stream_create, cuStreamCreateWithPriority, (Stream*, unsigned, int))                  \
  F(stream_destroy, cuStreamDestroy_v2, (Stream))                                         \
  F(stream_query, cuStreamQuery, (Stream))                                                \
  F(stream_sync, cuStreamSynchronize, (Stream))                                           \
  F(stream_wait, cuStreamWaitEvent, (Stream, Event, unsigned))                            \
  F(event_create, cuEventCreate, (Event*, unsigned))                                      \
  F(event_destroy, cuEventDestroy_v2, (Event))                                            \
  F(event_record, cuEventRecord, (Event, Stream))                                         \
  F(event_query, cuEventQuery, (Event))                                                   \
  F(event_sync, cuEventSynchronize, (Event))                                              \
  F(event_elapsed, cuEventElapsedTime, (float*, Event, Event))                            \
  F(module_load, cuModuleLoadData, (Module*, const void*))                                \
  F(module_unload, cuModuleUnload, (Module))                                              \
  F(module_function, cuModuleGetFunction, (Function*, Module, const char*))               \
  F(function_set, cuFuncSetAttribute, (Function, int, int))                               \
  F(launch, cuLaunchKernel,                                                               \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**))

// Those that may be missing, and are NULL then: since CUDA 12.4 the first, since 10.0 to 11.4 the rest.
#define CUDA_LATER_FUNCTIONS(F)                                                                             \
  F(parameter_info, cuFuncGetParamInfo, (Function, size_t, size_t*, size_t*))                               \
  F(host_function, cuLaunchHostFunc, (Stream, void (*)(void*), void*))                                      \
  F(capture_begin, cuStreamBeginCapture_v2, (Stream, int))                                                  \
  F(capture_end, cuStreamEndCapture, (Stream, Graph*))                                                      \
  F(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))                \
  F(graph_launch, cuGraphLaunch, (GraphExec, Stream))                                                       \
  F(graph_destroy, cuGraphDestroy, (Graph))                                                                 \
  F(exec_destroy, cuGraphExecDestroy, (GraphExec))                                                          \
  F(reserve, cuMemAddressReserve, (Address*, size_t, size_t, Address, unsigned long long))                  \
  F(address_free, cuMemAddressFree, (Address, size_t))                                                      \
  F(memory_create, cuMemCreate, (unsigned long long*, size_t, const MemoryProperties*, unsigned long long)) \
  F(memory_release, cuMemRelease, (unsigned long long))                                                     \
  F(map, cuMemMap, (Address, size_t, size_t, unsigned long long, unsigned long long))                       \
  F(unmap, cuMemUnmap, (Address, size_t))                                                                   \
  F(set_access, cuMemSetAccess, (Address, size_t, const MemoryAccess*, size_t))                             \
  F(granularity, cuMemGetAllocationGranularity, (size_t*, const MemoryProperties*, int))

struct Driver {
#define MEMBER(name, symbol, parameters) Result(*name) parameters = nullptr;
  CUDA_FUNCTIONS(MEMBER)
  CUDA_LATER_FUNCTIONS(MEMBER)
#undef MEMBER
};

extern Driver cu;  // filled by `open_driver`

// Empty when the driver is open, else why it is not and what to do. Once a process.
const char* open_driver();

// The table of devices on paper (CAUSEWAY_NVIDIA_PAPER=sm_90, or sm_90x2 for two): memory is the host's, launches do
// nothing.
Driver paper_driver(int major, int minor, int devices);

#define NVRTC_FUNCTIONS(F)                                                                   \
  F(version, nvrtcVersion, (int*, int*))                                                     \
  F(create, nvrtcCreateProgram,                                                              \
    (struct Nvrtc**, const char*, const char*, int, const char* const*, const char* const*)) \
  F(compile, nvrtcCompileProgram, (struct Nvrtc*, int, const char* const*))                  \
  F(destroy, nvrtcDestroyProgram, (struct Nvrtc**))                                          \
  F(log_size, nvrtcGetProgramLogSize, (struct Nvrtc*, size_t*))                              \
  F(log, nvrtcGetProgramLog, (struct Nvrtc*, char*))                                         \
  F(architecture_count, nvrtcGetNumSupportedArchs, (int*))                                   \
  F(architectures, nvrtcGetSupportedArchs, (int*))                                           \
  F(ptx_size, nvrtcGetPTXSize, (struct Nvrtc*, size_t*))                                     \
  F(ptx, nvrtcGetPTX, (struct Nvrtc*, char*))                                                \
  F(cubin_size, nvrtcGetCUBINSize, (struct Nvrtc*, size_t*))                                 \
  F(cubin, nvrtcGetCUBIN, (struct Nvrtc*, char*))

struct Compiler {
#define MEMBER(name, symbol, parameters) int(*name) parameters = nullptr;
  NVRTC_FUNCTIONS(MEMBER)
#undef MEMBER
  const char* (*error_text)(int) = nullptr;
};

extern Compiler nvrtc;  // filled by `open_compiler`
const char* open_compiler();

}  // namespace cuda
