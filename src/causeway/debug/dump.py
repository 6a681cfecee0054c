"""Operators as they run, as text: which kernel served each, with what, to what.

Level 1 is a line a call: operator, who served it, where in the program. Level 2 adds arguments and
results with shape, stride, dtype and device; level 3 their values, printed as torch prints tensors
(torch.set_printoptions holds). Arguments are those before the call, so an in-place operator shows
both.

`causeway.dump(level)` and the settings `dump*` switch it, at any time. A change of os.environ is
seen too: Python tells of it (`environment`), and the next operator looks.
"""

from __future__ import annotations

import functools
import os
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch

from causeway import config, numerics
from causeway.errors import ConfigError
from causeway.observe import dispatch, observe
from causeway.observe.selection import Window, rank, world_size
from causeway.ops.ladder import Change
from causeway.trace import tensors, values

Target = str | Path | TextIO | Callable[[Any, str], None]


def dump(
    level: int,
    *,
    ops: str | Sequence[str] | None = None,
    steps: tuple[int, int] | None = None,
    ranks: Sequence[int] | None = None,
    to: Target | None = None,
) -> Change:
    """Dump operators from now on; as a context manager, until its end. Level 0 is off.

    `ops`: names or regular expressions; `steps`: (first, last), counted from 1; `ranks`: of a
    run of several processes. `to`: "stdout", "stderr", a path, which gets the rank before its
    ending where there are several (or takes {rank} and {pid}), an open file, or a function that is
    called with the call and the text. What is not given stays as the settings say.
    """
    if level and not dispatch.our_device():
        warnings.warn(
            "causeway: there is no device, so nothing will be dumped (`causeway doctor` says why)",
            stacklevel=2,
        )
    given: dict[str, Any] = {"dump": level, "dump_ops": ops, "dump_steps": steps}
    given |= {"dump_ranks": ranks, "dump_to": str(to) if isinstance(to, Path) else to}
    return Change({name: value for name, value in given.items() if value is not None})


class Dumper(observe.Observer):
    """Writes what it sees to a target."""

    def __init__(self, level: int, ops: Sequence[str], window: Window, to: Target) -> None:
        self.operators = list(ops) or ".*"
        self.level = level
        self.window = window
        self._write = _writer(to)

    def before(self, call: Any) -> None:
        if self.level > 1 and self.window.has(call.step):
            schema = call.op._schema.arguments
            lines = [
                self.lines(argument.name, value)
                for argument, value in zip(schema, call.args, strict=True)
            ]
            call.notes[self] = "".join(lines)

    def after(self, call: Any) -> None:
        if not self.level or not self.window.has(call.step):
            return
        indent = "  " * call.depth
        place = ", ".join(p for p in (f"step {call.step}", call.phase, call.module) if p)
        text = f"{indent}{call.name}  {served_by(call)}  [{place}]\n"
        if call.error:
            text = text[:-1] + f"  raised {call.error.splitlines()[0]}\n"
        if self.level > 1:
            body = call.notes.pop(self, "")
            names = [r.name for r in call.op._schema.returns]
            for k, value in enumerate(call.results):
                name = names[k] if k < len(names) and names[k] else "result"
                body += self.lines(f"-> {name}", value)
            text += textwrap.indent(body, indent + "    ")
        self._write(call, text)

    def lines(self, name: str, value: Any) -> str:
        """An argument or result as lines of text."""
        if isinstance(value, torch.Tensor):
            return f"{name}: {self.tensor(value)}\n"
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            return "".join(self.lines(f"{name}[{i}]", v) for i, v in enumerate(value))
        return f"{name}: {values.show(value)}\n"

    def tensor(self, t: torch.Tensor) -> str:
        record = tensors.describe(t)
        text = f"{record.dtype}{list(record.shape)}"
        if record.stride is not None:
            offset = f", offset {record.offset}" if record.offset else ""
            text += f", stride {list(record.stride)}{offset}"
            text += "".join(f", {name}" for name in _FORMATS if _is_laid_out(t, name))
        else:
            text += f", {record.layout}"
        text += f", {record.device}"
        text += ", requires_grad" if t.requires_grad else ""
        text += ", view" if t._is_view() else ""
        if self.level > 2 and tensors.has_values(t):
            text += "\n" + textwrap.indent(repr(tensors.at_home(t, copy=False)), "    ")
        return text


_FORMATS = ("channels_last", "channels_last_3d")


def _is_laid_out(t: torch.Tensor, name: str) -> bool:
    """Whether a tensor is dense in a memory format that is not torch's own."""
    dims = 5 if name.endswith("3d") else 4
    return (
        t.dim() == dims
        and not t.is_contiguous()
        and t.is_contiguous(memory_format=getattr(torch, name))
    )


def served_by(call: Any) -> str:
    """The rung and the kernel that served a call, such as "native: add.out of sim"."""
    rung = str(call.rung)
    if rung in ("native", "derived"):
        from causeway.state import state

        return f"{rung}: {_kernel(call.name)} of {state.vendor}"
    return {"host": "host: the CPU's kernel", "core": "core: Causeway's own kernel"}.get(rung, rung)


@functools.cache
def _kernel(name: str) -> str:
    """The operator that a vendor offers in whose kernel a call of `name` ends."""
    from causeway import _C

    offered = _C.offered()
    if name not in offered:  # then it is the form that writes into given outputs
        base = numerics.base_name(name)
        name = next((other for other in offered if numerics.base_name(other) == base), name)
    return name.removeprefix("aten::")


def _writer(to: Target) -> Callable[[Any, str], None]:
    lock = threading.Lock()
    if isinstance(to, str) and to not in ("stdout", "stderr"):
        return _to_file(to)
    if callable(to):
        return to

    def write(call: Any, text: str) -> None:
        # Looked up now: tests and notebooks put others in their place.
        stream = getattr(sys, to) if isinstance(to, str) else to
        assert not isinstance(stream, Path)
        with lock:
            stream.write(text)

    return write


def _to_file(to: str) -> Callable[[Any, str], None]:
    lock = threading.Lock()
    opened: dict[int, TextIO] = {}

    def file() -> TextIO:
        process = os.getpid()  # a forked process has a file of its own
        if process not in opened:
            path = Path(path_of(to, forked=bool(opened))).expanduser()
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                opened[process] = path.open("a", buffering=1, encoding="utf-8")
            except (OSError, ValueError) as error:
                raise ConfigError(f"setting 'dump_to' is {to!r}: {error}") from None
        return opened[process]

    def write(call: Any, text: str) -> None:
        with lock:
            file().write(text)

    file()
    return write


def path_of(to: str, *, forked: bool = False) -> str:
    """The file of this process: {rank} and {pid} filled in, or the rank before the ending."""
    if "{rank}" in to or "{pid}" in to:
        return to.replace("{rank}", str(rank())).replace("{pid}", str(os.getpid()))
    path = Path(to)
    if world_size() > 1:
        path = path.with_name(f"{path.stem}.rank{rank()}{path.suffix}")
    if forked:
        path = path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}")
    return str(path)


_running: Dumper | None = None


def apply() -> None:
    """Make what runs be what the settings say."""
    global _running
    level = config.get("dump")
    former = _running
    new = None
    if level:
        window = Window(config.get("dump_steps"), config.get("dump_ranks"))
        new = Dumper(level, config.get("dump_ops"), window, config.get("dump_to"))
        observe.add(new)  # first: where it raises, the former goes on
    _running = new
    if former is not None:
        observe.remove(former)
        former.level = 0  # a call under way has begun with it


def running() -> Dumper | None:
    """What the settings have looking on, if anything."""
    return _running
