// The engine: promotion and broadcasting without copies, dimensions collapsed, one function for each dtype combination,
// rank and kind of the innermost strides.
// What is put together here, and is in no .cl: the loop around an operator's expression, which may hold #if, with
// an offset for each operand.
#include "portable/kernels/pointwise.h"

#include <algorithm>
#include <cstring>

#include "portable/kernels/functions.h"
#include "portable/tune.h"
#include "portable/kernels/pointwise.cl.h"

namespace causeway::portable {

namespace {

constexpr int kMostRank = 8;

// Twice the exponent, where torch has another form for it than a power; else 0. A function with all forms would compute
// the power for each.
int64_t usual_power(double exponent) {
  for (const double usual : {-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0})
    if (exponent == usual) return static_cast<int64_t>(2 * usual);
  return 0;
}

bool parse(const Pointwise& op, KernelCall& call, Parsed& p) {
  p.results = op.results;
  for (int i = 0; i < op.results; ++i)
    if (!call.tensor(i, &p.operands[p.n++].tensor)) return false;
  int at = op.results;
  for (const char* c = op.arguments; *c; ++c, ++at) {
    switch (*c) {
      case 't':
      case 'n':
      case 'u':
      case 'm': {
        Operand& o = p.operands[p.n++];
        o.absent = *c == 'u' && call.is_none(at);
        o.counts = *c != 'm' && !o.absent;
        o.divides = *c == 'n';
        o.is_number = o.absent || call.number(at, &o.number);
        if (!o.is_number && !call.tensor(at, &o.tensor)) return false;
        break;
      }
      case 's':
      case 'o':
      case 'p': {
        const int k = p.scalar_count++;
        p.has[k] = call.number(at, &p.scalars[k]);
        p.optional[k] = *c == 'o';
        if (!p.has[k] && (*c != 'o' || !call.is_none(at))) return false;
        if (*c == 'p') p.flag = usual_power(p.scalars[k].real());
        break;
      }
      case 'f':
        p.flag = call.tag(at) == CW_STRING ? call.string(at)[0] : call.integer(at);
        break;
      default:
        break;
    }
  }
  return true;
}

// torch's rules: tensors with dimensions count before those with none, those before numbers, within a kind of number.
Dtype common_dtype(const Parsed& p) {
  Dtype by_rank[3] = {kOther, kOther, kOther};
  for (int i = p.results; i < p.n; ++i) {
    const Operand& o = p.operands[i];
    if (!o.counts) continue;
    const int rank = o.is_number ? 2 : o.tensor.ndim == 0 ? 1 : 0;
    const Dtype dtype = !o.is_number ? o.tensor.dtype : o.number.dtype == kF64 ? kF32 : o.number.dtype;
    by_rank[rank] = by_rank[rank] == kOther ? dtype : promote(by_rank[rank], dtype);
  }
  const auto kind = [](Dtype d) { return is_float(d) ? 2 : d == kBool ? 0 : 1; };
  Dtype all = by_rank[0];
  for (int k = 1; k < 3; ++k) {
    if (by_rank[k] == kOther) continue;
    if (all == kOther || kind(by_rank[k]) > kind(all)) all = by_rank[k];
  }
  return all;
}

// Strides of every operand in the result's shape; false where they do not broadcast to it.
bool broadcast(Parsed& p) {
  const Tensor& out = p.operands[0].tensor;
  p.rank = out.ndim;
  std::copy(out.shape, out.shape + out.ndim, p.shape);
  for (int i = 0; i < p.n; ++i) {
    Operand& o = p.operands[i];
    std::fill(o.strides, o.strides + p.rank, 0);
    if (o.is_number) continue;
    const int extra = p.rank - o.tensor.ndim;
    if (extra < 0) return false;
    for (int d = 0; d < o.tensor.ndim; ++d) {
      const int64_t size = o.tensor.shape[d];
      if (size != p.shape[d + extra] && size != 1) return false;
      if (i < p.results && size != p.shape[d + extra]) return false;
      o.strides[d + extra] = size == 1 ? 0 : o.tensor.strides[d];
    }
  }
  return true;
}

// Dimensions by the result's strides, the innermost last, and neighbours joined where all operands allow it.
void collapse(Parsed& p) {
  int order[kMostDims], kept = 0;
  for (int d = 0; d < p.rank; ++d)
    if (p.shape[d] != 1) order[kept++] = d;
  // By insertion, stable: almost always in order already. A result that repeats elements has stride 0 nowhere.
  const auto before = [&](int a, int b) {
    for (int i = 0; i < p.n; ++i) {
      const int64_t x = p.operands[i].strides[a], y = p.operands[i].strides[b];
      if (x == 0 || y == 0 || x == y) continue;
      return x > y;
    }
    return a < b;
  };
  for (int i = 1; i < kept; ++i)
    for (int j = i; j > 0 && before(order[j], order[j - 1]); --j) std::swap(order[j], order[j - 1]);
  int64_t shape[kMostDims], strides[kMostOperands][kMostDims];
  int rank = 0;
  for (int k = 0; k < kept; ++k) {
    const int d = order[k];
    bool joins = rank > 0;
    for (int i = 0; joins && i < p.n; ++i) joins = strides[i][rank - 1] == p.operands[i].strides[d] * p.shape[d];
    if (joins) {
      shape[rank - 1] *= p.shape[d];
      for (int i = 0; i < p.n; ++i) strides[i][rank - 1] = p.operands[i].strides[d];
    } else {
      shape[rank] = p.shape[d];
      for (int i = 0; i < p.n; ++i) strides[i][rank] = p.operands[i].strides[d];
      ++rank;
    }
  }
  if (rank == 0) {
    shape[0] = 1;
    for (int i = 0; i < p.n; ++i) strides[i][0] = 1;
    rank = 1;
  }
  p.rank = rank;
  std::copy(shape, shape + rank, p.shape);
  for (int i = 0; i < p.n; ++i) std::copy(strides[i], strides[i] + rank, p.operands[i].strides);
}

// Rows of a few elements are no loops to speak of: those of the dimension around them are taken.
void lengthen(Parsed& p) {
  constexpr int64_t kShort = 8;
  const int inner = p.rank - 1;
  if (inner < 1 || p.shape[inner] >= kShort || p.shape[inner - 1] <= p.shape[inner]) return;
  std::swap(p.shape[inner], p.shape[inner - 1]);
  for (int i = 0; i < p.n; ++i) std::swap(p.operands[i].strides[inner], p.operands[i].strides[inner - 1]);
}

const char* const kNames[] = {"a", "b", "c", "d", "e", "g"};

std::string load_of(const Parsed& p, int i, const std::function<std::string(int)>& place) {
  const std::string pointer = "p" + std::to_string(i);
  if (p.operands[i].is_number) return pointer;
  return std::string("LD_") + name_of(p.operands[i].tensor.dtype) + "(" + pointer + ", " + place(i) + ")";
}

}  // namespace

std::string head_of(const Pointwise& op, const Parsed& p, Dtype type) {
  std::string text = std::string("typedef ") + (type == kBool ? "u8" : name_of(type)) + " T;\n";
  const auto define = [&](const std::string& name, const std::string& value) {
    text += "#define " + name + " " + value + "\n";
  };
  const auto flag = [&](const std::string& name, int64_t value) { define(name, std::to_string(value)); };
  define("K(v)", "((T)(v))");
  flag("IS_BOOL", type == kBool), flag("IS_INT", is_int(type)), flag("IS_FLOAT", is_float(type));
  flag("IS_SIGNED", type == kI8 || type == kI16 || type == kI32 || type == kI64 || is_float(type));
  flag("FLAG", p.flag);
  define("EXP(v)", type == kF32 ? "exp_f32(v)" : "exp(v)");
  define("EXP_DOWN(v)", type == kF32 ? "exp_down_f32(v)" : "exp(v)");  // of what is not above 0
  define("ERF(v)", type == kF32 ? "erf_f32(v)" : "erf(v)");
  // Where it rounds to 1 it is 1: a runtime's own may be next to it, and an infinity times what is left is no NaN.
  define("TANH(v)", type == kF32 ? "tanh_f32(v)" : "((v) > K(19.1) ? K(1) : (v) < K(-19.1) ? K(-1) : tanh(v))");
  for (int k = 0; k < p.scalar_count; ++k) flag(std::string("HAS_") + "XYZW"[k], p.has[k]);
  for (int i = p.results; i < p.n; ++i) flag(std::string("HAS_") + "ABCDEG"[i - p.results], !p.operands[i].absent);
  const Dtype out = p.operands[0].tensor.dtype;
  define("LARGEST", out == kF16    ? "65504.0f"
                    : out == kBF16 ? "FLOAT(0x7f7f0000u)"
                    : out == kF64  ? "1.7976931348623157e308"
                                   : "3.402823466e38f");
  const std::string functions = op.functions ? op.functions : "";
  if (type == kF32) text += functions_of(functions + op.text);
  return text + functions;
}

std::string element_of(const Pointwise& op, const Parsed& p, Dtype type, const std::function<std::string(int)>& place) {
  std::string text;
  for (int i = p.results; i < p.n; ++i) {
    const Operand& o = p.operands[i];
    const std::string load = load_of(p, i, place);
    text += std::string("const T ") + kNames[i - p.results] + " = (T)" +
            (type == kBool && !o.is_number && o.tensor.dtype != kBool ? "(" + load + " != 0)" : load) + ";\n";
  }
  text += std::string(op.rule == Rule::Compare ? "u8" : "T") + " r;\n";
  if (p.results > 1) text += "T q;\n";
  text += std::string(op.text) + "\n";
  for (int i = 0; i < p.results; ++i)
    text += std::string("ST_") + name_of(p.operands[i].tensor.dtype) + "(p" + std::to_string(i) + ", " + place(i) +
            ", " + "rq"[i] + ");\n";
  return text;
}

namespace {

// The last operand divides integers, and may be 0. A number was looked at before.
bool finds_zeros(const Parsed& p, Dtype type) {
  const Operand& last = p.operands[p.n - 1];
  return last.divides && !last.is_number && is_int(type);
}

// An item takes `width` neighbours of every operand in one access each, so that enough of them are under way; what is
// left at the end one by one.
std::string packed_loop(const Parsed& p, const std::string& compute, int width) {
  const std::string W = std::to_string(width);
  std::string types, loads, stores, places = "#undef AT0\n#define AT0 (e)\n", again;
  for (int i = 0; i < p.n; ++i) {
    const Operand& o = p.operands[i];
    if (o.is_number) continue;
    const std::string k = std::to_string(i), storage = storage_of(o.tensor.dtype), pack = "pack" + k;
    again += "#undef AT" + k + "\n#define AT" + k + (o.strides[0] == 1 ? " (j)\n" : " (0)\n");
    if (o.strides[0] != 1) {
      places += "#undef AT" + k + "\n#define AT" + k + " (0)\n";
      continue;
    }
    places += "#undef AT" + k + "\n#define AT" + k + " (e)\n";
    types += "typedef struct __attribute__((aligned(" + std::to_string(width * size_of(o.tensor.dtype)) + "))) { " +
             storage + " v[" + W + "]; } " + pack + ";\n";
    if (i < p.results) {
      loads += pack + " held" + k + ";\n";
      stores += "((GLOBAL " + pack + "*)p" + k + ")[i] = held" + k + ";\n";
    } else {
      loads += "const " + pack + " held" + k + " = ((GLOBAL const " + pack + "*)p" + k + ")[i];\n";
    }
  }
  std::string named;
  for (int i = 0; i < p.n; ++i)
    if (const Operand& o = p.operands[i]; !o.is_number && o.strides[0] == 1)
      named += (i < p.results ? std::string() : "const ") + storage_of(o.tensor.dtype) + "* const p" +
               std::to_string(i) + " = held" + std::to_string(i) + ".v;\n";
  return types + "const idx packs = n / " + W +
         ";\nfor (idx i = FIRST(packs), last = LAST(packs); i < last; i += STEP) {\n" + loads + "{\n" + named + places +
         "_Pragma(\"unroll\") for (int e = 0; e < " + W + "; ++e) {\n" + compute + "}\n}\n" + stores + "}\n" + again +
         "const idx rest = n - packs * " + W +
         ";\nfor (idx i = FIRST(rest), last = LAST(rest); i < last; i += STEP) {\n" + "const idx j = packs * " + W +
         " + i;\n" + compute + "}\n";
}

// How many neighbours packed_loop() gives an item: 16 bytes of the widest operand. 0: one at a time, as few elements are
// in no hurry, or there are other strides or addresses.
int width_of(const Parsed& p, Dtype type, int64_t count, const Device& device) {
  constexpr int64_t kMany = 1 << 16;
  if (device.in_turn() || device.info.language != CW_CODE_CUDA_C || p.rank != 1 || count < kMany ||
      finds_zeros(p, type))
    return 0;
  int64_t widest = 2;
  for (int i = 0; i < p.n; ++i)
    if (!p.operands[i].is_number) widest = std::max<int64_t>(widest, size_of(p.operands[i].tensor.dtype));
  const int64_t width = 16 / widest;
  for (int i = 0; i < p.n; ++i) {
    const Operand& o = p.operands[i];
    if (o.is_number || (o.strides[0] == 0 && i >= p.results)) continue;
    const auto address = reinterpret_cast<uintptr_t>(o.tensor.data);
    if (o.strides[0] != 1 || address % static_cast<uintptr_t>(width * size_of(o.tensor.dtype))) return 0;
  }
  return width > 1 ? static_cast<int>(width) : 0;
}

// A dimension in which some operands lie close whose neighbours in the result's rows are far apart, as in the copy of a
// transpose: rows of the result would read a cache's line for each element. They are read in tiles, whole lines at a time.
struct Tiles {
  int dim = -1;
  uint32_t operands = 0;  // a bit for each that lies close there
  int64_t height = 0;  // elements of a line
  explicit operator bool() const { return dim >= 0; }
};

Tiles tiles_of(const Parsed& p, const Device& device) {
  constexpr int64_t kFew = 8;  // what fewer have in common is not worth a tile
  constexpr int64_t kLine = 64;
  const int inner = p.rank - 1;
  Tiles tiles;
  if (!device.in_turn() || p.rank < 2 || p.shape[inner] < kFew) return tiles;
  const auto crosses = [&](int i, int d) {
    const Operand& o = p.operands[i];
    return !o.is_number && o.strides[d] == 1 && o.strides[inner] > 1;
  };
  for (int i = p.results; i < p.n && !tiles; ++i)
    for (int d = 0; d < inner && !tiles; ++d)
      if (p.shape[d] >= kFew && crosses(i, d)) tiles.dim = d;
  if (!tiles) return tiles;
  int64_t widest = 1;
  for (int i = p.results; i < p.n; ++i) {
    if (!crosses(i, tiles.dim)) continue;
    tiles.operands |= 1U << i;
    widest = std::max<int64_t>(widest, size_of(p.operands[i].tensor.dtype));
  }
  tiles.height = kLine / widest;
  return tiles;
}

std::string text_of(const Pointwise& op, const Parsed& p, Dtype type, const Device& device, bool passing, int width,
                    const Tiles& tiles) {
  Source s(device.info);
  s.before(head_of(op, p, type));
  const auto place = [&](int i) { return "p" + std::to_string(i); };
  for (int i = 0; i < p.results; ++i) s.out(storage_of(p.operands[i].tensor.dtype), place(i));
  for (int i = p.results; i < p.n; ++i) {
    if (p.operands[i].is_number)
      s.value("T", place(i));
    else
      s.in(storage_of(p.operands[i].tensor.dtype), place(i));
  }
  for (int k = 0; k < p.scalar_count; ++k)
    if (p.has[k]) s.value("T", kScalarNames[k]);
  s.value("idx", "n");
  for (int d = p.rank - 1; d >= 0; --d) {
    s.value("idx", "n" + std::to_string(d));
    for (int i = 0; i < p.n; ++i)
      if (!p.operands[i].is_number) s.value("idx", "s" + std::to_string(i) + "_" + std::to_string(d));
  }
  if (passing) s.value("idx", "by_turns");
  const bool tells = finds_zeros(p, type);
  if (tells) s.tells();
  const int inner = p.rank - 1;
  std::string element, open_offsets, fill, shadow;
  for (int i = 0; i < p.n; ++i) {
    if (p.operands[i].is_number) continue;
    const std::string k = std::to_string(i), step = " * s" + k + "_";
    const int64_t stride = p.operands[i].strides[inner];
    if (tiles.operands >> i & 1) {
      const std::string stored = storage_of(p.operands[i].tensor.dtype);
      fill += stored + " tile" + k + "[WIDTH * HEIGHT]; FILL(tile" + k + ", p" + k + ", o" + k + ", s" + k + "_" +
              std::to_string(inner) + ") ";
      shadow += "const " + stored + "* const p" + k + " = tile" + k + "; ";
      element += "#define AT" + k + " ((j - left) * HEIGHT + t)\n";
      continue;
    }
    std::string from = "o" + k;
    if (tiles) {
      from = "r" + k;
      shadow += "const idx r" + k + " = o" + k + " + (top + t)" + step + std::to_string(tiles.dim) + "; ";
    }
    const std::string at = stride == 1   ? from + " + j"
                           : stride == 0 ? from
                                         : from + " + j" + step + std::to_string(inner);
    element += "#define AT" + k + " (" + at + ")\n";
  }
  std::string body = element;
  for (int i = 0; i < p.n; ++i)
    if (!p.operands[i].is_number) open_offsets += (open_offsets.empty() ? "idx o" : ", o") + std::to_string(i) + " = 0";
  open_offsets += ";";
  // Of the dimensions around the innermost, `rest` counted from the inside out.
  std::string walk;
  if (p.rank > 1) {
    walk = "idx rest = row, c_;";
    const int outermost = tiles.dim == 0 ? 1 : 0;
    for (int d = p.rank - 2; d >= 0; --d) {
      if (d == tiles.dim) continue;
      const std::string D = std::to_string(d);
      walk += d == outermost ? " c_ = rest;" : " c_ = rest % n" + D + "; rest /= n" + D + ";";
      for (int i = 0; i < p.n; ++i)
        if (!p.operands[i].is_number)
          walk += " o" + std::to_string(i) + " += c_ * s" + std::to_string(i) + "_" + D + ";";
    }
  }
  if (tiles) {
    s.define("ACROSS", "n" + std::to_string(tiles.dim)).define("HEIGHT", std::to_string(tiles.height));
    s.define("TILES", fill).define("ROW", shadow);
  }
  const auto at = [](int i) { return "AT" + std::to_string(i); };
  std::string compute = element_of(op, p, type, at);
  if (tells) compute = "if (" + load_of(p, p.n - 1, at) + " == 0) TELL(ZERO_DIVISION, 0, 0);\n" + compute;
  s.define("INNER", "n" + std::to_string(inner)).define("OFFSETS", open_offsets).define("WALK", walk);
  s.define("STORED", storage_of(p.operands[0].tensor.dtype));
  if (width) return s.kernel(body + packed_loop(p, compute, width));
  return s.kernel(body + around(!device.in_turn() ? texts::pointwise::elements
                                : passing         ? texts::pointwise::passing
                                : tiles           ? texts::pointwise::tiles
                                : p.rank == 1     ? texts::pointwise::dense
                                                  : texts::pointwise::rows,
                                compute));
}

// As a value of this half type would be, widened again.
float rounded(float value, Dtype type) {
  uint32_t b;
  std::memcpy(&b, &value, 4);
  if (type == kBF16) {
    if (value != value) return value;
    b = (b + 0x7fff + ((b >> 16) & 1)) & 0xffff0000u;
    std::memcpy(&value, &b, 4);
    return value;
  }
  return static_cast<float>(static_cast<_Float16>(value));
}

// Neighbours to one large result that is none of what is read.
bool passes_caches(const Parsed& p, int64_t count) {
  const Tensor& out = p.operands[0].tensor;
  bool passes =
      p.results == 1 && p.rank == 1 && p.operands[0].strides[0] == 1 && count * size_of(out.dtype) >= kPastCaches;
  for (int i = 1; i < p.n; ++i) passes &= p.operands[i].is_number || p.operands[i].tensor.data != out.data;
  return passes;
}

}  // namespace

cw_status prepare(const KernelCall& call, const Pointwise& op, Parsed& p, Dtype* computed) {
  const Dtype out = p.operands[0].tensor.dtype;
  Dtype common = op.rule == Rule::Same ? out : common_dtype(p);
  if (common == kOther || !(op.dtypes >> common & 1)) return CW_UNSUPPORTED;
  if (op.rule == Rule::Compare && (out != kBool)) return CW_UNSUPPORTED;
  Dtype& type = *computed;
  type = compute_of(common);
  if (op.rule == Rule::Copy && out == p.operands[1].tensor.dtype && !p.operands[1].is_number) {
    // Bytes are moved: any dtype, and every NaN stays as it is.
    type = size_of(out) == 1 ? kU8 : size_of(out) == 2 ? kU16 : size_of(out) == 4 ? kU32 : kU64;
    if (size_of(out) > 8) return CW_UNSUPPORTED;
    p.operands[0].tensor.dtype = p.operands[1].tensor.dtype = type;
  } else {
    for (int i = 0; i < p.n; ++i)
      if (!p.operands[i].is_number && !(kReals >> p.operands[i].tensor.dtype & 1)) return CW_UNSUPPORTED;
  }
  const auto without = [&](Dtype d) { return d == kF64 && !(call.device->info.arithmetic & CW_FLOAT64); };
  for (int i = 0; i < p.n; ++i)
    if (!p.operands[i].is_number && without(p.operands[i].tensor.dtype)) return CW_UNSUPPORTED;
  if (without(type) || !broadcast(p)) return CW_UNSUPPORTED;
  if (op.rule == Rule::Compare && common != type)
    for (int i = 0; i < p.n; ++i)
      if (Number& n = p.operands[i].number; p.operands[i].is_number)
        n = {kF64, rounded(static_cast<float>(n.real()), common), 0};
  collapse(p);
  if (p.rank > kMostRank) return CW_UNSUPPORTED;
  if (call.device->in_turn()) lengthen(p);
  Launch numbers;  // none that the type does not hold
  for (int i = 0; i < p.n; ++i)
    if (const Operand& o = p.operands[i];
        o.is_number && ((o.divides && is_int(type) && o.number.real() == 0) || !add_number(numbers, o.number, type)))
      return CW_UNSUPPORTED;
  for (int k = 0; k < p.scalar_count; ++k)
    if (p.has[k] && !add_number(numbers, p.scalars[k], type)) return CW_UNSUPPORTED;
  return CW_OK;
}

cw_status run_prepared(KernelCall& call, const Pointwise& op, const Parsed& p, Dtype type) {
  const Dtype out = p.operands[0].tensor.dtype;
  Key key = {reinterpret_cast<uint64_t>(&op), 0, 0, static_cast<uint64_t>(p.flag)};
  int shift = 0;
  for (int i = 0; i < p.n; ++i) {
    const Operand& o = p.operands[i];
    const int64_t stride = o.strides[p.rank - 1];
    key[1] |= static_cast<uint64_t>(o.absent ? 30 : o.is_number ? 31 : o.tensor.dtype) << shift;
    key[1] |= static_cast<uint64_t>(stride == 0 ? 0 : stride == 1 ? 1 : 2) << (shift + 5);
    shift += 7;
  }
  key[2] = static_cast<uint64_t>(p.rank) | static_cast<uint64_t>(type) << 8;
  key[2] |= static_cast<uint64_t>(out) << 24;
  for (int k = 0; k < p.scalar_count; ++k) key[2] |= static_cast<uint64_t>(p.has[k]) << (16 + k);

  Launch launch;
  int64_t count = 1;
  for (int d = 0; d < p.rank; ++d) count *= p.shape[d];
  const bool passing = passes_caches(p, count) && call.device->in_turn();
  const int width = width_of(p, type, count, *call.device);
  const Tiles tiles = tiles_of(p, *call.device);
  key[2] |= static_cast<uint64_t>(passing) << 32 | static_cast<uint64_t>(width) << 33;
  key[2] |= static_cast<uint64_t>(tiles.dim + 1) << 40 | static_cast<uint64_t>(tiles.operands) << 44;
  for (int i = 0; i < p.n; ++i) {
    if (!p.operands[i].is_number)
      launch.pointer(p.operands[i].tensor.data);
    else
      add_number(launch, p.operands[i].number, type);
  }
  for (int k = 0; k < p.scalar_count; ++k)
    if (p.has[k]) add_number(launch, p.scalars[k], type);
  launch.value(count);
  for (int d = p.rank - 1; d >= 0; --d) {
    launch.value(p.shape[d]);
    for (int i = 0; i < p.n; ++i)
      if (!p.operands[i].is_number) launch.value(p.operands[i].strides[d]);
  }
  cw_function function = nullptr;
  TRY(call.device->function(key, [&] { return text_of(op, p, type, *call.device, passing, width, tiles); }, &function));
  const auto run = [&] {
    if (finds_zeros(p, type)) TRY(launch.tells(call.name));
    if (width) return launch.run(*call.device, function, count / width, op.cost * width, call.stream);
    return launch.run(*call.device, function, count, op.cost, call.stream);
  };
  if (!passing) return run();
  return in_some_order(call, Turn::elements, function, count * size_of(out), [&](bool by_turns) {
    launch.value(int64_t{by_turns});
    return run();
  });
}

bool add_number(Launch& launch, const Number& number, Dtype type) {
  switch (type) {
    case kF32:
      return launch.value(static_cast<float>(number.real())), true;
    case kF64:
      return launch.value(number.real()), true;
    case kBool:
      return launch.value(static_cast<uint8_t>(number.real() != 0)), true;
    default:
      break;
  }
  if (number.dtype == kF64) {  // 2.0 where an integer is meant
    if (!(number.d >= -9e15 && number.d <= 9e15) || number.d != static_cast<double>(static_cast<int64_t>(number.d)))
      return false;
    return add_number(launch, {kI64, 0, static_cast<int64_t>(number.d)}, type);
  }
  switch (size_of(type)) {
    case 1:
      return launch.value(static_cast<int8_t>(number.i)), true;
    case 2:
      return launch.value(static_cast<int16_t>(number.i)), true;
    case 4:
      return launch.value(static_cast<int32_t>(number.i)), true;
    default:
      return launch.value(number.i), true;
  }
}

// What only chooses between elements keeps their bits: a conversion to float32 and back makes other NaNs of some halves.
void take_bits(const Pointwise& op, Parsed& p) {
  if (std::strcmp(op.name, "aten::where.self_out") != 0 && std::strcmp(op.name, "aten::masked_fill.Tensor_out") != 0)
    return;
  const Dtype dtype = p.operands[0].tensor.dtype;
  if (dtype != kF16 && dtype != kBF16) return;
  for (int i = 1; i < p.n; ++i) {
    const Operand& o = p.operands[i];
    if (o.counts && (o.is_number || o.tensor.dtype != dtype)) return;
  }
  for (int i = 0; i < p.n; ++i)
    if (i == 0 || p.operands[i].counts) p.operands[i].tensor.dtype = kI16;
}

cw_status run_pointwise(KernelCall& call, const void* data) {
  const Pointwise& op = *static_cast<const Pointwise*>(data);
  Parsed p;
  if (!parse(op, call, p)) return CW_UNSUPPORTED;
  take_bits(op, p);
  Dtype type;
  TRY(prepare(call, op, p, &type));
  return run_prepared(call, op, p, type);
}

cw_status run_pointwise(KernelCall& call, const Pointwise& op, const std::vector<Tensor>& operands,
                        const std::vector<Number>& scalars) {
  Parsed p;
  p.results = op.results;
  for (const Tensor& t : operands) p.operands[p.n++].tensor = t;
  for (const Number& x : scalars) p.has[p.scalar_count] = true, p.scalars[p.scalar_count++] = x;
  Dtype type;
  TRY(prepare(call, op, p, &type));
  return run_prepared(call, op, p, type);
}

const Pointwise& pointwise_named(const char* name) {
  for (const Pointwise& op : pointwise_table())
    if (std::strcmp(op.name, name) == 0) return op;
  __builtin_trap();  // a name of our own
}

Kernels pointwise_kernels() {
  Kernels list;
  for (const Pointwise& op : pointwise_table()) {
    const bool copy = op.rule == Rule::Copy && std::strcmp(op.name, "aten::copy_") == 0;
    list.push_back({op.name, run_pointwise, copy ? CW_ALL_DTYPES : kReals, CW_NEEDS_ELEMENTS | CW_TAKES_NUMBERS, &op});
  }
  return list;
}

}  // namespace causeway::portable
