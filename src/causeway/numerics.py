"""When two results are the same: tolerances as data, and a verdict that counts every element.

A result is right where each element agrees with the reference; no share of wrong elements is let
pass. The reference is the CPU's result, and beside it, for floats below float64, the same operator
in float64: an element that agrees with either is right, since the CPU rounds too.

What "agrees" means follows from how the result is made (`Rule`): numbers that are only moved or
compared are equal, or nothing is. For the others the bound of an element is

    ulps * u(result) * |exact|  +  growth(n) * u(accumulator) * magnitude

where u is half the distance from 1 to the next number of the dtype, n the number of terms that an
element is made of, and `magnitude` the sum of the absolute terms, which `magnitude_of` has for
operators that are sums of products. That is the running error bound of N. J. Higham, Accuracy and
Stability of Numerical Algorithms (2nd ed. 2002), sections 3.1 and 4.2: |error| <= gamma_n * sum
|terms| with gamma_n = n u / (1 - n u). For long sums gamma_n is far from what happens; N. J. Higham
and T. Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41
(2019), show sqrt(n) in its place with a constant: `growth` is min(n, 8 sqrt(n)).

NaN and infinity have places of their own and count as elements; -0 equals 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Rule:
    """How far a result may be off, by how it is made. `reason` says why so far."""

    name: str
    ulps: float  # of the result's dtype, in units of u: 1 is a correctly rounded result
    grows: bool  # with the number of terms
    reason: str


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in [
        Rule("exact", 0, False, "the numbers are moved, compared or selected, and not computed"),
        Rule(
            "arithmetic",
            2,
            True,
            "IEEE 754 rounds each of + - * / and sqrt to u; an operator has up to four of them, "
            "and one more rounds the result to its dtype",
        ),
        Rule(
            "transcendental",
            9,
            False,
            "the OpenCL C specification (section 7.4) asks for 3 to 5 ulp of exp, log, sin, cos, "
            "tanh and 16 of pow and erf in float32; an ulp is 2 u, and 4 ulp and a rounding hold "
            "for every libm and vector library in use",
        ),
        Rule(
            "power",
            33,
            False,
            "16 ulp of pow, erf and their like in the OpenCL C specification, section 7.4",
        ),
        Rule(
            "smooth",
            9,
            True,
            "exp, tanh, erf, log or tan inside sums that may cancel: the error is that of the "
            "terms, each as large as the first input times one plus the others",
        ),
        Rule(
            "reduction",
            2,
            True,
            "a sum of n terms, in any order, in float32 for the 16-bit floats",
        ),
        Rule(
            "matmul",
            2,
            True,
            "a sum of n products, in any order, in float32 for the 16-bit floats",
        ),
        Rule(
            "statistics",
            12,
            True,
            "means, variances, softmax and losses: sums, then functions of them whose error is "
            "that of the largest element",
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


@dataclass(frozen=True)
class Verdict:
    """What a comparison found. `why` is "" where the result is right."""

    why: str = ""
    rule: str = "exact"
    wrong: int = 0
    elements: int = 0
    first: tuple[int, ...] | None = None  # index of the first wrong element
    came: str = ""  # that element, or the property that differs
    expected: str = ""
    max_abs: float = 0.0  # over all finite elements, right or wrong
    max_rel: float = 0.0
    max_ulp: float = 0.0
    worst: float = 0.0  # the largest error, as a share of what is allowed
    diff1: float = (
        0.0  # mean relative error: sum |a - b| / sum |b|, over finite elements as all of these
    )
    diff2: float = 0.0  # RMS ratio: sqrt(sum (a - b)^2 / sum b^2)
    cosine: float = 1.0  # of the angle between the two as vectors

    @property
    def good(self) -> bool:
        return not self.why

    def __str__(self) -> str:
        if self.good:
            return f"right: {self.elements} elements, at most {self.max_ulp:.3g} ulp off"
        if self.first is None:
            return f"{self.why}: expected {self.expected}, came {self.came}"
        return (
            f"{self.why}: {self.wrong} of {self.elements} elements, the first at "
            f"{list(self.first)}: expected {self.expected}, came {self.came}; at most "
            f"{self.max_abs:.3g} off, {self.max_ulp:.3g} ulp ({RULES[self.rule].name})"
        )


def compare(
    came: Tensor,
    reference: Tensor,
    *,
    rule: str = "exact",
    exact: Tensor | None = None,
    terms: int = 1,
    magnitude: Tensor | None = None,
    strides: bool = True,
    tolerance: tuple[float, float] | None = None,
) -> Verdict:
    """Whether `came` is `reference`, the CPU's result; all are CPU tensors.

    `exact` is the result in float64, `terms` the number of terms of an element, `magnitude` the sum
    of their absolute values (where it is None: |exact|, and for "statistics" its largest element).
    `strides`: whether the layout counts. `tolerance` is (rtol, atol), as torch.allclose has them,
    and counts in place of the rule's bound.
    """
    for what, a, b in (
        ("dtype", came.dtype, reference.dtype),
        ("shape", list(came.shape), list(reference.shape)),
    ):
        if a != b:
            return Verdict(f"wrong {what}", rule, came=str(a), expected=str(b))
    if strides and steps(came) != steps(reference):
        was, should = list(came.stride()), list(reference.stride())
        return Verdict("wrong strides", rule, came=str(was), expected=str(should))
    if came.numel() == 0:
        return Verdict(rule=rule)
    if came.dtype.is_complex:
        parts = [torch.view_as_real(t.resolve_conj()) for t in (came, reference)]
        exact = None if exact is None else torch.view_as_real(exact.resolve_conj())
        if magnitude is not None:
            magnitude = magnitude.abs().unsqueeze(-1)
        return compare(
            *parts, rule=rule, exact=exact, terms=terms, magnitude=magnitude, strides=False
        )
    if not came.dtype.is_floating_point:
        return verdict(came, reference, came == reference, "exact", reference)
    dtype = came.dtype
    if dtype.itemsize == 1:  # the 8-bit floats cannot be compared as they are
        came, reference = came.float(), reference.float()
    if tolerance is not None:
        right = came.isclose(reference, *tolerance, equal_nan=True)
        return verdict(came, reference, right, rule, reference)
    if rule == "exact":
        return verdict(came, reference, _equal(came, reference), rule, reference)
    # Against float64 the bound is one error wide; between two rounded results it is two.
    best = reference.double() if exact is None else exact.double()
    bound = _bound(dtype, best, RULES[rule], terms, magnitude)
    wide = bound * (2 if exact is None else 1)
    right = _within(came, reference, wide)
    if exact is not None and exact.shape == came.shape:
        right |= _within(came, exact.double(), bound)
        # What overflows the dtype is infinite there; float64 goes on.
        right |= _equal(came, exact.to(dtype).to(came.dtype))
    error = torch.minimum(*((came.double() - t.double()).abs().nan_to_num(0.0, 0.0, 0.0)
                            for t in (reference, best)))  # fmt: skip
    worst = float((error / wide).clamp(max=1).max())
    return replace(verdict(came, reference, right, rule, best), worst=worst)


def steps(t: Tensor) -> list[int]:
    """Strides that mean something: those of dimensions with more than one element."""
    if t.numel() == 0:
        return []
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


def _equal(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _bound(
    dtype: torch.dtype, best: Tensor, rule: Rule, terms: int, magnitude: Tensor | None
) -> Tensor:
    size = best.abs().nan_to_num(0.0, 0.0, 0.0)
    scale = size
    if magnitude is not None:
        scale = torch.maximum(size, magnitude.double().abs().nan_to_num(0.0, 0.0, 0.0))
    elif rule.name == "statistics":
        scale = size.max().expand_as(size)
    wide = unit(accumulator(dtype))
    adds = growth(terms) + (4 if rule.grows else 0)
    if rule.name == "smooth":
        adds = rule.ulps
    # The result may be subnormal: its spacing is then fixed.
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    bound = rule.ulps * unit(dtype) * size + least
    return bound + adds * wide * scale if rule.grows else bound


def _within(came: Tensor, other: Tensor, bound: Tensor) -> Tensor:
    finite = came.isfinite() & other.isfinite()
    difference = (came.double() - other.double()).abs()
    return torch.where(finite, difference <= bound, _equal(came.double(), other.double()))


def verdict(came: Tensor, reference: Tensor, right: Tensor, rule: str, best: Tensor) -> Verdict:
    """The verdict where `right` says which elements are, and errors are against `best`."""
    n = came.numel()
    max_abs = max_rel = max_ulp = diff1 = diff2 = 0.0
    cosine = 1.0
    if came.dtype != torch.bool:
        a, b = came.double(), best.double()
        both = a.isfinite() & b.isfinite()
        difference = torch.where(both, (a - b).abs(), 0.0)
        max_abs = difference.max().item()
        size = b.abs()
        max_rel = torch.where(both & (size > 0), difference / size, 0.0).max().item()
        if came.dtype.is_floating_point:
            max_ulp = torch.where(both, difference / spacing(b, came.dtype), 0.0).max().item()
        diff1, diff2, cosine = _distances(a, b, both, difference)
    if bool(right.all()):
        return Verdict(
            "", rule, 0, n, None, "", "", max_abs, max_rel, max_ulp, 0.0, diff1, diff2, cosine
        )
    first = tuple((~right).nonzero()[0].tolist())
    return Verdict(
        "wrong values",
        rule,
        int((~right).sum()),
        n,
        first,
        repr(came[first].item()),
        repr(reference[first].item()),
        max_abs,
        max_rel,
        max_ulp,
        0.0,
        diff1,
        diff2,
        cosine,
    )


def _distances(
    a: Tensor, b: Tensor, both: Tensor, difference: Tensor
) -> tuple[float, float, float]:
    """diff1, diff2 and cosine of two tensors in float64. 0, 0, 1 where they are the same; infinity
    for a ratio to nothing.
    """
    if not bool(difference.any()):
        return 0.0, 0.0, 1.0
    a, b = (torch.where(both, t, 0.0).flatten() for t in (a, b))
    # Scaled, so that squares neither overflow nor vanish.
    scale = max(a.abs().max().item(), b.abs().max().item()) or 1.0
    a, b, difference = a / scale, b / scale, difference.flatten() / scale
    size, square = b.abs().sum().item(), b.dot(b).item()
    error = difference.dot(difference).item()
    diff1 = difference.sum().item() / size if size else math.inf
    diff2 = math.sqrt(error / square) if square else math.inf
    lengths = math.sqrt(square * a.dot(a).item())
    return diff1, diff2, a.dot(b).item() / lengths if lengths else 0.0


def spacing(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance between numbers of `dtype` around `x`, an ulp: J.-M. Muller, On the definition
    of ulp(x), INRIA RR-5504 (2005). Below the normal numbers it is that of the smallest.
    """
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(x.double().abs().clamp(min=info.smallest_normal))
    return torch.ldexp(torch.full_like(x, info.eps, dtype=torch.float64), exponent - 1)


def distance(a: Tensor, b: Tensor) -> float:
    """The largest distance between the distribution functions of two samples: N. V. Smirnov, 1939.

    For n numbers each it exceeds sqrt(-ln(alpha / 2) / n) with probability alpha.
    """
    x, y = a.double().flatten().sort().values, b.double().flatten().sort().values
    at = torch.cat([x, y])
    below = torch.searchsorted(x, at, right=True) / x.numel()
    return float((below - torch.searchsorted(y, at, right=True) / y.numel()).abs().max())


# --- which rule holds for an operator -------------------------------------------------------------


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
        "nll_loss_backward rsub lerp foreach_add foreach_mul foreach_div",
    ),
    "sub": "add",
    "foreach_sub": "add",
}
# Of these, arguments that are to be below 0, so that no terms cancel.
NEGATED: dict[str, tuple[str, ...]] = {"rsub": ("alpha",), "lerp": ("end", "weight")}


def base_name(operator: str) -> str:
    """ "aten::_softmax.out" and "aten::softmax_" are "softmax"."""
    return operator.split("::")[-1].split(".")[0].strip("_")


def rule_of(operator: str) -> str:
    """The rule for an operator by its name; "statistics", the widest, for those not listed."""
    return OPERATORS.get(base_name(operator), "statistics")


def magnitude_of(operator: str, inputs: list[Tensor], exact: Tensor) -> Tensor | None:
    """For "smooth" operators |first input| * prod(1 + |others|), in float64; else None.

    Of digamma |x psi'(x)|, its condition: it has poles and zeros side by side. Of linspace the
    largest result: each is an end and a multiple of the step.
    """
    if base_name(operator) == "linspace" and exact.numel():
        return exact.double().abs().max().expand_as(exact)
    if rule_of(operator) != "smooth" or not inputs:
        return None
    if base_name(operator) == "digamma":
        x = inputs[0].double()
        return (x * torch.polygamma(1, x)).abs()
    scale = inputs[0].double().abs()
    for other in inputs[1:]:
        scale = scale * (1 + other.double().abs())
    scale = scale.nan_to_num(0.0, 0.0, 0.0)
    return scale if scale.shape == exact.shape else scale.max().expand_as(exact)
