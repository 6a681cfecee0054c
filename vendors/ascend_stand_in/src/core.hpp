// What the stand-in libraries share. AscendCL's names, numbers and meanings are those of its public documentation; the
// declarations are ours. libascendcl.so has this code and exports it to libopapi.so and libhccl.so beside the C functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#define STAND_IN_SHARED __attribute__((visibility("default")))
#define ENTRY extern "C" STAND_IN_SHARED

namespace stand_in {

using Code = int;

enum : Code {
  kGood = 0,
  kBadParameter = 100000,
  kNotInitialized = 100001,
  kInitializedTwice = 100002,
  kFinalizedTwice = 100037,
  kOldOperators = 500001,
  kInvalidParameter = 107000,
  kInvalidDevice = 107001,
  kNoContext = 107002,
  kStreamOfOtherContext = 107003,
  kNoTimestamp = 107006,
  kNoCallback = 107015,
  kInvalidHandle = 107017,
  kTimeout = 107020,
  kStreamAborted = 107023,
  kUnjoined = 107025,
  kCaptured = 107027,
  kNotCaptured = 107029,
  kUnsupported = 207000,
  kOutOfMemory = 207001,
  kNoStream = 207008,
  kInternal = 507000,
  kCoreException = 507015,
  kVectorException = 507035,
  kSyncTimeout = 507046,
  kCaptureInvalid = 507903,
};

// Whether a FLOAT16 that is too large becomes the largest there is, and NaN 0.
STAND_IN_SHARED bool saturates();

// How often an entry was called, and the faults that are planted in it.
class STAND_IN_SHARED Site {
 public:
  explicit Site(const char* name);
  // Counts a call; the code that a planted fault wants returned, else kGood.
  Code begin();

 private:
  struct State;
  struct Report;
  State* state_;
};

// The first line of every entry that returns a code.
#define CALL()                                             \
  do {                                                     \
    static ::stand_in::Site site(__func__);                \
    if (::stand_in::Code code = site.begin()) return code; \
  } while (0)

// And of those that return something else.
#define CALL_ONLY()                         \
  do {                                      \
    static ::stand_in::Site site(__func__); \
    site.begin();                           \
  } while (0)

// Sets what aclGetRecentErrMsg says on this thread, and returns the code.
STAND_IN_SHARED Code refuse(Code code, const char* format, ...) __attribute__((format(printf, 2, 3)));
STAND_IN_SHARED std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
STAND_IN_SHARED void set_message(const std::string& message);
STAND_IN_SHARED const char* setting(const char* key, const char* otherwise);
STAND_IN_SHARED long number(const char* key, long otherwise);

// The device of this thread, -1 where none is set.
STAND_IN_SHARED int current_device();
// kGood, or kNoContext with a message.
STAND_IN_SHARED Code need_context(const char* who);

// Where the bytes of device memory really are; nullptr where they are not within one live block.
STAND_IN_SHARED char* resolve(const void* address, size_t bytes);
// Overwrites what a chip may: from the end of a storage to 32 bytes behind its next multiple of 32, on the 950 to that.
STAND_IN_SHARED void spill(const void* storage, size_t bytes);

struct Stream;
// Work for a stream, in its order. `name` goes into the message when it fails; its fault may be planted ("name:1@code").
STAND_IN_SHARED Code enqueue(void* stream, const char* name, std::function<Code()> work, bool kernel = false);
// Who is told of kernels: on the thread that launches one, where it gives it a number (0: none), and when it has run.
struct KernelWatch {
  uint64_t (*launched)();
  void (*ran)(const std::string& name, uint64_t number, int device, int stream, int64_t begin_ns, int64_t end_ns);
};
STAND_IN_SHARED void watch_kernels(const KernelWatch* watch);  // nullptr: nobody
STAND_IN_SHARED int64_t steady_ns();
// Waits until the stream's work is done.
STAND_IN_SHARED Code wait_for(void* stream);
// For work: the code and the message of a failure on the device.
STAND_IN_SHARED Code broken(Code code, const std::string& message);
// For work: whether its stream is told to drop what it has. It then gives kStreamAborted, which is no failure of the device.
STAND_IN_SHARED bool aborted();
STAND_IN_SHARED bool deterministic();

}  // namespace stand_in
