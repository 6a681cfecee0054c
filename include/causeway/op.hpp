// Kernels as typed functions: `cw_status softmax(cw::Tensor out, cw::Tensor self, int64_t dim, bool half_to_float)`.
//
// abi.h has one kernel signature for all operators, an array of tagged arguments. Here an operator is a type that has
// its name and its arguments, and `cw::op<operator, function>(needs)` is a line of a vendor's table: it makes the boxed
// kernel of a typed function. A function that does not fit the operator does not compile. A call whose arguments do
// not fit (another torch, a mistake of the core) answers CW_INVALID with words.
//
//   #include "causeway/operators.hpp"  // cw::aten::..., every operator of torch that a vendor can be asked for
//
//   static cw_status relu(cw::Tensor out, cw::Tensor self) { ... }
//   constexpr cw::Entry table[] = {cw::op<cw::aten::relu_out, relu>(cw::pointwise(CW_FLOAT32))};
//   static cw_status op_find(const char* name, cw_op* out) { return cw::find(table, name, out); }
//
// A function returns cw_status, or void for CW_OK; a last parameter of type cw_stream gets the stream. It may throw:
// what it throws ends here, as a status with words. `cw::fail` leaves words, `cw::last_error` is the table's entry.
//
// C++17. Needs only abi.h; nothing is allocated.
#ifndef CAUSEWAY_OP_HPP
#define CAUSEWAY_OP_HPP

#include <cassert>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "abi.h"

#if defined(__GNUC__)
#define CW_HIDDEN __attribute__((visibility("hidden")))
#define CW_COLD __attribute__((cold, noinline))
#define CW_PRINTF __attribute__((format(printf, 2, 3)))
#else
#define CW_HIDDEN
#define CW_COLD
#define CW_PRINTF
#endif

namespace cw {

using std::optional;  // of an argument that may be CW_NONE
using std::string_view;  // of a CW_STRING; ends with a NUL
using Philox = cw_philox;

// ---- words for a status ------------------------------------------------------------------------------------------
CW_HIDDEN inline thread_local char words[256];  // of this library alone

inline const char* last_error() { return words; }

// Leave words for this thread's `last_error`; gives `status`.
CW_PRINTF CW_COLD inline cw_status fail(cw_status status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(words, sizeof words, format, values);
  va_end(values);
  return status;
}

// ---- dtypes: the bit numbers of abi.h ----------------------------------------------------------------------------
enum class Dtype : int8_t {
  other = -1,
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  complex32,
  complex64,
  complex128,
  float8_e4m3fn,
  float8_e5m2,
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  float8_e8m0fnu,
  float4_e2m1,
};

constexpr cw_dtypes bit(Dtype dtype) { return dtype == Dtype::other ? 0 : UINT64_C(1) << int(dtype); }

// Of a C++ type. For types of your own: `template <> inline constexpr auto cw::dtype_of<half> = cw::Dtype::float16;`
template <class T>
inline constexpr Dtype dtype_of = Dtype::other;
template <>
inline constexpr Dtype dtype_of<bool> = Dtype::boolean;
template <>
inline constexpr Dtype dtype_of<uint8_t> = Dtype::uint8;
template <>
inline constexpr Dtype dtype_of<int8_t> = Dtype::int8;
template <>
inline constexpr Dtype dtype_of<uint16_t> = Dtype::uint16;
template <>
inline constexpr Dtype dtype_of<int16_t> = Dtype::int16;
template <>
inline constexpr Dtype dtype_of<uint32_t> = Dtype::uint32;
template <>
inline constexpr Dtype dtype_of<int32_t> = Dtype::int32;
template <>
inline constexpr Dtype dtype_of<uint64_t> = Dtype::uint64;
template <>
inline constexpr Dtype dtype_of<int64_t> = Dtype::int64;
template <>
inline constexpr Dtype dtype_of<float> = Dtype::float32;
template <>
inline constexpr Dtype dtype_of<double> = Dtype::float64;

constexpr Dtype dtype_of_dl(DLDataType type) {
  const auto of_size = [&type](Dtype smallest) {  // 8, 16, 32, 64 bits: each width is two numbers on
    const int step = type.bits == 8 ? 0 : type.bits == 16 ? 1 : type.bits == 32 ? 2 : 3;
    return Dtype(int(smallest) + 2 * step);
  };
  switch (type.code) {
    case kDLBool:
      return Dtype::boolean;
    case kDLUInt:
      return of_size(Dtype::uint8);
    case kDLInt:
      return of_size(Dtype::int8);
    case kDLFloat:
      return type.bits == 16 ? Dtype::float16 : type.bits == 32 ? Dtype::float32 : Dtype::float64;
    case kDLBfloat:
      return Dtype::bfloat16;
    case kDLComplex:
      return type.bits == 32 ? Dtype::complex32 : type.bits == 64 ? Dtype::complex64 : Dtype::complex128;
    case kDLFloat8_e4m3fn:
      return Dtype::float8_e4m3fn;
    case kDLFloat8_e5m2:
      return Dtype::float8_e5m2;
    case kDLFloat8_e4m3fnuz:
      return Dtype::float8_e4m3fnuz;
    case kDLFloat8_e5m2fnuz:
      return Dtype::float8_e5m2fnuz;
    case kDLFloat8_e8m0fnu:
      return Dtype::float8_e8m0fnu;
    case kDLFloat4_e2m1fn:
      return Dtype::float4_e2m1;
    default:
      return Dtype::other;
  }
}

// f(T{}) for the T of `dtype`; CW_UNSUPPORTED where it is none of them: `cw::with_dtype<float, double>(dtype, f)`.
template <class... T, class F>
cw_status with_dtype(Dtype dtype, F&& f) {
  cw_status status = CW_UNSUPPORTED;
  (void)((dtype == dtype_of<T> && (status = f(T{}), true)) || ...);
  return status;
}

// ---- arguments, as a function takes them -------------------------------------------------------------------------
// torch's numbers.
enum class MemoryFormat : int64_t { contiguous, preserve, channels_last, channels_last_3d };
enum class Layout : int64_t { strided };
struct Device {
  int64_t index;
};

template <class T>
struct Element;  // how a list keeps a T: type `Kept` and `T get(const Kept&)`

// A list that lives as long as the call. Elements are given by value.
template <class T>
class List {
 public:
  using Kept = typename Element<T>::Kept;
  class iterator {
   public:
    explicit iterator(const Kept* p) : p_(p) {}
    T operator*() const { return Element<T>::get(*p_); }
    iterator& operator++() { return ++p_, *this; }
    bool operator!=(const iterator& other) const { return p_ != other.p_; }

   private:
    const Kept* p_;
  };

  List(const Kept* first, size_t n) : first_(first), n_(n) {}
  size_t size() const { return n_; }
  bool empty() const { return n_ == 0; }
  T operator[](size_t i) const { return Element<T>::get(first_[i]); }
  iterator begin() const { return iterator(first_); }
  iterator end() const { return iterator(first_ + n_); }
  const Kept* data() const { return first_; }  // as abi.h has them: a list of bool is one of int64_t

 private:
  const Kept* first_;
  size_t n_;
};

template <>
struct Element<int64_t> {
  using Kept = int64_t;
  static int64_t get(int64_t kept) { return kept; }
};
template <>
struct Element<double> {
  using Kept = double;
  static double get(double kept) { return kept; }
};
template <>
struct Element<bool> {
  using Kept = int64_t;
  static bool get(int64_t kept) { return kept != 0; }
};

// A view of a DLTensor: a pointer, to be passed by value. It lives as long as the call; its data longer.
class Tensor {
 public:
  explicit Tensor(const DLTensor* t) : t_(t) {}

  // Where the first element is, on the device. T is not checked but in debug builds.
  template <class T>
  T* data() const {
    assert(dtype_of<std::remove_const_t<T>> == Dtype::other || dtype_of<std::remove_const_t<T>> == dtype());
    return static_cast<T*>(t_->data);
  }
  Dtype dtype() const { return dtype_of_dl(t_->dtype); }
  int32_t device() const { return t_->device.device_id; }  // the vendor's number
  int64_t dim() const { return t_->ndim; }
  int64_t size(int64_t d) const { return t_->shape[d < 0 ? d + t_->ndim : d]; }
  int64_t stride(int64_t d) const { return t_->strides[d < 0 ? d + t_->ndim : d]; }  // in elements
  List<int64_t> sizes() const { return {t_->shape, size_t(t_->ndim)}; }
  List<int64_t> strides() const { return {t_->strides, size_t(t_->ndim)}; }
  int64_t itemsize() const { return (t_->dtype.bits * t_->dtype.lanes + 7) / 8; }
  int64_t numel() const {
    int64_t n = 1;
    for (int32_t d = 0; d < t_->ndim; ++d) n *= t_->shape[d];
    return n;
  }
  bool is_contiguous() const {  // dense and row-major
    int64_t step = 1;
    for (int32_t d = t_->ndim - 1; d >= 0; --d) {
      if (t_->shape[d] != 1 && t_->strides[d] != step) return numel() == 0;
      step *= t_->shape[d];
    }
    return true;
  }
  const DLTensor* dl() const { return t_; }  // for host->resize

 private:
  const DLTensor* t_;
};

template <>
struct Element<Tensor> {
  using Kept = const DLTensor*;
  static Tensor get(const DLTensor* kept) { return Tensor(kept); }
};
template <>
struct Element<optional<Tensor>> {
  using Kept = const DLTensor*;
  static optional<Tensor> get(const DLTensor* kept) { return kept ? optional<Tensor>(kept) : std::nullopt; }
};

// A number of any kind, by value: it outlives the call.
class Scalar {
 public:
  explicit Scalar(const cw_arg& a) : tag_(a.tag) {
    if (tag_ == CW_COMPLEX)
      real_ = a.v.complex[0], imag_ = a.v.complex[1];
    else if (tag_ == CW_DOUBLE)
      real_ = a.v.d;
    else
      integer_ = a.v.i;
  }
  bool is_boolean() const { return tag_ == CW_BOOLEAN; }
  bool is_integral() const { return tag_ == CW_INT; }
  bool is_floating() const { return tag_ == CW_DOUBLE; }
  bool is_complex() const { return tag_ == CW_COMPLEX; }
  // As a real number; of a complex one its real part.
  template <class T>
  T to() const {
    return is_floating() || is_complex() ? T(real_) : T(integer_);
  }
  double imag() const { return imag_; }

 private:
  uint32_t tag_;
  union {
    int64_t integer_;
    double real_;
  };
  double imag_ = 0;
};

template <>
struct Element<Scalar> {
  using Kept = cw_arg;
  static Scalar get(const cw_arg& kept) { return Scalar(kept); }
};

// A tensor, or the number of a zero-dim tensor of the host; as long as the call. An input that a function takes as Operand and not as
// Tensor says CW_TAKES_NUMBERS for the operator.
class Operand {
 public:
  explicit Operand(const cw_arg& a) : a_(&a) {}
  bool is_tensor() const { return a_->tag == CW_TENSOR; }
  Tensor tensor() const { return Tensor(a_->v.tensor); }
  Scalar number() const { return Scalar(*a_); }

 private:
  const cw_arg* a_;
};

// ---- from cw_arg to a type ---------------------------------------------------------------------------------------
template <class T>
struct Argument;  // `is(arg)`: whether it is one; `get(arg)`; `name`, for words

#define CW_ARGUMENT(T, words_for_it, condition, value)    \
  template <>                                             \
  struct Argument<T> {                                    \
    static constexpr const char* name = words_for_it;     \
    static bool is(const cw_arg& a) { return condition; } \
    static T get(const cw_arg& a) { return value; }       \
  }

inline bool is_number(const cw_arg& a) { return (a.tag >= CW_INT && a.tag <= CW_COMPLEX); }
inline bool all_defined(const cw_arg& a) {
  for (uint32_t i = 0; i < a.n; ++i)
    if (!a.v.tensors[i]) return false;
  return true;
}

CW_ARGUMENT(Tensor, "a tensor", a.tag == CW_TENSOR, Tensor(a.v.tensor));
CW_ARGUMENT(Operand, "a tensor or a number", a.tag == CW_TENSOR || is_number(a), Operand(a));
CW_ARGUMENT(Scalar, "a number", is_number(a), Scalar(a));
CW_ARGUMENT(int64_t, "an int", a.tag == CW_INT, a.v.i);
CW_ARGUMENT(double, "a double", a.tag == CW_DOUBLE, a.v.d);
CW_ARGUMENT(bool, "a boolean", a.tag == CW_BOOLEAN, a.v.i != 0);
CW_ARGUMENT(Dtype, "a dtype", a.tag == CW_DTYPE, Dtype(a.v.i));
CW_ARGUMENT(MemoryFormat, "a memory format", a.tag == CW_INT, MemoryFormat(a.v.i));
CW_ARGUMENT(Layout, "a layout", a.tag == CW_INT, Layout(a.v.i));
CW_ARGUMENT(Device, "a device", a.tag == CW_INT, Device{a.v.i});
CW_ARGUMENT(string_view, "a string", a.tag == CW_STRING, string_view(a.v.string, a.n));
CW_ARGUMENT(Philox, "a generator", a.tag == CW_GENERATOR, *a.v.philox);
CW_ARGUMENT(List<int64_t>, "a list of int", a.tag == CW_INT_LIST, List<int64_t>(a.v.ints, a.n));
CW_ARGUMENT(List<double>, "a list of double", a.tag == CW_DOUBLE_LIST, List<double>(a.v.doubles, a.n));
CW_ARGUMENT(List<bool>, "a list of boolean", a.tag == CW_BOOLEAN_LIST, List<bool>(a.v.ints, a.n));
CW_ARGUMENT(List<Scalar>, "a list of numbers", a.tag == CW_SCALAR_LIST, List<Scalar>(a.v.args, a.n));
CW_ARGUMENT(List<Tensor>, "a list of tensors", a.tag == CW_TENSOR_LIST && all_defined(a),
            List<Tensor>(a.v.tensors, a.n));
CW_ARGUMENT(List<optional<Tensor>>, "a list of tensors", a.tag == CW_TENSOR_LIST,
            List<optional<Tensor>>(a.v.tensors, a.n));
#undef CW_ARGUMENT

template <class T>
struct Argument<optional<T>> {
  static constexpr const char* name = Argument<T>::name;
  static bool is(const cw_arg& a) { return a.tag == CW_NONE || Argument<T>::is(a); }
  static optional<T> get(const cw_arg& a) { return a.tag == CW_NONE ? std::nullopt : optional<T>(Argument<T>::get(a)); }
};

inline const char* name_of_tag(uint32_t tag) {
  constexpr const char* names[] = {"none",
                                   "an int",
                                   "a double",
                                   "a boolean",
                                   "a complex number",
                                   "a dtype",
                                   "a string",
                                   "a tensor",
                                   "a generator",
                                   "a list of int",
                                   "a list of double",
                                   "a list of boolean",
                                   "a list of tensors",
                                   "a list of numbers"};
  return tag < sizeof names / sizeof *names ? names[tag] : "of a kind that abi.h does not have";
}

// ---- operators ---------------------------------------------------------------------------------------------------
template <class... T>
struct Types {
  static constexpr size_t size = sizeof...(T);
  template <size_t i>
  using at = std::tuple_element_t<i, std::tuple<T...>>;
};

// An operator: its outputs first, then its other arguments. One of your own:
//   struct my_op : cw::Operator<1, void(cw::Tensor out, cw::Tensor self, double scale)> {
//     static constexpr const char* name = "mylib::op";
//   };
template <int outputs_, class Signature>
struct Operator;
template <int outputs_, class... T>
struct Operator<outputs_, void(T...)> {
  using arguments = Types<T...>;
  static constexpr size_t outputs = outputs_;
  static constexpr bool is_pointwise = false;
};

// One whose every element depends on the same element of its inputs alone, once these are broadcast.
template <int outputs_, class Signature>
struct Pointwise : Operator<outputs_, Signature> {
  static constexpr bool is_pointwise = true;
};

// ---- what a kernel needs -----------------------------------------------------------------------------------------
// What a kernel may take as it comes. What it does not take, the core prepares.
enum Takes : uint32_t {
  strides = CW_NEEDS_CONTIGUOUS,  // else tensors are dense and row-major
  broadcasting = CW_NEEDS_BROADCAST,  // else inputs have the shape of the first output
  mixed_dtypes = CW_NEEDS_PROMOTION,  // else inputs have their common dtype
  zero_size = CW_NEEDS_ELEMENTS,  // else the first output has elements
};

// What a kernel, or each of a class of kernels, needs. A constant that the lines of a table share:
//   constexpr auto elementwise = cw::pointwise(CW_FLOAT32 | CW_FLOAT16).takes(cw::strides | cw::zero_size);
struct Needs {
  uint32_t bits;
  cw_dtypes of;

  constexpr Needs takes(uint32_t what) const { return {bits & ~what, of}; }
  constexpr Needs needs(uint32_t what) const { return {bits | what, of}; }
  constexpr Needs dtypes(cw_dtypes set) const { return {bits, set}; }
};

// Of dense tensors of one shape and one dtype, and never of none. `dtypes` are those of all tensors, outputs too.
constexpr Needs pointwise(cw_dtypes dtypes) {
  return {CW_NEEDS_CONTIGUOUS | CW_NEEDS_BROADCAST | CW_NEEDS_PROMOTION | CW_NEEDS_ELEMENTS, dtypes};
}

// Of dense tensors whose shapes and dtypes are their own: reductions, products, indices.
constexpr Needs dense(cw_dtypes dtypes) { return {CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS, dtypes}; }

// Not constexpr, so that a constexpr table that gets to one of these does not compile.
inline void only_inputs_of_a_pointwise_operator_can_be_broadcast_to_its_output() {}
inline void copy_takes_strides_since_the_core_makes_tensors_dense_with_it() {}

// ---- a typed function as a kernel --------------------------------------------------------------------------------
template <class F>
struct Function;
template <class R, class... A>
struct Function<R (*)(A...)> {
  using result = R;
  using arguments = Types<std::remove_cv_t<std::remove_reference_t<A>>...>;
};
template <class R, class... A>
struct Function<R (*)(A...) noexcept> : Function<R (*)(A...)> {};

// Whether a function may take `Given` where the operator has `Expected`.
template <class Expected, class Given>
inline constexpr bool fits = std::is_same_v<Expected, Given> || std::is_same_v<optional<Expected>, Given> ||
                             (std::is_same_v<Expected, Tensor> && std::is_same_v<Given, Operand>) ||
                             (std::is_same_v<Expected, optional<Tensor>> && std::is_same_v<Given, optional<Operand>>);
template <class T>
inline constexpr bool is_operand = std::is_same_v<T, Operand> || std::is_same_v<T, optional<Operand>>;
template <class T>
inline constexpr bool is_tensor = std::is_same_v<T, Tensor> || std::is_same_v<T, optional<Tensor>>;

// A compiler that refuses an argument names these four.
template <class Op, size_t place, class Expected, class Given>
constexpr void check_argument() {
  static_assert(fits<Expected, Given>,
                "cw::op: an argument of the function is not of the operator's type; see <operator, place (0 is the "
                "first output), type that the operator has, type that the function has> in the lines around this one");
  static_assert(place >= Op::outputs || !is_operand<Given>, "cw::op: an output is a Tensor, never an Operand");
}

template <class Op, auto function>
struct Kernel {
  using Given = Function<decltype(function)>;
  using Expected = typename Op::arguments;
  static constexpr size_t count = Expected::size;
  static constexpr size_t given = Given::arguments::size;

  static constexpr bool takes_stream() {
    if constexpr (given == count + 1)
      return std::is_same_v<typename Given::arguments::template at<count>, cw_stream>;
    else
      return false;
  }
  static_assert(given == count || takes_stream(),
                "cw::op: the function has more or fewer arguments than the operator: outputs first, then the other "
                "arguments in the schema's order, then a cw_stream if it wants one; see operators.hpp");
  static_assert(std::is_same_v<typename Given::result, cw_status> || std::is_void_v<typename Given::result>,
                "cw::op: the function returns cw_status or void");

  template <size_t i>
  using Type = typename Given::arguments::template at<i>;

  template <size_t... i>
  static constexpr bool check(std::index_sequence<i...>) {
    (check_argument<Op, i, typename Expected::template at<i>, Type<i>>(), ...);
    constexpr bool numbers = (is_operand<Type<i>> || ...);
    static_assert(!numbers || ((i < Op::outputs || !is_tensor<Type<i>>) && ...),
                  "cw::op: where one input is an Operand, all tensors but outputs must be: any may come as a number");
    return numbers;
  }

  template <size_t... i>
  static constexpr bool fits_all(std::index_sequence<i...>) {
    return (fits<typename Expected::template at<i>, Type<i>> && ...);
  }
  static constexpr bool is_right() {  // no more words of the compiler's where it said what is wrong
    if constexpr (given == count || takes_stream())
      return fits_all(std::make_index_sequence<count>());
    else
      return false;
  }

  static constexpr uint32_t needs() {
    if constexpr (given == count || takes_stream())
      return check(std::make_index_sequence<count>()) ? CW_TAKES_NUMBERS : 0;
    else
      return 0;
  }

  template <size_t i>
  static const char* wrong(const cw_arg* args, size_t* place) {
    if (*place < count || Argument<Type<i>>::is(args[i])) return nullptr;
    *place = i;
    return Argument<Type<i>>::name;
  }

  template <size_t... i>
  CW_COLD static cw_status mismatch(const cw_arg* args, int32_t n, std::index_sequence<i...>) {
    if (n != int32_t(count))
      return fail(CW_INVALID, "%s: %d arguments came, the kernel was built for %d", Op::name, int(n), int(count));
    size_t place = count;
    const char* expected = nullptr;
    ((expected = expected ? expected : wrong<i>(args, &place)), ...);
    return fail(CW_INVALID, "%s: argument %d is %s, the kernel was built for %s", Op::name, int(place),
                name_of_tag(args[place].tag), expected ? expected : "another");
  }

  template <size_t... i>
  static cw_status call(const cw_arg* args, int32_t n, [[maybe_unused]] cw_stream stream,
                        std::index_sequence<i...> places) {
    if (n != int32_t(count) || !(Argument<Type<i>>::is(args[i]) && ...)) return mismatch(args, n, places);
    if constexpr (std::is_void_v<typename Given::result>) {
      if constexpr (takes_stream())
        function(Argument<Type<i>>::get(args[i])..., stream);
      else
        function(Argument<Type<i>>::get(args[i])...);
      return CW_OK;
    } else if constexpr (takes_stream()) {
      return function(Argument<Type<i>>::get(args[i])..., stream);
    } else {
      return function(Argument<Type<i>>::get(args[i])...);
    }
  }

  // The boxed kernel. Nothing may be thrown across C.
  static cw_status run(const cw_arg* args, int32_t n, cw_stream stream) {
#if defined(__cpp_exceptions)
    try {
      return call(args, n, stream, std::make_index_sequence<count>());
    } catch (const std::bad_alloc&) {
      return fail(CW_OUT_OF_MEMORY, "%s: no host memory", Op::name);
    } catch (const std::exception& e) {
      return fail(CW_FAILED, "%s: %s", Op::name, e.what());
    } catch (...) {
      return fail(CW_FAILED, "%s: something was thrown", Op::name);
    }
#else
    return call(args, n, stream, std::make_index_sequence<count>());
#endif
  }
};

// ---- the table ---------------------------------------------------------------------------------------------------
struct Entry {
  const char* name;
  cw_op op;
};

// A line of a vendor's table: operator `Op` is computed by `function`.
template <class Op, auto function>
constexpr Entry op(Needs needs) {
  using K = Kernel<Op, function>;
  if ((needs.bits & CW_NEEDS_BROADCAST) && !Op::is_pointwise)
    only_inputs_of_a_pointwise_operator_can_be_broadcast_to_its_output();
  const string_view name = Op::name;
  if ((needs.bits & CW_NEEDS_CONTIGUOUS) && (name == "aten::copy_" || name == "aten::copy.out"))
    copy_takes_strides_since_the_core_makes_tensors_dense_with_it();
  cw_op made{sizeof(cw_op), needs.bits | K::needs(), needs.of, nullptr};
  if constexpr (K::is_right()) made.kernel = &K::run;
  return {Op::name, made};
}

// For the entry `op_find`: looks `name` up.
template <size_t n>
cw_status find(const Entry (&table)[n], const char* name, cw_op* out) {
  for (const Entry& entry : table) {
    if (strcmp(entry.name, name) != 0) continue;
    cw_op op = entry.op;
    op.struct_size = out->struct_size;
    memcpy(out, &op, out->struct_size < sizeof op ? out->struct_size : sizeof op);
    return CW_OK;
  }
  return CW_UNSUPPORTED;
}

}  // namespace cw

#undef CW_HIDDEN
#undef CW_COLD
#undef CW_PRINTF
#endif  // CAUSEWAY_OP_HPP
