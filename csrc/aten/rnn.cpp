// LSTM, GRU and plain recurrent layers. torch sends the layers of a foreign device to fused cells that have no CPU kernel
// to fall back to, so cells are computed here, from operators that the ladder serves.
//
// A layer is computed over all its steps at once. torch's composite calls a linear layer and a cell for each step, and
// autograd does as many times what a layer needs once. Here the products of all inputs are one, a step is the product of
// the hidden state and one kernel (`causeway::lstm_step`, `causeway::gru_step`, of the vendor's or portable; tanh or
// relu), and in backward the gradients of the weights are one product each. A vendor that has a whole layer of an LSTM as
// one kernel offers `causeway::lstm_layer`. Where the host would compute an LSTM, torch's own operator for a layer,
// `mkldnn_rnn_layer`, which it calls on the CPU alone, does so. What is not taken goes to the composite.
//
// Formulas: Hochreiter and Schmidhuber 1997 with forget gate (Gers et al. 2000), gates in torch's order i, f, n, o; Cho
// et al. 2014 in cuDNN's form, with the reset gate applied after the matrix product, gates in the order r, z, n.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/plain.h"
#include "ladder/observe.h"
#include "portable/device.h"

namespace causeway {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has(const OptionalTensor& t) { return t && t->defined(); }
OptionalTensor given(const Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }
Tensor plus(const Tensor& a, const OptionalTensor& b) { return has(b) ? a + *b : a; }

enum class Recurrence : int64_t { Relu, Tanh, Lstm, Gru };  // as cuDNN counts them

int64_t gates_of(Recurrence kind) { return kind == Recurrence::Lstm ? 4 : kind == Recurrence::Gru ? 3 : 1; }

// ---- a step ------------------------------------------------------------------------------------------------------------

// These define the operators. Gates are [rows, 4 * hidden], GRU's [rows, 3 * hidden], before their functions and after. The
// others are [rows, hidden].

void lstm_step(Tensor gates, const Tensor& cx, Tensor hy, Tensor cy) {
  const auto parts = gates.chunk(4, 1);
  const Tensor i = parts[0].sigmoid_(), f = parts[1].sigmoid_(), o = parts[3].sigmoid_();
  const Tensor n = parts[2].contiguous().tanh();  // of rows apart, the CPU's tanh starts all threads for each row
  parts[2].copy_(n);
  cy.copy_(f * cx + i * n);
  hy.copy_(o * cy.tanh());
}

// The gradient of the hidden state is that of the output and that of the next step; the cell's is updated.
void lstm_step_backward(const Tensor& gates, const Tensor& cx, const Tensor& cy, const OptionalTensor& grad_output,
                        const Tensor& grad_h, Tensor grad_c, Tensor grad_gates) {
  const auto parts = gates.chunk(4, 1);
  const Tensor &i = parts[0], &f = parts[1], &n = parts[2], &o = parts[3];
  const Tensor t = cy.tanh(), dh = plus(grad_h, grad_output), dc = grad_c + dh * o * (1 - t * t);
  grad_gates.copy_(
      at::cat({dc * n * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - n * n), dh * t * o * (1 - o)}, 1));
  grad_c.copy_(dc * f);
}

// hidden_gates: the product of the hidden state, as wide as the gates. hidden_n: its last third, for backward.
void gru_step(Tensor gates, const Tensor& hidden_gates, const Tensor& hx, Tensor hy, Tensor hidden_n) {
  const auto in = gates.chunk(3, 1), hidden = hidden_gates.chunk(3, 1);
  const Tensor r = in[0].add_(hidden[0]).sigmoid_(), z = in[1].add_(hidden[1]).sigmoid_();
  const Tensor n = (in[2] + r * hidden[2]).tanh_();  // dense, see lstm_step
  in[2].copy_(n);
  hidden_n.copy_(hidden[2]);
  hy.copy_(n + z * (hx - n));
}

// The gradient of the hidden state is left without what goes through the product.
void gru_step_backward(const Tensor& gates, const Tensor& hidden_n, const Tensor& hx, const OptionalTensor& grad_output,
                       Tensor grad_h, Tensor grad_gates, Tensor grad_hidden_gates) {
  const auto parts = gates.chunk(3, 1);
  const Tensor &r = parts[0], &z = parts[1], &n = parts[2];
  const Tensor dh = plus(grad_h, grad_output), dn = dh * (1 - z) * (1 - n * n);
  const Tensor dr = dn * hidden_n * r * (1 - r), dz = dh * (hx - n) * z * (1 - z);
  grad_gates.copy_(at::cat({dr, dz, dn}, 1));
  grad_hidden_gates.copy_(at::cat({dr, dz, dn * r}, 1));
  grad_h.copy_(dh * z);
}

// Of operators over all steps: states are [batch, hidden], `each` is [steps, batch, hidden].
void check_steps(const char* name, int64_t gates_each, at::TensorList gates, const Tensor& of_hidden,
                 at::TensorList states, at::TensorList each) {
  const Tensor& first = gates[0];
  const bool dims = first.dim() == 3 && of_hidden.dim() == 2;
  const int64_t hidden = dims ? of_hidden.size(1) : 0;
  TORCH_CHECK(dims && of_hidden.size(0) == gates_each * hidden && first.size(2) == gates_each * hidden, name,
              ": gates are [steps, batch, ", gates_each, " * hidden] and the weight [", gates_each,
              " * hidden, hidden], but got ", first.sizes(), " and ", of_hidden.sizes());
  for (const Tensor& t : gates)
    TORCH_CHECK(t.sizes() == first.sizes(), name, ": gates and their gradients have one shape, but got ", t.sizes(),
                " and ", first.sizes());
  for (const Tensor& t : states)
    TORCH_CHECK(t.sizes() == at::IntArrayRef({first.size(1), hidden}), name, ": a state is ", t.sizes(),
                ", but there are ", first.size(1), " rows of ", hidden);
  for (const Tensor& t : each)
    TORCH_CHECK(t.sizes() == at::IntArrayRef({first.size(0), first.size(1), hidden}), name,
                ": what has a row for each step is ", t.sizes(), ", but the gates are ", first.sizes());
}

// Which step is the k-th of the forward, and of its backward.
struct Order {
  int64_t steps;
  bool reverse;
  int64_t forward(int64_t k) const { return reverse ? steps - 1 - k : k; }
  int64_t backward(int64_t k) const { return forward(steps - 1 - k); }
  // What stood before the k-th step of the backward.
  Tensor before(int64_t k, const Tensor& each, const Tensor& first) const {
    return k + 1 < steps ? each.select(0, backward(k + 1)) : first;
  }
};
OptionalTensor step_of(const OptionalTensor& each, int64_t t) {
  return has(each) ? std::optional(each->select(0, t)) : std::nullopt;
}

// All steps of an LSTM after the product of its input, which `gates` [steps, batch, 4 * hidden] begins with, biases included: as
// lstm_step leaves them. output, cells: [steps, batch, hidden].
void lstm_steps(Tensor gates, const Tensor& of_hidden, const Tensor& hx, const Tensor& cx, Tensor output, Tensor cells,
                bool reverse) {
  check_steps("causeway::lstm_steps", 4, {gates}, of_hidden, {hx, cx}, {output, cells});
  const Order order{gates.size(0), reverse};
  Tensor h = hx, c = cx;
  for (int64_t k = 0; k < order.steps; ++k) {
    const int64_t t = order.forward(k);
    Tensor now = gates.select(0, t);
    now.addmm_(h, of_hidden.t());
    lstm_step(now, c, output.select(0, t), cells.select(0, t));
    h = output.select(0, t), c = cells.select(0, t);
  }
}

// Their gradients, from the last step to the first. grad_h and grad_c begin with those of the last states, and end with those of
// the first.
void lstm_steps_backward(const Tensor& gates, const Tensor& of_hidden, const Tensor& cx, const Tensor& cells,
                         const OptionalTensor& grad_output, Tensor grad_h, Tensor grad_c, Tensor grad_gates,
                         bool reverse) {
  check_steps("causeway::lstm_steps_backward", 4, {gates, grad_gates}, of_hidden, {cx, grad_h, grad_c},
              {cells, grad_output.value_or(cells)});
  const Order order{gates.size(0), reverse};
  for (int64_t k = 0; k < order.steps; ++k) {
    const int64_t t = order.backward(k);
    Tensor now = grad_gates.select(0, t);
    lstm_step_backward(gates.select(0, t), order.before(k, cells, cx), cells.select(0, t), step_of(grad_output, t),
                       grad_h, grad_c, now);
    grad_h.copy_(at::mm(now, of_hidden));
  }
}

// The same of a GRU, whose gates begin with the input's bias alone. hidden_n: as gru_step has it, of each step.
void gru_steps(Tensor gates, const Tensor& of_hidden, const OptionalTensor& hidden_bias, const Tensor& hx,
               Tensor output, Tensor hidden_n, bool reverse) {
  check_steps("causeway::gru_steps", 3, {gates}, of_hidden, {hx}, {output, hidden_n});
  TORCH_CHECK(!has(hidden_bias) || hidden_bias->sizes() == at::IntArrayRef({of_hidden.size(0)}),
              "causeway::gru_steps: the bias is ", hidden_bias->sizes(), ", but the weight is ", of_hidden.sizes());
  const Order order{gates.size(0), reverse};
  Tensor h = hx;
  for (int64_t k = 0; k < order.steps; ++k) {
    const int64_t t = order.forward(k);
    gru_step(gates.select(0, t), plus(at::mm(h, of_hidden.t()), hidden_bias), h, output.select(0, t),
             hidden_n.select(0, t));
    h = output.select(0, t);
  }
}

void gru_steps_backward(const Tensor& gates, const Tensor& of_hidden, const Tensor& hidden_n, const Tensor& hx,
                        const Tensor& output, const OptionalTensor& grad_output, Tensor grad_h, Tensor grad_gates,
                        Tensor grad_hidden_gates, bool reverse) {
  check_steps("causeway::gru_steps_backward", 3, {gates, grad_gates, grad_hidden_gates}, of_hidden, {hx, grad_h},
              {hidden_n, output, grad_output.value_or(output)});
  const Order order{gates.size(0), reverse};
  for (int64_t k = 0; k < order.steps; ++k) {
    const int64_t t = order.backward(k);
    Tensor through = grad_hidden_gates.select(0, t);
    gru_step_backward(gates.select(0, t), hidden_n.select(0, t), order.before(k, output, hx), step_of(grad_output, t),
                      grad_h, grad_gates.select(0, t), through);
    grad_h.addmm_(through, of_hidden);
  }
}

// The same of a plain cell, tanh or relu of the sum.
void rnn_steps(Tensor gates, const Tensor& of_hidden, const Tensor& hx, Tensor output, bool relu, bool reverse) {
  check_steps("causeway::rnn_steps", 1, {gates}, of_hidden, {hx}, {output});
  const Order order{gates.size(0), reverse};
  Tensor h = hx;
  for (int64_t k = 0; k < order.steps; ++k) {
    const int64_t t = order.forward(k);
    Tensor now = gates.select(0, t).addmm_(h, of_hidden.t());
    h = output.select(0, t).copy_(relu ? now.relu() : now.tanh());
  }
}

void rnn_steps_backward(const Tensor& output, const Tensor& of_hidden, const OptionalTensor& grad_output, Tensor grad_h,
                        Tensor grad_gates, bool relu, bool reverse) {
  check_steps("causeway::rnn_steps_backward", 1, {grad_gates}, of_hidden, {grad_h},
              {output, grad_output.value_or(output)});
  const Order order{output.size(0), reverse};
  for (int64_t k = 0; k < order.steps; ++k) {
    const int64_t t = order.backward(k);
    const Tensor out = output.select(0, t), dh = plus(grad_h, step_of(grad_output, t));
    Tensor now = grad_gates.select(0, t);
    now.copy_(relu ? at::threshold_backward(dh, out, 0) : at::tanh_backward(dh, out));
    grad_h.copy_(at::mm(now, of_hidden));
  }
}

TORCH_LIBRARY_FRAGMENT(causeway, m) {
  m.def(
      "lstm_steps(Tensor(a!) gates, Tensor of_hidden, Tensor hx, Tensor cx, Tensor(b!) output, Tensor(c!) cells, bool "
      "reverse) -> ()");
  m.def(
      "lstm_steps_backward(Tensor gates, Tensor of_hidden, Tensor cx, Tensor cells, Tensor? grad_output, Tensor(a!) "
      "grad_h, Tensor(b!) grad_c, Tensor(c!) grad_gates, bool reverse) -> ()");
  m.def(
      "gru_steps(Tensor(a!) gates, Tensor of_hidden, Tensor? hidden_bias, Tensor hx, Tensor(b!) output, Tensor(c!) "
      "hidden_n, bool reverse) -> ()");
  m.def(
      "gru_steps_backward(Tensor gates, Tensor of_hidden, Tensor hidden_n, Tensor hx, Tensor output, Tensor? "
      "grad_output, Tensor(a!) grad_h, Tensor(b!) grad_gates, Tensor(c!) grad_hidden_gates, bool reverse) -> ()");
  m.def("rnn_steps(Tensor(a!) gates, Tensor of_hidden, Tensor hx, Tensor(b!) output, bool relu, bool reverse) -> ()");
  m.def(
      "rnn_steps_backward(Tensor output, Tensor of_hidden, Tensor? grad_output, Tensor(a!) grad_h, Tensor(b!) "
      "grad_gates, bool relu, bool reverse) -> ()");
  m.def("lstm_step(Tensor(a!) gates, Tensor cx, Tensor(b!) hy, Tensor(c!) cy) -> ()");
  m.def(
      "lstm_step_backward(Tensor gates, Tensor cx, Tensor cy, Tensor? grad_output, Tensor grad_h, Tensor(a!) grad_c, "
      "Tensor(b!) grad_gates) -> ()");
  m.def("gru_step(Tensor(a!) gates, Tensor hidden_gates, Tensor hx, Tensor(b!) hy, Tensor(c!) hidden_n) -> ()");
  m.def(
      "gru_step_backward(Tensor gates, Tensor hidden_n, Tensor hx, Tensor? grad_output, Tensor(a!) grad_h, "
      "Tensor(b!) grad_gates, Tensor(c!) grad_hidden_gates) -> ()");
}
TORCH_LIBRARY_IMPL(causeway, CPU, m) {
  m.impl("lstm_steps", lstm_steps);
  m.impl("lstm_steps_backward", lstm_steps_backward);
  m.impl("gru_steps", gru_steps);
  m.impl("gru_steps_backward", gru_steps_backward);
  m.impl("rnn_steps", rnn_steps);
  m.impl("rnn_steps_backward", rnn_steps_backward);
  m.impl("lstm_step", lstm_step);
  m.impl("lstm_step_backward", lstm_step_backward);
  m.impl("gru_step", gru_step);
  m.impl("gru_step_backward", gru_step_backward);
}

// The operator that a function above defines.
template <auto* F>
const auto& operator_of(const char* name) {
  static const auto handle = named(name).typed<std::remove_pointer_t<decltype(F)>>();
  return handle;
}
const auto& lstm_forward() { return operator_of<&lstm_step>("causeway::lstm_step"); }
const auto& lstm_backward() { return operator_of<&lstm_step_backward>("causeway::lstm_step_backward"); }
const auto& lstm_all() { return operator_of<&lstm_steps>("causeway::lstm_steps"); }
const auto& lstm_all_backward() { return operator_of<&lstm_steps_backward>("causeway::lstm_steps_backward"); }
const auto& gru_all() { return operator_of<&gru_steps>("causeway::gru_steps"); }
const auto& gru_all_backward() { return operator_of<&gru_steps_backward>("causeway::gru_steps_backward"); }
const auto& plain_all() { return operator_of<&rnn_steps>("causeway::rnn_steps"); }
const auto& plain_all_backward() { return operator_of<&rnn_steps_backward>("causeway::rnn_steps_backward"); }
const auto& gru_forward() { return operator_of<&gru_step>("causeway::gru_step"); }
const auto& gru_backward() { return operator_of<&gru_step_backward>("causeway::gru_step_backward"); }

bool has_step(Recurrence kind, c10::ScalarType dtype, int device) {
  static Operator& tanh = operator_for(named("aten::tanh"));
  static Operator& relu = operator_for(named("aten::relu"));
  static Operator& lstm = operator_for(lstm_forward());
  static Operator& of_lstm = operator_for(lstm_backward());
  static Operator& gru = operator_for(gru_forward());
  static Operator& of_gru = operator_for(gru_backward());
  const auto has = [&](Operator& op) { return has_kernel(op, dtype, device); };
  return kind == Recurrence::Lstm  ? has(lstm) && has(of_lstm)
         : kind == Recurrence::Gru ? has(gru) && has(of_gru)
                                   : has(kind == Recurrence::Tanh ? tanh : relu);
}

Operator& product_operator() {
  static Operator& product = operator_for(named("aten::addmm"));
  return product;
}

bool has_product(c10::ScalarType dtype, int device) { return has_kernel(product_operator(), dtype, device); }

// Whether all steps are one kernel: the vendor's; or the portable one, on CPUs, where a launch a step would take longer than the
// weights that each of its items reads at each step, and the vendor has no products or steps of its own.
bool has_steps(Recurrence kind, const Tensor& hx) {
  struct Of {
    Operator &there, &back, &step;
  };
  static const Of lstm{operator_for(lstm_all()), operator_for(lstm_all_backward()), operator_for(lstm_forward())};
  static const Of gru{operator_for(gru_all()), operator_for(gru_all_backward()), operator_for(gru_forward())};
  static const Of tanh{operator_for(plain_all()), operator_for(plain_all_backward()),
                       operator_for(named("aten::tanh"))};
  static const Of relu{tanh.there, tanh.back, operator_for(named("aten::relu"))};
  const Of& of = kind == Recurrence::Lstm   ? lstm
                 : kind == Recurrence::Gru  ? gru
                 : kind == Recurrence::Tanh ? tanh
                                            : relu;
  Operator& product = product_operator();
  const int index = hx.device().index();
  const auto dtype = hx.scalar_type();
  const auto native = [&](Operator& op) {
    const Offers& offers = op.offers().of(index);
    return takes(offers.own, dtype) || takes(offers.out, dtype);
  };
  if (native(of.there) && native(of.back)) return true;
  constexpr int64_t kLanes = 16, kMost = 256;
  const int64_t hidden = hx.size(1);
  if (hidden % kLanes != 0 || hidden > kMost || hx.size(0) == 0 || native(product) || native(of.step)) return false;
  if (!has_kernel(of.there, dtype, index) || !has_kernel(of.back, dtype, index)) return false;
  const portable::Device* device = portable::device_at(index);
  return device && device->in_turn() && !of.there.forced && !of.back.forced && !of.step.forced && !product.forced;
}

// Where the host would compute a step, and nothing has to move for it.
bool host_computes(c10::ScalarType dtype, int device) {
  return causeway::device(device).host_addressable && !has_product(dtype, device);
}

// ---- a cell ------------------------------------------------------------------------------------------------------------

// Whether a step is one kernel, or one call of the host that moves nothing. Else it is a chain of operators of the device.
bool as_one(Recurrence kind, const Tensor& t) {
  return has_step(kind, t.scalar_type(), t.device().index()) || host_computes(t.scalar_type(), t.device().index());
}

// hy, cy, and the workspace: the four gates after their functions, [batch, 4 * hidden].
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  Tensor gates = plus(input_gates, input_bias) + plus(hidden_gates, hidden_bias);
  Tensor hy = at::empty_like(cx, at::MemoryFormat::Contiguous), cy = at::empty_like(hy);
  as_one(Recurrence::Lstm, cx) ? lstm_forward().call(gates, cx, hy, cy) : lstm_step(gates, cx, hy, cy);
  return {hy, cy, gates};
}

Tensor fresh(const OptionalTensor& grad, const Tensor& like) {
  return has(grad) ? grad->clone(at::MemoryFormat::Contiguous) : at::zeros_like(like, at::MemoryFormat::Contiguous);
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  if (!has(grad_hy) && !has(grad_cy)) return {};
  const Tensor grad_h = has(grad_hy) ? *grad_hy : at::zeros_like(cy);
  Tensor grad_c = fresh(grad_cy, cy), grad_gates = at::empty_like(workspace);
  as_one(Recurrence::Lstm, cx) ? lstm_backward().call(workspace, cx, cy, {}, grad_h, grad_c, grad_gates)
                               : lstm_step_backward(workspace, cx, cy, {}, grad_h, grad_c, grad_gates);
  return {grad_gates, grad_c, has_bias ? grad_gates.sum(0) : Tensor()};
}

// workspace: the three gates after their functions, the old hidden state, and the new gate's hidden part, [batch,
// 5 * hidden].
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  Tensor gates = has(input_bias) ? input_gates + *input_bias : input_gates.clone(at::MemoryFormat::Contiguous);
  const Tensor hidden = plus(hidden_gates, hidden_bias);
  Tensor hy = at::empty_like(hx, at::MemoryFormat::Contiguous), hidden_n = at::empty_like(hy);
  as_one(Recurrence::Gru, hx) ? gru_forward().call(gates, hidden, hx, hy, hidden_n)
                              : gru_step(gates, hidden, hx, hy, hidden_n);
  return {hy, at::cat({gates, hx, hidden_n}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  const auto parts =
      workspace.split_with_sizes({workspace.size(1) / 5 * 3, workspace.size(1) / 5, workspace.size(1) / 5}, 1);
  const Tensor &gates = parts[0], &hx = parts[1], &hidden_n = parts[2];
  Tensor grad_h = grad_hy.clone(at::MemoryFormat::Contiguous);
  Tensor grad_gates = at::empty_like(gates, at::MemoryFormat::Contiguous), grad_hidden = at::empty_like(grad_gates);
  as_one(Recurrence::Gru, grad_hy) ? gru_backward().call(gates, hidden_n, hx, {}, grad_h, grad_gates, grad_hidden)
                                   : gru_step_backward(gates, hidden_n, hx, {}, grad_h, grad_gates, grad_hidden);
  return {grad_gates, grad_hidden, grad_h, has_bias ? grad_gates.sum(0) : Tensor(),
          has_bias ? grad_hidden.sum(0) : Tensor()};
}

// ---- a layer -----------------------------------------------------------------------------------------------------------

// One direction of one layer. input: [steps, batch, in]; hx, cx: [batch, hidden], where LSTM alone has cx; biases may be
// undefined.
struct Layer {
  Recurrence kind;
  bool reverse;
  Tensor input, of_input, of_hidden, hx, cx, input_bias, hidden_bias;

  bool differentiates() const {
    const auto needs = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
    return at::GradMode::is_enabled() && (needs(input) || needs(of_input) || needs(of_hidden) || needs(hx) ||
                                          needs(cx) || needs(input_bias) || needs(hidden_bias));
  }
};

struct Results {
  Tensor output, h, c;  // [steps, batch, hidden], [batch, hidden]
  // For the backward: the gates, and of LSTM the cells, of GRU the new gate's hidden part; of all steps.
  Tensor gates, others;
};

Tensor product(const Tensor& bias, const Tensor& rows, const Tensor& weight) {
  return bias.defined() ? at::addmm(bias, rows, weight.t()) : at::mm(rows, weight.t());
}

Results forward(const Layer& l) {
  const int64_t steps = l.input.size(0), batch = l.input.size(1), hidden = l.hx.size(1),
                wide = gates_of(l.kind) * hidden;
  // The hidden state's bias can be added with the input's, but for GRU's, whose new gate has it within a product.
  const bool apart = l.kind == Recurrence::Gru;
  const Tensor bias = l.input_bias.defined() && !apart ? l.input_bias + l.hidden_bias : l.input_bias;
  Tensor gates = product(bias, l.input.reshape({steps * batch, -1}), l.of_input).view({steps, batch, wide});
  Tensor output = at::empty({steps, batch, hidden}, l.input.options());
  Tensor others = l.kind == Recurrence::Lstm || apart ? at::empty_like(output) : Tensor();
  Tensor hidden_gates = apart ? at::empty({batch, wide}, l.input.options()) : Tensor();
  const Tensor weight = l.of_hidden.t();
  Tensor h = l.hx, c = l.cx;
  const Order order{steps, l.reverse};
  if (steps > 0 && has_steps(l.kind, h)) {
    if (l.kind == Recurrence::Lstm)
      lstm_all().call(gates, l.of_hidden, h, c, output, others, l.reverse);
    else if (apart)
      gru_all().call(gates, l.of_hidden, given(l.hidden_bias), h, output, others, l.reverse);
    else
      plain_all().call(gates, l.of_hidden, h, output, l.kind == Recurrence::Relu, l.reverse);
    const int64_t last = order.forward(steps - 1);
    return {output, output.select(0, last).clone(), c.defined() ? others.select(0, last).clone() : Tensor(), gates,
            others};
  }
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = order.forward(k);
    Tensor now = gates.select(0, t), next = output.select(0, t),
           other = others.defined() ? others.select(0, t) : Tensor();
    if (!apart)
      now.addmm_(h, weight);
    else if (l.hidden_bias.defined())
      at::addmm_out(hidden_gates, l.hidden_bias, h, weight);
    else
      at::mm_out(hidden_gates, h, weight);
    switch (l.kind) {
      case Recurrence::Lstm:
        lstm_forward().call(now, c, next, other);
        c = other;
        break;
      case Recurrence::Gru:
        gru_forward().call(now, hidden_gates, h, next, other);
        break;
      case Recurrence::Tanh:
        at::tanh_out(next, now);
        break;
      case Recurrence::Relu:
        at::relu_out(next, now);
        break;
    }
    h = next;
  }
  return {output, h.clone(), c.defined() ? c.clone() : Tensor(), gates, others};
}

// What stood before each step: `first`, then those of the steps before.
Tensor before_each(const Tensor& first, const Tensor& each, bool reverse) {
  const int64_t steps = each.size(0);
  return reverse ? at::cat({each.narrow(0, 1, steps - 1), first.unsqueeze(0)})
                 : at::cat({first.unsqueeze(0), each.narrow(0, 0, steps - 1)});
}

// torch's composite of a layer with one state.
using Native = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, at::TensorList, bool, int64_t, double, bool,
                                              bool, bool);

// The composite for one layer in one direction.
std::array<Tensor, 3> composite(const Layer& l) {
  const auto turned = [&](const Tensor& t) { return l.reverse ? t.flip(0) : t; };
  std::vector<Tensor> weights{l.of_input, l.of_hidden};
  const bool biased = l.input_bias.defined();
  if (biased) weights.insert(weights.end(), {l.input_bias, l.hidden_bias});
  const Tensor input = turned(l.input), hx = l.hx.unsqueeze(0);
  if (l.kind == Recurrence::Lstm) {
    auto [output, h, c] = at::native::lstm(input, {hx, l.cx.unsqueeze(0)}, weights, biased, 1, 0., false, false, false);
    return {turned(output), h.squeeze(0), c.squeeze(0)};
  }
  const Native gru = at::native::gru, tanh = at::native::rnn_tanh, relu = at::native::rnn_relu;
  const Native f = l.kind == Recurrence::Gru ? gru : l.kind == Recurrence::Tanh ? tanh : relu;
  auto [output, h] = f(input, hx, weights, biased, 1, 0., false, false, false);
  return {turned(output), h.squeeze(0), Tensor()};
}

// ---- a layer of an LSTM as one operator ----------------------------------------------------------------------------------

// These define the operators; input is [steps, batch, in]. kept: [6, steps, batch, hidden], for the backward: the gates i, f,
// n, o after their functions, the cells and their tanh. Of 0 steps where no backward follows.
void lstm_layer(const Tensor& input, const Tensor& of_input, const Tensor& of_hidden, const OptionalTensor& input_bias,
                const OptionalTensor& hidden_bias, const Tensor& hx, const Tensor& cx, Tensor output, Tensor hy,
                Tensor cy, Tensor kept) {
  const auto or_none = [](const OptionalTensor& t) { return t.value_or(Tensor()); };
  const Results r =
      forward({Recurrence::Lstm, false, input, of_input, of_hidden, hx, cx, or_none(input_bias), or_none(hidden_bias)});
  output.copy_(r.output);
  hy.copy_(r.h);
  cy.copy_(r.c);
  if (kept.numel() == 0) return;
  const int64_t hidden = hx.size(1);
  for (int64_t gate = 0; gate < 4; ++gate) kept[gate].copy_(r.gates.narrow(2, gate * hidden, hidden));
  kept[4].copy_(r.others);
  kept[5].copy_(r.others.tanh());
}

// grad_bias is that of both biases, and has no elements where there are none.
void lstm_layer_backward(const Tensor& input, const Tensor& of_input, const Tensor& of_hidden,
                         const OptionalTensor& input_bias, const OptionalTensor& hidden_bias, const Tensor& hx,
                         const Tensor& cx, const Tensor& output, const Tensor& kept, const OptionalTensor& grad_output,
                         const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, Tensor grad_input,
                         Tensor grad_of_input, Tensor grad_of_hidden, Tensor grad_bias, Tensor grad_hx,
                         Tensor grad_cx) {
  const int64_t steps = input.size(0), batch = input.size(1), wide = of_hidden.size(0);
  const Tensor h_before = before_each(hx, output, false), c_before = before_each(cx, kept[4], false);
  Tensor grad_h = fresh(grad_hy, hx), grad_c = fresh(grad_cy, cx);
  Tensor grad_gates = at::empty({steps, batch, wide}, input.options());
  for (int64_t step = steps; step-- > 0;) {
    const auto now = [&](const Tensor& t) { return t.select(0, step); };
    const Tensor i = now(kept[0]), f = now(kept[1]), n = now(kept[2]), o = now(kept[3]), bent = now(kept[5]);
    const Tensor dh = grad_output ? grad_h + now(*grad_output) : grad_h;
    const Tensor dc = grad_c + dh * o * (1 - bent * bent);
    grad_gates.select(0, step).copy_(at::cat(
        {dc * n * i * (1 - i), dc * now(c_before) * f * (1 - f), dc * i * (1 - n * n), dh * bent * o * (1 - o)}, 1));
    grad_c = dc * f;
    grad_h = at::mm(now(grad_gates), of_hidden);
  }
  const Tensor all = grad_gates.view({steps * batch, wide});
  grad_input.copy_(at::mm(all, of_input).view(input.sizes()));
  grad_of_input.copy_(at::mm(all.t(), input.reshape({steps * batch, -1})));
  grad_of_hidden.copy_(at::mm(all.t(), h_before.view({steps * batch, -1})));
  if (grad_bias.numel()) grad_bias.copy_(all.sum(0));
  grad_hx.copy_(grad_h);
  grad_cx.copy_(grad_c);
}

TORCH_LIBRARY_FRAGMENT(causeway, m) {
  m.def(
      "lstm_layer(Tensor input, Tensor of_input, Tensor of_hidden, Tensor? input_bias, Tensor? hidden_bias, Tensor hx, "
      "Tensor cx, Tensor(a!) output, Tensor(b!) hy, Tensor(c!) cy, Tensor(d!) kept) -> ()");
  m.def(
      "lstm_layer_backward(Tensor input, Tensor of_input, Tensor of_hidden, Tensor? input_bias, Tensor? hidden_bias, "
      "Tensor hx, Tensor cx, Tensor output, Tensor kept, Tensor? grad_output, Tensor? grad_hy, Tensor? grad_cy, "
      "Tensor(a!) grad_input, Tensor(b!) grad_of_input, Tensor(c!) grad_of_hidden, Tensor(d!) grad_bias, "
      "Tensor(e!) grad_hx, Tensor(f!) grad_cx) -> ()");
}
TORCH_LIBRARY_IMPL(causeway, CPU, m) {
  m.impl("lstm_layer", lstm_layer);
  m.impl("lstm_layer_backward", lstm_layer_backward);
}

const auto& layer_forward() { return operator_of<&lstm_layer>("causeway::lstm_layer"); }
const auto& layer_backward() { return operator_of<&lstm_layer_backward>("causeway::lstm_layer_backward"); }

bool has_layer(Recurrence kind, c10::ScalarType dtype, int device) {
  static Operator& there = operator_for(layer_forward());
  static Operator& back = operator_for(layer_backward());
  return kind == Recurrence::Lstm && has_kernel(there, dtype, device) && has_kernel(back, dtype, device);
}

// The vendor's layer runs from the first step to the last. gates are what it keeps, of no steps where no backward follows.
Results forward_by_vendor(const Layer& l, bool keep) {
  const int64_t steps = l.input.size(0), batch = l.input.size(1), hidden = l.hx.size(1);
  const auto options = l.input.options();
  Tensor output = at::empty({steps, batch, hidden}, options), h = at::empty({batch, hidden}, options),
         c = at::empty({batch, hidden}, options), kept = at::empty({6, keep ? steps : 0, batch, hidden}, options);
  layer_forward().call(l.reverse ? l.input.flip(0) : l.input, l.of_input, l.of_hidden, given(l.input_bias),
                       given(l.hidden_bias), l.hx, l.cx, output, h, c, kept);
  return {l.reverse ? output.flip(0) : output, h, c, kept, {}};
}

variable_list backward_by_vendor(const Layer& l, const std::array<bool, 7>& wanted, const Tensor& grad_output,
                                 const Tensor& grad_h, const Tensor& grad_c, const Tensor& output, const Tensor& kept) {
  const auto turned = [&](const Tensor& t) { return l.reverse && t.defined() ? t.flip(0) : t; };
  const Tensor inputs[] = {l.input, l.of_input, l.of_hidden, l.hx, l.cx};
  variable_list found(7);
  for (size_t i = 0; i < 5; ++i) found[i] = at::empty_like(inputs[i], at::MemoryFormat::Contiguous);
  found[5] = at::empty({l.input_bias.defined() ? l.of_input.size(0) : 0}, l.input.options());
  layer_backward().call(turned(l.input), l.of_input, l.of_hidden, given(l.input_bias), given(l.hidden_bias), l.hx, l.cx,
                        turned(output), kept, given(turned(grad_output)), given(grad_h), given(grad_c), found[0],
                        found[1], found[2], found[5], found[3], found[4]);
  found[0] = turned(found[0]);
  if (wanted[6]) found[6] = wanted[5] ? found[5].clone() : found[5];
  for (size_t i = 0; i < 7; ++i)
    if (!wanted[i]) found[i] = Tensor();
  return found;
}

class RecurrentLayer : public torch::autograd::Function<RecurrentLayer> {
 public:
  using Optional = std::optional<Tensor>;
  static variable_list forward(AutogradContext* context, int64_t kind, bool reverse, const Tensor& input,
                               const Tensor& of_input, const Tensor& of_hidden, const Tensor& hx, const Optional& cx,
                               const Optional& input_bias, const Optional& hidden_bias) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto or_none = [](const Optional& t) { return t.value_or(Tensor()); };
    const Layer l{
        static_cast<Recurrence>(kind), reverse, input, of_input, of_hidden, hx, or_none(cx), or_none(input_bias),
        or_none(hidden_bias)};
    const bool by_vendor = has_layer(l.kind, input.scalar_type(), input.device().index());
    const Results r = by_vendor ? forward_by_vendor(l, /*keep=*/true) : causeway::forward(l);
    context->saved_data["by_vendor"] = by_vendor;
    context->save_for_backward(
        {input, of_input, of_hidden, hx, l.cx, l.input_bias, l.hidden_bias, r.output, r.gates, r.others});
    context->saved_data["kind"] = kind;
    context->saved_data["reverse"] = reverse;
    context->set_materialize_grads(false);
    return l.cx.defined() ? variable_list{r.output, r.h, r.c} : variable_list{r.output, r.h};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list s = context->get_saved_variables();
    const Layer l{static_cast<Recurrence>(context->saved_data["kind"].toInt()),
                  context->saved_data["reverse"].toBool(),
                  s[0],
                  s[1],
                  s[2],
                  s[3],
                  s[4],
                  s[5],
                  s[6]};
    std::array<bool, 7> wanted{};
    size_t place = 0;  // of those that were given
    for (size_t i = 0; i < wanted.size(); ++i)
      if (s[i].defined()) wanted[i] = context->needs_input_grad(place++);
    const bool by_vendor = context->saved_data["by_vendor"].toBool();
    variable_list found = at::GradMode::is_enabled() ? differentiable(l, grads, wanted)
                          : by_vendor ? backward_by_vendor(l, wanted, grads[0], grads[1], grads[2], s[7], s[8])
                                      : once(l, grads, wanted, s[7], s[8], s[9]);
    found.insert(found.begin(), 2, Tensor());  // of the kind and the direction
    return found;
  }

 private:
  static variable_list once(const Layer& l, const variable_list& grads, const std::array<bool, 7>& wanted,
                            const Tensor& output, const Tensor& gates, const Tensor& others) {
    const int64_t steps = gates.size(0), batch = gates.size(1), hidden = l.hx.size(1), wide = gates.size(2);
    const auto or_zeros = [&](size_t i) {
      return grads[i].defined() ? grads[i].clone(at::MemoryFormat::Contiguous) : at::zeros_like(l.hx);
    };
    Tensor grad_h = or_zeros(1), grad_c = l.kind == Recurrence::Lstm ? or_zeros(2) : Tensor();
    const Tensor grad_output = grads[0].defined() ? grads[0].contiguous() : Tensor();
    const Tensor h_before = before_each(l.hx, output, l.reverse);
    const bool at_once = steps > 0 && has_steps(l.kind, l.hx);
    const Tensor c_before = l.kind == Recurrence::Lstm && !at_once ? before_each(l.cx, others, l.reverse) : Tensor();
    Tensor grad_gates = at::empty_like(gates);
    Tensor grad_hidden = l.kind == Recurrence::Gru ? at::empty_like(gates) : grad_gates;
    if (at_once && l.kind == Recurrence::Lstm)
      lstm_all_backward().call(gates, l.of_hidden, l.cx, others, given(grad_output), grad_h, grad_c, grad_gates,
                               l.reverse);
    else if (at_once && l.kind == Recurrence::Gru)
      gru_all_backward().call(gates, l.of_hidden, others, l.hx, output, given(grad_output), grad_h, grad_gates,
                              grad_hidden, l.reverse);
    else if (at_once)
      plain_all_backward().call(output, l.of_hidden, given(grad_output), grad_h, grad_gates, l.kind == Recurrence::Relu,
                                l.reverse);
    const Order order{steps, l.reverse};
    for (int64_t k = 0; k < (at_once ? 0 : steps); ++k) {
      const int64_t t = order.backward(k);
      Tensor now = grad_gates.select(0, t), of_hidden = grad_hidden.select(0, t);
      const OptionalTensor from_output = step_of(given(grad_output), t);
      const bool goes_on = k + 1 < steps || wanted[3];
      switch (l.kind) {
        case Recurrence::Lstm:
          lstm_backward().call(gates.select(0, t), c_before.select(0, t), others.select(0, t), from_output, grad_h,
                               grad_c, now);
          break;
        case Recurrence::Gru:
          gru_backward().call(gates.select(0, t), others.select(0, t), h_before.select(0, t), from_output, grad_h, now,
                              of_hidden);
          break;
        case Recurrence::Tanh:
        case Recurrence::Relu:
          if (from_output) grad_h.add_(*from_output);
          if (l.kind == Recurrence::Tanh)
            at::tanh_backward_out(now, grad_h, output.select(0, t));
          else
            at::threshold_backward_out(now, grad_h, output.select(0, t), 0);
          break;
      }
      if (!goes_on) break;
      if (l.kind == Recurrence::Gru)
        grad_h.addmm_(of_hidden, l.of_hidden);
      else
        at::mm_out(grad_h, of_hidden, l.of_hidden);
    }
    const Tensor all = grad_gates.view({steps * batch, wide}), all_hidden = grad_hidden.view({steps * batch, wide});
    variable_list found(7);
    if (wanted[0]) found[0] = at::mm(all, l.of_input).view(l.input.sizes());
    if (wanted[1]) found[1] = at::mm(all.t(), l.input.reshape({steps * batch, -1}));
    if (wanted[2]) found[2] = at::mm(all_hidden.t(), h_before.view({steps * batch, hidden}));
    if (wanted[3]) found[3] = grad_h;
    if (wanted[4]) found[4] = grad_c;
    if (wanted[5]) found[5] = all.sum(0);
    if (wanted[6]) found[6] = wanted[5] && l.kind != Recurrence::Gru ? found[5].clone() : all_hidden.sum(0);
    return found;
  }

  // By the composite, whose operators have derivatives.
  static variable_list differentiable(const Layer& l, const variable_list& grads, const std::array<bool, 7>& wanted) {
    const std::array<Tensor, 3> results = composite(l);
    const Tensor inputs[] = {l.input, l.of_input, l.of_hidden, l.hx, l.cx, l.input_bias, l.hidden_bias};
    variable_list from, given, of, found(7);
    for (size_t i = 0; i < grads.size(); ++i)
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

Results by_device(const Layer& l) {
  if (!l.differentiates()) {
    at::AutoDispatchBelowADInplaceOrView below;
    return has_layer(l.kind, l.input.scalar_type(), l.input.device().index()) ? forward_by_vendor(l, /*keep=*/false)
                                                                              : forward(l);
  }
  variable_list r = RecurrentLayer::apply(static_cast<int64_t>(l.kind), l.reverse, l.input, l.of_input, l.of_hidden,
                                          l.hx, given(l.cx), given(l.input_bias), given(l.hidden_bias));
  return {r[0], r[1], l.cx.defined() ? r[2] : Tensor(), {}, {}};
}

Results by_onednn(const Layer& l, bool train) {
  const bool biased = l.input_bias.defined();
  const Tensor zeros = biased ? Tensor() : at::zeros({l.of_input.size(0)}, l.of_input.options());
  auto [output, h, c, workspace] = at::mkldnn_rnn_layer(
      l.input, l.of_input, l.of_hidden, biased ? l.input_bias : zeros, biased ? l.hidden_bias : zeros, l.hx, l.cx,
      l.reverse, /*batch_sizes=*/{}, static_cast<int64_t>(l.kind), l.hx.size(1), /*num_layers=*/1, biased,
      /*bidirectional=*/false, /*batch_first=*/false, train || l.differentiates());
  return {output, h.view_as(l.hx), c.view_as(l.cx), {}, {}};
}

// ---- all layers --------------------------------------------------------------------------------------------------------

enum class Way { Composite, Layers, OneDnn };

// What torch's operators are given, but for the input and the state.
struct Options {
  at::TensorList params;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional, batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t weights() const { return has_biases ? 4 : 2; }
};

// hx: [layers * directions, batch, hidden], and LSTM's cell after it.
Way way_of(Recurrence kind, const Tensor& input, at::TensorList states, const Options& o) {
  const c10::Device device = input.device();
  const c10::ScalarType dtype = input.scalar_type();
  const auto fits = [&](const Tensor& t) {
    return t.defined() && t.device() == device && t.scalar_type() == dtype && t.layout() == at::kStrided && is_plain(t);
  };
  // A mode of torch's dispatch, such as its counter of operations, is to see what a layer is made of.
  if (states.size() != (kind == Recurrence::Lstm ? 2 : 1) || !fits(input) || input.dim() != 3 || input.numel() == 0 ||
      in_functorch() || at::autocast::is_autocast_enabled(kDeviceType) ||
      c10::impl::TorchDispatchModeTLS::any_modes_set())
    return Way::Composite;
  if (!std::all_of(states.begin(), states.end(), fits) || !std::all_of(o.params.begin(), o.params.end(), fits))
    return Way::Composite;
  // With a projection, which is one weight more, the cell is wider than the hidden state. Other sizes are for torch to
  // refuse.
  const int64_t places = o.num_layers * o.directions();
  const Tensor& h = states[0];
  if (states.back().sizes() != h.sizes() || h.dim() != 3 || h.size(0) != places ||
      h.size(1) != input.size(o.batch_first ? 0 : 1) || h.size(2) == 0 ||
      static_cast<int64_t>(o.params.size()) != places * o.weights())
    return Way::Composite;
  if (has_layer(kind, dtype, device.index())) return Way::Layers;
  if (has_product(dtype, device.index()) && has_step(kind, dtype, device.index())) return Way::Layers;
  if (!host_computes(dtype, device.index())) return Way::Composite;
  const bool onednn = kind == Recurrence::Lstm && dtype == at::kFloat && at::globalContext().userEnabledMkldnn();
  return onednn ? Way::OneDnn : Way::Layers;
}

// The output, and the last states one after the other.
std::array<Tensor, 3> run(Recurrence kind, Way way, const Tensor& given, at::TensorList states, const Options& o) {
  Tensor input = (o.batch_first ? given.transpose(0, 1) : given).contiguous();
  std::vector<Tensor> last_h, last_c;
  for (int64_t layer = 0; layer < o.num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < o.directions(); ++direction) {
      const int64_t place = layer * o.directions() + direction;
      const Tensor* w = &o.params[place * o.weights()];
      const auto state = [&](size_t i) { return states[i].select(0, place).contiguous(); };
      const Layer l{kind,
                    direction > 0,
                    input,
                    w[0],
                    w[1],
                    state(0),
                    kind == Recurrence::Lstm ? state(1) : Tensor(),
                    o.has_biases ? w[2] : Tensor(),
                    o.has_biases ? w[3] : Tensor()};
      const Results r = way == Way::Layers ? by_device(l) : by_onednn(l, o.train);
      outputs.push_back(r.output);
      last_h.push_back(r.h);
      last_c.push_back(r.c);
    }
    input = o.bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (o.dropout != 0 && o.train && layer + 1 < o.num_layers) input = at::dropout(input, o.dropout, /*train=*/true);
  }
  // As torch's composite has it, and on the CPU has nothing else for these, the output may be written to: backward has its
  // own.
  if (kind != Recurrence::Lstm) {
    if (input.requires_grad() && !o.bidirectional) input = input.clone();
    if (o.batch_first) input.transpose_(0, 1);
  } else if (o.batch_first) {
    input = input.transpose(0, 1);
  }
  return {input, at::stack(last_h), kind == Recurrence::Lstm ? at::stack(last_c) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases,
                                        int64_t num_layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Options o{params, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  const Way way = way_of(Recurrence::Lstm, input, hx, o);
  if (way == Way::Composite)
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  auto [output, h, c] = run(Recurrence::Lstm, way, input, hx, o);
  return {output, h, c};
}

template <Recurrence kind, Native native>
std::tuple<Tensor, Tensor> of_one_state(const Tensor& input, const Tensor& hx, at::TensorList params, bool has_biases,
                                        int64_t num_layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Options o{params, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  const Way way = way_of(kind, input, hx, o);
  if (way == Way::Composite)
    return native(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  auto [output, h, c] = run(kind, way, input, hx, o);
  return {output, h};
}

// In inference mode there are no autograd keys.
template <class Library>
void implement(Library& m) {
  m.impl("lstm.input", lstm);
  m.impl("gru.input", of_one_state<Recurrence::Gru, at::native::gru>);
  m.impl("rnn_tanh.input", of_one_state<Recurrence::Tanh, at::native::rnn_tanh>);
  m.impl("rnn_relu.input", of_one_state<Recurrence::Relu, at::native::rnn_relu>);
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", own<&lstm_cell>("_thnn_fused_lstm_cell"));
  m.impl("_thnn_fused_lstm_cell_backward_impl", own<&lstm_cell_backward>("_thnn_fused_lstm_cell_backward_impl"));
  m.impl("_thnn_fused_gru_cell", own<&gru_cell>("_thnn_fused_gru_cell"));
  m.impl("_thnn_fused_gru_cell_backward", own<&gru_cell_backward>("_thnn_fused_gru_cell_backward"));
  implement(m);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }

}  // namespace

}  // namespace causeway
