// FLOAT16 and BFLOAT16, rounded to even.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor.hpp"

namespace ops {

uint16_t half_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);
  if (magnitude >= 0x47800000) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // Subnormal: the float adder rounds.
    float shifted;
    memcpy(&shifted, &magnitude, 4);
    shifted += 0.5f;
    memcpy(&bits, &shifted, 4);
    return uint16_t(sign | (bits - 0x3f000000));
  }
  magnitude += 0xfff + (magnitude >> 13 & 1) - 0x38000000;
  return uint16_t(sign | magnitude >> 13);
}

float within_half(float value) {
  constexpr float kLargest = 65504;
  if (std::isnan(value)) return 0;
  return value > kLargest ? kLargest : value < -kLargest ? -kLargest : value;
}

float half_value(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                    : exponent     ? std::ldexp(float(fraction | 1024), exponent - 25)
                                   : std::ldexp(float(fraction), -24);
  return half & 0x8000 ? -magnitude : magnitude;
}

uint16_t bfloat_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (std::isnan(value)) return 0x7fc0;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float bfloat_value(uint16_t bfloat) {
  uint32_t bits = uint32_t(bfloat) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

}  // namespace ops
