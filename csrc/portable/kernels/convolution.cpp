// Convolutions of one to three dimensions and both gradients, as products whose B is read where the image has it: no
// unfolded image is ever written. Groups, dilation, padding, strides; transposed ones swap forward and gradient.
#include <algorithm>

#include "portable/kernels/gemm.h"

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

// The source plane of a product over taps: position t = y * mul + off + r * step, divided by `div` where it divides.
struct Gather {
  int64_t channels;  // of one group
  int64_t from[3], to[3], mul[3], off[3], step[3], div[3];
};

constexpr const char* kPlane[] = {"fz", "fy", "fx", "tz", "ty", "tx", "mz", "my", "mx", "oz", "oy",
                                  "ox", "sz", "sy", "sx", "dz", "dy", "dx", "kd", "kh", "kw"};

void add_plane(Source& s) {
  for (const char* name : kPlane) s.value("idx", name);
}
void add_plane(Launch& l, const Gather& g, const int64_t (&kernel)[3]) {
  for (const auto* side : {g.from, g.to, g.mul, g.off, g.step, g.div, kernel})
    l.value(side[0]).value(side[1]).value(side[2]);
}

// Element by element, for what has no vectors: position s, t, u of channel c, 0 outside of the image, and between its
// elements where these are apart.
constexpr const char* kTap =
    "#define TAP(c, s, t, u) ((s) >= 0 && (s) < fz && (t) >= 0 && (t) < fy && (u) >= 0 && (u) < fx ? "
    "FROM((c) * plane + ((s) * fy + (t)) * fx + (u)) : 0)\n";
constexpr const char* kTapBetween =
    "#define TAP(c, s, t, u) ((s) >= 0 && (s) % dz == 0 && (s) / dz < fz && (t) >= 0 && (t) % dy == 0 && (t) / dy < fy "
    "&& (u) >= 0 && (u) % dx == 0 && (u) / dx < fx ? FROM((c) * plane + ((s) / dz * fy + (t) / dy) * fx + (u) / dx) : "
    "0)\n";

// A copy of the image with zeros where positions lie outside of it or between its elements, on CPUs: with all positions
// inside, 16 of them are gathered without a question.
cw_status surrounded(Call& call, const Convolution& c, Gather& g, const void** image) {
  if (!call.device->in_turn()) return CW_OK;
  int64_t low[3], size[3];
  bool inside = true;
  for (int d = 0; d < 3; ++d) {
    const int64_t reach = (c.kernel[d] - 1) * g.step[d];
    low[d] = g.off[d] + std::min<int64_t>(reach, 0);
    const int64_t high = (g.to[d] - 1) * g.mul[d] + g.off[d] + std::max<int64_t>(reach, 0);
    size[d] = high - low[d] + 1;
    inside &= g.div[d] == 1 && low[d] >= 0 && high < g.from[d];
  }
  if (inside) return CW_OK;
  const int64_t planes = c.batch * c.groups * g.channels, rows = planes * size[0] * size[1];
  if (size[0] * size[1] * size[2] * g.channels * c.groups >= (int64_t{1} << 31)) return CW_UNSUPPORTED;
  void* made = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(rows * size[2] * size_of(c.dtype)), &made));
  cw_function function = nullptr;
  const bool between = g.div[0] != 1 || g.div[1] != 1 || g.div[2] != 1;
  TRY(call.device->function(
      {family("surrounded"), static_cast<uint64_t>(c.dtype) | static_cast<uint64_t>(between) << 8, 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string store = storage_of(c.dtype);
        s.define("BETWEEN", between).out(store, "out").in(store, "in");
        for (const char* v : {"rows", "d", "h", "w", "fz", "fy", "fx", "lz", "ly", "lx", "dz", "dy", "dx"})
          s.value("idx", v);
        return s.kernel(R"(
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  GLOBAL )" + store + R"(* to = out + u * w;
  const idx y = u % h + ly, z = u / h % d + lz, y_ = BETWEEN ? y / dy : y, z_ = BETWEEN ? z / dz : z;
  const idx at = ((u / h / d * fz + z_) * fy + y_) * fx;
  for (idx x = 0; x < w; ++x) to[x] = 0;
  if (y < 0 || z < 0 || y_ >= fy || z_ >= fz || (BETWEEN && (y % dy != 0 || z % dz != 0))) continue;
#if BETWEEN
  for (idx x = 0; x < fx; ++x) { const idx t = x * dx - lx; if (t >= 0 && t < w) to[t] = in[at + x]; }
#else
  const idx from = lx > 0 ? lx : 0, past = w + lx < fx ? w + lx : fx;
  for (idx x = from; x < past; ++x) to[x - lx] = in[at + x];
#endif
}
)");
      },
      &function));
  Launch l;
  l.pointer(made).pointer(*image).value(rows);
  for (const auto* side : {size, g.from, low, g.div}) l.value(side[0]).value(side[1]).value(side[2]);
  TRY(l.run(*call.device, function, rows, static_cast<double>(size[2]), call.stream));
  *image = made;
  for (int d = 0; d < 3; ++d) g.from[d] = size[d], g.off[d] -= low[d], g.div[d] = 1;
  return CW_OK;
}

// `out` [batch, groups * m, to] = `weight` [groups, m, channels * taps] times what `g` gathers from `image`.
cw_status gathered(Call& call, const Convolution& c, Gather g, int64_t m, const void* out, const void* weight,
                   const void* image, const void* bias) {
  const Dtype type = compute_of(c.dtype);
  TRY(surrounded(call, c, g, &image));
  bool divides = false;
  for (int d = 0; d < 3; ++d) divides |= g.div[d] != 1;
  const bool inside = call.device->in_turn();
  const ProductSize size{c.batch * c.groups, m, g.to[0] * g.to[1] * g.to[2], g.channels * c.taps()};
  const auto bits = static_cast<uint64_t>(c.dtype) | static_cast<uint64_t>(inside) << 8 |
                    static_cast<uint64_t>(divides) << 9 | static_cast<uint64_t>(bias != nullptr) << 10;
  const auto function_of = [&](const Cut& cut, cw_function* out_function) {
    return call.device->function(
        {family("gathered"), bits, cut.id(), 0},
        [&] {
          Source s(call.device->info);
          const std::string name = name_of(c.dtype), store = storage_of(c.dtype);
          s.out(name_of(type), "packs").out(store, "out").in(store, "a").in(store, "image");
          if (bias) s.in(store, "bias");
          s.value("idx", "groups");
          add_plane(s);
          Product p;
          p.cut = cut;
          p.a = c.dtype;
          p.type = type;
          p.a_dense = true;
          p.begin =
              "const idx plane = fz * fy * fx, channels = K / (kd * kh * kw), group = batch % groups; const idx a_base "
              "= "
              "group * M "
              "* K, o_base = batch * M * N; GLOBAL const " +
              store + "* from = image + batch * channels * plane;";
          s.before("#define FROM(at) LD_" + name + "(from, at)\n");
          s.before(divides ? kTapBetween : kTap);
          // Divided in 32 bits, as positions of one image are: 64 take GPUs several times as long.
          p.b =
              "TAP((u32)k / (u32)(kd * kh * kw), (i32)((u32)n / (u32)(ty * tx) * mz + oz + (u32)k / (u32)(kh * kw) % "
              "(u32)kd * sz), (i32)((u32)n / (u32)tx % (u32)ty * my + oy + (u32)k / (u32)kw % (u32)kh * sy), "
              "(i32)((u32)n % "
              "(u32)tx * mx + ox + (u32)k % (u32)kw * sx))";
          p.panel =
              "i32 at0[WIDE]; for (int l = 0; l < WIDE; ++l) { const idx n = l < wide ? n0 + l : n0; at0[l] = "
              "(i32)(((n / "
              "(ty "
              "* tx) * mz + oz) * fy + n / tx % ty * my + oy) * fx + n % tx * mx + ox); }";
          // A row of positions of one tap at a time, gathered.
          p.pack =
              "idx c = k0 / (kd * kh * kw), e = k0 / (kh * kw) % kd, r = k0 / kw % kh, q = k0 % kw; for (idx k = k0; k "
              "< "
              "k1; ++k) { GLOBAL " +
              std::string(name_of(type)) + "* to = pack + (k - k0) * WIDE; ";
          p.pack += "GLOBAL const " + store +
                    "* f = from + c * plane + (e * sz * fy + r * sy) * fx + q * sx; for (int l = 0; l < WIDE; "
                    "++l) to[l] = LD_" +
                    name + "(f, at0[l]);";
          p.pack += " if (++q == kw) { q = 0; if (++r == kh) { r = 0; if (++e == kd) { e = 0; ++c; } } } }";
          p.store = bias ? "v = v + LD_" + name + "(bias, group * M + m);" : "";
          p.store += " ST_" + name + "(out, o_base + m * N + n, v);";
          return product_text(s, p, *call.device);
        },
        out_function);
  };
  return run_product(call, Turn::convolution, c.dtype, size, size.k, 1, function_of, [&](Launch& l) {
    l.pointer(out).pointer(weight).pointer(image);
    if (bias) l.pointer(bias);
    l.value(c.groups);
    add_plane(l, g, c.kernel);
  });
}

cw_status forward(Call& call, const Convolution& c, const void* out, const void* in, const void* weight,
                  const void* bias) {
  Gather g{c.in_channels / c.groups, {}, {}, {}, {}, {}, {1, 1, 1}};
  for (int d = 0; d < 3; ++d) {
    g.from[d] = c.in[d], g.to[d] = c.out[d], g.mul[d] = c.stride[d];
    g.off[d] = -c.padding[d], g.step[d] = c.dilation[d];
  }
  return gathered(call, c, g, c.out_channels / c.groups, out, weight, in, bias);
}

// The weight [groups * m, n, taps] as [groups * n, m, taps].
cw_status swapped(Call& call, const Convolution& c, const void* weight, void** out) {
  const int64_t m = c.out_channels / c.groups, n = c.in_channels / c.groups;
  const int64_t count = c.groups * m * n * c.taps();
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(count * size_of(c.dtype)), out));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("swapped"), static_cast<uint64_t>(size_of(c.dtype)), 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string store = storage_of(c.dtype);
        s.out(store, "out").in(store, "in");
        for (const char* v : {"count", "m", "n", "taps"}) s.value("idx", v);
        return s.kernel(
            "for (idx i = FIRST(count), end = LAST(count); i < end; i += STEP) {\nconst idx t = "
            "i % taps, o = i / taps % m, c = i / taps / m % n, g = i / taps / m / n;\nout[i] = "
            "in[((g * m + o) * n + c) * taps + t];\n}\n");
      },
      &function));
  Launch l;
  l.pointer(*out).pointer(weight).value(count).value(m).value(n).value(c.taps());
  return l.run(*call.device, function, count, 8, call.stream);
}

cw_status input_gradient(Call& call, const Convolution& c, const void* out, const void* grad, const void* weight,
                         const void* bias = nullptr) {
  void* turned = nullptr;
  TRY(swapped(call, c, weight, &turned));
  Gather g{c.out_channels / c.groups, {}, {}, {1, 1, 1}, {}, {}, {}};
  for (int d = 0; d < 3; ++d) {
    g.from[d] = c.out[d], g.to[d] = c.in[d], g.off[d] = c.padding[d];
    g.step[d] = -c.dilation[d], g.div[d] = c.stride[d];
  }
  return gathered(call, c, g, c.in_channels / c.groups, out, turned, grad, bias);
}

// `out` [groups * m, n, taps] on CPUs: for each share of the batch by itself, then summed up.
cw_status gradient_in_panels(Call& call, const Convolution& c, const Gather& g, const Tensor& out, const void* grad,
                             const void* in) {
  const Dtype type = compute_of(c.dtype);
  const int64_t m = c.out_channels / c.groups, n = c.in_channels / c.groups * c.taps();
  const int64_t panels = (n + 15) / 16 * c.groups;
  const int64_t shares = std::clamp<int64_t>(int64_t{call.device->info.compute_units} * 8 / panels, 1, c.batch);
  const auto function_of = [&](const Cut& cut, cw_function* function) {
    return call.device->function(
        {family("gradient_in_panels"), static_cast<uint64_t>(c.dtype), cut.id(), 0},
        [&] {
          Source s(call.device->info);
          const std::string store = storage_of(c.dtype), t = name_of(type);
          s.out(t, "packs").out(t, "out").in(store, "a").in(store, "image");
          for (const char* v : {"groups", "shares", "images", "channels"}) s.value("idx", v);
          add_plane(s);
          Product p;
          p.cut = cut;
          p.a = c.dtype;
          p.type = type;
          p.a_dense = true;
          // k goes over the positions of one image after the other: `batch` is a share of the images and a group.
          p.begin =
              "const idx plane = fz * fy * fx, spots = tz * ty * tx, share = batch / groups, group = batch % groups, "
              "i0 = images * share / shares, i1 = images * (share + 1) / shares;";
          p.b = "0";
          p.store = "out[((share * groups + group) * M + m) * N + n] = v;";
          product_definitions(s, p, *call.device);
          // The kernel's own loop: A's rows change with the image.
          return s.kernel(R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx split = u % splits, panel = u / splits % panels, batch = u / splits / panels;
  const idx n0 = panel * WIDE, wide = N - n0 < WIDE ? N - n0 : WIDE, tiles = (M + TILE - 1) / TILE;
  const idx first = tiles * split / splits * TILE, past = tiles * (split + 1) / splits * TILE;
  const idx last = past < M ? past : M;
  GLOBAL T* staged = packs + item * slot;
  GLOBAL T* acc = staged + block * STAGED;
  GLOBAL T* pack = acc + kept_rows * WIDE;
  BEGIN
  i32 at0[WIDE];
  for (int l = 0; l < WIDE; ++l) {
    const idx n = l < wide ? n0 + l : n0, ch = n / (kd * kh * kw);
    const idx row = (n / (kh * kw) % kd * sz + oz) * fy + n / kw % kh * sy + oy;
    at0[l] = (i32)(ch * plane + row * fx + n % kw * sx + ox);
  }
  for (idx i = 0; i < kept_rows * WIDE; ++i) acc[i] = 0;
  for (idx image_at = i0; image_at < i1; ++image_at) {
    GLOBAL const AT* rows = a + (image_at * groups + group) * M * spots;
    GLOBAL const AT* from = image + (image_at * groups + group) * channels * plane;
    for (idx k0 = 0; k0 < spots; k0 += DEPTH) {
      const idx k1 = spots - k0 < DEPTH ? spots : k0 + DEPTH, depth = k1 - k0;
      idx z = k0 / tx / ty, y = k0 / tx % ty, x = k0 % tx;
      for (idx k = k0; k < k1; ++k) {
        GLOBAL T* to = pack + (k - k0) * WIDE;
        const i32 spot = (i32)((z * mz * fy + y * my) * fx + x * mx);
        for (int l = 0; l < WIDE; ++l) {
          to[l] = LDA(from, spot + at0[l]);
        }
        if (++x == tx) { x = 0; if (++y == ty) { y = 0; ++z; } }
      }
      for (idx m0 = first; m0 < last; m0 += TILE) {
        const idx left = last - m0;
        GLOBAL const AT* from_a = rows + m0 * am + k0;
        GLOBAL T* to_a = staged;
        GLOBAL T* kept = acc + (m0 - first) * WIDE;
        TILE_STAGE
        TILE_ZERO
        TILE_TAKE
        TILE_RUN
        TILE_KEEP
      }
    }
  }
  for (idx m = first; m < last; ++m)
    for (idx l = 0; l < wide; ++l) { const idx n = n0 + l; const T v = acc[(m - first) * WIDE + l]; PUT }
}
)");
        },
        function);
  };
  void* partial = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(shares * c.groups * m * n * size_of(type)), &partial));
  const ProductSize size{shares * c.groups, m, n, std::max<int64_t>(c.batch * c.out_size() / shares, 1)};
  TRY(run_product(call, Turn::gradient, c.dtype, size, c.out_size(), 1, function_of, [&](Launch& l) {
    l.pointer(partial).pointer(grad).pointer(in);
    l.value(c.groups).value(shares).value(c.batch).value(c.in_channels / c.groups);
    add_plane(l, g, c.kernel);
  }));
  Tensor sums, to = out;
  sums.data = static_cast<const char*>(partial);
  sums.dtype = type;
  sums.ndim = 2;
  sums.shape[0] = shares, sums.shape[1] = out.numel();
  sums.strides[0] = out.numel(), sums.strides[1] = 1;
  to.ndim = 1;
  to.shape[0] = out.numel(), to.strides[0] = 1;
  return sum_into(call, to, sums, {0});
}

// The same elsewhere: one product for a group, whose k goes over all positions of all images.
cw_status gradient_in_squares(Call& call, const Convolution& c, const Gather& g, const Tensor& out, const void* grad,
                              const void* in) {
  const ProductSize size{c.groups, c.out_channels / c.groups, c.in_channels / c.groups * c.taps(),
                         c.batch * c.out_size()};
  if (size.k >= int64_t{1} << 31 || size.n >= int64_t{1} << 31) return CW_UNSUPPORTED;
  const Dtype type = compute_of(c.dtype);
  const auto function_of = [&](const Cut& cut, cw_function* function) {
    return call.device->function(
        {family("gradient_in_squares"), static_cast<uint64_t>(c.dtype), cut.id(), 0},
        [&] {
          Source s(call.device->info);
          const std::string name = name_of(c.dtype), store = storage_of(c.dtype);
          s.out(name_of(type), "packs").out(store, "out").in(store, "a").in(store, "image");
          for (const char* v : {"groups", "channels"}) s.value("idx", v);
          add_plane(s);
          Product p;
          p.cut = cut;
          p.a = c.dtype;
          p.type = type;
          p.a_dense = p.b_along_k = true;
          p.begin =
              "const idx plane = fz * fy * fx, group = batch; const u32 spots = (u32)(tz * ty * tx), taps = (u32)(kd * "
              "kh * kw);";
          p.a_at = "LDA(a, (((u32)k / spots * groups + group) * M + m) * spots + (u32)k % spots)";
          s.before("#define FROM(at) LD_" + name + "(image, at)\n").before(kTap);
          p.b =
              "TAP(((u32)k / spots * groups + group) * channels + (u32)n / taps, "
              "(i32)((u32)k % spots / (u32)(ty * tx) * mz + oz + (u32)n % taps / (u32)(kh * kw) * sz), "
              "(i32)((u32)k % spots / (u32)tx % (u32)ty * my + oy + (u32)n / (u32)kw % (u32)kh * sy), "
              "(i32)((u32)k % (u32)tx * mx + ox + (u32)n % (u32)kw * sx))";
          p.store = "ST_" + name + "(out, (group * M + m) * N + n, v);";
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

cw_status weight_gradient(Call& call, const Convolution& c, const Tensor& out, const void* grad, const void* in) {
  Gather g{c.in_channels / c.groups, {}, {}, {}, {}, {}, {1, 1, 1}};
  for (int d = 0; d < 3; ++d) {
    g.from[d] = c.in[d], g.to[d] = c.out[d], g.mul[d] = c.stride[d];
    g.off[d] = -c.padding[d], g.step[d] = c.dilation[d];
  }
  TRY(surrounded(call, c, g, &in));
  return call.device->in_turn() ? gradient_in_panels(call, c, g, out, grad, in)
                                : gradient_in_squares(call, c, g, out, grad, in);
}

// Reads stride, padding, dilation, transposed, output_padding and groups from argument `at` on. For a transposed
// convolution `in` and `out` are swapped: what is its input is the other's result.
bool read(Call& call, int at, const Tensor& in, const Tensor& weight, const Tensor& out, Convolution& c, bool& turned) {
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

bool takes(const Call& call, std::initializer_list<const Tensor*> tensors) {
  const Dtype dtype = (*tensors.begin())->dtype;
  for (const Tensor* t : tensors)
    if (t->dtype != dtype || !is_float(dtype) || t->numel() == 0) return false;
  return dtype != kF64 || (call.device->info.arithmetic & CW_FLOAT64);
}

// out, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
cw_status convolution(Call& call, const void*) {
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
cw_status convolution_backward(Call& call, const void*) {
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
