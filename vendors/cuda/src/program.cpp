#include "program.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "causeway/program_cache.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "stream.hpp"

struct cw_program_t {
  cuda::Device* device = nullptr;
  cuda::Module module = nullptr;
  causeway::ProgramCache::Binary binary;  // what it was loaded from
  std::mutex mutex;
  std::vector<cw_function_t*> functions;
};

struct cw_function_t {
  cw_program_t* program = nullptr;
  std::string name;
  cuda::Function function = nullptr;
  int parameters = -1;  // not known: the driver is older than CUDA 12.4
};

namespace cuda {

namespace {

using causeway::ProgramCache;
constexpr uint32_t kMostArguments = 256;

cw_status info(int32_t index, cw_code_info* out) {
  Device* device = nullptr;
  TRY(find_device("code info", index, &device));
  cw_code_info found = {};
  found.struct_size = out->struct_size;
  found.language = CW_CODE_CUDA_C;
  found.compute_units = static_cast<uint32_t>(device->attribute(kMultiprocessors));
  found.group_limit = static_cast<uint32_t>(device->attribute(kMaxThreadsPerBlock));
  found.simd_width = static_cast<uint32_t>(device->attribute(kWarpSize));
  found.local_memory = static_cast<uint64_t>(device->attribute(kSharedMemoryPerBlock));
  found.arithmetic = CW_BOOL | CW_UINT8 | CW_INT8 | CW_UINT16 | CW_INT16 | CW_UINT32 | CW_INT32 | CW_UINT64 | CW_INT64 |
                     CW_FLOAT32 | CW_FLOAT64;
  found.grid_limits[0] = 0x7fffffff, found.grid_limits[1] = found.grid_limits[2] = 65535;
  constexpr int sides[] = {kMaxBlockDimX, kMaxBlockDimY, kMaxBlockDimZ};
  for (int d = 0; d < 3; ++d) found.group_limits[d] = static_cast<uint32_t>(device->attribute(sides[d]));
  found.argument_limit = 4096;  // of every GPU; newer ones take more
  found.binaries = CW_BINARY_OWN | CW_BINARY_ARCHITECTURE;  // a cubin
  if (int version = 0; cu.driver_version(&version) == kSuccess)
    snprintf(found.driver, sizeof(found.driver), "%d", version);
  memcpy(out, &found, std::min<size_t>(out->struct_size, sizeof(found)));
  return CW_OK;
}

// In the folder CAUSEWAY_NVIDIA_CACHE, or in the user's cache.
const ProgramCache& cache() {
  static const auto& made = *new ProgramCache(ProgramCache::folder(setting("cache").c_str(), "nvidia"));
  return made;
}

struct Nvrtc_ {  // destroys a program of NVRTC
  struct Nvrtc* program = nullptr;
  ~Nvrtc_() {
    if (program) nvrtc.destroy(&program);
  }
};

cw_status check_nvrtc(int result, const char* function) {
  return result ? fail(CW_FAILED, "%s: %s", function, nvrtc.error_text(result)) : CW_OK;
}

// What NVRTC is to compile for: the device's own code, or, where the device is newer than NVRTC, PTX of the newest
// architecture that it knows, which the driver translates.
struct Target {
  std::string option;
  bool ptx = false;
};

cw_status target_of(const Device& device, Target* out) {
  int count = 0, best = 0;
  TRY(check_nvrtc(nvrtc.architecture_count(&count), "nvrtcGetNumSupportedArchs"));
  std::vector<int> known(static_cast<size_t>(count));
  TRY(check_nvrtc(nvrtc.architectures(known.data()), "nvrtcGetSupportedArchs"));
  const int own = device.major * 10 + device.minor;
  for (const int architecture : known)
    if (architecture <= own) best = std::max(best, architecture);
  if (!best) {
    int major = 0, minor = 0;
    nvrtc.version(&major, &minor);
    return fail(CW_FAILED, "NVRTC %d.%d compiles for sm_%d and later, device %d is sm_%d: an earlier NVRTC is needed",
                major, minor, *std::min_element(known.begin(), known.end()), device.index, own);
  }
  out->ptx = best != own;
  out->option = (out->ptx ? "--gpu-architecture=compute_" : "--gpu-architecture=sm_") + std::to_string(best);
  return CW_OK;
}

cw_status load(const ProgramCache::Binary& binary, Module* out) {
  const Result result = cu.module_load(out, binary.data());
  if (result != kNoBinary && result != kUnsupportedPtx && result != kInvalidImage)
    return check(result, "cuModuleLoadData");
  int driver = 0, major = 0, minor = 0;
  cu.driver_version(&driver);
  nvrtc.version(&major, &minor);
  const cw_status status = check(result, "cuModuleLoadData");
  return fail(status,
              "%s: the driver is for CUDA %d.%d, the kernel was compiled by NVRTC %d.%d; CAUSEWAY_NVIDIA_NVRTC names "
              "another",
              last_error(), driver / 1000, driver % 1000 / 10, major, minor);
}

cw_status compile(const Device& device, const char* source, const std::vector<const char*>& options, bool ptx,
                  ProgramCache::Binary* out) {
  Nvrtc_ made;
  TRY(check_nvrtc(nvrtc.create(&made.program, source, "kernel.cu", 0, nullptr, nullptr), "nvrtcCreateProgram"));
  const int result = nvrtc.compile(made.program, static_cast<int>(options.size()), options.data());
  if (result) {
    size_t size = 0;
    nvrtc.log_size(made.program, &size);
    std::string log(size, '\0');
    if (size) nvrtc.log(made.program, log.data());
    return fail(CW_INVALID, "the source does not build for device %d (%s): %s", device.index, nvrtc.error_text(result),
                log.c_str());
  }
  size_t size = 0;
  if (ptx) {  // ends with a NUL
    TRY(check_nvrtc(nvrtc.ptx_size(made.program, &size), "nvrtcGetPTXSize"));
    out->resize(size);
    return check_nvrtc(nvrtc.ptx(made.program, reinterpret_cast<char*>(out->data())), "nvrtcGetPTX");
  }
  TRY(check_nvrtc(nvrtc.cubin_size(made.program, &size), "nvrtcGetCUBINSize"));
  out->resize(size);
  return check_nvrtc(nvrtc.cubin(made.program, reinterpret_cast<char*>(out->data())), "nvrtcGetCUBIN");
}

cw_status build(int32_t index, const char* source, const std::vector<const char*>& given, cw_program* out) {
  Device* device = nullptr;
  TRY(find_device("build", index, &device));
  if (const char* words = open_compiler(); *words) return fail(CW_FAILED, "%s", words);
  int version[2] = {0, 0};
  nvrtc.version(&version[0], &version[1]);
  Target target;
  TRY(target_of(*device, &target));
  // No contraction: what the source does not write as FMA is rounded twice, as on every other device.
  std::vector<const char*> options = {target.option.c_str(), "--std=c++17", "--fmad=false", "-w"};
  options.insert(options.end(), given.begin(), given.end());
  std::string key = "nvrtc " + std::to_string(version[0]) + "." + std::to_string(version[1]) + "\n";
  for (const char* option : options) key += std::string(option) + "\n";
  key += source;
  ProgramCache::Binary binary = cache().find(key);
  Module module = nullptr;
  if (binary.empty() || cu.module_load(&module, binary.data()) != kSuccess) {
    TRY(compile(*device, source, options, target.ptx, &binary));
    TRY(load(binary, &module));
    cache().keep(key, binary, host.log, "CAUSEWAY_NVIDIA_CACHE");
  }
  *out = new cw_program_t;
  (*out)->device = device;
  (*out)->module = module;
  (*out)->binary = std::move(binary);
  return CW_OK;
}

cw_status build(int32_t index, const char* source, const char* given, cw_program* out) {
  std::vector<const char*> options;
  if (given && *given) options.push_back(given);
  return build(index, source, options, out);
}

std::string reader_of(const Device& device) {
  return "nvidia\nsm_" + std::to_string(device.major) + std::to_string(device.minor);
}

// Whether all of a cubin is there, by its own tables: the driver is not told where it ends.
bool is_whole_cubin(const unsigned char* data, uint64_t bytes) {
  struct {  // the end of ELF64's header
    uint64_t sections;
    uint32_t flags;
    uint16_t header, program_size, programs, section_size, count, names;
  } end;
  if (bytes < 64 || memcmp(data,
                           "\x7f"
                           "ELF\2",
                           5) != 0)
    return false;
  memcpy(&end, data + 40, sizeof(end));
  return end.sections <= bytes && uint64_t{end.section_size} * end.count <= bytes - end.sections;
}

cw_status build_binary(int32_t index, const void* given, uint64_t bytes, const char*, cw_program* out) {
  Device* device = nullptr;
  TRY(find_device("build_binary", index, &device));
  const auto* data = static_cast<const unsigned char*>(given);
  ProgramCache::Binary binary;
  const int sealed = ProgramCache::unseal(reader_of(*device), given, bytes, &binary);
  if (sealed < 0) return fail(CW_INVALID, "the binary is damaged, or of another GPU than device %d", index);
  if (!sealed) {  // a cubin, or PTX, which is text
    binary.assign(data, data + bytes);
    binary.push_back(0);
    if (!is_whole_cubin(data, bytes) && !strstr(reinterpret_cast<const char*>(binary.data()), ".version"))
      return fail(CW_INVALID, "build_binary: %llu bytes that are neither a whole cubin nor PTX",
                  static_cast<unsigned long long>(bytes));
  }
  Module module = nullptr;
  const Result result = cu.module_load(&module, binary.data());
  if (result == kNoBinary || result == kUnsupportedPtx || result == kInvalidImage || result == kInvalidPtx) {
    check(result, "cuModuleLoadData");
    return fail(CW_INVALID, "device %d takes no such binary: %s", index, std::string(last_error()).c_str());
  }
  TRY(check(result, "cuModuleLoadData"));
  *out = new cw_program_t;
  (*out)->device = device;
  (*out)->module = module;
  (*out)->binary = std::move(binary);
  return CW_OK;
}

cw_status binary(cw_program program, void* out, uint64_t* bytes) {
  if (!program) return fail(CW_INVALID, "binary: there is no program");
  return ProgramCache::hand_out(ProgramCache::seal(reader_of(*program->device), program->binary), out, bytes), CW_OK;
}

cw_status release(cw_program program) {
  if (!program) return fail(CW_INVALID, "release: there is no program");
  Device* device = nullptr;
  TRY(find_device("release", program->device->index, &device));
  for (cw_function_t* function : program->functions) delete function;
  const Result ended = cu.module_unload(program->module);
  delete program;
  return check_freed(ended, "cuModuleUnload");
}

cw_status function(cw_program program, const char* name, cw_function* out) {
  if (!program) return fail(CW_INVALID, "function: there is no program");
  Device* device = nullptr;
  TRY(find_device("function", program->device->index, &device));
  Function found = nullptr;
  const Result result = cu.module_function(&found, program->module, name);
  if (result == kNotFound) return fail(CW_INVALID, "the program has no kernel %s", name);
  TRY(check(result, "cuModuleGetFunction"));
  auto* made = new cw_function_t;
  made->program = program;
  made->name = name;
  made->function = found;
  size_t offset = 0, size = 0;
  if (cu.parameter_info)
    for (made->parameters = 0; cu.parameter_info(found, static_cast<size_t>(made->parameters), &offset, &size) == 0;)
      ++made->parameters;
  std::lock_guard<std::mutex> lock(program->mutex);
  program->functions.push_back(made);
  return *out = made, CW_OK;
}

cw_status launch(cw_function f, const uint32_t grid[3], const uint32_t group[3], const cw_code_arg* args, uint32_t n,
                 cw_stream handle) {
  if (!f) return fail(CW_INVALID, "launch: there is no function");
  if (n > kMostArguments || (f->parameters >= 0 && n != static_cast<uint32_t>(f->parameters)))
    return fail(CW_INVALID, "kernel %s has %d parameters, and %u were given", f->name.c_str(), f->parameters, n);
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("launch", f->program->device->index, &device));
  TRY(find_stream("launch", *device, handle, &stream));
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return CW_OK;
  void* places[kMostArguments];
  for (uint32_t i = 0; i < n; ++i)
    places[i] = const_cast<void*>(args[i].bytes ? args[i].v.value : static_cast<const void*>(&args[i].v.address));
  const Result result =
      cu.launch(f->function, grid[0], grid[1], grid[2], group[0], group[1], group[2], 0, stream, places, nullptr);
  if (result == kInvalidValue || result == kLaunchOutOfResources)
    return fail(CW_INVALID, "kernel %s cannot run in a grid of %u x %u x %u groups of %u x %u x %u items",
                f->name.c_str(), grid[0], grid[1], grid[2], group[0], group[1], group[2]);
  return check(result, "cuLaunchKernel");
}

}  // namespace

cw_status kernel_of(int32_t index, const char* source, const std::vector<std::string>& options, const char* name,
                    unsigned bytes, Function* out) {
  static std::mutex mutex;
  static auto& functions = *new std::map<std::vector<std::string>, Function>;
  static auto& programs = *new std::map<std::vector<std::string>, cw_program>;
  std::vector<std::string> key = options;
  key.push_back(std::to_string(index) + " " + std::to_string(reinterpret_cast<uintptr_t>(source)));
  std::lock_guard<std::mutex> lock(mutex);
  cw_program& program = programs[key];
  key.push_back(name);
  if (const auto known = functions.find(key); known != functions.end()) return *out = known->second, CW_OK;
  if (!program) {
    std::vector<const char*> given;
    for (const std::string& option : options) given.push_back(option.c_str());
    TRY(build(index, source, given, &program));
  }
  Function found = nullptr;
  TRY(check(cu.module_function(&found, program->module, name), "cuModuleGetFunction"));
  if (bytes > 48 << 10) {  // beyond what every kernel may have
    const Result given = cu.function_set(found, kMostSharedMemory, static_cast<int>(bytes));
    if (given == kInvalidValue) return fail(CW_UNSUPPORTED, "%s needs %u bytes of shared memory", name, bytes);
    TRY(check(given, "cuFuncSetAttribute"));
  }
  return *out = functions[key] = found, CW_OK;
}

const cw_code_v1 code_table = {sizeof(cw_code_v1), 0, info, build, release, function, launch, build_binary, binary};

}  // namespace cuda
