#include "program.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "causeway/dot.hpp"
#include "causeway/program_cache.hpp"
#include "error.hpp"
#include "launch.hpp"

namespace opencl {

namespace {

using causeway::ProgramCache;

template <typename T>
T value_of(cl_device_id device, cl_device_info what) {
  T value = {};
  cl.clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return value;
}

// OpenCL 2.1 and later, where the runtime says which versions of SPIR-V it reads.
bool takes_spirv(const Device& device) {
  return cl.clCreateProgramWithIL && device_text(device.id, CL_DEVICE_IL_VERSION).find("SPIR-V") != std::string::npos;
}

bool is_pocl(const Device& device) {
  return device_text(device.id, CL_DEVICE_VERSION).find("PoCL") != std::string::npos;
}

// PoCL's compiler is clang, and it compiles for the CPU that LLVM knows, which may be an older one than this.
bool is_pocl_on_cpu(const Device& device) {
  return is_pocl(device) && value_of<cl_device_type>(device.id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU;
}

uint32_t dots(const Device& device) { return is_pocl_on_cpu(device) ? causeway::cpu_dots() : 0; }

// clang makes vectors of 256 bits on CPUs with AVX-512, as the first of them slow down with more. Those with VBMI2, of Ice
// Lake, Zen 4 and later, do not.
bool is_wide() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512vbmi2");
#else
  return false;
#endif
}

std::string cpu_options(const Device& device) {
  if (!is_pocl_on_cpu(device)) return {};
  return causeway::dot_options(causeway::cpu_dots()) + (is_wide() ? " -DCW_WIDE" : "");
}

// Mesa's driver for CPUs leaves all loops of an item, those within others too, after 65,535 turns altogether, without a
// word. So it gets a GPU's kernels, whose items do little each.
bool leaves_loops(const Device& device) { return device_text(device.id, CL_DEVICE_NAME).rfind("llvmpipe", 0) == 0; }

// Mesa's compiler takes x * 0 and 0 / x for 0, whatever x is.
bool folds_zero(const Device& device) {
  char name[64] = {};
  cl.clGetPlatformInfo(value_of<cl_platform_id>(device.id, CL_DEVICE_PLATFORM), CL_PLATFORM_NAME, sizeof(name) - 1,
                       name, nullptr);
  return strcmp(name, "rusticl") == 0;
}

// CAUSEWAY_OPENCL_IN_TURN=0 takes a CPU for a GPU: what is made for those can be tested without one. Long loops are never
// for a device that leaves them.
bool runs_in_turn(const Device& device) {
  const char* turn = host.setting ? host.setting("in_turn") : nullptr;
  const bool asked = turn && *turn && strcmp(turn, "0") != 0;
  if (leaves_loops(device)) {
    static std::atomic<bool> said{false};
    if (asked && host.log && !said.exchange(true))
      host.log(2,
               "opencl: CAUSEWAY_OPENCL_IN_TURN=1 is not followed: this driver leaves loops after "
               "65,535 turns without a word, and kernels in turn have long ones. Unset it");
    return false;
  }
  return turn && *turn ? asked : (value_of<cl_device_type>(device.id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
}

cw_status info(int32_t index, cw_code_info* out) {
  Device* device = nullptr;
  if (cw_status status = find_device("code info", index, &device)) return status;
  cw_code_info found = {};
  found.struct_size = out->struct_size;
  found.language = CW_CODE_OPENCL_C;
  if (runs_in_turn(*device)) found.flags |= CW_CODE_IN_TURN;
  if (!(value_of<cl_device_fp_config>(device->id, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_DENORM))
    found.flags |= CW_CODE_FLUSHES;
  if (device->memory == Memory::buffer) found.flags |= CW_CODE_SPLIT_POINTERS;
  found.flags |= dots(*device);
  found.compute_units = value_of<cl_uint>(device->id, CL_DEVICE_MAX_COMPUTE_UNITS);
  found.group_limit = static_cast<uint32_t>(value_of<size_t>(device->id, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  found.simd_width = value_of<cl_uint>(device->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
  found.local_memory = value_of<cl_ulong>(device->id, CL_DEVICE_LOCAL_MEM_SIZE);
  found.arithmetic =
      CW_BOOL | CW_UINT8 | CW_INT8 | CW_UINT16 | CW_INT16 | CW_UINT32 | CW_INT32 | CW_UINT64 | CW_INT64 | CW_FLOAT32;
  if (value_of<cl_device_fp_config>(device->id, CL_DEVICE_DOUBLE_FP_CONFIG)) found.arithmetic |= CW_FLOAT64;
  size_t items[8] = {};
  if (value_of<cl_uint>(device->id, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS) <= 8)
    cl.clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(items), items, nullptr);
  for (int d = 0; d < 3; ++d)
    found.group_limits[d] = static_cast<uint32_t>(std::min<size_t>(items[d], found.group_limit));
  if (leaves_loops(*device)) found.loop_limit = 65535;
  found.binaries = CW_BINARY_OWN;
  if (takes_spirv(*device)) found.binaries |= CW_BINARY_SPIRV;
  snprintf(found.driver, sizeof(found.driver), "%s", device_text(device->id, CL_DRIVER_VERSION).c_str());
  memcpy(out, &found, std::min<size_t>(out->struct_size, sizeof(found)));
  return CW_OK;
}

std::string build_log(cl_program program, cl_device_id device) {
  size_t size = 0;
  cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  if (size) cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  log.resize(strlen(log.c_str()));
  return log.empty() ? "the compiler gave no words" : log;
}

// In the folder CAUSEWAY_OPENCL_CACHE, or in the user's cache.
const ProgramCache& cache() {
  static const auto& made =
      *new ProgramCache(ProgramCache::folder(host.setting ? host.setting("cache") : nullptr, "opencl"));
  return made;
}

// PoCL keeps what it builds itself: a program linked with its functions, and each kernel for the size of groups that it is
// launched with. Asked for a program's binary, it builds each kernel once more, for groups of any size. A binary of the
// compiled, not linked program has nothing of that, but links anew in each process, for which PoCL first reads all its
// functions: two thirds of the time that ResNet-18's file took to load.
bool keeps_itself(const Device& device) { return is_pocl(device); }

// The caller's options, and what is said to every source.
std::string all_options(const Device& device, const char* options) {
  return (options ? options : "") + cpu_options(device) + (folds_zero(device) ? " -DCW_FOLDS_ZERO" : "");
}

// The program of an earlier process, or NULL: a driver may refuse what it wrote itself.
cl_program from_cache(const Device& device, const std::string& key, const char* options) {
  const std::vector<unsigned char> binary = cache().find(key);
  if (binary.empty()) return nullptr;
  const unsigned char* data = binary.data();
  const size_t size = binary.size();
  cl_int error = CL_SUCCESS, loaded = CL_SUCCESS;
  cl_program program = cl.clCreateProgramWithBinary(context(), 1, &device.id, &size, &data, &loaded, &error);
  if (error != CL_SUCCESS || !program) return nullptr;
  if (cl.clBuildProgram(program, 1, &device.id, options, nullptr, nullptr) == CL_SUCCESS) return program;
  cl.clReleaseProgram(program);
  return nullptr;
}

// The binary for `device`; the context may have more devices, and a program has a place for each.
std::vector<unsigned char> binary_of(cl_program program, cl_device_id device) {
  cl_uint count = 0;
  if (cl.clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof(count), &count, nullptr) != CL_SUCCESS) return {};
  std::vector<cl_device_id> ids(count);
  std::vector<size_t> sizes(count);
  cl.clGetProgramInfo(program, CL_PROGRAM_DEVICES, count * sizeof(cl_device_id), ids.data(), nullptr);
  cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, count * sizeof(size_t), sizes.data(), nullptr);
  std::vector<std::vector<unsigned char>> all(count);
  std::vector<unsigned char*> places(count);
  for (cl_uint i = 0; i < count; ++i) {
    all[i].resize(sizes[i]);
    places[i] = sizes[i] ? all[i].data() : nullptr;
  }
  if (cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, count * sizeof(places[0]), places.data(), nullptr) !=
      CL_SUCCESS)
    return {};
  for (cl_uint i = 0; i < count; ++i)
    if (ids[i] == device) return all[i];
  return {};
}

cw_status build(int32_t index, const char* source, const char* given, cw_program* out) {
  Device* device = nullptr;
  if (cw_status status = find_device("build", index, &device)) return status;
  const std::string all = all_options(*device, given);
  const char* options = all.c_str();
  const bool keeps = !keeps_itself(*device);
  const std::string key = device_text(device->id, CL_DEVICE_NAME) + '\n' + device_text(device->id, CL_DEVICE_VERSION) +
                          '\n' + device_text(device->id, CL_DRIVER_VERSION) + '\n' + options + '\n' + source;
  cl_program program = keeps ? from_cache(*device, key, options) : nullptr;
  if (!program) {
    cl_int error = CL_SUCCESS;
    program = cl.clCreateProgramWithSource(context(), 1, &source, nullptr, &error);
    if (cw_status status = check(error, "clCreateProgramWithSource")) return status;
    error = cl.clBuildProgram(program, 1, &device->id, options, nullptr, nullptr);
    if (error != CL_SUCCESS) {
      const cw_status status = error == CL_BUILD_PROGRAM_FAILURE
                                   ? fail(CW_INVALID, "the source does not build for device %d: %s", index,
                                          build_log(program, device->id).c_str())
                                   : check(error, "clBuildProgram");
      cl.clReleaseProgram(program);
      return status;
    }
    const auto binary = keeps ? binary_of(program, device->id) : ProgramCache::Binary();
    if (!binary.empty()) cache().keep(key, binary, host.log, "CAUSEWAY_OPENCL_CACHE");
  }
  *out = new cw_program_t;
  (*out)->device = device;
  (*out)->program = program;
  return CW_OK;
}

cw_status release(cw_program program) {
  if (!program) return fail(CW_INVALID, "release: there is no program");
  for (cw_function_t* function : program->functions) {
    cl.clReleaseKernel(function->kernel);
    delete function;
  }
  cl.clReleaseProgram(program->program);
  delete program;
  return CW_OK;
}

cw_status function(cw_program program, const char* name, cw_function* out) {
  if (!program) return fail(CW_INVALID, "function: there is no program");
  cl_int error = CL_SUCCESS;
  cl_kernel kernel = cl.clCreateKernel(program->program, name, &error);
  if (error == CL_INVALID_KERNEL_NAME) return fail(CW_INVALID, "the program has no kernel %s", name);
  if (cw_status status = check(error, "clCreateKernel")) return status;
  auto* made = new cw_function_t;
  made->program = program;
  made->name = name;
  made->kernel = kernel;
  cl.clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(made->parameters), &made->parameters, nullptr);
  std::lock_guard<std::mutex> lock(program->mutex);
  program->functions.push_back(made);
  return *out = made, CW_OK;
}

// Who takes a binary again.
std::string reader_of(const Device& device) {
  return "opencl\n" + device_text(device.id, CL_DEVICE_NAME) + '\n' + device_text(device.id, CL_DEVICE_VERSION) + '\n' +
         device_text(device.id, CL_DRIVER_VERSION) + cpu_options(device);
}

constexpr uint32_t kSpirv = 0x07230203;  // its first word

cw_status build_binary(int32_t index, const void* binary, uint64_t bytes, const char* options, cw_program* out) {
  Device* device = nullptr;
  if (cw_status status = find_device("build_binary", index, &device)) return status;
  uint32_t first = 0;
  if (bytes >= sizeof(first)) memcpy(&first, binary, sizeof(first));
  const bool spirv = first == kSpirv && bytes % 4 == 0;
  if (spirv && !takes_spirv(*device)) return fail(CW_INVALID, "device %d does not read SPIR-V", index);
  if (bytes == 0) return fail(CW_INVALID, "build_binary: there are no bytes");
  const auto* data = static_cast<const unsigned char*>(binary);
  size_t size = bytes;
  ProgramCache::Binary own;
  const int sealed = ProgramCache::unseal(reader_of(*device), binary, bytes, &own);
  if (sealed < 0)
    return fail(CW_INVALID, "the binary is damaged, or of another device or driver than device %d", index);
  if (sealed) data = own.data(), size = own.size();
  cl_int error = CL_SUCCESS, loaded = CL_SUCCESS;
  cl_program program = spirv ? cl.clCreateProgramWithIL(context(), binary, size, &error)
                             : cl.clCreateProgramWithBinary(context(), 1, &device->id, &size, &data, &loaded, &error);
  if (error != CL_SUCCESS || loaded != CL_SUCCESS || !program) {
    if (program) cl.clReleaseProgram(program);
    return fail(CW_INVALID, "device %d takes no such binary (%s)", index, error_name(error ? error : loaded));
  }
  error = cl.clBuildProgram(program, 1, &device->id, options ? options : "", nullptr, nullptr);
  if (error != CL_SUCCESS) {
    fail(CW_INVALID, "the binary does not build for device %d (%s): %s", index, error_name(error),
         build_log(program, device->id).c_str());
    cl.clReleaseProgram(program);
    return CW_INVALID;
  }
  *out = new cw_program_t;
  (*out)->device = device;
  (*out)->program = program;
  return CW_OK;
}

cw_status binary(cw_program program, void* out, uint64_t* bytes) {
  if (!program) return fail(CW_INVALID, "binary: there is no program");
  const auto found = binary_of(program->program, program->device->id);
  if (found.empty()) return fail(CW_FAILED, "binary: the driver gives none");
  return ProgramCache::hand_out(ProgramCache::seal(reader_of(*program->device), found), out, bytes), CW_OK;
}

}  // namespace

const cw_code_v1 code_table = {sizeof(cw_code_v1), 0, info, build, release, function, launch, build_binary, binary};

}  // namespace opencl
