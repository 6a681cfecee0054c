// Operators along dimensions: reductions, softmax, norms, scans, sorts.
#include "op.hpp"

#include <algorithm>
#include <numeric>

using namespace ops;

namespace {

// A tensor as rows: the dimensions that stay, then those that go, so that a reduction is a loop over each row.
struct Rows {
  View view;
  Dims kept;
  int64_t rows = 1, length = 1;
};

Rows rows_of(const View& in, const Dims& wanted) {
  std::vector<char> goes(size_t(in.rank()), wanted.empty());
  for (int64_t d : wanted)
    if (in.rank()) {
      if (goes[size_t(in.axis(d))]) reject("dimension %ld appears twice", long(d));
      goes[size_t(in.axis(d))] = true;
    }
  std::vector<int64_t> order;
  Rows rows;
  for (int64_t i = 0; i < in.rank(); ++i)
    if (!goes[size_t(i)]) {
      order.push_back(i);
      rows.kept.push_back(in.shape[size_t(i)]);
      rows.rows *= in.shape[size_t(i)];
    }
  for (int64_t i = 0; i < in.rank(); ++i)
    if (goes[size_t(i)]) {
      order.push_back(i);
      rows.length *= in.shape[size_t(i)];
    }
  rows.view = in.permuted(order);
  return rows;
}

void reduced_shape(const View& in, const Dims& wanted, bool keep, const View& out) {
  Dims expected;
  for (int64_t i = 0; i < in.rank(); ++i) {
    bool goes = wanted.empty();
    for (int64_t d : wanted) goes = goes || in.axis(d) == i;
    if (!goes)
      expected.push_back(in.shape[size_t(i)]);
    else if (keep)
      expected.push_back(1);
  }
  same_shape(out, expected, "the result");
}

// f(begin of the row, its length) for each row.
template <class V, class F>
std::vector<V> each_row(const Rows& rows, F f) {
  auto values = load<V>(rows.view);
  std::vector<V> result(size_t(rows.rows));
  for (int64_t r = 0; r < rows.rows; ++r) result[size_t(r)] = f(values.data() + r * rows.length, rows.length);
  return result;
}

using RealRow = double (*)(const double*, int64_t);
using WholeRow = int64_t (*)(const int64_t*, int64_t);

void reduce(Op& op, const View& in, const Dims& which, bool keep, const View& out, RealRow real, WholeRow whole) {
  reduced_shape(in, which, keep, out);
  Rows rows = rows_of(in, which);
  op.run([=] {
    if (is_whole(in.dtype) && whole)
      store(out, each_row<int64_t>(rows, whole));
    else
      store(out, each_row<double>(rows, real));
  });
}

template <class V>
V sum(const V* x, int64_t n) {
  V all = 0;
  for (int64_t i = 0; i < n; ++i) all += x[i];
  return all;
}
template <class V>
V product(const V* x, int64_t n) {
  V all = 1;
  for (int64_t i = 0; i < n; ++i) all *= x[i];
  return all;
}
template <class V>
int64_t place_of_largest(const V* x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i)
    if (x[best] == x[best] && (x[i] > x[best] || x[i] != x[i])) best = i;
  return best;
}
template <class V>
int64_t place_of_smallest(const V* x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i)
    if (x[best] == x[best] && (x[i] < x[best] || x[i] != x[i])) best = i;
  return best;
}
template <class V>
V largest(const V* x, int64_t n) {
  return x[place_of_largest(x, n)];
}
template <class V>
V smallest(const V* x, int64_t n) {
  return x[place_of_smallest(x, n)];
}
template <class V>
V all_of(const V* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (x[i] == 0) return 0;
  return 1;
}
template <class V>
V any_of(const V* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (x[i] != 0) return 1;
  return 0;
}
double mean(const double* x, int64_t n) { return sum(x, n) / double(n); }
double log_sum(const double* x, int64_t n) {
  double most = largest(x, n), all = 0;
  if (std::isinf(most)) return most;
  for (int64_t i = 0; i < n; ++i) all += std::exp(x[i] - most);
  return most + std::log(all);
}
double spread(const double* x, int64_t n, int64_t correction) {
  double middle = mean(x, n), all = 0;
  for (int64_t i = 0; i < n; ++i) all += (x[i] - middle) * (x[i] - middle);
  return all / double(std::max<int64_t>(n - correction, 0));
}
double norm(const double* x, int64_t n, double p) {
  double all = p == -INFINITY ? INFINITY : 0;
  for (int64_t i = 0; i < n; ++i) {
    double a = std::fabs(x[i]);
    if (p == INFINITY)
      all = a != a || a > all ? a : all;
    else if (p == -INFINITY)
      all = a != a || a < all ? a : all;
    else if (p == 0)
      all += a != 0;
    else
      all += p == 2 ? a * a : std::pow(a, p);
  }
  return p == INFINITY || p == -INFINITY || p == 0 ? all : p == 2 ? std::sqrt(all) : std::pow(all, 1 / p);
}

// For the dimension moved last: f(row of the input, row of the result, its length).
template <class F>
void along(Op& op, const View& in, int64_t d, const View& out, F f) {
  same_shape(out, in.shape, "the result");
  View a = in.moved(d), b = out.moved(d);
  int64_t n = in.rank() ? in.dim(d) : 1;
  op.run([=] {
    auto x = load<double>(a);
    std::vector<double> y(x.size());
    for (size_t i = 0; i + size_t(n) <= x.size() && n; i += size_t(n)) f(x.data() + i, y.data() + i, n);
    store(b, y);
  });
}
template <class F>
void along_2(Op& op, const View& first, const View& second, int64_t d, const View& out, F f) {
  same_shape(second, first.shape, "the second input");
  same_shape(out, first.shape, "the result");
  View a = first.moved(d), b = second.moved(d), c = out.moved(d);
  int64_t n = first.rank() ? first.dim(d) : 1;
  op.run([=] {
    auto x = load<double>(a), y = load<double>(b);
    std::vector<double> z(x.size());
    for (size_t i = 0; i + size_t(n) <= x.size() && n; i += size_t(n)) f(x.data() + i, y.data() + i, z.data() + i, n);
    store(c, z);
  });
}

}  // namespace

#define REDUCE(Name, real, whole)                       \
  OP(Name, (T self, I which, bool keep, O result), {    \
    View a = op.in(self), out = op.out(result);         \
    reduce(op, a, dims(which), keep, out, real, whole); \
  })
// With the dtype of the result told.
#define REDUCE_TO(Name, real, whole)                                                                                \
  OP(Name, (T self, I which, bool keep, int dtype, O result), {                                                     \
    View a = op.in(self), out = op.out(result);                                                                     \
    if (out.dtype != dtype) reject("the result is %s, the dtype asked for %s", name_of(out.dtype), name_of(dtype)); \
    WholeRow by_whole = whole;                                                                                      \
    reduce(op, a, dims(which), keep, out, real, is_float(dtype) ? nullptr : by_whole);                              \
  })
REDUCE_TO(ReduceSum, sum, sum)
REDUCE_TO(Mean, mean, nullptr)
REDUCE_TO(
    ReduceNansum,
    [](const double* x, int64_t n) {
      double all = 0;
      for (int64_t i = 0; i < n; ++i) all += x[i] == x[i] ? x[i] : 0;
      return all;
    },
    sum)
REDUCE(Amax, largest, largest)
REDUCE(Amin, smallest, smallest)
REDUCE(All, all_of, all_of)
REDUCE(Any, any_of, any_of)
REDUCE(LogSumExp, log_sum, nullptr)

#define WHOLE(Name, real, whole)                \
  OP(Name, (T self, O result), {                \
    View a = op.in(self), out = op.out(result); \
    reduce(op, a, {}, false, out, real, whole); \
  })
WHOLE(Max, largest, largest)
WHOLE(Min, smallest, smallest)
OP(Prod, (T self, int dtype, O result), {
  View a = op.in(self), out = op.out(result);
  reduce(op, a, {}, false, out, product, is_float(dtype) ? nullptr : static_cast<WholeRow>(product));
})
OP(ProdDim, (T self, i64 d, bool keep, int dtype, O result), {
  View a = op.in(self), out = op.out(result);
  reduce(op, a, {d}, keep, out, product, is_float(dtype) ? nullptr : static_cast<WholeRow>(product));
})

// Values and their places along a dimension.
#define EXTREME(Name, Arg, place)                                                                                      \
  OP(Name, (T self, i64 d, bool keep, O result, O where), {                                                            \
    View a = op.in(self), out = op.out(result), at = op.out(where);                                                    \
    reduced_shape(a, {d}, keep, out);                                                                                  \
    same_shape(at, out.shape, "the places");                                                                           \
    if (!a.numel() && out.numel()) reject("the dimension is empty");                                                   \
    Rows rows = rows_of(a, {d});                                                                                       \
    op.run([=] {                                                                                                       \
      auto apply = [&](auto sample) {                                                                                  \
        using V = decltype(sample);                                                                                    \
        auto values = load<V>(rows.view);                                                                              \
        std::vector<V> best;                                                                                           \
        std::vector<int64_t> places;                                                                                   \
        for (int64_t r = 0; r < rows.rows; ++r) {                                                                      \
          places.push_back(place(values.data() + r * rows.length, rows.length));                                       \
          best.push_back(values[size_t(r * rows.length + places.back())]);                                             \
        }                                                                                                              \
        store(out, best);                                                                                              \
        store(at, places);                                                                                             \
      };                                                                                                               \
      if (is_whole(a.dtype))                                                                                           \
        apply(int64_t());                                                                                              \
      else                                                                                                             \
        apply(double());                                                                                               \
    });                                                                                                                \
  })                                                                                                                   \
  OP(Arg, (T self, i64 d, bool keep, O where), {                                                                       \
    View a = op.in(self), at = op.out(where);                                                                          \
    reduced_shape(a, {d}, keep, at);                                                                                   \
    if (!a.numel() && at.numel()) reject("the dimension is empty");                                                    \
    Rows rows = rows_of(a, {d});                                                                                       \
    op.run([=] {                                                                                                       \
      auto apply = [&](auto sample) {                                                                                  \
        using V = decltype(sample);                                                                                    \
        auto values = load<V>(rows.view);                                                                              \
        std::vector<int64_t> places;                                                                                   \
        for (int64_t r = 0; r < rows.rows; ++r) places.push_back(place(values.data() + r * rows.length, rows.length)); \
        store(at, places);                                                                                             \
      };                                                                                                               \
      if (is_whole(a.dtype))                                                                                           \
        apply(int64_t());                                                                                              \
      else                                                                                                             \
        apply(double());                                                                                               \
    });                                                                                                                \
  })
EXTREME(MaxDim, ArgMax, place_of_largest)
EXTREME(MinDim, ArgMin, place_of_smallest)

OP(Aminmax, (T self, I which, bool keep, O low, O high), {
  View a = op.in(self), out = op.out(low), other = op.out(high);
  reduced_shape(a, dims(which), keep, out);
  same_shape(other, out.shape, "the second result");
  Rows rows = rows_of(a, dims(which));
  op.run([=] {
    store(out, each_row<double>(rows, smallest<double>));
    store(other, each_row<double>(rows, largest<double>));
  });
})

// With n - correction in the denominator.
#define SPREAD(Name, formula)                                                                                 \
  OP(Name, (T self, I which, i64 correction, bool keep, O result), {                                          \
    View a = op.in(self), out = op.out(result);                                                               \
    reduced_shape(a, dims(which), keep, out);                                                                 \
    Rows rows = rows_of(a, dims(which));                                                                      \
    op.run([=] { store(out, each_row<double>(rows, [=](const double* x, int64_t n) { return formula; })); }); \
  })
SPREAD(Std, std::sqrt(spread(x, n, correction)))
SPREAD(VarCorrection, spread(x, n, correction))
#define SPREAD_AND_MEAN(Name, formula)                                                         \
  OP(Name, (T self, I which, i64 correction, bool keep, O result, O middle), {                 \
    View a = op.in(self), out = op.out(result), average = op.out(middle);                      \
    reduced_shape(a, dims(which), keep, out);                                                  \
    same_shape(average, out.shape, "the mean");                                                \
    Rows rows = rows_of(a, dims(which));                                                       \
    op.run([=] {                                                                               \
      store(out, each_row<double>(rows, [=](const double* x, int64_t n) { return formula; })); \
      store(average, each_row<double>(rows, mean));                                            \
    });                                                                                        \
  })
SPREAD_AND_MEAN(StdMeanCorrection, std::sqrt(spread(x, n, correction)))
SPREAD_AND_MEAN(VarMean, spread(x, n, correction))

OP(Norm, (T self, S p, I which, bool keep, O result), {
  View a = op.in(self), out = op.out(result);
  reduced_shape(a, dims(which), keep, out);
  Rows rows = rows_of(a, dims(which));
  double order = p ? p->real : 2;
  op.run([=] { store(out, each_row<double>(rows, [=](const double* x, int64_t n) { return norm(x, n, order); })); });
})
OP(LinalgVectorNorm, (T self, S p, I which, bool keep, int, O result), {
  View a = op.in(self), out = op.out(result);
  reduced_shape(a, dims(which), keep, out);
  Rows rows = rows_of(a, dims(which));
  double order = number(p).real;
  op.run([=] { store(out, each_row<double>(rows, [=](const double* x, int64_t n) { return norm(x, n, order); })); });
})
OP(ForeachNorm, (L self, S p, L results), {
  auto a = op.all(self);
  auto out = op.all_out(results);
  if (a.size() != out.size()) reject("%zu results for %zu tensors", out.size(), a.size());
  double order = number(p).real;
  op.run([=] {
    for (size_t i = 0; i < a.size(); ++i) {
      auto x = load<double>(a[i]);
      store(out[i], std::vector<double>{norm(x.data(), int64_t(x.size()), order)});
    }
  });
})

OP(Softmax, (T self, i64 d, O result), {
  View a = op.in(self), out = op.out(result);
  need_float(out, "the result");
  along(op, a, d, out, [](const double* x, double* y, int64_t n) {
    double most = largest(x, n), all = 0;
    for (int64_t i = 0; i < n; ++i) all += y[i] = std::exp(x[i] - most);
    for (int64_t i = 0; i < n; ++i) y[i] /= all;
  });
})
OP(LogSoftmax, (T self, i64 d, O result), {
  View a = op.in(self), out = op.out(result);
  need_float(out, "the result");
  // Step by step: of an infinite maximum the first difference is NaN.
  along(op, a, d, out, [](const double* x, double* y, int64_t n) {
    double most = largest(x, n), all = 0;
    for (int64_t i = 0; i < n; ++i) all += std::exp(y[i] = x[i] - most);
    for (int64_t i = 0; i < n; ++i) y[i] -= std::log(all);
  });
})
OP(SoftmaxBackward, (T gradient, T output, i64 d, O result), {
  View g = op.in(gradient), y = op.in(output), out = op.out(result);
  along_2(op, g, y, d, out, [](const double* g, const double* y, double* z, int64_t n) {
    double all = 0;
    for (int64_t i = 0; i < n; ++i) all += g[i] * y[i];
    for (int64_t i = 0; i < n; ++i) z[i] = (g[i] - all) * y[i];
  });
})
OP(LogSoftmaxBackward, (T gradient, T output, i64 d, O result), {
  View g = op.in(gradient), y = op.in(output), out = op.out(result);
  along_2(op, g, y, d, out, [](const double* g, const double* y, double* z, int64_t n) {
    double all = sum(g, n);
    for (int64_t i = 0; i < n; ++i) z[i] = g[i] - std::exp(y[i]) * all;
  });
})

OP(Cumsum, (T self, i64 d, int dtype, O result), {
  View a = op.in(self), out = op.out(result);
  same_shape(out, a.shape, "the result");
  if (out.dtype != dtype) reject("the result is %s, the dtype asked for %s", name_of(out.dtype), name_of(dtype));
  View from = a.moved(d), to = out.moved(d);
  int64_t n = a.rank() ? a.dim(d) : 1;
  op.run([=] {
    auto apply = [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(from);
      for (size_t i = 0; i < x.size(); ++i)
        if (i % size_t(n)) x[i] += x[i - 1];
      store(to, x);
    };
    if (is_whole(dtype))
      apply(int64_t());
    else
      apply(double());
  });
})
OP(Cumprod, (T self, S dimension, int, O result), {
  View a = op.in(self), out = op.out(result);
  same_shape(out, a.shape, "the result");
  int64_t d = number(dimension).whole;
  View from = a.moved(d), to = out.moved(d);
  int64_t n = a.rank() ? a.dim(d) : 1;
  op.run([=] {
    auto apply = [&](auto sample) {
      using V = decltype(sample);
      using Wrapping = std::conditional_t<std::is_same_v<V, int64_t>, uint64_t, V>;  // As whole numbers overflow.
      auto x = load<V>(from);
      for (size_t i = 0; i < x.size(); ++i)
        if (i % size_t(n)) x[i] = V(Wrapping(x[i]) * Wrapping(x[i - 1]));
      store(to, x);
    };
    if (is_whole(out.dtype) && is_whole(a.dtype))
      apply(int64_t());
    else
      apply(double());
  });
})
#define RUNNING(Name, better)                                            \
  OP(Name, (T self, i64 d, O values, O places), {                        \
    View a = op.in(self), out = op.out(values), at = op.out(places);     \
    same_shape(out, a.shape, "the values");                              \
    same_shape(at, a.shape, "the places");                               \
    View from = a.moved(d), to = out.moved(d), where = at.moved(d);      \
    int64_t n = a.rank() ? a.dim(d) : 1;                                 \
    op.run([=] {                                                         \
      auto x = load<double>(from);                                       \
      std::vector<int64_t> p(x.size());                                  \
      for (size_t i = 0; i < x.size(); ++i) {                            \
        p[i] = int64_t(i % size_t(n));                                   \
        if (!p[i] || x[i] != x[i] || !(x[i - 1] == x[i - 1]) == false) { \
          if (p[i] && !(x[i] better x[i - 1] || x[i] != x[i])) {         \
            x[i] = x[i - 1];                                             \
            p[i] = p[i - 1];                                             \
          }                                                              \
        } else {                                                         \
          x[i] = x[i - 1];                                               \
          p[i] = p[i - 1];                                               \
        }                                                                \
      }                                                                  \
      store(to, x);                                                      \
      store(where, p);                                                   \
    });                                                                  \
  })
RUNNING(Cummax, >=)
RUNNING(Cummin, <=)

// The order of a row; NaN is the largest. Equal ones keep their order.
template <class V>
static std::vector<int64_t> order_of(const V* x, int64_t n, bool descending) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t(0));
  auto less = [](V a, V b) { return a == a && (b != b || a < b); };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return descending ? less(x[j], x[i]) : less(x[i], x[j]); });
  return order;
}
static void ordered(Op& op, const View& a, int64_t d, bool descending, int64_t taken, const View& values,
                    const View& places) {
  View from = a.moved(d), to = values ? values.moved(d) : View(), at = places.moved(d);
  int64_t n = a.rank() ? a.dim(d) : 1;
  op.run([=] {
    auto apply = [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(from);
      std::vector<V> best;
      std::vector<int64_t> where;
      for (size_t row = 0; row + size_t(n) <= x.size() && n; row += size_t(n)) {
        auto order = order_of(x.data() + row, n, descending);
        for (int64_t i = 0; i < taken; ++i) {
          best.push_back(x[row + size_t(order[size_t(i)])]);
          where.push_back(order[size_t(i)]);
        }
      }
      if (to) store(to, best);
      store(at, where);
    };
    if (is_whole(a.dtype))
      apply(int64_t());
    else
      apply(double());
  });
}
OP(Sort, (T self, bool, i64 d, bool descending, O values, O places), {
  View a = op.in(self), out = op.out(values), at = op.out(places);
  same_shape(out, a.shape, "the values");
  same_shape(at, a.shape, "the places");
  ordered(op, a, d, descending, a.rank() ? a.dim(d) : 1, out, at);
})
OP(Argsort, (T self, i64 d, bool descending, O places), {
  View a = op.in(self), at = op.out(places);
  same_shape(at, a.shape, "the places");
  ordered(op, a, d, descending, a.rank() ? a.dim(d) : 1, View(), at);
})
OP(Topk, (T self, i64 k, i64 d, bool largest_first, bool, O values, O places), {
  View a = op.in(self), out = op.out(values), at = op.out(places);
  int64_t n = a.rank() ? a.dim(d) : 1;
  if (k < 0 || k > n) reject("k is %ld, the dimension has %ld", long(k), long(n));
  Dims expected = a.shape;
  if (a.rank()) expected[size_t(a.axis(d))] = k;
  same_shape(out, expected, "the values");
  same_shape(at, expected, "the places");
  ordered(op, a, d, largest_first, k, out, at);
})

// Norms over the last dimensions, with the mean and 1 / sqrt(variance + eps) of each row.
static int64_t inner_of(const View& a, const Dims& shape, const char* what) {
  if (int64_t(shape.size()) > a.rank() || !std::equal(shape.rbegin(), shape.rend(), a.shape.rbegin()))
    reject("%s has shape %s, which does not end in %s", what, text_of(a.shape).c_str(), text_of(shape).c_str());
  return count(shape);
}
static void layer_norm(Op& op, T self, I shape, T weight, T bias, double eps, O result, O mean_of_row, O scale_of_row) {
  View a = op.in(self), w = op.maybe(weight), b = op.maybe(bias), out = op.out(result), m = op.out_maybe(mean_of_row),
       s = op.out_maybe(scale_of_row);
  need_float(a, "the input");
  same_shape(out, a.shape, "the result");
  int64_t n = inner_of(a, dims(shape), "the input");
  if (w) same_shape(w, dims(shape), "the weight");
  if (b) same_shape(b, dims(shape), "the bias");
  op.run([=] {
    auto x = load<double>(a);
    auto gain = w ? load<double>(w) : std::vector<double>(size_t(n), 1),
         shift = b ? load<double>(b) : std::vector<double>(size_t(n));
    std::vector<double> means, scales;
    for (size_t row = 0; row + size_t(n) <= x.size() && n; row += size_t(n)) {
      means.push_back(mean(x.data() + row, n));
      scales.push_back(1 / std::sqrt(spread(x.data() + row, n, 0) + eps));
      for (size_t i = 0; i < size_t(n); ++i)
        x[row + i] = (x[row + i] - means.back()) * scales.back() * gain[i] + shift[i];
    }
    store(out, x);
    if (m) store(m, means);
    if (s) store(s, scales);
  });
}
OP(LayerNorm, (T self, I shape, T weight, T bias, double eps, O result, O mean_of_row, O scale_of_row),
   { layer_norm(op, self, shape, weight, bias, eps, result, mean_of_row, scale_of_row); })
OP(FastLayerNorm, (T self, I shape, T weight, T bias, double eps, O result, O mean_of_row, O scale_of_row),
   { layer_norm(op, self, shape, weight, bias, eps, result, mean_of_row, scale_of_row); })
OP(LayerNormBackward,
   (T gradient, T self, I shape, T mean_of_row, T scale_of_row, T weight, T bias, B mask, O to_self, O to_weight,
    O to_bias),
   {
     View g = op.in(gradient), a = op.in(self), m = op.in(mean_of_row), s = op.in(scale_of_row), w = op.maybe(weight);
     op.maybe(bias);
     View ga = op.out_maybe(to_self), gw = op.out_maybe(to_weight), gb = op.out_maybe(to_bias);
     same_shape(g, a.shape, "the gradient");
     int64_t n = inner_of(a, dims(shape), "the input");
     bool want_a = flag(mask, 0) && ga, want_w = flag(mask, 1) && gw, want_b = flag(mask, 2) && gb;
     op.run([=] {
       auto x = load<double>(a), slope = load<double>(g), means = load<double>(m), scales = load<double>(s);
       auto gain = w ? load<double>(w) : std::vector<double>(size_t(n), 1);
       std::vector<double> dx(x.size()), dw(static_cast<size_t>(n)), db(static_cast<size_t>(n));
       for (size_t row = 0, r = 0; row + size_t(n) <= x.size() && n; row += size_t(n), ++r) {
         double all = 0, product = 0;
         for (size_t i = 0; i < size_t(n); ++i) {
           double hat = (x[row + i] - means[r]) * scales[r], d = slope[row + i];
           dw[i] += d * hat;
           db[i] += d;
           all += d * gain[i];
           product += d * gain[i] * hat;
         }
         for (size_t i = 0; i < size_t(n); ++i) {
           double hat = (x[row + i] - means[r]) * scales[r];
           dx[row + i] = scales[r] * (slope[row + i] * gain[i] - (all + hat * product) / double(n));
         }
       }
       if (want_a) store(ga, dx);
       if (want_w) store(gw, dw);
       if (want_b) store(gb, db);
     });
   })
OP(RmsNorm, (T self, T weight, double eps, O result, O scale_of_row), {
  View a = op.in(self), w = op.in(weight), out = op.out(result), s = op.out(scale_of_row);
  same_shape(out, a.shape, "the result");
  int64_t n = inner_of(a, w.shape, "the input");
  op.run([=] {
    auto x = load<double>(a), gain = load<double>(w);
    std::vector<double> scales;
    for (size_t row = 0; row + size_t(n) <= x.size() && n; row += size_t(n)) {
      double all = 0;
      for (size_t i = 0; i < size_t(n); ++i) all += x[row + i] * x[row + i];
      scales.push_back(1 / std::sqrt(all / double(n) + eps));
      for (size_t i = 0; i < size_t(n); ++i) x[row + i] *= scales.back() * gain[i];
    }
    store(out, x);
    store(s, scales);
  });
})
OP(RmsNormGrad, (T gradient, T self, T scale_of_row, T weight, O to_self, O to_weight), {
  View g = op.in(gradient), a = op.in(self), s = op.in(scale_of_row), w = op.in(weight), ga = op.out(to_self),
       gw = op.out(to_weight);
  int64_t n = inner_of(a, w.shape, "the input");
  op.run([=] {
    auto slope = load<double>(g), x = load<double>(a), scales = load<double>(s), gain = load<double>(w);
    std::vector<double> dw(static_cast<size_t>(n)), dx(x.size());
    for (size_t row = 0, r = 0; row + size_t(n) <= x.size() && n; row += size_t(n), ++r) {
      double product = 0;
      for (size_t i = 0; i < size_t(n); ++i) {
        dw[i] += slope[row + i] * x[row + i] * scales[r];
        product += slope[row + i] * gain[i] * x[row + i] * scales[r];
      }
      for (size_t i = 0; i < size_t(n); ++i)
        dx[row + i] = scales[r] * (slope[row + i] * gain[i] - x[row + i] * scales[r] * product / double(n));
    }
    store(ga, dx);
    store(gw, dw);
  });
})

// Losses: reduction 0 none, 1 mean, 2 sum.
template <class F>
static void loss(Op& op, T self, T target, int64_t reduction, O result, F f) {
  View a = op.in(self), b = op.in(target), out = op.out(result);
  Dims shape = broadcast(a.shape, b.shape);
  if (!reduction)
    same_shape(out, shape, "the result");
  else
    same_shape(out, {}, "the result");
  op.run([=] {
    auto x = load<double>(a, shape), y = load<double>(b, shape);
    for (size_t i = 0; i < x.size(); ++i) x[i] = f(x[i], y[i]);
    if (!reduction) return store(out, x);
    double all = sum(x.data(), int64_t(x.size()));
    store(out, std::vector<double>{reduction == 1 ? all / double(x.size()) : all});
  });
}
template <class F>
static void loss_slope(Op& op, T gradient, T self, T target, int64_t reduction, O result, F f) {
  View g = op.in(gradient), a = op.in(self), b = op.in(target), out = op.out(result);
  Dims shape = broadcast(a.shape, b.shape);
  same_shape(out, shape, "the result");
  op.run([=] {
    auto d = load<double>(g, shape), x = load<double>(a, shape), y = load<double>(b, shape);
    double share = reduction == 1 ? 1 / double(x.size()) : 1;
    for (size_t i = 0; i < x.size(); ++i) x[i] = d[i] * share * f(x[i], y[i]);
    store(out, x);
  });
}
#define LOSS(Name, formula, slope)                                                               \
  OP(Name, (T self, T target, i64 reduction, O result),                                          \
     { loss(op, self, target, reduction, result, [](double x, double y) { return formula; }); }) \
  OP(Name##Backward, (T gradient, T self, T target, i64 reduction, O result),                    \
     { loss_slope(op, gradient, self, target, reduction, result, [](double x, double y) { return slope; }); })
LOSS(MseLoss, (x - y) * (x - y), 2 * (x - y))
LOSS(L1Loss, std::fabs(x - y), double((x > y) - (x < y)))
LOSS(SoftMarginLoss, std::log1p(std::exp(-x* y)), -y / (1 + std::exp(x * y)))
OP(SmoothL1Loss, (T self, T target, i64 reduction, float beta, O result), {
  double b = double(beta);
  loss(op, self, target, reduction, result, [=](double x, double y) {
    double d = std::fabs(x - y);
    return d < b ? 0.5 * d * d / b : d - 0.5 * b;
  });
})
OP(SmoothL1LossBackward, (T gradient, T self, T target, i64 reduction, float beta, O result), {
  double b = double(beta);
  loss_slope(op, gradient, self, target, reduction, result, [=](double x, double y) {
    double d = x - y;
    return std::fabs(d) < b || d != d ? d / b : double((d > 0) - (d < 0));
  });
})
OP(BinaryCrossEntropyWithLogits, (T self, T target, T weight, T positive, i64 reduction, O result), {
  View a = op.in(self), b = op.in(target), w = op.maybe(weight), p = op.maybe(positive), out = op.out(result);
  op.run([=] {
    auto x = load<double>(a), y = load<double>(b, a.shape);
    auto by = w ? load<double>(w, a.shape) : std::vector<double>(x.size(), 1),
         plus = p ? load<double>(p, a.shape) : std::vector<double>(x.size(), 1);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = by[i] * ((1 - y[i]) * x[i] +
                      (1 + (plus[i] - 1) * y[i]) * (std::log1p(std::exp(-std::fabs(x[i]))) + std::max(-x[i], 0.0)));
    if (!reduction) return store(out, x);
    double all = sum(x.data(), int64_t(x.size()));
    store(out, std::vector<double>{reduction == 1 ? all / double(x.size()) : all});
  });
})
OP(BinaryCrossEntropyWithLogitsBackward, (T gradient, T self, T target, T weight, T positive, i64 reduction, O result),
   {
     View g = op.in(gradient), a = op.in(self), b = op.in(target), w = op.maybe(weight), p = op.maybe(positive),
          out = op.out(result);
     op.run([=] {
       auto d = load<double>(g, a.shape), x = load<double>(a), y = load<double>(b, a.shape);
       auto by = w ? load<double>(w, a.shape) : std::vector<double>(x.size(), 1),
            plus = p ? load<double>(p, a.shape) : std::vector<double>(x.size(), 1);
       double share = reduction == 1 ? 1 / double(x.size()) : 1;
       for (size_t i = 0; i < x.size(); ++i) {
         double s = 1 / (1 + std::exp(-x[i])), k = plus[i] * y[i];
         x[i] = d[i] * share * by[i] * ((k + 1 - y[i]) * s - k);
       }
       store(out, x);
     });
   })
#define BINARY_LOG(v) std::max(std::log(v), -100.0)
OP(BinaryCrossEntropy, (T self, T target, T weight, i64 reduction, O result), {
  View a = op.in(self), b = op.in(target), w = op.maybe(weight), out = op.out(result);
  op.run([=] {
    auto x = load<double>(a), y = load<double>(b, a.shape);
    auto by = w ? load<double>(w, a.shape) : std::vector<double>(x.size(), 1);
    for (size_t i = 0; i < x.size(); ++i) x[i] = -by[i] * (y[i] * BINARY_LOG(x[i]) + (1 - y[i]) * BINARY_LOG(1 - x[i]));
    if (!reduction) return store(out, x);
    double all = sum(x.data(), int64_t(x.size()));
    store(out, std::vector<double>{reduction == 1 ? all / double(x.size()) : all});
  });
})
OP(BinaryCrossEntropyBackward, (T gradient, T self, T target, T weight, i64 reduction, O result), {
  View g = op.in(gradient), a = op.in(self), b = op.in(target), w = op.maybe(weight), out = op.out(result);
  op.run([=] {
    auto d = load<double>(g, a.shape), x = load<double>(a), y = load<double>(b, a.shape);
    auto by = w ? load<double>(w, a.shape) : std::vector<double>(x.size(), 1);
    double share = reduction == 1 ? 1 / double(x.size()) : 1;
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = d[i] * share * by[i] * (x[i] - y[i]) / std::max((1 - x[i]) * x[i], 1e-12);
    store(out, x);
  });
})

// The negative logarithm at the target: classes are dimension 1, or 0 of a vector.
struct Classes {
  View a, target;
  int64_t classes, inner, samples;
};
static Classes classes_of(const View& a, const View& t) {
  need_whole(t, "the target");
  if (a.rank() < 1) reject("the input has no dimension of classes");
  Dims expected = a.shape;
  expected.erase(expected.begin() + (a.rank() > 1));
  same_shape(t, expected, "the target");
  Classes c{a, t, a.shape[a.rank() > 1], 1, t.numel()};
  for (int64_t i = 2; i < a.rank(); ++i) c.inner *= a.shape[size_t(i)];
  return c;
}
static void nll(Op& op, T self, T target, T weight, int64_t reduction, int64_t ignored, O result, O total) {
  View a = op.in(self), t = op.in(target), w = op.maybe(weight), out = op.out(result), sum_of_weights = op.out(total);
  Classes c = classes_of(a, t);
  if (!reduction) same_shape(out, t.shape, "the result");
  op.run([=] {
    auto x = load<double>(a);
    auto y = load<int64_t>(t);
    auto by = w ? load<double>(w) : std::vector<double>(size_t(c.classes), 1);
    std::vector<double> each(y.size());
    double all = 0, weights = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      if (y[i] == ignored) continue;
      if (y[i] < 0 || y[i] >= c.classes) throw Broken("target " + std::to_string(y[i]) + " is no class");
      size_t outer = i / size_t(c.inner), inner = i % size_t(c.inner);
      each[i] = -by[size_t(y[i])] * x[(outer * size_t(c.classes) + size_t(y[i])) * size_t(c.inner) + inner];
      all += each[i];
      weights += by[size_t(y[i])];
    }
    if (!reduction)
      store(out, each);
    else
      store(out, std::vector<double>(size_t(out.numel()), reduction == 1 ? all / weights : all));
    store(sum_of_weights, std::vector<double>(size_t(sum_of_weights.numel()), reduction ? weights : 0));
  });
}
static void nll_backward(Op& op, T gradient, T self, T target, T weight, int64_t reduction, int64_t ignored, T total,
                         O result) {
  View g = op.in(gradient), a = op.in(self), t = op.in(target), w = op.maybe(weight), sum_of_weights = op.in(total),
       out = op.out(result);
  Classes c = classes_of(a, t);
  same_shape(out, a.shape, "the result");
  op.run([=] {
    auto d = load<double>(g);
    auto y = load<int64_t>(t);
    auto by = w ? load<double>(w) : std::vector<double>(size_t(c.classes), 1);
    double share = reduction == 1 ? 1 / load<double>(sum_of_weights)[0] : 1;
    std::vector<double> x(size_t(a.numel()));
    for (size_t i = 0; i < y.size(); ++i) {
      if (y[i] == ignored) continue;
      if (y[i] < 0 || y[i] >= c.classes) throw Broken("target " + std::to_string(y[i]) + " is no class");
      size_t outer = i / size_t(c.inner), inner = i % size_t(c.inner);
      x[(outer * size_t(c.classes) + size_t(y[i])) * size_t(c.inner) + inner] =
          -by[size_t(y[i])] * share * d[reduction ? 0 : i];
    }
    store(out, x);
  });
}
OP(NLLLoss, (T self, T target, T weight, i64 reduction, i64 ignored, O result, O total),
   { nll(op, self, target, weight, reduction, ignored, result, total); })
OP(NLLLossBackward, (T gradient, T self, T target, T weight, i64 reduction, i64 ignored, T total, O result),
   { nll_backward(op, gradient, self, target, weight, reduction, ignored, total, result); })
OP(NLLLoss2d, (T self, T target, T weight, i64 reduction, i64 ignored, O result, O total),
   { nll(op, self, target, weight, reduction, ignored, result, total); })
OP(NLLLoss2dBackward, (T gradient, T self, T target, T weight, i64 reduction, i64 ignored, T total, O result),
   { nll_backward(op, gradient, self, target, weight, reduction, ignored, total, result); })
