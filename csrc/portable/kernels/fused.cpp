// Steps of optimizers and of mixed precision over lists of tensors: as many tensors a launch as a function has
// parameters for.
// What is put together here, and is in no .cl: the tensors of a launch, which are parameters one by one.
#include <algorithm>

#include "portable/lists.h"
#include "portable/program.h"
#include "portable/kernels/fused.cl.h"

namespace causeway::portable {

namespace {

using List = std::vector<Tensor>;

// Dense tensors of one dtype, all of `like`'s sizes where there is one.
bool read_list(const KernelCall& call, int i, List* out, const List* like = nullptr) {
  if (call.tag(i) != CW_TENSOR_LIST) return false;
  const cw_arg& list = call.arg(i);
  for (uint32_t k = 0; k < list.n; ++k) {
    Tensor t;
    if (!call.read(list.v.tensors[k], &t) || !t.contiguous() || !is_float(t.dtype)) return false;
    if (!out->empty() && t.dtype != out->front().dtype) return false;
    if (like && (k >= like->size() || t.numel() != (*like)[k].numel() || t.dtype != (*like)[k].dtype)) return false;
    out->push_back(t);
  }
  return !like || out->size() == like->size();
}

// A number, or a tensor that has it, as text called `name` of type T.
bool add_scalar(Program& p, const KernelCall& call, int i, const char* name, Dtype type) {
  Tensor t;
  Number n;
  if (call.number(i, &n)) return p.real(name, n.real(), type), true;
  if (!call.tensor(i, &t) || t.numel() != 1) return false;
  p.in(std::string(name) + "_t", t.data, t.dtype).define(name, "((T)" + std::string(name) + "_t(0))");
  return true;
}

// `text` for each element of each list of tensors. `more` pointers and numbers are left for the caller.
cw_status over_lists(KernelCall& call, const char* name, const std::vector<List*>& tensors, const char* text,
                     size_t more, double cost,
                     const std::function<cw_status(Program&, size_t from, size_t count)>& begin) {
  const List& first = *tensors[0];
  const size_t most = most_tensors(tensors.size(), 0, more);
  for (size_t from = 0, had; from < first.size(); from += had) {
    had = std::min(most, first.size() - from);
    Program p(call, name);
    TRY(begin(p, from, had));
    Lists lists{tensors_of(had, most), block_of(*call.device), {}};
    int64_t blocks = 0, elements = 0;
    for (size_t l = 0; l < tensors.size(); ++l) {
      const Dtype dtype = (*tensors[l])[0].dtype;
      const std::string t = "t" + std::to_string(l), d = name_of(dtype);
      lists.picked.push_back({std::string("GLOBAL ") + storage_of(dtype) + "*", t, "_p"});
      for (size_t k = 0; k < lists.count; ++k)
        p.out(t + "_" + std::to_string(k), (*tensors[l])[k < had ? from + k : from].data, dtype);
      p.define(t + "(i_)", "LD_" + d + "(" + t + "_p, i_)")
          .define(t + "_set(i_, v_)", "ST_" + d + "(" + t + "_p, i_, v_)");
    }
    for (size_t k = 0; k < lists.count; ++k) {
      const int64_t size = k < had ? first[from + k].numel() : 0;
      p.value("size_" + std::to_string(k), size);
      elements += size;
      blocks += (size + lists.block - 1) / lists.block;
    }
    if (blocks == 0) continue;
    p.value("blocks_", blocks);
    TRY(p.as_is(each_block(*call.device, lists, text), [&](Launch& launch, cw_function function) {
      return run_blocks(call, launch, function, blocks,
                        cost * static_cast<double>(elements) / static_cast<double>(blocks));
    }));
  }
  return CW_OK;
}

const char* type_name(const List& list) { return name_of(compute_of(list.front().dtype)); }

// Whether add_amp takes them.
bool takes_amp(const KernelCall& call, int scale) {
  for (int i = scale; i < scale + 2; ++i) {
    Tensor t;
    Number n;
    if (!call.is_none(i) && !call.number(i, &n) && (!call.tensor(i, &t) || t.numel() != 1)) return false;
  }
  return true;
}

// grad_scale and found_inf, arguments `scale` and the next, and GRADIENT.
cw_status add_amp(Program& p, const KernelCall& call, int scale, bool maximize, Dtype type) {
  const bool scaled = !call.is_none(scale), finds = !call.is_none(scale + 1);
  if (scaled && !add_scalar(p, call, scale, "grad_scale", type)) return CW_UNSUPPORTED;
  if (finds && !add_scalar(p, call, scale + 1, "found_inf", type)) return CW_UNSUPPORTED;
  p.specialise(static_cast<uint64_t>(scaled) | static_cast<uint64_t>(finds) << 1 | static_cast<uint64_t>(maximize) << 2,
               [=](Source& s) {
                 s.define("SCALED", scaled).define("FINDS", finds).define("MAXIMIZES", maximize);
                 s.before(texts::fused::gradient);
               });
  return CW_OK;
}

// params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize,
// grad_scale, found_inf (Loshchilov and Hutter, 2019, where the weight decays by itself)
cw_status adam(KernelCall& call, const void* data) {
  const bool decoupled = data != nullptr;
  List params, grads, means, squares, largest, steps;
  if (!read_list(call, 0, &params)) return CW_UNSUPPORTED;
  if (params.empty()) return CW_OK;
  const bool amsgrad = call.integer(11) != 0;
  if (!read_list(call, 1, &grads, &params) || !read_list(call, 2, &means, &params) ||
      !read_list(call, 3, &squares, &params) || (amsgrad && !read_list(call, 4, &largest, &params)) ||
      !read_list(call, 5, &steps) || steps.size() != params.size())
    return CW_UNSUPPORTED;
  const Dtype type = compute_of(params.front().dtype), exact = has_f64(call) ? kF64 : kF32;
  const double decay = call.real(9);
  std::vector<List*> lists = {&params, &grads, &means, &squares};
  if (amsgrad) lists.push_back(&largest);
  if (!takes_amp(call, 13)) return CW_UNSUPPORTED;
  const auto begin = [&](Program& p, size_t from, size_t count) -> cw_status {
    void* corrections = nullptr;  // of each tensor: lr / (1 - beta1^step), sqrt(1 - beta2^step)
    const size_t made = tensors_of(count, Launch::kMost / 2);
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(made * 2 * size_of(type)), &corrections));
    Program prepare(call, "adam_corrections");
    prepare.define("T", name_of(exact)).out("c", corrections, type);
    prepare.real("beta1", call.real(7), exact).real("beta2", call.real(8), exact);
    if (!add_scalar(prepare, call, 6, "lr", exact)) return CW_UNSUPPORTED;
    std::string each;
    for (size_t k = 0; k < made; ++k) {
      const std::string K = std::to_string(k);
      const Tensor& step = steps[from + std::min(k, count - 1)];
      prepare.in("s" + K, step.data, step.dtype);
      each += "CORRECTED(" + K + ") ";
    }
    TRY(prepare.define("EACH", each).run(1, texts::fused::corrections, 10));
    p.define("T", type_name(params)).in("corrections", corrections, type);
    if (!add_scalar(p, call, 6, "lr", type)) return CW_UNSUPPORTED;
    p.real("rest1", 1 - call.real(7), type).real("beta2", call.real(8), type).real("rest2", 1 - call.real(8), type);
    p.real("decay", decay, type).real("eps", call.real(10), type);
    p.define("DECAYS", decay != 0).define("DECOUPLED", decoupled).define("AMSGRAD", amsgrad);
    return add_amp(p, call, 13, call.integer(12) != 0, type);
  };
  return over_lists(call, "adam", lists, texts::fused::adam, 12, 30, begin);
}

// params, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step, grad_scale,
// found_inf
cw_status sgd(KernelCall& call, const void*) {
  List params, grads, buffers;
  if (!read_list(call, 0, &params)) return CW_UNSUPPORTED;
  if (params.empty()) return CW_OK;
  const double momentum = call.real(4);
  if (!read_list(call, 1, &grads, &params) || (momentum != 0 && !read_list(call, 2, &buffers, &params)))
    return CW_UNSUPPORTED;
  const Dtype type = compute_of(params.front().dtype);
  std::vector<List*> lists = {&params, &grads};
  if (momentum != 0) lists.push_back(&buffers);
  if (!takes_amp(call, 10)) return CW_UNSUPPORTED;
  return over_lists(call, "sgd", lists, texts::fused::sgd, 10, 10, [&](Program& p, size_t, size_t) -> cw_status {
    p.define("T", type_name(params)).real("decay", call.real(3), type).real("momentum", momentum, type);
    p.real("rest", 1 - call.real(6), type);
    if (!add_scalar(p, call, 5, "lr", type)) return CW_UNSUPPORTED;
    p.define("DECAYS", call.real(3) != 0).define("MOMENTUM", momentum != 0).define("FIRST_STEP", call.integer(9) != 0);
    p.define("NESTEROV", call.integer(7) != 0);
    return add_amp(p, call, 10, call.integer(8) != 0, type);
  });
}

// params, grads, sums, steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf (Duchi and others, 2011)
cw_status adagrad(KernelCall& call, const void*) {
  List params, grads, sums, steps;
  if (!read_list(call, 0, &params)) return CW_UNSUPPORTED;
  if (params.empty()) return CW_OK;
  if (!read_list(call, 1, &grads, &params) || !read_list(call, 2, &sums, &params) || !read_list(call, 3, &steps) ||
      steps.size() != params.size())
    return CW_UNSUPPORTED;
  const Dtype type = compute_of(params.front().dtype);
  if (!takes_amp(call, 9)) return CW_UNSUPPORTED;
  std::vector<List*> lists = {&params, &grads, &sums, &steps};
  const auto begin = [&](Program& p, size_t, size_t) -> cw_status {
    p.define("T", type_name(params)).real("decay", call.real(6), type).real("slower", call.real(5), type);
    p.real("eps", call.real(7), type);
    if (!add_scalar(p, call, 4, "lr", type)) return CW_UNSUPPORTED;
    p.define("DECAYS", call.real(6) != 0);
    return add_amp(p, call, 9, call.integer(8) != 0, type);
  };
  return over_lists(call, "adagrad", lists, texts::fused::adagrad, 10, 20, begin);
}

// grads, found_inf, inv_scale
cw_status unscale(KernelCall& call, const void*) {
  List grads;
  Tensor found, inverse;
  if (!read_list(call, 0, &grads) || !call.tensor(1, &found) || !call.tensor(2, &inverse) || found.numel() != 1 ||
      inverse.numel() != 1)
    return CW_UNSUPPORTED;
  if (grads.empty()) return CW_OK;
  return over_lists(call, "unscale", {&grads}, texts::fused::unscale, 8, 4,
                    [&](Program& p, size_t, size_t) -> cw_status {
                      p.define("T", type_name(grads)).out("found", found.data, found.dtype);
                      p.in("by", inverse.data, inverse.dtype);
                      return CW_OK;
                    });
}

// scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval
cw_status update_scale(KernelCall& call, const void*) {
  Tensor scale, tracker, found;
  if (!call.tensor(0, &scale) || !call.tensor(1, &tracker) || !call.tensor(2, &found) || scale.dtype != kF32 ||
      tracker.dtype != kI32 || found.dtype != kF32 || !has_f64(call))
    return CW_UNSUPPORTED;
  Program p(call, "update_scale");
  p.out("scale", scale.data, kF32).out("tracker", tracker.data, kI32).in("found", found.data, kF32);
  p.real("growth", call.real(3), kF64).real("backoff", call.real(4), kF64).value("interval", call.integer(5));
  return p.run(1, texts::fused::update_scale, 10);
}

}  // namespace

Kernels fused_kernels() {
  static const int yes = 1;
  constexpr uint32_t needs = CW_TAKES_NUMBERS;
  return {{"aten::_fused_adam_", adam, kFloats, needs},
          {"aten::_fused_adam_.tensor_lr", adam, kFloats, needs},
          {"aten::_fused_adamw_", adam, kFloats, needs, &yes},
          {"aten::_fused_adamw_.tensor_lr", adam, kFloats, needs, &yes},
          {"aten::_fused_sgd_", sgd, kFloats, needs},
          {"aten::_fused_sgd_.tensor_lr", sgd, kFloats, needs},
          {"aten::_fused_adagrad_", adagrad, kFloats, needs},
          {"aten::_fused_adagrad_.tensor_lr", adagrad, kFloats, needs},
          {"aten::_amp_foreach_non_finite_check_and_unscale_", unscale, kFloats, 0},
          {"aten::_amp_update_scale_", update_scale, CW_FLOAT32 | CW_INT32, 0}};
}

}  // namespace causeway::portable
