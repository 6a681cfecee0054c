// cuBLAS: declared from its documentation; tests/cuda compares the declarations with NVIDIA's headers.
#pragma once

#include "blas.hpp"

#define KIN_HAS_BLASLT 1
#define KIN_BLAS "cuBLAS"
#define KIN_BLAS_SETTING "CUBLAS"
#define KIN_INSTALL_BLAS "pip install nvidia-cublas-cu12, or its file in CAUSEWAY_NVIDIA_CUBLAS"

namespace cuda {

using LtHandle = struct cublasLtContext*;
using LtPlan = struct LtPlan_*;
using LtLayout = struct LtLayout_*;
using LtWish = struct LtWish_*;

namespace blas {

// cublasStatus_t
constexpr int kSuccess = 0, kNotInitialized = 1, kAllocFailed = 3, kInvalidValue = 7, kArchMismatch = 8,
              kNotSupported = 15;
// cublasOperation_t
constexpr int kAsIs = 0, kTransposed = 1;
// cudaDataType
constexpr int kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kInt8 = 3, kComplex64 = 4, kComplex128 = 5, kInt32 = 10,
              kBfloat16 = 14;
// cublasComputeType_t
constexpr int kIn32F = 68, kIn64F = 70, kIn32I = 72, kInTf32 = 77;
// cublasMath_t: sums of half types are kept in float32 to their end.
constexpr int kFullReduction = 16;
constexpr int kDefaultAlgorithm = -1;  // CUBLAS_GEMM_DEFAULT
// cublasLtMatmulDescAttributes_t, cublasLtEpilogue_t, cublasLtMatmulPreferenceAttributes_t
constexpr int kLtTransA = 3, kLtTransB = 4, kLtEpilogue = 7, kLtBias = 8, kLtBiasType = 26, kLtAddsBias = 4,
              kLtWorkspace = 1, kLtReduction = 3, kLtAlignA = 5, kLtAlignB = 6, kLtAlignC = 7, kLtAlignD = 8;
constexpr uint32_t kLtInWideType = 2;  // cublasLtReductionScheme_t: parts of a sum in the type that is computed in
constexpr Types kTypes = {kFloat32,    kFloat64, kFloat16, kBfloat16, kInt8,  kInt32, kComplex64,
                          kComplex128, kIn32F,   kInTf32,  kIn64F,    kIn32I, kIn32F, kIn64F};

struct Algorithm {  // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct Proposal {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

}  // namespace blas

// member, the exported symbol, parameters
#define BLAS_FUNCTIONS(F)                                              \
  F(create, cublasCreate_v2, (BlasHandle*))                            \
  F(destroy, cublasDestroy_v2, (BlasHandle))                           \
  F(version, cublasGetVersion_v2, (BlasHandle, int*))                  \
  F(set_stream, cublasSetStream_v2, (BlasHandle, Stream))              \
  F(set_workspace, cublasSetWorkspace_v2, (BlasHandle, void*, size_t)) \
  F(set_math, cublasSetMathMode, (BlasHandle, int))
#define BLAS_LATER_FUNCTIONS(F) F(property, cublasGetProperty, (int, int*))
#define BLAS_STATUS_TEXT cublasGetStatusString  // since 11.4

#define BLAS_PRODUCTS(F)                                                                                          \
  F(gemm, cublasGemmEx,                                                                                           \
    (BlasHandle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, \
     void*, int, int, int, int))                                                                                  \
  F(gemm_batched, cublasGemmStridedBatchedEx,                                                                     \
    (BlasHandle, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int,   \
     long long, const void*, void*, int, int, long long, int, int, int))

// cuBLASLt, which cuBLAS brings with it and whose handle a handle of cuBLAS is: products that add a row on the way.
#define BLASLT_FUNCTIONS(F)                                                                                           \
  F(plan_create, cublasLtMatmulDescCreate, (LtPlan*, int, int))                                                       \
  F(plan_destroy, cublasLtMatmulDescDestroy, (LtPlan))                                                                \
  F(plan_set, cublasLtMatmulDescSetAttribute, (LtPlan, int, const void*, size_t))                                     \
  F(layout_create, cublasLtMatrixLayoutCreate, (LtLayout*, int, uint64_t, uint64_t, int64_t))                         \
  F(layout_destroy, cublasLtMatrixLayoutDestroy, (LtLayout))                                                          \
  F(wish_create, cublasLtMatmulPreferenceCreate, (LtWish*))                                                           \
  F(wish_destroy, cublasLtMatmulPreferenceDestroy, (LtWish))                                                          \
  F(wish_set, cublasLtMatmulPreferenceSetAttribute, (LtWish, int, const void*, size_t))                               \
  F(propose, cublasLtMatmulAlgoGetHeuristic,                                                                          \
    (LtHandle, LtPlan, LtLayout, LtLayout, LtLayout, LtLayout, LtWish, int, blas::Proposal*, int*))                   \
  F(multiply, cublasLtMatmul,                                                                                         \
    (LtHandle, LtPlan, const void*, const void*, LtLayout, const void*, LtLayout, const void*, const void*, LtLayout, \
     void*, LtLayout, const blas::Algorithm*, void*, size_t, Stream))

}  // namespace cuda
