// For vendors with a compiler (code.v1): the programs of earlier processes, kept on disk. Optional, C++17, POSIX.
//
// A file holds its whole key, so two keys with one hash do not meet, and a checksum, so a damaged one is built anew; it
// appears whole by a rename. The key should say everything that the binary depends on: device, driver, options, source.
//
// What is kept runs as this user's code. So a folder or a file is used only where it is this user's
// and nobody else may write there, and no link is followed to a file; what is made is 0700 and 0600.
#ifndef CAUSEWAY_PROGRAM_CACHE_HPP
#define CAUSEWAY_PROGRAM_CACHE_HPP

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
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

  // What was kept for `key`; empty: nothing, a damaged file, or one that others may have written.
  Binary find(const std::string& key) const {
    const int there = open_folder(false);
    if (there < 0) return {};
    const int fd = openat(there, name_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    close(there);
    if (fd < 0) return {};
    struct stat status;
    Header header;
    Binary binary;
    // The sizes in the header are compared with the file's before any memory is taken.
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && is_ours(status) &&
        read_all(fd, &header, sizeof(header)) && memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 &&
        header.key_bytes == key.size() && static_cast<uint64_t>(status.st_size) >= sizeof(header) + key.size() &&
        header.binary_bytes == static_cast<uint64_t>(status.st_size) - sizeof(header) - key.size()) {
      std::string kept(key.size(), '\0');
      binary.resize(header.binary_bytes);
      if (!read_all(fd, kept.data(), kept.size()) || kept != key || !read_all(fd, binary.data(), binary.size()) ||
          hash(binary.data(), binary.size(), 0) != header.checksum)
        binary.clear();
    }
    close(fd);
    return binary;
  }

  // Whether it could be written.
  bool keep(const std::string& key, const Binary& binary) const {
    if (folder_.empty()) return true;
    static std::atomic<int> number{0};
    const std::string name = name_of(key),
                      part = name + "." + std::to_string(getpid()) + "." + std::to_string(number++);
    const int there = open_folder(true);
    if (there < 0) return false;
    const int fd = openat(there, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0;
    if (good) {
      Header header = {{}, key.size(), binary.size(), hash(binary.data(), binary.size(), 0)};
      memcpy(header.magic, kMagic, sizeof(kMagic));
      good = write_all(fd, &header, sizeof(header)) && write_all(fd, key.data(), key.size()) &&
             write_all(fd, binary.data(), binary.size());
      good = close(fd) == 0 && good && renameat(there, part.c_str(), there, name.c_str()) == 0;
      if (!good) unlinkat(there, part.c_str(), 0);
    }
    close(there);
    return good;
  }

  // The same. Where the folder cannot be written, the core's `log` says so once; `setting` names another folder.
  void keep(const std::string& key, const Binary& binary, void (*log)(int32_t level, const char* message),
            const char* setting) const {
    static std::atomic<bool> said{false};
    if (keep(key, binary) || said.exchange(true) || !log) return;
    log(2, ("programs cannot be kept in " + folder_ + ", so each process builds them anew; " + setting +
            " names another folder")
               .c_str());
  }

  const std::string& where() const { return folder_; }

  // A binary as it is handed out, with the key of those that take it again and a checksum: drivers crash on damaged ones.
  static Binary seal(const std::string& key, const Binary& binary) {
    Header header = {{}, key.size(), binary.size(), hash(binary.data(), binary.size(), 0)};
    memcpy(header.magic, kMagic, sizeof(kMagic));
    const auto* head = reinterpret_cast<const unsigned char*>(&header);
    Binary out(head, head + sizeof(header));
    out.insert(out.end(), key.begin(), key.end());
    out.insert(out.end(), binary.begin(), binary.end());
    return out;
  }
  // For `binary` of code.v1: `bytes` says how much room `out` has, and then how many bytes it takes.
  static void hand_out(const Binary& binary, void* out, uint64_t* bytes) {
    const uint64_t room = out ? *bytes : 0;
    *bytes = binary.size();
    if (room >= *bytes) memcpy(out, binary.data(), *bytes);
  }
  // 1: `out` is what was sealed; -1: it is damaged, or was sealed with another key; 0: it is not sealed.
  static int unseal(const std::string& key, const void* data, size_t n, Binary* out) {
    Header header;
    if (n < sizeof(kMagic) || memcmp(data, kMagic, sizeof(kMagic)) != 0) return 0;
    if (n < sizeof(header)) return -1;
    memcpy(&header, data, sizeof(header));
    const auto* at = static_cast<const unsigned char*>(data) + sizeof(header);
    n -= sizeof(header);
    if (header.key_bytes != key.size() || n < key.size() || header.binary_bytes != n - key.size() ||
        memcmp(at, key.data(), key.size()) != 0)
      return -1;
    out->assign(at + key.size(), at + n);
    return hash(out->data(), out->size(), 0) == header.checksum ? 1 : -1;
  }

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

  static bool is_ours(const struct stat& status) {
    return status.st_uid == geteuid() && !(status.st_mode & (S_IWGRP | S_IWOTH));
  }

  static bool read_all(int fd, void* to, size_t n) {
    for (auto* p = static_cast<char*>(to); n;) {
      const ssize_t got = read(fd, p, n);
      if (got <= 0) return false;
      p += got, n -= static_cast<size_t>(got);
    }
    return true;
  }

  static bool write_all(int fd, const void* from, size_t n) {
    for (auto* p = static_cast<const char*>(from); n;) {
      const ssize_t put = write(fd, p, n);
      if (put <= 0) return false;
      p += put, n -= static_cast<size_t>(put);
    }
    return true;
  }

  static std::string name_of(const std::string& key) {
    char name[64];
    snprintf(name, sizeof(name), "%016llx%016llx.bin",
             static_cast<unsigned long long>(hash(key.data(), key.size(), 0xcbf29ce484222325ull)),
             static_cast<unsigned long long>(hash(key.data(), key.size(), 0x9E3779B97F4A7C15ull)));
    return name;
  }

  // The folder, held open, so that what was looked at is what is used; -1: it is not there, or may be another's.
  int open_folder(bool make) const {
    if (folder_.empty()) return -1;
    for (size_t at = 1; make && at != std::string::npos;) {
      at = folder_.find('/', at);
      mkdir(folder_.substr(0, at).c_str(), 0700);
      if (at != std::string::npos) ++at;
    }
    const int fd = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;
    if (fd >= 0 && (fstat(fd, &status) != 0 || !is_ours(status))) return close(fd), -1;
    return fd;
  }

  std::string folder_;
};

}  // namespace causeway
#endif  // CAUSEWAY_PROGRAM_CACHE_HPP
