// HIP, of AMD's GPUs and of Hygon's (DTK): the functions of its runtime and of hiprtc that are used, declared from their
// documentation; `make test-hip` compares them with the headers of HIP 5.2, and of 7.1 where `make hip-headers` was run.
//
// HIP has no contexts of its own any more: a device's number stands where CUDA's calls take one.
#pragma once

#include <cstddef>
#include <cstdint>

#define KIN_VENDOR "amd"
#define KIN_SETTING "CAUSEWAY_AMD_"
#define KIN_NAME "HIP"
#define KIN_DRIVER "HIP's runtime"
#define KIN_DRIVER_FILE "libamdhip64.so"
#define KIN_COMPILER "hiprtc"
#define KIN_ARCHITECTURE "gfx90a"
#define KIN_INSTALL_DRIVER "install ROCm, or Hygon's DTK, or name the library in CAUSEWAY_AMD_HIP"
#define KIN_INSTALL_COMPILER "it comes with ROCm and with Hygon's DTK; CAUSEWAY_AMD_HIPRTC names the library"

// Addresses and handles of memory are pointers there, and passed as numbers of their size are. The test of the
// declarations says void*.
#ifndef KIN_POINTER
#define KIN_POINTER uint64_t
#endif

namespace cuda {

using Result = int;  // hipError_t
using DeviceId = int;  // hipDevice_t
using Address = KIN_POINTER;  // hipDeviceptr_t
using Context = int;  // a device's number
using MemoryHandle = KIN_POINTER;
constexpr Context kNoContext = -1;

// hipError_t. Those that HIP does not have are numbers that no call gives.
constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kDeinitialized = 4, kNoDevice = 100,
                 kInvalidImage = 200, kInvalidPtx = 218, kInvalidContext = 201, kNoBinary = 209, kEccError = 214,
                 kUnsupportedPtx = -1, kInvalidHandle = 400, kIllegalState = 401, kNotFound = 500, kNotReady = 600,
                 kIllegalAddress = 700, kLaunchOutOfResources = 701, kLaunchTimeout = 702, kPeerAlreadyEnabled = 704,
                 kContextDestroyed = 709, kAssertFailed = 710, kStackError = 714, kLaunchFailed = 719;
// hipDeviceAttribute_t: of one number each from HIP 5.2 to 7.1
constexpr int kMaxThreadsPerBlock = 56, kSharedMemoryPerBlock = 74, kWarpSize = 87, kMultiprocessors = 63,
              kCapabilityMajor = 23, kCapabilityMinor = 61, kMaxBlockDimX = 26, kMaxBlockDimY = 27, kMaxBlockDimZ = 28,
              kClockRate = 5, kVirtualMemory = 89, kMemoryClockRate = 60, kMemoryBusWidth = 59, kL2CacheSize = 19,
              kMaxThreadsPerMultiprocessor = 57;
constexpr int kMostSharedMemory = 8;  // hipFuncAttribute_t; of functions of the program only, so it is not asked
// hipDeviceProp_t: where the architecture's name begins, to HIP 5 and from 6 on; and more bytes than any has
constexpr size_t kNameInProperties5 = 396, kNameInProperties6 = 1160, kPropertiesBytes = 16384;
constexpr uint64_t kMostItems = UINT32_MAX;  // of all groups of a launch in a row

// member, the exported symbol, parameters
#define DRIVER_FUNCTIONS(F)                                                                \
  F(init, hipInit, (unsigned))                                                             \
  F(driver_version, hipDriverGetVersion, (int*))                                           \
  F(device_count, hipGetDeviceCount, (int*))                                               \
  F(device_get, hipDeviceGet, (DeviceId*, int))                                            \
  F(device_name, hipDeviceGetName, (char*, int, DeviceId))                                 \
  F(device_memory, hipDeviceTotalMem, (size_t*, DeviceId))                                 \
  F(attribute, hipDeviceGetAttribute, (int*, int, DeviceId))                               \
  F(set_current, hipSetDevice, (Context))                                                  \
  F(synchronize, hipDeviceSynchronize, ())                                                 \
  F(priorities, hipDeviceGetStreamPriorityRange, (int*, int*))                             \
  F(alloc, hipMalloc, (Address*, size_t))                                                  \
  F(free, hipFree, (Address))                                                              \
  F(mem_info, hipMemGetInfo, (size_t*, size_t*))                                           \
  F(host_alloc, hipHostMalloc, (void**, size_t, unsigned))                                 \
  F(host_free, hipHostFree, (void*))                                                       \
  F(host_register, hipHostRegister, (void*, size_t, unsigned))                             \
  F(host_unregister, hipHostUnregister, (void*))                                           \
  F(can_access, hipDeviceCanAccessPeer, (int*, DeviceId, DeviceId))                        \
  F(enable_peer, hipDeviceEnablePeerAccess, (Context, unsigned))                           \
  F(bus_id, hipDeviceGetPCIBusId, (char*, int, DeviceId))                                  \
  F(copy_in, hipMemcpyHtoDAsync, (Address, const void*, size_t, Stream))                   \
  F(copy_in_now, hipMemcpyHtoD, (Address, const void*, size_t))                            \
  F(copy_out, hipMemcpyDtoHAsync, (void*, Address, size_t, Stream))                        \
  F(copy_within, hipMemcpyDtoDAsync, (Address, Address, size_t, Stream))                   \
  F(copy_across, hipMemcpyPeerAsync, (Address, Context, Address, Context, size_t, Stream)) \
  F(set8, hipMemsetD8Async, (Address, unsigned char, size_t, Stream))                      \
  F(stream_create, hipStreamCreateWithPriority, (Stream*, unsigned, int))                  \
  F(stream_destroy, hipStreamDestroy, (Stream))                                            \
  F(stream_query, hipStreamQuery, (Stream))                                                \
  F(stream_sync, hipStreamSynchronize, (Stream))                                           \
  F(stream_wait, hipStreamWaitEvent, (Stream, Event, unsigned))                            \
  F(event_create, hipEventCreateWithFlags, (Event*, unsigned))                             \
  F(event_destroy, hipEventDestroy, (Event))                                               \
  F(event_record, hipEventRecord, (Event, Stream))                                         \
  F(event_query, hipEventQuery, (Event))                                                   \
  F(event_sync, hipEventSynchronize, (Event))                                              \
  F(event_elapsed, hipEventElapsedTime, (float*, Event, Event))                            \
  F(module_load, hipModuleLoadData, (Module*, const void*))                                \
  F(module_unload, hipModuleUnload, (Module))                                              \
  F(module_function, hipModuleGetFunction, (Function*, Module, const char*))               \
  F(launch, hipModuleLaunchKernel,                                                         \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**))

// Those that may be missing, and are NULL then; `properties_6` came with HIP 6, which kept the older one.
#define DRIVER_LATER_FUNCTIONS(F)                                                                      \
  F(properties, hipGetDeviceProperties, (void*, int))                                                  \
  F(properties_6, hipGetDevicePropertiesR0600, (void*, int))                                           \
  F(device_uuid, hipDeviceGetUuid, (unsigned char*, DeviceId))                                         \
  F(host_function, hipLaunchHostFunc, (Stream, void (*)(void*), void*))                                \
  F(capture_begin, hipStreamBeginCapture, (Stream, int))                                               \
  F(capture_end, hipStreamEndCapture, (Stream, Graph*))                                                \
  F(graph_instantiate, hipGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))          \
  F(graph_launch, hipGraphLaunch, (GraphExec, Stream))                                                 \
  F(graph_destroy, hipGraphDestroy, (Graph))                                                           \
  F(exec_destroy, hipGraphExecDestroy, (GraphExec))                                                    \
  F(reserve, hipMemAddressReserve, (Address*, size_t, size_t, Address, unsigned long long))            \
  F(address_free, hipMemAddressFree, (Address, size_t))                                                \
  F(memory_create, hipMemCreate, (MemoryHandle*, size_t, const MemoryProperties*, unsigned long long)) \
  F(memory_release, hipMemRelease, (MemoryHandle))                                                     \
  F(map, hipMemMap, (Address, size_t, size_t, MemoryHandle, unsigned long long))                       \
  F(unmap, hipMemUnmap, (Address, size_t))                                                             \
  F(set_access, hipMemSetAccess, (Address, size_t, const MemoryAccess*, size_t))                       \
  F(granularity, hipMemGetAllocationGranularity, (size_t*, const MemoryProperties*, int))

// Words of a result, which HIP gives back instead of writing them.
#define DRIVER_WORDS(F)          \
  F(error_name, hipGetErrorName) \
  F(error_text, hipGetErrorString)

// Members that HIP has no function for: kin_hip.cpp makes the first, the others stay NULL.
#define DRIVER_OTHER_FUNCTIONS(F)               \
  F(retain, hipSetDevice, (Context*, DeviceId)) \
  F(function_set, none, (Function, int, int))   \
  F(parameter_info, none, (Function, size_t, size_t*, size_t*))

#define COMPILER_FUNCTIONS(F)                                                                  \
  F(version, hiprtcVersion, (int*, int*))                                                      \
  F(create, hiprtcCreateProgram,                                                               \
    (CompilerProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  F(compile, hiprtcCompileProgram, (CompilerProgram, int, const char* const*))                 \
  F(destroy, hiprtcDestroyProgram, (CompilerProgram*))                                         \
  F(log_size, hiprtcGetProgramLogSize, (CompilerProgram, size_t*))                             \
  F(log, hiprtcGetProgramLog, (CompilerProgram, char*))                                        \
  F(code_size, hiprtcGetCodeSize, (CompilerProgram, size_t*))                                  \
  F(code, hiprtcGetCode, (CompilerProgram, char*))
#define COMPILER_ERROR_TEXT hiprtcGetErrorString

}  // namespace cuda
