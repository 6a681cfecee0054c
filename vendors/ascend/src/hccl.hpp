// The functions of HCCL (libhccl.so) that are used, declared here from their public documentation.
#pragma once

#include <cstdint>

#include "acl.hpp"

namespace ascend {

using HcclResult = int;
using HcclComm = void*;
constexpr HcclResult kHcclParameter = 1, kHcclPointer = 2, kHcclMemory = 3, kHcclUnsupported = 5;

struct HcclRoot {  // HcclRootInfo
  char internal[4108];
};
struct HcclItem {  // HcclSendRecvItem; kind: 0 a send, 1 a receive
  int kind;
  void* data;
  uint64_t count;
  int type;
  uint32_t peer;
};

// member, the exported symbol, parameters; dtypes and reductions are ints
#define HCCL_FUNCTIONS(F)                                                                                       \
  F(root, HcclGetRootInfo, (HcclRoot*))                                                                         \
  F(init, HcclCommInitRootInfo, (uint32_t, const HcclRoot*, uint32_t, HcclComm*))                               \
  F(destroy, HcclCommDestroy, (HcclComm))                                                                       \
  F(async_error, HcclGetCommAsyncError, (HcclComm, HcclResult*))                                                \
  F(all_reduce, HcclAllReduce, (void*, void*, uint64_t, int, int, HcclComm, Stream))                            \
  F(broadcast, HcclBroadcast, (void*, uint64_t, int, uint32_t, HcclComm, Stream))                               \
  F(reduce, HcclReduce, (void*, void*, uint64_t, int, int, uint32_t, HcclComm, Stream))                         \
  F(all_gather, HcclAllGather, (void*, void*, uint64_t, int, HcclComm, Stream))                                 \
  F(reduce_scatter, HcclReduceScatter, (void*, void*, uint64_t, int, int, HcclComm, Stream))                    \
  F(all_to_all, HcclAlltoAllV,                                                                                  \
    (const void*, const void*, const void*, int, const void*, const void*, const void*, int, HcclComm, Stream)) \
  F(barrier, HcclBarrier, (HcclComm, Stream))                                                                   \
  F(send, HcclSend, (void*, uint64_t, int, uint32_t, HcclComm, Stream))                                         \
  F(recv, HcclRecv, (void*, uint64_t, int, uint32_t, HcclComm, Stream))                                         \
  F(batch, HcclBatchSendRecv, (HcclItem*, uint32_t, HcclComm, Stream))

struct Hccl {
#define MEMBER(name, symbol, parameters) HcclResult(*name) parameters = nullptr;
  HCCL_FUNCTIONS(MEMBER)
#undef MEMBER
  const char* (*words)(HcclResult) = nullptr;  // HcclGetErrorString
};

extern Hccl hccl;  // filled by `open_hccl`
const char* open_hccl();

}  // namespace ascend
