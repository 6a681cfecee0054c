// LSTM and GRU cells. torch sends the recurrent layers of a foreign device to fused cells that have no CPU kernel to fall back
// to, so they are computed here from operators that the ladder serves.
//
// Whole layers of LSTM are in lstm.cpp.
//
// Formulas: Hochreiter and Schmidhuber 1997 with forget gate (Gers et al. 2000); Cho et al. 2014 in cuDNN's form, with
// the reset gate applied after the matrix product.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ladder/observe.h"

namespace causeway {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor plus(const Tensor& gates, const OptionalTensor& bias) { return bias && bias->defined() ? gates + *bias : gates; }

// workspace: the four gates after their activations, [batch, 4 * hidden].
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto gates = (plus(input_gates, input_bias) + plus(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  Tensor cy = f * cx + i * g;
  Tensor hy = o * cy.tanh();
  return {hy, cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  const bool from_h = grad_hy && grad_hy->defined(), from_c = grad_cy && grad_cy->defined();
  if (!from_h && !from_c) return {};
  const auto gates = workspace.chunk(4, 1);
  const Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const Tensor tanh_cy = cy.tanh();
  Tensor gc = from_c ? *grad_cy : at::zeros_like(cy);
  if (from_h) gc = gc + *grad_hy * o * (1 - tanh_cy * tanh_cy);
  const Tensor go = from_h ? *grad_hy * tanh_cy * o * (1 - o) : at::zeros_like(o);
  Tensor grad_gates = at::cat({gc * g * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - g * g), go}, 1);
  return {grad_gates, gc * f, has_bias ? grad_gates.sum(0) : Tensor()};
}

// workspace: reset, update and new gate, the old hidden state, and the new gate's hidden part, [batch, 5 * hidden].
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto in = plus(input_gates, input_bias).chunk(3, 1);
  const auto hidden = plus(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor r = (in[0] + hidden[0]).sigmoid(), z = (in[1] + hidden[1]).sigmoid();
  const Tensor n = (in[2] + r * hidden[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const Tensor &r = parts[0], &z = parts[1], &n = parts[2], &hx = parts[3], &hidden_n = parts[4];
  const Tensor gz = grad_hy * (hx - n) * z * (1 - z);
  const Tensor gn = grad_hy * (1 - z) * (1 - n * n);
  const Tensor gr = gn * hidden_n * r * (1 - r);
  Tensor grad_input = at::cat({gr, gz, gn}, 1);
  Tensor grad_hidden = at::cat({gr, gz, gn * r}, 1);
  return {grad_input, grad_hidden, grad_hy * z, has_bias ? grad_input.sum(0) : Tensor(),
          has_bias ? grad_hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", own<&lstm_cell>("_thnn_fused_lstm_cell"));
  m.impl("_thnn_fused_lstm_cell_backward_impl", own<&lstm_cell_backward>("_thnn_fused_lstm_cell_backward_impl"));
  m.impl("_thnn_fused_gru_cell", own<&gru_cell>("_thnn_fused_gru_cell"));
  m.impl("_thnn_fused_gru_cell_backward", own<&gru_cell_backward>("_thnn_fused_gru_cell_backward"));
}

}  // namespace

}  // namespace causeway
