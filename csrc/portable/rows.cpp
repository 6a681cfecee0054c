#include "portable/rows.h"

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
  // What a sum loses is exact (Knuth's two-sum); infinities make it NaN, and are not put right.
  constexpr const char* kCompensated = R"(
#define ADD(s, low, v) { const A v_ = (v), t_ = s + v_, z_ = t_ - s; low += (s - (t_ - z_)) + (v_ - z_); s = t_; }
#define TOTAL(s, low) (low - low == 0 ? s + low : s)
)";
  constexpr const char* kPlain = R"(
#define ADD(s, low, v) s += v;
#define TOTAL(s, low) (s)
)";
  // The first `WIDTH` items of a team fold what `TEAM / WIDTH` of them have, and all fold those.
  int64_t width = 1;
  while (width * width < t.team) width *= 2;
  std::string text =
      "#ifdef __OPENCL_VERSION__\n#define IN_LOCAL __local\n#else\n#define IN_LOCAL\n#endif\n"
      "#define TEAM " +
      std::to_string(t.team) + "\n#define ITEMS " + std::to_string(t.items) +
      "\n#define TEAMS (ITEMS / TEAM)\n#define WIDTH " + std::to_string(width) + "\n#define KEPT " +
      std::to_string(t.kept) + "\n";
  text += t.across ? "#define PLACE(lane) ((lane) / TEAMS)\n#define WHICH(lane) ((lane) % TEAMS)\n"
                     "#define CELL(p, wide) ((p) * TEAMS + which)\n"
                   : "#define PLACE(lane) ((lane) % TEAM)\n#define WHICH(lane) ((lane) / TEAM)\n"
                     "#define CELL(p, wide) (which * (wide) + (p))\n";
  text +=
      t.kept
          ? "#define EACH(j) _Pragma(\"unroll\") for (idx j = place, e_ = 0; e_ < KEPT; ++e_, j += TEAM) if (j < n)\n"
            "#define HOLDS(type) type held_[KEPT];\n#define HOLD(v) held_[e_] = (v);\n#define HELD(w) held_[e_]\n"
          : "#define EACH(j) for (idx j = place; j < n; j += TEAM)\n"
            "#define HOLDS(type)\n#define HOLD(v)\n#define HELD(w) (w)\n";
  return text + (wide == kF32 ? kCompensated : kPlain);
}

std::string fold_text(const std::string& name, const std::string& type, const std::string& fold) {
  // The next call writes `cells` behind this one's second barrier, and what is behind `ITEMS` behind its own first one.
  return "FUNCTION " + type + " " + name + "(IN_LOCAL " + type + "* cells, const idx lane, const " + type +
         " v) {\n#if TEAM == 1\nreturn v;\n#else\n"
         "const idx place = PLACE(lane), which = WHICH(lane);\n" +
         type +
         " a = v;\ncells[CELL(place, TEAM)] = v;\nBARRIER;\nif (place < WIDTH) {\n"
         "for (idx k = place + WIDTH; k < TEAM; k += WIDTH) { const " +
         type + " b = cells[CELL(k, TEAM)]; a = " + fold +
         "; }\ncells[ITEMS + CELL(place, WIDTH)] = a;\n}\nBARRIER;\na = cells[ITEMS + CELL(0, WIDTH)];\n"
         "for (idx k = 1; k < WIDTH; ++k) { const " +
         type + " b = cells[ITEMS + CELL(k, WIDTH)]; a = " + fold + "; }\nreturn a;\n#endif\n}\n";
}

std::string best_text(const std::string& type, const std::string& better) {
  return "#define BETTER(v, i, w, j) " + better + "\n#define BEST_OF " + type + R"(
FUNCTION void team_best(IN_LOCAL BEST_OF* cells, IN_LOCAL idx* ats, const idx lane, BEST_OF* v, idx* at) {
#if TEAM > 1
  const idx place = PLACE(lane), which = WHICH(lane);
  cells[CELL(place, TEAM)] = *v;
  ats[CELL(place, TEAM)] = *at;
  BARRIER;
  if (place < WIDTH) {
    for (idx k = place + WIDTH; k < TEAM; k += WIDTH) {
      const BEST_OF w = cells[CELL(k, TEAM)];
      const idx j = ats[CELL(k, TEAM)];
      if (j >= 0 && (*at < 0 || BETTER(w, j, *v, *at))) { *v = w; *at = j; }
    }
    cells[ITEMS + CELL(place, WIDTH)] = *v;
    ats[ITEMS + CELL(place, WIDTH)] = *at;
  }
  BARRIER;
  *v = cells[ITEMS + CELL(0, WIDTH)];
  *at = ats[ITEMS + CELL(0, WIDTH)];
  for (idx k = 1; k < WIDTH; ++k) {
    const BEST_OF w = cells[ITEMS + CELL(k, WIDTH)];
    const idx j = ats[ITEMS + CELL(k, WIDTH)];
    if (j >= 0 && (*at < 0 || BETTER(w, j, *v, *at))) { *v = w; *at = j; }
  }
#endif
}
)";
}

std::string each_row(const std::string& body, const std::string& rows) {
  return "const idx place = PLACE(LANE), which = WHICH(LANE);\n"
         "for (idx u_from = GROUP * TEAMS; u_from < " +
         rows + "; u_from += GROUPS * TEAMS) {\nconst int mine = u_from + which < " + rows +
         ";\nconst idx u = mine ? u_from + which : " + rows + " - 1;\n" + body + "}\n";
}

}  // namespace causeway::portable
