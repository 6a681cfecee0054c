// All lines, and the entry that looks one up.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "call.hpp"
#include "device.hpp"
#include "error.hpp"

namespace ascend {

const Lines& table() {
  static const auto& lines = *[] {
    auto* all = new Lines;
    add_pointwise(*all);
    add_reductions(*all);
    add_products(*all);
    add_networks(*all);
    add_losses(*all);
    add_index(*all);
    add_random(*all);
    add_lists(*all);
    add_attention(*all);
    add_recurrent(*all);
    return all;
  }();
  return lines;
}

namespace {

std::mutex g_mutex;  // of looking operations up

// The first call of a line is the one that takes tensors; others are shorter ways.
bool find(const Line& line) {
  std::lock_guard<std::mutex> lock(g_mutex);
  bool first = false;
  for (size_t i = 0; i < line.parameters.size(); ++i) {
    const bool found = line.operations[i].find();
    if (i == 0) first = found;
  }
  return first;
}

}  // namespace

cw_status op_find(const char* name, cw_op* out) {
  if (setting("ops") == "0") return fail(CW_UNSUPPORTED, "%s: CAUSEWAY_ASCEND_OPS is 0", name);
  static const auto& places = *[] {
    auto* made = new std::unordered_map<std::string_view, const Line*>;
    for (const Line& line : table()) (*made)[line.name] = &line;
    return made;
  }();
  const auto found = places.find(name);
  if (found == places.end()) return fail(CW_UNSUPPORTED, "%s is no operator of the table", name);
  if (*open_acl() || *open_aclnn() || !find(*found->second))
    return fail(CW_UNSUPPORTED, "%s: CANN's libraries do not have aclnn%s", name, found->second->operations[0].name);
  const Line& line = *found->second;
  cw_op op{sizeof(cw_op), line.needs.bits, line.needs.of & computed_dtypes(), line.kernel};
  op.struct_size = out->struct_size;
  memcpy(out, &op, std::min<size_t>(out->struct_size, sizeof(op)));
  return CW_OK;
}

std::string words_for_operators() {
  int here = 0;
  std::string missing;
  for (const Line& line : table()) {
    if (find(line)) {
      ++here;
    } else if (missing.size() < 200) {
      missing += std::string(missing.empty() ? "" : ", ") + "aclnn" + line.operations[0].name;
    }
  }
  const size_t all = table().size();
  std::string text =
      std::to_string(here) + " of " + std::to_string(all) + " operators of the table are in CANN's libraries";
  return missing.empty() ? text : text + "; missing, among others: " + missing;
}

const char* rows() {
  static const auto& text = *[] {
    auto* made = new std::string;
    for (const Line& line : table())
      for (size_t i = 0; i < line.parameters.size(); ++i)
        *made += std::string(line.name) + " aclnn" + line.operations[i].name + " " + line.parameters[i] + "\n";
    return made;
  }();
  return text.c_str();
}

}  // namespace ascend
