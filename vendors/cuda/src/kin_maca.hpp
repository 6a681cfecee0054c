// MACA, of MetaX's GPUs. No header of it is public: names, parameters and numbers are those that public programs use,
// each named in docs/hip.md, and nothing here compares them with the maker's. Functions that only one program shows are
// asked for by name and may be missing.
//
// As HIP it has a device's number where CUDA's calls take a context.
#pragma once

#include <cstddef>
#include <cstdint>

#define KIN_VENDOR "metax"
#define KIN_SETTING "CAUSEWAY_METAX_"
#define KIN_NAME "MACA"
#define KIN_DRIVER "MACA's runtime"
#define KIN_DRIVER_FILE "libmcruntime.so"
#define KIN_COMPILER "mcrtc"
#define KIN_ARCHITECTURE "xcore1000"
#define KIN_INSTALL_DRIVER "install MetaX's MACA, or name the library in CAUSEWAY_METAX_MACA"
#define KIN_INSTALL_COMPILER "it comes with MetaX's MACA; CAUSEWAY_METAX_MCRTC names the library"

namespace cuda {

using Result = int;  // mcError_t
using DeviceId = int;  // MCdevice
using Address = uint64_t;  // mcDeviceptr_t
using Context = int;  // a device's number
using MemoryHandle = uint64_t;
constexpr Context kNoContext = -1;

// mcError_t
constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kDeinitialized = 4, kNoDevice = 100,
                 kInvalidImage = 200, kInvalidPtx = 218, kInvalidContext = 201, kNoBinary = 209, kEccError = 214,
                 kUnsupportedPtx = 222, kInvalidHandle = 400, kIllegalState = 401, kNotFound = 500, kNotReady = 600,
                 kIllegalAddress = 700, kLaunchOutOfResources = 701, kLaunchTimeout = 702, kPeerAlreadyEnabled = 704,
                 kContextDestroyed = 709, kAssertFailed = 710, kStackError = 714, kLaunchFailed = 719;
// mcDeviceAttribute_t. 10 is the wave's size, which it calls the warp's by another number too.
constexpr int kMaxThreadsPerBlock = 0, kSharedMemoryPerBlock = 7, kWarpSize = 10, kMultiprocessors = 16,
              kCapabilityMajor = 21, kCapabilityMinor = 22, kMaxBlockDimX = 1, kMaxBlockDimY = 2, kMaxBlockDimZ = 3,
              kClockRate = 13, kVirtualMemory = -1, kMemoryClockRate = 14, kMemoryBusWidth = 15, kL2CacheSize = 18,
              kMaxThreadsPerMultiprocessor = 19;
constexpr int kMostSharedMemory = 8;  // of functions of the program only, so it is not asked
constexpr uint64_t kMostItems = UINT32_MAX;  // of all groups of a launch in a row: as HIP, until a card says more

// member, the exported symbol, parameters
#define DRIVER_FUNCTIONS(F)                                                 \
  F(init, mcInit, (unsigned))                                               \
  F(driver_version, mcDriverGetVersion, (int*))                             \
  F(device_count, mcGetDeviceCount, (int*))                                 \
  F(device_name, mcDeviceGetName, (char*, int, DeviceId))                   \
  F(attribute, mcDeviceGetAttribute, (int*, int, DeviceId))                 \
  F(set_current, mcSetDevice, (Context))                                    \
  F(synchronize, mcDeviceSynchronize, ())                                   \
  F(alloc, mcMalloc, (Address*, size_t))                                    \
  F(free, mcFree, (Address))                                                \
  F(mem_info, mcMemGetInfo, (size_t*, size_t*))                             \
  F(host_alloc, mcMallocHost, (void**, size_t, unsigned))                   \
  F(host_free, mcFreeHost, (void*))                                         \
  F(host_register, mcHostRegister, (void*, size_t, unsigned))               \
  F(host_unregister, mcHostUnregister, (void*))                             \
  F(copy_in, mcMemcpyHtoDAsync, (Address, const void*, size_t, Stream))     \
  F(copy_in_now, mcMemcpyHtoD, (Address, const void*, size_t))              \
  F(copy_out, mcMemcpyDtoHAsync, (void*, Address, size_t, Stream))          \
  F(copy_within, mcMemcpyDtoDAsync, (Address, Address, size_t, Stream))     \
  F(set8, mcMemsetAsync, (Address, int, size_t, Stream))                    \
  F(stream_create, mcStreamCreateWithPriority, (Stream*, unsigned, int))    \
  F(stream_destroy, mcStreamDestroy, (Stream))                              \
  F(stream_query, mcStreamQuery, (Stream))                                  \
  F(stream_sync, mcStreamSynchronize, (Stream))                             \
  F(stream_wait, mcStreamWaitEvent, (Stream, Event, unsigned))              \
  F(event_create, mcEventCreateWithFlags, (Event*, unsigned))               \
  F(event_destroy, mcEventDestroy, (Event))                                 \
  F(event_record, mcEventRecord, (Event, Stream))                           \
  F(event_query, mcEventQuery, (Event))                                     \
  F(event_sync, mcEventSynchronize, (Event))                                \
  F(event_elapsed, mcEventElapsedTime, (float*, Event, Event))              \
  F(module_load, mcModuleLoadData, (Module*, const void*))                  \
  F(module_unload, mcModuleUnload, (Module))                                \
  F(module_function, mcModuleGetFunction, (Function*, Module, const char*)) \
  F(launch, mcModuleLaunchKernel,                                           \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**))

// Those that may be missing, and are NULL then.
#define DRIVER_LATER_FUNCTIONS(F)                                                            \
  F(priorities, mcDeviceGetStreamPriorityRange, (int*, int*))                                \
  F(device_uuid, mcDeviceGetUuid, (unsigned char*, DeviceId))                                \
  F(can_access, mcDeviceCanAccessPeer, (int*, DeviceId, DeviceId))                           \
  F(enable_peer, mcDeviceEnablePeerAccess, (Context, unsigned))                              \
  F(bus_id, mcDeviceGetPCIBusId, (char*, int, DeviceId))                                     \
  F(copy_across, mcMemcpyPeerAsync, (Address, Context, Address, Context, size_t, Stream))    \
  F(host_function, mcLaunchHostFunc, (Stream, void (*)(void*), void*))                       \
  F(capture_begin, mcStreamBeginCapture, (Stream, int))                                      \
  F(capture_end, mcStreamEndCapture, (Stream, Graph*))                                       \
  F(graph_instantiate, mcGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long)) \
  F(graph_launch, mcGraphLaunch, (GraphExec, Stream))                                        \
  F(graph_destroy, mcGraphDestroy, (Graph))                                                  \
  F(exec_destroy, mcGraphExecDestroy, (GraphExec))

// Words of a result, which MACA gives back instead of writing them.
#define DRIVER_WORDS(F)         \
  F(error_name, mcGetErrorName) \
  F(error_text, mcGetErrorString)

// Members that no program shows a function for: kin_maca.cpp makes the first three, the others stay NULL.
#define DRIVER_OTHER_FUNCTIONS(F)                                                              \
  F(device_get, mcGetDeviceCount, (DeviceId*, int))                                            \
  F(device_memory, mcMemGetInfo, (size_t*, DeviceId))                                          \
  F(retain, mcSetDevice, (Context*, DeviceId))                                                 \
  F(function_set, none, (Function, int, int))                                                  \
  F(parameter_info, none, (Function, size_t, size_t*, size_t*))                                \
  F(reserve, none, (Address*, size_t, size_t, Address, unsigned long long))                    \
  F(address_free, none, (Address, size_t))                                                     \
  F(memory_create, none, (MemoryHandle*, size_t, const MemoryProperties*, unsigned long long)) \
  F(memory_release, none, (MemoryHandle))                                                      \
  F(map, none, (Address, size_t, size_t, MemoryHandle, unsigned long long))                    \
  F(unmap, none, (Address, size_t))                                                            \
  F(set_access, none, (Address, size_t, const MemoryAccess*, size_t))                          \
  F(granularity, none, (size_t*, const MemoryProperties*, int))

#define COMPILER_FUNCTIONS(F)                                                                  \
  F(version, mcrtcVersion, (int*, int*))                                                       \
  F(create, mcrtcCreateProgram,                                                                \
    (CompilerProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  F(compile, mcrtcCompileProgram, (CompilerProgram, int, const char* const*))                  \
  F(destroy, mcrtcDestroyProgram, (CompilerProgram*))                                          \
  F(log_size, mcrtcGetProgramLogSize, (CompilerProgram, size_t*))                              \
  F(log, mcrtcGetProgramLog, (CompilerProgram, char*))                                         \
  F(code_size, mcrtcGetBitcodeSize, (CompilerProgram, size_t*))                                \
  F(code, mcrtcGetBitcode, (CompilerProgram, char*))
#define COMPILER_ERROR_TEXT mcrtcGetErrorString

}  // namespace cuda
