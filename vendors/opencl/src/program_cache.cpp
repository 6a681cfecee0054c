// The programs of earlier processes. A file holds its whole key, so two keys with one hash do not meet, and a checksum,
// so a damaged one is built anew; it appears whole by a rename.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "program.hpp"

namespace opencl {

namespace {

constexpr char kMagic[8] = {'c', 'w', 'o', 'c', 'l', '0', '0', '1'};

uint64_t hash(const void* data, size_t n, uint64_t h) {
  const auto* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < n; ++i) h = (h ^ p[i]) * 0x100000001B3ull;  // FNV-1a
  return h;
}

std::string folder() {
  if (const char* set = host.setting ? host.setting("cache") : nullptr; set && *set) return set;
  if (const char* xdg = getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/causeway/opencl";
  if (const char* home = getenv("HOME"); home && *home) return std::string(home) + "/.cache/causeway/opencl";
  return "";
}

bool make_folder(const std::string& path) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at);
    mkdir(path.substr(0, at).c_str(), 0777);
    if (at != std::string::npos) ++at;
  }
  struct stat found;
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::string file_of(const std::string& key) {
  const std::string where = folder();
  if (where.empty()) return "";
  char name[64];
  snprintf(name, sizeof(name), "/%016llx%016llx.bin",
           static_cast<unsigned long long>(hash(key.data(), key.size(), 0xcbf29ce484222325ull)),
           static_cast<unsigned long long>(hash(key.data(), key.size(), 0x9E3779B97F4A7C15ull)));
  return where + name;
}

struct Header {
  char magic[8];
  uint64_t key_bytes, binary_bytes, checksum;
};

}  // namespace

std::vector<unsigned char> find_binary(const std::string& key) {
  const std::string path = file_of(key);
  FILE* file = path.empty() ? nullptr : fopen(path.c_str(), "rb");
  if (!file) return {};
  Header header;
  std::string kept;
  std::vector<unsigned char> binary;
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

void keep_binary(const std::string& key, const std::vector<unsigned char>& binary) {
  const std::string path = file_of(key);
  if (path.empty()) return;
  static std::atomic<int> number{0};
  const std::string part = path + "." + std::to_string(getpid()) + "." + std::to_string(number++);
  FILE* file = make_folder(folder()) ? fopen(part.c_str(), "wb") : nullptr;
  bool good = file != nullptr;
  if (file) {
    Header header = {{}, key.size(), binary.size(), hash(binary.data(), binary.size(), 0)};
    memcpy(header.magic, kMagic, sizeof(kMagic));
    good = fwrite(&header, sizeof(header), 1, file) == 1 && fwrite(key.data(), 1, key.size(), file) == key.size() &&
           fwrite(binary.data(), 1, binary.size(), file) == binary.size();
    good = fclose(file) == 0 && good && rename(part.c_str(), path.c_str()) == 0;
    if (!good) unlink(part.c_str());
  }
  static std::atomic<bool> said{false};
  if (!good && !said.exchange(true) && host.log)
    host.log(2, ("programs cannot be kept in " + folder() +
                 ", so each process builds them anew; CAUSEWAY_OPENCL_CACHE names another folder")
                    .c_str());
}

}  // namespace opencl
