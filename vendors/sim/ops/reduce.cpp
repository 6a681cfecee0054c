// Reductions to one value per kept position: sum, mean, amax, all. Floats are accumulated in double, which is
// slower than blocks of float and never less exact.
#include "ops/dims.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

template <class C>
struct Sum {
  static C start() { return C(0); }
  static C step(C a, C x) { return a + x; }
  static C finish(C a, int64_t) { return a; }
};
template <class C>
struct Mean : Sum<C> {
  static C finish(C a, int64_t n) { return C(double(a) / double(n)); }
};
template <class C>
struct Prod {
  static C start() { return C(1); }
  static C step(C a, C x) { return a * x; }
  static C finish(C a, int64_t) { return a; }
};
template <class C>
struct Max {
  static C start() {
    return std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity()
                                                : std::numeric_limits<C>::lowest();
  }
  static C step(C a, C x) { return a != a || a > x ? a : x; }
  static C finish(C a, int64_t) { return a; }
};
template <class C>
struct Min {
  static C start() {
    return std::numeric_limits<C>::has_infinity ? std::numeric_limits<C>::infinity() : std::numeric_limits<C>::max();
  }
  static C step(C a, C x) { return a != a || a < x ? a : x; }
  static C finish(C a, int64_t) { return a; }
};
template <class C>
struct Any {
  static C start() { return C(0); }
  static C step(C a, C x) { return C(a != C(0) || x != C(0)); }
  static C finish(C a, int64_t) { return a; }
};
template <class C>
struct All {
  static C start() { return C(1); }
  static C step(C a, C x) { return C(a != C(0) && x != C(0)); }
  static C finish(C a, int64_t) { return a; }
};

// One output at a time, over rows of the reduced dimensions; eight partial results hide the adder's latency.
template <class C, template <class> class F>
C reduce_one(const Reduction& r, const char* from, C* values) {
  constexpr int lanes = 8;
  C partial[lanes];
  std::fill(partial, partial + lanes, F<C>::start());
  r.reduced.each(from, [&](const char* row) {
    for (int64_t start = 0; start < r.reduced.inner; start += block) {
      int64_t n = std::min(block, r.reduced.inner - start), i = 0;
      load(values, row + start * r.reduced.inner_stride, r.reduced.inner_stride, n, r.dtype);
      for (; i + lanes <= n; i += lanes) {
#pragma omp simd
        for (int lane = 0; lane < lanes; ++lane) partial[lane] = F<C>::step(partial[lane], values[i + lane]);
      }
      for (; i < n; ++i) partial[0] = F<C>::step(partial[0], values[i]);
    }
  });
  for (int lane = 1; lane < lanes; ++lane) partial[0] = F<C>::step(partial[0], partial[lane]);
  return partial[0];
}

// Outputs that lie side by side, a block at a time: reads the input in its own order.
template <class C, template <class> class F>
void reduce_columns(const Reduction& r, char* to, const char* from, int64_t to_stride) {
  C values[block], total[block];
  for (int64_t start = 0; start < r.kept.inner; start += block) {
    int64_t n = std::min(block, r.kept.inner - start);
    std::fill(total, total + n, F<C>::start());
    r.reduced.each_element(from + start * r.kept.inner_stride, [&](const char* at) {
      load(values, at, r.kept.inner_stride, n, r.dtype);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) total[i] = F<C>::step(total[i], values[i]);
    });
    for (int64_t i = 0; i < n; ++i) total[i] = F<C>::finish(total[i], r.count);
    store(to + start * to_stride, to_stride, total, n, r.out_dtype);
  }
}

template <class C, template <class> class F>
void reduce(const Reduction& r) {
  r.each_kept_row([&](char* to, const char* from, int64_t to_stride) {
    if (r.by_columns) return reduce_columns<C, F>(r, to, from, to_stride);
    C values[block];
    for (int64_t i = 0; i < r.kept.inner; ++i) {
      C total = reduce_one<C, F>(r, from + i * r.kept.inner_stride, values);
      store_one(to + i * to_stride, F<C>::finish(total, r.count), r.out_dtype);
    }
  });
}

enum class Dims { list, one, all };

// sum, mean: computed in the output's kind (`dtype` may ask for floats of integers). Others: in the input's.
template <template <class> class F, Dims dims, bool by_output>
cw_status run(Call& call) {
  Tensor out, in;
  TRY(call.tensors_from(0, &out, &in));
  std::vector<int64_t> over = dims == Dims::all ? std::vector<int64_t>{} : call.ints(2);
  Reduction r;
  TRY(r.make(call, out, in, over));
  if (is_floating(by_output ? out.dtype : in.dtype)) {
    return call.launch([r] { return reduce<double, F>(r), CW_OK; });
  }
  return call.launch([r] { return reduce<int64_t, F>(r), CW_OK; });
}

}  // namespace

const OpList& reduce_ops() {
  static const OpList list = {
      {"aten::sum.IntList_out", run<Sum, Dims::list, true>, real},
      {"aten::mean.out", run<Mean, Dims::list, true>, floats},
      {"aten::prod.out", run<Prod, Dims::all, true>, real},
      {"aten::prod.int_out", run<Prod, Dims::one, true>, real},
      {"aten::amax.out", run<Max, Dims::list, false>, real},
      {"aten::amin.out", run<Min, Dims::list, false>, real},
      {"aten::max.unary_out", run<Max, Dims::all, false>, real},
      {"aten::min.unary_out", run<Min, Dims::all, false>, real},
      {"aten::any.out", run<Any, Dims::one, false>, real},
      {"aten::any.all_out", run<Any, Dims::all, false>, real},
      {"aten::all.out", run<All, Dims::one, false>, real},
      {"aten::all.all_out", run<All, Dims::all, false>, real},
  };
  return list;
}

}  // namespace sim
