"""What "agrees" means for one operator, as data: its class, dtype and the length of its sums.

Numbers that are only moved or compared are equal, or nothing is. For the others the bound of an
element is

    ulps * u(result) * |exact|  +  growth(n) * u(accumulator) * magnitude

where u is half the distance from 1 to the next number of the dtype, n the number of terms that an
element is made of (`terms`), and `magnitude` the sum of the absolute terms (`bounds`). That is the
running error bound of N. J. Higham, Accuracy and Stability of Numerical Algorithms (2nd ed. 2002),
sections 3.1 and 4.2: |error| <= gamma_n * sum |terms| with gamma_n = n u / (1 - n u). For long sums
gamma_n is far from what happens; N. J. Higham and T. Mary, A New Approach to Probabilistic Rounding
Error Analysis, SIAM J. Sci. Comput. 41 (2019), show sqrt(n) in its place with a constant: `growth`
is min(n, 8 sqrt(n)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ToleranceRule:
    """How far a result may be off, by how it is made. `reason` says why so far."""

    name: str
    ulps: float  # of the result's dtype, in units of u: 1 is a correctly rounded result
    grows: bool  # with the number of terms
    reason: str
    roots: bool = False  # of sums of squares, of which what is below the normal numbers may be lost


RULES: dict[str, ToleranceRule] = {
    rule.name: rule
    for rule in [
        ToleranceRule(
            "exact", 0, False, "the numbers are moved, compared or selected, and not computed"
        ),
        ToleranceRule(
            "arithmetic",
            2,
            True,
            "IEEE 754 rounds each of + - * / and sqrt to u; an operator has up to four of them, "
            "and one more rounds the result to its dtype",
        ),
        ToleranceRule(
            "transcendental",
            9,
            False,
            "the OpenCL C specification (section 7.4) asks for 3 to 5 ulp of exp, log, sin, cos, "
            "tanh and 16 of pow and erf in float32; an ulp is 2 u, and 4 ulp and a rounding hold "
            "for every libm and vector library in use",
        ),
        ToleranceRule(
            "power",
            33,
            False,
            "16 ulp of pow, erf and their like in the OpenCL C specification, section 7.4",
        ),
        ToleranceRule(
            "smooth",
            9,
            True,
            "exp, tanh, erf, log or tan inside sums that may cancel: the error is that of the "
            "terms, each as large as the first input times one plus the others",
        ),
        ToleranceRule(
            "reduction",
            2,
            True,
            "a sum of n terms, in any order, in float32 for the 16-bit floats",
        ),
        ToleranceRule(
            "matmul",
            2,
            True,
            "a sum of n products, in any order, in float32 for the 16-bit floats",
        ),
        ToleranceRule(
            "statistics",
            12,
            True,
            "means, variances, softmax and losses: sums, then functions of them whose error is "
            "that of the largest element",
        ),
        ToleranceRule(
            "deviation",
            12,
            True,
            "as statistics; torch's CUDA kernels and chips without float64 add up squares in "
            "float32, where those of numbers below 1e-19 are none, and the CPU in float64",
            roots=True,
        ),
    ]
}


def growth(n: int) -> float:
    """What the rounding of `n` terms adds up to, in units of u: see the module's docstring."""
    return min(float(n), 8 * math.sqrt(n)) if n > 0 else 0.0


def unit(dtype: torch.dtype) -> float:
    """u of a dtype: half the distance from 1 to the next number. D. Goldberg, What Every Computer
    Scientist Should Know About Floating-Point Arithmetic, ACM Comput. Surv. 23 (1991).
    """
    return torch.finfo(dtype).eps / 2


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """What torch adds up in, at::opmath_type: float32 for narrower floats, else the dtype."""
    if dtype in (torch.float64, torch.float32):
        return dtype
    if dtype.is_complex:
        return torch.float64 if dtype == torch.complex128 else torch.float32
    return torch.float32


def _names(rule: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), rule)


# By torch's name without "aten::", overload, leading "_" and trailing "_".
OPERATORS: dict[str, str] = {
    **_names(
        "exact",
        "abs neg sign sgn relu clamp clamp_min clamp_max maximum minimum fmax fmin amax amin "
        "aminmax max min eq ne lt le gt ge isnan isinf isfinite where copy to_copy clone cat "
        "stack gather scatter index index_put index_select masked_fill masked_select embedding "
        "sort topk argsort argmax argmin any all nonzero logical_and logical_or logical_xor "
        "logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift "
        "bitwise_right_shift floor ceil trunc round fill zero full ones zeros tril triu flip "
        "roll repeat threshold threshold_backward max_pool2d_with_indices "
        "max_pool3d_with_indices hardtanh searchsorted bucketize unique cummax cummin kthvalue "
        "median mode signbit copysign positive eye",
    ),
    **_names("deviation", "std std_mean"),
    # Of these each rounding is part of the operator: csrc/aten/quantized.cpp.
    **_names("exact", "quantize qlinear qconv"),
    **_names(
        "arithmetic",
        "add sub rsub mul div sqrt reciprocal square addcmul addcdiv lerp remainder fmod "
        "floor_divide frac arange linspace rsqrt hardsigmoid hardswish leaky_relu "
        "native_dropout_backward foreach_add foreach_mul foreach_sub foreach_div",
    ),
    **_names(
        "transcendental",
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh "
        "acosh atanh sigmoid atan2 hypot erf",
    ),
    **_names(
        "power",
        "pow erfc erfinv lgamma float_power xlogy",
    ),
    **_names(
        "smooth",
        "silu gelu mish elu celu selu softplus log_sigmoid tanh_backward sigmoid_backward "
        "silu_backward gelu_backward elu_backward mish_backward hardswish_backward digamma "
        "logaddexp logaddexp2",
    ),
    **_names(
        "reduction",
        "sum mean prod nansum cumsum cumprod avg_pool1d avg_pool2d avg_pool3d "
        "adaptive_avg_pool2d avg_pool2d_backward embedding_dense_backward scatter_add index_add "
        "mse_loss l1_loss nll_loss_forward nll_loss_backward nll_loss mse_loss_backward "
        "max_pool2d_with_indices_backward bincount trace",
    ),
    **_names(
        "matmul",
        "mm bmm addmm baddbmm addbmm addmv addr mv dot vdot linear scaled_mm convolution "
        "convolution_backward convolution_overrideable convolution_backward_overrideable",
    ),
}

# Operators that are sums of products: run on absolute values they give the magnitude. Here, what
# stands for "sub" in the name of one that subtracts; "" is the operator itself.
MAGNITUDE: dict[str, str] = {
    **_names(
        "",
        "add mul div addcmul addcdiv sum mean prod nansum cumsum avg_pool1d avg_pool2d "
        "avg_pool3d adaptive_avg_pool2d avg_pool2d_backward embedding_dense_backward "
        "scatter_add index_add mm bmm addmm baddbmm addbmm addmv addr mv dot scaled_mm convolution "
        "convolution_backward max_pool2d_with_indices_backward arange nll_loss_forward "
        "nll_loss_backward rsub lerp foreach_add foreach_mul foreach_div linear vdot trace",
    ),
    "sub": "add",
    "foreach_sub": "add",
}
# Of these, arguments that are to be below 0, so that no terms cancel.
NEGATED: dict[str, tuple[str, ...]] = {"rsub": ("alpha",), "lerp": ("end", "weight")}


# Factors of terms that cancel inside, so that no change of the inputs shows them.
FACTORS: dict[str, tuple[str, ...]] = {"native_layer_norm_backward": ("grad_out", "rstd", "weight")}
# Their terms are an input times result 2, the inverse of the deviation: of one element they cancel.
NORMALIZED = ("native_batch_norm", "native_batch_norm_legit")
FACTORS |= dict.fromkeys(NORMALIZED, ("input", "weight"))
# They jump, so that a result just beside a jump says nothing of how far rounding takes them.
JUMPS = {"remainder", "fmod", "floor_divide", "frac"}


def base_name(operator: str) -> str:
    """ "aten::_softmax.out" and "aten::softmax_" are "softmax"."""
    return operator.split("::")[-1].split(".")[0].strip("_")


def rule_of(operator: str) -> str:
    """The rule for an operator by its name; "statistics", the widest, for those not listed."""
    return OPERATORS.get(base_name(operator), "statistics")


# How many dimensions of which tensor an element of a product sums over.
_PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "linear": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}


def terms(operator: str, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """How many terms an element of the results is made of, at most. `tensors` are the operator's
    arguments in the schema's order.
    """
    base = base_name(operator)
    sizes = [t.numel() for t in tensors] or [1]
    if base in _PRODUCTS and len(tensors) > _PRODUCTS[base]:
        return max(1, int(tensors[_PRODUCTS[base]].shape[-1]))
    if base == "addbmm" and len(tensors) > 1:  # the products of a batch are added up too
        return max(1, int(tensors[1].shape[0] * tensors[1].shape[-1]))
    if base in ("convolution", "convolution_overrideable") and len(tensors) > 1:
        weight = tensors[1]  # a transposed one has the channels the other way round
        fewest = min(weight.shape[:2])
        return max(1, weight.numel() // fewest) if fewest else 1
    if rule_of(base) in ("matmul", "statistics", "deviation"):
        return max(1, *sizes)
    made = [t.numel() for t in results if t.numel()]
    return max(1, -(-max(sizes) // min(made, default=1)))
