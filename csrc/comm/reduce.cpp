#include "comm/reduce.h"

#include <ATen/ATen.h>

namespace causeway {

using Op = c10d::ReduceOp::RedOpType;

std::string reduce_name(Op op) {
  static const char* const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < 9 ? names[op] : "a reduction that torch does not name";
}

namespace {

bool is_bitwise(Op op) { return op == Op::BAND || op == Op::BOR || op == Op::BXOR; }

// Those that gloo's reductions take.
bool is_common(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
      return true;
    default:
      return false;
  }
}

}  // namespace

Reduction reduction_of(const c10d::ReduceOp& asked, c10::ScalarType dtype) {
  Reduction r{asked.op_, dtype, true};
  TORCH_CHECK(!(is_bitwise(r.op) && (c10::isFloatingType(dtype) || c10::isComplexType(dtype))),
              "torch.distributed: ReduceOp.", reduce_name(r.op), " is of bits, and ", dtype,
              " tensors have none to reduce; use integer or bool tensors");
  if (r.op == Op::PREMUL_SUM) {
    // The name that all releases have; from 2.12 on it is an alias.
    const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(asked.supplement_.get());
    TORCH_CHECK(supplement, "torch.distributed: PREMUL_SUM comes without its factor; use _make_nccl_premul_sum");
    TORCH_CHECK(c10::isFloatingType(dtype) || c10::isComplexType(dtype),
                "torch.distributed: PREMUL_SUM is for floating-point tensors, not for ", dtype);
    r.factor =
        supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble() : supplement->double_factor;
    r.op = Op::SUM;
  }
  if (r.op == Op::AVG) {
    TORCH_CHECK(dtype != c10::ScalarType::Bool, "torch.distributed: ReduceOp.AVG has no meaning for bool tensors");
    r.average = true;
    r.op = Op::SUM;
  }
  if (dtype == c10::ScalarType::Bool) {
    // As bytes of 0 and 1, so that a sum stays a truth.
    r.view = c10::ScalarType::Byte;
    if (r.op == Op::SUM) r.op = Op::MAX;
    if (r.op == Op::PRODUCT) r.op = Op::MIN;
  } else if (c10::isComplexType(dtype)) {
    TORCH_CHECK(r.op != Op::MIN && r.op != Op::MAX, "torch.distributed: ReduceOp.", reduce_name(r.op),
                " has no meaning for complex tensors");
    if (r.op == Op::SUM)
      r.view = c10::toRealValueType(dtype);
    else
      r.direct = false;
  }
  if (r.direct && !is_common(r.view)) r.direct = false;
  if (!r.direct) r.view = dtype;
  if (is_bitwise(r.op)) r.direct = false;  // gloo's lists of dtypes differ for them
  return r;
}

void reduce_parts(const at::Tensor& parts, at::Tensor out, const Reduction& r) {
  const c10::ScalarType dtype = parts.scalar_type();
  auto wide = dtype;
  if (c10::isReducedFloatingType(dtype) || c10::isFloat8Type(dtype)) wide = c10::ScalarType::Float;
  if (dtype == c10::ScalarType::ComplexHalf) wide = c10::ScalarType::ComplexFloat;
  if (c10::isBarebonesUnsignedType(dtype)) wide = c10::ScalarType::Long;
  at::Tensor total = parts[0].to(wide, false, true);
  if (r.factor != 1) total.mul_(r.factor);
  for (int64_t rank = 1; rank < parts.size(0); ++rank) {
    at::Tensor part = parts[rank].to(wide);
    switch (r.op) {
      case Op::SUM:
        if (r.factor != 1) part = part * r.factor;
        total.add_(part);
        break;
      case Op::PRODUCT:
        total.mul_(part);
        break;
      case Op::MIN:
        at::minimum_out(total, total, part);
        break;
      case Op::MAX:
        at::maximum_out(total, total, part);
        break;
      case Op::BAND:
        total.bitwise_and_(part);
        break;
      case Op::BOR:
        total.bitwise_or_(part);
        break;
      case Op::BXOR:
        total.bitwise_xor_(part);
        break;
      default:
        TORCH_CHECK(false, "torch.distributed: ReduceOp ", reduce_name(r.op), " is not known");
    }
  }
  after(total, r, static_cast<int>(parts.size(0)));
  out.copy_(total);
}

void before(at::Tensor& t, const Reduction& r) {
  if (r.factor != 1) t.mul_(r.factor);
}

void after(at::Tensor& t, const Reduction& r, int ranks) {
  if (!r.average) return;
  if (c10::isIntegralType(t.scalar_type(), false))
    t.div_(ranks, "trunc");
  else
    t.div_(ranks);
}

}  // namespace causeway
