// Random numbers: Philox 4x32-10 by seed and offset, so that a call gives the same whatever ran before.
#include "op.hpp"

#include <algorithm>
#include <numeric>

using namespace ops;

namespace {

struct Philox {
  uint64_t seed, offset;

  // Number i of the sequence.
  uint32_t bits(uint64_t i) const {
    uint32_t c[4] = {uint32_t(offset), uint32_t(offset >> 32), uint32_t(i / 4), uint32_t(i / 4 >> 32)};
    uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
      uint64_t x = uint64_t(c[0]) * 0xD2511F53u, y = uint64_t(c[2]) * 0xCD9E8D57u;
      uint32_t next[4] = {uint32_t(y >> 32) ^ c[1] ^ key[0], uint32_t(y), uint32_t(x >> 32) ^ c[3] ^ key[1],
                          uint32_t(x)};
      std::copy(next, next + 4, c);
      key[0] += 0x9E3779B9u;
      key[1] += 0xBB67AE85u;
    }
    return c[i % 4];
  }
  double uniform(uint64_t i) const { return double(bits(i) >> 8) / double(1 << 24); }
  double normal(uint64_t i) const {
    double u = (double(bits(2 * i)) + 1) / 4294967296.0, v = double(bits(2 * i + 1)) / 4294967296.0;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
  }
};

Philox philox(int64_t seed, int64_t offset) { return {uint64_t(seed), uint64_t(offset)}; }

// f(i) for each element.
template <class F>
void draw(Op& op, const View& out, F f) {
  op.run([=] {
    std::vector<double> values(size_t(out.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = f(i);
    store(out, values);
  });
}

}  // namespace

OP(InplaceUniform, (O self, double from, double to, uint64_t seed, uint64_t offset), {
  View out = op.out(self);
  if (to < from) reject("from %g to %g", from, to);
  draw(op, out, [=, r = Philox{seed, offset}](uint64_t i) { return from + (to - from) * r.uniform(i); });
})
OP(InplaceNormal, (O self, float mean, float spread, i64 seed, i64 offset), {
  View out = op.out(self);
  if (!(spread >= 0)) reject("a standard deviation of %g", double(spread));
  draw(op, out, [=, r = philox(seed, offset)](uint64_t i) { return double(mean) + double(spread) * r.normal(i); });
})
OP(NormalFloatFloat, (float mean, float spread, i64 seed, i64 offset, O result), {
  View out = op.out(result);
  draw(op, out, [=, r = philox(seed, offset)](uint64_t i) { return double(mean) + double(spread) * r.normal(i); });
})
OP(NormalTensorTensor, (T mean, T spread, i64 seed, i64 offset, O result), {
  View m = op.in(mean), s = op.in(spread), out = op.out(result);
  op.run([=, r = philox(seed, offset)] {
    auto x = load<double>(m, out.shape), y = load<double>(s, out.shape);
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i] * r.normal(i);
    store(out, x);
  });
})
OP(NormalTensorFloat, (T mean, float spread, i64 seed, i64 offset, O result), {
  View m = op.in(mean), out = op.out(result);
  op.run([=, r = philox(seed, offset)] {
    auto x = load<double>(m, out.shape);
    for (size_t i = 0; i < x.size(); ++i) x[i] += double(spread) * r.normal(i);
    store(out, x);
  });
})
OP(NormalFloatTensor, (float mean, T spread, i64 seed, i64 offset, O result), {
  View s = op.in(spread), out = op.out(result);
  op.run([=, r = philox(seed, offset)] {
    auto x = load<double>(s, out.shape);
    for (size_t i = 0; i < x.size(); ++i) x[i] = double(mean) + x[i] * r.normal(i);
    store(out, x);
  });
})
OP(InplaceRandom, (O self, i64 from, i64 to, i64 seed, i64 offset), {
  View out = op.out(self);
  if (to <= from) reject("from %ld to %ld", long(from), long(to));
  op.run([=, r = philox(seed, offset)] {
    std::vector<int64_t> values(size_t(out.numel()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = from + int64_t((uint64_t(r.bits(2 * i)) << 32 | r.bits(2 * i + 1)) % uint64_t(to - from));
    store(out, values);
  });
})
static void bernoulli(Op& op, const View& out, double p, Philox r) {
  draw(op, out, [=](uint64_t i) { return r.uniform(i) < p ? 1.0 : 0.0; });
}
OP(InplaceBernoulli, (O self, S p, i64 seed, i64 offset),
   { bernoulli(op, op.out(self), number(p).real, philox(seed, offset)); })
OP(Bernoulli, (T self, S p, i64 seed, i64 offset, O result), {
  same_shape(op.in(self), view_of(result, "the result").shape, "the input");
  bernoulli(op, op.out(result), number(p).real, philox(seed, offset));
})
OP(InplaceBernoulliTensor, (O self, T p, i64 seed, i64 offset), {
  View out = op.out(self), chance = op.in(p);
  op.run([=, r = philox(seed, offset)] {
    auto x = load<double>(chance, out.shape);
    for (size_t i = 0; i < x.size(); ++i) x[i] = r.uniform(i) < x[i];
    store(out, x);
  });
})
OP(Randperm, (i64 n, i64 seed, i64 offset, O result), {
  View out = op.out(result);
  same_shape(out, {n}, "the result");
  op.run([=, r = philox(seed, offset)] {
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), int64_t(0));
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[r.bits(i) % i]);
    store(out, order);
  });
})
OP(Multinomial, (T self, i64 samples, bool replacement, i64 seed, i64 offset, O result), {
  View a = op.in(self), out = op.out(result);
  if (a.rank() < 1 || a.rank() > 2) reject("an input of %ld dimensions", long(a.rank()));
  int64_t n = a.dim(-1);
  if (!replacement && samples > n) reject("%ld samples of %ld without replacement", long(samples), long(n));
  op.run([=, r = philox(seed, offset)] {
    auto p = load<double>(a);
    std::vector<int64_t> chosen;
    uint64_t drawn = 0;
    for (size_t row = 0; row + size_t(n) <= p.size() && n; row += size_t(n))
      for (int64_t i = 0; i < samples; ++i) {
        double all = std::accumulate(p.begin() + long(row), p.begin() + long(row) + n, 0.0),
               at = r.uniform(drawn++) * all;
        size_t which = 0;
        while (which + 1 < size_t(n) && at >= p[row + which]) at -= p[row + which++];
        chosen.push_back(int64_t(which));
        if (!replacement) p[row + which] = 0;
      }
    store(out, chosen);
  });
})

// Dropout's mask: a bit for each element, in bytes of a multiple of 128 elements. A set bit stays.
static View bits_of(Op& op, O mask, int64_t elements) {
  View view = op.out(mask);
  if (view.storage < size_t((elements + 7) / 8))
    reject("the mask has %zu bytes for %ld elements", view.storage, long(elements));
  view.dtype = kUint8;
  view.shape = {(elements + 7) / 8};
  view.stride = {1};
  return view;
}
static std::vector<int64_t> packed(const std::vector<char>& kept) {
  std::vector<int64_t> bytes((kept.size() + 7) / 8);
  for (size_t i = 0; i < kept.size(); ++i) bytes[i / 8] |= int64_t(kept[i] != 0) << i % 8;
  return bytes;
}
static std::vector<char> kept_of(int64_t elements, double p, Philox r) {
  std::vector<char> kept(static_cast<size_t>(elements));
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = p < 1 && r.uniform(i) >= p;
  return kept;
}
static void check_chance(double p) {
  if (!(p >= 0 && p <= 1)) reject("a probability of %g", p);
}
static void gen_mask(Op& op, I shape, double p, int64_t seed, int64_t offset, O mask) {
  check_chance(p);
  int64_t elements = count(dims(shape));
  View bits = bits_of(op, mask, elements);
  op.run([=, r = philox(seed, offset)] { store(bits, packed(kept_of(elements, p, r))); });
}
OP(DropoutGenMask, (I shape, double p, i64 seed, i64 offset, O mask), { gen_mask(op, shape, p, seed, offset, mask); })
OP(DropoutGenMaskV2, (I shape, double p, i64 seed, i64 offset, int, O mask),
   { gen_mask(op, shape, p, seed, offset, mask); })
OP(DropoutDoMask, (T self, T mask, double p, O result), {
  View a = op.in(self), bits = op.in(mask), out = op.out(result);
  check_chance(p);
  same_shape(out, a.shape, "the result");
  if (bits.storage < size_t((a.numel() + 7) / 8))
    reject("the mask has %zu bytes for %ld elements", bits.storage, long(a.numel()));
  bits.dtype = kUint8;
  bits.shape = {(a.numel() + 7) / 8};
  bits.stride = {1};
  op.run([=] {
    auto x = load<double>(a);
    auto bytes = load<int64_t>(bits);
    for (size_t i = 0; i < x.size(); ++i) x[i] = bytes[i / 8] >> i % 8 & 1 ? x[i] / (1 - p) : 0;
    store(out, x);
  });
})
OP(DropoutV3, (T self, T, double p, i64 seed, i64 offset, O result, O mask), {
  View a = op.in(self), out = op.out(result), bits = bits_of(op, mask, a.numel());
  check_chance(p);
  same_shape(out, a.shape, "the result");
  op.run([=, r = philox(seed, offset)] {
    auto x = load<double>(a);
    auto kept = kept_of(a.numel(), p, r);
    for (size_t i = 0; i < x.size(); ++i) x[i] = kept[i] ? x[i] / (1 - p) : 0;
    store(out, x);
    store(bits, packed(kept));
  });
})
