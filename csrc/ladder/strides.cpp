#include "ladder/strides.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/index_meta_dispatch.h>

#include "ladder/outputs.h"

namespace causeway {

namespace {

ResultLayout layout_of(const Operator& op) {
  if (op.facts.layout != ResultLayout::Unsaid) return op.facts.layout;
  return op.pointwise ? ResultLayout::Elementwise : ResultLayout::Meta;
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
  const bool numbers = op.handle.schema().overload_name().find("calar") != std::string::npos && op.facts.numbers_expand;
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).check_all_same_device(false);
  config.declare_static_dtype_and_device(at::kByte, at::kMeta).add_owned_output(at::Tensor());
  // What the CPU's kernel casts first, it makes dense.
  const bool casts = at::isFloatingType(out.dtype) && op.facts.casts;
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
  const ResultLayout layout = layout_of(op);
  if (layout == ResultLayout::Meta) return std::nullopt;
  const auto of = static_cast<size_t>(op.facts.layout_of);
  const c10::IValue* args = &stack[stack.size() - op.args.size()];
  if (r > 0 && (layout == ResultLayout::Elementwise || layout == ResultLayout::Format)) return std::nullopt;
  switch (layout) {
    case ResultLayout::Unsaid:
    case ResultLayout::Meta:
      break;
    case ResultLayout::Dense:
      return dims(c10::contiguous_strides(sizes));
    case ResultLayout::Elementwise:
      return elementwise(op, args, of, out);
    case ResultLayout::Like: {
      const at::Tensor& model = args[of].toTensor();
      if (model.sizes() != sizes) return std::nullopt;  // reduced
      if (model.is_non_overlapping_and_dense()) return dims(model.strides());
      return dims(at::infer_dense_strides(model.sizes(), model.strides()));
    }
    case ResultLayout::Format:
      return formatted(args[of].toTensor().suggest_memory_format(), sizes);
    case ResultLayout::Convolution:
      return convolved(args + of, args[of + 6].toBool(), sizes);
    case ResultLayout::Index:
      return indexed(args, sizes);
  }
  return std::nullopt;
}

}  // namespace causeway
