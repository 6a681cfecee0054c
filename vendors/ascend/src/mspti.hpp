// MSPTI (libmspti.so), which says when the chip ran what: the functions that are used and two of its records, declared here
// from their public documentation. A record is packed, so a number of 8 bytes may follow one of 4.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ascend {

using MsptiResult = int;
constexpr MsptiResult kMsptiTwoSubscribers = 2, kMsptiEnd = 3;
// msptiActivityKind, msptiExternalCorrelationKind
constexpr int kMsptiKernel = 2, kMsptiExternal = 8, kMsptiAclCalls = 10, kMsptiCustom = 2;

struct __attribute__((packed, aligned(8))) MsptiKernelRecord {  // msptiActivityKernel
  int kind;
  uint64_t begin_ns, end_ns;  // since 1970; both 0: not known
  uint32_t device, stream;
  uint64_t correlation;
  const char* type;
  const char* name;
};
struct __attribute__((packed, aligned(8))) MsptiExternalRecord {  // msptiActivityExternalCorrelation
  int kind, external_kind;
  uint64_t external;  // what was pushed
  uint64_t correlation;
};

using MsptiCallback = void (*)(void*, int, uint32_t, const void*);
using MsptiRequest = void (*)(uint8_t** buffer, size_t* bytes, size_t* most);
using MsptiComplete = void (*)(uint8_t* buffer, size_t bytes, size_t valid);

// member, the exported symbol, parameters
#define MSPTI_FUNCTIONS(F)                                                    \
  F(subscribe, msptiSubscribe, (void**, MsptiCallback, void*))                \
  F(unsubscribe, msptiUnsubscribe, (void*))                                   \
  F(callbacks, msptiActivityRegisterCallbacks, (MsptiRequest, MsptiComplete)) \
  F(enable, msptiActivityEnable, (int))                                       \
  F(disable, msptiActivityDisable, (int))                                     \
  F(flush, msptiActivityFlushAll, (uint32_t))                                 \
  F(next, msptiActivityGetNextRecord, (uint8_t*, size_t, void**))             \
  F(push, msptiActivityPushExternalCorrelationId, (int, uint64_t))            \
  F(pop, msptiActivityPopExternalCorrelationId, (int, uint64_t*))

struct Mspti {
#define MEMBER(name, symbol, parameters) MsptiResult(*name) parameters = nullptr;
  MSPTI_FUNCTIONS(MEMBER)
#undef MEMBER
};

}  // namespace ascend
