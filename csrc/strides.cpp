#include "strides.h"

#include <unordered_map>

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

namespace causeway {

namespace {

// How a CPU kernel lays out its first result.
enum class Layout : uint8_t {
  Dense,
  Elementwise,  // as TensorIterator does it: of the tensors in the order of arguments, the first that settles it
  Like,         // of one tensor, as empty_like
  Format,       // channels last where one tensor is, else dense
  Convolution,  // channels last where the input or the weight is
};

struct Rule {
  Layout layout;
  size_t arg = 0;
};

// Found by calling each with two layouts for each of its tensors on the CPU and on meta (torch 2.13).
const Rule* rule_of(const std::string& name) {
  static const std::unordered_map<std::string, Rule> rules = {
      {"aten::elu_backward", {Layout::Elementwise}},
      {"aten::softplus_backward", {Layout::Elementwise}},
      {"aten::hardswish_backward", {Layout::Elementwise}},
      {"aten::hardtanh_backward", {Layout::Elementwise}},
      {"aten::hardsigmoid_backward", {Layout::Elementwise}},
      {"aten::logit_backward", {Layout::Elementwise}},
      {"aten::mse_loss_backward", {Layout::Dense}},
      {"aten::smooth_l1_loss_backward", {Layout::Dense}},
      {"aten::huber_loss_backward", {Layout::Dense}},
      {"aten::log_sigmoid_forward", {Layout::Dense}},
      {"aten::_log_softmax_backward_data", {Layout::Dense}},
      {"aten::binary_cross_entropy", {Layout::Like, 0}},
      {"aten::binary_cross_entropy_backward", {Layout::Like, 1}},
      {"aten::native_dropout_backward", {Layout::Like, 0}},
      {"aten::native_batch_norm_backward", {Layout::Format, 1}},
      {"aten::native_group_norm_backward", {Layout::Format, 1}},
      {"aten::reflection_pad2d", {Layout::Format, 0}},
      {"aten::reflection_pad2d_backward", {Layout::Format, 1}},
      {"aten::replication_pad2d", {Layout::Format, 0}},
      {"aten::replication_pad2d_backward", {Layout::Format, 1}},
      {"aten::convolution", {Layout::Convolution, 0}},
      {"aten::convolution_backward", {Layout::Convolution, 1}},
  };
  const auto it = rules.find(name);
  return it == rules.end() ? nullptr : &it->second;
}

c10::DimVector dims(at::IntArrayRef strides) { return c10::DimVector(strides); }

c10::DimVector formatted(at::MemoryFormat format, at::IntArrayRef sizes) {
  if (format == at::MemoryFormat::ChannelsLast && sizes.size() == 4)
    return dims(c10::get_channels_last_strides_2d(sizes));
  if (format == at::MemoryFormat::ChannelsLast3d && sizes.size() == 5)
    return dims(c10::get_channels_last_strides_3d(sizes));
  return dims(c10::contiguous_strides(sizes));
}

at::Tensor on_meta(const at::Tensor& t) {
  return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
}

std::optional<c10::DimVector> elementwise(const Operator& op, const Stack& stack, at::IntArrayRef sizes) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).check_all_same_device(false);
  config.declare_static_dtype_and_device(at::kByte, at::kMeta).add_owned_output(at::Tensor());
  for (size_t i = stack.size() - op.args.size(); i < stack.size(); ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined())
      config.add_owned_const_input(on_meta(stack[i].toTensor()));
  const at::TensorIterator iterator = config.build();
  const at::TensorBase& made = iterator.output_base(0);
  if (made.sizes() != sizes) return std::nullopt;
  return c10::DimVector(made.strides());
}

// torch's meta kernels take the results of every convolution for dense.
std::optional<c10::DimVector> convolved(const c10::IValue* tensors, at::IntArrayRef sizes) {
  auto last = at::MemoryFormat::Contiguous;
  for (size_t i = 0; i < 2; ++i) {
    const auto format = tensors[i].toTensor().suggest_memory_format();
    if (format != at::MemoryFormat::Contiguous) last = format;
  }
  if (last == at::MemoryFormat::ChannelsLast3d && tensors[0].toTensor().scalar_type() == at::kDouble)
    return std::nullopt;
  if (sizes.size() != (last == at::MemoryFormat::ChannelsLast ? 4 : 5)) return std::nullopt;
  if (last == at::MemoryFormat::Contiguous) return std::nullopt;
  return formatted(last, sizes);
}

}  // namespace

std::optional<c10::DimVector> strides_of_cpu(const Operator& op, const Stack& stack, size_t r, at::IntArrayRef sizes) {
  if (r >= op.return_of.size() || op.return_of[r] >= 0) return std::nullopt;  // given: it keeps its own
  const Rule* rule = rule_of(op.handle.schema().name());
  if (!rule) return std::nullopt;
  const c10::IValue* args = &stack[stack.size() - op.args.size()];
  if (rule->layout == Layout::Convolution) return convolved(args + rule->arg, sizes);
  if (r > 0) return std::nullopt;
  switch (rule->layout) {
    case Layout::Elementwise:
      return elementwise(op, stack, sizes);
    case Layout::Like:
      if (args[rule->arg].toTensor().sizes() != sizes) return std::nullopt;  // reduced
      return c10::DimVector(at::empty_like(on_meta(args[rule->arg].toTensor())).strides());
    case Layout::Format:
      return formatted(args[rule->arg].toTensor().suggest_memory_format(), sizes);
    default:
      return dims(c10::contiguous_strides(sizes));
  }
}

}  // namespace causeway
