// For vendors whose device is the host's CPU: which of code.v1's flags CW_CODE_DOT_BYTES and CW_CODE_DOT_TILES it
// deserves, and what the compiler is to define for them.
#pragma once

#include <cstdint>
#include <string>

#include "causeway/abi.h"
#ifdef __x86_64__
#include <cpuid.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace causeway {

// AVX-512 with VNNI.
inline bool cpu_dots_bytes() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

// AMX with products of bytes, which Linux lends to a process that asks: its threads, of before and after, may use tiles
// from then on, and so may what it forks. False too where Linux says no, as for want of room on a signal's stack.
inline bool cpu_dots_tiles() {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
  static const bool lent = [] {
    constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned tile = 1u << 24, int8 = 1u << 25;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & tile) || !(d & int8)) return false;
    return cpu_dots_bytes() && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return lent;
#else
  return false;
#endif
}

inline uint32_t cpu_dots() {
  return (cpu_dots_bytes() ? CW_CODE_DOT_BYTES : 0) | (cpu_dots_tiles() ? CW_CODE_DOT_TILES : 0);
}

// Of some of these flags, behind other options.
inline std::string dot_options(uint32_t dots) {
  return std::string(dots & CW_CODE_DOT_BYTES ? " -DCW_DOT_BYTES" : "") +
         (dots & CW_CODE_DOT_TILES ? " -DCW_DOT_TILES" : "");
}

}  // namespace causeway
