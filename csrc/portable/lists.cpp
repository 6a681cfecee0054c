// What is put together here, and is in no .cl: the tensors of a launch, which are parameters one by one.
#include "portable/lists.h"

#include <algorithm>

namespace causeway::portable {

namespace {

// By its number, or by that of a block.
std::string find(const Lists& lists, bool by_number) {
  std::string text = "idx blocks_before_ = 0, had_, k_ = 0, size_ = 0;\n";
  for (const Picked& p : lists.picked)
    text += p.type + " " + p.name + p.suffix + " = " + p.name + "_0" + p.suffix + ";\n";
  text += "do {\n";
  const std::string block = std::to_string(lists.block), up = std::to_string(lists.block - 1);
  for (size_t k = 0; k < lists.count; ++k) {
    const std::string K = std::to_string(k);
    text += "had_ = (size_" + K + " + " + up + ") / " + block + "; if (" +
            (by_number ? "u_ == " + K : "u_ - blocks_before_ < had_") + ") { k_ = " + K + "; size_ = size_" + K + ";";
    for (const Picked& p : lists.picked) text += " " + p.name + p.suffix + " = " + p.name + "_" + K + p.suffix + ";";
    text += " break; }\nblocks_before_ += had_;\n";
  }
  return text + "} while (0);\n";
}

}  // namespace

size_t tensors_of(size_t count, size_t most) {
  size_t made = 4;
  while (made < count) made *= 2;
  return std::min(made, std::max<size_t>(most, 1));
}

size_t most_tensors(size_t pointers, size_t numbers, size_t more) {
  const size_t by_pointer = pointers ? (Launch::kMost - more) / pointers : Launch::kMost;
  return std::max<size_t>(1, std::min(by_pointer, (Launch::kMost - 20 - more) / (numbers + 1)));
}

int64_t block_of(const Device& device) { return device.in_turn() ? 4096 : 16 * int64_t{lanes_of(device)}; }

uint32_t lanes_of(const Device& device) {
  uint32_t lanes = device.in_turn() ? 1 : 256;
  while (lanes > 1 && lanes > device.info.group_limit) lanes /= 2;
  return lanes;
}

std::string find_block(const Lists& lists) {
  const std::string block = std::to_string(lists.block);
  return find(lists, false) + "const idx from_ = (u_ - blocks_before_) * " + block + ", to_ = from_ + " + block +
         " < size_ ? from_ + " + block + " : size_;\n";
}

std::string find_tensor(const Lists& lists) {
  return find(lists, true) + "const idx from_ = blocks_before_, to_ = from_ + had_;\n";
}

std::string each_block(const Device& device, const Lists& lists, const std::string& element) {
  if (device.in_turn())
    return "for (idx u_ = FIRST(blocks_), last_ = LAST(blocks_); u_ < last_; ++u_) {\n" + find_block(lists) +
           "INDEPENDENT_MANY\nfor (idx i = from_; i < to_; ++i) {\n" + element + "}\n}\n";
  return "for (idx u_ = GROUP; u_ < blocks_; u_ += GROUPS) {\n" + find_block(lists) +
         "for (idx i = from_ + LANE; i < to_; i += LANES) {\n" + element + "}\n}\n";
}

cw_status run_blocks(const KernelCall& call, Launch& launch, cw_function function, int64_t blocks, double cost) {
  if (call.device->in_turn()) return launch.run(*call.device, function, blocks, cost, call.stream);
  return launch.run_groups(*call.device, function, blocks, lanes_of(*call.device), call.stream,
                           cost / lanes_of(*call.device));
}

}  // namespace causeway::portable
