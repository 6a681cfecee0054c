// Sums, extremes, orders, softmax, products of matrices.
#include <algorithm>
#include <numeric>

#include "tensor.hpp"

namespace {

// The place of each element in a result without these dimensions; `size` of a result.
Array<int64_t> places(const Shape& shape, const Shape& dims, int64_t* size) {
  Array<bool> gone(shape.size());
  for (const int64_t d : dims)
    if (d < static_cast<int64_t>(shape.size())) gone[static_cast<size_t>(d)] = true;
  Shape strides(shape.size(), 0);
  *size = 1;
  for (size_t d = shape.size(); d-- > 0;)
    if (!gone[d]) strides[d] = *size, *size *= shape[d];
  Array<int64_t> found;
  Shape place(shape.size(), 0);
  int64_t offset = 0;
  for (int64_t left = count(shape); left > 0; --left) {
    found.push_back(offset);
    for (size_t d = shape.size(); d-- > 0;) {
      offset += strides[d];
      if (++place[d] < shape[d]) break;
      offset -= strides[d] * shape[d], place[d] = 0;
    }
  }
  return found;
}

template <class T, class F>
Array<T> fold(In t, const Shape& dims, T first, F f) {
  int64_t size = 0;
  const Array<int64_t> where = places(shape_of(t), dims, &size);
  const Array<T> x = read<T>(t);
  Array<T> sums(static_cast<size_t>(size), first);
  for (size_t i = 0; i < x.size(); ++i)
    sums[static_cast<size_t>(where[i])] = f(sums[static_cast<size_t>(where[i])], x[i]);
  return sums;
}

Shape every(In t) {
  Shape dims(static_cast<size_t>(ndim_of(t)));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}
Shape one_or_every(In t, const int64_t* dim) { return dim ? Shape{*dim} : every(t); }

// Whether b comes before a as the greatest: NaN first.
template <class T>
bool beats(T b, T a) {
  return (b != b && a == a) || b > a;
}

// The greatest (of -x: the least) along a dimension and its place.
template <class T>
void extremes(In t, const int64_t* dim, bool greatest, Array<T>* values, Array<int64_t>* where) {
  const Shape shape = dim ? shape_of(t) : Shape{numel(t)};
  const Around a(shape, dim ? *dim : 0);
  const Array<T> x = read<T>(t);
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t k = 0; k < a.inner; ++k) {
      int64_t best = 0;
      for (int64_t i = 1; i < a.size; ++i) {
        const T now = x[static_cast<size_t>(a.at(o, i, k))], then = x[static_cast<size_t>(a.at(o, best, k))];
        if (greatest ? beats(now, then) : (now != now && then == then) || now < then) best = i;
      }
      values->push_back(x[static_cast<size_t>(a.at(o, best, k))]);
      where->push_back(best);
    }
}

diopiError_t extreme(Out values, Out where, In t, const int64_t* dim, bool greatest) {
  return body([&] {
    by_kind(t, [&](auto kind) {
      using T = decltype(kind);
      Array<T> found;
      Array<int64_t> at;
      extremes<T>(t, dim, greatest, &found, &at);
      if (values) write<T>(values, found);
      if (where) write<int64_t>(where, at);
    });
  });
}

// The first n of each line in order.
diopiError_t order(Out values, Out indices, In t, int64_t n, int64_t dim, bool descending) {
  return body([&] {
    by_kind(t, [&](auto kind) {
      using T = decltype(kind);
      const Around a(shape_of(t), dim), b(shape_of(values), dim);
      const Array<T> x = read<T>(t);
      Array<T> sorted(static_cast<size_t>(b.outer * n * b.inner));
      Array<int64_t> where(sorted.size());
      for (int64_t o = 0; o < a.outer; ++o)
        for (int64_t k = 0; k < a.inner; ++k) {
          const auto value = [&](int64_t i) { return x[static_cast<size_t>(a.at(o, i, k))]; };
          Array<int64_t> all(static_cast<size_t>(a.size));
          std::iota(all.begin(), all.end(), 0);
          std::stable_sort(all.begin(), all.end(), [&](int64_t i, int64_t j) {
            return descending ? beats(value(i), value(j)) : beats(value(j), value(i));
          });
          for (int64_t i = 0; i < n; ++i) {
            const auto to = static_cast<size_t>(b.at(o, i, k));
            sorted[to] = value(all[static_cast<size_t>(i)]), where[to] = all[static_cast<size_t>(i)];
          }
        }
      write<T>(values, sorted);
      write<int64_t>(indices, where);
    });
  });
}

// f(line, n) for each line along a dimension, in place.
template <class F>
diopiError_t lines(Out out, In t, int64_t dim, F f) {
  return body([&] {
    const Around a(shape_of(t), dim);
    Array<double> x = read<double>(t), line(static_cast<size_t>(a.size));
    for (int64_t o = 0; o < a.outer; ++o)
      for (int64_t k = 0; k < a.inner; ++k) {
        for (int64_t i = 0; i < a.size; ++i) line[static_cast<size_t>(i)] = x[static_cast<size_t>(a.at(o, i, k))];
        f(line, [&](int64_t i) { return static_cast<size_t>(a.at(o, i, k)); });
        for (int64_t i = 0; i < a.size; ++i) x[static_cast<size_t>(a.at(o, i, k))] = line[static_cast<size_t>(i)];
      }
    write<double>(out, x);
  });
}

double log_sum(const Array<double>& line, double* highest) {
  *highest = -INFINITY;
  for (const double v : line) *highest = v > *highest || v != v ? v : *highest;
  double sum = 0;
  for (const double v : line) sum += std::exp(v - *highest);
  return std::log(sum);
}

// out[b] = beta * c[b] + alpha * x[b] y[b], of b matrices.
void product(Out out, In c, In x, In y, double beta, double alpha, bool batched) {
  const Shape a = shape_of(x), b = shape_of(y);
  const size_t first = batched ? 1 : 0;
  const int64_t all = batched ? a[0] : 1, m = a[first], n = a[first + 1], p = b[first + 1];
  check(b[first] == n, "a product of matrices whose inner sizes differ");
  const Array<double> left = read<double>(x), right = read<double>(y);
  Array<double> sums(static_cast<size_t>(all * m * p), 0.0);
  for (int64_t k = 0; k < all; ++k)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const double factor = left[static_cast<size_t>((k * m + i) * n + j)];
        const double* row = right.data() + (k * n + j) * p;
        double* sum = sums.data() + (k * m + i) * p;
        for (int64_t l = 0; l < p; ++l) sum[l] += factor * row[l];
      }
  Array<double> added;
  if (c && beta != 0) added = read<double>(c, shape_of(out));
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = alpha * sums[i] + (added.empty() ? 0 : beta * added[i]);
  write<double>(out, sums);
}

}  // namespace

extern "C" {

diopiError_t diopiSum(Context, Out out, In t, diopiSize_t dims) {
  return body([&] {
    by_kind(t, [&](auto kind) {
      using T = decltype(kind);
      write<T>(out, fold<T>(t, list(dims), T(0), [](T a, T b) { return a + b; }));
    });
  });
}
diopiError_t diopiMean(Context, Out out, In t, diopiSize_t dims) {
  return body([&] {
    Array<double> sums = fold<double>(t, list(dims), 0.0, [](double a, double b) { return a + b; });
    const double n = static_cast<double>(numel(t)) / static_cast<double>(sums.size());
    for (double& sum : sums) sum /= n;
    write<double>(out, sums);
  });
}
diopiError_t diopiStd(Context, Out out, In t, diopiSize_t dims, Number correction) {
  return body([&] {
    int64_t size = 0;
    const Array<int64_t> where = places(shape_of(t), list(dims), &size);
    const Array<double> x = read<double>(t);
    const double n = static_cast<double>(x.size()) / static_cast<double>(size);
    Array<double> means(static_cast<size_t>(size)), sums(means.size());
    for (size_t i = 0; i < x.size(); ++i) means[static_cast<size_t>(where[i])] += x[i] / n;
    for (size_t i = 0; i < x.size(); ++i)
      sums[static_cast<size_t>(where[i])] += std::pow(x[i] - means[static_cast<size_t>(where[i])], 2);
    for (double& sum : sums) sum = std::sqrt(sum / std::max(n - (correction ? number<double>(correction) : 1.0), 0.0));
    write<double>(out, sums);
  });
}
diopiError_t diopiProd(Context, Out out, In t, const int64_t* dim) {
  return body([&] {
    by_kind(t, [&](auto kind) {
      using T = decltype(kind);
      write<T>(out, fold<T>(t, one_or_every(t, dim), T(1), [](T a, T b) { return a * b; }));
    });
  });
}
diopiError_t diopiAny(Context, Out out, In t, const int64_t* dim) {
  return body([&] {
    write<double>(out, fold<double>(t, one_or_every(t, dim), 0.0, [](double a, double b) { return a != 0 || b != 0; }));
  });
}
diopiError_t diopiAll(Context, Out out, In t, const int64_t* dim) {
  return body([&] {
    write<double>(out, fold<double>(t, one_or_every(t, dim), 1.0, [](double a, double b) { return a != 0 && b != 0; }));
  });
}
diopiError_t diopiMax(Context, Out values, Out where, In t, int64_t dim) {
  return extreme(values, where, t, &dim, true);
}
diopiError_t diopiMin(Context, Out values, Out where, In t, int64_t dim) {
  return extreme(values, where, t, &dim, false);
}
diopiError_t diopiMaxAll(Context, Out out, In t) { return extreme(out, nullptr, t, nullptr, true); }
diopiError_t diopiMinAll(Context, Out out, In t) { return extreme(out, nullptr, t, nullptr, false); }
diopiError_t diopiArgmax(Context, Out out, In t, const int64_t* dim, bool) {
  return extreme(nullptr, out, t, dim, true);
}
diopiError_t diopiArgmin(Context, Out out, In t, const int64_t* dim, bool) {
  return extreme(nullptr, out, t, dim, false);
}
diopiError_t diopiAmax(Context, Out out, In t, diopiSize_t dims, bool) {
  return body([&] {
    by_kind(t, [&](auto kind) {
      using T = decltype(kind);
      const T least = is_whole(t) ? static_cast<T>(INT64_MIN) : static_cast<T>(-INFINITY);
      write<T>(out, fold<T>(t, list(dims), least, [](T a, T b) { return beats(b, a) ? b : a; }));
    });
  });
}
diopiError_t diopiNorm(Context, Out out, In t, Number p, diopiSize_t dims) {
  return body([&] {
    const auto order = number<double>(p);
    Array<double> sums;
    if (std::isinf(order)) {
      const bool greatest = order > 0;
      sums = fold<double>(t, list(dims), greatest ? 0.0 : INFINITY, [&](double a, double b) {
        b = std::fabs(b);
        return a != a || b != b ? NAN : greatest ? std::max(a, b) : std::min(a, b);
      });
    } else if (order == 0) {
      sums = fold<double>(t, list(dims), 0.0, [](double a, double b) { return a + (b != 0); });
    } else {
      sums = fold<double>(t, list(dims), 0.0, [&](double a, double b) { return a + std::pow(std::fabs(b), order); });
      for (double& sum : sums) sum = std::pow(sum, 1 / order);
    }
    write<double>(out, sums);
  });
}
diopiError_t diopiCumsum(Context, Out out, In t, int64_t dim) {
  return body([&] {
    by_kind(t, [&](auto kind) {
      using T = decltype(kind);
      const Around a(shape_of(t), dim);
      Array<T> x = read<T>(t);
      for (int64_t o = 0; o < a.outer; ++o)
        for (int64_t i = 1; i < a.size; ++i)
          for (int64_t k = 0; k < a.inner; ++k)
            x[static_cast<size_t>(a.at(o, i, k))] += x[static_cast<size_t>(a.at(o, i - 1, k))];
      write<T>(out, x);
    });
  });
}
diopiError_t diopiTopk(Context, Out values, Out indices, In t, int64_t k, int64_t dim, bool largest, bool) {
  return order(values, indices, t, k, dim, largest);
}
diopiError_t diopiSort(Context, Out values, Out indices, In t, int64_t dim, bool descending, const bool*) {
  const Shape shape = shape_of(t);
  return order(values, indices, t, shape.empty() ? 1 : shape[static_cast<size_t>(dim)], dim, descending);
}

diopiError_t diopiSoftmax(Context, Out out, In t, int64_t dim) {
  return lines(out, t, dim, [](Array<double>& line, auto) {
    double highest;
    const double sum = log_sum(line, &highest);
    for (double& v : line) v = std::exp(v - highest - sum);
  });
}
diopiError_t diopiLogSoftmax(Context, Out out, In t, int64_t dim) {
  return lines(out, t, dim, [](Array<double>& line, auto) {
    double highest;
    const double sum = log_sum(line, &highest);
    for (double& v : line) v = v - highest - sum;
  });
}
diopiError_t diopiSoftmaxBackward(Context, Out out, In grad, In y, int64_t dim) {
  const Array<double> values = read<double>(y);
  return lines(out, grad, dim, [&](Array<double>& line, auto at) {
    double sum = 0;
    for (size_t i = 0; i < line.size(); ++i) sum += line[i] * values[at(static_cast<int64_t>(i))];
    for (size_t i = 0; i < line.size(); ++i) line[i] = (line[i] - sum) * values[at(static_cast<int64_t>(i))];
  });
}
diopiError_t diopiLogSoftmaxBackward(Context, Out out, In grad, In y, int64_t dim) {
  const Array<double> values = read<double>(y);
  return lines(out, grad, dim, [&](Array<double>& line, auto at) {
    double sum = 0;
    for (const double g : line) sum += g;
    for (size_t i = 0; i < line.size(); ++i) line[i] -= sum * std::exp(values[at(static_cast<int64_t>(i))]);
  });
}

diopiError_t diopiMm(Context, Out out, In a, In b) {
  return body([&] { product(out, nullptr, a, b, 0, 1, false); });
}
diopiError_t diopiBmm(Context, Out out, In a, In b) {
  return body([&] { product(out, nullptr, a, b, 0, 1, true); });
}
diopiError_t diopiAddmm(Context, Out out, In c, In a, In b, Number beta, Number alpha) {
  return body([&] { product(out, c, a, b, number<double>(beta), number<double>(alpha), false); });
}
diopiError_t diopiBaddbmm(Context, Out out, In c, In a, In b, double beta, double alpha) {
  return body([&] { product(out, c, a, b, beta, alpha, true); });
}
diopiError_t diopiBaddbmmInp(Context c, Out t, In a, In b, double beta, double alpha) {
  return diopiBaddbmm(c, t, t, a, b, beta, alpha);
}
diopiError_t diopiMatmul(Context, Out out, In a, In b) {
  return body([&] {
    if (ndim_of(a) != 1 || ndim_of(b) != 1) throw Refused{diopiNoImplement};
    const Array<double> x = read<double>(a), y = read<double>(b);
    write<double>(out, {std::inner_product(x.begin(), x.end(), y.begin(), 0.0)});
  });
}

}  // extern "C"
