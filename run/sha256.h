/* SHA-256 of FIPS 180-4. Weights are named by it. */
#ifndef CAUSEWAY_RUN_SHA256_H
#define CAUSEWAY_RUN_SHA256_H

#include <stdint.h>

typedef struct {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t rest[64];
} sha256;

void sha256_begin(sha256* s);
void sha256_add(sha256* s, const void* data, uint64_t bytes);
void sha256_end(sha256* s, uint8_t digest[32]);

#endif
