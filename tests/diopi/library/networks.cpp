// Layers and losses, and the step of an optimizer.
#include <algorithm>

#include "tensor.hpp"

namespace {

struct Convolution {
  int64_t batch, channels, height, width, outputs, per_group, kh, kw, oh, ow, groups;
  Shape stride, padding, dilation;

  Convolution(In input, In weight, In output, diopiSize_t s, diopiSize_t p, diopiSize_t d, int64_t g)
      : groups(g), stride(list(s)), padding(list(p)), dilation(list(d)) {
    const Shape x = shape_of(input), w = shape_of(weight), y = shape_of(output);
    batch = x[0], channels = x[1], height = x[2], width = x[3];
    outputs = w[0], per_group = w[1], kh = w[2], kw = w[3], oh = y[2], ow = y[3];
  }

  // f(place in input, place in weight, place in output) for each product of the sum.
  template <class F>
  void each(F f) const {
    const int64_t outputs_of_group = outputs / groups;
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t c = 0; c < per_group; ++c)
          for (int64_t i = 0; i < kh; ++i)
            for (int64_t j = 0; j < kw; ++j) {
              const int64_t w = ((o * per_group + c) * kh + i) * kw + j;
              const int64_t plane = (n * channels + o / outputs_of_group * per_group + c) * height;
              for (int64_t y = 0; y < oh; ++y) {
                const int64_t row = y * stride[0] - padding[0] + i * dilation[0];
                if (row < 0 || row >= height) continue;
                for (int64_t x = 0; x < ow; ++x) {
                  const int64_t column = x * stride[1] - padding[1] + j * dilation[1];
                  if (column < 0 || column >= width) continue;
                  f((plane + row) * width + column, w, ((n * outputs + o) * oh + y) * ow + x);
                }
              }
            }
  }
};

// Of a tensor N x C x ...: f(channel, place) for each element.
template <class F>
void channels(const Shape& shape, F f) {
  const Around a(shape, 1);
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t c = 0; c < a.size; ++c)
      for (int64_t k = 0; k < a.inner; ++k) f(static_cast<size_t>(c), static_cast<size_t>(a.at(o, c, k)));
}

Array<double> or_ones(In t, size_t n) { return t ? read<double>(t) : Array<double>(n, 1.0); }

struct Window {  // of a pool over the last two dimensions
  Shape in, out, kernel, stride, padding, dilation;
  int64_t planes = 1;

  Window(In input, In output, diopiSize_t k, diopiSize_t s, diopiSize_t p, diopiSize_t d)
      : in(shape_of(input)),
        out(shape_of(output)),
        kernel(list(k)),
        stride(list(s)),
        padding(list(p)),
        dilation(list(d)) {
    for (size_t i = 0; i + 2 < in.size(); ++i) planes *= in[i];
    in.erase(in.begin(), in.end() - 2), out.erase(out.begin(), out.end() - 2);
  }

  // begin(output, plane), then f(place within the plane) for each input of a window that is there.
  template <class Begin, class F>
  void each(Begin begin, F f) const {
    for (int64_t n = 0; n < planes; ++n)
      for (int64_t y = 0; y < out[0]; ++y)
        for (int64_t x = 0; x < out[1]; ++x) {
          begin(static_cast<size_t>((n * out[0] + y) * out[1] + x), n * in[0] * in[1], y, x);
          for (int64_t i = 0; i < kernel[0]; ++i)
            for (int64_t j = 0; j < kernel[1]; ++j) {
              const int64_t row = y * stride[0] - padding[0] + i * dilation[0];
              const int64_t column = x * stride[1] - padding[1] + j * dilation[1];
              if (row >= 0 && row < in[0] && column >= 0 && column < in[1]) f(row * in[1] + column);
            }
        }
  }
  // What an average over the window at (y, x) is divided by.
  double area(int64_t y, int64_t x, bool with_padding) const {
    double product = 1;
    const int64_t at[2] = {y, x};
    for (size_t d = 0; d < 2; ++d) {
      int64_t from = at[d] * stride[d] - padding[d], to = std::min(from + kernel[d], in[d] + padding[d]);
      if (!with_padding) from = std::max<int64_t>(from, 0), to = std::min(to, in[d]);
      product *= static_cast<double>(to - from);
    }
    return product;
  }
};

// f(output, input, size of the window) for each pair of an adaptive average.
template <class F>
void adaptive(const Shape& in, const Shape& out, F f) {
  int64_t planes = 1;
  const size_t n = in.size();
  for (size_t i = 0; i + 2 < n; ++i) planes *= in[i];
  const int64_t h = in[n - 2], w = in[n - 1], oh = out[n - 2], ow = out[n - 1];
  for (int64_t p = 0; p < planes; ++p)
    for (int64_t y = 0; y < oh; ++y)
      for (int64_t x = 0; x < ow; ++x) {
        const int64_t top = y * h / oh, bottom = ((y + 1) * h + oh - 1) / oh;
        const int64_t left = x * w / ow, right = ((x + 1) * w + ow - 1) / ow;
        const auto area = static_cast<double>((bottom - top) * (right - left));
        for (int64_t i = top; i < bottom; ++i)
          for (int64_t j = left; j < right; ++j)
            f(static_cast<size_t>((p * oh + y) * ow + x), static_cast<size_t>((p * h + i) * w + j), area);
      }
}

// Of N x C x ... or C alone: f(place of the class, place of the target, target) for each that counts.
template <class F>
void classes(In input, In target, int64_t ignored, F f) {
  const Shape shape = shape_of(input);
  const Around a(shape, shape.size() == 1 ? 0 : 1);
  const Array<int64_t> targets = read<int64_t>(target);
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t k = 0; k < a.inner; ++k) {
      const auto at = static_cast<size_t>(o * a.inner + k);
      const int64_t c = targets[at];
      if (c == ignored) continue;
      check(c >= 0 && c < a.size, "a target is no class");
      f(static_cast<size_t>(a.at(o, c, k)), at, static_cast<size_t>(c));
    }
}
int64_t classes_of(In input) {
  const Shape shape = shape_of(input);
  return shape.size() == 1 ? shape[0] : shape[1];
}

}  // namespace

extern "C" {

diopiError_t diopiConvolution2d(Context, Out out, In input, In weight, In bias, diopiSize_t stride, diopiSize_t padding,
                                diopiSize_t dilation, int64_t groups) {
  return body([&] {
    const Convolution c(input, weight, out, stride, padding, dilation, groups);
    const Array<double> x = read<double>(input), w = read<double>(weight);
    Array<double> y(static_cast<size_t>(numel(out)), 0.0);
    c.each([&](int64_t i, int64_t j, int64_t k) {
      y[static_cast<size_t>(k)] += x[static_cast<size_t>(i)] * w[static_cast<size_t>(j)];
    });
    if (bias) {
      const Array<double> b = read<double>(bias);
      channels(shape_of(out), [&](size_t channel, size_t at) { y[at] += b[channel]; });
    }
    write<double>(out, y);
  });
}
diopiError_t diopiConvolution2dBackward(Context, Out grad_input, Out grad_weight, Out grad_bias, In grad, In input,
                                        In weight, diopiSize_t*, diopiSize_t stride, diopiSize_t padding,
                                        diopiSize_t dilation, int64_t groups) {
  return body([&] {
    const Convolution c(input, weight, grad, stride, padding, dilation, groups);
    const Array<double> x = read<double>(input), w = read<double>(weight), g = read<double>(grad);
    Array<double> gx(x.size(), 0.0), gw(w.size(), 0.0), gb(static_cast<size_t>(c.outputs), 0.0);
    c.each([&](int64_t i, int64_t j, int64_t k) {
      gx[static_cast<size_t>(i)] += g[static_cast<size_t>(k)] * w[static_cast<size_t>(j)];
      gw[static_cast<size_t>(j)] += g[static_cast<size_t>(k)] * x[static_cast<size_t>(i)];
    });
    channels(shape_of(grad), [&](size_t channel, size_t at) { gb[channel] += g[at]; });
    if (grad_input) write<double>(grad_input, gx);
    if (grad_weight) write<double>(grad_weight, gw);
    if (grad_bias) write<double>(grad_bias, gb);
  });
}

diopiError_t diopiBatchNorm(Context, Out out, Out save_mean, Out save_invstd, In input, In weight, In bias,
                            Out running_mean, Out running_var, bool training, double momentum, double eps) {
  return body([&] {
    const Shape shape = shape_of(input);
    const auto n = static_cast<size_t>(shape[1]);
    const double each = static_cast<double>(numel(input)) / static_cast<double>(n);
    Array<double> x = read<double>(input), mean(n, 0.0), var(n, 0.0);
    const Array<double> w = or_ones(weight, n), b = bias ? read<double>(bias) : Array<double>(n, 0.0);
    if (training) {
      channels(shape, [&](size_t c, size_t i) { mean[c] += x[i] / each; });
      channels(shape, [&](size_t c, size_t i) { var[c] += (x[i] - mean[c]) * (x[i] - mean[c]) / each; });
      Array<double> inverse(n);
      for (size_t c = 0; c < n; ++c) inverse[c] = 1 / std::sqrt(var[c] + eps);
      write<double>(save_mean, mean);
      write<double>(save_invstd, inverse);
      if (running_mean && running_var) {
        Array<double> rm = read<double>(running_mean), rv = read<double>(running_var);
        for (size_t c = 0; c < n; ++c) {
          rm[c] += momentum * (mean[c] - rm[c]);
          rv[c] += momentum * (var[c] * each / (each - 1) - rv[c]);
        }
        write<double>(running_mean, rm);
        write<double>(running_var, rv);
      }
    } else {
      mean = read<double>(running_mean), var = read<double>(running_var);
    }
    channels(shape, [&](size_t c, size_t i) { x[i] = (x[i] - mean[c]) / std::sqrt(var[c] + eps) * w[c] + b[c]; });
    write<double>(out, x);
  });
}
diopiError_t diopiBatchNormBackward(Context, Out grad_input, Out grad_weight, Out grad_bias, In grad, In input,
                                    In weight, In running_mean, In running_var, In save_mean, In save_invstd,
                                    bool training, double eps) {
  return body([&] {
    const Shape shape = shape_of(input);
    const auto n = static_cast<size_t>(shape[1]);
    const double each = static_cast<double>(numel(input)) / static_cast<double>(n);
    const Array<double> x = read<double>(input), w = or_ones(weight, n);
    Array<double> g = read<double>(grad), inverse, mean = read<double>(training ? save_mean : running_mean);
    if (training) {
      inverse = read<double>(save_invstd);
    } else {
      inverse = read<double>(running_var);
      for (double& v : inverse) v = 1 / std::sqrt(v + eps);
    }
    Array<double> sum(n, 0.0), dot(n, 0.0);
    channels(shape, [&](size_t c, size_t i) { sum[c] += g[i], dot[c] += g[i] * (x[i] - mean[c]) * inverse[c]; });
    if (grad_weight) write<double>(grad_weight, dot);
    if (grad_bias) write<double>(grad_bias, sum);
    if (!grad_input) return;
    channels(shape, [&](size_t c, size_t i) {
      const double centred = (x[i] - mean[c]) * inverse[c];
      g[i] = w[c] * inverse[c] * (training ? g[i] - sum[c] / each - centred * dot[c] / each : g[i]);
    });
    write<double>(grad_input, g);
  });
}

diopiError_t diopiLayerNorm(Context, Out out, Out save_mean, Out save_invstd, In input, In weight, In bias,
                            diopiSize_t normalized, double eps) {
  return body([&] {
    const auto inner = static_cast<size_t>(count(list(normalized)));
    Array<double> x = read<double>(input), means, inverses;
    const Array<double> w = or_ones(weight, inner), b = bias ? read<double>(bias) : Array<double>(inner, 0.0);
    for (size_t o = 0; o < x.size(); o += inner) {
      double mean = 0, var = 0;
      for (size_t i = 0; i < inner; ++i) mean += x[o + i] / static_cast<double>(inner);
      for (size_t i = 0; i < inner; ++i) var += (x[o + i] - mean) * (x[o + i] - mean) / static_cast<double>(inner);
      means.push_back(mean), inverses.push_back(1 / std::sqrt(var + eps));
      for (size_t i = 0; i < inner; ++i) x[o + i] = (x[o + i] - mean) * inverses.back() * w[i] + b[i];
    }
    write<double>(out, x);
    write<double>(save_mean, means);
    write<double>(save_invstd, inverses);
  });
}
diopiError_t diopiLayerNormBackward(Context, Out grad_input, Out grad_weight, Out grad_bias, In grad, In input,
                                    In weight, In, In mean, In rstd, diopiSize_t normalized) {
  return body([&] {
    const auto inner = static_cast<size_t>(count(list(normalized)));
    const auto size = static_cast<double>(inner);
    const Array<double> x = read<double>(input), g = read<double>(grad), means = read<double>(mean);
    const Array<double> inverses = read<double>(rstd), w = or_ones(weight, inner);
    Array<double> gx(x.size()), gw(inner, 0.0), gb(inner, 0.0);
    for (size_t o = 0; o < x.size(); o += inner) {
      const double m = means[o / inner], r = inverses[o / inner];
      double sum = 0, dot = 0;
      for (size_t i = 0; i < inner; ++i) {
        const double centred = (x[o + i] - m) * r;
        gw[i] += g[o + i] * centred, gb[i] += g[o + i];
        sum += g[o + i] * w[i], dot += g[o + i] * w[i] * centred;
      }
      for (size_t i = 0; i < inner; ++i)
        gx[o + i] = r * (g[o + i] * w[i] - sum / size - (x[o + i] - m) * r * dot / size);
    }
    if (grad_input) write<double>(grad_input, gx);
    if (grad_weight) write<double>(grad_weight, gw);
    if (grad_bias) write<double>(grad_bias, gb);
  });
}

diopiError_t diopiMaxPool2dWithIndices(Context, Out out, Out indices, In input, diopiSize_t kernel, diopiSize_t stride,
                                       diopiSize_t padding, diopiSize_t dilation, bool) {
  return body([&] {
    by_kind(input, [&](auto kind) {
      using T = decltype(kind);
      const Window window(input, out, kernel, stride, padding, dilation);
      const Array<T> x = read<T>(input);
      Array<T> y(static_cast<size_t>(numel(out)));
      Array<int64_t> where(y.size(), -1);
      size_t at = 0;
      int64_t plane = 0;
      window.each([&](size_t o, int64_t p, int64_t, int64_t) { at = o, plane = p; },
                  [&](int64_t i) {
                    const T v = x[static_cast<size_t>(plane + i)];
                    if (where[at] < 0 || v > y[at] || v != v) y[at] = v, where[at] = i;
                  });
      write<T>(out, y);
      write<int64_t>(indices, where);
    });
  });
}
diopiError_t diopiMaxPool2dBackward(Context, Out grad_input, In grad, In, diopiSize_t, diopiSize_t, diopiSize_t,
                                    diopiSize_t, bool, In indices) {
  return body([&] {
    const Shape in = shape_of(grad_input), out = shape_of(grad);
    const int64_t plane = in[in.size() - 2] * in.back(), of_output = out[out.size() - 2] * out.back();
    const Array<double> g = read<double>(grad);
    const Array<int64_t> where = read<int64_t>(indices);
    Array<double> x(static_cast<size_t>(numel(grad_input)), 0.0);
    for (size_t i = 0; i < g.size(); ++i)
      x[static_cast<size_t>(static_cast<int64_t>(i) / of_output * plane + where[i])] += g[i];
    write<double>(grad_input, x);
  });
}
diopiError_t diopiAvgPool2d(Context, Out out, In input, diopiSize_t kernel, diopiSize_t stride, diopiSize_t padding,
                            bool, bool with_padding, const int64_t* divisor) {
  return body([&] {
    const int64_t one[2] = {1, 1};
    const Window window(input, out, kernel, stride, padding, {one, 2});
    const Array<double> x = read<double>(input);
    Array<double> y(static_cast<size_t>(numel(out)), 0.0);
    size_t at = 0;
    int64_t plane = 0;
    double area = 1;
    window.each(
        [&](size_t o, int64_t p, int64_t i, int64_t j) {
          at = o, plane = p, area = divisor ? static_cast<double>(*divisor) : window.area(i, j, with_padding);
        },
        [&](int64_t i) { y[at] += x[static_cast<size_t>(plane + i)] / area; });
    write<double>(out, y);
  });
}
diopiError_t diopiAvgPool2dBackward(Context, Out grad_input, In grad, In input, diopiSize_t kernel, diopiSize_t stride,
                                    diopiSize_t padding, bool, bool with_padding, const int64_t* divisor) {
  return body([&] {
    const int64_t one[2] = {1, 1};
    const Window window(input, grad, kernel, stride, padding, {one, 2});
    const Array<double> g = read<double>(grad);
    Array<double> x(static_cast<size_t>(numel(grad_input)), 0.0);
    size_t at = 0;
    int64_t plane = 0;
    double area = 1;
    window.each(
        [&](size_t o, int64_t p, int64_t i, int64_t j) {
          at = o, plane = p, area = divisor ? static_cast<double>(*divisor) : window.area(i, j, with_padding);
        },
        [&](int64_t i) { x[static_cast<size_t>(plane + i)] += g[at] / area; });
    write<double>(grad_input, x);
  });
}
diopiError_t diopiAdaptiveAvgPool2d(Context, Out out, In input, diopiSize_t) {
  return body([&] {
    const Array<double> x = read<double>(input);
    Array<double> y(static_cast<size_t>(numel(out)), 0.0);
    adaptive(shape_of(input), shape_of(out), [&](size_t o, size_t i, double area) { y[o] += x[i] / area; });
    write<double>(out, y);
  });
}
diopiError_t diopiAdaptiveAvgPool2dBackward(Context, Out grad_input, In grad, In) {
  return body([&] {
    const Array<double> g = read<double>(grad);
    Array<double> x(static_cast<size_t>(numel(grad_input)), 0.0);
    adaptive(shape_of(grad_input), shape_of(grad), [&](size_t o, size_t i, double area) { x[i] += g[o] / area; });
    write<double>(grad_input, x);
  });
}
diopiError_t diopiEmbeddingBackward(Context, Out out, In grad, In indices, int64_t rows, int64_t padding, bool by_count,
                                    bool) {
  return body([&] {
    const Array<double> g = read<double>(grad);
    const Array<int64_t> at = read<int64_t>(indices);
    Array<double> x(static_cast<size_t>(numel(out)), 0.0);
    Array<double> times(static_cast<size_t>(rows), 0.0);
    for (const int64_t i : at) times[static_cast<size_t>(i)] += 1;
    const size_t width = rows ? x.size() / static_cast<size_t>(rows) : 0;
    for (size_t i = 0; i < at.size(); ++i) {
      if (at[i] == padding) continue;
      const auto row = static_cast<size_t>(at[i]);
      for (size_t k = 0; k < width; ++k) x[row * width + k] += g[i * width + k] / (by_count ? times[row] : 1);
    }
    write<double>(out, x);
  });
}

diopiError_t diopiMSELoss(Context, Out out, In input, In target, diopiReduction_t reduction) {
  return body([&] {
    Array<double> x = read<double>(input, shape_of(input));
    const Array<double> y = read<double>(target, shape_of(input));
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] = (x[i] - y[i]) * (x[i] - y[i]);
    if (reduction == ReductionNone) return write<double>(out, x);
    write<double>(out, {reduction == ReductionMean ? sum / static_cast<double>(x.size()) : sum});
  });
}
diopiError_t diopiMSELossBackward(Context, Out out, In grad, In input, In target, diopiReduction_t reduction) {
  return body([&] {
    const Shape shape = shape_of(input);
    Array<double> x = read<double>(input);
    const Array<double> y = read<double>(target, shape), g = read<double>(grad, shape);
    const double scale = reduction == ReductionMean ? 2 / static_cast<double>(x.size()) : 2;
    for (size_t i = 0; i < x.size(); ++i) x[i] = scale * (x[i] - y[i]) * g[i];
    write<double>(out, x);
  });
}
diopiError_t diopiNLLLossV2(Context, Out out, Out total_weight, In input, In target, In weight,
                            diopiReduction_t reduction, int64_t ignored) {
  return body([&] {
    const Array<double> x = read<double>(input), w = or_ones(weight, static_cast<size_t>(classes_of(input)));
    Array<double> each(static_cast<size_t>(numel(target)), 0.0);
    double sum = 0, total = 0;
    classes(input, target, ignored,
            [&](size_t at, size_t i, size_t c) { each[i] = -x[at] * w[c], sum += each[i], total += w[c]; });
    if (reduction == ReductionNone) {
      write<double>(out, each);
      return write<double>(total_weight, {0.0});
    }
    write<double>(out, {reduction == ReductionMean ? sum / total : sum});
    write<double>(total_weight, {total});
  });
}
diopiError_t diopiNLLLossV2Backward(Context, Out out, In grad, In input, In target, In weight, In total_weight,
                                    diopiReduction_t reduction, int64_t ignored) {
  return body([&] {
    const Array<double> w = or_ones(weight, static_cast<size_t>(classes_of(input))), g = read<double>(grad);
    const double total = reduction == ReductionMean ? read<double>(total_weight)[0] : 1;
    Array<double> x(static_cast<size_t>(numel(out)), 0.0);
    classes(input, target, ignored,
            [&](size_t at, size_t i, size_t c) { x[at] = -w[c] * g[reduction == ReductionNone ? i : 0] / total; });
    write<double>(out, x);
  });
}

diopiError_t diopiFusedAdamW(Context, Out* params, In* grads, Out* averages, Out* squares, Out* highest, In* steps,
                             int64_t n, double lr, double beta1, double beta2, double eps, double decay, bool amsgrad,
                             bool maximize) {
  return body([&] {
    for (int64_t t = 0; t < n; ++t) {
      Array<double> x = read<double>(params[t]), m = read<double>(averages[t]), v = read<double>(squares[t]);
      Array<double> top = amsgrad ? read<double>(highest[t]) : v;
      const Array<double> g = read<double>(grads[t]);
      const double step = read<double>(steps[t])[0];
      const double first = 1 - std::pow(beta1, step), second = 1 - std::pow(beta2, step);
      for (size_t i = 0; i < x.size(); ++i) {
        const double gradient = maximize ? -g[i] : g[i];
        m[i] += (1 - beta1) * (gradient - m[i]);
        v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        top[i] = amsgrad ? std::max(top[i], v[i]) : v[i];
        x[i] = x[i] * (1 - lr * decay) - lr / first * m[i] / (std::sqrt(top[i]) / std::sqrt(second) + eps);
      }
      write<double>(params[t], x);
      write<double>(averages[t], m);
      write<double>(squares[t], v);
      if (amsgrad) write<double>(highest[t], top);
    }
  });
}
diopiError_t diopiForeachmulScalar(Context, Out* outs, In* inputs, int64_t n, Number value) {
  return body([&] {
    for (int64_t t = 0; t < n; ++t)
      by_kind(inputs[t], [&](auto kind) {
        using T = decltype(kind);
        Array<T> x = read<T>(inputs[t]);
        for (T& v : x) v *= number<T>(value);
        write<T>(outs[t], x);
      });
  });
}

}  // extern "C"
