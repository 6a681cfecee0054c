#include "sha256.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#define WITH_SHA_NI 1
#endif

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void plain_blocks(uint32_t state[8], const uint8_t* p, uint64_t blocks) {
  for (; blocks--; p += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i)
      w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; ++i) {
      const uint32_t x = w[i - 15], y = w[i - 2];
      w[i] = w[i - 16] + (turned(x, 7) ^ turned(x, 18) ^ x >> 3) + w[i - 7] + (turned(y, 17) ^ turned(y, 19) ^ y >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; ++i) {
      const uint32_t one = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i];
      const uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#ifdef WITH_SHA_NI
/* With the processor's instructions for it, which take a state in the order ABEF, CDGH. */
__attribute__((target("sha,sse4.1"))) static void quick_blocks(uint32_t state[8], const uint8_t* p, uint64_t blocks) {
  const __m128i swapped = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i dcba = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i*)state), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i*)(state + 4)), 0x1B);
  __m128i abef = _mm_alignr_epi8(dcba, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, dcba, 0xF0);
  for (; blocks--; p += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i*)(p + 16 * i)), swapped);
    for (int i = 0; i < 16; ++i) { /* four rounds each */
      __m128i now = w[i & 3];
      if (i >= 4) {
        const __m128i last = w[(i + 3) & 3];
        now = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) & 3]), _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
        w[i & 3] = now = _mm_sha256msg2_epu32(now, last);
      }
      const __m128i sum = _mm_add_epi32(now, _mm_loadu_si128((const __m128i*)(k + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before), cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128((__m128i*)state, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128((__m128i*)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static int is_quick(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
         (b & 1u << 29);
}
#endif

static void add_blocks(uint32_t state[8], const uint8_t* p, uint64_t blocks) {
#ifdef WITH_SHA_NI
  static int quick = -1; /* threads that race find the same */
  int found = __atomic_load_n(&quick, __ATOMIC_RELAXED);
  if (found < 0) __atomic_store_n(&quick, found = is_quick(), __ATOMIC_RELAXED);
  if (found) {
    quick_blocks(state, p, blocks);
    return;
  }
#endif
  plain_blocks(state, p, blocks);
}

void sha256_begin(sha256* s) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(s->state, first, sizeof first);
  s->bytes = 0;
}

void sha256_add(sha256* s, const void* data, uint64_t bytes) {
  const uint8_t* p = data;
  const uint64_t have = s->bytes % 64;
  s->bytes += bytes;
  if (have) {
    const uint64_t part = bytes < 64 - have ? bytes : 64 - have;
    memcpy(s->rest + have, p, (size_t)part);
    p += part, bytes -= part;
    if (have + part < 64) return;
    add_blocks(s->state, s->rest, 1);
  }
  if (bytes >= 64) add_blocks(s->state, p, bytes / 64);
  memcpy(s->rest, p + bytes / 64 * 64, (size_t)(bytes % 64));
}

void sha256_end(sha256* s, uint8_t digest[32]) {
  const uint64_t bits = s->bytes * 8, have = s->bytes % 64;
  uint8_t end[128] = {0x80};
  const uint64_t pad = (have < 56 ? 56 : 120) - have;
  for (int i = 0; i < 8; ++i) end[pad + (uint64_t)i] = (uint8_t)(bits >> (56 - 8 * i));
  sha256_add(s, end, pad + 8);
  for (int i = 0; i < 32; ++i) digest[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}
