#include "call.hpp"

#include <algorithm>
#include <cstring>

#include "device.hpp"
#include "library.hpp"

namespace diopi {

bool is_same_tensor(const cw_arg& a, const cw_arg& b) {
  if (a.tag != CW_TENSOR || b.tag != CW_TENSOR) return false;
  const DLTensor &x = *a.v.tensor, &y = *b.v.tensor;
  return x.data == y.data && x.ndim == y.ndim && memcmp(&x.dtype, &y.dtype, sizeof(x.dtype)) == 0 &&
         std::equal(x.shape, x.shape + x.ndim, y.shape) && std::equal(x.strides, x.strides + x.ndim, y.strides);
}

Frame::Frame(const char* name, const cw_arg* args, int32_t n, int32_t outputs, cw_stream stream)
    : name_(name), args_(args), n_(n), outputs_(outputs) {
  context_.stream = stream;
  status_ = find_stream(&context_.handle);
}

diopiTensorHandle_t Frame::next() {
  if (tensors_ < tensor_.size()) return &tensor_[tensors_++];
  return &more_.emplace_back();
}

diopiTensorHandle_t Frame::tensor(const DLTensor* t) {
  diopiTensor* made = next();
  made->data = t->data, made->shape = t->shape, made->strides = t->strides, made->ndim = t->ndim;
  made->dtype = dtype_of(t->dtype);
  if (made->dtype == diopi_dtype_unsupported) decline();
  return made;
}

diopiTensorHandle_t Frame::tensor(const cw_arg& arg) {
  if (arg.tag == CW_NONE) return nullptr;
  return arg.tag == CW_TENSOR ? tensor(arg.v.tensor) : filled(arg);
}

const DLTensor* Frame::first_input() const {
  for (int32_t i = outputs_; i < n_; ++i)
    if (args_[i].tag == CW_TENSOR) return args_[i].v.tensor;
  for (int32_t i = 0; i < outputs_; ++i)
    if (args_[i].tag == CW_TENSOR) return args_[i].v.tensor;
  return nullptr;
}

// A number that the function takes as a tensor only: without dimensions, of the first input's dtype, which the core made the
// common one.
diopiTensorHandle_t Frame::filled(const cw_arg& number) {
  using Fill = decltype(&diopiFill);
  static const auto fill = reinterpret_cast<Fill>(find_function("diopiFill"));
  const DLTensor* like = first_input();
  if (!fill || !like) return decline(), nullptr;
  diopiTensor* made = nullptr;
  if (const cw_status status = require(context_, {nullptr, 0}, nullptr, dtype_of(like->dtype), diopi_device, &made))
    return status_ = status, nullptr;
  const cw_status status = check(fill(&context_, made, scalar(number)), name_, "diopiFill");
  if (status && !status_) status_ = status;
  return made;
}

diopiTensorHandle_t Frame::like_output(const cw_arg& arg) {
  diopiTensorHandle_t given = tensor(arg);
  const diopiDtype_t dtype = dtype_of(args_[0].v.tensor->dtype);
  if (!given || given->dtype == dtype) return given;
  using Cast = decltype(&diopiCastDtype);
  static const auto cast = reinterpret_cast<Cast>(find_function("diopiCastDtype"));
  if (!cast) return decline(), nullptr;
  diopiTensor* made = nullptr;
  const diopiSize_t size = {given->shape, given->ndim};
  if (const cw_status status = require(context_, size, nullptr, dtype, diopi_device, &made))
    return status_ = status, nullptr;
  const cw_status status = check(cast(&context_, made, given), name_, "diopiCastDtype");
  if (status && !status_) status_ = status;
  return made;
}

diopiTensorHandle_t* Frame::made(int place) {
  made_.reserve(4);  // so that addresses stay
  made_.emplace_back(place, nullptr);
  return &made_.back().second;
}

diopiTensorHandle_t* Frame::tensors(const cw_arg& arg) {
  if (arg.tag == CW_NONE) return nullptr;
  auto& list = lists_.emplace_back();
  for (uint32_t i = 0; i < arg.n; ++i) list.push_back(arg.v.tensors[i] ? tensor(arg.v.tensors[i]) : nullptr);
  return list.data();
}

diopiScalar_t* Frame::scalar(const cw_arg& arg) {
  if (arg.tag == CW_NONE) return nullptr;
  if (scalars_ == scalar_.size() || arg.tag == CW_COMPLEX || !cw::is_number(arg)) return decline(), nullptr;
  diopiScalar_t* made = &scalar_[scalars_++];
  if (arg.tag == CW_DOUBLE)
    made->stype = diopi_dtype_float64, made->fval = arg.v.d;
  else
    made->stype = arg.tag == CW_BOOLEAN ? diopi_dtype_bool : diopi_dtype_int64, made->ival = arg.v.i;
  return made;
}

// The core counts in fours of numbers.
diopiGeneratorHandle_t Frame::generator(const cw_arg& arg) {
  generator_.seed = arg.v.philox->seed, generator_.offset = arg.v.philox->offset * 4;
  return &generator_;
}

diopiSize_t Frame::kept(std::vector<int64_t> values) {
  const auto& made = ints_.emplace_back(std::move(values));
  return {made.data(), static_cast<int64_t>(made.size())};
}

diopiSize_t Frame::ints(const cw_arg& arg) { return {arg.v.ints, static_cast<int64_t>(arg.n)}; }

diopiSize_t Frame::ints(const cw_arg& arg, uint32_t n) {
  if (arg.n == n) return ints(arg);
  if (arg.n != 1) return decline(), diopiSize_t{nullptr, 0};
  return kept(std::vector<int64_t>(n, arg.v.ints[0]));
}

int64_t Frame::dim(int64_t given, int64_t more) const {
  const DLTensor* input = first_input();
  if (given >= 0) return given;
  if (input) return given + std::max(input->ndim + more, int64_t{1});
  for (int32_t i = 0; i < n_; ++i)  // of a list
    if (args_[i].tag == CW_TENSOR_LIST && args_[i].n) return given + args_[i].v.tensors[0]->ndim + more;
  return given;
}

const int64_t* Frame::at_dim(const cw_arg& arg) {
  if (arg.tag == CW_NONE) return nullptr;
  return dim_ = dim(arg.v.i), &dim_;
}

diopiSize_t Frame::dims(const cw_arg& arg) {
  std::vector<int64_t> all;
  const DLTensor* input = first_input();
  if (arg.tag != CW_NONE && arg.n)
    for (uint32_t i = 0; i < arg.n; ++i) all.push_back(dim(arg.v.ints[i]));
  else
    for (int64_t d = 0; input && d < input->ndim; ++d) all.push_back(d);
  return kept(std::move(all));
}

const bool* Frame::flag(const cw_arg& arg) {
  if (arg.tag == CW_NONE) return nullptr;
  return flag_ = arg.v.i != 0, &flag_;
}

double Frame::real(const cw_arg& arg) {
  if (arg.tag == CW_COMPLEX) decline();
  return arg.tag == CW_DOUBLE ? arg.v.d : static_cast<double>(arg.v.i);
}

// What the function made itself goes into the core's output, of its shape now.
cw_status Frame::give_made(int place, const diopiTensor& made) {
  const DLTensor* out = args_[place].v.tensor;
  TRY(host.resize(out, static_cast<int32_t>(made.ndim), made.shape));
  if (!made.numel()) return CW_OK;
  diopiTensor given;
  given.data = out->data, given.shape = out->shape, given.strides = out->strides, given.ndim = out->ndim;
  given.dtype = dtype_of(out->dtype);
  const bool dense = cw::Tensor(out).is_contiguous() && made.numel() == made.reach() &&
                     std::equal(made.strides, made.strides + made.ndim, given.strides);
  if (dense && made.dtype == given.dtype && made.device == diopi_device)
    return mem_copy(out->data, 0, made.data, 0, static_cast<uint64_t>(made.numel() * bytes_of(made.dtype)),
                    context_.stream);
  // Other strides, or other ints for places.
  const char* name = made.dtype == given.dtype ? "diopiCopyInp" : "diopiCastDtype";
  void* function = find_function(name);
  if (!function || made.device != diopi_device)
    return fail(CW_FAILED, "%s: what the function made cannot be given on: the library has no %s", name_, name);
  const diopiError_t result = made.dtype == given.dtype
                                  ? reinterpret_cast<decltype(&diopiCopyInp)>(function)(&context_, &made, &given)
                                  : reinterpret_cast<decltype(&diopiCastDtype)>(function)(&context_, &given, &made);
  return check(result, name_, name);
}

cw_status Frame::finish(const Operation& operation, diopiError_t result) {
  if (result && context_.status) return context_.status;  // a call-back's, with its words
  TRY(check(result, name_, operation.name));
  for (const auto& [place, made] : made_) {
    if (!made) return fail(CW_FAILED, "%s: %s made no output", name_, operation.name);
    if (const cw_status status = give_made(place, *made))
      return status == CW_UNSUPPORTED ? fail(CW_FAILED, "%s", last_error()) : status;
  }
  return CW_OK;
}

}  // namespace diopi
