#include "ladder/strides.h"

#include <unordered_map>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/index_meta_dispatch.h>

#include "ladder/outputs.h"

namespace causeway {

namespace {

// How a CPU kernel lays out its results; Elementwise and Format are of the first alone.
enum class Layout : uint8_t {
  Dense,
  Elementwise,  // as TensorIterator does it: the first tensor that settles it, `arg` before the others
  Like,         // of one tensor, as empty_like
  Format,       // channels last where one tensor is, else dense
  Convolution,  // channels last where the input or the weight is
  Index,        // as TensorIterator does it of what is picked from and the indices
};

struct Rule {
  Layout layout;
  size_t arg = 0;
};

// Found by calling every operator with many layouts of its tensors on the CPU and on a device (torch 2.13); the keys are
// names, or names with an overload.
const Rule* rule_of(const Operator& op) {
  static const std::unordered_map<std::string, Rule> rules = {
      {"aten::elu_backward", {Layout::Elementwise}},
      {"aten::softplus_backward", {Layout::Elementwise}},
      {"aten::hardswish_backward", {Layout::Elementwise}},
      {"aten::hardtanh_backward", {Layout::Elementwise}},
      {"aten::hardsigmoid_backward", {Layout::Elementwise}},
      {"aten::logit_backward", {Layout::Elementwise}},
      {"aten::floor_divide", {Layout::Elementwise}},
      {"aten::leaky_relu_backward", {Layout::Elementwise, 1}},
      {"aten::threshold_backward", {Layout::Elementwise, 1}},
      {"aten::native_dropout_backward", {Layout::Elementwise}},
      {"aten::hardtanh", {Layout::Like, 0}},
      {"aten::sort", {Layout::Like, 0}},
      {"aten::_log_softmax", {Layout::Dense}},
      {"aten::_softmax", {Layout::Dense}},
      {"aten::_safe_softmax", {Layout::Dense}},
      {"aten::glu_backward", {Layout::Dense}},
      {"aten::tril", {Layout::Dense}},
      {"aten::triu", {Layout::Dense}},
      {"aten::flip", {Layout::Like, 0}},
      {"aten::index", {Layout::Index}},
      {"aten::_unsafe_index", {Layout::Index}},
      {"aten::pixel_shuffle", {Layout::Format, 0}},
      {"aten::pixel_unshuffle", {Layout::Format, 0}},
      {"aten::log_sigmoid_backward", {Layout::Like, 0}},
      {"aten::pow.Scalar", {Layout::Dense}},
      {"aten::nll_loss2d_forward", {Layout::Dense}},
      {"aten::native_layer_norm", {Layout::Dense}},
      {"aten::native_layer_norm_backward", {Layout::Dense}},
      {"aten::mse_loss_backward", {Layout::Dense}},
      {"aten::smooth_l1_loss_backward", {Layout::Dense}},
      {"aten::huber_loss_backward", {Layout::Dense}},
      {"aten::log_sigmoid_forward", {Layout::Dense}},
      {"aten::_log_softmax_backward_data", {Layout::Dense}},
      {"aten::binary_cross_entropy", {Layout::Like, 0}},
      {"aten::binary_cross_entropy_backward", {Layout::Like, 1}},
      {"aten::native_batch_norm", {Layout::Format, 0}},
      {"aten::_native_batch_norm_legit", {Layout::Format, 0}},
      {"aten::native_batch_norm_backward", {Layout::Format, 1}},
      {"aten::native_group_norm_backward", {Layout::Format, 1}},
      {"aten::reflection_pad2d", {Layout::Format, 0}},
      {"aten::reflection_pad2d_backward", {Layout::Format, 1}},
      {"aten::reflection_pad3d", {Layout::Format, 0}},
      {"aten::reflection_pad3d_backward", {Layout::Format, 1}},
      {"aten::replication_pad2d", {Layout::Format, 0}},
      {"aten::replication_pad2d_backward", {Layout::Format, 1}},
      {"aten::replication_pad3d", {Layout::Format, 0}},
      {"aten::replication_pad3d_backward", {Layout::Format, 1}},
      {"aten::convolution", {Layout::Convolution, 0}},
      {"aten::convolution_backward", {Layout::Convolution, 1}},
  };
  static const Rule pointwise{Layout::Elementwise};
  for (const std::string& name : {op.name, op.handle.schema().name()})
    if (const auto it = rules.find(name); it != rules.end()) return &it->second;
  return op.pointwise && op.name != "aten::clone" ? &pointwise : nullptr;
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

// A number of an overload that takes one in a tensor's place is a tensor of no dimensions to the CPU's kernel.
std::optional<c10::DimVector> elementwise(const Operator& op, const c10::IValue* args, size_t first,
                                          const OutMeta& out) {
  const bool numbers = op.handle.schema().overload_name().find("calar") != std::string::npos &&
                       op.name != "aten::pow.Tensor_Scalar" && op.name != "aten::lerp.Scalar";
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).check_all_same_device(false);
  config.declare_static_dtype_and_device(at::kByte, at::kMeta).add_owned_output(at::Tensor());
  // What the CPU's kernel casts first, it makes dense.
  const bool casts = at::isFloatingType(out.dtype) && op.handle.schema().name() != "aten::where";
  const auto add = [&](size_t i) {
    const c10::IValue& v = args[i];
    if (op.args[i].write) return;
    if (v.isTensor() && v.toTensor().defined()) {
      const at::Tensor t = on_meta(v.toTensor());
      config.add_owned_const_input(casts && at::isIntegralType(t.scalar_type(), true) ? t.to(out.dtype) : t);
    }
    if (v.isScalar() && numbers) config.add_owned_const_input(at::empty({}, at::TensorOptions(at::kMeta)));
  };
  add(first);
  for (size_t i = 0; i < op.args.size(); ++i)
    if (i != first) add(i);
  const at::TensorIterator iterator = config.build();
  const at::TensorBase& made = iterator.output_base(0);
  if (made.sizes() != at::IntArrayRef(out.sizes)) return std::nullopt;
  return c10::DimVector(made.strides());
}

// torch's meta kernels take the results of every convolution for dense.
std::optional<c10::DimVector> convolved(const c10::IValue* tensors, bool transposed, at::IntArrayRef sizes) {
  auto last = at::MemoryFormat::Contiguous;
  for (size_t i = 0; i < 2; ++i) {
    const auto format = tensors[i].toTensor().suggest_memory_format();
    if (format != at::MemoryFormat::Contiguous) last = format;
  }
  if (last == at::MemoryFormat::ChannelsLast3d && transposed) return dims(c10::contiguous_strides(sizes));
  if (last == at::MemoryFormat::ChannelsLast3d && tensors[0].toTensor().scalar_type() == at::kDouble)
    return std::nullopt;
  if (sizes.size() != (last == at::MemoryFormat::ChannelsLast ? 4 : 5)) return std::nullopt;
  if (last == at::MemoryFormat::Contiguous) return std::nullopt;
  return formatted(last, sizes);
}

// By torch's meta kernel in C++; the one in Python, which a call of meta tensors goes to, differs.
std::optional<c10::DimVector> indexed(const c10::IValue* args, at::IntArrayRef sizes) {
  if (takes_mask(args[1])) return std::nullopt;
  c10::List<std::optional<at::Tensor>> indices;
  for (const auto& e : args[1].toListRef())
    indices.push_back(e.isTensor() && e.toTensor().defined() ? std::optional(on_meta(e.toTensor())) : std::nullopt);
  const at::Tensor model = at::meta::index(on_meta(args[0].toTensor()), indices);
  return model.sizes() == sizes ? std::optional(dims(model.strides())) : std::nullopt;
}

}  // namespace

std::optional<c10::DimVector> strides_of_cpu(const Operator& op, const Stack& stack, size_t r, const OutMeta& out) {
  const at::IntArrayRef sizes = out.sizes;
  const Rule* rule = rule_of(op);
  if (!rule) return std::nullopt;
  const c10::IValue* args = &stack[stack.size() - op.args.size()];
  if (r > 0 && (rule->layout == Layout::Elementwise || rule->layout == Layout::Format)) return std::nullopt;
  switch (rule->layout) {
    case Layout::Dense:
      return dims(c10::contiguous_strides(sizes));
    case Layout::Elementwise:
      return elementwise(op, args, rule->arg, out);
    case Layout::Like: {
      const at::Tensor& model = args[rule->arg].toTensor();
      if (model.sizes() != sizes) return std::nullopt;  // reduced
      if (model.is_non_overlapping_and_dense()) return dims(model.strides());
      return dims(at::infer_dense_strides(model.sizes(), model.strides()));
    }
    case Layout::Format:
      return formatted(args[rule->arg].toTensor().suggest_memory_format(), sizes);
    case Layout::Convolution:
      return convolved(args + rule->arg, args[rule->arg + 6].toBool(), sizes);
    case Layout::Index:
      return indexed(args, sizes);
  }
  return std::nullopt;
}

}  // namespace causeway
