#include "program.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>

#include "causeway/program_cache.hpp"
#include "error.hpp"
#include "library.hpp"
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
  found.simd_width = static_cast<uint32_t>(device->warp);
  found.local_memory = static_cast<uint64_t>(device->attribute(kSharedMemoryPerBlock));
  found.arithmetic = CW_BOOL | CW_UINT8 | CW_INT8 | CW_UINT16 | CW_INT16 | CW_UINT32 | CW_INT32 | CW_UINT64 | CW_INT64 |
                     CW_FLOAT32 | CW_FLOAT64;
  found.grid_limits[0] =
      static_cast<uint32_t>(std::min<uint64_t>(0x7fffffff, kMostItems / std::max(found.group_limit, 1u)));
  found.grid_limits[1] = found.grid_limits[2] = 65535;
  constexpr int sides[] = {kMaxBlockDimX, kMaxBlockDimY, kMaxBlockDimZ};
  for (int d = 0; d < 3; ++d) found.group_limits[d] = static_cast<uint32_t>(device->attribute(sides[d]));
  found.argument_limit = 4096;  // of every GPU; newer ones take more
  found.binaries = CW_BINARY_OWN | CW_BINARY_ARCHITECTURE;  // a cubin, a code object
  if (int version = 0; cu.driver_version(&version) == kSuccess)
    snprintf(found.driver, sizeof(found.driver), "%d", version);
  memcpy(out, &found, std::min<size_t>(out->struct_size, sizeof(found)));
  return CW_OK;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(toupper(static_cast<unsigned char>(c)));
  return text;
}

// Which compiler made a program: its version, and for HIP, whose says the same for years, the release in its file's name.
std::string compiler_identity() {
  int major = 0, minor = 0;
  rtc.version(&major, &minor);
  std::string text = KIN_COMPILER " " + std::to_string(major) + "." + std::to_string(minor);
  char* file = realpath(file_of_function(reinterpret_cast<void*>(rtc.version)).c_str(), nullptr);
  if (file) text += std::string(" ") + (strrchr(file, '/') ? strrchr(file, '/') + 1 : file);
  free(file);
  return text;
}

// In the folder of the setting `cache`, or in the user's cache.
const ProgramCache& cache() {
  static const auto& made = *new ProgramCache(ProgramCache::folder(setting("cache").c_str(), KIN_VENDOR));
  return made;
}

struct Compiled {  // destroys a program of the compiler's
  CompilerProgram program = nullptr;
  ~Compiled() {
    if (program) rtc.destroy(&program);
  }
};

cw_status load(const ProgramCache::Binary& binary, Module* out) {
  const Result result = cu.module_load(out, binary.data());
  if (result != kNoBinary && result != kUnsupportedPtx && result != kInvalidImage)
    return check(result, symbols.module_load);
  int driver = 0, major = 0, minor = 0;
  cu.driver_version(&driver);
  rtc.version(&major, &minor);
  const cw_status status = check(result, symbols.module_load);
  return fail(status,
              "%s: the driver is for " KIN_NAME " %s, the kernel was compiled by " KIN_COMPILER " %d.%d; " KIN_SETTING
              "%s names another",
              last_error(), kin::version_text(driver).c_str(), major, minor, upper(kin::compiler_places().key).c_str());
}

cw_status compile(const Device& device, const char* source, const std::vector<const char*>& options,
                  const kin::Target& target, ProgramCache::Binary* out) {
  Compiled made;
  TRY(check_compiler(rtc.create(&made.program, source, "kernel.cu", 0, nullptr, nullptr), compiler_symbols.create));
  const int result = rtc.compile(made.program, static_cast<int>(options.size()), options.data());
  if (result) {
    size_t size = 0;
    rtc.log_size(made.program, &size);
    std::string log(size, '\0');
    if (size) rtc.log(made.program, log.data());
    return fail(CW_INVALID, "the source does not build for device %d (%s): %s", device.index, rtc.error_text(result),
                log.c_str());
  }
  return kin::code_of(made.program, target, out);
}

cw_status build(int32_t index, const char* source, const std::vector<const char*>& given, cw_program* out) {
  Device* device = nullptr;
  TRY(find_device("build", index, &device));
  if (const char* words = open_compiler(); *words) return fail(CW_FAILED, "%s", words);
  kin::Target target;
  TRY(kin::target_of(*device, &target));
  std::vector<const char*> options;
  for (const std::string& option : target.options) options.push_back(option.c_str());
  options.insert(options.end(), given.begin(), given.end());
  std::string key = compiler_identity() + "\n";
  for (const char* option : options) key += std::string(option) + "\n";
  key += source;
  ProgramCache::Binary binary = cache().find(key);
  Module module = nullptr;
  if (binary.empty() || cu.module_load(&module, binary.data()) != kSuccess) {
    TRY(compile(*device, source, options, target, &binary));
    TRY(load(binary, &module));
    cache().keep(key, binary, host.log, KIN_SETTING "CACHE");
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

std::string reader_of(const Device& device) { return KIN_VENDOR "\n" + device.architecture; }

cw_status build_binary(int32_t index, const void* given, uint64_t bytes, const char*, cw_program* out) {
  Device* device = nullptr;
  TRY(find_device("build_binary", index, &device));
  const auto* data = static_cast<const unsigned char*>(given);
  ProgramCache::Binary binary;
  const int sealed = ProgramCache::unseal(reader_of(*device), given, bytes, &binary);
  if (sealed < 0) return fail(CW_INVALID, "the binary is damaged, or of another GPU than device %d", index);
  if (!sealed) {
    binary.assign(data, data + bytes);
    binary.push_back(0);  // where it is text
    if (!kin::is_whole(data, bytes))
      return fail(CW_INVALID, "build_binary: %llu bytes that are no whole program for " KIN_NAME,
                  static_cast<unsigned long long>(bytes));
  }
  Module module = nullptr;
  const Result result = cu.module_load(&module, binary.data());
  if (result == kNoBinary || result == kUnsupportedPtx || result == kInvalidImage || result == kInvalidPtx) {
    check(result, symbols.module_load);
    return fail(CW_INVALID, "device %d takes no such binary: %s", index, std::string(last_error()).c_str());
  }
  TRY(check(result, symbols.module_load));
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
  return check_freed(ended, symbols.module_unload);
}

cw_status function(cw_program program, const char* name, cw_function* out) {
  if (!program) return fail(CW_INVALID, "function: there is no program");
  Device* device = nullptr;
  TRY(find_device("function", program->device->index, &device));
  Function found = nullptr;
  const Result result = cu.module_function(&found, program->module, name);
  if (result == kNotFound) return fail(CW_INVALID, "the program has no kernel %s", name);
  TRY(check(result, symbols.module_function));
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
  return check(result, symbols.launch);
}

}  // namespace

cw_status check_compiler(int result, const char* function) {
  return result ? fail(CW_FAILED, "%s: %s", function, rtc.error_text(result)) : CW_OK;
}

cw_status read_code(CompilerProgram program, int (*size_of)(CompilerProgram, size_t*),
                    int (*code)(CompilerProgram, char*), std::vector<unsigned char>* out) {
  size_t size = 0;
  TRY(check_compiler(size_of(program, &size), "the size of the compiled program"));
  out->resize(size);
  return check_compiler(code(program, reinterpret_cast<char*>(out->data())), "the compiled program");
}

bool is_whole_elf(const unsigned char* data, uint64_t bytes) {
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
  TRY(check(cu.module_function(&found, program->module, name), symbols.module_function));
  if (bytes > 48 << 10) {  // beyond what every kernel may have
    const Result given = cu.function_set(found, kMostSharedMemory, static_cast<int>(bytes));
    if (given == kInvalidValue) return fail(CW_UNSUPPORTED, "%s needs %u bytes of shared memory", name, bytes);
    TRY(check(given, symbols.function_set));
  }
  return *out = functions[key] = found, CW_OK;
}

const cw_code_v1 code_table = {sizeof(cw_code_v1), 0, info, build, release, function, launch, build_binary, binary};

}  // namespace cuda
