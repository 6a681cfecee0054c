// Kernels of threads: what libacl_rtc.so made is opened and launched. The items of a group run in turn on the stream's thread;
// one that comes to a barrier waits there, on a stack of its own, until all others have come.
#undef _FORTIFY_SOURCE  // that a stack is left by a jump is the point here
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "device.hpp"

using namespace stand_in;

namespace {

struct Dim3 {
  uint32_t x, y, z;
};

// As in include/simt_builtin.h.
struct Item {
  Dim3 thread, threads, block, blocks;
  void (*wait)();
};
struct Kernel {
  uint32_t parameters, threads;
  const uint32_t* sizes;
  const uint8_t* addresses;
  void (*call)(void* const* arguments);
  Item* (*item)();
};

struct Function {
  std::string name;
  Device* device = nullptr;
  const Kernel* kernel = nullptr;
};
struct Binary {
  Device* device = nullptr;
  void* library = nullptr;
  std::vector<std::unique_ptr<Function>> functions;
};

std::mutex lock;
std::set<const void*>& known() {
  static auto* all = new std::set<const void*>;  // functions of binaries that are loaded
  return *all;
}

constexpr uint64_t kMostBlocks = 65535;
constexpr size_t kStack = 256 << 10, kGuard = 4096;

struct Fiber {
  jmp_buf here;
  ucontext_t begin;
  char* stack = nullptr;
  bool fresh = true, waits = false;
  Dim3 thread{};
};

// Runs the items of one group after another. One for each thread that launches: kept, as its stacks are.
class Team {
 public:
  ~Team() {
    for (auto& fiber : fibers_) munmap(fiber->stack, kStack);
  }
  // False: some items wait at a barrier that others never reach.
  bool run(const Kernel& kernel, void* const* arguments, Dim3 blocks, Dim3 threads);

 private:
  void add();
  void go(Fiber* fiber);
  static void body();
  static void wait();

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_, waiting_;
  const Kernel* kernel_ = nullptr;
  void* const* arguments_ = nullptr;
  Item* item_ = nullptr;
  Fiber* now_ = nullptr;
  uint32_t begun_ = 0, all_ = 0;
  jmp_buf home_;
};
thread_local Team team;

// What a fiber does: items, until none is left to begin.
void Team::body() {
  for (;;) {
    Team& t = team;
    while (t.begun_ < t.all_) {
      const uint32_t at = t.begun_++;
      const Dim3& size = t.item_->threads;
      t.item_->thread = t.now_->thread = {at % size.x, at / size.x % size.y, at / size.x / size.y};
      t.kernel_->call(t.arguments_);
    }
    t.now_->waits = false;
    if (!_setjmp(t.now_->here)) _longjmp(t.home_, 1);
  }
}

void Team::wait() {
  Team& t = team;
  t.now_->waits = true;
  if (!_setjmp(t.now_->here)) _longjmp(t.home_, 1);
}

// Until the fiber waits at a barrier, or has no more items.
void Team::go(Fiber* fiber) {
  now_ = fiber;
  if (!_setjmp(home_)) {
    if (!fiber->fresh) _longjmp(fiber->here, 1);
    fiber->fresh = false;
    setcontext(&fiber->begin);
  }
  (now_->waits ? waiting_ : idle_).push_back(now_);
}

void Team::add() {
  auto made = std::make_unique<Fiber>();
  const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, how, -1, 0);
  if (stack == MAP_FAILED) abort();
  mprotect(stack, kGuard, PROT_NONE);  // below it
  made->stack = static_cast<char*>(stack);
  getcontext(&made->begin);
  made->begin.uc_stack.ss_sp = made->stack + kGuard;
  made->begin.uc_stack.ss_size = kStack - kGuard;
  made->begin.uc_link = nullptr;
  makecontext(&made->begin, body, 0);
  idle_.push_back(made.get());
  fibers_.push_back(std::move(made));
}

bool Team::run(const Kernel& kernel, void* const* arguments, Dim3 blocks, Dim3 threads) {
  kernel_ = &kernel, arguments_ = arguments, item_ = kernel.item();
  all_ = threads.x * threads.y * threads.z;
  item_->threads = threads, item_->blocks = blocks, item_->wait = wait;
  for (uint32_t z = 0; z < blocks.z; ++z)
    for (uint32_t y = 0; y < blocks.y; ++y)
      for (uint32_t x = 0; x < blocks.x; ++x) {
        item_->block = {x, y, z};
        begun_ = 0;
        while (begun_ < all_) {
          if (idle_.empty()) add();
          Fiber* next = idle_.back();
          idle_.pop_back();
          go(next);
        }
        while (!waiting_.empty()) {
          std::vector<Fiber*> come;
          come.swap(waiting_);
          if (come.size() != all_) return false;  // the others have ended; these fibers are of no more use
          for (Fiber* fiber : come) {
            item_->thread = fiber->thread;
            go(fiber);
          }
        }
      }
  return true;
}

Code check_function(const char* who, const void* handle) {
  std::lock_guard<std::mutex> guard(lock);
  if (known().count(handle)) return kGood;
  return refuse(kInvalidHandle, "%s: %p is no function of a loaded binary", who, handle);
}

// A library opened from its bytes.
void* open_bytes(const void* bytes, size_t size, std::string* words) {
  int file = memfd_create("ascend-stand-in", MFD_CLOEXEC);
  if (file < 0) return *words = strerror(errno), nullptr;
  for (size_t done = 0; done < size;) {
    ssize_t put = write(file, static_cast<const char*>(bytes) + done, size - done);
    if (put <= 0) return *words = strerror(errno), close(file), nullptr;
    done += size_t(put);
  }
  // The loader knows libraries by their paths, and the numbers of files come again: each path is written in another way.
  static std::atomic<uint32_t> numbers{0};
  std::string path = "/proc/self/fd/";
  for (uint32_t number = ++numbers; number; number >>= 1) path += number & 1 ? "./" : "/";
  void* library = dlopen((path + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) *words = dlerror();
  close(file);
  return library;
}

struct Option {
  int type;
  uint32_t value[4];
};
struct Options {
  const Option* options;
  size_t count;
};
constexpr int kMagic = 2;
constexpr uint32_t kCores = 0x43554245, kVectorCores = 0x41415246;

}  // namespace

ENTRY Code aclrtBinaryLoadFromData(const void* data, size_t size, const Options* options, void** out) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (!data || !size || !out) return refuse(kInvalidParameter, "aclrtBinaryLoadFromData: something is missing");
  for (size_t i = 0; options && i < options->count; ++i) {
    const Option& option = options->options[i];
    if (option.type == kMagic && option.value[0] != kCores && option.value[0] != kVectorCores)
      return refuse(kInvalidParameter, "aclrtBinaryLoadFromData: %#x is no kind of core", option.value[0]);
  }
  std::string words = "it is no binary of libacl_rtc.so";
  void* library = size > 64 && !memcmp(data, "\177ELF", 4) ? open_bytes(data, size, &words) : nullptr;
  if (!library) return refuse(kInvalidParameter, "aclrtBinaryLoadFromData: %s", words.c_str());
  auto* binary = new Binary;
  binary->device = context()->device;
  binary->library = library;
  *out = binary;
  return kGood;
}

ENTRY Code aclrtBinaryGetFunction(void* handle, const char* name, void** out) {
  CALL();
  auto* binary = static_cast<Binary*>(handle);
  if (!binary || !name || !out) return refuse(kInvalidParameter, "aclrtBinaryGetFunction: something is missing");
  void* found = dlsym(binary->library, (std::string(name) + "_of_simt").c_str());
  if (!found) return refuse(kInvalidParameter, "aclrtBinaryGetFunction: the binary has no kernel %s", name);
  auto made = std::make_unique<Function>();
  made->name = name;
  made->device = binary->device;
  made->kernel = static_cast<const Kernel*>(found);
  std::lock_guard<std::mutex> guard(lock);
  known().insert(made.get());
  *out = made.get();
  binary->functions.push_back(std::move(made));
  return kGood;
}

ENTRY Code aclrtBinaryUnLoad(void* handle) {
  CALL();
  auto* binary = static_cast<Binary*>(handle);
  if (!binary) return refuse(kInvalidParameter, "aclrtBinaryUnLoad: the binary is NULL");
  std::lock_guard<std::mutex> guard(lock);
  for (auto& function : binary->functions) known().erase(function.get());
  dlclose(binary->library);
  delete binary;
  return kGood;
}

ENTRY Code aclrtFunctionGetParamCount(const void* handle, size_t* count) {
  CALL();
  if (Code code = check_function(__func__, handle)) return code;
  if (!count) return refuse(kInvalidParameter, "aclrtFunctionGetParamCount: the result's place is NULL");
  *count = static_cast<const Function*>(handle)->kernel->parameters;
  return kGood;
}

ENTRY Code aclrtLaunchSIMTKernelWithArgsArray(void* handle, Dim3 blocks, Dim3 threads, size_t dynamic, void* stream,
                                              const void* configuration, void** arguments) {
  CALL();
  if (Code code = need_context(__func__)) return code;
  if (strncmp(chip(), "Ascend950", 9)) return refuse(kUnsupported, "%s: %s has no threads", __func__, chip());
  if (Code code = check_function(__func__, handle)) return code;
  const auto& function = *static_cast<const Function*>(handle);
  const Kernel& kernel = *function.kernel;
  const char* name = function.name.c_str();
  if (function.device != context()->device)
    return refuse(kInvalidHandle, "%s: kernel %s is of device %d", __func__, name, function.device->index);
  const uint64_t of_threads = uint64_t{threads.x} * threads.y * threads.z,
                 of_blocks = uint64_t{blocks.x} * blocks.y * blocks.z;
  if (!of_blocks || of_blocks > kMostBlocks)
    return refuse(kInvalidParameter, "%s: kernel %s in %llu blocks; 1 to 65535 are possible", __func__, name,
                  static_cast<unsigned long long>(of_blocks));
  if (!of_threads || of_threads > kernel.threads)
    return refuse(kInvalidParameter, "%s: kernel %s with %llu threads in a block; it is for %u at most", __func__, name,
                  static_cast<unsigned long long>(of_threads), kernel.threads);
  if (dynamic || configuration)
    return refuse(kUnsupported, "%s: the stand-in has no dynamic memory and no configurations", __func__);
  if (kernel.parameters && !arguments) return refuse(kInvalidParameter, "%s: %s has no arguments", __func__, name);
  // Values are copied now. Addresses are looked at now and where it runs, when their memory may be gone.
  std::vector<uint64_t> values(kernel.parameters);
  for (uint32_t i = 0; i < kernel.parameters; ++i) {
    memcpy(&values[i], arguments[i], kernel.sizes[i]);
    if (kernel.addresses[i] && values[i] && !resolve(reinterpret_cast<void*>(values[i]), 0))
      return refuse(kInvalidParameter, "%s: argument %u of kernel %s is no address of the device", __func__, i, name);
  }
  return enqueue(
      stream, name,
      [&kernel, name = function.name, values = std::move(values), blocks, threads]() mutable {
        std::vector<uint64_t> here = values;
        std::vector<void*> places;
        for (uint32_t i = 0; i < kernel.parameters; ++i) {
          if (kernel.addresses[i] && here[i]) {
            here[i] = reinterpret_cast<uint64_t>(resolve(reinterpret_cast<void*>(here[i]), 0));
            if (!here[i])
              return broken(kVectorException, text("%s: the memory of argument %u was freed", name.c_str(), i));
          }
          places.push_back(&here[i]);
        }
        if (team.run(kernel, places.data(), blocks, threads)) return Code(kGood);
        return broken(kVectorException, text("%s: a barrier that not all threads of a block reach", name.c_str()));
      },
      true);
}
