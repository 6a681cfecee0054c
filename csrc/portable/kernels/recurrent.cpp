// Steps of recurrent layers, what follows the product of the hidden state: causeway::lstm_step, gru_step and their
// gradients. Their arithmetic is defined in aten/rnn.cpp.
#include <algorithm>
#include <initializer_list>

#include "portable/program.h"
#include "portable/kernels/recurrent.cl.h"

namespace causeway::portable {

namespace {

// What a call of a step is given: dense tensors of one dtype, with as many rows as the gates have.
class Step {
 public:
  // The first is the gates, [rows, gates * hidden].
  Step(KernelCall& call, int gates) : call_(call), gates_(gates) {
    Tensor& t = t_[0];
    fits_ = call.tensor(0, &t) && t.contiguous() && t.ndim == 2 && t.shape[1] % gates == 0;
  }
  Step& wide(std::initializer_list<int> which) { return read(which, gates_); }
  Step& narrow(std::initializer_list<int> which) { return read(which, 1); }
  bool has(int i) const { return !call_.is_none(i); }

  const Tensor& operator[](int i) const { return t_[i]; }
  bool fits() const { return fits_; }
  bool empty() const { return t_[0].numel() == 0; }

  // `text` for each row r and place j of a row. Items in turn take rows, whose places become vectors.
  cw_status run(Program& p, const std::string& text, double cost) const {
    const int64_t rows = t_[0].shape[0], hidden = t_[0].shape[1] / gates_;
    const bool single = t_[0].dtype == kF32;
    p.define("T", name_of(t_[0].dtype)).value("hidden", hidden);
    p.define("EXP(v)", single ? "exp_f32(v)" : "exp(v)").define("TANH(v)", single ? "tanh_f32(v)" : "tanh(v)");
    p.before(texts::recurrent::sigmoid);
    if (!call_.device->in_turn())
      return p.run(rows * hidden, "const idx r = u / hidden, j = u - r * hidden;" + text, cost);
    return p.run(rows, "const idx r = u;\nINDEPENDENT\nfor (idx j = 0; j < hidden; ++j) {" + text + "}\n",
                 cost * static_cast<double>(hidden));
  }

 private:
  Step& read(std::initializer_list<int> which, int times) {
    for (const int i : which) {
      Tensor& t = t_[i];
      fits_ = fits_ && call_.tensor(i, &t) && t.contiguous() && t.ndim == 2 && t.dtype == t_[0].dtype &&
              t.shape[0] == t_[0].shape[0] && t.shape[1] == t_[0].shape[1] / gates_ * times;
    }
    return *this;
  }

  KernelCall& call_;
  const int gates_;
  bool fits_ = false;
  Tensor t_[7];
};

// gates, cx, hy, cy
cw_status lstm(KernelCall& call, const void*) {
  const Step s = Step(call, 4).narrow({1, 2, 3});
  if (!s.fits()) return CW_UNSUPPORTED;
  if (s.empty()) return CW_OK;
  Program p(call, "lstm_step");
  p.out("gates", s[0]).in("cx", s[1]).out("hy", s[2]).out("cy", s[3]);
  return s.run(p, texts::recurrent::lstm, 100);
}

// The gradient of the output, which may be none.
void add_output(Program& p, const Step& s) {
  p.define("HAS_OUTPUT", s.has(3));
  if (s.has(3)) p.in("dout", s[3]);
}

// gates, cx, cy, the gradients of the output (or none), of the hidden state, of the cell, and of the gates
cw_status lstm_backward(KernelCall& call, const void*) {
  Step s = Step(call, 4).narrow({1, 2, 4, 5}).wide({6});
  if (s.has(3)) s.narrow({3});
  if (!s.fits()) return CW_UNSUPPORTED;
  if (s.empty()) return CW_OK;
  Program p(call, "lstm_step_backward");
  p.in("gates", s[0]).in("cx", s[1]).in("cy", s[2]).in("dh", s[4]).out("dc", s[5]).out("to", s[6]);
  add_output(p, s);
  return s.run(p, texts::recurrent::lstm_backward, 60);
}

// gates, the hidden state's, hx, hy, the new gate's hidden part
cw_status gru(KernelCall& call, const void*) {
  const Step s = Step(call, 3).wide({1}).narrow({2, 3, 4});
  if (!s.fits()) return CW_UNSUPPORTED;
  if (s.empty()) return CW_OK;
  Program p(call, "gru_step");
  p.out("gates", s[0]).in("other", s[1]).in("hx", s[2]).out("hy", s[3]).out("hidden_n", s[4]);
  return s.run(p, texts::recurrent::gru, 80);
}

// gates, the new gate's hidden part, hx, the gradients of the output (or none), of the hidden state, and of both gates
cw_status gru_backward(KernelCall& call, const void*) {
  Step s = Step(call, 3).narrow({1, 2, 4}).wide({5, 6});
  if (s.has(3)) s.narrow({3});
  if (!s.fits()) return CW_UNSUPPORTED;
  if (s.empty()) return CW_OK;
  Program p(call, "gru_step_backward");
  p.in("gates", s[0]).in("hidden_n", s[1]).in("hx", s[2]).out("dh", s[4]).out("to", s[5]).out("other", s[6]);
  add_output(p, s);
  return s.run(p, texts::recurrent::gru_backward, 40);
}

// ---- all steps at once -----------------------------------------------------------------------------------------------------

constexpr int64_t kLanes = 16;  // columns of a panel of the weights

// [depth, columns] at `row` and `column`, as panels of kLanes columns: [columns / kLanes, depth, kLanes].
cw_status pack(KernelCall& call, const Tensor& weight, int row, int column, void** panels) {
  const int64_t depth = weight.shape[row], columns = weight.shape[column];
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(depth * columns * 4), panels));
  Program p(call, "lstm_panels");
  p.out("to", *panels, kF32).in("w", weight.data, kF32);
  p.value("depth", depth).value("by_row", weight.strides[row]).value("by_column", weight.strides[column]);
  return p.run(columns / kLanes, texts::recurrent::panels, static_cast<double>(depth * kLanes) * 2);
}

// What both directions have: items that each take some rows of the batch through all steps.
cw_status run_steps(KernelCall& call, Program& p, const char* text, int64_t steps, int64_t batch, int64_t hidden,
                    bool reverse) {
  const int64_t units = std::max<int64_t>(1, call.device->info.compute_units);
  int64_t rows = 1;
  while (rows < 8 && rows * units < batch) rows *= 2;
  const bool open_cl = call.device->info.language == CW_CODE_OPENCL_C;
  p.define("ROWS", rows).define("REVERSE", reverse).define("T", "f32");
  p.define("EXP(v)", "exp_f32(v)").define("TANH(v)", "tanh_f32(v)").before(texts::recurrent::sigmoid);
  p.before(open_cl ? texts::recurrent::vectors_open_cl : texts::recurrent::vectors_c);
  p.value("steps", steps).value("batch", batch).value("hidden", hidden);
  return p.run((batch + rows - 1) / rows, text, static_cast<double>(steps * rows * hidden * hidden) * 8);
}

bool is_dense(KernelCall& call, int i, int ndim, Tensor* t) {
  return call.tensor(i, t) && t->contiguous() && t->ndim == ndim && t->dtype == kF32;
}

bool same_shape(const Tensor& t, int64_t a, int64_t b) { return t.shape[0] == a && t.shape[1] == b; }
bool same_shape(const Tensor& t, int64_t a, int64_t b, int64_t c) { return same_shape(t, a, b) && t.shape[2] == c; }

// gates, of_hidden, hx, cx, output, cells, reverse
cw_status lstm_steps(KernelCall& call, const void*) {
  Tensor gates, weight, hx, cx, output, cells;
  if (!call.device->in_turn() || !is_dense(call, 0, 3, &gates) || !is_dense(call, 1, 2, &weight) ||
      !is_dense(call, 2, 2, &hx) || !is_dense(call, 3, 2, &cx) || !is_dense(call, 4, 3, &output) ||
      !is_dense(call, 5, 3, &cells))
    return CW_UNSUPPORTED;
  const int64_t steps = gates.shape[0], batch = gates.shape[1], hidden = hx.shape[1];
  if (hidden % kLanes != 0 || gates.shape[2] != 4 * hidden || !same_shape(weight, 4 * hidden, hidden) ||
      !same_shape(hx, batch, hidden) || !same_shape(cx, batch, hidden) || !same_shape(output, steps, batch, hidden) ||
      !same_shape(cells, steps, batch, hidden))
    return CW_UNSUPPORTED;
  if (gates.numel() == 0) return CW_OK;
  void* panels = nullptr;
  TRY(pack(call, weight, 1, 0, &panels));
  Program p(call, "lstm_steps");
  p.out("gates", gates.data, kF32).in("weight", panels, kF32).in("hx", hx.data, kF32).in("cx", cx.data, kF32);
  p.out("hy", output.data, kF32).out("cy", cells.data, kF32);
  return run_steps(call, p, texts::recurrent::steps, steps, batch, hidden, call.integer(6) != 0);
}

// gates, of_hidden, cx, cells, the gradients of the output (or none), of the hidden state, of the cell and of the gates; reverse
cw_status lstm_steps_backward(KernelCall& call, const void*) {
  Tensor gates, weight, cx, cells, output, h, c, to;
  const bool has_output = !call.is_none(4);
  if (!call.device->in_turn() || !is_dense(call, 0, 3, &gates) || !is_dense(call, 1, 2, &weight) ||
      !is_dense(call, 2, 2, &cx) || !is_dense(call, 3, 3, &cells) || (has_output && !is_dense(call, 4, 3, &output)) ||
      !is_dense(call, 5, 2, &h) || !is_dense(call, 6, 2, &c) || !is_dense(call, 7, 3, &to))
    return CW_UNSUPPORTED;
  const int64_t steps = gates.shape[0], batch = gates.shape[1], hidden = cx.shape[1];
  if (hidden % kLanes != 0 || gates.shape[2] != 4 * hidden || !same_shape(weight, 4 * hidden, hidden) ||
      !same_shape(cx, batch, hidden) || !same_shape(h, batch, hidden) || !same_shape(c, batch, hidden) ||
      !same_shape(cells, steps, batch, hidden) || !same_shape(to, steps, batch, 4 * hidden) ||
      (has_output && !same_shape(output, steps, batch, hidden)))
    return CW_UNSUPPORTED;
  if (gates.numel() == 0) return CW_OK;
  void* panels = nullptr;
  TRY(pack(call, weight, 0, 1, &panels));
  Program p(call, "lstm_steps_backward");
  p.in("gates", gates.data, kF32).in("weight", panels, kF32).in("cx", cx.data, kF32).in("cy", cells.data, kF32);
  p.define("HAS_OUTPUT", has_output);
  if (has_output) p.in("dout", output.data, kF32);
  p.out("dh", h.data, kF32).out("dc", c.data, kF32).out("to", to.data, kF32);
  return run_steps(call, p, texts::recurrent::steps_backward, steps, batch, hidden, call.integer(8) != 0);
}

}  // namespace

Kernels recurrent_kernels() {
  constexpr cw_dtypes floats = CW_FLOAT32 | CW_FLOAT64;
  return {{"causeway::lstm_steps", lstm_steps, CW_FLOAT32, CW_NEEDS_CONTIGUOUS},
          {"causeway::lstm_steps_backward", lstm_steps_backward, CW_FLOAT32, CW_NEEDS_CONTIGUOUS},
          {"causeway::lstm_step", lstm, floats, CW_NEEDS_CONTIGUOUS},
          {"causeway::lstm_step_backward", lstm_backward, floats, CW_NEEDS_CONTIGUOUS},
          {"causeway::gru_step", gru, floats, CW_NEEDS_CONTIGUOUS},
          {"causeway::gru_step_backward", gru_backward, floats, CW_NEEDS_CONTIGUOUS}};
}

}  // namespace causeway::portable
