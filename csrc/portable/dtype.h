// Dtypes by their bit in cw_dtypes, and what kernels call them.
#pragma once

#include <cstdint>
#include <string>

#include "causeway/abi.h"

namespace causeway::portable {

enum Dtype : int {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC32,
  kC64,
  kC128,
  kOther = 63
};

Dtype dtype_of(const DLDataType& type);
int64_t size_of(Dtype dtype);
// "bf16": kernels load with LD_bf16 and store with ST_bf16.
const char* name_of(Dtype dtype);
// The type of its elements in memory: "u16" for bf16.
const char* storage_of(Dtype dtype);
// What it is computed in: f32 for the half types, itself for the others.
Dtype compute_of(Dtype dtype);
bool is_float(Dtype dtype);
bool is_int(Dtype dtype);  // with bool
Dtype promote(Dtype a, Dtype b);  // torch's table, for real dtypes

constexpr cw_dtypes kFloats = CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_FLOAT64;
constexpr cw_dtypes kInts = CW_UINT8 | CW_INT8 | CW_INT16 | CW_INT32 | CW_INT64;
constexpr cw_dtypes kReals = kFloats | kInts | CW_BOOL;

}  // namespace causeway::portable
