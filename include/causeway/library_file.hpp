// Whether a shared library is all there, before it is opened: of one that was cut, dlopen maps pages behind the file's
// end, and the first touch is a SIGBUS. C++17, POSIX; ELF of this machine's size and byte order.
#ifndef CAUSEWAY_LIBRARY_FILE_HPP
#define CAUSEWAY_LIBRARY_FILE_HPP

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace causeway {

// What `fd` lacks of what its headers say it has, in words; empty: nothing, or it is no ELF file and dlopen has words.
inline std::string missing_bytes(int fd) {
  struct stat status;
  ElfW(Ehdr) head;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return "";
  const auto size = static_cast<uint64_t>(status.st_size);
  if (pread(fd, &head, sizeof head, 0) != static_cast<ssize_t>(sizeof head)) return "";
  constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != kClass) return "";
  uint64_t end = 0;  // of all that the headers name
  auto reaches = [&](uint64_t offset, uint64_t bytes) {
    const uint64_t last = bytes > UINT64_MAX - offset ? UINT64_MAX : offset + bytes;
    if (bytes && last > end) end = last;
  };
  auto words = [&] {
    return "the file has " + std::to_string(size) + " bytes and its headers speak of " + std::to_string(end) +
           ", so a part of it is missing";
  };
  reaches(head.e_phoff, uint64_t{head.e_phnum} * head.e_phentsize);
  reaches(head.e_shoff, uint64_t{head.e_shnum} * head.e_shentsize);
  if (end > size) return words();
  for (unsigned i = 0; head.e_phentsize == sizeof(ElfW(Phdr)) && i < head.e_phnum; ++i) {
    ElfW(Phdr) part;
    if (pread(fd, &part, sizeof part, static_cast<off_t>(head.e_phoff + i * sizeof part)) != sizeof part)
      return words();
    reaches(part.p_offset, part.p_filesz);
  }
  for (unsigned i = 0; head.e_shentsize == sizeof(ElfW(Shdr)) && i < head.e_shnum; ++i) {
    ElfW(Shdr) part;
    if (pread(fd, &part, sizeof part, static_cast<off_t>(head.e_shoff + i * sizeof part)) != sizeof part)
      return words();
    if (part.sh_type != SHT_NOBITS) reaches(part.sh_offset, part.sh_size);
  }
  return end > size ? words() : "";
}

inline std::string missing_bytes(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const std::string words = missing_bytes(fd);
  close(fd);
  return words;
}

}  // namespace causeway
#endif  // CAUSEWAY_LIBRARY_FILE_HPP
