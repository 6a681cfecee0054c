// LSTM and GRU. torch sends the recurrent layers of a foreign device to fused cells that have no CPU kernel to fall back
// to, so they are computed here from operators that the ladder serves.
//
// A layer of LSTM is computed over all its steps at once. torch's composite calls a linear layer and a cell for each step,
// and autograd does as many times what a layer needs once. Here the products of all inputs are one, a step is the product
// of the hidden state and one kernel (`causeway::lstm_step`, of the vendor's or portable), and in backward the gradients
// of the weights are one product each. Where the host would compute the steps one by one, torch's own operator for a
// layer, `mkldnn_rnn_layer`, which it calls on the CPU alone, does so at once. What neither takes goes to the composite.
//
// Formulas: Hochreiter and Schmidhuber 1997 with forget gate (Gers et al. 2000); Cho et al. 2014 in cuDNN's form, with
// the reset gate applied after the matrix product.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/lstm_native.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/plain.h"
#include "ladder/observe.h"

namespace causeway {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor plus(const Tensor& gates, const OptionalTensor& bias) { return bias && bias->defined() ? gates + *bias : gates; }

// hy, cy, and the workspace: the four gates after their activations, [batch, 4 * hidden].
std::tuple<Tensor, Tensor, Tensor> lstm_of_gates(const Tensor& all, const Tensor& cx) {
  const auto gates = all.chunk(4, 1);
  const Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  Tensor cy = f * cx + i * g;
  Tensor hy = o * cy.tanh();
  return {hy, cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  return lstm_of_gates(plus(input_gates, input_bias) + plus(hidden_gates, hidden_bias), cx);
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

// ---- a step ------------------------------------------------------------------------------------------------------------

// The reference of the kernels. gates: [rows, 4 * hidden], before their activations, and after. The others: [rows, hidden].
void step(Tensor gates, const Tensor& cx, Tensor hy, Tensor cy) {
  const auto [h, c, workspace] = lstm_of_gates(gates, cx);
  gates.copy_(workspace);
  cy.copy_(c);
  hy.copy_(h);
}

// The gradient of the hidden state is that of the output and that of the next step; the cell's is updated.
void step_backward(const Tensor& gates, const Tensor& cx, const Tensor& cy, const OptionalTensor& grad_output,
                   const Tensor& grad_h, Tensor grad_c, Tensor grad_gates) {
  const auto [to_gates, to_cx, to_bias] =
      lstm_cell_backward(plus(grad_h, grad_output), grad_c, cx, cy, gates, /*has_bias=*/false);
  grad_gates.copy_(to_gates);
  grad_c.copy_(to_cx);
}

TORCH_LIBRARY_FRAGMENT(causeway, m) {
  m.def("lstm_step(Tensor(a!) gates, Tensor cx, Tensor(b!) hy, Tensor(c!) cy) -> ()");
  m.def(
      "lstm_step_backward(Tensor gates, Tensor cx, Tensor cy, Tensor? grad_output, Tensor grad_h, Tensor(a!) grad_c, "
      "Tensor(b!) grad_gates) -> ()");
}
TORCH_LIBRARY_IMPL(causeway, CPU, m) {
  m.impl("lstm_step", step);
  m.impl("lstm_step_backward", step_backward);
}

c10::OperatorHandle named(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

const auto& step_operator() {
  static const auto handle = named("causeway::lstm_step").typed<decltype(step)>();
  return handle;
}
const auto& step_backward_operator() {
  static const auto handle = named("causeway::lstm_step_backward").typed<decltype(step_backward)>();
  return handle;
}

// ---- a layer -----------------------------------------------------------------------------------------------------------

// One direction of one layer. input: [steps, batch, in]; hx, cx: [batch, hidden]; no bias is undefined.
struct Layer {
  Tensor input, of_input, of_hidden, hx, cx, input_bias, hidden_bias;
  bool reverse;

  bool differentiates() const {
    const auto needs = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
    return at::GradMode::is_enabled() && (needs(input) || needs(of_input) || needs(of_hidden) || needs(input_bias) ||
                                          needs(hidden_bias) || needs(hx) || needs(cx));
  }
};

struct Results {
  Tensor output, h, c;  // [steps, batch, hidden], [batch, hidden]
  Tensor gates, cells;  // for the backward
};

Results forward(const Layer& l) {
  const int64_t steps = l.input.size(0), batch = l.input.size(1), hidden = l.hx.size(1);
  const Tensor rows = l.input.reshape({steps * batch, -1});
  Tensor gates = l.input_bias.defined() ? at::addmm(l.input_bias + l.hidden_bias, rows, l.of_input.t())
                                        : at::mm(rows, l.of_input.t());
  gates = gates.view({steps, batch, 4 * hidden});
  Tensor output = at::empty({steps, batch, hidden}, l.input.options()), cells = at::empty_like(output);
  const Tensor weight = l.of_hidden.t();
  Tensor h = l.hx, c = l.cx;
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = l.reverse ? steps - 1 - k : k;
    Tensor now = gates.select(0, t), next_h = output.select(0, t), next_c = cells.select(0, t);
    now.addmm_(h, weight);
    step_operator().call(now, c, next_h, next_c);
    h = next_h, c = next_c;
  }
  return {output, h.clone(), c.clone(), gates, cells};
}

// What stood before each step: `first`, then those of the steps before.
Tensor before_each(const Tensor& first, const Tensor& each, bool reverse) {
  const int64_t steps = each.size(0);
  return reverse ? at::cat({each.narrow(0, 1, steps - 1), first.unsqueeze(0)})
                 : at::cat({first.unsqueeze(0), each.narrow(0, 0, steps - 1)});
}

class LstmLayer : public torch::autograd::Function<LstmLayer> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& of_input,
                               const Tensor& of_hidden, const Tensor& hx, const Tensor& cx,
                               const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias,
                               bool reverse) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Layer l{input,  of_input, of_hidden, hx, cx, input_bias.value_or(Tensor()), hidden_bias.value_or(Tensor()),
                  reverse};
    const Results r = causeway::forward(l);
    context->save_for_backward(
        {input, of_input, of_hidden, hx, cx, l.input_bias, l.hidden_bias, r.output, r.gates, r.cells});
    context->saved_data["reverse"] = reverse;
    context->set_materialize_grads(false);
    return {r.output, r.h, r.c};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const bool reverse = context->saved_data["reverse"].toBool();
    const Layer l{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6], reverse};
    std::array<bool, 7> wanted{};
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = saved[i].defined() && context->needs_input_grad(i);
    variable_list found = at::GradMode::is_enabled() ? differentiable(l, grads, wanted)
                                                     : once(l, grads, wanted, saved[7], saved[8], saved[9]);
    found.emplace_back();  // of `reverse`
    return found;
  }

 private:
  static variable_list once(const Layer& l, const variable_list& grads, const std::array<bool, 7>& wanted,
                            const Tensor& output, const Tensor& gates, const Tensor& cells) {
    const int64_t steps = gates.size(0), batch = gates.size(1), hidden = l.hx.size(1);
    Tensor grad_h = grads[1].defined() ? grads[1].contiguous() : at::zeros_like(l.hx);
    Tensor grad_c = grads[2].defined() ? grads[2].clone(at::MemoryFormat::Contiguous) : at::zeros_like(l.cx);
    const Tensor grad_output = grads[0].defined() ? grads[0].contiguous() : Tensor();
    const Tensor cells_before = before_each(l.cx, cells, l.reverse);
    Tensor grad_gates = at::empty_like(gates);
    for (int64_t k = 0; k < steps; ++k) {
      const int64_t t = l.reverse ? k : steps - 1 - k;
      Tensor now = grad_gates.select(0, t);
      step_backward_operator().call(gates.select(0, t), cells_before.select(0, t), cells.select(0, t),
                                    grad_output.defined() ? std::optional(grad_output.select(0, t)) : std::nullopt,
                                    grad_h, grad_c, now);
      if (k + 1 < steps || wanted[3]) grad_h = at::mm(now, l.of_hidden);
    }
    const Tensor all = grad_gates.view({steps * batch, 4 * hidden});
    variable_list found(7);
    if (wanted[0]) found[0] = at::mm(all, l.of_input).view(l.input.sizes());
    if (wanted[1]) found[1] = at::mm(all.t(), l.input.reshape({steps * batch, -1}));
    if (wanted[2]) found[2] = at::mm(all.t(), before_each(l.hx, output, l.reverse).view({steps * batch, hidden}));
    if (wanted[3]) found[3] = grad_h;
    if (wanted[4]) found[4] = grad_c;
    if (wanted[5] || wanted[6]) {
      const Tensor sum = all.sum(0);
      if (wanted[5]) found[5] = sum;
      if (wanted[6]) found[6] = wanted[5] ? sum.clone() : sum;
    }
    return found;
  }

  // By the composite, whose operators have derivatives.
  static variable_list differentiable(const Layer& l, const variable_list& grads, const std::array<bool, 7>& wanted) {
    const auto turned = [&](const Tensor& t) { return l.reverse ? t.flip(0) : t; };
    std::vector<Tensor> weights{l.of_input, l.of_hidden};
    if (l.input_bias.defined()) weights.insert(weights.end(), {l.input_bias, l.hidden_bias});
    auto [output, h, c] = at::native::lstm(turned(l.input), {l.hx.unsqueeze(0), l.cx.unsqueeze(0)}, weights,
                                           l.input_bias.defined(), 1, 0., false, false, false);
    const Tensor results[] = {turned(output), h.squeeze(0), c.squeeze(0)};
    const Tensor inputs[] = {l.input, l.of_input, l.of_hidden, l.hx, l.cx, l.input_bias, l.hidden_bias};
    variable_list from, given, of, found(7);
    for (size_t i = 0; i < 3; ++i)
      if (grads[i].defined()) from.push_back(results[i]), given.push_back(grads[i]);
    for (size_t i = 0; i < 7; ++i)
      if (wanted[i]) of.push_back(inputs[i]);
    if (from.empty() || of.empty()) return found;
    variable_list made = torch::autograd::grad(from, of, given, /*retain_graph=*/true, /*create_graph=*/true,
                                               /*allow_unused=*/true);
    for (size_t i = 0, k = 0; i < 7; ++i)
      if (wanted[i]) found[i] = made[k++];
    return found;
  }
};

Results by_steps(const Layer& l) {
  if (!l.differentiates()) {
    at::AutoDispatchBelowADInplaceOrView below;
    return forward(l);
  }
  const auto given = [](const Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; };
  variable_list r = LstmLayer::apply(l.input, l.of_input, l.of_hidden, l.hx, l.cx, given(l.input_bias),
                                     given(l.hidden_bias), l.reverse);
  return {r[0], r[1], r[2], {}, {}};
}

Results at_once(const Layer& l, bool train) {
  constexpr int64_t kLstm = 2;  // how the operator calls it, as cuDNN does
  const bool has_bias = l.input_bias.defined();
  const Tensor zeros = has_bias ? Tensor() : at::zeros({l.of_input.size(0)}, l.of_input.options());
  auto [output, h, c, workspace] = at::mkldnn_rnn_layer(
      l.input, l.of_input, l.of_hidden, has_bias ? l.input_bias : zeros, has_bias ? l.hidden_bias : zeros, l.hx, l.cx,
      l.reverse, /*batch_sizes=*/{}, kLstm, l.hx.size(1), /*num_layers=*/1, has_bias, /*bidirectional=*/false,
      /*batch_first=*/false, train || l.differentiates());
  return {output, h.view_as(l.hx), c.view_as(l.cx), {}, {}};
}

// ---- all layers --------------------------------------------------------------------------------------------------------

enum class Way { Composite, BySteps, AtOnce };

Way way_of(const Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases, int64_t num_layers,
           bool bidirectional, bool batch_first) {
  static Operator& step = operator_for(step_operator());
  static Operator& back = operator_for(step_backward_operator());
  static Operator& product = operator_for(named("aten::addmm"));
  const c10::Device device = input.device();
  const c10::ScalarType dtype = input.scalar_type();
  const auto fits = [&](const Tensor& t) {
    return t.defined() && t.device() == device && t.scalar_type() == dtype && t.layout() == at::kStrided && is_plain(t);
  };
  // A mode of torch's dispatch, such as its counter of operations, is to see what a layer is made of.
  if (!fits(input) || input.dim() != 3 || input.numel() == 0 || hx.size() != 2 || in_functorch() ||
      at::autocast::is_autocast_enabled(kDeviceType) || c10::impl::TorchDispatchModeTLS::any_modes_set())
    return Way::Composite;
  if (!std::all_of(hx.begin(), hx.end(), fits) || !std::all_of(params.begin(), params.end(), fits))
    return Way::Composite;
  // With a projection, which is one weight more, the cell is wider than the hidden state. What does not fit is for torch to
  // refuse.
  const int64_t places = num_layers * (bidirectional ? 2 : 1);
  if (hx[0].dim() != 3 || hx[0].sizes() != hx[1].sizes() || hx[0].size(0) != places ||
      hx[0].size(1) != input.size(batch_first ? 0 : 1) ||
      static_cast<int64_t>(params.size()) != places * (has_biases ? 4 : 2))
    return Way::Composite;
  const auto has = [&](Operator& op) { return has_kernel(op, dtype, device.index()); };
  if (has(step) && has(back) && has(product)) return Way::BySteps;
  const bool host = causeway::device(device.index()).host_addressable && !has(product);
  return host && at::globalContext().userEnabledMkldnn() && dtype == at::kFloat ? Way::AtOnce : Way::Composite;
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& given, at::TensorList hx, at::TensorList params, bool has_biases,
                                        int64_t num_layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Way way = way_of(given, hx, params, has_biases, num_layers, bidirectional, batch_first);
  if (way == Way::Composite)
    return at::native::lstm(given, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  Tensor input = (batch_first ? given.transpose(0, 1) : given).contiguous();
  const int64_t directions = bidirectional ? 2 : 1, weights = has_biases ? 4 : 2;
  std::vector<Tensor> last_h, last_c;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t place = layer * directions + direction;
      const Tensor* w = &params[place * weights];
      const Layer l{input,
                    w[0],
                    w[1],
                    hx[0].select(0, place).contiguous(),
                    hx[1].select(0, place).contiguous(),
                    has_biases ? w[2] : Tensor(),
                    has_biases ? w[3] : Tensor(),
                    direction > 0};
      const Results r = way == Way::BySteps ? by_steps(l) : at_once(l, train);
      outputs.push_back(r.output);
      last_h.push_back(r.h);
      last_c.push_back(r.c);
    }
    input = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (dropout != 0 && train && layer + 1 < num_layers) input = at::dropout(input, dropout, /*train=*/true);
  }
  return {batch_first ? input.transpose(0, 1) : input, at::stack(last_h), at::stack(last_c)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", own<&lstm_cell>("_thnn_fused_lstm_cell"));
  m.impl("_thnn_fused_lstm_cell_backward_impl", own<&lstm_cell_backward>("_thnn_fused_lstm_cell_backward_impl"));
  m.impl("_thnn_fused_gru_cell", own<&gru_cell>("_thnn_fused_gru_cell"));
  m.impl("_thnn_fused_gru_cell_backward", own<&gru_cell_backward>("_thnn_fused_gru_cell_backward"));
  m.impl("lstm.input", lstm);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("lstm.input", lstm); }

}  // namespace

}  // namespace causeway
