"""Calls of operators on other devices, the CPU and CUDA among them, as observers see ours.

The core shows observers the operators of its own device. Those of any other are seen through a
TorchDispatchMode, torch's public interface for that: above the backends and below autograd. So a
composite that a backend serves whole is one call here and may be several on our device.

Left out: threads other than the one that opened the watch and those of its backward; what
torch.compile made one kernel of.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from causeway.errors import CausewayError
from causeway.observe import modules, observe, steps
from causeway.observe.arguments import arguments, tensors_in
from causeway.observe.selection import Names

NO_OPERATORS = ("profiler", "prim")  # notes that torch makes for itself
Via = Literal["auto", "device", "dispatch"]
_sequence = itertools.count(1 << 40)  # above those of the core, which counts its own


class DispatchCall:
    """What `observe.ObservedCall` is, for an operator of another device. `rung` is "torch"."""

    def __init__(self, op: Any, args: tuple[Any, ...]) -> None:
        self.op = op
        self.name: str = op.name()
        self.args = args
        self.results: tuple[Any, ...] = ()
        self.rung = "torch"
        self.error = ""
        self.sequence = next(_sequence)
        self.thread = threading.get_ident()
        self.depth = 0
        self.notes: dict[Any, Any] = {}

    @property
    def node(self) -> str:
        found = torch._C._current_autograd_node()
        return found.name() if found is not None else ""

    @property
    def phase(self) -> str:
        if torch._C._current_graph_task_id() >= 0:
            return "backward"
        return "optimizer" if steps.optimizer() else "forward"

    @property
    def module(self) -> str:
        here = modules.current()
        found = None if here else torch._C._current_autograd_node()
        if found is not None:
            # CUDA's backward has a thread of its own; the forward's is the one that is noted.
            number = found._sequence_nr()
            for thread in [threading.get_ident(), *modules.threads()]:
                if path := modules.of_node(thread, number):
                    return path
        return here or steps.optimizer()

    @property
    def step(self) -> int:
        return steps.current()

    @property
    def stack(self) -> list[traceback.FrameSummary]:
        frames = traceback.walk_stack(sys._getframe(1))
        found = traceback.StackSummary.extract(frames, lookup_lines=False)
        found.reverse()
        return list(found)


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, observer: observe.Observer, skip: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observer = observer
        self.skip = skip  # the device whose calls the core shows
        self.names = Names(observer.operators)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in NO_OPERATORS or not self.names.has(func.name()):
            return func(*args, **kwargs)
        inputs = arguments(func._schema, args, kwargs)
        if self.skip and _on(inputs, self.skip):
            return func(*args, **kwargs)
        call = DispatchCall(func, tuple(inputs))
        with torch.no_grad():
            self.observer.before(call)  # type: ignore[arg-type]
        try:
            found = func(*args, **kwargs)
        except Exception as error:
            call.error = f"{type(error).__name__}: {error}"
            with torch.no_grad():
                self.observer.after(call)  # type: ignore[arg-type]
            raise
        call.results = tuple(found) if isinstance(found, tuple) else (found,)
        if not func._schema.returns:
            call.results = ()
        with torch.no_grad():
            self.observer.after(call)  # type: ignore[arg-type]
        return found


def _on(args: list[Any], device: str) -> bool:
    for value in args:
        if isinstance(value, torch.device) and value.type == device:
            return True
    return any(t.device.type == device for t in tensors_in(args))


def our_device() -> str:
    """torch's name of Causeway's device, "" where there is none."""
    from causeway.state import state

    return state.device if state.error is None else ""


@contextlib.contextmanager
def watch(observer: observe.Observer, via: Via = "auto") -> Iterator[None]:
    """Let `observer` see operators: of Causeway's device ("device"), of all others ("dispatch"), or
    of both ("auto").
    """
    ours = our_device()
    if via == "device" and not ours:
        raise CausewayError(
            "there is no device of Causeway's to look at (`causeway doctor` says why); "
            "via='dispatch' sees those of the CPU and CUDA"
        )
    with contextlib.ExitStack() as stack:
        if ours and via != "dispatch":
            observe.add(observer)
            stack.callback(observe.remove, observer)
        if via != "device":
            modules.open()
            stack.callback(modules.close)
            steps.open()
            stack.callback(steps.close)
            stack.enter_context(_Mode(observer, ours if via == "auto" else ""))
        yield
