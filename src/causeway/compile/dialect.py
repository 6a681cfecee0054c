"""How a graph's expressions are written in the portable dialect: indices, numbers, functions.

docs/portable.md describes the dialect. A value has one of its types: f32, f64, u8, i8 .. u64; what
lies in memory as float16 or bfloat16 is an f32 once it is loaded.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import sympy
import torch

from causeway.compile.names import DTYPE_TO_COMPUTATION_DTYPE, ExprPrinter

# A dtype's name in LD_ and ST_, what its memory is an array of, and the type of a value.
MEMORY = {
    torch.bool: ("b8", "u8"),
    torch.uint8: ("u8", "u8"),
    torch.int8: ("i8", "i8"),
    torch.int16: ("i16", "i16"),
    torch.uint16: ("u16", "u16"),
    torch.int32: ("i32", "i32"),
    torch.uint32: ("u32", "u32"),
    torch.int64: ("i64", "i64"),
    torch.uint64: ("u64", "u64"),
    torch.float16: ("f16", "u16"),
    torch.bfloat16: ("bf16", "u16"),
    torch.float32: ("f32", "f32"),
    torch.float64: ("f64", "f64"),
}


class UnsupportedError(NotImplementedError):
    """The generator cannot write this; the message says what."""


def computed(dtype: torch.dtype) -> torch.dtype:
    """The dtype that is computed with."""
    return DTYPE_TO_COMPUTATION_DTYPE[dtype]


def value_type(dtype: torch.dtype) -> str:
    """The dialect's type of a value."""
    found = MEMORY.get(computed(dtype)) if dtype in DTYPE_TO_COMPUTATION_DTYPE else None
    if found is None:
        raise UnsupportedError(f"torch.compile writes no kernels of {dtype}")
    return found[1]


def memory(dtype: torch.dtype) -> tuple[str, str]:
    """The name in LD_ and ST_, and the type of an element in memory."""
    found = MEMORY.get(dtype)
    if found is None:
        raise UnsupportedError(f"torch.compile writes no kernels of {dtype}")
    return found


def number(value: Any, dtype: torch.dtype) -> str:
    """A constant."""
    dtype = computed(dtype)
    kind = value_type(dtype)
    if dtype.is_floating_point:
        value = float(value)
        if math.isinf(value):
            text = "INFINITY" if value > 0 else "-INFINITY"
        elif math.isnan(value):
            text = "NAN"
        elif dtype == torch.float32:
            # Two numbers that are one float32 stay two texts: Inductor knows them apart.
            text = f"{_decimal(value, torch.float32)} /* {value!r} */"
        else:
            text = _decimal(value, torch.float64)
        return f"({kind})({text})"
    if dtype == torch.bool:
        return "1" if value else "0"
    value = int(value)
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    return f"({kind}){value}{'ULL' if kind == 'u64' else 'LL' if abs(value) >= 2**31 else ''}"


def _decimal(value: float, dtype: torch.dtype) -> str:
    if dtype == torch.float32:
        value = torch.tensor(value, dtype=torch.float64).to(torch.float32).item()
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"{value:.9e}f"
    return f"{value:.17e}"


class Printer(ExprPrinter):
    """An index, or a value made of sizes, as text of 64-bit integers."""

    def _two(self, expr: Any) -> tuple[str, str]:
        a, b = (self.parenthesize(x, 1e9) for x in expr.args)
        return a, b

    def _print_Integer(self, expr: Any) -> str:
        value = int(expr)
        return f"{value}LL" if abs(value) >= 2**31 else str(value)

    def _print_FloorDiv(self, expr: Any) -> str:
        a, b = self._two(expr)
        plain = expr.args[0].is_nonnegative and expr.args[1].is_positive
        return f"({a} / {b})" if plain else f"floor_div({a}, {b})"

    def _print_CleanDiv(self, expr: Any) -> str:
        return "({} / {})".format(*self._two(expr))

    def _print_ModularIndexing(self, expr: Any) -> str:
        x, by, of = expr.args
        text = self.parenthesize(x, 1e9)
        if by != 1:
            text = f"({text} / {self.parenthesize(by, 1e9)})"
        return f"({text} % {self.parenthesize(of, 1e9)})"

    def _print_Mod(self, expr: Any) -> str:
        return "({} % {})".format(*self._two(expr))

    def _print_PythonMod(self, expr: Any) -> str:
        a, b = self._two(expr)
        plain = expr.args[0].is_nonnegative and expr.args[1].is_positive
        return f"({a} % {b})" if plain else f"floor_mod({a}, {b})"

    def _print_Min(self, expr: Any) -> str:
        return functools.reduce(lambda a, b: f"MINIMUM({a}, {b})", map(self._print, expr.args))

    def _print_Max(self, expr: Any) -> str:
        return functools.reduce(lambda a, b: f"MAXIMUM({a}, {b})", map(self._print, expr.args))

    def _print_Where(self, expr: Any) -> str:
        test, yes, no = (self._print(x) for x in expr.args)
        return f"({test} ? {yes} : {no})"

    def _print_Relational(self, expr: Any) -> str:
        return f"({self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)})"

    def _print_And(self, expr: Any) -> str:
        return "(" + " && ".join(self._print(x) for x in expr.args) + ")"

    def _print_Or(self, expr: Any) -> str:
        return "(" + " || ".join(self._print(x) for x in expr.args) + ")"

    def _print_Not(self, expr: Any) -> str:
        return f"(!{self._print(expr.args[0])})"

    def _print_Abs(self, expr: Any) -> str:
        text = self._print(expr.args[0])
        return f"(({text}) < 0 ? -({text}) : ({text}))"

    def _print_Pow(self, expr: Any) -> str:
        base, exponent = expr.args
        if exponent.is_integer and 0 <= int(exponent) <= 8:
            return "(" + " * ".join([f"({self._print(base)})"] * int(exponent) or ["1"]) + ")"
        raise UnsupportedError(f"torch.compile writes no index with {expr}")

    _print_PowByNatural = _print_Pow

    def _print_ToFloat(self, expr: Any) -> str:
        return f"(f64)({self._print(expr.args[0])})"

    def _print_Identity(self, expr: Any) -> str:
        return f"({self._print(expr.args[0])})"

    def _print_IntTrueDiv(self, expr: Any) -> str:
        return "((f64)({}) / (f64)({}))".format(*self._two(expr))

    def _print_FloatTrueDiv(self, expr: Any) -> str:
        return "({} / {})".format(*self._two(expr))

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr))

    def _print_FloorToInt(self, expr: Any) -> str:
        return f"(i64)floor({self._print(expr.args[0])})"

    def _print_CeilToInt(self, expr: Any) -> str:
        return f"(i64)ceil({self._print(expr.args[0])})"

    def _print_TruncToInt(self, expr: Any) -> str:
        return f"(i64)trunc({self._print(expr.args[0])})"

    def _print_RoundToInt(self, expr: Any) -> str:
        return f"(i64)rint({self._print(expr.args[0])})"

    def _print_BooleanTrue(self, expr: Any) -> str:
        return "1"

    def _print_BooleanFalse(self, expr: Any) -> str:
        return "0"


index_text = Printer().doprint


def whole(size: Any) -> int | None:
    """The number that a size is, or None where it is known only at run time."""
    return int(size) if isinstance(size, (int, sympy.Integer)) else None


# Functions of the generated kernels beside those of the dialect. Formulas: torch/_inductor's semantics of the
# operators; Philox-4x32-10 of Salmon et al. 2011 for random numbers; Chan et al. 1979 to combine variances.
FUNCTIONS = r"""
FUNCTION i64 floor_div(i64 a, i64 b) {
  const i64 q = b == 0 ? 0 : a / b;
  return b == 0 ? 0 : q - ((a - q * b != 0) && ((a < 0) != (b < 0)));
}
FUNCTION i64 floor_mod(i64 a, i64 b) {
  const i64 r = b == 0 ? 0 : a - a / b * b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
FUNCTION i64 trunc_div(i64 a, i64 b) { return b == 0 ? 0 : a / b; }
FUNCTION i64 trunc_mod(i64 a, i64 b) { return b == 0 ? 0 : a - a / b * b; }
FUNCTION i64 power_i64(i64 base, i64 exponent) {
  u64 x = (u64)base, r = 1;
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  for (; exponent; exponent >>= 1, x *= x) if (exponent & 1) r *= x;
  return (i64)r;
}
FUNCTION f32 remainder_f32(f32 a, f32 b) {
  const f32 r = FMOD(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
FUNCTION u32 high_of(u32 a, u32 b) { return (u32)(((u64)a * b) >> 32); }
/* Without a loop or a branch, so that a loop with it becomes vectors. */
#define ROUND_(n) { const u32 a_ = high_of(0xD2511F53u, c0), b_ = 0xD2511F53u * c0, c_ = high_of(0xCD9E8D57u, c2), \
  d_ = 0xCD9E8D57u * c2; c0 = c_ ^ c1 ^ (k0 + n * 0x9E3779B9u); c1 = d_; c2 = a_ ^ c3 ^ (k1 + n * 0xBB67AE85u); c3 = b_; }
#define ROUNDS_ ROUND_(0u) ROUND_(1u) ROUND_(2u) ROUND_(3u) ROUND_(4u) ROUND_(5u) ROUND_(6u) ROUND_(7u) ROUND_(8u) ROUND_(9u)
/* A call has four results; they are 16 apart, so that 16 calls fill 64 neighbours as vectors do it. */
FUNCTION u32 random_word(i64 seed, i64 offset, u32 stream) {
  const u64 at = ((u64)offset >> 6) * 16 + ((u64)offset & 15);
  const u32 k0 = (u32)(u64)seed, k1 = (u32)((u64)seed >> 32), word = (u32)((u64)offset >> 4) & 3;
  u32 c0 = (u32)at, c1 = (u32)(at >> 32), c2 = stream, c3 = 0;
  ROUNDS_
  return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}
FUNCTION f32 uniform_of(u32 word) { return (f32)(i32)(word >> 8) * 5.9604644775390625e-8f; }
FUNCTION f32 normal_of(u32 first, u32 second) {
  const f32 u = ((f32)(i32)(first >> 8) + 1.0f) * 5.9604644775390625e-8f;
  return sqrt(-2.0f * log_32(u)) * cos_32(6.283185307179586f * uniform_of(second));
}
FUNCTION i64 integer_of(u32 first, u32 second, i64 low, i64 high) {
  const u64 size = (u64)high - (u64)low, r = (u64)second << 32 | first;
  return (i64)((u64)low + (size ? r % size : r));
}
"""
FUNCTIONS_F64 = r"""
FUNCTION f64 remainder_f64(f64 a, f64 b) {
  const f64 r = FMOD(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
"""
