// Layer, RMS, group and batch norm with their gradients. Layer, RMS and group norm have rows that lie densely: an item
// owns rows, which stay in the cache between the passes over them. Batch norm owns channels, whose parts lie apart.
// Means and variances take two passes, so nothing cancels; sums are kept in stretches, and the stretches added wide.
#include <algorithm>
#include <limits>

#include "gemm.h"

namespace causeway::portable {

namespace {

// What is in front of every kernel here: T computes, A adds up.
struct Types {
  Dtype compute, wide;
};

Types types_of(const Call& call, Dtype dtype) {
  const Dtype compute = compute_of(dtype);
  const bool wide = call.device->in_turn() && (call.device->info.arithmetic & CW_FLOAT64);
  return {compute, wide ? kF64 : compute};
}

void define(Source& s, const Types& types) {
  s.before(std::string("typedef ") + name_of(types.compute) + " T;\ntypedef " + name_of(types.wide) + " A;\n");
  s.define("LANES", 16).define("STRETCH", 1024);
}

// A parameter that is read as NAME(i) of type T.
void reads(Source& s, const char* macro, const char* name, const Tensor& t) {
  s.in(storage_of(t.dtype), name);
  s.define(std::string(macro) + "(i)", std::string("((T)LD_") + name_of(t.dtype) + "(" + name + ", i))");
}
// One that is written as NAME(i, v), and may be read as NAME_IN(i).
void writes(Source& s, const char* macro, const char* name, const Tensor& t) {
  s.out(storage_of(t.dtype), name);
  s.define(std::string(macro) + "(i, v)", std::string("ST_") + name_of(t.dtype) + "(" + name + ", i, v)");
  s.define(std::string(macro) + "_IN(i)", std::string("((T)LD_") + name_of(t.dtype) + "(" + name + ", i))");
}

void add_wide(Launch& l, const Types& types, double v) {
  if (types.wide == kF64)
    l.value(v);
  else
    l.value(static_cast<float>(v));
}

// Adds to `name`, an A, the sum of `value` over j < n; `value` may use j and i, which is base + j * STRIDE.
struct Sum {
  std::string name, value;
};
std::string summed(const std::vector<Sum>& sums, const std::string& stride = "") {
  std::string start, vector, rest, finish;
  for (const Sum& s : sums) {
    start += "lanes_" + s.name + "[l] = 0; ";
    vector += "lanes_" + s.name + "[l] += " + s.value + "; ";
    rest += "lanes_" + s.name + "[0] += " + s.value + "; ";
    finish += s.name + " += (A)lanes_" + s.name + "[l]; ";
  }
  std::string text =
      "for (idx j0 = 0; j0 < n; j0 += STRETCH) {\nconst idx past = n - j0 < STRETCH ? n : j0 + STRETCH;\n";
  for (const Sum& s : sums) text += "T lanes_" + s.name + "[LANES];\n";
  const std::string at = stride.empty() ? "" : " * " + stride;
  return text + "idx at = j0;\nfor (int l = 0; l < LANES; ++l) { " + start +
         "}\nfor (; at + LANES <= past; at += LANES)\nfor (int l = 0; l < LANES; ++l) { const idx j = at + l, i = base "
         "+ j" +
         at + "; (void)i; " + vector + "}\nfor (; at < past; ++at) { const idx j = at, i = base + j" + at +
         "; (void)i; " + rest + "}\nfor (int l = 0; l < LANES; ++l) { " + finish + "}\n}\n";
}

bool takes(const Call& call, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    if (!is_float(t->dtype) || (t->dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64))) return false;
  return true;
}

uint64_t bits_of(std::initializer_list<const Tensor*> tensors, std::initializer_list<bool> flags) {
  uint64_t bits = 0;
  int shift = 0;
  for (const Tensor* t : tensors) bits |= static_cast<uint64_t>(t->dtype) << shift, shift += 6;
  for (bool flag : flags) bits |= static_cast<uint64_t>(flag) << shift++;
  return bits;
}

Tensor flat(const Tensor& t) {
  Tensor f = t;
  f.ndim = 1, f.shape[0] = t.numel(), f.strides[0] = 1;
  return f;
}

// ---- layer, RMS and group norm ---------------------------------------------------------------------------------------

// Rows of n elements. Scale and shift belong to an element's place in the row or, of group norm, to its channel:
// `channels` of them, of `plane` elements each, are a row.
struct Rows {
  int64_t rows, n, groups = 1, plane = 1;
  bool centered = true, grouped = false;
};

struct Forward {
  Tensor out, mean, rstd, in, weight, bias;
  bool weighted = false, biased = false;
  double eps = 0;
};

std::string forward_text() {
  return R"(
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx base = u * n;
  A s = 0, q = 0;
#if CENTERED
)" + summed({{"s", "IN(i)"}}) +
         R"(
#endif
  const T m = (T)(s / (A)n);
)" + summed({{"q", "(IN(i) - m) * (IN(i) - m)"}}) +
         R"(
  const T r = (T)(1 / sqrt(q / (A)n + eps));
#if CENTERED
  MEAN(u, m);
#endif
  RSTD(u, r);
#if GROUPED
  for (idx c = 0; c < n / plane; ++c) {
    const idx channel = u % groups * (n / plane) + c, from = base + c * plane;
    T scale = r, shift = 0;
    (void)channel;
#if WEIGHTED
    scale *= WEIGHT(channel);
#endif
#if BIASED
    shift = BIAS(channel);
#endif
    INDEPENDENT
    for (idx j = from; j < from + plane; ++j) OUT(j, (IN(j) - m) * scale + shift);
  }
#else
  INDEPENDENT
  for (idx j = 0; j < n; ++j) {
    T v = (IN(base + j) - m) * r;
#if WEIGHTED
    v *= WEIGHT(j);
#endif
#if BIASED
    v += BIAS(j);
#endif
    OUT(base + j, v);
  }
#endif
}
)";
}

cw_status run_forward(Call& call, const Forward& f, const Rows& rows) {
  if (!takes(call, {&f.out, &f.rstd, &f.in}) || (rows.centered && !takes(call, {&f.mean}))) return CW_UNSUPPORTED;
  if ((f.weighted && !takes(call, {&f.weight})) || (f.biased && !takes(call, {&f.bias}))) return CW_UNSUPPORTED;
  const Types types = types_of(call, f.in.dtype);
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("norm_rows"),
       bits_of({&f.out, &f.mean, &f.rstd, &f.in, &f.weight, &f.bias},
               {f.weighted, f.biased, rows.centered, rows.grouped}),
       0, 0},
      [&] {
        Source s(call.device->info);
        define(s, types);
        s.define("CENTERED", rows.centered).define("GROUPED", rows.grouped);
        s.define("WEIGHTED", f.weighted).define("BIASED", f.biased);
        writes(s, "OUT", "out", f.out);
        if (rows.centered) writes(s, "MEAN", "mean", f.mean);
        writes(s, "RSTD", "rstd", f.rstd);
        reads(s, "IN", "in", f.in);
        if (f.weighted) reads(s, "WEIGHT", "weight", f.weight);
        if (f.biased) reads(s, "BIAS", "bias", f.bias);
        for (const char* v : {"rows", "n", "groups", "plane"}) s.value("idx", v);
        s.value("A", "eps");
        return s.kernel(forward_text());
      },
      &function));
  Launch l;
  l.pointer(f.out.data);
  if (rows.centered) l.pointer(f.mean.data);
  l.pointer(f.rstd.data).pointer(f.in.data);
  if (f.weighted) l.pointer(f.weight.data);
  if (f.biased) l.pointer(f.bias.data);
  l.value(rows.rows).value(rows.n).value(rows.groups).value(rows.plane);
  add_wide(l, types, f.eps);
  return l.run(*call.device, function, rows.rows, static_cast<double>(rows.n) * 6, call.stream);
}

int64_t product(const std::vector<int64_t>& list) {
  int64_t n = 1;
  for (int64_t v : list) n *= v;
  return n;
}

// out, mean, rstd, input, normalized_shape, weight, bias, eps
cw_status layer_norm(Call& call, const void*) {
  Forward f;
  if (!call.tensor(0, &f.out) || !call.tensor(1, &f.mean) || !call.tensor(2, &f.rstd) || !call.tensor(3, &f.in))
    return CW_UNSUPPORTED;
  f.weighted = call.tensor(5, &f.weight), f.biased = call.tensor(6, &f.bias);
  f.eps = call.real(7, 1e-5);
  Rows rows;
  rows.n = product(call.ints(4));
  if (rows.n == 0) return CW_UNSUPPORTED;
  rows.rows = f.in.numel() / rows.n;
  return run_forward(call, f, rows);
}

// out, rstd, input, normalized_shape, weight, eps
cw_status rms_norm(Call& call, const void*) {
  Forward f;
  if (!call.tensor(0, &f.out) || !call.tensor(1, &f.rstd) || !call.tensor(2, &f.in)) return CW_UNSUPPORTED;
  f.weighted = call.tensor(4, &f.weight);
  const double least =
      f.in.dtype == kF64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  f.eps = call.real(5, least);
  Rows rows;
  rows.centered = false;
  rows.n = product(call.ints(3));
  if (rows.n == 0) return CW_UNSUPPORTED;
  rows.rows = f.in.numel() / rows.n;
  return run_forward(call, f, rows);
}

// out, mean, rstd, input, weight, bias, N, C, HxW, group, eps
cw_status group_norm(Call& call, const void*) {
  Forward f;
  if (!call.tensor(0, &f.out) || !call.tensor(1, &f.mean) || !call.tensor(2, &f.rstd) || !call.tensor(3, &f.in))
    return CW_UNSUPPORTED;
  f.weighted = call.tensor(4, &f.weight), f.biased = call.tensor(5, &f.bias);
  f.eps = call.real(10, 1e-5);
  Rows rows;
  rows.grouped = true;
  rows.groups = call.integer(9, 1), rows.plane = call.integer(8);
  rows.rows = call.integer(6) * rows.groups;
  if (rows.rows <= 0 || rows.plane <= 0) return CW_UNSUPPORTED;
  rows.n = f.in.numel() / rows.rows;
  return run_forward(call, f, rows);
}

struct Backward {
  Tensor to_in, to_weight, to_bias, grad, in, mean, rstd, weight;
  bool has_in = false, has_weight = false, has_bias = false, weighted = false;
};

std::string input_gradient_text() {
  return R"(
#if WEIGHTED
#define GW(i, j) (GRAD(i) * WEIGHT(j))
#else
#define GW(i, j) GRAD(i)
#endif
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx base = u * n;
  const T m = CENTERED ? MEAN(u) : 0, r = RSTD(u);
  A a = 0, b = 0;
)" + summed({{"a", "GW(i, j)"}, {"b", "GW(i, j) * (IN(i) - m)"}}) +
         R"(
  const T c0 = CENTERED ? (T)(a / (A)n) : 0, c1 = (T)(b / (A)n) * r * r;
  INDEPENDENT
  for (idx j = 0; j < n; ++j) OUT(base + j, r * (GW(base + j, j) - c0 - (IN(base + j) - m) * c1));
}
)";
}

// What rows add to the gradients of scale and shift: a block of columns, a part of the rows.
constexpr const char* kColumns = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx block = u % blocks, part = u / blocks, j0 = block * WIDE, wide = n - j0 < WIDE ? n - j0 : WIDE;
  T scale[WIDE], shift[WIDE];
  for (int l = 0; l < WIDE; ++l) { scale[l] = 0; shift[l] = 0; }
  for (idx row = rows * part / parts, past = rows * (part + 1) / parts; row < past; ++row) {
    const idx at = row * n + j0;
    const T m = CENTERED ? MEAN(row) : 0, r = RSTD(row);
    INDEPENDENT
    for (idx l = 0; l < wide; ++l) {
      const T g = GRAD(at + l);
      scale[l] += g * (IN(at + l) - m) * r;
      shift[l] += g;
    }
  }
  for (idx l = 0; l < wide; ++l) {
    sums[part * n + j0 + l] = scale[l];
    sums[(parts + part) * n + j0 + l] = shift[l];
  }
}
)";

cw_status backward_rows(Call& call, const Backward& b, const Rows& rows) {
  if (!takes(call, {&b.grad, &b.in, &b.rstd}) || (b.weighted && !takes(call, {&b.weight}))) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  const auto statistics = [&](Source& s) {
    define(s, types);
    s.define("CENTERED", rows.centered);
    reads(s, "GRAD", "grad", b.grad);
    reads(s, "IN", "in", b.in);
    if (rows.centered) reads(s, "MEAN", "mean", b.mean);
    reads(s, "RSTD", "rstd", b.rstd);
    if (!rows.centered) s.define("MEAN(i)", "0");
  };
  const auto add = [&](Launch& l) {
    l.pointer(b.grad.data).pointer(b.in.data);
    if (rows.centered) l.pointer(b.mean.data);
    l.pointer(b.rstd.data);
  };
  const uint64_t bits = bits_of({&b.grad, &b.in, &b.mean, &b.rstd, &b.weight, &b.to_in}, {b.weighted, rows.centered});
  if (b.has_in) {
    cw_function function = nullptr;
    TRY(call.device->function(
        {family("norm_rows_backward"), bits, 0, 0},
        [&] {
          Source s(call.device->info);
          s.define("WEIGHTED", b.weighted);
          writes(s, "OUT", "out", b.to_in);
          statistics(s);
          if (b.weighted) reads(s, "WEIGHT", "weight", b.weight);
          s.value("idx", "rows").value("idx", "n");
          return s.kernel(input_gradient_text());
        },
        &function));
    Launch l;
    l.pointer(b.to_in.data);
    add(l);
    if (b.weighted) l.pointer(b.weight.data);
    l.value(rows.rows).value(rows.n);
    TRY(l.run(*call.device, function, rows.rows, static_cast<double>(rows.n) * 8, call.stream));
  }
  if (!b.has_weight && !b.has_bias) return CW_OK;
  constexpr int64_t kWide = 64;
  const int64_t blocks = (rows.n + kWide - 1) / kWide;
  const int64_t wanted = int64_t{call.device->info.compute_units} * (call.device->in_turn() ? 2 : 256);
  // Parts are short enough for a sum in T, and their sums are added up wide.
  const int64_t parts = std::clamp<int64_t>(std::max(wanted / blocks, rows.rows / 1024), 1, rows.rows);
  void* sums = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(2 * parts * rows.n * size_of(types.compute)), &sums));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("norm_columns"), bits, 0, 0},
      [&] {
        Source s(call.device->info);
        s.define("WIDE", kWide);
        s.out(name_of(types.compute), "sums");
        statistics(s);
        for (const char* v : {"units", "rows", "n", "blocks", "parts"}) s.value("idx", v);
        return s.kernel(kColumns);
      },
      &function));
  Launch l;
  l.pointer(sums);
  add(l);
  l.value(blocks * parts).value(rows.rows).value(rows.n).value(blocks).value(parts);
  TRY(l.run(*call.device, function, blocks * parts, static_cast<double>(rows.rows) / parts * kWide * 4, call.stream));
  Tensor partial;
  partial.dtype = types.compute;
  partial.ndim = 2;
  partial.shape[0] = parts, partial.shape[1] = rows.n;
  partial.strides[0] = rows.n, partial.strides[1] = 1;
  partial.data = static_cast<const char*>(sums);
  if (b.has_weight) TRY(sum_into(call, flat(b.to_weight), partial, {0}));
  partial.data += parts * rows.n * size_of(types.compute);
  if (b.has_bias) TRY(sum_into(call, flat(b.to_bias), partial, {0}));
  return CW_OK;
}

// grad_input, grad_weight, grad_bias, grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
cw_status layer_norm_backward(Call& call, const void*) {
  Backward b;
  b.has_in = call.tensor(0, &b.to_in), b.has_weight = call.tensor(1, &b.to_weight);
  b.has_bias = call.tensor(2, &b.to_bias);
  if (!call.tensor(3, &b.grad) || !call.tensor(4, &b.in) || !call.tensor(6, &b.mean) || !call.tensor(7, &b.rstd))
    return CW_UNSUPPORTED;
  b.weighted = call.tensor(8, &b.weight);
  Rows rows;
  rows.n = product(call.ints(5));
  if (rows.n == 0 || b.in.numel() == 0 || !takes(call, {&b.mean})) return CW_UNSUPPORTED;
  rows.rows = b.in.numel() / rows.n;
  return backward_rows(call, b, rows);
}

// grad_input, grad_weight, grad_out, input, normalized_shape, rstd, weight, output_mask
cw_status rms_norm_backward(Call& call, const void*) {
  Backward b;
  b.has_in = call.tensor(0, &b.to_in), b.has_weight = call.tensor(1, &b.to_weight);
  if (!call.tensor(2, &b.grad) || !call.tensor(3, &b.in) || !call.tensor(5, &b.rstd)) return CW_UNSUPPORTED;
  b.weighted = call.tensor(6, &b.weight);
  Rows rows;
  rows.centered = false;
  rows.n = product(call.ints(4));
  if (rows.n == 0 || b.in.numel() == 0) return CW_UNSUPPORTED;
  rows.rows = b.in.numel() / rows.n;
  return backward_rows(call, b, rows);
}

std::string group_backward_text() {
  return R"(
for (idx u = FIRST(rows), end = LAST(rows); u < end; u += STEP) {
  const idx channels = count / n, first = u % groups * channels;
  const T m = MEAN(u), r = RSTD(u);
  A all_a = 0, all_b = 0;
  for (idx c = 0; c < channels; ++c) {
    const idx base = u * count + c * n;
    const A w = WEIGHTED ? (A)WEIGHT(first + c) : 1;
    A a = 0, b = 0;
)" + summed({{"a", "GRAD(i)"}, {"b", "GRAD(i) * (IN(i) - m)"}}) +
         R"(
    sums[u * channels + c] = (T)(b * (A)r);
    sums[(rows + u) * channels + c] = (T)a;
    all_a += a * w;
    all_b += b * w;
  }
#if HAS_OUT
  const T c0 = (T)(all_a / (A)count), c1 = (T)(all_b / (A)count) * r * r;
  for (idx c = 0; c < channels; ++c) {
    const idx base = u * count + c * n;
    const T w = WEIGHTED ? WEIGHT(first + c) : 1;
    INDEPENDENT
    for (idx j = base; j < base + n; ++j) OUT(j, r * (GRAD(j) * w - c0 - (IN(j) - m) * c1));
  }
#endif
}
)";
}

// grad_input, grad_weight, grad_bias, grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask
cw_status group_norm_backward(Call& call, const void*) {
  Backward b;
  b.has_in = call.tensor(0, &b.to_in), b.has_weight = call.tensor(1, &b.to_weight);
  b.has_bias = call.tensor(2, &b.to_bias);
  if (!call.tensor(3, &b.grad) || !call.tensor(4, &b.in) || !call.tensor(5, &b.mean) || !call.tensor(6, &b.rstd))
    return CW_UNSUPPORTED;
  b.weighted = call.tensor(7, &b.weight);
  if (!takes(call, {&b.grad, &b.in, &b.mean, &b.rstd}) || (b.weighted && !takes(call, {&b.weight})))
    return CW_UNSUPPORTED;
  const int64_t batch = call.integer(8), channels = call.integer(9), plane = call.integer(10);
  const int64_t groups = call.integer(11, 1), rows = batch * groups;
  if (b.in.numel() == 0) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  void* sums = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(2 * batch * channels * size_of(types.compute)), &sums));
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("group_norm_backward"),
       bits_of({&b.grad, &b.in, &b.mean, &b.rstd, &b.weight, &b.to_in}, {b.weighted, b.has_in}), 0, 0},
      [&] {
        Source s(call.device->info);
        define(s, types);
        s.define("WEIGHTED", b.weighted).define("HAS_OUT", b.has_in);
        s.out(name_of(types.compute), "sums");
        if (b.has_in) writes(s, "OUT", "out", b.to_in);
        reads(s, "GRAD", "grad", b.grad);
        reads(s, "IN", "in", b.in);
        reads(s, "MEAN", "mean", b.mean);
        reads(s, "RSTD", "rstd", b.rstd);
        if (b.weighted)
          reads(s, "WEIGHT", "weight", b.weight);
        else
          s.define("WEIGHT(i)", "1");
        for (const char* v : {"rows", "n", "groups", "count"}) s.value("idx", v);
        return s.kernel(group_backward_text());
      },
      &function));
  Launch l;
  l.pointer(sums);
  if (b.has_in) l.pointer(b.to_in.data);
  l.pointer(b.grad.data).pointer(b.in.data).pointer(b.mean.data).pointer(b.rstd.data);
  if (b.weighted) l.pointer(b.weight.data);
  const int64_t count = b.in.numel() / rows;
  l.value(rows).value(plane).value(groups).value(count);
  TRY(l.run(*call.device, function, rows, static_cast<double>(count) * 10, call.stream));
  Tensor partial;
  partial.dtype = types.compute;
  partial.ndim = 2;
  partial.shape[0] = batch, partial.shape[1] = channels;
  partial.strides[0] = channels, partial.strides[1] = 1;
  partial.data = static_cast<const char*>(sums);
  if (b.has_weight) TRY(sum_into(call, flat(b.to_weight), partial, {0}));
  partial.data += batch * channels * size_of(types.compute);
  if (b.has_bias) TRY(sum_into(call, flat(b.to_bias), partial, {0}));
  return CW_OK;
}

// ---- batch norm ------------------------------------------------------------------------------------------------------

// A channel is `parts` stretches of n elements, `stride` apart; the stretches begin `step` apart, a channel's first
// `first` after the channel's before.
struct Channels {
  int64_t channels, parts, n, stride, step, first;
  bool dense;
};

Channels channels_of(const Tensor& in) {
  Channels c{};
  c.channels = in.shape[1];
  int64_t inner = 1;
  for (int d = 2; d < in.ndim; ++d) inner *= in.shape[d];
  c.dense = inner > 1;
  if (c.dense)
    c.parts = in.shape[0], c.n = inner, c.stride = 1, c.step = c.channels * inner, c.first = inner;
  else
    c.parts = 1, c.n = in.shape[0], c.stride = c.channels, c.step = 0, c.first = 1;
  return c;
}

void define(Source& s, const Channels& c) {
  s.define("STRIDE", c.dense ? "1" : "stride");
  for (const char* v : {"channels", "parts", "n", "stride", "step", "first"}) s.value("idx", v);
}
void add(Launch& l, const Channels& c) {
  for (int64_t v : {c.channels, c.parts, c.n, c.stride, c.step, c.first}) l.value(v);
}

constexpr const char* kEachPart =
    "for (idx part = 0; part < parts; ++part) {\nconst idx base = c * first + part * step;\n";

// Training: a channel is seen three times, for its mean, its variance and its result.
std::string training_text() {
  return std::string(
             "for (idx c = FIRST(channels), end = LAST(channels); c < end; c += STEP) {\n"
             "const A count = (A)parts * (A)n;\nA s = 0, q = 0;\n") +
         kEachPart + summed({{"s", "IN(i)"}}, "STRIDE") + "}\nconst T m = (T)(s / count);\n" + kEachPart +
         summed({{"q", "(IN(i) - m) * (IN(i) - m)"}}, "STRIDE") + R"(}
  const T r = (T)(1 / sqrt(q / count + eps));
  SAVE_MEAN(c, m);
  SAVE_RSTD(c, r);
#if RUNNING_M
  RUN_MEAN(c, (A)RUN_MEAN_IN(c) * (1 - momentum) + (A)m * momentum);
#endif
#if RUNNING_V
  RUN_VAR(c, (A)RUN_VAR_IN(c) * (1 - momentum) + q / (count - 1) * momentum);
#endif
  T scale = r, shift = 0;
#if WEIGHTED
  scale *= WEIGHT(c);
#endif
#if BIASED
  shift = BIAS(c);
#endif
)" + kEachPart +
         R"(
    INDEPENDENT
    for (idx j = 0; j < n; ++j) OUT(base + j * STRIDE, (IN(base + j * STRIDE) - m) * scale + shift);
  }
}
)";
}

// With given statistics: a unit is a plane on CPUs, an element elsewhere.
constexpr const char* kEvaluation = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx c = u / each % channels, base = u * per;
  const T r = (T)(1 / sqrt((A)RUN_VAR(c) + eps));
  T scale = r, shift = 0;
#if WEIGHTED
  scale *= WEIGHT(c);
#endif
#if BIASED
  shift = BIAS(c);
#endif
  const T m = RUN_MEAN(c);
  INDEPENDENT
  for (idx j = 0; j < per; ++j) OUT(base + j, (IN(base + j) - m) * scale + shift);
}
)";

struct BatchNorm {
  Tensor out, save_mean, save_rstd, in, weight, bias, mean, var;
  bool weighted = false, biased = false, has_mean = false, has_var = false;
  double momentum = 0.1, eps = 1e-5;
};

cw_status train(Call& call, const BatchNorm& b) {
  if (!takes(call, {&b.save_mean, &b.save_rstd}) || b.save_mean.numel() != b.in.shape[1]) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  const Channels c = channels_of(b.in);
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("batch_norm_training"),
       bits_of({&b.out, &b.save_mean, &b.save_rstd, &b.in, &b.weight, &b.bias, &b.mean, &b.var},
               {b.weighted, b.biased, b.has_mean, b.has_var, c.dense}),
       0, 0},
      [&] {
        Source s(call.device->info);
        define(s, types);
        s.define("WEIGHTED", b.weighted).define("BIASED", b.biased);
        s.define("RUNNING_M", b.has_mean).define("RUNNING_V", b.has_var);
        writes(s, "OUT", "out", b.out);
        writes(s, "SAVE_MEAN", "save_mean", b.save_mean);
        writes(s, "SAVE_RSTD", "save_rstd", b.save_rstd);
        reads(s, "IN", "in", b.in);
        if (b.weighted) reads(s, "WEIGHT", "weight", b.weight);
        if (b.biased) reads(s, "BIAS", "bias", b.bias);
        if (b.has_mean) writes(s, "RUN_MEAN", "run_mean", b.mean);
        if (b.has_var) writes(s, "RUN_VAR", "run_var", b.var);
        define(s, c);
        s.value("A", "eps").value("A", "momentum");
        return s.kernel(training_text());
      },
      &function));
  Launch l;
  l.pointer(b.out.data).pointer(b.save_mean.data).pointer(b.save_rstd.data).pointer(b.in.data);
  if (b.weighted) l.pointer(b.weight.data);
  if (b.biased) l.pointer(b.bias.data);
  if (b.has_mean) l.pointer(b.mean.data);
  if (b.has_var) l.pointer(b.var.data);
  add(l, c);
  add_wide(l, types, b.eps);
  add_wide(l, types, b.momentum);
  return l.run(*call.device, function, c.channels, static_cast<double>(c.parts * c.n) * 6, call.stream);
}

cw_status evaluate(Call& call, const BatchNorm& b) {
  if (!b.has_mean || !b.has_var) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  const Channels c = channels_of(b.in);
  const int64_t inner = c.dense ? c.n : 1;
  const int64_t per = call.device->in_turn() ? inner : 1, units = b.in.numel() / per;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("batch_norm_evaluation"),
       bits_of({&b.out, &b.in, &b.weight, &b.bias, &b.mean, &b.var}, {b.weighted, b.biased}), 0, 0},
      [&] {
        Source s(call.device->info);
        define(s, types);
        s.define("WEIGHTED", b.weighted).define("BIASED", b.biased);
        writes(s, "OUT", "out", b.out);
        reads(s, "IN", "in", b.in);
        if (b.weighted) reads(s, "WEIGHT", "weight", b.weight);
        if (b.biased) reads(s, "BIAS", "bias", b.bias);
        reads(s, "RUN_MEAN", "run_mean", b.mean);
        reads(s, "RUN_VAR", "run_var", b.var);
        for (const char* v : {"units", "channels", "each", "per"}) s.value("idx", v);
        s.value("A", "eps");
        return s.kernel(kEvaluation);
      },
      &function));
  Launch l;
  l.pointer(b.out.data).pointer(b.in.data);
  if (b.weighted) l.pointer(b.weight.data);
  if (b.biased) l.pointer(b.bias.data);
  l.pointer(b.mean.data).pointer(b.var.data);
  l.value(units).value(c.channels).value(inner / per).value(per);
  add_wide(l, types, b.eps);
  return l.run(*call.device, function, units, static_cast<double>(per) * 3 + 8, call.stream);
}

struct BatchForm {
  const char* name;
  bool running, trains;  // has running statistics among its arguments; has `training` there
};

// out, save_mean, save_invstd, input, weight, bias, [running_mean, running_var,] [training,] momentum, eps
cw_status batch_norm(Call& call, const void* data) {
  const BatchForm& form = *static_cast<const BatchForm*>(data);
  BatchNorm b;
  int at = 3;
  if (!call.tensor(0, &b.out) || !call.tensor(at++, &b.in)) return CW_UNSUPPORTED;
  b.weighted = call.tensor(at++, &b.weight), b.biased = call.tensor(at++, &b.bias);
  if (form.running) b.has_mean = call.tensor(at++, &b.mean), b.has_var = call.tensor(at++, &b.var);
  const bool training = form.trains ? call.integer(at++) != 0 : true;
  b.momentum = call.real(at++, 0.1), b.eps = call.real(at++, 1e-5);
  if (b.in.ndim < 2 || !takes(call, {&b.out, &b.in})) return CW_UNSUPPORTED;
  for (const auto& [has, t] :
       {std::pair{b.weighted, &b.weight}, {b.biased, &b.bias}, {b.has_mean, &b.mean}, {b.has_var, &b.var}})
    if (has && (!takes(call, {t}) || !t->contiguous())) return CW_UNSUPPORTED;
  if (!training) return evaluate(call, b);
  if (!call.tensor(1, &b.save_mean) || !call.tensor(2, &b.save_rstd)) return CW_UNSUPPORTED;
  return train(call, b);
}

std::string batch_backward_text() {
  return std::string(
             "for (idx c = FIRST(channels), end = LAST(channels); c < end; c += STEP) {\n"
             "#if TRAINING\nconst T m = MEAN(c), r = RSTD(c);\n#else\n"
             "const T m = MEAN(c), r = (T)(1 / sqrt((A)RSTD(c) + eps));\n#endif\n"
             "const A count = (A)parts * (A)n;\nA a = 0, b = 0;\n#if SUMS\n") +
         kEachPart + summed({{"a", "GRAD(i)"}, {"b", "GRAD(i) * (IN(i) - m)"}}, "STRIDE") + R"(}
#endif
#if HAS_WEIGHT
  TO_WEIGHT(c, b * (A)r);
#endif
#if HAS_BIAS
  TO_BIAS(c, a);
#endif
#if HAS_OUT
  T scale = r;
#if WEIGHTED
  scale *= WEIGHT(c);
#endif
#if TRAINING
  const T c0 = (T)(a / count), c1 = (T)(b / count) * r * r;
#else
  const T c0 = 0, c1 = 0;
#endif
)" + kEachPart +
         R"(
    INDEPENDENT
    for (idx j = 0; j < n; ++j) {
      const idx i = base + j * STRIDE;
#if TRAINING
      OUT(i, scale * (GRAD(i) - c0 - (IN(i) - m) * c1));
#else
      OUT(i, scale * GRAD(i));
#endif
    }
  }
#endif
}
)";
}

// grad_input, grad_weight, grad_bias, grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train,
// eps, output_mask
cw_status batch_norm_backward(Call& call, const void*) {
  Backward b;
  b.has_in = call.tensor(0, &b.to_in), b.has_weight = call.tensor(1, &b.to_weight);
  b.has_bias = call.tensor(2, &b.to_bias);
  if (!call.tensor(3, &b.grad) || !call.tensor(4, &b.in)) return CW_UNSUPPORTED;
  b.weighted = call.tensor(5, &b.weight);
  const bool training = call.integer(10) != 0;
  if (!call.tensor(training ? 8 : 6, &b.mean) || !call.tensor(training ? 9 : 7, &b.rstd)) return CW_UNSUPPORTED;
  if (b.in.ndim < 2 || b.in.numel() == 0 || !takes(call, {&b.grad, &b.in, &b.mean, &b.rstd})) return CW_UNSUPPORTED;
  if (b.weighted && !takes(call, {&b.weight})) return CW_UNSUPPORTED;
  const Types types = types_of(call, b.in.dtype);
  const Channels c = channels_of(b.in);
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("batch_norm_backward"),
       bits_of({&b.grad, &b.in, &b.mean, &b.rstd, &b.weight, &b.to_in},
               {b.weighted, b.has_in, b.has_weight, b.has_bias, training, c.dense}),
       bits_of({&b.to_weight, &b.to_bias}, {}), 0},
      [&] {
        Source s(call.device->info);
        define(s, types);
        s.define("WEIGHTED", b.weighted).define("TRAINING", training);
        s.define("SUMS", training || b.has_weight || b.has_bias);
        s.define("HAS_OUT", b.has_in).define("HAS_WEIGHT", b.has_weight).define("HAS_BIAS", b.has_bias);
        if (b.has_in) writes(s, "OUT", "out", b.to_in);
        if (b.has_weight) writes(s, "TO_WEIGHT", "to_weight", b.to_weight);
        if (b.has_bias) writes(s, "TO_BIAS", "to_bias", b.to_bias);
        reads(s, "GRAD", "grad", b.grad);
        reads(s, "IN", "in", b.in);
        reads(s, "MEAN", "mean", b.mean);
        reads(s, "RSTD", "rstd", b.rstd);
        if (b.weighted) reads(s, "WEIGHT", "weight", b.weight);
        define(s, c);
        s.value("A", "eps");
        return s.kernel(batch_backward_text());
      },
      &function));
  Launch l;
  if (b.has_in) l.pointer(b.to_in.data);
  if (b.has_weight) l.pointer(b.to_weight.data);
  if (b.has_bias) l.pointer(b.to_bias.data);
  l.pointer(b.grad.data).pointer(b.in.data).pointer(b.mean.data).pointer(b.rstd.data);
  if (b.weighted) l.pointer(b.weight.data);
  add(l, c);
  add_wide(l, types, call.real(11, 1e-5));
  return l.run(*call.device, function, c.channels, static_cast<double>(c.parts * c.n) * 8, call.stream);
}

}  // namespace

Kernels norm_kernels() {
  constexpr uint32_t dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS, gradient = CW_NEEDS_CONTIGUOUS;
  static const BatchForm forms[] = {{"aten::native_batch_norm", true, true},
                                    {"aten::native_batch_norm.out", true, true},
                                    {"aten::_native_batch_norm_legit", true, true},
                                    {"aten::_native_batch_norm_legit.out", true, true},
                                    {"aten::_native_batch_norm_legit.no_stats", false, true},
                                    {"aten::_native_batch_norm_legit.no_stats_out", false, true}};
  Kernels list = {{"aten::native_layer_norm", layer_norm, kFloats, dense},
                  {"aten::native_layer_norm.out", layer_norm, kFloats, dense},
                  {"aten::native_layer_norm_backward", layer_norm_backward, kFloats, gradient},
                  {"aten::native_layer_norm_backward.out", layer_norm_backward, kFloats, gradient},
                  {"aten::_fused_rms_norm", rms_norm, kFloats, dense},
                  {"aten::_fused_rms_norm_backward", rms_norm_backward, kFloats, gradient},
                  {"aten::native_group_norm", group_norm, kFloats, dense},
                  {"aten::native_group_norm.out", group_norm, kFloats, dense},
                  {"aten::native_group_norm_backward", group_norm_backward, kFloats, gradient},
                  {"aten::native_group_norm_backward.out", group_norm_backward, kFloats, gradient},
                  {"aten::native_batch_norm_backward", batch_norm_backward, kFloats, gradient},
                  {"aten::native_batch_norm_backward.out", batch_norm_backward, kFloats, gradient}};
  for (const BatchForm& form : forms) list.push_back({form.name, batch_norm, kFloats, dense, &form});
  return list;
}

}  // namespace causeway::portable
