// Attention and its gradient on tensor cores, for float16 and bfloat16, by kernels of our own (attention_text.hpp) that
// NVRTC compiles when they are first asked for: cuDNN's are graphs of many operations that differ from release to release.
//
// Left to the portable kernels: masks other than the causal one, other dtypes, heads of more than 128 numbers, GPUs
// before sm_80, addresses and rows that are not at multiples of 16 bytes.
#include "attention.hpp"

#include <climits>
#include <cmath>
#include <string>

#include "attention_text.hpp"
#include "causeway/operators.hpp"
#include "error.hpp"
#include "program.hpp"
#include "stream.hpp"

namespace cuda {

namespace {

using cw::Dtype, cw::Tensor;
template <class T>
using optional = std::optional<T>;

// As the kernels' text has them.
struct At {
  int64_t b, h, l;
};
struct Sizes {
  int heads, shared, rows, keys, depth;
  float scale;
};
constexpr int kThreads = 256, kRows = 128;

struct Attention {
  Device* device = nullptr;
  cw_stream_t* stream = nullptr;
  Sizes sizes;
  int64_t batch = 0;
  int padded = 64;  // the depth of a tile
  bool bfloat = false, causal = false;

  int64_t queries() const { return batch * sizes.heads * sizes.rows; }

  cw_status function(const char* name, int step, unsigned bytes, Function* out) const {
    const std::string defined = std::string("-DBFLOAT=") + (bfloat ? "1" : "0");
    const std::string options[] = {defined, "-DDP=" + std::to_string(padded), "-DBC=" + std::to_string(step),
                                   std::string("-DCAUSAL=") + (causal ? "1" : "0")};
    return kernel_of(device->index, kAttentionText, {options, options + 4}, name, bytes, out);
  }

  template <class... Args>
  cw_status launch(Function f, int64_t groups, int threads, unsigned bytes, Args... args) const {
    void* places[] = {&args...};
    return check(cu.launch(f, static_cast<unsigned>(groups), 1, 1, static_cast<unsigned>(threads), 1, 1, bytes,
                           stream->stream, places, nullptr),
                 symbols.launch);
  }
};

At at(const Tensor& t) { return {t.stride(0), t.stride(1), t.stride(2)}; }

// Rows of 16-byte pieces, at addresses that are multiples of it.
bool has_pieces(const Tensor& t, Dtype dtype) {
  if (t.dim() != 4 || t.dtype() != dtype || (t.size(3) > 1 && t.stride(3) != 1)) return false;
  for (int d = 0; d < 3; ++d)
    if (t.size(d) > 1 && t.stride(d) % 8) return false;
  return (reinterpret_cast<uintptr_t>(t.data<char>()) & 15) == 0;
}

// False: for the portable kernel.
bool read(Attention& a, Tensor q, Tensor k, Tensor v, Tensor lse, double dropout, bool causal,
          const optional<Tensor>& mask, optional<double> scale) {
  const Dtype dtype = q.dtype();
  if (mask || dropout != 0 || (dtype != Dtype::float16 && dtype != Dtype::bfloat16)) return false;
  for (const Tensor& t : {q, k, v})
    if (!has_pieces(t, dtype)) return false;
  const int64_t depth = q.size(3);
  if (depth > 128 || depth % 8 || k.size(3) != depth || v.size(3) != depth || lse.dtype() != Dtype::float32 ||
      lse.dim() != 3)
    return false;
  if (k.size(0) != q.size(0) || v.size(0) != q.size(0) || k.size(1) < 1 || q.size(1) % k.size(1) ||
      v.size(1) != k.size(1) || v.size(2) != k.size(2) || q.size(2) < 1 || k.size(2) < 1)
    return false;
  const double factor = scale ? *scale : 1 / std::sqrt(static_cast<double>(depth));
  if (!(factor > 0) || q.size(2) > INT_MAX / 2 || k.size(2) > INT_MAX / 2) return false;
  a.batch = q.size(0), a.padded = depth <= 64 ? 64 : 128, a.bfloat = dtype == Dtype::bfloat16, a.causal = causal;
  a.sizes = {static_cast<int>(q.size(1)), static_cast<int>(q.size(1) / k.size(1)),
             static_cast<int>(q.size(2)), static_cast<int>(k.size(2)),
             static_cast<int>(depth),     static_cast<float>(factor)};
  return a.queries() <= INT_MAX && a.batch * k.size(1) * k.size(2) <= INT_MAX;
}

cw_status bind(Attention& a, const char* name, int32_t index, cw_stream handle) {
  TRY(find_device(name, index, &a.device));
  if (a.device->major < 8 || a.device->warp != kWarp) return CW_UNSUPPORTED;
  return find_stream(name, *a.device, handle, &a.stream);
}

int64_t blocks_of(int64_t n) { return (n + kRows - 1) / kRows; }

cw_status forward(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, double dropout, bool causal,
                  optional<Tensor> mask, optional<double> scale, cw_stream handle) {
  Attention a;
  if (!read(a, q, k, v, lse, dropout, causal, mask, scale) || !has_pieces(out, q.dtype())) return CW_UNSUPPORTED;
  TRY(bind(a, "attention", out.device(), handle));
  constexpr int step = 64;
  const auto bytes = static_cast<unsigned>((kRows + 4 * step) * a.padded * 2);
  Function f = nullptr;
  TRY(a.function("forward", step, bytes, &f));
  const int threads = a.padded == 64 ? kThreads / 2 : kThreads;
  return a.launch(f, blocks_of(a.sizes.rows) * a.batch * a.sizes.heads, threads, bytes, q.data<char>(), k.data<char>(),
                  v.data<char>(), out.data<char>(), lse.data<char>(), at(q), at(k), at(v), at(out), at(lse), a.sizes);
}

cw_status backward(optional<Tensor> to_q, optional<Tensor> to_k, optional<Tensor> to_v, Tensor grad, Tensor q, Tensor k,
                   Tensor v, Tensor out, Tensor lse, double dropout, bool causal, optional<Tensor> mask,
                   optional<double> scale, cw_stream handle) {
  Attention a;
  if (!to_q || !to_k || !to_v || !read(a, q, k, v, lse, dropout, causal, mask, scale)) return CW_UNSUPPORTED;
  for (const Tensor& t : {*to_q, *to_k, *to_v, grad, out})
    if (!has_pieces(t, q.dtype())) return CW_UNSUPPORTED;
  TRY(bind(a, "attention's gradient", grad.device(), handle));
  const int step = a.padded == 64 ? 64 : 32;
  const auto bytes = static_cast<unsigned>((2 * kRows + 4 * step) * a.padded * 2);
  Function sums = nullptr, queries = nullptr, keys = nullptr;
  TRY(a.function("row_sums", step, 0, &sums));
  TRY(a.function("to_queries", step, bytes, &queries));
  TRY(a.function("to_keys", step, bytes, &keys));
  void* delta = nullptr;
  TRY(host.scratch(grad.device(), handle, static_cast<uint64_t>(a.queries()) * sizeof(float), &delta));
  char *at_q = q.data<char>(), *at_k = k.data<char>(), *at_v = v.data<char>(), *from = grad.data<char>();
  TRY(a.launch(sums, (a.queries() + 7) / 8, kThreads, 0, out.data<char>(), from, delta, at(out), at(grad), a.sizes,
               a.queries()));
  TRY(a.launch(queries, blocks_of(a.sizes.rows) * a.batch * a.sizes.heads, kThreads, bytes, to_q->data<char>(), from,
               at_q, at_k, at_v, lse.data<char>(), delta, at(*to_q), at(grad), at(q), at(k), at(v), at(lse), a.sizes));
  return a.launch(keys, blocks_of(a.sizes.keys) * a.batch * k.size(1), kThreads, bytes, to_k->data<char>(),
                  to_v->data<char>(), from, at_q, at_k, at_v, lse.data<char>(), delta, at(*to_k), at(*to_v), at(grad),
                  at(q), at(k), at(v), at(lse), a.sizes);
}

constexpr cw::Needs kForward = {CW_NEEDS_ELEMENTS, CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_BOOL};
constexpr cw::Needs kBackward = {0, kForward.of};

using namespace cw::aten;
constexpr cw::Entry kTable[] = {
    cw::op<_scaled_dot_product_flash_attention_for_cpu, forward>(kForward),
    cw::op<_scaled_dot_product_flash_attention_for_cpu_backward, backward>(kBackward),
};

}  // namespace

cw_status find_attention(const char* name, cw_op* out) {
  const cw_status status = cw::find(kTable, name, out);
  if (status != CW_OK) return status;
  if (const char* words = open_compiler(); *words) return fail(CW_UNSUPPORTED, "%s", words);
  return CW_OK;
}

}  // namespace cuda
