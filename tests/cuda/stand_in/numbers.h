/* Numbers of cuBLAS's and cuDNN's types in host memory, for the stand-ins of both libraries. */
#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef double complex number;
enum kind { F16, BF16, F32, F64, C64, C128, I8, I32, NO_KIND };

static inline number load(const void* data, enum kind kind, int64_t i) {
  uint32_t bits;
  float single;
  switch (kind) {
    case F16:
      return (double)((const _Float16*)data)[i];
    case BF16:
      bits = (uint32_t)((const uint16_t*)data)[i] << 16;
      memcpy(&single, &bits, 4);
      return single;
    case F32:
      return ((const float*)data)[i];
    case F64:
      return ((const double*)data)[i];
    case C64:
      return ((const float complex*)data)[i];
    case C128:
      return ((const double complex*)data)[i];
    case I8:
      return ((const int8_t*)data)[i];
    default:
      return ((const int32_t*)data)[i];
  }
}

static inline void store(void* data, enum kind kind, int64_t i, number v) {
  uint32_t bits;
  float single;
  switch (kind) {
    case F16:
      ((_Float16*)data)[i] = (_Float16)(float)creal(v);
      return;
    case BF16:
      single = (float)creal(v);
      memcpy(&bits, &single, 4);
      if (!isnan(single)) bits += 0x7fff + (bits >> 16 & 1); /* to nearest, ties to even */
      ((uint16_t*)data)[i] = (uint16_t)(bits >> 16 | (isnan(single) ? 0x40 : 0));
      return;
    case F32:
      ((float*)data)[i] = (float)creal(v);
      return;
    case F64:
      ((double*)data)[i] = creal(v);
      return;
    case C64:
      ((float complex*)data)[i] = (float complex)v;
      return;
    case C128:
      ((double complex*)data)[i] = v;
      return;
    case I8:
      ((int8_t*)data)[i] = (int8_t)creal(v);
      return;
    default:
      ((int32_t*)data)[i] = (int32_t)creal(v);
  }
}
