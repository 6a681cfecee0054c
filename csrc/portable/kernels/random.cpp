// Random numbers from Philox-4x32-10, the same on every device: element i comes from counter `offset` + i / 4, word
// i % 4; numbers that need more bits take those of a second sequence.
#include <algorithm>

#include "portable/order.h"
#include "portable/kernels/random.cl.h"

namespace causeway::portable {

namespace {

struct Random {
  const char* name;
  const char* text;  // sets r from u (uniform), a and b (words), x and y
  int numbers;       // scalar arguments after the result
  double x, y;       // where they are left out
  cw_dtypes dtypes;
  bool both = false;  // it takes b, too
};

// self, the numbers, generator
cw_status fill(KernelCall& call, const void* data) {
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
        s.before(texts::random::philox);
        s.out(storage_of(out.dtype), "out").value("u64", "seed").value("u64", "offset").value("f64", "x");
        s.value("f64", "y").value("idx", "n");
        // 53 bits for double; 24 for the others, less for the half types, whose rounding up to 1 would leave the range.
        const std::string uniform = out.dtype == kF64    ? "(f64)(((u64)a << 21) ^ (b >> 11)) * 1.1102230246251565e-16"
                                    : out.dtype == kBF16 ? "(f64)(a >> 24) * 0.00390625"
                                    : out.dtype == kF16  ? "(f64)(a >> 21) * 0.00048828125"
                                                         : "(f64)(a >> 8) * 5.9604644775390625e-8";
        const std::string text = op.text;
        if (text.find("_drawn") != std::string::npos) s.before(texts::random::drawn);
        s.define("UNIFORM", uniform).define("SET", text);
        s.define("OUT(at, v)", std::string("ST_") + name_of(out.dtype) + "(out, at, v)");
        // `b` is there only where it is drawn.
        s.define("BOTH", out.dtype == kF64 || op.both);
        return s.kernel(call.device->in_turn() ? texts::random::fill_blocks : texts::random::fill);
      },
      &function));
  Launch l;
  const int64_t n = out.numel();
  l.pointer(out.data).value(philox.seed).value(philox.offset).value(call.real(1, op.x)).value(call.real(2, op.y));
  if (call.device->in_turn()) return l.value(n).run(*call.device, function, n / 64 + 1, 64 * 40, call.stream);
  return l.value(n).run(*call.device, function, n, 120, call.stream);
}

// output, mask, input, p, train, and a generator that torch's operator does not name
cw_status dropout(KernelCall& call, const void*) {
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
        s.before(texts::random::philox).define("T", t);
        s.define("IN(at)", "LD_" + name + "(in, at)").define("OUT(at, v)", "ST_" + name + "(out, at, v)");
        s.out(store, "out").out("u8", "mask").in(store, "in").value("u64", "seed").value("u64", "offset");
        s.value("u32", "limit").value(t, "scale").value("idx", "n");
        return s.kernel(texts::random::dropout);
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
cw_status permutation(KernelCall& call, const void*) {
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
        s.before(texts::random::philox).define("T", t);
        s.out(t, "out").value("u64", "seed").value("u64", "offset").value("idx", "n");
        return s.kernel(texts::random::permutation);
      },
      &function));
  Launch l;
  l.pointer(out.data).value(philox.seed).value(philox.offset).value(out.numel());
  return l.run(*call.device, function, 1, 1, call.stream);
}

// random_: self, generator; random_.to: self, to, generator; random_.from: self, from, to, generator. Both ends by what
// the dtype counts exactly where they are left out.
cw_status whole_numbers(KernelCall& call, const void* data) {
  const int ends = static_cast<int>(*static_cast<const char*>(data) - '0');
  Tensor out;
  if (!call.tensor(0, &out) || !out.contiguous() || call.tag(1 + ends) != CW_GENERATOR) return CW_UNSUPPORTED;
  const int64_t from = ends == 2 ? call.integer(1) : 0;
  const Dtype t = out.dtype;
  const int64_t size = size_of(t);
  // One more than the largest, less `from`; of int64 the whole range has no such number.
  uint64_t most = t == kBool   ? 2
                  : t == kF16  ? (1u << 11) + 1
                  : t == kBF16 ? (1u << 8) + 1
                  : t == kF32  ? (1u << 24) + 1
                  : t == kF64  ? (uint64_t{1} << 53) + 1
                               : uint64_t{1} << (size * 8 - (t == kU8 ? 0 : 1));
  uint64_t range = most - static_cast<uint64_t>(from);
  if (ends > 0 && !call.is_none(ends)) {
    if (call.integer(ends) <= from) return CW_UNSUPPORTED;  // the host raises the error
    range = static_cast<uint64_t>(call.integer(ends)) - static_cast<uint64_t>(from);
  } else if (ends == 2 && from < 0 && size == 8) {
    return CW_UNSUPPORTED;
  }
  const cw_philox& philox = *call.arg(1 + ends).v.philox;
  Program p(call, "whole_numbers");
  p.before(texts::random::philox).out("out", out.data, t).value("key", static_cast<int64_t>(philox.seed));
  p.value("first", static_cast<int64_t>(philox.offset)).value("from", from).value("range", static_cast<int64_t>(range));
  return p.run(out.numel(), texts::random::whole_numbers, 240);
}

// bernoulli_.Tensor: self, p, generator; bernoulli.out: out, p, generator
cw_status bernoulli(KernelCall& call, const void*) {
  Tensor out, chance;
  if (!call.tensor(0, &out) || !call.tensor(1, &chance) || call.tag(2) != CW_GENERATOR || !out.contiguous() ||
      !is_float(chance.dtype) || !has_f64(call))
    return CW_UNSUPPORTED;
  std::vector<int64_t> strides, shape(out.shape, out.shape + out.ndim);
  if (!expanded(chance, shape, &strides)) return CW_UNSUPPORTED;
  if (out.ndim == 0) shape = {1}, strides = {0};
  chance.ndim = static_cast<int>(shape.size());
  for (int d = 0; d < chance.ndim; ++d) chance.shape[d] = shape[d], chance.strides[d] = strides[d];
  const cw_philox& philox = *call.arg(2).v.philox;
  Program p(call, "bernoulli");
  p.before(texts::random::philox)
      .out("out", out.data, out.dtype)
      .in("p", chance)
      .value("key", static_cast<int64_t>(philox.seed));
  p.value("first", static_cast<int64_t>(philox.offset));
  return p.each(chance, texts::random::bernoulli, 120);
}

// out, self, num_samples, replacement, generator. With replacement: where a uniform number falls in the running sum.
// Without: the largest of chance / exponential (Efraimidis and Spirakis, 2006).
cw_status multinomial(KernelCall& call, const void*) {
  Tensor out, chance;
  if (!call.tensor(0, &out) || !call.tensor(1, &chance) || call.tag(4) != CW_GENERATOR || out.dtype != kI64 ||
      !is_float(chance.dtype) || chance.ndim < 1 || chance.ndim > 2 || !chance.contiguous() || !out.contiguous() ||
      !has_f64(call))
    return CW_UNSUPPORTED;
  const int64_t n = chance.shape[chance.ndim - 1], rows = chance.numel() / std::max<int64_t>(n, 1), k = call.integer(2);
  const bool replaced = call.integer(3) != 0;
  if (n == 0 || k < 1 || (!replaced && k > n)) return CW_UNSUPPORTED;
  const cw_philox& philox = *call.arg(4).v.philox;
  void* keys = nullptr;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(rows * n * 8), &keys));
  if (replaced) {
    Program sums(call, "multinomial_sums");
    sums.in("p", chance.data, chance.dtype).out("sum", keys, kF64).value("size", n).tells();
    TRY(sums.run(rows, texts::random::running_sums, static_cast<double>(n) * 2));
    Program p(call, "multinomial");
    p.before(texts::random::philox).in("sum", keys, kF64).out("out", out.data, kI64).value("size", n).value("k", k);
    p.value("key", static_cast<int64_t>(philox.seed)).value("first", static_cast<int64_t>(philox.offset));
    return p.run(rows * k, texts::random::multinomial, 200);
  }
  Program p(call, "multinomial_keys");
  p.before(texts::random::philox)
      .in("p", chance.data, chance.dtype)
      .out("to", keys, kF64)
      .value("most", out.numel())
      .tells();
  p.value("key", static_cast<int64_t>(philox.seed)).value("first", static_cast<int64_t>(philox.offset));
  TRY(p.run(rows * n, texts::random::multinomial_keys, 160));
  Sorted sorted;
  TRY(sort_rows(call, dense(keys, kF64, {rows, n}), 1, true, &sorted));
  TRY(copy_into(call, dense(out.data, kI64, {rows, k}), narrow(sorted.places, 1, 0, k)));
  Program check(call, "multinomial_check");  // the best of a row has no chance: none has
  check.in("p", chance.data, chance.dtype).in("pick", out.data, kI64).value("size", n).value("k", k).tells();
  return check.run(rows, "if (p(u * size + pick(u * k)) == 0) TELL(NO_CHANCES, 0, 0);", 4);
}

}  // namespace

Kernels random_kernels() {
  static const auto& table = *new std::vector<Random>{
      {"aten::uniform_", "r = x + u * (y - x);", 2, 0, 1, kFloats},
      // Box and Muller, 1958
      {"aten::normal_", "r = x + y * sqrt(-2.0 * ln_drawn(((f64)a + 1.0) * 2.3283064365386963e-10)) * cos_drawn(b);", 2,
       0, 1, kFloats, true},
      {"aten::log_normal_",
       "r = exp(x + y * sqrt(-2.0 * ln_drawn(((f64)a + 1.0) * 2.3283064365386963e-10)) * cos_drawn(b));", 2, 1, 2,
       kFloats, true},
      // by the inverse of their distribution functions, of a number that is neither 0 nor 1
      {"aten::exponential_", "r = -ln_drawn(((f64)a + 0.5) * 2.3283064365386963e-10) / x;", 1, 1, 0, kFloats},
      {"aten::cauchy_", "r = x + y * tan(3.14159265358979323846 * (((f64)a + 0.5) * 2.3283064365386963e-10 - 0.5));", 2,
       0, 1, kFloats},
      {"aten::geometric_",
       "r = ceil(ln_drawn(((f64)a + 0.5) * 2.3283064365386963e-10) / log1p(-x)); r = r < 1.0 ? 1.0 : r;", 1, 0.5, 0,
       kFloats | kInts},
      {"aten::bernoulli_.float", "r = (f64)a * 2.3283064365386963e-10 < x ? 1.0 : 0.0;", 1, 0.5, 0, kReals},
  };
  Kernels list;
  constexpr uint32_t needs = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  for (const Random& op : table) list.push_back({op.name, fill, op.dtypes, needs, &op});
  static const char counts[] = "012";
  list.push_back({"aten::random_", whole_numbers, kReals, needs, &counts[0]});
  list.push_back({"aten::random_.to", whole_numbers, kReals, needs, &counts[1]});
  list.push_back({"aten::random_.from", whole_numbers, kReals, needs, &counts[2]});
  list.push_back({"aten::bernoulli_.Tensor", bernoulli, kReals, CW_NEEDS_ELEMENTS});
  list.push_back({"aten::bernoulli.out", bernoulli, kReals, CW_NEEDS_ELEMENTS});
  list.push_back({"aten::multinomial.out", multinomial, kFloats | CW_INT64, needs});
  list.push_back({"aten::native_dropout", dropout, kFloats, needs});
  list.push_back({"aten::randperm.generator_out", permutation, CW_INT64 | CW_INT32, needs});
  return list;
}

}  // namespace causeway::portable
