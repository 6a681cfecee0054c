// Matrix products, in blocks that fit the caches: a panel of each factor is copied into dense arrays of the type
// to compute in, which serves every stride and dtype, and a small tile of the output stays in registers.
#include "ops/matmul.hpp"

#include <algorithm>
#include <memory>

#include "ops/registry.hpp"

namespace sim {

namespace {

constexpr int64_t block_m = 64, block_n = 256, block_k = 256;
constexpr int tile_m = 4, tile_n = 8;

template <class C>
struct Panels {
  alignas(64) C a[block_m * block_k];    // tiles of tile_m rows, each k-major
  alignas(64) C b[block_k * block_n];    // tiles of tile_n columns, each k-major
  alignas(64) C sum[block_m * block_n];  // row-major
};

template <class C>
void load_line(C* to, const Matrix& m, const char* from, int64_t stride, int64_t n) {
  load(to, from, stride, n, m.dtype);
}

// Copy rows [r, r + m) and columns [c, c + k) into tiles of `tile` lines, padded with zeros. A factor is read
// along whichever of its sides is dense.
template <class C, int tile>
void pack(C* to, const Matrix& from, int64_t lines, int64_t k, int64_t line_stride, int64_t k_stride, const char* at) {
  C values[block_k];
  for (int64_t first = 0; first < lines; first += tile) {
    C* panel = to + first * k;
    const int64_t n = std::min<int64_t>(tile, lines - first);
    if (std::abs(k_stride) <= std::abs(line_stride)) {
      for (int64_t line = 0; line < tile; ++line) {
        if (line < n) load_line(values, from, at + (first + line) * line_stride, k_stride, k);
        for (int64_t i = 0; i < k; ++i) panel[i * tile + line] = line < n ? values[i] : C(0);
      }
    } else {
      for (int64_t i = 0; i < k; ++i) {
        load_line(panel + i * tile, from, at + first * line_stride + i * k_stride, line_stride, n);
        std::fill(panel + i * tile + n, panel + (i + 1) * tile, C(0));
      }
    }
  }
}

template <class C>
inline void multiply_tile(const C* a, const C* b, C* sum, int64_t k) {
  C total[tile_m][tile_n];
  for (int i = 0; i < tile_m; ++i) {
    for (int j = 0; j < tile_n; ++j) total[i][j] = sum[i * block_n + j];
  }
  for (int64_t p = 0; p < k; ++p) {
    for (int i = 0; i < tile_m; ++i) {
#pragma omp simd
      for (int j = 0; j < tile_n; ++j) total[i][j] += a[p * tile_m + i] * b[p * tile_n + j];
    }
  }
  for (int i = 0; i < tile_m; ++i) {
    for (int j = 0; j < tile_n; ++j) sum[i * block_n + j] = total[i][j];
  }
}

template <class C>
void finish_row(const Product& p, const C* sum, int64_t row, int64_t column, int64_t n) {
  C result[block_n], added[block_n];
  const C alpha = C(p.alpha), beta = C(p.beta);
  for (int64_t j = 0; j < n; ++j) result[j] = alpha * sum[j];
  if (p.beta != 0) {
    load(added, p.add.data + row * p.add.row + column * p.add.column, p.add.column, n, p.add.dtype);
    for (int64_t j = 0; j < n; ++j) result[j] += beta * added[j];
  }
  store(p.out.data + row * p.out.row + column * p.out.column, p.out.column, result, n, p.out.dtype);
}

}  // namespace

template <class C>
void multiply(const Product& p) {
  static thread_local std::unique_ptr<Panels<C>> panels;  // some hundred KB: once per thread
  if (!panels) panels.reset(new Panels<C>);
  for (int64_t r = 0; r < p.m; r += block_m) {
    const int64_t m = std::min(block_m, p.m - r);
    for (int64_t c = 0; c < p.n; c += block_n) {
      const int64_t n = std::min(block_n, p.n - c);
      const int64_t columns = (n + tile_n - 1) / tile_n * tile_n;
      for (int64_t i = 0; i < (m + tile_m - 1) / tile_m * tile_m; ++i) {
        std::fill(panels->sum + i * block_n, panels->sum + i * block_n + columns, C(0));
      }
      for (int64_t q = 0; q < p.k; q += block_k) {
        const int64_t k = std::min(block_k, p.k - q);
        pack<C, tile_m>(panels->a, p.a, m, k, p.a.row, p.a.column, p.a.data + r * p.a.row + q * p.a.column);
        const C* b = panels->b;
        if (p.panels)
          b = reinterpret_cast<const C*>(p.panels) + c * p.k + columns * q;
        else
          pack<C, tile_n>(panels->b, p.b, n, k, p.b.column, p.b.row, p.b.data + q * p.b.row + c * p.b.column);
        for (int64_t j = 0; j < n; j += tile_n) {
          for (int64_t i = 0; i < m; i += tile_m) {
            multiply_tile(panels->a + i * k, b + j * k, panels->sum + i * block_n + j, k);
          }
        }
      }
      for (int64_t i = 0; i < m; ++i) finish_row(p, panels->sum + i * block_n, r + i, c, n);
    }
  }
}

namespace {

// f(first row and column of a block, its rows, its columns, where its panels begin): in the order in which they lie.
template <class C, class F>
void each_block(int64_t k, int64_t n, C* panels, F f) {
  for (int64_t c = 0; c < n; c += block_n) {
    const int64_t columns = std::min(block_n, n - c), padded = (columns + tile_n - 1) / tile_n * tile_n;
    for (int64_t q = 0; q < k; q += block_k) f(q, c, std::min(block_k, k - q), columns, panels + c * k + padded * q);
  }
}

template <class C>
void pack_all(const Matrix& b, int64_t k, int64_t n, C* panels) {
  each_block(k, n, panels, [&](int64_t q, int64_t c, int64_t rows, int64_t columns, C* to) {
    pack<C, tile_n>(to, b, columns, rows, b.column, b.row, b.data + q * b.row + c * b.column);
  });
}

template <class C>
void unpack_all(const C* panels, int64_t k, int64_t n, const Matrix& b) {
  each_block(k, n, panels, [&](int64_t q, int64_t c, int64_t rows, int64_t columns, const C* from) {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        const C value = from[j / tile_n * tile_n * rows + i * tile_n + j % tile_n];
        store(b.data + (q + i) * b.row + (c + j) * b.column, 0, &value, 1, b.dtype);
      }
    }
  });
}

}  // namespace

uint64_t panels_bytes(Dtype dtype, int64_t k, int64_t n) {
  if (!is_floating(dtype)) return 0;
  return uint64_t(k) * uint64_t((n + tile_n - 1) / tile_n * tile_n) * (dtype == kDouble ? 8 : 4);
}

void pack_panels(const Matrix& b, int64_t k, int64_t n, char* panels) {
  if (b.dtype == kDouble) return pack_all(b, k, n, reinterpret_cast<double*>(panels));
  pack_all(b, k, n, reinterpret_cast<float*>(panels));
}

void unpack_panels(const char* panels, int64_t k, int64_t n, const Matrix& b) {
  if (b.dtype == kDouble) return unpack_all(reinterpret_cast<const double*>(panels), k, n, b);
  unpack_all(reinterpret_cast<const float*>(panels), k, n, b);
}

template void multiply<float>(const Product&);
template void multiply<double>(const Product&);
template void multiply<int64_t>(const Product&);

void multiply_any(const Product& p) {
  if (p.out.dtype == kDouble) return multiply<double>(p);
  if (is_floating(p.out.dtype)) return multiply<float>(p);
  return multiply<int64_t>(p);
}

namespace {

// The last two dimensions of a tensor; `add` broadcasts to `rows` x `columns`.
Matrix matrix_of(const Tensor& t) { return {t.data, t.dtype, t.stride_bytes(t.ndim - 2), t.stride_bytes(t.ndim - 1)}; }
bool broadcast_matrix(const Tensor& t, int64_t rows, int64_t columns, Matrix* out) {
  *out = {t.data, t.dtype, 0, 0};
  if (t.ndim >= 1) {
    if (t.shape[t.ndim - 1] != 1 && t.shape[t.ndim - 1] != columns) return false;
    if (t.shape[t.ndim - 1] != 1) out->column = t.stride_bytes(t.ndim - 1);
  }
  if (t.ndim >= 2) {
    if (t.shape[t.ndim - 2] != 1 && t.shape[t.ndim - 2] != rows) return false;
    if (t.shape[t.ndim - 2] != 1) out->row = t.stride_bytes(t.ndim - 2);
  }
  return true;
}

// mm and bmm (added = false), addmm and baddbmm (self, then the factors, beta and alpha).
template <int dims, bool added>
cw_status product(Call& call) {
  Tensor out, a, b, self;
  TRY(call.tensor(0, &out));
  if (added) TRY(call.tensor(1, &self));
  TRY(call.tensors_from(added ? 2 : 1, &a, &b));
  const int64_t batches = dims == 3 ? out.shape[0] : 1;
  Product p;
  bool good = out.ndim == dims && a.ndim == dims && b.ndim == dims;
  if (good) {
    p.m = a.shape[dims - 2];
    p.k = a.shape[dims - 1];
    p.n = b.shape[dims - 1];
    good = b.shape[dims - 2] == p.k && out.shape[dims - 2] == p.m && out.shape[dims - 1] == p.n &&
           (dims == 2 || (a.shape[0] == batches && b.shape[0] == batches));
  }
  if (!good) return fail(CW_INVALID, "%s: the shapes do not fit", call.op().name);
  for (const Tensor* t : {&out, &a, &b}) {
    if (t->is_host_scalar) return call.declined("not on host memory");
  }
  if (a.dtype != b.dtype || a.dtype != out.dtype) return call.declined("all dtypes must be alike");
  p.out = matrix_of(out);
  p.a = matrix_of(a);
  p.b = matrix_of(b);
  int64_t add_step = 0;
  if (added) {
    if (self.is_host_scalar) return call.declined("not on host memory");
    p.beta = call.number<double>(4, 1.0);
    p.alpha = call.number<double>(5, 1.0);
    if (!broadcast_matrix(self, p.m, p.n, &p.add)) return fail(CW_INVALID, "%s: shapes", call.op().name);
    if (self.ndim == 3 && self.shape[0] > 1) add_step = self.stride_bytes(0);
  }
  if (dims == 2) TRY(call.panels(added ? 3 : 2, panels_bytes(b.dtype, p.k, p.n), &p.panels));
  const int64_t out_step = dims == 3 ? out.stride_bytes(0) : 0, a_step = dims == 3 ? a.stride_bytes(0) : 0;
  const int64_t b_step = dims == 3 ? b.stride_bytes(0) : 0;
  return call.launch([=] {
    Product one = p;
    for (int64_t batch = 0; batch < batches; ++batch) {
      multiply_any(one);
      one.out.data += out_step;
      one.a.data += a_step;
      one.b.data += b_step;
      one.add.data += add_step;
    }
    return CW_OK;
  });
}

}  // namespace

const OpList& matmul_ops() {
  static const OpList list = {
      {"aten::mm.out", product<2, false>, numbers},
      {"aten::bmm.out", product<3, false>, numbers},
      {"aten::addmm.out", product<2, true>, numbers},
      {"aten::baddbmm.out", product<3, true>, numbers},
  };
  return list;
}

}  // namespace sim
