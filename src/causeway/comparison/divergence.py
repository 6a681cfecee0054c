"""Where a run on the device parts company with the same run on the CPU.

    def make(device):                       # called once for each side and pass, same seed
        net = Net().to(device)
        return net, torch.optim.Adam(net.parameters())

    def step(state, device):                # one step of training; or of inference
        net, optimizer = state
        ...

    print(causeway.first_divergence(make, step, steps=40))

Both sides run the same Python, so modules run in the same order on both: what they give in the
forward, the gradients that reach them in the backward, the parameters after each step, and tensors
that `step` returns (the loss, for one) are values of the same names. The first that differs by more
than `tolerance` names the step and the module. Then the device runs that step again with every
operator compared, and the first that is wrong on right inputs is named too. None there means: no
operator is wrong, rounding has grown.

Values of one side are kept while the other runs. Where `memory` does not hold them all, every n-th
is kept, and the search goes on between the last that agrees and the first that does not.

What must be the same: seeds are set before each side; random operators draw other numbers on a
device than on the CPU, so a model with dropout is compared in `eval()`, or parts at the first draw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from causeway import numerics
from causeway.comparison.compare import Compare
from causeway.comparison.findings import Failure
from causeway.observe import modules, observe, steps

Make = Callable[[torch.device], Any]
Step = Callable[[Any, torch.device], Any]
Phase = Literal["forward", "backward", "optimizer"]

MOST_ALONE = 24  # operators of a module that are looked at alone


@dataclass(frozen=True)
class Value:
    """A value that both sides have: where it is made, and how far the two are apart."""

    index: int
    step: int
    phase: Phase
    module: str
    what: str  # "output", "output 1", "gradient of weight", "weight"
    distance: float = 0.0
    words: str = ""

    def __str__(self) -> str:
        return f"step {self.step}, {self.phase}, {self.module or 'no module'}: {self.what}"


@dataclass(frozen=True)
class Divergence:
    """What `first_divergence` found."""

    value: Value | None  # None: the two runs agree
    values: int  # how many were compared
    passes: int  # runs of each side
    failure: Failure | None = None  # the operator that is wrong, if one is
    error: str = ""  # what the second look at the operators ended with

    @property
    def operator(self) -> str:
        return self.failure.operator if self.failure is not None else ""

    @property
    def module(self) -> str:
        if self.failure is not None and self.failure.module:
            return self.failure.module
        return self.value.module if self.value is not None else ""

    @property
    def step(self) -> int:
        return self.value.step if self.value is not None else 0

    @property
    def phase(self) -> str:
        if self.failure is not None:
            return self.failure.phase
        return self.value.phase if self.value is not None else ""

    def __bool__(self) -> bool:
        return self.value is not None

    def __str__(self) -> str:
        if self.value is None:
            return f"no divergence: {self.values} values agree"
        lines = [f"first divergence: {self.value}", f"    {self.value.words}"]
        if self.failure is not None:
            lines.append(f"    operator: {self.failure}")
        elif self.error:
            lines.append(f"    the operators could not be compared: {self.error}")
        else:
            lines.append(
                "    no operator of that step is wrong on its own inputs: rounding that grows, an "
                "operator that is not compared, or work that was not waited for"
            )
        return "\n".join(lines)


def first_divergence(
    make: Make, step: Step, *, steps: int = 1, device: torch.device | str | None = None,
    tolerance: float | None = None, seed: int = 0, memory: int = 1 << 30,
) -> Divergence:  # fmt: skip
    """The first module and operator at which the device parts company with the CPU.

    `make(device)` gives the state of a run, `step(state, device)` does one step; `steps`: how many;
    `tolerance`: largest RMS of the difference relative to the RMS, for all dtypes; `memory`: bytes
    for the values of one side. Modules are found by their forward; functions outside of modules
    show in the next module, in gradients and in parameters.
    """
    there = torch.device(device) if device is not None else _accelerator()
    search = _Search(make, step, steps, there, tolerance, seed, memory)
    with observe.off():
        value, count, passes = search.run()
    if value is None:
        return Divergence(None, count, passes)
    failure, error = search.operator(value)
    return Divergence(value, count, passes, failure, error)


def _accelerator() -> torch.device:
    found = torch.accelerator.current_accelerator()
    if found is None:
        raise RuntimeError("there is no accelerator to compare: `causeway doctor` says why")
    return found


class _Search:
    def __init__(
        self, make: Make, step: Step, count: int, device: torch.device, tolerance: float | None,
        seed: int, memory: int,
    ) -> None:  # fmt: skip
        self.make, self.step, self.count = make, step, count
        self.device, self.tolerance, self.seed, self.memory = device, tolerance, seed, memory

    def run(self) -> tuple[Value | None, int, int]:
        """(first value that differs, number of values, passes)."""
        first, last, stride, passes, total = 0, None, 1, 0, 0
        found: Value | None = None
        while True:
            kept = _Keep(first, last, stride, self.memory)
            self._side(torch.device("cpu"), kept)
            passes += 1
            against = _Against(kept, self.tolerance)
            self._side(self.device, against)
            total = max(total, kept.seen)
            if against.other:
                return against.other, total, passes
            if against.found is not None:
                found = against.found
            elif found is None:
                return None, total, passes
            # Between the last value that agreed and the first that did not, what was not kept.
            low, high = max(against.agreed + 1, first), found.index
            if kept.stride == 1 or low >= high:
                return found, total, passes
            first, last, stride = low, high - 1, 1

    def _side(self, device: torch.device, sink: _Sink) -> None:
        torch.manual_seed(self.seed)
        state = self.make(device)
        torch.manual_seed(self.seed + 1)
        with _watch(sink):
            for _ in range(self.count):
                before = steps.current()
                result = self.step(state, device)
                for k, t in enumerate(_tensors(result)):
                    what = "what step returned" if isinstance(result, Tensor) else f"returned {k}"
                    sink.take(before, "forward", "", what, t)
                if steps.current() == before:  # no optimizer stepped
                    steps.step()
                sink.settle()
                if sink.over:
                    return

    def operator(self, value: Value) -> tuple[Failure | None, str]:
        """The first operator that is wrong by itself in the value's step."""
        compare, error = self._compared(".*", value)
        if compare.failures or error:
            return compare.first_divergence(), error
        # Comparing waits for the device after each operator, which hides what was not waited for:
        # so each operator of the module once more, alone.
        names = [r.operator for r in compare.rows if not value.module or value.module in r.modules]
        for name in list(dict.fromkeys(names))[:MOST_ALONE]:
            alone, error = self._compared(re.escape(name), value)
            if alone.failures or error:
                return alone.first_divergence(), error
        return None, ""

    def _compared(self, ops: str, value: Value) -> tuple[Compare, str]:
        """The device's run up to the value's step, in which `ops` are compared."""
        compare = Compare(ops, steps=(value.step, value.step), on_failure="quiet", modules=64)
        try:
            torch.manual_seed(self.seed)
            state = self.make(self.device)
            torch.manual_seed(self.seed + 1)
            with compare:
                steps.reset()
                for _ in range(value.step):
                    before = steps.current()
                    self.step(state, self.device)
                    if steps.current() == before:
                        steps.step()
        except Exception as error:  # what was found is told all the same
            return compare, f"{type(error).__name__}: {error}"
        return compare, ""


# --- what is kept, and what it is held against ----------------------------------------------------


class _Sink:
    """Takes values as they are made, in the same order on both sides."""

    def __init__(self) -> None:
        self.seen = 0
        self.over = False

    def take(self, step: int, phase: Phase, module: str, what: str, t: Tensor) -> None:
        index, self.seen = self.seen, self.seen + 1
        self.put(Value(index, step, phase, module, what), t)

    def put(self, value: Value, t: Tensor) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """At the end of each step."""


class _Keep(_Sink):
    """Keeps every `stride`-th value from `first` to `last`; the stride doubles when memory ends."""

    def __init__(self, first: int, last: int | None, stride: int, memory: int) -> None:
        super().__init__()
        self.first, self.last, self.stride, self.memory = first, last, stride, memory
        self.bytes = 0
        self.values: dict[int, tuple[Value, Tensor]] = {}
        self.order: list[tuple[str, str]] = []

    def put(self, value: Value, t: Tensor) -> None:
        if value.index < self.first or (self.last is not None and value.index > self.last):
            return
        if (value.index - self.first) % self.stride:
            return
        copy = t.detach().to("cpu", copy=True)
        self.values[value.index] = (value, copy)
        self.bytes += copy.nbytes
        while self.bytes > self.memory and len(self.values) > 2:
            self.stride *= 2
            for index in [i for i in self.values if (i - self.first) % self.stride]:
                self.bytes -= self.values.pop(index)[1].nbytes


class _Against(_Sink):
    """Holds values against those that were kept, until one differs."""

    def __init__(self, kept: _Keep, tolerance: float | None) -> None:
        super().__init__()
        self.kept, self.tolerance = kept, tolerance
        self.found: Value | None = None
        self.other: Value | None = None
        self.agreed = -1
        self._waiting: list[tuple[Value, Tensor]] = []

    def settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for value, t in waiting:
            self._judge(value, t)

    def put(self, value: Value, t: Tensor) -> None:
        # A copy on the device, which waits for nothing: what races in the program races here.
        if value.index in self.kept.values and not self.over:
            self._waiting.append((value, t.detach().clone()))

    def _judge(self, value: Value, t: Tensor) -> None:
        if self.over:
            return
        there, reference = self.kept.values[value.index]
        names = (value.step, value.phase, value.module, value.what)
        if names != (there.step, there.phase, there.module, there.what):
            words = f"the runs went different ways: there was {there} on the CPU"
            self.other, self.over = Value(value.index, *names, words=words), True
            return
        apart, words = distance(t.cpu(), reference, self.tolerance)
        if words:
            self.found, self.over = Value(value.index, *names, apart, words), True
        else:
            self.agreed = value.index


def distance(came: Tensor, reference: Tensor, tolerance: float | None) -> tuple[float, str]:
    """(RMS of the difference relative to the RMS, words where that is too far)."""
    found = numerics.apart(came, reference)
    if found.why:
        return found.size, found.why
    limit = tolerance if tolerance is not None else numerics.allowed("run", came.dtype)
    if found.size <= limit:
        return found.size, ""
    if came.layout != torch.strided or came.is_nested:
        came, reference = came.to_dense(), reference.to_dense()
    worst = int((came - reference).abs().double().nan_to_num(0.0, 0.0, 0.0).argmax())
    return found.size, (
        f"RMS of the difference is {found.size:.3g} of the RMS, at most {limit:.3g}; element "
        f"{worst}: expected {reference.flatten()[worst].item():.6g}, "
        f"came {came.flatten()[worst].item():.6g}"
    )


# --- watching a run -------------------------------------------------------------------------------


@contextmanager
def _watch(sink: _Sink) -> Iterator[None]:
    """Hand the sink what modules give, the gradients that reach them, and parameters."""
    from torch.nn.modules.module import register_module_forward_hook
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    modules.open()
    steps.open()

    def forward(module: torch.nn.Module, args: Any, output: Any) -> None:
        path, step = modules.path_of(module), steps.current()
        for k, t in enumerate(_tensors(output)):
            what = "output" if isinstance(output, Tensor) else f"output {k}"
            sink.take(step, "forward", path, what, t)
            if t.requires_grad:
                t.register_hook(_gradient(sink, path, what))  # type: ignore[no-untyped-call]

    def before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for k, p in enumerate(_parameters(optimizer)):
            if p.grad is not None:
                sink.take(steps.current(), "backward", *_owner(p, k, "gradient of "), p.grad)

    def after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for k, p in enumerate(_parameters(optimizer)):
            sink.take(steps.current(), "optimizer", *_owner(p, k, ""), p)

    handles = [
        register_module_forward_hook(forward),
        register_optimizer_step_pre_hook(before_step),
        steps.before_end(after_step),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        steps.close()
        modules.close()


def _gradient(sink: _Sink, path: str, what: str) -> Callable[[Tensor], None]:
    def hook(gradient: Tensor) -> None:
        sink.take(steps.current(), "backward", path, f"gradient of {what}", gradient)

    return hook


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors(v)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _owner(parameter: Tensor, number: int, prefix: str) -> tuple[str, str]:
    path, name = modules.owner_of(parameter)
    return path, prefix + (name or f"parameter {number}")
