// Steps of recurrent layers, what follows the product of the hidden state: causeway::lstm_step, gru_step and their
// gradients; and all steps at once, with their products: lstm_steps, gru_steps, rnn_steps. Their arithmetic is defined in aten/rnn.cpp.
#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "portable/program.h"
#include "portable/kernels/recurrent.cl.h"

namespace causeway::portable {

namespace {

// The arithmetic of a row, forward or backward.
struct Cell {
  const char* kind;
  int gates;
  const char *row, *text;

  std::string each() const {
    return std::string(row) + "INDEPENDENT\nfor (idx j = 0; j < hidden; ++j) {" + text + "}\n";
  }
};
constexpr auto kRow = texts::recurrent::cell_row, kCell = texts::recurrent::cell;
constexpr auto kRowBack = texts::recurrent::cell_row_backward, kCellBack = texts::recurrent::cell_backward;
constexpr Cell kLstm{"LSTM", 4, kRow, kCell}, kLstmBack{"LSTM", 4, kRowBack, kCellBack};
constexpr Cell kGru{"GRU", 3, kRow, kCell}, kGruBack{"GRU", 3, kRowBack, kCellBack};
constexpr Cell kPlain{"PLAIN", 1, kRow, kCell}, kPlainBack{"PLAIN", 1, kRowBack, kCellBack};

void add_cell(Program& p, const Cell& cell, Dtype dtype) {
  const bool single = dtype == kF32;
  p.define(cell.kind, 1).define("GATES", cell.gates).define("T", name_of(dtype));
  p.define("EXP(v)", single ? "exp_f32(v)" : "exp(v)").define("TANH(v)", single ? "tanh_f32(v)" : "tanh(v)");
  p.before(texts::recurrent::sigmoid);
}

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

  // The cells of each row. Items in turn take rows, whose places become vectors.
  cw_status run(Program& p, const Cell& cell, double cost) const {
    const int64_t rows = t_[0].shape[0], hidden = t_[0].shape[1] / gates_;
    p.value("hidden", hidden).define("STEPS", 0).define("c_before", "cx_p").define("h_before", "hx_p");
    add_cell(p, cell, t_[0].dtype);
    const std::string begin = "const idx t = 0, batch = 0;\n";
    if (!call_.device->in_turn())
      return p.run(rows * hidden, begin + "const idx row = u / hidden, j = u - row * hidden;" + cell.row + cell.text,
                   cost);
    return p.run(rows, begin + "const idx row = u;" + cell.each(), cost * static_cast<double>(hidden));
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
  return s.run(p, kLstm, 100);
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
  return s.run(p, kLstmBack, 60);
}

// gates, the hidden state's, hx, hy, the new gate's hidden part
cw_status gru(KernelCall& call, const void*) {
  const Step s = Step(call, 3).wide({1}).narrow({2, 3, 4});
  if (!s.fits()) return CW_UNSUPPORTED;
  if (s.empty()) return CW_OK;
  Program p(call, "gru_step");
  p.out("gates", s[0]).in("other", s[1]).in("hx", s[2]).out("hy", s[3]).out("hidden_n", s[4]);
  return s.run(p, kGru, 80);
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
  return s.run(p, kGruBack, 40);
}

// ---- all steps at once -----------------------------------------------------------------------------------------------------

constexpr int64_t kLanes = 16;  // columns of a panel of the weights

// [depth, columns] at `row` and `column`, as panels of kLanes columns: [columns / kLanes, depth, kLanes].
cw_status pack(KernelCall& call, const Tensor& weight, int row, int column, void** panels) {
  const int64_t depth = weight.shape[row], columns = weight.shape[column];
  TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(depth * columns * 4), panels));
  Program p(call, "recurrent_panels");
  p.out("to", *panels, kF32).in("w", weight.data, kF32);
  p.value("depth", depth).value("by_row", weight.strides[row]).value("by_column", weight.strides[column]);
  return p.run(columns / kLanes, texts::recurrent::panels, static_cast<double>(depth * kLanes) * 2);
}

// An argument of an operator over all steps: its name in the kernel, and its shape: 'g' the gates of each step, 'e' a state for
// each, 's' a state, 'w' the weight, 'b' a bias of all gates, 'i' a number, which a define is made of.
struct Argument {
  const char* name;
  char shape;
  bool written = false;
  const char* has = nullptr;  // may be none: what says whether it is
};

struct AllSteps {
  const char* name;
  const Cell& cell;
  bool backward;
  std::vector<Argument> arguments;  // the weight is the second; the first has a row for each step
  std::string text = around(backward ? texts::recurrent::steps_backward : texts::recurrent::steps, cell.each());
};

// One kernel for each of the operators over all steps: items that each take some rows of the batch through all of them.
cw_status all_steps(KernelCall& call, const void* which) {
  const auto& op = *static_cast<const AllSteps*>(which);
  Tensor first, weight;
  const auto dense = [&](int i, Tensor* t) { return call.tensor(i, t) && t->contiguous() && t->dtype == kF32; };
  if (!call.device->in_turn() || !dense(0, &first) || first.ndim != 3 || !dense(1, &weight) || weight.ndim != 2)
    return CW_UNSUPPORTED;
  const int64_t steps = first.shape[0], batch = first.shape[1], hidden = weight.shape[1], wide = op.cell.gates * hidden;
  if (hidden % kLanes != 0) return CW_UNSUPPORTED;
  const auto shape_of = [&](char shape) -> std::vector<int64_t> {
    switch (shape) {
      case 'g':
        return {steps, batch, wide};
      case 'e':
        return {steps, batch, hidden};
      case 's':
        return {batch, hidden};
      case 'w':
        return {wide, hidden};
      default:
        return {wide};
    }
  };
  Program p(call, std::strrchr(op.name, ':') + 1);
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    const Argument& a = op.arguments[i];
    const int at = static_cast<int>(i);
    if (a.shape == 'i') {
      p.define(a.name, call.integer(at) != 0);
      continue;
    }
    if (a.has) p.define(a.has, !call.is_none(at));
    if (a.has && call.is_none(at)) continue;
    Tensor t;
    const std::vector<int64_t> shape = shape_of(a.shape);
    if (!dense(at, &t) || t.ndim != static_cast<int>(shape.size()) || !std::equal(shape.begin(), shape.end(), t.shape))
      return CW_UNSUPPORTED;
    if (a.shape == 'w') continue;
    a.written ? p.out(a.name, t.data, kF32) : p.in(a.name, t.data, kF32);
  }
  if (first.numel() == 0) return CW_OK;
  void* panels = nullptr;
  TRY(pack(call, weight, op.backward ? 0 : 1, op.backward ? 1 : 0, &panels));
  const int64_t units = std::max<int64_t>(1, call.device->info.compute_units);
  int64_t rows = 1;
  while (rows < 8 && rows * units < batch) rows *= 2;
  p.in("weight", panels, kF32).define("ROWS", rows).define("STEPS", 1).before(vectors_of_16(*call.device));
  add_cell(p, op.cell, kF32);
  p.value("steps", steps).value("batch", batch).value("hidden", hidden);
  return p.run((batch + rows - 1) / rows, op.text, static_cast<double>(steps * rows * wide * hidden) * 2);
}

const std::vector<AllSteps>& operators_over_steps() {
  static const std::vector<AllSteps> all{
      {"causeway::lstm_steps",
       kLstm,
       false,
       {{"gates", 'g', true},
        {"weight", 'w'},
        {"hx", 's'},
        {"cx", 's'},
        {"hy", 'e', true},
        {"cy", 'e', true},
        {"REVERSE", 'i'}}},
      {"causeway::lstm_steps_backward",
       kLstmBack,
       true,
       {{"gates", 'g'},
        {"weight", 'w'},
        {"cx", 's'},
        {"cy", 'e'},
        {"dout", 'e', false, "HAS_OUTPUT"},
        {"dh", 's', true},
        {"dc", 's', true},
        {"to", 'g', true},
        {"REVERSE", 'i'}}},
      {"causeway::gru_steps",
       kGru,
       false,
       {{"gates", 'g', true},
        {"weight", 'w'},
        {"bias", 'b', false, "HAS_BIAS"},
        {"hx", 's'},
        {"hy", 'e', true},
        {"hidden_n", 'e', true},
        {"REVERSE", 'i'}}},
      {"causeway::gru_steps_backward",
       kGruBack,
       true,
       {{"gates", 'g'},
        {"weight", 'w'},
        {"hidden_n", 'e'},
        {"hx", 's'},
        {"hy", 'e'},
        {"dout", 'e', false, "HAS_OUTPUT"},
        {"dh", 's', true},
        {"to", 'g', true},
        {"other", 'g', true},
        {"REVERSE", 'i'}}},
      {"causeway::rnn_steps",
       kPlain,
       false,
       {{"gates", 'g', true}, {"weight", 'w'}, {"hx", 's'}, {"hy", 'e', true}, {"RELU", 'i'}, {"REVERSE", 'i'}}},
      {"causeway::rnn_steps_backward",
       kPlainBack,
       true,
       {{"hy", 'e'},
        {"weight", 'w'},
        {"dout", 'e', false, "HAS_OUTPUT"},
        {"dh", 's', true},
        {"to", 'g', true},
        {"RELU", 'i'},
        {"REVERSE", 'i'}}},
  };
  return all;
}

}  // namespace

Kernels recurrent_kernels() {
  constexpr cw_dtypes floats = CW_FLOAT32 | CW_FLOAT64;
  Kernels all{{"causeway::lstm_step", lstm, floats, CW_NEEDS_CONTIGUOUS},
              {"causeway::lstm_step_backward", lstm_backward, floats, CW_NEEDS_CONTIGUOUS},
              {"causeway::gru_step", gru, floats, CW_NEEDS_CONTIGUOUS},
              {"causeway::gru_step_backward", gru_backward, floats, CW_NEEDS_CONTIGUOUS}};
  for (const AllSteps& op : operators_over_steps())
    all.push_back({op.name, all_steps, CW_FLOAT32, CW_NEEDS_CONTIGUOUS, &op});
  return all;
}

}  // namespace causeway::portable
