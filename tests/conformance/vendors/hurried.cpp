// A vendor whose kernels are right, but for the mistakes that the variable HURRIED lists: what somebody in a hurry
// writes, wrong for one dtype, one layout or one kind of number. test_hurried.py says where each is.
//
// Slow and plain: every element goes through one type that holds every number.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "causeway/operators.hpp"

namespace {

using cw::Dtype;
using cw::Tensor;

bool hurried(const char* mistake) {
  static const std::string all = std::string(",") + (std::getenv("HURRIED") ? std::getenv("HURRIED") : "") + ",";
  return all.find("," + std::string(mistake) + ",") != std::string::npos;
}

// ---- numbers: a dtype's bytes and what they mean ---------------------------------------------------------------
struct Number {
  bool floating;
  double d;
  __int128 i;
  double real() const { return floating ? d : double(i); }
};
Number of(double d) { return {true, d, 0}; }
Number whole(__int128 i) { return {false, 0, i}; }

// A float by its bits: a sign, `e` bits of exponent, `m` of mantissa.
struct Format {
  int e, m, bias;
  bool infinite;  // the largest exponent is infinity and NaN
  bool unsigned_zero;  // the only NaN is the sign alone, and there is no -0
};
const Format* format_of(Dtype dtype) {
  static const Format half{5, 10, 15, true, false}, bfloat{8, 7, 127, true, false}, e4m3{4, 3, 7, false, false},
      e5m2{5, 2, 15, true, false}, e4m3z{4, 3, 8, false, true}, e5m2z{5, 2, 16, false, true};
  switch (dtype) {
    case Dtype::float16:
      return &half;
    case Dtype::bfloat16:
      return &bfloat;
    case Dtype::float8_e4m3fn:
      return &e4m3;
    case Dtype::float8_e5m2:
      return &e5m2;
    case Dtype::float8_e4m3fnuz:
      return &e4m3z;
    case Dtype::float8_e5m2fnuz:
      return &e5m2z;
    default:
      return nullptr;
  }
}

double decode(const Format& f, uint32_t bits) {
  const int sign_at = f.e + f.m;
  const bool negative = bits >> sign_at & 1;
  const int exponent = int(bits >> f.m & ((1u << f.e) - 1)), mantissa = int(bits & ((1u << f.m) - 1));
  const int last = (1 << f.e) - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.unsigned_zero && bits == 1u << sign_at) return nan;
  if (f.infinite && exponent == last) return mantissa ? nan : negative ? -INFINITY : INFINITY;
  if (!f.infinite && !f.unsigned_zero && exponent == last && mantissa == (1 << f.m) - 1) return nan;
  const double size = exponent ? std::ldexp(1.0 + std::ldexp(mantissa, -f.m), exponent - f.bias)
                               : std::ldexp(mantissa, 1 - f.bias - f.m);
  return negative ? -size : size;
}

uint32_t encode(const Format& f, double x) {
  const uint32_t sign = std::signbit(x) ? 1u << (f.e + f.m) : 0, only_sign = 1u << (f.e + f.m);
  const uint32_t last = (1u << f.e) - 1;
  if (std::isnan(x)) return f.unsigned_zero ? only_sign : sign | (last << f.m) | ((1u << f.m) - 1);
  const double size = std::fabs(x);
  const uint32_t top = f.infinite ? (last << f.m) - 1 : (last << f.m) | ((1u << f.m) - (f.unsigned_zero ? 1 : 2));
  const int exponent = size > 0 ? std::max(std::min(std::ilogb(size), 4096), 1 - f.bias) : 1 - f.bias;
  double steps = std::ldexp(size, f.m - exponent);  // of the spacing here
  steps = std::isinf(size) ? size : hurried("cast_truncates") ? std::floor(steps) : std::nearbyint(steps);
  const double rounded = std::ldexp(steps, exponent - f.m);
  if (rounded > decode(f, top)) {
    static const bool saturates = std::getenv("E4M3FN_SATURATES") != nullptr;  // torch's releases differ
    if (hurried("e5m2_saturates") && f.m == 2) return sign | top;
    if (f.infinite) return sign | (last << f.m);
    if (f.unsigned_zero) return only_sign;
    return sign | (saturates ? top : (last << f.m) | ((1u << f.m) - 1));
  }
  if (rounded == 0) return f.unsigned_zero && !hurried("fnuz_has_minus_zero") ? 0 : sign;
  const int at = std::max(std::ilogb(rounded), 1 - f.bias);
  const auto units = uint32_t(std::ldexp(rounded, f.m - at));
  return sign | (units < 1u << f.m ? units : uint32_t(at + f.bias - 1) * (1u << f.m) + units);
}

template <class T>
T bytes(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void put(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

Number load(const char* at, Dtype dtype) {
  if (const Format* f = format_of(dtype))
    return of(decode(*f, f->e + f->m == 7 ? bytes<uint8_t>(at) : bytes<uint16_t>(at)));
  switch (dtype) {
    case Dtype::boolean:
    case Dtype::uint8:
      return whole(bytes<uint8_t>(at));
    case Dtype::int8:
      return whole(bytes<int8_t>(at));
    case Dtype::uint16:
      return whole(bytes<uint16_t>(at));
    case Dtype::int16:
      return whole(bytes<int16_t>(at));
    case Dtype::uint32:
      return whole(bytes<uint32_t>(at));
    case Dtype::int32:
      return whole(bytes<int32_t>(at));
    case Dtype::uint64:
      return whole(bytes<uint64_t>(at));
    case Dtype::int64:
      return whole(bytes<int64_t>(at));
    case Dtype::float32:
      return of(bytes<float>(at));
    default:
      return of(bytes<double>(at));
  }
}

void store(char* at, Dtype dtype, Number n) {
  if (const Format* f = format_of(dtype)) {
    const uint32_t bits = encode(*f, n.floating ? double(float(n.d)) : double(float(n.i)));
    return f->e + f->m == 7 ? put(at, uint8_t(bits)) : put(at, uint16_t(bits));
  }
  if (dtype == Dtype::float32) return put(at, n.floating ? float(n.d) : float(n.i));
  if (dtype == Dtype::float64) return put(at, n.floating ? n.d : double(n.i));
  if (dtype == Dtype::boolean) {
    if (hurried("bool_is_the_low_byte") && !n.floating) return put(at, uint8_t(uint8_t(n.i) != 0));
    if (hurried("bool_of_a_whole_number") && n.floating) return put(at, uint8_t(int64_t(n.d) != 0));
    return put(at, uint8_t(n.floating ? n.d != 0 : n.i != 0));
  }
  const auto integer = n.floating ? int64_t(n.d) : int64_t(n.i);
  const int64_t size = dtype == Dtype::uint8 || dtype == Dtype::int8     ? 1
                       : dtype == Dtype::uint16 || dtype == Dtype::int16 ? 2
                       : dtype == Dtype::uint32 || dtype == Dtype::int32 ? 4
                                                                         : 8;
  std::memcpy(at, &integer, size_t(size));
}

// ---- elements ----------------------------------------------------------------------------------------------------
using Steps = std::vector<int64_t>;  // in bytes, one for each dimension

// Steps through `t` as if it had the shape of `out`.
bool keeps_strides = false;  // of what is broadcast, too
Steps steps(const Tensor& t, const Tensor& out) {
  Steps found(size_t(out.dim()), 0);
  for (int64_t d = 1; d <= t.dim(); ++d) {
    const bool one = t.size(-d) == 1 && out.size(-d) != 1;
    if (!one || (keeps_strides && d == 1)) found[size_t(out.dim() - d)] = t.stride(-d) * t.itemsize();
  }
  return found;
}

// f(places) for each element of `out`, the first place being out's.
template <size_t n, class F>
void each(const Tensor& out, std::array<Tensor, n> inputs, F f) {
  std::array<Steps, n + 1> by{steps(out, out)};
  std::array<char*, n + 1> at{out.data<char>()};
  for (size_t k = 0; k < n; ++k) by[k + 1] = steps(inputs[k], out), at[k + 1] = inputs[k].template data<char>();
  const int64_t count = out.numel();
  std::vector<int64_t> index(size_t(out.dim()), 0);
  for (int64_t i = 0; i < count; ++i) {
    std::array<char*, n + 1> here = at;
    for (size_t k = 0; k <= n; ++k)
      for (size_t d = 0; d < index.size(); ++d) here[k] += index[d] * by[k][d];
    f(here);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < out.size(int64_t(d))) break;
      index[d] = 0;
    }
  }
}

template <size_t n, class F>
void pointwise(const Tensor& out, std::array<Tensor, n> inputs, F f) {
  each(out, inputs, [&](const std::array<char*, n + 1>& at) {
    std::array<Number, n> x;
    for (size_t k = 0; k < n; ++k) x[k] = load(at[k + 1], inputs[k].dtype());
    store(at[0], out.dtype(), f(x));
  });
}

// As the CPU rounds it: the 16-bit floats by float.
Number rounded(const Tensor& like, double d) { return of(like.dtype() == Dtype::float64 ? d : double(float(d))); }

bool is_floating(Dtype d) { return d >= Dtype::float16 && d <= Dtype::float64; }

// ---- kernels -----------------------------------------------------------------------------------------------------
cw_status copy(Tensor self, Tensor src, bool) {
  const auto is_complex = [](Dtype d) { return d >= Dtype::complex32 && d <= Dtype::complex128; };
  const bool same = self.dtype() == src.dtype();
  const auto moves_only = [&](Dtype d) { return is_complex(d) || d == Dtype::float8_e8m0fnu; };
  if (!same && (moves_only(self.dtype()) || moves_only(src.dtype()))) return CW_UNSUPPORTED;
  const size_t size = size_t(self.itemsize());
  each(self, std::array{src}, [&](const std::array<char*, 2>& at) {
    if (same)
      std::memmove(at[0], at[1], hurried("complex32_is_half") && self.dtype() == Dtype::complex32 ? 2 : size);
    else
      store(at[0], self.dtype(), load(at[1], src.dtype()));
  });
  return CW_OK;
}

cw_status zero(Tensor self) {
  each(self, std::array<Tensor, 0>{},
       [&](const std::array<char*, 1>& at) { std::memset(at[0], 0, size_t(self.itemsize())); });
  return CW_OK;
}

cw_status fill(Tensor self, cw::Scalar value) {
  const Number n =
      value.is_floating() || hurried("int64_by_double") ? of(value.to<double>()) : whole(value.to<int64_t>());
  each(self, std::array<Tensor, 0>{}, [&](const std::array<char*, 1>& at) { store(at[0], self.dtype(), n); });
  return CW_OK;
}

cw_status eq(Tensor out, Tensor self, Tensor other) {
  pointwise(out, std::array{self, other}, [](const std::array<Number, 2>& x) {
    if (hurried("eq_by_double") || x[0].floating || x[1].floating) return whole(x[0].real() == x[1].real());
    return whole(x[0].i == x[1].i);
  });
  return CW_OK;
}

cw_status lt(Tensor out, Tensor self, Tensor other) {
  pointwise(out, std::array{self, other}, [&](const std::array<Number, 2>& x) {
    if (x[0].floating) return whole(x[0].d < x[1].d);
    if (hurried("lt_has_signs") && self.dtype() == Dtype::uint8) return whole(int8_t(x[0].i) < int8_t(x[1].i));
    if (hurried("lt_has_no_signs")) return whole(uint64_t(x[0].i) < uint64_t(x[1].i));
    return whole(x[0].i < x[1].i);
  });
  return CW_OK;
}

cw_status maximum(Tensor out, Tensor self, Tensor other) {
  pointwise(out, std::array{self, other}, [](const std::array<Number, 2>& x) {
    if (!x[0].floating) return x[0].i > x[1].i ? x[0] : x[1];
    if (!hurried("maximum_loses_nan") && std::isnan(x[0].d)) return x[0];
    if (!hurried("maximum_loses_nan") && std::isnan(x[1].d)) return x[1];
    return x[0].d > x[1].d ? x[0] : x[1];
  });
  return CW_OK;
}

cw_status add(Tensor out, Tensor self, Tensor other, cw::Scalar alpha) {
  keeps_strides = hurried("broadcast_keeps_the_stride");
  pointwise(out, std::array{self, other}, [&](const std::array<Number, 2>& x) {
    if (!is_floating(out.dtype())) return whole(x[0].i + __int128(alpha.to<int64_t>()) * x[1].i);
    return rounded(out, x[0].real() + alpha.to<double>() * x[1].real());
  });
  keeps_strides = false;
  return CW_OK;
}

cw_status mul(Tensor out, Tensor self, Tensor other) {
  if (hurried("output_is_used_first")) {  // which may be an input
    each(out, std::array<Tensor, 0>{}, [&](const std::array<char*, 1>& at) { store(at[0], out.dtype(), whole(1)); });
    for (const Tensor& factor : {self, other})
      pointwise(out, std::array{out, factor}, [&](const std::array<Number, 2>& x) {
        return is_floating(out.dtype()) ? rounded(out, x[0].real() * x[1].real())
                                        : whole(int64_t(uint64_t(x[0].i) * uint64_t(x[1].i)));
      });
    return CW_OK;
  }
  pointwise(out, std::array{self, other}, [&](const std::array<Number, 2>& x) {
    if (!is_floating(out.dtype())) return whole(int64_t(uint64_t(x[0].i) * uint64_t(x[1].i)));
    return rounded(out, x[0].real() * x[1].real());
  });
  return CW_OK;
}

cw_status divide(Tensor out, Tensor self, Tensor other, cw::optional<cw::string_view> mode) {
  if (!mode || is_floating(out.dtype()) || *mode != "floor") return CW_UNSUPPORTED;
  bool by_zero = false;
  pointwise(out, std::array{self, other}, [&](const std::array<Number, 2>& x) {
    if (x[1].i == 0) return by_zero = true, whole(0);
    const __int128 quotient = x[0].i / x[1].i, left = x[0].i % x[1].i;
    return whole(left != 0 && (left < 0) != (x[1].i < 0) && !hurried("division_truncates") ? quotient - 1 : quotient);
  });
  return by_zero ? cw::fail(CW_INVALID, "ZeroDivisionError") : CW_OK;
}

cw_status remainder(Tensor out, Tensor self, Tensor other) {
  if (!is_floating(out.dtype())) return CW_UNSUPPORTED;
  pointwise(out, std::array{self, other}, [&](const std::array<Number, 2>& x) {
    const double a = x[0].real(), b = x[1].real(), left = std::fmod(a, b);
    return rounded(out, left != 0 && (left < 0) != (b < 0) && !hurried("remainder_is_fmod") ? left + b : left);
  });
  return CW_OK;
}

cw_status round_(Tensor out, Tensor self) {
  pointwise(out, std::array{self}, [](const std::array<Number, 1>& x) {
    if (!x[0].floating) return x[0];
    return of(hurried("round_half_up") ? std::floor(x[0].d + 0.5) : std::nearbyint(x[0].d));
  });
  return CW_OK;
}

cw_status neg(Tensor out, Tensor self) {
  int64_t number = 0;
  each(out, std::array{self}, [&](const std::array<char*, 2>& at) {
    const Number x = load(at[1], self.dtype());
    if (!hurried("index_of_16_bits") || number++ < 1 << 16)
      store(at[0], out.dtype(), x.floating ? of(-x.d) : whole(-x.i));
  });
  return CW_OK;
}

cw_status sum(Tensor out, Tensor self, cw::optional<cw::List<int64_t>> dims, bool keepdim, cw::optional<Dtype>) {
  std::vector<bool> gone(size_t(self.dim()), !dims || dims->empty());
  if (dims)
    for (int64_t d : *dims)
      if (self.dim()) gone[size_t(d < 0 ? d + self.dim() : d)] = true;
  Steps by;  // through the output, by the input's dimensions
  for (int64_t d = 0, k = 0; d < self.dim(); ++d) {
    by.push_back(gone[size_t(d)] ? 0 : out.stride(k));
    k += keepdim || !gone[size_t(d)];
  }
  std::vector<double> floats;
  std::vector<int64_t> integers;
  int64_t reach = 1;
  for (int64_t d = 0; d < out.dim(); ++d) reach += (out.size(d) - 1) * out.stride(d);
  if (out.numel() == 0) return CW_OK;
  floats.resize(size_t(reach)), integers.resize(size_t(reach));
  std::vector<int64_t> index(size_t(self.dim()), 0);
  for (int64_t i = 0, count = self.numel(); i < count; ++i) {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < index.size(); ++d) from += index[d] * self.stride(int64_t(d)), to += index[d] * by[d];
    if (hurried("sum_takes_dense_memory")) from = i;
    const Number x = load(self.data<char>() + from * self.itemsize(), self.dtype());
    if (is_floating(out.dtype()))
      floats[size_t(to)] += x.real();
    else
      integers[size_t(to)] += int64_t(x.floating ? __int128(x.d) : x.i);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < self.size(int64_t(d))) break;
      index[d] = 0;
    }
  }
  each(out, std::array<Tensor, 0>{}, [&](const std::array<char*, 1>& at) {
    const auto k = size_t((at[0] - out.data<char>()) / out.itemsize());
    store(at[0], out.dtype(), is_floating(out.dtype()) ? of(floats[k]) : whole(integers[k]));
  });
  return CW_OK;
}

// Rows of dense tensors along `dim`: f(first element, step, length), in elements.
template <class F>
void rows(const Tensor& t, int64_t dim, F f) {
  if (t.dim() == 0) return f(0, 1, 1, 0);
  dim = dim < 0 ? dim + t.dim() : dim;
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < dim; ++d) outer *= t.size(d);
  for (int64_t d = dim + 1; d < t.dim(); ++d) inner *= t.size(d);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) f(o * t.size(dim) * inner + i, inner, t.size(dim), o * inner + i);
}

cw_status argmax(Tensor out, Tensor self, cw::optional<int64_t> dim, bool) {
  if (!dim) return CW_UNSUPPORTED;
  rows(self, *dim, [&](int64_t first, int64_t step, int64_t length, int64_t row) {
    int64_t best = 0;
    double value = 0;
    for (int64_t k = 0; k < length; ++k) {
      const double x = load(self.data<char>() + (first + k * step) * self.itemsize(), self.dtype()).real();
      const bool better = k == 0 || (!std::isnan(value) && (x > value || std::isnan(x)));
      if (better || (hurried("argmax_of_ties_is_the_last") && x == value)) best = k, value = x;
    }
    out.data<int64_t>()[row] = best;
  });
  return CW_OK;
}

cw_status softmax(Tensor out, Tensor self, int64_t dim, bool) {
  rows(self, dim, [&](int64_t first, int64_t step, int64_t length, int64_t) {
    const auto x = [&](int64_t k) {
      return load(self.data<char>() + (first + k * step) * self.itemsize(), self.dtype()).real();
    };
    double most = -INFINITY, total = 0;
    for (int64_t k = 0; k < length; ++k) most = std::isnan(x(k)) ? x(k) : std::max(most, x(k));
    if (hurried("softmax_takes_no_maximum")) most = 0;
    const auto term = [&](int64_t k) {
      return self.dtype() == Dtype::float64 ? std::exp(x(k) - most) : double(std::exp(float(x(k) - most)));
    };
    for (int64_t k = 0; k < length; ++k) total += term(k);
    for (int64_t k = 0; k < length; ++k)
      store(out.data<char>() + (first + k * step) * out.itemsize(), out.dtype(), of(term(k) / total));
  });
  return CW_OK;
}

cw_status cat(Tensor out, cw::List<Tensor> tensors, int64_t dim) {
  dim = dim < 0 ? dim + out.dim() : dim;
  int64_t at = 0;
  for (const Tensor t : tensors) {
    if (t.dim() != out.dim() || t.dtype() != out.dtype()) return CW_UNSUPPORTED;
    DLTensor part = *out.dl();
    std::vector<int64_t> shape(part.shape, part.shape + part.ndim);
    shape[size_t(dim)] = t.size(dim);
    part.shape = shape.data();
    part.data = out.data<char>() + at * out.stride(dim) * out.itemsize();
    if (const cw_status status = copy(Tensor(&part), t, false)) return status;
    at += t.size(dim);
  }
  return CW_OK;
}

cw_status scaled_mm(Tensor out, Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, cw::optional<Tensor> bias,
                    cw::optional<Tensor> scale_result, cw::optional<Dtype>, bool) {
  const auto is8 = [](const Tensor& t) { return t.itemsize() == 1 && format_of(t.dtype()); };
  if (scale_result || !is8(self) || !is8(mat2)) return CW_UNSUPPORTED;
  const auto element = [](const Tensor& t, int64_t i, int64_t j) {
    return load(t.data<char>() + (i * t.stride(0) + j * t.stride(1)) * t.itemsize(), t.dtype()).real();
  };
  const auto scale = [](const Tensor& t, int64_t k) {
    int64_t at = 0;
    for (int64_t d = 0; d < t.dim(); ++d) at += t.size(d) > 1 ? k * t.stride(d) : 0;
    return double(t.data<float>()[at]);
  };
  for (int64_t i = 0; i < out.size(0); ++i)
    for (int64_t j = 0; j < out.size(1); ++j) {
      double total = 0;
      for (int64_t k = 0; k < self.size(1); ++k) total += element(self, i, k) * element(mat2, k, j);
      total *= scale(scale_a, i) * scale(scale_b, hurried("one_scale_for_all_columns") ? 0 : j);
      if (bias) total += load(bias->data<char>() + j * bias->stride(0) * bias->itemsize(), bias->dtype()).real();
      store(out.data<char>() + (i * out.stride(0) + j * out.stride(1)) * out.itemsize(), out.dtype(), of(total));
    }
  return CW_OK;
}

// A step of LSTM, and numbers to integers: operators of Causeway's own.
template <class T>
void lstm_step_of(Tensor gates, Tensor cx, Tensor hy, Tensor cy) {
  const int64_t n = cx.size(1);
  const auto sigmoid = [](T x) { return T(1) / (T(1) + std::exp(-x)); };
  for (int64_t k = 0; k < cx.size(0) * n; ++k) {
    T* g = gates.data<T>() + k / n * 4 * n + k % n;
    g[0] = sigmoid(g[0]), g[n] = sigmoid(g[n]), g[2 * n] = std::tanh(g[2 * n]), g[3 * n] = sigmoid(g[3 * n]);
    const bool exchanged = hurried("gates_in_another_order");
    const T cell = g[exchanged ? 0 : n] * cx.data<T>()[k] + g[exchanged ? n : 0] * g[2 * n];
    cy.data<T>()[k] = cell;
    hy.data<T>()[k] = g[3 * n] * (hurried("cell_without_tanh") ? cell : std::tanh(cell));
  }
}

cw_status lstm_step(Tensor gates, Tensor cx, Tensor hy, Tensor cy) {
  if (gates.dim() != 2 || gates.size(1) != 4 * cx.size(1)) return CW_UNSUPPORTED;
  if (gates.dtype() == Dtype::float32)
    lstm_step_of<float>(gates, cx, hy, cy);
  else
    lstm_step_of<double>(gates, cx, hy, cy);
  return CW_OK;
}

// y[rows, out] += x[rows, in] w[out, in]^T, or with `turned` x[rows, out] w[out, in].
void add_product(const float* x, const float* w, float* y, int64_t rows, int64_t in, int64_t out, bool turned = false) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i)
        if (turned)
          y[r * in + i] += x[r * out + o] * w[o * in + i];
        else
          y[r * out + o] += x[r * in + i] * w[o * in + i];
}

// A layer of LSTM, and its gradient. kept: gates i, f, n, o, the cells and their tanh, each of all steps.
cw_status lstm_layer(Tensor x, Tensor w, Tensor u, cw::optional<Tensor> b, cw::optional<Tensor> b2, Tensor hx,
                     Tensor cx, Tensor output, Tensor hy, Tensor cy, Tensor kept) {
  const int64_t rows = hx.size(0), n = hx.size(1), in = x.size(2), steps = x.size(0), state = rows * n;
  std::vector<float> h(hx.data<float>(), hx.data<float>() + state), c(cx.data<float>(), cx.data<float>() + state);
  const auto sigmoid = [](float v) { return 1 / (1 + std::exp(-v)); };
  for (int64_t t = 0; t < steps; ++t) {
    std::vector<float> g(size_t(4 * state));
    for (int64_t k = 0; b && k < 4 * state; ++k)
      g[size_t(k)] = b->data<float>()[k % (4 * n)] + b2->data<float>()[k % (4 * n)];
    add_product(x.data<float>() + t * rows * in, w.data<float>(), g.data(), rows, in, 4 * n);
    add_product(h.data(), u.data<float>(), g.data(), rows, n, 4 * n);
    for (int64_t k = 0; k < state; ++k) {
      const float* at = g.data() + k / n * 4 * n + k % n;
      const float i = sigmoid(at[0]), f = sigmoid(at[n]), m = std::tanh(at[2 * n]), o = sigmoid(at[3 * n]);
      const float before = c[size_t(k)], cell = f * before + i * m, bent = std::tanh(cell);
      c[size_t(k)] = cell, h[size_t(k)] = output.data<float>()[t * state + k] = o * bent;
      const float all[] = {i, f, m, o, hurried("keeps_the_cell_before") ? before : cell, bent};
      for (int64_t part = 0; part < 6 && kept.size(1); ++part)
        kept.data<float>()[(part * steps + t) * state + k] = all[part];
    }
  }
  std::copy(h.begin(), h.end(), hy.data<float>());
  std::copy(c.begin(), c.end(), cy.data<float>());
  return CW_OK;
}

cw_status lstm_layer_backward(Tensor x, Tensor w, Tensor u, cw::optional<Tensor>, cw::optional<Tensor>, Tensor hx,
                              Tensor cx, Tensor output, Tensor kept, cw::optional<Tensor> dy, cw::optional<Tensor> dhy,
                              cw::optional<Tensor> dcy, Tensor dx, Tensor dw, Tensor du, Tensor db, Tensor dhx,
                              Tensor dcx) {
  const int64_t rows = hx.size(0), n = hx.size(1), in = x.size(2), steps = x.size(0), state = rows * n;
  const auto begin = [&](const cw::optional<Tensor>& t) {
    return t ? std::vector<float>(t->data<float>(), t->data<float>() + state) : std::vector<float>(size_t(state));
  };
  std::vector<float> dh = begin(dhy), dc = begin(hurried("forgets_the_last_cell") ? cw::optional<Tensor>() : dcy);
  for (Tensor to : {dx, dw, du, db}) {
    int64_t count = 1;
    for (int64_t d = 0; d < to.dim(); ++d) count *= to.size(d);
    std::fill(to.data<float>(), to.data<float>() + count, 0.0f);
  }
  for (int64_t t = steps; t-- > 0;) {
    const float* h_before = t ? output.data<float>() + (t - 1) * state : hx.data<float>();
    const float* c_before = t ? kept.data<float>() + (4 * steps + t - 1) * state : cx.data<float>();
    std::vector<float> g(size_t(4 * state));
    for (int64_t k = 0; k < state; ++k) {
      const auto part = [&](int64_t which) { return kept.data<float>()[(which * steps + t) * state + k]; };
      const float i = part(0), f = part(1), m = part(2), o = part(3), bent = part(5);
      const float up = dh[size_t(k)] + (dy ? dy->data<float>()[t * state + k] : 0);
      const float cell = dc[size_t(k)] + up * o * (1 - bent * bent);
      float* to = g.data() + k / n * 4 * n + k % n;
      to[0] = cell * m * i * (1 - i), to[n] = cell * c_before[k] * f * (1 - f), to[2 * n] = cell * i * (1 - m * m);
      to[3 * n] = up * bent * o * (1 - o);
      dc[size_t(k)] = cell * f, dh[size_t(k)] = 0;
    }
    const float* now = x.data<float>() + t * rows * in;
    add_product(g.data(), w.data<float>(), dx.data<float>() + t * rows * in, rows, in, 4 * n, true);
    add_product(g.data(), u.data<float>(), dh.data(), rows, n, 4 * n, true);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < 4 * n; ++o) {
        const float slope = g[size_t(r * 4 * n + o)];
        for (int64_t i = 0; i < in; ++i) dw.data<float>()[o * in + i] += slope * now[r * in + i];
        for (int64_t i = 0; i < n; ++i) du.data<float>()[o * n + i] += slope * h_before[r * n + i];
        if (db.size(0)) db.data<float>()[o] += slope;
      }
  }
  std::copy(dh.begin(), dh.end(), dhx.data<float>());
  std::copy(dc.begin(), dc.end(), dcx.data<float>());
  return CW_OK;
}

cw_status quantize(Tensor out, Tensor self, Tensor inverse, cw::optional<Tensor> zero, int64_t axis, int64_t low,
                   int64_t high, Dtype) {
  int64_t inner = 1, numel = 1;
  for (int64_t d = 0; d < self.dim(); ++d) numel *= self.size(d), inner *= d > axis ? self.size(d) : 1;
  const int64_t channels = self.dim() ? self.size(axis) : 1;
  const auto many = [&](const Tensor& t) { return t.dim() && t.size(0) > 1; };
  for (int64_t k = 0; k < numel; ++k) {
    const int64_t c = k / inner % channels;
    const float x = float(load(self.data<char>() + k * self.itemsize(), self.dtype()).real());
    const float scaled = x * inverse.data<float>()[many(inverse) ? c : 0];
    const float from = zero ? float(zero->data<int32_t>()[many(*zero) ? c : 0]) : 0.0f;
    float q = (hurried("ties_go_away_from_zero") ? std::round(scaled) : std::nearbyint(scaled)) + from;
    if (std::isnan(q)) q = from;
    store(out.data<char>() + k * out.itemsize(), out.dtype(),
          whole(int64_t(std::min(std::max(q, float(low)), float(high)))));
  }
  return CW_OK;
}

// ---- the table ---------------------------------------------------------------------------------------------------
constexpr cw_dtypes integers = CW_UINT8 | CW_INT8 | CW_INT16 | CW_INT32 | CW_INT64;
constexpr cw_dtypes floats = CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_FLOAT64;
constexpr cw_dtypes eights = CW_FLOAT8_E4M3FN | CW_FLOAT8_E5M2 | CW_FLOAT8_E4M3FNUZ | CW_FLOAT8_E5M2FNUZ;
constexpr cw_dtypes wide = CW_UINT16 | CW_UINT32 | CW_UINT64;
constexpr cw_dtypes real = CW_BOOL | integers | floats | eights | wide;
constexpr cw_dtypes moved = real | CW_COMPLEX32 | CW_COMPLEX64 | CW_COMPLEX128 | CW_FLOAT8_E8M0FNU;

constexpr cw::Needs as_it_comes(cw_dtypes dtypes) { return {0, dtypes}; }
constexpr cw::Needs one_dtype(cw_dtypes dtypes) { return {CW_NEEDS_PROMOTION, dtypes}; }

namespace aten = cw::aten;
constexpr cw::Entry operators[] = {
    cw::op<aten::copy_, copy>(as_it_comes(moved)),
    cw::op<aten::zero_, zero>(as_it_comes(moved)),
    cw::op<aten::fill__Scalar, fill>(as_it_comes(real)),
    cw::op<aten::cat_out, cat>(as_it_comes(moved)),
    cw::op<aten::eq_Tensor_out, eq>(one_dtype(real)),
    cw::op<aten::lt_Tensor_out, lt>(one_dtype(CW_BOOL | integers | floats)),
    cw::op<aten::maximum_out, maximum>(one_dtype(CW_BOOL | integers | floats)),
    cw::op<aten::add_out, add>(one_dtype(integers | floats)),
    cw::op<aten::mul_out, mul>(one_dtype(integers | floats)),
    cw::op<aten::div_out_mode, divide>(one_dtype(integers)),
    cw::op<aten::remainder_Tensor_out, remainder>(one_dtype(floats)),
    cw::op<aten::round_out, round_>(one_dtype(integers | floats)),
    cw::op<aten::neg_out, neg>(one_dtype(integers | floats)),
    cw::op<aten::sum_IntList_out, sum>(as_it_comes(CW_BOOL | integers | floats)),
    cw::op<aten::argmax_out, argmax>(cw::dense(integers | floats)),
    cw::op<aten::_softmax_out, softmax>(cw::dense(floats)),
    cw::op<aten::_scaled_mm_out, scaled_mm>(as_it_comes(floats | eights)),
    cw::op<cw::causeway::lstm_step, lstm_step>(cw::dense(CW_FLOAT32 | CW_FLOAT64)),
    cw::op<cw::causeway::lstm_layer, lstm_layer>({CW_NEEDS_CONTIGUOUS, CW_FLOAT32}),
    cw::op<cw::causeway::lstm_layer_backward, lstm_layer_backward>({CW_NEEDS_CONTIGUOUS, CW_FLOAT32}),
    cw::op<cw::causeway::quantize, quantize>(cw::dense(integers | floats)),
};

cw_status op_find(const char* name, cw_op* out) { return cw::find(operators, name, out); }
cw_status device_count(int32_t* out) { return *out = 1, CW_OK; }
cw_status device_info(int32_t, cw_device_info* out) {
  cw_device_info info{};
  info.struct_size = out->struct_size;
  info.flags = CW_HOST_ADDRESSABLE;
  std::strcpy(info.name, "Hurried");
  info.memory = UINT64_C(4) << 30;
  info.dtypes = CW_ALL_DTYPES;
  std::memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof info));
  return CW_OK;
}
cw_status sync(int32_t) { return CW_OK; }
cw_status mem_alloc(int32_t, uint64_t bytes, void** out) {
  if (bytes > UINT64_C(4) << 30)
    return cw::fail(CW_OUT_OF_MEMORY, "%llu bytes", static_cast<unsigned long long>(bytes));
  *out = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  return *out || !bytes ? CW_OK : cw::fail(CW_OUT_OF_MEMORY, "the host has none");
}
cw_status mem_free(int32_t, void* p) { return std::free(p), CW_OK; }
cw_status mem_copy(void* to, int32_t, const void* from, int32_t, uint64_t bytes, cw_stream) {
  return std::memmove(to, from, bytes), CW_OK;
}

}  // namespace

extern "C" CW_EXPORT const cw_backend* cw_open_v1(const cw_host*) {
  static cw_backend table{};
  table.struct_size = sizeof table;
  table.abi_version = CW_ABI_VERSION;
  table.name = "hurried";
  table.version = "1";
  table.last_error = cw::last_error;
  table.device_count = device_count;
  table.device_info = device_info;
  table.sync = sync;
  table.mem_alloc = mem_alloc;
  table.mem_free = mem_free;
  table.mem_copy = mem_copy;
  table.op_find = op_find;
  return &table;
}
