// What is CUDA's alone: where NVIDIA's wheels and toolkit have libraries, sm_ architectures, cubins and PTX.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "device.hpp"
#include "error.hpp"
#include "library.hpp"
#include "program.hpp"

namespace cuda::kin {

namespace {

// NVIDIA's wheels lie beside this library's package; CUDA 13's have one folder for all.
std::vector<std::string> files_of(const std::string& soname, const char* wheel, std::vector<const char*> versions) {
  std::vector<std::string> names;
  for (const char* version : versions) {
    const std::string file = soname + version;
    names.push_back(own_folder() + "/../nvidia/" + wheel + "/lib/" + file);
    names.push_back(own_folder() + "/../nvidia/cu13/lib/" + file);
    names.push_back(file);
    for (const std::string& home : {environment("CUDA_HOME"), environment("CUDA_PATH"), std::string("/usr/local/cuda")})
      if (!home.empty()) names.push_back(home + "/lib64/" + file);
  }
  return names;
}

// Of CUDA's versions those that the driver is for come first: it takes no code of a later one.
std::vector<const char*> by_driver() {
  int version = 0;
  if (cu.driver_version) cu.driver_version(&version);
  return version >= 13000 ? std::vector{"13", "12"} : std::vector{"12", "13"};
}

}  // namespace

Places driver_places() { return {nullptr, {KIN_DRIVER_FILE}}; }

Places compiler_places() {
  std::vector<const char*> versions = by_driver();
  versions.push_back("11.2");
  return {"nvrtc", files_of("libnvrtc.so.", "cuda_nvrtc", versions)};
}

Places blas_places() { return {"cublas", files_of("libcublas.so.", "cublas", by_driver())}; }

Places dnn_places() { return {"cudnn", files_of("libcudnn.so.", "cudnn", {"9"})}; }

bool read_architecture(const std::string& name, Paper* out) {
  int number = 0, end = 0;
  if (sscanf(name.c_str(), "sm_%d%n", &number, &end) < 1 || static_cast<size_t>(end) != name.size() || number < 50 ||
      number > 999)
    return false;
  out->architecture = name;
  out->major = number / 10, out->minor = number % 10;
  return true;
}

void complete(Driver&) {}

// NVRTC opens a second library by its bare name when it compiles. Since CUDA 13 it no longer says that it lies beside it,
// so the loader finds it only where it is open already. Where it is in no such place the loader's own paths are left.
void open_beside_compiler() {
  int major = 0, minor = 0;
  if (rtc.version(&major, &minor)) return;
  const std::string version = std::to_string(major) + "." + std::to_string(minor);
  const std::string file = folder_of(reinterpret_cast<void*>(rtc.version)) + "/libnvrtc-builtins.so." + version;
  dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

cw_status architecture_of(const Device& device, std::string* out) {
  return *out = "sm_" + std::to_string(device.major) + std::to_string(device.minor), CW_OK;
}

std::string version_text(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// The device's own code, or, where the device is newer than NVRTC, PTX of the newest architecture that it knows, which the
// driver translates. No contraction: what the source does not write as FMA is rounded twice, as on every other device.
cw_status target_of(const Device& device, Target* out) {
  int count = 0, best = 0;
  TRY(check_compiler(rtc.architecture_count(&count), compiler_symbols.architecture_count));
  std::vector<int> known(static_cast<size_t>(count));
  TRY(check_compiler(rtc.architectures(known.data()), compiler_symbols.architectures));
  const int own = device.major * 10 + device.minor;
  for (const int architecture : known)
    if (architecture <= own) best = std::max(best, architecture);
  if (!best) {
    int major = 0, minor = 0;
    rtc.version(&major, &minor);
    return fail(CW_FAILED, "NVRTC %d.%d compiles for sm_%d and later, device %d is sm_%d: an earlier NVRTC is needed",
                major, minor, *std::min_element(known.begin(), known.end()), device.index, own);
  }
  out->intermediate = best != own;
  const char* option = out->intermediate ? "--gpu-architecture=compute_" : "--gpu-architecture=sm_";
  out->options = {option + std::to_string(best), "--std=c++17", "--fmad=false", "-w"};
  return CW_OK;
}

cw_status code_of(CompilerProgram program, const Target& target, std::vector<unsigned char>* out) {
  return target.intermediate ? read_code(program, rtc.ptx_size, rtc.ptx, out)
                             : read_code(program, rtc.code_size, rtc.code, out);
}

// A cubin by its own tables, or PTX, which is text.
bool is_whole(const unsigned char* data, uint64_t bytes) {
  return is_whole_elf(data, bytes) || memmem(data, bytes, ".version", 8) != nullptr;
}

std::string hint() { return ""; }

}  // namespace cuda::kin
