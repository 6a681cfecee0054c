// One call of one operator, as its kernel sees it: arguments read and checked, the work put on the stream.
#pragma once

#include <string>
#include <vector>

#include "causeway/abi.h"
#include "device.hpp"
#include "error.hpp"
#include "ops/dtype.hpp"
#include "stream.hpp"

// Leave the function with the status unless it is CW_OK.
#define TRY(expression) \
  if (cw_status try_status = (expression)) return try_status

namespace sim {

constexpr int most_dims = 12;  // a kernel declines tensors with more

// A tensor by value: the core's DLTensor is gone when queued work runs.
struct Tensor {
  char* data = nullptr;  // where this process reaches the bytes
  Dtype dtype = kOther;
  int32_t ndim = 0;
  int64_t shape[most_dims];
  int64_t strides[most_dims];
  bool is_host_scalar = false;  // a number that came in a tensor's place, kept in `value`
  alignas(16) char value[16];

  int64_t numel() const;
  bool contiguous() const;
  int64_t stride_bytes(int dim) const { return strides[dim] * size_of(dtype); }
};

class Call;

struct OpDef {
  const char* name;
  cw_status (*run)(Call& call);
  cw_dtypes dtypes;
  uint32_t needs = 0;
  int outputs = 1;
};

class Call {
 public:
  // `only_asked`: the kernel is to say whether it takes the call, and to do nothing (extension check.v1).
  Call(const OpDef& op, const cw_arg* args, int32_t n, Device& device, cw_stream stream, bool only_asked = false)
      : op_(op), args_(args), n_(n), device_(device), stream_(stream), only_asked_(only_asked) {}

  bool is_none(int i) const { return i >= n_ || args_[i].tag == CW_NONE; }
  bool is_double(int i) const { return i < n_ && args_[i].tag == CW_DOUBLE; }
  int size() const { return n_; }
  const OpDef& op() const { return op_; }

  // CW_UNSUPPORTED for what no kernel here takes, CW_INVALID for memory that is not this device's.
  cw_status tensor(int i, Tensor* out) const;
  cw_status tensors(int i, std::vector<Tensor>* out) const;
  template <class... Rest>
  cw_status tensors_from(int i, Tensor* first, Rest*... rest) const {  // consecutive arguments
    TRY(tensor(i, first));
    if constexpr (sizeof...(rest) > 0) return tensors_from(i + 1, rest...);
    return CW_OK;
  }

  int64_t integer(int i, int64_t otherwise = 0) const;
  template <class T>
  T number(int i, T otherwise = T(0)) const {
    if (i >= n_ || args_[i].tag == CW_NONE) return otherwise;
    return args_[i].tag == CW_DOUBLE ? static_cast<T>(args_[i].v.d) : static_cast<T>(args_[i].v.i);
  }
  std::string string(int i) const { return is_none(i) ? "" : args_[i].v.string; }
  std::vector<int64_t> ints(int i) const;
  const cw_philox* philox(int i) const { return i < n_ && args_[i].tag == CW_GENERATOR ? args_[i].v.philox : nullptr; }

  // Device memory for the time of this call's work, as this process reaches it.
  cw_status scratch(uint64_t bytes, char** out) const;
  cw_status resize(int i, const std::vector<int64_t>& shape) const;
  // Argument i in the layout of layout.hpp, `bytes` of it, if the core has it so; else `out` stays NULL. Few bytes: not asked.
  cw_status panels(int i, uint64_t bytes, const char** out) const;
  cw_status wait() const;  // for what the stream was given so far: results that the kernel must look at

  cw_status declined(const char* why) const { return fail(CW_UNSUPPORTED, "%s: %s", op_.name, why); }

  // Do the work in the stream's order. `work` must own what it uses, and returns a cw_status.
  template <class Work>
  cw_status launch(Work&& work) {
    if (only_asked_) return CW_OK;
    if (corrupts(op_.name)) return launch_corrupted(std::forward<Work>(work));
    if (settings().overrun) return launch_overrun(std::forward<Work>(work));
    return put(device_, stream_, op_.name, std::forward<Work>(work));
  }

 private:
  cw_status launch_corrupted(std::function<cw_status()> work);
  cw_status launch_overrun(std::function<cw_status()> work);
  cw_status read(const DLTensor& tensor, Tensor* out) const;
  bool number_as_tensor(int i, Tensor* out) const;
  const OpDef& op_;
  const cw_arg* args_;
  int32_t n_;
  Device& device_;
  cw_stream stream_;
  bool only_asked_;
};

// Entry of the table, and of extension check.v1.
cw_status op_find(const char* name, cw_op* out);
cw_status op_find_for(const char* name, const char* schema, int32_t device, cw_op* out);
extern const cw_check_v1 check_table;
extern const char* const library_names;  // extension operators.v1

}  // namespace sim
