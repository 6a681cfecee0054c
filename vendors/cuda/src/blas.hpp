// cuBLAS, or hipBLAS or mcBLAS: products of matrices. Opened with the first product.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "causeway/op.hpp"
#include "driver.hpp"

struct cw_stream_t;

namespace cuda {

struct Device;
using BlasHandle = struct cublasContext*;

namespace blas {

// How the library calls types: those of numbers in memory, then those that it computes in.
struct Types {
  int float32, float64, float16, bfloat16, int8, int32, complex64, complex128;
  int in_float32, in_tf32, in_float64, in_int32, in_complex64, in_complex128;
};

}  // namespace blas

}  // namespace cuda

#if defined(CAUSEWAY_KIN_HIP)
#include "blas_hip.hpp"
#elif defined(CAUSEWAY_KIN_MACA)
#include "blas_maca.hpp"
#else
#include "blas_cuda.hpp"
#endif

namespace cuda {

struct Blas {
#define MEMBER(name, symbol, parameters) int(*name) parameters = nullptr;
  BLAS_FUNCTIONS(MEMBER)
  BLAS_PRODUCTS(MEMBER)
  BLAS_LATER_FUNCTIONS(MEMBER)  // NULL where they are missing
  BLASLT_FUNCTIONS(MEMBER)  // all NULL where one is missing
#undef MEMBER
  const char* (*status_text)(int) = nullptr;  // NULL where it is missing
};
struct BlasSymbols {
#define MEMBER(name, symbol, parameters) const char* name = #symbol;
  BLAS_FUNCTIONS(MEMBER)
  BLAS_PRODUCTS(MEMBER)
  BLAS_LATER_FUNCTIONS(MEMBER)
  BLASLT_FUNCTIONS(MEMBER)
#undef MEMBER
};
constexpr BlasSymbols blas_symbols;

extern Blas cublas;
// Empty when the library is open, else why it is not. Once a process; needs no driver.
const char* open_blas();
std::string blas_version();  // "12.9.1", where it is open

// What a stream has of the library: a handle with this stream set, columns of ones for adding vectors to rows, and which
// algorithm of cuBLASLt is taken for a product.
struct BlasStream {
  struct Ones {
    Address at = 0;
    int64_t count = 0;
  };
  BlasHandle handle = nullptr;
  std::map<cw::Dtype, std::vector<Ones>> ones;  // the last one serves; graphs may read the others
#ifdef KIN_HAS_BLASLT
  std::map<std::vector<int64_t>, std::optional<blas::Proposal>> chosen;  // none: declined
#endif
  ~BlasStream();
};

// The kernel of this name, CW_UNSUPPORTED where cuBLAS is not there or has none.
cw_status find_product(const char* name, cw_op* out);

}  // namespace cuda
