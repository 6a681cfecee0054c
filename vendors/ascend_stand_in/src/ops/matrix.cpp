// Products of matrices, convolutions and pools.
#include "op.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ops;

namespace {

using Values = std::vector<double>;

// c[m, n] += a[m, k] b[k, n].
void multiply(const double* a, const double* b, double* c, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j) {
      double x = a[i * k + j];
      const double* row = b + j * n;
      double* to = c + i * n;
      for (int64_t l = 0; l < n; ++l) to[l] += x * row[l];
    }
}

// What a matrix unit may do with float32: 0 as it is, 1 and 3 as HF32, 2 as FLOAT16 (which is not modelled).
void check_precision(int8_t type) {
  if (type < 0 || type > 3) reject("cubeMathType is %d, expected 0 to 3", type);
}

// HF32 has 11 bits behind the point. Done only where it is asked for: torch_npu lets convolutions do so unless a program
// says otherwise, and would not have the CPU's losses.
Values loaded(const View& a, const Dims& shape, int8_t precision) {
  static bool on = stand_in::number("HF32", 0);
  Values x = load<double>(a, shape);
  if (!on || a.dtype != kFloat || (precision != 1 && precision != 3)) return x;
  for (double& v : x) {
    int exponent = 0;
    const double fraction = std::frexp(v, &exponent);
    if (std::isfinite(v)) v = std::ldexp(std::nearbyint(fraction * 4096) / 4096, exponent);
  }
  return x;
}

void need_same(const View& a, const View& b) {
  if (a.dtype != b.dtype) reject("the matrices are %s and %s", name_of(a.dtype), name_of(b.dtype));
}

struct Sizes {
  Dims batch;
  int64_t m, k, n;
};

Sizes sizes_of(const View& a, const View& b) {
  need_matrix(a, "the first matrix");
  need_matrix(b, "the second matrix");
  if (a.rank() < 2 || b.rank() < 2)
    reject("shapes %s and %s are no matrices", text_of(a.shape).c_str(), text_of(b.shape).c_str());
  if (a.dim(-1) != b.dim(-2))
    reject("shapes %s and %s do not multiply", text_of(a.shape).c_str(), text_of(b.shape).c_str());
  Dims outer_a(a.shape.begin(), a.shape.end() - 2), outer_b(b.shape.begin(), b.shape.end() - 2);
  return {broadcast(outer_a, outer_b), a.dim(-2), a.dim(-1), b.dim(-1)};
}

Dims joined(Dims batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

Values product(const View& a, const View& b, const Sizes& s, int8_t precision) {
  int64_t batch = count(s.batch);
  Values x = loaded(a, joined(s.batch, s.m, s.k), precision), y = loaded(b, joined(s.batch, s.k, s.n), precision),
         z(size_t(batch * s.m * s.n));
  for (int64_t i = 0; i < batch; ++i)
    multiply(x.data() + i * s.m * s.k, y.data() + i * s.k * s.n, z.data() + i * s.m * s.n, s.m, s.k, s.n);
  return z;
}

void matmul(Op& op, T self, T other, O result, int8_t precision) {
  View a = op.in(self), b = op.in(other), out = op.out(result);
  check_precision(precision);
  need_same(a, b);
  bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) {
    a.shape.insert(a.shape.begin(), 1);
    a.stride.insert(a.stride.begin(), 0);
  }
  if (column) {
    b.shape.push_back(1);
    b.stride.push_back(0);
  }
  Sizes s = sizes_of(a, b);
  Dims expected = joined(s.batch, s.m, s.n);
  if (column) expected.pop_back();
  if (row) expected.erase(expected.end() - (column ? 1 : 2));
  same_shape(out, expected, "the result");
  op.run([=] { store(out, product(a, b, s, precision)); });
}

// beta c + alpha a b, where c expands to the result; `sum` adds up the batch.
void add_matmul(Op& op, const View& c, T first, T second, S beta, S alpha, const View& out, int8_t precision,
                bool sum) {
  View a = op.in(first), b = op.in(second);
  check_precision(precision);
  need_same(a, b);
  Sizes s = sizes_of(a, b);
  Dims expected = sum ? Dims{s.m, s.n} : joined(s.batch, s.m, s.n);
  same_shape(out, expected, "the result");
  if (broadcast(c.shape, expected) != expected)
    reject("the term has shape %s, the result %s", text_of(c.shape).c_str(), text_of(expected).c_str());
  double by = number(beta).real, times = number(alpha).real;
  op.run([=] {
    Values z = product(a, b, s, precision),
           added = by != 0 ? load<double>(c, expected) : Values(size_t(count(expected)));
    if (sum)
      for (size_t i = added.size(); i < z.size(); ++i) z[i % added.size()] += z[i];
    for (size_t i = 0; i < added.size(); ++i) added[i] = (by != 0 ? by * added[i] : 0) + times * z[i];
    store(out, added);
  });
}

}  // namespace

// ---- a second matrix in FRACTAL_NZ ----
namespace {

// The blocks of a matrix [k, n] that lies so, or whose transpose does, as [k / 16, 16, n / 16, 16].
View weight_blocks(Op& op, T other) {
  const View b = view_of(other, "the second matrix");
  if (b.rank() != 2) reject("the second matrix has %ld dimensions, expected 2", long(b.rank()));
  if (b.dtype != kHalf && b.dtype != kBfloat16)
    reject("the second matrix is %s, expected FLOAT16 or BFLOAT16", name_of(b.dtype));
  const int64_t k = b.shape[0], n = b.shape[1];
  if (k < 2 || n < 2) reject("a side of the second matrix is 1");
  if (b.stride == Dims{n, 1}) return op.blocks(other, "the second matrix", k, n);
  if (b.stride == Dims{1, k}) return op.blocks(other, "the second matrix", n, k).permuted({2, 3, 0, 1});
  reject("the second matrix has strides %s: it is neither dense nor the transpose of a dense one",
         text_of(b.stride).c_str());
}

// The unit multiplies whole blocks: what fills them up too, which is 0 on the other side.
Values blocked_product(const View& a, const View& blocks, int64_t k, int64_t n) {
  const int64_t m = a.shape[0], deep = blocks.shape[0] * blocks.shape[1], wide = blocks.shape[2] * blocks.shape[3];
  const Values plain = load<double>(a), y = load<double>(blocks);
  Values x(size_t(m * deep)), z(size_t(m * wide)), out(size_t(m * n));
  for (int64_t i = 0; i < m; ++i) std::copy_n(plain.begin() + i * k, k, x.begin() + i * deep);
  multiply(x.data(), y.data(), z.data(), m, deep, wide);
  for (int64_t i = 0; i < m; ++i) std::copy_n(z.begin() + i * wide, n, out.begin() + i * n);
  return out;
}

void check_weight(const View& a, const View& blocks, T other, const View& out, int8_t precision) {
  check_precision(precision);
  if (a.rank() != 2) reject("the first matrix has %ld dimensions, expected 2", long(a.rank()));
  need_same(a, blocks);
  if (a.shape[1] != other->shape[0])
    reject("shapes %s and %s do not multiply", text_of(a.shape).c_str(), text_of(other->shape).c_str());
  same_shape(out, {a.shape[0], other->shape[1]}, "the result");
}

// FRACTAL_NZ is documented for these; the others say that the product is not.
void need_blocks() {
  const std::string soc = stand_in::setting("SOC", "Ascend910B1");
  if (soc.rfind("Ascend910B", 0) && soc.rfind("Ascend910_93", 0) && soc.rfind("Ascend950", 0))
    throw Refusal(361001, "this chip has no such conversion");
}

}  // namespace

OP(MatmulWeightNz, (T self, T other, O result, i8 precision), {
  View a = op.in(self), b = weight_blocks(op, other), out = op.out(result);
  check_weight(a, b, other, out, precision);
  const int64_t k = a.shape[1], n = out.shape[1];
  op.run([=] { store(out, blocked_product(a, b, k, n)); });
})
OP(AddmmWeightNz, (T self, T first, T second, S beta, S alpha, O result, i8 precision), {
  View c = op.in(self), a = op.in(first), b = weight_blocks(op, second), out = op.out(result);
  check_weight(a, b, second, out, precision);
  if (broadcast(c.shape, out.shape) != out.shape)
    reject("the term has shape %s, the result %s", text_of(c.shape).c_str(), text_of(out.shape).c_str());
  const int64_t k = a.shape[1], n = out.shape[1];
  double by = number(beta).real, times = number(alpha).real;
  op.run([=] {
    Values z = blocked_product(a, b, k, n), added = by != 0 ? load<double>(c, out.shape) : Values(z.size());
    for (size_t i = 0; i < z.size(); ++i) z[i] = (by != 0 ? by * added[i] : 0) + times * z[i];
    store(out, z);
  });
})

// What a conversion's result has to be: its format, and the shape of its storage, which the caller frees by delete[].
ENTRY int aclnnNpuFormatCastCalculateSizeAndFormat(T from, int format, int dtype, int64_t** shape, uint64_t* rank,
                                                   int* actual) {
  CALL();
  const char* who = __func__;
  if (!from || !shape || !rank || !actual) return stand_in::refuse(161001, "%s: an argument is NULL", who);
  try {
    need_blocks();
    const View view = view_of(from, "the tensor");
    if (view.dtype != kHalf && view.dtype != kBfloat16 && view.dtype != kInt8)
      reject("the tensor is %s, expected FLOAT16, BFLOAT16 or INT8", name_of(view.dtype));
    if (dtype != -1 && dtype != view.dtype) reject("the additional dtype is %d", dtype);
    if (view.rank() != 2) reject("a tensor of %ld dimensions, the stand-in converts matrices", long(view.rank()));
    if (view.shape[0] < 2 || view.shape[1] < 2) reject("a side of the matrix is 1");
    Dims result = view.shape;
    if (format == kFractalNz && !is_private(from->format)) {
      const int64_t width = 32 / int64_t(size_of(view.dtype));
      result = {(view.shape[1] + width - 1) / width, (view.shape[0] + kBlock - 1) / kBlock, kBlock, width};
    } else if (format != kNd || from->format != kFractalNz) {
      throw Refusal(361001, stand_in::text("there is no conversion from format %d to %d", from->format, format));
    }
    *rank = result.size(), *actual = format;
    *shape = new int64_t[result.size()];
    std::copy(result.begin(), result.end(), *shape);
  } catch (const Refusal& refusal) {
    return stand_in::refuse(refusal.code, "%s: %s", who, refusal.what());
  }
  return 0;
}

// Between a matrix and its blocks; what fills the last ones up is 0.
OP(NpuFormatCast, (T from, O to), {
  need_blocks();
  const View source = view_of(from, "the tensor"), result = view_of(to, "the result");
  if (source.dtype != result.dtype || source.shape != result.shape || source.rank() != 2)
    reject("%s of %s becomes %s of %s", name_of(source.dtype), text_of(source.shape).c_str(), name_of(result.dtype),
           text_of(result.shape).c_str());
  const int64_t rows = source.shape[0], columns = source.shape[1];
  if (source.stride != Dims{columns, 1} || result.stride != Dims{columns, 1}) reject("a tensor is not dense");
  const bool back = from->format == kFractalNz;
  if (is_private(from->format) && !back) reject("a tensor has format %d", from->format);
  View plain = back ? op.out(to) : op.in(from), blocks = op.blocks(back ? from : to, "a tensor", rows, columns, !back);
  // Bit for bit.
  plain.dtype = blocks.dtype = size_of(source.dtype) == 2 ? kInt16 : kInt8;
  const int64_t wide = blocks.shape[2] * blocks.shape[3], deep = blocks.shape[0] * blocks.shape[1];
  op.run([=] {
    if (back) {
      std::vector<int64_t> filled = load<int64_t>(blocks), values;
      for (int64_t i = 0; i < rows; ++i)
        values.insert(values.end(), filled.begin() + i * wide, filled.begin() + i * wide + columns);
      return store(plain, values);
    }
    std::vector<int64_t> values = load<int64_t>(plain), filled(size_t(deep * wide));
    for (int64_t i = 0; i < rows; ++i) std::copy_n(values.begin() + i * columns, columns, filled.begin() + i * wide);
    store(blocks, filled);
  });
})

#define PRODUCT(Name) \
  OP(Name, (T self, T other, O result, i8 precision), { matmul(op, self, other, result, precision); })
PRODUCT(Mm)
PRODUCT(Matmul)
PRODUCT(BatchMatMul)
PRODUCT(Mv)
OP(Dot, (T self, T other, O result), { matmul(op, self, other, result, 0); })
#define ADD_PRODUCT(Name, sum)                                                     \
  OP(Name, (T self, T first, T second, S beta, S alpha, O result, i8 precision), { \
    View c = op.in(self), out = op.out(result);                                    \
    add_matmul(op, c, first, second, beta, alpha, out, precision, sum);            \
  })                                                                               \
  OP(Inplace##Name, (O self, T first, T second, S beta, S alpha, i8 precision), {  \
    View c = op.out(self);                                                         \
    add_matmul(op, c, first, second, beta, alpha, c, precision, sum);              \
  })
ADD_PRODUCT(Addmm, false)
ADD_PRODUCT(Baddbmm, false)
ADD_PRODUCT(Addbmm, true)
OP(Addmv, (T self, T matrix, T vector, S alpha, S beta, O result, i8 precision), {
  View c = op.in(self), a = op.in(matrix), b = op.in(vector), out = op.out(result);
  check_precision(precision);
  b.shape.push_back(1);
  b.stride.push_back(0);
  Sizes s = sizes_of(a, b);
  same_shape(out, {s.m}, "the result");
  double by = number(beta).real, times = number(alpha).real;
  op.run([=] {
    Values z = product(a, b, s, precision), added = load<double>(c, out.shape);
    for (size_t i = 0; i < z.size(); ++i) z[i] = (by != 0 ? by * added[i] : 0) + times * z[i];
    store(out, z);
  });
})
OP(Addr, (T self, T first, T second, S beta, S alpha, O result), {
  View c = op.in(self), a = op.in(first), b = op.in(second), out = op.out(result);
  same_shape(out, {a.numel(), b.numel()}, "the result");
  double by = number(beta).real, times = number(alpha).real;
  op.run([=] {
    Values x = load<double>(a), y = load<double>(b), z = load<double>(c, out.shape);
    for (size_t i = 0; i < z.size(); ++i) z[i] = (by != 0 ? by * z[i] : 0) + times * x[i / y.size()] * y[i % y.size()];
    store(out, z);
  });
})

namespace {

// A convolution in up to three dimensions: which element of the image meets which of the weight, at which of the result.
struct Geometry {
  int64_t batch, groups, in_channels, out_channels;  // Channels of the image side and of the result side.
  int64_t image[3], kernel[3], result[3], stride[3], padding[3], dilation[3];
};

int64_t spatial(const Dims& values, size_t dim, size_t rank, int64_t otherwise) {
  if (values.empty()) return otherwise;
  return values.size() == 1 ? values[0] : values[values.size() - rank + dim];
}

// `image` is the side with the larger extent: the input, or the result of a transposed convolution.
Geometry geometry(const View& image, const View& weight, const View& result, const Dims& stride, const Dims& padding,
                  const Dims& dilation, int64_t groups) {
  size_t rank = size_t(weight.rank()) - 2;
  if (weight.rank() < 3 || weight.rank() > 5) reject("a weight of %ld dimensions", long(weight.rank()));
  if (image.rank() != weight.rank() || result.rank() != weight.rank())
    reject("input, weight and result have %ld, %ld and %ld dimensions", long(image.rank()), long(weight.rank()),
           long(result.rank()));
  Geometry g{image.shape[0], groups,    image.shape[1], result.shape[1], {1, 1, 1},
             {1, 1, 1},      {1, 1, 1}, {1, 1, 1},      {0, 0, 0},       {1, 1, 1}};
  for (size_t d = 0; d < rank; ++d) {
    size_t at = 3 - rank + d;
    g.image[at] = image.shape[2 + d];
    g.kernel[at] = weight.shape[2 + d];
    g.result[at] = result.shape[2 + d];
    g.stride[at] = spatial(stride, d, rank, 1);
    g.padding[at] = spatial(padding, d, rank, 0);
    g.dilation[at] = spatial(dilation, d, rank, 1);
  }
  return g;
}

// each(image index, weight index, result index), with the weight as [result channel, image channel of the group, ...].
template <class Each>
void meet(const Geometry& g, Each each) {
  int64_t per_in = g.in_channels / g.groups, per_out = g.out_channels / g.groups;
  int64_t image_size = g.image[0] * g.image[1] * g.image[2], result_size = g.result[0] * g.result[1] * g.result[2];
  int64_t kernel_size = g.kernel[0] * g.kernel[1] * g.kernel[2];
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t o = 0; o < g.out_channels; ++o)
      for (int64_t c = 0; c < per_in; ++c) {
        int64_t image = (n * g.in_channels + o / per_out * per_in + c) * image_size,
                result = (n * g.out_channels + o) * result_size;
        int64_t weight = (o * per_in + c) * kernel_size;
        for (int64_t k = 0; k < kernel_size; ++k) {
          int64_t kz = k / (g.kernel[1] * g.kernel[2]), ky = k / g.kernel[2] % g.kernel[1], kx = k % g.kernel[2];
          for (int64_t z = 0; z < g.result[0]; ++z) {
            int64_t iz = z * g.stride[0] - g.padding[0] + kz * g.dilation[0];
            if (iz < 0 || iz >= g.image[0]) continue;
            for (int64_t y = 0; y < g.result[1]; ++y) {
              int64_t iy = y * g.stride[1] - g.padding[1] + ky * g.dilation[1];
              if (iy < 0 || iy >= g.image[1]) continue;
              int64_t from = image + (iz * g.image[1] + iy) * g.image[2],
                      to = result + (z * g.result[1] + y) * g.result[2];
              for (int64_t x = 0; x < g.result[2]; ++x) {
                int64_t ix = x * g.stride[2] - g.padding[2] + kx * g.dilation[2];
                if (ix >= 0 && ix < g.image[2]) each(size_t(from + ix), size_t(weight + k), size_t(to + x));
              }
            }
          }
        }
      }
}

// A sample without a batch is a batch of one.
View batched(View view, int64_t rank) {
  if (view && view.rank() == rank - 1) {
    view.shape.insert(view.shape.begin(), 1);
    view.stride.insert(view.stride.begin(), 0);
  }
  return view;
}

void check_channels(const View& input, const View& weight, const View& output, int64_t groups, bool transposed) {
  if (groups < 1) reject("%ld groups", long(groups));
  int64_t in = input.shape[1], out = output.shape[1];
  int64_t first = transposed ? in : out, second = (transposed ? out : in) / groups;
  if (weight.shape[0] != first || weight.shape[1] != second || in % groups || out % groups)
    reject("%ld channels, %ld of the result and %ld groups do not fit a weight of %s", long(in), long(out),
           long(groups), text_of(weight.shape).c_str());
}

void check_extents(const Geometry& g) {
  for (int d = 0; d < 3; ++d) {
    int64_t reach = g.image[d] + 2 * g.padding[d] - g.dilation[d] * (g.kernel[d] - 1) - 1;
    if (reach < 0 || reach / g.stride[d] + 1 != g.result[d])
      reject("an extent of %ld with kernel %ld, stride %ld, padding %ld and dilation %ld does not give %ld",
             long(g.image[d]), long(g.kernel[d]), long(g.stride[d]), long(g.padding[d]), long(g.dilation[d]),
             long(g.result[d]));
  }
}

}  // namespace

static void convolution(Op& op, T input, T kernel, T bias, const Dims& stride, const Dims& padding,
                        const Dims& dilation, bool transposed, int64_t groups, O result, int8_t precision) {
  View x = op.in(input), w = op.in(kernel), b = op.maybe(bias), y = op.out(result);
  need_matrix(x, "the input");
  need_same(x, w);
  check_precision(precision);
  x = batched(x, w.rank());
  y = batched(y, w.rank());
  Geometry g = geometry(transposed ? y : x, w, transposed ? x : y, stride, padding, dilation, groups);
  check_channels(x, w, y, groups, transposed);
  if (!transposed) check_extents(g);
  if (x.shape[0] != y.shape[0]) reject("batches of %ld and %ld", long(x.shape[0]), long(y.shape[0]));
  if (b) same_shape(b, {y.shape[1]}, "the bias");
  op.run([=] {
    Values in = loaded(x, x.shape, precision), by = loaded(w, w.shape, precision), out(size_t(y.numel()));
    if (b) {
      Values shift = load<double>(b);
      size_t area = out.size() / size_t(y.shape[0] * y.shape[1]);
      for (size_t i = 0; i < out.size(); ++i) out[i] = shift[i / area % shift.size()];
    }
    if (transposed)
      meet(g, [&](size_t i, size_t k, size_t r) { out[i] += in[r] * by[k]; });
    else
      meet(g, [&](size_t i, size_t k, size_t r) { out[r] += in[i] * by[k]; });
    store(y, out);
  });
}
OP(Convolution,
   (T input, T weight, T bias, I stride, I padding, I dilation, bool transposed, I, i64 groups, O result, i8 precision),
   {
     convolution(op, input, weight, bias, dims(stride), dims(padding), dims(dilation), transposed, groups, result,
                 precision);
   })
OP(ConvDepthwise2d, (T input, T weight, I, T bias, I stride, I padding, I dilation, O result, i8 precision), {
  if (!input) throw Refusal(161001, "the input is NULL");
  int64_t channels = input->shape.size() < 3 ? 1 : input->shape[input->shape.size() - 3];
  convolution(op, input, weight, bias, dims(stride), dims(padding), dims(dilation), false, channels, result, precision);
})
OP(ConvolutionBackward,
   (T gradient, T input, T weight, I, I stride, I padding, I dilation, bool transposed, I, int groups, B mask,
    i8 precision, O to_input, O to_weight, O to_bias),
   {
     View d = op.in(gradient), x = op.in(input), w = op.in(weight), gx = op.out_maybe(to_input),
          gw = op.out_maybe(to_weight), gb = op.out_maybe(to_bias);
     need_matrix(x, "the input");
     check_precision(precision);
     d = batched(d, w.rank());
     x = batched(x, w.rank());
     Geometry g =
         geometry(transposed ? d : x, w, transposed ? x : d, dims(stride), dims(padding), dims(dilation), groups);
     check_channels(x, w, d, groups, transposed);
     if (!transposed) check_extents(g);
     // All three results are given, whatever the mask: those that it does not name stay as they are.
     bool want_x = flag(mask, 0), want_w = flag(mask, 1), want_b = flag(mask, 2);
     if ((want_x && !gx) || (want_w && !gw) || (want_b && !gb)) reject("a result that the mask names is NULL");
     if (want_x && gx.numel() != x.numel()) reject("the gradient of the input has shape %s", text_of(gx.shape).c_str());
     if (want_w) same_shape(gw, w.shape, "the gradient of the weight");
     op.run([=] {
       Values slope = loaded(d, d.shape, precision), in = loaded(x, x.shape, precision),
              by = loaded(w, w.shape, precision);
       if (want_x) {
         Values to(in.size());
         if (transposed)
           meet(g, [&](size_t i, size_t k, size_t r) { to[r] += slope[i] * by[k]; });
         else
           meet(g, [&](size_t i, size_t k, size_t r) { to[i] += slope[r] * by[k]; });
         store(gx, to);
       }
       if (want_w) {
         Values to(by.size());
         if (transposed)
           meet(g, [&](size_t i, size_t k, size_t r) { to[k] += slope[i] * in[r]; });
         else
           meet(g, [&](size_t i, size_t k, size_t r) { to[k] += slope[r] * in[i]; });
         store(gw, to);
       }
       if (want_b) {
         Values to(size_t(d.shape[1]));
         size_t area = slope.size() / size_t(d.shape[0] * d.shape[1]);
         for (size_t i = 0; i < slope.size(); ++i) to[i / area % to.size()] += slope[i];
         store(gb, to);
       }
     });
   })

namespace {

// Windows over the last two dimensions.
struct Windows {
  int64_t planes, height, width, rows, columns, kernel[2], stride[2], padding[2], dilation[2];
};

int64_t pair_at(const Dims& values, size_t at, int64_t otherwise) {
  return values.empty() ? otherwise : values.size() == 1 ? values[0] : values[at];
}

Windows windows(const View& in, const View& out, const Dims& kernel, const Dims& stride, const Dims& padding,
                const Dims& dilation) {
  if (in.rank() < 3 || out.rank() != in.rank())
    reject("shapes %s and %s", text_of(in.shape).c_str(), text_of(out.shape).c_str());
  Windows w{};
  w.height = in.dim(-2);
  w.width = in.dim(-1);
  w.rows = out.dim(-2);
  w.columns = out.dim(-1);
  w.planes = 1;
  for (int64_t i = 0; i < in.rank() - 2; ++i) {
    if (in.shape[size_t(i)] != out.shape[size_t(i)])
      reject("shapes %s and %s", text_of(in.shape).c_str(), text_of(out.shape).c_str());
    w.planes *= in.shape[size_t(i)];
  }
  for (size_t d = 0; d < 2; ++d) {
    w.kernel[d] = pair_at(kernel, d, 1);
    w.stride[d] = pair_at(stride, d, w.kernel[d]);
    w.padding[d] = pair_at(padding, d, 0);
    w.dilation[d] = pair_at(dilation, d, 1);
    if (w.stride[d] < 1 || w.kernel[d] < 1 || w.padding[d] * 2 > w.kernel[d])
      reject("kernel %ld, stride %ld, padding %ld", long(w.kernel[d]), long(w.stride[d]), long(w.padding[d]));
    int64_t extent = d ? w.width : w.height, results = d ? w.columns : w.rows;
    int64_t reach = extent + 2 * w.padding[d] - w.dilation[d] * (w.kernel[d] - 1) - 1, down = reach / w.stride[d] + 1;
    if (results != down && results != down + 1)
      reject("an extent of %ld does not give %ld", long(extent), long(results));
  }
  return w;
}

// each(index in the input, place in its plane) for what a window covers.
template <class Each>
void cover(const Windows& w, int64_t plane, int64_t row, int64_t column, Each each) {
  for (int64_t ky = 0; ky < w.kernel[0]; ++ky)
    for (int64_t kx = 0; kx < w.kernel[1]; ++kx) {
      int64_t y = row * w.stride[0] - w.padding[0] + ky * w.dilation[0],
              x = column * w.stride[1] - w.padding[1] + kx * w.dilation[1];
      if (y >= 0 && y < w.height && x >= 0 && x < w.width)
        each(size_t((plane * w.height + y) * w.width + x), y * w.width + x);
    }
}

// Where the places of the largest are kept: a tensor of the result's shape, or memory that only these operators read.
View places_of(const View& given, const View& out) {
  if (given.dtype != kInt8) return given;
  View view = given;
  if (given.storage < size_t(out.numel()) * 4)
    reject("the mask has %zu bytes, %ld are needed", given.storage, long(out.numel() * 4));
  view.dtype = kInt32;
  view.shape = out.shape;
  view.stride = row_major(out.shape);
  view.offset = 0;
  return view;
}

void max_pool(Op& op, T self, I kernel, I stride, I padding, I dilation, O result, O where) {
  View a = op.in(self), out = op.out(result), at = places_of(op.out(where), out);
  need_float(a, "the input");
  same_shape(at, out.shape, "the places");
  Windows w = windows(a, out, dims(kernel), dims(stride), dims(padding), dims(dilation));
  op.run([=] {
    Values x = load<double>(a), y;
    std::vector<int64_t> places;
    for (int64_t p = 0; p < w.planes; ++p)
      for (int64_t r = 0; r < w.rows; ++r)
        for (int64_t c = 0; c < w.columns; ++c) {
          double best = -INFINITY;
          int64_t place = -1;
          cover(w, p, r, c, [&](size_t i, int64_t here) {
            if (place >= 0 && !(x[i] > best) && x[i] == x[i]) return;
            best = x[i];
            place = here;
          });
          y.push_back(best);
          places.push_back(place);
        }
    store(out, y);
    store(at, places);
  });
}
void max_pool_backward(Op& op, T gradient, T self, T where, I kernel, I stride, I padding, I dilation, O result) {
  View g = op.in(gradient), a = op.in(self), at = places_of(op.in(where), g), out = op.out(result);
  same_shape(out, a.shape, "the result");
  Windows w = windows(a, g, dims(kernel), dims(stride), dims(padding), dims(dilation));
  op.run([=] {
    Values slope = load<double>(g), to(size_t(a.numel()));
    auto places = load<int64_t>(at);
    size_t per_plane = size_t(w.rows * w.columns);
    for (size_t i = 0; i < slope.size(); ++i) {
      if (places[i] < 0 || places[i] >= w.height * w.width)
        throw Broken("a place " + std::to_string(places[i]) + " is outside of its plane");
      to[i / per_plane * size_t(w.height * w.width) + size_t(places[i])] += slope[i];
    }
    store(out, to);
  });
}
// The divisor of an average: told, or the size of the window with or without the padding.
double share(const Windows& w, int64_t row, int64_t column, bool padded, int64_t told) {
  if (told) return double(told);
  double size = 1;
  for (int d = 0; d < 2; ++d) {
    int64_t extent = d ? w.width : w.height, from = (d ? column : row) * w.stride[d] - w.padding[d],
            to = std::min(from + w.kernel[d], extent + w.padding[d]);
    if (!padded) {
      from = std::max<int64_t>(from, 0);
      to = std::min(to, extent);
    }
    size *= double(to - from);
  }
  return size;
}

}  // namespace

#define MAX_POOL(Name)                                                                                          \
  OP(Name, (T self, I kernel, I stride, I padding, I dilation, bool, O result, O places),                       \
     { max_pool(op, self, kernel, stride, padding, dilation, result, places); })                                \
  OP(Name##Backward, (T gradient, T self, T places, I kernel, I stride, I padding, I dilation, bool, O result), \
     { max_pool_backward(op, gradient, self, places, kernel, stride, padding, dilation, result); })
MAX_POOL(MaxPool2dWithIndices)
MAX_POOL(MaxPool2dWithMask)
OP(AvgPool2d, (T self, I kernel, I stride, I padding, bool, bool padded, i64 divisor, i8 precision, O result), {
  View a = op.in(self), out = op.out(result);
  check_precision(precision);
  Windows w = windows(a, out, dims(kernel), dims(stride), dims(padding), {});
  op.run([=] {
    Values x = load<double>(a), y;
    for (int64_t p = 0; p < w.planes; ++p)
      for (int64_t r = 0; r < w.rows; ++r)
        for (int64_t c = 0; c < w.columns; ++c) {
          double all = 0;
          cover(w, p, r, c, [&](size_t i, int64_t) { all += x[i]; });
          y.push_back(all / share(w, r, c, padded, divisor));
        }
    store(out, y);
  });
})
OP(AvgPool2dBackward,
   (T gradient, T self, I kernel, I stride, I padding, bool, bool padded, i64 divisor, i8 precision, O result), {
     View g = op.in(gradient), a = op.in(self), out = op.out(result);
     check_precision(precision);
     same_shape(out, a.shape, "the result");
     Windows w = windows(a, g, dims(kernel), dims(stride), dims(padding), {});
     op.run([=] {
       Values slope = load<double>(g), to(size_t(a.numel()));
       size_t next = 0;
       for (int64_t p = 0; p < w.planes; ++p)
         for (int64_t r = 0; r < w.rows; ++r)
           for (int64_t c = 0; c < w.columns; ++c) {
             double each = slope[next++] / share(w, r, c, padded, divisor);
             cover(w, p, r, c, [&](size_t i, int64_t) { to[i] += each; });
           }
       store(out, to);
     });
   })

// Adaptive: window r of R covers floor(r H / R) to ceil((r + 1) H / R).
template <class Each>
static void adaptive(const View& in, const View& out, Each each) {
  int64_t height = in.dim(-2), width = in.dim(-1), rows = out.dim(-2), columns = out.dim(-1),
          planes = in.numel() / (height * width);
  size_t next = 0;
  for (int64_t p = 0; p < planes; ++p)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c, ++next) {
        int64_t top = r * height / rows, bottom = ((r + 1) * height + rows - 1) / rows, left = c * width / columns,
                right = ((c + 1) * width + columns - 1) / columns;
        for (int64_t y = top; y < bottom; ++y)
          for (int64_t x = left; x < right; ++x)
            each(size_t((p * height + y) * width + x), next, double((bottom - top) * (right - left)));
      }
}
OP(AdaptiveAvgPool2d, (T self, I size, O result), {
  View a = op.in(self), out = op.out(result);
  if (a.rank() < 3 || out.rank() != a.rank() || dims(size).size() != 2)
    reject("shapes %s and %s", text_of(a.shape).c_str(), text_of(out.shape).c_str());
  op.run([=] {
    Values x = load<double>(a), y(size_t(out.numel()));
    adaptive(a, out, [&](size_t from, size_t to, double area) { y[to] += x[from] / area; });
    store(out, y);
  });
})
OP(AdaptiveAvgPool2dBackward, (T gradient, T self, O result), {
  View g = op.in(gradient), a = op.in(self), out = op.out(result);
  same_shape(out, a.shape, "the result");
  op.run([=] {
    Values slope = load<double>(g), to(size_t(a.numel()));
    adaptive(a, g, [&](size_t from, size_t at, double area) { to[from] += slope[at] / area; });
    store(out, to);
  });
})

// Norms over a batch and over groups of channels.
static double average(const Values& x, const std::vector<size_t>& at) {
  double all = 0;
  for (size_t i : at) all += x[i];
  return all / double(at.size());
}
static std::vector<std::vector<size_t>> channels_of(const View& a) {
  if (a.rank() < 2) reject("an input of %ld dimensions has no channels", long(a.rank()));
  std::vector<std::vector<size_t>> all(size_t(a.shape[1]));
  size_t area = 1;
  for (int64_t i = 2; i < a.rank(); ++i) area *= size_t(a.shape[size_t(i)]);
  for (size_t i = 0; i < size_t(a.numel()); ++i) all[i / area % all.size()].push_back(i);
  return all;
}
// What a training batch norm saves: on the 950 1 / sqrt(variance + eps), on other chips the variance.
static bool saves_deviation() {
  static const bool says = !strncmp(stand_in::setting("SOC", "Ascend910B1"), "Ascend950", 9);
  return says;
}
OP(BatchNorm,
   (T self, T weight, T bias, O running_mean, O running_variance, bool training, double momentum, double eps, O result,
    O mean, O scale),
   {
     View a = op.in(self), w = op.maybe(weight), b = op.maybe(bias), rm = op.out_maybe(running_mean),
          rv = op.out_maybe(running_variance), out = op.out(result), save_mean = op.out_maybe(mean),
          save_scale = op.out_maybe(scale);
     need_float(a, "the input");
     same_shape(out, a.shape, "the result");
     auto channels = channels_of(a);
     if (!training && (!rm || !rv)) reject("evaluation without running statistics");
     op.run([=] {
       Values x = load<double>(a), gain = w ? load<double>(w) : Values(channels.size(), 1),
              shift = b ? load<double>(b) : Values(channels.size());
       Values means, saved, old_mean = rm ? load<double>(rm) : Values(),
                            old_variance = rv ? load<double>(rv) : Values();
       for (size_t c = 0; c < channels.size(); ++c) {
         const auto& at = channels[c];
         double middle = training ? average(x, at) : old_mean[c], variance = training ? 0 : old_variance[c];
         if (training) {
           for (size_t i : at) variance += (x[i] - middle) * (x[i] - middle);
           if (rm) old_mean[c] += momentum * (middle - old_mean[c]);
           if (rv) old_variance[c] += momentum * (variance / double(at.size() - 1) - old_variance[c]);
           variance /= double(at.size());
         }
         means.push_back(middle);
         double scale = 1 / std::sqrt(variance + eps);
         saved.push_back(saves_deviation() ? scale : variance);
         for (size_t i : at) x[i] = (x[i] - middle) * scale * gain[c] + shift[c];
       }
       store(out, x);
       if (!training) return;
       if (rm) store(rm, old_mean);
       if (rv) store(rv, old_variance);
       if (save_mean) store(save_mean, means);
       if (save_scale) store(save_scale, saved);
     });
   })
OP(BatchNormBackward,
   (T gradient, T self, T weight, T running_mean, T running_variance, T mean, T scale, bool training, double eps,
    B mask, O to_self, O to_weight, O to_bias),
   {
     View g = op.in(gradient), a = op.in(self), w = op.maybe(weight), rm = op.maybe(running_mean),
          rv = op.maybe(running_variance), m = op.maybe(mean), s = op.maybe(scale), ga = op.out_maybe(to_self),
          gw = op.out_maybe(to_weight), gb = op.out_maybe(to_bias);
     same_shape(g, a.shape, "the gradient");
     auto channels = channels_of(a);
     if (training ? !m || !s : !rm || !rv) reject("the statistics are NULL");
     bool want_a = flag(mask, 0) && ga, want_w = flag(mask, 1) && gw, want_b = flag(mask, 2) && gb;
     op.run([=] {
       Values d = load<double>(g), x = load<double>(a), gain = w ? load<double>(w) : Values(channels.size(), 1);
       Values means = load<double>(training ? m : rm), scales = load<double>(training ? s : rv), dw, db, dx(x.size());
       for (size_t c = 0; c < channels.size(); ++c) {
         if (!training || !saves_deviation()) scales[c] = 1 / std::sqrt(scales[c] + eps);
         double all = 0, product = 0, n = double(channels[c].size());
         for (size_t i : channels[c]) {
           all += d[i];
           product += d[i] * (x[i] - means[c]) * scales[c];
         }
         for (size_t i : channels[c]) {
           double hat = (x[i] - means[c]) * scales[c];
           dx[i] = gain[c] * scales[c] * (training ? d[i] - (all + hat * product) / n : d[i]);
         }
         dw.push_back(product);
         db.push_back(all);
       }
       if (want_a) store(ga, dx);
       if (want_w) store(gw, dw);
       if (want_b) store(gb, db);
     });
   })
OP(GroupNorm,
   (T self, T weight, T bias, i64 batch, i64 channels, i64 area, i64 groups, double eps, O result, O mean, O scale), {
     View a = op.in(self), w = op.maybe(weight), b = op.maybe(bias), out = op.out(result), m = op.out(mean),
          s = op.out(scale);
     if (groups < 1 || channels % groups || a.numel() != batch * channels * area)
       reject("%ld channels and %ld groups", long(channels), long(groups));
     op.run([=] {
       Values x = load<double>(a), gain = w ? load<double>(w) : Values(size_t(channels), 1),
              shift = b ? load<double>(b) : Values(size_t(channels)), means, scales;
       size_t length = size_t(channels / groups * area);
       for (size_t row = 0; row + length <= x.size() && length; row += length) {
         double middle = 0, variance = 0;
         for (size_t i = 0; i < length; ++i) middle += x[row + i] / double(length);
         for (size_t i = 0; i < length; ++i) variance += (x[row + i] - middle) * (x[row + i] - middle) / double(length);
         means.push_back(middle);
         scales.push_back(1 / std::sqrt(variance + eps));
         for (size_t i = 0; i < length; ++i) {
           size_t c = (row + i) / size_t(area) % size_t(channels);
           x[row + i] = (x[row + i] - middle) * scales.back() * gain[c] + shift[c];
         }
       }
       store(out, x);
       store(m, means);
       store(s, scales);
     });
   })
OP(GroupNormBackward,
   (T gradient, T self, T mean, T scale, T weight, i64 batch, i64 channels, i64 area, i64 groups, B mask, O to_self,
    O to_weight, O to_bias),
   {
     View g = op.in(gradient), a = op.in(self), m = op.in(mean), s = op.in(scale), w = op.maybe(weight),
          ga = op.out_maybe(to_self), gw = op.out_maybe(to_weight), gb = op.out_maybe(to_bias);
     if (groups < 1 || channels % groups || a.numel() != batch * channels * area)
       reject("%ld channels and %ld groups", long(channels), long(groups));
     bool want_a = flag(mask, 0) && ga, want_w = flag(mask, 1) && gw, want_b = flag(mask, 2) && gb;
     op.run([=] {
       Values d = load<double>(g), x = load<double>(a), means = load<double>(m), scales = load<double>(s),
              gain = w ? load<double>(w) : Values(size_t(channels), 1);
       Values dx(x.size()), dw(static_cast<size_t>(channels)), db(static_cast<size_t>(channels));
       size_t length = size_t(channels / groups * area);
       for (size_t row = 0, r = 0; row + length <= x.size() && length; row += length, ++r) {
         double all = 0, product = 0;
         for (size_t i = 0; i < length; ++i) {
           size_t c = (row + i) / size_t(area) % size_t(channels);
           double hat = (x[row + i] - means[r]) * scales[r];
           dw[c] += d[row + i] * hat;
           db[c] += d[row + i];
           all += d[row + i] * gain[c];
           product += d[row + i] * gain[c] * hat;
         }
         for (size_t i = 0; i < length; ++i) {
           size_t c = (row + i) / size_t(area) % size_t(channels);
           double hat = (x[row + i] - means[r]) * scales[r];
           dx[row + i] = scales[r] * (d[row + i] * gain[c] - (all + hat * product) / double(length));
         }
       }
       if (want_a) store(ga, dx);
       if (want_w) store(gw, dw);
       if (want_b) store(gb, db);
     });
   })
