// Loads: offers operators of every sort through op.hpp. Each kernel writes down its arguments, as they arrived in their
// types, and declines, so the host rung computes. `records_take` gives what was written since it was last asked.
#include <string>

#include "base.h"
#include "causeway/operators.hpp"

static std::string records;  // also of autograd's thread, which comes and goes while the caller waits

static std::string text(int64_t v) { return "int " + std::to_string(v); }
static std::string text(bool v) { return v ? "true" : "false"; }
static std::string text(double v) {
  char buffer[32];
  snprintf(buffer, sizeof buffer, "double %g", v);
  return buffer;
}
static std::string text(cw::Dtype v) { return "dtype " + std::to_string(int(v)); }
static std::string text(cw::Layout v) { return "layout " + std::to_string(int(v)); }
static std::string text(cw::Device v) { return "device " + std::to_string(v.index); }
static std::string text(cw::string_view v) { return "'" + std::string(v) + "'"; }
static std::string text(cw::Philox v) { return "philox " + std::to_string(v.seed) + "+" + std::to_string(v.offset); }
static std::string text(cw::Scalar v) {
  if (v.is_boolean()) return text(v.to<bool>());
  if (v.is_integral()) return text(v.to<int64_t>());
  if (v.is_floating()) return text(v.to<double>());
  return "complex " + text(v.to<double>()) + " " + text(v.imag());
}
// Dtype, sizes, whether it is not dense, and the first element of a float32 input.
static std::string shape(cw::Tensor t) {
  std::string s = "t" + std::to_string(int(t.dtype())) + "[";
  for (int64_t size : t.sizes()) s += std::to_string(size) + ",";
  if (s.back() == ',') s.pop_back();
  return s + (t.is_contiguous() ? "]" : "] strided");
}
static std::string shape(cw::optional<cw::Tensor> t) { return t ? shape(*t) : "none"; }
static std::string text(cw::Tensor t) {
  const bool first = t.dtype() == cw::Dtype::float32 && t.numel() > 0;
  return first ? shape(t) + text(double(*t.data<float>())).substr(6) : shape(t);
}
static std::string text(cw::Operand v) { return v.is_tensor() ? text(v.tensor()) : "number " + text(v.number()); }

template <class T>
static std::string text(const cw::optional<T>& v);
template <class T>
static std::string text(const cw::List<T>& v) {
  std::string s = "(";
  for (T item : v) s += (s.size() > 1 ? "; " : "") + text(item);
  return s + ")";
}
template <class T>
static std::string text(const cw::optional<T>& v) {
  return v ? text(*v) : "none";
}

template <class Op, class Arguments>
struct Record;
template <class Op, class... T>
struct Record<Op, cw::Types<T...>> {
  template <class A>
  static void write(const A& argument, size_t* place) {
    if constexpr (cw::is_tensor<A>)
      records += " | " + ((*place)++ < Op::outputs ? shape(argument) : text(argument));
    else
      records += " | " + text(argument), ++*place;
  }
  static cw_status declined(T... argument, cw_stream) {
    size_t place = 0;
    records += Op::name;
    (write(argument, &place), ...);
    records += "\n";
    return CW_UNSUPPORTED;
  }
};
template <class Op>
static constexpr cw::Entry record = cw::op<Op, Record<Op, typename Op::arguments>::declined>(
    (Op::is_pointwise ? cw::pointwise(CW_ALL_DTYPES) : cw::dense(CW_ALL_DTYPES)).takes(~0u));

static cw_status sub(cw::Tensor out, cw::Operand self, cw::Operand other, cw::Scalar alpha) {
  records += "aten::sub.out | " + shape(out) + " | " + text(self) + " | " + text(other) + " | " + text(alpha) + "\n";
  return CW_UNSUPPORTED;
}

// Serves in truth, and says so by the result: 1 everywhere.
static void ones(cw::Tensor out, cw::Tensor) {
  for (int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = 1;
}
static void throws(cw::Tensor, cw::Tensor) { throw "a stone"; }

struct scaled : cw::Operator<1, void(cw::Tensor out, cw::Tensor self, double scale)> {
  static constexpr const char* name = "causeway_test::scaled";
};
// Not what torch has: a boolean too many, and a double where there is an int.
struct wrong_count : cw::Operator<1, void(cw::Tensor out, cw::Tensor self, bool flag)> {
  static constexpr const char* name = "aten::neg.out";
};
struct wrong_type : cw::Operator<1, void(cw::Tensor out, cw::Tensor self, double dim, cw::optional<cw::Dtype> dtype)> {
  static constexpr const char* name = "aten::cumprod.out";
};

namespace aten = cw::aten;
constexpr cw::Entry table[] = {
    record<aten::add_out>,
    record<aten::mul__Tensor>,
    record<aten::copy_>,
    record<aten::where_self_out>,
    record<aten::clamp_out>,
    record<aten::gelu_out>,
    record<aten::sum_IntList_out>,
    record<aten::std_correction_out>,
    record<aten::argmax_out>,
    record<aten::max_dim_max>,
    record<aten::topk_values>,
    record<aten::native_layer_norm>,
    record<aten::addmm_out>,
    record<aten::convolution>,
    record<aten::convolution_backward>,
    record<aten::_softmax_backward_data_out>,
    record<aten::index_Tensor_out>,
    record<aten::cat_out>,
    record<aten::arange_start_out>,
    record<aten::fill__Scalar>,
    record<aten::uniform_>,
    record<aten::normal_>,
    record<aten::upsample_nearest2d_out>,
    record<aten::tril_indices>,
    record<aten::_fused_adam_>,
    record<aten::_fused_sgd_>,
    record<aten::_amp_foreach_non_finite_check_and_unscale_>,
    record<scaled>,
    cw::op<aten::sub_out, sub>(cw::pointwise(0)),
    cw::op<aten::exp_out, ones>(cw::pointwise(CW_FLOAT32)),
    cw::op<aten::tan_out, throws>(cw::pointwise(CW_FLOAT32)),
    cw::op<wrong_count, Record<wrong_count, wrong_count::arguments>::declined>(cw::dense(0)),
    cw::op<wrong_type, Record<wrong_type, wrong_type::arguments>::declined>(cw::dense(0)),
};

static cw_status op_find(const char* name, cw_op* out) { return cw::find(table, name, out); }

static const cw_backend backend = {
    BASE_HEAD,
    .last_error = cw::last_error,
    BASE_LEVEL_0,
    .op_find = op_find,
};

const cw_backend* cw_open_v1(const cw_host*) { return &backend; }

extern "C" CW_EXPORT const char* records_take() {
  static std::string taken;
  taken.swap(records);
  records.clear();
  return taken.c_str();
}
