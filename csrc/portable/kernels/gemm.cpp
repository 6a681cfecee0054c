// On CPUs a work item packs panels of B's columns, and goes down the rows of A with tiles kept in registers: as many
// multiplications of a vector for each that is loaded as the tile has rows. Elsewhere a group keeps a
// stretch of k of a square's rows and columns in its own memory, and an item computes blocks of 4 x 4 of the square;
// what comes next is read while the group computes. How large all of this is, is a Cut.
// What is put together here, and is in no .cl: steps of a tile, as many as its Cut says, in C++'s numbers.
#include "portable/kernels/gemm.h"

#include <algorithm>

#include "portable/portable.h"
#include "portable/kernels/gemm.cl.h"

namespace causeway::portable {

namespace {

std::string put(const std::string& in, char sign, int n) {
  std::string out;
  for (char c : in) out += c == sign ? std::to_string(n) : std::string(1, c);
  return out;
}

// `text` for each row @ of a tile and each of its vectors $, whose first column is #.
std::string each(const Cut& cut, int lanes, const std::string& text) {
  const int rows = text.find('@') == std::string::npos ? 1 : cut.rows;
  std::string all;
  for (int row = 0; row < rows; ++row)
    for (int vector = 0; vector < cut.columns / lanes; ++vector)
      all += put(put(put(text, '@', row), '$', vector), '#', vector * lanes);
  return all;
}

constexpr int kBeside = 16;  // more than a row has in a copy

void define_tile(Source& s, const Product& p, int lanes) {
  const Cut& cut = p.cut;
  s.define("HEAD", kHead);
  const bool here = in_place(cut, p.a, p.a_dense);
  s.define("TILE", cut.rows).define("WIDE", cut.columns).define("STAGED", here ? 0 : cut.depth + kBeside);
  s.define("TILE_ZERO", each(cut, lanes, "V c@_$ = ZERO; "));
  s.define("TILE_TAKE", each(cut, lanes, "c@_$ = LOADV(kept + @ * WIDE + #); "));
  s.define("TILE_KEEP", each(cut, lanes, "STOREV(kept + @ * WIDE + #, c@_$); "));
  s.define("TILE_OUT", each(cut, lanes, "STORETILE(tile + @ * WIDE + #, c@_$); "));
  s.define("AM", p.a_across ? "1" : "am").define("IN_PLACE", here).define("A_DENSE", p.a_dense);
  s.define("OUT_ACROSS", p.out_across).before(texts::gemm::tile);
  const char* place = here ? "r@[k]" : p.a_dense ? "to_a[@ * STAGED + k]" : "to_a[k * TILE + @]";
  std::string run = "{ GLOBAL const T* b = pack; ";
  for (int i = 0; here && i < cut.rows; ++i)
    run += put("GLOBAL const T* r@ = from_a + (@ < left ? @ : 0) * am; ", '@', i);
  run += "for (idx k = 0; k < depth; ++k, b += WIDE) { " + each(cut, lanes, "const V v$ = LOADV(b + #); ");
  for (int i = 0; i < cut.rows; ++i) {
    run += "{ const T x = " + put(place, '@', i) + "; ";
    run += put(each(cut, lanes, "c%_$ = FMAV(x, v$, c%_$); "), '%', i) + "} ";
  }
  s.define("TILE_RUN", run + "} }");
  std::string step = "{ " + each(cut, lanes, "const V v$ = LOADV(b + #); ");
  for (int i = 0; i < cut.rows; ++i)
    step += "{ const T x = row[" + std::to_string(i) + "]; " +
            put(each(cut, lanes, "c%_$ = FMAV(x, v$, c%_$); "), '%', i) + "} ";
  s.define("TILE_STEP", step + "}");
}

void define_square(Source& s, const Product& p) {
  const int side = p.cut.lanes, rm = p.cut.rows / side, rn = p.cut.columns / side, lanes = side * side;
  s.define("SIDE", side).define("MS", p.cut.rows).define("NS", p.cut.columns).define("RM", rm).define("RN", rn);
  s.define("VM", std::min(rm, 4)).define("VN", std::min(rn, 4)).define("PARTIAL", p.cut.parts > 1);
  s.define("LOADS_A", p.cut.rows * p.cut.depth / lanes).define("LOADS_B", p.cut.columns * p.cut.depth / lanes);
  s.define("A_ALONG_K", p.a_dense).define("B_ALONG_K", p.b_along_k);
}

// TURN by vectors: a round exchanges squares of 8, 4, 2 and then 1 between rows that lie as far apart.
std::string turn_text() {
  std::string rounds;
  for (int i = 0; i < 16; ++i)
    rounds += put("V x@_16 = LOADV((p) + @ * (step)); AHEAD((p) + @ * (step) + 64) ", '@', i);
  for (int far = 8; far; far /= 2)
    for (int i = 0; i < 16; ++i) {
      std::string lanes;
      for (int lane = 0; lane < 16; ++lane)
        lanes += ", " + std::to_string(i & far      ? (lane & far ? lane + 16 : lane + far)
                                       : lane & far ? lane - far + 16
                                                    : lane);
      const std::string from = "_" + std::to_string(far * 2);
      rounds += "const V x" + std::to_string(i) + "_" + std::to_string(far) + " = __builtin_shufflevector(x" +
                std::to_string(i & ~far) + from + ", x" + std::to_string(i | far) + from + lanes + "); ";
    }
  for (int i = 0; i < 16; ++i) rounds += put("STOREV((to) + @ * WIDE, x@_1); ", '@', i);
  return "#ifdef __has_builtin\n#if __has_builtin(__builtin_shufflevector)\n#define TURN(p, step, to) { " + rounds +
         "}\n#endif\n#endif\n";
}

}  // namespace

// A C compiler gets vectors that are registers: GCC keeps wider ones in memory, which costs it four fifths of the speed.
// OpenCL's compilers split them.
int vector_lanes(const Device& device, Dtype type) {
  if (device.info.language != CW_CODE_C || device.info.simd_width == 0) return 16;
  int lanes = 16;
  while (lanes > 2 && lanes * size_of(type) > int64_t{device.info.simd_width} * 4) lanes /= 2;
  return lanes;
}

void vector_definitions(Source& s, Dtype type, const Device& device) {
  const std::string name = name_of(type);
  if (device.info.language == CW_CODE_C) s.before("#pragma GCC optimize (\"fp-contract=fast\")\n");
  s.before("typedef " + name + " T;\n");
  const int lanes = vector_lanes(device, type);
  s.define("LANES_OF_V", lanes);
  if (lanes == 16) {
    s.before("typedef " + name + "x16 V;\n");
    for (const char* one : {"LOADV", "STOREV", "FMAV", "ZERO"}) s.define(one, std::string(one) + "_" + name);
  } else {
    s.before("typedef T V __attribute__((vector_size(" + std::to_string(lanes) +
             " * sizeof(T)), aligned(sizeof(T))));\n");
    s.define("LOADV(p)", "(*(const V*)(p))").define("STOREV(p, v)", "(*(V*)(p) = (v))");
    s.define("FMAV(a, b, c)", "((a) * (b) + (c))").define("ZERO", "((V){0})");
  }
  // A tile is the item's own memory, which OpenCL keeps apart from the device's.
  s.define("STORETILE(p, v)", "STOREV(p, v)");
}

void tile_definitions(Source& s, const Product& p, const Device& device) {
  vector_definitions(s, p.type, device);
  if (device.in_turn()) s.before(texts::gemm::in_turn);
  s.before(std::string("typedef ") + storage_of(p.a) + " AT;\n");
  const int vector = vector_lanes(device, p.type);
  s.define("LDA", std::string("LD_") + name_of(p.a));
  if (p.cut.kind == Cut::panels && p.b_along_k) {
    if (p.a == p.type && vector == 16) s.before(turn_text());
    s.before(texts::gemm::turn);
  }
  if (p.cut.kind == Cut::panels) define_tile(s, p, vector);
}

std::string product_text(Source& s, const Product& p, const Device& device) {
  tile_definitions(s, p, device);
  s.define("AK", p.a_dense ? "1" : "ak").define("DEPTH", p.cut.depth);
  s.before(texts::gemm::finish).before(texts::gemm::product);
  for (const char* name : {"units", "splits", "panels", "slot", "M", "N", "K", "am", "ak", "batches", "parts",
                           "together", "chunk", "block", "kept_rows", "taken"})
    s.value("idx", name);
  if (p.cut.kind == Cut::squares) define_square(s, p);
  return s.kernel(p.cut.kind == Cut::panels    ? texts::gemm::panels
                  : p.cut.kind == Cut::squares ? texts::gemm::squares
                  : p.cut.kind == Cut::sums    ? texts::gemm::sums
                                               : texts::gemm::elements);
}

std::string columns_text(Source& s, const Product& p, int columns, const Device& device) {
  vector_definitions(s, p.type, device);
  const int together = columns == 1 ? 4 : 2;  // sums of a column: an addition need not wait for the one before
  std::string zero, run, step, out;
  for (int j = 0; j < columns; ++j) {
    zero += put("const idx n@ = @ < N ? @ : 0; GLOBAL const T* x@ = b_ + (COLUMN_AT(n@)); ", '@', j);
    for (int i = 0; i < together; ++i) zero += put(put("V s@_$ = ZERO; ", '@', j), '$', i);
  }
  for (int i = 0; i < together; ++i) {
    const std::string at = "k + " + std::to_string(i) + " * LANES_OF_V";
    run += "{ const V r = LOADV(row + (" + at + ")); ";
    for (int j = 0; j < columns; ++j)
      run += put(put("s@_$ = FMAV(r, LOADV(x@ + (", '@', j), '$', i) + at + put(put(")), s@_$); ", '@', j), '$', i);
    run += "} ";
  }
  step = "const V r = LOADV(row + k); ";
  for (int j = 0; j < columns; ++j) {
    step += put("s@_0 = FMAV(r, LOADV(x@ + k), s@_0); ", '@', j);
    std::string sum = put("s@_0", '@', j);
    for (int i = 1; i < together; ++i) sum += put(put(" + s@_$", '@', j), '$', i);
    out += "{ T lanes[LANES_OF_V], v = 0; STORETILE(lanes, " + sum +
           "); for (int i = 0; i < LANES_OF_V; ++i) v += lanes[i]; for (idx l = k; l < K; ++l) v = FMA(row[l], " +
           put("x@[l], v); const idx n = @; if (n < N) { PUT } } ", '@', j);
  }
  s.define("TOGETHER", together).define("COLUMNS_ZERO", zero).define("COLUMNS_RUN", run).define("COLUMNS_STEP", step);
  s.define("COLUMNS_OUT", out);
  s.before(texts::gemm::finish);
  for (const char* name : {"units", "M", "N", "K", "am"}) s.value("idx", name);
  return s.kernel(texts::gemm::columns);
}

uint64_t product_version() {
  return family(texts::gemm::panels) ^ family(texts::gemm::squares) ^ family(texts::gemm::sums);
}

// While a pointer to each row fits into registers: so few are not in each other's way in the first cache, and a copy
// takes longer than it saves.
bool in_place(const Cut& cut, Dtype a, bool a_dense) {
  return cut.kind == Cut::panels && a_dense && cut.rows <= 8 && a == compute_of(a);
}

Panels panels_of(const Cut& cut, const ProductSize& size, bool in_place) {
  if (cut.kind != Cut::panels) return {};
  // In elements: packed panels, and a block of A's rows, which the second cache is to hold.
  constexpr int64_t kPacked = int64_t{1} << 18, kBlock = int64_t{1} << 16, kFew = 4;
  const int64_t panels = (size.n + cut.columns - 1) / cut.columns, tiles = (size.m + cut.rows - 1) / cut.rows;
  const int64_t staged = cut.depth + kBeside;
  const int64_t few = in_place ? 1 : std::min(kFew, panels);
  Panels p;
  p.block = std::clamp<int64_t>(kBlock / staged / cut.rows, 8, std::max<int64_t>(tiles, 8)) * cut.rows;
  p.block = std::min(p.block, tiles * cut.rows);
  if (size.k * cut.columns * few <= kPacked) {
    p.together = in_place ? 1 : std::min(kPacked / (size.k * cut.columns), panels);
    p.chunk = size.k;
    p.kept_rows = size.k > cut.depth ? p.block : 0;
  } else {
    p.together = few;
    p.chunk = std::max<int64_t>(kPacked / (cut.columns * few) / cut.depth, 1) * cut.depth;
    p.kept_rows = tiles * cut.rows;
  }
  // A row of a panel may be written a vector too far.
  p.slot = (in_place ? 0 : p.block * staged) + p.together * (p.kept_rows + p.chunk) * cut.columns + 16;
  return p;
}

// Large products run as one item a core, whose workspace stays in its second cache from panel to panel.
bool is_large(const Cut& cut, const ProductSize& size) {
  return cut.kind == Cut::panels && size.multiplications() >= 1 << 25;
}

// The count costs a command before the launch.
bool takes_turns(const KernelCall& call, const Cut& cut, const ProductSize& size) {
  return is_large(cut, size) && call.device->info.compute_units > 1 && services().table().mem_set;
}

int64_t items_of(const KernelCall& call, const Cut& cut, const ProductSize& size) {
  return int64_t{call.device->info.compute_units} * (is_large(cut, size) ? 1 : 4);
}

cw_status product_scratch(KernelCall& call, const Cut& cut, const ProductSize& size, Dtype dtype, bool a_dense,
                          void** out) {
  *out = nullptr;
  int64_t count = 0;
  if (cut.kind == Cut::panels)
    count = kHead + items_of(call, cut, size) * panels_of(cut, size, in_place(cut, dtype, a_dense)).slot;
  if (cut.parts > 1) count = cut.parts * size.batch * size.m * size.n;
  if (count == 0) return CW_OK;
  return scratch(*call.device, call.stream, static_cast<uint64_t>(count * size_of(compute_of(dtype))), out);
}

cw_status product_launch(KernelCall& call, Launch& launch, Turn& turn, cw_function function, cw_function sums,
                         void* workspace, const ProductSize& size, Dtype dtype, int64_t am, int64_t ak) {
  const Cut& cut = turn.cut();
  const int64_t panels = (size.n + cut.columns - 1) / cut.columns, units_of_device = call.device->info.compute_units;
  const bool taken = takes_turns(call, cut, size);
  // So many units of work, and none of so few rows that packing a panel for them is most of it.
  const auto splits_for = [&](int64_t wanted, int64_t tiles) {
    return std::clamp<int64_t>(wanted / (panels * size.batch), 1, std::max<int64_t>(size.m / (cut.rows * tiles), 1));
  };
  const int64_t splits = std::max(splits_for(units_of_device * 2, 4), taken ? splits_for(units_of_device * 8, 32) : 1);
  const int64_t each = size.batch * size.m * size.n;
  const int64_t squares = size.batch * ((size.m + cut.rows - 1) / cut.rows) * panels * cut.parts;
  const int64_t units = cut.kind == Cut::panels    ? panels * size.batch * splits
                        : cut.kind == Cut::squares ? squares
                                                   : each;
  const Panels p = panels_of(cut, size, in_place(cut, dtype, ak == 1));
  launch.value(units).value(splits).value(panels).value(p.slot).value(size.m).value(size.n);
  launch.value(size.k).value(am).value(ak).value(size.batch).value(int64_t{cut.parts});
  launch.value(p.together).value(p.chunk).value(p.block).value(p.kept_rows).value(int64_t{taken});
  if (taken) TRY(services().table().mem_set(call.device->index, workspace, 0, kHead, call.stream));
  TRY(turn.start());
  if (cut.kind == Cut::squares) {
    TRY(launch.run_groups(*call.device, function, squares, uint32_t{cut.lanes} * cut.lanes, call.stream,
                          4.0 * static_cast<double>(size.k) / cut.parts));
  } else if (is_large(cut, size)) {
    TRY(launch.run_groups(*call.device, function, std::min(units, items_of(call, cut, size)), 1, call.stream));
  } else {
    const double all = size.multiplications() / 8;
    TRY(launch.run(*call.device, function, units, all / static_cast<double>(units), call.stream));
  }
  if (cut.parts > 1) TRY(launch.run(*call.device, sums, each, cut.parts, call.stream));
  return turn.end();
}

}  // namespace causeway::portable
