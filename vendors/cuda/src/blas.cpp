// mm, addmm, bmm, baddbmm, addmv and _int_mm by cuBLAS, hipBLAS or mcBLAS. Its matrices are column-major, ours have any strides: a matrix
// whose rows are dense is a column-major one transposed, so a product C = A B is asked for as C' = B' A'. What is dense in
// neither direction is declined, and the portable kernel serves it.
#include "blas.hpp"

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "causeway/operators.hpp"
#include "error.hpp"
#include "library.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace cuda {

Blas cublas;

static blas::Types types = blas::kTypes;
static std::string version_of_library;

// What the library that was opened calls types, and its version.
static void choose_types([[maybe_unused]] void* library) {
#if defined(CAUSEWAY_KIN_HIP)
  char* file = realpath(file_of(library).c_str(), nullptr);
  const std::string path = file ? file : "";
  free(file);
  const size_t at = path.rfind(".so.");
  version_of_library = at == std::string::npos ? "" : path.substr(at + 4);
  if (cublas.gemm_2 && cublas.gemm_batched_2)
    cublas.gemm = cublas.gemm_2, cublas.gemm_batched = cublas.gemm_batched_2, types = blas::kNewerTypes;
  else if (atoi(version_of_library.c_str()) >= 3)
    types = blas::kNewerTypes;
#elif !defined(CAUSEWAY_KIN_MACA)
  for (int part = 0; part < 3; ++part) {  // MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
    int value = 0;
    if (cublas.property) cublas.property(part, &value);
    version_of_library += (part ? "." : "") + std::to_string(value);
  }
#endif
}

const char* open_blas() {
  static std::once_flag once;
  static auto& words = *new std::string;
  std::call_once(once, [] {
    open_driver();  // whose version says which cuBLAS it takes
    open_compiler();  // which it may want too, and finds by name where it is open
    void* library = open_library(kin::blas_places(), &words);
    if (!library) return;
    words.clear();
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cublas.name, &words);
    BLAS_FUNCTIONS(FIND)
    BLAS_PRODUCTS(FIND)
#undef FIND
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cublas.name, nullptr);
    BLAS_LATER_FUNCTIONS(FIND)
#undef FIND
#ifdef KIN_HAS_BLASLT
    std::string missing;
#define FIND(name, symbol, parameters) find_symbol(library, #symbol, &cublas.name, &missing);
    BLASLT_FUNCTIONS(FIND)
#undef FIND
    if (!missing.empty()) cublas.multiply = nullptr;
#endif
#define TEXT_OF(symbol) #symbol
#define TEXT(symbol) TEXT_OF(symbol)
    find_symbol(library, TEXT(BLAS_STATUS_TEXT), &cublas.status_text, nullptr);
#undef TEXT
#undef TEXT_OF
    choose_types(library);
  });
  return words.c_str();
}

std::string blas_version() { return version_of_library; }

BlasStream::~BlasStream() {
  if (handle) cublas.destroy(handle);
  for (const auto& [dtype, all] : ones)
    for (const Ones& one : all) cu.free(one.at);
}

namespace {

using cw::Dtype, cw::Scalar, cw::Tensor;

cw_status check_blas(int result, const char* function) {
  if (result == blas::kSuccess) return CW_OK;
  // What it cannot do, and what it is too old or too new for, is for the next rung.
  if (result == blas::kNotSupported || result == blas::kArchMismatch)
    return fail(CW_UNSUPPORTED, "%s declined", plain(function).c_str());
  const cw_status status = result == blas::kAllocFailed ? CW_OUT_OF_MEMORY : CW_FAILED;
  return fail(status, "%s: status %d, %s", plain(function).c_str(), result,
              cublas.status_text ? cublas.status_text(result) : "");
}

int data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::float16:
      return types.float16;
    case Dtype::bfloat16:
      return types.bfloat16;
    case Dtype::float32:
      return types.float32;
    case Dtype::float64:
      return types.float64;
    case Dtype::complex64:
      return types.complex64;
    case Dtype::complex128:
      return types.complex128;
    case Dtype::int8:
      return types.int8;
    default:
      return types.int32;
  }
}

bool is_double(Dtype dtype) { return dtype == Dtype::float64 || dtype == Dtype::complex128; }

// A number as the library reads it: in the type that is computed in, an imaginary part behind a complex one's.
class Number {
 public:
  Number(Dtype dtype, double real, double imaginary = 0) {
    if (dtype == Dtype::int8) {
      const auto integer = static_cast<int32_t>(real);
      memcpy(bytes_, &integer, sizeof integer);
    } else if (is_double(dtype)) {
      const double both[] = {real, imaginary};
      memcpy(bytes_, both, sizeof both);
    } else {
      const float both[] = {static_cast<float>(real), static_cast<float>(imaginary)};
      memcpy(bytes_, both, sizeof both);
    }
    is_zero_ = real == 0 && imaginary == 0;
  }
  Number(Dtype dtype, const Scalar& s) : Number(dtype, s.to<double>(), s.is_complex() ? s.imag() : 0) {}
  const void* data() const { return bytes_; }
  bool is_zero() const { return is_zero_; }

 private:
  alignas(16) unsigned char bytes_[16] = {};
  bool is_zero_ = false;
};

struct Matrix {
  char* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row = 0, column = 0, batch = 0;  // strides

  Matrix transposed() const { return {data, columns, rows, column, row, batch}; }
  // Its rows are dense, `*step` elements apart.
  bool has_dense_rows(int64_t* step) const {
    if (columns > 1 && column != 1) return false;
    const int64_t least = columns > 1 ? columns : 1;
    if (rows > 1 && row < least) return false;
    *step = rows > 1 ? row : least;
    return *step <= INT_MAX && rows <= INT_MAX && columns <= INT_MAX;
  }
};

// The last two dimensions of `t`, and the one before as batch.
Matrix matrix_of(Tensor t) {
  const int64_t d = t.dim();
  return {t.data<char>(), t.size(d - 2), t.size(d - 1), t.stride(d - 2), t.stride(d - 1), d > 2 ? t.stride(0) : 0};
}
Matrix column_of(Tensor t) { return {t.data<char>(), t.size(0), 1, t.stride(0), 1, 0}; }

// A factor as the library wants it, for a product that is computed transposed.
struct Factor {
  int operation = blas::kAsIs;
  int step = 0;
  bool read(const Matrix& m) {
    int64_t found = 0;
    if (m.has_dense_rows(&found))
      operation = blas::kAsIs;
    else if (m.transposed().has_dense_rows(&found))
      operation = blas::kTransposed;
    else
      return false;
    step = static_cast<int>(found);
    return true;
  }
};

struct Product {
  Matrix out, a, b;
  Factor fa, fb;
  int out_step = 0;
  bool turned = false;  // computed as its transposed product, for the sake of out
  int64_t batches = 1;
  Dtype dtype = Dtype::other, out_dtype = Dtype::other;

  // False: the library has no words for these strides.
  bool read() {
    int64_t step = 0;
    if (!out.has_dense_rows(&step)) {  // then its columns: the product of the transposed factors, swapped
      const Matrix left = b.transposed();
      b = a.transposed(), a = left, out = out.transposed(), turned = true;
      if (!out.has_dense_rows(&step)) return false;
    }
    out_step = static_cast<int>(step);
    return fa.read(a) && fb.read(b) && batches <= INT_MAX;
  }

  cw_status run(BlasHandle handle, const Number& alpha, const Number& beta, bool tf32) const {
    const int in = data_type(dtype), to = data_type(out_dtype);
    int compute = tf32 ? types.in_tf32 : types.in_float32;
    if (dtype == Dtype::int8) compute = types.in_int32;
    if (dtype == Dtype::float64) compute = types.in_float64;
    if (dtype == Dtype::complex64) compute = types.in_complex64;
    if (dtype == Dtype::complex128) compute = types.in_complex128;
    const int m = static_cast<int>(out.columns), n = static_cast<int>(out.rows), k = static_cast<int>(a.columns);
    if (batches == 1)
      return check_blas(
          cublas.gemm(handle, fb.operation, fa.operation, m, n, k, alpha.data(), b.data, in, fb.step, a.data, in,
                      fa.step, beta.data(), out.data, to, out_step, compute, blas::kDefaultAlgorithm),
          blas_symbols.gemm);
    return check_blas(
        cublas.gemm_batched(handle, fb.operation, fa.operation, m, n, k, alpha.data(), b.data, in, fb.step, b.batch,
                            a.data, in, fa.step, a.batch, beta.data(), out.data, to, out_step, out.batch,
                            static_cast<int>(batches), compute, blas::kDefaultAlgorithm),
        blas_symbols.gemm_batched);
  }
};

// cuBLAS's own advice for its workspace.
uint64_t workspace_bytes(const Device& device) {
  const uint64_t mebibytes = device.major == 9 || device.major == 10 ? 32 : device.major >= 12 ? 12 : 4;
  return mebibytes << 20;
}

std::atomic<bool> g_broken{false};  // it was found not to work here

// The stream's handle with this workspace. CW_UNSUPPORTED, said once, where the library does not work on the device. The
// stream's library mutex is held.
cw_status handle_of(cw_stream_t& stream, void* workspace, BlasStream** out) {
  if (!stream.blas) {
    auto made = std::make_unique<BlasStream>();
    const int result = cublas.create(&made->handle);
    if (result != blas::kSuccess) {
      made->handle = nullptr;
      const char* text = cublas.status_text ? cublas.status_text(result) : "";
      if (!g_broken.exchange(true) && host.log)
        host.log(2, (std::string(KIN_BLAS " cannot be used (") + plain(blas_symbols.create) + ": status " +
                     std::to_string(result) + ", " + text +
                     "), so portable kernels compute products; " KIN_SETTING KIN_BLAS_SETTING "=0 silences this")
                        .c_str());
      return CW_UNSUPPORTED;
    }
    TRY(check_blas(cublas.set_stream(made->handle, stream.stream), blas_symbols.set_stream));
#ifdef KIN_HAS_BLASLT
    TRY(check_blas(cublas.set_math(made->handle, blas::kFullReduction), blas_symbols.set_math));
#endif
    stream.blas = std::move(made);
  }
  if (workspace)
    TRY(check_blas(cublas.set_workspace(stream.blas->handle, workspace, workspace_bytes(*stream.device)),
                   blas_symbols.set_workspace));
  return *out = stream.blas.get(), CW_OK;
}

// `count` ones of `dtype`, kept as long as the stream: a graph that was captured with them reads them at each replay.
cw_status ones_of(BlasStream& own, Dtype dtype, int64_t count, char** out) {
  auto& all = own.ones[dtype];
  if (all.empty() || all.back().count < count) {
    const int64_t size = is_double(dtype) ? 8 : dtype == Dtype::float16 || dtype == Dtype::bfloat16 ? 2 : 4;
    const int64_t each = dtype == Dtype::complex64 || dtype == Dtype::complex128 ? 2 : 1;
    const int64_t room = count < 4096 ? 4096 : count * 2;
    std::vector<char> values(static_cast<size_t>(room * size * each), 0);
    for (int64_t i = 0; i < room; ++i) {
      char* at = values.data() + i * size * each;
      const double d = 1;
      const float f = 1;
      const uint16_t half = dtype == Dtype::float16 ? 0x3c00 : 0x3f80;
      memcpy(at,
             size == 8   ? static_cast<const void*>(&d)
             : size == 4 ? static_cast<const void*>(&f)
                         : &half,
             static_cast<size_t>(size));
    }
    Address made = 0;
    TRY(check(cu.alloc(&made, values.size()), symbols.alloc));
    // At once and on no stream of ours, which may be captured.
    if (const Result result = cu.copy_in_now(made, values.data(), values.size()); result != kSuccess) {
      cu.free(made);
      return check(result, symbols.copy_in_now);
    }
    all.push_back({made, room});
  }
  return *out = reinterpret_cast<char*>(all.back().at), CW_OK;
}

// How the operand of beta is copied into the output, which the product then adds to.
enum class Added { nothing, there_already, copied, rows, columns, declined };

Added how_added(const Matrix& out, int64_t batches, Tensor self, Matrix* from) {
  const int64_t d = self.dim();
  const auto size = [&](int64_t back) { return d >= back ? self.size(d - back) : 1; };
  const auto stride = [&](int64_t back) { return d >= back && size(back) > 1 ? self.stride(d - back) : 0; };
  *from = {self.data<char>(), size(2), size(1), stride(2), stride(1), stride(3)};
  const bool whole = from->rows == out.rows && from->columns == out.columns && (size(3) == batches || batches == 1);
  const auto same = [](int64_t n, int64_t a, int64_t b) { return n <= 1 || a == b; };
  if (whole && same(out.rows, from->row, out.row) && same(out.columns, from->column, out.column) &&
      same(batches, from->batch, out.batch)) {
    if (from->data == out.data) return Added::there_already;
    int64_t step = 0;  // one block of memory?
    const Matrix lines = out.has_dense_rows(&step) ? out : out.transposed();
    if (!lines.has_dense_rows(&step) || (lines.rows > 1 && step != lines.columns)) return Added::declined;
    return batches == 1 || out.batch == out.rows * out.columns ? Added::copied : Added::declined;
  }
  if (from->rows == 1 && from->columns == out.columns) return Added::rows;
  if (from->columns == 1 && from->rows == out.rows) return Added::columns;
  return Added::declined;
}

#ifdef KIN_HAS_BLASLT

template <class T, int (*Blas::*destroy)(T)>
struct Lt {
  T it = nullptr;
  Lt() = default;
  Lt(const Lt&) = delete;
  ~Lt() {
    if (it) (cublas.*destroy)(it);
  }
};

int32_t alignment_of(const void* p) {
  const auto lowest = static_cast<int32_t>(reinterpret_cast<uintptr_t>(p) & 255);
  return lowest ? lowest & -lowest : 256;
}

// out = alpha a b + a row, in one launch: cuBLASLt adds what belongs to a row of its column-major result. `p` was read,
// and its out has dense rows. CW_UNSUPPORTED where it takes no such product.
cw_status add_row(const Product& p, const Number& alpha, const char* row, bool tf32, cw_stream_t& stream,
                  BlasStream& own, void* workspace) {
  const int in = data_type(p.dtype), scale = p.dtype == Dtype::float64 ? blas::kFloat64 : blas::kFloat32;
  const int compute = is_double(p.dtype) ? blas::kIn64F : tf32 ? blas::kInTf32 : blas::kIn32F;
  const auto m = static_cast<uint64_t>(p.out.columns), n = static_cast<uint64_t>(p.out.rows),
             k = static_cast<uint64_t>(p.a.columns);
  Lt<LtPlan, &Blas::plan_destroy> plan;
  Lt<LtLayout, &Blas::layout_destroy> a, b, out;
  TRY(check_blas(cublas.plan_create(&plan.it, compute, scale), "cublasLtMatmulDescCreate"));
  const auto set = [&](int what, const auto& value) {
    return check_blas(cublas.plan_set(plan.it, what, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  };
  TRY(set(blas::kLtTransA, int32_t{p.fb.operation}));
  TRY(set(blas::kLtTransB, int32_t{p.fa.operation}));
  TRY(set(blas::kLtEpilogue, int32_t{blas::kLtAddsBias}));
  TRY(set(blas::kLtBias, row));
  TRY(set(blas::kLtBiasType, int32_t{in}));
  const auto layout = [&](LtLayout* to, bool turned, uint64_t rows, uint64_t columns, int step) {
    return check_blas(cublas.layout_create(to, in, turned ? columns : rows, turned ? rows : columns, step),
                      "cublasLtMatrixLayoutCreate");
  };
  TRY(layout(&a.it, p.fb.operation == blas::kTransposed, m, k, p.fb.step));
  TRY(layout(&b.it, p.fa.operation == blas::kTransposed, k, n, p.fa.step));
  TRY(layout(&out.it, false, m, n, p.out_step));
  const int32_t aligned[] = {alignment_of(p.b.data), alignment_of(p.a.data), alignment_of(p.out.data),
                             alignment_of(row)};
  const std::vector<int64_t> key = {in,         compute,    p.fb.operation, p.fa.operation, int64_t(m),
                                    int64_t(n), int64_t(k), p.fb.step,      p.fa.step,      p.out_step,
                                    aligned[0], aligned[1], aligned[2],     aligned[3]};
  const auto handle = reinterpret_cast<LtHandle>(own.handle);
  const auto known = own.chosen.find(key);
  if (known == own.chosen.end()) {
    Lt<LtWish, &Blas::wish_destroy> wish;
    TRY(check_blas(cublas.wish_create(&wish.it), "cublasLtMatmulPreferenceCreate"));
    const auto ask = [&](int what, const auto& value) {
      return check_blas(cublas.wish_set(wish.it, what, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    TRY(ask(blas::kLtWorkspace, workspace_bytes(*stream.device)));
    TRY(ask(blas::kLtReduction, blas::kLtInWideType));
    for (int i = 0; i < 3; ++i) TRY(ask(blas::kLtAlignA + i, static_cast<uint32_t>(aligned[i])));
    TRY(ask(blas::kLtAlignD, static_cast<uint32_t>(aligned[2])));
    blas::Proposal found = {};
    int count = 0;
    const int result = cublas.propose(handle, plan.it, a.it, b.it, out.it, out.it, wish.it, 1, &found, &count);
    const bool good = result == blas::kSuccess && count > 0 && found.state == blas::kSuccess;
    own.chosen[key] = good ? std::optional(found) : std::nullopt;
  }
  const auto& chosen = own.chosen[key];
  if (!chosen) return CW_UNSUPPORTED;
  const Number none(p.dtype, 0);
  return check_blas(cublas.multiply(handle, plan.it, alpha.data(), p.b.data, a.it, p.a.data, b.it, none.data(),
                                    p.out.data, out.it, p.out.data, out.it, &chosen->algorithm, workspace,
                                    workspace_bytes(*stream.device), stream.stream),
                    "cublasLtMatmul");
}

#endif

// out = alpha a b + beta self
cw_status product(const char* name, Product p, const Tensor* self, const Scalar* beta, const Scalar* alpha,
                  int32_t device_index, cw_stream handle) {
  if (g_broken || p.a.columns == 0) return CW_UNSUPPORTED;
  const Number scale = alpha ? Number(p.dtype, *alpha) : Number(p.dtype, 1);
  Number keep = beta ? Number(p.dtype, *beta) : Number(p.dtype, 0);
  [[maybe_unused]] const bool scaled_by_one = beta && !beta->is_complex() && beta->to<double>() == 1;
  Added added = Added::nothing;
  Matrix from;
  if (self && !keep.is_zero()) added = how_added(p.out, p.batches, *self, &from);
  if (added == Added::declined) return CW_UNSUPPORTED;
  // A vector is added as a product of its own, with a column or a row of ones.
  Product vector = p;
  if (added == Added::rows || added == Added::columns) {
    const Matrix ones_column = {nullptr, p.out.rows, 1, 1, 1, 0}, ones_row = {nullptr, 1, p.out.columns, 1, 1, 0};
    vector.a = added == Added::rows ? ones_column : from;
    vector.b = added == Added::rows ? from : ones_row;
    if (Product test = vector; !test.read()) return CW_UNSUPPORTED;
  }
  const Matrix out = p.out;
  if (!p.read()) return CW_UNSUPPORTED;
  Device* device = nullptr;
  cw_stream_t* stream = nullptr;
  TRY(find_device(name, device_index, &device));
  TRY(find_stream(name, *device, handle, &stream));
  void* workspace = nullptr;  // the core's allocator is not asked with a mutex of ours held
  if (cublas.set_workspace) TRY(host.scratch(device_index, handle, workspace_bytes(*device), &workspace));
  std::lock_guard<std::mutex> lock(stream->libraries);
  BlasStream* own = nullptr;
  TRY(handle_of(*stream, workspace, &own));
  if (added == Added::copied) {
    const auto bytes = static_cast<size_t>(p.batches * out.rows * out.columns * self->itemsize());
    TRY(check(cu.copy_within(address(out.data), address(from.data), bytes, stream->stream), symbols.copy_within));
  } else if (added == Added::rows || added == Added::columns) {
#ifdef KIN_HAS_BLASLT
    const bool one = scaled_by_one && (from.column == 1 || from.columns == 1) && p.batches == 1 && cublas.multiply;
    const bool real = p.dtype != Dtype::complex64 && p.dtype != Dtype::complex128;
    if (one && real && added == Added::rows && !p.turned) {
      const bool tf32 = p.dtype == Dtype::float32 && torch_asks("torch.matmul_precision", "tf32");
      const cw_status status = add_row(p, scale, from.data, tf32, *stream, *own, workspace);
      if (status != CW_UNSUPPORTED) return status;
    }
#endif
    char* ones = nullptr;
    TRY(ones_of(*own, p.dtype, added == Added::rows ? out.rows : out.columns, &ones));
    (added == Added::rows ? vector.a : vector.b).data = ones;
    vector.read();
    TRY(vector.run(own->handle, Number(p.dtype, 1), Number(p.dtype, 0), false));
  }
  const bool tf32 = p.dtype == Dtype::float32 && torch_asks("torch.matmul_precision", "tf32");
  return p.run(own->handle, scale, keep, tf32);
}

bool alike(Dtype dtype, std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (t.dtype() != dtype) return false;
  return true;
}

Product of_matrices(Tensor out, Tensor a, Tensor b) {
  Product p;
  p.out = matrix_of(out), p.a = matrix_of(a), p.b = matrix_of(b);
  p.dtype = a.dtype(), p.out_dtype = out.dtype();
  if (out.dim() == 3) {
    p.batches = out.size(0);
    if (a.size(0) == 1) p.a.batch = 0;
    if (b.size(0) == 1) p.b.batch = 0;
  }
  return p;
}

template <class Op, int dims>
cw_status multiply(Tensor out, Tensor a, Tensor b, cw_stream stream) {
  if (out.dim() != dims || a.dim() != dims || b.dim() != dims || !alike(out.dtype(), {a, b})) return CW_UNSUPPORTED;
  return product(Op::name, of_matrices(out, a, b), nullptr, nullptr, nullptr, out.device(), stream);
}

template <class Op, int dims>
cw_status multiply_add(Tensor out, Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, cw_stream stream) {
  if (out.dim() != dims || a.dim() != dims || b.dim() != dims || self.dim() > dims || !alike(out.dtype(), {self, a, b}))
    return CW_UNSUPPORTED;
  return product(Op::name, of_matrices(out, a, b), &self, &beta, &alpha, out.device(), stream);
}

cw_status addmv(Tensor out, Tensor self, Tensor mat, Tensor vec, Scalar beta, Scalar alpha, cw_stream stream) {
  if (out.dim() != 1 || mat.dim() != 2 || vec.dim() != 1 || self.dim() != 1 || !alike(out.dtype(), {self, mat, vec}))
    return CW_UNSUPPORTED;
  if (self.size(0) != out.size(0)) return CW_UNSUPPORTED;
  Product p;
  p.out = column_of(out), p.a = matrix_of(mat), p.b = column_of(vec);
  p.dtype = p.out_dtype = out.dtype();
  // As a column, with a dimension behind it.
  const int64_t shape[] = {self.size(0), 1}, strides[] = {self.stride(0), 1};
  DLTensor column = *self.dl();
  column.ndim = 2;
  column.shape = const_cast<int64_t*>(shape);
  column.strides = const_cast<int64_t*>(strides);
  const Tensor added(&column);
  return product("aten::addmv.out", p, &added, &beta, &alpha, out.device(), stream);
}

// cuBLAS multiplies int8 where columns lie at multiples of four bytes.
cw_status int_mm(Tensor out, Tensor a, Tensor b, cw_stream stream) {
  if (a.dim() != 2 || b.dim() != 2 || a.dtype() != Dtype::int8 || b.dtype() != Dtype::int8 ||
      out.dtype() != Dtype::int32)
    return CW_UNSUPPORTED;
  Product p = of_matrices(out, a, b);
  Product read = p;
  const auto odd = [](const Matrix& m) { return (reinterpret_cast<uintptr_t>(m.data) & 3) != 0; };
  if (!read.read() || (read.fa.step & 3) || (read.fb.step & 3) || odd(p.a) || odd(p.b)) return CW_UNSUPPORTED;
  return product("aten::_int_mm.out", p, nullptr, nullptr, nullptr, out.device(), stream);
}

constexpr cw_dtypes kTaken = CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_FLOAT64 | CW_COMPLEX64 | CW_COMPLEX128;
constexpr cw::Needs kProducts = {CW_NEEDS_ELEMENTS, kTaken};

using namespace cw::aten;
constexpr cw::Entry kTable[] = {
    cw::op<mm_out, multiply<mm_out, 2>>(kProducts),
    cw::op<bmm_out, multiply<bmm_out, 3>>(kProducts),
    cw::op<addmm_out, multiply_add<addmm_out, 2>>(kProducts),
    cw::op<baddbmm_out, multiply_add<baddbmm_out, 3>>(kProducts),
    cw::op<addmv_out, addmv>(kProducts),
    cw::op<_int_mm_out, int_mm>({CW_NEEDS_ELEMENTS, CW_INT8 | CW_INT32}),
};

}  // namespace

cw_status find_product(const char* name, cw_op* out) {
  const cw_status status = cw::find(kTable, name, out);
  if (status != CW_OK) return status;
  if (const char* words = open_blas(); *words) return fail(CW_UNSUPPORTED, KIN_BLAS ": %s", words);
  return CW_OK;
}

}  // namespace cuda
