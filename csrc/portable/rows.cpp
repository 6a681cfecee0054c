#include "portable/rows.h"
#include "portable/rows.cl.h"
#include "portable/source.h"

#include <algorithm>

namespace causeway::portable {

namespace {

constexpr uint32_t kItems = 256, kManyItems = 512;  // of a group; many: few rows that are long
constexpr uint32_t kMostKept = 8;
constexpr int64_t kLong = 8192;
constexpr int64_t kNeighbours = 32;  // items that read neighbouring elements at least, where rows lie beside each other

int64_t power_of_two(int64_t least) {
  int64_t n = 1;
  while (n < least) n *= 2;
  return n;
}

}  // namespace

uint64_t Teams::bits() const {
  return static_cast<uint64_t>(items) | static_cast<uint64_t>(team) << 10 | static_cast<uint64_t>(kept) << 20 |
         static_cast<uint64_t>(across) << 24;
}

Teams teams_of(const Device& device, int64_t rows, int64_t n, bool across, bool again) {
  Teams t;
  // The most that a kernel asks for is a scan's: two cells and four elements an item.
  constexpr uint64_t kLeastMemory = 7 * 8 * kManyItems;
  if (device.in_turn() || device.info.group_limit < kNeighbours || device.info.local_memory < kLeastMemory) return t;
  const bool few = rows < int64_t{device.info.compute_units} * 2 && n >= kLong;
  int64_t items = few || (again && n > int64_t{kItems} * kMostKept) ? kManyItems : kItems;
  while (items > device.info.group_limit) items /= 2;
  const int64_t most = across ? std::max<int64_t>(items / std::min(kNeighbours, power_of_two(rows)), 1) : items;
  t.items = static_cast<uint32_t>(items);
  t.team = static_cast<uint32_t>(std::min(power_of_two((n + 3) / 4), most));
  const int64_t each = power_of_two((n + t.team - 1) / t.team);
  t.kept = each <= kMostKept ? static_cast<uint32_t>(each) : 0;
  t.across = across && t.team < t.items;
  return t;
}

int64_t parts_of(const Device& device, const Teams& teams, int64_t rows, int64_t n) {
  constexpr int64_t kWaves = 8, kLeast = 16;  // groups for a unit of the device; elements for an item
  const int64_t wanted = int64_t{device.info.compute_units} * kWaves / teams.groups(std::max<int64_t>(rows, 1));
  return std::max<int64_t>(1, std::min(wanted, n / (teams.team * kLeast)));
}

std::string teams_text(const Teams& t, Dtype wide) {
  int64_t width = 1;
  while (width * width < t.team) width *= 2;
  const auto define = [](const char* name, int64_t value) {
    return std::string("#define ") + name + " " + std::to_string(value) + "\n";
  };
  return define("TEAM", t.team) + define("ITEMS", t.items) + define("WIDTH", width) + define("KEPT", t.kept) +
         define("ACROSS", t.across) + define("COMPENSATED", wide == kF32) + texts::rows::teams;
}

std::string fold_text(const std::string& name, const std::string& type, const std::string& fold) {
  return "TEAM_FOLD(" + name + ", " + type + ", " + fold + ")\n";
}

std::string best_text(const std::string& type, const std::string& better) {
  return "#define BETTER(v, i, w, j) " + better + "\n#define BEST_OF " + type + texts::rows::best;
}

std::string each_row(const std::string& body, const std::string& rows) {
  return "#define TEAM_ROWS " + rows + "\n" + around(texts::rows::each_row, body);
}

}  // namespace causeway::portable
