// Attention without the full matrix of scores, and its gradient (Dao et al. 2022; Rabe and Staats 2021): keys go by in
// blocks, and a row's maximum and sum are corrected as they grow. On CPUs blocks of 64 x 64 scores are products of
// register tiles; elsewhere a group takes a block (attention_blocks.cpp) or, where groups are small, an item a row.
//
// Taken: any strides with dense heads, masks that broadcast, causal, a scale, fewer heads of keys than of queries.
// Left out: dropout (torch takes its composite then).
#include <cmath>

#include "portable/kernels/attention.h"
#include "portable/kernels/attention.cl.h"

namespace causeway::portable {

namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kMostRow = 256;  // of a head, where an item keeps it by itself

bool is_head(const Tensor& t, Dtype dtype) {
  return t.ndim == 4 && t.dtype == dtype && t.numel() > 0 && (t.strides[3] == 1 || t.shape[3] == 1);
}

// Arguments from `at` on are dropout_p, is_causal, attn_mask, scale.
bool read(KernelCall& call, int at, Attention& a) {
  const Dtype dtype = a.q.dtype;
  if (!is_float(dtype) || (dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64))) return false;
  for (const Tensor* t : {&a.q, &a.k, &a.v, &a.out})
    if (!is_head(*t, dtype) || t->shape[0] != a.batch()) return false;
  const int64_t groups = a.k.shape[1];
  if (a.k.shape[3] != a.depth() || a.v.shape[3] != a.depth() || a.v.shape[1] != groups || a.v.shape[2] != a.keys() ||
      groups == 0 || a.heads() % groups != 0)
    return false;
  a.type = compute_of(dtype);
  if (a.lse.ndim != 3 || a.lse.dtype != a.type || call.real(at) != 0) return false;
  if (!call.device->in_turn() && a.depth() > kMostRow) return false;
  a.causal = call.integer(at + 1) != 0;
  a.scale = call.real(at + 3, 1 / std::sqrt(static_cast<double>(a.depth())));
  a.masked = call.tensor(at + 2, &a.mask);
  if (!a.masked) return true;
  const int64_t whole[4] = {a.batch(), a.heads(), a.rows(), a.keys()};
  if (a.mask.ndim < 2 || a.mask.ndim > 4 || !(is_float(a.mask.dtype) || a.mask.dtype == kBool)) return false;
  Tensor spread = a.mask;
  spread.ndim = 4;
  for (int d = 0; d < 4; ++d) {
    const int from = d - (4 - a.mask.ndim);
    const bool one = from < 0 || a.mask.shape[from] == 1;
    if (!one && a.mask.shape[from] != whole[d]) return false;
    spread.shape[d] = whole[d], spread.strides[d] = one ? 0 : a.mask.strides[from];
  }
  a.mask = spread;
  return true;
}

Key key_of(uint64_t name, const Attention& a, bool tiles) {
  return {name,
          static_cast<uint64_t>(a.q.dtype) | static_cast<uint64_t>(a.masked ? a.mask.dtype : kOther) << 8 |
              static_cast<uint64_t>(a.causal) << 16 | static_cast<uint64_t>(tiles) << 17,
          tiles ? 0 : static_cast<uint64_t>(a.depth()), 0};
}

}  // namespace

void attention_places(Source& s, const std::string& macro, const std::string& tensor) {
  for (const char* d : {"0", "1", "2"}) s.value("idx", tensor + d);
  s.define(macro + "(b, h, i)", "((b) * " + tensor + "0 + (h) * " + tensor + "1 + (i) * " + tensor + "2)");
}
void attention_places(Launch& l, const Tensor& t) { l.value(t.strides[0]).value(t.strides[1]).value(t.strides[2]); }

void attention_head(Source& s, const Attention& a, const Device& device) {
  const std::string type = name_of(a.type), name = name_of(a.q.dtype);
  if (device.info.language == CW_CODE_C) s.before("#pragma GCC optimize (\"fp-contract=fast\")\n");
  s.before("typedef " + type + " T;\ntypedef " + type + "x16 V;\n");
  for (const char* one : {"LOADV", "STOREV", "FMAV", "ZERO"}) s.define(one, std::string(one) + "_" + type);
  s.define("LD(p, i)", "((T)LD_" + name + "(p, i))").define("ST(p, i, v)", "ST_" + name + "(p, i, v)");
  s.define("EXP(v)", a.type == kF32 ? "exp_down_f32(v)" : "exp(v)");
  s.define("CAUSAL", a.causal).define("MASKED", a.masked).define("DEPTH", a.depth());
  if (device.in_turn()) s.before(texts::attention::tile);
}

void attention_sizes(Source& s, const Attention& a) {
  for (const char* v : {"units", "slot", "H", "L", "S", "D", "D16", "shared"}) s.value("idx", v);
  s.value(name_of(a.type), "scale");
  for (const char* v : {"lse0", "lse1", "lse2"}) s.value("idx", v);
  if (!a.masked) return;
  for (const char* v : {"mask0", "mask1", "mask2", "mask3"}) s.value("idx", v);
  const std::string at =
      std::string("LD_") + name_of(a.mask.dtype) + "(mask, (b) * mask0 + (h) * mask1 + (i) * mask2 + (j) * mask3)";
  s.define("MASK(b, h, i, j)", a.mask.dtype == kBool ? "(" + at + " ? (T)0 : (T)-INFINITY)" : "((T)" + at + ")");
}
void attention_sizes(Launch& l, const Attention& a, int64_t units, int64_t slot) {
  l.value(units).value(slot).value(a.heads()).value(a.rows()).value(a.keys()).value(a.depth()).value(a.depth16());
  l.value(a.shared());
  if (a.type == kF64)
    l.value(a.scale);
  else
    l.value(static_cast<float>(a.scale));
  attention_places(l, a.lse);
  if (a.masked)
    for (int d = 0; d < 4; ++d) l.value(a.mask.strides[d]);
}

namespace {

// An item's own workspace of `slot` elements; NULL where items need none.
cw_status workspace(KernelCall& call, const Attention& a, int64_t slot, void** out) {
  *out = nullptr;
  if (!call.device->in_turn()) return CW_OK;
  const int64_t items = int64_t{call.device->info.compute_units} * 4;
  return scratch(*call.device, call.stream, static_cast<uint64_t>(items * slot * size_of(a.type)), out);
}

// output, logsumexp, query, key, value, dropout_p, is_causal, attn_mask, scale
cw_status attention(KernelCall& call, const void*) {
  Attention a;
  if (!call.tensor(0, &a.out) || !call.tensor(1, &a.lse) || !call.tensor(2, &a.q) || !call.tensor(3, &a.k) ||
      !call.tensor(4, &a.v) || !read(call, 5, a))
    return CW_UNSUPPORTED;
  const bool tiles = call.device->in_turn();
  bool taken = false;
  TRY(attention_by_teams(call, a, &taken));
  if (taken) return CW_OK;
  cw_function function = nullptr;
  TRY(call.device->function(
      key_of(family("attention"), a, tiles),
      [&] {
        Source s(call.device->info);
        const std::string store = storage_of(a.q.dtype), type = name_of(a.type);
        attention_head(s, a, *call.device);
        s.out(store, "out").out(type, "lse").in(store, "q").in(store, "k").in(store, "v");
        if (tiles) s.out(type, "work");
        if (a.masked) s.in(storage_of(a.mask.dtype), "mask");
        attention_sizes(s, a);
        attention_places(s, "O_AT", "o_");
        attention_places(s, "Q_AT", "q_");
        attention_places(s, "K_AT", "k_");
        attention_places(s, "V_AT", "v_");
        return s.kernel(tiles ? texts::attention::forward_tiles : texts::attention::forward_rows);
      },
      &function));
  const int64_t slot = 4 * kBlock * a.depth16() + kBlock * kBlock;
  void* work = nullptr;
  TRY(workspace(call, a, slot, &work));
  Launch l;
  l.pointer(a.out.data).pointer(a.lse.data).pointer(a.q.data).pointer(a.k.data).pointer(a.v.data);
  if (tiles) l.pointer(work);
  if (a.masked) l.pointer(a.mask.data);
  const int64_t heads = a.batch() * a.heads(), units = heads * (tiles ? (a.rows() + kBlock - 1) / kBlock : a.rows());
  attention_sizes(l, a, units, slot);
  for (const Tensor* t : {&a.out, &a.q, &a.k, &a.v}) attention_places(l, *t);
  const double all = static_cast<double>(heads) * a.rows() * a.keys() * a.depth() / 4;
  return l.run(*call.device, function, units, all / static_cast<double>(units), call.stream);
}

// grad_query, grad_key, grad_value, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale
cw_status attention_backward(KernelCall& call, const void*) {
  Attention a;
  Tensor to_q, to_k, to_v, grad;
  if (!call.tensor(0, &to_q) || !call.tensor(1, &to_k) || !call.tensor(2, &to_v) || !call.tensor(3, &grad) ||
      !call.tensor(4, &a.q) || !call.tensor(5, &a.k) || !call.tensor(6, &a.v) || !call.tensor(7, &a.out) ||
      !call.tensor(8, &a.lse) || !read(call, 9, a))
    return CW_UNSUPPORTED;
  for (const Tensor* t : {&to_q, &to_k, &to_v})
    if (!is_head(*t, a.q.dtype)) return CW_UNSUPPORTED;
  if (grad.ndim != 4 || grad.dtype != a.q.dtype) return CW_UNSUPPORTED;
  const bool tiles = call.device->in_turn();
  // The gradient of a sum comes spread out, all strides 0.
  const bool grad_dense = grad.strides[3] == 1 || grad.shape[3] == 1;
  if (!grad_dense && grad.strides[3] != 0) return CW_UNSUPPORTED;
  bool taken = false;
  TRY(attention_backward_by_teams(call, a, {to_q, to_k, to_v, grad}, &taken));
  if (taken) return CW_OK;
  Key key = key_of(family("attention_backward"), a, tiles);
  key[3] = grad_dense;
  cw_function function = nullptr;
  TRY(call.device->function(
      key,
      [&] {
        Source s(call.device->info);
        const std::string store = storage_of(a.q.dtype), type = name_of(a.type);
        attention_head(s, a, *call.device);
        s.out(store, "to_q").out(store, "to_k").out(store, "to_v").in(store, "grad").in(store, "q").in(store, "k");
        s.in(store, "v").in(store, "result").in(type, "lse");
        if (tiles) s.out(type, "work");
        if (a.masked) s.in(storage_of(a.mask.dtype), "mask");
        attention_sizes(s, a);
        s.value("idx", "queries");
        attention_places(s, "DQ_AT", "dq_");
        attention_places(s, "DK_AT", "dk_");
        attention_places(s, "DV_AT", "dv_");
        attention_places(s, "G_AT", "g_");
        attention_places(s, "Q_AT", "q_");
        attention_places(s, "K_AT", "k_");
        attention_places(s, "V_AT", "v_");
        attention_places(s, "O_AT", "o_");
        std::string text = tiles ? texts::attention::backward_tiles : texts::attention::backward_rows;
        if (!grad_dense)
          for (size_t at; (at = text.find("grads + d")) != std::string::npos;) text.replace(at, 9, "grads");
        return s.kernel(text);
      },
      &function));
  const int64_t rows64 = (a.rows() + kBlock - 1) / kBlock * kBlock;
  const int64_t slot = 7 * kBlock * a.depth16() + 2 * kBlock * kBlock + a.shared() * rows64 * a.depth16();
  void* work = nullptr;
  TRY(workspace(call, a, slot, &work));
  Launch l;
  l.pointer(to_q.data).pointer(to_k.data).pointer(to_v.data).pointer(grad.data).pointer(a.q.data).pointer(a.k.data);
  l.pointer(a.v.data).pointer(a.out.data).pointer(a.lse.data);
  if (tiles) l.pointer(work);
  if (a.masked) l.pointer(a.mask.data);
  const int64_t queries = a.batch() * a.heads() * a.rows(), groups = a.batch() * a.k.shape[1];
  const int64_t units = tiles ? groups : queries + groups * a.keys();
  attention_sizes(l, a, units, slot);
  l.value(queries);
  for (const Tensor* t : {&to_q, &to_k, &to_v, &grad, &a.q, &a.k, &a.v, &a.out}) attention_places(l, *t);
  const double all = static_cast<double>(queries) * a.keys() * a.depth();
  return l.run(*call.device, function, units, all / static_cast<double>(units), call.stream);
}

}  // namespace

Kernels attention_kernels() {
  // The name under which the core asks for attention, forward and backward (csrc/aten/tensor.cpp).
  return {{"aten::_scaled_dot_product_flash_attention_for_cpu", attention, kFloats | CW_BOOL, CW_NEEDS_ELEMENTS},
          {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward, kFloats | CW_BOOL, 0}};
}

}  // namespace causeway::portable
