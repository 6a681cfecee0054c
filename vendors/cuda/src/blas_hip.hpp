// hipBLAS: declared from its documentation; `make test-hip` compares the declarations with the headers of hipBLAS 0.5 (of
// HIP 5.5). From ROCm 6 on it has the same functions with other numbers for types, by names that end with `_v2`; from
// ROCm 7 on these are the only ones, and the names are the old ones again.
#pragma once

#include "blas.hpp"

#define KIN_BLAS "hipBLAS"
#define KIN_BLAS_SETTING "HIPBLAS"
#define KIN_INSTALL_BLAS "it comes with ROCm and with Hygon's DTK, or its file in CAUSEWAY_AMD_HIPBLAS"

namespace cuda {

namespace blas {

// hipblasStatus_t
constexpr int kSuccess = 0, kNotInitialized = 1, kAllocFailed = 2, kInvalidValue = 3, kArchMismatch = 8,
              kNotSupported = 7;
// hipblasOperation_t
constexpr int kAsIs = 111, kTransposed = 112;
constexpr int kDefaultAlgorithm = 160;  // HIPBLAS_GEMM_DEFAULT
// hipblasDatatype_t, to ROCm 5: it computes in types of that list too. TF32 is for few chips: not asked for.
constexpr Types kTypes = {151, 152, 150, 168, 160, 162, 154, 155, 151, 151, 152, 162, 154, 155};
// hipDataType and hipblasComputeType_t, from ROCm 6 on
constexpr Types kNewerTypes = {0, 1, 2, 14, 3, 10, 4, 5, 2, 2, 7, 9, 2, 7};

}  // namespace blas

// member, the exported symbol, parameters
#define BLAS_FUNCTIONS(F)                  \
  F(create, hipblasCreate, (BlasHandle*))  \
  F(destroy, hipblasDestroy, (BlasHandle)) \
  F(set_stream, hipblasSetStream, (BlasHandle, Stream))

#define BLAS_PRODUCTS(F)                                                                                          \
  F(gemm, hipblasGemmEx,                                                                                          \
    (BlasHandle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, \
     void*, int, int, int, int))                                                                                  \
  F(gemm_batched, hipblasGemmStridedBatchedEx,                                                                    \
    (BlasHandle, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int,   \
     long long, const void*, void*, int, int, long long, int, int, int))

// NULL where they are missing: the products of ROCm 6, and a workspace of the caller's.
#define BLAS_LATER_FUNCTIONS(F)                                                                                   \
  F(set_workspace, hipblasSetWorkspace, (BlasHandle, void*, size_t))                                              \
  F(gemm_2, hipblasGemmEx_v2,                                                                                     \
    (BlasHandle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, \
     void*, int, int, int, int))                                                                                  \
  F(gemm_batched_2, hipblasGemmStridedBatchedEx_v2,                                                               \
    (BlasHandle, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int,   \
     long long, const void*, void*, int, int, long long, int, int, int))
#define BLAS_STATUS_TEXT hipblasStatusToString
#define BLASLT_FUNCTIONS(F)

}  // namespace cuda
