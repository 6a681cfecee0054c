"""What runs on the chip on paper, call by call: operator, rung, shapes, and the line of source that
it comes from.

Calls of one operator with the same signature from the same line are one entry with a count, so that
a long loop costs no memory. A backward operator belongs to the line whose forward call recorded the
autograd node: nodes have numbers, and each forward call knows which numbers were given just before
it.
"""

from __future__ import annotations

import bisect
import os
import sys
import sysconfig
import threading
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

import torch

Source = tuple[str, int, str]  # file, line, function; ("", 0, "") where nobody knows
Signature = tuple[Any, ...]
NOWHERE: Source = ("", 0, "")

_MAKERS = ("aten::empty.memory_format", "aten::empty_strided")
_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
_OPTIMIZERS = os.path.join(_TORCH, "optim", "")
_STANDARD = os.path.join(sysconfig.get_path("stdlib"), "")
_PACKAGES = {os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")}


@dataclass
class Calls:
    """Calls alike: of one operator, rung, phase, line and signature."""

    operator: str
    rung: str
    phase: str  # forward, backward, optimizer
    source: Source
    signature: Signature  # a tensor is ("tensor", dtype, shape), else the value
    results: Signature
    count: int = 0
    error: str = ""


@dataclass
class Recorder:
    """Observes every operator while it is open: `with Recorder() as r: ...; r.calls`."""

    calls: dict[Any, Calls] = field(default_factory=dict)
    narrowed: dict[tuple[str, str, Source], int] = field(default_factory=dict)
    # Of a replayed trace: what each call stands for.
    weight: int = 1
    given: tuple[str, Source] | None = None  # phase and source

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._positions: dict[int, tuple[list[int], list[Source]]] = {}
        self._main = threading.main_thread().ident

    def __enter__(self) -> Recorder:
        from causeway import _C

        _C.set_observers(self._begin, self._end, [*_C.operators(), *_C.own_kernels()])
        return self

    def __exit__(self, *error: object) -> None:
        from causeway import _C

        _C.set_observers(None, None, [])

    def _begin(self, call: Any) -> Any:
        from causeway import _C

        if self.given is not None:
            return self.given
        if call.backward:
            return "backward", self._of_backward(call)
        source, phase = _where(sys._getframe(1))
        thread, position = _C.autograd_position()
        with self._lock:
            positions, sources = self._positions.setdefault(thread, ([], []))
            if not positions or positions[-1] < position:
                positions.append(position)
                sources.append(source)
        return phase, source

    def _of_backward(self, call: Any) -> Source:
        with self._lock:
            positions, sources = self._positions.get(call.node_thread, ([], []))
            # The first forward call that was made after the node.
            index = bisect.bisect_right(positions, call.node_sequence)
            if call.node and index < len(sources):
                return sources[index]
        source, _ = _where(sys._getframe(1))
        if source == NOWHERE and self._main is not None:
            source, _ = _where(sys._current_frames().get(self._main))
        return source

    def _end(self, call: Any, token: tuple[str, Source]) -> None:
        phase, source = token
        if call.rung == "core" and not call.error:
            if call.name in _MAKERS:
                self._note_narrowed(call, source)
            return
        args = tuple(map(describe, call.args()))
        results = tuple(map(describe, call.results()))
        rung = "error" if call.error else call.rung
        key = (call.name, rung, phase, source, args)
        with self._lock:
            if key not in self.calls:
                self.calls[key] = Calls(call.name, rung, phase, source, args, results)
            self.calls[key].count += self.weight
            self.calls[key].error = call.error

    def _note_narrowed(self, call: Any, source: Source) -> None:
        asked = next((a for a in call.args() if isinstance(a, torch.dtype)), None)
        made = next((r.dtype for r in call.results() if isinstance(r, torch.Tensor)), None)
        asked = asked or torch.get_default_dtype()
        if made is not None and asked != made:
            with self._lock:
                key = (name_of(asked), name_of(made), source)
                self.narrowed[key] = self.narrowed.get(key, 0) + self.weight


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def describe(value: Any) -> Any:
    """A value as a signature has it."""
    if isinstance(value, torch.Tensor):
        kind = "tensor" if value.layout == torch.strided else str(value.layout)
        return kind, name_of(value.dtype), tuple(value.shape)
    if isinstance(value, list | tuple):
        return tuple(map(describe, value))
    if isinstance(value, float):
        return "float"  # shapes do not depend on it, and an optimizer's change at each step
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def _where(frame: FrameType | None) -> tuple[Source, str]:
    """The innermost line of the user's, else of a package; and the phase."""
    phase = "forward"
    package = NOWHERE
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _kind(file)
        if kind == "optimizer":
            phase = "optimizer"
        elif kind == "user":
            return (file, frame.f_lineno, frame.f_code.co_name), phase
        elif kind == "package" and package == NOWHERE:
            package = (file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return package, phase


@cache
def _kind(file: str) -> str:
    if file.startswith(_OPTIMIZERS):
        return "optimizer"
    if file.startswith(("<", _TORCH, _OWN)):
        return "tool"
    if any(file.startswith(folder) for folder in _PACKAGES):
        return "package"
    return "tool" if file.startswith(_STANDARD) else "user"
