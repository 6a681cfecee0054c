// Reductions over any dimensions: tables of (start, step, finish), and two kernels. "Rows" sums up along the innermost
// stride in 16 or 32 lanes, "columns" goes down 1024 neighbours at once; each splits long reductions in two stages. Where
// items run in parallel, teams of them take an output each (rows.h), across outputs or along what is reduced.
#include <algorithm>
#include <cstring>

#include "portable/kernels/gemm.h"
#include "portable/rows.h"
#include "portable/kernels/reduce.cl.h"

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

// Defines `name`, which adds up offsets of an index in all dimensions but the innermost ones `skip`, into the names
// given. `small`: the index has 32 bits.
void walk(Source& s, const std::string& name, const char* prefix, size_t rank, size_t skip,
          const std::vector<std::pair<std::string, std::string>>& into, bool small = false) {
  std::string text;
  if (rank > skip) {
    const std::string cast = small ? "(u32)" : "";
    text = small ? "{ u32 rest = (u32)(index), c_; " : "{ idx rest = (index), c_; ";
    for (int d = static_cast<int>(rank - skip) - 1; d >= 0; --d) {
      const std::string D = prefix + std::to_string(d), n = cast + "n" + D;
      text += d == 0 ? "c_ = rest; " : "c_ = rest % " + n + "; rest /= " + n + "; ";
      for (const auto& [offset, stride] : into) text += offset + " += c_ * " + stride + D + "; ";
    }
    text += "}";
  }
  s.define(name, text);
}

void walk_kept(Source& s, const Shape& shape, size_t skip = 0, bool small = false) {
  walk(s, "WALK_KEPT(index)", "k", shape.kept.size(), skip, {{"ib", "i"}, {"ob", "o"}}, small);
}

void walk_reduced(Source& s, const Shape& shape, bool small = false) {
  walk(s, "WALK_REDUCED(index, off)", "r", shape.reduced.size(), 0, {{"off", "i"}}, small);
}

void type_and_load(Source& s, Dtype acc, Dtype in) {
  s.before(std::string("typedef ") + (acc == kBool ? "u8" : name_of(acc)) + " A;\n");
  s.define("IN(at)", std::string("((A)LD_") + name_of(in) + "(in, at))");
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
  type_and_load(s, p.acc, p.in);
  s.define("OUT(at, v)", std::string("ST_") + name_of(p.out) + "(out, at, v)");
  s.define("START", op.start);
  s.define("STEP_(acc, v)", p.stage == kLast && op.merge ? op.merge : op.step);
  s.define("MERGE_(acc, v)", op.merge ? op.merge : op.step);
  s.define("FINISH(acc)", op.finish);
  s.define("PART", p.stage == kPart).define("KEEPS", p.stage == kPart || p.stage == kRows);
  if (!p.teams) s.define("ABREAST", lanes_of(shape)).define("WIDE", kWide);
  s.in(storage_of(p.in), "in").out(storage_of(p.out), "out").value("idx", "n").value("idx", "count");
  s.value("idx", "parts").value("idx", "R");
  add_dims(s, shape);
}

std::string rows_text(const Reduction& op, const Plan& p, const Shape& shape, const Device& device) {
  Source s(device.info);
  define(s, op, p, shape);
  const std::string last = std::to_string(shape.reduced.size() - 1);
  s.define("ROW", "nr" + last).define("STRIDE", p.dense ? "1" : "ir" + last);
  s.define("ONE_ROW", shape.reduced.size() == 1);
  s.define("PAGE", kPage / size_of(p.in)).define("STEPS", "(PAGE / (8 * ABREAST))");
  s.define("PAGES", reads_pages(shape, p)).define("FOUR_ROWS", reads_four_rows(shape, p));
  walk_kept(s, shape);
  walk(s, "WALK_ROWS(index, off)", "r", shape.reduced.size(), 1, {{"off", "i"}});
  if (has_order(shape, p)) s.value("idx", "by_turns");
  return s.kernel(texts::reduce::rows);
}

std::string columns_text(const Reduction& op, const Plan& p, const Shape& shape, const Device& device) {
  Source s(device.info);
  define(s, op, p, shape);
  const std::string last = std::to_string(shape.kept.size() - 1);
  s.define("N", "nk" + last).define("O", "ok" + last);
  walk_kept(s, shape, 1);
  walk_reduced(s, shape);
  return s.kernel(texts::reduce::columns);
}

std::string teams_text_of(const Reduction& op, const Plan& p, const Shape& shape, const Device& device) {
  Source s(device.info);
  define(s, op, p, shape);
  const bool small = is_short(shape.count) && is_short(shape.outputs);
  s.define("ADDS", op.type == Accumulate::Wide && op.start[0] == '0' && p.acc == kF32);
  walk_kept(s, shape, 0, small);
  walk_reduced(s, shape, small);
  s.before(teams_text(p.teams, p.acc) + fold_text("team_fold", "A", "MERGE_(a, b)"));
  return s.kernel("LOCAL A cells[2 * ITEMS];\n" + each_row(texts::reduce::teams, "n"));
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

cw_status launch(KernelCall& call, const Reduction& op, const Plan& p, const Shape& s, const void* in, const void* out,
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

cw_status reduce_by_teams(KernelCall& call, const Reduction& op, Plan p, const Shape& s, const void* in,
                          const void* out) {
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
cw_status reduce_by_rows(KernelCall& call, const Reduction& op, const Plan& p, const Shape& s, const void* in,
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

cw_status reduce_to(KernelCall& call, const Reduction& op, const Tensor& out, const Tensor& in,
                    const std::vector<int64_t>& dims);

cw_status reduce(KernelCall& call, const void* data) {
  const Reduction& op = *static_cast<const Reduction*>(data);
  Tensor out, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &in)) return CW_UNSUPPORTED;
  std::vector<int64_t> dims;
  int at = 2;
  for (const char* c = op.arguments; *c; ++c, ++at)
    if (*c == 'l' || *c == 'd') dims = call.ints(at);
  return reduce_to(call, op, out, in, dims);
}

cw_status reduce_to(KernelCall& call, const Reduction& op, const Tensor& out, const Tensor& in,
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
cw_status search_by_teams(KernelCall& call, const Search& op, Plan p, const Shape& s, const void* in, const void* in_at,
                          const void* index, const void* value, int64_t parts) {
  Device& device = *call.device;
  p.teams = teams_of(device, s.outputs, s.count / parts, reads_across(s));
  const bool has_value = value != nullptr, small = is_short(s.count) && is_short(s.outputs);
  cw_function function = nullptr;
  TRY(device.function(
      {reinterpret_cast<uint64_t>(&op), plan_bits(p, s), p.teams.bits(), static_cast<uint64_t>(has_value)},
      [&] {
        Source src(device.info);
        type_and_load(src, p.acc, p.in);
        src.define("BEYOND", op.largest ? ">" : "<").before(teams_text(p.teams, p.acc));
        src.before(best_text("A", kBetter));
        src.in(storage_of(p.in), "in");
        if (p.stage == kLast) src.in("idx", "in_at");
        src.out("i64", "index");
        if (has_value) src.out(storage_of(p.out), "value");
        for (const char* v : {"n", "R", "parts"}) src.value("idx", v);
        add_dims(src, s);
        src.define("PART", p.stage == kPart).define("LAST_STAGE", p.stage == kLast).define("HAS_VALUE", has_value);
        src.define("VALUE(at, v)", std::string("ST_") + name_of(p.out) + "(value, at, v)");
        walk_kept(src, s, 0, small);
        walk_reduced(src, s, small);
        return src.kernel("LOCAL A cells[2 * ITEMS];\nLOCAL idx ats[2 * ITEMS];\n" +
                          each_row(texts::reduce::search_teams, "n"));
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

cw_status search_in_parts(KernelCall& call, const Search& op, const Plan& p, const Shape& s, const void* in,
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

cw_status search(KernelCall& call, const void* data) {
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
        type_and_load(src, p.acc, in.dtype);
        src.in(storage_of(in.dtype), "in").out("i64", "index");
        if (op.with_value) src.out(storage_of(in.dtype), "value");
        src.value("idx", "n").value("idx", "R");
        add_dims(src, s);
        src.define("BEYOND", op.largest ? ">" : "<").define("HAS_VALUE", op.with_value);
        src.define("VALUE(at, v)", std::string("ST_") + name_of(in.dtype) + "(value, at, v)");
        walk_kept(src, s);
        walk_reduced(src, s);
        return src.kernel(texts::reduce::search);
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

cw_status sum_into(KernelCall& call, const Tensor& out, const Tensor& in, const std::vector<int64_t>& dims) {
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
