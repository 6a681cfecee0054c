// Operators whose every element depends on the same element of the inputs: a table of expressions, and one engine.
#pragma once

#include <functional>

#include "portable/call.h"

namespace causeway::portable {

enum class Rule : uint8_t {
  Same,     // computed in the result's dtype
  Compare,  // computed in the inputs' common dtype; the result is bool
  Copy,     // computed in the input's dtype, stored as the result's
};

// The text is C that sets `r` (and `q`, of a second result) from the operands a, b, c, d, all of type T, and the
// scalars x, y, z. LARGEST is the largest finite number of the result's dtype. K(number) is a constant of type T; IS_BOOL, IS_INT and IS_FLOAT tell what T stands for; FLAG is the
// argument marked 'f'; HAS_X and so on tell whether an optional scalar is there.
//
// `arguments`, a letter each after the results: t a tensor or a number; m a tensor that does not count for the common
// dtype (a mask, a gradient's statistics); s a scalar of type T; o an optional one; p an exponent, of which FLAG is twice the
// value where it is a usual one, else 0; f an integer or a string that the function is compiled for; - one that is ignored.
struct Pointwise {
  const char* name;
  const char* arguments;
  Rule rule;
  cw_dtypes dtypes;  // that it is computed in
  const char* text;
  double cost = 4;  // arithmetic operations of an element, roughly
  int results = 1;
  const char* functions = nullptr;  // before the kernel, of type T
};

constexpr int kMostOperands = 8;
constexpr int kMostScalars = 4;
inline constexpr const char* kScalarNames[kMostScalars] = {"x", "y", "z", "w"};

struct Operand {
  Tensor tensor;
  bool is_number = false;
  bool absent = false;  // an optional one; then a number too
  bool divides = false;
  bool counts = true;  // for the common dtype
  Number number;
  int64_t strides[kMostDims];
};

struct Parsed {
  Operand operands[kMostOperands];  // results first
  int n = 0, results = 0;
  Number scalars[kMostScalars];
  bool has[kMostScalars] = {};
  bool optional[kMostScalars] = {};
  int scalar_count = 0;
  int64_t flag = 0;
  int rank = 0;
  int64_t shape[kMostDims];
};

// Checks dtypes, numbers and shapes, and collapses dimensions. `type`: what is computed in. Nothing is launched.
cw_status prepare(const KernelCall& call, const Pointwise& op, Parsed& p, Dtype* type);
cw_status run_prepared(KernelCall& call, const Pointwise& op, const Parsed& p, Dtype type);
// What the text of an element stands on: T, K(v) and the like.
std::string head_of(const Pointwise& op, const Parsed& p, Dtype type);
// One element: loads from p1, p2 .. (numbers are called so themselves), stores to p0. `place` says where an operand's is.
std::string element_of(const Pointwise& op, const Parsed& p, Dtype type, const std::function<std::string(int)>& place);

cw_status run_pointwise(KernelCall& call, const void* pointwise);
// The same with tensors that are no arguments: results first, then the others, and the scalars.
cw_status run_pointwise(KernelCall& call, const Pointwise& op, const std::vector<Tensor>& operands,
                        const std::vector<Number>& scalars);
const Pointwise& pointwise_named(const char* name);
const std::vector<Pointwise>& pointwise_table();
std::vector<Pointwise> special_functions();

// The number as the bytes of a value of this type; false where it is none.
bool add_number(Launch& launch, const Number& number, Dtype type);

}  // namespace causeway::portable
