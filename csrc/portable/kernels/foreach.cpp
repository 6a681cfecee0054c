// torch's `_foreach_*` operators by the lines of the pointwise table: the tensors of the lists whose operands are all
// dense in one order go many to a launch, the others one by one. Lists are taken whole or not at all: each tensor is
// looked at before the first is written.
#include <algorithm>

#include "portable/lists.h"
#include "portable/kernels/pointwise.h"

namespace causeway::portable {

namespace {

// The operator's arguments after the results, less the first `skip`, are those of the line in their order; a scalar that
// the line has and the operator has not is 1.
struct Foreach {
  std::string name;
  const Pointwise* op;
  int skip = 0;
};

// Bits by operand, or by scalar: one tensor for all, or a number for each tensor.
struct Shares {
  uint32_t lone = 0, numbers = 0, scalars = 0;
};

constexpr uint8_t kNumber = 31;  // in a dtype's place

// What of one tensor's call a launch needs.
struct Member {
  std::array<uint8_t, kMostOperands> dtypes;  // where these or the type differ, it is another launch
  Dtype type;
  int64_t size;
  std::array<const char*, kMostOperands> data;
  std::array<Number, kMostOperands> numbers;
  std::array<Number, kMostScalars> scalars;
};

// A launch: the operands as of its first tensor, and where operands are one memory.
struct Plan {
  Parsed like;
  Dtype type;
  Shares shares;
  int same[kMostOperands];  // as an earlier operand, or itself
  Lists lists;
  bool owned(int i) const { return !like.operands[i].is_number && !(shares.lone >> i & 1) && same[i] == i; }
};

// The arguments of tensor k of the lists.
bool parse(const Foreach& f, const KernelCall& call, uint32_t k, Parsed& p, Shares& shares) {
  int at = 0;
  const auto next = [&](Operand& o, uint32_t* each, uint32_t bit) {
    if (at >= call.size()) return false;
    const int i = at++;
    const cw_arg& a = call.arg(i);
    switch (a.tag) {
      case CW_TENSOR_LIST:
        return k < a.n && call.read(a.v.tensors[k], &o.tensor);
      case CW_TENSOR:
        shares.lone |= bit;
        return call.read(a.v.tensor, &o.tensor) && o.tensor.numel() == 1;
      case CW_SCALAR_LIST:
        *each |= bit;
        o.is_number = true;
        return k < a.n && read_number(a.v.args[k], &o.number);
      default:
        o.is_number = true;
        return read_number(a, &o.number);
    }
  };
  const auto operand = [&] {
    const int i = p.n++;
    return next(p.operands[i], &shares.numbers, 1u << i);
  };
  p.results = 1;
  if (!operand() || p.operands[0].is_number) return false;
  at += f.skip;
  for (const char* c = f.op->arguments; *c; ++c) {
    if (*c == '-') {
      ++at;
    } else if (*c == 't') {
      if (!operand()) return false;
    } else {
      const int n = p.scalar_count++;
      p.has[n] = true;
      Operand scalar;
      scalar.number = {kI64, 0, 1};
      if (at < call.size() && (!next(scalar, &shares.scalars, 1u << n) || !scalar.is_number)) return false;
      p.scalars[n] = scalar.number;
    }
  }
  return true;
}

bool is_flat(const Parsed& p, const Shares& shares) {
  for (int i = 0; i < p.n; ++i)
    if (!p.operands[i].is_number && !(shares.lone >> i & 1) && (p.rank != 1 || p.operands[i].strides[0] != 1))
      return false;
  return p.rank == 1;
}

std::string text_of(const Foreach& f, Plan& plan, const Device& device) {
  const Parsed& p = plan.like;
  Source s(device.info);
  s.before(head_of(*f.op, p, plan.type));
  Lists& lists = plan.lists;
  lists.picked.clear();
  const auto each = [&](const std::string& type, const std::string& name, auto add) {
    if (!type.empty()) lists.picked.push_back({type, name, ""});
    for (size_t k = 0; k < lists.count; ++k) add(name + "_" + std::to_string(k));
  };
  const auto number = [&](bool own, const std::string& name) {
    if (own)
      each("T", name, [&](const std::string& n) { s.value("T", n); });
    else
      s.value("T", name);
  };
  for (int i = 0; i < p.n; ++i) {
    const std::string name = "p" + std::to_string(i);
    if (p.operands[i].is_number) {
      number(plan.shares.numbers >> i & 1, name);
      continue;
    }
    const std::string store = storage_of(p.operands[i].tensor.dtype);
    if (plan.shares.lone >> i & 1)
      s.in(store, name);
    else if (!plan.owned(i))
      s.define(name, "p" + std::to_string(plan.same[i]));
    else
      each(i ? "GLOBAL const " + store + "*" : "GLOBAL " + store + "*", name,
           [&](const std::string& n) { i ? s.in(store, n) : s.out(store, n); });
  }
  for (int n = 0; n < p.scalar_count; ++n) number(plan.shares.scalars >> n & 1, kScalarNames[n]);
  each("", "size", [&](const std::string& n) { s.value("idx", n); });
  s.value("idx", "blocks_");
  const auto place = [&](int i) { return plan.shares.lone >> i & 1 ? "0" : "i"; };
  return s.kernel(each_block(device, lists, element_of(*f.op, p, plan.type, place)));
}

// The tensors of one kind, in as many launches as it takes.
cw_status run_flat(KernelCall& call, const Foreach& f, Plan& plan, const Member* from, const Member* to) {
  const Parsed& p = plan.like;
  const Shares& shares = plan.shares;
  size_t pointers = 0, numbers = 0, more = 0;
  uint64_t word = 0;
  for (int i = 0; i < p.n; ++i) {
    plan.same[i] = i;
    for (int j = 0; j < i && plan.owned(i); ++j)
      if (plan.owned(j) && from->dtypes[i] == from->dtypes[j] &&
          std::all_of(from, to, [&](const Member& m) { return m.data[i] == m.data[j]; }))
        plan.same[i] = j;
    if (plan.owned(i))
      ++pointers;
    else if (plan.same[i] == i)
      ++(shares.numbers >> i & 1 ? numbers : more);
    word = word << 8 | from->dtypes[i] | static_cast<uint64_t>(plan.same[i]) << 5;
  }
  for (int n = 0; n < p.scalar_count; ++n) ++(shares.scalars >> n & 1 ? numbers : more);
  const size_t most = most_tensors(pointers, numbers, more);
  Lists& lists = plan.lists;
  lists.block = block_of(*call.device);
  while (from != to) {
    const size_t had = std::min(most, static_cast<size_t>(to - from));
    lists.count = tensors_of(had, most);
    const auto each = [&](bool own, auto add) {  // beyond the last the first again, without elements
      for (size_t k = 0; k < (own ? lists.count : 1); ++k) add(from[k < had ? k : 0]);
    };
    Launch launch;
    for (int i = 0; i < p.n; ++i)
      if (plan.owned(i) || shares.lone >> i & 1)
        each(plan.owned(i), [&](const Member& m) { launch.pointer(m.data[i]); });
    for (int i = 0; i < p.n; ++i)
      if (p.operands[i].is_number)
        each(shares.numbers >> i & 1, [&](const Member& m) { add_number(launch, m.numbers[i], plan.type); });
    for (int n = 0; n < p.scalar_count; ++n)
      each(shares.scalars >> n & 1, [&](const Member& m) { add_number(launch, m.scalars[n], plan.type); });
    int64_t blocks = 0, elements = 0;
    for (size_t k = 0; k < lists.count; ++k) {
      const int64_t size = k < had ? from[k].size : 0;
      launch.value(size);
      elements += size;
      blocks += (size + lists.block - 1) / lists.block;
    }
    launch.value(blocks);
    const Key key = {reinterpret_cast<uint64_t>(&f), word, static_cast<uint64_t>(plan.type) | lists.count << 8,
                     family("foreach")};
    cw_function function = nullptr;
    TRY(call.device->function(key, [&] { return text_of(f, plan, *call.device); }, &function));
    TRY(run_blocks(call, launch, function, blocks,
                   f.op->cost * static_cast<double>(elements) / static_cast<double>(blocks)));
    from += had;
  }
  return CW_OK;
}

cw_status run_foreach(KernelCall& call, const void* data) {
  const Foreach& f = *static_cast<const Foreach*>(data);
  if (call.tag(0) != CW_TENSOR_LIST) return CW_UNSUPPORTED;
  const uint32_t count = call.arg(0).n;
  std::vector<Member> flat;
  std::vector<uint32_t> others;
  flat.reserve(count);
  Plan plan;
  for (uint32_t k = 0; k < count; ++k) {
    Parsed p;
    Shares shares;
    Member m;
    if (!parse(f, call, k, p, shares)) return CW_UNSUPPORTED;
    m.size = p.operands[0].tensor.numel();
    TRY(prepare(call, *f.op, p, &m.type));
    if (m.size == 0) continue;
    if (!is_flat(p, shares)) {
      others.push_back(k);
      continue;
    }
    m.dtypes.fill(0);
    for (int i = 0; i < p.n; ++i) {
      const Operand& o = p.operands[i];
      m.dtypes[i] = o.is_number ? kNumber : static_cast<uint8_t>(o.tensor.dtype);
      m.data[i] = o.tensor.data;
      m.numbers[i] = o.number;
    }
    std::copy(p.scalars, p.scalars + p.scalar_count, m.scalars.begin());
    if (flat.empty()) plan.like = p, plan.shares = shares;
    flat.push_back(m);
  }
  const auto kind = [](const Member& m) { return std::pair(m.type, m.dtypes); };
  const auto before = [&](const Member& a, const Member& b) { return kind(a) < kind(b); };
  if (!std::is_sorted(flat.begin(), flat.end(), before)) std::stable_sort(flat.begin(), flat.end(), before);
  for (auto from = flat.begin(), to = from; from != flat.end(); from = to) {
    to = std::upper_bound(from, flat.end(), *from, before);
    plan.type = from->type;
    for (int i = 0; i < plan.like.n; ++i)
      if (!plan.like.operands[i].is_number) plan.like.operands[i].tensor.dtype = static_cast<Dtype>(from->dtypes[i]);
    TRY(run_flat(call, f, plan, &*from, &*from + (to - from)));
  }
  for (uint32_t k : others) {
    Parsed p;
    Shares shares;
    Dtype type;
    if (!parse(f, call, k, p, shares)) return CW_FAILED;  // it was looked at above
    TRY(prepare(call, *f.op, p, &type));
    TRY(run_prepared(call, *f.op, p, type));
  }
  return CW_OK;
}

std::vector<Foreach> table() {
  std::vector<Foreach> all;
  const auto add = [&](const std::string& name, const std::string& line, int skip = 0) {
    all.push_back({"aten::_foreach_" + name, &pointwise_named(("aten::" + line).c_str()), skip});
  };
  for (const char* name :
       {"abs",   "acos",  "asin",    "atan",   "ceil", "cos",   "cosh",  "erf",  "erfc", "exp",
        "expm1", "floor", "frac",    "lgamma", "log",  "log10", "log1p", "log2", "neg",  "reciprocal",
        "round", "rsqrt", "sigmoid", "sign",   "sin",  "sinh",  "sqrt",  "tan",  "tanh", "trunc"})
    add(std::string(name) + ".out", std::string(name) + ".out");
  for (const char* name : {"add", "sub", "mul", "div"})
    for (const char* kind : {".Scalar_out", ".ScalarList_out", ".List_out", ".Tensor_out"})
      add(std::string(name) + kind, std::string(name) + ".out");
  for (const std::string kind : {".Scalar_out", ".ScalarList_out"}) {
    add("clamp_min" + kind, "clamp_min.out");
    add("clamp_max" + kind, "clamp_max.out");
    add("maximum" + kind, "clamp_min.out");  // as in torch
    add("minimum" + kind, "clamp_max.out");
    add("pow" + kind, "pow.Tensor_Scalar_out");
    add("lerp" + kind, "lerp.Scalar_out");
    add("addcmul" + kind, "addcmul.out");
    add("addcdiv" + kind, "addcdiv.out");
  }
  for (const char* name : {"clamp_min", "maximum"}) add(std::string(name) + ".List_out", "clamp_min.Tensor_out");
  for (const char* name : {"clamp_max", "minimum"}) add(std::string(name) + ".List_out", "clamp_max.Tensor_out");
  add("pow.List_out", "pow.Tensor_Tensor_out");
  add("pow.ScalarAndTensor", "pow.Scalar_out");
  add("lerp.List_out", "lerp.Tensor_out");
  add("zero.out", "zero_", 1);
  add("copy.out", "copy_", 1);
  add("clone.out", "copy_");
  return all;
}

}  // namespace

cw_status copy_each(KernelCall& call, const std::vector<const DLTensor*>& to,
                    const std::vector<const DLTensor*>& from) {
  static const Foreach copy = {"copy_each", &pointwise_named("aten::copy_")};
  cw_arg args[2] = {{CW_TENSOR_LIST, static_cast<uint32_t>(to.size()), {}},
                    {CW_TENSOR_LIST, static_cast<uint32_t>(from.size()), {}}};
  args[0].v.tensors = to.data();
  args[1].v.tensors = from.data();
  KernelCall lists(call.name, args, 2, call.stream);
  lists.device = call.device;
  return run_foreach(lists, &copy);
}

Kernels foreach_kernels() {
  static const auto& all = *new std::vector<Foreach>(table());  // the list points into it
  Kernels list;
  for (const Foreach& f : all)
    list.push_back(
        {f.name.c_str(), run_foreach, f.op->rule == Rule::Copy ? CW_ALL_DTYPES : kReals, CW_TAKES_NUMBERS, &f});
  return list;
}

}  // namespace causeway::portable
