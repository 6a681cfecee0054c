"""Arguments of an operator as JSON and back.

JSON has what most arguments are; the others are objects with one key that says their kind:
{"tensor": ...}, {"dtype": "float32"}, {"float": "nan"}. A value of another kind becomes
{"opaque": "<type>"}: it is shown and compared, and a call that has one cannot be run again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from causeway.trace import tensors
from causeway.trace.tensors import DTYPES, TensorRecord

DEPTH = 8  # of lists in lists: torch has two
LAYOUTS = {str(v)[6:]: v for v in vars(torch).values() if isinstance(v, torch.layout)}
FORMATS = {str(v)[6:]: v for v in vars(torch).values() if isinstance(v, torch.memory_format)}
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True)
class Generator:
    """A random generator of a device: which numbers it will give is not in a trace."""

    device: str


@dataclass(frozen=True)
class Device:
    """A device of the machine that recorded; another may not know its name."""

    name: str


@dataclass(frozen=True)
class Opaque:
    """Something that JSON cannot hold, by the name of its type."""

    type: str


def to_json(value: Any) -> Any:
    """What `from_json` reads; tensors are TensorRecords already."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, TensorRecord):
        return {"tensor": value.to_json()}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, complex):
        return {"complex": [to_json(value.real), to_json(value.imag)]}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, Generator):
        return {"generator": value.device}
    if isinstance(value, Opaque):
        return {"opaque": value.type}
    if isinstance(value, Device):
        return {"device": value.name}
    for kind, name in ((torch.dtype, "dtype"), (torch.device, "device"),
                       (torch.layout, "layout"), (torch.memory_format, "format")):  # fmt: skip
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    if isinstance(value, torch.Generator):
        return {"generator": str(value.device)}
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {"opaque": type(value).__name__}
    return {"opaque": type(value).__name__[:40]}


def from_json(value: Any, depth: int = 0) -> Any:
    """Arguments from JSON, with TensorRecords for tensors. Raises ValueError."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        if depth >= DEPTH:
            raise ValueError("lists in lists in lists")
        return [from_json(v, depth + 1) for v in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("an argument is neither a plain value nor one of a named kind")
    [(kind, inner)] = value.items()
    if kind == "tensor":
        return tensors.from_json(inner)
    if kind == "complex" and isinstance(inner, list) and len(inner) == 2:
        real, imaginary = (from_json(part, depth + 1) for part in inner)
        if isinstance(real, (int, float)) and isinstance(imaginary, (int, float)):
            return complex(real, imaginary)
    tables: dict[str, dict[str, Any]] = {
        "dtype": DTYPES, "layout": LAYOUTS, "format": FORMATS, "float": _SPECIAL,
    }  # fmt: skip
    if not isinstance(inner, str):
        raise ValueError(f"an argument of kind {kind[:40]!r} has no name")
    if kind in tables:
        if inner not in tables[kind]:
            raise ValueError(f"this torch has no {kind} {inner[:40]!r}")
        return tables[kind][inner]
    if kind == "device":
        return Device(inner[:40])
    if kind == "generator":
        return Generator(inner[:40])
    if kind == "opaque":
        return Opaque(inner[:40])
    raise ValueError(f"an argument is of the unknown kind {kind[:40]!r}")


def show(value: Any) -> str:
    """A value for people, in a line: float32[3, 4], 1, [0, 1], float16."""
    if isinstance(value, torch.Tensor):
        return str(tensors.describe(value))
    if isinstance(value, (list, tuple)):
        parts = [show(v) for v in value[:8]]
        if len(value) > 8:
            parts.append(f"... {len(value)} in all")
        return f"[{', '.join(parts)}]"
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, Generator):
        return f"generator of {value.device}"
    if isinstance(value, Opaque):
        return f"<{value.type}>"
    if isinstance(value, Device):
        return value.name
    return str(value).removeprefix("torch.")
