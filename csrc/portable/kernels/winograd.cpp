// S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural
// Networks (2016). 16 multiplications give a tile of 2 x 2 results, for 36. On CPUs: the larger of both sides is transformed
// a piece at a time, so that neither is written to memory and read again.
//
// Each result is made of what its own window reads: what is not finite reaches no other one. See `products`.
#include "portable/kernels/winograd.h"

#include <algorithm>

#include "portable/epilogue.h"
#include "portable/kernels/gemm.h"
#include "portable/portable.h"
#include "portable/kernels/winograd.cl.h"

namespace causeway::portable {

namespace {

constexpr int64_t kPiece = int64_t{1} << 17;  // elements of a group's weights, where they are a piece
constexpr int64_t kRows = 64;  // of a group otherwise

// How the work is cut: the same sums in the same order however it is.
struct Plan {
  Cut tile;
  int64_t tiles, panels, blocks, groups;
  bool tiles_ahead;  // and weights a piece at a time

  int64_t of_tiles(const Windows& w) const { return 16 * (w.channels * tile.columns + 16); }
  int64_t of_weights(const Windows& w) const { return 16 * (blocks * w.channels * tile.rows + 16); }
  int64_t of_sums() const { return 16 * (blocks * tile.rows * tile.columns + 16); }
};

Plan plan_of(const Device& device, const Windows& w) {
  Plan p;
  p.tiles = w.batch * ((w.down + 1) / 2) * ((w.across + 1) / 2);
  p.tiles_ahead = p.tiles < w.results;
  // AVX2's 16 registers hold 6 x 16 sums. With more, few tiles fill narrow panels best.
  p.tile.kind = Cut::panels;
  const bool many = device.info.simd_width >= 16;
  p.tile.rows = many ? (p.tiles_ahead ? 12 : 8) : 6, p.tile.columns = many && !p.tiles_ahead ? 32 : 16;
  p.panels = (p.tiles + p.tile.columns - 1) / p.tile.columns;
  const int64_t rows = p.tiles_ahead ? kPiece / (16 * w.channels) : kRows,
                all = (w.results + p.tile.rows - 1) / p.tile.rows;
  p.blocks = std::clamp<int64_t>(rows / p.tile.rows, 1, all);
  p.groups = (all + p.blocks - 1) / p.blocks;
  return p;
}

// EVENS and ODDS of two vectors side by side; LOWS and HIGHS of them interleaved.
std::string shuffles(int lanes) {
  const auto one = [&](const char* name, const std::function<int(int)>& from) {
    std::string places, text = std::string("#define ") + name + "(a, b) ";
    for (int i = 0; i < lanes; ++i) places += ", " + std::to_string(from(i));
    return text + "__builtin_shufflevector(a, b" + places + ")\n";
  };
  std::string text = "#ifdef __has_builtin\n#if __has_builtin(__builtin_shufflevector)\n";
  text += one("EVENS", [](int i) { return 2 * i; }) + one("ODDS", [](int i) { return 2 * i + 1; });
  text += one("LOWS", [&](int i) { return i / 2 + i % 2 * lanes; });
  text += one("HIGHS", [&](int i) { return (i + lanes) / 2 + i % 2 * lanes; });
  return text + "#endif\n#endif\n";
}

// What all functions begin with.
void define(Source& s, const Plan& p, const Device& device) {
  Product product;
  product.cut = p.tile;
  product.a = product.type = kF32;
  product.a_dense = true;
  tile_definitions(s, product, device);
  s.before(shuffles(vector_lanes(device, kF32))).before(texts::winograd::shuffles).before(texts::winograd::pieces);
}

void add_image(Source& s) {
  for (const char* v : {"size", "N", "across", "down", "h", "w", "oy", "ox"}) s.value("idx", v);
}
void add_image(Launch& l, const Plan& p, const Windows& w) {
  l.value(w.batch * w.channels * w.height * w.width).value(p.tiles).value((w.across + 1) / 2).value((w.down + 1) / 2);
  l.value(w.height).value(w.width).value(w.y).value(w.x);
}
void add_weights(Source& s) {
  for (const char* v : {"blocks", "M", "apart_m", "apart_c", "turned"}) s.value("idx", v);
}
void add_weights(Launch& l, const Plan& p, const Windows& w) {
  l.value(p.blocks).value(w.results).value(w.turned ? 9 : 9 * w.channels).value(w.turned ? 9 * w.results : 9);
  l.value(int64_t{w.turned});
}

cw_status tiles_ahead(KernelCall& call, const Plan& p, const Windows& w, const void* in, void* to) {
  constexpr int64_t kSome = 16;  // channels of a panel
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("winograd_tiles"), p.tile.id(), 0, 0},
      [&] {
        Source s(call.device->info);
        s.out("f32", "to").in("f32", "in");
        for (const char* v : {"units", "parts", "some", "channels"}) s.value("idx", v);
        add_image(s);
        define(s, p, *call.device);
        return s.kernel(texts::winograd::tiles);
      },
      &function));
  const int64_t parts = (w.channels + kSome - 1) / kSome, units = p.panels * parts;
  Launch l;
  l.pointer(to).pointer(in).value(units).value(parts).value(kSome).value(w.channels);
  add_image(l, p, w);
  return l.run(*call.device, function, units, static_cast<double>(kSome * p.tile.columns * 8), call.stream);
}

cw_status weights_ahead(KernelCall& call, const Plan& p, const Windows& w, const void* weight, void* to) {
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("winograd_weights"), p.tile.id(), 0, 0},
      [&] {
        Source s(call.device->info);
        s.out("f32", "to").in("f32", "weight").value("idx", "units").value("idx", "channels");
        add_weights(s);
        define(s, p, *call.device);
        return s.kernel(texts::winograd::weights);
      },
      &function));
  const int64_t units = p.groups * p.blocks;
  Launch l;
  l.pointer(to).pointer(weight).value(units).value(w.channels);
  add_weights(l, p, w);
  return l.run(*call.device, function, units, static_cast<double>(w.channels * p.tile.rows * 16), call.stream);
}

}  // namespace

bool winograd_pays(const Device& device, Dtype dtype, const Windows& w) {
  if (!device.in_turn() || dtype != kF32 || cut_is_forced() || w.channels < 32 || w.results < 32) return false;
  // Multiplications by vectors of each weight: 16 of a tile, for 36 of a product; and what transforming it costs. Measured at
  // 16 to 800 tiles of 32 to 512 channels: faster below 0.8 of a product's.
  const Plan p = plan_of(device, w);
  return static_cast<double>(p.panels * p.tile.columns + 25) < 0.8 * 2.25 * static_cast<double>(p.tiles);
}

cw_status winograd(KernelCall& call, const Windows& w, const void* out, const void* in, const void* weight,
                   const void* bias, const Epilogue* epilogue) {
  const Device& device = *call.device;
  const Plan p = plan_of(device, w);
  const int64_t wanted = int64_t{device.info.compute_units} * 4;
  const int64_t pieces = p.tiles_ahead ? p.groups : p.panels, others = p.tiles_ahead ? p.panels : p.groups;
  const int64_t parts = std::clamp<int64_t>(wanted / pieces, 1, others), units = pieces * parts;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("winograd"), p.tile.id(),
       static_cast<uint64_t>(bias != nullptr) | static_cast<uint64_t>(p.tiles_ahead) << 1, id_of(epilogue)},
      [&] {
        Source s(device.info);
        s.out("f32", "packs").out("f32", "out").in("f32", "ahead").in("f32", "in").in("f32", "weight");
        if (bias) s.in("f32", "bias");
        for (const char* v : {"units", "parts", "slot", "taken", "panels", "groups", "channels", "ty", "tx"})
          s.value("idx", v);
        add_image(s);
        add_weights(s);
        declare(epilogue, s, true);
        define(s, p, device);
        s.define("TILES_AHEAD", p.tiles_ahead).define("BIASED", bias != nullptr);
        return s.kernel(texts::winograd::products);
      },
      &function));
  void *ahead = nullptr, *packs = nullptr;
  const int64_t early = p.tiles_ahead ? p.panels * p.of_tiles(w) : p.groups * p.of_weights(w);
  const int64_t slot = p.of_sums() + (p.tiles_ahead ? p.of_weights(w) : p.of_tiles(w));
  const int64_t items = std::min<int64_t>(units, device.info.compute_units);
  TRY(scratch(device, call.stream, static_cast<uint64_t>(early * 4), &ahead));
  TRY(scratch(device, call.stream, static_cast<uint64_t>((kHead + items * slot) * 4), &packs));
  TRY(p.tiles_ahead ? tiles_ahead(call, p, w, in, ahead) : weights_ahead(call, p, w, weight, ahead));
  const bool taken = items > 1 && services().table().mem_set;
  if (taken) TRY(services().table().mem_set(device.index, packs, 0, kHead, call.stream));
  Launch l;
  l.pointer(packs).pointer(out).pointer(ahead).pointer(in).pointer(weight);
  if (bias) l.pointer(bias);
  l.value(units).value(parts).value(slot).value(int64_t{taken}).value(p.panels).value(p.groups).value(w.channels);
  l.value(w.down).value(w.across);
  add_image(l, p, w);
  add_weights(l, p, w);
  fill(epilogue, l);
  return l.run_groups(device, function, items, 1, call.stream);
}

}  // namespace causeway::portable
