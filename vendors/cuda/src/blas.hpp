// cuBLAS: products of matrices. Declared from its documentation, opened with the first product; tests/cuda compares the
// declarations with NVIDIA's headers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver.hpp"
#include "causeway/op.hpp"

struct cw_stream_t;

namespace cuda {

struct Device;
using BlasHandle = struct cublasContext*;
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

struct Blas {
#define MEMBER(name, symbol, parameters) int(*name) parameters = nullptr;
  BLAS_FUNCTIONS(MEMBER)
  BLAS_PRODUCTS(MEMBER)
  BLASLT_FUNCTIONS(MEMBER)  // all NULL where one is missing
#undef MEMBER
  int (*property)(int, int*) = nullptr;  // cublasGetProperty
  const char* (*status_text)(int) = nullptr;  // cublasGetStatusString, since 11.4
};

extern Blas cublas;
// Empty when the library is open, else why it is not. Once a process; needs no driver.
const char* open_blas();
std::string blas_version();  // "12.9.1", where it is open

// What a stream has of cuBLAS: a handle with this stream set, columns of ones for adding vectors to rows, and which
// algorithm of cuBLASLt is taken for a product.
struct BlasStream {
  struct Ones {
    Address at = 0;
    int64_t count = 0;
  };
  BlasHandle handle = nullptr;
  std::map<cw::Dtype, std::vector<Ones>> ones;  // the last one serves; graphs may read the others
  std::map<std::vector<int64_t>, std::optional<blas::Proposal>> chosen;  // none: declined
  ~BlasStream();
};

// The kernel of this name, CW_UNSUPPORTED where cuBLAS is not there or has none.
cw_status find_product(const char* name, cw_op* out);

}  // namespace cuda
