// Operators of aclnn as lines of a table.
//
// aclnn has one convention for all operators: aclnn<Name>GetWorkspaceSize takes the operator's arguments and gives the
// bytes of workspace and an executor, aclnn<Name> runs it on a stream. So a line says which operator of torch is which of
// aclnn's, and which argument goes where:
//
//   row<aten::add_out, With<1, 2, 3, 0>, With<1, Number{2}, 3, 0>>(pointwise(kArithmetic), "Add", "Adds"),
//
// A plain number is the argument of that place in torch's schema (outputs first), passed as what it is there: a tensor, a
// scalar, a list, an int. The words below pass it otherwise. Each `With` is a call of its own; the first whose arguments
// are there serves: aclnnAdd of two tensors, aclnnAdds where the second came as a number. The types of both sides are
// checked by the compiler, and each parameter is passed with its own type: a float by value is no double.
//
// What GetWorkspaceSize refuses is declined (CW_UNSUPPORTED) before anything was done: another rung serves.
#pragma once

#include <algorithm>
#include <atomic>
#include <string>
#include <tuple>
#include <vector>

#include "acl.hpp"
#include "error.hpp"
#include "executors.hpp"
#include "layout.hpp"
#include "causeway/operators.hpp"
#include "causeway/pattern.hpp"

namespace ascend {

namespace aten = cw::aten;

// ---- words of a pattern: the argument of this place ...
using cw::Number;  // ... that is, or came as, a number: as aclScalar
enum class Float : int {};  // ... a number, as a float by value
enum class Int32 : int {};  // ... an int of 32 bits
enum class OrZero : int {};  // ... an int, 0 where none was given
enum class Type : int {};  // ... a tensor: its aclDataType
enum class Dims : int {};  // ... dimensions as aclIntArray; none are all of the first input's
enum class Dim : int {};  // ... one dimension, as an aclIntArray of it
enum class Single : int {};  // ... one dimension, 0 where none was given (of a tensor that was made flat by the caller)
enum class Correction : int {};  // ... an optional number: an int, 1 where none was given
enum class Scale : int {};  // ... an optional double: 0 where none was given
enum class Seed : int {};  // ... a generator: two ints, seed and offset
enum class Pair : int {};  // ... a list of two ints, or of one that stands for both, as aclIntArray of two
enum class Triple : int {};  // ... likewise of three
enum class Stride2 : int {};  // ... a Pair, and where it is empty the argument before it
enum class Stride3 : int {};  // ... likewise a Triple
// ---- and words that stand for themselves
enum class Integer : int64_t {};
enum class Flag : int { no, yes };
enum class Real : int {};  // a double
enum class Scalar : int {};  // an aclScalar of this integer
enum class Cube : int { product, convolution };  // how float32 is multiplied: as torch's settings ask now
enum class Weight : int {
};  // the tensor of this place in the chip's format: a call of its own, where there is such a form
enum class Everything : int {};  // all dimensions of the tensor of this place, as aclIntArray
enum class None : int { tensor };  // a NULL tensor

struct Operation {  // one of aclnn's, looked up once
  Operation() = default;
  explicit Operation(const char* name) : name(name) { find(); }
  bool find();  // whether CANN's libraries have it
  const char* name = nullptr;  // "Add"
  void* workspace = nullptr;  // aclnnAddGetWorkspaceSize
  Status (*run)(void*, uint64_t, AclExecutor*, Stream) = nullptr;  // aclnnAdd
  std::atomic<bool> said{false};  // its first refusal was
  std::atomic<bool> repeats{true};  // CANN has not refused to make an executor of it repeatable
};

// One call: makes the handles that aclnn takes from the core's arguments, and ends them.
class Frame {
 public:
  Frame(const char* name, const cw_arg* args, int32_t n, int32_t outputs, uint64_t also_written, cw_stream stream);
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  AclTensor* tensor(const cw_arg& arg);  // NULL for none; of a number a tensor that is filled with it
  AclTensor* tensor(const DLTensor* t);
  // Memory of an argument, so many bytes behind its begin.
  Memory of(const DLTensor* t, uint64_t bytes = 0) const;
  // Memory of an argument or of `scratch`, or that stays for good, as another tensor; of an argument that is written
  // where `written`.
  AclTensor* view(const Memory& memory, DLDataType type, const int64_t* shape, const int64_t* strides, int32_t ndim,
                  bool written);
  // This many ones of a type of `kFloats`, which stay where they are: a call with them is kept. NULL: of another type, or
  // there are not so many yet and a capture takes no copy that is waited for.
  AclTensor* ones(DLDataType type, int64_t count);
  AclTensor* nothing(int type);  // a tensor without elements
  // Whether this argument, a weight, is in the chip's format now; `weight` is that tensor then.
  bool take_form(int place);
  AclTensor* weight(int place);
  // In workspace and dense; what is in it is arbitrary. `where`: where it lies.
  AclTensor* scratch(int type, int64_t itemsize, const int64_t* shape, int32_t ndim, Memory* where = nullptr);
  // Likewise, filled with one number; `type` is an aclDataType of `itemsize` bytes.
  AclTensor* filled(const cw_arg& number, int type, int64_t itemsize, const int64_t* shape, int32_t ndim);
  AclTensorList* tensors(const cw_arg& arg);
  AclTensorList* list(const std::vector<AclTensor*>& made);  // of the last that were made, which it then owns
  AclScalar* scalar(const cw_arg& arg);
  AclScalar* scalar(double value);
  AclScalar* scalar(int64_t value);
  AclScalarList* scalars(const cw_arg& arg);
  AclIntArray* ints(const int64_t* values, uint64_t n);
  AclIntArray* ints(const cw_arg& arg);
  AclIntArray* ints(const cw_arg& arg, uint32_t n);  // where one int stands for all n
  AclIntArray* dimensions(const cw_arg& arg);
  AclIntArray* every_dimension(int64_t ndim);
  AclBoolArray* booleans(const cw_arg& arg);
  AclFloatArray* floats(const cw_arg& arg);

  const cw_arg& operator[](int i) const { return args_[i]; }
  const DLTensor* first_input() const;
  int32_t index() const;  // of the device
  int32_t count() const { return n_; }
  // A pattern that cannot be made of these arguments declines.
  void decline() {
    if (!status_) status_ = fail(CW_UNSUPPORTED, "%s: aclnn's call does not take these arguments", name_);
  }
  cw_status status() const { return status_; }
  // Runs the executors that are kept of this operation, these arguments and `more`. False: there are none.
  bool again(Operation& operation, int64_t more, cw_status* status);
  bool came_again() const { return came_again_; }  // what follows the call was done too
  // The line's call is done, and all that follows: from now on it may come again.
  void keep();
  // What a line's functions leave for what follows the call.
  Memory left[2];
  // A call of aclnn's on the frame's stream. What it refuses is declined.
  template <class... Args>
  cw_status call(Operation& operation, Args... args) {
    TRY(status_);
    uint64_t bytes = 0;
    AclExecutor* executor = nullptr;
    using Workspace = Status (*)(Args..., uint64_t*, AclExecutor**);
    const Status result = reinterpret_cast<Workspace>(operation.workspace)(args..., &bytes, &executor);
    if (result != kSuccess) return status_ = decline(operation, result);
    std::vector<Kept::Place> places;
    size_t index = 0;
    if (recording_) (note(args, &index, &places), ...);
    return status_ = finish(operation, bytes, executor, std::move(places));
  }

 private:
  template <class T>
  T* keep(T* made, Kind kind);
  bool write_key(const Operation& operation, int64_t more);
  bool written(int32_t place) const { return place < outputs_ || (also_written_ >> place & 1); }
  AclTensor* make(const Memory& memory, DLDataType type, const int64_t* shape, const int64_t* strides, int32_t ndim,
                  bool written);
  AclTensor* lies(AclTensor* made, const Memory& memory);
  AclTensor* filled(const cw_arg& number);
  cw_status decline(Operation& operation, Status result);
  cw_status finish(Operation& operation, uint64_t bytes, AclExecutor* executor, std::vector<Kept::Place> places);
  cw_status run(Operation& operation, uint64_t bytes, AclExecutor* executor, bool* launched);
  uint64_t bytes_behind(const DLTensor* t) const;
  uint64_t bytes_behind(const Memory& memory) const;
  void* address_of(const Memory& memory, const std::vector<void*>& lent) const;
  // Which of a call's tensors lie in memory that may be elsewhere the next time. Each has its place in the order of the
  // parameters, those of a list one by one, and an absent one has its own too.
  void note(AclTensor* tensor, size_t* index, std::vector<Kept::Place>* places) const;
  void note(AclTensorList* list, size_t* index, std::vector<Kept::Place>* places) const;
  template <class T>
  void note(T, size_t*, std::vector<Kept::Place>*) const {}
  void stop_recording();

  const char* name_;
  const cw_arg* args_;
  int32_t n_, outputs_;
  uint64_t also_written_;
  cw_stream stream_;
  cw_status status_ = CW_OK;
  Handles made_;
  Operation* main_ = nullptr;  // the line's
  Memory form_;  // of a weight
  std::string key_;  // of the line's call; empty: it is not to be kept
  bool recording_ = false;  // it came before, and is kept from now on
  bool came_again_ = false;
  std::vector<Kept::Step> steps_;  // so far
  std::vector<uint64_t> lent_;
  std::vector<std::pair<AclTensor*, Memory>> lie_;  // where tensors lie, while it is recorded
  std::vector<std::pair<AclTensorList*, std::vector<AclTensor*>>> lists_;
};

int type_of(DLDataType type);  // aclDataType, kUndefinedType for none
int8_t cube_math(Cube which);

// ---- from an argument of torch's type to a parameter of aclnn's ------------------------------------------------------
template <class T>
struct Default;  // `get(frame, arg)`

#define ASCEND_DEFAULT(T, value)                                                  \
  template <>                                                                     \
  struct Default<T> {                                                             \
    static auto get([[maybe_unused]] Frame& f, const cw_arg& a) { return value; } \
  }
ASCEND_DEFAULT(cw::Tensor, f.tensor(a));
ASCEND_DEFAULT(cw::optional<cw::Tensor>, f.tensor(a));
ASCEND_DEFAULT(cw::Scalar, f.scalar(a));
ASCEND_DEFAULT(cw::optional<cw::Scalar>, f.scalar(a));
ASCEND_DEFAULT(int64_t, a.v.i);
ASCEND_DEFAULT(double, a.v.d);
ASCEND_DEFAULT(bool, a.v.i != 0);
ASCEND_DEFAULT(cw::List<int64_t>, f.ints(a));
ASCEND_DEFAULT(cw::optional<cw::List<int64_t>>, f.ints(a));
ASCEND_DEFAULT(cw::List<bool>, f.booleans(a));
ASCEND_DEFAULT(cw::List<double>, f.floats(a));
ASCEND_DEFAULT(cw::List<cw::Tensor>, f.tensors(a));
ASCEND_DEFAULT(cw::List<cw::optional<cw::Tensor>>, f.tensors(a));
ASCEND_DEFAULT(cw::List<cw::Scalar>, f.scalars(a));
#undef ASCEND_DEFAULT

// The parameters that a word of a pattern makes, mostly one.
template <class Op>
struct Word {
  template <int i>
  using At = typename Op::arguments::template at<static_cast<size_t>(i)>;

  template <int token>
  static auto get(Frame& f, std::integral_constant<int, token>) {
    return std::make_tuple(Default<At<token>>::get(f, f[token]));
  }
#define ASCEND_WORD(T, value)                                          \
  template <T token>                                                   \
  static auto get(Frame& f, std::integral_constant<T, token>) {        \
    [[maybe_unused]] constexpr auto i = static_cast<int>(token);       \
    [[maybe_unused]] const cw_arg* args = f.count() ? &f[0] : nullptr; \
    return std::make_tuple(value);                                     \
  }
  ASCEND_WORD(Number, f.scalar(args[i]))
  ASCEND_WORD(Float, args[i].tag == CW_NONE ? 0.0f : static_cast<float>(number(args[i])))
  ASCEND_WORD(Int32, static_cast<int>(args[i].v.i))
  ASCEND_WORD(OrZero, static_cast<int64_t>(args[i].tag == CW_NONE ? 0 : args[i].v.i))
  ASCEND_WORD(Type, static_cast<int>(type_of(args[i].v.tensor->dtype)))
  ASCEND_WORD(Dims, f.dimensions(args[i]))
  ASCEND_WORD(Dim, f.ints(&args[i].v.i, 1))
  ASCEND_WORD(Single, static_cast<int64_t>(args[i].tag == CW_NONE ? (f.decline(), 0) : args[i].v.i))
  ASCEND_WORD(Correction, static_cast<int64_t>(args[i].tag == CW_NONE ? 1 : whole(f, args[i])))
  ASCEND_WORD(Scale, args[i].tag == CW_NONE ? 0.0 : args[i].v.d)
  ASCEND_WORD(Pair, f.ints(args[i], 2))
  ASCEND_WORD(Triple, f.ints(args[i], 3))
  ASCEND_WORD(Stride2, f.ints(args[args[i].n ? i : i - 1], 2))
  ASCEND_WORD(Stride3, f.ints(args[args[i].n ? i : i - 1], 3))
  ASCEND_WORD(Real, static_cast<double>(i))
  ASCEND_WORD(Scalar, f.scalar(static_cast<int64_t>(i)))
  ASCEND_WORD(Flag, token == Flag::yes)
  ASCEND_WORD(Cube, cube_math(token))
  ASCEND_WORD(Everything, f.every_dimension(args[i].v.tensor->ndim))
  ASCEND_WORD(None, static_cast<AclTensor*>(nullptr))
  ASCEND_WORD(Weight, f.weight(i))
#undef ASCEND_WORD
  template <Integer token>
  static auto get(Frame&, std::integral_constant<Integer, token>) {
    return std::make_tuple(static_cast<int64_t>(token));
  }
  template <Seed token>
  static auto get(Frame& f, std::integral_constant<Seed, token>) {
    const cw_philox& philox = *f[static_cast<int>(token)].v.philox;
    return std::make_tuple(static_cast<int64_t>(philox.seed), static_cast<int64_t>(philox.offset));
  }
  // A function of the frame, for what no word says.
  template <class T, T (*token)(Frame&)>
  static auto get(Frame& f, std::integral_constant<T (*)(Frame&), token>) {
    return std::make_tuple(token(f));
  }

  static double number(const cw_arg& a) {
    return a.tag == CW_DOUBLE ? a.v.d : a.tag == CW_COMPLEX ? a.v.complex[0] : static_cast<double>(a.v.i);
  }
  static int64_t whole(Frame& f, const cw_arg& a) {
    const auto value = static_cast<int64_t>(number(a));
    if (static_cast<double>(value) != number(a)) f.decline();
    return value;
  }
};

// A letter for each type of parameter: what `make ascend-headers` compares with aclnn's headers.
template <class T>
constexpr char letter() {
  if (std::is_same_v<T, AclTensor*>) return 't';
  if (std::is_same_v<T, AclTensorList*>) return 'L';
  if (std::is_same_v<T, AclScalar*>) return 's';
  if (std::is_same_v<T, AclScalarList*>) return 'S';
  if (std::is_same_v<T, AclIntArray*>) return 'I';
  if (std::is_same_v<T, AclBoolArray*>) return 'B';
  if (std::is_same_v<T, AclFloatArray*>) return 'F';
  if (std::is_same_v<T, int64_t>) return 'i';
  if (std::is_same_v<T, int>) return 'n';
  if (std::is_same_v<T, int8_t>) return 'c';
  if (std::is_same_v<T, bool>) return 'b';
  if (std::is_same_v<T, double>) return 'd';
  if (std::is_same_v<T, float>) return 'f';
  if (std::is_same_v<T, const char*>) return 'z';
  return '?';
}

template <class... T>
std::string letters(std::tuple<T...>*) {
  return {letter<T>()...};
}

template <auto... tokens>
struct With : cw::Pattern<Word, Frame, tokens...> {
  using Base = cw::Pattern<Word, Frame, tokens...>;

  template <class Op>
  static cw_status call(Operation& operation, Frame& f) {
    cw_status status = CW_OK;
    if (f.again(operation, (0 + ... + precision(tokens)), &status)) return status;
    auto given = Base::template parameters<Op>(f);
    return std::apply([&](auto... x) { return f.call(operation, x...); }, given);
  }

  // The place of a weight that is taken in the chip's format; -1: of none.
  static constexpr int weight = [] {
    int place = -1;
    (
        [&] {
          if constexpr (std::is_same_v<std::remove_cv_t<decltype(tokens)>, Weight>) place = static_cast<int>(tokens);
        }(),
        ...);
    return place;
  }();

 private:
  // What a call depends on beside its arguments, as a number.
  template <class T>
  static int64_t precision(T token) {
    if constexpr (std::is_same_v<T, Cube>)
      return 1 + cube_math(token);
    else
      return 0;
  }
};

// A call after which something is left to do: to its results, or with them.
template <class Call, cw_status (*after)(Frame&)>
struct Then : Call {
  template <class Op>
  static cw_status call(Operation& operation, Frame& f) {
    TRY(Call::template call<Op>(operation, f));
    if (f.came_again()) return CW_OK;
    const cw_status status = after(f);
    // The results are written, so that no other rung may begin again.
    return status == CW_UNSUPPORTED
               ? cw::fail(CW_FAILED, "%s: what follows aclnn%s was declined", Op::name, operation.name)
               : status;
  }
};

// ---- a line of the table ---------------------------------------------------------------------------------------------
struct Line {
  const char* name = nullptr;  // torch's
  cw::Needs needs = {0, 0};
  cw_kernel kernel = nullptr;
  Operation* operations = nullptr;
  std::vector<std::string> parameters;  // of each operation, a letter each
};

template <class Op, class = void>
inline constexpr uint32_t most_tensors = 0;  // of a list in one call of aclnn's; 0: any
template <class Op>
inline constexpr uint32_t most_tensors<Op, std::void_t<decltype(Op::most)>> = Op::most;

// Arguments beside the outputs that the operator writes, a bit each.
template <class Op>
inline constexpr uint64_t also_written = 0;
template <>
inline constexpr uint64_t also_written<aten::native_batch_norm_out> = 1 << 6 | 1 << 7;  // running mean and variance
template <>
inline constexpr uint64_t also_written<cw::causeway::lstm_layer> = 0xf << 7;
template <>
inline constexpr uint64_t also_written<cw::causeway::lstm_layer_backward> = 0x3f << 12;

template <class Op, class... Calls>
struct Row {
  static inline Operation operations[sizeof...(Calls)];

  static cw_status kernel(const cw_arg* args, int32_t n, cw_stream stream) {
    if (!cw::matches<Op>(args, n))
      return cw::fail(CW_INVALID, "%s: the arguments are not those that the kernel was built for", Op::name);
    try {
      return in_parts(args, n, stream);
    } catch (const std::exception& e) {
      return cw::fail(CW_FAILED, "%s: %s", Op::name, e.what());
    }
  }

 private:
  // Lists that are longer than aclnn takes, some tensors at a time.
  static cw_status in_parts(const cw_arg* args, int32_t n, cw_stream stream) {
    constexpr uint32_t most = most_tensors<Op>;
    if (!most || args[0].n <= most) return call(args, n, stream);
    std::vector<cw_arg> part(args, args + n);
    for (uint32_t begin = 0; begin < args[0].n; begin += most) {
      for (int32_t i = 0; i < n; ++i) {
        if (args[i].tag != CW_TENSOR_LIST && args[i].tag != CW_SCALAR_LIST) continue;
        part[size_t(i)].n = std::min(most, args[i].n - begin);
        if (args[i].tag == CW_TENSOR_LIST)
          part[size_t(i)].v.tensors = args[i].v.tensors + begin;
        else
          part[size_t(i)].v.args = args[i].v.args + begin;
      }
      const cw_status status = call(part.data(), n, stream);
      // Declined after a part was done: in place that part cannot be done again.
      if (status == CW_UNSUPPORTED && begin)
        return cw::fail(CW_FAILED, "%s: aclnn%s took the first %u tensors and declined the next", Op::name,
                        operations[0].name, begin);
      TRY(status);
    }
    return CW_OK;
  }

  static cw_status call(const cw_arg* args, int32_t n, cw_stream stream) {
    if constexpr (((Calls::weight >= 0) || ...)) {
      const cw_status status = from_form(args, n, stream);
      if (status != CW_UNSUPPORTED) return status;
    }
    Frame frame(Op::name, args, n, static_cast<int32_t>(Op::outputs), also_written<Op>, stream);
    cw_status status = CW_UNSUPPORTED;
    Operation* operation = operations;
    bool served = false;
    const auto attempt = [&](auto call) {
      using Call = decltype(call);
      if (!served && operation->run && Call::weight < 0 && Call::template fits<Op>(args))
        served = true, status = Call::template call<Op>(*operation, frame);
      ++operation;
    };
    (attempt(Calls()), ...);
    // Numbers where no call takes them: the first makes tensors of them.
    using First = std::tuple_element_t<0, std::tuple<Calls...>>;
    if (!served && operations[0].run) status = First::template call<Op>(operations[0], frame);
    if (!status) frame.keep();
    if (!served && !operations[0].run)
      return fail(CW_UNSUPPORTED, "%s: aclnn%s is not in CANN's libraries", Op::name, operations[0].name);
    return status;
  }

  // By a call that takes a weight in the chip's format, where it is there. UNSUPPORTED: nothing was done.
  static cw_status from_form(const cw_arg* args, int32_t n, cw_stream stream) {
    cw_status status = CW_UNSUPPORTED;
    Operation* operation = operations;
    const auto attempt = [&]([[maybe_unused]] auto call) {
      using Call = decltype(call);
      if constexpr (Call::weight >= 0) {
        if (operation->run && may_have_form(args[Call::weight])) {
          Frame frame(Op::name, args, n, static_cast<int32_t>(Op::outputs), also_written<Op>, stream);
          if (frame.take_form(Call::weight)) status = Call::template call<Op>(*operation, frame);
          if (!status) frame.keep();
        }
      }
      ++operation;
    };
    (attempt(Calls()), ...);
    return status;
  }
};

template <class Op, class... Calls, class... Names>
Line row(cw::Needs needs, Names... names) {
  static_assert(sizeof...(Calls) == sizeof...(Names), "a name of aclnn's for each call");
  using R = Row<Op, Calls...>;
  Line line;
  line.name = Op::name, line.needs = needs, line.kernel = &R::kernel, line.operations = R::operations;
  size_t i = 0;
  ((R::operations[i++].name = names), ...);
  line.parameters = {letters(static_cast<typename Calls::template Parameters<Op>*>(nullptr))...};
  return line;
}

// ---- needs and dtypes that lines share -------------------------------------------------------------------------------
constexpr cw_dtypes kFloats = CW_FLOAT16 | CW_BFLOAT16 | CW_FLOAT32;
constexpr cw_dtypes kInts = CW_UINT8 | CW_INT8 | CW_INT16 | CW_INT32 | CW_INT64;
constexpr cw_dtypes kNumbers = kFloats | CW_FLOAT64 | kInts;
constexpr cw_dtypes kAny = kNumbers | CW_BOOL;

// aclnn takes strides and broadcasts; common dtypes are the core's affair, so that they are torch's.
constexpr cw::Needs pointwise(cw_dtypes dtypes) {
  return {CW_NEEDS_PROMOTION | CW_NEEDS_ELEMENTS | CW_TAKES_NUMBERS, dtypes};
}
// As it comes, but never of nothing.
constexpr cw::Needs whole(cw_dtypes dtypes) { return {CW_NEEDS_ELEMENTS, dtypes}; }
constexpr cw::Needs dense(cw_dtypes dtypes) { return {CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS, dtypes}; }

// The files of ops/, each with the lines of a family.
using Lines = std::vector<Line>;
void add_pointwise(Lines& lines);
void add_reductions(Lines& lines);
void add_products(Lines& lines);
void add_networks(Lines& lines);
void add_losses(Lines& lines);
void add_index(Lines& lines);
void add_random(Lines& lines);
void add_attention(Lines& lines);
void add_recurrent(Lines& lines);
void add_lists(Lines& lines);

const Lines& table();
cw_status op_find(const char* name, cw_op* out);
// For tools: a line for each call, torch's name, aclnn's, and a letter for each of its parameters.
const char* rows();
std::string words_for_operators();  // "211 of 260 operators are here", for `causeway doctor`

}  // namespace ascend
