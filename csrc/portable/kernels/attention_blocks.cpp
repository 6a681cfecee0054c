// Attention where items run in parallel (Dao et al. 2022): a group of 16 x 16 items takes a block of queries and goes
// over the keys in blocks of the same size. Scores are products of pieces 16 deep that the group keeps in its own memory;
// an item has every 16th row and column of the block of scores, and every 16th column of its rows of the result.
// Backward has a pass for the gradient of the queries and one for those of keys and values, so that nobody adds to what
// is another group's. What each row's scores are corrected by comes from a pass of teams.
// What is put together here, and is in no .cl: loops around what a family has for an element.
#include "portable/kernels/attention.h"
#include <algorithm>

#include "portable/rows.h"
#include "portable/kernels/attention_blocks.cl.h"

namespace causeway::portable {

namespace {

constexpr uint32_t kItems = 256;

// to[i * DR + n] += sum over e < many of from(row of i, e) * LINE: `many` lines of D elements pass through the group's
// memory, 16 at once. ROW_OF(i, e) is the factor.
std::string add_lines(const std::string& to, const std::string& factor, const std::string& line) {
  return "for (idx e0 = 0; e0 < BLOCK; e0 += 16) {\n"
         "for (idx e = LANE; e < 16 * DP; e += ITEMS) {\nconst idx d = e % DP, line = e0 + e / DP;\n"
         "piece[e] = " +
         line +
         ";\n}\nBARRIER;\nfor (int e = 0; e < 16; ++e) {\nT x[R];\n"
         "for (int i = 0; i < R; ++i) x[i] = " +
         factor +
         ";\nfor (int n = 0; n < DR; ++n) {\nconst T y = piece[e * DP + lx + n * 16];\n"
         "for (int i = 0; i < R; ++i) " +
         to + "[i * DR + n] = FMA(x[i], y, " + to + "[i * DR + n]);\n}\n}\nBARRIER;\n}\n";
}

std::string forward_text() {
  return std::string(R"(
LOCAL T piece[PIECE];
LOCAL T weights[BLOCK * PAD];
const idx lx = LANE % 16, ly = LANE / 16, blocks = (L + BLOCK - 1) / BLOCK;
for (idx u = GROUP; u < units; u += GROUPS) {
  const idx i0 = (blocks - 1 - u % blocks) * BLOCK, h = u / blocks % H, b = u / blocks / H, g = h / shared;
  const idx past = CAUSAL && i0 + BLOCK < S ? i0 + BLOCK : S;
  T o[R * DR], most[R], sums[R];
  for (int e = 0; e < R * DR; ++e) o[e] = 0;
  for (int i = 0; i < R; ++i) { most[i] = -INFINITY; sums[i] = 0; }
  for (idx j0 = 0; j0 < past; j0 += BLOCK) {
)") + texts::attention_blocks::scores +
         R"(
    for (int i = 0; i < R; ++i) {
      T high = s[i * R];
      for (int j = 1; j < R; ++j) { const T x = s[i * R + j]; high = MAXIMUM(x, high); }
      piece[i * ITEMS + LANE] = high;
    }
    BARRIER;
    for (int i = 0; i < R; ++i) {
      T high = most[i];
      for (int e = 0; e < 16; ++e) { const T x = piece[i * ITEMS + ly * 16 + e]; high = MAXIMUM(x, high); }
      const T base = high == -INFINITY ? 0 : high, factor = EXP(most[i] - base);
      most[i] = high;
      sums[i] *= factor;
      for (int j = 0; j < R; ++j) {
        const T x = EXP(s[i * R + j] - base);
        sums[i] += x;
        weights[(ly + i * 16) * PAD + lx + j * 16] = x;
      }
      for (int n = 0; n < DR; ++n) o[i * DR + n] *= factor;
    }
    BARRIER;
)" +
         add_lines("o", "weights[(ly + i * 16) * PAD + e0 + e]",
                   "j0 + line < S && d < D ? LD(v, V_AT(b, g, j0 + line) + d) : 0") +
         R"(
  }
  for (int i = 0; i < R; ++i) piece[i * ITEMS + LANE] = sums[i];
  BARRIER;
  for (int i = 0; i < R; ++i) {
    const idx row = i0 + ly + i * 16;
    T sum = 0;
    for (int e = 0; e < 16; ++e) sum += piece[i * ITEMS + ly * 16 + e];
    const T part = most[i] == -INFINITY ? 0 : 1 / sum;
    if (row < L) {
      for (int n = 0; n < DR; ++n) {
        const idx d = lx + n * 16;
        if (d < D) ST(out, O_AT(b, h, row) + d, o[i * DR + n] * part);
      }
      if (lx == 0) lse[b * lse0 + h * lse1 + row * lse2] = most[i] == -INFINITY ? most[i] : most[i] + log(sum);
    }
  }
  BARRIER;
}
)";
}

std::string queries_text() {
  return std::string(R"(
LOCAL T piece[PIECE];
LOCAL T slopes[BLOCK * PAD];
const idx lx = LANE % 16, ly = LANE / 16, blocks = (L + BLOCK - 1) / BLOCK;
for (idx u = GROUP; u < units; u += GROUPS) {
  const idx i0 = (blocks - 1 - u % blocks) * BLOCK, h = u / blocks % H, b = u / blocks / H, g = h / shared;
  const idx past = CAUSAL && i0 + BLOCK < S ? i0 + BLOCK : S;
  T o[R * DR];
  for (int e = 0; e < R * DR; ++e) o[e] = 0;
  for (idx j0 = 0; j0 < past; j0 += BLOCK) {
)") + texts::attention_blocks::scores +
         texts::attention_blocks::gradients +
         add_lines("o", "slopes[(ly + i * 16) * PAD + e0 + e]",
                   "j0 + line < S && d < D ? LD(k, K_AT(b, g, j0 + line) + d) : 0") +
         R"(
  }
  for (int i = 0; i < R; ++i) {
    const idx row = i0 + ly + i * 16;
    for (int n = 0; n < DR; ++n) {
      const idx d = lx + n * 16;
      if (row < L && d < D) ST(to_q, DQ_AT(b, h, row) + d, scale * o[i * DR + n]);
    }
  }
}
)";
}

std::string keys_text() {
  return std::string(R"(
LOCAL T piece[PIECE];
LOCAL T slopes[BLOCK * PAD];
LOCAL T weights[BLOCK * PAD];
const idx lx = LANE % 16, ly = LANE / 16, blocks = (S + BLOCK - 1) / BLOCK, heads = H / shared;
for (idx u = GROUP; u < units; u += GROUPS) {
  const idx j0 = u % blocks * BLOCK, g = u / blocks % heads, b = u / blocks / heads;
  T dk[R * DR], dv[R * DR];
  for (int e = 0; e < R * DR; ++e) { dk[e] = 0; dv[e] = 0; }
  for (idx h = g * shared; h < (g + 1) * shared; ++h)
  for (idx i0 = CAUSAL ? j0 : 0; i0 < L; i0 += BLOCK) {
)") + texts::attention_blocks::scores +
         texts::attention_blocks::gradients +
         add_lines("dv", "weights[(e0 + e) * PAD + ly + i * 16]",
                   "i0 + line < L && d < D ? LD(grad, G_AT(b, h, i0 + line) + d * GRAD_STEP) : 0") +
         add_lines("dk", "slopes[(e0 + e) * PAD + ly + i * 16]",
                   "i0 + line < L && d < D ? scale * LD(q, Q_AT(b, h, i0 + line) + d) : 0") +
         R"(
  }
  for (int i = 0; i < R; ++i) {
    const idx row = j0 + ly + i * 16;
    for (int n = 0; n < DR; ++n) {
      const idx d = lx + n * 16;
      if (row < S && d < D) {
        ST(to_k, DK_AT(b, g, row) + d, dk[i * DR + n]);
        ST(to_v, DV_AT(b, g, row) + d, dv[i * DR + n]);
      }
    }
  }
}
)";
}

int64_t piece_of(const Attention& a, int64_t block, bool backward) {
  const int64_t pieces = (backward ? 4 : 2) * 16 * (block + 1);
  return std::max({pieces, 16 * a.depth16(), backward ? int64_t{0} : block / 16 * kItems});
}

bool fits(const Device& device, const Attention& a, int64_t block, bool backward) {
  const int64_t all = piece_of(a, block, backward) + (backward ? 2 : 1) * block * (block + 1);
  return all * size_of(a.type) <= static_cast<int64_t>(device.info.local_memory);
}

// 0: a group has too few items or too little memory.
int64_t block_of(const Device& device, const Attention& a, bool backward) {
  if (device.in_turn() || device.info.group_limit < kItems || !fits(device, a, 32, backward)) return 0;
  return !backward && a.rows() > 32 && fits(device, a, 64, backward) ? 64 : 32;
}

void define_blocks(Source& s, const Attention& a, int64_t block, bool backward) {
  s.define("BLOCK", block).define("PAD", block + 1).define("R", block / 16).define("ITEMS", kItems);
  s.define("DP", a.depth16()).define("DR", a.depth16() / 16).define("PIECE", piece_of(a, block, backward));
  s.define("BACKWARD", backward);
  s.before("#ifdef __OPENCL_VERSION__\n#define IN_LOCAL __local\n#else\n#define IN_LOCAL\n#endif\n");
}

// The sum of each row's gradient times its result.
cw_status add_deltas(KernelCall& call, const Attention& a, const Tensor& grad, void* delta) {
  const int64_t rows = a.batch() * a.heads() * a.rows();
  const Teams teams = teams_of(*call.device, rows, a.depth());
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("attention_delta"), static_cast<uint64_t>(a.q.dtype), teams.bits(), grad.strides[3] != 0},
      [&] {
        Source s(call.device->info);
        const std::string type = name_of(a.type), store = storage_of(a.q.dtype);
        s.before("typedef " + type + " T;\ntypedef T A;\n" + teams_text(teams, a.type) +
                 fold_text("team_sum", "T", "a + b"));
        s.define("LD(p, i)", std::string("((T)LD_") + name_of(a.q.dtype) + "(p, i))");
        s.define("GRAD_STEP", grad.strides[3] != 0);
        s.out(type, "delta").in(store, "grad").in(store, "result");
        for (const char* v : {"rows", "n", "H", "L"}) s.value("idx", v);
        attention_places(s, "G_AT", "g_");
        attention_places(s, "O_AT", "o_");
        return s.kernel("LOCAL T cells[2 * ITEMS];\n" + each_row(R"(
  const idx i = u % L, h = u / L % H, b = u / L / H, grads = G_AT(b, h, i), results = O_AT(b, h, i);
  T sum = 0;
  EACH(j) sum += LD(grad, grads + j * GRAD_STEP) * LD(result, results + j);
  sum = team_sum(cells, LANE, sum);
  if (mine && place == 0) delta[u] = sum;
)"));
      },
      &function));
  Launch l;
  l.pointer(delta).pointer(grad.data).pointer(a.out.data).value(rows).value(a.depth()).value(a.heads());
  l.value(a.rows());
  attention_places(l, grad);
  attention_places(l, a.out);
  return l.run_groups(*call.device, function, teams.groups(rows), teams.items, call.stream);
}

Key key_of(const char* name, const Attention& a, int64_t block, bool spread) {
  return {family(name),
          static_cast<uint64_t>(a.q.dtype) | static_cast<uint64_t>(a.masked ? a.mask.dtype : kOther) << 8 |
              static_cast<uint64_t>(a.causal) << 16 | static_cast<uint64_t>(spread) << 17,
          static_cast<uint64_t>(a.depth16()), static_cast<uint64_t>(block)};
}

}  // namespace

cw_status attention_by_teams(KernelCall& call, const Attention& a, bool* taken) {
  const Device& device = *call.device;
  const int64_t block = block_of(device, a, false);
  *taken = block > 0;
  if (!*taken) return CW_OK;
  cw_function function = nullptr;
  TRY(call.device->function(
      key_of("attention_blocks", a, block, false),
      [&] {
        Source s(device.info);
        const std::string store = storage_of(a.q.dtype);
        attention_head(s, a, device);
        define_blocks(s, a, block, false);
        s.out(store, "out").out(name_of(a.type), "lse").in(store, "q").in(store, "k").in(store, "v");
        if (a.masked) s.in(storage_of(a.mask.dtype), "mask");
        attention_sizes(s, a);
        for (const auto& [macro, name] : {std::pair{"O_AT", "o_"}, {"Q_AT", "q_"}, {"K_AT", "k_"}, {"V_AT", "v_"}})
          attention_places(s, macro, name);
        return s.kernel(forward_text());
      },
      &function));
  Launch l;
  l.pointer(a.out.data).pointer(a.lse.data).pointer(a.q.data).pointer(a.k.data).pointer(a.v.data);
  if (a.masked) l.pointer(a.mask.data);
  const int64_t units = a.batch() * a.heads() * ((a.rows() + block - 1) / block);
  attention_sizes(l, a, units, 0);
  for (const Tensor* t : {&a.out, &a.q, &a.k, &a.v}) attention_places(l, *t);
  return l.run_groups(*call.device, function, units, kItems, call.stream);
}

cw_status attention_backward_by_teams(KernelCall& call, const Attention& a, const AttentionGradients& to, bool* taken) {
  const Device& device = *call.device;
  const int64_t block = block_of(device, a, true);
  *taken = block > 0;
  if (!*taken) return CW_OK;
  void* delta = nullptr;
  const int64_t rows = a.batch() * a.heads() * a.rows();
  TRY(scratch(device, call.stream, static_cast<uint64_t>(rows * size_of(a.type)), &delta));
  TRY(add_deltas(call, a, to.grad, delta));
  const bool spread = to.grad.strides[3] == 0;
  for (const bool keys : {false, true}) {
    cw_function function = nullptr;
    TRY(call.device->function(
        key_of(keys ? "attention_keys" : "attention_queries", a, block, spread),
        [&] {
          Source s(device.info);
          const std::string store = storage_of(a.q.dtype), type = name_of(a.type);
          attention_head(s, a, device);
          define_blocks(s, a, block, true);
          s.define("KEYS", keys).define("GRAD_STEP", !spread);
          if (keys)
            s.out(store, "to_k").out(store, "to_v");
          else
            s.out(store, "to_q");
          s.in(store, "grad").in(store, "q").in(store, "k").in(store, "v").in(type, "lse").in(type, "delta");
          if (a.masked) s.in(storage_of(a.mask.dtype), "mask");
          attention_sizes(s, a);
          if (keys) {
            attention_places(s, "DK_AT", "dk_");
            attention_places(s, "DV_AT", "dv_");
          } else {
            attention_places(s, "DQ_AT", "dq_");
          }
          for (const auto& [macro, name] : {std::pair{"G_AT", "g_"}, {"Q_AT", "q_"}, {"K_AT", "k_"}, {"V_AT", "v_"}})
            attention_places(s, macro, name);
          return s.kernel(keys ? keys_text() : queries_text());
        },
        &function));
    Launch l;
    if (keys)
      l.pointer(to.k.data).pointer(to.v.data);
    else
      l.pointer(to.q.data);
    l.pointer(to.grad.data).pointer(a.q.data).pointer(a.k.data).pointer(a.v.data).pointer(a.lse.data).pointer(delta);
    if (a.masked) l.pointer(a.mask.data);
    const int64_t units = keys ? a.batch() * a.k.shape[1] * ((a.keys() + block - 1) / block)
                               : a.batch() * a.heads() * ((a.rows() + block - 1) / block);
    attention_sizes(l, a, units, 0);
    if (keys) {
      attention_places(l, to.k);
      attention_places(l, to.v);
    } else {
      attention_places(l, to.q);
    }
    for (const Tensor* t : {&to.grad, &a.q, &a.k, &a.v}) attention_places(l, *t);
    TRY(l.run_groups(*call.device, function, units, kItems, call.stream));
  }
  return CW_OK;
}

}  // namespace causeway::portable
