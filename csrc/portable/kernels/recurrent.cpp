// Steps of recurrent layers, what follows the product of the hidden state: causeway::lstm_step, gru_step and their
// gradients. Their arithmetic is defined in aten/rnn.cpp.
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

}  // namespace

Kernels recurrent_kernels() {
  constexpr cw_dtypes floats = CW_FLOAT32 | CW_FLOAT64;
  return {{"causeway::lstm_step", lstm, floats, CW_NEEDS_CONTIGUOUS},
          {"causeway::lstm_step_backward", lstm_backward, floats, CW_NEEDS_CONTIGUOUS},
          {"causeway::gru_step", gru, floats, CW_NEEDS_CONTIGUOUS},
          {"causeway::gru_step_backward", gru_backward, floats, CW_NEEDS_CONTIGUOUS}};
}

}  // namespace causeway::portable
