"""A fused kernel's text: Inductor's loops and operators in the portable dialect.

Inductor decides what is fused; it calls `load`, `store`, `reduction` and the operators of
`Overrides` for each element. A kernel computes one point of the outer dimensions after the other,
shared out among items; what is reduced is a loop within. On a chip that runs items in turn the
innermost loop runs over neighbours, with what does not change in a row computed once for each row,
and a reduction keeps `LANES` partial results, so that loops become vectors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from causeway.compile import chip
from causeway.compile.dialect import UnsupportedError, computed, index_text, memory, number, value_type, whole
from causeway.compile.kernel_text import KernelText
from causeway.compile.names import (
    CSE,
    DeferredLine,
    IndentedBuffer,
    OpOverrides,
    OrderedSet,
    PythonPrinter,
    SIMDKernel,
    V,
    ValueRanges,
    get_bounds_index_expr,
    ops,
)

LANES = 16  # partial results of a reduction, where items run in turn


def _is_float(x: Any) -> bool:
    return bool(computed(x.dtype).is_floating_point)


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
    "lgamma": "lgamma",
}  # fmt: skip


class Overrides(OpOverrides):  # type: ignore[misc]
    """Each operator of Inductor's as an expression."""

    @staticmethod
    def constant(value: Any, dtype: torch.dtype) -> str:
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
        if not use_compute_types and dtype in (torch.float16, torch.bfloat16):
            return {torch.float16: f"half_to_float(float_to_half((f32){x}))",
                    torch.bfloat16: f"bfloat_to_float(float_to_bfloat((f32){x}))"}[dtype]  # fmt: skip
        kind = value_type(dtype)
        if source is not None and source.is_floating_point and kind[0] in "iu" and kind != "i64":
            return f"({kind})(i64){x}"  # as the CPU does: beyond the range of an int32 it wraps
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
        halves = {torch.float16: ("float_to_half", "half_to_float"),
                  torch.bfloat16: ("float_to_bfloat", "bfloat_to_float")}  # fmt: skip
        bits = f"{halves[src_dtype][0]}({x})" if src_dtype in halves else f"(u16){x}"
        if dtype in halves and src_dtype.itemsize == 2:
            return f"{halves[dtype][1]}((u16)({bits}))"
        if src_dtype in halves and dtype in (torch.int16, torch.uint16):
            return f"({value_type(dtype)})({bits})"
        if not src_dtype.is_floating_point and not dtype.is_floating_point:
            return f"({value_type(dtype)}){x}"
        raise UnsupportedError(f"torch.compile writes no view of {src_dtype} as {dtype}")

    @staticmethod
    def index_expr(expr: Any, dtype: torch.dtype) -> Any:
        text = V.kernel.index_to_str(V.kernel.prepare_indexing(expr))
        variable = V.kernel.cse.generate(
            V.kernel.compute, f"(i64)({text})", bounds=get_bounds_index_expr(expr), dtype=torch.int64
        )
        return ops.to_dtype(variable, dtype)

    value_expr = index_expr

    @staticmethod
    def masked(mask: Any, body: Callable[[], Any], other: Any) -> Any:
        kernel = V.kernel
        scope = IndentedBuffer()
        with kernel.scope(), kernel.swap_buffers(scope):
            result = body()
        # `other` may be a variable.
        kind = value_type(result.dtype)
        other_text = f"({kind}){other}" if hasattr(other, "dtype") else number(other, result.dtype)
        found = kernel.cse.newvar(dtype=result.dtype)
        kernel.compute.writeline(f"{kind} {found} = {other_text};")
        kernel.compute.writeline(f"if ({mask}) {{")
        with kernel.compute.indent():
            kernel.compute.splice(scope)
            kernel.compute.writeline(f"{found} = {result};")
        kernel.compute.writeline("}")
        return found

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
        return f"random_uniform({seed}, {offset})"

    @staticmethod
    def randn(seed: Any, offset: Any) -> str:
        return f"random_normal({seed}, {offset})"

    @staticmethod
    def randint64(seed: Any, offset: Any, low: Any, high: Any) -> str:
        return f"random_integer({seed}, {offset}, {low}, {high})"

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


class TypedCSE(CSE):  # type: ignore[misc]
    """The dialect has no `auto`: a variable is declared with the dtype that Inductor propagates."""

    def generate(self, buffer: Any, expr: Any, *, dtype: torch.dtype | None = None, **more: Any) -> Any:
        if isinstance(expr, str) and more.get("assignment", True):
            if dtype is None:
                raise UnsupportedError(f"torch.compile does not know the dtype of {expr}")
            self.prefix = value_type(dtype) + " "
        return super().generate(buffer, expr, dtype=dtype, **more)


@dataclass
class Loop:
    """Text that is repeated over the reduced dimensions, and what indices it uses."""

    lines: list[Any]
    entries: list[Any]
    folds: list[str]  # after the loop
    stores: bool


class Kernel(SIMDKernel):  # type: ignore[misc]
    """One fused kernel."""

    overrides = Overrides
    suffix = ";"
    newvar_prefix = ""
    kexpr = sexpr = staticmethod(index_text)
    pexpr = staticmethod(PythonPrinter().doprint)

    def __init__(self, tiling: dict[str, Any], **more: Any) -> None:
        super().__init__(tiling, **more)
        self.cse = TypedCSE(self.newvar_prefix, self.suffix)
        self.outside: Any = OrderedSet()  # variables that live on after a loop
        self.after = IndentedBuffer()  # after the current loop
        self.folds: list[str] = []
        self.sections: list[Any] = []
        self.entries: list[Any] = []  # indices of the outer dimensions
        self.loop_entries: list[Any] = []
        self.numbers = itertools.count()
        self.scopes = 0
        self.tells = False
        self.serial = False  # two points may add to one place
        self.operations = 0
        self.cpu_scalars: set[str] = set()
        self.code = chip.code(V.graph.get_current_device_or_throw().index or 0)
        self.in_turn = self.code.in_turn
        self.lanes = LANES if self.in_turn else 1

    # --- what Inductor asks ----------------------------------------------------------------------
    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return value_type(dtype)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Within an `if`: nothing may be read before it."""
        self.scopes += 1
        try:
            yield
        finally:
            self.scopes -= 1

    def codegen_iteration_ranges_entry(self, entry: Any) -> None:
        mine = self.loop_entries if entry.root.is_loop else self.entries
        if entry not in mine:
            mine.append(entry)

    def check_divisor(self, value: Any) -> None:
        self.tells = True
        self.compute.writeline(f"if ({value} == 0) TELL(ZERO_DIVISION, 0, 0);")

    def check_bounds(self, expr: Any, size: Any, lower: bool, upper: bool) -> None:
        if not (lower or upper) or not isinstance(expr, sympy.Symbol):
            return
        self.tells = True
        size_text = self.index_to_str(size)
        self.compute.writeline(
            f"if ({expr} < 0 || {expr} >= {size_text}) {{ TELL(OUT_OF_RANGE, {expr}, {size_text}); {expr} = 0; }}"
        )

    def device_assert_async(self, test: Any, message: str) -> None:
        raise UnsupportedError(f"torch.compile writes no assertion in a kernel: {message}")

    def load(self, name: str, index: Any) -> Any:
        variable = self.args.input(name)
        indirect = self.is_indirect_indexing(index)
        index = self.prepare_indexing(index)
        dtype = V.graph.get_dtype(name)
        buffer = V.graph.try_get_buffer(name)
        device = buffer.get_device() if buffer is not None else None
        if device is not None and device.type == "cpu":
            self.cpu_scalars.add(variable)
            text = f"({value_type(dtype)}){variable}"
        else:
            text = f"LD_{memory(dtype)[0]}({variable}, {self.index_to_str(index)})"
        moves = any(str(s).startswith("r") and not str(s).startswith("rs") for s in index.free_symbols)
        place = self.loads
        hoisted = False
        if indirect:
            place = self.compute
        elif self.inside_reduction and self._has_loop() and not moves and not self.scopes:
            place, hoisted = self.body, True
        found = self.cse.generate(place, text, dtype=computed(dtype))
        if hoisted or (not self._has_loop() and not self.scopes):
            self.outside.add(found)
        return found

    def _has_loop(self) -> bool:
        return bool(self.inside_reduction and self.range_trees[-1].is_loop)

    def store(self, name: str, index: Any, value: Any, mode: Any = None) -> None:
        variable = self.args.output(name)
        at = self.index_to_str(self.prepare_indexing(index))
        dtype = memory(V.graph.get_dtype(name))[0]
        if mode is None:
            line = f"ST_{dtype}({variable}, {at}, {value});"
        elif mode == "atomic_add":
            self.serial = True
            line = f"ST_{dtype}({variable}, {at}, LD_{dtype}({variable}, {at}) + {value});"
        else:
            raise UnsupportedError(f"torch.compile writes no store of mode {mode}")
        self.stores.writeline(DeferredLine(name, line))

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        prior, self.inside_reduction = self.inside_reduction, False
        try:
            at = self.index_to_str(self.prepare_indexing(index))
        finally:
            self.inside_reduction = prior
        dtype = memory(V.graph.get_dtype(name))[0]
        line = f"ST_{dtype}({self.args.output(name)}, {at}, {value});"
        self.after.writeline(DeferredLine(name, line))

    # --- reductions ------------------------------------------------------------------------------
    def _result(self, name: str, dtype: torch.dtype) -> Any:
        found = self.create_cse_var(name, ValueRanges.unknown(), dtype, ())
        self.outside.add(found)
        return found

    def _partial(self, name: str, dtype: torch.dtype, initial: str) -> str:
        """Partial results for each lane; the name by which the loop has its own."""
        kind = value_type(dtype)
        self.body.writeline(
            f"{kind} {name}_l[LANES_]; for (int l_ = 0; l_ < LANES_; ++l_) {name}_l[l_] = {initial};"
        )
        return f"{name}_l[lane_]"

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, kind: str, value: Any) -> Any:
        key = (src_dtype, kind, value)
        if key not in self.cse.reduction_cache:
            self.cse.reduction_cache[key] = self._reduce(dtype, src_dtype, kind, value)
        return self.cse.reduction_cache[key]

    def _reduce(self, dtype: torch.dtype, src_dtype: torch.dtype, kind: str, value: Any) -> Any:
        n = next(self.numbers)
        source = computed(src_dtype)
        simple = {
            "sum": ("0", "{a} + {b}"), "prod": ("1", "{a} * {b}"), "xor_sum": ("0", "{a} ^ {b}"),
            "any": ("0", "({a} != 0 || {b} != 0)"),
            "max": (_least(source), "MAXIMUM({b}, {a})"),
            "min": (_most(source), "MINIMUM({b}, {a})"),
        }  # fmt: skip
        if kind in simple:
            result = computed(dtype) if kind in ("sum", "prod") else source
            initial, combine = simple[kind]
            mine = self._partial(f"acc{n}", result, f"({value_type(result)})({initial})")
            one = combine.format(a=mine, b=f"({value_type(result)}){value}")
            self.compute.writeline(f"{mine} = {one};")
            fold = combine.format(a=f"acc{n}", b=f"acc{n}_l[l_]")
            self.folds.append(
                f"{value_type(result)} acc{n} = acc{n}_l[0]; for (int l_ = 1; l_ < LANES_; ++l_) acc{n} = {fold};"
            )
            return self._result(f"acc{n}", result)
        if kind in ("argmax", "argmin"):
            return self._arg(n, source, kind, value)
        if kind in ("welford_reduce", "welford_combine"):
            return self._welford(n, computed(dtype), kind, value)
        raise UnsupportedError(f"torch.compile writes no reduction of kind {kind}")

    def _arg(self, n: int, source: torch.dtype, kind: str, value: Any) -> Any:
        """The first index of the largest value, of a NaN where there is one."""
        best = self._partial(f"best{n}", source, _least(source) if kind == "argmax" else _most(source))
        at = self._partial(f"at{n}", torch.int64, "-1")
        sign = ">" if kind == "argmax" else "<"
        index = "0"
        for tree in self.range_trees:
            if tree.is_reduction:
                index = f"(({index}) * {self.size(tree)} + {tree.name})"
        self.compute.writeline(
            f"if ({at} < 0 || {value} {sign} {best} || ({value} != {value} && {best} == {best})) "
            f"{{ {best} = {value}; {at} = {index}; }}"
        )
        b, a = f"best{n}_l[l_]", f"at{n}_l[l_]"
        kind_ = value_type(source)
        self.folds.append(
            f"{kind_} best{n} = best{n}_l[0]; i64 at{n} = at{n}_l[0]; for (int l_ = 1; l_ < LANES_; ++l_) "
            f"if ({a} >= 0 && (at{n} < 0 || {b} {sign} best{n} || ({b} != {b} && best{n} == best{n}) || "
            f"(({b} == best{n} || ({b} != {b} && best{n} != best{n})) && {a} < at{n}))) "
            f"{{ best{n} = {b}; at{n} = {a}; }}"
        )
        return self._result(f"at{n}", torch.int64)

    def _welford(self, n: int, dtype: torch.dtype, kind: str, value: Any) -> Any:
        names = [f"{part}{n}" for part in ("mean", "squares", "weight")]
        mine = [self._partial(name, dtype, "0") for name in names]
        t = value_type(dtype)
        if kind == "welford_reduce":
            self.compute.writeline(
                f"{{ const {t} d_ = {value} - {mine[0]}; {mine[2]} += 1; {mine[0]} += d_ / {mine[2]}; "
                f"{mine[1]} += d_ * ({value} - {mine[0]}); }}"
            )
        else:
            self.compute.writeline(_combine(t, mine, [str(v) for v in value]))
        folded = [f"{name}_l[l_]" for name in names]
        self.folds.append(
            f"{t} {names[0]} = {names[0]}_l[0], {names[1]} = {names[1]}_l[0], {names[2]} = {names[2]}_l[0]; "
            f"for (int l_ = 1; l_ < LANES_; ++l_) {_combine(t, names, folded)}"
        )
        return tuple(self._result(name, dtype) for name in names)

    # --- the text --------------------------------------------------------------------------------
    def size(self, tree: Any) -> str:
        known = whole(tree.numel)
        return f"{tree.prefix}numel" if known is None else str(known)

    def _take(self, *buffers: Any) -> list[Any]:
        """The lines of buffers, which are empty then. A store may still be found to be of no use, so
        lines stay what Inductor made them until the whole text is put together."""
        lines: list[Any] = []
        for buffer in buffers:
            lines += buffer._lines
            buffer.clear()
        return lines

    def codegen_body(self) -> None:
        """Close what was written since: straight text, or a loop over the reduced dimensions."""
        buffers = (self.indexing_code, self.loads, self.compute, self.stores)
        if not (any(buffers) or self.after or self.body or self.folds):
            return
        self.sections += self._take(self.body)
        loops = self._loops()
        if self.inside_reduction and loops:
            stores = bool(self.stores)
            lines = self._take(*buffers)
            self.operations += len(lines)
            self.sections.append(Loop(lines, self.loop_entries, self.folds, stores))
            self.loop_entries, self.folds = [], []
            self.cse.invalidate(self.outside)
            for tree in loops:
                tree.cache_clear()
        else:
            lines = self._take(*buffers)
            self.operations += len(lines)
            self.sections += lines
        self.sections += self._take(self.after)

    def _walk(self, trees: list[Any], entries: list[Any], body: list[str], first: str, last: str,
              step: str, lanes: bool, independent: bool) -> list[str]:  # fmt: skip
        """`body` for each point of `trees`, from number `first` to `last` of all of them."""
        inner = trees[-1]
        row = self._row(inner, entries) if self.in_turn else None
        flat = "u_" + inner.prefix
        lines: list[str] = []

        def place(at: str, skip: Any, tree_filter: Callable[[Any], bool]) -> list[str]:
            """Index variables from the number `at`."""
            found, rest = [], at
            for tree in reversed(trees):
                name = f"{rest}" if tree is trees[0] else f"({rest}) % {self.size(tree)}"
                found.append(f"const idx {tree.name} = {name};")
                rest = f"({rest}) / {self.size(tree)}"
            found.reverse()
            return found + self._declare([e for e in entries if e is not skip and tree_filter(e)])

        if row is None:
            lines.append(f"for (idx {flat} = {first}, {flat}_end = {last}; {flat} < {flat}_end; {flat} += {step}) {{")
            if lanes:
                lines.append("enum { lane_ = 0 };")
            lines += place(flat, None, lambda e: True) + body + ["}"]
            return lines
        # Rows of neighbours: what is not of the innermost dimension is computed once for each.
        length, entry, steady = row
        name = entry.name if entry is not None else f"{inner.prefix}_at"
        lines.append(f"for (idx {flat} = {first}, {flat}_end = {last}; {flat} < {flat}_end;) {{")
        lines.append(f"const idx row_{flat} = {flat} / {length} * {length}, from_{flat} = {flat} - row_{flat};")
        lines.append(
            f"const idx to_{flat} = MINIMUM((idx)({length}), from_{flat} + {flat}_end - {flat});"
        )
        lines.append(f"{flat} += to_{flat} - from_{flat};")
        outer: list[str] = []
        rest = f"row_{flat}"
        for tree in reversed(trees):
            outer.append(f"const idx {tree.name}_row = {rest if tree is trees[0] else f'({rest}) % {self.size(tree)}'};")
            rest = f"({rest}) / {self.size(tree)}"
        lines += reversed(outer)
        steady_entries = [e for e in entries if e in steady]
        for tree in trees[:-1]:
            lines.append(f"const idx {tree.name} = {tree.name}_row;")
        lines += self._declare(steady_entries, {inner.name: f"{inner.name}_row"})
        inside = [f"const idx {inner.name} = {inner.name}_row + {name};"]
        inside += self._declare([e for e in entries if e is not entry and e not in steady])
        mark = ["INDEPENDENT"] if independent else []
        if not lanes:
            lines += [*mark, f"for (idx {name} = from_{flat}; {name} < to_{flat}; ++{name}) {{"]
            lines += inside + body + ["}", "}"]
            return lines
        lines.append(f"for (idx c_ = from_{flat}; c_ < to_{flat}; c_ += LANES_) {{")
        lines.append(f"const idx many_ = MINIMUM((idx)LANES_, to_{flat} - c_);")
        lines += [*mark, "for (idx lane_ = 0; lane_ < many_; ++lane_) {", f"const idx {name} = c_ + lane_;"]
        lines += inside + body + ["}", "}", "}"]
        return lines

    def _declare(self, entries: list[Any], renamed: dict[str, str] | None = None) -> list[str]:
        found = []
        for entry in entries:
            if entry.root.name == entry.name:
                continue
            text = index_text(self.rename_indexing(entry.expr))
            for old, new in (renamed or {}).items():
                text = _replace_word(text, old, new)
            found.append(f"const idx {entry.name} = {text};")
        return found

    def _row(self, tree: Any, entries: list[Any]) -> tuple[str, Any, list[Any]] | None:
        """The length of a row, the index that runs in it (None: the tree's own), and the indices
        that stay the same in it."""
        mine = [e for e in entries if e.root is tree]
        inner = [e for e in mine if e.divisor == 1]
        if not mine or not inner:
            # Nothing splits the dimension, or nothing moves with its neighbours.
            if mine:
                return None
            return f"({self.size(tree)})", None, [e for e in entries if e.root is not tree]
        sizes = V.graph.sizevars
        entry = inner[0]
        for other in inner[1:]:
            if sizes.statically_known_true(sympy.Lt(other.length, entry.length)):
                entry = other
        length = self.rename_indexing(entry.length)
        steady = [e for e in entries if e.root is not tree]
        for e in mine:
            if e is not entry and sizes.statically_known_multiple_of(e.divisor, entry.length):
                steady.append(e)
        return f"({index_text(length)})", entry, steady

    def codegen_kernel(self, name: str | None = None) -> str:
        """Write the kernel: `text`. It gets its name when it is put into a program."""
        self.codegen_body()
        outer = [tree for tree in self.range_trees if not tree.is_reduction]
        loops = self._loops()
        body: list[str] = []
        for section in self.sections:
            if not isinstance(section, Loop):
                body.append(section)
                continue
            total = " * ".join(self.size(tree) for tree in loops)
            body += self._walk(loops, section.entries, section.lines, "0", total, "1", True,
                               not self.serial and not self.tells)  # fmt: skip
            body += section.folds
        count = " * ".join(self.size(tree) for tree in outer) or "1"
        if loops:
            # A unit is a point with its loops: nothing to gain from rows.
            lines = [f"for (idx u_ = FIRST({count}), u_end = LAST({count}); u_ < u_end; u_ += STEP) {{"]
            rest = "u_"
            places = []
            for tree in reversed(outer):
                places.append(f"const idx {tree.name} = {rest if tree is outer[0] else f'({rest}) % {self.size(tree)}'};")
                rest = f"({rest}) / {self.size(tree)}"
            lines += [*reversed(places), *self._declare(self.entries), *body, "}"]
        elif outer:
            lines = self._walk(outer, self.entries, body, f"FIRST({count})", f"LAST({count})", "STEP", False,
                               not self.serial and not self.tells)  # fmt: skip
        else:
            lines = ["if (item == 0) {", *body, "}"]
        head = [f"enum {{ LANES_ = {self.lanes} }};"] if loops else []
        self.text = KernelText("", self._parameters(), _joined([*head, *lines]), self._cost(loops))
        return f"/* {self.text.parameters} */\n{self.text.body}"

    def _cost(self, loops: list[Any]) -> float:
        cost = 2.0 * max(self.operations, 1)
        for tree in loops:
            cost *= max(V.graph.sizevars.optimization_hint(tree.numel, fallback=1024), 1)
        return float(cost)

    def _loops(self) -> list[Any]:
        """The dimensions that are reduced."""
        return [t for t in self.range_trees if t.is_reduction] if self.features.is_reduction() else []

    def _dynamic(self) -> list[Any]:
        """Trees whose size comes with each call."""
        loops = self._loops()
        return [t for t in self.range_trees if whole(t.numel) is None and (not t.is_reduction or t in loops)]

    def _parameters(self) -> list[tuple[str, str, str]]:
        found = []
        written = OrderedSet(self.args.output_buffers.values())
        inplace = OrderedSet(b.inner_name for b in self.args.inplace_buffers.values() if hasattr(b, "inner_name"))
        definitions, _, _, types = self.args.python_argdefs()
        for definition, dtype in zip(definitions, types, strict=True):
            name = definition.name
            if name in self.cpu_scalars:
                float_ = dtype.is_floating_point
                found.append(("value", "f64" if float_ and self._has_f64() else "f32" if float_ else "i64", name))
            elif isinstance(dtype, torch.dtype):
                kind = "out" if name in written or name in inplace else "in"
                found.append((kind, memory(dtype)[1], name))
            else:
                found.append(("value", "idx", name))
        found += [("value", "idx", f"{tree.prefix}numel") for tree in self._dynamic()]
        if self.tells:
            found.append(("tells", "", ""))
        return found

    def _has_f64(self) -> bool:
        return self.code.has_float64

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        wrapper = V.graph.wrapper_code
        for size in self.args.sizevars:
            wrapper.ensure_size_computed(size)
        definitions, given, _, types = self.args.python_argdefs()
        arguments = [
            f"{argument}.item()" if definition.name in self.cpu_scalars else str(argument)
            for definition, argument in zip(definitions, given, strict=True)
        ]
        kinds = list(types)
        units = "1"
        dynamic = self._dynamic()
        for tree in self.range_trees:
            known = whole(tree.numel)
            text = str(known)
            if tree in dynamic:
                numel = tree.numel
                expr = numel if isinstance(numel, sympy.Symbol) else wrapper.generate_numel_expr(name, tree).inner
                text = str(expr)
                arguments.append(text)
                kinds.append(int)
            if not tree.is_reduction:
                units = text if units == "1" else f"{units} * {text}"
        if self.serial:
            units = "1"
        wrapper.generate_kernel_call(
            name,
            [units, *arguments],
            device=V.graph.get_current_device_or_throw(),
            triton=False,
            arg_types=[int, *kinds],
        )


def _joined(lines: list[Any]) -> str:
    buffer = IndentedBuffer()
    for line in lines:
        buffer.writeline(line)
    return str(buffer.getvalue())


def _least(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return "-INFINITY"
    return "0" if dtype == torch.bool else number(torch.iinfo(dtype).min, dtype)


def _most(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return "INFINITY"
    return "1" if dtype == torch.bool else number(torch.iinfo(dtype).max, dtype)


def _combine(kind: str, mine: list[str], other: list[str]) -> str:
    """Means, sums of squared differences and weights of two sets, made one (Chan et al. 1979)."""
    return (
        f"{{ const {kind} w_ = {mine[2]} + {other[2]}, d_ = {other[0]} - {mine[0]}, p_ = w_ == 0 ? 0 : {other[2]} / w_; "
        f"{mine[0]} += d_ * p_; {mine[1]} += {other[1]} + d_ * d_ * {mine[2]} * p_; {mine[2]} = w_; }}"
    )


def _replace_word(text: str, old: str, new: str) -> str:
    return re.sub(rf"\b{re.escape(old)}\b", new, text)
