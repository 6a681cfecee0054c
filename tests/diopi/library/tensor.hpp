// A library of DIOPI's functions in plain C++ on the memory of the host, as its public headers ask for it. It knows nothing of
// who calls it: tensors come behind handles, and all that is known of them is asked by DIOPI's call-backs.
//
// What it models is meaning and not speed: a function reads its tensors into dense arrays, computes in double or int64, and
// writes the result.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <diopi/functions.h>

using Context = diopiContextHandle_t;
using Out = diopiTensorHandle_t;
using In = diopiConstTensorHandle_t;
using Number = const diopiScalar_t*;
using Shape = std::vector<int64_t>;
template <class T>
using Array = std::vector<T>;

struct Refused {
  diopiError_t result;
};

void set_words(const std::string& words);

// A function's body: what it throws ends here.
template <class F>
diopiError_t body(F f) {
  try {
    f();
    return diopiSuccess;
  } catch (const Refused& refused) {
    return refused.result;
  } catch (const std::exception& e) {
    return set_words(e.what()), diopiErrorOccurred;
  }
}

inline void check(bool right, const char* words) {
  if (!right) throw std::runtime_error(words);
}

// ---- what is asked of a tensor ---------------------------------------------------------------------------------------
Shape shape_of(In t);
diopiDtype_t dtype_of(In t);
inline int64_t ndim_of(In t) { return static_cast<int64_t>(shape_of(t).size()); }
int64_t count(const Shape& shape);
inline int64_t numel(In t) { return count(shape_of(t)); }

// Whether it counts in int64 here (bool too) or in double; others are refused.
bool is_whole(In t);

// f(double{}) or f(int64_t{}): how the tensor counts.
template <class F>
void by_kind(In t, F f) {
  is_whole(t) ? f(int64_t{}) : f(double{});
}
template <class F>
void by_kind(In a, In b, F f) {
  is_whole(a) && is_whole(b) ? f(int64_t{}) : f(double{});
}

// All elements, dense and in order; with a shape: broadcast to it.
template <class T>
Array<T> read(In t);
template <class T>
Array<T> read(In t, const Shape& shape);
template <class T>
void write(Out t, const Array<T>& values);

template <class T>
T number(Number s) {
  return s->stype == diopi_dtype_float64 || s->stype == diopi_dtype_float32 ? static_cast<T>(s->fval)
                                                                            : static_cast<T>(s->ival);
}

inline Shape list(diopiSize_t ints) { return Shape(ints.data, ints.data + ints.len); }

// A shape as outer x dim x inner, around one dimension.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
  Around(const Shape& shape, int64_t dim) {
    for (size_t d = 0; d < shape.size(); ++d)
      (static_cast<int64_t>(d) < dim ? outer : static_cast<int64_t>(d) == dim ? size : inner) *= shape[d];
  }
  int64_t at(int64_t o, int64_t i, int64_t k) const { return (o * size + i) * inner + k; }
};
