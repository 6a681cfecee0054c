// What is HIP's alone: where ROCm and DTK have libraries, gfx architectures, code objects, the kernel's device files.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "device.hpp"
#include "error.hpp"
#include "library.hpp"
#include "program.hpp"

namespace cuda::kin {

namespace {

std::vector<std::string> anywhere(const std::vector<std::string>& files) {
  std::vector<std::string> folders;
  for (const char* home : {"ROCM_PATH", "HIP_PATH", "ROCM_HOME", "DTKROOT"}) {
    if (const std::string found = environment(home); !found.empty()) folders.push_back(found + "/lib");
  }
  folders.insert(folders.end(), {"/opt/rocm/lib", "/opt/dtk/lib", "/opt/dtk/hip/lib"});
  return files_in(files, folders);
}

// The newest first, then DTK's, then what a package for developers calls it. DTK has HIP in a library of its own name.
const std::vector<std::string> kRuntime = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                           "libgalaxyhip.so.5", "libamdhip64.so"};

std::string name_at(const std::vector<char>& properties, size_t offset) {
  const char* begin = properties.data() + offset;
  return {begin, strnlen(begin, 64)};
}

}  // namespace

Places driver_places() { return {"hip", anywhere(kRuntime)}; }

Places compiler_places() {
  std::vector<std::string> files = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"};
  files.insert(files.end(), kRuntime.begin(), kRuntime.end());
  files = anywhere(files);
  if (cu.init) files.insert(files.begin(), folder_of(reinterpret_cast<void*>(cu.init)) + "/libhiprtc.so");
  return {"hiprtc", files};
}

Places blas_places() {
  return {"hipblas", anywhere({"libhipblas.so.3", "libhipblas.so.2", "libhipblas.so.0", "libhipblas.so"})};
}

// "gfx90a", "gfx1030", "gfx906:sramecc+:xnack-": the last two digits are the minor number and the stepping, the latter
// hexadecimal. A wave has 32 lanes from gfx10 on, as the compiler takes it, and 64 before.
bool read_architecture(const std::string& name, Paper* out) {
  const std::string plain = name.substr(0, name.find(':'));
  if (plain.size() < 6 || plain.size() > 7 || plain.compare(0, 3, "gfx") != 0) return false;
  for (size_t i = 3; i < plain.size(); ++i)
    if (!strchr(i + 1 == plain.size() ? "0123456789abcdef" : "0123456789", plain[i])) return false;
  out->architecture = name;
  out->major = std::stoi(plain.substr(3, plain.size() - 5));
  out->minor = plain[plain.size() - 2] - '0';
  out->wave = out->major >= 10 ? 32 : 64;
  out->shared_kilobytes = 64;
  return out->major >= 7;
}

void complete(Driver& driver) {
  driver.retain = [](Context* out, DeviceId id) { return *out = id, kSuccess; };
}

void open_beside_compiler() {}

// The setting, or what the device's properties say. They changed in HIP 6, which kept the older function beside.
cw_status architecture_of(const Device& device, std::string* out) {
  *out = setting("architecture");
  Paper paper;
  if (out->empty() && cu.properties_6) {
    std::vector<char> room(kPropertiesBytes, 0);
    TRY(check(cu.properties_6(room.data(), device.id), symbols.properties_6));
    *out = name_at(room, kNameInProperties6);
  } else if (out->empty() && cu.properties) {
    std::vector<char> room(kPropertiesBytes, 0);
    TRY(check(cu.properties(room.data(), device.id), symbols.properties));
    *out = name_at(room, kNameInProperties5);
  }
  if (read_architecture(*out, &paper)) return CW_OK;
  return fail(CW_FAILED,
              "device %d does not say what to compile for ('%.40s'): " KIN_SETTING
              "ARCHITECTURE=gfx90a names it, as rocminfo has it",
              device.index, out->c_str());
}

// 50221153 is 5.2, 70125424 is 7.1.
std::string version_text(int number) {
  return std::to_string(number / 10000000) + "." + std::to_string(number / 100000 % 100);
}

// No contraction, as for CUDA.
cw_status target_of(const Device& device, Target* out) {
  out->options = {"--offload-arch=" + device.architecture, "-std=c++17", "-O3", "-ffp-contract=off", "-w"};
  return CW_OK;
}

cw_status code_of(CompilerProgram program, const Target&, std::vector<unsigned char>* out) {
  return read_code(program, rtc.code_size, rtc.code, out);
}

// A code object, or a bundle of them.
bool is_whole(const unsigned char* data, uint64_t bytes) {
  constexpr char kBundle[] = "__CLANG_OFFLOAD_BUNDLE__";
  return is_whole_elf(data, bytes) || (bytes > sizeof(kBundle) && memcmp(data, kBundle, sizeof(kBundle) - 1) == 0);
}

// The kernel's driver has one file for all GPUs, and a user needs to be let in.
std::string hint() {
  if (access("/dev/kfd", F_OK) != 0)
    return "there is no /dev/kfd: the kernel's driver amdgpu is not loaded, or this container was not given it "
           "(--device /dev/kfd --device /dev/dri)";
  if (access("/dev/kfd", R_OK | W_OK) != 0)
    return std::string("this user may not open /dev/kfd (") + strerror(errno) +
           "): it wants the group render, or video: `usermod -aG render,video USER`, then a new login";
  return "";
}

}  // namespace cuda::kin
