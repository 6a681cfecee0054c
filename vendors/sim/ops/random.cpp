// Random numbers from Philox-4x32-10: element i comes from counter `offset` + i / 4, word i % 4, so a result
// depends on the seed and the place alone, not on how the work was split.
#include <cmath>

#include "ops/loop.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

struct Philox {
  uint32_t key[2];
  uint64_t offset;
  explicit Philox(const cw_philox& p) : key{uint32_t(p.seed), uint32_t(p.seed >> 32)}, offset(p.offset) {}

  // The four words of counter `at`; `sequence` tells further draws for the same elements apart.
  void draw(uint64_t at, uint32_t sequence, uint32_t (&out)[4]) const {
    uint32_t c[4] = {uint32_t(offset + at), uint32_t((offset + at) >> 32), sequence, 0};
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
      const uint32_t next[4] = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1,
                                uint32_t(p0)};
      std::copy(next, next + 4, c);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    std::copy(c, c + 4, out);
  }
};

// f(uniform, uniform): two numbers in [0, 1) for each element, in the row-major order of the output.
template <class F>
cw_status fill_random(Call& call, int generator_at, F f) {
  Tensor out;
  TRY(call.tensor(0, &out));
  const cw_philox* state = call.philox(generator_at);
  if (!state) return call.declined("not without a generator");
  if (!out.contiguous()) return call.declined("only a dense tensor");
  const Philox philox(*state);
  return call.launch([=] {
    const int64_t count = out.numel(), size = size_of(out.dtype);
    uint32_t high[4], low[4];
    for (int64_t i = 0; i < count; ++i) {
      if (i % 4 == 0) {
        philox.draw(uint64_t(i / 4), 0, high);
        philox.draw(uint64_t(i / 4), 1, low);
      }
      // 53 bits for double; 24 for the others, whose rounding up to 1 would leave the range.
      const uint32_t a = high[i % 4], b = low[i % 4];
      const double u = out.dtype == kDouble     ? double((uint64_t(a) << 21) ^ (b >> 11)) * 0x1p-53
                       : out.dtype == kBFloat16 ? double(a >> 24) * 0x1p-8
                       : out.dtype == kHalf     ? double(a >> 21) * 0x1p-11
                                                : double(a >> 8) * 0x1p-24;
      store_one(out.data + i * size, f(u, a, b), out.dtype);
    }
    return CW_OK;
  });
}

// self, from, to, generator
cw_status uniform(Call& call) {
  const double from = call.number<double>(1, 0.0), to = call.number<double>(2, 1.0);
  return fill_random(call, 3, [=](double u, uint32_t, uint32_t) { return from + u * (to - from); });
}

// self, mean, std, generator: Box and Muller, 1958
cw_status normal(Call& call) {
  const double mean = call.number<double>(1, 0.0), deviation = call.number<double>(2, 1.0);
  return fill_random(call, 3, [=](double, uint32_t a, uint32_t b) {
    const double radius = std::sqrt(-2.0 * std::log((double(a) + 1.0) * 0x1p-32));
    return mean + deviation * radius * std::cos(6.283185307179586477 * double(b) * 0x1p-32);
  });
}

// self, p, generator
cw_status bernoulli(Call& call) {
  const double p = call.number<double>(1, 0.5);
  return fill_random(call, 2, [=](double, uint32_t a, uint32_t) { return double(a) * 0x1p-32 < p ? 1.0 : 0.0; });
}

}  // namespace

const OpList& random_ops() {
  static const OpList list = {
      {"aten::uniform_", uniform, floats, CW_NEEDS_CONTIGUOUS},
      {"aten::normal_", normal, floats, CW_NEEDS_CONTIGUOUS},
      {"aten::bernoulli_.float", bernoulli, real, CW_NEEDS_CONTIGUOUS},
  };
  return list;
}

}  // namespace sim
