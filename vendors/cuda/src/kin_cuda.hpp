// CUDA: the functions of its driver and of NVRTC that are used, declared from their documentation; tests/cuda compares
// them with NVIDIA's headers. What every kin has by one name is kin.hpp's.
#pragma once

#include <cstddef>
#include <cstdint>

#define KIN_VENDOR "nvidia"
#define KIN_SETTING "CAUSEWAY_NVIDIA_"
#define KIN_NAME "CUDA"
#define KIN_DRIVER "CUDA's driver"
#define KIN_DRIVER_FILE "libcuda.so.1"
#define KIN_COMPILER "NVRTC"
#define KIN_ARCHITECTURE "sm_90"
#define KIN_INSTALL_DRIVER "install NVIDIA's driver"
#define KIN_INSTALL_COMPILER "`pip install nvidia-cuda-nvrtc-cu12`, or name the library in CAUSEWAY_NVIDIA_NVRTC"
#define KIN_HAS_DNN \
  1  // cuDNN, and kernels of this vendor's own: both are for NVIDIA's warps of 32 and its tensor cores

namespace cuda {

using Result = int;         // CUresult
using DeviceId = int;       // CUdevice
using Address = uint64_t;   // CUdeviceptr
using Context = struct CUctx_st*;
using MemoryHandle = unsigned long long;
constexpr Context kNoContext = nullptr;

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
// CUfunction_attribute: bytes that a launch may give a block
constexpr int kMostSharedMemory = 8;
constexpr uint64_t kMostItems = UINT64_MAX;  // of all groups of a launch in a row: no limit but the grid's

// member, the exported symbol, parameters. `_v2` is what the headers' names mean since CUDA 4.
#define DRIVER_FUNCTIONS(F)                                                               \
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
#define DRIVER_LATER_FUNCTIONS(F)                                                                     \
  F(parameter_info, cuFuncGetParamInfo, (Function, size_t, size_t*, size_t*))                         \
  F(host_function, cuLaunchHostFunc, (Stream, void (*)(void*), void*))                                \
  F(capture_begin, cuStreamBeginCapture_v2, (Stream, int))                                            \
  F(capture_end, cuStreamEndCapture, (Stream, Graph*))                                                \
  F(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))          \
  F(graph_launch, cuGraphLaunch, (GraphExec, Stream))                                                 \
  F(graph_destroy, cuGraphDestroy, (Graph))                                                           \
  F(exec_destroy, cuGraphExecDestroy, (GraphExec))                                                    \
  F(reserve, cuMemAddressReserve, (Address*, size_t, size_t, Address, unsigned long long))            \
  F(address_free, cuMemAddressFree, (Address, size_t))                                                \
  F(memory_create, cuMemCreate, (MemoryHandle*, size_t, const MemoryProperties*, unsigned long long)) \
  F(memory_release, cuMemRelease, (MemoryHandle))                                                     \
  F(map, cuMemMap, (Address, size_t, size_t, MemoryHandle, unsigned long long))                       \
  F(unmap, cuMemUnmap, (Address, size_t))                                                             \
  F(set_access, cuMemSetAccess, (Address, size_t, const MemoryAccess*, size_t))                       \
  F(granularity, cuMemGetAllocationGranularity, (size_t*, const MemoryProperties*, int))

// Words of a result that are given back, and members that the library has no function for: CUDA has none of either.
#define DRIVER_WORDS(F)
#define DRIVER_OTHER_FUNCTIONS(F)

#define COMPILER_FUNCTIONS(F)                                                                  \
  F(version, nvrtcVersion, (int*, int*))                                                       \
  F(create, nvrtcCreateProgram,                                                                \
    (CompilerProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  F(compile, nvrtcCompileProgram, (CompilerProgram, int, const char* const*))                  \
  F(destroy, nvrtcDestroyProgram, (CompilerProgram*))                                          \
  F(log_size, nvrtcGetProgramLogSize, (CompilerProgram, size_t*))                              \
  F(log, nvrtcGetProgramLog, (CompilerProgram, char*))                                         \
  F(code_size, nvrtcGetCUBINSize, (CompilerProgram, size_t*))                                  \
  F(code, nvrtcGetCUBIN, (CompilerProgram, char*))                                             \
  F(architecture_count, nvrtcGetNumSupportedArchs, (int*))                                     \
  F(architectures, nvrtcGetSupportedArchs, (int*))                                             \
  F(ptx_size, nvrtcGetPTXSize, (CompilerProgram, size_t*))                                     \
  F(ptx, nvrtcGetPTX, (CompilerProgram, char*))
#define COMPILER_ERROR_TEXT nvrtcGetErrorString

}  // namespace cuda
