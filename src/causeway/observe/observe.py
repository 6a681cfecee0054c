"""Observers: Python that is called before and after each selected operator of the device.

The core asks (csrc/ladder/observe.h): on whatever thread an operator runs, in forward and backward,
inside composites and decompositions, on any rung, and for Causeway's own kernels too. Operators
that no observer selected run as fast as ever. An observer's own operators are not observed; they
run outside of autograd, inference mode, torch's modes and transforms.

Left out: kernels that others registered for the device (torch.library.impl), which the core does
not see.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from causeway import _C
from causeway.errors import CausewayError, ConfigError
from causeway.observe import modules, steps
from causeway.observe.arguments import overload
from causeway.ops import ladder


class ObservedCall:
    """One call of an operator.

    Arguments and results are the tensors themselves: what keeps a Call keeps them. `module`,
    `step`, `phase` and `stack` are those of the moment when they are asked for: ask within
    `before` or `after`.
    """

    __slots__ = ("_args", "_raw", "_results", "notes")

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._args: tuple[Any, ...] | None = None
        self._results: tuple[Any, ...] | None = None
        self.notes: dict[Any, Any] = {}
        """For observers: what `before` keeps for `after`, by observer."""

    @property
    def name(self) -> str:
        """ "aten::add.out"."""
        return str(self._raw.name)

    @property
    def op(self) -> OpOverload:
        return overload(self.name)

    @property
    def args(self) -> tuple[Any, ...]:
        """All arguments in the schema's order, defaults included. Absent tensors are None."""
        if self._args is None:
            self._args = self._raw.args()
        return self._args

    @property
    def results(self) -> tuple[Any, ...]:
        """What came back, a value for each return of the schema; () before, or after an error."""
        if self._results is None or not self._results:
            self._results = self._raw.results()
        return self._results

    @property
    def rung(self) -> str:
        """Who served it: "native" to "host", or "core" for Causeway's own kernels. After only."""
        return str(self._raw.rung)

    @property
    def error(self) -> str:
        """What the operator raised, "" for nothing. After only."""
        return str(self._raw.error)

    @property
    def sequence(self) -> int:
        """Calls observed in this process before this one."""
        return int(self._raw.sequence)

    @property
    def thread(self) -> int:
        """threading.get_ident() of its thread."""
        return int(self._raw.thread)

    @property
    def depth(self) -> int:
        """How many observed calls it is part of: above 0 inside a decomposition, for instance."""
        return int(self._raw.depth)

    @property
    def node(self) -> str:
        """In backward: the autograd node, "AddmmBackward0"."""
        return str(self._raw.node)

    @property
    def phase(self) -> str:
        """ "forward", "backward" or "optimizer"."""
        if self._raw.backward:
            return "backward"
        return "optimizer" if steps.optimizer() else "forward"

    @property
    def module(self) -> str:
        """Path of the innermost nn.Module that runs: "Net.layers.0.norm". In backward that of the
        module whose forward made the node; in an optimizer's step the optimizer's class. "" where
        there is none.
        """
        here = modules.current()
        if not here and self._raw.backward:
            return modules.of_node(self._raw.node_thread, self._raw.node_sequence)
        return here or steps.optimizer()

    @property
    def step(self) -> int:
        """See `steps`: 1 until the first step is done."""
        return steps.current()

    @property
    def stack(self) -> list[traceback.FrameSummary]:
        """The Python stack, outermost first; empty in backward on a device's thread."""
        frames = traceback.walk_stack(sys._getframe(1))
        others = (f for f in frames if not _is_ours(f[0].f_globals.get("__name__", "")))
        found = traceback.StackSummary.extract(others, lookup_lines=False)
        found.reverse()
        return list(found)

    def __repr__(self) -> str:
        return f"<call {self.sequence} of {self.name}>"


_TOOLS = ("causeway.observe.", "causeway.comparison.", "causeway.trace.", "causeway.debug.")


def _is_ours(module: str) -> bool:
    return module.startswith(_TOOLS)


class Observer:
    """Base of what looks on. What it raises reaches the operator's caller.

    `operators`: names or regular expressions, as `causeway.fallback` takes them.
    """

    operators: str | Sequence[str] = ".*"

    def before(self, call: ObservedCall) -> None:
        """Called with the arguments, before they are used."""

    def after(self, call: ObservedCall) -> None:
        """Called when the results are there, or `call.error`."""


class ObserverError(CausewayError):
    """An observer failed; the operator that it looked at is named, and the cause is attached."""


_lock = threading.Lock()
_observers: tuple[tuple[Observer, tuple[re.Pattern[str], ...]], ...] = ()
_chosen: dict[str, tuple[Observer, ...]] = {}


def add(observer: Observer) -> None:
    """Let `observer` look on from now on, on all threads.

    Raises ConfigError where it selects an operator that does not exist.
    """
    wanted = observer.operators
    texts = [wanted] if isinstance(wanted, str) else list(wanted)
    patterns = tuple(_pattern(text) for text in texts)
    global _observers
    with _lock:
        if any(known is observer for known, _ in _observers):
            raise ValueError(f"{observer!r} looks on already")
        if not _observers:
            modules.open()
            steps.open()
        _observers = (*_observers, (observer, patterns))
        _push()


def remove(observer: Observer) -> None:
    """Let `observer` look on no more. Calls that are under way still end with `after`."""
    global _observers
    with _lock:
        left = tuple(pair for pair in _observers if pair[0] is not observer)
        if len(left) == len(_observers):
            return
        _observers = left
        _push()
        if not _observers:
            modules.close()
            steps.close()


@contextlib.contextmanager
def off() -> Iterator[None]:
    """Observe nothing on this thread for a while: for what a tool does outside of its observer."""
    before = _C.pause_observers(True)
    try:
        yield
    finally:
        _C.pause_observers(before)


def known() -> list[str]:
    """All operators that can be observed now. Others follow when torch first calls them."""
    return [*_C.operators(), *_C.own_kernels()]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is no regular expression: {error}") from None
    if not any(map(pattern.fullmatch, (s for n in known() for s in ladder.spellings(n)))):
        later = torch._C._dispatch_get_all_op_names()
        if any(map(pattern.fullmatch, (s for n in later for s in ladder.spellings(n)))):
            return pattern  # a composite, or an operator that has not been called yet
        raise ConfigError(f"{text!r} matches no operator{ladder.nearest(text, known())}")
    return pattern


def _select(name: str) -> tuple[Observer, ...]:
    found = []
    for observer, patterns in _observers:
        if any(p.fullmatch(s) for p in patterns for s in ladder.spellings(name)):
            found.append(observer)
    return tuple(found)


def _push() -> None:
    """Hand the selection to the core."""
    _chosen.clear()
    if not _observers:
        _C.set_observers(None, None, [])
        return
    names = []
    for name in known():
        observers = _select(name)
        if observers:
            _chosen[name] = observers
            names.append(name)
    _C.set_observers(_begin, _end, names, True)


def _begin(raw: Any) -> tuple[ObservedCall, tuple[Observer, ...]] | None:
    observers = _chosen.get(raw.name)
    if observers is None:
        observers = _chosen[raw.name] = _select(raw.name)
    if not observers:
        return None
    call = ObservedCall(raw)
    with torch._C.DisableTorchFunction():
        for observer in observers:
            try:
                observer.before(call)
            except CausewayError:
                raise
            except Exception as error:
                raise _failed(observer, "before", call, error) from error
    return call, observers


def _end(raw: Any, token: tuple[ObservedCall, tuple[Observer, ...]]) -> None:
    call, observers = token
    with torch._C.DisableTorchFunction():
        for observer in observers:
            try:
                observer.after(call)
            except CausewayError:
                raise
            except Exception as error:
                raise _failed(observer, "after", call, error) from error


def _failed(observer: Observer, when: str, call: ObservedCall, error: Exception) -> ObserverError:
    return ObserverError(
        f"{type(observer).__name__}.{when} failed at call {call.sequence} of {call.name}: "
        f"{type(error).__name__}: {error}"
    )
