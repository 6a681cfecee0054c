// Compiled against NVIDIA's headers where they are (`make nvidia`): every function that the vendor declares from
// documentation has the parameters of the real one, and every number is the header's.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <cudnn.h>
#include <nvrtc.h>

#include "blas.hpp"
#include "dnn.hpp"
#include "driver.hpp"
#include "fits.hpp"

namespace {

#define CHECK(table, name, symbol) \
  static_assert(fits<decltype(cuda::table::name), decltype(&::symbol)>, #symbol " has other parameters");
#define DRIVER(name, symbol, parameters) CHECK(Driver, name, symbol)
#define NVRTC(name, symbol, parameters) CHECK(Compiler, name, symbol)
#define BLAS(name, symbol, parameters) CHECK(Blas, name, symbol)
#define DNN(name, symbol, parameters) CHECK(Dnn, name, symbol)
DRIVER_FUNCTIONS(DRIVER)
DRIVER_LATER_FUNCTIONS(DRIVER)
COMPILER_FUNCTIONS(NVRTC)
BLAS_FUNCTIONS(BLAS)
DNN_FUNCTIONS(DNN)
BLASLT_FUNCTIONS(BLAS)
DNN_GRAPHS(DNN)
// cublas_api.h overloads these two for the types that CUDA 10 had; the library exports the newer ones.
using Gemm = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                            const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                            cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
using GemmBatched = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                   const void*, cudaDataType, int, long long, const void*, cudaDataType, int, long long,
                                   const void*, void*, cudaDataType, int, long long, int, cublasComputeType_t,
                                   cublasGemmAlgo_t);
[[maybe_unused]] Gemm* const gemm = &cublasGemmEx;
[[maybe_unused]] GemmBatched* const gemm_batched = &cublasGemmStridedBatchedEx;
static_assert(fits<decltype(cuda::Blas::gemm), Gemm*> && fits<decltype(cuda::Blas::gemm_batched), GemmBatched*>);
BLAS_LATER_FUNCTIONS(BLAS)
CHECK(Blas, status_text, cublasGetStatusString)
CHECK(Dnn, version, cudnnGetVersion)
CHECK(Dnn, error_text, cudnnGetErrorString)

#define SAME(ours, theirs) static_assert(static_cast<long long>(cuda::ours) == static_cast<long long>(theirs), #theirs)
SAME(kSuccess, CUDA_SUCCESS);
SAME(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME(kNoDevice, CUDA_ERROR_NO_DEVICE);
SAME(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SAME(kNotFound, CUDA_ERROR_NOT_FOUND);
SAME(kNotReady, CUDA_ERROR_NOT_READY);
SAME(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME(kMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(kSharedMemoryPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
SAME(kWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
SAME(kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(kCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(kCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME(kHostPortable, CU_MEMHOSTALLOC_PORTABLE);
SAME(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(kMostSharedMemory, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(blas::kLtTransA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(blas::kLtTransB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(blas::kLtEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(blas::kLtBias, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(blas::kLtBiasType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(blas::kLtAddsBias, CUBLASLT_EPILOGUE_BIAS);
SAME(blas::kLtWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(blas::kLtReduction, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(blas::kLtAlignA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(blas::kLtAlignB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(blas::kLtAlignC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(blas::kLtAlignD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(blas::kLtInWideType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(dnn::kConvolutionIs, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
SAME(dnn::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(dnn::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(dnn::kHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(dnn::kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(dnn::kForwardIs, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
SAME(dnn::kFilterGradient, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
SAME(dnn::kImageGradient, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
SAME(dnn::kOperations, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(dnn::kPointers, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(dnn::kTensorIs, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(dnn::kHandleType, CUDNN_TYPE_HANDLE);
SAME(dnn::kDataType, CUDNN_TYPE_DATA_TYPE);
SAME(dnn::kInt64Type, CUDNN_TYPE_INT64);
SAME(dnn::kFloatType, CUDNN_TYPE_FLOAT);
SAME(dnn::kDoubleType, CUDNN_TYPE_DOUBLE);
SAME(dnn::kPointerType, CUDNN_TYPE_VOID_PTR);
SAME(dnn::kConvolutionType, CUDNN_TYPE_CONVOLUTION_MODE);
SAME(dnn::kModeType, CUDNN_TYPE_HEUR_MODE);
SAME(dnn::kNoteType, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(dnn::kDescriptorType, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(dnn::kConvolutionCompute, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
SAME(dnn::kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
SAME(dnn::kDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS);
SAME(dnn::kStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
SAME(dnn::kPaddingsAfter, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
SAME(dnn::kPaddingsBefore, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
SAME(dnn::kSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
SAME(dnn::kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(dnn::kHeuristicsOf, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(dnn::kHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(dnn::kEngineOfConfig, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(dnn::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(dnn::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(dnn::kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(dnn::kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
SAME(dnn::kForwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
SAME(dnn::kForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
SAME(dnn::kForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
SAME(dnn::kImageAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
SAME(dnn::kImageW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
SAME(dnn::kImageDx, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
SAME(dnn::kImageDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
SAME(dnn::kFilterAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
SAME(dnn::kFilterDw, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
SAME(dnn::kFilterX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
SAME(dnn::kFilterDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
SAME(dnn::kOperationsHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(dnn::kOperationsOf, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(dnn::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(dnn::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(dnn::kTensorShape, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(dnn::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
SAME(dnn::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(dnn::kPointerIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(dnn::kPointersOf, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(dnn::kPointersWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(dnn::kEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(dnn::kBestFirst, CUDNN_HEUR_MODE_A);
SAME(dnn::kAnyThatWorks, CUDNN_HEUR_MODE_FALLBACK);
SAME(dnn::kOnTensorCores, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
SAME(dnn::kConvertsDown, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
SAME(dnn::kReducesInHalf, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
SAME(dnn::kFourier, CUDNN_NUMERICAL_NOTE_FFT);
SAME(dnn::kAnyOrder, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
SAME(dnn::kWinograd, CUDNN_NUMERICAL_NOTE_WINOGRAD);
SAME(dnn::kWinogradLast, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
static_assert(sizeof(cuda::blas::Algorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(cuda::blas::Proposal) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(cuda::blas::Proposal, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(cuda::blas::Proposal, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(blas::kSuccess, CUBLAS_STATUS_SUCCESS);
SAME(blas::kAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
SAME(blas::kArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH);
SAME(blas::kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(blas::kAsIs, CUBLAS_OP_N);
SAME(blas::kTransposed, CUBLAS_OP_T);
SAME(blas::kFloat32, CUDA_R_32F);
SAME(blas::kFloat64, CUDA_R_64F);
SAME(blas::kFloat16, CUDA_R_16F);
SAME(blas::kInt8, CUDA_R_8I);
SAME(blas::kComplex64, CUDA_C_32F);
SAME(blas::kComplex128, CUDA_C_64F);
SAME(blas::kInt32, CUDA_R_32I);
SAME(blas::kBfloat16, CUDA_R_16BF);
SAME(blas::kIn32F, CUBLAS_COMPUTE_32F);
SAME(blas::kIn64F, CUBLAS_COMPUTE_64F);
SAME(blas::kIn32I, CUBLAS_COMPUTE_32I);
SAME(blas::kInTf32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(blas::kFullReduction, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
SAME(blas::kDefaultAlgorithm, CUBLAS_GEMM_DEFAULT);
SAME(dnn::kSuccess, CUDNN_STATUS_SUCCESS);
SAME(dnn::kBadParameter, CUDNN_STATUS_BAD_PARAM);
SAME(dnn::kNotSupported, CUDNN_STATUS_NOT_SUPPORTED);
SAME(dnn::kInternal, CUDNN_STATUS_INTERNAL_ERROR);
SAME(dnn::kNoMemory, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
SAME(dnn::kFloat32, CUDNN_DATA_FLOAT);
SAME(dnn::kFloat64, CUDNN_DATA_DOUBLE);
SAME(dnn::kFloat16, CUDNN_DATA_HALF);
SAME(dnn::kBfloat16, CUDNN_DATA_BFLOAT16);
SAME(dnn::kDefaultMath, CUDNN_DEFAULT_MATH);
SAME(dnn::kTensorMath, CUDNN_TENSOR_OP_MATH);
SAME(dnn::kFmaMath, CUDNN_FMA_MATH);
SAME(dnn::kChannelsFirst, CUDNN_TENSOR_NCHW);
SAME(dnn::kChannelsLast, CUDNN_TENSOR_NHWC);
SAME(dnn::kCrossCorrelation, CUDNN_CROSS_CORRELATION);
SAME(dnn::kDeterministic, CUDNN_DETERMINISTIC);
// The algorithms that are taken by number.
static_assert(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM == 0 && CUDNN_CONVOLUTION_FWD_ALGO_DIRECT == 3 &&
              CUDNN_CONVOLUTION_FWD_ALGO_FFT == 4);
static_assert(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 == 0 && CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 == 1);
static_assert(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 == 0 && CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 == 1 &&
              CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 == 3);

template <class Real>
constexpr bool found_is() {
  using Ours = cuda::dnn::Found;
  return sizeof(Ours) == sizeof(Real) && offsetof(Ours, algorithm) == offsetof(Real, algo) &&
         offsetof(Ours, status) == offsetof(Real, status) && offsetof(Ours, memory) == offsetof(Real, memory) &&
         offsetof(Ours, determinism) == offsetof(Real, determinism) && offsetof(Ours, math) == offsetof(Real, mathType);
}
static_assert(found_is<cudnnConvolutionFwdAlgoPerf_t>() && found_is<cudnnConvolutionBwdDataAlgoPerf_t>() &&
              found_is<cudnnConvolutionBwdFilterAlgoPerf_t>());

}  // namespace
