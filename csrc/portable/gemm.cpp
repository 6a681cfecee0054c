// On CPUs a work item packs 16 columns of B for a stretch of k, and goes down all rows of A with tiles of 8 x 16 kept in
// registers: 8 multiplications of a vector for each vector that is loaded. Elsewhere a group keeps 16 of k of a square's
// rows and columns in its own memory, and an item computes every 16th row and column of the square.
#include "gemm.h"

#include <algorithm>

namespace causeway::portable {

namespace {

constexpr const char* kTiles = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx split = u % splits, panel = u / splits % panels, batch = u / splits / panels;
  const idx n0 = panel * 16, wide = N - n0 < 16 ? N - n0 : 16, tiles = (M + 7) / 8;
  const idx first = tiles * split / splits * 8, past = tiles * (split + 1) / splits * 8;
  const idx last = past < M ? past : M;
  GLOBAL T* pack = packs + item * slot;
  GLOBAL T* acc = pack + DEPTH * 16;
  BEGIN
  PANEL
  for (idx k0 = 0; k0 < K; k0 += DEPTH) {
    const idx k1 = K - k0 < DEPTH ? K : k0 + DEPTH;
    PACK
    for (idx m0 = first; m0 < last; m0 += 8) {
      const idx left = last - m0, at = a_base + m0 * am + k0 * AK;
#define ROW(i) GLOBAL const AT* r##i = a + at + (i < left ? i : 0) * am; V c##i = ZERO;
      ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#undef ROW
      GLOBAL T* kept = acc + (m0 - first) * 16;
      if (k0 > 0) {
#define ROW(i) c##i = LOADV(kept + i * 16);
        ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#undef ROW
      }
      GLOBAL const T* b = pack;
      const idx depth = k1 - k0;
      for (idx k = 0; k < depth; ++k, b += 16) {
        const V v = LOADV(b);
#define ROW(i) c##i = FMAV((T)LDA(r##i, k * AK), v, c##i);
        ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#undef ROW
      }
      if (k1 < K) {
#define ROW(i) STOREV(kept + i * 16, c##i);
        ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#undef ROW
      } else {
        T tile[128];
#define ROW(i) STORETILE(tile + i * 16, c##i);
        ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#undef ROW
        const idx rows = left < 8 ? left : 8;
        for (idx i = 0; i < rows; ++i) {
          const idx m = m0 + i;
          INDEPENDENT
          for (idx l = 0; l < wide; ++l) {
            const idx n = n0 + l;
            T v = tile[i * 16 + l];
            PUT
          }
        }
      }
    }
  }
}
)";

constexpr const char* kElements = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx n = u % N, m = u / N % M, batch = u / N / M;
  BEGIN
  T v = 0;
  for (idx k = 0; k < K; ++k) v = FMA((T)LDA(a, a_base + m * am + k * AK), (T)(B_AT), v);
  PUT
}
)";

// `MN` rows and columns a group, `R` of each an item.
constexpr const char* kSquares = R"(
LOCAL T rows[16 * MN];
LOCAL T columns[16 * MN];
const idx down = (M + MN - 1) / MN, across = (N + MN - 1) / MN, squares = units;
const idx lx = LANE % 16, ly = LANE / 16;
for (idx u = GROUP; u < squares; u += GROUPS) {
  const idx n0 = u % across * MN, m0 = u / across % down * MN, batch = u / across / down;
  BEGIN
  T c[R * R];
  for (int i = 0; i < R * R; ++i) c[i] = 0;
  for (idx k0 = 0; k0 < K; k0 += 16) {
    for (idx i = LANE; i < 16 * MN; i += LANES) {
      const idx m = m0 + (ROWS_ALONG_K ? i / 16 : i % MN), kk = ROWS_ALONG_K ? i % 16 : i / MN, k = k0 + kk;
      T v = 0;
      if (m < M && k < K) v = (T)LDA(a, a_base + m * am + k * AK);
      rows[kk * MN + m - m0] = v;
    }
    for (idx i = LANE; i < 16 * MN; i += LANES) {
      const idx n = n0 + i % MN, kk = i / MN, k = k0 + kk;
      T v = 0;
      if (n < N && k < K) v = (T)(B_AT);
      columns[kk * MN + n - n0] = v;
    }
    BARRIER;
    for (int kk = 0; kk < 16; ++kk) {
      T x[R], y[R];
      for (int i = 0; i < R; ++i) x[i] = rows[kk * MN + ly + i * 16], y[i] = columns[kk * MN + lx + i * 16];
      for (int i = 0; i < R; ++i)
        for (int j = 0; j < R; ++j) c[i * R + j] = FMA(x[i], y[j], c[i * R + j]);
    }
    BARRIER;
  }
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < R; ++j) {
      const idx m = m0 + ly + i * 16, n = n0 + lx + j * 16;
      T v = c[i * R + j];
      if (m < M && n < N) { PUT }
    }
}
)";

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

}  // namespace

std::string product_text(Source& s, const Product& p, const Device& device) {
  const std::string type = name_of(p.type);
  std::string head;
  if (device.info.language == CW_CODE_C) head = "#pragma GCC optimize (\"fp-contract=fast\")\n";
  head += "typedef " + type + " T;\ntypedef " + type + "x16 V;\ntypedef " + storage_of(p.a) + " AT;\n";
  s.before(head);
  for (const char* name : {"LOADV", "STOREV", "FMAV", "ZERO"}) s.define(name, std::string(name) + "_" + type);
  // A tile is the item's own memory, which OpenCL keeps apart from the device's.
  s.define("STORETILE(p, v)", "STOREV_" + type + "(p, v)");
  s.define("LDA", std::string("LD_") + name_of(p.a))
      .define("AK", p.a_dense ? "1" : "ak")
      .define("DEPTH", kProductDepth);
  s.define("BEGIN", one_line(p.begin)).define("PANEL", one_line(p.panel)).define("PUT", one_line(p.store));
  s.define("B_AT", one_line(p.b));
  s.define("PACK", one_line(p.pack.empty() ? "for (idx k = k0; k < k1; ++k) for (idx l = 0; l < 16; ++l) { const idx n "
                                             "= l < wide ? n0 + l : n0; pack[(k - k0) * 16 + l] = B_AT; }"
                                           : p.pack));
  for (const char* name : {"units", "splits", "panels", "slot", "M", "N", "K", "am", "ak"}) s.value("idx", name);
  const int64_t square = p.cut == Cut::squares_of_64 ? 64 : 32;
  s.define("MN", square).define("R", square / 16).define("ROWS_ALONG_K", p.a_dense);
  return s.kernel(p.cut == Cut::panels ? kTiles : p.cut == Cut::elements ? kElements : kSquares);
}

Cut cut_of(const Device& device, const ProductSize& size, Dtype type) {
  if (device.in_turn()) return Cut::panels;
  const auto fits = [&](int64_t side) {
    return device.info.group_limit >= 256 &&
           static_cast<uint64_t>(2 * 16 * side * size_of(type)) <= device.info.local_memory;
  };
  // Large squares read less, and are too few for all units where the result is small.
  const int64_t large = size.batch * ((size.m + 63) / 64) * ((size.n + 63) / 64);
  if (fits(64) && large >= device.info.compute_units) return Cut::squares_of_64;
  return fits(32) ? Cut::squares_of_32 : Cut::elements;
}

namespace {

int64_t slot_of(const ProductSize& size) {
  return kProductDepth * 16 + (size.k > kProductDepth ? (size.m + 8) * 16 : 0);
}

}  // namespace

cw_status product_scratch(Call& call, const ProductSize& size, Dtype type, void** out) {
  *out = nullptr;
  if (!call.device->in_turn()) return CW_OK;
  const int64_t slots = int64_t{call.device->info.compute_units} * 4;
  return scratch(*call.device, call.stream, static_cast<uint64_t>(slots * slot_of(size) * size_of(type)), out);
}

cw_status product_launch(Call& call, Launch& launch, cw_function function, const ProductSize& size, Dtype type,
                         int64_t am, int64_t ak) {
  const int64_t panels = (size.n + 15) / 16, wanted = int64_t{call.device->info.compute_units} * 2;
  int64_t splits = 1;
  if (panels * size.batch < wanted)
    splits = std::clamp<int64_t>(wanted / (panels * size.batch), 1, std::max<int64_t>(size.m / 32, 1));
  const Cut cut = cut_of(*call.device, size, type);
  const int64_t side = cut == Cut::squares_of_64 ? 64 : 32;
  const int64_t squares = size.batch * ((size.m + side - 1) / side) * ((size.n + side - 1) / side);
  const int64_t units = cut == Cut::panels     ? panels * size.batch * splits
                        : cut == Cut::elements ? size.batch * size.m * size.n
                                               : squares;
  launch.value(units).value(splits).value(panels).value(slot_of(size)).value(size.m).value(size.n).value(size.k);
  launch.value(am).value(ak);
  if (cut == Cut::squares_of_32 || cut == Cut::squares_of_64)
    return launch.run_groups(function, squares, 256, call.stream);
  const double all = static_cast<double>(size.batch) * size.m * size.n * size.k / 8;
  return launch.run(*call.device, function, units, all / static_cast<double>(units), call.stream);
}

}  // namespace causeway::portable
