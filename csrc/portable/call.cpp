#include "portable/call.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "portable/epilogue.h"
#include "portable/portable.h"

namespace causeway::portable {

int64_t Tensor::numel() const {
  int64_t count = 1;
  for (int d = 0; d < ndim; ++d) count *= shape[d];
  return count;
}

bool Tensor::contiguous() const {
  int64_t expected = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

bool Tensor::in_one_piece() const {
  int order[32];  // more than kMostDims, or the compiler sees a sort beyond the end
  for (int d = 0; d < ndim; ++d) order[d] = d;
  std::sort(order, order + ndim, [&](int a, int b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (int i = 0; i < ndim; ++i) {
    const int d = order[i];
    if (shape[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

bool Tensor::lies_as(const Tensor& other) const {
  for (int d = 0; d < ndim; ++d)
    if (shape[d] != 1 && strides[d] != other.strides[d]) return false;
  return true;
}

bool read_number(const cw_arg& from, Number* out) {
  switch (from.tag) {
    case CW_INT:
      *out = {kI64, 0, from.v.i};
      return true;
    case CW_BOOLEAN:
      *out = {kBool, 0, from.v.i};
      return true;
    case CW_DOUBLE:
      *out = {kF64, from.v.d, 0};
      return true;
    default:
      return false;
  }
}

bool KernelCall::read(const DLTensor* from, Tensor* out) const {
  if (!from || from->ndim > kMostDims) return false;
  out->dtype = dtype_of(from->dtype);
  if (out->dtype == kOther) return false;
  out->data = static_cast<const char*>(from->data) + from->byte_offset;
  out->ndim = from->ndim;
  for (int d = 0; d < from->ndim; ++d) out->shape[d] = from->shape[d], out->strides[d] = from->strides[d];
  return true;
}

bool KernelCall::tensor(int i, Tensor* out) const {
  return i < n_ && args_[i].tag == CW_TENSOR && read(args_[i].v.tensor, out);
}

bool KernelCall::number(int i, Number* out) const { return i < n_ && read_number(args_[i], out); }

double KernelCall::real(int i, double otherwise) const {
  Number number;
  return this->number(i, &number) ? number.real() : otherwise;
}

std::vector<int64_t> KernelCall::ints(int i) const {
  if (tag(i) == CW_INT) return {args_[i].v.i};
  if (tag(i) != CW_INT_LIST && tag(i) != CW_BOOLEAN_LIST) return {};
  return {args_[i].v.ints, args_[i].v.ints + args_[i].n};
}

bool KernelCall::open() {
  for (int i = 0; i < n_; ++i) {
    if (args_[i].tag == CW_TENSOR) return (device = device_at(args_[i].v.tensor->device.device_id)) != nullptr;
    if (args_[i].tag == CW_TENSOR_LIST)
      for (uint32_t k = 0; k < args_[i].n; ++k)
        if (args_[i].v.tensors[k]) return (device = device_at(args_[i].v.tensors[k]->device.device_id)) != nullptr;
  }
  return false;
}

// A kernel that cannot be built with an epilogue is tried without: products write all of their results, whatever was
// written before. What failed for lack of a device or of memory fails without, too.
cw_status run_kernel(const Kernel& kernel, KernelCall& call) {
  begin_operator(kernel.name);
  call.epilogue_ = PendingEpilogue::of(kernel.name);
  const cw_status status = kernel.run(call, kernel.data);
  if (!call.takes_epilogue_) return status;
  if (status == CW_OK) call.epilogue_->taken = true;
  if (status == CW_OK || status == CW_DEVICE_LOST || status == CW_OUT_OF_MEMORY) return status;
  call.epilogue_->refuse(kernel.name);
  call.epilogue_ = nullptr;
  begin_operator(kernel.name);
  return kernel.run(call, kernel.data);
}

namespace {

constexpr size_t kMostKernels = 1024;

const Kernels& kernels() {
  static const Kernels& all = *[] {
    auto* list = new Kernels;
    for (const auto& part :
         {pointwise_kernels(),   reduce_kernels(),   softmax_kernels(), loss_kernels(),      matmul_kernels(),
          convolution_kernels(), pool_kernels(),     norm_kernels(),    random_kernels(),    index_kernels(),
          attention_kernels(),   upsample_kernels(), gather_kernels(),  scatter_kernels(),   scan_kernels(),
          sort_kernels(),        find_kernels(),     fused_kernels(),   foreach_kernels(),   foreach_norm_kernels(),
          rearrange_kernels(),   product_kernels(),  ctc_kernels(),     quantized_kernels(), packed_kernels(),
          recurrent_kernels(),   boxes_kernels()})
      list->insert(list->end(), part.begin(), part.end());
    if (list->size() > kMostKernels) __builtin_trap();
    return list;
  }();
  return all;
}

// cw_kernel has no word of the vendor's own, so each line of the table gets a function of its own.
template <size_t I>
cw_status run(const cw_arg* args, int32_t n, cw_stream stream) {
  static const Kernel& kernel = kernels()[I];
  KernelCall call(kernel.name, args, n, stream);
  if (!call.open()) return CW_UNSUPPORTED;
  return run_kernel(kernel, call);
}

template <size_t... I>
const cw_kernel* functions(std::index_sequence<I...>) {
  static const cw_kernel all[] = {run<I>...};
  return all;
}

}  // namespace

cw_op find(const char* name) { return is_open() ? listed(name) : cw_op{}; }

cw_op listed(const char* name) {
  static const auto& by_name = *[] {
    auto* map = new std::unordered_map<std::string, size_t>;
    for (size_t i = 0; i < kernels().size(); ++i) map->emplace(kernels()[i].name, i);
    return map;
  }();
  const auto it = by_name.find(name);
  if (it == by_name.end()) return {};
  const Kernel& kernel = kernels()[it->second];
  return {sizeof(cw_op), kernel.needs, kernel.dtypes, functions(std::make_index_sequence<kMostKernels>())[it->second]};
}

}  // namespace causeway::portable
