// Dtypes by their bit number in abi.h, and the way between stored values and the three types that kernels
// compute in: float (also for the 16-bit floats), double, and int64_t (for all integers and bool).
#pragma once

#include <cstdint>
#include <cstring>

#include "causeway/abi.h"

namespace sim {

enum Dtype : int32_t {
  kBool = 0,
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kHalf,
  kBFloat16,
  kFloat,
  kDouble,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat8,
  kOther = -1  // kFloat8 and above: bytes that are only moved
};

constexpr cw_dtypes signed_integers = CW_INT8 | CW_INT16 | CW_INT32 | CW_INT64;
constexpr cw_dtypes integers = signed_integers | CW_UINT8;
constexpr cw_dtypes floats = CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_FLOAT64;
constexpr cw_dtypes wide_floats = CW_FLOAT32 | CW_FLOAT64;
constexpr cw_dtypes numbers = integers | floats;
constexpr cw_dtypes real = numbers | CW_BOOL;  // what the elementwise kernels take

Dtype dtype_of(DLDataType type);
int64_t size_of(Dtype dtype);
inline bool is_floating(Dtype dtype) { return dtype >= kHalf && dtype <= kDouble; }

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// Without branches, so that loops over them vectorise.
inline float widen(Half h) {
  uint32_t magnitude = uint32_t(h.bits & 0x7fff) << 13;
  float value = bit_cast<float>(magnitude) * 0x1p112f;  // moves the exponent's bias; right for subnormals too
  uint32_t special = (h.bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
  return bit_cast<float>(bit_cast<uint32_t>(value) | special | uint32_t(h.bits & 0x8000) << 16);
}
inline float widen(BFloat16 b) { return bit_cast<float>(uint32_t(b.bits) << 16); }

// Round to nearest even, by letting the float adder do it (from the FP16 library by M. Dukhan).
inline Half to_half(float f) {
  float base = (bit_cast<float>(bit_cast<uint32_t>(f) & 0x7fffffffu) * 0x1p112f) * 0x1p-110f;
  uint32_t w = bit_cast<uint32_t>(f), twice = w + w;
  uint32_t bias = twice & 0xff000000u;
  bias = bias < 0x71000000u ? 0x71000000u : bias;
  uint32_t bits = bit_cast<uint32_t>(bit_cast<float>((bias >> 1) + 0x07800000u) + base);
  uint32_t rounded = ((bits >> 13) & 0x7c00u) + (bits & 0x0fffu);
  return Half{uint16_t((w & 0x80000000u) >> 16 | (twice > 0xff000000u ? 0x7e00u : rounded))};
}
inline BFloat16 to_bfloat16(float f) {
  uint32_t w = bit_cast<uint32_t>(f);
  uint32_t rounded = (w + 0x7fffu + ((w >> 16) & 1)) >> 16;
  return BFloat16{uint16_t((w & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded)};
}

template <class Compute, class Stored>
inline Compute from_stored(Stored v) {
  return static_cast<Compute>(v);
}
template <class Compute>
inline Compute from_stored(Half v) {
  return static_cast<Compute>(widen(v));
}
template <class Compute>
inline Compute from_stored(BFloat16 v) {
  return static_cast<Compute>(widen(v));
}
template <class Compute>
inline Compute from_stored(Bool v) {
  return static_cast<Compute>(v.byte != 0);
}

template <class Stored>
struct To {
  template <class Compute>
  static Stored stored(Compute v) {
    return static_cast<Stored>(v);
  }
};
template <>
struct To<Half> {
  template <class Compute>
  static Half stored(Compute v) {
    return to_half(static_cast<float>(v));
  }
};
template <>
struct To<BFloat16> {
  template <class Compute>
  static BFloat16 stored(Compute v) {
    return to_bfloat16(static_cast<float>(v));
  }
};
template <>
struct To<Bool> {
  template <class Compute>
  static Bool stored(Compute v) {
    return Bool{uint8_t(v != Compute(0))};
  }
};

// Call `f` with a value of the type that `dtype` stores.
template <class F>
inline void with_stored(Dtype dtype, F&& f) {
  switch (dtype) {
    case kBool:
      return f(Bool{});
    case kUInt8:
      return f(uint8_t{});
    case kInt8:
      return f(int8_t{});
    case kInt16:
      return f(int16_t{});
    case kInt32:
      return f(int32_t{});
    case kInt64:
      return f(int64_t{});
    case kHalf:
      return f(Half{});
    case kBFloat16:
      return f(BFloat16{});
    case kFloat:
      return f(float{});
    case kDouble:
      return f(double{});
    default:
      return;  // no kernel takes the others: their dtypes are not in its set
  }
}

// Read `n` values, `stride` bytes apart, into an array to compute with; and back.
template <class Compute>
void load(Compute* to, const char* from, int64_t stride, int64_t n, Dtype dtype);
template <class Compute>
void store(char* to, int64_t stride, const Compute* from, int64_t n, Dtype dtype);

template <class Compute>
inline Compute load_one(const char* from, Dtype dtype) {
  Compute value;
  load(&value, from, 0, 1, dtype);
  return value;
}
template <class Compute>
inline void store_one(char* to, Compute value, Dtype dtype) {
  store(to, 0, &value, 1, dtype);
}

}  // namespace sim
