// Steps of recurrent layers, what follows the product of the hidden state: causeway::lstm_step and lstm_step_backward.
// Their arithmetic is defined in aten/rnn.cpp.
#include <algorithm>

#include "portable/program.h"

namespace causeway::portable {

namespace {

constexpr const char* kSigmoid = R"(
#define SIGMOID(v) ((T)1 / ((T)1 + EXP(-(v))))
)";

constexpr const char* kStep = R"(
const idx g = r * 4 * hidden + j, at = r * hidden + j;
const T i = SIGMOID(gates_p[g]), f = SIGMOID(gates_p[g + hidden]);
const T n = TANH(gates_p[g + 2 * hidden]), o = SIGMOID(gates_p[g + 3 * hidden]);
const T c = f * cx_p[at] + i * n;
gates_p[g] = i, gates_p[g + hidden] = f, gates_p[g + 2 * hidden] = n, gates_p[g + 3 * hidden] = o;
cy_p[at] = c;
hy_p[at] = o * TANH(c);
)";

constexpr const char* kBackward = R"(
const idx g = r * 4 * hidden + j, at = r * hidden + j;
const T i = gates_p[g], f = gates_p[g + hidden], n = gates_p[g + 2 * hidden], o = gates_p[g + 3 * hidden];
const T t = TANH(cy_p[at]);
T dh = dh_p[at];
#if HAS_OUTPUT
dh += dout_p[at];
#endif
const T dc = dc_p[at] + dh * o * ((T)1 - t * t);
to_p[g] = dc * n * i * ((T)1 - i);
to_p[g + hidden] = dc * cx_p[at] * f * ((T)1 - f);
to_p[g + 2 * hidden] = dc * i * ((T)1 - n * n);
to_p[g + 3 * hidden] = dh * t * o * ((T)1 - o);
dc_p[at] = dc * f;
)";

// Dense, [rows, 4 * hidden].
bool read_gates(const Call& call, Tensor* out) {
  return call.tensor(0, out) && out->contiguous() && out->ndim == 2 && out->shape[1] % 4 == 0;
}

// As the gates are, but with so many columns.
bool read(const Call& call, int i, const Tensor& gates, int64_t columns, Tensor* out) {
  return call.tensor(i, out) && out->contiguous() && out->ndim == 2 && out->dtype == gates.dtype &&
         out->shape[0] == gates.shape[0] && out->shape[1] == columns;
}

// Of t, the gates and those of [rows, hidden].
bool read_all(const Call& call, std::initializer_list<int> states, Tensor* t) {
  return read_gates(call, t) && std::all_of(states.begin(), states.end(),
                                            [&](int i) { return read(call, i, t[0], t[0].shape[1] / 4, &t[i]); });
}

// `text` for each row r and place j of a row. Items in turn take rows, whose places become vectors.
cw_status run(Program& p, Call& call, const Tensor& gates, const std::string& text, double cost) {
  const int64_t rows = gates.shape[0], hidden = gates.shape[1] / 4;
  const bool single = gates.dtype == kF32;
  p.define("T", name_of(gates.dtype)).value("hidden", hidden);
  p.define("EXP(v)", single ? "exp_f32(v)" : "exp(v)").define("TANH(v)", single ? "tanh_f32(v)" : "tanh(v)");
  p.before(kSigmoid);
  if (!call.device->in_turn())
    return p.run(rows * hidden, "const idx r = u / hidden, j = u - r * hidden;" + text, cost);
  return p.run(rows, "const idx r = u;\nINDEPENDENT\nfor (idx j = 0; j < hidden; ++j) {" + text + "}\n",
               cost * static_cast<double>(hidden));
}

// gates, cx, hy, cy
cw_status step(Call& call, const void*) {
  Tensor t[4];
  if (!read_all(call, {1, 2, 3}, t)) return CW_UNSUPPORTED;
  if (t[0].numel() == 0) return CW_OK;
  Program p(call, "lstm_step");
  p.out("gates", t[0]).in("cx", t[1]).out("hy", t[2]).out("cy", t[3]);
  return run(p, call, t[0], kStep, 100);
}

// gates, cx, cy, the gradients of the output (or none), of the hidden state, of the cell, and of the gates
cw_status backward(Call& call, const void*) {
  Tensor t[7];
  const bool has_output = !call.is_none(3);
  if (!read_all(call, {1, 2, 4, 5}, t) || (has_output && !read_all(call, {3}, t))) return CW_UNSUPPORTED;
  if (!read(call, 6, t[0], t[0].shape[1], &t[6])) return CW_UNSUPPORTED;
  if (t[0].numel() == 0) return CW_OK;
  Program p(call, "lstm_step_backward");
  p.in("gates", t[0]).in("cx", t[1]).in("cy", t[2]).in("dh", t[4]).out("dc", t[5]).out("to", t[6]);
  p.define("HAS_OUTPUT", has_output);
  if (has_output) p.in("dout", t[3]);
  return run(p, call, t[0], kBackward, 60);
}

}  // namespace

Kernels recurrent_kernels() {
  constexpr cw_dtypes floats = CW_FLOAT32 | CW_FLOAT64;
  return {{"causeway::lstm_step", step, floats, CW_NEEDS_CONTIGUOUS},
          {"causeway::lstm_step_backward", backward, floats, CW_NEEDS_CONTIGUOUS}};
}

}  // namespace causeway::portable
