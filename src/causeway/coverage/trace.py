"""A profiler trace that was made elsewhere, on CUDA say: its operators, called again on the chip on
paper.

`torch.profiler.profile(record_shapes=True)` and `export_chrome_trace` write it. Only the outermost
operators count: what torch made of them on CUDA is not what it makes of them here, and the ladder
says that. Arguments come from the trace: dtypes and shapes of tensors, and the numbers where the
profiler kept them ("Concrete Inputs"). An operator that cannot be called again is named.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from causeway.coverage.record import NOWHERE, Recorder, Source
from causeway.errors import CausewayError

MOST_BYTES = 1 << 30  # of the text
MOST_ELEMENTS = 1 << 40  # of a tensor; memory is only reserved
MOST_DIMS = 64

_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long int": "int64", "long": "int64", "int": "int32", "short": "int16", "short int": "int16",
    "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip

# CUDA's own names, and the operator that stands there on every device.
_CUDA = {
    "aten::cudnn_convolution": "aten::convolution",
    "aten::_efficient_attention_forward": "aten::scaled_dot_product_attention",
    "aten::_flash_attention_forward": "aten::scaled_dot_product_attention",
}


@dataclass(frozen=True)
class Event:
    """One outermost operator of the trace."""

    name: str
    types: tuple[str, ...]
    dims: tuple[Any, ...]
    values: tuple[str, ...]  # "" where the profiler kept none
    phase: str
    source: Source = NOWHERE


class NotAgain(Exception):
    """The call cannot be made again, with the reason."""


def replay(path: Path, device: torch.device, recorder: Recorder) -> list[tuple[str, str]]:
    """Call every operator of the trace; those that could not be, with the reason."""
    skipped: dict[str, str] = {}
    for event, count in Counter(read(path)).items():
        recorder.weight, recorder.given = count, (event.phase, event.source)
        try:
            with torch.no_grad():
                _again(event, device)
        except NotAgain as why:
            skipped.setdefault(event.name, str(why))
        except Exception as error:  # torch refuses arguments that were guessed
            skipped.setdefault(event.name, str(error).split("\n")[0][:200])
    recorder.weight, recorder.given = 1, None
    return list(skipped.items())


# --- reading --------------------------------------------------------------------------------------


def read(path: Path) -> list[Event]:
    """The outermost operators. Raises CausewayError where the file is no such trace."""
    data = _json(path)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise CausewayError(f'{path} is no Chrome trace: it has no list "traceEvents"')
    spans = [s for s in map(_span, events) if s is not None]
    if not spans:
        raise CausewayError(f"{path} has no operators (events of category cpu_op)")
    found = list(_outermost(spans))
    if not any(event.types for event in found):
        raise CausewayError(
            f'{path}: its operators have no "Input Dims"; record it with '
            "torch.profiler.profile(record_shapes=True)"
        )
    return found


def _json(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CausewayError(f"{path} cannot be read: {error}") from None
    if len(raw) > MOST_BYTES:
        raise CausewayError(f"{path} has more than {MOST_BYTES >> 20} MiB of text; record less")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CausewayError(f"{path} is not JSON: {error}") from None


@dataclass(frozen=True)
class _Span:
    thread: tuple[str, str]
    begin: float
    end: float
    name: str
    category: str
    args: dict[str, Any]


def _span(event: Any) -> _Span | None:
    """An operator or an annotation of the user's; None for everything else."""
    if not isinstance(event, dict) or event.get("ph") != "X":
        return None
    category, name, args = event.get("cat"), event.get("name"), event.get("args", {})
    if category not in ("cpu_op", "Operator", "user_annotation", "python_function"):
        return None
    begin, length = _number(event.get("ts")), _number(event.get("dur", 0))
    if not isinstance(name, str) or not isinstance(args, dict) or begin is None or length is None:
        raise CausewayError(f"the trace is damaged: an event reads {str(event)[:120]!r}")
    thread = (str(event.get("pid")), str(event.get("tid")))
    return _Span(thread, begin, begin + length, name, str(category), args)


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and abs(value) < 1e18  # not a number is not less
    return float(value) if good else None


_OPERATOR = re.compile(r"(?!autograd::)[A-Za-z_]\w*::[A-Za-z_]\w*")
_PYTHON = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_INSIDE = re.compile(r"(^|/)(torch|site-packages|dist-packages)/|^<|^threading|runpy")


def _outermost(spans: list[_Span]) -> Iterator[Event]:
    """The operators that are inside no other, in the order of the trace."""
    threads: dict[tuple[str, str], list[_Span]] = {}
    for span in spans:
        threads.setdefault(span.thread, []).append(span)
    for of_thread in threads.values():
        of_thread.sort(key=lambda s: (s.begin, -s.end))
        open_spans: list[_Span] = []
        for span in of_thread:
            while open_spans and open_spans[-1].end <= span.begin:
                open_spans.pop()
            if _is_operator(span) and not any(map(_is_operator, open_spans)):
                yield _event(span, open_spans)
            open_spans.append(span)


def _is_operator(span: _Span) -> bool:
    return span.category in ("cpu_op", "Operator") and bool(_OPERATOR.fullmatch(span.name))


def _event(span: _Span, around: list[_Span]) -> Event:
    phase = "forward"
    source = NOWHERE
    for outer in around:
        if outer.name.startswith("autograd::engine"):
            phase = "backward"
        elif outer.name.startswith("Optimizer."):
            phase = "optimizer"
        match = _PYTHON.fullmatch(outer.name) if outer.category == "python_function" else None
        if match and not _INSIDE.search(match["file"]):
            source = (match["file"], int(match["line"]), match["function"])
    types, dims = span.args.get("Input type", []), span.args.get("Input Dims", [])
    values = span.args.get("Concrete Inputs", [])
    lists = all(isinstance(v, list) for v in (types, dims, values))
    if not lists or len(types) != len(dims) or not all(isinstance(t, str) for t in types):
        raise CausewayError(f"the trace is damaged: the inputs of {span.name} are no lists alike")
    return Event(span.name, tuple(types), _frozen(dims, span.name),
                 tuple(str(v) for v in values), phase, source)  # fmt: skip


def _frozen(dims: Any, name: str, depth: int = 0) -> Any:
    if isinstance(dims, list) and depth < 4:
        return tuple(_frozen(d, name, depth + 1) for d in dims)
    if isinstance(dims, int) and not isinstance(dims, bool) and 0 <= dims < 1 << 48:
        return dims
    raise CausewayError(f"the trace is damaged: a size of {name} is {str(dims)[:60]!r}")


# --- calling again --------------------------------------------------------------------------------


def _again(event: Event, device: torch.device) -> None:
    namespace, _, base = _CUDA.get(event.name, event.name).partition("::")
    packet = getattr(getattr(torch.ops, namespace, None), base, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise NotAgain("torch has no such operator here")
    if not event.types:
        raise NotAgain("the trace has no shapes of it")
    why = "no overload takes such arguments"
    for overload in packet.overloads():  # type: ignore[no-untyped-call]
        op = getattr(packet, overload)
        if len(op._schema.arguments) < len(event.types):
            continue
        try:
            args, kwargs = _arguments(op._schema, event, device)
        except NotAgain as reason:
            why = str(reason)
            continue
        op(*args, **kwargs)
        return
    raise NotAgain(why)


def _arguments(schema: Any, event: Event, device: torch.device) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for i, argument in enumerate(schema.arguments):
        if i >= len(event.types):
            if not argument.has_default_value():
                raise NotAgain("an argument is missing in the trace")
            break
        value = _value(argument, event, i, device)
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs


def _value(argument: Any, event: Event, i: int, device: torch.device) -> Any:
    kind, dims = event.types[i], event.dims[i]
    text = event.values[i] if i < len(event.values) else ""
    wanted = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
    optional = str(argument.real_type).startswith("Optional[")
    if wanted == "Tensor":
        if kind in _DTYPES:
            return _tensor(kind, dims, device)
        if kind in ("", "None") and optional:
            return None
        if kind in ("", "None"):
            return torch.Tensor()
        raise NotAgain(f"argument {argument.name} is {kind or 'nothing'}, not a tensor")
    if wanted in ("List[Tensor]", "List[Optional[Tensor]"):
        if kind not in ("TensorList", "GenericList", "TensorList[]"):
            raise NotAgain(f"argument {argument.name} is {kind or 'nothing'}, no list of tensors")
        return [_tensor("float", d, device) for d in dims]
    if kind in _DTYPES and dims:
        raise NotAgain(f"argument {argument.name} is a tensor")
    if wanted == "Device":
        return device
    if wanted in ("Generator", "Layout", "MemoryFormat", "ScalarType", "Storage", "Stream"):
        return None
    if text not in ("", "None"):
        return _literal(text, wanted, argument.name)
    if argument.has_default_value():
        return argument.default_value
    if optional:
        return None
    raise NotAgain(f"the trace has no value of argument {argument.name}")


def _literal(text: str, wanted: str, name: str) -> Any:
    """A number or a list as the profiler writes it, and nothing else."""
    try:
        value = ast.literal_eval(text) if len(text) < 4096 else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        value = text if wanted == "str" else None
    if wanted == "bool" and isinstance(value, int):
        return bool(value)
    if wanted.startswith("List[") and isinstance(value, int):
        return [value]
    flat = value if isinstance(value, list | tuple) else [value]
    if value is None or not all(isinstance(v, bool | int | float | str) for v in flat):
        raise NotAgain(f"the value of argument {name} is {text[:60]!r}")
    if wanted.startswith("List[bool"):
        return [bool(v) for v in flat]
    return list(value) if isinstance(value, tuple) else value


def _tensor(kind: str, dims: Any, device: torch.device) -> torch.Tensor:
    shape = [d for d in dims if isinstance(d, int)]
    if len(shape) != len(dims) or len(shape) > MOST_DIMS:
        raise NotAgain("a tensor's sizes are no list of numbers")
    count = 1
    for d in shape:
        count *= max(d, 1)
    if count > MOST_ELEMENTS:
        raise NotAgain(f"a tensor of {count} elements")
    return torch.empty(shape, dtype=getattr(torch, _DTYPES[kind]), device=device)
