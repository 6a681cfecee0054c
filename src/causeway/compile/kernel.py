"""A fused kernel: what Inductor's scheduler put together, as one function of the portable dialect.

Inductor describes a kernel as an iteration space (a flat index a dimension of it, and entries that
are its digits) and loads, computations and stores on it. Here the digits become nested loops, in
the form that suits the chip:

- `points`, items in turn: rows of neighbours, an innermost loop without divisions that becomes vectors;
- `rows`, in turn: an item takes rows, computes what is reduced into an array, and folds that;
- `columns`, in turn, where neighbours lie across the reduction: BLOCK columns beside each other;
- `items`, in parallel: neighbours to neighbouring items; a short reduction is an item's own;
- `groups`, in parallel: a group of items a row, folded in local memory in a fixed order.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from causeway.compile import chip
from causeway.compile.dialect import (
    UnsupportedError,
    computed,
    index_text,
    memory,
    number,
    value_type,
    whole,
)
from causeway.compile.kernel_text import KernelText
from causeway.compile.lines import noting
from causeway.compile.names import (
    CSE,
    DeferredLine,
    IndentedBuffer,
    MemoryDep,
    OrderedSet,
    RemovedArg,
    SIMDKernel,
    SymT,
    V,
    ValueRanges,
    symbol_is_type,
    sympy_product,
)
from causeway.compile.overrides import Overrides

CHUNK = 512  # of a row that are computed at once, before they are folded
WHOLE = 4096  # the longest row that is computed at once, so that later loops find its values
_MANY = 128  # elements of a row whose loop is worth the longest vectors
BLOCK = 128  # columns that are taken at once
SHORT = 32  # a reduction that is not worth a group of items
WIDTH = 64  # of a tile of what lies across a row
SHORT_TILE = 8  # a dimension that is not worth one


_ANY_VALUE = ValueRanges.unknown()
_SIZES = (SymT.SIZE, SymT.UNBACKED_INT, SymT.FLOAT, SymT.UNBACKED_FLOAT)
_WRITTEN = (sympy.Add, sympy.Mul, sympy.Symbol, sympy.Integer)  # by kernels as well as by Python


class TypedCSE(CSE):
    """C has no `auto`: a declaration's type is the dtype that Inductor hands on."""

    def generate(self, buffer: Any, expr: Any, *, dtype: Any = None, **kwargs: Any) -> Any:
        self.prefix = f"{value_type(dtype)} " if dtype is not None else "__auto_type "
        kernel = V.kernel
        if isinstance(expr, str) and getattr(kernel, "keeps_arrays", False):
            self.prefix = ""
        var = super().generate(buffer, expr, dtype=dtype, **kwargs)
        if isinstance(expr, str) and hasattr(kernel, "definitions"):
            kernel.definitions.setdefault(str(var), expr)
        return var

    def newvar(self, bounds: Any = _ANY_VALUE, dtype: Any = None, shape: Any = None) -> Any:
        kernel = V.kernel
        if not getattr(kernel, "keeps_arrays", False):
            return super().newvar(bounds, dtype, shape)
        name = f"{self.name_prefix}{next(self.iter_buffer_ids)}"
        kernel.arrays.append(
            f"{value_type(dtype) if dtype is not None else 'f32'} {name}[{BLOCK}];"
        )
        var = kernel.create_cse_var(f"{name}[l]", bounds, dtype, shape)
        self.varname_map[f"{name}[l]"] = var
        return var


@dataclass(frozen=True)
class Random:
    """32 random bits an element."""

    name: str
    seed: str  # an expression that is the same for all elements
    index: sympy.Expr  # which of the seed's
    stream: int  # numbers of one seed and index that do not depend on each other


class SameValues:
    """Values that a loop computes again, found by their text: the array that has them is read."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], str] = {}  # a type and an expression: its number
        self.known: dict[str, str] = {}  # of the loop at hand: a variable's number
        self.changed: OrderedSet[str] = OrderedSet()  # variables read from what was written
        self.arrays: dict[str, str] = {}  # a variable: the array that it is put into
        self.kept: dict[str, str] = {}  # a number: the array that has it, for all of a row
        self.largest: dict[str, str] = {}  # an array, then a number: the variable of its maximum

    def replaced(self, lines: list[Any]) -> list[Any]:
        """A loop's lines, with what is kept read from its array."""
        self.known = {}
        self.expressions: dict[str, str] = {}
        out = []
        for line in lines:
            found = _DEFINITION.match(line) if isinstance(line, str) else None
            if found is None:
                out.append(line)
                continue
            t, name, text = found.groups()
            key = (t, _VARIABLE.sub(lambda m: self.known.get(m[0], m[0]), text))
            number = self.numbers.setdefault(key, f"@{len(self.numbers)}")
            if name in self.changed:
                number = f"@{name}"
            self.known[name] = number
            array = self.kept.get(number)
            self.expressions[name] = text
            if array is not None:
                text = f"{array}[r_j]"
            elif self._not_above_0(text):
                text = text.replace("exp_f32(", "exp_down_f32(")
            out.append(f"{t} {name} = {text};")
        return out

    def _not_above_0(self, text: str) -> bool:
        """Whether it is an exponential of a value less its row's maximum, as in softmax, or of a
        square times a negative number, as in the gradient of GELU.
        """
        power = _EXPONENTIAL.fullmatch(text)
        if not power:
            return False
        inner = self.expressions.get(power[1], "")
        if less := _DIFFERENCE.fullmatch(inner):
            return self.largest.get(self.known.get(less[1], "")) == less[2]
        if times := _PRODUCT.fullmatch(inner):
            square = _PRODUCT.fullmatch(self.expressions.get(times[1], ""))
            negative = self.expressions.get(times[2], "").startswith("(f32)(-")
            return square is not None and square[1] == square[2] and negative
        return False

    def keep(self, array: str, t: str, complete: bool) -> None:
        """An array is filled by the loop at hand, with all values of a row or some."""
        for name in [n for n, a in self.arrays.items() if a == array]:
            if name in self.known:
                if complete:
                    self.kept.setdefault(self.known[name], array)
                if array in self.largest:
                    self.largest[self.known[name]] = self.largest[array]
            del self.arrays[name]


_DEFINITION = re.compile(r"(\w+) (tmp\d+) = (.*);$", re.DOTALL)
_VARIABLE = re.compile(r"\btmp\d+\b")
_EXPONENTIAL = re.compile(r"exp_f32\((tmp\d+)\)")
_PRODUCT = re.compile(r"\((tmp\d+) \* (tmp\d+)\)")
_DIFFERENCE = re.compile(r"\((tmp\d+) - (red\d+)\)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DECLARED = re.compile(r"const \w+ (\w+) =")
_ASSIGNED = re.compile(r"\b(tmp\d+) = ")
_ASSIGNABLE = re.compile(r"tmp\d+(\[l\])?")


class Kernel(SIMDKernel):
    overrides = Overrides
    suffix = ";"
    newvar_prefix = ""
    kexpr = sexpr = staticmethod(index_text)

    def __init__(self, tiling: Any, **kwargs: Any) -> None:
        self.keeps_arrays = False
        self.arrays: list[str] = []
        self.code = chip.code(V.graph.get_current_device_or_throw().index or 0)
        super().__init__(tiling, **kwargs)
        self.cse = TypedCSE("", self.suffix)
        self.post = IndentedBuffer()  # after a loop: folds, stores of what was reduced
        self.folds = IndentedBuffer()
        self.starts = IndentedBuffer()  # before a loop
        self.outside: OrderedSet[Any] = OrderedSet()
        self.counter = 0
        self.alone = False  # one item does it all: what it adds up in place is in order
        self.scatters = False
        self.tells = False
        self.weight = 0  # operations of an element
        self.folded: list[tuple[str, str]] = []  # the arrays of a loop: type, name
        self.chunk = IndentedBuffer()  # after a chunk of a row
        self.carried = False  # an element needs the one before it
        self.randoms: list[Random] = []  # of a loop
        self.definitions: dict[str, str] = {}  # a variable's expression
        # A variable that was loaded: where from, the load itself, and its dtype in memory.
        self.places: dict[str, tuple[sympy.Expr, str, torch.dtype]] = {}
        # A line that stores: where to, what, and its dtype in memory.
        self.writes: dict[str, tuple[sympy.Expr, Any, torch.dtype]] = {}
        self.index_of: dict[str, sympy.Expr] = {}  # what a variable of an index stands for
        self.same = SameValues()
        self.stored: OrderedSet[str] = OrderedSet()
        self.read_from: dict[str, str] = {}  # a variable that was loaded: the buffer it is from
        self.local: list[str] = []
        self.cpu_scalars: dict[str, torch.dtype] = {}
        self.numbers: dict[sympy.Expr, str] = {}  # made of sizes: the parameter that has each
        self.reduced = bool(self.features.is_reduction())
        self.form = self._form()
        self._in_loop(self.inside_reduction)

    # --- the form ---------------------------------------------------------------------------------
    def _form(self) -> str:
        if not self.reduced:
            return "points" if self.code.in_turn else "items"
        if self.code.in_turn:
            return "columns" if self._lies_across() else "rows"
        size = self._reduction_size()
        return "groups" if self.code.group and size > SHORT else "items"

    def _reduction_size(self) -> int:
        size = 1
        for tree in self.range_trees:
            if tree.is_reduction:
                size *= int(V.graph.sizevars.optimization_hint(tree.numel, fallback=1024))
        return size

    def _lies_across(self) -> bool:
        """Whether what is reduced lies farther apart than the results do."""
        along = across = 0
        for node in self.features.scheduler_nodes():
            if not node.is_reduction():
                continue
            sizes, reduced = node._sizes if hasattr(node, "_sizes") else ((), ())
            for read in node.read_writes.reads:
                names = getattr(read, "var_names", None)
                if names is None or not reduced or len(names) != len(sizes) + len(reduced):
                    continue
                steps = [
                    sympy.diff(read.index, v) if read.index.has(v) else sympy.S.Zero for v in names
                ]
                kept = [s for s in steps[: len(sizes)] if s != 0]
                gone = [s for s in steps[len(sizes) :] if s != 0]
                if not gone:
                    continue
                if any(s == 1 for s in gone):
                    along += 1
                elif any(s == 1 for s in kept):
                    across += 1
                else:
                    along += 1
        return across > along

    def _in_loop(self, inside: bool) -> None:
        """In columns, what is computed outside of a loop is an array, an element a column."""
        self.keeps_arrays = self.form == "columns" and not inside

    # --- what Inductor calls ---------------------------------------------------------------------
    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return value_type(dtype)

    def codegen_iteration_ranges_entry(self, entry: Any) -> None:
        pass  # digits are declared where loops begin

    def _at(self, index: sympy.Expr) -> str:
        return self.index_to_str(index)

    def _cpu_scalar(self, name: str) -> bool:
        buffer = V.graph.try_get_buffer(name)
        device = None if buffer is None else buffer.get_device()
        return device is not None and device.type == "cpu"

    def number_of_sizes(self, expr: sympy.Expr) -> str | None:
        """The parameter for a number that is made of sizes by more than sums and products: the
        graph's Python has all functions for it. None where it is no such number."""
        expr = sympy.sympify(expr).xreplace(V.graph.sizevars.inv_precomputed_replacements)
        if not expr.free_symbols or not all(symbol_is_type(s, _SIZES) for s in expr.free_symbols):
            return None
        if self.number_dtype(expr) == torch.int64 and all(
            isinstance(part, _WRITTEN) for part in sympy.preorder_traversal(expr)
        ):
            return None
        return self.numbers.setdefault(expr, f"num{len(self.numbers)}")

    def number_dtype(self, expr: sympy.Expr) -> torch.dtype:
        """What a number made of sizes is computed in."""
        if expr.is_integer is True:
            return torch.int64
        return torch.float64 if self.code.has_float64 else torch.float32

    def load(self, name: str, index: sympy.Expr) -> Any:
        var = self.args.input(name)
        dtype = V.graph.get_dtype(name)
        self.weight += 1
        if self._cpu_scalar(name):
            self.cpu_scalars[str(var)] = dtype
            return self.cse.generate(
                self.loads, f"({value_type(dtype)}){var}", dtype=computed(dtype)
            )
        indirect = self.is_indirect_indexing(index)
        place = self.prepare_indexing(index)
        line = f"LD_{memory(dtype)[0]}({var}, {self._at(place)})"
        if self._load_mask:
            zero = number(0, dtype)
            line = f"({self._load_mask} ? {line} : {zero})"
        buffer = self.compute if indirect or self._load_mask else self.loads
        found = self.cse.generate(buffer, line, dtype=computed(dtype))
        self.read_from[str(found)] = self._real(name)
        if not indirect and not self._load_mask:
            self.places[str(found)] = (place, line, dtype)
        if self._real(name) in self.stored:
            self.same.changed.add(str(found))
        return found

    @staticmethod
    def _real(name: str) -> str:
        """The buffer whose memory a name means, where it was given to be written."""
        names = getattr(V.graph.scheduler, "mutation_real_name", {})
        return str(names.get(name, name))

    def store(self, name: str, index: sympy.Expr, value: Any, mode: Any = None) -> None:
        var = self.args.output(name)
        dtype = V.graph.get_dtype(name)
        place = self.prepare_indexing(index)
        at, d = self._at(place), memory(dtype)[0]
        self.weight += 1
        self.stored.add(self._real(name))
        if mode is None:
            line = f"ST_{d}({var}, {at}, {value});"
            self.writes[line] = (place, value, dtype)
        elif mode == "atomic_add":
            self.alone = True
            line = f"{{ const idx at_ = {at}; ST_{d}({var}, at_, LD_{d}({var}, at_) + {value}); }}"
        else:
            raise UnsupportedError(f"store mode {mode}")
        if self.is_indirect_indexing(index):
            self.scatters = True
        if self.form == "groups" and not self.inside_reduction:
            line = f"if (LANE == 0) {{ {line} }}"
        self.stores.writeline(DeferredLine(name, line))

    def store_reduction(self, name: str, index: sympy.Expr, value: Any) -> None:
        prior, self.inside_reduction = self.inside_reduction, False
        try:
            at = self._at(self.prepare_indexing(index))
        finally:
            self.inside_reduction = prior
        dtype = V.graph.get_dtype(name)
        self.stored.add(self._real(name))
        line = f"ST_{memory(dtype)[0]}({self.args.output(name)}, {at}, {value});"
        if self.form == "groups":
            line = f"if (LANE == 0) {line}"
        self.post.writeline(DeferredLine(name, line))

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        if not (lower or upper):
            return
        value, bound = self._at(expr), self.index_to_str(size)
        tests = ([f"{value} < 0"] if lower else []) + ([f"{value} >= {bound}"] if upper else [])
        test = " || ".join(tests)
        if self._load_mask:
            test = f"{self._load_mask} && ({test})"
        self.tells = True
        # What is computed from a loop's own numbers cannot be set to 0: that element is left out.
        then = f"{value} = 0;" if _ASSIGNABLE.fullmatch(value) else "continue;"
        self.compute.writeline(f"if ({test}) {{ TELL(OUT_OF_RANGE, {value}, {bound}); {then} }}")

    def check_divisor(self, value: Any) -> None:
        self.tells = True
        test = f"{value} == 0" if not self._load_mask else f"{self._load_mask} && {value} == 0"
        self.compute.writeline(f"if ({test}) TELL(ZERO_DIVISION, 0, 0);")

    def device_assert_async(self, cond: Any, msg: str) -> None:
        raise UnsupportedError("an assertion in a fused kernel")

    # --- reductions ---------------------------------------------------------------------------------
    def reduction(self, dtype: Any, src_dtype: Any, reduction_type: Any, value: Any) -> Any:
        key = (src_dtype, reduction_type, value)
        if key not in self.cse.reduction_cache:
            self.cse.reduction_cache[key] = self._reduction(dtype, src_dtype, reduction_type, value)
        return self.cse.reduction_cache[key]

    def _result(self, name: str, dtype: torch.dtype) -> Any:
        full = f"{name}[l]" if self.form == "columns" else name
        var = self.create_cse_var(full, ValueRanges.unknown(), dtype, ())
        self.outside.add(var)
        return var

    def _reduction(self, dtype: Any, src_dtype: Any, how: str, value: Any) -> Any:
        n, self.counter = self.counter, self.counter + 1
        self.weight += 2
        kept = computed(src_dtype)
        t = value_type(kept)
        floating = t[0] == "f"
        if how in ("argmax", "argmin"):
            return self._place(how, n, t, value)
        if how in ("welford_reduce", "welford_combine"):
            narrow = getattr(value, "dtype", None) != torch.float64
            if how == "welford_reduce" and narrow and self.code.in_turn and self.code.has_float64:
                return self._moments(n, value)
            return self._welford(how, n, value)
        result = computed(dtype)
        if how in ("sum", "prod"):
            # Sums of float32 are kept in float64 on CPUs, as elsewhere in Causeway.
            a = (
                "f64"
                if value_type(result) == "f32" and self.code.in_turn and self.code.has_float64
                else value_type(result)
            )
            start = "0" if how == "sum" else "1"
            fold = "{a} + {b}" if how == "sum" else "{a} * {b}"
        elif how in ("max", "min"):
            a, result = t, kept
            if floating:
                start = "-INFINITY" if how == "max" else "INFINITY"
            elif kept == torch.bool:
                start = "0" if how == "max" else "1"
            else:
                limits = torch.iinfo(kept)
                start = number(limits.min if how == "max" else limits.max, kept)
            fold = "MAXIMUM({b}, {a})" if how == "max" else "MINIMUM({b}, {a})"
        elif how == "any":
            a, start, fold, result = "u8", "0", "(u8)({a} != 0 || {b} != 0)", torch.bool
        elif how == "xor_sum":
            a, start, fold = value_type(result), "0", f"({value_type(result)})({{a}} ^ {{b}})"
        else:
            raise UnsupportedError(f"reduction {how}")
        name, r = f"acc{n}", f"red{n}"
        if self.form == "rows":
            self.starts.writeline(f"{a} {name} = {start};")
            v = self._values(name, t, value)
            function = {"sum": f"row_sum_{t}", "max": f"row_max_{t}", "min": f"row_min_{t}"}
            if how == "max":
                self.same.largest[v] = r
            if floating and how in function:
                step = fold.format(a=name, b="b_")  # macros name what they compare three times
                self.chunk.writeline(
                    f"{{ const {a} b_ = {function[how]}({v}, r_n); {name} = {step}; }}"
                )
            else:
                step = fold.format(a=name, b=f"({a}){v}[l]")
                self.chunk.writeline(f"for (idx l = 0; l < r_n; ++l) {name} = {step};")
            self.folds.writeline(f"{value_type(result)} {r} = ({value_type(result)}){name};")
            return self._result(r, result)
        self._accumulate(name, a, start, fold, f"({a}){value}")
        self._fold(name, r, a, value_type(result), fold)
        return self._result(r, result)

    def _values(self, name: str, t: str, value: Any) -> str:
        """The array of a row's values that are reduced."""
        for other, array in self.folded:
            if (other, array) == (t, self.same.arrays.get(str(value))):
                return array
        array = f"{name}_v"
        self.folded.append((t, array))
        self.same.arrays[str(value)] = array
        self.compute.writeline(f"{array}[r_v] = {value};")
        return array

    def _accumulate(self, name: str, a: str, start: str, fold: str, value: str) -> None:
        lane = "[l]" if self.form == "columns" else ""
        if self.form == "columns":
            self.arrays.append(f"{a} {name}[{BLOCK}];")
            self.starts.writeline(f"for (int l = 0; l < lanes; ++l) {name}[l] = {start};")
        else:
            self.starts.writeline(f"{a} {name} = {start};")
        self.compute.writeline(f"{name}{lane} = {fold.format(a=name + lane, b=value)};")

    def _fold(self, name: str, r: str, a: str, t: str, fold: str) -> None:
        if self.form == "columns":
            self.arrays.append(f"{t} {r}[{BLOCK}];")
            self.folds.writeline(f"for (int l = 0; l < lanes; ++l) {r}[l] = ({t}){name}[l];")
        elif self.form == "groups":
            self.local.append(f"LOCAL {a} {name}_cells[{self.code.group}];")
            mine, other = f"{name}_cells[LANE]", f"{name}_cells[LANE + half_]"
            self._tree(f"{mine} = {name};", f"{mine} = {fold.format(a=mine, b=other)};")
            self.folds.writeline(f"{t} {r} = ({t}){name}_cells[0]; BARRIER;")
        else:
            self.folds.writeline(f"{t} {r} = ({t}){name};")

    def _tree(self, put: str, step: str) -> None:
        """Halves folded onto halves, in a fixed order: the same bits at each run."""
        half = f"{self.code.group} / 2"
        self.folds.writeline(f"{put} BARRIER;")
        self.folds.writeline(
            f"for (idx half_ = {half}; half_ > 0; half_ /= 2) {{ if (LANE < half_) {{ {step} }} BARRIER; }}"
        )

    def _place(self, how: str, n: int, t: str, value: Any) -> Any:
        """argmax and argmin: NaN goes before all, and the first of equals."""
        v, i = f"acc{n}", f"at{n}"
        sign = ">" if how == "argmax" else "<"
        columns = self.form == "columns"
        l = "[l]" if columns else ""
        if columns:
            self.arrays += [f"{t} {v}[{BLOCK}];", f"i64 {i}[{BLOCK}];"]
            self.starts.writeline(f"for (int l = 0; l < lanes; ++l) {{ {v}[l] = 0; {i}[l] = -1; }}")
        else:
            self.starts.writeline(f"{t} {v} = 0; i64 {i} = -1;")
        at = "r_at"
        better = f"({{w}} {sign} {{v}} || ({{w}} != {{w}} && {{v}} == {{v}}))"
        if self.form == "rows":
            array = self._values(v, t, value)
            if t[0] == "f":
                best = f"row_{how[3:]}_{t}({array}, r_n)"
                found = f"({array}[l_] == b_ || (b_ != b_ && {array}[l_] != {array}[l_]))"
                self.chunk.writeline(
                    f"{{ const {t} b_ = {best}; if ({i} < 0 || {better.format(w='b_', v=v)}) "
                    f"{{ idx l_ = 0; while (l_ + 1 < r_n && !{found}) ++l_; "
                    f"{v} = b_; {i} = r_first + l_; }} }}"
                )
            else:
                test = better.format(w=f"{array}[l]", v=v)
                self.chunk.writeline(
                    f"for (idx l = 0; l < r_n; ++l) if ({i} < 0 || {test}) "
                    f"{{ {v} = {array}[l]; {i} = r_first + l; }}"
                )
            return self._result(i, torch.int64)
        test = better.format(w=value, v=v + l)
        self.compute.writeline(f"if ({i}{l} < 0 || {test}) {{ {v}{l} = {value}; {i}{l} = {at}; }}")
        if self.form == "groups":
            c, k = f"{v}_cells", f"{i}_cells"
            self.local += [
                f"LOCAL {t} {c}[{self.code.group}];",
                f"LOCAL i64 {k}[{self.code.group}];",
            ]
            w, j = f"{c}[LANE + half_]", f"{k}[LANE + half_]"
            other = better.format(w=w, v=f"{c}[LANE]")
            same = (
                f"(({w} == {c}[LANE] || ({w} != {w} && {c}[LANE] != {c}[LANE])) && {j} < {k}[LANE])"
            )
            self._tree(
                f"{c}[LANE] = {v}; {k}[LANE] = {i};",
                f"if ({j} >= 0 && ({k}[LANE] < 0 || {other} || {same})) {{ {c}[LANE] = {w}; {k}[LANE] = {j}; }}",
            )
            self.folds.writeline(f"i64 {i}_best = {k}[0]; BARRIER;")
            return self._result(f"{i}_best", torch.int64)
        return self._result(i, torch.int64)

    def _moments(self, n: int, value: Any) -> tuple[Any, ...]:
        """Mean, squares and weight of float32 from sums in float64, without a division an element.

        A square of a float32 is exact there. What cancels is below float32's own resolution of the
        values, unless the mean is some 10^7 times the deviation, which float32 does not hold.
        """
        sums, squares = f"sum{n}", f"square{n}"
        if self.form == "rows":
            self.starts.writeline(f"f64 {sums} = 0, {squares} = 0;")
            array = self._values(sums, "f32", value)
            self.chunk.writeline(f"{sums} += row_sum_f32({array}, r_n);")
            self.chunk.writeline(f"{squares} += row_squares_f32({array}, r_n);")
        else:
            self._accumulate(sums, "f64", "0", "{a} + {b}", f"(f64){value}")
            self._accumulate(squares, "f64", "0", "{a} + {b}", f"(f64){value} * (f64){value}")
        names = [f"mean{n}_r", f"m2_{n}_r", f"weight{n}_r"]
        size = " * ".join(f"(f64){self._size(t)}" for t in self.range_trees if t.is_reduction)

        def results(s: str, q: str, into: list[str]) -> str:
            return (
                f"const f64 m_ = {s} / ({size}), v_ = {q} - {s} * m_; {into[0]} = (f32)m_; "
                f"{into[1]} = (f32)(v_ < 0 ? 0 : v_); {into[2]} = (f32)({size});"
            )

        if self.form == "columns":
            self.arrays += [f"f32 {x}[{BLOCK}];" for x in names]
            text = results(f"{sums}[l]", f"{squares}[l]", [f"{x}[l]" for x in names])
            self.folds.writeline(f"for (int l = 0; l < lanes; ++l) {{ {text} }}")
        else:
            self.folds.writeline(" ".join(f"f32 {x};" for x in names))
            self.folds.writeline(f"{{ {results(sums, squares, names)} }}")
        return tuple(self._result(x, torch.float32) for x in names)

    def _welford(self, how: str, n: int, value: Any) -> tuple[Any, ...]:
        names = [f"mean{n}", f"m2_{n}", f"weight{n}"]
        t = "f32"
        parts = (value, "0.0f", "1.0f") if how == "welford_reduce" else value
        dtype = getattr(parts[0], "dtype", None)
        if dtype == torch.float64:
            t = "f64"
        columns = self.form == "columns"
        l = "[l]" if columns else ""
        if columns:
            self.arrays += [f"{t} {x}[{BLOCK}];" for x in names]
            self.starts.writeline(
                "for (int l = 0; l < lanes; ++l) { "
                + " ".join(f"{x}[l] = 0;" for x in names)
                + " }"
            )
        else:
            self.starts.writeline(" ".join(f"{t} {x} = 0;" for x in names))
        m, s, w = (x + l for x in names)

        def combine(m: str, s: str, w: str, bm: Any, bs: Any, bw: Any) -> str:
            return (
                f"{{ const {t} d_ = ({t}){bm} - {m}, n_ = {w} + ({t}){bw}, f_ = n_ == 0 ? 0 : ({t}){bw} / n_; "
                f"{m} += d_ * f_; {s} += ({t}){bs} + d_ * d_ * {w} * f_; {w} = n_; }}"
            )

        if self.form == "rows" and how == "welford_reduce":
            array = self._values(names[0], t, value)
            part = combine(m, s, w, "m_", f"row_spread_{t}({array}, m_, r_n)", "r_n")
            self.chunk.writeline(
                f"{{ const {t} m_ = row_sum_{t}({array}, r_n) / ({t})r_n; {part} }}"
            )
        else:
            self.carried |= not columns
            self.compute.writeline(combine(m, s, w, *parts))
        results = [f"{x}_r" for x in names]
        if columns:
            self.arrays += [f"{t} {x}[{BLOCK}];" for x in results]
            for x, r in zip(names, results, strict=True):
                self.folds.writeline(f"for (int l = 0; l < lanes; ++l) {r}[l] = {x}[l];")
        elif self.form == "groups":
            cells = [f"{x}_cells" for x in names]
            self.local += [f"LOCAL {t} {c}[{self.code.group}];" for c in cells]
            self._tree(
                " ".join(f"{c}[LANE] = {x};" for c, x in zip(cells, names, strict=True)),
                combine(*(f"{c}[LANE]" for c in cells), *(f"{c}[LANE + half_]" for c in cells)),
            )
            self.folds.writeline(
                " ".join(f"{t} {r} = {c}[0];" for c, r in zip(cells, results, strict=True))
                + " BARRIER;"
            )
        else:
            self.folds.writeline(
                " ".join(f"{t} {r} = {x};" for x, r in zip(names, results, strict=True))
            )
        return tuple(
            self._result(r, torch.float64 if t == "f64" else torch.float32) for r in results
        )

    # --- loops --------------------------------------------------------------------------------------
    def _size(self, tree: Any) -> str:
        return f"{tree.prefix}numel"

    def _text(self, expr: sympy.Expr) -> str:
        return f"({self.index_to_str(expr)})"

    def _digit(self, entry: Any, index: str) -> str:
        """An entry's value, from its dimension's flat index."""
        text = index
        if entry.divisor != 1:
            text = f"({text} / {self._text(entry.divisor)})"
        if not V.graph.sizevars.statically_known_equals(
            entry.divisor * entry.length, entry.root.numel
        ):
            text = f"({text} % {self._text(entry.length)})"
        return text

    def _entries(self, tree: Any) -> list[Any]:
        return list(tree.nodes.values())

    def _inner(self, tree: Any) -> sympy.Expr | None:
        """How many neighbours share all digits but the last; None: all of them."""
        sizes = [e.length if e.divisor == 1 else e.divisor for e in self._entries(tree)]
        sizes = [s for s in sizes if s != 1]
        if not sizes:
            return None
        vars_ = V.graph.sizevars
        best = min(sizes, key=lambda s: vars_.optimization_hint(s, fallback=1024))
        if vars_.statically_known_equals(best, tree.numel):
            return None
        if not all(vars_.statically_known_multiple_of(s, best) for s in [*sizes, tree.numel]):
            return sympy.S.Zero
        if vars_.optimization_hint(best, fallback=1024) < 8:
            return sympy.S.Zero
        return best

    def _digits(
        self, tree: Any, inner: sympy.Expr | None, row: str, last: str
    ) -> tuple[list[str], list[str]]:
        """(declarations once a row, declarations an element) of a tree's digits."""
        outer, inside = [], []
        flat = f"{tree.prefix}index"
        for e in self._entries(tree):
            if inner is None:
                text = last if e.divisor == 1 else self._digit(e, last)
                inside.append(f"const idx {e.name} = {text};")
            elif inner == 0:
                inside.append(f"const idx {e.name} = {self._digit(e, flat)};")
            elif e.divisor == 1 and V.graph.sizevars.statically_known_equals(e.length, inner):
                inside.append(f"const idx {e.name} = {last};")
            elif e.divisor == 1:
                parts = f"({row} % ({self._text(e.length)} / {self._text(inner)}))"
                if V.graph.sizevars.statically_known_equals(e.length, tree.numel):
                    parts = row
                outer.append(f"const idx {e.name}_from = {parts} * {self._text(inner)};")
                inside.append(f"const idx {e.name} = {e.name}_from + {last};")
            else:
                text = f"({row} / ({self._text(e.divisor)} / {self._text(inner)}))"
                if not V.graph.sizevars.statically_known_equals(e.divisor * e.length, tree.numel):
                    text = f"({text} % {self._text(e.length)})"
                outer.append(f"const idx {e.name} = {text};")
        if inner == 0:
            inside.insert(0, f"const idx {flat} = {last};")
        return outer, inside

    def _reduction_loop(self, body: list[str]) -> list[str]:
        """Loops over what is reduced, around `body`."""
        (tree,) = [t for t in self.range_trees if t.is_reduction]
        n = self._size(tree)
        inner = self._inner(tree)
        if self.form == "groups" or (self.form == "items"):
            step = ("LANE", "LANES") if self.form == "groups" else ("0", "1")
            _, inside = self._digits(tree, sympy.S.Zero, "", "r_at")
            return [
                f"for (idx r_at = {step[0]}; r_at < {n}; r_at += {step[1]}) {{",
                *inside,
                *body,
                "}",
            ]
        count = n if inner is None or inner == 0 else self._text(inner)
        outer, inside = self._digits(tree, inner, "r_row", "r_j")
        at = (
            "const idx r_at = r_j;"
            if inner is None or inner == 0
            else f"const idx r_at = r_row * {count} + r_j;"
        )
        lines: list[str] = []
        if self.form == "columns":
            free = "" if self._orders() else "INDEPENDENT\n"
            lines = [
                f"for (idx r_j = 0; r_j < {count}; ++r_j) {{",
                at,
                *inside,
                f"{free}for (int l = 0; l < lanes; ++l) {{",
                "@COLUMN",
                *body,
                "}",
                "}",
            ]
        else:
            lines = self._row_loop(tree, inner, count, at, inside, body)
        if inner is None or inner == 0:
            return lines
        rows = f"{n} / {count}"
        if whole(inner) is None:  # a size that depends on data may be 0
            rows = f"({count} > 0 ? {rows} : 0)"
        return [f"for (idx r_row = 0; r_row < {rows}; ++r_row) {{", *outer, *lines, "}"]

    def _hoisted(
        self, lines: list[Any], digits: list[str], changing: set[str]
    ) -> tuple[list[Any], list[Any]]:
        """(what is the same for all elements of a loop, the rest). A compiler leaves most of it in
        the loop: it does not know that a store changes no memory that is read.

        `digits` are declared, and `changing` are, for each element.
        """
        changing = changing | {m[1] for d in digits for m in [_DECLARED.match(d)] if m}
        for line in lines:  # an index that is out of range is set to 0
            if not (isinstance(line, str) and _DEFINITION.match(line)):
                changing.update(_ASSIGNED.findall(str(getattr(line, "line", line))))
        shared, rest = [], []
        for line in lines:
            found = _DEFINITION.match(line) if isinstance(line, str) else None
            if (
                found
                and found[2] not in changing
                and not changing.intersection(_NAME.findall(found[3]))
                and self.read_from.get(found[2]) not in self.stored
            ):
                shared.append(line)
                continue
            if found:
                changing.add(found[2])
            rest.append(line)
        return shared, rest

    def _row_loop(
        self, tree: Any, inner: Any, count: str, at: str, inside: list[str], body: list[Any]
    ) -> list[Any]:
        """A loop over neighbours of a row, in chunks that are folded one after the other."""
        length = whole(tree.numel) if inner is None or inner == 0 else whole(inner)
        free = "INDEPENDENT" if length is not None and length < _MANY else "INDEPENDENT_MANY"
        if self._orders() or self.carried:
            free = ""
        drawn, plain = self._drawn(tree, inner, "r_j")
        of_each = {"r_j", "r_v", "r_at", *(r.name for r in drawn)}
        shared, body = self._hoisted(body, [*inside, *plain], of_each)
        if not self.folded and not drawn:
            return [
                "{",
                *shared,
                free,
                f"for (idx r_j = 0; r_j < {count}; ++r_j) {{",
                at,
                *inside,
                *plain,
                *body,
                "}",
                "}",
            ]
        cells = [*self.folded, *(("u32", f"{r.name}_v") for r in drawn)]
        at_once = length is not None and 0 < length * len(cells) <= WHOLE
        size = length if at_once else CHUNK
        complete = at_once and (inner is None or inner == 0)
        for t, array in self.folded:
            self.same.keep(array, t, complete and not self.carried)
        self.before += [f"{t} {array}[{size}];" for t, array in cells]
        begin = ["{", *shared] + (
            [f"{{ const idx r_b = 0, r_n = {count};"]
            if at_once
            else [
                f"for (idx r_b = 0; r_b < {count}; r_b += {CHUNK}) {{",
                f"const idx r_n = {count} - r_b < {CHUNK} ? {count} - r_b : {CHUNK};",
            ]
        )
        first = "r_b" if inner is None or inner == 0 else f"r_row * {count} + r_b"
        return [
            *begin,
            f"const idx r_first = {first};",
            *self._fills(drawn, ["const idx r_j = r_b;", at, *inside], "r_n"),
            free,
            "for (idx r_v = 0; r_v < r_n; ++r_v) {",
            "const idx r_j = r_b + r_v;",
            at,
            *inside,
            *(f"const u32 {r.name} = {r.name}_v[r_v];" for r in drawn),
            *plain,
            *body,
            "}",
            *_lines(self.chunk),
            "}",
            "}",
        ]

    # --- random numbers -----------------------------------------------------------------------------
    def random_word(self, seed: Any, offset: Any, stream: int) -> str:
        """32 random bits. In a loop over neighbours they are drawn before it, four in a call."""
        index, text = self.index_of.get(str(offset)), str(seed)
        while text in self.definitions:
            text = self.definitions[text]
        neighbours = self.form == "points" or (self.form == "rows" and self.inside_reduction)
        if index is None or not text.startswith("LD_") or not neighbours:
            return f"random_word({seed}, {offset}, {stream}u)"
        drawn = Random(f"rnd{self.counter}", text, index, stream)
        self.counter += 1
        self.randoms.append(drawn)
        return drawn.name

    def _drawn(self, tree: Any, inner: Any, last: str) -> tuple[list[Random], list[str]]:
        """(those that are drawn before the loop over `last`, declarations of the others)."""
        before, plain = [], []
        for drawn in self.randoms:
            if self._is_next(drawn.index, tree, inner):
                before.append(drawn)
            else:
                word = f"random_word({drawn.seed}, {self._at(drawn.index)}, {drawn.stream}u)"
                plain.append(f"const u32 {drawn.name} = {word};")
        self.randoms = []
        return before, plain

    def _is_next(self, index: sympy.Expr, tree: Any, inner: Any) -> bool:
        """Whether an index grows by one from a neighbour to the next."""
        if inner is not None and inner == 0:
            return False
        moving = [e for e in self._entries(tree) if e.divisor == 1 or inner is None]
        symbols = [s for s in index.free_symbols if str(s) in {e.name for e in moving}]
        if len(symbols) != 1 or not any(
            e.divisor == 1 and e.name == str(symbols[0]) for e in moving
        ):
            return False
        return bool(sympy.expand(index.subs(symbols[0], symbols[0] + 1) - index) == 1)

    def _fills(self, drawn: list[Random], position: list[str], n: str) -> list[str]:
        return [
            line
            for r in drawn
            for line in (
                "{",
                *position,
                f"random_row({r.seed}, {self._at(r.index)}, {r.stream}u, {r.name}_v, {n});",
                "}",
            )
        ]

    def _orders(self) -> bool:
        """Whether elements must be taken one after another."""
        return self.alone or self.scatters or self.tells

    def codegen_body(self) -> None:
        buffers = (self.loads, self.compute, self.stores)
        if not any((*buffers, self.starts, self.folds, self.post)):
            return
        loop = self.inside_reduction and self.reduced
        lines = [line for b in buffers for line in _lines(b)]
        if loop:
            self.before: list[str] = []
            lines = self.same.replaced(lines)
            made = self._reduction_loop(lines)
            out = [*self.before, *_lines(self.starts), *made, *_lines(self.folds)]
            self.folded, self.carried = [], False
            post = _lines(self.post)
            if post:
                out += self._once(post)
        else:
            after = lines + _lines(self.post)
            out = self._once(after) if self.reduced else self.same.replaced(lines)
        for line in out:
            self.body.writeline(line)
        if self.reduced:
            if loop:
                self.cse.invalidate(self._kept())
                self.outside.update(self._kept())
            for tree in self.range_trees:
                tree.cache_clear()
        for b in (*buffers, self.starts, self.folds, self.post, self.chunk):
            b.clear()

    def _kept(self) -> OrderedSet[Any]:
        return OrderedSet([*self.outside])

    def _once(self, lines: list[Any]) -> list[Any]:
        """Lines that are done once a result."""
        if self.form != "columns":
            return lines
        return ["for (int l = 0; l < lanes; ++l) {", "@COLUMN", *lines, "}"]

    def disable_reduction(self) -> Any:
        around = super().disable_reduction()

        @contextlib.contextmanager
        def context() -> Any:
            before = set(self.cse._cache.values())
            with around:
                self._in_loop(False)
                yield
                self.outside.update(v for v in self.cse._cache.values() if v not in before)
                self.outside.update(self.cse.store_cache.values())
            self._in_loop(self.inside_reduction)

        return context()

    # --- the whole ----------------------------------------------------------------------------------
    def parameters(self) -> list[tuple[str, str, str]]:
        definitions, _, _, types = self.args.python_argdefs()
        out: list[tuple[str, str, str]] = []
        written = {
            str(v.inner_name)
            for v in self.args.inplace_buffers.values()
            if hasattr(v, "inner_name")
        }
        written |= {str(v) for v in self.args.output_buffers.values()}
        for definition, dtype in zip(definitions, types, strict=True):
            name = definition.name
            if name in self.cpu_scalars:
                floating = dtype.is_floating_point
                kind = "f64" if floating and self.code.has_float64 else "f32" if floating else "i64"
                out.append(("value", kind, name))
            elif isinstance(dtype, torch.dtype):
                out.append(("out" if name in written else "in", memory(dtype)[1], name))
            else:
                out.append(("value", "idx", name))
        out += [
            ("value", value_type(self.number_dtype(expr)), name)
            for expr, name in self.numbers.items()
        ]
        out += [("value", "idx", f"{tree.prefix}numel") for tree in self._dynamic()]
        if self.tells:
            out.append(("tells", "", ""))
        return out

    def _dynamic(self) -> list[Any]:
        return [
            t
            for t in self.range_trees
            if whole(t.numel) is None and (not t.is_reduction or self.reduced)
        ]

    def codegen_kernel(self, name: str | None = None) -> Any:
        self.codegen_body()
        points = [t for t in self.range_trees if not t.is_reduction]
        sizes = [
            f"const idx {t.prefix}numel = {self._text(t.numel)};"
            for t in self.range_trees
            if isinstance(t.numel, (int, sympy.Integer)) and (not t.is_reduction or self.reduced)
        ]
        total = " * ".join(f"(idx){self._size(t)}" for t in points) or "1"
        body = _lines(self.body)
        lines = [*sizes, *self.local]
        if self.form == "points":
            lines += self._points(points, total, body)
        elif self.form == "columns":
            lines += self._columns(points, total, body)
        else:
            lines += self._each(points, total, body)
        text = finished(lines)
        lanes = self.code.group if self.form == "groups" else 0
        self.text = KernelText("", self.parameters(), text, self._cost(), lanes)
        return f"/* {self.text.parameters} */\n{text}"

    def _cost(self) -> float:
        """Of what a launch counts as a unit."""
        cost = 2.0 * max(self.weight, 1) * (self._reduction_size() if self.reduced else 1)
        return float(cost * (BLOCK if self.form == "columns" else 1))

    def _flat(self, points: list[Any], u: str) -> list[str]:
        """Digits of all dimensions, from an element's number."""
        out, rest = [], u
        for k, tree in enumerate(reversed(points)):
            last = k == len(points) - 1
            flat = f"{tree.prefix}index"
            out.append(f"const idx {flat} = {rest if last else f'({rest}) % {self._size(tree)}'};")
            out += [f"const idx {e.name} = {self._digit(e, flat)};" for e in self._entries(tree)]
            if not last:
                out.append(f"const idx rest{k} = ({rest}) / {self._size(tree)};")
                rest = f"rest{k}"
        return out

    def _each(self, points: list[Any], total: str, body: list[str]) -> list[str]:
        if self.form == "groups":
            begin = [
                f"const idx u_total = {total};",
                "for (idx u = GROUP; u < u_total; u += GROUPS) {",
            ]
        elif self.alone:
            begin = [
                f"const idx u_total = {total};",
                "for (idx u = 0; u < u_total && item == 0; ++u) {",
            ]
        else:
            begin = [
                f"const idx u_total = {total};",
                "for (idx u = FIRST(u_total), u_end = LAST(u_total); u < u_end; u += STEP) {",
            ]
        return [*begin, *self._flat(points, "u"), *body, "}"]

    def _rows_of(self, points: list[Any]) -> tuple[sympy.Expr | None, str, list[str], list[str]]:
        """(inner, its size, declarations a row, an element): a row is what has the last digit alone."""
        tree = points[-1]
        inner = self._inner(tree)
        count = self._size(tree) if inner is None or inner == 0 else self._text(inner)
        outer: list[str] = []
        row = "row"
        if len(points) > 1:
            across = "1" if inner is None or inner == 0 else f"({self._size(tree)} / {count})"
            outer += [f"const idx x_row = row % {across};", f"const idx y_row = row / {across};"]
            outer += self._flat(points[:-1], "y_row")
            row = "x_row"
        digits, inside = self._digits(tree, inner, row, "j")
        return inner, count, outer + digits, inside

    def _across(self, points: list[Any], body: list[Any]) -> list[str]:
        """What is loaded and stored across a row: neighbours lie close in the dimension around it,
        as in the copy of a transpose. Variables, and lines that store.
        """
        if len(points) != 2 or self._orders() or self.randoms:
            return []
        hint = V.graph.sizevars.optimization_hint
        inner = [self._inner(tree) for tree in points]
        counts = [t.numel if i is None else i for i, t in zip(inner, points, strict=True)]
        if 0 in inner or any(hint(count, fallback=1024) < SHORT_TILE for count in counts):
            return []

        def crosses(index: sympy.Expr) -> bool:
            moves = any(e.symbol() in index.free_symbols for e in self._last(points[1]))
            neighbours = [self._is_next(index, t, i) for t, i in zip(points, inner, strict=True)]
            return moves and neighbours == [True, False]

        found = []
        for line in body:
            match = _DEFINITION.match(line) if isinstance(line, str) else None
            text = str(getattr(line, "line", line))
            if match and match[2] in self.places:
                if (
                    crosses(self.places[match[2]][0])
                    and self.read_from[match[2]] not in self.stored
                ):
                    found.append(match[2])
            elif text in self.writes and isinstance(line, DeferredLine):
                place, value, _ = self.writes[text]
                if crosses(place) and getattr(value, "dtype", None) is not None:
                    found.append(text)
        return found

    def _last(self, tree: Any) -> list[Any]:
        """The digits that change from a neighbour to the next."""
        return [e for e in self._entries(tree) if e.divisor == 1]

    def _tiles(self, points: list[Any], body: list[Any], across: list[str]) -> list[Any]:
        """A loop over tiles of two dimensions. What lies across goes through arrays, from and to
        memory whole lines at a time.
        """
        outer, inside, counts = [], [], []
        for tree, last in zip(points, ("(top + t)", "j"), strict=True):
            inner = self._inner(tree)
            counts.append(self._size(tree) if inner is None else self._text(inner))
            digits = self._digits(tree, inner, f"{tree.prefix}_row", last)
            outer += digits[0]
            inside.append(digits[1])
        dtypes = [self.writes[x][2] if x in self.writes else self.places[x][2] for x in across]
        high = 64 // max(dtype.itemsize for dtype in dtypes)
        place = f"(j - left) * {high} + t"

        def lines_of_memory(what: str) -> str:
            each = f"{' '.join(inside[0])} {what} }} }}"
            columns = f"for (idx j = left; j < right; ++j) {{ {' '.join(inside[1])}\nINDEPENDENT\n"
            whole, part = (
                f"{columns}for (int t = 0; t < {n}; ++t) {{ {each}" for n in (high, "rows")
            )
            return f"if (rows == {high})\n{whole}\nelse\n{part}"

        begin, lines, end = list[Any](), list[Any](), list[Any]()
        for line in body:
            found = _DEFINITION.match(line) if isinstance(line, str) else None
            text = str(getattr(line, "line", line))
            if found and found[2] in across:
                t, name, load = found.groups()
                begin.append(f"{t} {name}_tile[{WIDTH} * {high}];")
                begin.append(lines_of_memory(f"{name}_tile[{place}] = {load};"))
                lines.append(f"{t} {name} = {name}_tile[{place}];")
            elif text in across:
                value, array = self.writes[text][1], f"out{len(end)}_tile"
                begin.append(f"{value_type(value.dtype)} {array}[{WIDTH} * {high}];")
                lines.append(DeferredLine(line.name, f"{array}[{place}] = {value};"))
                stored = text.removesuffix(f"{value});") + f"{array}[{place}]);"
                end.append(DeferredLine(line.name, lines_of_memory(stored)))
            else:
                lines.append(line)
        shared, lines = self._hoisted(lines, inside[1], {"j"})
        sizes = [self._size(tree) for tree in points]
        return [
            f"const idx y_count = {counts[0]}, x_count = {counts[1]};",
            f"const idx high_ = (y_count + {high - 1}) / {high}, wide_ = (x_count + {WIDTH - 1}) / {WIDTH};",
            f"const idx y_tiles = y_count > 0 ? {sizes[0]} / y_count * high_ : 0;",
            f"const idx x_tiles = x_count > 0 ? {sizes[1]} / x_count * wide_ : 0;",
            "const idx u_total = y_tiles * x_tiles;",
            "for (idx u = FIRST(u_total), u_end = LAST(u_total); u < u_end; ++u) {",
            "const idx x_tile = u / y_tiles, y_tile = u - x_tile * y_tiles;",
            "const idx y_row = y_tile / high_, x_row = x_tile / wide_;",
            f"const idx top = (y_tile - y_row * high_) * {high}, left = (x_tile - x_row * wide_) * {WIDTH};",
            f"const int rows = y_count - top < {high} ? (int)(y_count - top) : {high};",
            f"const idx right = x_count - left < {WIDTH} ? x_count : left + {WIDTH};",
            *outer,
            *begin,
            "for (int t = 0; t < rows; ++t) {",
            *inside[0],
            *shared,
            "INDEPENDENT",
            "for (idx j = left; j < right; ++j) {",
            *inside[1],
            *lines,
            "}",
            "}",
            *end,
            "}",
        ]

    def _points(self, points: list[Any], total: str, body: list[str]) -> list[str]:
        if across := self._across(points, body):
            return self._tiles(points, body, across)
        _, count, outer, inside = self._rows_of(points)
        share = ("0", "u_total") if self.alone else ("FIRST(u_total)", "LAST(u_total)")
        guard = "if (item == 0) " if self.alone else ""
        free = "" if self._orders() else "INDEPENDENT_MANY"
        tree = points[-1]
        drawn, plain = self._drawn(tree, self._inner(tree), "j")
        of_each = {"j", "j_v", *(r.name for r in drawn)}
        shared, body = self._hoisted(body, [*inside, *plain], of_each)
        loop = [free, "for (idx j = from; j < to; ++j) {", *inside, *plain, *body, "}"]
        if drawn:
            loop = [
                f"for (idx j_b = from; j_b < to; j_b += {CHUNK}) {{",
                f"const idx j_n = to - j_b < {CHUNK} ? to - j_b : {CHUNK};",
                *(f"u32 {r.name}_v[{CHUNK}];" for r in drawn),
                *self._fills(drawn, ["const idx j = j_b;", *inside], "j_n"),
                free,
                "for (idx j_v = 0; j_v < j_n; ++j_v) {",
                "const idx j = j_b + j_v;",
                *inside,
                *(f"const u32 {r.name} = {r.name}_v[j_v];" for r in drawn),
                *plain,
                *body,
                "}",
                "}",
            ]
        return [
            f"const idx u_total = {total}, u_inner = {count};",
            f"{guard}for (idx i = {share[0]}, u_end = {share[1]}; i < u_end;) {{",
            "const idx row = i / u_inner, from = i - row * u_inner, left = u_end - i;",
            "const idx to = u_inner - from < left ? u_inner : from + left;",
            *outer,
            *shared,
            *loop,
            "i += to - from;",
            "}",
        ]

    def _columns(self, points: list[Any], total: str, body: list[str]) -> list[str]:
        _, count, outer, inside = self._rows_of(points)
        whole: list[str] = []
        for line in body:
            whole += ["const idx j = j_from + l;", *inside] if line == "@COLUMN" else [line]
        share = (
            "idx u = 0; u < u_blocks && item == 0; ++u"
            if self.alone
            else ("idx u = FIRST(u_blocks), u_end = LAST(u_blocks); u < u_end; u += STEP")
        )
        return [
            f"const idx u_total = {total}, u_inner = {count}, u_each = (u_inner + {BLOCK - 1}) / {BLOCK};",
            "const idx u_blocks = u_inner > 0 ? u_total / u_inner * u_each : 0;",
            f"for ({share}) {{",
            f"const idx row = u / u_each, j_from = (u - row * u_each) * {BLOCK};",
            f"const int lanes = u_inner - j_from < {BLOCK} ? (int)(u_inner - j_from) : {BLOCK};",
            *self.arrays,
            *outer,
            *whole,
            "}",
        ]

    def call_arguments(self, name: str) -> tuple[list[str], list[Any]]:
        """What a call of the kernel is given, as text, and of which types: the number of units of
        work, then its parameters."""
        wrapper = V.graph.wrapper_code
        definitions, given, _, types = self.args.python_argdefs()
        arguments = [
            f"{argument}.item()" if definition.name in self.cpu_scalars else str(argument)
            for definition, argument in zip(definitions, given, strict=True)
        ]
        kinds = list(types)
        arguments += [wrapper.codegen_python_sizevar(expr) for expr in self.numbers]
        kinds += [int if self.number_dtype(e) == torch.int64 else float for e in self.numbers]
        units, dynamic = "1", self._dynamic()
        for tree in self.range_trees:
            text = str(whole(tree.numel))
            if any(tree is one for one in dynamic):
                numel = tree.numel
                expr = (
                    numel
                    if isinstance(numel, sympy.Symbol)
                    else wrapper.generate_numel_expr(name, tree).inner
                )
                text = str(expr)
                arguments.append(text)
                kinds.append(int)
            if not tree.is_reduction:
                units = text if units == "1" else f"{units} * {text}"
        if self.form == "columns":
            units = f"({units} + {BLOCK - 1}) // {BLOCK}"
        if self.alone:
            units = f"min(1, {units})"
        return [units, *arguments], [int, *kinds]

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        wrapper = V.graph.wrapper_code
        arguments, kinds = self.call_arguments(name)
        if noting():
            wrapper.say_work(self._operations(), self._moved())
        wrapper.generate_kernel_call(
            name,
            arguments,
            device=V.graph.get_current_device_or_throw(),
            triton=False,
            arg_types=kinds,
        )
        wrapper.check_after(name, self._written())

    def codegen_nan_check(self) -> None:
        """What torch._inductor.config.nan_asserts asks for after each kernel."""
        for buffer in self._written():
            if V.graph.get_dtype(buffer).is_floating_point:
                wrapper = V.graph.wrapper_code
                wrapper.writeline(f"assert not {buffer}.isnan().any().item(), {buffer!r}")
                wrapper.writeline(f"assert not {buffer}.isinf().any().item(), {buffer!r}")

    def _operations(self) -> Any:
        """Operations on numbers with a point, as an expression of the sizes: one for each operation
        and element, of a function too."""
        total: Any = sympy.S.Zero
        seen = set()  # a mean and a variance are two nodes of one reduction
        for node in self.features.scheduler_nodes():
            body = getattr(node, "_body", None)
            names = {dep.name for dep in (*node.read_writes.reads, *node.read_writes.writes)}
            dtypes = [V.graph.get_dtype(n) for n in names if V.graph.try_get_buffer(n) is not None]
            if body is None or not any(d.is_floating_point for d in dtypes):
                continue
            graphs = [body.root_block.graph, *(b.graph for b in body.subblocks.values())]
            calls = [call for graph in graphs for call in graph.nodes]
            each = sum(map(operations_of, calls))
            sizes, reduced = node._sizes
            key = (str(node._sizes), str(node.read_writes.reads), *(c.target for c in calls))
            if node.is_reduction() and key in seen:
                continue
            seen.add(key)
            total += each * sympy_product([*sizes, *reduced])
        return total

    def _moved(self) -> Any:
        """The bytes that it reads and writes, as an expression of the sizes. Of what it reads, no
        more than it has elements."""
        read: dict[str, Any] = {}
        for node in self.features.scheduler_nodes():
            for dep in node.read_writes.reads:
                if isinstance(dep, MemoryDep):
                    own = sympy_product(dep.size) if dep.is_indirect() else dep.get_numel()
                    read[dep.name] = sympy.Max(read.get(dep.name, sympy.S.Zero), own)
        total: Any = sympy.S.Zero
        inplace = [b for b in self.args.inplace_buffers.values() if _is_there(b)]
        given = {*self.args.input_buffers, *(b.other_names[0] for b in inplace)}
        for name in sorted(given):
            if V.graph.try_get_buffer(name) is not None and name in read:
                whole_ = V.graph.get_numel(name)
                total += sympy.Min(whole_, read[name]) * V.graph.get_dtype(name).itemsize
        for name in self._written():
            total += V.graph.get_numel(name) * V.graph.get_dtype(name).itemsize
        return total

    def bytes_moved(self) -> int:
        """What the kernel reads and writes, at least; sizes that change are as they are now."""
        total = 0
        for name in {*self.args.input_buffers, *self._written()}:
            buffer = V.graph.try_get_buffer(name)
            if buffer is not None and isinstance(V.graph.get_dtype(name), torch.dtype):
                size = V.graph.sizevars.optimization_hint(V.graph.get_numel(name), fallback=0)
                total += int(size) * V.graph.get_dtype(name).itemsize
        return total

    def _written(self) -> list[str]:
        """The buffers that the kernel writes, by the names that they have after it."""
        inplace = {b.other_names[-1] for b in self.args.inplace_buffers.values() if _is_there(b)}
        plain = [name for name, b in self.args.output_buffers.items() if _is_there(b)]
        return [*plain, *sorted(inplace)]


# What computes nothing: memory, constants, types, and what only compares or selects numbers.
_NO_OPERATIONS = frozenset(
    """
    load store store_reduction index_expr constant to_dtype to_dtype_bitcast where masked output
    identity get_index set_indirect check_bounds indirect_indexing load_seed partial_accumulate
    logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor
    bitwise_left_shift bitwise_right_shift eq ne lt le gt ge isnan isinf device_assert_async and_
    or_ xor lshift rshift bucketize value_expr placeholder maximum minimum relu abs neg sign
    signbit copysign floor ceil trunc round max min any argmax argmin xor_sum
    """.split()  # noqa: SIM905 - a line of names is read at once
)
_SEVERAL = {"fma": 2, "welford_reduce": 4, "welford_combine": 6}


def operations_of(call: Any) -> int:
    """Operations of a node in a loop's body."""
    name = str(call.target)
    if name == "reduction" and len(call.args) > 3:
        name = str(call.args[3])  # which one it is
    if call.op != "call_method" or name in _NO_OPERATIONS:
        return 0
    return _SEVERAL.get(name, 1)


def _is_there(buffer: Any) -> bool:
    """Whether an argument of a kernel was not removed since."""
    return not isinstance(buffer, RemovedArg)


def _lines(buffer: IndentedBuffer) -> list[Any]:
    return list(buffer._lines)


def finished(lines: list[Any]) -> str:
    out = IndentedBuffer()
    for line in lines:
        if isinstance(line, DeferredLine):
            out.writeline(line)
        else:
            out.splice(str(line)) if "\n" in str(line) else out.writeline(str(line))
    return out.getvalue()
