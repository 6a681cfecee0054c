#include "tensor.hpp"

#include <cstdarg>
#include <cstdio>

using namespace stand_in;

namespace ops {

thread_local const std::vector<char*>* addresses_of_work = nullptr;
thread_local bool wrong_work = false;

size_t size_of(int dtype) {
  switch (dtype) {
    case kInt8:
    case kUint8:
    case kBool:
      return 1;
    case kHalf:
    case kBfloat16:
    case kInt16:
    case kUint16:
      return 2;
    case kFloat:
    case kInt32:
    case kUint32:
      return 4;
    case kInt64:
    case kUint64:
    case kDouble:
    case kComplex64:
      return 8;
    case kComplex128:
      return 16;
    default:
      return 0;
  }
}

const char* name_of(int dtype) {
  switch (dtype) {
    case kFloat:
      return "FLOAT";
    case kHalf:
      return "FLOAT16";
    case kInt8:
      return "INT8";
    case kInt32:
      return "INT32";
    case kUint8:
      return "UINT8";
    case kInt16:
      return "INT16";
    case kUint16:
      return "UINT16";
    case kUint32:
      return "UINT32";
    case kInt64:
      return "INT64";
    case kUint64:
      return "UINT64";
    case kDouble:
      return "DOUBLE";
    case kBool:
      return "BOOL";
    case kComplex64:
      return "COMPLEX64";
    case kComplex128:
      return "COMPLEX128";
    case kBfloat16:
      return "BFLOAT16";
    default:
      return "of a dtype that the stand-in does not know";
  }
}

bool is_float(int dtype) { return dtype == kFloat || dtype == kHalf || dtype == kBfloat16 || dtype == kDouble; }

int64_t count(const Dims& shape) {
  int64_t all = 1;
  for (int64_t size : shape) all *= size;
  return all;
}

std::string text_of(const Dims& shape) {
  std::string all = "[";
  for (size_t i = 0; i < shape.size(); ++i) all += (i ? ", " : "") + std::to_string(shape[i]);
  return all + "]";
}

Dims row_major(const Dims& shape) {
  Dims stride(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i--;) {
    stride[i] = step;
    step *= shape[i];
  }
  return stride;
}

int promoted(int a, int b) {
  if (a == b) return a;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_float(a)) {
    if (a == kDouble || b == kDouble) return kDouble;
    return kFloat;  // Also of the two halves.
  }
  static const int order[] = {kBool, kUint8, kInt8, kInt16, kUint16, kInt32, kUint32, kInt64, kUint64};
  int first = 0, second = 0;
  for (int i = 0; i < 9; ++i) {
    if (order[i] == a) first = i;
    if (order[i] == b) second = i;
  }
  if (first + second == 3 && first && second) return kInt16;  // int8 and uint8.
  return order[first > second ? first : second];
}

void reject(const char* format, ...) {
  char buffer[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(buffer, sizeof buffer, format, values);
  va_end(values);
  throw Refusal(161002, buffer);
}

int64_t View::axis(int64_t d) const {
  int64_t ranks = rank() ? rank() : 1;
  if (d < -ranks || d >= ranks) reject("dimension %ld, the tensor has %ld", long(d), long(rank()));
  return d < 0 ? d + ranks : d;
}

int64_t View::own_axis(int64_t d) const {
  if (!rank()) reject("dimension %ld of a tensor that has none", long(d));
  return axis(d);
}

View View::permuted(const std::vector<int64_t>& order) const {
  View other = *this;
  for (size_t i = 0; i < order.size(); ++i) {
    other.shape[i] = shape[size_t(order[i])];
    other.stride[i] = stride[size_t(order[i])];
  }
  return other;
}

View View::moved(int64_t d) const {
  if (shape.empty()) {
    View other = *this;
    other.shape = {1};
    other.stride = {1};
    return other;
  }
  d = axis(d);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rank(); ++i)
    if (i != d) order.push_back(i);
  order.push_back(d);
  return permuted(order);
}

View View::expanded(const Dims& wanted) const {
  if (wanted == shape) return *this;
  View other = *this;
  if (wanted.size() < shape.size())
    reject("shape %s does not expand to %s", text_of(shape).c_str(), text_of(wanted).c_str());
  size_t skip = wanted.size() - shape.size();
  other.shape = wanted;
  other.stride.assign(wanted.size(), 0);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != wanted[skip + i] && shape[i] != 1)
      reject("shape %s does not expand to %s", text_of(shape).c_str(), text_of(wanted).c_str());
    other.stride[skip + i] = shape[i] == 1 ? 0 : stride[i];
  }
  return other;
}

View view_or_none(T tensor) {
  View view;
  if (!tensor) return view;
  view.dtype = tensor->dtype;
  view.shape = tensor->shape;
  view.stride = tensor->stride;
  view.offset = tensor->offset;
  view.storage = size_t(count(tensor->storage)) * size_of(tensor->dtype);
  view.given = true;
  if (view.shape.size() > 8) reject("a tensor of %zu dimensions, at most 8 are possible", view.shape.size());
  if (!size_of(view.dtype)) reject("dtype %d is not known", view.dtype);
  return view;
}

View view_of(T tensor, const char* what) {
  if (!tensor) throw Refusal(161001, std::string(what) + " is NULL");
  return view_or_none(tensor);
}

namespace {

// The real place of the first element, after a check that all are within one live block.
char* place(const View& view, const char* verb) {
  char* data = (*addresses_of_work)[view.slot];
  int64_t low = view.offset, high = view.offset;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    int64_t far = view.stride[i] * (view.shape[i] - 1);
    (far < 0 ? low : high) += far;
  }
  int64_t size = int64_t(size_of(view.dtype));
  char* start = resolve(data + low * size, size_t((high - low + 1) * size));
  if (!start)
    throw Broken(text("%s %ld bytes at %p, which are not in one live block of device memory", verb,
                      long((high - low + 1) * size), static_cast<void*>(data + low * size)));
  return start + (view.offset - low) * size;
}

// Calls each(place) for every element, in the order of the indices.
template <class Each>
void walk(const View& view, char* start, Each each) {
  int64_t size = int64_t(size_of(view.dtype));
  if (view.shape.empty()) return each(start);
  size_t last = view.shape.size() - 1;
  Dims at(view.shape.size());
  char* here = start;
  for (;;) {
    char* element = here;
    for (int64_t i = 0; i < view.shape[last]; ++i, element += view.stride[last] * size) each(element);
    size_t d = last;
    for (;;) {
      if (!d) return;
      --d;
      here += view.stride[d] * size;
      if (++at[d] < view.shape[d]) break;
      here -= view.stride[d] * view.shape[d] * size;
      at[d] = 0;
    }
  }
}

template <class Raw>
Raw raw(const char* place) {
  Raw value;
  memcpy(&value, place, sizeof value);
  return value;
}

template <class Raw, class V>
void put(char* place, V value) {
  Raw narrow = static_cast<Raw>(value);
  memcpy(place, &narrow, sizeof narrow);
}

}  // namespace

template <class V>
std::vector<V> load(const View& view) {
  std::vector<V> values;
  if (!view.numel()) return values;
  values.reserve(size_t(view.numel()));
  char* start = place(view, "reads");
  auto all = [&](auto read) { walk(view, start, [&](const char* at) { values.push_back(V(read(at))); }); };
  switch (view.dtype) {
    case kFloat:
      all(raw<float>);
      break;
    case kHalf:
      all([](const char* at) { return half_value(raw<uint16_t>(at)); });
      break;
    case kBfloat16:
      all([](const char* at) { return bfloat_value(raw<uint16_t>(at)); });
      break;
    case kDouble:
      all(raw<double>);
      break;
    case kInt8:
      all(raw<int8_t>);
      break;
    case kUint8:
      all(raw<uint8_t>);
      break;
    case kInt16:
      all(raw<int16_t>);
      break;
    case kUint16:
      all(raw<uint16_t>);
      break;
    case kInt32:
      all(raw<int32_t>);
      break;
    case kUint32:
      all(raw<uint32_t>);
      break;
    case kInt64:
      all(raw<int64_t>);
      break;
    case kUint64:
      all(raw<uint64_t>);
      break;
    case kBool:
      all([](const char* at) { return raw<uint8_t>(at) != 0; });
      break;
    default:
      throw Broken(text("reads %s", name_of(view.dtype)));
  }
  return values;
}

template <class V>
void store(const View& view, const std::vector<V>& values) {
  if (int64_t(values.size()) != view.numel())
    throw Broken(text("writes %zu elements into a tensor of shape %s", values.size(), text_of(view.shape).c_str()));
  if (values.empty()) return;
  if (wrong_work) {
    wrong_work = false;
    std::vector<V> wrong = values;
    wrong[0] += V(view.dtype == kInt16 ? 257 : 1);  // as the bits of a float of two bytes it is no rounding
    return store(view, wrong);
  }
  char* start = place(view, "writes");
  const V* next = values.data();
  auto all = [&](auto write) { walk(view, start, [&](char* at) { write(at, *next++); }); };
  // As a cast of a float to a whole number: outside its range the result is not defined, so by way of int64.
  auto whole = [](V value) {
    if constexpr (std::is_same_v<V, double>)
      return std::isnan(value)  ? int64_t(0)
             : value >= 9.2e18  ? INT64_MAX
             : value <= -9.2e18 ? INT64_MIN
                                : int64_t(value);
    else
      return value;
  };
  switch (view.dtype) {
    case kFloat:
      all(put<float, V>);
      break;
    case kHalf:
      if (stand_in::saturates())
        all([](char* at, V value) { put<uint16_t>(at, half_bits(within_half(float(value)))); });
      else
        all([](char* at, V value) { put<uint16_t>(at, half_bits(float(value))); });
      break;
    case kBfloat16:
      all([](char* at, V value) { put<uint16_t>(at, bfloat_bits(float(value))); });
      break;
    case kDouble:
      all(put<double, V>);
      break;
    case kInt8:
    case kUint8:
      all([&](char* at, V value) { put<uint8_t>(at, whole(value)); });
      break;
    case kInt16:
    case kUint16:
      all([&](char* at, V value) { put<uint16_t>(at, whole(value)); });
      break;
    case kInt32:
    case kUint32:
      all([&](char* at, V value) { put<uint32_t>(at, whole(value)); });
      break;
    case kInt64:
    case kUint64:
      all([&](char* at, V value) { put<int64_t>(at, whole(value)); });
      break;
    case kBool:
      all([](char* at, V value) { put<uint8_t>(at, value != V(0)); });
      break;
    default:
      throw Broken(text("writes %s", name_of(view.dtype)));
  }
  spill((*addresses_of_work)[view.slot], view.storage);
}

template std::vector<double> load(const View&);
template std::vector<int64_t> load(const View&);
template void store(const View&, const std::vector<double>&);
template void store(const View&, const std::vector<int64_t>&);

}  // namespace ops

using namespace ops;

ENTRY aclTensor* aclCreateTensor(const int64_t* shape, uint64_t rank, int dtype, const int64_t* stride, int64_t offset,
                                 int format, const int64_t* storage, uint64_t storage_rank, void* data) {
  CALL_ONLY();
  auto* tensor = new aclTensor{data, dtype, Dims(shape, shape + rank), {}, offset, format, {}};
  tensor->stride = stride ? Dims(stride, stride + rank) : row_major(tensor->shape);
  if (storage)
    tensor->storage.assign(storage, storage + storage_rank);
  else
    tensor->storage = tensor->shape;
  return tensor;
}

ENTRY aclScalar* aclCreateScalar(const void* value, int dtype) {
  CALL_ONLY();
  if (!value) return nullptr;
  auto* scalar = new aclScalar{dtype, 0, 0};
  auto whole = [&](int64_t number) {
    scalar->whole = number;
    scalar->real = double(number);
  };
  auto real = [&](double number) {
    scalar->real = number;
    scalar->whole = std::isfinite(number) ? int64_t(number) : 0;
  };
  const char* at = static_cast<const char*>(value);
  switch (dtype) {
    case kFloat:
      real(double(raw<float>(at)));
      break;
    case kDouble:
      real(raw<double>(at));
      break;
    case kHalf:
      real(double(half_value(raw<uint16_t>(at))));
      break;
    case kBfloat16:
      real(double(bfloat_value(raw<uint16_t>(at))));
      break;
    case kInt8:
      whole(raw<int8_t>(at));
      break;
    case kUint8:
      whole(raw<uint8_t>(at));
      break;
    case kInt16:
      whole(raw<int16_t>(at));
      break;
    case kInt32:
      whole(raw<int32_t>(at));
      break;
    case kInt64:
      whole(raw<int64_t>(at));
      break;
    case kBool:
      whole(raw<uint8_t>(at) != 0);
      break;
    default:
      delete scalar;
      refuse(161002, "aclCreateScalar: %s", name_of(dtype));
      return nullptr;
  }
  return scalar;
}

ENTRY aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t size) {
  CALL_ONLY();
  return new aclIntArray{Dims(values, values + size)};
}
ENTRY aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t size) {
  CALL_ONLY();
  return new aclBoolArray{std::vector<char>(values, values + size)};
}
ENTRY aclFloatArray* aclCreateFloatArray(const float* values, uint64_t size) {
  CALL_ONLY();
  return new aclFloatArray{std::vector<float>(values, values + size)};
}
ENTRY aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t size) {
  CALL_ONLY();
  return new aclTensorList{std::vector<const aclTensor*>(tensors, tensors + size)};
}
ENTRY aclScalarList* aclCreateScalarList(const aclScalar* const* scalars, uint64_t size) {
  CALL_ONLY();
  return new aclScalarList{std::vector<const aclScalar*>(scalars, scalars + size)};
}

#define DESTROY(name, type)           \
  ENTRY int name(const type* which) { \
    CALL();                           \
    delete which;                     \
    return 0;                         \
  }
DESTROY(aclDestroyTensor, aclTensor)
DESTROY(aclDestroyScalar, aclScalar)
DESTROY(aclDestroyIntArray, aclIntArray)
DESTROY(aclDestroyBoolArray, aclBoolArray)
DESTROY(aclDestroyFloatArray, aclFloatArray)

// A list owns what it was made of.
ENTRY int aclDestroyTensorList(const aclTensorList* list) {
  CALL();
  if (list)
    for (const aclTensor* tensor : list->tensors) delete tensor;
  delete list;
  return 0;
}
ENTRY int aclDestroyScalarList(const aclScalarList* list) {
  CALL();
  if (list)
    for (const aclScalar* scalar : list->scalars) delete scalar;
  delete list;
  return 0;
}

// The caller frees what he gets by delete[].
ENTRY int aclGetViewShape(const aclTensor* tensor, int64_t** shape, uint64_t* rank) {
  CALL();
  if (!tensor || !shape || !rank) return refuse(161001, "aclGetViewShape: an argument is NULL");
  *rank = tensor->shape.size();
  *shape = new int64_t[tensor->shape.size() + 1];
  std::copy(tensor->shape.begin(), tensor->shape.end(), *shape);
  return 0;
}
ENTRY int aclGetViewStrides(const aclTensor* tensor, int64_t** stride, uint64_t* rank) {
  CALL();
  if (!tensor || !stride || !rank) return refuse(161001, "aclGetViewStrides: an argument is NULL");
  *rank = tensor->stride.size();
  *stride = new int64_t[tensor->stride.size() + 1];
  std::copy(tensor->stride.begin(), tensor->stride.end(), *stride);
  return 0;
}
ENTRY int aclGetDataType(const aclTensor* tensor, int* dtype) {
  CALL();
  *dtype = tensor->dtype;
  return 0;
}
ENTRY int aclGetFormat(const aclTensor* tensor, int* format) {
  CALL();
  *format = tensor->format;
  return 0;
}
ENTRY int aclGetRawTensorAddr(const aclTensor* tensor, void** data) {
  CALL();
  *data = tensor->data;
  return 0;
}
ENTRY int aclSetRawTensorAddr(aclTensor* tensor, void* data) {
  CALL();
  tensor->data = data;
  return 0;
}
