// What the compiler of Ascend's SIMT C++ knows by itself, for a C++ compiler of the host. Names and meanings are those of its
// public documentation; the declarations are ours. An item runs as a call on the thread of its stream.
#pragma once

#include <stdint.h>

#define __NPU_ARCH__ 3510
#define __host__
#define __aicore__
#define __global__ __attribute__((visibility("default")))
#define __launch_bounds__(...)
#define __gm__
#define __align__(n) __attribute__((aligned(n)))
// Of arrays within a kernel alone. The items of a group run on one thread, so they share one.
#define __ubuf__ static thread_local

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

// Of the item that runs; who runs it writes this. src/kernels.cpp has the same two structures.
struct SimtItem {
  dim3 thread, threads, block, blocks;
  void (*wait)();
};
struct SimtKernel {
  uint32_t parameters, threads;  // most items of a group
  const uint32_t* sizes;  // of the parameters, in bytes
  const uint8_t* addresses;  // which of them are
  void (*call)(void* const* arguments);
  SimtItem* (*item)();  // this thread's
};
static thread_local SimtItem simt_item;
#define threadIdx (simt_item.thread)
#define blockDim (simt_item.threads)
#define blockIdx (simt_item.block)
#define gridDim (simt_item.blocks)
static constexpr int32_t warpSize = 32;

namespace simt {
template <class T>
struct Parameter {
  static constexpr bool address = false;
  static_assert(!__is_class(T) && !__is_union(T),
                "a SIMT kernel takes basic types and pointers to them, no structures");
};
template <class T>
struct Parameter<T*> : Parameter<T> {
  static constexpr bool address = true;
};
inline SimtItem* item() { return &simt_item; }

template <int... at>
struct Places {};
#if __has_builtin(__make_integer_seq)
template <class, int... at>
using PlacesOf = Places<at...>;
template <int n>
using First = __make_integer_seq<PlacesOf, int, n>;
#else
template <int n>
using First = Places<__integer_pack(n)...>;
#endif

template <auto function>
struct Kernel;
template <class... P, void (*function)(P...)>
struct Kernel<function> {
  static constexpr uint32_t sizes[] = {uint32_t(sizeof(P))..., 0};
  static constexpr uint8_t addresses[] = {Parameter<P>::address..., 0};
  template <int... at>
  static void call(Places<at...>, void* const* arguments) {
    (void)arguments;
    function(*static_cast<P*>(arguments[at])...);
  }
  static void call_all(void* const* arguments) { call(First<int(sizeof...(P))>(), arguments); }
};
}  // namespace simt
// Behind a program's text, for each of its kernels.
#define SIMT_KERNEL(name, threads)                                                                               \
  extern "C" __global__ const SimtKernel name##_of_simt = {uint32_t(sizeof(simt::Kernel<&name>::sizes) / 4 - 1), \
                                                           threads,                                              \
                                                           simt::Kernel<&name>::sizes,                           \
                                                           simt::Kernel<&name>::addresses,                       \
                                                           simt::Kernel<&name>::call_all,                        \
                                                           simt::item};
