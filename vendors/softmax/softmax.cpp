// Softmax and its gradient, from the kernels to the table. docs/softmax.md explains this file step by step.
#include <cmath>

#include "causeway/operators.hpp"

using cw::Tensor;

// A dense tensor as [outer, axis, inner]: softmax goes along `axis`, where neighbours are `inner` elements apart.
struct Lines {
  int64_t outer = 1, axis = 1, inner = 1;
};

static Lines lines_along(Tensor t, int64_t dim) {
  if (dim < 0) dim += t.dim();
  Lines l;
  for (int64_t d = 0; d < t.dim(); ++d) (d < dim ? l.outer : d == dim ? l.axis : l.inner) *= t.size(d);
  return l;
}

// The kernels: a thread's work, one line of n elements that are `step` apart.
template <class T>
static void softmax_line(const T* in, T* out, int64_t n, int64_t step) {
  T largest = in[0];
  for (int64_t j = 1; j < n; ++j)
    if (in[j * step] > largest) largest = in[j * step];
  T sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += out[j * step] = std::exp(in[j * step] - largest);
  for (int64_t j = 0; j < n; ++j) out[j * step] /= sum;
}

template <class T>
static void gradient_line(const T* grad, const T* y, T* out, int64_t n, int64_t step) {
  T sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += grad[j * step] * y[j * step];
  for (int64_t j = 0; j < n; ++j) out[j * step] = (grad[j * step] - sum) * y[j * step];
}

// The launch: a block for each outer index, a thread for each inner one. Here two loops; on a chip its runtime's
// launch on the stream, which may return before the work is done.
template <class Line>
static cw_status launch(Lines l, cw_stream, Line line) {
  for (int64_t block = 0; block < l.outer; ++block)
    for (int64_t thread = 0; thread < l.inner; ++thread) line(block * l.axis * l.inner + thread);
  return CW_OK;
}

// The operators, with the arguments that operators.hpp has for them.
static cw_status softmax(Tensor out, Tensor self, int64_t dim, bool half_to_float, cw_stream stream) {
  if (half_to_float) return CW_UNSUPPORTED;  // declined, before anything is done: the core has another way
  return cw::with_dtype<float, double>(self.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = self.data<T>();
    T* to = out.data<T>();
    const Lines l = lines_along(self, dim);
    return launch(l, stream, [=](int64_t at) { softmax_line(from + at, to + at, l.axis, l.inner); });
  });
}

static cw_status softmax_gradient(Tensor grad_input, Tensor grad_output, Tensor output, int64_t dim,
                                  cw::Dtype input_dtype, cw_stream stream) {
  if (input_dtype != output.dtype()) return CW_UNSUPPORTED;
  return cw::with_dtype<float, double>(output.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *grad = grad_output.data<T>(), *y = output.data<T>();
    T* to = grad_input.data<T>();
    const Lines l = lines_along(output, dim);
    return launch(l, stream, [=](int64_t at) { gradient_line(grad + at, y + at, to + at, l.axis, l.inner); });
  });
}

// What both need: dense tensors of these dtypes. What is not dense the core copies.
constexpr cw::Needs lines = cw::dense(CW_FLOAT32 | CW_FLOAT64);

constexpr cw::Entry table[] = {
    cw::op<cw::aten::_softmax_out, softmax>(lines),
    cw::op<cw::aten::_softmax_backward_data_out, softmax_gradient>(lines),
};

cw_status op_find(const char* name, cw_op* out) { return cw::find(table, name, out); }
