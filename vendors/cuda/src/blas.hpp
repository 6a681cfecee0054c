// cuBLAS: products of matrices. Declared from its documentation, opened with the first product; tests/cuda compares the
// declarations with NVIDIA's headers.
#pragma once

#include <memory>
#include <string>

#include "driver.hpp"
#include "causeway/op.hpp"

struct cw_stream_t;

namespace cuda {

struct Device;
using BlasHandle = struct cublasContext*;

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

struct Blas {
#define MEMBER(name, symbol, parameters) int(*name) parameters = nullptr;
  BLAS_FUNCTIONS(MEMBER)
  BLAS_PRODUCTS(MEMBER)
#undef MEMBER
  int (*property)(int, int*) = nullptr;  // cublasGetProperty
  const char* (*status_text)(int) = nullptr;  // cublasGetStatusString, since 11.4
};

extern Blas cublas;
// Empty when the library is open, else why it is not. Once a process; needs no driver.
const char* open_blas();
std::string blas_version();  // "12.9.1", where it is open

// What a stream has of cuBLAS: a handle with this stream set, and a column of ones for adding vectors to rows.
struct BlasStream {
  BlasHandle handle = nullptr;
  Address ones = 0;
  int64_t ones_count = 0;
  cw::Dtype ones_dtype = cw::Dtype::other;
  ~BlasStream();
};

// The kernel of this name, CW_UNSUPPORTED where cuBLAS is not there or has none.
cw_status find_product(const char* name, cw_op* out);

}  // namespace cuda
