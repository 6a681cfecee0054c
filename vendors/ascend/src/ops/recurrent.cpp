// A layer of an LSTM over all its steps, by aclnnLSTM, and its gradient. aclnn keeps seven tensors for the gradient: gates
// and states of all steps. Six are those that the core keeps; the seventh, the hidden states, is the output.
#include "../call.hpp"

namespace ascend {

namespace {

namespace causeway = cw::causeway;

// Where the arguments of both operators are that begin alike.
constexpr int kInput = 0, kWeight = 1, kBias = 3, kState = 5, kCell = 6;
// In what the core keeps for the gradient.
constexpr int64_t kGateI = 0, kGateF = 1, kGateN = 2, kGateO = 3, kCells = 4, kBent = 5;

bool biased(Frame& f) { return f[kBias].tag != CW_NONE; }

AclTensorList* parameters(Frame& f) {
  std::vector<AclTensor*> all = {f.tensor(f[kWeight]), f.tensor(f[kWeight + 1])};
  if (biased(f)) all.insert(all.end(), {f.tensor(f[kBias]), f.tensor(f[kBias + 1])});
  return f.list(all);
}

// A state as aclnn has it: with the layer as its first dimension. None where none is given.
template <int place, bool written = false>
AclTensor* state(Frame& f) {
  if (f[place].tag == CW_NONE) return nullptr;
  const DLTensor* t = f[place].v.tensor;
  const int64_t shape[] = {1, t->shape[0], t->shape[1]},
                strides[] = {t->shape[0] * t->strides[0], t->strides[0], t->strides[1]};
  return f.view(f.of(t), t->dtype, shape, strides, 3, written);
}

AclTensorList* states(Frame& f) { return f.list({state<kState>(f), state<kCell>(f)}); }

// One of the six, each [steps, batch, hidden].
template <int kept, int64_t which, bool written = false>
AclTensorList* part(Frame& f) {
  const DLTensor* t = f[kept].v.tensor;
  if (t->shape[1] == 0) return nullptr;  // no gradient follows
  const auto bytes = static_cast<uint64_t>(which * t->strides[0]) * t->dtype.bits / 8;
  return f.list({f.view(f.of(t, bytes), t->dtype, t->shape + 1, t->strides + 1, 3, written)});
}

// Hidden states, which are the output once more.
template <int kept>
AclTensorList* hidden_again(Frame& f) {
  const DLTensor* t = f[kept].v.tensor;
  if (t->shape[1] == 0) return nullptr;
  return f.list({f.scratch(type_of(t->dtype), t->dtype.bits / 8, t->shape + 1, 3)});
}

template <int kept>
bool keeps(Frame& f) {
  return f[kept].v.tensor->shape[1] != 0;
}

template <int place>
AclTensorList* one(Frame& f) {
  return f.list({f.tensor(f[place])});
}

// The gradients of the weights, and of both biases, which are the same: the second goes nowhere.
template <int weight, int bias>
AclTensorList* gradients(Frame& f) {
  std::vector<AclTensor*> all = {f.tensor(f[weight]), f.tensor(f[weight + 1])};
  if (biased(f)) {
    const DLTensor* t = f[bias].v.tensor;
    all.insert(all.end(), {f.tensor(t), f.scratch(type_of(t->dtype), t->dtype.bits / 8, t->shape, 1)});
  }
  return f.list(all);
}

AclBoolArray* all_of_them(Frame&) { return nullptr; }

}  // namespace

void add_recurrent(Lines& lines) {
  constexpr cw::Needs layer_needs = {CW_NEEDS_CONTIGUOUS, kFloats};  // what is kept may have no elements
  constexpr auto no_sizes = None::tensor;
  constexpr auto no = Flag::no, yes = Flag::yes;
  constexpr auto layers = Integer{1};
  constexpr int output = 7, last_state = 8, last_cell = 9, kept = 10;
  using Layer = With<kInput, &parameters, &states, no_sizes, &biased, layers, Real{0}, &keeps<kept>, no, no, output,
                     &state<last_state, true>, &state<last_cell, true>, &part<kept, kGateI, true>,
                     &part<kept, kGateN, true>, &part<kept, kGateF, true>, &part<kept, kGateO, true>,
                     &hidden_again<kept>, &part<kept, kCells, true>, &part<kept, kBent, true>>;
  lines.push_back(row<causeway::lstm_layer, Layer>(layer_needs, "LSTM"));
  constexpr int from = 8;  // kept, in the gradient
  using Gradient = With<kInput, &states, &parameters, 9, &state<10>, &state<11>, &part<from, kGateI>,
                        &part<from, kGateN>, &part<from, kGateF>, &part<from, kGateO>, &one<output>,
                        &part<from, kCells>, &part<from, kBent>, no_sizes, &biased, layers, Real{0}, yes, no, no,
                        &all_of_them, 12, &state<16, true>, &state<17, true>, &gradients<13, 15>>;
  lines.push_back(row<causeway::lstm_layer_backward, Gradient>(layer_needs, "LstmBackward"));
}

}  // namespace ascend
