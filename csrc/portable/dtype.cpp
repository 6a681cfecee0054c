#include "portable/dtype.h"

namespace causeway::portable {

namespace {
struct Info {
  const char *name, *storage;
  int bytes;
};
constexpr Info kInfo[] = {{"b8", "u8", 1},   {"u8", "u8", 1},   {"i8", "i8", 1},    {"u16", "u16", 2},
                          {"i16", "i16", 2}, {"u32", "u32", 4}, {"i32", "i32", 4},  {"u64", "u64", 8},
                          {"i64", "i64", 8}, {"f16", "u16", 2}, {"bf16", "u16", 2}, {"f32", "f32", 4},
                          {"f64", "f64", 8}, {"c32", "u32", 4}, {"c64", "u64", 8}};
}  // namespace

Dtype dtype_of(const DLDataType& type) {
  if (type.lanes != 1) return kOther;
  switch (type.code) {
    case kDLBool:
      return kBool;
    case kDLUInt:
      return type.bits == 8 ? kU8 : type.bits == 16 ? kU16 : type.bits == 32 ? kU32 : type.bits == 64 ? kU64 : kOther;
    case kDLInt:
      return type.bits == 8 ? kI8 : type.bits == 16 ? kI16 : type.bits == 32 ? kI32 : type.bits == 64 ? kI64 : kOther;
    case kDLFloat:
      return type.bits == 16 ? kF16 : type.bits == 32 ? kF32 : type.bits == 64 ? kF64 : kOther;
    case kDLBfloat:
      return kBF16;
    case kDLComplex:
      return type.bits == 32 ? kC32 : type.bits == 64 ? kC64 : type.bits == 128 ? kC128 : kOther;
    default:
      return kOther;
  }
}

int64_t size_of(Dtype dtype) { return dtype == kC128 ? 16 : dtype == kOther ? 1 : kInfo[dtype].bytes; }
const char* name_of(Dtype dtype) { return kInfo[dtype].name; }
const char* storage_of(Dtype dtype) { return kInfo[dtype].storage; }
Dtype compute_of(Dtype dtype) { return dtype == kF16 || dtype == kBF16 ? kF32 : dtype; }
bool is_float(Dtype dtype) { return dtype >= kF16 && dtype <= kF64; }
bool is_int(Dtype dtype) { return dtype <= kI64; }

Dtype promote(Dtype a, Dtype b) {
  if (a == b) return a;
  if (is_float(a) || is_float(b)) {
    if (!is_float(a)) return b;
    if (!is_float(b)) return a;
    if (a == kF64 || b == kF64) return kF64;
    return kF32;  // the two half types meet there too
  }
  if (a == kBool) return b;
  if (b == kBool) return a;
  // uint8 with a signed type of its size needs one more bit; larger signed types hold it.
  if (a == kU8 && b == kI8) return kI16;
  if (a == kI8 && b == kU8) return kI16;
  return size_of(a) > size_of(b) ? a : size_of(b) > size_of(a) ? b : kOther;
}

}  // namespace causeway::portable
