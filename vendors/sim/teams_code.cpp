// A program that is watched: how it is built, and what its file says of arrays and lines.
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "teams.hpp"

namespace sim::teams {

// The functions that -fsanitize=thread and -fsanitize=bounds call. gcc's names and clang's.
const char* const preamble = R"(
struct cw_team {
  void (*access)(const void*, unsigned long, int, const void*);
  void (*barrier)(int, const void*);
  void (*outside)(const void*);
  long (*lane)(void);
  long (*lanes)(void);
};
const struct cw_team* cw_team_;
#define CW_HOOK __attribute__((no_sanitize("thread"), no_sanitize("bounds"), noinline, visibility("hidden")))
#define CW_FROM __builtin_return_address(0)
#define CW_ACCESS(n) \
  CW_HOOK void __tsan_read##n(void* p) { cw_team_->access(p, n, 0, CW_FROM); } \
  CW_HOOK void __tsan_write##n(void* p) { cw_team_->access(p, n, 1, CW_FROM); } \
  CW_HOOK void __tsan_unaligned_read##n(void* p) { cw_team_->access(p, n, 0, CW_FROM); } \
  CW_HOOK void __tsan_unaligned_write##n(void* p) { cw_team_->access(p, n, 1, CW_FROM); }
CW_ACCESS(1) CW_ACCESS(2) CW_ACCESS(4) CW_ACCESS(8) CW_ACCESS(16)
CW_HOOK void __tsan_read_range(void* p, unsigned long n) { cw_team_->access(p, n, 0, CW_FROM); }
CW_HOOK void __tsan_write_range(void* p, unsigned long n) { cw_team_->access(p, n, 1, CW_FROM); }
CW_HOOK void* __tsan_memcpy(void* to, const void* from, unsigned long n) {
  cw_team_->access(from, n, 0, CW_FROM), cw_team_->access(to, n, 1, CW_FROM);
  return __builtin_memmove(to, from, n);
}
CW_HOOK void* __tsan_memset(void* to, int byte, unsigned long n) {
  cw_team_->access(to, n, 1, CW_FROM);
  return __builtin_memset(to, byte, n);
}
CW_HOOK void __tsan_func_entry(void* from) {}
CW_HOOK void __tsan_func_exit(void) {}
CW_HOOK void __tsan_init(void) {}
CW_HOOK void __ubsan_handle_out_of_bounds(void* array, void* index) { cw_team_->outside(CW_FROM); }
CW_HOOK static void cw_barrier(int which) {
  __asm__ volatile("" ::: "memory");
  cw_team_->barrier(which, CW_FROM);
  __asm__ volatile("" ::: "memory");
}
CW_HOOK __attribute__((const)) static long cw_lane(void) { return cw_team_->lane(); }
CW_HOOK __attribute__((const)) static long cw_lanes(void) { return cw_team_->lanes(); }
#define CW_LANE cw_lane()
#define CW_LANES cw_lanes()
#define CW_BARRIER cw_barrier(__COUNTER__)
#define CW_LOCAL static __attribute__((section("cw_local")))
#line 1
)";

// Optimised little, so that the accesses are those of the text. Arrays of an item's own begin as a pattern.
const std::vector<const char*> flags = {"-std=gnu11",
                                        "-O1",
                                        "-g1",
                                        "-march=native",
                                        "-ffp-contract=off",
                                        "-fno-math-errno",
                                        "-fno-trapping-math",
                                        "-fwrapv",
                                        "-fno-strict-aliasing",
                                        "-fno-omit-frame-pointer",
                                        "-ftrivial-auto-var-init=pattern",
                                        "-fsanitize=thread",
                                        "-fsanitize=bounds",
                                        "-nodefaultlibs",  // not the compiler's own runtime for these
                                        "-shared",
                                        "-fPIC",
                                        "-w"};

std::unique_ptr<Code> Code::open(void* library, const std::vector<unsigned char>& bytes, std::string source) {
  void* hooks = dlsym(library, "cw_team_");
  Dl_info info;
  if (!hooks || !dladdr(hooks, &info)) return nullptr;
  auto code = std::make_unique<Code>();
  code->base_ = reinterpret_cast<uintptr_t>(info.dli_fbase);
  code->hooks_ = hooks;
  code->bytes_ = bytes;
  code->source_ = std::move(source);
  // The linker wrote the file a moment ago, or its checksum was right: it is well formed.
  Elf64_Ehdr head;
  memcpy(&head, bytes.data(), sizeof head);
  std::vector<Elf64_Shdr> sections(head.e_shnum);
  memcpy(sections.data(), bytes.data() + head.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  const auto text_at = [&](uint32_t section, uint64_t at) {
    return reinterpret_cast<const char*>(bytes.data()) + sections[section].sh_offset + at;
  };
  for (const Elf64_Shdr& table : sections) {
    if (table.sh_type != SHT_SYMTAB) continue;
    for (uint64_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      memcpy(&symbol, bytes.data() + table.sh_offset + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= sections.size() || !symbol.st_size)
        continue;
      const std::string name = text_at(table.sh_link, symbol.st_name);
      const bool local = strcmp(text_at(head.e_shstrndx, sections[symbol.st_shndx].sh_name), "cw_local") == 0;
      code->arrays_.push_back({code->base_ + symbol.st_value, symbol.st_size, name.substr(0, name.find('.')), local});
    }
  }
  std::sort(code->arrays_.begin(), code->arrays_.end(),
            [](const Array& a, const Array& b) { return a.start < b.start; });
  return code;
}

const Code::Array* Code::array_at(uintptr_t address, uint64_t bytes) const {
  auto next = std::upper_bound(arrays_.begin(), arrays_.end(), address,
                               [](uintptr_t a, const Array& array) { return a < array.start; });
  if (next == arrays_.begin()) return nullptr;
  const Array& found = *std::prev(next);
  return address - found.start < found.bytes && bytes <= found.bytes - (address - found.start) ? &found : nullptr;
}

std::string Code::line_at(uintptr_t address) const {
  char path[] = "/tmp/causeway-XXXXXX";
  char said[256] = "";
  const int fd = mkstemp(path);
  if (fd >= 0) {
    if (write(fd, bytes_.data(), bytes_.size()) == ssize_t(bytes_.size())) {
      char command[128];
      snprintf(command, sizeof command, "addr2line -e %s 0x%llx 2>/dev/null", path,
               static_cast<unsigned long long>(address - base_ - 1));
      if (FILE* words = popen(command, "r")) {
        if (!fgets(said, sizeof said, words)) said[0] = 0;
        pclose(words);
      }
    }
    close(fd);
    unlink(path);
  }
  const char* colon = strrchr(said, ':');
  const int line = colon ? atoi(colon + 1) : 0;
  if (line <= 0) {
    snprintf(said, sizeof said, "instruction 0x%llx", static_cast<unsigned long long>(address - base_));
    return said;
  }
  size_t from = 0;
  for (int n = 1; n < line && from != std::string::npos; ++n) {
    from = source_.find('\n', from);
    if (from != std::string::npos) ++from;
  }
  std::string text = from < source_.size() ? source_.substr(from, source_.find('\n', from) - from) : "";
  text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
  if (text.size() > 150) text = text.substr(0, 147) + "...";
  return "line " + std::to_string(line) + (text.empty() ? "" : ": " + text);
}

}  // namespace sim::teams
