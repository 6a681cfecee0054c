// Loads: offers every operator of names.inc, which the test writes. Each kernel writes down its operator and the tags
// of its arguments, and declines. `everything_seen` gives what was written.
#include <array>
#include <set>
#include <string>
#include <utility>

#include "base.h"

static const char* const names[] = {
#include "names.inc"
};
constexpr size_t count = sizeof names / sizeof *names;

static std::set<std::string> seen;

template <size_t index>
static cw_status kernel(const cw_arg* args, int32_t n, cw_stream) {
  std::string line = names[index];
  for (int32_t i = 0; i < n; ++i) line += " " + std::to_string(args[i].tag);
  seen.insert(line);
  return CW_UNSUPPORTED;
}

template <size_t... index>
static constexpr std::array<cw_kernel, count> make(std::index_sequence<index...>) {
  return {{kernel<index>...}};
}
static constexpr std::array<cw_kernel, count> kernels = make(std::make_index_sequence<count>());

static cw_status op_find(const char* name, cw_op* out) {
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(names[i], name) != 0) continue;
    *out = {out->struct_size, 0, CW_ALL_DTYPES, kernels[i]};
    return CW_OK;
  }
  return CW_UNSUPPORTED;
}

static const cw_backend backend = {
    BASE_HEAD,
    BASE_LEVEL_0,
    .op_find = op_find,
};

const cw_backend* cw_open_v1(const cw_host*) { return &backend; }

extern "C" CW_EXPORT const char* everything_seen() {
  static std::string lines;
  lines.clear();
  for (const std::string& line : seen) lines += line + "\n";
  return lines.c_str();
}
