// The functions of AscendCL (libascendcl.so) and of aclnn's plumbing (libnnopbase.so, libopapi.so) that are used, declared
// here from their public documentation: no header of CANN is needed to build, and no library of CANN's to load. All are
// opened when the first device is asked for. `make ascend-headers` compares with the headers that torch_npu's wheel has.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ascend {

using Status = int;  // aclError and aclnnStatus
using Stream = void*;
using Event = void*;
struct AclTensor;
struct AclScalar;
struct AclIntArray;
struct AclBoolArray;
struct AclFloatArray;
struct AclTensorList;
struct AclScalarList;
struct AclExecutor;

// aclError
constexpr Status kSuccess = 0, kInvalidParameter = 100000, kRepeatInitialize = 100002, kBadAllocation = 200000,
                 kInvalidDevice = 200002, kFeatureUnsupported = 200006, kStorageOverLimit = 300000;
constexpr Status kRuntimeInvalidParameter = 107000, kRuntimeInvalidDevice = 107001, kRuntimeInvalidHandle = 107017,
                 kRuntimeUnsupported = 207000, kRuntimeAllocation = 207001, kRuntimeNoDevice = 207004,
                 kRuntimeNoPermission = 207006, kRuntimeDeviceMemory = 207018, kRuntimeLostHeartbeat = 507010,
                 kRuntimeCoreTimeout = 507014, kRuntimeCoreTrap = 507016, kRuntimeCpuTimeout = 507017,
                 kRuntimeCpuException = 507018, kRuntimeVectorTimeout = 507034, kRuntimeVectorTrap = 507036,
                 kRuntimeTrapRead = 507042, kRuntimeVectorTrapWrite = 507045, kRuntimeMemoryError = 507053,
                 kRuntimeEccError = 507054;
// aclDataType
constexpr int kFloat = 0, kFloat16 = 1, kInt8 = 2, kInt32 = 3, kUint8 = 4, kInt16 = 6, kUint16 = 7, kUint32 = 8,
              kInt64 = 9, kUint64 = 10, kDouble = 11, kBool = 12, kComplex64 = 16, kComplex128 = 17, kBfloat16 = 27,
              kComplex32 = 33, kFloat8E5m2 = 35, kFloat8E4m3 = 36, kFloat8E8m0 = 37, kUndefinedType = -1;
// aclFormat
constexpr int kFormatNchw = 0, kFormatNd = 2, kFormatNz = 29, kFormatNcdhw = 30, kFormatNcl = 47;
// aclrtMemcpyKind, aclrtMemMallocPolicy, aclrtMemAttr
constexpr int kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kHugeFirst = 0, kMemoryDdr = 0, kMemoryHbm = 1;
// Flags of streams and of events; what a stream and an event say
constexpr uint32_t kStreamFastLaunch = 1, kStreamFastSync = 2, kEventSync = 1, kEventTimeLine = 8;
constexpr int kStreamComplete = 0, kEventComplete = 1;
constexpr int kCaptureRelaxed = 2;  // aclmdlRICaptureMode
// aclrtDevAttr, aclSysParamOpt, aclCANNPackageName
constexpr int kCubeCores = 102, kVectorCores = 201, kWarp = 202, kLocalMemory = 204, kGroupLimit = 209,
              kCacheBytes = 302, kArchitecture = 601, kDeterministic = 0, kPackageCann = 0;
// aclCANNPackageVersion
struct PackageVersion {
  char version[128];
  char parts[4][64];
  char reserved[128];
};

// aclrtBinaryLoadOption(s): what kind of cores a binary is for
struct BinaryOption {
  int type;
  uint32_t value[4];
};
struct BinaryOptions {
  const BinaryOption* options;
  size_t count;
};
constexpr int kSaturates = 0, kInfinities = 1;  // aclrtFloatOverflowMode
constexpr int kBinaryMagic = 2;
constexpr uint32_t kMagicVectorCore = 0x41415246;
// dim3
struct Sides {
  uint32_t x, y, z;
};

// member, the exported symbol, parameters
#define ACL_FUNCTIONS(F)                                                             \
  F(init, aclInit, (const char*))                                                    \
  F(device_count, aclrtGetDeviceCount, (uint32_t*))                                  \
  F(set_device, aclrtSetDevice, (int32_t))                                           \
  F(synchronize, aclrtSynchronizeDevice, ())                                         \
  F(mem_info, aclrtGetMemInfo, (int, size_t*, size_t*))                              \
  F(alloc, aclrtMalloc, (void**, size_t, int))                                       \
  F(free, aclrtFree, (void*))                                                        \
  F(host_alloc, aclrtMallocHost, (void**, size_t))                                   \
  F(host_free, aclrtFreeHost, (void*))                                               \
  F(copy, aclrtMemcpy, (void*, size_t, const void*, size_t, int))                    \
  F(copy_async, aclrtMemcpyAsync, (void*, size_t, const void*, size_t, int, Stream)) \
  F(set_async, aclrtMemsetAsync, (void*, size_t, int32_t, size_t, Stream))           \
  F(stream_create, aclrtCreateStream, (Stream*))                                     \
  F(stream_destroy, aclrtDestroyStream, (Stream))                                    \
  F(stream_sync, aclrtSynchronizeStream, (Stream))                                   \
  F(stream_wait, aclrtStreamWaitEvent, (Stream, Event))                              \
  F(event_destroy, aclrtDestroyEvent, (Event))                                       \
  F(event_record, aclrtRecordEvent, (Event, Stream))                                 \
  F(event_sync, aclrtSynchronizeEvent, (Event))                                      \
  F(event_elapsed, aclrtEventElapsedTime, (float*, Event, Event))                    \
  F(event_create, aclrtCreateEventExWithFlag, (Event*, uint32_t))                    \
  F(event_status, aclrtQueryEventStatus, (Event, int*))                              \
  F(stream_status, aclrtStreamQuery, (Stream, int*))

// Those that may be missing in an older CANN, and are NULL then.
#define ACL_LATER_FUNCTIONS(F)                                                                 \
  F(runtime_version, aclrtGetVersion, (int32_t*, int32_t*, int32_t*))                          \
  F(stream_create_with, aclrtCreateStreamWithConfig, (Stream*, uint32_t, uint32_t))            \
  F(device_uuid, aclrtDeviceGetUuid, (int32_t, void*))                                         \
  F(device_attribute, aclrtGetDeviceInfo, (uint32_t, int, int64_t*))                           \
  F(can_access, aclrtDeviceCanAccessPeer, (int32_t*, int32_t, int32_t))                        \
  F(enable_peer, aclrtDeviceEnablePeerAccess, (int32_t, uint32_t))                             \
  F(host_function, aclrtLaunchHostFunc, (Stream, void (*)(void*), void*))                      \
  F(stream_abort, aclrtStreamAbort, (Stream))                                                  \
  F(capture_begin, aclmdlRICaptureBegin, (Stream, int))                                        \
  F(capture_end, aclmdlRICaptureEnd, (Stream, void**))                                         \
  F(graph_execute, aclmdlRIExecuteAsync, (void*, Stream))                                      \
  F(graph_destroy, aclmdlRIDestroy, (void*))                                                   \
  F(ipc_export, aclrtIpcMemGetExportKey, (void*, size_t, char*, size_t, uint64_t))             \
  F(ipc_import, aclrtIpcMemImportByKey, (void**, const char*, uint64_t))                       \
  F(ipc_close, aclrtIpcMemClose, (const char*))                                                \
  F(set_option, aclrtSetSysParamOpt, (int, int64_t))                                           \
  F(set_saturation, aclrtSetDeviceSatMode, (int))                                              \
  F(cann_version, aclsysGetCANNVersion, (int, PackageVersion*))                                \
  F(binary_load, aclrtBinaryLoadFromData, (const void*, size_t, const BinaryOptions*, void**)) \
  F(binary_unload, aclrtBinaryUnLoad, (void*))                                                 \
  F(binary_function, aclrtBinaryGetFunction, (void*, const char*, void**))                     \
  F(parameter_count, aclrtFunctionGetParamCount, (const void*, size_t*))

// The same, of CANN's public sources and newer than the headers of torch_npu's wheel, which says nothing of them.
#define ACL_NEWEST_FUNCTIONS(F) \
  F(launch_simt, aclrtLaunchSIMTKernelWithArgsArray, (void*, Sides, Sides, size_t, Stream, const void*, void**))

struct Acl {
#define MEMBER(name, symbol, parameters) Status(*name) parameters = nullptr;
  ACL_FUNCTIONS(MEMBER)
  ACL_LATER_FUNCTIONS(MEMBER)
  ACL_NEWEST_FUNCTIONS(MEMBER)
#undef MEMBER
  const char* (*words)() = nullptr;  // aclGetRecentErrMsg: of this thread's last failure, NULL for none
  const char* (*soc_name)() = nullptr;  // aclrtGetSocName
};

extern Acl acl;  // filled by `open_acl`

// Empty when the runtime is open, else why it is not and what to do. Once a process.
const char* open_acl();

#define ACLNN_CREATES(F)                                                                            \
  F(tensor, AclTensor*, aclCreateTensor,                                                            \
    (const int64_t*, uint64_t, int, const int64_t*, int64_t, int, const int64_t*, uint64_t, void*)) \
  F(scalar, AclScalar*, aclCreateScalar, (void*, int))                                              \
  F(int_array, AclIntArray*, aclCreateIntArray, (const int64_t*, uint64_t))                         \
  F(bool_array, AclBoolArray*, aclCreateBoolArray, (const bool*, uint64_t))                         \
  F(float_array, AclFloatArray*, aclCreateFloatArray, (const float*, uint64_t))                     \
  F(tensor_list, AclTensorList*, aclCreateTensorList, (const AclTensor* const*, uint64_t))          \
  F(scalar_list, AclScalarList*, aclCreateScalarList, (const AclScalar* const*, uint64_t))          \
  F(destroy_tensor, Status, aclDestroyTensor, (const AclTensor*))                                   \
  F(destroy_scalar, Status, aclDestroyScalar, (const AclScalar*))                                   \
  F(destroy_int_array, Status, aclDestroyIntArray, (const AclIntArray*))                            \
  F(destroy_bool_array, Status, aclDestroyBoolArray, (const AclBoolArray*))                         \
  F(destroy_float_array, Status, aclDestroyFloatArray, (const AclFloatArray*))                      \
  F(destroy_tensor_list, Status, aclDestroyTensorList, (const AclTensorList*))                      \
  F(destroy_scalar_list, Status, aclDestroyScalarList, (const AclScalarList*))

// Of executors that are kept; NULL in a CANN that lacks them, and then none is.
#define ACLNN_LATER(G)                                                                       \
  G(set_repeatable, Status, aclSetAclOpExecutorRepeatable, (AclExecutor*))                   \
  G(set_tensor_address, Status, aclSetTensorAddr, (AclExecutor*, size_t, AclTensor*, void*)) \
  G(destroy_executor, Status, aclDestroyAclOpExecutor, (AclExecutor*))

struct Aclnn {
#define MEMBER(name, result, symbol, parameters) result(*name) parameters = nullptr;
  ACLNN_CREATES(MEMBER)
  ACLNN_LATER(MEMBER)
#undef MEMBER
};

extern Aclnn aclnn;  // filled by `open_aclnn`
const char* open_aclnn();

// The compiler, libacl_rtc.so, of CANN's public documentation.
#define RTC_FUNCTIONS(F)                                                                           \
  F(create, aclrtcCreateProg, (void**, const char*, const char*, int, const char**, const char**)) \
  F(compile, aclrtcCompileProg, (void*, int, const char**))                                        \
  F(binary_size, aclrtcGetBinDataSize, (void*, size_t*))                                           \
  F(binary, aclrtcGetBinData, (void*, char*))                                                      \
  F(log_size, aclrtcGetCompileLogSize, (void*, size_t*))                                           \
  F(log, aclrtcGetCompileLog, (void*, char*))                                                      \
  F(destroy, aclrtcDestroyProg, (void**))

struct Rtc {
#define MEMBER(name, symbol, parameters) Status(*name) parameters = nullptr;
  RTC_FUNCTIONS(MEMBER)
#undef MEMBER
  std::string file;
};

extern Rtc rtc;  // filled by `open_rtc`
const char* open_rtc();

// An operator's function, wherever it is: libopapi.so or, since CANN 8.5, one of the libraries that it is split into.
void* find_aclnn(const std::string& symbol);

// One of CANN's libraries, wherever they are; NULL, and words. Global: they look for each other's symbols.
void* open_library(const char* file, std::string* path, std::string* words, int scope = RTLD_GLOBAL);
void* find_in(void* library, const char* symbol);

std::string cann_version();  // "8.5.0", or empty: not known
std::string places_of_libraries();  // the files that are open, for people

}  // namespace ascend
