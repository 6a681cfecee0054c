// Kernels by libacl_rtc.so, in the C++ for threads (SIMT) that the 950 has; older chips run a kernel as one thread for each
// core, with vectors written out, and Causeway's kernels are no such text. docs/ascend.md says what is known of all this.
#include "code.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "acl.hpp"
#include "causeway/program_cache.hpp"
#include "device.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "profile.hpp"
#include "stream.hpp"

struct cw_program_t {
  ascend::Device* device = nullptr;
  void* handle = nullptr;  // aclrtBinHandle
  causeway::ProgramCache::Binary binary;  // what it was loaded from
  std::mutex mutex;
  std::vector<std::unique_ptr<cw_function_t>> functions;
};

struct cw_function_t {
  cw_program_t* program = nullptr;
  std::string name;
  void* function = nullptr;
  int64_t parameters = -1;  // not known: the runtime is older
};

namespace ascend {

namespace {

using causeway::ProgramCache;
constexpr uint32_t kMostArguments = 256;
constexpr uint64_t kMostBlocks = 65535;  // of a grid in all
// A kernel that does not say has 1024 threads a block at most. 8 KiB of a core's memory are the compiler's, 32 at least a cache's.
constexpr int64_t kMostThreads = 1024, kReserved = (8 + 32) << 10;

std::string architecture(int32_t index) { return "dav-" + std::to_string(attribute(index, kArchitecture)); }

cw_status info(int32_t index, cw_code_info* out) {
  Device* device = nullptr;
  TRY(find_device("code info", index, &device));
  cw_code_info found = {};
  found.struct_size = out->struct_size;
  found.language = CW_CODE_ASCEND_SIMT;
  found.flags = CW_CODE_SINGLE_VALUES;
  found.compute_units = static_cast<uint32_t>(attribute(index, kVectorCores));
  found.group_limit = static_cast<uint32_t>(std::min(attribute(index, kGroupLimit), kMostThreads));
  found.simd_width = static_cast<uint32_t>(attribute(index, kWarp));
  found.local_memory = static_cast<uint64_t>(std::max<int64_t>(attribute(index, kLocalMemory) - kReserved, 0));
  found.arithmetic =
      CW_BOOL | CW_UINT8 | CW_INT8 | CW_UINT16 | CW_INT16 | CW_UINT32 | CW_INT32 | CW_UINT64 | CW_INT64 | CW_FLOAT32;
  for (uint32_t& most : found.grid_limits) most = kMostBlocks;
  for (uint32_t& most : found.group_limits) most = found.group_limit;
  found.binaries = CW_BINARY_OWN;
  snprintf(found.driver, sizeof(found.driver), "CANN %s", cann_version().c_str());
  memcpy(out, &found, std::min<size_t>(out->struct_size, sizeof(found)));
  return CW_OK;
}

// In the folder CAUSEWAY_ASCEND_CACHE, or in the user's cache.
const ProgramCache& cache() {
  static const auto& made = *new ProgramCache(ProgramCache::folder(setting("cache").c_str(), "ascend"));
  return made;
}

// What a binary depends on besides its source: the chip, CANN's version, and the compiler's own file, as versions are not
// always told.
std::string reader_of(int32_t index) {
  struct stat file = {};
  stat(rtc.file.c_str(), &file);
  return "ascend\n" + architecture(index) + "\nCANN " + cann_version() + "\n" + std::to_string(file.st_size) + " " +
         std::to_string(file.st_mtime);
}

struct Source {  // a program of the compiler's, destroyed with this
  void* program = nullptr;
  ~Source() {
    if (program) rtc.destroy(&program);
  }
};

cw_status check_rtc(Status result, const char* function) {
  return result == kSuccess ? CW_OK : fail(CW_FAILED, "%s: %s", function, words_of(result).c_str());
}

cw_status compile(int32_t index, const char* source, const std::vector<std::string>& options,
                  ProgramCache::Binary* out) {
  Source made;
  TRY(check_rtc(rtc.create(&made.program, source, "kernel.asc", 0, nullptr, nullptr), "aclrtcCreateProg"));
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  const Status result = rtc.compile(made.program, static_cast<int>(words.size()), words.data());
  if (result != kSuccess) {
    size_t bytes = 0;
    rtc.log_size(made.program, &bytes);
    std::string log(bytes, '\0');
    if (bytes) rtc.log(made.program, log.data());
    return fail(CW_INVALID, "the source does not build for device %d (%s): %s", index, words_of(result).c_str(),
                log.c_str());
  }
  size_t bytes = 0;
  TRY(check_rtc(rtc.binary_size(made.program, &bytes), "aclrtcGetBinDataSize"));
  out->resize(bytes);
  return check_rtc(rtc.binary(made.program, reinterpret_cast<char*>(out->data())), "aclrtcGetBinData");
}

cw_status load(Device& device, ProgramCache::Binary binary, cw_program* out) {
  const BinaryOption magic = {kBinaryMagic, {kMagicVectorCore}};
  const BinaryOptions options = {&magic, 1};
  void* handle = nullptr;
  TRY(check(acl.binary_load(binary.data(), binary.size(), &options, &handle), "aclrtBinaryLoadFromData"));
  *out = new cw_program_t;
  (*out)->device = &device, (*out)->handle = handle, (*out)->binary = std::move(binary);
  return CW_OK;
}

cw_status build(int32_t index, const char* source, const char* given, cw_program* out) {
  Device* device = nullptr;
  TRY(find_device("build", index, &device));
  // No contraction: what the source does not write as FMA is rounded twice, as on every other device.
  std::vector<std::string> options = {"--npu-arch=" + architecture(index), "--enable-simt", "-ffp-contract=off", "-w"};
  for (const char* at = given; at && *at;) {
    const size_t length = strcspn(at, " ");
    if (length) options.emplace_back(at, length);
    at += length + (at[length] == ' ');
  }
  std::string key = reader_of(index) + "\n";
  for (const std::string& option : options) key += option + "\n";
  key += source;
  ProgramCache::Binary binary = cache().find(key);
  if (!binary.empty() && load(*device, binary, out) == CW_OK) return CW_OK;
  TRY(compile(index, source, options, &binary));
  TRY(load(*device, binary, out));
  return cache().keep(key, binary, host.log, "CAUSEWAY_ASCEND_CACHE"), CW_OK;
}

cw_status build_binary(int32_t index, const void* given, uint64_t bytes, const char*, cw_program* out) {
  Device* device = nullptr;
  TRY(find_device("build_binary", index, &device));
  ProgramCache::Binary binary;
  // Only what `binary` gave: a runtime that is handed other bytes may not survive them.
  if (ProgramCache::unseal(reader_of(index), given, bytes, &binary) <= 0)
    return fail(CW_INVALID, "the binary is damaged, or of another chip or CANN than those of device %d", index);
  return load(*device, std::move(binary), out);
}

cw_status binary(cw_program program, void* out, uint64_t* bytes) {
  if (!program) return fail(CW_INVALID, "binary: there is no program");
  return ProgramCache::hand_out(ProgramCache::seal(reader_of(program->device->index), program->binary), out, bytes),
         CW_OK;
}

cw_status release(cw_program program) {
  if (!program) return fail(CW_INVALID, "release: there is no program");
  Device* device = nullptr;
  TRY(find_device("release", program->device->index, &device));
  const Status ended = acl.binary_unload(program->handle);
  delete program;
  return check(ended, "aclrtBinaryUnLoad");
}

cw_status function(cw_program program, const char* name, cw_function* out) {
  if (!program) return fail(CW_INVALID, "function: there is no program");
  Device* device = nullptr;
  TRY(find_device("function", program->device->index, &device));
  void* found = nullptr;
  if (const Status result = acl.binary_function(program->handle, name, &found); result != kSuccess || !found) {
    const cw_status status = check(result, "aclrtBinaryGetFunction");
    if (status == CW_DEVICE_LOST) return status;
    return fail(CW_INVALID, "the program has no kernel %s: %s", name, std::string(last_error()).c_str());
  }
  auto made = std::make_unique<cw_function_t>();
  made->program = program, made->name = name, made->function = found;
  if (size_t count = 0; acl.parameter_count && acl.parameter_count(found, &count) == kSuccess)
    made->parameters = static_cast<int64_t>(count);
  std::lock_guard<std::mutex> lock(program->mutex);
  program->functions.push_back(std::move(made));
  return *out = program->functions.back().get(), CW_OK;
}

cw_status launch(cw_function f, const uint32_t grid[3], const uint32_t group[3], const cw_code_arg* args, uint32_t n,
                 cw_stream handle) {
  if (!f) return fail(CW_INVALID, "launch: there is no function");
  if (n > kMostArguments || (f->parameters >= 0 && n != f->parameters))
    return fail(CW_INVALID, "kernel %s has %lld parameters, and %u were given", f->name.c_str(),
                static_cast<long long>(f->parameters), n);
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("launch", f->program->device->index, &device));
  TRY(find_stream("launch", *device, handle, &stream));
  const uint64_t blocks = uint64_t{grid[0]} * grid[1] * grid[2];
  if (blocks == 0) return CW_OK;
  if (blocks > kMostBlocks)
    return fail(CW_INVALID, "kernel %s in %llu groups; a grid has 65535 at most", f->name.c_str(),
                static_cast<unsigned long long>(blocks));
  void* places[kMostArguments];
  for (uint32_t i = 0; i < n; ++i)
    places[i] = const_cast<void*>(args[i].bytes ? args[i].v.value : static_cast<const void*>(&args[i].v.address));
  const Numbered numbered(*device, handle);
  return check(acl.launch_simt(f->function, {grid[0], grid[1], grid[2]}, {group[0], group[1], group[2]}, 0, stream,
                               nullptr, places),
               "aclrtLaunchSIMTKernelWithArgsArray");
}

}  // namespace

std::string words_for_code() {
  if (const char* words = open_acl(); *words) return words;
  int32_t devices = 0;
  if (cw_status status = device_count(&devices)) return (void)status, last_error();
  if (!devices) return "there is no device to compile for";
  if (attribute(0, kWarp) <= 0)
    return soc_name() + " has no threads (SIMT), which portable kernels need: the 950 is the first that has";
  if (!acl.binary_load || !acl.binary_unload || !acl.binary_function || !acl.launch_simt)
    return "this CANN cannot launch kernels of threads: it has no aclrtLaunchSIMTKernelWithArgsArray";
  return open_rtc();
}

std::string notes_for_code() {
  const std::string words = words_for_code();
  return words.empty() ? "portable kernels are compiled by " + rtc.file : "no portable kernels: " + words;
}

const cw_code_v1 code_table = {sizeof(cw_code_v1), 0, info, build, release, function, launch, build_binary, binary};

}  // namespace ascend
