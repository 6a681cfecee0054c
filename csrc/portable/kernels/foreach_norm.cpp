// One number of each tensor of a list: norms, sums of powers, the largest. Blocks first, each with a number of its own in
// the workspace, then the blocks of each tensor. Sums are in float64 where the device has it, as in reduce.cpp.
// What is put together here, and is in no .cl: the tensors of a launch, which are parameters one by one.
#include <algorithm>
#include <cmath>

#include "portable/lists.h"
#include "portable/program.h"
#include "portable/kernels/foreach_norm.cl.h"

namespace causeway::portable {

namespace {

// Expressions of the accumulator's type A: of `acc` and an element `v`, of two accumulators, of the whole. The largest
// begins with an element, `first`; all others with `start`.
struct Fold {
  std::string start, step, merge, finish;
};

bool fold_of(const Number& order, bool root, Dtype out, Fold* fold) {
  const double p = order.real();
  const std::string size = "const A m = v < 0 ? -v : v; ", sum = "acc + w";
  // A sum that torch keeps in float32 has no more range here.
  const std::string whole = out == kF64 ? "acc" : "(A)(f32)acc";
  if (p != p) return false;
  if (std::isinf(p)) {
    if (!root) return false;
    const std::string name = p > 0 ? "MAXIMUM" : "MINIMUM";
    *fold = {p > 0 ? "0" : "INFINITY", size + "acc = " + name + "(m, acc);", name + "(w, acc)", "acc"};
  } else if (p == 0) {
    *fold = {"0", "acc += (A)(v != 0);", sum, "acc"};
  } else if (p == 1) {
    *fold = {"0", size + "acc += m;", sum, whole};
  } else if (p == 2) {
    *fold = {"0", "acc += v * v;", sum, root ? "sqrt(" + whole + ")" : whole};
  } else {
    *fold = {"0", size + "acc += pow(m, (A)order);", sum, root ? "pow(" + whole + ", (A)1 / (A)order)" : whole};
  }
  return true;
}

// What a text of it is specialised on: a fold of elements, or of accumulators.
void define_fold(Program& p, const Fold& fold, const std::string& load, bool merging) {
  p.define("START", fold.start == "first" ? "(A)" + load + "(from_)" : fold.start);
  p.define("LOADED(i)", "(A)" + load + "(i)").define("MERGED", fold.merge);
  p.define("ONE_MORE", merging ? "const A w = v; acc = " + fold.merge + ";" : fold.step);
}

// A loop over the numbers u_ below `count`, one for a group on a GPU.
std::string each_number(const Device& device, const std::string& count, const std::string& body,
                        const std::string& store) {
  if (device.in_turn())
    return "for (idx u_ = FIRST(" + count + "), last_ = LAST(" + count + "); u_ < last_; ++u_) {\n" + body + store +
           "}\n";
  return "LOCAL A tree_[256];\nfor (idx u_ = GROUP; u_ < " + count + "; u_ += GROUPS) {\n" + body +
         "if (LANE == 0) { " + store + " }\nBARRIER;\n}\n";
}

// `out` of `in`, all of the same dtypes and dense.
cw_status run_folds(KernelCall& call, const Fold& fold, Dtype acc, double order, const std::vector<Tensor>& out,
                    const std::vector<Tensor>& in) {
  const Device& device = *call.device;
  const size_t most = most_tensors(2, 0, 4);
  const std::string A = acc == kBool ? "u8" : name_of(acc);
  for (size_t from = 0, had; from < in.size(); from += had) {
    had = std::min(most, in.size() - from);
    Lists lists{tensors_of(had, most), device.in_turn() ? 4096 : 64 * int64_t{lanes_of(device)}, {}};
    int64_t blocks = 0, elements = 0;
    for (size_t k = from; k < from + had; ++k) {
      elements += in[k].numel();
      blocks += (in[k].numel() + lists.block - 1) / lists.block;
    }
    void* partial = nullptr;
    TRY(scratch(device, call.stream, static_cast<uint64_t>(std::max<int64_t>(blocks, 1) * size_of(acc)), &partial));
    const auto prepare = [&](Program& p, const std::vector<Tensor>& tensors, const std::string& name, bool written) {
      p.define("A", A).number("order", {kF64, order, 0}, acc == kF32 ? kF32 : has_f64(call) ? kF64 : kF32);
      const Dtype dtype = tensors[0].dtype;
      const std::string d = name_of(dtype);
      lists.picked = {{std::string(written ? "GLOBAL " : "GLOBAL const ") + storage_of(dtype) + "*", name, "_p"}};
      for (size_t k = 0; k < lists.count; ++k) {
        const char* data = tensors[k < had ? from + k : from].data;
        const std::string parameter = name + "_" + std::to_string(k);
        written ? p.out(parameter, data, dtype) : p.in(parameter, data, dtype);
        p.value("size_" + std::to_string(k), k < had ? in[from + k].numel() : 0);
      }
      p.define(name + "(i_)", "LD_" + d + "(" + name + "_p, i_)");
      if (written) p.define(name + "_set(i_, v_)", "ST_" + d + "(" + name + "_p, i_, v_)");
    };
    if (blocks) {
      Program p(call, "foreach_fold");
      prepare(p, in, "x", false);
      p.out("partial", partial, acc).value("blocks_", blocks);
      define_fold(p, fold, "x", false);
      TRY(p.as_is(
          each_number(device, "blocks_", find_block(lists) + texts::foreach_norm::fold, "partial_set(u_, acc);\n"),
          [&](Launch& launch, cw_function function) {
            return run_blocks(call, launch, function, blocks,
                              4.0 * static_cast<double>(elements) / static_cast<double>(blocks));
          }));
    }
    Program p(call, "foreach_unfold");
    prepare(p, out, "y", true);
    p.in("partial", partial, acc).value("count_", static_cast<int64_t>(had));
    define_fold(p, fold, "partial", true);
    TRY(p.as_is(each_number(device, "count_", find_tensor(lists) + texts::foreach_norm::fold,
                            "y_set(0, (" + fold.finish + "));\n"),
                [&](Launch& launch, cw_function function) {
                  return run_blocks(call, launch, function, static_cast<int64_t>(had),
                                    4.0 * static_cast<double>(blocks) / static_cast<double>(had) + 10);
                }));
  }
  return CW_OK;
}

// Tensors that are not dense, or of several dtypes, are torch's to take apart.
bool read_lists(const KernelCall& call, std::vector<Tensor>* out, std::vector<Tensor>* in, cw_dtypes dtypes) {
  for (int i = 0; i < 2; ++i) {
    auto& list = i ? *in : *out;
    const uint32_t count = call.tag(i) == CW_TENSOR_LIST ? call.arg(i).n : call.tag(i) == CW_TENSOR ? 1 : 0;
    for (uint32_t k = 0; k < count; ++k) {
      Tensor t;
      if (!call.read(call.tag(i) == CW_TENSOR ? call.arg(i).v.tensor : call.arg(i).v.tensors[k], &t)) return false;
      if (!(dtypes >> t.dtype & 1) || !t.in_one_piece() || (t.dtype == kF64 && !has_f64(call))) return false;
      if (!list.empty() && t.dtype != list[0].dtype) return false;
      if (!i && t.numel() != 1) return false;
      list.push_back(t);
    }
  }
  return !in->empty() && in->size() == out->size();
}

enum Kind : int { kNorms, kPowers };
constexpr Kind kinds[] = {kNorms, kPowers};

// out, self, ord, dtype; of one tensor: out, self, ord, dim, keepdim, dtype
cw_status norms(KernelCall& call, const void* data) {
  std::vector<Tensor> out, in;
  Number order;
  Fold fold;
  if (!read_lists(call, &out, &in, kFloats) || !call.number(2, &order)) return CW_UNSUPPORTED;
  const bool root = *static_cast<const Kind*>(data) == kNorms;
  const Dtype acc = has_f64(call) ? kF64 : kF32;
  // The norm of one element is its absolute value, of which a power may not be held.
  const auto one = [&](const Tensor& t) { return root && order.real() != 0 && t.numel() == 1; };
  std::vector<Tensor> ones_out, ones_in, rest_out, rest_in;
  for (size_t k = 0; k < in.size(); ++k) {
    (one(in[k]) ? ones_out : rest_out).push_back(out[k]);
    (one(in[k]) ? ones_in : rest_in).push_back(in[k]);
  }
  if (!fold_of(order, root, out[0].dtype, &fold)) return CW_UNSUPPORTED;
  if (!rest_in.empty()) TRY(run_folds(call, fold, acc, order.real(), rest_out, rest_in));
  if (ones_in.empty()) return CW_OK;
  if (!fold_of({kI64, 0, 1}, root, out[0].dtype, &fold)) return CW_UNSUPPORTED;
  return run_folds(call, fold, acc, 1, ones_out, ones_in);
}

// out, self
cw_status largest(KernelCall& call, const void*) {
  std::vector<Tensor> out, in;
  if (!read_lists(call, &out, &in, kReals) || out[0].dtype != in[0].dtype) return CW_UNSUPPORTED;
  for (const Tensor& t : in)
    if (t.numel() == 0) return CW_UNSUPPORTED;  // torch raises the error
  const Fold fold = {"first", "acc = MAXIMUM(v, acc);", "MAXIMUM(w, acc)", "acc"};
  return run_folds(call, fold, compute_of(in[0].dtype), 0, out, in);
}

}  // namespace

Kernels foreach_norm_kernels() {
  return {{"aten::_foreach_norm.Scalar_out", norms, kFloats, 0, &kinds[kNorms]},
          {"aten::_foreach_powsum.Scalar_out", norms, kFloats, 0, &kinds[kPowers]},
          {"aten::linalg_vector_norm.out", norms, kFloats, 0, &kinds[kNorms]},
          {"aten::_foreach_max.out", largest, kReals, 0}};
}

}  // namespace causeway::portable
