// Softmax and its logarithm along a dimension, and their gradients.
#include <cmath>

#include "ops/dims.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

// A line in the type to compute in, once per thread and as long as the longest so far.
template <class C, int which>
C* line_buffer(int64_t n) {
  static thread_local std::vector<C> buffer;
  if (int64_t(buffer.size()) < n) buffer.resize(size_t(n));
  return buffer.data();
}

template <class C, bool logarithm>
void softmax_line(C* x, int64_t n) {
  C largest = -std::numeric_limits<C>::infinity();
  for (int64_t i = 0; i < n; ++i) largest = x[i] > largest || x[i] != x[i] ? x[i] : largest;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const C shifted = x[i] - largest, e = std::exp(shifted);
    sum += double(e);
    x[i] = logarithm ? shifted : e;
  }
  const C log_sum = C(std::log(sum)), scale = C(1.0 / sum);
  for (int64_t i = 0; i < n; ++i) x[i] = logarithm ? x[i] - log_sum : x[i] * scale;
}

template <class C, bool logarithm>
void gradient_line(C* grad, const C* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(logarithm ? grad[i] : grad[i] * y[i]);
  for (int64_t i = 0; i < n; ++i) {
    grad[i] = logarithm ? grad[i] - std::exp(y[i]) * C(sum) : (grad[i] - C(sum)) * y[i];
  }
}

template <bool logarithm>
cw_status softmax(Call& call) {
  Tensor out, in;
  TRY(call.tensors_from(0, &out, &in));
  Lines<2> lines;
  if (!lines.make({&out, &in}, call.integer(2))) return fail(CW_INVALID, "%s: shapes", call.op().name);
  auto work = [&](auto example) {
    using C = decltype(example);
    return call.launch([lines] {
      const int64_t n = lines.length;
      C* x = line_buffer<C, 0>(n);
      lines.each([&](char** line) {
        load(x, line[1], lines.stride[1], n, lines.dtype[1]);
        softmax_line<C, logarithm>(x, n);
        store(line[0], lines.stride[0], x, n, lines.dtype[0]);
      });
      return CW_OK;
    });
  };
  return in.dtype == kDouble ? work(double{}) : work(float{});
}

template <bool logarithm>
cw_status gradient(Call& call) {
  Tensor out, grad, y;
  TRY(call.tensors_from(0, &out, &grad, &y));
  Lines<3> lines;
  if (!lines.make({&out, &grad, &y}, call.integer(3))) return fail(CW_INVALID, "%s: shapes", call.op().name);
  auto work = [&](auto example) {
    using C = decltype(example);
    return call.launch([lines] {
      const int64_t n = lines.length;
      C *g = line_buffer<C, 0>(n), *v = line_buffer<C, 1>(n);
      lines.each([&](char** line) {
        load(g, line[1], lines.stride[1], n, lines.dtype[1]);
        load(v, line[2], lines.stride[2], n, lines.dtype[2]);
        gradient_line<C, logarithm>(g, v, n);
        store(line[0], lines.stride[0], g, n, lines.dtype[0]);
      });
      return CW_OK;
    });
  };
  return y.dtype == kDouble ? work(double{}) : work(float{});
}

}  // namespace

const OpList& softmax_ops() {
  static const OpList list = {
      {"aten::_softmax.out", softmax<false>, floats},
      {"aten::_log_softmax.out", softmax<true>, floats},
      {"aten::_softmax_backward_data.out", gradient<false>, floats},
      {"aten::_log_softmax_backward_data.out", gradient<true>, floats},
  };
  return list;
}

}  // namespace sim
