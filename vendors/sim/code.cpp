// A program is a shared library, kept in a folder by a hash of all that it depends on: its source, the options, the
// compiler's version and the processor's. A library that cannot be opened is built anew.
#include "code.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device.hpp"
#include "error.hpp"
#include "settings.hpp"
#include "stream.hpp"

extern char** environ;

struct cw_program_t {
  int32_t device;
  void* library;
  std::mutex mutex;
  std::vector<std::unique_ptr<cw_function_t>> functions;
};

struct cw_function_t {
  cw_program_t* program;
  std::string name;
  void (*run)(void* const* args, const uint32_t* group, const uint32_t* grid);
  uint32_t arguments;
};

namespace sim {

namespace {

// contract=off: a*b+c rounds twice but where the source says fma. wrapv: integer tensors wrap around.
constexpr const char* kFlags[] = {"-std=gnu11",
                                  "-O3",
                                  "-march=native",
                                  "-ffp-contract=off",
                                  "-fno-math-errno",
                                  "-fno-trapping-math",
                                  "-fwrapv",
                                  "-fno-strict-aliasing",
                                  "-shared",
                                  "-fPIC",
                                  "-w"};

const std::string& machine();
uint64_t hash(const std::string& text, uint64_t h);

cw_status info(int32_t index, cw_code_info* out) {
  Device* device = nullptr;
  if (cw_status status = enter("code_info", index, &device)) return status;
  cw_code_info found = {};
  found.struct_size = out->struct_size;
  found.language = CW_CODE_C;
  found.flags = CW_CODE_IN_TURN;
  found.compute_units = 2;  // a stream has one thread; with two, work is split as elsewhere
  found.group_limit = 1;
  found.simd_width = 8;
  found.local_memory = 64 << 10;
  found.arithmetic = CW_BOOL | CW_UINT8 | CW_INT8 | CW_UINT16 | CW_INT16 | CW_UINT32 | CW_INT32 | CW_UINT64 | CW_INT64 |
                     CW_FLOAT32 | CW_FLOAT64;
  found.arithmetic &= settings().dtypes;
  snprintf(found.driver, sizeof(found.driver), "%016llx",
           static_cast<unsigned long long>(hash(machine(), 0xcbf29ce484222325ull)));
  memcpy(out, &found, std::min<size_t>(out->struct_size, sizeof(found)));
  return CW_OK;
}

uint64_t hash(const std::string& text, uint64_t h) {
  for (unsigned char c : text) h = (h ^ c) * 0x100000001B3ull;  // FNV-1a
  return h;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string compiler() {
  const char* set = getenv("CC");
  return set && *set ? set : "cc";
}

// Runs `command`, its words into the file `log`; its exit status, 127 where it cannot be started.
int run(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0) return 127;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

// What a kept program depends on besides its source.
const std::string& machine() {
  static const std::string words = [] {
    std::string text = compiler();
    std::ifstream cpu("/proc/cpuinfo");
    for (std::string line; std::getline(cpu, line);) {
      if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
        text += line;
        break;
      }
    }
    char name[] = "/tmp/causeway-XXXXXX";
    if (const int fd = mkstemp(name); fd >= 0) {
      close(fd);
      run({compiler(), "--version"}, name);
      text += text_of(name);
      unlink(name);
    }
    return text;
  }();
  return words;
}

std::string folder() {
  if (!settings().cache.empty()) return settings().cache;
  if (const char* xdg = getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/causeway/sim";
  if (const char* home = getenv("HOME"); home && *home) return std::string(home) + "/.cache/causeway/sim";
  return "/tmp/causeway-" + std::to_string(getuid());
}

bool make_folder(const std::string& path) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at);
    mkdir(path.substr(0, at).c_str(), 0777);
    if (at != std::string::npos) ++at;
  }
  return access(path.c_str(), W_OK) == 0;
}

cw_status build(int32_t index, const char* source, const char* options, cw_program* out) {
  Device* device = nullptr;
  if (cw_status status = enter("code_build", index, &device)) return status;
  std::string key = machine();
  for (const char* flag : kFlags) key += std::string(" ") + flag;
  key += std::string("\n") + (options ? options : "") + "\n" + source;
  char name[40];
  snprintf(name, sizeof(name), "/%016llx%016llx", static_cast<unsigned long long>(hash(key, 0xcbf29ce484222325ull)),
           static_cast<unsigned long long>(hash(key, 0x9E3779B97F4A7C15ull)));
  const std::string where = folder(), path = where + name + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    if (!make_folder(where)) {
      return fail(CW_FAILED, "programs cannot be kept in %s: CAUSEWAY_SIM_CACHE names another folder", where.c_str());
    }
    static std::atomic<int> number{0};
    const std::string part = where + name + "." + std::to_string(getpid()) + "." + std::to_string(number++);
    std::ofstream(part + ".c") << source;
    std::vector<std::string> command = {compiler()};
    for (const char* flag : kFlags) command.push_back(flag);
    std::stringstream more(options ? options : "");
    for (std::string word; more >> word;) command.push_back(word);
    for (const char* word : {"-x", "c"}) command.push_back(word);
    command.push_back(part + ".c");
    for (const std::string& word : {std::string("-o"), part + ".so", std::string("-lm")}) command.push_back(word);
    const int exit = run(command, part + ".log");
    const std::string log = text_of(part + ".log");
    unlink((part + ".c").c_str());
    unlink((part + ".log").c_str());
    if (exit != 0) {
      unlink((part + ".so").c_str());
      if (exit == 127) return fail(CW_FAILED, "the C compiler `%s` cannot be started", compiler().c_str());
      return fail(CW_INVALID, "the source does not build: %s", log.c_str());
    }
    if (rename((part + ".so").c_str(), path.c_str()) != 0) {
      return fail(CW_FAILED, "%s cannot be written", path.c_str());
    }
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return fail(CW_FAILED, "what was built cannot be opened: %s", dlerror());
  }
  *out = new cw_program_t{index, library, {}, {}};
  return CW_OK;
}

cw_status release(cw_program program) {
  if (!program) return fail(CW_INVALID, "release: there is no program");
  dlclose(program->library);
  delete program;
  return CW_OK;
}

cw_status function(cw_program program, const char* name, cw_function* out) {
  if (!program) return fail(CW_INVALID, "function: there is no program");
  void* run = dlsym(program->library, name);
  const void* count = dlsym(program->library, (std::string(name) + "_arguments").c_str());
  if (!run || !count) return fail(CW_INVALID, "the program has no function %s with %s_arguments", name, name);
  auto made = std::make_unique<cw_function_t>();
  made->program = program;
  made->name = name;
  made->run = reinterpret_cast<decltype(made->run)>(run);
  memcpy(&made->arguments, count, sizeof(made->arguments));
  std::lock_guard<std::mutex> lock(program->mutex);
  program->functions.push_back(std::move(made));
  return *out = program->functions.back().get(), CW_OK;
}

cw_status launch(cw_function f, const uint32_t grid[3], const uint32_t group[3], const cw_code_arg* args, uint32_t n,
                 cw_stream stream) {
  if (!f) return fail(CW_INVALID, "launch: there is no function");
  Device* device = nullptr;
  if (cw_status status = enter("code_launch", f->program->device, &device)) return status;
  if (n != f->arguments) {
    return fail(CW_INVALID, "function %s has %u arguments, and %u were given", f->name.c_str(), f->arguments, n);
  }
  if (group[0] != 1 || group[1] != 1 || group[2] != 1) {
    return fail(CW_INVALID, "function %s: a group has one item on this device", f->name.c_str());
  }
  size_t bytes = 0;
  for (uint32_t i = 0; i < n; ++i) bytes += args[i].bytes ? (args[i].bytes + 15) / 16 * 16 : 16;
  std::vector<char> values(bytes);
  std::vector<uint32_t> at(n);
  bytes = 0;
  for (uint32_t i = 0; i < n; ++i) {
    at[i] = static_cast<uint32_t>(bytes);
    if (args[i].bytes) {
      memcpy(&values[bytes], args[i].v.value, args[i].bytes);
      bytes += (args[i].bytes + 15) / 16 * 16;
    } else {
      char* here = nullptr;
      if (args[i].v.address) {
        if (cw_status status = resolve(*device, args[i].v.address, 0, f->name.c_str(), &here)) return status;
      }
      memcpy(&values[bytes], &here, sizeof(here));
      bytes += 16;
    }
  }
  const uint32_t g[3] = {grid[0], grid[1], grid[2]};
  return put(*device, stream, f->name.c_str(),
             [run = f->run, values = std::move(values), at = std::move(at), g0 = g[0], g1 = g[1], g2 = g[2]]() mutable {
               std::vector<void*> pointers;
               for (uint32_t offset : at) pointers.push_back(&values[offset]);
               const uint32_t all[3] = {g0, g1, g2};
               for (uint32_t z = 0; z < g2; ++z) {
                 for (uint32_t y = 0; y < g1; ++y) {
                   for (uint32_t x = 0; x < g0; ++x) {
                     const uint32_t here[3] = {x, y, z};
                     run(pointers.data(), here, all);
                   }
                 }
               }
               return CW_OK;
             });
}

}  // namespace

const cw_code_v1 code_table = {sizeof(cw_code_v1), 0, info, build, release, function, launch};

}  // namespace sim
