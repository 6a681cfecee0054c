// Attention without the full matrix of scores, and its gradient (Dao et al. 2022; Rabe and Staats 2021): keys go by in
// blocks, and a row's maximum and sum are corrected as they grow. On CPUs blocks of 64 x 64 scores are products of
// register tiles; elsewhere a group takes a block (attention_blocks.cpp) or, where groups are small, an item a row.
//
// Taken: any strides with dense heads, masks that broadcast, causal, a scale, fewer heads of keys than of queries.
// Left out: dropout (torch takes its composite then).
#include <cmath>

#include "portable/kernels/attention.h"

namespace causeway::portable {

namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kMostRow = 256;  // of a head, where an item keeps it by itself

// c[M, N] = a[M, K] * b[K, N], or added to it; M a multiple of 8, N of 16; c and b are dense in N.
constexpr const char* kTile = R"(
FUNCTION void tile(GLOBAL T* c, idx c_row, GLOBAL const T* a, idx a_row, idx a_step, GLOBAL const T* b, idx b_row,
                   idx M, idx K, idx N, int adds) {
  for (idx n0 = 0; n0 < N; n0 += 16)
    for (idx m0 = 0; m0 < M; m0 += 8) {
      GLOBAL T* to = c + m0 * c_row + n0;
      GLOBAL const T* left = a + m0 * a_row;
      GLOBAL const T* right = b + n0;
#define EACH ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#define ROW(i) V c##i = ZERO;
      EACH
#undef ROW
      if (adds) {
#define ROW(i) c##i = LOADV(to + i * c_row);
        EACH
#undef ROW
      }
      for (idx k = 0; k < K; ++k) {
        const V v = LOADV(right);
#define ROW(i) c##i = FMAV(left[i * a_row], v, c##i);
        EACH
#undef ROW
        left += a_step;
        right += b_row;
      }
#define ROW(i) STOREV(to + i * c_row, c##i);
      EACH
#undef ROW
#undef EACH
    }
}
)";

constexpr const char* kForwardTiles = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx blocks = (L + 63) / 64, i0 = (blocks - 1 - u % blocks) * 64, h = u / blocks % H, b = u / blocks / H;
  const idx rows = L - i0 < 64 ? L - i0 : 64, rows8 = (rows + 7) / 8 * 8;
  const idx past = CAUSAL && i0 + rows < S ? i0 + rows : S;
  GLOBAL T* qs = work + item * slot;
  GLOBAL T* kt = qs + 64 * D16;
  GLOBAL T* vs = kt + 64 * D16;
  GLOBAL T* o = vs + 64 * D16;
  GLOBAL T* s = o + 64 * D16;
  T most[64], sums[64];
  for (idx r = 0; r < 64; ++r) {
    const idx from = Q_AT(b, h, i0 + r);
    most[r] = -INFINITY;
    sums[r] = 0;
    for (idx d = 0; d < D16; ++d) {
      qs[r * D16 + d] = r < rows && d < D ? scale * LD(q, from + d) : 0;
      o[r * D16 + d] = 0;
    }
  }
  for (idx j0 = 0; j0 < past; j0 += 64) {
    const idx cols = S - j0 < 64 ? S - j0 : 64;
    for (idx c = 0; c < 64; ++c) {
      const idx from = K_AT(b, h / shared, j0 + c), other = V_AT(b, h / shared, j0 + c);
      for (idx d = 0; d < D; ++d) kt[d * 64 + c] = c < cols ? LD(k, from + d) : 0;
      for (idx d = 0; d < D16; ++d) vs[c * D16 + d] = c < cols && d < D ? LD(v, other + d) : 0;
    }
    tile(s, 64, qs, D16, 1, kt, 64, rows8, D, 64, 0);
    for (idx r = 0; r < rows; ++r) {
      GLOBAL T* row = s + r * 64;
      idx seen = cols;
#if CAUSAL
      if (i0 + r - j0 + 1 < seen) seen = i0 + r - j0 + 1;
      if (seen < 0) seen = 0;
#endif
#if MASKED
      for (idx c = 0; c < seen; ++c) row[c] += MASK(b, h, i0 + r, j0 + c);
#endif
      for (idx c = seen; c < 64; ++c) row[c] = -INFINITY;
      T lanes[16], high = most[r], sum = 0;
      for (int l = 0; l < 16; ++l) lanes[l] = row[l];
      for (idx c = 16; c < 64; c += 16)
        for (int l = 0; l < 16; ++l) { const T x = row[c + l]; lanes[l] = MAXIMUM(x, lanes[l]); }
      for (int l = 0; l < 16; ++l) { const T x = lanes[l]; high = MAXIMUM(x, high); }
      const T base = high == -INFINITY ? 0 : high;
      for (int l = 0; l < 16; ++l) lanes[l] = 0;
      for (idx c = 0; c < 64; c += 16)
        for (int l = 0; l < 16; ++l) { const T x = EXP(row[c + l] - base); row[c + l] = x; lanes[l] += x; }
      for (int l = 0; l < 16; ++l) sum += lanes[l];
      const T factor = EXP(most[r] - base);
      sums[r] = sums[r] * factor + sum;
      most[r] = high;
      for (idx d = 0; d < D16; ++d) o[r * D16 + d] *= factor;
    }
    tile(o, D16, s, 64, 1, vs, D16, rows8, cols, D16, 1);
  }
  for (idx r = 0; r < rows; ++r) {
    const idx to = O_AT(b, h, i0 + r);
    const T part = most[r] == -INFINITY ? 0 : 1 / sums[r];
    for (idx d = 0; d < D; ++d) ST(out, to + d, o[r * D16 + d] * part);
    lse[b * lse0 + h * lse1 + (i0 + r) * lse2] = most[r] == -INFINITY ? most[r] : most[r] + log(sums[r]);
  }
}
)";

constexpr const char* kForwardRows = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx i = u % L, h = u / L % H, b = u / L / H, from = Q_AT(b, h, i), to = O_AT(b, h, i);
  const idx past = CAUSAL && i + 1 < S ? i + 1 : S;
  T row[DEPTH], o[DEPTH], most = -INFINITY, sum = 0;
  for (int d = 0; d < DEPTH; ++d) { row[d] = scale * LD(q, from + d); o[d] = 0; }
  for (idx j = 0; j < past; ++j) {
    const idx key = K_AT(b, h / shared, j), value = V_AT(b, h / shared, j);
    T s = 0;
    for (int d = 0; d < DEPTH; ++d) s = FMA(row[d], (T)LD(k, key + d), s);
#if MASKED
    s += MASK(b, h, i, j);
#endif
    const T high = MAXIMUM(s, most), base = high == -INFINITY ? 0 : high;
    const T factor = EXP(most - base), p = EXP(s - base);
    sum = sum * factor + p;
    for (int d = 0; d < DEPTH; ++d) o[d] = FMA(p, (T)LD(v, value + d), o[d] * factor);
    most = high;
  }
  const T part = most == -INFINITY ? 0 : 1 / sum;
  for (int d = 0; d < DEPTH; ++d) ST(out, to + d, o[d] * part);
  lse[b * lse0 + h * lse1 + i * lse2] = most == -INFINITY ? most : most + log(sum);
}
)";

// A unit is a head of keys: nobody else adds to its gradients.
constexpr const char* kBackwardTiles = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx g = u % (H / shared), b = u / (H / shared);
  GLOBAL T* qs = work + item * slot;
  GLOBAL T* gs = qs + 64 * D16;
  GLOBAL T* ks = gs + 64 * D16;
  GLOBAL T* kt = ks + 64 * D16;
  GLOBAL T* vt = kt + 64 * D16;
  GLOBAL T* dk = vt + 64 * D16;
  GLOBAL T* dv = dk + 64 * D16;
  GLOBAL T* p = dv + 64 * D16;
  GLOBAL T* ds = p + 64 * 64;
  GLOBAL T* dq = ds + 64 * 64;
  const idx L8 = (L + 63) / 64 * 64;
  for (idx n = 0; n < shared * L8 * D16; ++n) dq[n] = 0;
  for (idx j0 = 0; j0 < S; j0 += 64) {
    const idx cols = S - j0 < 64 ? S - j0 : 64, cols8 = (cols + 7) / 8 * 8;
    for (idx c = 0; c < 64; ++c) {
      const idx from = K_AT(b, g, j0 + c), other = V_AT(b, g, j0 + c);
      for (idx d = 0; d < D16; ++d) {
        ks[c * D16 + d] = c < cols && d < D ? LD(k, from + d) : 0;
        dk[c * D16 + d] = 0;
        dv[c * D16 + d] = 0;
      }
      for (idx d = 0; d < D; ++d) {
        kt[d * 64 + c] = ks[c * D16 + d];
        vt[d * 64 + c] = c < cols ? LD(v, other + d) : 0;
      }
    }
    for (idx h = g * shared; h < (g + 1) * shared; ++h)
      for (idx i0 = CAUSAL ? j0 : 0; i0 < L; i0 += 64) {
        const idx rows = L - i0 < 64 ? L - i0 : 64, rows8 = (rows + 7) / 8 * 8;
        T delta[64];
        for (idx r = 0; r < rows8; ++r) {
          const idx from = Q_AT(b, h, i0 + r), grads = G_AT(b, h, i0 + r), results = O_AT(b, h, i0 + r);
          T sum = 0;
          for (idx d = 0; d < D16; ++d) {
            const int there = r < rows && d < D;
            const T x = there ? LD(grad, grads + d) : 0;
            qs[r * D16 + d] = there ? scale * LD(q, from + d) : 0;
            gs[r * D16 + d] = x;
            sum += there ? x * LD(result, results + d) : 0;
          }
          delta[r] = sum;
        }
        tile(p, 64, qs, D16, 1, kt, 64, rows8, D, 64, 0);
        tile(ds, 64, gs, D16, 1, vt, 64, rows8, D, 64, 0);
        for (idx r = 0; r < rows8; ++r) {
          GLOBAL T* row = p + r * 64;
          GLOBAL T* drow = ds + r * 64;
          idx seen = r < rows ? cols : 0;
#if CAUSAL
          if (i0 + r - j0 + 1 < seen) seen = i0 + r - j0 + 1;
          if (seen < 0) seen = 0;
#endif
          const T sum = r < rows ? lse[b * lse0 + h * lse1 + (i0 + r) * lse2] : 0, base = sum == -INFINITY ? 0 : sum;
          const T less = delta[r];
#if MASKED
          for (idx c = 0; c < seen; ++c) row[c] += MASK(b, h, i0 + r, j0 + c);
#endif
          for (idx c = seen; c < 64; ++c) row[c] = -INFINITY;
          INDEPENDENT
          for (idx c = 0; c < 64; ++c) {
            const T x = c < seen ? EXP(row[c] - base) : 0;
            row[c] = x;
            drow[c] = x * (drow[c] - less);
          }
        }
        tile(dv, D16, p, 1, 64, gs, D16, cols8, rows8, D16, 1);
        tile(dk, D16, ds, 1, 64, qs, D16, cols8, rows8, D16, 1);
        tile(dq + ((h - g * shared) * L8 + i0) * D16, D16, ds, 64, 1, ks, D16, rows8, cols, D16, 1);
      }
    for (idx c = 0; c < cols; ++c) {
      const idx to = DK_AT(b, g, j0 + c), other = DV_AT(b, g, j0 + c);
      for (idx d = 0; d < D; ++d) {
        ST(to_k, to + d, dk[c * D16 + d]);
        ST(to_v, other + d, dv[c * D16 + d]);
      }
    }
  }
  for (idx h = g * shared; h < (g + 1) * shared; ++h)
    for (idx i = 0; i < L; ++i) {
      const idx to = DQ_AT(b, h, i);
      for (idx d = 0; d < D; ++d) ST(to_q, to + d, scale * dq[((h - g * shared) * L8 + i) * D16 + d]);
    }
}
)";

// Units below `queries` are rows of the queries' gradient, the others of the keys' and values'.
constexpr const char* kBackwardRows = R"(
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  T a[DEPTH], x[DEPTH], y[DEPTH], z[DEPTH];
  if (u < queries) {
    const idx i = u % L, h = u / L % H, b = u / L / H, from = Q_AT(b, h, i), grads = G_AT(b, h, i);
    const idx results = O_AT(b, h, i), to = DQ_AT(b, h, i), past = CAUSAL && i + 1 < S ? i + 1 : S;
    const T sum = lse[b * lse0 + h * lse1 + i * lse2], base = sum == -INFINITY ? 0 : sum;
    T delta = 0;
    for (int d = 0; d < DEPTH; ++d) {
      x[d] = scale * LD(q, from + d);
      y[d] = LD(grad, grads + d);
      delta = FMA(y[d], (T)LD(result, results + d), delta);
      a[d] = 0;
    }
    for (idx j = 0; j < past; ++j) {
      const idx key = K_AT(b, h / shared, j), value = V_AT(b, h / shared, j);
      T s = 0, dp = 0;
      for (int d = 0; d < DEPTH; ++d) {
        s = FMA(x[d], (T)LD(k, key + d), s);
        dp = FMA(y[d], (T)LD(v, value + d), dp);
      }
#if MASKED
      s += MASK(b, h, i, j);
#endif
      s = EXP(s - base) * (dp - delta);
      for (int d = 0; d < DEPTH; ++d) a[d] = FMA(s, (T)LD(k, key + d), a[d]);
    }
    for (int d = 0; d < DEPTH; ++d) ST(to_q, to + d, scale * a[d]);
  } else {
    const idx w = u - queries, heads = H / shared, j = w % S, g = w / S % heads, b = w / S / heads;
    const idx key = K_AT(b, g, j), value = V_AT(b, g, j), to = DK_AT(b, g, j), other = DV_AT(b, g, j);
    for (int d = 0; d < DEPTH; ++d) { x[d] = LD(k, key + d); y[d] = LD(v, value + d); a[d] = 0; z[d] = 0; }
    for (idx h = g * shared; h < (g + 1) * shared; ++h)
      for (idx i = CAUSAL ? j : 0; i < L; ++i) {
        const idx from = Q_AT(b, h, i), grads = G_AT(b, h, i), results = O_AT(b, h, i);
        const T sum = lse[b * lse0 + h * lse1 + i * lse2], base = sum == -INFINITY ? 0 : sum;
        T s = 0, dp = 0, delta = 0;
        for (int d = 0; d < DEPTH; ++d) {
          const T one = LD(grad, grads + d);
          s = FMA(scale * (T)LD(q, from + d), x[d], s);
          dp = FMA(one, y[d], dp);
          delta = FMA(one, (T)LD(result, results + d), delta);
        }
#if MASKED
        s += MASK(b, h, i, j);
#endif
        const T p = EXP(s - base), ds = p * (dp - delta);
        for (int d = 0; d < DEPTH; ++d) {
          a[d] = FMA(ds, scale * (T)LD(q, from + d), a[d]);
          z[d] = FMA(p, (T)LD(grad, grads + d), z[d]);
        }
      }
    for (int d = 0; d < DEPTH; ++d) { ST(to_k, to + d, a[d]); ST(to_v, other + d, z[d]); }
  }
}
)";

bool is_head(const Tensor& t, Dtype dtype) {
  return t.ndim == 4 && t.dtype == dtype && t.numel() > 0 && (t.strides[3] == 1 || t.shape[3] == 1);
}

// Arguments from `at` on are dropout_p, is_causal, attn_mask, scale.
bool read(Call& call, int at, Attention& a) {
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
  if (device.in_turn()) s.before(kTile);
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
cw_status workspace(Call& call, const Attention& a, int64_t slot, void** out) {
  *out = nullptr;
  if (!call.device->in_turn()) return CW_OK;
  const int64_t items = int64_t{call.device->info.compute_units} * 4;
  return scratch(*call.device, call.stream, static_cast<uint64_t>(items * slot * size_of(a.type)), out);
}

// output, logsumexp, query, key, value, dropout_p, is_causal, attn_mask, scale
cw_status attention(Call& call, const void*) {
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
        return s.kernel(tiles ? kForwardTiles : kForwardRows);
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
cw_status attention_backward(Call& call, const void*) {
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
        std::string text = tiles ? kBackwardTiles : kBackwardRows;
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
