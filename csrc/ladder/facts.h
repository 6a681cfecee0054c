// What is known of single operators of torch: one table, a row each with its reason, in facts.cpp. What a schema or a tag
// says is not here, and what an operator computes neither. Python reads the same table: `causeway.ops.facts`.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace causeway {

using DtypeSet = uint64_t;
constexpr DtypeSet bit_of(c10::ScalarType t) { return DtypeSet{1} << static_cast<int>(t); }

// How a call of the operator gets to the ladder, where torch's CPU has no kernel of this name.
enum class Reach : uint8_t {
  Kernel,  // as all others: the CPU has a kernel of this name
  Whole,  // a composite that looks at the device's type, or asks for a kernel by it
  Offered,  // a composite that CUDA has a kernel for: a vendor is asked for it, else torch's composite does it
  Own,  // a kernel of csrc/aten, which asks for the vendor's
};
constexpr std::array<const char*, 4> kReachNames{"kernel", "whole", "offered", "own"};

// A result whose shape depends on the data: how it begins before the kernel finds it.
enum class Begins : uint8_t { Known, Unique, AsFirst, Index, Bincount, Nonzero, Given };

// How a CPU kernel lays out its results; Elementwise and Format are of the first alone.
enum class ResultLayout : uint8_t {
  Unsaid,  // Elementwise where torch tags the operator pointwise, else as torch's meta kernel says
  Meta,  // as torch's meta kernel says
  Dense,
  Elementwise,  // as TensorIterator does it: the first tensor that settles it, `layout_of` before the others
  Like,  // of one tensor, as empty_like
  Format,  // channels last where one tensor is, else dense
  Convolution,  // channels last where the input or the weight is
  Index,  // as TensorIterator does it of what is picked from and the indices
};

// Arguments by place; -1: no more.
using Places = std::array<int8_t, 3>;
constexpr Places kNowhere{-1, -1, -1};

struct Facts {
  // How it gets here, and by which name it is asked for.
  Reach reach = Reach::Kernel;
  const char* other_name = nullptr;  // by which a vendor may have it too, with the same arguments
  int8_t left_out = -1;  // but this one
  bool unrecorded = false;  // by torch.jit.trace, see tracer.h

  // What it takes.
  bool mixed_devices = false;  // CPU tensors beside device tensors, as torch.cuda does
  bool picks = false;  // by index from argument 0: of no elements any index is out of range
  bool refuses_bool = false;  // torch's CPU kernel does
  bool refuses_overlap = false;  // an output that is an input
  DtypeSet wide = 0;  // dtypes that the CPU refuses and CUDA takes, see wide.h
  bool real_only = false;  // the CPU's kernel is, and CUDA's is not: a sum without the NaN
  Places statistics = kNowhere;  // of the backward of a norm, see norm.h
  Places parameters = kNowhere;

  // What it writes and gives.
  std::array<const char*, 2> writes{};  // arguments by name, which the schema does not say
  bool only_writes = false;  // whatever was in what it writes
  Begins begins = Begins::Known;
  int8_t like = -1;  // without a meta kernel: dense, of this argument's shape and dtype
  ResultLayout layout = ResultLayout::Unsaid;
  int8_t layout_of = 0;
  bool casts = true;  // the CPU's kernel makes integers floating point first, and dense
  bool numbers_expand = true;  // a number of a .Scalar overload is a tensor of no dimensions to it

  // To the decomposed rung, ops/decompose.py.
  bool copies = false;  // copy_, or nothing but that
  bool plumbing = false;  // served by the core itself, without arithmetic
  bool costly = false;  // its decomposition is, by far
  const char* computed_by = nullptr;  // torch does it by this operator, below where a trace sees it
};

struct FactsRow {
  const char* name;  // "add": all overloads, in place too; "add.out", "add.default": this overload
  std::array<const char*, 3> why;
  Facts facts;
};

// What is known of "aten::add_.Tensor": of its overload, else of "add_", else of "add".
Facts facts_of(std::string_view name);

// The operator that "aten::…" is the other name of, with its row, or nullptr.
const FactsRow* named_otherwise(std::string_view other_name);

// "aten::add", "aten::add.out".
std::string full_name(const FactsRow& row);

// The whole table, sorted by name.
const std::vector<FactsRow>& facts_table();

}  // namespace causeway
