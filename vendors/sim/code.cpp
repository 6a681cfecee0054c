// A program is a shared library. Its bytes are kept by ProgramCache, whose key is all that it depends on: its source, the
// options, the compiler's version and the processor's. What is opened is never the kept file but memory that holds the
// bytes whose checksum was right: a file may be cut or changed while it is mapped.
#include "code.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
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

#include "causeway/dot.hpp"
#include "causeway/library_file.hpp"
#include "causeway/program_cache.hpp"
#include "cores.hpp"
#include "device.hpp"
#include "error.hpp"
#include "fault.hpp"
#include "settings.hpp"
#include "stream.hpp"
#include "teams.hpp"
#include "workers.hpp"

extern char** environ;

struct cw_program_t {
  int32_t device;
  void* library;
  causeway::ProgramCache::Binary binary;  // what it was opened from
  std::unique_ptr<sim::teams::Code> code;  // of one that was built to be watched
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

using causeway::ProgramCache;

// contract=off: a*b+c rounds twice but where the source says fma. wrapv: integer tensors wrap around.
const std::vector<const char*> kFlags = {"-std=gnu11",
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

const std::vector<const char*>& flags() { return settings().teams ? teams::flags : kFlags; }

const std::string& machine();
uint64_t hash(const std::string& text, uint64_t h);

// The processor that -march=native is for.
uint32_t dots() {
  if (settings().teams || settings().without.count("dot_bytes")) return 0;
  return settings().without.count("dot_tiles") ? causeway::cpu_dots() & ~CW_CODE_DOT_TILES : causeway::cpu_dots();
}

cw_status info(int32_t index, cw_code_info* out) {
  Device* device = nullptr;
  if (cw_status status = enter("code_info", index, &device)) return status;
  cw_code_info found = {};
  found.struct_size = out->struct_size;
  found.language = CW_CODE_C;
  found.flags = settings().teams ? 0 : CW_CODE_IN_TURN;
  found.flags |= dots();
  found.compute_units = compute_units();
  found.group_limit = settings().teams ? teams::most_items : 1;
  found.simd_width = 8;
  found.local_memory = settings().teams ? teams::local_memory : 64 << 10;
  found.arithmetic = CW_BOOL | CW_UINT8 | CW_INT8 | CW_UINT16 | CW_INT16 | CW_UINT32 | CW_INT32 | CW_UINT64 | CW_INT64 |
                     CW_FLOAT32 | CW_FLOAT64;
  found.arithmetic &= settings().dtypes;
  for (int d = 0; d < 3; ++d)
    found.grid_limits[d] = uint32_t(settings().grid_limit), found.group_limits[d] = d ? 1 : found.group_limit;
  found.argument_limit = uint32_t(settings().argument_limit);
  found.loop_limit = uint32_t(settings().loop_limit);
  found.binaries = settings().without.count("build_binary") ? 0 : CW_BINARY_OWN;
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
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
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

// A folder of this process's own for a build, gone with it.
class WorkFolder {
 public:
  WorkFolder() {
    const char* set = getenv("TMPDIR");
    path_ = std::string(set && *set ? set : "/tmp") + "/causeway-XXXXXX";
    if (!mkdtemp(path_.data())) path_.clear();  // 0700, and nobody had it before
  }
  ~WorkFolder() {
    if (path_.empty()) return;
    for (const char* name : {"/code.c", "/code.so", "/log"}) unlink((path_ + name).c_str());
    rmdir(path_.c_str());
  }
  WorkFolder(const WorkFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

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
    const WorkFolder folder;
    if (!folder.path().empty()) {
      run({compiler(), "--version"}, folder.path() + "/log");
      text += text_of(folder.path() + "/log");
    }
    return text;
  }();
  return words;
}

// A library opened from its bytes; nullptr: why it cannot be is in `words`.
void* open_bytes(const ProgramCache::Binary& bytes, std::string* words) {
  const int fd = memfd_create("causeway", MFD_CLOEXEC);
  size_t done = 0;
  while (fd >= 0 && done < bytes.size()) {
    const ssize_t put = write(fd, bytes.data() + done, bytes.size() - done);
    if (put <= 0) break;
    done += static_cast<size_t>(put);
  }
  void* library = nullptr;
  if (fd < 0 || done < bytes.size()) {
    *words = strerror(errno);
  } else if (*words = causeway::missing_bytes(fd); words->empty()) {
    // The loader knows what is open by its path, and descriptors are used again: "./" and "/" spell a number into it.
    static std::atomic<uint32_t> numbers{0};
    std::string path = "/proc/self/fd/";
    for (uint32_t number = ++numbers; number; number >>= 1) path += number & 1 ? "./" : "/";
    path += std::to_string(fd);
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) *words = dlerror();
  }
  if (fd >= 0) close(fd);
  return library;
}

// Compiles `source` into `binary`.
cw_status compile(const char* source, const char* options, ProgramCache::Binary* binary) {
  const WorkFolder folder;
  if (folder.path().empty()) return fail(CW_FAILED, "no folder can be made in TMPDIR, or /tmp, to build a program in");
  const std::string code = folder.path() + "/code.c", made = folder.path() + "/code.so", log = folder.path() + "/log";
  std::ofstream(code) << (settings().teams ? teams::preamble : "") << source;
  std::vector<std::string> command = {compiler()};
  for (const char* flag : flags()) command.push_back(flag);
  std::stringstream more((options ? options : "") + causeway::dot_options(dots()));
  for (std::string word; more >> word;) command.push_back(word);
  for (const std::string& word :
       {std::string("-x"), std::string("c"), code, std::string("-o"), made, std::string("-lm")})
    command.push_back(word);
  const int exit = run(command, log);
  if (exit == 127) return fail(CW_FAILED, "the C compiler `%s` cannot be started", compiler().c_str());
  if (exit != 0) return fail(CW_INVALID, "the source does not build: %s", text_of(log).c_str());
  const std::string bytes = text_of(made);
  binary->assign(bytes.begin(), bytes.end());
  return CW_OK;
}

cw_status opened(int32_t index, void* library, ProgramCache::Binary binary, const char* source, cw_program* out) {
  std::unique_ptr<teams::Code> code;
  if (settings().teams) {
    code = teams::Code::open(library, binary, source);
    if (!code) {
      dlclose(library);
      return fail(CW_INVALID, "the program was built without CAUSEWAY_SIM_TEAMS=1, and cannot be watched");
    }
  }
  *out = new cw_program_t{index, library, std::move(binary), std::move(code), {}, {}};
  return CW_OK;
}

cw_status build(int32_t index, const char* source, const char* options, cw_program* out) {
  Device* device = nullptr;
  if (cw_status status = enter("code_build", index, &device)) return status;
  std::string key = machine();
  for (const char* flag : flags()) key += std::string(" ") + flag;
  if (settings().teams) key += teams::preamble;
  key += causeway::dot_options(dots());
  key += std::string("\n") + (options ? options : "") + "\n" + source;
  const ProgramCache cache(ProgramCache::folder(settings().cache.c_str(), "sim"));
  std::string words;
  ProgramCache::Binary binary = cache.find(key);
  void* library = binary.empty() ? nullptr : open_bytes(binary, &words);
  if (!library) {
    if (cw_status status = compile(source, options, &binary)) return status;
    library = open_bytes(binary, &words);
    if (!library) return fail(CW_FAILED, "what was built cannot be opened: %s", words.c_str());
    if (!cache.keep(key, binary)) {
      static std::once_flag once;
      std::call_once(once, [&] {
        const std::string text = "built programs are not kept: " + cache.where() +
                                 " cannot be written, or others may write there; CAUSEWAY_SIM_CACHE names a folder";
        if (host().log) host().log(2, text.c_str());
      });
    }
  }
  return opened(index, library, std::move(binary), source, out);
}

// A binary is a shared library, such as `binary` gives.
cw_status build_binary(int32_t index, const void* bytes, uint64_t count, const char*, cw_program* out) {
  Device* device = nullptr;
  if (cw_status status = enter("code_build_binary", index, &device)) return status;
  if (count < 64 || memcmp(bytes, "\177ELF", 4) != 0) {
    return fail(CW_INVALID, "build_binary: %llu bytes that are no shared library",
                static_cast<unsigned long long>(count));
  }
  const auto* first = static_cast<const unsigned char*>(bytes);
  ProgramCache::Binary binary(first, first + count);
  std::string words;
  void* library = open_bytes(binary, &words);
  if (!library) return fail(CW_INVALID, "build_binary: %s", words.c_str());
  return opened(index, library, std::move(binary), "", out);
}

cw_status binary(cw_program program, void* out, uint64_t* bytes) {
  if (!program) return fail(CW_INVALID, "binary: there is no program");
  if (cw_status status = injected_fault("code_binary", nullptr)) return status;
  return ProgramCache::hand_out(program->binary, out, bytes), CW_OK;
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
  const uint32_t most = settings().teams ? teams::most_items : 1;
  if (group[0] < 1 || group[0] > most || group[1] != 1 || group[2] != 1) {
    return fail(CW_INVALID, "function %s: a group has %s on this device", f->name.c_str(),
                settings().teams ? "1 to 1024 items, in a row," : "one item");
  }
  for (int d = 0; d < 3; ++d) {
    if (settings().grid_limit && grid[d] > settings().grid_limit) {
      return fail(CW_INVALID, "function %s: %u groups, and the device has at most %lld", f->name.c_str(), grid[d],
                  static_cast<long long>(settings().grid_limit));
    }
  }
  size_t bytes = 0;
  for (uint32_t i = 0; i < n; ++i) bytes += args[i].bytes ? args[i].bytes : 8;
  if (settings().argument_limit && bytes > size_t(settings().argument_limit)) {
    return fail(CW_INVALID, "function %s: %zu bytes of arguments, and the device takes at most %lld", f->name.c_str(),
                bytes, static_cast<long long>(settings().argument_limit));
  }
  bytes = 0;
  for (uint32_t i = 0; i < n; ++i) bytes += args[i].bytes ? (args[i].bytes + 15) / 16 * 16 : 16;
  std::vector<char> values(bytes);
  std::vector<uint32_t> at(n);
  std::vector<teams::Region> regions;
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
        if (settings().teams) regions.push_back(teams::region_of(*device, args[i].v.address));
      }
      memcpy(&values[bytes], &here, sizeof(here));
      bytes += 16;
    }
  }
  const uint32_t g[3] = {grid[0], grid[1], grid[2]};
  if (f->program->code) {
    return put(*device, stream, f->name.c_str(),
               [f, values = std::move(values), at = std::move(at), regions = std::move(regions), g0 = g[0], g1 = g[1],
                g2 = g[2], lanes = group[0]]() mutable {
                 teams::Launch launch = {
                     f->name.c_str(), f->program->code.get(), f->run, {}, values.data(), values.size(),
                     regions,         {g0, g1, g2},           lanes};
                 for (uint32_t offset : at) launch.args.push_back(&values[offset]);
                 return teams::run(launch);
               });
  }
  return put(*device, stream, f->name.c_str(),
             [run = f->run, cores = cores_of(device->index, stream), values = std::move(values), at = std::move(at),
              g0 = g[0], g1 = g[1], g2 = g[2]]() mutable {
               std::vector<void*> pointers;
               for (uint32_t offset : at) pointers.push_back(&values[offset]);
               const uint32_t all[3] = {g0, g1, g2};
               run_groups(uint64_t{g0} * g1 * g2, cores, [&](uint64_t i) {
                 const uint32_t here[3] = {static_cast<uint32_t>(i % g0), static_cast<uint32_t>(i / g0 % g1),
                                           static_cast<uint32_t>(i / g0 / g1)};
                 run(pointers.data(), here, all);
               });
               return CW_OK;
             });
}

}  // namespace

const cw_code_v1& code_table() {
  static const cw_code_v1 table = [] {
    cw_code_v1 t = {sizeof(cw_code_v1), 0, info, build, release, function, launch, build_binary, binary};
    if (settings().without.count("build_binary")) t.build_binary = nullptr;
    if (settings().without.count("binary")) t.binary = nullptr;
    return t;
  }();
  return table;
}

}  // namespace sim
