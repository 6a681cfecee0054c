// Compiled against HIP's headers and hipBLAS's where they are (`make hip`, `make hip-headers`): every function that the
// vendor declares from documentation has the parameters of the real one, and every number is the header's.
#define __HIP_DISABLE_CPP_FUNCTIONS__  // the functions of C alone, not the overloads of C++ beside them
#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>
#if __has_include(<hip/hiprtc.h>)
#include <hip/hiprtc.h>
#define HAS_HIPRTC
#endif
#if __has_include(<hipblas/hipblas.h>)
#include <hipblas/hipblas.h>
#define HAS_HIPBLAS
#endif

#include <cstddef>

#include "../cuda/fits.hpp"
#include "blas.hpp"
#include "driver.hpp"

namespace {

#define CHECK(table, name, symbol) \
  static_assert(fits<decltype(cuda::table::name), decltype(&::symbol)>, #symbol " has other parameters");
#define DRIVER(name, symbol, parameters) CHECK(Driver, name, symbol)
#define WORDS(name, symbol) CHECK(Driver, name, symbol)
#define COMPILER(name, symbol, parameters) CHECK(Compiler, name, symbol)
#define BLAS(name, symbol, parameters) CHECK(Blas, name, symbol)
#if HIP_VERSION_MAJOR < 6
#define hipGetDevicePropertiesR0600 hipGetDeviceProperties  // which came then
#endif
DRIVER_FUNCTIONS(DRIVER)
DRIVER_LATER_FUNCTIONS(DRIVER)
DRIVER_WORDS(WORDS)
#ifdef HAS_HIPRTC
COMPILER_FUNCTIONS(COMPILER)
CHECK(Compiler, error_text, COMPILER_ERROR_TEXT)
#endif

#define SAME(ours, theirs) static_assert(static_cast<long long>(cuda::ours) == static_cast<long long>(theirs), #theirs)
SAME(kSuccess, hipSuccess);
SAME(kInvalidValue, hipErrorInvalidValue);
SAME(kOutOfMemory, hipErrorOutOfMemory);
SAME(kDeinitialized, hipErrorDeinitialized);
SAME(kNoDevice, hipErrorNoDevice);
SAME(kInvalidImage, hipErrorInvalidImage);
SAME(kInvalidPtx, hipErrorInvalidKernelFile);
SAME(kInvalidContext, hipErrorInvalidContext);
SAME(kNoBinary, hipErrorNoBinaryForGpu);
SAME(kEccError, hipErrorECCNotCorrectable);
SAME(kInvalidHandle, hipErrorInvalidHandle);
SAME(kIllegalState, hipErrorIllegalState);
SAME(kNotFound, hipErrorNotFound);
SAME(kNotReady, hipErrorNotReady);
SAME(kIllegalAddress, hipErrorIllegalAddress);
SAME(kLaunchOutOfResources, hipErrorLaunchOutOfResources);
SAME(kLaunchTimeout, hipErrorLaunchTimeOut);
SAME(kPeerAlreadyEnabled, hipErrorPeerAccessAlreadyEnabled);
SAME(kContextDestroyed, hipErrorContextIsDestroyed);
SAME(kAssertFailed, hipErrorAssert);
SAME(kLaunchFailed, hipErrorLaunchFailure);
SAME(kMaxThreadsPerBlock, hipDeviceAttributeMaxThreadsPerBlock);
SAME(kSharedMemoryPerBlock, hipDeviceAttributeMaxSharedMemoryPerBlock);
SAME(kWarpSize, hipDeviceAttributeWarpSize);
SAME(kMultiprocessors, hipDeviceAttributeMultiprocessorCount);
SAME(kCapabilityMajor, hipDeviceAttributeComputeCapabilityMajor);
SAME(kCapabilityMinor, hipDeviceAttributeComputeCapabilityMinor);
SAME(kMaxBlockDimX, hipDeviceAttributeMaxBlockDimX);
SAME(kMaxBlockDimY, hipDeviceAttributeMaxBlockDimY);
SAME(kMaxBlockDimZ, hipDeviceAttributeMaxBlockDimZ);
SAME(kClockRate, hipDeviceAttributeClockRate);
SAME(kMemoryClockRate, hipDeviceAttributeMemoryClockRate);
SAME(kMemoryBusWidth, hipDeviceAttributeMemoryBusWidth);
SAME(kL2CacheSize, hipDeviceAttributeL2CacheSize);
SAME(kMaxThreadsPerMultiprocessor, hipDeviceAttributeMaxThreadsPerMultiProcessor);
SAME(kStreamNonBlocking, hipStreamNonBlocking);
SAME(kEventDisableTiming, hipEventDisableTiming);
SAME(kHostPortable, hipHostMallocPortable);
SAME(kHostPortable, hipHostRegisterPortable);
SAME(kCaptureRelaxed, hipStreamCaptureModeRelaxed);
#if HIP_VERSION_MAJOR < 6
SAME(kNameInProperties5, offsetof(hipDeviceProp_t, gcnArchName));
// It has virtual memory in another layout, and no attribute that tells of it: what is asked is of no attribute.
static_assert(cuda::kVirtualMemory > hipDeviceAttributeMemoryPoolsSupported &&
              cuda::kVirtualMemory < hipDeviceAttributeCudaCompatibleEnd);
#else
SAME(kNameInProperties6, offsetof(hipDeviceProp_t, gcnArchName));
SAME(kVirtualMemory, hipDeviceAttributeVirtualMemoryManagementSupported);
static_assert(sizeof(cuda::MemoryProperties) == sizeof(hipMemAllocationProp) &&
              offsetof(cuda::MemoryProperties, location) == offsetof(hipMemAllocationProp, location) &&
              offsetof(cuda::MemoryProperties, windows) == offsetof(hipMemAllocationProp, win32HandleMetaData));
#endif
static_assert(sizeof(hipDeviceProp_t) <= cuda::kPropertiesBytes);
static_assert(sizeof(cuda::MemoryAccess) == sizeof(hipMemAccessDesc) && hipMemAllocationTypePinned == 1 &&
              hipMemLocationTypeDevice == 1 && hipMemAccessFlagsProtReadWrite == 3);

#ifdef HAS_HIPBLAS
BLAS_FUNCTIONS(BLAS)
BLAS_PRODUCTS(BLAS)
CHECK(Blas, status_text, BLAS_STATUS_TEXT)
SAME(blas::kSuccess, HIPBLAS_STATUS_SUCCESS);
SAME(blas::kAllocFailed, HIPBLAS_STATUS_ALLOC_FAILED);
SAME(blas::kInvalidValue, HIPBLAS_STATUS_INVALID_VALUE);
SAME(blas::kArchMismatch, HIPBLAS_STATUS_ARCH_MISMATCH);
SAME(blas::kNotSupported, HIPBLAS_STATUS_NOT_SUPPORTED);
SAME(blas::kAsIs, HIPBLAS_OP_N);
SAME(blas::kTransposed, HIPBLAS_OP_T);
SAME(blas::kDefaultAlgorithm, HIPBLAS_GEMM_DEFAULT);
SAME(blas::kTypes.float32, HIPBLAS_R_32F);
SAME(blas::kTypes.float64, HIPBLAS_R_64F);
SAME(blas::kTypes.float16, HIPBLAS_R_16F);
SAME(blas::kTypes.bfloat16, HIPBLAS_R_16B);
SAME(blas::kTypes.int8, HIPBLAS_R_8I);
SAME(blas::kTypes.int32, HIPBLAS_R_32I);
SAME(blas::kTypes.complex64, HIPBLAS_C_32F);
SAME(blas::kTypes.complex128, HIPBLAS_C_64F);
SAME(blas::kTypes.in_float32, HIPBLAS_R_32F);
SAME(blas::kTypes.in_float64, HIPBLAS_R_64F);
SAME(blas::kTypes.in_int32, HIPBLAS_R_32I);
SAME(blas::kTypes.in_complex64, HIPBLAS_C_32F);
SAME(blas::kTypes.in_complex128, HIPBLAS_C_64F);
#endif
// hipDataType, by which hipBLAS calls types from ROCm 6 on.
SAME(blas::kNewerTypes.float32, HIP_R_32F);
SAME(blas::kNewerTypes.float64, HIP_R_64F);
SAME(blas::kNewerTypes.float16, HIP_R_16F);
SAME(blas::kNewerTypes.complex64, HIP_C_32F);
SAME(blas::kNewerTypes.complex128, HIP_C_64F);
#if HIP_VERSION_MAJOR >= 6
SAME(blas::kNewerTypes.bfloat16, HIP_R_16BF);
SAME(blas::kNewerTypes.int8, HIP_R_8I);
SAME(blas::kNewerTypes.int32, HIP_R_32I);
#endif

}  // namespace
