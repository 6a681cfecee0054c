// mcBLAS. No header of it is public: names, parameters and numbers are those that public programs use (docs/hip.md), and
// nothing here compares them with the maker's. They are cuBLAS's.
#pragma once

#include "blas.hpp"

#define KIN_BLAS "mcBLAS"
#define KIN_BLAS_SETTING "MCBLAS"
#define KIN_INSTALL_BLAS "it comes with MetaX's MACA, or its file in CAUSEWAY_METAX_MCBLAS"

namespace cuda {

namespace blas {

// mcblasStatus_t
constexpr int kSuccess = 0, kNotInitialized = 1, kAllocFailed = 3, kInvalidValue = 7, kArchMismatch = 8,
              kNotSupported = 15;
// mcblasOperation_t
constexpr int kAsIs = 0, kTransposed = 1;
constexpr int kDefaultAlgorithm = -1;  // MCBLAS_GEMM_DEFAULT
// macaDataType and mcblasComputeType_t; in_tf32 is float32's, until a card shows what it rounds
constexpr Types kTypes = {0, 1, 2, 14, 3, 10, 4, 5, 68, 68, 70, 72, 68, 70};

}  // namespace blas

// member, the exported symbol, parameters
#define BLAS_FUNCTIONS(F)                 \
  F(create, mcblasCreate, (BlasHandle*))  \
  F(destroy, mcblasDestroy, (BlasHandle)) \
  F(set_stream, mcblasSetStream, (BlasHandle, Stream))

#define BLAS_PRODUCTS(F)                                                                                          \
  F(gemm, mcblasGemmEx,                                                                                           \
    (BlasHandle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, \
     void*, int, int, int, int))                                                                                  \
  F(gemm_batched, mcblasGemmStridedBatchedEx,                                                                     \
    (BlasHandle, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int,   \
     long long, const void*, void*, int, int, long long, int, int, int))
#define BLAS_LATER_FUNCTIONS(F) F(set_workspace, mcblasSetWorkspace, (BlasHandle, void*, size_t))
#define BLAS_STATUS_TEXT mcblasGetStatusString
#define BLASLT_FUNCTIONS(F)

}  // namespace cuda
