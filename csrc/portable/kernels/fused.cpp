// Steps of optimizers and of mixed precision over lists of tensors: as many tensors a launch as a function has
// parameters for.
// What is put together here, and is in no .cl: the tensors of a launch, which are parameters one by one.
#include <algorithm>

#include "portable/lists.h"
#include "portable/program.h"

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

// `text` for each element of each list of tensors; in it $0, $1 .. are elements of the lists, $$0 .. = stores one, and
// $k is the number of the tensor. `more` pointers and numbers are left for the caller.
cw_status over_lists(KernelCall& call, const char* name, const std::vector<List*>& tensors, std::string text,
                     size_t more, double cost,
                     const std::function<cw_status(Program&, size_t from, size_t count)>& begin) {
  const List& first = *tensors[0];
  const size_t most = most_tensors(tensors.size(), 0, more);
  const auto replace = [&](const std::string& what, const std::string& with) {
    for (size_t at; (at = text.find(what)) != std::string::npos;) text.replace(at, what.size(), with);
  };
  replace("$k", "k_");
  for (size_t l = 0; l < tensors.size(); ++l) {
    const std::string L = std::to_string(l);
    replace("$$" + L + "(", "t" + L + "_set(i, ");
    replace("$" + L, "t" + L + "(i)");
  }
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

// What the gradient is before the step: unscaled, turned around.
std::string gradient(const KernelCall& call, int scale, bool maximize, bool keep) {
  std::string text = "T g = $1;\n";
  if (!call.is_none(scale)) text += std::string("g = g / grad_scale;\n") + (keep ? "$$1(g);\n" : "");
  return text + (maximize ? "g = -g;\n" : "");
}

cw_status add_amp(Program& p, const KernelCall& call, int scale, Dtype type, std::string* found) {
  if (!call.is_none(scale) && !add_scalar(p, call, scale, "grad_scale", type)) return CW_UNSUPPORTED;
  if (!call.is_none(scale + 1)) {
    if (!add_scalar(p, call, scale + 1, "found_inf", type)) return CW_UNSUPPORTED;
    *found = "if (found_inf != (T)0) continue;\n";
  }
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
  std::string text = gradient(call, 13, call.integer(12) != 0, true);
  text += "T w = $0, m = $2, v = $3;\n";
  if (decay != 0) text += decoupled ? "w = w * ((T)1 - lr * decay);\n" : "g = g + w * decay;\n";
  text += "m = m + (g - m) * rest1; v = v * beta2 + rest2 * g * g;\n$$2(m); $$3(v);\n";
  if (amsgrad) text += "v = MAXIMUM($4, v); $$4(v);\n";
  text += "$$0(w - corrections(2 * $k) * m / (sqrt(v) / corrections(2 * $k + 1) + eps));\n";
  std::vector<List*> lists = {&params, &grads, &means, &squares};
  if (amsgrad) lists.push_back(&largest);
  // `continue` leaves out one element; all are looked at where the step is to be left out, which is rare.
  std::string found;
  {
    Program probe(call, "probe");
    TRY(add_amp(probe, call, 13, type, &found));
  }
  return over_lists(call, "adam", lists, found + text, 12, 30, [&](Program& p, size_t from, size_t count) -> cw_status {
    void* corrections = nullptr;  // of each tensor: lr / (1 - beta1^step), sqrt(1 - beta2^step)
    const size_t made = tensors_of(count, Launch::kMost / 2);
    TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(made * 2 * size_of(type)), &corrections));
    Program prepare(call, "adam_corrections");
    prepare.define("T", name_of(exact)).out("c", corrections, type);
    prepare.real("beta1", call.real(7), exact).real("beta2", call.real(8), exact);
    if (!add_scalar(prepare, call, 6, "lr", exact)) return CW_UNSUPPORTED;
    std::string body;
    for (size_t k = 0; k < made; ++k) {
      const std::string K = std::to_string(k);
      const Tensor& step = steps[from + std::min(k, count - 1)];
      prepare.in("s" + K, step.data, step.dtype);
      body += "{ const T s = s" + K + "(0); c_set(2 * " + K + ", lr / ((T)1 - pow(beta1, s))); c_set(2 * " + K +
              " + 1, sqrt((T)1 - pow(beta2, s))); }\n";
    }
    TRY(prepare.run(1, body, 10));
    p.define("T", type_name(params)).in("corrections", corrections, type);
    if (!add_scalar(p, call, 6, "lr", type)) return CW_UNSUPPORTED;
    p.real("rest1", 1 - call.real(7), type).real("beta2", call.real(8), type).real("rest2", 1 - call.real(8), type);
    p.real("decay", decay, type).real("eps", call.real(10), type);
    return add_amp(p, call, 13, type, &found);
  });
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
  std::string text = gradient(call, 10, call.integer(8) != 0, true);
  text += "const T w = $0;\n";
  if (call.real(3) != 0) text += "g = g + w * decay;\n";
  if (momentum != 0) {
    text += call.integer(9) ? "const T b = g;\n" : "const T b = momentum * $2 + rest * g;\n";
    text += std::string("$$2(b);\n") + (call.integer(7) ? "g = g + momentum * b;\n" : "g = b;\n");
  }
  text += "$$0(w - lr * g);\n";
  std::vector<List*> lists = {&params, &grads};
  if (momentum != 0) lists.push_back(&buffers);
  std::string found;
  {
    Program probe(call, "probe");
    TRY(add_amp(probe, call, 10, type, &found));
  }
  return over_lists(call, "sgd", lists, found + text, 10, 10, [&](Program& p, size_t, size_t) -> cw_status {
    p.define("T", type_name(params)).real("decay", call.real(3), type).real("momentum", momentum, type);
    p.real("rest", 1 - call.real(6), type);
    if (!add_scalar(p, call, 5, "lr", type)) return CW_UNSUPPORTED;
    return add_amp(p, call, 10, type, &found);
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
  std::string text = gradient(call, 9, call.integer(8) != 0, true);
  text += "const T w = $0;\n";
  if (call.real(6) != 0) text += "g = g + w * decay;\n";
  text +=
      "const T s = $2 + g * g;\n$$2(s);\n$$0(w - lr / ((T)1 + ((T)t3(0) - (T)1) * slower) * g / (sqrt(s) + "
      "eps));\n";
  std::string found;
  {
    Program probe(call, "probe");
    TRY(add_amp(probe, call, 9, type, &found));
  }
  std::vector<List*> lists = {&params, &grads, &sums, &steps};
  return over_lists(call, "adagrad", lists, found + text, 10, 20, [&](Program& p, size_t, size_t) -> cw_status {
    p.define("T", type_name(params)).real("decay", call.real(6), type).real("slower", call.real(5), type);
    p.real("eps", call.real(7), type);
    if (!add_scalar(p, call, 4, "lr", type)) return CW_UNSUPPORTED;
    return add_amp(p, call, 9, type, &found);
  });
}

// grads, found_inf, inv_scale
cw_status unscale(KernelCall& call, const void*) {
  List grads;
  Tensor found, inverse;
  if (!read_list(call, 0, &grads) || !call.tensor(1, &found) || !call.tensor(2, &inverse) || found.numel() != 1 ||
      inverse.numel() != 1)
    return CW_UNSUPPORTED;
  if (grads.empty()) return CW_OK;
  return over_lists(call, "unscale", {&grads},
                    "const T g = $0;\nif (g - g != g - g) found_set(0, 1);\n$$0(g * by(0));\n", 8, 4,
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
  return p.run(
      1,
      "if (found(0) != 0) { scale_set(0, (f32)(scale(0) * backoff)); tracker_set(0, 0); continue; }\n"
      "const i32 successful = tracker(0) + 1;\nif (successful < interval) { tracker_set(0, successful); continue; }\n"
      "const f32 grown = (f32)(scale(0) * growth);\nif (grown - grown == grown - grown) scale_set(0, grown);\n"
      "tracker_set(0, 0);",
      10);
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
