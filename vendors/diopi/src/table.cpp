// All lines, and the entry that looks one up.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "call.hpp"
#include "library.hpp"

namespace diopi {

const Lines& table() {
  static const auto& lines = *[] {
    auto* all = new Lines;
    add_pointwise(*all);
    add_reductions(*all);
    add_networks(*all);
    add_index(*all);
    add_random(*all);
    add_lists(*all);
    return all;
  }();
  return lines;
}

namespace {

std::mutex g_mutex;  // of looking functions up

// Whether the library has a call of the line that stands alone; beside it, one that takes a number.
bool find(const Line& line, bool* takes_numbers) {
  std::lock_guard<std::mutex> lock(g_mutex);
  bool found = false;
  for (size_t i = 0; i < line.calls.size(); ++i) {
    Operation& operation = line.operations[i];
    if (!operation.function) operation.function = find_function(operation.name);
    if (!operation.function) continue;
    if (line.calls[i].takes_number)
      *takes_numbers = true;
    else if (!line.calls[i].is_inplace)
      found = true;
  }
  return found;
}

// The function that a line cannot do without.
const char* main_function(const Line& line) {
  for (size_t i = 0; i < line.calls.size(); ++i)
    if (!line.calls[i].takes_number && !line.calls[i].is_inplace) return line.operations[i].name;
  return line.operations[0].name;
}

}  // namespace

cw_status op_find(const char* name, cw_op* out) {
  if (setting("ops") == "0") return fail(CW_UNSUPPORTED, "%s: CAUSEWAY_DIOPI_OPS is 0", name);
  static const auto& places = *[] {
    auto* made = new std::unordered_map<std::string_view, const Line*>;
    for (const Line& line : table()) (*made)[line.name] = &line;
    return made;
  }();
  const auto found = places.find(name);
  if (found == places.end()) return fail(CW_UNSUPPORTED, "%s is no operator of the table", name);
  const Line& line = *found->second;
  bool takes_numbers = false;
  if (open_library() || !find(line, &takes_numbers))
    return fail(CW_UNSUPPORTED, "%s: the library does not have %s", name, main_function(line));
  static const bool dense = setting("contiguous") == "1";
  uint32_t needs = line.needs.bits;
  if (takes_numbers) needs |= CW_TAKES_NUMBERS;
  if (dense && strcmp(name, "aten::copy_") != 0) needs |= CW_NEEDS_CONTIGUOUS;
  cw_op op{sizeof(cw_op), needs, line.needs.of, line.kernel};
  op.struct_size = out->struct_size;
  memcpy(out, &op, std::min<size_t>(out->struct_size, sizeof(op)));
  return CW_OK;
}

const char* notes() {
  static const auto& text = *[] {
    auto* made = new std::string(words_for_library());
    if (open_library()) return made;
    size_t here = 0;
    std::string missing;
    for (const Line& line : table()) {
      bool takes_numbers = false;
      if (find(line, &takes_numbers))
        ++here;
      else if (missing.size() < 200)
        missing += std::string(missing.empty() ? "" : ", ") + main_function(line);
    }
    *made += "\n" + std::to_string(here) + " of " + std::to_string(table().size()) +
             " operators of the table are in the library";
    if (!missing.empty()) *made += "; missing, among others: " + missing;
    return made;
  }();
  return text.c_str();
}

const char* rows() {
  static const auto& text = *[] {
    auto* made = new std::string;
    for (const Line& line : table())
      for (size_t i = 0; i < line.calls.size(); ++i)
        *made += std::string(line.name) + " " + line.operations[i].name + "\n";
    return made;
  }();
  return text.c_str();
}

}  // namespace diopi
