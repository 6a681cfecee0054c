"""Which lines of a program the steps of a captured graph come from.

While a `Lines` notes, the Python of a compiled graph says before each call where that comes from,
and so does a mode of torch for operators that are called one by one; before a fused kernel it says
what that computes too. Nothing is said otherwise.
"""

from __future__ import annotations

import bisect
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MOST = 3  # lines that a fused kernel is said to come from
_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))

_noting: Lines | None = None


class Lines:
    """Notes lines while it is entered."""

    def __init__(self) -> None:
        self.graph: Any = None  # what is captured
        self.first: list[int] = []  # steps from which on a line holds
        self.lines: list[str] = []
        self.work: list[tuple[int, int, int]] = []  # of fused kernels: step, operations, bytes

    def __enter__(self) -> Lines:
        global _noting
        _noting = self
        return self

    def __exit__(self, *about: Any) -> None:
        global _noting
        _noting = None

    def begin(self, graph: Any) -> None:
        """The steps are of `graph` from now on."""
        self.graph, self.first, self.lines, self.work = graph, [], [], []

    def note(self, line: str) -> None:
        """What is captured from now on comes from `line`."""
        if self.graph is None:
            return
        self.first.append(self.graph.noted())
        self.lines.append(line)

    def of_step(self, step: int) -> str:
        """The line of a captured step, or "" where none was said."""
        found = bisect.bisect(self.first, step) - 1
        return self.lines[found] if found >= 0 else ""


class CallLines(TorchFunctionMode):
    """While it is entered, calls of torch's functions say their lines, as a compiled graph does."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        at(_line_of_frame(sys._getframe(1)))
        return func(*args, **(kwargs or {}))


def noting() -> bool:
    """Whether a compiled graph is to say its lines."""
    return _noting is not None


def at(line: str) -> None:
    """Called by the Python of a compiled graph: what follows comes from `line`."""
    if _noting is not None:
        _noting.note(line)


def work(operations: int, moved: int) -> None:
    """Called by the Python of a compiled graph: what the kernel that follows computes, and the
    bytes that it reads and writes."""
    if _noting is not None and _noting.graph is not None:
        _noting.work.append((_noting.graph.noted(), int(operations), int(moved)))


def of_nodes(nodes: Sequence[Any]) -> str:
    """The lines that operators of a graph come from, as "file:line", of several with commas."""
    found = dict.fromkeys(filter(None, map(_line_of_node, nodes)))
    more = ", …" if len(found) > _MOST else ""
    return ", ".join(list(found)[:_MOST]) + more


def _line_of_node(node: Any) -> str:
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(_LIBRARIES)]
    torchs = [frame for frame in frames if frame[0].startswith(_LIBRARIES[0])]
    return next((f"{short(f)}:{line}" for f, line in reversed(own or torchs)), "")


def _line_of_frame(frame: FrameType | None) -> str:
    inner = ""
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith(_LIBRARIES):
            # Below the export's own frames is the program that exports, and not the model.
            return f"{short(file)}:{line}"
        if file.startswith(_LIBRARIES[1]) and inner:
            return inner
        if not inner and file.startswith(_LIBRARIES[0]):
            inner = f"{short(file)}:{line}"
        frame = frame.f_back
    return inner


def short(file: str) -> str:
    """A path without what is of this machine: from the working folder, or from a library's name."""
    parts = Path(file).parts
    if "site-packages" in parts:
        return "/".join(parts[len(parts) - parts[::-1].index("site-packages") :])
    try:
        return str(Path(file).relative_to(os.getcwd()))
    except ValueError:
        return Path(file).name
