"""Cases that somebody writes, in a TOML file: what docs/conformance.md describes.

    [[case]]
    op = "aten::div.Tensor_mode"
    dtypes = ["float32", "int32"]
    self = { shape = [3, 4] }
    other = { shape = [4], low = 1, high = 9, seed = 3 }
    rounding_mode = "floor"

Arguments have the names of the operator's schema; one that is left out has its default. Everything
is checked when the file is read: an operator, argument or key that is not known is an error, and so
is a call that torch's CPU refuses, since nothing could be compared.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from causeway.conformance.families import family
from causeway.conformance.reference import Case, on_cpu
from causeway.errors import TraceError
from causeway.numerics import Refused
from causeway.observe.arguments import overload

KEYS = {"op", "dtypes", "rtol", "atol"}  # of a case, besides its arguments
OF_TENSOR = {"shape", "dtype", "seed", "low", "high", "values", "strides"}


@dataclass(frozen=True)
class HandCase:
    """One call with one dtype. `tolerance` is (rtol, atol) of torch.allclose, None: the rule's."""

    operator: str
    dtype: torch.dtype
    number: int
    arguments: dict[str, Any] = field(default_factory=dict)
    tolerance: tuple[float, float] | None = None
    times: int = 1

    @property
    def title(self) -> str:
        return self.operator

    def inputs(self, schema: Any) -> tuple[Any, ...]:
        """The inputs in the schema's order, outputs left out, the same at each call."""
        return tuple(
            _value(self, a, self.arguments[a.name]) if a.name in self.arguments else a.default_value
            for a in schema.arguments
            if not a.is_out
        )


def rows_of(path: str, kind: str, where: str, error: type[Exception]) -> list[Any]:
    """The tables [[kind]] of a TOML file that has nothing else. Raises `error`, with `where`."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as why:
        raise error(f"{where}: {why.strerror}") from why
    except ValueError as why:  # no TOML, or no UTF-8
        raise error(f"{where}: {why}") from why
    rows = tables.pop(kind, None)
    if tables or not isinstance(rows, list) or not rows:
        more = f", and there is {next(iter(tables))!r}" if tables else ""
        raise error(f"{where}: expected tables [[{kind}]]{more}")
    return rows


def read(path: str) -> list[HandCase]:
    """The cases of a file, one for each dtype of each call. Raises TraceError, with the file, the
    number of the case and what is wrong.
    """
    found: list[HandCase] = []
    for number, row in enumerate(rows_of(path, "case", path, TraceError), 1):
        try:
            found += _cases(number, row)
        except (TraceError, RuntimeError, TypeError, ValueError) as error:
            words = str(error).splitlines()[0]
            raise TraceError(f"{path}: case {number}: {words}") from error
    return found


def _cases(number: int, row: dict[str, Any]) -> Iterator[HandCase]:
    operator = row.get("op", "")
    try:
        schema = overload(operator)._schema
    except Exception as error:
        words = f"op is {operator!r}, which is no operator, such as aten::add.Tensor"
        raise TraceError(words) from error
    known = [a for a in schema.arguments if not a.is_out]
    arguments = {name: value for name, value in row.items() if name not in KEYS}
    names = [a.name for a in known]
    for name in arguments:
        if name not in names:
            raise TraceError(f"{operator} has no argument {name!r}: it has {', '.join(names)}")
    missing = [a.name for a in known if a.name not in arguments and not a.has_default_value()]
    if missing:
        raise TraceError(f"{operator} needs {', '.join(missing)}")
    tolerance = None
    if "rtol" in row or "atol" in row:
        tolerance = (float(row.get("rtol", 0.0)), float(row.get("atol", 0.0)))
        if min(tolerance) < 0:
            raise TraceError("rtol and atol are not negative")
    dtypes = row.get("dtypes", ["float32"])
    for dtype in dtypes if isinstance(dtypes, list) else [dtypes]:
        case = HandCase(operator, _dtype(dtype), number, arguments, tolerance)
        _try(case, schema)
        yield case


def _try(case: HandCase, schema: Any) -> None:
    """Raise TraceError where the inputs cannot be made, or torch's CPU does not take them."""
    found = family(case.operator, frozenset({case.operator}))
    kind, form = found.forms[0]
    inputs = case.inputs(schema)
    try:
        on_cpu(Case(found, case.dtype, kind, form, case.title, "as it is", inputs))
    except Refused as error:
        name = str(case.dtype).removeprefix("torch.")
        raise TraceError(f"torch's CPU refuses the call in {name}: {error}") from error


def _dtype(name: Any) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise TraceError(f"{name!r} is no dtype, such as 'float32'")
    return dtype


def _value(case: HandCase, argument: Any, given: Any) -> Any:
    kind = str(argument.real_type)
    if isinstance(given, dict):
        if "Tensor" not in kind:
            raise TraceError(f"argument {argument.name!r} is {kind}, and a tensor is given")
        return _tensor(case, argument.name, given)
    if "ScalarType" in kind:
        return _dtype(given)
    if isinstance(given, list):
        return [_tensor(case, argument.name, g) if isinstance(g, dict) else g for g in given]
    if "Tensor" in kind:
        raise TraceError(f"argument {argument.name!r} is a tensor: expected {{ shape = [...] }}")
    return given


def _tensor(case: HandCase, name: str, given: dict[str, Any]) -> Tensor:
    for key in given:
        if key not in OF_TENSOR:
            keys = ", ".join(sorted(OF_TENSOR))
            raise TraceError(f"tensor {name!r} has the key {key!r}: known are {keys}")
    dtype = _dtype(given["dtype"]) if "dtype" in given else case.dtype
    if "values" in given:
        dense = torch.tensor(given["values"]).to(dtype)
    elif "shape" in given:
        dense = _drawn(given, dtype)
    else:
        raise TraceError(f"tensor {name!r} has neither shape nor values")
    if "strides" not in given:
        return dense
    strides = tuple(given["strides"])
    return torch.empty_strided(tuple(dense.shape), strides, dtype=dtype).copy_(dense)


def _drawn(given: dict[str, Any], dtype: torch.dtype) -> Tensor:
    """Numbers from `low` to `high`, -1 to 1 unless said, of integers -9 to 9; `seed` says which."""
    shape = tuple(given["shape"])
    generator = torch.Generator().manual_seed(int(given.get("seed", 0)))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point or dtype.is_complex:
        low, high = float(given.get("low", -1)), float(given.get("high", 1))
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return (torch.rand(shape, generator=generator, dtype=wide) * (high - low) + low).to(dtype)
    low = int(given.get("low", -9 if dtype.is_signed else 0))
    return torch.randint(low, int(given.get("high", 9)) + 1, shape, generator=generator).to(dtype)
