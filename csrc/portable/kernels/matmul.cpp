// mm, addmm, bmm and baddbmm, of matrices with any strides.
#include <utility>

#include "portable/epilogue.h"
#include "portable/kernels/gemm.h"
#include "portable/kernels/matmul.cl.h"
#include "portable/program.h"

namespace causeway::portable {

namespace {

struct Matmul {
  const char* name;
  bool batched, added;
};

// out, self, mat2; or out, self, mat1, mat2, beta, alpha
cw_status matmul(KernelCall& call, const void* data) {
  const Matmul& op = *static_cast<const Matmul*>(data);
  Tensor out, c, a, b;
  int at = 1;
  if (!call.tensor(0, &out)) return CW_UNSUPPORTED;
  if (op.added && !call.tensor(at++, &c)) return CW_UNSUPPORTED;
  if (!call.tensor(at, &a) || !call.tensor(at + 1, &b)) return CW_UNSUPPORTED;
  const int rank = op.batched ? 3 : 2;
  if (is_int(a.dtype) && !op.added) return integer_product(call);
  if (a.ndim != rank || b.ndim != rank || out.ndim != rank || !is_float(a.dtype) || a.dtype != b.dtype ||
      out.dtype != a.dtype || (op.added && (c.dtype != a.dtype || c.ndim > rank)))
    return CW_UNSUPPORTED;
  if (a.dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64)) return CW_UNSUPPORTED;
  const double beta = op.added ? call.real(at + 2, 1) : 0, alpha = op.added ? call.real(at + 3, 1) : 1;
  const bool adds = op.added && beta != 0;  // what is multiplied by 0 is not looked at: it may be NaN
  // By 1 nothing is multiplied: a loop with a call of fma() becomes no vectors on PoCL.
  const bool scaled = op.added && (alpha != 1 || (adds && beta != 1));
  ProductSize size{op.batched ? a.shape[0] : 1, a.size(-2), b.size(-1), a.size(-1)};
  if (size.k == 0) return CW_UNSUPPORTED;
  int64_t am = a.strides[rank - 2], ak = a.strides[rank - 1], bk = b.strides[rank - 2], bn = b.strides[rank - 1];
  int64_t om = out.strides[rank - 2], on = out.strides[rank - 1], cs[3] = {};
  if (adds)
    for (int d = 0; d < c.ndim; ++d) {
      const int to = d + rank - c.ndim;
      if (c.shape[d] != 1 && c.shape[d] != out.shape[to]) return CW_UNSUPPORTED;
      cs[to + 3 - rank] = c.shape[d] == 1 ? 0 : c.strides[d];
    }
  const Epilogue* epilogue = out.contiguous() ? call.take_epilogue() : nullptr;
  bool turned = false;
  // On CPUs, where B is packed, and A read where it lies if k is dense in it: the result is as well that of both turned.
  if (call.device->in_turn() && bk == 1 && (ak != 1 || size.m < size.n)) {
    std::swap(a, b), std::swap(size.m, size.n), std::swap(am, bn), std::swap(ak, bk);
    std::swap(om, on), std::swap(cs[1], cs[2]);
    turned = true;
  }
  const Dtype type = compute_of(a.dtype);
  const bool a_dense = ak == 1, n_dense = bn == 1, k_dense = bk == 1;
  const auto bits = static_cast<uint64_t>(a.dtype) | static_cast<uint64_t>(adds) << 8 |
                    static_cast<uint64_t>(a_dense) << 9 | static_cast<uint64_t>(n_dense) << 10 |
                    static_cast<uint64_t>(k_dense) << 11 | static_cast<uint64_t>(scaled) << 12 |
                    static_cast<uint64_t>(am == 1) << 13 | static_cast<uint64_t>(om == 1) << 14 |
                    static_cast<uint64_t>(on == 1) << 15 | static_cast<uint64_t>(turned) << 16 |
                    static_cast<uint64_t>(cs[1] == 1) << 17 | static_cast<uint64_t>(cs[2] == 1) << 18;
  // The parameters before the product's own.
  const auto parameters = [&](Source& s) {
    const std::string store = storage_of(a.dtype), t = name_of(type);
    s.out(store, "out").in(store, "a").in(store, "b_");
    if (adds) s.in(store, "c_");
    if (adds && scaled) s.value(t, "beta");
    if (scaled) s.value(t, "alpha");
    for (const char* v : {"a_batch", "b_batch", "bk", "bn", "o_batch", "om", "on"}) s.value("idx", v);
    if (adds)
      for (const char* v : {"c_batch", "cm", "cn"}) s.value("idx", v);
    declare(epilogue, s);
  };
  const auto fill = [&](Launch& l) {
    const auto scalar = [&](double v) { type == kF64 ? l.value(v) : l.value(static_cast<float>(v)); };
    l.pointer(out.data).pointer(a.data).pointer(b.data);
    if (adds) l.pointer(c.data);
    if (adds && scaled) scalar(beta);
    if (scaled) scalar(alpha);
    l.value(op.batched ? a.strides[0] : int64_t{0}).value(op.batched ? b.strides[0] : int64_t{0}).value(bk).value(bn);
    l.value(op.batched ? out.strides[0] : int64_t{0}).value(om).value(on);
    if (adds) l.value(cs[0]).value(cs[1]).value(cs[2]);
    causeway::portable::fill(epilogue, l);
  };
  const auto describe = [&](Product& p) {
    p.a = a.dtype;
    p.type = type;
  };
  const auto describe_text = [&](Source& s) {
    const std::string name = name_of(a.dtype);
    s.define("LD", "LD_" + name).define("ST", "ST_" + name).define("ADDED", adds).define("SCALED", scaled);
    s.define("BK", k_dense ? "1" : "bk").define("BN", n_dense ? "1" : "bn");
    s.define("OM", om == 1 ? "1" : "om").define("ON", on == 1 ? "1" : "on");
    s.define("CM", cs[1] == 1 ? "1" : "cm").define("CN", cs[2] == 1 ? "1" : "cn");
    s.define("TURNED", turned).define("N_DENSE", n_dense).define("K_DENSE", k_dense).before(texts::matmul::matmul);
  };
  if (call.device->in_turn() && size.n <= kFewColumns && a_dense && k_dense && a.dtype == type) {
    const int columns = size.n == 1 ? 1 : kFewColumns;
    cw_function function = nullptr;
    TRY(call.device->function(
        {family("matmul_columns"), bits, static_cast<uint64_t>(columns), id_of(epilogue)},
        [&] {
          Source s(call.device->info);
          parameters(s);
          Product p;
          describe(p);
          describe_text(s);
          return columns_text(s, p, columns, *call.device);
        },
        &function));
    Launch launch;
    fill(launch);
    const int64_t units = size.batch * size.m;
    launch.value(units).value(size.m).value(size.n).value(size.k).value(am);
    return launch.run(*call.device, function, units, static_cast<double>(columns * size.k) / 8, call.stream);
  }
  const auto function_of = [&](const Cut& cut, cw_function* out_function) {
    return call.device->function(
        {family("matmul"), bits, cut.id(), id_of(epilogue)},
        [&] {
          Source s(call.device->info);
          s.out(name_of(type), "packs");
          parameters(s);
          Product p;
          describe(p);
          describe_text(s);
          p.cut = cut;
          p.a_dense = a_dense;
          p.a_across = am == 1;
          p.out_across = om == 1 && on != 1;
          p.b_along_k = k_dense && !n_dense;
          return product_text(s, p, *call.device);
        },
        out_function);
  };
  const Turn::Use use = op.batched ? Turn::batch : Turn::matrix;
  return run_product(call, use, a.dtype, size, am, ak, function_of, fill);
}

}  // namespace

Kernels matmul_kernels() {
  static const Matmul ops[] = {{"aten::mm.out", false, false},
                               {"aten::addmm.out", false, true},
                               {"aten::bmm.out", true, false},
                               {"aten::baddbmm.out", true, true}};
  Kernels list;
  for (const Matmul& op : ops)
    list.push_back({op.name, matmul, op.added ? kFloats : kFloats | kInts, CW_NEEDS_ELEMENTS, &op});
  return list;
}

}  // namespace causeway::portable
