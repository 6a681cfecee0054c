// Operators that move elements: by index, by mask, by place.
#include "op.hpp"

#include <algorithm>

using namespace ops;

namespace {

// Elements as they are, whatever their dtype: whole numbers by int64, floats by double.
template <class F>
void by_kind(int dtype, F f) {
  if (is_whole(dtype))
    f(int64_t());
  else
    f(double());
}

// The index of an element in a row-major tensor of `shape`, and back.
Dims place_in(int64_t index, const Dims& shape) {
  Dims at(shape.size());
  for (size_t d = shape.size(); d--;) {
    at[d] = index % shape[d];
    index /= shape[d];
  }
  return at;
}
size_t index_of(const Dims& at, const Dims& shape) {
  int64_t index = 0;
  for (size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + at[d];
  return size_t(index);
}

int64_t wrapped(int64_t index, int64_t size) {
  if (index < -size || index >= size)
    throw Broken("index " + std::to_string(index) + " is outside of a dimension of " + std::to_string(size));
  return index < 0 ? index + size : index;
}

// result[i] = self[place of i].
template <class Place>
void take(Op& op, const View& a, const View& out, Place place) {
  op.run([=] {
    by_kind(a.dtype, [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(a);
      std::vector<V> y(size_t(out.numel()));
      for (size_t i = 0; i < y.size(); ++i) {
        int64_t from = place(place_in(int64_t(i), out.shape));
        y[i] = from < 0 ? V(0) : x[size_t(from)];
      }
      store(out, y);
    });
  });
}

// Indices along a dimension: self split into outer, the dimension and inner.
struct Split {
  int64_t outer = 1, size = 1, inner = 1;
};
Split split(const View& a, int64_t d) {
  Split s;
  if (!a.rank()) return s;
  d = a.axis(d);
  for (int64_t i = 0; i < a.rank(); ++i) (i < d ? s.outer : i == d ? s.size : s.inner) *= a.shape[size_t(i)];
  return s;
}

}  // namespace

OP(Permute, (T self, I order, O result), {
  View a = op.in(self), out = op.out(result);
  Dims by = dims(order);
  std::vector<int64_t> axes;
  for (int64_t d : by) axes.push_back(a.axis(d));
  if (int64_t(axes.size()) != a.rank()) reject("%zu dimensions for a tensor of %ld", axes.size(), long(a.rank()));
  View b = a.permuted(axes);
  same_shape(out, b.shape, "the result");
  op.run([=] { by_kind(a.dtype, [&](auto sample) { store(out, load<decltype(sample)>(b)); }); });
})
OP(Flip, (T self, I which, O result), {
  View a = op.in(self), out = op.out(result);
  same_shape(out, a.shape, "the result");
  View b = a;
  for (int64_t d : dims(which)) {
    size_t at = size_t(a.own_axis(d));
    b.offset += b.stride[at] * (b.shape[at] - 1);
    b.stride[at] = -b.stride[at];
  }
  op.run([=] { by_kind(a.dtype, [&](auto sample) { store(out, load<decltype(sample)>(b)); }); });
})
OP(Repeat, (T self, I repeats, O result), {
  View a = op.in(self), out = op.out(result);
  Dims by = dims(repeats), shape = a.shape;
  if (by.size() < shape.size()) reject("%zu repeats for %ld dimensions", by.size(), long(a.rank()));
  while (shape.size() < by.size()) shape.insert(shape.begin(), 1);
  Dims expected = shape;
  for (size_t d = 0; d < by.size(); ++d) expected[d] *= by[d];
  same_shape(out, expected, "the result");
  take(op, a, out, [=](Dims at) {
    for (size_t d = 0; d < at.size(); ++d) at[d] %= shape[d];
    return int64_t(index_of(at, shape));
  });
})
OP(Roll, (T self, I shifts, I which, O result), {
  View a = op.in(self), out = op.out(result);
  same_shape(out, a.shape, "the result");
  Dims by = dims(shifts), d = dims(which);
  Dims shape = d.empty() ? Dims{a.numel()} : a.shape;
  for (auto& each : d) each = a.own_axis(each);
  if (d.empty()) d = {0};
  if (by.size() != d.size()) reject("%zu shifts for %zu dimensions", by.size(), d.size());
  take(op, a, out, [=, full = a.shape](Dims at) {
    if (shape.size() == 1 && full.size() != 1) at = {int64_t(index_of(at, full))};
    for (size_t i = 0; i < d.size(); ++i) {
      int64_t size = shape[size_t(d[i])];
      at[size_t(d[i])] = ((at[size_t(d[i])] - by[i]) % size + size) % size;
    }
    return int64_t(index_of(at, shape));
  });
})
// Pairs of widths, the last dimension first; less than 0 cuts off.
OP(ConstantPadNd, (T self, I widths, S value, O result), {
  View a = op.in(self), out = op.out(result);
  Dims by = dims(widths);
  aclScalar with = number(value);
  if (by.size() % 2 || int64_t(by.size() / 2) > a.rank())
    reject("%zu widths for %ld dimensions", by.size(), long(a.rank()));
  Dims expected = a.shape;
  for (size_t i = 0; i < by.size() / 2; ++i) expected[expected.size() - 1 - i] += by[2 * i] + by[2 * i + 1];
  same_shape(out, expected, "the result");
  op.run([=] {
    by_kind(a.dtype, [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(a);
      std::vector<V> y(size_t(out.numel()), value_of<V>(with));
      for (size_t i = 0; i < y.size(); ++i) {
        Dims at = place_in(int64_t(i), out.shape);
        bool inside = true;
        for (size_t p = 0; p < by.size() / 2; ++p) {
          size_t d = at.size() - 1 - p;
          at[d] -= by[2 * p];
          inside = inside && at[d] >= 0 && at[d] < a.shape[d];
        }
        if (inside) y[i] = x[index_of(at, a.shape)];
      }
      store(out, y);
    });
  });
})
static void triangle(Op& op, const View& a, const View& out, int64_t diagonal, bool lower) {
  if (a.rank() < 2) reject("a tensor of %ld dimensions", long(a.rank()));
  same_shape(out, a.shape, "the result");
  int64_t rows = a.dim(-2), columns = a.dim(-1);
  op.run([=] {
    by_kind(a.dtype, [&](auto sample) {
      auto x = load<decltype(sample)>(a);
      for (size_t i = 0; i < x.size(); ++i) {
        int64_t c = int64_t(i) % columns, r = int64_t(i) / columns % rows;
        if (lower ? c - r > diagonal : c - r < diagonal) x[i] = 0;
      }
      store(out, x);
    });
  });
}
#define TRIANGLE(Name, lower)                   \
  OP(Name, (T self, i64 diagonal, O result), {  \
    View a = op.in(self), out = op.out(result); \
    triangle(op, a, out, diagonal, lower);      \
  })                                            \
  OP(Inplace##Name, (O self, i64 diagonal), {   \
    View a = op.out(self);                      \
    triangle(op, a, a, diagonal, lower);        \
  })
TRIANGLE(Tril, true)
TRIANGLE(Triu, false)

static void join(Op& op, L tensors, int64_t d, O result, bool fresh) {
  auto all = op.all(tensors);
  View out = op.out(result);
  if (all.empty()) reject("the list is empty");
  // An empty vector fits everything: torch has it so.
  if (!fresh)
    all.erase(
        std::remove_if(all.begin(), all.end(), [&](const View& v) { return v.shape == Dims{0} && out.rank() != 1; }),
        all.end());
  d = out.own_axis(d);
  int64_t sum = 0;
  for (View& each : all) {
    if (fresh) {
      each.shape.insert(each.shape.begin() + d, 1);
      each.stride.insert(each.stride.begin() + d, 0);
    }
    Dims expected = out.shape;
    if (each.rank() != out.rank()) reject("shapes %s and %s", text_of(each.shape).c_str(), text_of(out.shape).c_str());
    expected[size_t(d)] = each.shape[size_t(d)];
    same_shape(each, expected, "a tensor of the list");
    sum += each.shape[size_t(d)];
  }
  if (sum != out.shape[size_t(d)])
    reject("the result has %ld along the dimension, the list %ld", long(out.shape[size_t(d)]), long(sum));
  op.run([=] {
    int64_t at = 0;
    for (const View& each : all) {
      View part = out;
      part.shape = each.shape;
      part.offset += at * out.stride[size_t(d)];
      at += each.shape[size_t(d)];
      if (!each.numel()) continue;
      by_kind(promoted(each.dtype, out.dtype), [&](auto sample) { store(part, load<decltype(sample)>(each)); });
    }
  });
}
OP(Cat, (L tensors, i64 d, O result), { join(op, tensors, d, result, false); })
OP(Stack, (L tensors, i64 d, O result), { join(op, tensors, d, result, true); })
OP(SplitWithSize, (T self, I sizes, i64 d, L results), {
  View a = op.in(self);
  auto out = op.all_out(results);
  size_t along = size_t(a.own_axis(d));
  if (dims(sizes).size() != out.size()) reject("%zu sizes for %zu results", dims(sizes).size(), out.size());
  op.run([=] {
    int64_t at = 0;
    for (const View& each : out) {
      View part = a;
      part.shape = each.shape;
      part.offset += at * a.stride[along];
      at += each.shape[along];
      by_kind(a.dtype, [&](auto sample) { store(each, load<decltype(sample)>(part)); });
    }
  });
})

// Numbers in steps.
static void steps(Op& op, S start, S step, const View& out) {
  aclScalar from = number(start), by = number(step);
  op.run([=] {
    by_kind(is_whole(out.dtype) && is_whole(from.dtype) && is_whole(by.dtype) ? kInt64 : kDouble, [&](auto sample) {
      using V = decltype(sample);
      std::vector<V> values(size_t(out.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = value_of<V>(from) + V(i) * value_of<V>(by);
      store(out, values);
    });
  });
}
OP(Arange, (S start, S end, S step, O result), {
  View out = op.out(result);
  double size = std::ceil((number(end).real - number(start).real) / number(step).real);
  if (double(out.numel()) != size) reject("the result has %ld elements, expected %g", long(out.numel()), size);
  steps(op, start, step, out);
})
OP(Range, (S start, S, S step, O result), { steps(op, start, step, op.out(result)); })
OP(Linspace, (S start, S end, i64 count, O result), {
  View out = op.out(result);
  same_shape(out, {count}, "the result");
  double from = number(start).real, to = number(end).real;
  op.run([=] {
    std::vector<double> values(size_t(out.numel()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 2 * i < values.size() ? from + (to - from) / double(count - 1) * double(i)
                                        : to - (to - from) / double(count - 1) * double(size_t(count) - 1 - i);
    if (count == 1) values[0] = from;
    store(out, values);
  });
})
OP(Eye, (i64 rows, i64 columns, O result), {
  View out = op.out(result);
  same_shape(out, {rows, columns}, "the result");
  op.run([=] {
    std::vector<int64_t> values(size_t(out.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = int64_t(i) / columns == int64_t(i) % columns;
    store(out, values);
  });
})

// Rows of a table.
OP(Embedding, (T table, T indices, O result), {
  View a = op.in(table), at = op.in(indices), out = op.out(result);
  need_whole(at, "the indices");
  if (a.rank() != 2) reject("a table of shape %s", text_of(a.shape).c_str());
  Dims expected = at.shape;
  expected.push_back(a.shape[1]);
  same_shape(out, expected, "the result");
  op.run([=] {
    auto rows = load<int64_t>(at);
    by_kind(a.dtype, [&](auto sample) {
      auto x = load<decltype(sample)>(a);
      decltype(x) y;
      for (int64_t row : rows) {
        size_t from = size_t(wrapped(row, a.shape[0]) * a.shape[1]);
        y.insert(y.end(), x.begin() + long(from), x.begin() + long(from) + a.shape[1]);
      }
      store(out, y);
    });
  });
})
OP(EmbeddingDenseBackward, (T gradient, T indices, uint64_t rows, uint64_t padding, bool by_count, O result), {
  View g = op.in(gradient), at = op.in(indices), out = op.out(result);
  int64_t width = g.dim(-1);
  same_shape(out, {int64_t(rows), width}, "the result");
  op.run([=] {
    auto slope = load<double>(g);
    auto where = load<int64_t>(at);
    std::vector<double> to(size_t(out.numel())), count(rows);
    for (int64_t row : where) ++count[size_t(wrapped(row, int64_t(rows)))];
    for (size_t i = 0; i < where.size(); ++i) {
      if (where[i] == int64_t(padding)) continue;
      size_t row = size_t(where[i]);
      for (int64_t j = 0; j < width; ++j)
        to[row * size_t(width) + size_t(j)] += slope[i * size_t(width) + size_t(j)] / (by_count ? count[row] : 1);
    }
    store(out, to);
  });
})
OP(IndexSelect, (T self, i64 d, T indices, O result), {
  View a = op.in(self), at = op.in(indices), out = op.out(result);
  need_whole(at, "the indices");
  Dims expected = a.shape;
  if (a.rank()) expected[size_t(a.axis(d))] = at.numel();
  same_shape(out, expected, "the result");
  Split s = split(a, d);
  op.run([=] {
    auto where = load<int64_t>(at);
    by_kind(a.dtype, [&](auto sample) {
      auto x = load<decltype(sample)>(a);
      decltype(x) y;
      for (int64_t o = 0; o < s.outer; ++o)
        for (int64_t i : where) {
          auto from = x.begin() + (o * s.size + wrapped(i, s.size)) * s.inner;
          y.insert(y.end(), from, from + s.inner);
        }
      store(out, y);
    });
  });
})
OP(Gather, (T self, i64 d, T indices, O result), {
  View a = op.in(self), at = op.in(indices), out = op.out(result);
  need_whole(at, "the indices");
  same_shape(out, at.shape, "the result");
  if (a.rank() != at.rank()) reject("shapes %s and %s", text_of(a.shape).c_str(), text_of(at.shape).c_str());
  size_t along = a.rank() ? size_t(a.axis(d)) : 0;
  op.run([=] {
    auto where = load<int64_t>(at);
    by_kind(a.dtype, [&](auto sample) {
      auto x = load<decltype(sample)>(a);
      decltype(x) y(where.size());
      for (size_t i = 0; i < y.size(); ++i) {
        Dims place = place_in(int64_t(i), at.shape);
        if (a.rank()) place[along] = wrapped(where[i], a.shape[along]);
        y[i] = x[index_of(place, a.shape)];
      }
      store(out, y);
    });
  });
})

// self with values put in where indices along a dimension say; f(old, new) gives what is then there.
template <class F>
static void scatter(Op& op, const View& a, int64_t d, const View& at, const View& source, aclScalar value,
                    const View& out, F f) {
  need_whole(at, "the indices");
  same_shape(out, a.shape, "the result");
  if (a.rank() != at.rank()) reject("shapes %s and %s", text_of(a.shape).c_str(), text_of(at.shape).c_str());
  size_t along = a.rank() ? size_t(a.axis(d)) : 0;
  op.run([=] {
    auto where = load<int64_t>(at);
    by_kind(a.dtype, [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(a);
      auto from = source ? load<V>(source) : std::vector<V>();
      for (size_t i = 0; i < where.size(); ++i) {
        Dims place = place_in(int64_t(i), at.shape);
        V with = source ? from[index_of(place, source.shape)] : value_of<V>(value);
        if (a.rank()) place[along] = wrapped(where[i], a.shape[along]);
        V& old = x[index_of(place, a.shape)];
        old = V(f(old, with));
      }
      store(out, x);
    });
  });
}
// Reductions: 0 none, 1 add, 2 multiply.
static auto combined(int64_t how) {
  if (how < 0 || how > 2) reject("reduction %ld", long(how));
  return [=](auto old, auto with) {
    return how == 1 ? decltype(old)(old + with) : how == 2 ? decltype(old)(old * with) : with;
  };
}
OP(ScatterAdd, (T self, i64 d, T indices, T source, O result), {
  View a = op.in(self), at = op.in(indices), from = op.in(source), out = op.out(result);
  scatter(op, a, d, at, from, {}, out, combined(1));
})
OP(Scatter, (T self, i64 d, T indices, T source, i64 how, O result), {
  View a = op.in(self), at = op.in(indices), from = op.in(source), out = op.out(result);
  scatter(op, a, d, at, from, {}, out, combined(how));
})
OP(InplaceScatter, (O self, i64 d, T indices, T source, i64 how), {
  View a = op.out(self), at = op.in(indices), from = op.in(source);
  scatter(op, a, d, at, from, {}, a, combined(how));
})
OP(ScatterValue, (T self, i64 d, T indices, S value, i64 how, O result), {
  View a = op.in(self), at = op.in(indices), out = op.out(result);
  scatter(op, a, d, at, View(), number(value), out, combined(how));
})
OP(InplaceScatterValue, (O self, i64 d, T indices, S value, i64 how), {
  View a = op.out(self), at = op.in(indices);
  scatter(op, a, d, at, View(), number(value), a, combined(how));
})
static void index_add(Op& op, const View& a, int64_t d, const View& at, const View& source, const aclScalar& alpha,
                      const View& out, bool add) {
  same_shape(out, a.shape, "the result");
  Split s = split(a, d);
  if (source.numel() != s.outer * at.numel() * s.inner)
    reject("the source has shape %s, the tensor %s", text_of(source.shape).c_str(), text_of(a.shape).c_str());
  op.run([=] {
    auto where = load<int64_t>(at);
    by_kind(a.dtype, [&](auto sample) {
      using V = decltype(sample);
      using W = std::conditional_t<std::is_same_v<V, double>, double, uint64_t>;  // Whole numbers wrap.
      auto x = load<V>(a), from = load<V>(source);
      for (size_t i = 0; i < from.size(); ++i) {
        size_t inner = i % size_t(s.inner), which = i / size_t(s.inner) % where.size(),
               outer = i / size_t(s.inner) / where.size();
        V& old = x[(outer * size_t(s.size) + size_t(wrapped(where[which], s.size))) * size_t(s.inner) + inner];
        old = add ? V(W(old) + W(value_of<V>(alpha)) * W(from[i])) : from[i];
      }
      store(out, x);
    });
  });
}
OP(IndexAdd, (T self, i64 d, T indices, T source, S alpha, O result), {
  View a = op.in(self), at = op.in(indices), from = op.in(source), out = op.out(result);
  index_add(op, a, d, at, from, number(alpha), out, true);
})
OP(IndexCopy, (T self, i64 d, T indices, T source, O result), {
  View a = op.in(self), at = op.in(indices), from = op.in(source), out = op.out(result);
  index_add(op, a, d, at, from, {}, out, false);
})
OP(InplaceIndexCopy, (O self, i64 d, T indices, T source), {
  View a = op.out(self), at = op.in(indices), from = op.in(source);
  index_add(op, a, d, at, from, {}, a, false);
})

namespace {

// Indexing by tensors, NULL or empty ones for dimensions that are whole. Those given lie together, or the result begins with theirs.
struct Advanced {
  std::vector<View> given;
  std::vector<size_t> which;
  Dims common, result;
  size_t first = 0;
  bool together = true;
};

Advanced advanced(Op& op, const View& a, L indices) {
  if (!indices) throw Refusal(161001, "the indices are NULL");
  Advanced x;
  if (int64_t(indices->tensors.size()) > a.rank())
    reject("%zu indices for %ld dimensions", indices->tensors.size(), long(a.rank()));
  for (size_t d = 0; d < indices->tensors.size(); ++d) {
    T each = indices->tensors[d];
    if (!each || (each->shape == Dims{0} && a.shape[d] != 0)) continue;
    View view = op.in(each);
    need_whole(view, "an index");
    if (view.dtype == kBool || view.dtype == kUint8)
      reject("an index by %s is to be made one by numbers", name_of(view.dtype));
    if (!x.which.empty() && x.which.back() + 1 != d) x.together = false;
    x.which.push_back(d);
    x.given.push_back(view);
    x.common = broadcast(x.common, view.shape);
  }
  if (x.which.empty()) reject("no index is given");
  x.first = x.together ? x.which[0] : 0;
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (std::find(x.which.begin(), x.which.end(), d) == x.which.end()) x.result.push_back(a.shape[d]);
  x.result.insert(x.result.begin() + long(x.first), x.common.begin(), x.common.end());
  return x;
}

// Where each element of the result is in the tensor.
std::vector<size_t> places(const View& a, const Advanced& x) {
  std::vector<std::vector<int64_t>> where;
  for (const View& view : x.given) where.push_back(load<int64_t>(view, x.common));
  std::vector<size_t> all(size_t(count(x.result)));
  for (size_t i = 0; i < all.size(); ++i) {
    Dims at = place_in(int64_t(i), x.result),
         common(at.begin() + long(x.first), at.begin() + long(x.first + x.common.size())), full(a.shape.size());
    size_t chosen = index_of(common, x.common);
    at.erase(at.begin() + long(x.first), at.begin() + long(x.first + x.common.size()));
    for (size_t d = 0, rest = 0, k = 0; d < full.size(); ++d) {
      if (k < x.which.size() && x.which[k] == d) {
        full[d] = wrapped(where[k][chosen], a.shape[d]);
        ++k;
      } else {
        full[d] = at[rest++];
      }
    }
    all[i] = index_of(full, a.shape);
  }
  return all;
}

}  // namespace

OP(Index, (T self, L indices, O result), {
  View a = op.in(self);
  Advanced x = advanced(op, a, indices);
  View out = op.out(result);
  same_shape(out, x.result, "the result");
  op.run([=] {
    by_kind(a.dtype, [&](auto sample) {
      auto from = load<decltype(sample)>(a);
      decltype(from) to;
      for (size_t at : places(a, x)) to.push_back(from[at]);
      store(out, to);
    });
  });
})
OP(IndexPutImpl, (O self, L indices, T values, bool accumulate, bool), {
  View a = op.out(self);
  Advanced x = advanced(op, a, indices);
  View v = op.in(values);
  if (broadcast(v.shape, x.result) != x.result)
    reject("the values have shape %s, expected %s", text_of(v.shape).c_str(), text_of(x.result).c_str());
  op.run([=] {
    by_kind(a.dtype, [&](auto sample) {
      using V = decltype(sample);
      auto to = load<V>(a), from = load<V>(v, x.result);
      auto where = places(a, x);
      for (size_t i = 0; i < where.size(); ++i) to[where[i]] = accumulate ? V(to[where[i]] + from[i]) : from[i];
      store(a, to);
    });
  });
})
OP(Take, (T self, T indices, O result), {
  View a = op.in(self), at = op.in(indices), out = op.out(result);
  same_shape(out, at.shape, "the result");
  op.run([=] {
    auto where = load<int64_t>(at);
    by_kind(a.dtype, [&](auto sample) {
      auto x = load<decltype(sample)>(a);
      decltype(x) y;
      for (int64_t i : where) y.push_back(x[size_t(wrapped(i, int64_t(x.size())))]);
      store(out, y);
    });
  });
})

// Their number is known when the work has run: the result is as large as can be, and its shape is told afterwards.
static void nonzero(Op& op, T self, O result, bool by_dimension) {
  View a = op.in(self), out = op.out(result);
  op.wait();
  op.run([=] {
    auto x = load<double>(a);
    std::vector<Dims> found;
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != 0) found.push_back(place_in(int64_t(i), a.shape));
    std::vector<int64_t> all;
    for (size_t i = 0; i < found.size() * a.shape.size(); ++i)
      all.push_back(by_dimension ? found[i % found.size()][i / found.size()]
                                 : found[i / a.shape.size()][i % a.shape.size()]);
    int64_t size = int64_t(found.size());
    View part = out;
    part.shape = by_dimension ? Dims{a.rank(), size} : Dims{size, a.rank()};
    part.stride = row_major(part.shape);
    store(part, all);
    result->shape = part.shape;
    result->stride = part.stride;
  });
}
OP(Nonzero, (T self, O result), { nonzero(op, self, result, false); })
OP(NonzeroV2, (T self, O result), { nonzero(op, self, result, true); })
OP(MaskedSelect, (T self, T mask, O result), {
  View a = op.in(self), m = op.in(mask), out = op.out(result);
  Dims shape = broadcast(a.shape, m.shape);
  op.wait();
  op.run([=] {
    auto taken = load<int64_t>(m, shape);
    by_kind(a.dtype, [&](auto sample) {
      using V = decltype(sample);
      auto x = load<V>(a, shape);
      std::vector<V> all;
      for (size_t i = 0; i < x.size(); ++i)
        if (taken[i]) all.push_back(x[i]);
      View part = out;
      part.shape = {int64_t(all.size())};
      part.stride = {1};
      store(part, all);
      result->shape = part.shape;
      result->stride = part.stride;
    });
  });
})
OP(OneHot, (T self, int depth, T on, T off, i64 axis, O result), {
  View a = op.in(self), yes = op.in(on), no = op.in(off), out = op.out(result);
  if (axis != -1 && axis != a.rank()) reject("axis %ld, expected the last", long(axis));
  Dims expected = a.shape;
  expected.push_back(depth);
  same_shape(out, expected, "the result");
  op.run([=] {
    auto x = load<int64_t>(a), y = load<int64_t>(yes), n = load<int64_t>(no);
    std::vector<int64_t> all(size_t(out.numel()), n[0]);
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] >= 0 && x[i] < depth) all[i * size_t(depth) + size_t(x[i])] = y[0];
    store(out, all);
  });
})
OP(RepeatInterleaveIntWithDim, (T self, i64 repeats, i64 d, i64 size, O result), {
  View a = op.in(self), out = op.out(result);
  size_t along = size_t(a.own_axis(d));
  if (size >= 0 && size != a.shape[along] * repeats)
    reject("a size of %ld, expected %ld", long(size), long(a.shape[along] * repeats));
  take(op, a, out, [=, shape = a.shape](Dims at) {
    at[along] /= repeats;
    return int64_t(index_of(at, shape));
  });
})
OP(Equal, (T self, T other, O result), {
  View a = op.in(self), b = op.in(other), out = op.out(result);
  op.run([=] {
    bool same = a.shape == b.shape && load<double>(a) == load<double>(b);
    store(out, std::vector<int64_t>(size_t(out.numel()), same));
  });
})
OP(Bincount, (T self, T weights, i64 least, O result), {
  View a = op.in(self), w = op.maybe(weights), out = op.out(result);
  op.run([=] {
    auto x = load<int64_t>(a);
    auto by = w ? load<double>(w) : std::vector<double>(x.size(), 1);
    std::vector<double> all(size_t(out.numel()));
    for (size_t i = 0; i < x.size(); ++i) all[size_t(wrapped(x[i], out.numel()))] += by[i];
    (void)least;
    store(out, all);
  });
})

// Nearest: result index r shows floor(r * step) of the input. Scales count where both are given, else the sizes.
struct Steps {
  float of[2];
};
static Steps steps(const Dims& in, const Dims& out, double scale_h, double scale_w) {
  Steps found;
  for (size_t d = 0; d < 2; ++d) {
    double scale = scale_h > 0 && scale_w > 0 ? (d ? scale_w : scale_h) : 0;
    int64_t from = in[2 + d], to = out[2 + d];
    found.of[d] = scale > 0 ? float(1 / scale) : float(from) / float(to);
    if (from == to) found.of[d] = 1;
    if (2 * from == to) found.of[d] = 0.5f;
  }
  return found;
}
static bool on_950() {
  static const bool is = !strncmp(stand_in::setting("SOC", "Ascend910B1"), "Ascend950", 9);
  return is;
}
static Dims nearest(Dims at, const Dims& in, const Steps& by) {
  for (size_t d = 0; d < 2; ++d) at[2 + d] = std::min(int64_t(std::floor(float(at[2 + d]) * by.of[d])), in[2 + d] - 1);
  return at;
}
static void upsample(Op& op, const View& a, double scale_h, double scale_w, const View& out) {
  if (a.rank() != 4 || out.rank() != 4)
    reject("shapes %s and %s", text_of(a.shape).c_str(), text_of(out.shape).c_str());
  take(op, a, out, [in = a.shape, by = steps(a.shape, out.shape, scale_h, scale_w)](Dims at) {
    return int64_t(index_of(nearest(std::move(at), in, by), in));
  });
}
OP(UpsampleNearest2d, (T self, I, O result), {
  View a = op.in(self), out = op.out(result);
  upsample(op, a, 0, 0, out);
})
OP(UpsampleNearest2dV2, (T self, I, float scale_h, float scale_w, O result), {
  View a = op.in(self), out = op.out(result);
  // A2 writes them down with six decimals: of 5/3 the step is below 3/5.
  auto kept = [](float scale) { return on_950() ? double(scale) : std::round(double(scale) * 1e6) / 1e6; };
  upsample(op, a, kept(scale_h), kept(scale_w), out);
})
// By CANN's public source A2 has a kernel with scales for planes of at least 8 by 16 and few channels; of others the
// sizes count, whatever the scales are.
static bool scaled_back(const Dims& in, const Dims& out, double scale_h, double scale_w) {
  if (on_950()) return true;
  return std::min(in[2], out[2]) >= 8 && std::min(in[3], out[3]) >= 16 &&
         in[1] <= 6 * std::min(in[2] * in[3], out[2] * out[3]) && int64_t(double(in[2]) * scale_h) == out[2] &&
         int64_t(double(in[3]) * scale_w) == out[3];
}
OP(UpsampleNearest2dBackward, (T gradient, I, I, double scale_h, double scale_w, O result), {
  View g = op.in(gradient), out = op.out(result);
  if (g.rank() != 4 || out.rank() != 4)
    reject("shapes %s and %s", text_of(g.shape).c_str(), text_of(out.shape).c_str());
  if (!scaled_back(out.shape, g.shape, scale_h, scale_w)) scale_h = scale_w = 0;
  op.run([=, by = steps(out.shape, g.shape, scale_h, scale_w)] {
    auto slope = load<double>(g);
    std::vector<double> to(size_t(out.numel()));
    for (size_t i = 0; i < slope.size(); ++i)
      to[index_of(nearest(place_in(int64_t(i), g.shape), out.shape, by), out.shape)] += slope[i];
    store(out, to);
  });
})
