// What is MACA's alone: where it has libraries, and what its functions are not known to say.
#include "device.hpp"
#include "error.hpp"
#include "library.hpp"
#include "program.hpp"

namespace cuda::kin {

namespace {

std::vector<std::string> anywhere(const std::vector<std::string>& files) {
  std::vector<std::string> folders;
  for (const char* home : {"MACA_PATH", "MACA_HOME"})
    if (const std::string found = environment(home); !found.empty()) folders.push_back(found + "/lib");
  folders.push_back("/opt/maca/lib");
  return files_in(files, folders);
}

}  // namespace

Places driver_places() { return {"maca", anywhere({KIN_DRIVER_FILE})}; }
Places compiler_places() { return {"mcrtc", anywhere({KIN_DRIVER_FILE, "libmcrtc.so"})}; }
Places blas_places() { return {"mcblas", anywhere({"libmcblas.so"})}; }

// "xcore1000", as MetaX's compiler has it. Waves of 64.
bool read_architecture(const std::string& name, Paper* out) {
  if (name.size() != 9 || name.compare(0, 5, "xcore") != 0) return false;
  for (size_t i = 5; i < name.size(); ++i)
    if (name[i] < '0' || name[i] > '9') return false;
  out->architecture = name;
  out->major = name[5] - '0', out->minor = name[6] - '0';
  out->wave = out->shared_kilobytes = 64;
  return true;
}

void complete(Driver& driver) {
  driver.retain = [](Context* out, DeviceId id) { return *out = id, kSuccess; };
  driver.device_get = [](DeviceId* out, int index) { return *out = index, kSuccess; };
  driver.device_memory = [](size_t* out, DeviceId id) {
    size_t left = 0;
    const Result chosen = cu.set_current(id);
    return chosen ? chosen : cu.mem_info(&left, out);
  };
}

void open_beside_compiler() {}

// mcrtc compiles for the current device and is told no architecture: the name keeps programs of other chips apart.
cw_status architecture_of(const Device& device, std::string* out) {
  char name[256] = {};
  TRY(check(cu.device_name(name, sizeof(name) - 1, device.id), symbols.device_name));
  return *out = name, CW_OK;
}

std::string version_text(int number) { return std::to_string(number); }  // how it is made up is not public

cw_status target_of(const Device&, Target* out) {
  out->options = {"-std=c++17", "-ffp-contract=off", "-w"};
  return CW_OK;
}

cw_status code_of(CompilerProgram program, const Target&, std::vector<unsigned char>* out) {
  return read_code(program, rtc.code_size, rtc.code, out);
}

// Bitcode, which says nothing of its own length that is public.
bool is_whole(const unsigned char*, uint64_t bytes) { return bytes > 4; }

std::string hint() { return ""; }

}  // namespace cuda::kin
