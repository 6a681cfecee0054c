#include "tensor.hpp"

#include <mutex>

namespace {

std::string& words() {
  static thread_local std::string kept;
  return kept;
}

// Halves by hand: to the nearest, ties to even.
float from_half(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  const float sign = h & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(static_cast<float>(fraction | 1024), exponent - 25)
                          : std::ldexp(static_cast<float>(fraction), -24));
}
uint16_t to_half(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7e00;
  x = std::fabs(x);
  if (x >= 65520) return sign | 0x7c00;
  if (x == 0) return sign;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent - 11, -24);  // the last place is 2^unit
  const auto places = static_cast<int>(std::nearbyint(std::ldexp(x, -unit)));
  // The implicit bit adds one to the exponent's field.
  return static_cast<uint16_t>(sign | (places + ((unit + 24) << 10)));
}
float from_bfloat(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float x;
  return memcpy(&x, &bits, 4), x;
}
uint16_t to_bfloat(double wide) {
  const auto x = static_cast<float>(wide);
  if (std::isnan(x)) return 0x7fc0;
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T>
T at(const void* data, int64_t i, diopiDtype_t dtype) {
  switch (dtype) {
    case diopi_dtype_bool:
    case diopi_dtype_uint8:
      return static_cast<T>(static_cast<const uint8_t*>(data)[i]);
    case diopi_dtype_int8:
      return static_cast<T>(static_cast<const int8_t*>(data)[i]);
    case diopi_dtype_int16:
      return static_cast<T>(static_cast<const int16_t*>(data)[i]);
    case diopi_dtype_int32:
      return static_cast<T>(static_cast<const int32_t*>(data)[i]);
    case diopi_dtype_int64:
      return static_cast<T>(static_cast<const int64_t*>(data)[i]);
    case diopi_dtype_float16:
      return static_cast<T>(from_half(static_cast<const uint16_t*>(data)[i]));
    case diopi_dtype_bfloat16:
      return static_cast<T>(from_bfloat(static_cast<const uint16_t*>(data)[i]));
    case diopi_dtype_float32:
      return static_cast<T>(static_cast<const float*>(data)[i]);
    case diopi_dtype_float64:
      return static_cast<T>(static_cast<const double*>(data)[i]);
    default:
      throw Refused{diopiDtypeNotSupported};
  }
}

template <class T>
void put(void* data, int64_t i, diopiDtype_t dtype, T x) {
  switch (dtype) {
    case diopi_dtype_bool:
      static_cast<uint8_t*>(data)[i] = x != T(0);
      return;
    case diopi_dtype_uint8:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(static_cast<int64_t>(x));
      return;
    case diopi_dtype_int8:
      static_cast<int8_t*>(data)[i] = static_cast<int8_t>(static_cast<int64_t>(x));
      return;
    case diopi_dtype_int16:
      static_cast<int16_t*>(data)[i] = static_cast<int16_t>(static_cast<int64_t>(x));
      return;
    case diopi_dtype_int32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(static_cast<int64_t>(x));
      return;
    case diopi_dtype_int64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(x);
      return;
    case diopi_dtype_float16:
      static_cast<uint16_t*>(data)[i] = to_half(static_cast<double>(x));
      return;
    case diopi_dtype_bfloat16:
      static_cast<uint16_t*>(data)[i] = to_bfloat(static_cast<double>(x));
      return;
    case diopi_dtype_float32:
      static_cast<float*>(data)[i] = static_cast<float>(x);
      return;
    case diopi_dtype_float64:
      static_cast<double*>(data)[i] = static_cast<double>(x);
      return;
    default:
      throw Refused{diopiDtypeNotSupported};
  }
}

Shape strides_of(In t) {
  diopiSize_t strides;
  diopiGetTensorStride(t, &strides);
  return list(strides);
}

// f(offset) for each element of `shape` in order.
template <class F>
void walk(const Shape& shape, const Shape& strides, F f) {
  Shape place(shape.size(), 0);
  int64_t offset = 0;
  for (int64_t left = count(shape); left > 0; --left) {
    f(offset);
    for (size_t d = shape.size(); d-- > 0;) {
      offset += strides[d];
      if (++place[d] < shape[d]) break;
      offset -= strides[d] * shape[d], place[d] = 0;
    }
  }
}

}  // namespace

void set_words(const std::string& text) { words() = text; }

extern "C" const char* diopiGetLastErrorString() { return words().c_str(); }
extern "C" const char* diopiGetVendorName() { return "Plain C++"; }
extern "C" const char* diopiGetImplVersion() { return "1.0"; }

Shape shape_of(In t) {
  diopiSize_t size;
  diopiGetTensorShape(t, &size);
  return list(size);
}

diopiDtype_t dtype_of(In t) {
  diopiDtype_t dtype;
  diopiGetTensorDtype(t, &dtype);
  return dtype;
}

int64_t count(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

bool is_whole(In t) {
  switch (dtype_of(t)) {
    case diopi_dtype_bool:
    case diopi_dtype_uint8:
    case diopi_dtype_int8:
    case diopi_dtype_int16:
    case diopi_dtype_int32:
    case diopi_dtype_int64:
      return true;
    case diopi_dtype_float16:
    case diopi_dtype_bfloat16:
    case diopi_dtype_float32:
    case diopi_dtype_float64:
      return false;
    default:
      throw Refused{diopiDtypeNotSupported};
  }
}

template <class T>
Array<T> read(In t, const Shape& shape) {
  const Shape own = shape_of(t), own_strides = strides_of(t);
  check(own.size() <= shape.size(), "a tensor has more dimensions than it can be broadcast to");
  Shape strides(shape.size(), 0);
  const size_t more = shape.size() - own.size();
  for (size_t d = 0; d < own.size(); ++d) {
    check(own[d] == shape[more + d] || own[d] == 1, "shapes cannot be broadcast");
    if (own[d] != 1) strides[more + d] = own_strides[d];
  }
  const void* data = nullptr;
  diopiGetTensorDataConst(t, &data);
  const diopiDtype_t dtype = dtype_of(t);
  Array<T> values;
  values.reserve(static_cast<size_t>(count(shape)));
  walk(shape, strides, [&](int64_t offset) { values.push_back(at<T>(data, offset, dtype)); });
  return values;
}

template <class T>
Array<T> read(In t) {
  return read<T>(t, shape_of(t));
}

template <class T>
void write(Out t, const Array<T>& values) {
  const Shape shape = shape_of(t);
  check(count(shape) == static_cast<int64_t>(values.size()), "an output has another size than what was computed");
  void* data = nullptr;
  diopiGetTensorData(t, &data);
  const diopiDtype_t dtype = dtype_of(t);
  size_t i = 0;
  walk(shape, strides_of(t), [&](int64_t offset) { put<T>(data, offset, dtype, values[i++]); });
}

template Array<double> read(In);
template Array<int64_t> read(In);
template Array<double> read(In, const Shape&);
template Array<int64_t> read(In, const Shape&);
template void write(Out, const Array<double>&);
template void write(Out, const Array<int64_t>&);
