// Products that are no large matrix product of floats: of integers, with vectors, outer ones; gated halves; both
// extremes at once; variances.
#include <algorithm>

#include "portable/kernels/gemm.h"
#include "portable/order.h"
#include "portable/kernels/product.cl.h"

namespace causeway::portable {

namespace {

Dtype accumulator(const KernelCall& call, Dtype dtype) {
  if (is_int(dtype)) return kI64;
  return call.device->in_turn() && has_f64(call) ? kF64 : compute_of(dtype);
}

// As the text of a #define.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// What is in front of a sum by teams, in type A.
void define_sums(Program& p, const Teams& teams, Dtype type) {
  p.define("A", name_of(type)).before(teams_text(teams, type) + fold_text("team_sum", "A", "a + b"));
}

// Before a text with DOT, whose strides are these; by a team, that of teams must be before it.
void define_dot(Program& p, const char* ak, const char* bk) {
  p.define("AK", ak).define("BK", bk).before(texts::product::sum_of_products);
}

// Matrices of integers, with one dimension of batches or none; also int8 to int32 (_int_mm).
cw_status integers(KernelCall& call, const void*) {
  Tensor out, a, b;
  if (!call.tensor(0, &out) || !call.tensor(1, &a) || !call.tensor(2, &b) || a.dtype != b.dtype || !is_int(a.dtype) ||
      !is_int(out.dtype) || out.dtype == kBool || a.ndim != out.ndim || b.ndim != out.ndim)
    return CW_UNSUPPORTED;
  const bool batched = out.ndim == 3;
  Program p(call, "integers");
  p.define("A", "i64").out("out", out).in("a", a).in("b", b).value("depth", a.shape[a.ndim - 1]);
  define_dot(p, batched ? "a_s2" : "a_s1", batched ? "b_s1" : "b_s0");
  p.define("A_BASE", batched ? "c0 * a_s0 + c1 * a_s1" : "c0 * a_s0");
  p.define("B_BASE", batched ? "c0 * b_s0 + c2 * b_s2" : "c1 * b_s1");
  return p.each(out, texts::product::integers, static_cast<double>(a.shape[a.ndim - 1]) * 4);
}

// out, self, mat, vec, beta, alpha
cw_status addmv(KernelCall& call, const void*) {
  Tensor out, c, a, b;
  if (!call.tensor(0, &out) || !call.tensor(1, &c) || !call.tensor(2, &a) || !call.tensor(3, &b) || a.ndim != 2 ||
      b.ndim != 1 || a.dtype != b.dtype || c.dtype != a.dtype || out.dtype != a.dtype || c.ndim > 1 || a.dtype == kBool)
    return CW_UNSUPPORTED;
  Number beta{kI64, 0, 1}, alpha{kI64, 0, 1};
  call.number(4, &beta), call.number(5, &alpha);
  const Dtype type = accumulator(call, a.dtype);
  const Teams teams = teams_of(*call.device, a.shape[0], a.shape[1], a.strides[0] < a.strides[1]);
  Program p(call, "addmv");
  if (teams)
    define_sums(p, teams, type);
  else
    p.define("A", name_of(type));
  p.out("out", out).in("a", a).in("b", b).in("c", c.data, c.dtype);
  p.value("c_step", c.ndim == 0 || c.shape[0] == 1 ? 0 : c.strides[0]).value("depth", a.shape[1]);
  p.number("alpha", alpha, type).number("beta", beta, type);
  define_dot(p, "a_s1", "b_s0");
  p.define("ROW", teams ? "u" : "c0");
  if (teams) return p.by_teams(teams, a.shape[0], texts::product::addmv);
  return p.each(out, texts::product::addmv, static_cast<double>(a.shape[1]) * 4);
}

// out, self, tensor: in parts, then their sum
cw_status dot(KernelCall& call, const void*) {
  Tensor out, a, b;
  if (!call.tensor(0, &out) || !call.tensor(1, &a) || !call.tensor(2, &b) || a.ndim != 1 || b.ndim != 1 ||
      a.dtype != b.dtype || a.shape[0] != b.shape[0] || a.dtype == kBool)
    return CW_UNSUPPORTED;
  const Dtype type = accumulator(call, a.dtype);
  const int64_t n = a.shape[0];
  const Teams teams = teams_of(*call.device, 1, n);
  const int64_t parts = teams ? parts_of(*call.device, teams, 1, n) : std::clamp<int64_t>(n / 2048, 1, 1024);
  void* sums = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(parts * size_of(type)), &sums));
  Program p(call, "dot");
  if (teams)
    define_sums(p, teams, type);
  else
    p.define("A", name_of(type));
  p.in("a", a).in("b", b).out("sums", sums, type).value("size", n).value("parts", parts);
  define_dot(p, "a_s0", "b_s0");
  if (teams) {
    TRY(p.by_teams(teams, parts, texts::product::dot));
    return sum_into(call, out, dense(sums, type, {parts}), {});
  }
  TRY(p.run(parts, texts::product::dot, static_cast<double>(n) / static_cast<double>(parts) * 4));
  Program all(call, "dot_sum");
  all.define("A", name_of(type)).in("sums", sums, type).out("out", out.data, out.dtype).value("parts", parts);
  return all.run(1, texts::product::dot_sum, static_cast<double>(parts));
}

// out, self, vec1, vec2, beta, alpha
cw_status addr(KernelCall& call, const void*) {
  Tensor out, c, a, b;
  if (!call.tensor(0, &out) || !call.tensor(1, &c) || !call.tensor(2, &a) || !call.tensor(3, &b) || out.ndim != 2 ||
      a.ndim != 1 || b.ndim != 1 || a.dtype != out.dtype || b.dtype != out.dtype || c.dtype != out.dtype ||
      out.dtype == kBool)
    return CW_UNSUPPORTED;
  Number beta{kI64, 0, 1}, alpha{kI64, 0, 1};
  call.number(4, &beta), call.number(5, &alpha);
  std::vector<int64_t> strides;
  if (!expanded(c, {out.shape[0], out.shape[1]}, &strides)) return CW_UNSUPPORTED;
  c.ndim = 2;
  for (int d = 0; d < 2; ++d) c.shape[d] = out.shape[d], c.strides[d] = strides[d];
  const Dtype type = is_int(out.dtype) ? kI64 : compute_of(out.dtype);
  Program p(call, "addr");
  p.define("A", name_of(type)).out("out", out).in("c", c).in("a", a).in("b", b).number("alpha", alpha, type);
  p.number("beta", beta, type);
  return p.each(out, texts::product::addr, 10);
}

// out, self, dim; backward: grad_input, grad_output, self, dim. The first half times the sigmoid of the second.
cw_status glu(KernelCall& call, const void* data) {
  const bool backward = data != nullptr;
  Tensor out, in, grad;
  if (!call.tensor(0, &out) || !call.tensor(backward ? 2 : 1, &in) || in.dtype != out.dtype || !is_float(in.dtype) ||
      (backward && (!call.tensor(1, &grad) || grad.dtype != in.dtype)) || in.ndim == 0)
    return CW_UNSUPPORTED;
  const int dim = wrap(call.integer(backward ? 3 : 2, -1), in.ndim);
  const int64_t half = in.shape[dim] / 2;
  const Tensor first = narrow(in, dim, 0, half);
  if (backward && (grad.ndim != in.ndim || !std::equal(grad.shape, grad.shape + grad.ndim, first.shape)))
    return CW_UNSUPPORTED;
  const Dtype type = compute_of(in.dtype);
  Program p(call, backward ? "glu_backward" : "glu");
  p.define("T", name_of(type)).in("a", first).in("b", narrow(in, dim, half, half));
  if (!backward) return p.out("out", out).each(out, "out_set(out_at, a(a_at) / ((T)1 + exp(-b(b_at))));", 40);
  p.in("g", grad).out("first", narrow(out, dim, 0, half)).out("second", narrow(out, dim, half, half));
  return p.each(grad, texts::product::glu_backward, 50);
}

// A list of dimensions as the reduced ones last, the kept ones first.
bool split(const KernelCall& call, const Tensor& in, const std::vector<int64_t>& dims, std::vector<int>* kept,
           std::vector<int>* reduced) {
  bool is_reduced[kMostDims] = {};
  for (int64_t d : dims) {
    const int at = wrap(d, in.ndim);
    if (at < 0 || at >= std::max(in.ndim, 1)) return false;
    is_reduced[at] = true;
  }
  for (int d = 0; d < in.ndim; ++d) (is_reduced[d] || dims.empty() ? reduced : kept)->push_back(d);
  return in.ndim > 0;
}

struct Variance {
  bool root, with_mean;
};

// Dimensions that lie in one another without a gap are one: coordinates then need no division.
void join(std::vector<int64_t>& shape, std::vector<int64_t>& strides) {
  for (size_t d = shape.size(); d-- > 1;)
    if (strides[d - 1] == strides[d] * shape[d]) {
      shape[d - 1] *= shape[d], strides[d - 1] = strides[d];
      shape.erase(shape.begin() + d), strides.erase(strides.begin() + d);
    }
}

// The parts of a row by a team each, then a row's parts by another: its mean, and what the parts' means add to the
// squares (Chan, Golub and LeVeque, 1983). Parts of one row lie `rows` apart.
cw_status variance_by_teams(KernelCall& call, const Variance& op, const Tensor& in, const Tensor& out,
                            const Tensor& mean, const std::vector<int>& kept, const std::vector<int>& reduced,
                            double correction) {
  std::vector<int64_t> kept_shape, kept_strides, shape, strides;
  int64_t rows = 1, count = 1;
  for (int d : kept) kept_shape.push_back(in.shape[d]), kept_strides.push_back(in.strides[d]), rows *= in.shape[d];
  for (int d : reduced) shape.push_back(in.shape[d]), strides.push_back(in.strides[d]), count *= in.shape[d];
  join(kept_shape, kept_strides);
  join(shape, strides);
  const Device& device = *call.device;
  const Teams teams = teams_of(device, rows, count, rows > 1 && kept_strides.back() < strides.back());
  const int64_t parts = parts_of(device, teams, rows, count);
  const Dtype type = accumulator(call, in.dtype);
  void* sums = nullptr;
  TRY(scratch(device, call.stream, static_cast<uint64_t>(rows * parts * 2 * size_of(type)), &sums));
  Program p(call, "variance_parts");
  define_sums(p, teams, type);
  p.in("x", in.data, in.dtype).out("sums", sums, type).value("count", count).value("parts", parts).value("each", rows);
  const std::string base = offset_text(p, "base", "u % each", kept_shape, kept_strides);
  const std::string place = offset_text(p, "at", "from + j", shape, strides);
  p.define("BASE", one_line(base)).define("PLACE_OF_J", one_line(place));
  TRY(p.by_teams(teams, rows * parts, texts::product::variance_parts_teams));
  const Teams joined = teams_of(device, rows, parts, rows > 1);
  Program last(call, "variance");
  define_sums(last, joined, type);
  last.in("sums", sums, type).out("out", out.data, out.dtype).value("count", count);
  if (op.with_mean) last.out("mean", mean.data, mean.dtype);
  last.value("n", parts).real("less", correction, type).define("ROOT", op.root).define("MEAN", op.with_mean);
  last.define("SIZE(j)", "((A)(count * ((j) + 1) / n - count * (j) / n))").define("OF(j)", "2 * ((j) * rows + u)");
  return last.by_teams(joined, rows, texts::product::variance_teams);
}

// (var, mean | var), self, dim, correction, keepdim. Each part of a row by itself, in two passes: its mean, then the
// squares of what is left; parts are joined by their means (Chan, Golub and LeVeque, 1983).
cw_status variance(KernelCall& call, const void* data) {
  const Variance& op = *static_cast<const Variance*>(data);
  Tensor out, mean, in;
  int at = 1;
  if (!call.tensor(0, &out) || (op.with_mean && !call.tensor(at++, &mean)) || !call.tensor(at, &in) ||
      !is_float(in.dtype) || out.dtype != in.dtype)
    return CW_UNSUPPORTED;
  std::vector<int> kept, reduced;
  if (!split(call, in, call.ints(at + 1), &kept, &reduced)) return CW_UNSUPPORTED;
  const double correction = call.real(at + 2, 1);
  int64_t rows = 1, count = 1;
  for (int d : kept) rows *= in.shape[d];
  for (int d : reduced) count *= in.shape[d];
  if (count == 0 || !out.contiguous() || (op.with_mean && !mean.contiguous())) return CW_UNSUPPORTED;
  if (teams_of(*call.device, rows, count)) return variance_by_teams(call, op, in, out, mean, kept, reduced, correction);
  const bool cpu = call.device->in_turn();
  const int64_t wanted = cpu ? call.device->info.compute_units : 8192;
  const int64_t parts =
      std::clamp<int64_t>(std::min(wanted / std::max<int64_t>(rows, 1), count / (cpu ? 8192 : 256)), 1, 1024);
  const Dtype type = accumulator(call, in.dtype);
  void* sums = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(rows * parts * 2 * size_of(type)), &sums));
  std::vector<int64_t> kept_shape, kept_strides, shape, strides;
  for (int d : kept) kept_shape.push_back(in.shape[d]), kept_strides.push_back(in.strides[d]);
  for (int d : reduced) shape.push_back(in.shape[d]), strides.push_back(in.strides[d]);
  const int64_t inner = shape.back(), step = strides.back();
  shape.pop_back(), strides.pop_back();
  Program p(call, "variance_parts");
  p.define("A", name_of(type)).in("x", in.data, in.dtype).out("sums", sums, type).value("count", count);
  p.value("parts", parts).value("inner", inner).value("step", step).define("DENSE", step == 1);
  const std::string base = offset_text(p, "base", "u / parts", kept_shape, kept_strides);
  const std::string row = offset_text(p, "off", "i / inner", shape, strides);
  p.define("BASE", one_line(base)).define("ROW", one_line(row));
  TRY(p.run(rows * parts, texts::product::variance_parts, static_cast<double>(count) / static_cast<double>(parts) * 6));
  Program last(call, "variance");
  last.define("A", name_of(type)).in("sums", sums, type).out("out", out.data, out.dtype).value("count", count);
  if (op.with_mean) last.out("mean", mean.data, mean.dtype);
  last.value("parts", parts).real("less", correction, type).define("ROOT", op.root).define("MEAN", op.with_mean);
  return last.run(rows, texts::product::variance, static_cast<double>(parts) * 12);
}

}  // namespace

cw_status integer_product(KernelCall& call) { return integers(call, nullptr); }

Kernels product_kernels() {
  static const int yes = 1;
  static const Variance var{false, false}, std{true, false}, var_mean{false, true}, std_mean{true, true};
  constexpr uint32_t E = CW_NEEDS_ELEMENTS, dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  constexpr cw_dtypes R = kReals & ~CW_BOOL, F = kFloats;
  return {{"aten::_int_mm.out", integers, CW_INT8 | CW_INT32, E},
          {"aten::addmv.out", addmv, R, E},
          {"aten::dot", dot, R, E},
          {"aten::vdot", dot, R, E},
          {"aten::addr.out", addr, R, E},
          {"aten::glu.out", glu, F, E},
          {"aten::glu_backward.grad_input", glu, F, E, &yes},
          {"aten::var.correction_out", variance, F, dense, &var},
          {"aten::std.correction_out", variance, F, dense, &std},
          {"aten::var_mean.correction", variance, F, dense, &var_mean},
          {"aten::std_mean.correction", variance, F, dense, &std_mean}};
}

}  // namespace causeway::portable
