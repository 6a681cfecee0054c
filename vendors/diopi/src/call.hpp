// DIOPI's functions as lines of a table.
//
// DIOPI has one convention for all functions: diopi<Name>(context, outputs, inputs, numbers). So a line says which operator
// of torch is which of DIOPI's, and which argument goes where; the context goes by itself:
//
//   row<aten::mul_out, Inplace<1, 2>, With<0, 1, 2>, With<0, 1, Number{2}>>(
//       any, F(diopiMulInp), F(diopiMul), F(diopiMulScalar));
//
// A plain number is the argument of that place in torch's schema (outputs first), passed as what it is there: a tensor, a
// scalar, a list, an int. The words below pass it otherwise. Each `With` is a call of its own; the first that the library has
// and whose arguments are there serves. `Inplace` is one for an output that is the first input, as DIOPI has functions of their
// own for that. The compiler checks each call against the function's declaration (diopi/functions.h).
//
// What a library declines by diopiNoImplement, diopiDtypeNotSupported, diopi5DNotSupported or diopiForceFallbackToCPU is
// CW_UNSUPPORTED: another rung serves.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "causeway/operators.hpp"
#include "causeway/pattern.hpp"
#include "diopi/functions.h"
#include "error.hpp"
#include "handles.hpp"

namespace diopi {

namespace aten = cw::aten;

// ---- words of a pattern: the argument of this place ...
using cw::Number;  // ... that is, or came as, a number: as diopiScalar_t
enum class Real : int {};  // ... a number, as a double
enum class Int32 : int {};  // ... an int of 32 bits
enum class Dim : int {};  // ... a dimension, counted from the front
enum class NewDim : int {};  // ... likewise one of an output that has a dimension more
enum class AtDim : int {};  // ... likewise, as a pointer; NULL where none was given
enum class Dims : int {};  // ... dimensions; none are all of the first input's
enum class At : int {};  // ... an int, or an optional one: as a pointer, NULL for none
enum class Like : int {};  // ... a tensor, cast to the first output's dtype
enum class Made : int {};  // ... an output that the function makes itself
enum class Items : int {};  // ... a list of tensors that are read: its handles, and how many
enum class Inputs : int {};  // ... its handles alone
enum class Outputs : int {};  // ... a list of tensors that are written: its handles alone
enum class Count : int {};  // ... a list: how many
enum class Pair : int {};  // ... a list of two ints, or of one that stands for both
enum class Stride : int {};  // ... a Pair, and where it is empty the argument before it
enum class Reduction : int {};  // ... torch's number of a reduction, which is DIOPI's
// ---- and words that stand for themselves
enum class Integer : int64_t {};
enum class Flag : int { no, yes };
enum class None : int { dim };  // a NULL pointer

struct Operation {  // one of DIOPI's functions, looked up once
  const char* name = nullptr;  // "diopiAdd"
  void* function = nullptr;
};

// One call: makes the handles that the function takes from the core's arguments.
class Frame {
 public:
  Frame(const char* name, const cw_arg* args, int32_t n, int32_t outputs, cw_stream stream);
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  const cw_arg& operator[](int i) const { return args_[i]; }
  diopiContextHandle_t context() { return &context_; }
  diopiTensorHandle_t tensor(const cw_arg& arg);  // NULL for none; of a number a tensor that is filled with it
  diopiTensorHandle_t tensor(const DLTensor* t);
  diopiTensorHandle_t like_output(const cw_arg& arg);
  diopiTensorHandle_t* made(int place);
  diopiTensorHandle_t* tensors(const cw_arg& arg);  // one that is undefined is NULL
  diopiScalar_t* scalar(const cw_arg& arg);  // NULL for none
  diopiGeneratorHandle_t generator(const cw_arg& arg);
  diopiSize_t ints(const cw_arg& arg);
  diopiSize_t ints(const cw_arg& arg, uint32_t n);  // where one int stands for all n
  diopiSize_t dims(const cw_arg& arg);
  diopiSize_t kept(std::vector<int64_t> values);
  int64_t dim(int64_t given, int64_t more = 0) const;  // from the front
  const int64_t* at(const cw_arg& arg) { return arg.tag == CW_NONE ? nullptr : &arg.v.i; }
  const int64_t* at_dim(const cw_arg& arg);
  const bool* flag(const cw_arg& arg);
  double real(const cw_arg& arg);

  const DLTensor* first_input() const;
  void decline() {
    if (!status_) status_ = fail(CW_UNSUPPORTED, "%s: DIOPI's function does not take these arguments", name_);
  }
  cw_status status() const { return status_; }
  cw_status finish(const Operation& operation, diopiError_t result);

 private:
  diopiTensorHandle_t next();
  diopiTensorHandle_t filled(const cw_arg& number);
  cw_status give_made(int place, const diopiTensor& made);

  const char* name_;
  const cw_arg* args_;
  int32_t n_, outputs_;
  diopiContext context_;
  cw_status status_ = CW_OK;
  diopiGenerator generator_;
  size_t tensors_ = 0, scalars_ = 0;
  std::array<diopiTensor, 14> tensor_;
  std::array<diopiScalar_t, 8> scalar_;
  std::list<diopiTensor> more_;  // tensors, of lists
  std::list<std::vector<diopiTensorHandle_t>> lists_;
  std::list<std::vector<int64_t>> ints_;
  std::vector<std::pair<int, diopiTensorHandle_t>> made_;
  int64_t dim_ = 0;
  bool flag_ = false;
};

// ---- from an argument of torch's type to a parameter of DIOPI's ------------------------------------------------------
template <class T>
struct Default;  // `get(frame, arg)`

#define DIOPI_DEFAULT(T, value)                                                   \
  template <>                                                                     \
  struct Default<T> {                                                             \
    static auto get([[maybe_unused]] Frame& f, const cw_arg& a) { return value; } \
  }
DIOPI_DEFAULT(cw::Tensor, f.tensor(a));
DIOPI_DEFAULT(cw::optional<cw::Tensor>, f.tensor(a));
DIOPI_DEFAULT(cw::Scalar, f.scalar(a));
DIOPI_DEFAULT(cw::optional<cw::Scalar>, f.scalar(a));
DIOPI_DEFAULT(int64_t, a.v.i);
DIOPI_DEFAULT(double, a.v.d);
DIOPI_DEFAULT(bool, a.v.i != 0);
DIOPI_DEFAULT(cw::optional<bool>, f.flag(a));
DIOPI_DEFAULT(cw::List<int64_t>, f.ints(a));
DIOPI_DEFAULT(cw::string_view, a.v.string);
DIOPI_DEFAULT(cw::Philox, f.generator(a));
#undef DIOPI_DEFAULT

// The parameters that a word of a pattern makes, mostly one.
template <class Op>
struct Word {
  template <int token>
  static auto get(Frame& f, std::integral_constant<int, token>) {
    using T = typename Op::arguments::template at<static_cast<size_t>(token)>;
    return std::make_tuple(Default<T>::get(f, f[token]));
  }
#define DIOPI_WORD(T, value)                                     \
  template <T token>                                             \
  static auto get(Frame& f, std::integral_constant<T, token>) {  \
    [[maybe_unused]] constexpr auto i = static_cast<int>(token); \
    return std::make_tuple(value);                               \
  }
  DIOPI_WORD(Number, f.scalar(f[i]))
  DIOPI_WORD(Real, f.real(f[i]))
  DIOPI_WORD(Int32, static_cast<int32_t>(f[i].v.i))
  DIOPI_WORD(Dim, f.dim(f[i].v.i))
  DIOPI_WORD(NewDim, f.dim(f[i].v.i, 1))
  DIOPI_WORD(AtDim, f.at_dim(f[i]))
  DIOPI_WORD(Dims, f.dims(f[i]))
  DIOPI_WORD(At, f.at(f[i]))
  DIOPI_WORD(Like, f.like_output(f[i]))
  DIOPI_WORD(Made, f.made(i))
  DIOPI_WORD(Inputs, const_cast<diopiConstTensorHandle_t*>(f.tensors(f[i])))
  DIOPI_WORD(Outputs, f.tensors(f[i]))
  DIOPI_WORD(Count, static_cast<int64_t>(f[i].n))
  DIOPI_WORD(Pair, f.ints(f[i], 2))
  DIOPI_WORD(Stride, f.ints(f[f[i].n ? i : i - 1], 2))
  DIOPI_WORD(Reduction, static_cast<diopiReduction_t>(f[i].v.i))
  DIOPI_WORD(Flag, (static_cast<void>(f), token == Flag::yes))
  DIOPI_WORD(None, (static_cast<void>(f), static_cast<const int64_t*>(nullptr)))
#undef DIOPI_WORD
  template <Items token>
  static auto get(Frame& f, std::integral_constant<Items, token>) {
    const cw_arg& arg = f[static_cast<int>(token)];
    return std::make_tuple(const_cast<diopiConstTensorHandle_t*>(f.tensors(arg)), static_cast<int64_t>(arg.n));
  }
  template <Integer token>
  static auto get(Frame&, std::integral_constant<Integer, token>) {
    return std::make_tuple(static_cast<int64_t>(token));
  }
  // A function of the frame, for what no word says.
  template <class T, T (*token)(Frame&)>
  static auto get(Frame& f, std::integral_constant<T (*)(Frame&), token>) {
    return std::make_tuple(token(f));
  }
};

// Whether a parameter is what a function declares. Handles of tensors that are read may be any.
template <class Given, class Expected>
inline constexpr bool suits =
    std::is_same_v<Given, Expected> ||
    (std::is_same_v<Given, diopiTensorHandle_t> && std::is_same_v<Expected, diopiConstTensorHandle_t>) ||
    (std::is_same_v<Given, diopiScalar_t*> && std::is_same_v<Expected, const diopiScalar_t*>);

template <class Given, class Function>
inline constexpr bool suits_function = false;
template <class... Given, class... Expected>
inline constexpr bool suits_function<std::tuple<Given...>, diopiError_t (*)(diopiContextHandle_t, Expected...)> = [] {
  if constexpr (sizeof...(Given) == sizeof...(Expected))
    return (suits<Given, Expected> && ...);
  else
    return false;
}();

template <auto... tokens>
struct With : cw::Pattern<Word, Frame, tokens...> {
  using Base = cw::Pattern<Word, Frame, tokens...>;
  static constexpr bool is_inplace = false;

  template <class Op, class Function>
  static cw_status call(const Operation& operation, Frame& f) {
    static_assert(suits_function<typename Base::template Parameters<Op>, Function>,
                  "the pattern of this line does not make what the function takes");
    auto given = Base::template parameters<Op>(f);
    TRY(f.status());
    const auto function = reinterpret_cast<Function>(operation.function);
    return f.finish(operation, std::apply([&](auto... x) { return function(f.context(), x...); }, given));
  }
};

bool is_same_tensor(const cw_arg& a, const cw_arg& b);

// For an output that is the first input.
template <auto... tokens>
struct Inplace : With<tokens...> {
  static constexpr bool is_inplace = true;

  template <class Op>
  static bool fits(const cw_arg* args) {
    return is_same_tensor(args[0], args[1]) && With<tokens...>::template fits<Op>(args);
  }
};

// For arguments of which a function says yes.
template <bool (*of)(const cw_arg*), auto... tokens>
struct If : With<tokens...> {
  template <class Op>
  static bool fits(const cw_arg* args) {
    return With<tokens...>::template fits<Op>(args) && of(args);
  }
};

// ---- a line of the table ---------------------------------------------------------------------------------------------
struct Line {
  struct Call {
    bool is_inplace, takes_number;
  };
  const char* name = nullptr;  // torch's
  cw::Needs needs = {0, 0};
  cw_kernel kernel = nullptr;
  Operation* operations = nullptr;
  std::vector<Call> calls;
};

template <class Function>
struct Named {
  const char* name;
};
#define F(function) \
  Named<decltype(&(function))> { #function }

template <class Op, class Functions, class... Calls>
struct Row;
template <class Op, class... Functions, class... Calls>
struct Row<Op, std::tuple<Functions...>, Calls...> {
  static inline Operation operations[sizeof...(Calls)];

  static cw_status kernel(const cw_arg* args, int32_t n, cw_stream stream) {
    if (!cw::matches<Op>(args, n))
      return fail(CW_INVALID, "%s: the arguments are not those that the kernel was built for", Op::name);
    try {
      const int call = first_call(args);
      if (call < 0) return fail(CW_UNSUPPORTED, "%s: the library has no function for these arguments", Op::name);
      Frame frame(Op::name, args, n, static_cast<int32_t>(Op::outputs), stream);
      TRY(frame.status());
      constexpr cw_status (*calls[])(const Operation&, Frame&) = {&Calls::template call<Op, Functions>...};
      return calls[call](operations[call], frame);
    } catch (const std::exception& e) {
      return fail(CW_FAILED, "%s: %s", Op::name, e.what());
    }
  }

 private:
  // The first that the library has and that fits. Where a number came that none takes: the first that makes a tensor of it.
  static int first_call(const cw_arg* args) {
    constexpr bool plain[] = {(!Calls::takes_number && !Calls::is_inplace)...};
    const bool fitting[] = {Calls::template fits<Op>(args)...};
    for (int i = 0; i < static_cast<int>(sizeof...(Calls)); ++i)
      if (operations[i].function && fitting[i]) return i;
    if (cw::has_number<Op>(args))
      for (int i = 0; i < static_cast<int>(sizeof...(Calls)); ++i)
        if (operations[i].function && plain[i]) return i;
    return -1;
  }
};

template <class Op, class... Calls, class... Functions>
Line row(cw::Needs needs, Named<Functions>... functions) {
  static_assert(sizeof...(Calls) == sizeof...(Functions), "a function of DIOPI's for each call");
  using R = Row<Op, std::tuple<Functions...>, Calls...>;
  Line line;
  line.name = Op::name, line.needs = needs, line.kernel = &R::kernel, line.operations = R::operations;
  size_t i = 0;
  ((R::operations[i++].name = functions.name), ...);
  line.calls = {{Calls::is_inplace, Calls::takes_number}...};
  return line;
}

// ---- needs and dtypes that lines share -------------------------------------------------------------------------------
constexpr cw_dtypes kReals = CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32 | CW_FLOAT64;
constexpr cw_dtypes kInts = CW_UINT8 | CW_INT8 | CW_INT16 | CW_INT32 | CW_INT64;
constexpr cw_dtypes kNumbers = kReals | kInts;
constexpr cw_dtypes kAny = kNumbers | CW_BOOL;

// DIOPI's functions take strides and broadcast; common dtypes are the core's affair, so that they are torch's.
constexpr cw::Needs pointwise(cw_dtypes dtypes) { return {CW_NEEDS_PROMOTION | CW_NEEDS_ELEMENTS, dtypes}; }
// As it comes, but never of nothing.
constexpr cw::Needs whole(cw_dtypes dtypes) { return {CW_NEEDS_ELEMENTS, dtypes}; }

// The files of ops/, each with the lines of a family.
using Lines = std::vector<Line>;
void add_pointwise(Lines& lines);
void add_reductions(Lines& lines);
void add_networks(Lines& lines);
void add_index(Lines& lines);
void add_random(Lines& lines);
void add_lists(Lines& lines);

const Lines& table();
cw_status op_find(const char* name, cw_op* out);
const char* notes();  // for `causeway doctor`
const char* rows();  // for tools: torch's name and DIOPI's of each call, a line each

}  // namespace diopi
