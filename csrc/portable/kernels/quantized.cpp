// Layers in integers: causeway::quantize, qlinear, qconv, qconv_add, and quantize_qlinear. Their arithmetic is defined in aten/quantized.cpp, bit for bit.
//
// The input is first written once more, unless it lies so: with channels beside each other, zeros around it and, for transposed
// convolutions, between its elements; as int16, or as bytes. Each output is then a sum over segments, rows of the kernel whose taps and channels
// are neighbours in both the input and the weights, and no position is outside. On CPUs items compute tiles of sums by what
// multiplies tiles of bytes (AMX), by the instruction that multiplies fours of them (VNNI's, which does not saturate), or pairs of int16, and adds them up in
// int32, which loses nothing; where it has none, what the compiler makes of the same loop. What is multiplied past a segment's end has a weight of zero.
#include <algorithm>

#include "portable/program.h"
#include "portable/kernels/quantized.cl.h"

namespace causeway::portable {

namespace {

// ---- vectors of 16 ---------------------------------------------------------------------------------------------------------

std::string name_of_store(Dtype dtype) {
  // Within 32 bits, by an instruction that vectors have.
  if (!is_float(dtype)) return "out_p[i_] = (" + std::string(storage_of(dtype)) + ")(i32)(v_)";
  return "ST_" + std::string(name_of(dtype)) + "(out_p, i_, v_)";
}

// ---- quantize ------------------------------------------------------------------------------------------------------------

// The integers that numbers become: their scale and offset, and which there are.
struct Steps {
  Tensor inverse, zero;
  bool has_zero;
  int64_t low, high;
  bool by_channel() const { return inverse.numel() > 1; }
  bool zero_by_channel() const { return has_zero && zero.numel() > 1; }
};

bool read_steps(KernelCall& call, int inverse, int low, Steps* s) {
  if (!call.tensor(inverse, &s->inverse) || s->inverse.dtype != kF32 || !s->inverse.contiguous()) return false;
  s->has_zero = call.tensor(inverse + 1, &s->zero);
  s->low = call.integer(low), s->high = call.integer(low + 1);
  return !s->has_zero || (s->zero.dtype == kI32 && s->zero.contiguous());
}

void add_steps(Program& p, const Steps& s) {
  p.define("LOW", s.low).define("HIGH", s.high).before(texts::quantized::finish);
  p.in("inverse", s.inverse.data, kF32);
  if (s.has_zero) p.in("zero", s.zero.data, kI32);
  p.define("ZERO_AT(c)", !s.has_zero ? "0.0f" : s.zero_by_channel() ? "(f32)zero(c)" : "(f32)zero(0)");
  p.define("INVERSE_AT(c)", s.by_channel() ? "inverse(c)" : "inverse(0)");
}

cw_status quantize_into(KernelCall& call, const Tensor& out, const Tensor& in, const Steps& s, int64_t axis) {
  Program p(call, "quantize");
  add_steps(p, s);
  p.define("PUT(i_, v_)", name_of_store(out.dtype));
  if (!s.by_channel() && !s.zero_by_channel() && in.lies_as(out) && out.in_one_piece()) {
    p.out("out", out.data, out.dtype).in("x", in.data, in.dtype);
    const int64_t block = call.device->in_turn() ? 4096 : 1, count = out.numel();
    p.value("count", count).define("BLOCK", block);
    return p.run((count + block - 1) / block, texts::quantized::flat, static_cast<double>(block) * 4);
  }
  const std::string c = out.ndim ? "c" + std::to_string(axis) : "0";
  p.out("out", out).in("x", in);
  return p.each(out, "PUT(out_at, requantized((f32)x(x_at), INVERSE_AT(" + c + "), ZERO_AT(" + c + ")));", 8);
}

// out, self, inverse, zero_point, axis, low, high, dtype
cw_status quantize(KernelCall& call, const void*) {
  Tensor out, in;
  Steps steps;
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !read_steps(call, 2, 5, &steps) || !is_float(in.dtype) ||
      is_float(out.dtype) || size_of(out.dtype) > 2)
    return CW_UNSUPPORTED;
  return quantize_into(call, out, in, steps, call.integer(4));
}

// ---- what a product consists of ------------------------------------------------------------------------------------------

struct Quantized {
  int64_t batch = 1, groups = 1, in_channels = 1, out_channels = 1;  // channels of one group
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0},
          dilation[3] = {1, 1, 1};
  bool transposed = false;
  Tensor x, weight, result;  // x and result: [batch, channels, 3 dimensions]
  int64_t weight_at[3];  // strides of a group, an output and an input channel; taps below
  int64_t tap_at[3];

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t places() const { return out[0] * out[1] * out[2]; }
  int64_t depth() const { return taps() * in_channels; }
};

// The arguments after the geometry.
struct After {
  Tensor scale, bias, taps, inverse, zero;
  bool has_bias, has_taps, has_zero, relu;
  int64_t shift, low, high;
  // Of qconv_add: what is added, where an element of it is one of the result's.
  Tensor residual, residual_scale, residual_zero;
  bool has_residual = false, residual_scaled = false, residual_has_zero = false;
};

bool read_after(KernelCall& call, int at, const Tensor& out, After* a) {
  a->relu = call.integer(at) != 0;
  const bool inverse = call.tensor(at + 1, &a->inverse);
  a->has_zero = call.tensor(at + 2, &a->zero);
  a->low = call.integer(at + 3), a->high = call.integer(at + 4);
  if (a->has_zero && (a->zero.dtype != kI32 || !a->zero.contiguous())) return false;
  return is_float(out.dtype) || (inverse && a->inverse.dtype == kF32 && a->inverse.contiguous());
}

// The input, and from argument `at` on weights, scale, bias and taps.
bool read_before(KernelCall& call, int at, Quantized* q, After* a) {
  if (!call.tensor(1, &q->x) || !call.tensor(at, &q->weight) || !call.tensor(at + 1, &a->scale) ||
      a->scale.dtype != kF32 || !a->scale.contiguous())
    return false;
  if (q->weight.dtype != kI8 && q->weight.dtype != kI16) return false;
  a->has_bias = call.tensor(at + 2, &a->bias);
  a->has_taps = call.tensor(at + 3, &a->taps);
  if (a->has_bias && (a->bias.dtype != kF32 || !a->bias.contiguous())) return false;
  return !a->has_taps || ((a->taps.dtype == kI64 || a->taps.dtype == kI32) && a->taps.contiguous());
}

bool is_8_or_16(Dtype d) { return d == kI8 || d == kU8 || d == kI16; }

// Sums of 8-bit products of so many terms stay within 32 bits.
bool is_short_sum(const Quantized& q) {
  const int64_t most = q.x.dtype == kU8 ? 255 : 128;
  return q.x.dtype != kI16 && q.weight.dtype == kI8 && q.depth() <= INT32_MAX / (most * 128);
}

// ---- the input, written once more ------------------------------------------------------------------------------------------

struct Image {
  const void* data = nullptr;
  Dtype dtype = kI16;
  int64_t size[3], low[3];  // of each dimension, and which position of the input its first is
  int64_t channels = 1;  // of all groups
};

constexpr int64_t kBytes = 64;  // of a vector
constexpr int64_t kBeyond = kBytes;  // elements that a vector may read past the end

// Whether the input is an image as it is: channels beside each other, and nothing around or between its elements.
bool is_image(const Quantized& q) {
  int64_t stride = q.groups * q.in_channels;
  if (q.transposed || (stride > 1 && q.x.strides[1] != 1)) return false;
  for (int d = 2; d >= 0; --d) {
    if (q.padding[d] != 0 || (q.in[d] > 1 && q.x.strides[d + 2] != stride)) return false;
    stride *= q.in[d];
  }
  return q.batch == 1 || q.x.strides[0] == stride;
}

// As `dtype`; or, `in_place` where nothing is read past a segment, the input itself if it is one.
cw_status write_image(KernelCall& call, const Quantized& q, Dtype dtype, bool in_place, Image* image) {
  image->channels = q.groups * q.in_channels;
  image->dtype = dtype;
  if (in_place && q.x.dtype == dtype && is_image(q)) {
    image->data = q.x.data;
    for (int d = 0; d < 3; ++d) image->size[d] = q.in[d], image->low[d] = 0;
    return CW_OK;
  }
  int64_t rows = q.batch, gap[3];
  for (int d = 0; d < 3; ++d) {
    gap[d] = q.transposed ? q.stride[d] : 1;
    const int64_t reach = (q.kernel[d] - 1) * q.dilation[d], step = q.transposed ? 1 : q.stride[d];
    image->low[d] = q.transposed ? q.padding[d] - reach : -q.padding[d];
    image->size[d] = (q.out[d] - 1) * step + reach + 1;
    if (d < 2) rows *= image->size[d];
  }
  const uint64_t count = static_cast<uint64_t>(rows * image->size[2] * image->channels + kBeyond);
  void* made = nullptr;
  TRY(scratch(*call.device, call.stream, count * static_cast<uint64_t>(size_of(dtype)), &made));
  image->data = made;
  Program p(call, "quantized_image");
  p.out("out", made, dtype).in("x", q.x.data, q.x.dtype).define("IMAGE", storage_of(dtype));
  p.value("w", image->size[2]).value("h", image->size[1]).value("d", image->size[0]);
  p.value("lx", image->low[2]).value("ly", image->low[1]).value("lz", image->low[0]);
  p.value("fx", q.in[2]).value("fy", q.in[1]).value("fz", q.in[0]);
  p.value("gx", gap[2]).value("gy", gap[1]).value("gz", gap[0]).value("channels", image->channels);
  for (int d = 0; d < 5; ++d) p.value("x" + std::to_string(d), q.x.strides[d]);
  p.define("BETWEEN", q.transposed).define("BESIDE", q.x.strides[1] == 1);
  p.define("WHOLE", !q.transposed && (image->channels == 1 || q.x.strides[1] == 1) &&
                        (q.in[2] == 1 || q.x.strides[4] == image->channels));
  p.define("EIGHTS", size_of(dtype) == 1 && image->channels % 8 == 0);
  const double cost = static_cast<double>(image->channels);
  if (!call.device->in_turn()) return p.run(rows * image->size[2] * image->channels, texts::quantized::image, 8);
  return p.run(rows, texts::quantized::image, cost * static_cast<double>(image->size[2]) * 2);
}

// ---- weights of [group, output, segment, element] ------------------------------------------------------------------------

// How products are cut: each output by itself, its bytes one by one or by fours; tiles of int16 or of bytes; where these have
// many rows, their weights packed.
enum class Cuts : uint8_t { elements, fours, pairs, bytes, tiles, packed };

struct Weights {
  const void* data = nullptr;
  Cuts cuts;
  int64_t segments, length, padded;  // padded: elements from one segment to the next
};

// Taps along a row of the kernel are one segment where they and their channels are neighbours in the image.
bool whole_rows(const Quantized& q) { return q.dilation[2] == 1 && q.groups == 1; }
int64_t segments(const Quantized& q) { return whole_rows(q) ? q.kernel[0] * q.kernel[1] : q.taps(); }
int64_t length(const Quantized& q) { return whole_rows(q) ? q.kernel[2] * q.in_channels : q.in_channels; }
int64_t padded(const Quantized& q, int64_t whole) { return (length(q) + whole - 1) / whole * whole; }

constexpr int64_t kPack = 16;  // outputs, and elements of each, that lie together
int64_t packs(const Quantized& q) { return (q.out_channels + kPack - 1) / kPack; }

cw_status order_weights(KernelCall& call, const Quantized& q, Cuts cuts, Weights* w) {
  const bool rows = whole_rows(q);
  const int64_t whole = cuts == Cuts::elements                       ? 1
                        : cuts == Cuts::fours                        ? 4
                        : cuts == Cuts::bytes || cuts == Cuts::tiles ? kBytes
                                                                     : 16;
  w->cuts = cuts;
  w->segments = segments(q), w->length = length(q), w->padded = padded(q, whole);
  const int64_t taps = q.taps();
  // In a transposed convolution positions meet the taps from the last to the first.
  const bool beside = !q.transposed && (q.in_channels == 1 || q.weight_at[2] == 1) &&
                      (q.kernel[2] == 1 || !rows || q.tap_at[2] == q.in_channels);
  const bool as_given = cuts != Cuts::packed && w->padded == w->length && beside &&
                        (q.kernel[2] == 1 || q.tap_at[2] == q.in_channels) &&
                        (q.kernel[1] == 1 || q.tap_at[1] == q.in_channels * q.kernel[2]) &&
                        (q.kernel[0] == 1 || q.tap_at[0] == q.in_channels * q.kernel[2] * q.kernel[1]) &&
                        (q.out_channels == 1 || q.weight_at[1] == q.in_channels * taps) &&
                        (q.groups == 1 || q.weight_at[0] == q.in_channels * taps * q.out_channels);
  if (as_given) {
    w->data = q.weight.data;
    return CW_OK;
  }
  const bool packed = cuts == Cuts::packed;
  const int64_t outputs = packed ? q.groups * packs(q) * kPack : q.groups * q.out_channels;
  const int64_t count = outputs * w->segments * w->padded;
  void* made = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>((count + kBeyond) * size_of(q.weight.dtype)), &made));
  w->data = made;
  Program p(call, "quantized_weights");
  p.out("out", made, q.weight.dtype).in("x", q.weight.data, q.weight.dtype);
  p.value("padded", w->padded).value("segments", w->segments).value("len", w->length).value("outs", q.out_channels);
  p.value("channels", q.in_channels).value("kx", q.kernel[2]).value("ky", q.kernel[1]).value("kz", q.kernel[0]);
  p.value("wg", q.weight_at[0]).value("wo", q.weight_at[1]).value("wc", q.weight_at[2]);
  p.value("tz", q.tap_at[0]).value("ty", q.tap_at[1]).value("tx", q.tap_at[2]);
  p.define("ROWS", rows).define("TURNED", q.transposed);
  const bool open_cl = call.device->info.language == CW_CODE_OPENCL_C;
  if (packed)
    return p.value("packs", packs(q))
        .define("BESIDE", beside)
        .define("COPY_16(to, from)", open_cl ? "vstore16(vload16(0, from), 0, to)" : "memcpy(to, from, 16)")
        .run(count / (kPack * kPack), texts::quantized::weights_packed, static_cast<double>(kPack * kPack) * 4);
  return p.run(outputs * w->segments, texts::quantized::weights, static_cast<double>(w->padded) * 4);
}

// ---- sums ----------------------------------------------------------------------------------------------------------------

// The sum of all taps of each output, once for all positions that have them all.
cw_status add_taps(KernelCall& call, const Quantized& q, const After& a, const void** whole) {
  if (!a.has_taps) return CW_OK;
  void* made = nullptr;
  const int64_t outputs = q.groups * q.out_channels;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(outputs * size_of(a.taps.dtype)), &made));
  *whole = made;
  Program p(call, "quantized_taps");
  p.out("whole", made, a.taps.dtype).in("taps", a.taps.data, a.taps.dtype).value("n", q.taps());
  p.define("TAP", name_of(a.taps.dtype));
  return p.run(outputs, texts::quantized::taps, static_cast<double>(q.taps()));
}

// What a sum is multiplied by, and what is added.
void add_scale(Program& p, const After& a) {
  p.define("ADD", a.has_residual);
  if (a.has_residual) {
    p.in("residual", a.residual.data, a.residual.dtype);
    std::string text = "(f32)residual(i)";
    const auto factor = [&](const char* name, const Tensor& t) {
      p.in(name, t.data, t.dtype);
      return std::string(name) + (t.numel() > 1 ? "(o)" : "(0)");
    };
    if (a.residual_has_zero) text = "(" + text + " - (f32)" + factor("residual_zero", a.residual_zero) + ")";
    if (a.residual_scaled) text += " * " + factor("residual_scale", a.residual_scale);
    p.define("ADDED(o, i)", "(" + text + ")");
  }
  p.in("scale", a.scale.data, kF32).define("SCALE(o)", a.scale.numel() > 1 ? "scale(o)" : "scale(0)");
  if (a.has_bias) p.in("bias", a.bias.data, kF32);
  if (a.has_taps) p.value("shift", a.shift);
  p.define("BIAS", a.has_bias).define("TAPS", a.has_taps).define("RELU", a.relu);
}

// Parameters that all texts need, and what is done with `sum` of output o at position `row`.
void add_common(Program& p, const Quantized& q, const After& a, const Image& image, const Weights& w,
                const void* whole) {
  p.define("LOW", a.low).define("HIGH", a.high).before(texts::quantized::finish);
  p.define("PUT(i_, v_)", name_of_store(q.result.dtype));
  p.out("out", q.result.data, q.result.dtype).in("image", image.data, image.dtype).in("weight", w.data, q.weight.dtype);
  add_scale(p, a);
  if (a.has_taps) p.in("taps", a.taps.data, a.taps.dtype).in("whole", whole, a.taps.dtype);
  const bool integer = !is_float(q.result.dtype);
  if (integer) p.in("inverse", a.inverse.data, kF32);
  if (integer && a.has_zero) p.in("zero", a.zero.data, kI32);
  p.define("INVERSE(o)", integer && a.inverse.numel() > 1 ? "inverse(o)" : "inverse(0)");
  p.define("ZERO(o)", !integer || !a.has_zero ? "0.0f" : a.zero.numel() > 1 ? "(f32)zero(o)" : "(f32)zero(0)");
  p.define("INTEGER", integer);
  p.value("segments", w.segments).value("len", w.length).value("padded", w.padded);
  p.value("groups", q.groups).value("outs", q.out_channels).value("channels", q.in_channels);
  p.value("all_channels", image.channels).value("places", q.places()).value("rows", q.batch * q.places());
  p.value("oz", q.out[0]).value("oy", q.out[1]).value("ox", q.out[2]);
  p.value("iz", image.size[0]).value("iy", image.size[1]).value("ix", image.size[2]);
  const int64_t one = 1;
  for (int d = 0; d < 3; ++d) {
    const std::string n(1, "zyx"[d]);
    p.value("m" + n, q.transposed ? one : q.stride[d]).value("d" + n, q.dilation[d]).value("k" + n, q.kernel[d]);
    p.value("l" + n, image.low[d]).value("g" + n, q.transposed ? q.stride[d] : one).value("f" + n, q.in[d]);
  }
  for (int d = 0; d < 5; ++d) p.value("o" + std::to_string(d), q.result.strides[d]);
  p.define("ROWS", whole_rows(q)).define("TURNED", q.transposed);
  p.define("TAP", a.has_taps ? name_of(a.taps.dtype) : "i32");
  if (a.has_taps) p.before(texts::quantized::less);
  p.before(texts::quantized::results);
}

// Each output by itself.
cw_status by_elements(KernelCall& call, const Quantized& q, const After& a, const Image& image, const Weights& w,
                      const void* whole) {
  Program p(call, "quantized_elements");
  add_common(p, q, a, image, w, whole);
  p.define("A", is_short_sum(q) ? "i32" : "i64");
  const bool fours = w.cuts == Cuts::fours;
  p.define("FOURS", fours).define("SIGNED", image.dtype == kI8);
  if (fours) p.before(texts::quantized::fours);
  return p.run(q.batch * q.places() * q.groups * q.out_channels, texts::quantized::elements,
               static_cast<double>(q.depth()));
}

// Elements of an item's own memory for `depth` of them: few sizes, so few kernels.
int64_t few_sizes(int64_t depth) {
  int64_t most = kBytes;
  while (most < depth) most = most % 3 ? most + most / 2 : most / 3 * 4;
  return most;
}

constexpr int64_t kFewForRows = 96;  // positions that are transposed, and not the weights

// Whether the positions of an output follow each other in the result.
bool places_are_neighbours(const Quantized& q) {
  int64_t stride = 1;
  for (int d = 2; d >= 0; --d) {
    if (q.out[d] > 1 && q.result.strides[d + 2] != stride) return false;
    stride *= q.out[d];
  }
  return true;
}

// What follows a sum, for 16 outputs at once whose results are neighbours, unless there is something that vectors have not.
void add_finish_16(Program& p, const Quantized& q, const After& a) {
  const auto has = [](Dtype d) { return d == kI8 || d == kU8 || d == kF32; };
  const bool vectors =
      has(q.result.dtype) && !(a.has_taps && a.taps.dtype != kI32) && !(a.has_residual && !has(a.residual.dtype));
  p.define("VECTORS", vectors);
  if (!vectors) return;
  const auto factor = [](const char* name, const Tensor& t) {
    const std::string n = name;
    return t.numel() > 1 ? "LOADV_f32(" + n + "_p + (o))" : "SPREAD_F32(" + n + "(0))";
  };
  const auto zero = [](const char* name, const Tensor& t) {
    const std::string n = name;
    return t.numel() > 1 ? "BYTES_AT(" + n + "_p + (o))" : "SPREAD(" + n + "(0))";
  };
  p.define("SCALE_16(o)", factor("scale", a.scale));
  p.define("BIAS_16(o)", a.has_bias ? "LOADV_f32(bias_p + (o))" : "SPREAD_F32(0.0f)");
  std::string added = "SPREAD_F32(0.0f)";
  if (a.has_residual && !a.residual_scaled) added = "LOADV_f32(residual_p + (i))";
  if (a.has_residual && a.residual_scaled) {
    std::string integers = std::string("WIDE_") + name_of(a.residual.dtype) + "(residual_p + (i))";
    if (a.residual_has_zero) integers += " - " + zero("residual_zero", a.residual_zero);
    added = "(F32_OF(" + integers + ") * " + factor("residual_scale", a.residual_scale) + ")";
  }
  p.define("ADDED_16(o, i)", added).define("PUT_16", std::string("PUT_") + name_of(q.result.dtype));
  if (is_float(q.result.dtype)) return;
  p.define("INVERSE_16(o)", factor("inverse", a.inverse));
  p.define("ZERO_16(o)", a.has_zero ? zero("zero", a.zero) : "SPREAD(0)");
}

cw_status by_tiles(KernelCall& call, const Quantized& q, const After& a, const Image& image, const Weights& w,
                   const void* whole) {
  const bool packed = w.cuts == Cuts::packed, amx = w.cuts == Cuts::tiles;
  const int64_t block = amx ? 32 : 64, rows = q.batch * q.places(), blocks = (rows + block - 1) / block;
  const bool open_cl = call.device->info.language == CW_CODE_OPENCL_C;
  Program p(call, "quantized_tiles");
  add_common(p, q, a, image, w, whole);
  p.define("WIDE", !packed && w.padded % 32 == 0)  // before the text that asks
      .before(open_cl ? texts::quantized::vectors_open_cl : texts::quantized::vectors_c)
      .before(texts::quantized::sums);
  if (image.dtype != kI16)
    p.define("SIGNED", image.dtype == kI8)
        .before(open_cl ? texts::quantized::bytes_open_cl : texts::quantized::bytes_c)
        .before(texts::quantized::bytes);
  if (amx) p.before(texts::quantized::tiles_of_bytes).define("MOST", few_sizes(w.segments * w.padded));
  p.define("IMAGE", storage_of(image.dtype)).define("LOAD_IMAGE", std::string("LOAD_") + name_of(image.dtype));
  const bool few = rows < 4, beside = q.result.strides[1] == 1;
  if (amx && beside && rows > kFewForRows) {
    constexpr int64_t kLeast = 256;  // positions: an item transposes its weights for them
    constexpr int64_t kColumns = 32, kMostWidth = 4, kMostBytes = 512 * 1024;  // of transposed weights, on the stack
    const int64_t all = (q.out_channels + kColumns - 1) / kColumns, bytes = few_sizes(w.segments * w.padded) * kColumns;
    const int64_t width = std::clamp<int64_t>(kMostBytes / bytes, 1, std::min(all, kMostWidth));
    const int64_t cut = (all + width - 1) / width, wanted = int64_t{call.device->info.compute_units} * 4;
    const int64_t shares = std::max<int64_t>(1, wanted / (cut * q.groups));
    const int64_t most = std::clamp<int64_t>(rows / kLeast, 1, shares);
    const int64_t each = ((rows + most - 1) / most + block - 1) / block * block, parts = (rows + each - 1) / each;
    p.define("WEIGHT", "i8").define("COLUMNS", kColumns).define("SEGMENTS", w.segments).define("BLOCK", block);
    p.define("RESULT", storage_of(q.result.dtype)).define("WIDTH", width);
    add_finish_16(p, q, a);
    p.before(texts::quantized::finish_16).value("cut", cut).value("columns", width * kColumns);
    p.value("parts", parts).value("each", each);
    return p.run(q.groups * cut * parts, texts::quantized::tiles_of_rows,
                 static_cast<double>(std::min(rows, each) * width * kColumns * q.depth()) / 16);
  }
  p.define("FEW", few)
      .define("PACKED", packed)
      .define("WEIGHT", "i8")
      .define("COLUMNS", 32)
      .define("SEGMENTS", w.segments)
      .define("BESIDE", beside)
      .define("ALONG", !few && !beside && places_are_neighbours(q))
      .define("RESULT", storage_of(q.result.dtype));
  // Outputs are shared out where there are few positions.
  const int64_t wanted =
      int64_t{call.device->info.compute_units} * (amx ? 2 : 4);  // each transposes its positions anew
  const int64_t stretches = std::clamp<int64_t>(wanted / (blocks * q.groups), 1, (q.out_channels + 7) / 8);
  const int64_t even = amx ? 2 * kPack : packed ? kPack : 4;
  const int64_t columns = ((q.out_channels + stretches - 1) / stretches + even - 1) / even * even;
  if (packed) p.value("packs", packs(q));
  p.define("BLOCK", block).value("blocks", blocks).value("columns", columns);
  const int64_t cut = (q.out_channels + columns - 1) / columns;
  p.value("stretches", cut);
  return p.run(q.groups * blocks * cut, texts::quantized::tiles,
               static_cast<double>(std::min(rows, block) * columns * q.depth()) / 16);
}

// One channel a group: 16 of them at once.
cw_status by_depth(KernelCall& call, const Quantized& q, const After& a, const Image& image, const Weights& w,
                   const void* whole) {
  Program p(call, "quantized_depth");
  add_common(p, q, a, image, w, whole);
  return p.run(q.batch * q.places(), texts::quantized::depth, static_cast<double>(q.groups * q.taps()));
}

// Tiles of 32 positions cost as much for few; and an item keeps what it transposes on its stack.
bool by_amx(const Quantized& q) {
  constexpr int64_t kFew = 8, kMost = 8192;  // rows, and bytes of a position
  return q.batch * q.places() >= kFew && q.out_channels >= kPack && segments(q) * padded(q, kBytes) <= kMost;
}

// Packed weights cost a copy of them, and save adding up what a vector holds of each sum; and segments shorter than vectors
// are read without what is beyond them.
Cuts cuts_of_bytes(const Quantized& q, bool amx) {
  if (amx && by_amx(q)) return Cuts::tiles;
  constexpr int64_t kFew = 32;  // rows for which nothing is copied
  const int64_t rows = q.batch * q.places();
  return rows >= kFew && (rows >= q.depth() || length(q) % kBytes != 0) ? Cuts::packed : Cuts::bytes;
}

// Whether all that fours of bytes are read from lies at multiples of four: channels do, and what is in place as it is given.
bool by_fours(const Quantized& q) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 4 == 0; };
  return is_short_sum(q) && q.in_channels % 4 == 0 && aligned(q.x.data) && aligned(q.weight.data);
}

cw_status product(KernelCall& call, const Quantized& q, const After& a) {
  if (q.result.numel() == 0) return CW_OK;
  const bool cpu = call.device->in_turn() && call.device->info.language != CW_CODE_CUDA_C && is_short_sum(q);
  const bool depth = cpu && q.in_channels == 1 && q.out_channels == 1 && q.groups > 1;
  const bool tiles = cpu && !depth && (q.groups == 1 || q.in_channels >= 8);
  Image image;
  Weights weights;
  const bool bytes = tiles && call.device->info.flags & CW_CODE_DOT_BYTES;
  const bool fours = !cpu && by_fours(q);
  const Cuts cuts = bytes   ? cuts_of_bytes(q, call.device->info.flags & CW_CODE_DOT_TILES)
                    : tiles ? Cuts::pairs
                    : fours ? Cuts::fours
                            : Cuts::elements;
  TRY(order_weights(call, q, cuts, &weights));
  TRY(write_image(call, q, bytes || fours ? q.x.dtype : kI16, weights.padded == weights.length, &image));
  const void* whole = nullptr;
  TRY(add_taps(call, q, a, &whole));
  if (depth) return by_depth(call, q, a, image, weights, whole);
  return tiles ? by_tiles(call, q, a, image, weights, whole) : by_elements(call, q, a, image, weights, whole);
}

// A product of rows: an image of one place each.
void be_linear(Quantized* q, const Tensor& out) {
  q->in_channels = q->weight.shape[1], q->out_channels = q->weight.shape[0];
  q->batch = q->out_channels ? out.numel() / q->out_channels : 0;
  q->x = dense(q->x.data, q->x.dtype, {q->batch, q->in_channels, 1, 1, 1});
  q->result = dense(out.data, out.dtype, {q->batch, q->out_channels, 1, 1, 1});
  q->weight_at[0] = 0, q->weight_at[1] = q->weight.strides[0], q->weight_at[2] = q->weight.strides[1];
  for (int64_t& s : q->tap_at) s = 0;
}

// out, self, weight, scale, bias, taps, shift, relu, out_inverse, out_zero, low, high, dtype
cw_status qlinear(KernelCall& call, const void*) {
  Quantized q;
  After a;
  Tensor out;
  if (!call.tensor(0, &out) || !out.contiguous() || !read_before(call, 2, &q, &a) || !is_8_or_16(q.x.dtype) ||
      !read_after(call, 7, out, &a) || !q.x.contiguous() || q.weight.ndim != 2)
    return CW_UNSUPPORTED;
  a.shift = call.integer(6);
  be_linear(&q, out);
  return product(call, q, a);
}

// The few rows of a token at a time are quantized in the product's kernel, by each item anew: a launch less, where launches
// are most of the time.
cw_status few_floats(KernelCall& call, const Quantized& q, const After& a, const Steps& s, bool bytes) {
  const bool open_cl = call.device->info.language == CW_CODE_OPENCL_C;
  Program p(call, "quantize_qlinear");
  add_steps(p, s);
  p.define("PUT(i_, v_)", name_of_store(q.result.dtype));
  p.out("out", q.result.data, q.result.dtype).in("x", q.x.data, q.x.dtype).in("weight", q.weight.data, kI8);
  add_scale(p, a);
  if (a.has_taps) p.in("whole", a.taps.data, a.taps.dtype);
  p.define("INTEGER", 0).define("TAP", a.has_taps ? name_of(a.taps.dtype) : "i32").define("TURNED", 1);
  p.define("WIDE", q.in_channels % 32 == 0)
      .before(open_cl ? texts::quantized::vectors_open_cl : texts::quantized::vectors_c)
      .before(texts::quantized::sums);
  if (bytes)
    p.define("SIGNED", 1)
        .before(open_cl ? texts::quantized::bytes_open_cl : texts::quantized::bytes_c)
        .before(texts::quantized::bytes);
  p.before(texts::quantized::results);
  const int64_t items = int64_t{call.device->info.compute_units} * 2;
  const int64_t columns = std::max<int64_t>(32, ((q.out_channels + items - 1) / items + 3) / 4 * 4);
  p.value("rows", q.batch).value("depth", q.in_channels).value("outs", q.out_channels).value("columns", columns);
  p.define("MOST", few_sizes(q.in_channels)).define("COLUMNS", 32);
  return p.run((q.out_channels + columns - 1) / columns, texts::quantized::few_floats,
               static_cast<double>(q.batch * columns * q.in_channels) / 16);
}

// out, self, inverse, zero_point, low, high, weight, scale, bias, taps
cw_status quantize_qlinear(KernelCall& call, const void*) {
  Quantized q;
  After a{};
  Steps steps;
  Tensor out;
  if (!call.tensor(0, &out) || !out.contiguous() || !read_before(call, 6, &q, &a) || !read_steps(call, 2, 4, &steps) ||
      !is_float(q.x.dtype) || !q.x.contiguous() || q.weight.ndim != 2 || out.dtype != q.x.dtype)
    return CW_UNSUPPORTED;
  if (out.numel() == 0) return CW_OK;
  be_linear(&q, out);
  constexpr int64_t kFew = 3, kMost = 8192;  // rows, and elements of a row on an item's stack
  const Tensor floats = q.x;
  const Dtype integer = q.weight.dtype;
  const bool bytes = call.device->info.flags & CW_CODE_DOT_BYTES;
  const bool beside = q.weight_at[2] == 1 && (q.out_channels == 1 || q.weight_at[1] == q.in_channels);
  q.x.dtype = integer;  // as the product is to see it
  if (call.device->in_turn() && call.device->info.language != CW_CODE_CUDA_C && is_short_sum(q) && q.batch <= kFew &&
      q.in_channels <= kMost && q.in_channels % (bytes ? kBytes : 16) == 0 && beside && !steps.by_channel() &&
      !steps.zero_by_channel()) {
    q.x = floats;
    return few_floats(call, q, a, steps, bytes);
  }
  void* made = nullptr;
  const int64_t count = q.batch * q.in_channels;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(count * size_of(integer)), &made));
  const Tensor flat = dense(made, integer, {q.batch, q.in_channels});
  TRY(quantize_into(call, flat, dense(floats.data, floats.dtype, {q.batch, q.in_channels}), steps, 1));
  q.x = dense(made, integer, {q.batch, q.in_channels, 1, 1, 1});
  return product(call, q, a);
}

// The same with 3 dimensions after the first two.
bool spatial(const Tensor& t, Tensor* out) {
  if (t.ndim < 3 || t.ndim > 5) return false;
  *out = t;
  out->ndim = 5;
  for (int d = 0; d < 3; ++d) {
    const int from = d - (5 - t.ndim);
    out->shape[d + 2] = from < 0 ? 1 : t.shape[from + 2];
    out->strides[d + 2] = from < 0 ? 0 : t.strides[from + 2];
  }
  return true;
}

// From argument `at` on, as it lies in memory; with its elements where the result has them.
bool read_residual(KernelCall& call, int at, After* a) {
  if (!call.tensor(at, &a->residual)) return false;
  a->has_residual = true;
  a->residual_scaled = call.tensor(at + 1, &a->residual_scale);
  a->residual_has_zero = call.tensor(at + 2, &a->residual_zero);
  if (!a->residual_scaled) return a->residual.dtype == kF32 && !a->residual_has_zero;
  return is_8_or_16(a->residual.dtype) && a->residual_scale.dtype == kF32 && a->residual_scale.contiguous() &&
         (!a->residual_has_zero || (a->residual_zero.dtype == kI32 && a->residual_zero.contiguous()));
}

// As the result lies, which has no gaps.
cw_status lay_out_residual(KernelCall& call, const Tensor& out, After* a) {
  Tensor& r = a->residual;
  if (r.lies_as(out)) return CW_OK;
  void* made = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(out.numel() * size_of(r.dtype)), &made));
  Tensor copy = out;
  copy.data = static_cast<const char*>(made), copy.dtype = r.dtype;
  TRY(copy_into(call, copy, r));
  r = copy;
  return CW_OK;
}

constexpr int kWithResidual = 1;

// out, self, weight, scale, bias, taps, shift, stride, padding, dilation, transposed, output_padding, groups, relu,
// out_inverse, out_zero, low, high, dtype; before relu the residual, its scale and its zero point where there is one
cw_status qconv(KernelCall& call, const void* data) {
  Quantized q;
  After a;
  Tensor out, weight;
  const int residual = 13, after = data ? residual + 3 : residual;
  if (!call.tensor(0, &out) || !read_before(call, 2, &q, &a) || !is_8_or_16(q.x.dtype) ||
      (data && !read_residual(call, residual, &a)) || !read_after(call, after, out, &a) || !spatial(out, &q.result) ||
      !spatial(q.weight, &weight))
    return CW_UNSUPPORTED;
  if (data && out.numel()) TRY(lay_out_residual(call, out, &a));
  Tensor x;
  if (!spatial(q.x, &x)) return CW_UNSUPPORTED;
  q.x = x;
  a.shift = call.integer(6);
  const int dims = out.ndim - 2;
  const auto stride = call.ints(7), padding = call.ints(8), dilation = call.ints(9);
  q.transposed = call.integer(10) != 0;
  q.groups = call.integer(12, 1);
  if (static_cast<int>(stride.size()) != dims || padding.size() != stride.size() || dilation.size() != stride.size())
    return CW_UNSUPPORTED;
  q.batch = x.shape[0], q.in_channels = x.shape[1] / q.groups, q.out_channels = out.shape[1] / q.groups;
  const int channel = q.transposed ? 0 : 1, output = 1 - channel;
  q.weight_at[0] = weight.strides[0] * (q.transposed ? q.in_channels : q.out_channels);
  q.weight_at[1] = weight.strides[output], q.weight_at[2] = weight.strides[channel];
  for (int d = 0; d < 3; ++d) {
    q.in[d] = x.shape[d + 2], q.out[d] = q.result.shape[d + 2], q.kernel[d] = weight.shape[d + 2];
    q.tap_at[d] = weight.strides[d + 2];
    const int from = d - (3 - dims);
    if (from < 0) continue;
    q.stride[d] = stride[from], q.padding[d] = padding[from], q.dilation[d] = dilation[from];
  }
  return product(call, q, a);
}

}  // namespace

Kernels quantized_kernels() {
  constexpr uint32_t E = CW_NEEDS_ELEMENTS, dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  constexpr cw_dtypes all = kFloats | kInts;
  return {{"causeway::quantize", quantize, all, E},
          {"causeway::qlinear", qlinear, all, dense},
          {"causeway::quantize_qlinear", quantize_qlinear, all, dense},
          {"causeway::qconv", qconv, all, E},
          {"causeway::qconv_add", qconv, all, E, &kWithResidual}};
}

}  // namespace causeway::portable
