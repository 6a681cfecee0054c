// Compiled against AscendCL's headers where they are (`make ascend-headers`): every function that the vendor declares from
// documentation has the parameters of the real one, and every number is the header's. PLANTED: one of each that is wrong.
#include <acl/acl.h>
#include <acl/acl_rt.h>
#include <third_party/hccl/inc/hccl/hccl.h>

#include <type_traits>

#include "acl.hpp"
#include "causeway/abi.h"
#include "hccl.hpp"
#include "mspti.hpp"

#if __has_include(<mspti/mspti.h>)  // of an installed CANN: torch_npu's wheel has none
#include <mspti/mspti.h>
#endif

namespace {

// Passed alike in C: pointers (AscendCL's handles are void*), or numbers of one kind and size.
template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>)
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  else
    return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
           (std::is_integral_v<A> || std::is_enum_v<A>) && (std::is_integral_v<B> || std::is_enum_v<B>);
}

// What a pointer points to matters where it is a number that the other side writes or reads: size_t is no int.
template <class A, class B>
constexpr bool same_number() {
  using C = std::remove_cv_t<std::remove_pointer_t<A>>;
  using D = std::remove_cv_t<std::remove_pointer_t<B>>;
  constexpr bool number =
      (std::is_arithmetic_v<C> || std::is_enum_v<C>) && (std::is_arithmetic_v<D> || std::is_enum_v<D>);
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B> && number)
    return sizeof(C) == sizeof(D) && std::is_floating_point_v<C> == std::is_floating_point_v<D>;
  else
    return true;
}

template <class F, class G>
struct Fits : std::false_type {};
template <class R, class... A, class S, class... B>
struct Fits<R(A...), S(B...)> {
  static constexpr bool check() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return (alike<A, B>() && ...) && (same_number<A, B>() && ...) && alike<R, S>();
    else
      return false;
  }
  static constexpr bool value = check();
};
template <class F, class G>
constexpr bool fits = Fits<std::remove_pointer_t<F>, std::remove_pointer_t<G>>::value;

#define CHECK(name, symbol, parameters) \
  static_assert(fits<decltype(ascend::Acl::name), decltype(&::symbol)>, #symbol " has other parameters");
ACL_FUNCTIONS(CHECK)
ACL_LATER_FUNCTIONS(CHECK)
CHECK(words, aclGetRecentErrMsg, ())
CHECK(soc_name, aclrtGetSocName, ())

#undef CHECK

#define CHECK(name, symbol, parameters) \
  static_assert(fits<decltype(ascend::Hccl::name), decltype(&::symbol)>, #symbol " has other parameters");
HCCL_FUNCTIONS(CHECK)
CHECK(words, HcclGetErrorString, (int))

#define SAME(ours, theirs) \
  static_assert(static_cast<long long>(ascend::ours) == static_cast<long long>(theirs), #theirs)
SAME(kSuccess, ACL_SUCCESS);
SAME(kBinaryMagic, ACL_RT_BINARY_LOAD_OPT_LAZY_MAGIC);
SAME(kMagicVectorCore, ACL_RT_BINARY_MAGIC_ELF_VECTOR_CORE);
static_assert(sizeof(ascend::BinaryOption) == sizeof(aclrtBinaryLoadOption), "aclrtBinaryLoadOption");
static_assert(sizeof(ascend::BinaryOptions) == sizeof(aclrtBinaryLoadOptions), "aclrtBinaryLoadOptions");
SAME(kInvalidParameter, ACL_ERROR_INVALID_PARAM);
SAME(kRepeatInitialize, ACL_ERROR_REPEAT_INITIALIZE);
SAME(kBadAllocation, ACL_ERROR_BAD_ALLOC);
SAME(kInvalidDevice, ACL_ERROR_INVALID_DEVICE);
SAME(kFeatureUnsupported, ACL_ERROR_FEATURE_UNSUPPORTED);
SAME(kStorageOverLimit, ACL_ERROR_STORAGE_OVER_LIMIT);
SAME(kRuntimeInvalidParameter, ACL_ERROR_RT_PARAM_INVALID);
SAME(kRuntimeInvalidDevice, ACL_ERROR_RT_INVALID_DEVICEID);
SAME(kRuntimeInvalidHandle, ACL_ERROR_RT_INVALID_HANDLE);
SAME(kRuntimeUnsupported, ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
SAME(kRuntimeAllocation, ACL_ERROR_RT_MEMORY_ALLOCATION);
SAME(kRuntimeNoDevice, ACL_ERROR_RT_NO_DEVICE);
SAME(kRuntimeNoPermission, ACL_ERROR_RT_NO_PERMISSION);
SAME(kRuntimeDeviceMemory, ACL_ERROR_RT_DEVICE_OOM);
SAME(kRuntimeLostHeartbeat, ACL_ERROR_RT_LOST_HEARTBEAT);
SAME(kRuntimeCoreTimeout, ACL_ERROR_RT_AICORE_TIMEOUT);
SAME(kRuntimeCoreTrap, ACL_ERROR_RT_AICORE_TRAP_EXCEPTION);
SAME(kRuntimeCpuTimeout, ACL_ERROR_RT_AICPU_TIMEOUT);
SAME(kRuntimeCpuException, ACL_ERROR_RT_AICPU_EXCEPTION);
SAME(kRuntimeVectorTimeout, ACL_ERROR_RT_VECTOR_CORE_TIMEOUT);
SAME(kRuntimeVectorTrap, ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION);
SAME(kRuntimeTrapRead, ACL_ERROR_RT_AICORE_TRAP_READ_OVERFLOW);
SAME(kRuntimeVectorTrapWrite, ACL_ERROR_RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW);
SAME(kRuntimeMemoryError, ACL_ERROR_RT_DEVICE_MEM_ERROR);
SAME(kRuntimeEccError, ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR);
SAME(kFloat, ACL_FLOAT);
SAME(kFloat16, ACL_FLOAT16);
SAME(kInt8, ACL_INT8);
SAME(kInt32, ACL_INT32);
SAME(kUint8, ACL_UINT8);
SAME(kInt16, ACL_INT16);
SAME(kUint16, ACL_UINT16);
SAME(kUint32, ACL_UINT32);
SAME(kInt64, ACL_INT64);
SAME(kUint64, ACL_UINT64);
SAME(kDouble, ACL_DOUBLE);
SAME(kBool, ACL_BOOL);
SAME(kComplex64, ACL_COMPLEX64);
SAME(kComplex128, ACL_COMPLEX128);
SAME(kBfloat16, ACL_BF16);
SAME(kComplex32, ACL_COMPLEX32);
SAME(kFloat8E5m2, ACL_FLOAT8_E5M2);
SAME(kFloat8E4m3, ACL_FLOAT8_E4M3FN);
SAME(kFloat8E8m0, ACL_FLOAT8_E8M0);
SAME(kUndefinedType, ACL_DT_UNDEFINED);
SAME(kFormatNchw, ACL_FORMAT_NCHW);
SAME(kFormatNd, ACL_FORMAT_ND);
SAME(kFormatNz, ACL_FORMAT_FRACTAL_NZ);
SAME(kFormatNcdhw, ACL_FORMAT_NCDHW);
SAME(kFormatNcl, ACL_FORMAT_NCL);
SAME(kHostToDevice, ACL_MEMCPY_HOST_TO_DEVICE);
SAME(kDeviceToHost, ACL_MEMCPY_DEVICE_TO_HOST);
SAME(kDeviceToDevice, ACL_MEMCPY_DEVICE_TO_DEVICE);
SAME(kHugeFirst, ACL_MEM_MALLOC_HUGE_FIRST);
SAME(kMemoryDdr, ACL_DDR_MEM);
SAME(kMemoryHbm, ACL_HBM_MEM);
SAME(kStreamFastLaunch, ACL_STREAM_FAST_LAUNCH);
SAME(kStreamFastSync, ACL_STREAM_FAST_SYNC);
SAME(kEventSync, ACL_EVENT_SYNC);
SAME(kEventTimeLine, ACL_EVENT_TIME_LINE);
SAME(kStreamComplete, ACL_STREAM_STATUS_COMPLETE);
SAME(kEventComplete, ACL_EVENT_RECORDED_STATUS_COMPLETE);
SAME(kCubeCores, ACL_DEV_ATTR_CUBE_CORE_NUM);
SAME(kVectorCores, ACL_DEV_ATTR_VECTOR_CORE_NUM);
SAME(kWarp, ACL_DEV_ATTR_WARP_SIZE);
SAME(kLocalMemory, ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE);
SAME(kGroupLimit, ACL_DEV_ATTR_MAX_THREADS_PER_BLOCK);
SAME(kCacheBytes, ACL_DEV_ATTR_L2_CACHE_SIZE);
SAME(kArchitecture, ACL_DEV_ATTR_NPU_ARCH);
SAME(kDeterministic, ACL_OPT_DETERMINISTIC);
SAME(kPackageCann, ACL_PKG_NAME_CANN);
SAME(kCaptureRelaxed, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
SAME(kHcclParameter, HCCL_E_PARA);
SAME(kHcclPointer, HCCL_E_PTR);
SAME(kHcclMemory, HCCL_E_MEMORY);
SAME(kHcclUnsupported, HCCL_E_NOT_SUPPORT);
static_assert(sizeof(ascend::HcclRoot) == sizeof(HcclRootInfo), "HcclRootInfo");
static_assert(sizeof(ascend::HcclItem) == sizeof(HcclSendRecvItem), "HcclSendRecvItem");
static_assert(sizeof(ascend::PackageVersion) == sizeof(aclCANNPackageVersion), "aclCANNPackageVersion");
static_assert(sizeof(aclrtUuid) == 16, "aclrtUuid");

#if __has_include(<mspti/mspti.h>)
#undef CHECK
#define CHECK(name, symbol, parameters) \
  static_assert(fits<decltype(ascend::Mspti::name), decltype(&::symbol)>, #symbol " has other parameters");
MSPTI_FUNCTIONS(CHECK)
SAME(kMsptiTwoSubscribers, MSPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME(kMsptiEnd, MSPTI_ERROR_MAX_LIMIT_REACHED);
SAME(kMsptiKernel, MSPTI_ACTIVITY_KIND_KERNEL);
SAME(kMsptiExternal, MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
SAME(kMsptiAclCalls, MSPTI_ACTIVITY_KIND_ACL_API);
SAME(kMsptiCustom, MSPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
#define PLACED(ours, our, theirs, their) \
  static_assert(offsetof(ascend::ours, our) == offsetof(theirs, their), #theirs "." #their)
static_assert(sizeof(ascend::MsptiKernelRecord) == sizeof(msptiActivityKernel), "msptiActivityKernel");
PLACED(MsptiKernelRecord, begin_ns, msptiActivityKernel, start);
PLACED(MsptiKernelRecord, end_ns, msptiActivityKernel, end);
PLACED(MsptiKernelRecord, device, msptiActivityKernel, ds);
PLACED(MsptiKernelRecord, correlation, msptiActivityKernel, correlationId);
PLACED(MsptiKernelRecord, name, msptiActivityKernel, name);
static_assert(sizeof(ascend::MsptiExternalRecord) == sizeof(msptiActivityExternalCorrelation),
              "msptiActivityExternalCorrelation");
PLACED(MsptiExternalRecord, external_kind, msptiActivityExternalCorrelation, externalKind);
PLACED(MsptiExternalRecord, external, msptiActivityExternalCorrelation, externalId);
PLACED(MsptiExternalRecord, correlation, msptiActivityExternalCorrelation, correlationId);
#endif

#ifdef PLANTED_NUMBER
SAME(kInt8, ACL_INT16);
#endif
#ifdef PLANTED_PARAMETER
static_assert(fits<ascend::Status (*)(void**, int, int), decltype(&::aclrtMalloc)>, "aclrtMalloc has other parameters");
#endif

}  // namespace
