// One call of one kernel: its arguments read, its device found.
#pragma once

#include <vector>

#include "portable/device.h"
#include "portable/dtype.h"
#include "portable/source.h"

// Leave the function with the status unless it is CW_OK.
#define TRY(expression) \
  if (cw_status try_status = (expression)) return try_status

namespace causeway::portable {

constexpr int kMostDims = 12;

struct Tensor {
  const char* data = nullptr;
  Dtype dtype = kOther;
  int ndim = 0;
  int64_t shape[kMostDims];
  int64_t strides[kMostDims];

  int64_t numel() const;
  bool contiguous() const;
  bool in_one_piece() const;                // of memory, in whatever order
  bool lies_as(const Tensor& other) const;  // of the same shape
  int64_t size(int dim) const { return shape[dim < 0 ? dim + ndim : dim]; }
};

// A number in a tensor's place, or a scalar argument.
struct Number {
  Dtype dtype = kI64;  // kI64, kF64 or kBool
  double d = 0;
  int64_t i = 0;
  double real() const { return dtype == kF64 ? d : static_cast<double>(i); }
};

// False: the argument is no number.
bool read_number(const cw_arg& from, Number* out);

class KernelCall;
class Epilogue;

struct Kernel {
  const char* name;
  cw_status (*run)(KernelCall& call, const void* data);
  cw_dtypes dtypes = kReals;
  uint32_t needs = CW_NEEDS_ELEMENTS;
  const void* data = nullptr;
};
using Kernels = std::vector<Kernel>;

class KernelCall {
 public:
  KernelCall(const char* name, const cw_arg* args, int32_t n, cw_stream stream)
      : name(name), stream(stream), args_(args), n_(n) {}

  // False: not a tensor that kernels read.
  bool tensor(int i, Tensor* out) const;
  bool read(const DLTensor* from, Tensor* out) const;
  bool is_none(int i) const { return i >= n_ || args_[i].tag == CW_NONE; }
  uint32_t tag(int i) const { return i < n_ ? args_[i].tag : CW_NONE; }
  bool number(int i, Number* out) const;
  int64_t integer(int i, int64_t otherwise = 0) const { return is_none(i) ? otherwise : args_[i].v.i; }
  double real(int i, double otherwise = 0) const;
  const char* string(int i) const { return tag(i) == CW_STRING ? args_[i].v.string : ""; }
  std::vector<int64_t> ints(int i) const;
  const cw_arg& arg(int i) const { return args_[i]; }
  int size() const { return n_; }
  // What this call is to finish its result with, or NULL; who asks takes it.
  Epilogue* take_epilogue() { return takes_epilogue_ = epilogue_ != nullptr, epilogue_; }
  bool open();  // finds the device of the first tensor

  const char* name;  // of the operator
  Device* device = nullptr;
  cw_stream stream;

 private:
  friend cw_status run_kernel(const Kernel& kernel, KernelCall& call);
  const cw_arg* args_;
  int32_t n_;
  Epilogue* epilogue_ = nullptr;
  bool takes_epilogue_ = false;
};

// A number that tells one family of kernels from another in a Key.
constexpr uint64_t family(const char* text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (; *text; ++text) h = (h ^ static_cast<unsigned char>(*text)) * 0x100000001B3ull;
  return h;
}

// What each file offers.
Kernels pointwise_kernels();
Kernels reduce_kernels();
Kernels softmax_kernels();
Kernels loss_kernels();
Kernels matmul_kernels();
Kernels convolution_kernels();
Kernels pool_kernels();
Kernels norm_kernels();
Kernels random_kernels();
Kernels index_kernels();
Kernels attention_kernels();
Kernels upsample_kernels();
Kernels gather_kernels();
Kernels scatter_kernels();
Kernels scan_kernels();
Kernels sort_kernels();
Kernels find_kernels();
Kernels fused_kernels();
Kernels foreach_kernels();
Kernels foreach_norm_kernels();
Kernels rearrange_kernels();
Kernels product_kernels();
Kernels quantized_kernels();
Kernels packed_kernels();
Kernels ctc_kernels();
Kernels recurrent_kernels();
Kernels boxes_kernels();

bool is_open();

}  // namespace causeway::portable
