// Functions of float32 for devices that compute one element after the other, as text of the dialect. A runtime's own is
// a call for each element; these have no branches, so that loops with them become vectors: both arms are computed, and
// one is taken. Errors against float64 are measured by tests/portable/functions.py.
// What is put together here, and is in no .cl: the functions that a text calls, and no others; a table of 2/pi.
#include "portable/kernels/functions.h"
#include "portable/kernels/functions.cl.h"

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <iterator>

namespace causeway::portable {

namespace {

struct Function {
  const char *name, *parameters, *needs, *text;  // `needs`: names of others, which stand before it
};

constexpr Function kFunctions[] = {
    {"rint", "v", "", texts::functions::rint},
    {"log_of", nullptr, "", texts::functions::log_of},
    {"log", "v", "log_of", texts::functions::log},
    {"log2", "v", "log_of", texts::functions::log2},
    {"log10", "v", "log_of", texts::functions::log10},
    {"log1p", "v", "log_of", texts::functions::log1p},
    {"exp", "v", "", ""},
    {"exp2", "v", "", texts::functions::exp2},
    {"expm1", "v", "", texts::functions::expm1},
    {"quarters", nullptr, "", texts::functions::quarters},
    {"sin", "v", "quarters", texts::functions::sin},
    {"cos", "v", "quarters", texts::functions::cos},
    {"tan", "v", "quarters", texts::functions::tan},
    {"asin_of", nullptr, "", texts::functions::asin_of},
    {"asin", "v", "asin_of", texts::functions::asin},
    {"acos", "v", "asin_of", texts::functions::acos},
    {"atan_of", nullptr, "", texts::functions::atan_of},
    {"atan", "v", "atan_of", texts::functions::atan},
    {"atan2", "v, w", "atan_of", texts::functions::atan2},
    {"sinh", "v", "expm1", texts::functions::sinh},
    {"cosh", "v", "", texts::functions::cosh},
    {"atanh", "v", "log1p", texts::functions::atanh},
    {"hypot", "v, w", "", texts::functions::hypot},
    {"two_to", nullptr, "", texts::functions::two_to},
    {"erfc", "v", "two_to", texts::functions::erfc},
    {"pow", "v, w", "rint two_to", texts::functions::pow},
};

// Bits of 2/pi after the point.
constexpr uint32_t kTwoOverPi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599,
                                   0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a};

// 53 bits of 2/pi from the one that counts 2^weight on.
uint64_t bits_from(int weight) {
  uint64_t bits = 0;
  for (int i = 0; i < 53; ++i) {
    const int at = i - weight - 1;  // after the point
    bits = bits << 1 | (at < 0 ? 0 : kTwoOverPi[at / 32] >> (31 - at % 32) & 1);
  }
  return bits;
}

// For each e: (2/pi * 2^e) modulo 4, as the sum of two numbers of 53 bits.
std::string table(const char* name, int below) {
  std::string text = std::string("CONSTANT f64 ") + name + "[105] = {";
  for (int e = 0; e <= 104; ++e) {
    char number[48];
    std::snprintf(number, sizeof number, "%s%llu.0 * %.17g", e ? ", " : "",
                  static_cast<unsigned long long>(bits_from(1 - below - e)), below ? 0x1p-104 : 0x1p-51);
    text += number;
  }
  return text + "};\n";
}

// Whether `name` stands in the text as a word that `after` follows.
bool names(const std::string& text, const std::string& name, char after) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const bool begins = at == 0 || (!isalnum(text[at - 1]) && text[at - 1] != '_');
    if (begins && text[at + name.size()] == after) return true;
  }
  return false;
}

// The definitions of what the text calls, and a macro for each: `named` gives that of a function and its parameters.
template <typename Macro>
std::string definitions(const std::string& text, Macro named) {
  bool wanted[std::size(kFunctions)] = {};
  std::string macros;
  for (size_t i = std::size(kFunctions); i-- > 0;) {  // what others need stands before them
    const Function& f = kFunctions[i];
    if (f.parameters && names(text, f.name, '(')) {
      wanted[i] = true;
      macros += named(std::string(f.name), "(" + std::string(f.parameters) + ")");
    }
    if (!wanted[i]) continue;
    for (size_t j = 0; j < i; ++j)
      if (names(std::string(f.needs) + " ", kFunctions[j].name, ' ')) wanted[j] = true;
  }
  if (macros.empty()) return "";
  std::string all;
  for (size_t i = 0; i < std::size(kFunctions); ++i) {
    if (!wanted[i]) continue;
    if (std::string(kFunctions[i].name) == "quarters") all += table("quarters_high", 0) + table("quarters_low", 53);
    all += kFunctions[i].text;
  }
  return all + macros;
}

constexpr const char* kOurs = "#if defined(IN_TURN) && defined(DOUBLE)\n";

}  // namespace

std::string functions_of(const std::string& text) {
  const std::string all = definitions(text, [](const std::string& name, const std::string& with) {
    return "#undef " + name + "\n#define " + name + with + " " + name + "_f32" + with + "\n";
  });
  return all.empty() ? "" : kOurs + all + "#endif\n";
}

// The names themselves stay as they are: where they are macros of a runtime's, as in PoCL, none is left after an #undef.
std::string typed_functions_of(const std::string& text) {
  std::string called, theirs;
  for (const Function& f : kFunctions) {
    const std::string name = f.name;
    if (!f.parameters || !names(text, name + "_32", '(')) continue;
    const std::string with = "(" + std::string(f.parameters) + ")";
    called += name + "(";
    theirs += "#define " + name + "_32" + with + " " + name + with + "\n";
  }
  if (called.empty()) return "";
  return kOurs +
         definitions(called,
                     [](const std::string& name, const std::string& with) {
                       return "#define " + name + "_32" + with + " " + name + "_f32" + with + "\n";
                     }) +
         "#else\n" + theirs + "#endif\n";
}

}  // namespace causeway::portable
