// Connectionist temporal classification (Graves et al. 2006, https://www.cs.toronto.edu/~graves/icml_2006.pdf): the
// likelihood of a sequence of labels, over all its alignments with the frames, and its gradient. A sample is one item's.
#include <algorithm>
#include <cmath>

#include "portable/kernels/functions.h"
#include "portable/program.h"
#include "portable/kernels/ctc.cl.h"

namespace causeway::portable {

namespace {

// What both directions are given.
struct Sequences {
  Tensor log_probs, targets;  // frames x samples x classes; samples x labels, or all labels one after the other
  std::vector<int64_t> frames, labels;  // of each sample
  int64_t blank = 0, most = 0;  // `most` labels

  int64_t samples() const { return log_probs.shape[1]; }
  int64_t states() const { return 2 * most + 1; }  // a blank before, between and after the labels
};

// False: the host raises the error. `at` is the place of log_probs among the arguments.
bool read(KernelCall& call, int at, int blank_at, Sequences* s) {
  if (!call.tensor(at, &s->log_probs) || !call.tensor(at + 1, &s->targets) || s->log_probs.ndim != 3 ||
      (s->targets.dtype != kI64 && s->targets.dtype != kI32) || (s->log_probs.dtype == kF64 && !has_f64(call)))
    return false;
  s->frames = call.ints(at + 2);
  s->labels = call.ints(at + 3);
  s->blank = call.integer(blank_at);
  const auto samples = static_cast<size_t>(s->samples());
  if (s->frames.size() != samples || s->labels.size() != samples || samples == 0 || s->blank < 0 ||
      s->blank >= s->log_probs.shape[2])
    return false;
  int64_t all = 0;
  for (size_t i = 0; i < samples; ++i) {
    if (s->frames[i] < 0 || s->frames[i] > s->log_probs.shape[0] || s->labels[i] < 0) return false;
    all += s->labels[i];
    s->most = std::max(s->most, s->labels[i]);
  }
  return s->targets.ndim == 1
             ? s->targets.shape[0] == all
             : s->targets.ndim == 2 && s->targets.shape[0] == s->samples() && s->targets.shape[1] >= s->most;
}

// Onto the device: of each sample its frames, its labels, and where the latter begin.
cw_status put_lengths(KernelCall& call, const Sequences& s, void** lengths) {
  constexpr int64_t kTogether = 16;
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(s.samples() * 3 * 8), lengths));
  int64_t start = 0;
  for (int64_t first = 0; first < s.samples(); first += kTogether) {
    Program p(call, "ctc_lengths");
    p.out("lengths", *lengths, kI64).value("first", first);
    std::string each;
    for (int64_t i = 0; i < std::min(kTogether, s.samples() - first); ++i) {
      const auto sample = static_cast<size_t>(first + i);
      const std::string I = std::to_string(i);
      const int64_t from = s.targets.ndim == 1 ? start * s.targets.strides[0] : (first + i) * s.targets.strides[0];
      start += s.labels[sample];
      p.value("f" + I, s.frames[sample]).value("l" + I, s.labels[sample]).value("s" + I, from);
      each += "LENGTHS(" + I + ") ";
    }
    TRY(p.define("EACH", each).run(1, texts::ctc::lengths, 10));
  }
  return CW_OK;
}

// What an item needs beside: of each state its class, whether an alignment may come to it past a blank, its log_prob in
// this frame; and two rows of states, with two that no alignment reaches before or after them.
struct Workspace {
  void *lengths = nullptr, *classes = nullptr, *floats = nullptr;
};

cw_status make(KernelCall& call, const Sequences& s, Workspace* work) {
  TRY(put_lengths(call, s, &work->lengths));
  const auto states = static_cast<uint64_t>(s.samples() * (s.states() + 2));
  TRY(scratch(*call.device, call.stream, states * 8, &work->classes));
  return scratch(*call.device, call.stream, states * 4 * static_cast<uint64_t>(size_of(s.log_probs.dtype)),
                 &work->floats);
}

Program& with(Program& p, const Sequences& s, const Workspace& work) {
  const Dtype type = s.log_probs.dtype;
  p.define("T", name_of(type)).in("lp", s.log_probs).in("target", s.targets).in("lengths", work.lengths, kI64);
  p.out("cls", work.classes, kI64).out("w", work.floats, type);
  p.value("blank", s.blank).value("classes", s.log_probs.shape[2]).value("most", s.log_probs.shape[0]);
  p.value("states", s.states()).value("step", s.targets.strides[s.targets.ndim - 1]);
  p.before(texts::ctc::memory);
  const std::string log_sum = texts::ctc::log_sum;
  p.define("EXP(v)", type == kF32 ? "exp_f32(v)" : "exp(v)");
  return p.before((type == kF32 ? functions_of(log_sum) : "") + log_sum);
}

double cost_of(const Sequences& s) { return static_cast<double>(s.log_probs.shape[0] * s.states()) * 60; }

// neg_log_likelihood, log_alpha, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity
cw_status forward(KernelCall& call, const void*) {
  Sequences s;
  Workspace work;
  Tensor likelihood, alpha;
  if (!read(call, 2, 6, &s) || !call.tensor(0, &likelihood) || !call.tensor(1, &alpha) || !alpha.contiguous() ||
      alpha.numel() != s.samples() * s.log_probs.shape[0] * s.states() || likelihood.dtype != s.log_probs.dtype)
    return CW_UNSUPPORTED;
  TRY(make(call, s, &work));
  TRY(fill_with(call, alpha, {kF64, -INFINITY, 0}));  // what no alignment reaches
  Program p(call, "ctc_loss");
  with(p, s, work).out("nll", likelihood).out("alpha", alpha.data, alpha.dtype).tells();
  return p.run(s.samples(), std::string(texts::ctc::sample) + texts::ctc::alpha, cost_of(s));
}

// out, grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity
cw_status backward(KernelCall& call, const void*) {
  Sequences s;
  Workspace work;
  Tensor out, grad, likelihood, alpha;
  if (!call.tensor(0, &out) || !call.tensor(1, &grad) || !read(call, 2, 8, &s) || !call.tensor(6, &likelihood) ||
      !call.tensor(7, &alpha) || grad.ndim != 1 || !alpha.contiguous() || alpha.ndim != 3 ||
      alpha.shape[2] != s.states() || out.dtype != s.log_probs.dtype)
    return CW_UNSUPPORTED;
  TRY(make(call, s, &work));
  TRY(fill_with(call, out, {kF64, -INFINITY, 0}));
  Program beta(call, "ctc_loss_beta");
  with(beta, s, work).in("alpha", alpha.data, alpha.dtype).out("out", out).tells();
  TRY(beta.run(s.samples(), std::string(texts::ctc::sample) + texts::ctc::beta, 2 * cost_of(s)));
  Program p(call, "ctc_loss_gradient");
  p.out("out", out).in("lp", s.log_probs).in("grad", grad).in("nll", likelihood).in("lengths", work.lengths, kI64);
  p.define("T", name_of(out.dtype)).define("EXP(v)", out.dtype == kF32 ? "exp_f32(v)" : "exp(v)");
  p.value("zero_infinity", call.integer(9));
  return p.each(out, texts::ctc::gradient, 60);
}

}  // namespace

Kernels ctc_kernels() {
  constexpr cw_dtypes floats = CW_FLOAT32 | CW_FLOAT64;
  return {{"aten::_ctc_loss.out", forward, floats | CW_INT32 | CW_INT64, 0},
          {"aten::_ctc_loss_backward.out", backward, floats | CW_INT32 | CW_INT64, 0}};
}

}  // namespace causeway::portable
