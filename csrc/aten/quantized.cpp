// Layers in integers: `causeway::quantize`, `qlinear` and `qconv`, `qconv_add`, `quantize_qlinear`, which is the first two at once, and at the end `qlinear_weight`.
// Here are their schemas, what their results are, and the CPU's kernels, which are the reference: a device's kernels give the same bits. That is possible because sums are of
// integers, and each step after them is one IEEE operation on float32, in this order and with no fused ones:
//
//   y = float32(sum) * scale[o];  y = y + bias[o];  y = y + residual in `qconv_add`;  y = max(y, 0) where `relu`;
//   integers out:  q = clamp(rint(y * inverse) + zero, low, high), NaN being `zero`.
//
// A residual is of float32, or of integers, and then of (float32(q) - zero) * scale.
//
// The sum is of x * w over what lies inside of the input. Where x has a zero point, or is an image whose mean is folded in,
// `taps` [o, kernel] has what each tap adds to a sum for it: sum = (sum << shift) - (its taps inside of the input). A zero
// point is exact that way at a border too, and so is a mean that is no integer, in steps of 1 / 2^shift. That is computed in
// the dtype of `taps`, modulo its size: int64, or int32, which is faster, where whoever made them knows that all fits.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <torch/library.h>

#include <array>
#include <cmath>

#include "aten/plain.h"

namespace causeway {

namespace {

using at::Tensor;
using std::optional;

// What the baseline of x86-64 has is a third as fast.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define FOR_EACH_CPU __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

bool is_integer(at::ScalarType t) { return t == at::kChar || t == at::kByte || t == at::kShort; }

bool is_result(at::ScalarType t) {
  return is_integer(t) || t == at::kFloat || t == at::kHalf || t == at::kBFloat16 || t == at::kDouble;
}

template <class Put>
void with_result(Tensor& out, const Put& put) {
  AT_DISPATCH_SWITCH(
      out.scalar_type(), "causeway",
      AT_DISPATCH_CASE(at::kChar, [&] { put(out.mutable_data_ptr<scalar_t>()); })
          AT_DISPATCH_CASE(at::kByte, [&] { put(out.mutable_data_ptr<scalar_t>()); })
              AT_DISPATCH_CASE(at::kShort, [&] { put(out.mutable_data_ptr<scalar_t>()); })
                  AT_DISPATCH_CASE(at::kFloat, [&] { put(out.mutable_data_ptr<scalar_t>()); })
                      AT_DISPATCH_CASE(at::kDouble, [&] { put(out.mutable_data_ptr<scalar_t>()); })
                          AT_DISPATCH_CASE(at::kHalf, [&] { put(out.mutable_data_ptr<scalar_t>()); })
                              AT_DISPATCH_CASE(at::kBFloat16, [&] { put(out.mutable_data_ptr<scalar_t>()); }));
}

// ---- quantize ------------------------------------------------------------------------------------------------------------

// A number for each index of `axis`, or one.
void check_factor(const char* what, const Tensor& t, at::ScalarType dtype, const c10::SymInt& channels) {
  TORCH_CHECK(t.scalar_type() == dtype, "causeway::", what, " must be ", c10::toString(dtype), ", but is ",
              c10::toString(t.scalar_type()));
  TORCH_CHECK(t.dim() <= 1 && (t.sym_numel() == 1 || t.sym_numel() == channels), "causeway::", what, " has ",
              t.sym_sizes(), " elements: expected 1, or one for each of the ", channels, " channels");
}

void check_quantize(const Tensor& x, const Tensor& inverse, const optional<Tensor>& zero, int64_t axis, int64_t low,
                    int64_t high, at::ScalarType dtype) {
  TORCH_CHECK(at::isFloatingType(x.scalar_type()), "causeway::quantize: expected floating-point numbers, but got ",
              c10::toString(x.scalar_type()));
  TORCH_CHECK(is_integer(dtype), "causeway::quantize: dtype is int8, uint8 or int16, but got ", c10::toString(dtype));
  TORCH_CHECK(x.dim() == 0 ? axis == 0 : axis >= 0 && axis < x.dim(), "causeway::quantize: there is no dimension ",
              axis, " in ", x.sym_sizes());
  const c10::SymInt channels = x.dim() == 0 ? c10::SymInt(1) : x.sym_size(axis);
  check_factor("quantize: inverse", inverse, at::kFloat, channels);
  if (zero) check_factor("quantize: zero_point", *zero, at::kInt, channels);
  TORCH_CHECK(low <= high, "causeway::quantize: low, ", low, ", is above high, ", high);
}

struct Requantize {
  const float* inverse = nullptr;
  const int32_t* zero = nullptr;
  float low = 0, high = 0;

  float operator()(float y, int64_t i, int64_t z) const {
    const float q = std::nearbyint(y * inverse[i]) + (zero ? static_cast<float>(zero[z]) : 0.0f);
    if (q != q) return std::min(std::max(zero ? static_cast<float>(zero[z]) : 0.0f, low), high);
    return std::min(std::max(q, low), high);
  }
};

Tensor quantize_meta(const Tensor& x, const Tensor& inverse, const optional<Tensor>& zero, int64_t axis, int64_t low,
                     int64_t high, at::ScalarType dtype) {
  check_quantize(x, inverse, zero, axis, low, high, dtype);
  return at::empty_like(x, x.options().dtype(dtype));
}

Tensor quantize_cpu(const Tensor& x, const Tensor& inverse, const optional<Tensor>& zero, int64_t axis, int64_t low,
                    int64_t high, at::ScalarType dtype) {
  check_quantize(x, inverse, zero, axis, low, high, dtype);
  Tensor out = at::empty_like(x, x.options().dtype(dtype));
  const Tensor factors = inverse.contiguous(), zeros = zero ? zero->contiguous() : Tensor();
  const Requantize to{factors.const_data_ptr<float>(), zero ? zeros.const_data_ptr<int32_t>() : nullptr,
                      static_cast<float>(low), static_cast<float>(high)};
  const bool many = factors.numel() > 1, zeros_many = zero && zeros.numel() > 1;
  const Tensor from = x.to(at::kFloat).contiguous();
  Tensor dense = at::empty(x.sizes(), x.options().dtype(dtype));
  int64_t inner = 1;
  for (int64_t d = axis + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t channels = x.dim() ? x.size(axis) : 1;
  const float* in = from.const_data_ptr<float>();
  with_result(dense, [&](auto* put) {
    at::parallel_for(0, from.numel(), 16384, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = many || zeros_many ? i / inner % channels : 0;
        put[i] = static_cast<std::remove_pointer_t<decltype(put)>>(to(in[i], many ? c : 0, zeros_many ? c : 0));
      }
    });
  });
  out.copy_(dense);
  return out;
}

// ---- products ------------------------------------------------------------------------------------------------------------

// What is added to the results of a product before relu: of float32, or integers where there is a scale.
struct Residual {
  const Tensor& numbers;
  const optional<Tensor>& scale;
  const optional<Tensor>& zero;
};

// What follows a sum, as the operators take it.
struct After {
  const Tensor& scale;
  const optional<Tensor>& bias;
  const optional<Tensor>& taps;
  int64_t shift;
  bool relu;
  const optional<Tensor>& inverse;
  const optional<Tensor>& zero;
  int64_t low, high;
  at::ScalarType dtype;
  const Residual* residual = nullptr;
};

void check_product(const char* name, const Tensor& x, const Tensor& weight, const c10::SymInt& channels,
                   const c10::SymInt& taps, const After& after) {
  const std::string op = name;
  TORCH_CHECK(is_integer(x.scalar_type()), "causeway::", name, ": expected an input of int8, uint8 or int16, but got ",
              c10::toString(x.scalar_type()));
  TORCH_CHECK(weight.scalar_type() == at::kChar || weight.scalar_type() == at::kShort, "causeway::", name,
              ": expected weights of int8 or int16, but got ", c10::toString(weight.scalar_type()));
  check_factor((op + ": scale").c_str(), after.scale, at::kFloat, channels);
  if (after.bias) {
    TORCH_CHECK(after.bias->dim() == 1 && after.bias->sym_size(0) == channels, "causeway::", name, ": bias has shape ",
                after.bias->sym_sizes(), ", but there are ", channels, " channels");
    TORCH_CHECK(after.bias->scalar_type() == at::kFloat, "causeway::", name, ": bias must be float32, but is ",
                c10::toString(after.bias->scalar_type()));
  }
  if (after.taps)
    TORCH_CHECK((after.taps->scalar_type() == at::kLong || after.taps->scalar_type() == at::kInt) &&
                    after.taps->dim() == 2 && after.taps->sym_size(0) == channels && after.taps->sym_size(1) == taps,
                "causeway::", name, ": taps are int64, or int32 where every sum fits, of [", channels, ", ", taps,
                "], but got ", c10::toString(after.taps->scalar_type()), " of ", after.taps->sym_sizes());
  TORCH_CHECK(after.shift >= 0 && after.shift <= 16 && (after.taps || after.shift == 0), "causeway::", name,
              ": shift is 0 to 16, and 0 without taps, but got ", after.shift);
  TORCH_CHECK(is_result(after.dtype), "causeway::", name, ": results are of int8, uint8, int16 or floating point, not ",
              c10::toString(after.dtype));
  if (is_integer(after.dtype)) {
    TORCH_CHECK(after.inverse.has_value(), "causeway::", name, ": integers out need out_inverse, 1 / their scale");
    check_factor((op + ": out_inverse").c_str(), *after.inverse, at::kFloat, channels);
    if (after.zero) check_factor((op + ": out_zero").c_str(), *after.zero, at::kInt, channels);
  }
}

void check_residual(const char* name, const Residual& r, c10::SymIntArrayRef sizes) {
  const std::string op = name;
  TORCH_CHECK(r.numbers.sym_sizes() == sizes, "causeway::", name, ": the residual has shape ", r.numbers.sym_sizes(),
              ", but the result ", sizes);
  TORCH_CHECK(r.scale ? is_integer(r.numbers.scalar_type()) : r.numbers.scalar_type() == at::kFloat, "causeway::", name,
              ": a residual is float32, or int8, uint8 or int16 with residual_scale, but got ",
              c10::toString(r.numbers.scalar_type()), r.scale ? " with" : " without", " a scale");
  TORCH_CHECK(r.scale || !r.zero, "causeway::", name, ": residual_zero goes with residual_scale");
  if (r.scale) check_factor((op + ": residual_scale").c_str(), *r.scale, at::kFloat, sizes[1]);
  if (r.zero) check_factor((op + ": residual_zero").c_str(), *r.zero, at::kInt, sizes[1]);
}

struct Finish {
  explicit Finish(const After& a)
      : scales(a.scale.contiguous()),
        biases(a.bias ? a.bias->contiguous() : Tensor()),
        inverses(a.inverse ? a.inverse->contiguous() : Tensor()),
        zeros(a.zero ? a.zero->contiguous() : Tensor()),
        scale(scales.const_data_ptr<float>()),
        bias(a.bias ? biases.const_data_ptr<float>() : nullptr),
        per_channel(scales.numel() > 1),
        relu(a.relu),
        integer(is_integer(a.dtype)) {
    if (integer)
      to = {inverses.const_data_ptr<float>(), a.zero ? zeros.const_data_ptr<int32_t>() : nullptr,
            static_cast<float>(a.low), static_cast<float>(a.high)};
    many_inverses = integer && inverses.numel() > 1;
    many_zeros = a.zero && zeros.numel() > 1;
  }

  float operator()(int64_t sum, int64_t o, const float* residual = nullptr) const {
    float y = static_cast<float>(sum) * scale[per_channel ? o : 0];
    if (bias) y = y + bias[o];
    if (residual) y = y + *residual;
    if (relu) y = y > 0 ? y : (y != y ? y : 0.0f);
    return integer ? to(y, many_inverses ? o : 0, many_zeros ? o : 0) : y;
  }

  Tensor scales, biases, inverses, zeros;
  const float* scale;
  const float* bias;
  bool per_channel, relu, integer, many_inverses, many_zeros;
  Requantize to;
};

template <class Sum>
FOR_EACH_CPU void dot_rows(const int16_t* a, const int16_t* b, int64_t depth, int64_t columns, Sum* out) {
  int64_t n = 0;
  for (; n + 4 <= columns; n += 4) {
    const int16_t *b0 = b + n * depth, *b1 = b0 + depth, *b2 = b1 + depth, *b3 = b2 + depth;
    Sum s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (int64_t k = 0; k < depth; ++k) {
      s0 += static_cast<Sum>(a[k]) * b0[k], s1 += static_cast<Sum>(a[k]) * b1[k];
      s2 += static_cast<Sum>(a[k]) * b2[k], s3 += static_cast<Sum>(a[k]) * b3[k];
    }
    out[n] = s0, out[n + 1] = s1, out[n + 2] = s2, out[n + 3] = s3;
  }
  for (; n < columns; ++n) {
    Sum s = 0;
    for (int64_t k = 0; k < depth; ++k) s += static_cast<Sum>(a[k]) * b[n * depth + k];
    out[n] = s;
  }
}

template void dot_rows<int32_t>(const int16_t*, const int16_t*, int64_t, int64_t, int32_t*);
template void dot_rows<int64_t>(const int16_t*, const int16_t*, int64_t, int64_t, int64_t*);

int64_t fitting(bool narrow, int64_t sum) { return narrow ? static_cast<int32_t>(static_cast<uint32_t>(sum)) : sum; }

// Sums of 8-bit products of so many terms stay within 32 bits.
bool is_short_sum(const Tensor& x, const Tensor& weight, int64_t depth) {
  const int64_t x_most = x.scalar_type() == at::kByte ? 255 : 128;
  return x.scalar_type() != at::kShort && weight.scalar_type() == at::kChar && depth <= INT32_MAX / (x_most * 128);
}

constexpr int64_t kColumns = 64;

// At most kColumns sums.
void dot_all(bool is_short, const int16_t* a, const int16_t* b, int64_t depth, int64_t columns, int64_t* sums) {
  if (!is_short) return dot_rows<int64_t>(a, b, depth, columns, sums);
  std::array<int32_t, kColumns> narrow;
  dot_rows<int32_t>(a, b, depth, columns, narrow.data());
  std::copy_n(narrow.begin(), columns, sums);
}

// ---- qlinear -------------------------------------------------------------------------------------------------------------

Tensor linear_result(const Tensor& x, const Tensor& weight, const After& after) {
  TORCH_CHECK(weight.dim() == 2, "causeway::qlinear: expected weights of [out, in], but got ", weight.sym_sizes());
  TORCH_CHECK(x.dim() >= 1 && x.sym_size(-1) == weight.sym_size(1), "causeway::qlinear: an input of ", x.sym_sizes(),
              " does not go with weights of ", weight.sym_sizes());
  check_product("qlinear", x, weight, weight.sym_size(0), 1, after);
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, x.options().dtype(after.dtype));
}

Tensor qlinear_meta(const Tensor& x, const Tensor& weight, const Tensor& scale, const optional<Tensor>& bias,
                    const optional<Tensor>& taps, int64_t shift, bool relu, const optional<Tensor>& inverse,
                    const optional<Tensor>& zero, int64_t low, int64_t high, at::ScalarType dtype) {
  return linear_result(x, weight, {scale, bias, taps, shift, relu, inverse, zero, low, high, dtype});
}

Tensor qlinear_cpu(const Tensor& x, const Tensor& weight, const Tensor& scale, const optional<Tensor>& bias,
                   const optional<Tensor>& taps, int64_t shift, bool relu, const optional<Tensor>& inverse,
                   const optional<Tensor>& zero, int64_t low, int64_t high, at::ScalarType dtype) {
  const After after{scale, bias, taps, shift, relu, inverse, zero, low, high, dtype};
  Tensor out = linear_result(x, weight, after);
  const int64_t columns = weight.size(0), depth = weight.size(1);
  if (out.numel() == 0) return out;
  const int64_t rows = out.numel() / columns;
  const Tensor a = x.to(at::kShort).contiguous(), b = weight.to(at::kShort).contiguous();
  const Tensor corrections = taps ? taps->to(at::kLong).contiguous() : Tensor();
  const bool narrow = taps && taps->scalar_type() == at::kInt;
  const int64_t* less = taps ? corrections.const_data_ptr<int64_t>() : nullptr;
  const Finish finish(after);
  const bool is_short = is_short_sum(x, weight, depth);
  const int16_t *pa = a.const_data_ptr<int16_t>(), *pb = b.const_data_ptr<int16_t>();
  with_result(out, [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    // Few rows are shared out by columns.
    const int64_t stretches = (columns + kColumns - 1) / kColumns;
    at::parallel_for(0, rows * stretches, std::max<int64_t>(1, 32768 / std::max<int64_t>(depth * kColumns, 1)),
                     [&](int64_t begin, int64_t end) {
                       std::array<int64_t, kColumns> sums;
                       for (int64_t u = begin; u < end; ++u) {
                         const int64_t m = u / stretches, n0 = u % stretches * kColumns;
                         const int64_t count = std::min(kColumns, columns - n0);
                         dot_all(is_short, pa + m * depth, pb + n0 * depth, depth, count, sums.data());
                         for (int64_t n = 0; n < count; ++n) {
                           int64_t sum = sums[n];
                           if (less) sum = fitting(narrow, sum * (int64_t{1} << shift) - less[n0 + n]);
                           to[m * columns + n0 + n] = static_cast<T>(finish(sum, n0 + n));
                         }
                       }
                     });
  });
  return out;
}

// ---- both at once ----------------------------------------------------------------------------------------------------------

// Rows of floating point, quantized and multiplied: what `quantize` and `qlinear` compute one after the other.
struct Floats {
  const Tensor& x;
  const Tensor& inverse;
  const optional<Tensor>& zero;
  int64_t low, high;
  const Tensor& weight;
  const Tensor& scale;
  const optional<Tensor>& bias;
  const optional<Tensor>& taps;

  int64_t axis() const { return x.dim() - 1; }
};

const auto& quantize_operator() {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("causeway::quantize", "").typed<decltype(quantize_cpu)>();
  return handle;
}
const auto& qlinear_operator() {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("causeway::qlinear", "").typed<decltype(qlinear_cpu)>();
  return handle;
}

Tensor one_after_the_other(const Floats& f) {
  const Tensor q = quantize_operator().call(f.x, f.inverse, f.zero, f.axis(), f.low, f.high, f.weight.scalar_type());
  return qlinear_operator().call(q, f.weight, f.scale, f.bias, f.taps, 0, false, {}, {}, 0, 0, f.x.scalar_type());
}

Tensor both_cpu(const Tensor& x, const Tensor& inverse, const optional<Tensor>& zero, int64_t low, int64_t high,
                const Tensor& weight, const Tensor& scale, const optional<Tensor>& bias, const optional<Tensor>& taps) {
  TORCH_CHECK(x.dim() >= 1, "causeway::quantize_qlinear: expected rows, but got a tensor without dimensions");
  return one_after_the_other({x, inverse, zero, low, high, weight, scale, bias, taps});
}

const auto& both_operator() {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("causeway::quantize_qlinear", "").typed<decltype(both_cpu)>();
  return handle;
}

// Where one kernel does both: the vendor's, or the portable one, unless the vendor has its own for one of the parts, or
// somebody wants to see them: a tracer, or who sends one of them to the host.
bool in_one_kernel(const Tensor& x) {
  if (x.device().type() != kDeviceType || !is_plain(x) || in_functorch() || c10::impl::dispatch_mode_enabled())
    return false;
  static Operator& both = operator_for(both_operator());
  static Operator& quantize = operator_for(quantize_operator());
  static Operator& product = operator_for(qlinear_operator());
  const int device = x.device().index();
  const Offers& offers = both.offers().of(device);
  if (takes(offers.own, x.scalar_type())) return true;
  if (!portable_serves(both) || !takes(offers.portable_own, x.scalar_type())) return false;
  for (Operator* part : {&quantize, &product})
    if (part->forced || part->observed || part->offers().of(device).own.kernel || !portable_serves(*part)) return false;
  return true;
}

Tensor linear_in_integers(const Tensor& x, const Tensor& inverse, const optional<Tensor>& zero, int64_t low,
                          int64_t high, const Tensor& weight, const Tensor& scale, const optional<Tensor>& bias,
                          const optional<Tensor>& taps) {
  if (in_one_kernel(x)) return both_operator().call(x, inverse, zero, low, high, weight, scale, bias, taps);
  return one_after_the_other({x, inverse, zero, low, high, weight, scale, bias, taps});
}

// ---- qconv ---------------------------------------------------------------------------------------------------------------

struct Space {
  int dims;  // 1 to 3
  bool transposed;
  int64_t groups;
  std::array<int64_t, 3> in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0},
      dilation{1, 1, 1};

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  // Where tap r of position y reads in dimension d; -1 outside of the input, and between its elements.
  int64_t at(int d, int64_t y, int64_t r) const {
    if (!transposed) {
      const int64_t t = y * stride[d] - padding[d] + r * dilation[d];
      return t < in[d] ? std::max<int64_t>(t, -1) : -1;
    }
    const int64_t t = y + padding[d] - r * dilation[d];
    return t >= 0 && t % stride[d] == 0 && t / stride[d] < in[d] ? t / stride[d] : -1;
  }
};

Tensor conv_result(const Tensor& x, const Tensor& weight, const After& after, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                   int64_t groups) {
  const int64_t dims = x.dim() - 2;
  TORCH_CHECK(dims >= 1 && dims <= 3 && weight.dim() == x.dim(),
              "causeway::qconv: expected an input of [batch, channels,"
              " 1 to 3 dimensions] and weights of as many, but got ",
              x.sym_sizes(), " and ", weight.sym_sizes());
  for (const auto& [what, list] :
       {std::pair{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"output_padding", output_padding}})
    TORCH_CHECK(static_cast<int64_t>(list.size()) == dims, "causeway::qconv: ", what, " has ", list.size(),
                " numbers for ", dims, " dimensions");
  TORCH_CHECK(groups > 0, "causeway::qconv: groups must be positive, but is ", groups);
  const c10::SymInt channels = transposed ? weight.sym_size(1) * groups : weight.sym_size(0);
  TORCH_CHECK(x.sym_size(1) == (transposed ? weight.sym_size(0) : weight.sym_size(1) * groups) &&
                  weight.sym_size(0) % groups == 0,
              "causeway::qconv: an input of ", x.sym_sizes(), " does not go with weights of ", weight.sym_sizes(),
              " in ", groups, " groups");
  c10::SymDimVector sizes{x.sym_size(0), channels};
  c10::SymInt taps = 1;
  for (int64_t d = 0; d < dims; ++d) {
    const c10::SymInt in = x.sym_size(d + 2), reach = (weight.sym_size(d + 2) - 1) * dilation[d] + 1;
    TORCH_CHECK(stride[d] > 0 && dilation[d] > 0 && padding[d] >= 0,
                "causeway::qconv: stride and dilation must be "
                "positive and padding not negative, but got ",
                stride, ", ", dilation, " and ", padding);
    sizes.push_back(transposed ? (in - 1) * stride[d] - padding[d] * 2 + reach + output_padding[d]
                               : (in + padding[d] * 2 - reach) / stride[d] + 1);
    TORCH_CHECK(sizes.back() > 0, "causeway::qconv: an input of ", x.sym_sizes(), " is smaller than the kernel");
    taps = taps * weight.sym_size(d + 2);
  }
  const char* name = after.residual ? "qconv_add" : "qconv";
  check_product(name, x, weight, channels, taps, after);
  if (after.residual) check_residual(name, *after.residual, sizes);
  const auto format = dims == 1 ? at::MemoryFormat::Contiguous : x.suggest_memory_format();
  return at::empty_symint(sizes, x.options().dtype(after.dtype).memory_format(format));
}

// The numbers of a residual, [batch, positions, channels].
Tensor as_rows(const Residual& r) {
  const auto rows = [](const Tensor& t) { return t.flatten(2).transpose(1, 2).contiguous(); };
  if (!r.scale) return rows(r.numbers);
  const Tensor numbers = rows(r.numbers.to(at::kFloat));
  return (r.zero ? numbers.sub(r.zero->to(at::kFloat)) : numbers).mul(*r.scale);
}

Tensor qconv_of(const Tensor& x, const Tensor& weight, const After& after, at::IntArrayRef stride,
                at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                int64_t groups) {
  Tensor out = conv_result(x, weight, after, stride, padding, dilation, transposed, output_padding, groups);
  if (out.numel() == 0) return out;
  Space s{static_cast<int>(x.dim() - 2), transposed, groups};
  for (int d = 0; d < s.dims; ++d) {
    const int to = d + 3 - s.dims;
    s.in[to] = x.size(d + 2), s.out[to] = out.size(d + 2), s.kernel[to] = weight.size(d + 2);
    s.stride[to] = stride[d], s.padding[to] = padding[d], s.dilation[to] = dilation[d];
  }
  const int64_t batch = x.size(0), in_channels = x.size(1) / groups, out_channels = out.size(1) / groups;
  const int64_t kernel = s.taps(), depth = kernel * in_channels;
  // [batch, positions, channels], and weights [groups, out, taps, in].
  const Tensor a = x.to(at::kShort).flatten(2).transpose(1, 2).contiguous();
  const Tensor shorts = weight.to(at::kShort).flatten(2);
  const Tensor b = (transposed ? shorts.view({groups, in_channels, out_channels, kernel}).permute({0, 2, 3, 1})
                               : shorts.view({groups, out_channels, in_channels, kernel}).permute({0, 1, 3, 2}))
                       .contiguous();
  const Tensor corrections = after.taps ? after.taps->to(at::kLong).contiguous() : Tensor();
  const bool narrow = after.taps && after.taps->scalar_type() == at::kInt;
  const int64_t* less = after.taps ? corrections.const_data_ptr<int64_t>() : nullptr;
  const Tensor residuals = after.residual ? as_rows(*after.residual) : Tensor();
  const float* more = after.residual ? residuals.const_data_ptr<float>() : nullptr;
  const Finish finish(after);
  const bool is_short = is_short_sum(x, weight, depth);
  const int64_t places = s.out[0] * s.out[1] * s.out[2], channels = groups * out_channels;
  Tensor dense = at::empty({batch, places, channels}, out.options().memory_format(at::MemoryFormat::Contiguous));
  const int16_t *pa = a.const_data_ptr<int16_t>(), *pb = b.const_data_ptr<int16_t>();
  with_result(dense, [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    const int64_t work = std::max<int64_t>(depth * channels, 1);
    at::parallel_for(0, batch * places, std::max<int64_t>(1, 32768 / work), [&](int64_t begin, int64_t end) {
      std::vector<int16_t> row(depth);
      std::vector<int64_t> sums(out_channels), inside;
      for (int64_t u = begin; u < end; ++u) {
        const int64_t image = u / places, p = u % places;
        const int64_t z = p / (s.out[1] * s.out[2]), y = p / s.out[2] % s.out[1], w = p % s.out[2];
        for (int64_t g = 0; g < groups; ++g) {
          inside.clear();
          for (int64_t t = 0; t < kernel; ++t) {
            const int64_t iz = s.at(0, z, t / (s.kernel[1] * s.kernel[2])),
                          iy = s.at(1, y, t / s.kernel[2] % s.kernel[1]), ix = s.at(2, w, t % s.kernel[2]);
            int16_t* part = row.data() + t * in_channels;
            if (iz < 0 || iy < 0 || ix < 0) {
              std::fill_n(part, in_channels, int16_t{0});
              continue;
            }
            inside.push_back(t);
            const int64_t from = (image * s.in[0] + iz) * s.in[1] * s.in[2] + iy * s.in[2] + ix;
            std::copy_n(pa + from * x.size(1) + g * in_channels, in_channels, part);
          }
          for (int64_t n = 0; n < out_channels; n += kColumns)
            dot_all(is_short, row.data(), pb + (g * out_channels + n) * depth, depth,
                    std::min(kColumns, out_channels - n), sums.data() + n);
          for (int64_t n = 0; n < out_channels; ++n) {
            const int64_t o = g * out_channels + n;
            int64_t sum = sums[n];
            if (less) {
              sum *= int64_t{1} << after.shift;
              for (int64_t t : inside) sum -= less[o * kernel + t];
              sum = fitting(narrow, sum);
            }
            const int64_t at = u * channels + o;
            to[at] = static_cast<T>(finish(sum, o, more ? more + at : nullptr));
          }
        }
      }
    });
  });
  out.copy_(dense.transpose(1, 2).view_as(out));
  return out;
}

// A convolution's result: conv_result, which has no numbers yet, or qconv_of.
using Convolution = Tensor(const Tensor&, const Tensor&, const After&, at::IntArrayRef, at::IntArrayRef,
                           at::IntArrayRef, bool, at::IntArrayRef, int64_t);

template <Convolution* of>
Tensor qconv(const Tensor& x, const Tensor& weight, const Tensor& scale, const optional<Tensor>& bias,
             const optional<Tensor>& taps, int64_t shift, at::IntArrayRef stride, at::IntArrayRef padding,
             at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups, bool relu,
             const optional<Tensor>& inverse, const optional<Tensor>& zero, int64_t low, int64_t high,
             at::ScalarType dtype) {
  return of(x, weight, {scale, bias, taps, shift, relu, inverse, zero, low, high, dtype}, stride, padding, dilation,
            transposed, output_padding, groups);
}

template <Convolution* of>
Tensor qconv_add(const Tensor& x, const Tensor& weight, const Tensor& scale, const optional<Tensor>& bias,
                 const optional<Tensor>& taps, int64_t shift, at::IntArrayRef stride, at::IntArrayRef padding,
                 at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
                 const Tensor& residual, const optional<Tensor>& residual_scale, const optional<Tensor>& residual_zero,
                 bool relu, const optional<Tensor>& inverse, const optional<Tensor>& zero, int64_t low, int64_t high,
                 at::ScalarType dtype) {
  const Residual added{residual, residual_scale, residual_zero};
  return of(x, weight, {scale, bias, taps, shift, relu, inverse, zero, low, high, dtype, &added}, stride, padding,
            dilation, transposed, output_padding, groups);
}

// ---- weights alone ---------------------------------------------------------------------------------------------------------

// Floating-point inputs times weights that are integers in memory, or float8_e4m3fn: w = (q - zero) * scale, with a scale and a
// zero point for each `group` of columns. Of 4 bits, 32 columns are 16 bytes: byte j has column j in its low half, and j + 16 in
// its high; in bytes of uint8 they are 0 to 15, of int8 -8 to 7.
bool is_packed(at::ScalarType dtype, int64_t bits) {
  return dtype == at::kChar || dtype == (bits == 8 ? at::kFloat8_e4m3fn : at::kByte);
}

void check_packed(const Tensor& x, const Tensor& weight, const Tensor& scale, const optional<Tensor>& zero,
                  int64_t group, int64_t bits) {
  TORCH_CHECK(at::isFloatingType(x.scalar_type()) && x.dim() >= 1,
              "causeway::qlinear_weight: expected floating-point rows, but got ", c10::toString(x.scalar_type()),
              " of ", x.sym_sizes());
  TORCH_CHECK(bits == 4 || bits == 8, "causeway::qlinear_weight: weights have 4 or 8 bits, not ", bits);
  const auto depth = x.sym_size(-1);
  TORCH_CHECK(weight.dim() == 2 && is_packed(weight.scalar_type(), bits) && weight.sym_size(1) * (8 / bits) == depth &&
                  (bits == 8 || depth % 32 == 0),
              "causeway::qlinear_weight: an input of ", x.sym_sizes(), " does not go with weights of ", bits, " bits, ",
              c10::toString(weight.scalar_type()), " of ", weight.sym_sizes());
  TORCH_CHECK(group > 0 && depth % group == 0 && (bits == 8 || group % 32 == 0 || group == depth),
              "causeway::qlinear_weight: groups of ", group, " do not divide ", depth, " columns",
              bits == 4 ? " by 32" : "");
  for (const Tensor* t : {&scale, zero ? &*zero : nullptr})
    TORCH_CHECK(!t || (t->scalar_type() == at::kFloat && t->dim() == 2 && t->sym_size(0) == weight.sym_size(0) &&
                       t->sym_size(1) == depth / group),
                "causeway::qlinear_weight: scales and zero points are float32 of [", weight.sym_size(0), ", ",
                depth / group, "]");
}

Tensor weight_meta(const Tensor& x, const Tensor& weight, const Tensor& scale, const optional<Tensor>& zero,
                   int64_t group, int64_t bits) {
  check_packed(x, weight, scale, zero, group, bits);
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, x.options());
}

Tensor weight_cpu(const Tensor& x, const Tensor& weight, const Tensor& scale, const optional<Tensor>& zero,
                  int64_t group, int64_t bits) {
  check_packed(x, weight, scale, zero, group, bits);
  const int64_t n = weight.size(0), k = x.size(-1);
  Tensor q = weight;
  if (bits == 4) {
    const Tensor bytes = weight.reshape({n, k / 32, 16});
    q = at::cat({bytes.bitwise_and(15), bytes.bitwise_right_shift(4).bitwise_and(15)}, -1);
    if (weight.scalar_type() == at::kChar) q = q.bitwise_xor(8).sub(8);
  }
  const at::ScalarType in = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Tensor wide = q.to(in).reshape({n, k / group, group});
  if (zero) wide = wide.sub(zero->unsqueeze(-1));
  wide = wide.mul(scale.unsqueeze(-1)).view({n, k});
  return at::matmul(x.to(in), wide.t()).to(x.scalar_type());
}

TORCH_LIBRARY(causeway, m) {
  m.def(
      "quantize(Tensor self, Tensor inverse, Tensor? zero_point, int axis, int low, int high, ScalarType dtype) -> "
      "Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "qlinear(Tensor self, Tensor weight, Tensor scale, Tensor? bias, Tensor? taps, int shift, bool relu, Tensor? "
      "out_inverse, Tensor? out_zero, int low, int high, ScalarType dtype) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "quantize_qlinear(Tensor self, Tensor inverse, Tensor? zero_point, int low, int high, Tensor weight, Tensor "
      "scale, Tensor? bias, Tensor? taps) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  // The same by one kernel or by two, as it is faster.
  m.def(
      "linear_in_integers(Tensor self, Tensor inverse, Tensor? zero_point, int low, int high, Tensor weight, Tensor "
      "scale, Tensor? bias, Tensor? taps) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "qconv(Tensor self, Tensor weight, Tensor scale, Tensor? bias, Tensor? taps, int shift, int[] stride, int[] "
      "padding, int[] dilation, bool transposed, int[] output_padding, int groups, bool relu, Tensor? out_inverse, "
      "Tensor? out_zero, int low, int high, ScalarType dtype) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "qconv_add(Tensor self, Tensor weight, Tensor scale, Tensor? bias, Tensor? taps, int shift, int[] stride, int[] "
      "padding, int[] dilation, bool transposed, int[] output_padding, int groups, Tensor residual, Tensor? "
      "residual_scale, Tensor? residual_zero, bool relu, Tensor? out_inverse, Tensor? out_zero, int low, int high, "
      "ScalarType dtype) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def("qlinear_weight(Tensor self, Tensor weight, Tensor scale, Tensor? zero_point, int group, int bits) -> Tensor",
        {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(causeway, CPU, m) {
  m.impl("quantize", quantize_cpu);
  m.impl("qlinear", qlinear_cpu);
  m.impl("quantize_qlinear", both_cpu);
  m.impl("qconv", qconv<qconv_of>);
  m.impl("qconv_add", qconv_add<qconv_of>);
  m.impl("qlinear_weight", weight_cpu);
}

TORCH_LIBRARY_IMPL(causeway, CompositeImplicitAutograd, m) { m.impl("linear_in_integers", linear_in_integers); }

TORCH_LIBRARY_IMPL(causeway, Meta, m) {
  m.impl("quantize", quantize_meta);
  m.impl("qlinear", qlinear_meta);
  m.impl("quantize_qlinear", both_cpu);
  m.impl("qconv", qconv<conv_result>);
  m.impl("qconv_add", qconv_add<conv_result>);
  m.impl("qlinear_weight", weight_meta);
}

}  // namespace

}  // namespace causeway
