#include "call.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "device.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "profile.hpp"
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
std::atomic<int> told{0};
void follow_determinism() {
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

Frame::Frame(const char* name, const cw_arg* args, int32_t n, int32_t outputs, uint64_t also_written, cw_stream stream)
    : name_(name), args_(args), n_(n), outputs_(outputs), also_written_(also_written), stream_(stream) {
  // First: aclnn's first call works in this thread's context, which another entry may have changed.
  Device* device = nullptr;
  status_ = find_device(name_, index(), &device);
  follow_determinism();
}

Frame::~Frame() {
  stop_recording();
  destroy(made_);
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
  const Memory memory = of(t);
  const bool output = memory.from == Memory::From::nowhere || written(memory.at);
  return make(memory, t->dtype, t->shape, t->strides, t->ndim, output);
}

Memory Frame::of(const DLTensor* t, uint64_t bytes) const {
  Memory memory;
  memory.offset = bytes, memory.address = static_cast<char*>(t->data) + bytes;
  for (int32_t i = 0; i < n_; ++i) {
    if (args_[i].tag == CW_TENSOR && args_[i].v.tensor == t)
      return memory.from = Memory::From::argument, memory.at = i, memory;
    for (uint32_t j = 0; args_[i].tag == CW_TENSOR_LIST && j < args_[i].n; ++j)
      if (args_[i].v.tensors[j] == t) return memory.from = Memory::From::item, memory.at = i, memory.item = j, memory;
  }
  return memory;
}

// From its data to the end of the storage that it is a part of; where that is not known, of the allocation.
uint64_t Frame::bytes_behind(const DLTensor* t) const {
  uint64_t before = 0, bytes = 0;
  const bool known = host.storage && host.storage(t, &before, &bytes) == CW_OK && before <= bytes;
  return known ? bytes - before : bytes_from(t->data);
}

uint64_t Frame::bytes_behind(const Memory& memory) const {
  if (memory.from != Memory::From::argument && memory.from != Memory::From::item) return bytes_from(memory.address);
  const cw_arg& arg = args_[memory.at];
  const uint64_t all = bytes_behind(arg.tag == CW_TENSOR ? arg.v.tensor : arg.v.tensors[memory.item]);
  return all - std::min(all, memory.offset);
}

AclTensor* Frame::view(const Memory& memory, DLDataType type, const int64_t* shape, const int64_t* strides,
                       int32_t ndim, bool written) {
  return make(memory, type, shape, strides, ndim, written);
}

// Remembers where a tensor lies, for the executors that are made of it.
AclTensor* Frame::lies(AclTensor* made, const Memory& memory) {
  if (made && recording_ && memory.from != Memory::From::stays) lie_.emplace_back(made, memory);
  return made;
}

AclTensor* Frame::make(const Memory& memory, DLDataType dtype, const int64_t* shape, const int64_t* strides,
                       int32_t ndim, bool written) {
  void* data = memory.address;
  const int type = type_of(dtype);
  if (type == kUndefinedType) return decline(), nullptr;
  // aclnn asks for the storage that a tensor lies in, behind which the chip may write what it writes: at least what these
  // strides reach, and a part of a tensor must not end there.
  int64_t reach = 1;
  for (int32_t d = 0; d < ndim; ++d) {
    if (shape[d] == 0) {
      reach = 0;
      break;
    }
    reach += (shape[d] - 1) * strides[d];
  }
  constexpr int64_t most = INT32_MAX;  // elements: kernels count in 32 bits
  if (written) {
    const int64_t left = static_cast<int64_t>(bytes_behind(memory)) * 8 / std::max(1, dtype.bits * dtype.lanes);
    reach = std::max(reach, std::min(left, most));
  }
  return lies(keep(aclnn.tensor(shape, static_cast<uint64_t>(ndim), type, strides, 0, format_of(ndim), &reach, 1, data),
                   Kind::tensor),
              memory);
}

AclTensor* Frame::ones(DLDataType type, int64_t count) {
  const int kind = type_of(type);
  if (kind != kFloat && kind != kFloat16 && kind != kBfloat16) return nullptr;
  struct Ones {
    void* memory = nullptr;
    int64_t count = 0;
  };
  static std::mutex mutex;
  static auto& made = *new std::map<std::pair<int32_t, int>, Ones>;
  const std::lock_guard<std::mutex> lock(mutex);
  Ones& ones = made[{index(), kind}];
  if (ones.count < count) {
    if (stream_ && stream_->captured) return nullptr;
    Ones more;
    for (more.count = 1024; more.count < count;) more.count *= 2;
    std::vector<uint8_t> values;
    const uint32_t one = kind == kFloat ? 0x3f800000 : kind == kFloat16 ? 0x3c00 : 0x3f80;  // the low bytes come first
    const size_t size = kind == kFloat ? 4 : 2;
    for (int64_t i = 0; i < more.count; ++i)
      for (size_t byte = 0; byte < size; ++byte) values.push_back(static_cast<uint8_t>(one >> 8 * byte));
    if (mem_alloc(index(), values.size(), &more.memory)) return nullptr;
    if (acl.copy(more.memory, values.size(), values.data(), values.size(), kHostToDevice) != kSuccess) {
      mem_free(index(), more.memory);
      return nullptr;
    }
    ones = more;  // what was there stays: executors that are kept refer to it
  }
  const int64_t stride = 1;
  Memory memory;
  memory.from = Memory::From::stays, memory.address = ones.memory;
  return make(memory, type, &count, &stride, 1, false);
}

bool Frame::take_form(int place) {
  const void* form = nullptr;
  if (status_ || host.packed(args_[place].v.tensor, kNzLayout, stream_, &form)) return false;
  form_.from = Memory::From::form, form_.at = place, form_.address = const_cast<void*>(form);
  return true;
}

// With the shape and strides of the argument: a transposed one is the form of its transpose, seen so.
AclTensor* Frame::weight(int place) {
  const DLTensor& t = *args_[place].v.tensor;
  Nz nz;
  if (!form_.address || !nz_of(t, &nz)) return decline(), nullptr;
  return lies(keep(aclnn.tensor(t.shape, 2, type_of(t.dtype), t.strides, 0, kFormatNz, nz.blocks, 4, form_.address),
                   Kind::tensor),
              form_);
}

AclTensor* Frame::nothing(int type) {
  const int64_t none = 0, stride = 1;
  return keep(aclnn.tensor(&none, 1, type, &stride, 0, kFormatNd, &none, 1, nullptr), Kind::tensor);
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

AclTensor* Frame::scratch(int type, int64_t itemsize, const int64_t* shape, int32_t ndim, Memory* where) {
  const DLTensor* any = first_input();
  if (!any) return decline(), nullptr;
  std::vector<int64_t> strides(static_cast<size_t>(ndim), 1);
  int64_t all = 1;
  for (int32_t d = ndim - 1; d >= 0; --d) strides[static_cast<size_t>(d)] = all, all *= shape[d];
  Memory memory;
  memory.from = Memory::From::lent, memory.at = static_cast<int32_t>(lent_.size());
  lent_.push_back(static_cast<uint64_t>(all * itemsize));
  if (const cw_status status = host.scratch(any->device.device_id, stream_, lent_.back(), &memory.address)) {
    if (!status_) status_ = status;
    return nullptr;
  }
  if (where) *where = memory;
  return lies(keep(aclnn.tensor(shape, static_cast<uint64_t>(ndim), type, strides.data(), 0, kFormatNd, &all, 1,
                                memory.address),
                   Kind::tensor),
              memory);
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
  std::vector<AclTensor*> all;
  for (uint32_t i = 0; i < arg.n; ++i) {
    const DLTensor* t = arg.v.tensors[i];
    // An undefined one (an index that is a whole dimension) is a tensor of nothing.
    all.push_back(t ? tensor(t) : nothing(kInt64));
  }
  return list(all);
}

AclTensorList* Frame::list(const std::vector<AclTensor*>& made) {
  if (status_) return nullptr;
  AclTensorList* list = aclnn.tensor_list(made.data(), made.size());
  if (list) made_.resize(made_.size() - made.size());  // the list ends them
  if (list && recording_) lists_.emplace_back(list, made);
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

namespace {

// What a call is like, as bytes: equal ones make equal calls of aclnn, but for addresses.
class Key {
 public:
  // `behind` says how many bytes there are from a tensor's data to the end of its storage.
  Key(std::string& text, const std::function<uint64_t(const DLTensor*)>& behind) : text_(text), behind_(behind) {
    text_.clear();
  }
  void put(const void* data, size_t bytes) { text_.append(static_cast<const char*>(data), bytes); }
  void put(int64_t value) { put(&value, sizeof(value)); }

  // `written`: with what lies behind it. False: not to be kept.
  bool put(const DLTensor* t, bool written) {
    // An address that is told later must be one of 32 bytes.
    if (reinterpret_cast<uintptr_t>(t->data) % 32) return false;
    uint32_t type;
    static_assert(sizeof(type) == sizeof(t->dtype));
    memcpy(&type, &t->dtype, sizeof(type));
    put(static_cast<int64_t>(type) << 32 | t->ndim);
    put(t->shape, static_cast<size_t>(t->ndim) * sizeof(int64_t));
    put(t->strides, static_cast<size_t>(t->ndim) * sizeof(int64_t));
    if (written) put(static_cast<int64_t>(behind_(t)));
    return true;
  }
  bool put(const cw_arg& arg, bool written) {
    put(static_cast<int64_t>(arg.tag) << 32 | arg.n);
    switch (arg.tag) {
      case CW_NONE:
        return true;
      case CW_TENSOR:
        return put(arg.v.tensor, written);
      case CW_TENSOR_LIST:
        for (uint32_t i = 0; i < arg.n; ++i)
          if (!arg.v.tensors[i])
            put(int64_t{-1});
          else if (!put(arg.v.tensors[i], written))
            return false;
        return true;
      case CW_STRING:
        return put(arg.v.string, arg.n), true;
      case CW_COMPLEX:
        return put(arg.v.complex, 2 * sizeof(double)), true;
      case CW_INT_LIST:
      case CW_DOUBLE_LIST:
      case CW_BOOLEAN_LIST:
        return put(arg.v.ints, arg.n * sizeof(int64_t)), true;
      case CW_SCALAR_LIST:
        for (uint32_t i = 0; i < arg.n; ++i)
          if (!put(arg.v.args[i], false)) return false;
        return true;
      case CW_GENERATOR:
        return false;
      default:
        return put(static_cast<int64_t>(arg.v.bits)), true;
    }
  }

 private:
  std::string& text_;
  const std::function<uint64_t(const DLTensor*)>& behind_;
};

}  // namespace

// Where a tensor's elements are: of a list, of the one at a place in it. nullptr: there is none.
static const void* data_at(const cw_arg& arg, uint32_t item) {
  if (arg.tag == CW_TENSOR) return item ? nullptr : arg.v.tensor->data;
  if (arg.tag != CW_TENSOR_LIST || item >= arg.n || !arg.v.tensors[item]) return nullptr;
  return arg.v.tensors[item]->data;
}

bool Frame::write_key(const Operation& operation, int64_t more) {
  const std::function<uint64_t(const DLTensor*)> behind = [this](const DLTensor* t) { return bytes_behind(t); };
  Key key(key_, behind);
  key.put(static_cast<int64_t>(reinterpret_cast<uintptr_t>(&operation)));
  key.put(more << 32 | told.load(std::memory_order_relaxed) << 16 | index());
  for (int32_t i = 0; i < n_; ++i) {
    if (!key.put(args_[i], written(i))) return key_.clear(), false;
    // Which tensors are one memory: of a list, those of one place in it.
    for (uint32_t j = 0; j < (args_[i].tag == CW_TENSOR_LIST ? args_[i].n : 1); ++j) {
      const void* data = data_at(args_[i], j);
      int32_t same = 0;
      while (same < i && (!data || data_at(args_[same], j) != data)) ++same;
      if (data) key.put(int64_t{same});
    }
  }
  return true;
}

void* Frame::address_of(const Memory& memory, const std::vector<void*>& lent) const {
  switch (memory.from) {
    case Memory::From::argument:
      return static_cast<char*>(args_[memory.at].v.tensor->data) + memory.offset;
    case Memory::From::item:
      return static_cast<char*>(args_[memory.at].v.tensors[memory.item]->data) + memory.offset;
    case Memory::From::lent:
      return lent[static_cast<size_t>(memory.at)];
    case Memory::From::form:
      return form_.address;
    default:
      return memory.address;
  }
}

bool Frame::again(Operation& operation, int64_t more, cw_status* status) {
  main_ = &operation;
  if (status_ || !operation.repeats.load(std::memory_order_relaxed) || !keeps_executors()) return false;
  if (!write_key(operation, more)) return false;
  Kept* kept = take_executor(key_);
  if (!kept) return recording_ = seen_before(key_), false;
  std::vector<void*> lent(kept->lent.size());
  for (size_t i = 0; i < lent.size(); ++i)
    if ((*status = host.scratch(index(), stream_, kept->lent[i], &lent[i]))) return release_executor(kept), true;
  for (Kept::Step& step : kept->steps) {
    for (Kept::Place& place : step.places) {
      void* now = address_of(place.memory, lent);
      if (place.memory.address == now) continue;
      if (aclnn.set_tensor_address(step.executor, place.index, place.tensor, now) != kSuccess)
        return drop_executor(kept), false;  // made anew
      place.memory.address = now;
    }
  }
  came_again_ = true;
  for (const Kept::Step& step : kept->steps) {
    bool launched = false;
    if ((*status = run(*step.operation, step.bytes, step.executor, &launched))) return drop_executor(kept), true;
  }
  release_executor(kept);
  return true;
}

void Frame::note(AclTensor* tensor, size_t* index, std::vector<Kept::Place>* places) const {
  const size_t at = (*index)++;
  for (const auto& [made, memory] : lie_)
    if (tensor && made == tensor) return places->push_back({at, tensor, memory});
}

void Frame::note(AclTensorList* list, size_t* index, std::vector<Kept::Place>* places) const {
  for (const auto& [made, tensors] : lists_) {
    if (!list || made != list) continue;
    for (AclTensor* tensor : tensors) note(tensor, index, places);
    return;
  }
  ++*index;  // an absent one
}

void Frame::stop_recording() {
  recording_ = false;
  for (const Kept::Step& step : steps_) aclnn.destroy_executor(step.executor);
  steps_.clear();
}

void Frame::keep() {
  if (!recording_ || steps_.empty()) return;
  auto* made = new Kept;
  made->steps.swap(steps_), made->lent.swap(lent_), made->handles.swap(made_), made->key.swap(key_);
  recording_ = false;
  keep_executor(made);
}

// Refused before anything was done: another rung serves. Said once for each operator.
cw_status Frame::decline(Operation& operation, Status result) {
  const std::string words = words_of(result);
  if (!operation.said.exchange(true) && host.log)
    host.log(1, (std::string(name_) + ": aclnn" + operation.name + " declined: " + words).c_str());
  return fail(CW_UNSUPPORTED, "%s: aclnn%s declined: %s", name_, operation.name, words.c_str());
}

cw_status Frame::finish(Operation& operation, uint64_t bytes, AclExecutor* executor, std::vector<Kept::Place> places) {
  // An address that is told later must be one of 32 bytes; memory that is no argument's may be anywhere.
  for (const Kept::Place& place : places)
    if (place.memory.from == Memory::From::nowhere || reinterpret_cast<uintptr_t>(place.memory.address) % 32)
      stop_recording();
  bool kept = recording_;
  if (kept && aclnn.set_repeatable(executor) != kSuccess) {
    main_->repeats = false, kept = false;
    stop_recording();
  }
  bool launched = false;
  const cw_status status = run(operation, bytes, executor, &launched);
  if (kept)
    steps_.push_back({&operation, executor, bytes, std::move(places)});
  else if (!launched && aclnn.destroy_executor)
    aclnn.destroy_executor(executor);  // what does not run is nobody's
  return status;
}

cw_status Frame::run(Operation& operation, uint64_t bytes, AclExecutor* executor, bool* launched) {
  const int32_t index = this->index();
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device(name_, index, &device));
  TRY(find_stream(name_, *device, stream_, &stream));
  void* workspace = nullptr;
  if (bytes) TRY(host.scratch(index, stream_, bytes, &workspace));
  *launched = true;
  const Numbered numbered(*device, stream_);
  const Status ran = operation.run(workspace, bytes, executor, stream);
  if (ran == kSuccess) return CW_OK;
  const std::string function = std::string(name_) + ": aclnn" + operation.name;
  return check(ran, function.c_str());
}

}  // namespace ascend
