#include "ops/dtype.hpp"

namespace sim {

Dtype dtype_of(DLDataType type) {
  if (type.lanes > 1) return kOther;
  switch (type.code) {
    case kDLBool:
      return kBool;
    case kDLUInt:
      return type.bits == 8 ? kUInt8 : type.bits == 16 ? kUInt16 : type.bits == 32 ? kUInt32 : kUInt64;
    case kDLInt:
      return type.bits == 8 ? kInt8 : type.bits == 16 ? kInt16 : type.bits == 32 ? kInt32 : kInt64;
    case kDLFloat:
      return type.bits == 16 ? kHalf : type.bits == 32 ? kFloat : type.bits == 64 ? kDouble : kOther;
    case kDLBfloat:
      return kBFloat16;
    case kDLComplex:
      return type.bits == 32 ? kComplex32 : type.bits == 64 ? kComplex64 : kComplex128;
    default:
      return type.bits == 8 ? kFloat8 : kOther;
  }
}

int64_t size_of(Dtype dtype) {
  static const int64_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 8, 16, 1};
  return dtype < 0 ? 0 : sizes[dtype];
}

template <class Compute>
void load(Compute* to, const char* from, int64_t stride, int64_t n, Dtype dtype) {
  with_stored(dtype, [=](auto example) {
    using Stored = decltype(example);
    if (stride == int64_t(sizeof(Stored))) {
      const Stored* values = reinterpret_cast<const Stored*>(from);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = from_stored<Compute>(values[i]);
    } else if (stride == 0) {
      Compute value = n ? from_stored<Compute>(*reinterpret_cast<const Stored*>(from)) : Compute(0);
      for (int64_t i = 0; i < n; ++i) to[i] = value;
    } else {
      for (int64_t i = 0; i < n; ++i) {
        to[i] = from_stored<Compute>(*reinterpret_cast<const Stored*>(from + i * stride));
      }
    }
  });
}

template <class Compute>
void store(char* to, int64_t stride, const Compute* from, int64_t n, Dtype dtype) {
  with_stored(dtype, [=](auto example) {
    using Stored = decltype(example);
    if (stride == int64_t(sizeof(Stored))) {
      Stored* values = reinterpret_cast<Stored*>(to);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) values[i] = To<Stored>::stored(from[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        *reinterpret_cast<Stored*>(to + i * stride) = To<Stored>::stored(from[i]);
      }
    }
  });
}

template void load(float*, const char*, int64_t, int64_t, Dtype);
template void load(double*, const char*, int64_t, int64_t, Dtype);
template void load(int64_t*, const char*, int64_t, int64_t, Dtype);
template void store(char*, int64_t, const float*, int64_t, Dtype);
template void store(char*, int64_t, const double*, int64_t, Dtype);
template void store(char*, int64_t, const int64_t*, int64_t, Dtype);

}  // namespace sim
