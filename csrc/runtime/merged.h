// Runs of a graph's small launches as one launch.
//
// Where a device runs items in turn and its compiler takes OpenCL C, a launch of one item costs more than what it does:
// a queue, an event, a thread that wakes up. In a graph all launches are known. So runs of such launches become one of a
// kernel that calls theirs, one after the other, by a table of what each is given: its item is the one item of each.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph.h"

namespace causeway {

// The source of such a kernel, which is called `name` and takes the table, the addresses and the number of launches; and the
// number by which the table calls each function, -1: the function is not in it.
struct MergedSource {
  std::string source, name;
  std::vector<int64_t> numbers;
};
// Writes it for functions, given by their names and their programs' sources, with `addresses` different ones among all
// arguments. Nothing: it has none for these.
using Merger = std::function<std::optional<MergedSource>(
    const std::vector<std::pair<std::string, std::string>>& functions, size_t addresses, bool split_pointers)>;
void set_merger(Merger merger);

// The steps of a captured graph with runs of small launches in a step each. Those of `changing` change from replay to
// replay, and stay as they are.
std::vector<std::unique_ptr<Step>> merge_launches(int device, std::vector<std::unique_ptr<Step>> steps,
                                                  const std::set<const Step*>& changing);

}  // namespace causeway
