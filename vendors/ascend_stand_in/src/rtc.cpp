// libacl_rtc.so: the compiler for kernels of threads, which is the host's: clang, with headers that stand for the chip's
// names. What it makes is a library, and the runtime opens it. What the language does not have is an error here as there:
// float64, structures as parameters.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core.hpp"

extern char** environ;

using namespace stand_in;

namespace {

enum : Code {
  kBadProgram = 176000,
  kBadInput = 176001,
  kBadOption = 176002,
  kDoesNotCompile = 176003,
  kNoProgram = 276000,
};

struct Program {
  std::string source, log, binary;
};

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

// Its exit status; 127: there is no such program.
int run(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  int failed = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return 127;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

class Folder {
 public:
  Folder() {
    const char* set = getenv("TMPDIR");
    path_ = std::string(set && *set ? set : "/tmp") + "/ascend-stand-in-XXXXXX";
    if (!mkdtemp(path_.data())) path_.clear();
  }
  ~Folder() {
    if (path_.empty()) return;
    for (const char* name : {"code.cpp", "code.ll", "code.so", "log"}) unlink(file(name).c_str());
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  bool made() const { return !path_.empty(); }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// clang, or what ASCEND_STAND_IN_COMPILER names; c++ where there is no clang, which is said once.
struct Compiler {
  std::string name;
  bool clang = false;
};
const Compiler& compiler() {
  static const Compiler found = [] {
    Folder folder;
    auto here = [&](const std::string& name) { return run({name, "--version"}, folder.file("log")) == 0; };
    auto is_clang = [&] { return file_text(folder.file("log")).find("clang") != std::string::npos; };
    Compiler one;
    if (!folder.made()) return one;
    std::string asked = setting("COMPILER", "");
    for (const std::string& name : asked.empty() ? std::vector<std::string>{"clang", "c++"} : std::vector{asked})
      if (here(name)) {
        one = {name, is_clang()};
        break;
      }
    if (!one.name.empty() && !one.clang)
      fprintf(stderr,
              "ascend stand-in: kernels are compiled by %s, as there is no clang: what they make of float64 is found "
              "only where a float becomes one\n",
              one.name.c_str());
    return one;
  }();
  return found;
}

// Headers lie beside the folder of this library.
std::string headers() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&headers), &info)) return "";
  char* path = realpath(info.dli_fname, nullptr);
  std::string folder = path ? path : "";
  free(path);
  for (int up = 0; up < 2; ++up) folder.resize(std::min(folder.size(), folder.rfind('/')));
  return folder + "/include";
}

// The kernels of a text, and most items of a group of each: 1024 where it does not say.
std::string kernels_of(const std::string& source) {
  static const std::regex kernel(R"(__global__\s+(?:__launch_bounds__\s*\(\s*(\d+)\s*\)\s*)?void\s+(\w+)\s*\()");
  std::string text = "\n";
  for (std::sregex_iterator at(source.begin(), source.end(), kernel), end; at != end; ++at)
    text += "SIMT_KERNEL(" + (*at)[2].str() + ", " + ((*at)[1].matched ? (*at)[1].str() : "1024") + ")\n";
  return text;
}

// The line of a .ll that has a float64; empty: none has.
std::string double_in(const std::string& code) {
  static const std::regex word(R"((^|[^\w"])double([^\w"]|$))");
  std::stringstream lines(code);
  for (std::string line; std::getline(lines, line);)
    if (line.find("double") != std::string::npos && std::regex_search(line, word)) return line;
  return "";
}

Code does_not_compile(Program& program, const std::string& log) {
  program.log = log;
  return refuse(kDoesNotCompile, "aclrtcCompileProg: the program does not compile");
}

}  // namespace

ENTRY Code aclrtcCreateProg(void** out, const char* source, const char* name, int headers, const char**, const char**) {
  CALL();
  if (!out || !source || !name || headers < 0) return refuse(kBadInput, "aclrtcCreateProg: something is missing");
  if (headers) return refuse(kNoProgram, "aclrtcCreateProg: the stand-in takes no headers of a program's own");
  *out = new Program{source, "", ""};
  return kGood;
}

ENTRY Code aclrtcCompileProg(void* handle, int count, const char** options) {
  CALL();
  auto* program = static_cast<Program*>(handle);
  if (!program) return refuse(kBadProgram, "aclrtcCompileProg: the program is NULL");
  bool simt = false;
  std::string chip;
  std::vector<std::string> passed;
  for (int i = 0; i < count; ++i) {
    std::string option = options[i] ? options[i] : "";
    if (option.rfind("--npu-arch=", 0) == 0)
      chip = option.substr(11);
    else if (option == "--enable-simt")
      simt = true;
    else if (option == "-w" || option.rfind("-O", 0) == 0 || option.rfind("-D", 0) == 0 || option.rfind("-f", 0) == 0)
      passed.push_back(option);
    else
      return refuse(kBadOption, "aclrtcCompileProg: option '%s' is not known", option.c_str());
  }
  if (!simt || chip != "dav-3510")
    return refuse(kBadOption, "aclrtcCompileProg: the stand-in compiles with --npu-arch=dav-3510 --enable-simt alone");
  const Compiler& by = compiler();
  if (by.name.empty())
    return does_not_compile(*program, "there is no clang and no c++ on this host: apt-get install clang");
  Folder folder;
  if (!folder.made()) return refuse(kNoProgram, "aclrtcCompileProg: no folder can be made in TMPDIR or /tmp");
  std::string code = folder.file("code.cpp"), made = folder.file("code.so"), log = folder.file("log");
  std::ofstream(code) << "#include \"simt_builtin.h\"\n#line 1 \"kernel\"\n"
                      << program->source << kernels_of(program->source);
  std::vector<std::string> command = {
      by.name, "-x", "c++", "-std=c++17", "-I" + headers(), "-O1", "-fPIC", "-fvisibility=hidden", "-fno-math-errno"};
  command.insert(command.end(), passed.begin(), passed.end());
  command.push_back("-Werror=double-promotion");
  std::string between = by.clang ? folder.file("code.ll") : made;
  for (const std::string& word :
       by.clang ? std::vector<std::string>{"-S", "-emit-llvm"} : std::vector<std::string>{"-shared"})
    command.push_back(word);
  for (const std::string& word : {code, std::string("-o"), between}) command.push_back(word);
  if (!by.clang) command.push_back("-lm");
  if (run(command, log)) return does_not_compile(*program, file_text(log));
  if (by.clang) {
    if (std::string line = double_in(file_text(between)); !line.empty())
      return does_not_compile(*program, "float64, which the chip does not have:" + line);
    if (run({by.name, "-x", "ir", "-O1", "-w", "-fPIC", "-shared", between, "-o", made, "-lm"}, log))
      return does_not_compile(*program, file_text(log));
  }
  program->log = file_text(log);
  program->binary = file_text(made);
  return kGood;
}

ENTRY Code aclrtcGetBinDataSize(void* handle, size_t* size) {
  CALL();
  if (!handle) return refuse(kBadProgram, "aclrtcGetBinDataSize: the program is NULL");
  if (!size) return refuse(kBadInput, "aclrtcGetBinDataSize: the result's place is NULL");
  *size = static_cast<Program*>(handle)->binary.size();
  return kGood;
}

ENTRY Code aclrtcGetBinData(void* handle, char* data) {
  CALL();
  if (!handle) return refuse(kBadProgram, "aclrtcGetBinData: the program is NULL");
  const std::string& binary = static_cast<Program*>(handle)->binary;
  if (binary.empty() || !data) return refuse(kBadInput, "aclrtcGetBinData: there is no binary, or no place for it");
  memcpy(data, binary.data(), binary.size());
  return kGood;
}

ENTRY Code aclrtcGetCompileLogSize(void* handle, size_t* size) {
  CALL();
  if (!handle) return refuse(kBadProgram, "aclrtcGetCompileLogSize: the program is NULL");
  if (!size) return refuse(kBadInput, "aclrtcGetCompileLogSize: the result's place is NULL");
  *size = static_cast<Program*>(handle)->log.size() + 1;
  return kGood;
}

ENTRY Code aclrtcGetCompileLog(void* handle, char* log) {
  CALL();
  if (!handle) return refuse(kBadProgram, "aclrtcGetCompileLog: the program is NULL");
  if (!log) return refuse(kBadInput, "aclrtcGetCompileLog: the result's place is NULL");
  const std::string& words = static_cast<Program*>(handle)->log;
  memcpy(log, words.c_str(), words.size() + 1);
  return kGood;
}

ENTRY Code aclrtcDestroyProg(void** handle) {
  CALL();
  if (!handle) return refuse(kBadInput, "aclrtcDestroyProg: the program's place is NULL");
  if (!*handle) return refuse(kBadProgram, "aclrtcDestroyProg: the program is NULL");
  delete static_cast<Program*>(*handle);
  *handle = nullptr;
  return kGood;
}
