#include "portable/cut.h"

#include <algorithm>

namespace causeway::portable {

namespace {

constexpr Cut panel(int rows, int columns, int depth) {
  return {Cut::panels, 1, static_cast<uint16_t>(rows), static_cast<uint16_t>(columns), static_cast<uint16_t>(depth)};
}
constexpr Cut square(int rows, int columns, int depth, int lanes = 16) {
  return {Cut::squares, static_cast<uint8_t>(lanes), static_cast<uint16_t>(rows), static_cast<uint16_t>(columns),
          static_cast<uint16_t>(depth)};
}

// 16 floats are a register of AVX-512, two of AVX2, four of NEON: tiles of few rows are for the latter. For AVX-512, wide
// tiles of few rows, which are read where they lie, and narrower ones where a result has few columns.
constexpr Cut kPanels[] = {panel(8, 16, 1024), panel(8, 16, 256),  panel(8, 32, 512),  panel(6, 16, 512),
                           panel(4, 16, 512),  panel(6, 64, 1024), panel(12, 32, 256), panel(8, 48, 512)};
constexpr Cut kSquares[] = {square(64, 64, 16),   square(128, 128, 8), square(128, 128, 16), square(128, 64, 16),
                            square(64, 64, 8, 8), square(64, 64, 32),  square(32, 32, 16),   square(32, 32, 32, 8)};

int64_t squares_of(const ProductSize& size, int64_t side) {
  return size.batch * ((size.m + side - 1) / side) * ((size.n + side - 1) / side);
}

}  // namespace

uint64_t Cut::id() const {
  return static_cast<uint64_t>(kind) | static_cast<uint64_t>(lanes) << 4 | static_cast<uint64_t>(rows) << 12 |
         static_cast<uint64_t>(columns) << 24 | static_cast<uint64_t>(depth) << 36 |
         static_cast<uint64_t>(parts > 1) << 52;
}

std::string Cut::text() const {
  if (kind == elements) return "element";
  if (kind == by_turns) return "by turns";
  if (kind == in_order) return "in order";
  std::string words = std::to_string(rows) + "x" + std::to_string(columns) + " k" + std::to_string(depth);
  if (kind == squares && lanes != 16) words += " l" + std::to_string(lanes);
  return words;
}

std::vector<Cut> cuts_for(const Device& device, Dtype type) {
  if (device.in_turn()) return {std::begin(kPanels), std::end(kPanels)};
  std::vector<Cut> fit;
  for (const Cut& c : kSquares)
    if (device.info.group_limit >= uint32_t{c.lanes} * c.lanes &&
        static_cast<uint64_t>(c.depth * (c.rows + 4 + c.columns + 4) * size_of(type)) <= device.info.local_memory)
      fit.push_back(c);
  if (fit.empty()) fit.push_back(Cut{});
  return fit;
}

// What some cores fetch ahead ends with a page, and where they read one page after the other they wait for memory at each;
// others follow one long run best.
std::vector<Cut> orders() { return {Cut{Cut::by_turns}, Cut{Cut::in_order}}; }

size_t usual_cut(const Device& device, const std::vector<Cut>& cuts, const ProductSize& size) {
  if (cuts[0].kind == Cut::panels) {
    // AVX2's 16 registers hold 6 x 16 sums, a row of b and an element of a: on a CPU with AVX2 1.5 times as fast as
    // 8 x 16 (products of 1,024, one run of GCC and one of clang). With more registers the largest tile, unless too much
    // of it would lie outside the result: its speed, and what of it counts.
    size_t best = 0;
    double most = 0;
    if (device.info.simd_width < 16) {
      const auto fits = [](const Cut& c) { return c.rows == 6 && c.columns == 16; };
      return static_cast<size_t>(std::find_if(cuts.begin(), cuts.end(), fits) - cuts.begin()) % cuts.size();
    }
    for (size_t i = 0; i < cuts.size(); ++i) {
      const int64_t rows = cuts[i].rows, columns = cuts[i].columns;
      const int64_t computed = (size.m + rows - 1) / rows * rows * ((size.n + columns - 1) / columns * columns);
      const double speed = rows * columns >= 384 ? 1 : rows * columns >= 256 ? 0.8 : rows >= 8 ? 0.6 : 0.5;
      const double counts = speed * static_cast<double>(size.m * size.n) / static_cast<double>(computed);
      if (counts > most) best = i, most = counts;
    }
    return best;
  }
  if (cuts[0].kind != Cut::squares) return 0;
  // Large squares read less, and are too few for all units where the result is small.
  const int64_t side = squares_of(size, 64) >= device.info.compute_units ? 64 : 32;
  for (size_t i = 0; i < cuts.size(); ++i)
    if (cuts[i].rows == side && cuts[i].columns == side) return i;
  return 0;
}

int parts_of(const Device& device, const ProductSize& size) {
  constexpr int64_t kLeast = 512;  // of k in a part
  const int64_t squares = squares_of(size, 64), wanted = 2 * int64_t{device.info.compute_units};
  if (device.in_turn() || squares * 2 > wanted || size.k < 2 * kLeast) return 1;
  return static_cast<int>(std::clamp<int64_t>(wanted / squares, 1, std::min<int64_t>(size.k / kLeast, 64)));
}

Cut sums_of(const Cut& cut) {
  Cut sums = cut;
  sums.kind = Cut::sums;
  sums.rows = sums.columns = sums.depth = sums.lanes = 1;
  return sums;
}

}  // namespace causeway::portable
