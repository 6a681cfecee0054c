#include "ops/call.hpp"

#include <cstdlib>

#include "layout.hpp"

namespace sim {

int64_t Tensor::numel() const {
  int64_t count = 1;
  for (int d = 0; d < ndim; ++d) count *= shape[d];
  return count;
}

bool Tensor::contiguous() const {
  int64_t expected = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    if (shape[d] != 1 && strides[d] != expected) return numel() == 0;
    expected *= shape[d];
  }
  return true;
}

cw_status Call::read(const DLTensor& from, Tensor* out) const {
  out->dtype = dtype_of(from.dtype);
  if (out->dtype == kOther || !(op_.dtypes >> out->dtype & 1)) return declined("not with this dtype");
  if (from.ndim > most_dims) return declined("too many dimensions");
  out->ndim = from.ndim;
  const int64_t size = size_of(out->dtype);
  int64_t lowest = 0, highest = 0, count = 1;
  for (int32_t d = 0; d < from.ndim; ++d) {
    out->shape[d] = from.shape[d];
    out->strides[d] = from.strides[d];
    count *= from.shape[d];
    int64_t reach = (from.shape[d] - 1) * from.strides[d] * size;
    (reach < 0 ? lowest : highest) += reach;
  }
  out->is_host_scalar = false;
  if (count == 0) return out->data = nullptr, CW_OK;
  if (only_asked_) return out->data = nullptr, CW_OK;
  const char* data = static_cast<const char*>(from.data) + from.byte_offset;
  TRY(resolve(device_, data + lowest, uint64_t(highest - lowest + size), op_.name, &out->data));
  out->data -= lowest;
  return CW_OK;
}

// A number in a tensor's place (CW_TAKES_NUMBERS) is a zero-dim tensor whose one element travels with it.
bool Call::number_as_tensor(int i, Tensor* out) const {
  if (!(op_.needs & CW_TAKES_NUMBERS) || i >= n_) return false;
  const cw_arg& arg = args_[i];
  if (arg.tag == CW_DOUBLE)
    out->dtype = kDouble;
  else if (arg.tag == CW_INT)
    out->dtype = kInt64;
  else if (arg.tag == CW_BOOLEAN)
    out->dtype = kBool;
  else
    return false;
  out->ndim = 0;
  out->is_host_scalar = true;
  if (arg.tag == CW_DOUBLE)
    store_one(out->value, arg.v.d, kDouble);
  else
    store_one(out->value, arg.v.i, out->dtype);
  return true;
}

cw_status Call::tensor(int i, Tensor* out) const {
  if (number_as_tensor(i, out)) return CW_OK;
  if (i >= n_ || args_[i].tag != CW_TENSOR) {
    return fail(CW_INVALID, "%s: argument %d of %d is not a tensor", op_.name, i, n_);
  }
  return read(*args_[i].v.tensor, out);
}

cw_status Call::tensors(int i, std::vector<Tensor>* out) const {
  if (i >= n_ || args_[i].tag != CW_TENSOR_LIST) {
    return fail(CW_INVALID, "%s: argument %d of %d is not a list of tensors", op_.name, i, n_);
  }
  out->resize(args_[i].n);
  for (uint32_t k = 0; k < args_[i].n; ++k) {
    if (!args_[i].v.tensors[k]) return declined("an undefined tensor in a list");
    TRY(read(*args_[i].v.tensors[k], &(*out)[k]));
  }
  return CW_OK;
}

int64_t Call::integer(int i, int64_t otherwise) const { return is_none(i) ? otherwise : args_[i].v.i; }

std::vector<int64_t> Call::ints(int i) const {
  if (i >= n_) return {};
  if (args_[i].tag == CW_INT) return {args_[i].v.i};
  if (args_[i].tag != CW_INT_LIST && args_[i].tag != CW_BOOLEAN_LIST) return {};
  return std::vector<int64_t>(args_[i].v.ints, args_[i].v.ints + args_[i].n);
}

cw_status Call::scratch(uint64_t bytes, char** out) const {
  if (!host().scratch) return declined("the core lends no scratch memory");
  if (only_asked_) return *out = nullptr, CW_OK;
  void* lent = nullptr;
  TRY(host().scratch(device_.index, stream_, bytes, &lent));
  return resolve(device_, lent, bytes, op_.name, out);
}

cw_status Call::resize(int i, const std::vector<int64_t>& shape) const {
  if (!host().resize) return declined("the core resizes no outputs");
  return host().resize(args_[i].v.tensor, int32_t(shape.size()), shape.data());
}

cw_status Call::panels(int i, uint64_t bytes, const char** out) const {
  constexpr uint64_t least = 4096;  // less is rearranged in no time
  if (bytes < least || !host().packed || !layout_table() || only_asked_) return CW_OK;
  const void* found = nullptr;
  const cw_status status = host().packed(args_[i].v.tensor, 0, stream_, &found);
  if (status == CW_UNSUPPORTED) return CW_OK;
  if (status) return status;  // with the words of what failed, `pack` here
  char* data = nullptr;
  TRY(resolve(device_, found, bytes, op_.name, &data));
  return *out = data, CW_OK;
}

cw_status Call::wait() const {
  if (only_asked_) return CW_NOT_READY;  // from here on it would look at data: it takes the call
  cw_stream_t* stream = nullptr;
  TRY(find_stream(device_, stream_, &stream));
  return stream->sync();
}

// As chips do that write whole lines of their memory: what lies behind an output is gone. Only of outputs that are dense
// and begin where the core begins its blocks: behind others there may be more of the same tensor.
cw_status Call::launch_overrun(std::function<cw_status()> work) {
  constexpr uintptr_t block = 512;
  std::vector<std::pair<char*, uint64_t>> behind;
  for (int i = 0; i < op_.outputs; ++i) {
    if (is_none(i) || args_[i].tag != CW_TENSOR) continue;
    const DLTensor& t = *args_[i].v.tensor;
    int64_t numel = 1;
    bool dense = reinterpret_cast<uintptr_t>(t.data) % block == 0;
    for (int32_t d = t.ndim - 1; d >= 0; --d) {
      dense = dense && (t.shape[d] == 1 || t.strides[d] == numel);
      numel *= t.shape[d];
    }
    if (!dense || numel == 0) continue;
    const uint64_t bytes = uint64_t(numel) * t.dtype.bits * t.dtype.lanes / 8;
    const Allocation* found = device_.find(reinterpret_cast<uintptr_t>(t.data), bytes);
    if (!found) continue;
    const uint64_t left = found->base + found->bytes - reinterpret_cast<uintptr_t>(t.data) - bytes;
    char* data = nullptr;
    TRY(resolve(device_, t.data, bytes, op_.name, &data));
    behind.emplace_back(data + bytes, std::min<uint64_t>(left, uint64_t(settings().overrun)));
  }
  return put(device_, stream_, op_.name, [work, behind] {
    const cw_status status = work();
    for (const auto& [data, bytes] : behind) memset(data, 0xDD, bytes);
    return status;
  });
}

cw_status Call::launch_corrupted(std::function<cw_status()> work) {
  std::vector<Tensor> outputs(size_t(op_.outputs));
  for (int i = 0; i < op_.outputs; ++i) {
    if (!is_none(i)) TRY(tensor(i, &outputs[size_t(i)]));
  }
  return put(device_, stream_, op_.name, [work, outputs] {
    cw_status status = work();
    for (const Tensor& out : outputs) {
      if (out.dtype == kOther || !out.data) continue;
      // A plausible number of the right type, everywhere: no NaN that would give itself away.
      int64_t index[most_dims] = {};
      for (int64_t left = out.numel(); left > 0; --left) {
        char* element = out.data;
        for (int d = 0; d < out.ndim; ++d) element += index[d] * out.stride_bytes(d);
        if (out.dtype == kBool)
          *element = !*element;
        else
          store_one(element, load_one<double>(element, out.dtype) + 1.0, out.dtype);
        for (int d = out.ndim - 1; d >= 0 && ++index[d] == out.shape[d]; --d) index[d] = 0;
      }
    }
    return status;
  });
}

}  // namespace sim
