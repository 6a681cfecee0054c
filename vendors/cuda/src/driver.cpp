#include "driver.hpp"

#include <cstdio>
#include <mutex>

#include "device.hpp"
#include "library.hpp"

namespace cuda {

Driver cu;
Compiler rtc;

namespace {

void* g_driver = nullptr;  // the library; NULL on paper

// "sm_90" is one device, "sm_90x2" two.
bool read_paper(const std::string& text, Paper* out) {
  if (kin::read_architecture(text, out)) return true;
  const size_t x = text.rfind('x');
  if (x == std::string::npos || x + 1 == text.size() || text.size() - x > 4) return false;
  for (size_t i = x + 1; i < text.size(); ++i)
    if (text[i] < '0' || text[i] > '9') return false;
  out->devices = std::stoi(text.substr(x + 1));
  return out->devices >= 1 && kin::read_architecture(text.substr(0, x), out);
}

}  // namespace

const char* open_driver() {
  static std::once_flag once;
  static char words[768];
  std::call_once(once, [] {
    if (const std::string asked = setting("paper"); !asked.empty()) {
      Paper paper;
      if (!read_paper(asked, &paper)) {
        snprintf(words, sizeof(words), KIN_SETTING "PAPER is '%.40s': expected an architecture, as " KIN_ARCHITECTURE,
                 asked.c_str());
        return;
      }
      cu = paper_driver(paper);
      return;
    }
    std::string why;
    void* library = open_library(kin::driver_places(), &why);
    if (!library) {
      snprintf(words, sizeof(words),
               KIN_DRIVER " " KIN_DRIVER_FILE " cannot be opened (%s): " KIN_INSTALL_DRIVER
                          "; without a GPU " KIN_SETTING "PAPER=" KIN_ARCHITECTURE
                          " gives a device on paper, which compiles kernels and runs none",
               why.c_str());
      return;
    }
    std::string missing;
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cu.name, &missing);
    DRIVER_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, symbol) find_symbol(library, #symbol, &cu.name, &missing);
    DRIVER_WORDS(FIND)
#undef FIND
    if (!missing.empty()) {
      snprintf(words, sizeof(words), KIN_DRIVER " %s cannot be used: %s", file_of(library).c_str(), missing.c_str());
      return;
    }
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cu.name, nullptr);
    DRIVER_LATER_FUNCTIONS(FIND)
#undef FIND
    kin::complete(cu);
    g_driver = library;
  });
  return words;
}

const char* open_compiler() {
  static std::once_flag once;
  static char words[1024];
  std::call_once(once, [] {
    open_driver();
    std::string why;
    // Of HIP to 6 and of MACA the driver's library has it, and then it is of one release with it.
    const bool inside = g_driver && setting(kin::compiler_places().key).empty() &&
                        symbol_of(g_driver, compiler_symbols.compile) != nullptr;
    void* library = inside ? g_driver : open_library(kin::compiler_places(), &why);
    if (!library) {
      snprintf(words, sizeof(words), KIN_NAME "'s run-time compiler cannot be opened (%s): " KIN_INSTALL_COMPILER,
               why.c_str());
      return;
    }
    std::string missing;
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &rtc.name, &missing);
    COMPILER_FUNCTIONS(FIND)
#undef FIND
#define TEXT_OF(symbol) #symbol
#define TEXT(symbol) TEXT_OF(symbol)
    find_symbol(library, TEXT(COMPILER_ERROR_TEXT), &rtc.error_text, &missing);
#undef TEXT
#undef TEXT_OF
    if (!missing.empty()) {
      snprintf(words, sizeof(words), KIN_NAME "'s run-time compiler cannot be used: %s", missing.c_str());
      return;
    }
    kin::open_beside_compiler();
  });
  return words;
}

}  // namespace cuda
