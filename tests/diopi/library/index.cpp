// Places: cat, gather, scatter, indices, triangles, ranges; and random numbers.
#include <algorithm>
#include <numeric>
#include <string_view>

#include "tensor.hpp"

namespace {

size_t wrapped(int64_t i, int64_t size) {
  check(i >= -size && i < size, "an index is out of range");
  return static_cast<size_t>(i < 0 ? i + size : i);
}

// f(values) by how the tensor counts.
template <class F>
diopiError_t moved(In t, F f) {
  return body([&] { by_kind(t, f); });
}

diopiError_t triangle(Out out, In t, int64_t diagonal, bool lower) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    const Shape shape = shape_of(t);
    const int64_t rows = shape[shape.size() - 2], columns = shape.back();
    Array<T> x = read<T>(t);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / columns % rows, column = static_cast<int64_t>(i) % columns;
      if (lower ? column - row > diagonal : column - row < diagonal) x[i] = T(0);
    }
    write<T>(out, x);
  });
}

template <class T>
void combine(T& to, T value, std::string_view how) {
  if (how.empty())
    to = value;
  else if (how == "add")
    to += value;
  else if (how == "multiply")
    to *= value;
  else
    throw Refused{diopiNoImplement};
}

// of(i): what goes to the i-th element of `index`.
template <class T, class F>
void scatter(Out out, In t, int64_t dim, In index, const char* how, F of) {
  const Shape shape = shape_of(t), places = shape_of(index);
  Array<T> x = read<T>(t);
  const Array<int64_t> at = read<int64_t>(index);
  Shape place(places.size(), 0);
  for (size_t i = 0; i < at.size(); ++i) {
    size_t to = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const size_t p = static_cast<int64_t>(d) == dim ? wrapped(at[i], shape[d]) : static_cast<size_t>(place[d]);
      to = to * static_cast<size_t>(shape[d]) + p;
    }
    combine<T>(x[to], of(place), how);
    for (size_t d = places.size(); d-- > 0;) {
      if (++place[d] < places[d]) break;
      place[d] = 0;
    }
  }
  write<T>(out, x);
}

size_t dense_at(const Shape& shape, const Shape& place) {
  size_t at = 0;
  for (size_t d = 0; d < shape.size(); ++d) at = at * static_cast<size_t>(shape[d]) + static_cast<size_t>(place[d]);
  return at;
}

// For x[indices]: the shape of what is taken, and for each of it the place in x. Masks are refused.
Shape taken(In t, In* indices, int64_t n, Array<size_t>* from) {
  const Shape shape = shape_of(t);
  Shape common;
  int64_t first = -1, last = -1;
  bool apart = false;
  for (int64_t i = 0; i < n; ++i) {
    if (!indices[i]) continue;
    if (dtype_of(indices[i]) == diopi_dtype_bool || dtype_of(indices[i]) == diopi_dtype_uint8)
      throw Refused{diopiDtypeNotSupported};
    apart = apart || (last >= 0 && i != last + 1);
    if (first < 0) first = i;
    last = i;
    const Shape own = shape_of(indices[i]);
    Shape wider(std::max(common.size(), own.size()), 1);
    for (size_t d = 0; d < common.size(); ++d) wider[wider.size() - common.size() + d] = common[d];
    for (size_t d = 0; d < own.size(); ++d) {
      int64_t& size = wider[wider.size() - own.size() + d];
      if (size == 1) size = own[d];
    }
    common = wider;
  }
  check(first >= 0, "no index is given");
  const auto given = [&](size_t d) { return static_cast<int64_t>(d) < n && indices[d]; };
  Shape out;
  size_t at = 0;  // where the common dimensions are in the result
  if (!apart)
    for (int64_t d = 0; d < first; ++d) out.push_back(shape[static_cast<size_t>(d)]);
  at = out.size();
  out.insert(out.end(), common.begin(), common.end());
  for (size_t d = apart ? 0 : static_cast<size_t>(first); d < shape.size(); ++d)
    if (!given(d)) out.push_back(shape[d]);

  Array<Array<int64_t>> places(shape.size());
  for (size_t d = 0; d < shape.size(); ++d)
    if (given(d)) places[d] = read<int64_t>(indices[d], common);
  Shape place(out.size(), 0);
  for (int64_t left = count(out); left > 0; --left) {
    const Shape of_common(place.begin() + static_cast<int64_t>(at),
                          place.begin() + static_cast<int64_t>(at + common.size()));
    const size_t k = dense_at(common, of_common);
    Shape source;
    size_t plain = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (given(d)) {
        source.push_back(static_cast<int64_t>(wrapped(places[d][k], shape[d])));
        continue;
      }
      if (plain == at) plain += common.size();
      source.push_back(place[plain++]);
    }
    from->push_back(dense_at(shape, source));
    for (size_t d = out.size(); d-- > 0;) {
      if (++place[d] < out[d]) break;
      place[d] = 0;
    }
  }
  return out;
}

// Numbers of 64 bits from a generator's seed and offset, which it moves on.
class Random {
 public:
  explicit Random(diopiGeneratorHandle_t generator) : generator_(generator) {
    uint64_t seed = 0;
    check(diopiGeneratorGetSeedAndOffset(generator, &seed, &offset_) == diopiSuccess, "there is no generator");
    seed_ = seed, state_ = seed * 0x9e3779b97f4a7c15u + offset_ * 0xbf58476d1ce4e5b9u;
  }
  ~Random() { diopiGeneratorSetSeedAndOffset(generator_, seed_, offset_ + drawn_); }
  uint64_t next() {
    ++drawn_;
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  double uniform() { return static_cast<double>(next() >> 40) / (1 << 24); }  // [0, 1), as float has them
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  diopiGeneratorHandle_t generator_;
  uint64_t seed_ = 0, offset_ = 0, state_ = 0, drawn_ = 0;
};

template <class F>
diopiError_t drawn(Out t, diopiGeneratorHandle_t generator, F f) {
  return body([&] {
    Random random(generator);
    Array<double> x(static_cast<size_t>(numel(t)));
    for (double& v : x) v = f(random);
    write<double>(t, x);
  });
}

}  // namespace

extern "C" {

diopiError_t diopiCat(Context, Out out, In* tensors, int64_t n, int64_t dim) {
  return moved(out, [&](auto kind) {
    using T = decltype(kind);
    const Around a(shape_of(out), dim);
    Array<T> all(static_cast<size_t>(numel(out)));
    int64_t begin = 0;
    for (int64_t t = 0; t < n; ++t) {
      if (shape_of(tensors[t]) == Shape{0}) continue;
      const Around b(shape_of(tensors[t]), dim);
      const Array<T> x = read<T>(tensors[t]);
      for (int64_t o = 0; o < b.outer; ++o)
        for (int64_t i = 0; i < b.size * b.inner; ++i)
          all[static_cast<size_t>(a.at(o, begin, 0) + i)] = x[static_cast<size_t>(b.at(o, 0, 0) + i)];
      begin += b.size;
    }
    write<T>(out, all);
  });
}
diopiError_t diopiStack(Context, Out out, In* tensors, int64_t n, int64_t dim) {
  return moved(out, [&](auto kind) {
    using T = decltype(kind);
    const Around a(shape_of(out), dim);
    Array<T> all(static_cast<size_t>(numel(out)));
    for (int64_t t = 0; t < n; ++t) {
      const Array<T> x = read<T>(tensors[t]);
      for (int64_t o = 0; o < a.outer; ++o)
        for (int64_t i = 0; i < a.inner; ++i)
          all[static_cast<size_t>(a.at(o, t, i))] = x[static_cast<size_t>(o * a.inner + i)];
    }
    write<T>(out, all);
  });
}
diopiError_t diopiIndexSelect(Context, Out out, In t, int64_t dim, In index) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    const Array<T> x = read<T>(t);
    const Array<int64_t> at = read<int64_t>(index);
    const Around a(shape_of(t), dim);
    Array<T> all;
    for (int64_t o = 0; o < a.outer; ++o)
      for (const int64_t i : at)
        for (int64_t k = 0; k < a.inner; ++k)
          all.push_back(x[static_cast<size_t>(a.at(o, static_cast<int64_t>(wrapped(i, a.size)), k))]);
    write<T>(out, all);
  });
}
diopiError_t diopiIndexFillScalar(Context, Out out, In t, int64_t dim, In index, Number value) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    Array<T> x = read<T>(t);
    const Around a(shape_of(t), dim);
    for (const int64_t i : read<int64_t>(index))
      for (int64_t o = 0; o < a.outer; ++o)
        for (int64_t k = 0; k < a.inner; ++k)
          x[static_cast<size_t>(a.at(o, static_cast<int64_t>(wrapped(i, a.size)), k))] = number<T>(value);
    write<T>(out, x);
  });
}
diopiError_t diopiGather(Context, Out out, In t, int64_t dim, In index) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    const Shape shape = shape_of(t), places = shape_of(index);
    const Array<T> x = read<T>(t);
    const Array<int64_t> at = read<int64_t>(index);
    Array<T> all;
    Shape place(places.size(), 0);
    for (const int64_t i : at) {
      Shape from = place;
      if (!shape.empty())
        from[static_cast<size_t>(dim)] = static_cast<int64_t>(wrapped(i, shape[static_cast<size_t>(dim)]));
      all.push_back(x[dense_at(shape, from)]);
      for (size_t d = places.size(); d-- > 0;) {
        if (++place[d] < places[d]) break;
        place[d] = 0;
      }
    }
    write<T>(out, all);
  });
}
diopiError_t diopiScatter(Context, Out out, In t, int64_t dim, In source, In index, const char* how) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    const Array<T> values = read<T>(source);
    const Shape shape = shape_of(source);
    scatter<T>(out, t, dim, index, how, [&](const Shape& place) { return values[dense_at(shape, place)]; });
  });
}
diopiError_t diopiScatterScalar(Context, Out out, In t, int64_t dim, Number value, In index, const char* how) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    scatter<T>(out, t, dim, index, how, [&](const Shape&) { return number<T>(value); });
  });
}
// These two make their outputs.
diopiError_t diopiIndex(Context context, Out* out, In t, In* indices, int64_t n) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    Array<size_t> from;
    const Shape shape = taken(t, indices, n, &from);
    const diopiSize_t size = {shape.data(), static_cast<int64_t>(shape.size())};
    if (const diopiError_t result = diopiRequireTensor(context, out, &size, nullptr, dtype_of(t), diopi_device))
      throw Refused{result};
    const Array<T> x = read<T>(t);
    Array<T> all;
    for (const size_t i : from) all.push_back(x[i]);
    write<T>(*out, all);
  });
}
diopiError_t diopiNonzero(Context context, Out* out, In t) {
  return body([&] {
    const Shape shape = shape_of(t);
    const Array<double> x = read<double>(t);
    Array<int64_t> all;
    int64_t found = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 0) continue;
      ++found;
      auto rest = static_cast<int64_t>(i);
      Shape place(shape.size());
      for (size_t d = shape.size(); d-- > 0;) place[d] = rest % shape[d], rest /= shape[d];
      all.insert(all.end(), place.begin(), place.end());
    }
    const int64_t sizes[2] = {found, static_cast<int64_t>(shape.size())};
    const diopiSize_t size = {sizes, 2};
    if (const diopiError_t result = diopiRequireTensor(context, out, &size, nullptr, diopi_dtype_int64, diopi_device))
      throw Refused{result};
    write<int64_t>(*out, all);
  });
}
diopiError_t diopiIndexPutInp(Context, Out t, In values, In* indices, int64_t n, bool accumulate) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    Array<size_t> to;
    const Shape shape = taken(t, indices, n, &to);
    const Array<T> given = read<T>(values, shape);
    Array<T> x = read<T>(t);
    for (size_t i = 0; i < to.size(); ++i) combine<T>(x[to[i]], given[i], accumulate ? "add" : "");
    write<T>(t, x);
  });
}
diopiError_t diopiTril(Context, Out out, In t, int64_t diagonal) { return triangle(out, t, diagonal, true); }
diopiError_t diopiTriu(Context, Out out, In t, int64_t diagonal) { return triangle(out, t, diagonal, false); }
diopiError_t diopiFlip(Context, Out out, In t, diopiSize_t dims) {
  return moved(t, [&](auto kind) {
    using T = decltype(kind);
    const Shape shape = shape_of(t);
    Array<T> x = read<T>(t);
    for (const int64_t dim : list(dims)) {
      const Around a(shape, dim);
      const Array<T> before = x;
      for (int64_t o = 0; o < a.outer; ++o)
        for (int64_t i = 0; i < a.size; ++i)
          for (int64_t k = 0; k < a.inner; ++k)
            x[static_cast<size_t>(a.at(o, a.size - 1 - i, k))] = before[static_cast<size_t>(a.at(o, i, k))];
    }
    write<T>(out, x);
  });
}
diopiError_t diopiArange(Context, Out out, Number start, Number, Number step) {
  return body([&] {
    by_kind(out, [&](auto kind) {
      using T = decltype(kind);
      Array<T> x(static_cast<size_t>(numel(out)));
      for (size_t i = 0; i < x.size(); ++i) x[i] = number<T>(start) + static_cast<T>(i) * number<T>(step);
      write<T>(out, x);
    });
  });
}
diopiError_t diopiLinspace(Context, Out out, Number start, Number end, int64_t steps) {
  return body([&] {
    const auto a = number<double>(start), b = number<double>(end);
    Array<double> x(static_cast<size_t>(steps));
    for (int64_t i = 0; i < steps; ++i)
      x[static_cast<size_t>(i)] =
          steps == 1 ? a : a + (b - a) * static_cast<double>(i) / static_cast<double>(steps - 1);
    write<double>(out, x);
  });
}

diopiError_t diopiUniformInp(Context, Out t, double from, double to, diopiGeneratorHandle_t generator) {
  return drawn(t, generator, [&](Random& random) { return from + (to - from) * random.uniform(); });
}
diopiError_t diopiNormalInp(Context, Out t, double mean, double std, diopiGeneratorHandle_t generator) {
  return drawn(t, generator, [&](Random& random) { return mean + std * random.normal(); });
}
diopiError_t diopiBernoulliScalar(Context, Out t, double p, diopiGeneratorHandle_t generator) {
  return drawn(t, generator, [&](Random& random) { return random.uniform() < p; });
}
diopiError_t diopiRandomInp(Context, Out t, int64_t from, const int64_t* to, diopiGeneratorHandle_t generator) {
  if (!to) return diopiNoImplement;
  const auto range = static_cast<uint64_t>(*to - from);
  return body([&] {
    Random random(generator);
    Array<int64_t> x(static_cast<size_t>(numel(t)));
    for (int64_t& v : x) v = from + static_cast<int64_t>(random.next() % range);
    write<int64_t>(t, x);
  });
}
diopiError_t diopiRandperm(Context, Out t, int64_t n, diopiGeneratorHandle_t generator) {
  return body([&] {
    Random random(generator);
    Array<int64_t> x(static_cast<size_t>(n));
    std::iota(x.begin(), x.end(), 0);
    for (size_t i = x.size(); i > 1; --i) std::swap(x[i - 1], x[random.next() % i]);
    write<int64_t>(t, x);
  });
}

}  // extern "C"
