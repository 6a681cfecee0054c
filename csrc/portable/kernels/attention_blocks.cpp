// Attention where items run in parallel (Dao et al. 2022): a group of 16 x 16 items takes a block of queries and goes
// over the keys in blocks of the same size. Scores are products of pieces 16 deep that the group keeps in its own memory;
// an item has every 16th row and column of the block of scores, and every 16th column of its rows of the result.
// Backward has a pass for the gradient of the queries and one for those of keys and values, so that nobody adds to what
// is another group's. What each row's scores are corrected by comes from a pass of teams.
#include "portable/kernels/attention.h"
#include <algorithm>

#include "portable/rows.h"
#include "portable/kernels/attention_blocks.cl.h"

namespace causeway::portable {

namespace {

constexpr uint32_t kItems = 256;

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
        return s.kernel("LOCAL T cells[2 * ITEMS];\n" + each_row(texts::attention_blocks::delta));
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
        return s.kernel(texts::attention_blocks::blocks);
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
          return s.kernel(texts::attention_blocks::blocks);
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
