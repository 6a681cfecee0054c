// Tensors, scalars and lists as aclnn's functions get them, and the values behind them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../core.hpp"

using Dims = std::vector<int64_t>;

enum Dtype {
  kFloat = 0,
  kHalf = 1,
  kInt8 = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 6,
  kUint16 = 7,
  kUint32 = 8,
  kInt64 = 9,
  kUint64 = 10,
  kDouble = 11,
  kBool = 12,
  kComplex64 = 16,
  kComplex128 = 17,
  kBfloat16 = 27,
};

struct aclTensor {
  void* data;
  int dtype;
  Dims shape, stride;
  int64_t offset;
  int format;
  Dims storage;
};
// A number: whole or not, as its dtype.
struct aclScalar {
  int dtype;
  int64_t whole;
  double real;
};
struct aclIntArray {
  Dims values;
};
struct aclBoolArray {
  std::vector<char> values;
};
struct aclFloatArray {
  std::vector<float> values;
};
struct aclTensorList {
  std::vector<const aclTensor*> tensors;
};
struct aclScalarList {
  std::vector<const aclScalar*> scalars;
};

// The names that the operators' declarations are written with.
using T = const aclTensor*;
using O = aclTensor*;
using S = const aclScalar*;
using I = const aclIntArray*;
using B = const aclBoolArray*;
using L = const aclTensorList*;
using SL = const aclScalarList*;
using i64 = int64_t;
using i8 = int8_t;
using Chars = const char*;

namespace ops {

size_t size_of(int dtype);
const char* name_of(int dtype);
bool is_float(int dtype);
inline bool is_whole(int dtype) { return !is_float(dtype) && dtype < kComplex64; }
int64_t count(const Dims& shape);
std::string text_of(const Dims& shape);
Dims row_major(const Dims& shape);
// The dtype that an operation of both has, as torch has it for tensors.
int promoted(int a, int b);

// Phase one refuses by throwing this: nothing of the operator runs.
struct Refusal : std::runtime_error {
  int code;
  Refusal(int code, const std::string& what) : std::runtime_error(what), code(code) {}
};
[[noreturn]] void reject(const char* format, ...) __attribute__((format(printf, 1, 2)));
// And the work itself by this: a failure on the device.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A tensor by value: who called may destroy his when phase two has returned.
struct View {
  size_t slot = 0;  // Which of the executor's addresses.
  int dtype = kFloat;
  Dims shape, stride;
  int64_t offset = 0;
  size_t storage = 0;
  bool given = false;

  explicit operator bool() const { return given; }
  int64_t numel() const { return count(shape); }
  int64_t rank() const { return int64_t(shape.size()); }
  int64_t dim(int64_t d) const { return shape[size_t(axis(d))]; }
  int64_t axis(int64_t d) const;  // 0 of what has none
  int64_t own_axis(int64_t d) const;  // which refuses what has none
  // The same elements, seen with another order of dimensions.
  View permuted(const std::vector<int64_t>& order) const;
  // The dimension last.
  View moved(int64_t d) const;
  View expanded(const Dims& shape) const;
};

// The addresses of the operator whose work this thread does.
extern thread_local const std::vector<char*>* addresses_of_work;
// ASCEND_STAND_IN_WRONG=aclnnX: a wrong result on purpose, for tests of who compares.
extern thread_local bool wrong_work;

View view_of(T tensor, const char* what);
View view_or_none(T tensor);

uint16_t half_bits(float value);
// In saturation: the nearest number that FLOAT16 has, and 0 for NaN.
float within_half(float value);
float half_value(uint16_t bits);
uint16_t bfloat_bits(float value);
float bfloat_value(uint16_t bits);

// The elements in the order of their indices, as double or as int64.
template <class V>
std::vector<V> load(const View& view);
template <class V>
std::vector<V> load(const View& view, const Dims& shape) {
  return load<V>(view.expanded(shape));
}
// Writes them, rounded to the tensor's dtype, and what a chip may write behind the storage.
template <class V>
void store(const View& view, const std::vector<V>& values);

template <class V>
V value_of(const aclScalar& scalar) {
  if constexpr (std::is_same_v<V, double>)
    return scalar.real;
  else
    return scalar.whole;
}

}  // namespace ops
