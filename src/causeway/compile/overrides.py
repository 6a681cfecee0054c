"""Inductor's operators on values, as expressions of the portable dialect."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch

from causeway.compile.dialect import UnsupportedError, computed, number, value_type
from causeway.compile.names import (
    OpOverrides,
    V,
    get_bounds_index_expr,
    ops,
)


def _is_float(x: Any) -> bool:
    return bool(computed(x.dtype).is_floating_point)


def _fits_int32(x: Any) -> bool:
    bounds = getattr(x, "bounds", None)
    return bounds is not None and bool(bounds.lower >= -(2**31) and bounds.upper < 2**31)


def _common(*values: Any) -> str:
    """The type that values of several are brought to."""
    dtype = values[0].dtype
    for value in values[1:]:
        dtype = torch.promote_types(computed(dtype), computed(value.dtype))
    return value_type(dtype)


# Functions of one float, and their names for float32 where the dialect has its own.
_FUNCTIONS = {
    "exp": "exp_f32", "exp2": "exp2_32", "expm1": "expm1_32", "log": "log_32", "log1p": "log1p_32",
    "log2": "log2_32", "log10": "log10_32", "sqrt": "sqrt", "sin": "sin_32", "cos": "cos_32",
    "tan": "tan_32", "asin": "asin_32", "acos": "acos_32", "atan": "atan_32", "sinh": "sinh_32",
    "cosh": "cosh_32", "tanh": "tanh_f32", "atanh": "atanh_32", "asinh": "asinh", "acosh": "acosh",
    "erf": "erf_f32", "erfc": "erfc_32", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "lgamma": "LGAMMA",
}  # fmt: skip


# To what lies in memory, and back.
HALVES = {
    torch.float16: ("float_to_half", "half_to_float"),
    torch.bfloat16: ("float_to_bfloat", "bfloat_to_float"),
}


def through_memory(x: Any, dtype: torch.dtype) -> str:
    """A value as a load of `dtype` gives it back."""
    if dtype not in HALVES:
        return f"{x}"
    store, load = HALVES[dtype]
    return f"{load}({store}((f32){x}))"


class Overrides(OpOverrides):
    """Each operator of Inductor's as an expression."""

    @staticmethod
    def constant(value: Any, dtype: torch.dtype) -> str:
        if computed(dtype).is_floating_point and value == 0:
            # One compiler takes what it is multiplied by, or divides it, for 0 even where that is NaN.
            sign = "-" if math.copysign(1, value) < 0 else ""
            return f"({value_type(dtype)}){sign}NOUGHT"
        return number(value, dtype)

    @staticmethod
    def to_dtype(
        x: Any,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> str:
        source = computed(x.dtype) if x.dtype is not None else None
        if dtype == torch.bool:
            return f"(u8)({x} != 0)"
        if not use_compute_types and dtype in HALVES:
            return through_memory(x, dtype)
        kind = value_type(dtype)
        if source is not None and source.is_floating_point and kind[0] in "iu" and kind != "i64":
            # As the CPU does: beyond the range of an int32 it wraps. What was clamped is within, and
            # converted as a vector by every processor.
            return f"({kind})({'i32' if _fits_int32(x) else 'i64'}){x}"
        if source is not None and source.itemsize < 4 and dtype.is_floating_point:
            return f"({kind})WIDENED({x})"
        return f"({kind}){x}"

    @staticmethod
    def to_dtype_bitcast(x: Any, dtype: torch.dtype, src_dtype: torch.dtype) -> str:
        pair = (src_dtype, dtype)
        if pair == (torch.float32, torch.int32):
            return f"(i32)BITS({x})"
        if pair == (torch.int32, torch.float32):
            return f"FLOAT((u32){x})"
        if pair == (torch.float64, torch.int64):
            return f"(i64)BITS_OF_DOUBLE({x})"
        if pair == (torch.int64, torch.float64):
            return f"DOUBLE((u64){x})"
        bits = f"{HALVES[src_dtype][0]}({x})" if src_dtype in HALVES else f"(u16){x}"
        if dtype in HALVES and src_dtype.itemsize == 2:
            return f"{HALVES[dtype][1]}((u16)({bits}))"
        if src_dtype in HALVES and dtype in (torch.int16, torch.uint16):
            return f"({value_type(dtype)})({bits})"
        if not src_dtype.is_floating_point and not dtype.is_floating_point:
            return f"({value_type(dtype)}){x}"
        raise UnsupportedError(f"torch.compile writes no view of {src_dtype} as {dtype}")

    @staticmethod
    def index_expr(expr: Any, dtype: torch.dtype) -> Any:
        # Made of sizes, but not one itself: the 1 / p of a norm whose p is known at run time.
        given = V.kernel.number_of_sizes(expr)
        prepared = None if given else V.kernel.prepare_indexing(expr)
        kept = V.kernel.number_dtype(expr if given else prepared)
        variable = V.kernel.cse.generate(
            V.kernel.compute,
            f"({value_type(kept)})({given or V.kernel.index_to_str(prepared)})",
            bounds=get_bounds_index_expr(expr),
            dtype=kept,
        )
        found = ops.to_dtype(variable, dtype)
        if prepared is not None:
            V.kernel.index_of[str(found)] = prepared
        return found

    value_expr = index_expr

    @staticmethod
    def masked(mask: Any, body: Callable[[], Any], other: Any) -> Any:
        # Computed for all elements, with 0 for what is not loaded, so that loops become vectors.
        with V.kernel.mask_loads(mask, other) as test:
            result = body()
        result = getattr(result, "value", result)
        found = ops.where(test, result, ops.constant(other, result.dtype))
        return getattr(found, "value", found)

    @staticmethod
    def where(test: Any, a: Any, b: Any) -> str:
        return f"({test} ? {a} : {b})"

    @staticmethod
    def maximum(a: Any, b: Any) -> str:
        kind = _common(a, b)
        return f"MAXIMUM(({kind}){a}, ({kind}){b})"

    @staticmethod
    def minimum(a: Any, b: Any) -> str:
        kind = _common(a, b)
        return f"MINIMUM(({kind}){a}, ({kind}){b})"

    @staticmethod
    def relu(a: Any) -> str:
        return f"MAXIMUM({a}, ({value_type(a.dtype)})0)"

    @staticmethod
    def identity(a: Any) -> str:
        return f"{a}"

    @staticmethod
    def add(a: Any, b: Any) -> str:
        return _arithmetic("+", a, b)

    @staticmethod
    def sub(a: Any, b: Any) -> str:
        return _arithmetic("-", a, b)

    @staticmethod
    def mul(a: Any, b: Any) -> str:
        return _arithmetic("*", a, b)

    @staticmethod
    def neg(a: Any) -> str:
        return _narrowed(f"-{a}", a)

    @staticmethod
    def abs(a: Any) -> str:
        if _is_float(a):
            return f"fabs({a})"
        return f"{a}" if value_type(a.dtype)[0] == "u" else _narrowed(f"({a} < 0 ? -{a} : {a})", a)

    @staticmethod
    def square(a: Any) -> str:
        return _arithmetic("*", a, a)

    @staticmethod
    def sign(a: Any) -> str:
        kind = value_type(a.dtype)
        if kind[0] == "u":
            return f"({kind})({a} > 0)"
        return f"({kind})(({a} > 0) - ({a} < 0))"

    @staticmethod
    def truediv(a: Any, b: Any) -> str:
        return f"({a} / {b})"

    @staticmethod
    def int_truediv(a: Any, b: Any) -> str:
        return f"((f32){a} / (f32){b})"

    div_rn = truediv

    @staticmethod
    def floordiv(a: Any, b: Any) -> str:
        kind = _common(a, b)
        if kind[0] == "f":
            return f"floor({a} / {b})"
        V.kernel.check_divisor(b)
        if kind[0] == "u":
            return f"({kind})({b} == 0 ? 0 : {a} / {b})"
        return f"({kind})floor_div({a}, {b})"

    @staticmethod
    def truncdiv(a: Any, b: Any) -> str:
        kind = _common(a, b)
        if kind[0] == "f":
            return f"trunc({a} / {b})"
        V.kernel.check_divisor(b)
        if kind[0] == "u":
            return f"({kind})({b} == 0 ? 0 : {a} / {b})"
        return f"({kind})trunc_div({a}, {b})"

    @staticmethod
    def remainder(a: Any, b: Any) -> str:
        kind = _common(a, b)
        if kind[0] == "f":
            return f"remainder_{kind}(({kind}){a}, ({kind}){b})"
        V.kernel.check_divisor(b)
        if kind[0] == "u":
            return f"({kind})({b} == 0 ? 0 : {a} % {b})"
        return f"({kind})floor_mod({a}, {b})"

    @staticmethod
    def fmod(a: Any, b: Any) -> str:
        kind = _common(a, b)
        if kind[0] == "f":
            return f"FMOD(({kind}){a}, ({kind}){b})"
        V.kernel.check_divisor(b)
        if kind[0] == "u":
            return f"({kind})({b} == 0 ? 0 : {a} % {b})"
        return f"({kind})trunc_mod({a}, {b})"

    mod = fmod

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> str:
        return f"FMA({a}, {b}, {c})"

    @staticmethod
    def mul_rn(a: Any, b: Any) -> str:
        return f"({a} * {b})"

    @staticmethod
    def rsqrt(a: Any) -> str:
        return f"({number(1, a.dtype)} / sqrt({a}))"

    @staticmethod
    def reciprocal(a: Any) -> str:
        return f"({number(1, a.dtype)} / {a})"

    @staticmethod
    def sigmoid(a: Any) -> str:
        one = number(1, a.dtype)
        return f"({one} / ({one} + {_call('exp', f'(-{a})', a.dtype)}))"

    @staticmethod
    def round(a: Any) -> str:
        return f"rint({a})" if value_type(a.dtype) == "f64" else f"rint_32({a})"

    nearbyint = rint = round

    @staticmethod
    def trunc_to_int(a: Any, dtype: torch.dtype) -> str:
        return f"({value_type(dtype)})trunc({a})"

    @staticmethod
    def floor_to_int(a: Any, dtype: torch.dtype) -> str:
        return f"({value_type(dtype)})floor({a})"

    @staticmethod
    def ceil_to_int(a: Any, dtype: torch.dtype) -> str:
        return f"({value_type(dtype)})ceil({a})"

    @staticmethod
    def round_to_int(a: Any, dtype: torch.dtype) -> str:
        return f"({value_type(dtype)})rint({a})"

    @staticmethod
    def pow(a: Any, b: Any) -> str:
        kind = _common(a, b)
        if kind[0] != "f":
            return f"({kind})power_i64({a}, {b})"
        return f"pow_32((f32){a}, (f32){b})" if kind == "f32" else f"pow((f64){a}, (f64){b})"

    @staticmethod
    def atan2(a: Any, b: Any) -> str:
        return f"atan2_32({a}, {b})" if _common(a, b) == "f32" else f"atan2({a}, {b})"

    @staticmethod
    def hypot(a: Any, b: Any) -> str:
        return f"hypot_32({a}, {b})" if _common(a, b) == "f32" else f"hypot({a}, {b})"

    @staticmethod
    def copysign(a: Any, b: Any) -> str:
        kind = _common(a, b)
        return f"copysign(({kind}){a}, ({kind}){b})"

    @staticmethod
    def nextafter(a: Any, b: Any) -> str:
        kind = _common(a, b)
        return f"nextafter(({kind}){a}, ({kind}){b})"

    @staticmethod
    def ldexp(a: Any, n: Any) -> str:
        return f"ldexp({a}, (int){n})"

    @staticmethod
    def signbit(a: Any) -> str:
        if not _is_float(a):
            return f"(u8)({a} < 0)"
        bits = "BITS_OF_DOUBLE({}) >> 63" if value_type(a.dtype) == "f64" else "BITS({}) >> 31"
        return f"(u8)({bits.format(a)})"

    @staticmethod
    def isnan(a: Any) -> str:
        return f"(u8)({a} != {a})" if _is_float(a) else "(u8)0"

    @staticmethod
    def isinf(a: Any) -> str:
        return f"(u8)({a} == INFINITY || {a} == -INFINITY)" if _is_float(a) else "(u8)0"

    @staticmethod
    def logical_not(a: Any) -> str:
        return f"(u8)({a} == 0)"

    @staticmethod
    def logical_and(a: Any, b: Any) -> str:
        return f"(u8)({a} != 0 && {b} != 0)"

    @staticmethod
    def logical_or(a: Any, b: Any) -> str:
        return f"(u8)({a} != 0 || {b} != 0)"

    @staticmethod
    def logical_xor(a: Any, b: Any) -> str:
        return f"(u8)(({a} != 0) != ({b} != 0))"

    @staticmethod
    def bitwise_not(a: Any) -> str:
        return f"(u8)!{a}" if a.dtype == torch.bool else _narrowed(f"~{a}", a)

    @staticmethod
    def bitwise_and(a: Any, b: Any) -> str:
        return _arithmetic("&", a, b)

    @staticmethod
    def bitwise_or(a: Any, b: Any) -> str:
        return _arithmetic("|", a, b)

    @staticmethod
    def bitwise_xor(a: Any, b: Any) -> str:
        return _arithmetic("^", a, b)

    and_, or_, xor = bitwise_and, bitwise_or, bitwise_xor

    @staticmethod
    def bitwise_left_shift(a: Any, b: Any) -> str:
        kind = value_type(a.dtype)
        bits = 8 * computed(a.dtype).itemsize
        return f"({kind})((u64){b} >= {bits} ? 0 : (u64){a} << {b})"

    @staticmethod
    def bitwise_right_shift(a: Any, b: Any) -> str:
        kind = value_type(a.dtype)
        most = 8 * computed(a.dtype).itemsize - 1
        return f"({kind})({a} >> ((u64){b} > {most} ? {most} : {b}))"

    lshift, rshift = bitwise_left_shift, bitwise_right_shift

    @staticmethod
    def eq(a: Any, b: Any) -> str:
        return f"(u8)({a} == {b})"

    @staticmethod
    def ne(a: Any, b: Any) -> str:
        return f"(u8)({a} != {b})"

    @staticmethod
    def lt(a: Any, b: Any) -> str:
        return f"(u8)({a} < {b})"

    @staticmethod
    def le(a: Any, b: Any) -> str:
        return f"(u8)({a} <= {b})"

    @staticmethod
    def gt(a: Any, b: Any) -> str:
        return f"(u8)({a} > {b})"

    @staticmethod
    def ge(a: Any, b: Any) -> str:
        return f"(u8)({a} >= {b})"

    @staticmethod
    def load_seed(name: str, offset: Any) -> str:
        return f"{ops.load(name, sympy.Integer(offset))}"

    @staticmethod
    def rand(seed: Any, offset: Any) -> str:
        return f"uniform_of({V.kernel.random_word(seed, offset, 0)})"

    @staticmethod
    def randn(seed: Any, offset: Any) -> str:
        first, second = (V.kernel.random_word(seed, offset, stream) for stream in (0, 1))
        return f"normal_of({first}, {second})"

    @staticmethod
    def randint64(seed: Any, offset: Any, low: Any, high: Any) -> str:
        first, second = (V.kernel.random_word(seed, offset, stream) for stream in (0, 1))
        return f"integer_of({first}, {second}, {low}, {high})"

    @staticmethod
    def device_assert_async(test: Any, message: str) -> None:
        V.kernel.device_assert_async(test, message)


def _call(name: str, text: str, dtype: torch.dtype) -> str:
    kind = value_type(dtype)
    return f"{_FUNCTIONS[name]}({text})" if kind == "f32" else f"{name}({text})"


def _function(name: str) -> Callable[[Any], str]:
    def written(a: Any) -> str:
        return _call(name, str(a), a.dtype)

    return written


for _name in _FUNCTIONS:
    setattr(Overrides, _name, staticmethod(_function(_name)))


def _narrowed(text: str, *values: Any) -> str:
    """Of integers narrower than C computes with: wrapped around, as torch's are."""
    kind = _common(*values)
    return f"({text})" if kind in ("f32", "f64") else f"({kind})({text})"


def _arithmetic(sign: str, a: Any, b: Any) -> str:
    return _narrowed(f"{a} {sign} {b}", a, b)
