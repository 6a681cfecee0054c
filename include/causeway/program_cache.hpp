// For vendors with a compiler (code.v1): the programs of earlier processes, kept on disk. Optional, C++17, POSIX.
//
// A file holds its whole key, so two keys with one hash do not meet, and a checksum, so a damaged one is built anew; it
// appears whole by a rename. The key should say everything that the binary depends on: device, driver, options, source.
#ifndef CAUSEWAY_PROGRAM_CACHE_HPP
#define CAUSEWAY_PROGRAM_CACHE_HPP

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace causeway {

class ProgramCache {
 public:
  using Binary = std::vector<unsigned char>;

  // Files lie in `folder`: `set` where the vendor's setting gives one, else `name` in causeway's part of the user's
  // cache. Empty: there is no home, and nothing is kept.
  static std::string folder(const char* set, const char* name) {
    if (set && *set) return set;
    if (const char* xdg = getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/causeway/" + name;
    if (const char* home = getenv("HOME"); home && *home) return std::string(home) + "/.cache/causeway/" + name;
    return "";
  }

  explicit ProgramCache(std::string folder) : folder_(std::move(folder)) {}

  // What was kept for `key`; empty: nothing, or a damaged file.
  Binary find(const std::string& key) const {
    FILE* file = folder_.empty() ? nullptr : fopen(path_of(key).c_str(), "rb");
    if (!file) return {};
    Header header;
    std::string kept;
    Binary binary;
    bool good = fread(&header, sizeof(header), 1, file) == 1 && memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 &&
                header.key_bytes == key.size() && header.binary_bytes < (uint64_t{1} << 32);
    if (good) {
      kept.resize(header.key_bytes);
      binary.resize(header.binary_bytes);
      good = fread(kept.data(), 1, kept.size(), file) == kept.size() && kept == key &&
             fread(binary.data(), 1, binary.size(), file) == binary.size() &&
             hash(binary.data(), binary.size(), 0) == header.checksum;
    }
    fclose(file);
    if (!good) binary.clear();
    return binary;
  }

  // Whether it could be written.
  bool keep(const std::string& key, const Binary& binary) const {
    if (folder_.empty()) return true;
    static std::atomic<int> number{0};
    const std::string path = path_of(key),
                      part = path + "." + std::to_string(getpid()) + "." + std::to_string(number++);
    FILE* file = make_folder() ? fopen(part.c_str(), "wb") : nullptr;
    if (!file) return false;
    Header header = {{}, key.size(), binary.size(), hash(binary.data(), binary.size(), 0)};
    memcpy(header.magic, kMagic, sizeof(kMagic));
    bool good = fwrite(&header, sizeof(header), 1, file) == 1 &&
                fwrite(key.data(), 1, key.size(), file) == key.size() &&
                fwrite(binary.data(), 1, binary.size(), file) == binary.size();
    good = fclose(file) == 0 && good && rename(part.c_str(), path.c_str()) == 0;
    if (!good) unlink(part.c_str());
    return good;
  }

  const std::string& where() const { return folder_; }

 private:
  static constexpr char kMagic[8] = {'c', 'w', 'c', 'o', 'd', 'e', '0', '1'};
  struct Header {
    char magic[8];
    uint64_t key_bytes, binary_bytes, checksum;
  };

  static uint64_t hash(const void* data, size_t n, uint64_t h) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < n; ++i) h = (h ^ p[i]) * 0x100000001B3ull;  // FNV-1a
    return h;
  }

  std::string path_of(const std::string& key) const {
    char name[64];
    snprintf(name, sizeof(name), "/%016llx%016llx.bin",
             static_cast<unsigned long long>(hash(key.data(), key.size(), 0xcbf29ce484222325ull)),
             static_cast<unsigned long long>(hash(key.data(), key.size(), 0x9E3779B97F4A7C15ull)));
    return folder_ + name;
  }

  bool make_folder() const {
    for (size_t at = 1; at != std::string::npos;) {
      at = folder_.find('/', at);
      mkdir(folder_.substr(0, at).c_str(), 0777);
      if (at != std::string::npos) ++at;
    }
    struct stat found;
    return stat(folder_.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  }

  std::string folder_;
};

}  // namespace causeway
#endif  // CAUSEWAY_PROGRAM_CACHE_HPP
