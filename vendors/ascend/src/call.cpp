#include "call.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "device.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace ascend {

int type_of(DLDataType type) {
  switch (cw::dtype_of_dl(type)) {
    case cw::Dtype::boolean:
      return kBool;
    case cw::Dtype::uint8:
      return kUint8;
    case cw::Dtype::int8:
      return kInt8;
    case cw::Dtype::uint16:
      return kUint16;
    case cw::Dtype::int16:
      return kInt16;
    case cw::Dtype::uint32:
      return kUint32;
    case cw::Dtype::int32:
      return kInt32;
    case cw::Dtype::uint64:
      return kUint64;
    case cw::Dtype::int64:
      return kInt64;
    case cw::Dtype::float16:
      return kFloat16;
    case cw::Dtype::bfloat16:
      return kBfloat16;
    case cw::Dtype::float32:
      return kFloat;
    case cw::Dtype::float64:
      return kDouble;
    case cw::Dtype::complex32:
      return kComplex32;
    case cw::Dtype::complex64:
      return kComplex64;
    case cw::Dtype::complex128:
      return kComplex128;
    case cw::Dtype::float8_e4m3fn:
      return kFloat8E4m3;
    case cw::Dtype::float8_e5m2:
      return kFloat8E5m2;
    case cw::Dtype::float8_e8m0fnu:
      return kFloat8E8m0;
    default:
      return kUndefinedType;
  }
}

// 0: as the dtype says; 1: float32 may be rounded to fewer bits, which is HF32 on the chips that have it.
int8_t cube_math(Cube which) {
  const char* key = which == Cube::product ? "torch.matmul_precision" : "torch.conv_precision";
  return torch_asks(key, "tf32") ? 1 : 0;
}

namespace {

// A switch of the process: told when torch's changes.
void follow_determinism() {
  static std::atomic<int> told{0};
  const int asked = torch_asks("torch.deterministic", "1");
  if (told.load(std::memory_order_relaxed) == asked || !acl.set_option) return;
  if (told.exchange(asked) != asked) acl.set_option(kDeterministic, asked);
}

int format_of(int32_t ndim) {
  return ndim == 3 ? kFormatNcl : ndim == 4 ? kFormatNchw : ndim == 5 ? kFormatNcdhw : kFormatNd;
}

}  // namespace

bool Operation::find() {
  if (run) return true;
  const std::string name = std::string("aclnn") + this->name;
  workspace = find_aclnn(name + "GetWorkspaceSize");
  if (!workspace) return false;
  run = reinterpret_cast<Status (*)(void*, uint64_t, AclExecutor*, Stream)>(find_aclnn(name));
  return run != nullptr;
}

Frame::Frame(const char* name, const cw_arg* args, int32_t n, int32_t outputs, cw_stream stream)
    : name_(name), args_(args), n_(n), outputs_(outputs), stream_(stream) {
  // First: aclnn's first call works in this thread's context, which another entry may have changed.
  Device* device = nullptr;
  status_ = find_device(name_, index(), &device);
  follow_determinism();
}

Frame::~Frame() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    switch (made->first) {
      case Kind::tensor:
        aclnn.destroy_tensor(static_cast<const AclTensor*>(made->second));
        break;
      case Kind::scalar:
        aclnn.destroy_scalar(static_cast<const AclScalar*>(made->second));
        break;
      case Kind::int_array:
        aclnn.destroy_int_array(static_cast<const AclIntArray*>(made->second));
        break;
      case Kind::bool_array:
        aclnn.destroy_bool_array(static_cast<const AclBoolArray*>(made->second));
        break;
      case Kind::float_array:
        aclnn.destroy_float_array(static_cast<const AclFloatArray*>(made->second));
        break;
      case Kind::tensor_list:
        aclnn.destroy_tensor_list(static_cast<const AclTensorList*>(made->second));
        break;
      case Kind::scalar_list:
        aclnn.destroy_scalar_list(static_cast<const AclScalarList*>(made->second));
        break;
    }
  }
}

template <class T>
T* Frame::keep(T* made, Kind kind) {
  if (made)
    made_.emplace_back(kind, made);
  else if (!status_)
    status_ = fail(CW_FAILED, "%s: aclnn could not make an argument: %s", name_, words_of(kInvalidParameter).c_str());
  return made;
}

AclTensor* Frame::tensor(const DLTensor* t) {
  const int type = type_of(t->dtype);
  if (type == kUndefinedType) return decline(), nullptr;
  // aclnn asks for the storage that a tensor lies in, behind which the chip may write. The core does not say where that
  // ends: at least what these strides reach, and a part of a tensor must not end there. So all of the allocation.
  int64_t reach = 1;
  for (int32_t d = 0; d < t->ndim; ++d) {
    if (t->shape[d] == 0) {
      reach = 0;
      break;
    }
    reach += (t->shape[d] - 1) * t->strides[d];
  }
  constexpr int64_t most = INT32_MAX;  // elements: kernels count in 32 bits
  const int64_t left = static_cast<int64_t>(bytes_from(t->data)) * 8 / std::max(1, t->dtype.bits * t->dtype.lanes);
  reach = std::max(reach, std::min(left, most));
  return keep(aclnn.tensor(t->shape, static_cast<uint64_t>(t->ndim), type, t->strides, 0, format_of(t->ndim), &reach, 1,
                           t->data),
              Kind::tensor);
}

AclTensor* Frame::tensor(const cw_arg& arg) {
  if (arg.tag == CW_NONE) return nullptr;
  return arg.tag == CW_TENSOR ? tensor(arg.v.tensor) : filled(arg);
}

int32_t Frame::index() const {
  if (const DLTensor* any = first_input()) return any->device.device_id;
  for (int32_t i = 0; i < n_; ++i)
    for (uint32_t j = 0; args_[i].tag == CW_TENSOR_LIST && j < args_[i].n; ++j)
      if (args_[i].v.tensors[j]) return args_[i].v.tensors[j]->device.device_id;
  return 0;
}

const DLTensor* Frame::first_input() const {
  for (int32_t i = outputs_; i < n_; ++i)
    if (args_[i].tag == CW_TENSOR) return args_[i].v.tensor;
  for (int32_t i = 0; i < outputs_; ++i)
    if (args_[i].tag == CW_TENSOR) return args_[i].v.tensor;
  return nullptr;
}

AclTensor* Frame::scratch(int type, int64_t itemsize, const int64_t* shape, int32_t ndim) {
  const DLTensor* any = first_input();
  if (!any) return decline(), nullptr;
  std::vector<int64_t> strides(static_cast<size_t>(ndim), 1);
  int64_t all = 1;
  for (int32_t d = ndim - 1; d >= 0; --d) strides[static_cast<size_t>(d)] = all, all *= shape[d];
  void* data = nullptr;
  if (const cw_status status =
          host.scratch(any->device.device_id, stream_, static_cast<uint64_t>(all * itemsize), &data)) {
    if (!status_) status_ = status;
    return nullptr;
  }
  return keep(aclnn.tensor(shape, static_cast<uint64_t>(ndim), type, strides.data(), 0, kFormatNd, &all, 1, data),
              Kind::tensor);
}

AclTensor* Frame::filled(const cw_arg& number, int type, int64_t itemsize, const int64_t* shape, int32_t ndim) {
  static Operation& fill = *new Operation("InplaceFillScalar");
  if (!fill.run) return decline(), nullptr;
  AclTensor* made = scratch(type, itemsize, shape, ndim);
  AclScalar* value = scalar(number);
  if (!status_) call(fill, made, value);
  return status_ ? nullptr : made;
}

// A number that the operator takes as a tensor only: without dimensions, of the dtype that it is computed in, which is
// the output's but where that is a truth value.
AclTensor* Frame::filled(const cw_arg& number) {
  const DLTensor* like = first_input();
  if (outputs_ && args_[0].tag == CW_TENSOR && args_[0].v.tensor->dtype.code != kDLBool) like = args_[0].v.tensor;
  if (!like) return decline(), nullptr;
  return filled(number, type_of(like->dtype), (like->dtype.bits + 7) / 8, nullptr, 0);
}

AclTensorList* Frame::tensors(const cw_arg& arg) {
  std::vector<const AclTensor*> all;
  for (uint32_t i = 0; i < arg.n; ++i) {
    const DLTensor* t = arg.v.tensors[i];
    const int64_t none = 0, stride = 1;
    // An undefined one (an index that is a whole dimension) is a tensor of nothing.
    all.push_back(t ? tensor(t)
                    : keep(aclnn.tensor(&none, 1, kInt64, &stride, 0, kFormatNd, &none, 1, nullptr), Kind::tensor));
  }
  if (status_) return nullptr;
  AclTensorList* list = aclnn.tensor_list(all.data(), all.size());
  if (list) made_.resize(made_.size() - all.size());  // the list ends them
  return keep(list, Kind::tensor_list);
}

AclScalar* Frame::scalar(double value) { return keep(aclnn.scalar(&value, kDouble), Kind::scalar); }
AclScalar* Frame::scalar(int64_t value) { return keep(aclnn.scalar(&value, kInt64), Kind::scalar); }

AclScalar* Frame::scalar(const cw_arg& arg) {
  switch (arg.tag) {
    case CW_NONE:
      return nullptr;
    case CW_DOUBLE:
      return scalar(arg.v.d);
    case CW_COMPLEX: {
      double value[2] = {arg.v.complex[0], arg.v.complex[1]};
      return keep(aclnn.scalar(value, kComplex128), Kind::scalar);
    }
    case CW_BOOLEAN: {
      bool value = arg.v.i != 0;
      return keep(aclnn.scalar(&value, kBool), Kind::scalar);
    }
    case CW_INT:
      return scalar(arg.v.i);
    default:
      return decline(), nullptr;
  }
}

AclScalarList* Frame::scalars(const cw_arg& arg) {
  std::vector<const AclScalar*> all;
  for (uint32_t i = 0; i < arg.n; ++i) all.push_back(scalar(arg.v.args[i]));
  if (status_) return nullptr;
  AclScalarList* list = aclnn.scalar_list(all.data(), all.size());
  if (list) made_.resize(made_.size() - all.size());  // the list ends them
  return keep(list, Kind::scalar_list);
}

AclIntArray* Frame::ints(const int64_t* values, uint64_t n) {
  return keep(aclnn.int_array(values, n), Kind::int_array);
}

AclIntArray* Frame::ints(const cw_arg& arg) { return arg.tag == CW_NONE ? nullptr : ints(arg.v.ints, arg.n); }

AclIntArray* Frame::ints(const cw_arg& arg, uint32_t n) {
  if (arg.n == n) return ints(arg.v.ints, n);
  if (arg.n != 1) return decline(), nullptr;
  const std::vector<int64_t> all(n, arg.v.ints[0]);
  return ints(all.data(), n);
}

AclIntArray* Frame::every_dimension(int64_t ndim) {
  std::vector<int64_t> all;
  for (int64_t d = 0; d < ndim; ++d) all.push_back(d);
  return ints(all.data(), all.size());
}

AclIntArray* Frame::dimensions(const cw_arg& arg) {
  const DLTensor* input = first_input();
  return arg.tag != CW_NONE && arg.n ? ints(arg) : every_dimension(input ? input->ndim : 0);
}

AclBoolArray* Frame::booleans(const cw_arg& arg) {
  bool values[16] = {};
  if (arg.n > 16) return decline(), nullptr;
  for (uint32_t i = 0; i < arg.n; ++i) values[i] = arg.v.ints[i] != 0;
  return keep(aclnn.bool_array(values, arg.n), Kind::bool_array);
}

AclFloatArray* Frame::floats(const cw_arg& arg) {
  std::vector<float> values(arg.v.doubles, arg.v.doubles + arg.n);
  return keep(aclnn.float_array(values.data(), values.size()), Kind::float_array);
}

// Refused before anything was done: another rung serves. Said once for each operator.
cw_status Frame::decline(Operation& operation, Status result) {
  const std::string words = words_of(result);
  if (!operation.said.exchange(true) && host.log)
    host.log(1, (std::string(name_) + ": aclnn" + operation.name + " declined: " + words).c_str());
  return fail(CW_UNSUPPORTED, "%s: aclnn%s declined: %s", name_, operation.name, words.c_str());
}

cw_status Frame::finish(Operation& operation, Status result, uint64_t bytes, AclExecutor* executor) {
  return result == kSuccess ? run(operation, bytes, executor) : decline(operation, result);
}

cw_status Frame::run(Operation& operation, uint64_t bytes, AclExecutor* executor) {
  const int32_t index = this->index();
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device(name_, index, &device));
  TRY(find_stream(name_, *device, stream_, &stream));
  void* workspace = nullptr;
  const cw_status had = bytes ? host.scratch(index, stream_, bytes, &workspace) : CW_OK;
  if (had) {  // what does not run is nobody's
    static const auto end = reinterpret_cast<Status (*)(AclExecutor*)>(find_aclnn("aclDestroyAclOpExecutor"));
    if (end) end(executor);
    return had;
  }
  const Status ran = operation.run(workspace, bytes, executor, stream);
  if (ran == kSuccess) return CW_OK;
  const std::string function = std::string(name_) + ": aclnn" + operation.name;
  return check(ran, function.c_str());
}

}  // namespace ascend
