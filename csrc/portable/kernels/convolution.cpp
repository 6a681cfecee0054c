// Convolutions of one to three dimensions and both gradients, as products whose B is read where the image has it: no
// unfolded image is ever written. Groups, dilation, padding, strides; transposed ones swap forward and gradient.
// What is put together here, and is in no .cl: the sums of a line of taps, as many as it has.
#include <algorithm>
#include <numeric>

#include "portable/epilogue.h"
#include "portable/kernels/gemm.h"
#include "portable/kernels/winograd.h"
#include "portable/kernels/convolution.cl.h"

namespace causeway::portable {

namespace {

struct Convolution {
  int64_t batch, groups, in_channels, out_channels;  // channels of all groups
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];  // depth, height, width
  Dtype dtype;

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t in_size() const { return in[0] * in[1] * in[2]; }
  int64_t out_size() const { return out[0] * out[1] * out[2]; }
};

// The source plane of a product over taps: position y * mul + off + r * step.
struct Gather {
  int64_t channels;  // of one group
  int64_t from[3], to[3], mul[3], off[3], step[3];
};

constexpr const char* kPlane[] = {"fz", "fy", "fx", "tz", "ty", "tx", "mz", "my", "mx",
                                  "oz", "oy", "ox", "sz", "sy", "sx", "kd", "kh", "kw"};

void add_plane(Source& s) {
  for (const char* name : kPlane) s.value("idx", name);
}
void add_plane(Launch& l, const Gather& g, const int64_t (&kernel)[3]) {
  for (const auto* side : {g.from, g.to, g.mul, g.off, g.step, kernel}) l.value(side[0]).value(side[1]).value(side[2]);
}

// S, what elements are kept as, and LD and ST of it.
void define_elements(Source& s, Dtype dtype) {
  const std::string name = name_of(dtype);
  s.define("S", storage_of(dtype)).define("LD", "LD_" + name).define("ST", "ST_" + name);
}

// The positions that are read: from `low` on, `size` of them.
struct Reach {
  int64_t low[3], high[3];

  int64_t size(int d) const { return high[d] - low[d] + 1; }
  int64_t sizes() const { return size(0) * size(1) * size(2); }
};

Reach reach_of(const Gather& g, const int64_t (&kernel)[3]) {
  Reach r;
  for (int d = 0; d < 3; ++d) {
    const int64_t span = (kernel[d] - 1) * g.step[d];
    r.low[d] = g.off[d] + std::min<int64_t>(span, 0);
    r.high[d] = (g.to[d] - 1) * g.mul[d] + g.off[d] + std::max<int64_t>(span, 0);
  }
  return r;
}

constexpr int64_t kSlack = 16;  // elements behind a copy, which a vector may read

// A copy of the image of `channels` with zeros where positions lie outside of it, on CPUs: with all positions inside, 16
// of them are read without a question. Those of `gathers` then lie in the copy. `slack`: it is one.
cw_status surrounded(KernelCall& call, const Convolution& c, int64_t channels, const Reach& reach,
                     std::vector<Gather*> gathers, const void** image, bool* slack) {
  *slack = false;
  if (!call.device->in_turn()) return CW_OK;
  const int64_t from[] = {gathers[0]->from[0], gathers[0]->from[1], gathers[0]->from[2]};
  bool inside = true;
  for (int d = 0; d < 3; ++d) inside &= reach.low[d] >= 0 && reach.high[d] < from[d];
  if (inside) return CW_OK;
  const int64_t rows = c.batch * channels * reach.size(0) * reach.size(1);
  if (reach.sizes() * channels >= (int64_t{1} << 31)) return CW_UNSUPPORTED;
  void* made = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>((rows * reach.size(2) + kSlack) * size_of(c.dtype)),
              &made));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("surrounded"), static_cast<uint64_t>(c.dtype), 0, 0},
      [&] {
        Source s(call.device->info);
        define_elements(s, c.dtype);
        s.out("S", "out").in("S", "in");
        for (const char* v : {"rows", "d", "h", "w", "fz", "fy", "fx", "lz", "ly", "lx"}) s.value("idx", v);
        return s.kernel(texts::convolution::surrounded);
      },
      &function));
  Launch l;
  l.pointer(made).pointer(*image).value(rows);
  for (int d = 0; d < 3; ++d) l.value(reach.size(d));
  for (const int64_t* side : {from, reach.low}) l.value(side[0]).value(side[1]).value(side[2]);
  TRY(l.run(*call.device, function, rows, static_cast<double>(reach.size(2)), call.stream));
  *image = made;
  *slack = true;
  for (Gather* g : gathers)
    for (int d = 0; d < 3; ++d) g->from[d] = reach.size(d), g->off[d] -= reach.low[d];
  return CW_OK;
}

// The same where a group is one channel: no product, whose tiles would be nearly empty. On CPUs four rows at a time.
cw_status depthwise(KernelCall& call, const Convolution& c, const Gather& g, const int64_t (&kernel)[3],
                    const void* out, const void* weight, const void* image, bool slack, const void* bias) {
  const Dtype type = compute_of(c.dtype);
  const bool in_turn = call.device->in_turn(), vectors = g.mul[2] == 1 && c.dtype == type;
  const auto bits = static_cast<uint64_t>(c.dtype) | static_cast<uint64_t>(bias != nullptr) << 8 |
                    static_cast<uint64_t>(slack) << 9 | static_cast<uint64_t>(vectors) << 10;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("depthwise"), bits, 0, 0},
      [&] {
        Source s(call.device->info);
        define_elements(s, c.dtype);
        s.out("S", "out").in("S", "a").in("S", "image");
        if (bias) s.in("S", "bias");
        s.value("idx", "units").value("idx", "groups");
        add_plane(s);
        vector_definitions(s, type, *call.device);
        s.define("VECTORS", vectors).define("SLACK", slack).define("BIASED", bias != nullptr);
        s.before(texts::convolution::tap);
        return s.kernel(texts::convolution::depthwise);
      },
      &function));
  const int64_t planes = c.batch * c.groups, spots = g.to[0] * g.to[1] * g.to[2];
  const int64_t units = planes * (in_turn ? g.to[0] * ((g.to[1] + 3) / 4) : spots);
  const int64_t taps = kernel[0] * kernel[1] * kernel[2];
  Launch l;
  l.pointer(out).pointer(weight).pointer(image);
  if (bias) l.pointer(bias);
  l.value(units).value(c.groups);
  add_plane(l, g, kernel);
  const double each = static_cast<double>(taps * planes * spots) / (vectors && in_turn ? 8 : 1);
  return l.run(*call.device, function, units, each / static_cast<double>(units), call.stream);
}

// `out` [batch, groups * m, to] = `weight` [groups, m, channels * taps] times what `g` gathers from `image`.
cw_status gathered(KernelCall& call, const Convolution& c, const Gather& g, const int64_t (&kernel)[3], int64_t m,
                   const void* out, const void* weight, const void* image, bool slack, const void* bias,
                   const Epilogue* epilogue = nullptr) {
  if (m == 1 && g.channels == 1) return depthwise(call, c, g, kernel, out, weight, image, slack, bias);
  const Dtype type = compute_of(c.dtype);
  const bool inside = call.device->in_turn();
  const ProductSize size{c.batch * c.groups, m, g.to[0] * g.to[1] * g.to[2],
                         g.channels * kernel[0] * kernel[1] * kernel[2]};
  const auto bits = static_cast<uint64_t>(c.dtype) | static_cast<uint64_t>(inside) << 8 |
                    static_cast<uint64_t>(bias != nullptr) << 9 | static_cast<uint64_t>(slack) << 10;
  const auto function_of = [&](const Cut& cut, cw_function* out_function) {
    return call.device->function(
        {family("gathered"), bits, cut.id(), id_of(epilogue)},
        [&] {
          Source s(call.device->info);
          define_elements(s, c.dtype);
          s.out(name_of(type), "packs").out("S", "out").in("S", "a").in("S", "image");
          if (bias) s.in("S", "bias");
          s.value("idx", "groups");
          add_plane(s);
          declare(epilogue, s, cut.kind == Cut::panels);
          Product p;
          p.cut = cut;
          p.a = c.dtype;
          p.type = type;
          p.a_dense = true;
          s.define("VECTORS", c.dtype == type).define("SLACK", slack).define("BIASED", bias != nullptr);
          s.before(texts::convolution::tap).before(texts::convolution::gathered);
          return product_text(s, p, *call.device);
        },
        out_function);
  };
  return run_product(call, Turn::convolution, c.dtype, size, size.k, 1, function_of, [&](Launch& l) {
    l.pointer(out).pointer(weight).pointer(image);
    if (bias) l.pointer(bias);
    l.value(c.groups);
    add_plane(l, g, kernel);
    fill(epilogue, l);
  });
}

Gather forward_gather(const Convolution& c) {
  Gather g{c.in_channels / c.groups, {}, {}, {}, {}, {}};
  for (int d = 0; d < 3; ++d) {
    g.from[d] = c.in[d], g.to[d] = c.out[d], g.mul[d] = c.stride[d];
    g.off[d] = -c.padding[d], g.step[d] = c.dilation[d];
  }
  return g;
}

// True: it is one of windows of 3 x 3 that Winograd's way is faster for. `turned`: from its result to its image.
bool by_winograd(const KernelCall& call, const Convolution& c, bool turned, Windows* w) {
  constexpr int64_t kSides[] = {1, 3, 3};
  if (c.groups != 1 || c.in[0] != 1 || c.out[0] != 1 || c.padding[0] != 0) return false;
  for (int d = 0; d < 3; ++d)
    if (c.kernel[d] != kSides[d] || c.stride[d] != 1 || c.dilation[d] != 1) return false;
  *w = {c.batch,  c.in_channels, c.out_channels, c.in[1],       c.in[2],
        c.out[1], c.out[2],      -c.padding[1],  -c.padding[2], false};
  if (turned)
    *w = {c.batch, c.out_channels, c.in_channels,    c.out[1],         c.out[2],
          c.in[1], c.in[2],        c.padding[1] - 2, c.padding[2] - 2, true};
  return winograd_pays(*call.device, c.dtype, *w);
}

cw_status forward(KernelCall& call, const Convolution& c, const void* out, const void* in, const void* weight,
                  const void* bias) {
  Windows w{};
  if (by_winograd(call, c, false, &w)) return winograd(call, w, out, in, weight, bias, call.take_epilogue());
  Gather g = forward_gather(c);
  bool slack = false;
  TRY(surrounded(call, c, c.in_channels, reach_of(g, c.kernel), {&g}, &in, &slack));
  const bool alone = c.out_channels == c.groups && g.channels == 1;  // depthwise
  return gathered(call, c, g, c.kernel, c.out_channels / c.groups, out, weight, in, slack, bias,
                  alone ? nullptr : call.take_epilogue());
}

// Of an input's gradient, places that lie a stride apart: the same taps reach them, `taps` of them, from `first` on and
// `apart`.
struct Phase {
  Gather gather;
  int64_t first[3], apart[3], taps[3];

  bool reads() const { return taps[0] * taps[1] * taps[2] > 0; }
};

// All of them that the input has.
std::vector<Phase> phases_of(const Convolution& c) {
  std::vector<Phase> all;
  int64_t steps[3];
  for (int d = 0; d < 3; ++d) steps[d] = std::min(c.stride[d], c.in[d]);
  for (int64_t i = 0; i < steps[0] * steps[1] * steps[2]; ++i) {
    Phase p{};
    p.gather.channels = c.out_channels / c.groups;
    const int64_t at[] = {i / (steps[1] * steps[2]), i / steps[2] % steps[1], i % steps[2]};
    for (int d = 0; d < 3; ++d) {
      // Position y * stride + at was read at tap r by the output (y * stride + at + padding - r * dilation) / stride.
      const int64_t apart = c.stride[d] / std::gcd(c.stride[d], c.dilation[d]), from = at[d] + c.padding[d];
      int64_t first = 0;
      while (first < std::min(apart, c.kernel[d]) && (from - first * c.dilation[d]) % c.stride[d] != 0) ++first;
      const bool none = first >= std::min(apart, c.kernel[d]);
      p.first[d] = first, p.apart[d] = apart, p.taps[d] = none ? 0 : (c.kernel[d] - first + apart - 1) / apart;
      p.gather.from[d] = c.out[d], p.gather.to[d] = (c.in[d] - at[d] + c.stride[d] - 1) / c.stride[d];
      p.gather.mul[d] = 1, p.gather.off[d] = (from - first * c.dilation[d]) / c.stride[d];
      p.gather.step[d] = -c.dilation[d] * apart / c.stride[d];
    }
    all.push_back(p);
  }
  return all;
}

// Of the weight [groups * m, n, taps] those that `phase` reads, as [groups * n, m, its taps].
cw_status swapped(KernelCall& call, const Convolution& c, const Phase& phase, const void* weight, void** out) {
  constexpr int64_t kSide = 16;  // of n that an item takes: it reads their taps together
  const int64_t m = c.out_channels / c.groups, n = c.in_channels / c.groups, blocks = (n + kSide - 1) / kSide;
  const int64_t taps = phase.taps[0] * phase.taps[1] * phase.taps[2];
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(c.groups * m * n * taps * size_of(c.dtype)), out));
  const bool in_turn = call.device->in_turn();
  // Loops over taps are constants: most have 9, 4 or 1 of them.
  uint64_t sizes = static_cast<uint64_t>(size_of(c.dtype));
  for (int d = 0; d < 3; ++d) {
    if (c.kernel[d] >= 1 << 9) return CW_UNSUPPORTED;
    sizes = sizes << 18 | static_cast<uint64_t>(c.kernel[d] << 9 | phase.taps[d]);
  }
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("swapped"), sizes, 0, 0},
      [&] {
        Source s(call.device->info);
        s.define("S", storage_of(c.dtype));
        s.out("S", "out").in("S", "in");
        for (const char* v : {"count", "m", "n", "side", "blocks", "fd", "fh", "fw", "ad", "ah", "aw"})
          s.value("idx", v);
        constexpr const char* kSides[] = {"D", "H", "W"};
        for (int d = 0; d < 3; ++d) {
          s.define(std::string("K") + kSides[d], c.kernel[d]).define(std::string("T") + kSides[d], phase.taps[d]);
        }
        return s.kernel(texts::convolution::swapped);
      },
      &function));
  const int64_t side = in_turn ? kSide : 1, units = c.groups * (in_turn ? blocks : n * m);
  Launch l;
  l.pointer(*out).pointer(weight).value(units).value(m).value(n).value(side).value(in_turn ? blocks : n);
  for (const auto* one : {phase.first, phase.apart}) l.value(one[0]).value(one[1]).value(one[2]);
  const double each = static_cast<double>(taps * (in_turn ? m * kSide : 1));
  return l.run(*call.device, function, units, each, call.stream);
}

// The bias, or 0, everywhere in `out` [batch, channels, size].
cw_status filled(KernelCall& call, const Convolution& c, int64_t channels, int64_t size, const void* out,
                 const void* bias) {
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("filled"), static_cast<uint64_t>(size_of(c.dtype)), bias != nullptr, 0},
      [&] {
        Source s(call.device->info);
        s.define("S", storage_of(c.dtype));
        s.out("S", "out").define("BIASED", bias != nullptr);
        if (bias) s.in("S", "bias");
        for (const char* v : {"planes", "channels", "size"}) s.value("idx", v);
        return s.kernel(texts::convolution::filled);
      },
      &function));
  Launch l;
  l.pointer(out);
  if (bias) l.pointer(bias);
  l.value(c.batch * channels).value(channels).value(size);
  return l.run(*call.device, function, c.batch * channels, static_cast<double>(size), call.stream);
}

// `out` [batch, channels, in] of what each phase gave: the first of those at `parts`, each next one `apart` elements on.
cw_status interleaved(KernelCall& call, const Convolution& c, int64_t apart, const void* parts, const void* out) {
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("interleaved"), static_cast<uint64_t>(size_of(c.dtype)), 0, 0},
      [&] {
        Source s(call.device->info);
        s.define("S", storage_of(c.dtype));
        s.out("S", "out").in("S", "in");
        for (const char* v : {"rows", "apart", "d", "h", "w", "sz", "sy", "sx", "nz", "ny", "nx"}) s.value("idx", v);
        return s.kernel(texts::convolution::interleaved);
      },
      &function));
  const int64_t rows = c.batch * c.in_channels * c.in[0] * c.in[1];
  Launch l;
  l.pointer(out).pointer(parts).value(rows).value(apart);
  for (const auto* side : {c.in, c.stride}) l.value(side[0]).value(side[1]).value(side[2]);
  for (int d = 0; d < 3; ++d) l.value(std::min(c.stride[d], c.in[d]));
  return l.run(*call.device, function, rows, static_cast<double>(c.in[2]), call.stream);
}

// A product for each place within a stride, over the taps that reach it.
cw_status input_gradient(KernelCall& call, const Convolution& c, const void* out, const void* grad, const void* weight,
                         const void* bias = nullptr) {
  Windows w{};
  if (by_winograd(call, c, true, &w)) return winograd(call, w, out, grad, weight, bias);
  std::vector<Phase> phases = phases_of(c);
  Reach reach{};
  std::vector<Gather*> gathers;
  for (Phase& p : phases) {
    if (!p.reads()) continue;
    const Reach its = reach_of(p.gather, p.taps);
    if (gathers.empty()) reach = its;
    for (int d = 0; d < 3; ++d)
      reach.low[d] = std::min(reach.low[d], its.low[d]), reach.high[d] = std::max(reach.high[d], its.high[d]);
    gathers.push_back(&p.gather);
  }
  if (gathers.empty()) return filled(call, c, c.in_channels, c.in_size(), out, bias);
  bool slack = false;
  TRY(surrounded(call, c, c.out_channels, reach, gathers, &grad, &slack));
  int64_t apart = c.batch * c.in_channels;
  for (int d = 0; d < 3; ++d) apart *= phases[0].gather.to[d];
  void* parts = nullptr;
  if (phases.size() > 1)
    TRY(scratch(*call.device, call.stream,
                static_cast<uint64_t>(apart * size_of(c.dtype)) * static_cast<uint64_t>(phases.size()), &parts));
  for (size_t i = 0; i < phases.size(); ++i) {
    const Phase& p = phases[i];
    const void* to = parts ? static_cast<char*>(parts) + static_cast<int64_t>(i) * apart * size_of(c.dtype) : out;
    if (!p.reads()) {
      TRY(filled(call, c, c.in_channels, p.gather.to[0] * p.gather.to[1] * p.gather.to[2], to, bias));
      continue;
    }
    void* turned = nullptr;
    TRY(swapped(call, c, p, weight, &turned));
    TRY(gathered(call, c, p.gather, p.taps, c.in_channels / c.groups, to, turned, grad, slack, bias));
  }
  return parts ? interleaved(call, c, apart, parts, out) : CW_OK;
}

// Both sides of a weight's gradient as CPUs want them, in the type that is computed in: the image with its channels last
// and zeros around it, so that a panel of columns is a run of neighbours at each position; the rows of `grad` in tiles
// that lie side by side.
cw_status channels_last(KernelCall& call, const Convolution& c, const Reach& reach, const void* in, int64_t past,
                        void** out) {
  const Dtype type = compute_of(c.dtype);
  const int64_t channels = c.in_channels / c.groups, rows = c.batch * c.groups * reach.size(0) * reach.size(1);
  const int64_t count = rows * reach.size(2) * channels;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>((count + past) * size_of(type)), out));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("channels_last"), static_cast<uint64_t>(c.dtype), 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string t = name_of(type);
        define_elements(s, c.dtype);
        s.out(t, "out").in("S", "in").define("T", t);
        for (const char* v : {"rows", "channels", "d", "h", "w", "fz", "fy", "fx", "lz", "ly", "lx"}) s.value("idx", v);
        return s.kernel(texts::convolution::channels_last);
      },
      &function));
  Launch l;
  l.pointer(*out).pointer(in).value(rows).value(channels);
  for (int d = 0; d < 3; ++d) l.value(reach.size(d));
  l.value(c.in[0]).value(c.in[1]).value(c.in[2]).value(reach.low[0]).value(reach.low[1]).value(reach.low[2]);
  return l.run(*call.device, function, rows, static_cast<double>(reach.size(2) * channels), call.stream);
}

cw_status rows_in_tiles(KernelCall& call, const Convolution& c, const Cut& cut, const void* grad, void** out) {
  constexpr int64_t kTogether = 64;  // positions of an item
  const Dtype type = compute_of(c.dtype);
  const int64_t m = c.out_channels / c.groups, tiles = (m + cut.rows - 1) / cut.rows, spots = c.out_size();
  const int64_t blocks = (spots + kTogether - 1) / kTogether, units = c.batch * c.groups * tiles * blocks;
  const int64_t count = c.batch * c.groups * tiles * cut.rows * spots;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(count * size_of(type)), out));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("rows_in_tiles"), static_cast<uint64_t>(c.dtype), cut.rows, 0},
      [&] {
        Source s(call.device->info);
        define_elements(s, c.dtype);
        s.out(name_of(type), "out").in("S", "in").define("TILE", cut.rows);
        for (const char* v : {"units", "blocks", "together", "tiles", "M", "spots"}) s.value("idx", v);
        return s.kernel(texts::convolution::rows_in_tiles);
      },
      &function));
  Launch l;
  l.pointer(*out).pointer(grad).value(units).value(blocks).value(kTogether).value(tiles).value(m).value(spots);
  return l.run(*call.device, function, units, static_cast<double>(kTogether * cut.rows), call.stream);
}

// `out` of the shares' sums, one after the other at `partial`.
cw_status summed(KernelCall& call, const Tensor& out, const void* partial, int64_t shares) {
  Tensor sums, to = out;
  sums.data = static_cast<const char*>(partial);
  sums.dtype = compute_of(out.dtype);
  sums.ndim = 2;
  sums.shape[0] = shares, sums.shape[1] = out.numel();
  sums.strides[0] = out.numel(), sums.strides[1] = 1;
  to.ndim = 1;
  to.shape[0] = out.numel(), to.strides[0] = 1;
  return sum_into(call, to, sums, {0});
}

// `out` [groups * m, n, taps] on CPUs: for each share of the batch by itself, then summed up. An item takes tiles of
// rows for panels of channels, one tap after the other, or, of few channels, of all taps of a line side by side; a chunk of
// images at a time, so that they stay in the second cache for all of its tiles.
cw_status gradient_in_panels(KernelCall& call, const Convolution& c, const Gather& g, const Tensor& out,
                             const void* grad, const void* in) {
  constexpr int64_t kChunk = int64_t{1} << 17;  // elements of a tile's rows and a panel
  const Dtype type = compute_of(c.dtype);
  const int64_t m = c.out_channels / c.groups, channels = c.in_channels / c.groups, taps = c.taps();
  const Reach reach = reach_of(g, c.kernel);
  if (reach.sizes() * channels >= (int64_t{1} << 31)) return CW_UNSUPPORTED;
  // Not by the cut: other shares would be other bits.
  const int64_t each = c.groups * ((m + 7) / 8) * ((channels * taps + 31) / 32);
  const int64_t shares = std::clamp<int64_t>(int64_t{call.device->info.compute_units} * 8 / each, 1, c.batch);
  const ProductSize size{c.groups, m, channels * taps, c.batch * c.out_size()};
  return with_cut(call, Turn::gradient, c.dtype, size, [&](Turn& turn) {
    const Cut& cut = turn.cut();
    const bool together = g.step[2] == 1 && c.kernel[2] > 1 && channels % cut.columns != 0;
    const int64_t runs = together ? 1 : c.kernel[2], run = together ? c.kernel[2] * channels : channels;
    const int64_t lines = c.kernel[0] * c.kernel[1] * runs;
    const int64_t tiles = (m + cut.rows - 1) / cut.rows, panels = (run + cut.columns - 1) / cut.columns;
    const int64_t units = shares * c.groups * tiles * panels * lines, most = (c.batch + shares - 1) / shares;
    const int64_t chunk = std::clamp<int64_t>(kChunk / (c.out_size() * (cut.rows + cut.columns)), 1, most);
    cw_function function = nullptr;
    TRY(call.device->function(
        {family("gradient_in_panels"), static_cast<uint64_t>(c.dtype), cut.id(),
         static_cast<uint64_t>(together) | static_cast<uint64_t>(shares > 1) << 1},
        [&] {
          Source s(call.device->info);
          const std::string t = name_of(type);
          define_elements(s, c.dtype);
          s.out(t, "acc").out(shares > 1 ? t : "S", "out").in(t, "a").in(t, "image");
          for (const char* v : {"units", "tiles", "panels", "lines", "runs", "run", "groups", "shares", "images",
                                "chunk", "M", "channels"})
            s.value("idx", v);
          add_plane(s);
          Product p;
          p.cut = cut;
          p.a = p.type = type;
          tile_definitions(s, p, *call.device);
          s.define("TOGETHER", together).define("PARTS", shares > 1);
          return s.kernel(texts::convolution::gradient_in_panels);
        },
        &function));
    void *acc = nullptr, *image = nullptr, *rows = nullptr, *partial = nullptr;
    TRY(channels_last(call, c, reach, in, cut.columns, &image));
    TRY(rows_in_tiles(call, c, cut, grad, &rows));
    if (chunk < most)
      TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(units * cut.rows * cut.columns * size_of(type)),
                  &acc));
    if (shares > 1)
      TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(shares * out.numel() * size_of(type)), &partial));
    Launch l;
    l.pointer(acc).pointer(shares > 1 ? partial : out.data).pointer(rows).pointer(image);
    for (const int64_t v : {units, tiles, panels, lines, runs, run, c.groups, shares, c.batch, chunk, m, channels})
      l.value(v);
    Gather whole = g;
    for (int d = 0; d < 3; ++d) whole.from[d] = reach.size(d);
    add_plane(l, whole, c.kernel);
    TRY(turn.start());
    TRY(l.run(*call.device, function, units, size.multiplications() / 8 / static_cast<double>(units), call.stream));
    TRY(turn.end());
    return shares > 1 ? summed(call, out, partial, shares) : CW_OK;
  });
}

// The same where a group is one channel: an item sums up a line of taps, as many sums at a time as a vector has, and what
// is left of each row by itself.
cw_status depthwise_gradient(KernelCall& call, const Convolution& c, Gather g, const Tensor& out, const void* grad,
                             const void* in) {
  const Dtype type = compute_of(c.dtype);
  bool slack = false;
  TRY(surrounded(call, c, c.in_channels, reach_of(g, c.kernel), {&g}, &in, &slack));
  const bool vectors = g.mul[2] == 1 && c.dtype == type;
  const int64_t lines = c.kernel[0] * c.kernel[1], each = c.groups * lines;
  const int64_t shares = std::clamp<int64_t>(int64_t{call.device->info.compute_units} * 8 / each, 1, c.batch);
  const auto bits =
      static_cast<uint64_t>(c.dtype) | static_cast<uint64_t>(vectors) << 8 | static_cast<uint64_t>(shares > 1) << 9;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("depthwise_gradient"), bits, static_cast<uint64_t>(c.kernel[2]), 0},
      [&] {
        Source s(call.device->info);
        define_elements(s, c.dtype);
        s.out(shares > 1 ? name_of(type) : "S", "out").in("S", "a").in("S", "image");
        for (const char* v : {"units", "groups", "shares", "images"}) s.value("idx", v);
        add_plane(s);
        vector_definitions(s, type, *call.device);
        std::string zeros, vector_step, step, sums;
        for (int64_t q = 0; q < c.kernel[2]; ++q) {
          const std::string n = std::to_string(q);
          zeros += std::string(vectors ? "V c" + n + " = ZERO; " : "") + "T s" + n + " = 0; ";
          vector_step += "c" + n + " = FMAV(v, LOADV(f + x + " + n + " * sx), c" + n + "); ";
          step += "s" + n + " = FMA(v, (T)LD(f, x * mx + " + n + " * sx), s" + n + "); ";
          if (vectors)
            sums += "STORETILE(lane, c" + n + "); for (int l = 0; l < LANES_OF_V; ++l) s" + n + " += lane[l]; ";
          sums +=
              std::string(shares > 1 ? "out[to + " + n + "] = s" + n : "ST(out, to + " + n + ", s" + n + ")") + "; ";
        }
        s.define("VECTORS", vectors);
        s.define("ZEROS", zeros).define("VECTOR_STEP", vector_step).define("STEP_OF_ONE", step).define("SUMS", sums);
        return s.kernel(texts::convolution::depthwise_gradient);
      },
      &function));
  void* partial = nullptr;
  if (shares > 1)
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(shares * out.numel() * size_of(type)), &partial));
  Launch l;
  l.pointer(shares > 1 ? partial : out.data).pointer(grad).pointer(in);
  for (const int64_t v : {each * shares, c.groups, shares, c.batch}) l.value(v);
  add_plane(l, g, c.kernel);
  const double cost = static_cast<double>(c.batch * c.out_size() * c.kernel[2]) / (vectors ? 8 : 1);
  TRY(l.run(*call.device, function, each * shares, cost / static_cast<double>(shares), call.stream));
  return shares > 1 ? summed(call, out, partial, shares) : CW_OK;
}

// The same elsewhere: one product for a group, whose k goes over all positions of all images.
cw_status gradient_in_squares(KernelCall& call, const Convolution& c, const Gather& g, const Tensor& out,
                              const void* grad, const void* in) {
  const ProductSize size{c.groups, c.out_channels / c.groups, c.in_channels / c.groups * c.taps(),
                         c.batch * c.out_size()};
  if (size.k >= int64_t{1} << 31 || size.n >= int64_t{1} << 31) return CW_UNSUPPORTED;
  const Dtype type = compute_of(c.dtype);
  const auto function_of = [&](const Cut& cut, cw_function* function) {
    return call.device->function(
        {family("gradient_in_squares"), static_cast<uint64_t>(c.dtype), cut.id(), 0},
        [&] {
          Source s(call.device->info);
          define_elements(s, c.dtype);
          s.out(name_of(type), "packs").out("S", "out").in("S", "a").in("S", "image");
          for (const char* v : {"groups", "channels"}) s.value("idx", v);
          add_plane(s);
          Product p;
          p.cut = cut;
          p.a = c.dtype;
          p.type = type;
          p.a_dense = p.b_along_k = true;
          s.before(texts::convolution::tap).before(texts::convolution::gradient_in_squares);
          return product_text(s, p, *call.device);
        },
        function);
  };
  return run_product(call, Turn::gradient, c.dtype, size, 0, 1, function_of, [&](Launch& l) {
    l.pointer(out.data).pointer(grad).pointer(in);
    l.value(c.groups).value(c.in_channels / c.groups);
    add_plane(l, g, c.kernel);
  });
}

cw_status weight_gradient(KernelCall& call, Convolution c, const Tensor& out, const void* grad, const void* in) {
  if (!call.device->in_turn()) return gradient_in_squares(call, c, forward_gather(c), out, grad, in);
  constexpr int64_t kLongest = 16;  // line of taps, whose sums are registers
  if (c.in_channels == c.groups && c.out_channels == c.groups && c.kernel[2] <= kLongest)
    return depthwise_gradient(call, c, forward_gather(c), out, grad, in);
  // Positions in one line, where each is read by itself.
  bool alone = c.in_size() == c.out_size();
  for (int d = 0; d < 3; ++d) alone &= c.kernel[d] == 1 && c.padding[d] == 0 && c.stride[d] == 1;
  if (alone) c.in[2] = c.out[2] = c.in_size(), c.in[0] = c.in[1] = c.out[0] = c.out[1] = 1;
  return gradient_in_panels(call, c, forward_gather(c), out, grad, in);
}

// Reads stride, padding, dilation, transposed, output_padding and groups from argument `at` on. For a transposed
// convolution `in` and `out` are swapped: what is its input is the other's result.
bool read(KernelCall& call, int at, const Tensor& in, const Tensor& weight, const Tensor& out, Convolution& c,
          bool& turned) {
  const int dims = in.ndim - 2;
  if (dims < 1 || dims > 3 || weight.ndim != in.ndim || out.ndim != in.ndim) return false;
  turned = call.integer(at + 3) != 0;
  c.groups = call.integer(at + 5, 1);
  c.batch = in.shape[0];
  const Tensor &image = turned ? out : in, &result = turned ? in : out;
  c.in_channels = image.shape[1], c.out_channels = result.shape[1];
  c.dtype = in.dtype;
  const auto stride = call.ints(at), padding = call.ints(at + 1), dilation = call.ints(at + 2);
  for (int d = 0; d < 3; ++d) {
    const int from = d - (3 - dims);
    const auto value = [&](const std::vector<int64_t>& list, int64_t none) {
      return from < 0 || list.empty() ? none : list.size() == 1 ? list[0] : list[static_cast<size_t>(from)];
    };
    c.in[d] = from < 0 ? 1 : image.shape[2 + from];
    c.out[d] = from < 0 ? 1 : result.shape[2 + from];
    c.kernel[d] = from < 0 ? 1 : weight.shape[2 + from];
    c.stride[d] = value(stride, 1), c.padding[d] = from < 0 ? 0 : value(padding, 0), c.dilation[d] = value(dilation, 1);
    if (c.in[d] > (1 << 20) || c.out[d] > (1 << 20)) return false;  // positions are 32-bit
  }
  // Of one image, as offsets are 32-bit too.
  return c.in_size() * c.in_channels < (int64_t{1} << 31) && c.out_size() * c.out_channels < (int64_t{1} << 31);
}

bool takes(const KernelCall& call, std::initializer_list<const Tensor*> tensors) {
  const Dtype dtype = (*tensors.begin())->dtype;
  for (const Tensor* t : tensors)
    if (t->dtype != dtype || !is_float(dtype) || t->numel() == 0) return false;
  return dtype != kF64 || (call.device->info.arithmetic & CW_FLOAT64);
}

// out, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
cw_status convolution(KernelCall& call, const void*) {
  Tensor out, in, weight, bias;
  Convolution c;
  bool turned = false;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !call.tensor(2, &weight)) return CW_UNSUPPORTED;
  const bool biased = call.tensor(3, &bias);
  if (!takes(call, {&in, &weight, &out}) || (biased && bias.dtype != in.dtype)) return CW_UNSUPPORTED;
  if (!read(call, 4, in, weight, out, c, turned)) return CW_UNSUPPORTED;
  const char* b = biased ? bias.data : nullptr;
  return turned ? input_gradient(call, c, out.data, in.data, weight.data, b)
                : forward(call, c, out.data, in.data, weight.data, b);
}

// grad_input, grad_weight, grad_bias, grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, ...
cw_status convolution_backward(KernelCall& call, const void*) {
  Tensor to_input, to_weight, to_bias, grad, in, weight;
  Convolution c;
  bool turned = false;
  if (!call.tensor(3, &grad) || !call.tensor(4, &in) || !call.tensor(5, &weight)) return CW_UNSUPPORTED;
  if (!takes(call, {&grad, &in, &weight}) || !read(call, 7, in, weight, grad, c, turned)) return CW_UNSUPPORTED;
  if (call.tensor(0, &to_input)) {
    TRY(turned ? forward(call, c, to_input.data, grad.data, weight.data, nullptr)
               : input_gradient(call, c, to_input.data, grad.data, weight.data));
  }
  if (call.tensor(1, &to_weight))
    TRY(weight_gradient(call, c, to_weight, turned ? in.data : grad.data, turned ? grad.data : in.data));
  if (call.tensor(2, &to_bias)) {
    std::vector<int64_t> dims = {0};
    for (int d = 2; d < grad.ndim; ++d) dims.push_back(d);
    TRY(sum_into(call, to_bias, grad, dims));
  }
  return CW_OK;
}

}  // namespace

Kernels convolution_kernels() {
  constexpr uint32_t needs = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  return {{"aten::convolution", convolution, kFloats, needs},
          {"aten::convolution_backward", convolution_backward, kFloats, CW_NEEDS_CONTIGUOUS}};
}

}  // namespace causeway::portable
