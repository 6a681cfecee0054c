// Reductions over any dimensions: tables of (start, step, finish), and two kernels. "Rows" sums up along the innermost
// stride in 16 or 32 lanes, "columns" goes down 1024 neighbours at once; each splits long reductions in two stages. Where
// items run in parallel, teams of them take an output each (rows.h), across outputs or along what is reduced.
#include <algorithm>
#include <cstring>

#include "portable/kernels/gemm.h"
#include "portable/rows.h"

namespace causeway::portable {

namespace {

// f64 or i64; the input's compute type; that, or i32 of integers, which is 0 or 1; i64
enum class Accumulate : uint8_t { Wide, Input, Flag, Count };

// `start`, `step` (of acc with v) and `finish` (of acc, with `count`) are expressions of the accumulator's type A.
// `first` in `start` is an element of the reduction.
struct Reduction {
  const char* name;
  const char* arguments;  // l: a list of dimensions, d: one, k: keepdim, t: a dtype
  cw_dtypes dtypes;
  Accumulate type;
  const char *start, *step, *finish;
  const char* merge = nullptr;  // of acc with another one, `v`; NULL: as step
};

struct Dim {
  int64_t size, in, out;
};

struct Shape {
  std::vector<Dim> kept, reduced;
  int64_t outputs = 1, count = 1;
};

void order(std::vector<Dim>& dims) {
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.in > b.in; });
}

void join(std::vector<Dim>& dims) {
  std::vector<Dim> joined;
  for (const Dim& d : dims) {
    if (d.size == 1) continue;
    if (!joined.empty() && joined.back().in == d.in * d.size && joined.back().out == d.out * d.size) {
      joined.back() = {joined.back().size * d.size, d.in, d.out};
    } else {
      joined.push_back(d);
    }
  }
  if (joined.empty()) joined.push_back({1, 1, 1});
  dims = std::move(joined);
}

// False: the result has not the shape that these dimensions leave.
bool split_dims(const Tensor& in, const Tensor& out, const std::vector<int64_t>& asked, bool sorted, Shape& s) {
  bool reduce[kMostDims] = {};
  for (int64_t d : asked) {
    if (d < 0) d += std::max(in.ndim, 1);
    if (d < 0 || d >= std::max(in.ndim, 1)) return false;
    reduce[d] = true;
  }
  if (asked.empty()) std::fill(reduce, reduce + kMostDims, true);
  int at = 0;
  for (int d = 0; d < in.ndim; ++d) {
    if (reduce[d]) {
      s.reduced.push_back({in.shape[d], in.strides[d], 0});
      s.count *= in.shape[d];
      if (out.ndim == in.ndim) ++at;
    } else {
      if (at >= out.ndim || out.shape[at] != in.shape[d]) return false;
      s.kept.push_back({in.shape[d], in.strides[d], out.strides[at++]});
      s.outputs *= in.shape[d];
    }
  }
  if (sorted) order(s.reduced);
  order(s.kept);
  join(s.reduced);
  join(s.kept);
  return s.count > 0 && s.reduced.size() <= 6 && s.kept.size() <= 6;
}

// Adds up offsets of the index `i` in all dimensions but the innermost ones `skip`, into the names given. `small`: the
// index has 32 bits.
std::string walk(const std::string& index, const char* prefix, size_t rank, size_t skip,
                 const std::vector<std::pair<std::string, std::string>>& into, bool small = false) {
  if (rank <= skip) return "";
  const std::string cast = small ? "(u32)" : "";
  std::string text = (small ? "{ u32 rest = (u32)(" + index + ")" : "{ idx rest = " + index) + ", c_;\n";
  for (int d = static_cast<int>(rank - skip) - 1; d >= 0; --d) {
    const std::string D = prefix + std::to_string(d), n = cast + "n" + D;
    text += d == 0 ? "c_ = rest;\n" : "c_ = rest % " + n + "; rest /= " + n + ";\n";
    for (const auto& [name, stride] : into) text += name + " += c_ * " + stride + D + ";\n";
  }
  return text + "}\n";
}

void add_dims(Source& s, const Shape& shape) {
  for (size_t d = 0; d < shape.kept.size(); ++d)
    s.value("idx", "nk" + std::to_string(d))
        .value("idx", "ik" + std::to_string(d))
        .value("idx", "ok" + std::to_string(d));
  for (size_t d = 0; d < shape.reduced.size(); ++d)
    s.value("idx", "nr" + std::to_string(d)).value("idx", "ir" + std::to_string(d));
}

void add_dims(Launch& l, const Shape& shape) {
  for (const Dim& d : shape.kept) l.value(d.size).value(d.in).value(d.out);
  for (const Dim& d : shape.reduced) l.value(d.size).value(d.in);
}

// What of a reduction the kernel does.
enum Stage : int { kWhole, kPart, kRows, kLast };  // kRows: parts that are whole rows

struct Plan {
  Dtype in, out, acc;
  Stage stage;
  bool columns, dense;  // dense: the reduction's innermost stride is 1
  Teams teams = {};
};

// Partial results a row is held in: two chains of additions on each vector unit where the row is long.
int lanes_of(const Shape& s) { return s.reduced.back().size < 512 ? 16 : 32; }

// Some cores read eight pages interleaved 1.4 times as fast as one after the other, and others 0.7 times (see orders()). So
// long rows have sums of their own for each of eight pages, and shorter ones, where there is more than fits a cache, are
// read interleaved from four runs of neighbours, each of four pages or a row.
bool reads_pages(const Shape& s, const Plan& p) {
  return p.dense && !p.columns && !p.teams && s.reduced.back().size * size_of(p.in) >= 16 * kPage;
}
bool reads_four_rows(const Shape& s, const Plan& p) {
  return p.dense && !p.columns && !p.teams && (p.stage == kWhole || p.stage == kRows) && !reads_pages(s, p) &&
         s.reduced.back().size * size_of(p.in) >= kPage / 16 && s.outputs * s.count * size_of(p.in) >= kPastCaches;
}
bool has_order(const Shape& s, const Plan& p) { return reads_pages(s, p) || reads_four_rows(s, p); }

// Neighbours that a unit of "columns" goes down, four rows at a time: a page of float32, the sums in the L1 cache.
constexpr int64_t kWide = 1024;
int64_t blocks_of(const Shape& s) {
  return s.outputs / s.kept.back().size * ((s.kept.back().size + kWide - 1) / kWide);
}

void define(Source& s, const Reduction& op, const Plan& p, const Shape& shape) {
  s.before(std::string("typedef ") + (p.acc == kBool ? "u8" : name_of(p.acc)) + " A;\n");
  s.define("START", op.start);
  s.define("STEP_(acc, v)", p.stage == kLast && op.merge ? op.merge : op.step);
  s.define("MERGE_(acc, v)", op.merge ? op.merge : op.step);
  s.define("FINISH(acc)", op.finish);
  if (!p.teams) s.define("LANES", lanes_of(shape)).define("WIDE", kWide);
  s.in(storage_of(p.in), "in").out(storage_of(p.out), "out").value("idx", "n").value("idx", "count");
  s.value("idx", "parts").value("idx", "R");
}

std::string rows_text(const Reduction& op, const Plan& p, const Shape& shape, const Device& device) {
  Source s(device.info);
  define(s, op, p, shape);
  add_dims(s, shape);
  const std::string load = std::string("((A)LD_") + name_of(p.in) + "(in, ";
  const size_t last = shape.reduced.size() - 1;
  const std::string N = "nr" + std::to_string(last), stride = p.dense ? "" : " * ir" + std::to_string(last);
  // A lane goes on in its register for 8 steps: an array of all is in memory between two of them.
  const auto eight_steps = [&](const char* from, const char* apart) {
    return std::string("INDEPENDENT\nfor (int l = 0; l < LANES; ++l) {\nA lane = lanes[l];\n") +
           "UNROLL for (int k = 0; k < 8; ++k) { const A v = " + load + "off + (" + from + " + k * " + apart + " + l)" +
           stride + ")); lane = STEP_(lane, v); }\nlanes[l] = lane;\n}\n";
  };
  const std::string rest_of_row =
      "for (; j + LANES <= to; j += LANES)\nfor (int l = 0; l < LANES; ++l) { const A v = " + load + "off + (j + l)" +
      stride + ")); lanes[l] = STEP_(lanes[l], v); }\nfor (; j < to; ++j) { const A v = " + load + "off + j" + stride +
      ")); lanes[0] = STEP_(lanes[0], v); }\n";
  const bool keeps = p.stage == kPart || p.stage == kRows;
  const std::string bases = walk("o", "k", shape.kept.size(), 0, {{"ib", "i"}, {"ob", "o"}});
  const std::string begin =
      "const A first = " + load + "ib));\nA acc = START;\nfor (int l = 0; l < LANES; ++l) lanes[l] = acc;\n";
  // By halves: lane after lane, each addition would wait for the one before.
  const std::string finish =
      "UNROLL for (int h = LANES / 2; h > 0; h /= 2)\n"
      "for (int l = 0; l < h; ++l) { const A w = lanes[l], v = lanes[h + l]; lanes[l] = MERGE_(w, v); }\nconst A acc = "
      "lanes[0];\n" +
      (keeps ? std::string("out[u] = acc;\n") : std::string("ST_") + name_of(p.out) + "(out, ob, (FINISH(acc)));\n");
  std::string pages, four_rows, begin_pages, finish_pages;
  s.define("PAGE", kPage / size_of(p.in));
  if (has_order(shape, p)) s.value("idx", "by_turns");
  if (reads_pages(shape, p)) {
    s.define("STEPS", "(PAGE / (8 * LANES))");
    begin_pages = "A in_page[8 * LANES];\nfor (int l = 0; l < 8 * LANES; ++l) in_page[l] = lanes[0];\n";
    pages =
        "for (; j + 8 * PAGE <= to; j += 8 * PAGE)\nfor (int t = 0; t < 8 * STEPS; ++t) {\n"
        "const int page = by_turns ? t % 8 : t / STEPS, step = by_turns ? t / 8 : t % STEPS;\n"
        "const idx at = j + page * PAGE + step * 8 * LANES;\nA* const lanes = in_page + page * LANES;\n" +
        eight_steps("at", "LANES") + "}\n";
    finish_pages =
        "for (int page = 0; page < 8; ++page)\nfor (int l = 0; l < LANES; ++l) {\n"
        "const A w = lanes[l], v = in_page[page * LANES + l];\nlanes[l] = MERGE_(w, v);\n}\n";
  }
  if (reads_four_rows(shape, p)) {
    const std::string each =
        "for (int q = 0; q < 4; ++q) {\nA* const lanes = all + q * LANES;\nconst idx u = at + q * apart, o = u;\n"
        "idx ib = 0, ob = 0;\n" +
        bases;
    four_rows =
        "const idx whole = 4 * PAGE / " + N +
        ", apart = whole > 1 ? whole : 1;\nidx four = begin;\n"
        "for (; by_turns && four + 4 * apart <= end; four += 4 * apart)\n"
        "for (idx at = four; at < four + apart; ++at) {\nA all[4 * LANES];\nidx starts[4];\n" +
        each + "starts[q] = ib;\n" + begin + "}\nfor (idx row = 0; row < R / " + N + "; ++row) {\nconst idx to = " + N +
        ";\nidx in_row = 0, i = 0;\n" + walk("row", "r", shape.reduced.size(), 1, {{"in_row", "i"}}) +
        "for (; i + 8 * LANES <= to; i += 8 * LANES)\nfor (int q = 0; q < 4; ++q) {\nA* const lanes = all + q * "
        "LANES;\nconst idx off = starts[q] + in_row;\n" +
        eight_steps("i", "LANES") +
        "}\nfor (int q = 0; q < 4; ++q) {\nA* const lanes = all + q * LANES;\nconst idx off = starts[q] + in_row;\n"
        "idx j = i;\n" +
        rest_of_row + "}\n}\n" + each + finish + "}\n}\n";
  }
  const std::string first = four_rows.empty() ? "begin" : "four";
  const std::string share = p.stage == kPart
                                ? "const idx o = u / parts, part = u % parts;\nconst idx from_ = R * part / "
                                  "parts, to_ = R * (part + 1) / parts;\nidx ib = 0, ob = 0;\n"
                                : "const idx o = u, from_ = 0, to_ = R;\nidx ib = 0, ob = 0;\n";
  const std::string body =
      "const idx begin = FIRST(n), end = LAST(n);\n" + four_rows + "for (idx u = " + first +
      "; u < end; u += STEP) {\n" + share + bases + "A lanes[LANES];\n{\n" + begin + "}\n" + begin_pages +
      "for (idx i = from_; i < to_;) {\nconst idx row = " + (shape.reduced.size() == 1 ? "0" : "i / " + N) +
      ", from = i - row * " + N + ", left = to_ - i;\nconst idx to = " + N + " - from < left ? " + N +
      " : from + left;\nidx off = ib, j = from;\n" + walk("row", "r", shape.reduced.size(), 1, {{"off", "i"}}) + pages +
      "for (; j + 8 * LANES <= to; j += 8 * LANES)\n" + eight_steps("j", "LANES") + rest_of_row +
      "i += to - from;\n}\n" + finish_pages + finish + "}\n";
  return s.kernel(body);
}

std::string columns_text(const Reduction& op, const Plan& p, const Shape& shape, const Device& device) {
  Source s(device.info);
  define(s, op, p, shape);
  add_dims(s, shape);
  const size_t last = shape.kept.size() - 1;
  const std::string N = "nk" + std::to_string(last), O = "ok" + std::to_string(last);
  const std::string load = std::string("((A)LD_") + name_of(p.in) + "(in, ";
  const auto rows = [&](int many) {
    std::string offsets, steps;
    for (int k = 0; k < many; ++k) {
      const std::string off = "off" + std::to_string(k);
      offsets +=
          "idx " + off + " = ib;\n" + walk("i + " + std::to_string(k), "r", shape.reduced.size(), 0, {{off, "i"}});
      steps += "{ const A v = " + load + off + " + l)); acc = STEP_(acc, v); }\n";
    }
    return offsets + "INDEPENDENT\nfor (idx l = 0; l < wide; ++l) {\nA acc = accs[l];\n" + steps +
           "accs[l] = acc;\n}\n";
  };
  const std::string body =
      "for (idx u = FIRST(n), end = LAST(n); u < end; u += STEP) {\nconst idx blocks = (" + N +
      " + WIDE - 1) / WIDE;\n"
      "const idx part = u % parts, block = u / parts % blocks, o = u / parts / blocks, k = block * WIDE;\n"
      "const idx wide = " +
      N + " - k < WIDE ? " + N +
      " - k : WIDE;\n"
      "idx ib = k, ob = k * " +
      O + ", from_ = R * part / parts, to_ = R * (part + 1) / parts;\n" +
      walk("o", "k", shape.kept.size(), 1, {{"ib", "i"}, {"ob", "o"}}) +
      "A accs[WIDE];\nfor (idx l = 0; l < wide; ++l) { const A first = " + load +
      "ib + l)); accs[l] = START; }\n"
      "idx i = from_;\nfor (; i + 4 <= to_; i += 4) {\n" +
      rows(4) + "}\nfor (; i < to_; ++i) {\n" + rows(1) +
      "}\n"
      "for (idx l = 0; l < wide; ++l) {\nconst A acc = accs[l];\n" +
      (p.stage == kPart ? "out[(o * " + N + " + k + l) * parts + part] = acc;\n"
                        : std::string("ST_") + name_of(p.out) + "(out, ob + l * " + O + ", (FINISH(acc)));\n") +
      "}\n}\n";
  return s.kernel(body);
}

// By teams. The parts of an output lie `outputs` apart, so that neighbours stay neighbours.
std::string teams_text_of(const Reduction& op, const Plan& p, const Shape& shape, const Device& device) {
  Source s(device.info);
  define(s, op, p, shape);
  add_dims(s, shape);
  const bool small = is_short(shape.count) && is_short(shape.outputs);
  const bool adds = op.type == Accumulate::Wide && op.start[0] == '0' && p.acc == kF32;
  s.before(teams_text(p.teams, p.acc) + fold_text("team_fold", "A", "MERGE_(a, b)"));
  const std::string load = std::string("((A)LD_") + name_of(p.in) + "(in, ";
  const std::string body =
      "const idx outputs = n / parts, part = u / outputs, o = u - part * outputs;\n"
      "const idx from_ = R * part / parts, to_ = R * (part + 1) / parts;\nidx ib = 0, ob = 0;\n" +
      walk("o", "k", shape.kept.size(), 0, {{"ib", "i"}, {"ob", "o"}}, small) + "const A first = " + load +
      "ib));\nA acc = START, low = 0;\n(void)first;\n(void)low;\n"
      "_Pragma(\"unroll 4\") for (idx i = from_ + place; i < to_; i += TEAM) {\nidx off = ib;\n" +
      walk("i", "r", shape.reduced.size(), 0, {{"off", "i"}}, small) + "const A v = " + load + "off));\n" +
      (adds ? "ADD(acc, low, STEP_((A)0, v))" : "acc = STEP_(acc, v);") + "\n}\n" +
      (adds ? "acc = TOTAL(acc, low);\n" : "") + "acc = team_fold(cells, LANE, acc);\nif (mine && place == 0) {\n" +
      (p.stage == kPart ? "out[u] = acc;\n" : std::string("ST_") + name_of(p.out) + "(out, ob, (FINISH(acc)));\n") +
      "}\n";
  return s.kernel("LOCAL A cells[2 * ITEMS];\n" + each_row(body, "n"));
}

uint64_t plan_bits(const Plan& p, const Shape& s) {
  return static_cast<uint64_t>(p.in) | static_cast<uint64_t>(p.out) << 8 | static_cast<uint64_t>(p.acc) << 16 |
         static_cast<uint64_t>(p.stage) << 24 | static_cast<uint64_t>(p.columns) << 28 |
         static_cast<uint64_t>(p.dense) << 29 |
         static_cast<uint64_t>(p.teams && is_short(s.count) && is_short(s.outputs)) << 30 |
         static_cast<uint64_t>(lanes_of(s) == 32) << 31 | static_cast<uint64_t>(s.kept.size()) << 32 |
         static_cast<uint64_t>(s.reduced.size()) << 40 | static_cast<uint64_t>(reads_pages(s, p)) << 48 |
         static_cast<uint64_t>(reads_four_rows(s, p)) << 49;
}

cw_status launch(Call& call, const Reduction& op, const Plan& p, const Shape& s, const void* in, const void* out,
                 int64_t parts, int64_t count) {
  cw_function function = nullptr;
  Device& device = *call.device;
  TRY(device.function(
      {reinterpret_cast<uint64_t>(&op), plan_bits(p, s), p.teams.bits(), 0},
      [&] {
        if (p.teams) return teams_text_of(op, p, s, device);
        return p.columns ? columns_text(op, p, s, device) : rows_text(op, p, s, device);
      },
      &function));
  int64_t units = s.outputs * parts;
  if (p.columns) units = blocks_of(s) * parts;
  Launch l;
  l.pointer(in).pointer(out).value(units).value(count).value(parts).value(s.count);
  add_dims(l, s);
  if (p.teams) return l.run_groups(*call.device, function, p.teams.groups(units), p.teams.items, call.stream);
  const auto run = [&] {
    return l.run(device, function, units, static_cast<double>(s.outputs) * static_cast<double>(s.count) / units * 2,
                 call.stream);
  };
  if (!has_order(s, p)) return run();
  const Turn::Loop loop = reads_pages(s, p) ? Turn::long_rows : Turn::rows;
  return in_some_order(call, loop, function, s.outputs * s.count * size_of(p.in), [&](bool by_turns) {
    l.value(int64_t{by_turns});
    return run();
  });
}

bool reads_across(const Shape& s) { return s.outputs > 1 && s.kept.back().in < s.reduced.back().in; }

// What is left of a reduction whose outputs have `parts` partial results each, `outputs` apart.
Shape rest_of(const Shape& s, int64_t parts) {
  Shape rest = s;
  int64_t stride = 1;
  for (size_t d = rest.kept.size(); d-- > 0;) rest.kept[d].in = stride, stride *= rest.kept[d].size;
  rest.reduced = {{parts, s.outputs, 0}};
  rest.count = parts;
  return rest;
}

cw_status reduce_by_teams(Call& call, const Reduction& op, Plan p, const Shape& s, const void* in, const void* out) {
  const int64_t parts = parts_of(*call.device, p.teams, s.outputs, s.count);
  p.dense = false;
  if (parts < 2) return launch(call, op, p, s, in, out, 1, s.count);
  void* partial = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(s.outputs * parts * size_of(p.acc)), &partial));
  Plan first = p;
  first.stage = kPart;
  first.out = p.acc;
  TRY(launch(call, op, first, s, in, partial, parts, s.count));
  const Shape rest = rest_of(s, parts);
  Plan second{p.acc, p.out, p.acc, kLast, false, false};
  second.teams = teams_of(*call.device, s.outputs, parts, reads_across(rest));
  return launch(call, op, second, rest, partial, out, 1, s.count);
}

// Whether the rows of one result lie between those of others, as those of a channel do in a batch of images: to go from
// row to row is to jump about in memory.
bool jumps(const Shape& s, const Plan& p) {
  const size_t rank = s.reduced.size();
  return p.dense && rank > 1 && s.outputs > 1 && s.kept.back().in < s.reduced[rank - 2].in &&
         s.reduced.back().size >= 64 && s.outputs * s.count * size_of(p.in) >= kPastCaches / 8;
}

// All rows as they lie, then the rows of each result.
cw_status reduce_by_rows(Call& call, const Reduction& op, const Plan& p, const Shape& s, const void* in,
                         const void* out) {
  Shape rows, rest;
  rows.kept = s.kept;
  for (size_t d = 0; d + 1 < s.reduced.size(); ++d) rows.kept.push_back({s.reduced[d].size, s.reduced[d].in, -1});
  order(rows.kept);
  rows.reduced = {s.reduced.back()};
  rows.count = s.reduced.back().size;
  rest.count = s.count / rows.count;
  rest.outputs = s.outputs;
  rows.outputs = s.outputs * rest.count;
  int64_t stride = rows.outputs;
  for (const Dim& d : rows.kept) {
    stride /= d.size;
    (d.out < 0 ? rest.reduced : rest.kept).push_back({d.size, stride, d.out});
  }
  void* partial = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(rows.outputs * size_of(p.acc)), &partial));
  Plan first = p;
  first.stage = kRows;
  first.out = p.acc;
  TRY(launch(call, op, first, rows, in, partial, 1, s.count));
  Plan second{p.acc, p.out, p.acc, kLast, false, rest.reduced.back().in == 1};
  second.columns = rest.kept.back().in == 1 && rest.kept.back().size >= 8;
  return launch(call, op, second, rest, partial, out, 1, s.count);
}

cw_status reduce_to(Call& call, const Reduction& op, const Tensor& out, const Tensor& in,
                    const std::vector<int64_t>& dims);

cw_status reduce(Call& call, const void* data) {
  const Reduction& op = *static_cast<const Reduction*>(data);
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in)) return CW_UNSUPPORTED;
  std::vector<int64_t> dims;
  int at = 2;
  for (const char* c = op.arguments; *c; ++c, ++at)
    if (*c == 'l' || *c == 'd') dims = call.ints(at);
  return reduce_to(call, op, out, in, dims);
}

cw_status reduce_to(Call& call, const Reduction& op, const Tensor& out, const Tensor& in,
                    const std::vector<int64_t>& dims) {
  const bool has_f64 = call.device->info.arithmetic & CW_FLOAT64;
  if (!(op.dtypes >> in.dtype & 1) || (!has_f64 && (in.dtype == kF64 || out.dtype == kF64))) return CW_UNSUPPORTED;
  Plan p{in.dtype, out.dtype, kBool, kWhole, false, false};
  switch (op.type) {
    case Accumulate::Wide:
      if (is_float(out.dtype))
        p.acc = has_f64 && call.device->in_turn() ? kF64 : compute_of(out.dtype);
      else if (is_float(in.dtype) || out.dtype == kBool)
        return CW_UNSUPPORTED;
      else
        p.acc = kI64;
      break;
    case Accumulate::Input:
      if (out.dtype != in.dtype) return CW_UNSUPPORTED;
      p.acc = compute_of(in.dtype);
      break;
    case Accumulate::Count:  // of floats in f64, which holds them and counts
      if (out.dtype != kI64 || (is_float(in.dtype) && !has_f64)) return CW_UNSUPPORTED;
      p.acc = is_float(in.dtype) ? kF64 : kI64;
      break;
    case Accumulate::Flag:
      p.acc = is_float(in.dtype) ? compute_of(in.dtype) : kI32;
  }
  Shape s;
  if (!split_dims(in, out, dims, true, s)) return CW_UNSUPPORTED;
  p.dense = s.reduced.back().in == 1;
  p.teams = teams_of(*call.device, s.outputs, s.count, reads_across(s));
  if (p.teams) return reduce_by_teams(call, op, p, s, in.data, out.data);
  if (jumps(s, p) && s.kept.size() + s.reduced.size() <= 7) return reduce_by_rows(call, op, p, s, in.data, out.data);
  p.columns = !p.dense && s.kept.back().in == 1 && s.kept.back().size >= 8;
  // Few results of many elements: parts of each by themselves, then together.
  const int64_t tiles = p.columns ? blocks_of(s) : s.outputs;
  const int64_t wanted = int64_t{call.device->info.compute_units} * (call.device->in_turn() ? 4 : 256);
  const int64_t parts = std::min(wanted / std::max<int64_t>(tiles, 1), s.count / 8192);
  if (parts < 2) return launch(call, op, p, s, in.data, out.data, 1, s.count);
  void* partial = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(s.outputs * parts * size_of(p.acc)), &partial));
  Plan first = p;
  first.stage = kPart;
  first.out = p.acc;
  TRY(launch(call, op, first, s, in.data, partial, parts, s.count));
  // The partial results of one output are neighbours, in the order in which the kept dimensions are walked.
  Shape rest;
  rest.kept = s.kept;
  int64_t stride = parts;
  for (size_t d = rest.kept.size(); d-- > 0;) rest.kept[d].in = stride, stride *= rest.kept[d].size;
  rest.reduced = {{parts, 1, 0}};
  rest.outputs = s.outputs;
  rest.count = parts;
  const Plan second{p.acc, p.out, p.acc, kLast, false, true};
  return launch(call, op, second, rest, partial, out.data, 1, s.count);
}

// ---- places of the largest and the smallest ------------------------------------------------------------------------

struct Search {
  const char* name;
  bool largest, with_value;
};

// NaN before all else, then the value, then the earlier place.
constexpr const char* kBetter =
    "((v) BEYOND (w) || ((v) != (v) && (w) == (w)) || (((v) == (w) || ((v) != (v) && (w) != (w))) && (i) < (j)))";

// One pass of a search by teams: from elements or, the last one, from the places that parts have found.
cw_status search_by_teams(Call& call, const Search& op, Plan p, const Shape& s, const void* in, const void* in_at,
                          const void* index, const void* value, int64_t parts) {
  Device& device = *call.device;
  p.teams = teams_of(device, s.outputs, s.count / parts, reads_across(s));
  const bool has_value = value != nullptr, small = is_short(s.count) && is_short(s.outputs);
  cw_function function = nullptr;
  TRY(device.function(
      {reinterpret_cast<uint64_t>(&op), plan_bits(p, s), p.teams.bits(), static_cast<uint64_t>(has_value)},
      [&] {
        Source src(device.info);
        src.before(std::string("typedef ") + (p.acc == kBool ? "u8" : name_of(p.acc)) + " A;\n");
        src.define("BEYOND", op.largest ? ">" : "<").before(teams_text(p.teams, p.acc) + best_text("A", kBetter));
        src.in(storage_of(p.in), "in");
        if (p.stage == kLast) src.in("idx", "in_at");
        src.out("i64", "index");
        if (has_value) src.out(storage_of(p.out), "value");
        for (const char* v : {"n", "R", "parts"}) src.value("idx", v);
        add_dims(src, s);
        const std::string load = std::string("((A)LD_") + name_of(p.in) + "(in, off))";
        const std::string body =
            "const idx outputs = n / parts, part = u / outputs, o = u - part * outputs;\n"
            "const idx from_ = R * part / parts, to_ = R * (part + 1) / parts;\nidx ib = 0, ob = 0;\n" +
            walk("o", "k", s.kept.size(), 0, {{"ib", "i"}, {"ob", "o"}}, small) +
            "A best = 0;\nidx best_at = -1;\nfor (idx i = from_ + place < to_ ? from_ + place : from_; i < to_; i += "
            "TEAM) {\nidx off = ib;\n" +
            walk("i", "r", s.reduced.size(), 0, {{"off", "i"}}, small) + "const A v = " + load +
            ";\nconst idx at = " + (p.stage == kLast ? "in_at[off]" : "i") +
            ";\nif (best_at < 0 || BETTER(v, at, best, best_at)) { best = v; best_at = at; }\n}\n"
            "team_best(cells, ats, LANE, &best, &best_at);\nif (mine && place == 0) {\n" +
            (p.stage == kPart ? "index[u] = best_at;\nvalue[u] = best;\n"
                              : "index[ob] = best_at;\n" +
                                    (has_value ? std::string("ST_") + name_of(p.out) + "(value, ob, best);\n" : "")) +
            "}\n";
        return src.kernel("LOCAL A cells[2 * ITEMS];\nLOCAL idx ats[2 * ITEMS];\n" + each_row(body, "n"));
      },
      &function));
  Launch l;
  l.pointer(in);
  if (p.stage == kLast) l.pointer(in_at);
  l.pointer(index);
  if (has_value) l.pointer(value);
  l.value(s.outputs * parts).value(s.count).value(parts);
  add_dims(l, s);
  return l.run_groups(*call.device, function, p.teams.groups(s.outputs * parts), p.teams.items, call.stream);
}

cw_status search_in_parts(Call& call, const Search& op, const Plan& p, const Shape& s, const void* in,
                          const void* index, const void* value) {
  const int64_t parts =
      parts_of(*call.device, teams_of(*call.device, s.outputs, s.count, reads_across(s)), s.outputs, s.count);
  if (parts < 2) return search_by_teams(call, op, p, s, in, nullptr, index, value, 1);
  void *values = nullptr, *places = nullptr;
  const auto many = static_cast<uint64_t>(s.outputs * parts);
  TRY(scratch(*call.device, call.stream, many * size_of(p.acc), &values));
  TRY(scratch(*call.device, call.stream, many * sizeof(int64_t), &places));
  Plan first = p, last = p;
  first.stage = kPart, first.out = p.acc;
  TRY(search_by_teams(call, op, first, s, in, nullptr, places, values, parts));
  last.stage = kLast, last.in = p.acc;
  return search_by_teams(call, op, last, rest_of(s, parts), values, places, index, value, 1);
}

cw_status search(Call& call, const void* data) {
  const Search& op = *static_cast<const Search*>(data);
  Tensor value, index, in;
  int at = 0;
  if (op.with_value && !call.tensor(at++, &value)) return CW_UNSUPPORTED;
  if (!call.tensor(at, &index) || !call.tensor(at + 1, &in)) return CW_UNSUPPORTED;
  if (index.dtype != kI64 || !(kReals >> in.dtype & 1) ||
      (in.dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64)))
    return CW_UNSUPPORTED;
  // One set of strides serves both results.
  if (op.with_value && (value.ndim != index.ndim || value.dtype != in.dtype ||
                        std::memcmp(value.strides, index.strides, sizeof(int64_t) * value.ndim) != 0))
    return CW_UNSUPPORTED;
  Shape s;
  if (!split_dims(in, index, call.ints(at + 2), false, s)) return CW_UNSUPPORTED;
  const Plan p{in.dtype, kI64, compute_of(in.dtype), kWhole, false, s.reduced.back().in == 1};
  if (teams_of(*call.device, s.outputs, s.count)) {
    Plan by_teams = p;
    by_teams.out = in.dtype;
    return search_in_parts(call, op, by_teams, s, in.data, index.data, op.with_value ? value.data : nullptr);
  }
  cw_function function = nullptr;
  Device& device = *call.device;
  TRY(device.function(
      {reinterpret_cast<uint64_t>(&op), plan_bits(p, s), 0, 0},
      [&] {
        Source src(device.info);
        src.before(std::string("typedef ") + (p.acc == kBool ? "u8" : name_of(p.acc)) + " A;\n");
        src.in(storage_of(in.dtype), "in").out("i64", "index");
        if (op.with_value) src.out(storage_of(in.dtype), "value");
        src.value("idx", "n").value("idx", "R");
        add_dims(src, s);
        const std::string load = std::string("((A)LD_") + name_of(in.dtype) + "(in, ";
        return src.kernel(
            "for (idx u = FIRST(n), end = LAST(n); u < end; u += STEP) {\nidx ib = 0, ob = 0, best_at = 0;\n" +
            walk("u", "k", s.kept.size(), 0, {{"ib", "i"}, {"ob", "o"}}) + "A best = " + load +
            "ib));\nfor (idx i = 1; i < R; ++i) {\nidx off = ib;\n" +
            walk("i", "r", s.reduced.size(), 0, {{"off", "i"}}) + "const A v = " + load + "off));\nif (v " +
            (op.largest ? ">" : "<") +
            " best || (v != v && best == best)) { best = v; best_at = i; }\n}\nindex[ob] = best_at;\n" +
            (op.with_value ? std::string("ST_") + name_of(in.dtype) + "(value, ob, best);\n" : "") + "}\n");
      },
      &function));
  Launch l;
  l.pointer(in.data).pointer(index.data);
  if (op.with_value) l.pointer(value.data);
  l.value(s.outputs).value(s.count);
  add_dims(l, s);
  return l.run(device, function, s.outputs, static_cast<double>(s.count) * 4, call.stream);
}

}  // namespace

cw_status sum_into(Call& call, const Tensor& out, const Tensor& in, const std::vector<int64_t>& dims) {
  static const Reduction sum = {"sum", "", kReals, Accumulate::Wide, "0", "((acc) + (v))", "acc"};
  return reduce_to(call, sum, out, in, dims);
}

Kernels reduce_kernels() {
  constexpr cw_dtypes R = kReals, F = kFloats;
  constexpr Accumulate W = Accumulate::Wide, T = Accumulate::Input, B = Accumulate::Flag;
  static const auto& table = *new std::vector<Reduction>{
      {"aten::sum.IntList_out", "lkt", R, W, "0", "((acc) + (v))", "acc"},
      {"aten::nansum.out", "lkt", F, W, "0", "((acc) + ((v) == (v) ? (v) : 0))", "acc", "((acc) + (v))"},
      {"aten::mean.out", "lkt", F, W, "0", "((acc) + (v))", "(acc) / (A)count"},
      {"aten::prod.out", "t", R, W, "1", "((acc) * (v))", "acc"},
      {"aten::prod.int_out", "dkt", R, W, "1", "((acc) * (v))", "acc"},
      {"aten::amax.out", "lk", R, T, "first", "MAXIMUM(acc, v)", "acc"},
      {"aten::amin.out", "lk", R, T, "first", "MINIMUM(acc, v)", "acc"},
      {"aten::max.unary_out", "", R, T, "first", "MAXIMUM(acc, v)", "acc"},
      {"aten::min.unary_out", "", R, T, "first", "MINIMUM(acc, v)", "acc"},
      {"aten::any.out", "dk", R, B, "0", "((A)(((acc) != 0) | ((v) != 0)))", "acc"},
      {"aten::any.dims_out", "lk", R, B, "0", "((A)(((acc) != 0) | ((v) != 0)))", "acc"},
      {"aten::any.all_out", "", R, B, "0", "((A)(((acc) != 0) | ((v) != 0)))", "acc"},
      {"aten::count_nonzero.dim_IntList", "l", R, Accumulate::Count, "0", "((acc) + ((v) != 0))", "acc",
       "((acc) + (v))"},
      {"aten::all.out", "dk", R, B, "1", "((A)(((acc) != 0) & ((v) != 0)))", "acc"},
      {"aten::all.dims_out", "lk", R, B, "1", "((A)(((acc) != 0) & ((v) != 0)))", "acc"},
      {"aten::all.all_out", "", R, B, "1", "((A)(((acc) != 0) & ((v) != 0)))", "acc"},
  };
  static const auto& searches = *new std::vector<Search>{
      {"aten::argmax.out", true, false},
      {"aten::argmin.out", false, false},
      {"aten::max.dim_max", true, true},
      {"aten::min.dim_min", false, true},
  };
  Kernels list;
  for (const Reduction& op : table) list.push_back({op.name, reduce, op.dtypes, CW_NEEDS_ELEMENTS, &op});
  for (const Search& op : searches) list.push_back({op.name, search, R & ~CW_BOOL, CW_NEEDS_ELEMENTS, &op});
  return list;
}

}  // namespace causeway::portable
