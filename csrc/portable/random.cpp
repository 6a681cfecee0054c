// Random numbers from Philox-4x32-10, the same on every device: element i comes from counter `offset` + i / 4, word
// i % 4; numbers that need more bits take those of a second sequence.
#include "call.h"

namespace causeway::portable {

namespace {

constexpr const char* kPhilox = R"(
FUNCTION u32 high32(u32 a, u32 b) { return (u32)(((u64)a * (u64)b) >> 32); }
/* Word `word` of the counter's four. */
FUNCTION u32 philox(u64 key, u64 at, u32 sequence, u32 word) {
  u32 c0 = (u32)at, c1 = (u32)(at >> 32), c2 = sequence, c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
  for (int i = 0; i < 10; ++i) {
    const u32 h0 = high32(0xD2511F53u, c0), h1 = high32(0xCD9E8D57u, c2);
    const u32 l0 = 0xD2511F53u * c0, l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}
#define ROUND(a) { const u32 h0 = high32(0xD2511F53u, c0), h1 = high32(0xCD9E8D57u, c2), \
  l0 = 0xD2511F53u * c0, l1 = 0xCD9E8D57u * c2; \
  c0 = h1 ^ c1 ^ (k0 + a * 0x9E3779B9u); c1 = l1; c2 = h0 ^ c3 ^ (k1 + a * 0xBB67AE85u); c3 = l0; }
/* All four words of a counter, without a loop in the way of vectors. */
#define PHILOX(at, sequence) { const u64 at_ = (at); const u32 k0 = (u32)seed, k1 = (u32)(seed >> 32); \
  c0 = (u32)at_; c1 = (u32)(at_ >> 32); c2 = sequence; c3 = 0; \
  ROUND(0) ROUND(1u) ROUND(2u) ROUND(3u) ROUND(4u) ROUND(5u) ROUND(6u) ROUND(7u) ROUND(8u) \
  ROUND(9u) }
#define DRAW(i, sequence) philox(seed, offset + (u64)((i) / 4), sequence, (u32)((i) % 4))
)";

struct Random {
  const char* name;
  const char* text;  // sets r from u (uniform), a and b (words), x and y
  int numbers;       // scalar arguments after the result
  double x, y;       // where they are left out
  cw_dtypes dtypes;
};

// self, the numbers, generator
cw_status fill(Call& call, const void* data) {
  const Random& op = *static_cast<const Random*>(data);
  Tensor out;
  if (!call.tensor(0, &out) || !out.contiguous() || !(op.dtypes >> out.dtype & 1)) return CW_UNSUPPORTED;
  if (!(call.device->info.arithmetic & CW_FLOAT64)) return CW_UNSUPPORTED;
  if (call.tag(1 + op.numbers) != CW_GENERATOR) return CW_UNSUPPORTED;
  const cw_philox& philox = *call.arg(1 + op.numbers).v.philox;
  cw_function function = nullptr;
  TRY(call.device->function(
      {reinterpret_cast<uint64_t>(&op), static_cast<uint64_t>(out.dtype), 0, 0},
      [&] {
        Source s(call.device->info);
        s.before(kPhilox);
        s.out(storage_of(out.dtype), "out").value("u64", "seed").value("u64", "offset").value("f64", "x");
        s.value("f64", "y").value("idx", "n");
        // 53 bits for double; 24 for the others, less for the half types, whose rounding up to 1 would leave the range.
        const std::string uniform = out.dtype == kF64    ? "(f64)(((u64)a << 21) ^ (b >> 11)) * 1.1102230246251565e-16"
                                    : out.dtype == kBF16 ? "(f64)(a >> 24) * 0.00390625"
                                    : out.dtype == kF16  ? "(f64)(a >> 21) * 0.00048828125"
                                                         : "(f64)(a >> 8) * 5.9604644775390625e-8";
        return s.kernel(
            "for (idx i = FIRST(n), end = LAST(n); i < end; i += STEP) {\nconst u32 a = DRAW(i, 0), b = DRAW(i, 1);\n"
            "const f64 u = " +
            uniform + ";\nf64 r;\n(void)u; (void)b;\n" + op.text + "\nST_" + name_of(out.dtype) + "(out, i, r);\n}\n");
      },
      &function));
  Launch l;
  const int64_t n = out.numel();
  l.pointer(out.data).value(philox.seed).value(philox.offset).value(call.real(1, op.x)).value(call.real(2, op.y));
  return l.value(n).run(*call.device, function, n, 120, call.stream);
}

// output, mask, input, p, train, and a generator that torch's operator does not name
cw_status dropout(Call& call, const void*) {
  Tensor out, mask, in;
  if (!call.tensor(0, &out) || !call.tensor(1, &mask) || !call.tensor(2, &in)) return CW_UNSUPPORTED;
  const double p = call.real(3), keep = 1 - p;
  const bool train = call.is_none(4) || call.integer(4) != 0;
  if (!train || p <= 0 || p >= 1 || !is_float(in.dtype) || mask.dtype != kBool || out.dtype != in.dtype ||
      call.tag(5) != CW_GENERATOR || (in.dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64)))
    return CW_UNSUPPORTED;
  const cw_philox& philox = *call.arg(5).v.philox;
  const Dtype type = compute_of(in.dtype);
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("dropout"), static_cast<uint64_t>(in.dtype), 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string name = name_of(in.dtype), store = storage_of(in.dtype), t = name_of(type);
        s.before(kPhilox);
        s.out(store, "out").out("u8", "mask").in(store, "in").value("u64", "seed").value("u64", "offset");
        s.value("u32", "limit").value(t, "scale").value("idx", "n");
        // 16 counters at a time, a lane of a vector each; what is multiplied by 0 keeps a NaN, as on the CPU.
        return s.kernel(
            "const idx blocks = (n + 63) / 64;\nfor (idx i = FIRST(blocks), end = LAST(blocks); i < end; i += STEP) {\n"
            "u8 keep[64];\nconst u64 from = offset + (u64)i * 16;\nINDEPENDENT\n"
            "for (int l = 0; l < 16; ++l) {\nu32 c0, c1, c2, c3;\nPHILOX(from + l, 0)\nkeep[l * 4] = c0 < limit;\n"
            "keep[l * 4 + 1] = c1 < limit;\nkeep[l * 4 + 2] = c2 < limit;\nkeep[l * 4 + 3] = c3 < limit;\n}\n"
            "const idx most = n - i * 64 < 64 ? n - i * 64 : 64;\nINDEPENDENT\n"
            "for (idx l = 0; l < most; ++l) {\nconst idx j = i * 64 + l;\nmask[j] = keep[l];\nconst " +
            t + " v = LD_" + name + "(in, j);\nST_" + name + "(out, j, v * (keep[l] ? scale : 0));\n}\n}\n");
      },
      &function));
  Launch l;
  const int64_t n = in.numel();
  l.pointer(out.data).pointer(mask.data).pointer(in.data).value(philox.seed).value(philox.offset);
  l.value(static_cast<uint32_t>(keep * 4294967296.0));
  type == kF64 ? l.value(1 / keep) : l.value(static_cast<float>(1 / keep));
  return l.value(n).run(*call.device, function, n / 64 + 1, 640, call.stream);
}

// out, n, generator: swaps from the last place down (Fisher and Yates), by one item: each depends on those before it.
cw_status permutation(Call& call, const void*) {
  Tensor out;
  if (!call.tensor(0, &out) || !call.device->in_turn() || (out.dtype != kI64 && out.dtype != kI32))
    return CW_UNSUPPORTED;
  if (out.ndim != 1 || !out.contiguous() || call.tag(2) != CW_GENERATOR) return CW_UNSUPPORTED;
  const cw_philox& philox = *call.arg(2).v.philox;
  cw_function function = nullptr;
  TRY(call.device->function(
      {family("permutation"), static_cast<uint64_t>(out.dtype), 0, 0},
      [&] {
        Source s(call.device->info);
        const std::string t = name_of(out.dtype);
        s.before(kPhilox);
        s.out(t, "out").value("u64", "seed").value("u64", "offset").value("idx", "n");
        return s.kernel("if (item == 0) {\nfor (idx i = 0; i < n; ++i) out[i] = (" + t +
                        ")i;\nfor (idx i = n - 1; i > 0; --i) {\nconst idx j = (idx)((((u64)DRAW(i, "
                        "0) << 32) | DRAW(i, 1)) % (u64)(i + 1));\nconst " +
                        t + " kept = out[i];\nout[i] = out[j];\nout[j] = kept;\n}\n}\n");
      },
      &function));
  Launch l;
  l.pointer(out.data).value(philox.seed).value(philox.offset).value(out.numel());
  return l.run(*call.device, function, 1, 1, call.stream);
}

}  // namespace

Kernels random_kernels() {
  static const auto& table = *new std::vector<Random>{
      {"aten::uniform_", "r = x + u * (y - x);", 2, 0, 1, kFloats},
      // Box and Muller, 1958
      {"aten::normal_",
       "r = x + y * sqrt(-2.0 * log(((f64)a + 1.0) * 2.3283064365386963e-10)) * cos(6.283185307179586477 * (f64)b * "
       "2.3283064365386963e-10);",
       2, 0, 1, kFloats},
      {"aten::bernoulli_.float", "r = (f64)a * 2.3283064365386963e-10 < x ? 1.0 : 0.0;", 1, 0.5, 0, kReals},
  };
  Kernels list;
  constexpr uint32_t needs = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  for (const Random& op : table) list.push_back({op.name, fill, op.dtypes, needs, &op});
  list.push_back({"aten::native_dropout", dropout, kFloats, needs});
  list.push_back({"aten::randperm.generator_out", permutation, CW_INT64 | CW_INT32, needs});
  return list;
}

}  // namespace causeway::portable
