// What was measured of a device, in a file of the user's cache: a line for each class of products.
#pragma once

#include <string>
#include <vector>

namespace causeway::portable {

struct Kept {
  std::string name, cut, probe;  // "f32 mm many", "12x32 k256", "1x1024x1024x1024": batch, m, n, k
  double gain = 1;
};

// Nothing where there is no file for `key`, or a damaged one.
std::vector<Kept> read_kept(const std::string& folder, const std::string& key);

// Put `line` in the place of the one with its name; those of other processes stay. False: it cannot be written.
bool write_kept(const std::string& folder, const std::string& key, const Kept& line);

}  // namespace causeway::portable
