"""What torch.compile made on the device: `causeway.compile_report()`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.compile.runtime import Program


@dataclass(frozen=True)
class Made:
    """A fused kernel."""

    operators: list[str]
    lines: list[str]  # of the program: file:line
    bytes: int  # that it reads and writes; sizes that change are taken as when it was compiled
    eager_bytes: int  # that its operators read and write one after the other


@dataclass
class Graph:
    """One compiled graph."""

    name: str
    device: int
    kernels: dict[str, Made]
    extern: list[str]  # operators that were not fused: they go by the ladder
    seconds: float = 0.0  # the device's compiler
    functions: list[Any] = field(default_factory=list)
    # Calls of products in whose kernel what follows is done: the operators and lines of each.
    products: dict[str, Made] = field(default_factory=dict)

    @property
    def launches(self) -> int:
        """How often its kernels were put on a stream."""
        return sum(function.launches for function in self.functions)


@dataclass(frozen=True)
class Wrong:
    """A result of a kernel that its operators do not have."""

    kernel: str
    operator: str  # whose result it is
    off: str
    line: str  # of the program, where torch knows it

    def __str__(self) -> str:
        where = f", at {self.line}" if self.line else ""
        return f"kernel {self.kernel} is wrong: of {self.operator} {self.off}{where}"


@dataclass
class Checked:
    """How often results of a kernel were compared, and how often that could not be done."""

    compared: int = 0
    left: int = 0


@dataclass(frozen=True)
class Left:
    """Calls of an operator that ran on the host, and why."""

    operator: str
    dtype: str
    calls: int
    bytes: int  # copied between host and device for these calls
    why: str
    in_graph: bool  # whether a compiled graph calls an operator of this name

    def __str__(self) -> str:
        where = "" if self.in_graph else ", outside of graphs"
        calls = f"{self.calls} times" if self.calls > 1 else "once"
        what = f"{self.operator} of {self.dtype}" if self.dtype else self.operator
        return f"left the chip: {what} ({calls}, {_bytes(self.bytes)} copied{where}): {self.why}"


@dataclass
class CompileReport:
    """All graphs that this process compiled for the device, oldest first."""

    graphs: list[Graph] = field(default_factory=list)
    unfused: list[str] = field(default_factory=list)  # why a graph was not fused
    restrided: dict[str, int] = field(default_factory=dict)  # results copied into other strides
    breaks: dict[str, int] = field(default_factory=dict)  # graph breaks, by reason
    recompiles: list[str] = field(default_factory=list)
    checked: dict[str, Checked] = field(default_factory=dict)  # by kernel: CAUSEWAY_COMPILE=check
    wrong: list[Wrong] = field(default_factory=list)
    replays: dict[str, int] = field(default_factory=dict)  # by graph: mode="reduce-overhead"
    not_replayed: dict[str, str] = field(default_factory=dict)  # graphs of that mode, and why
    # By what follows a product and sizes: its time in the product's kernel to that of its own.
    measured: dict[str, float] = field(default_factory=dict)
    # Of compilation, by part; of all graphs of the process, those of other devices among them.
    seconds: dict[str, float] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)  # seen by `causeway explain --compile`

    def table(self) -> str:
        """For people."""
        lines = []
        for graph in self.graphs:
            made = f"{len(graph.kernels)} kernels, {len(graph.extern)} operators by the ladder"
            where = f"graph {graph.name or '?'} on device {graph.device}"
            moved = sum(one.bytes for one in graph.kernels.values())
            eager = sum(one.eager_bytes for one in graph.kernels.values())
            lines.append(f"{where}: {made}, compiled in {graph.seconds:.2f} s")
            if graph.kernels:
                one_by_one = f"their operators one by one {_bytes(eager)}"
                lines.append(f"  its kernels move {_bytes(moved)}, {one_by_one}")
            for name, one in graph.kernels.items():
                lines.append(f"  {name}: {', '.join(one.operators)}")
                lines += [f"    {line}" for line in one.lines]
            for name, one in graph.products.items():
                lines.append(f"  in the product's kernel: {', '.join(one.operators)} ({name})")
                lines += [f"    {line}" for line in one.lines]
            lines += [f"  by the ladder: {name}" for name in graph.extern]
        lines += [f"not fused: {why}" for why in self.unfused]
        lines += [
            f"copied into other strides: {op} ({n} times)" for op, n in self.restrided.items()
        ]
        lines += [f"graph break ({n} times): {_short(why)}" for why, n in self.breaks.items()]
        lines += [f"recompiled: {why}" for why in self.recompiles]
        lines += [f"replayed: graph {name} ({n} times)" for name, n in self.replays.items()]
        lines += [f"not replayed: graph {name}: {why}" for name, why in self.not_replayed.items()]
        for what, ratio in self.measured.items():
            taken = "in the product's kernel" if ratio <= 1 else "apart"
            lines.append(f"measured: {what}: {taken} ({ratio:.2f} of the time apart)")
        if self.checked:
            compared = sum(one.compared for one in self.checked.values())
            left = sum(one.left for one in self.checked.values())
            lines.append(f"checked {len(self.checked)} kernels: {compared} results, {left} not")
            none = [name for name, one in self.checked.items() if not one.compared]
            lines += [f"  not checked: {name}" for name in none]
        lines += [str(one) for one in self.wrong]
        lines += [str(one) for one in self.left]
        if self.seconds:
            parts = ", ".join(f"{what} {took:.2f} s" for what, took in self.seconds.items())
            lines.append(f"compiling took {sum(self.seconds.values()):.2f} s: {parts}")
        return "\n".join(lines) or "nothing was compiled for the device"

    def __str__(self) -> str:
        return self.table()

    def to_json(self) -> str:
        """The same for programs."""
        plain = [dataclasses.replace(graph, functions=[]) for graph in self.graphs]
        known = dataclasses.asdict(dataclasses.replace(self, graphs=plain))
        for written, graph in zip(known["graphs"], self.graphs, strict=True):
            written["launches"] = graph.launches
            del written["functions"]
        return json.dumps(known, indent=1)


def _short(why: str) -> str:
    """Torch's reason for a break without its hints."""
    return ". ".join(line.strip() for line in why.splitlines()[:2] if line.strip())


def _bytes(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


state = CompileReport()


def built(programs: Sequence[Program], names: dict[str, Any], seconds: float) -> None:
    """Note a graph whose kernels are there; `names` are the globals of its module."""
    kernels = {
        k.name: Made(k.origins, k.lines, *k.moved) for program in programs for k in program.kernels
    }
    functions = [names[name] for name in kernels]
    device = programs[0].device if programs else 0
    state.graphs.append(
        Graph(
            names.get("causeway_graph", ""),
            device,
            kernels,
            list(names.get("causeway_extern", ())),
            seconds,
            functions,
            {
                name: Made(one.apart.origins, one.apart.lines, 0, 0)
                for program in programs
                for name, one in program.products.items()
            },
        )
    )


def restrided(operator: str) -> None:
    """Note that a result was copied into the strides that a graph was compiled for."""
    state.restrided[operator] = state.restrided.get(operator, 0) + 1


def measured(kernel: str, sizes: Sequence[int], ratio: float) -> None:
    """Note the time of what follows a product in its kernel, to that of a kernel of its own."""
    state.measured[f"{kernel} of {' x '.join(map(str, sizes))}"] = ratio


def unfused(why: str) -> bool:
    """Note why graphs are not fused; whether that is new."""
    new = why not in state.unfused
    if new:
        state.unfused.append(why)
    return new


def compile_report() -> CompileReport:
    """The graphs that torch.compile made for the device in this process: their kernels with the
    operators in each, operators that go by the ladder, why graphs broke or were compiled again, and
    the time that each part of compiling took.
    """
    from torch._dynamo.utils import counters, get_compilation_metrics

    recompiles = [
        f"{one.co_name} ({one.co_filename}:{one.co_firstlineno}): {one.recompile_reason}"
        for one in get_compilation_metrics()
        if getattr(one, "recompile_reason", None)
    ]
    breaks = {str(why): int(count) for why, count in counters["graph_break"].items()}
    return CompileReport(
        list(state.graphs),
        list(state.unfused),
        dict(state.restrided),
        breaks,
        recompiles,
        dict(state.checked),
        list(state.wrong),
        dict(state.replays),
        dict(state.not_replayed),
        dict(state.measured),
        _seconds(sum(graph.seconds for graph in state.graphs)) if state.graphs else {},
    )


def _seconds(device: float) -> dict[str, float]:
    """Compilation by part. torch's clocks are one within the other; `device` is the time of the
    device's compiler, which is in the innermost."""
    from torch._dynamo.utils import calculate_time_spent

    took = calculate_time_spent()
    backward = took.get("entire_backward_compile", 0.0)
    frames = took.get("entire_frame_compile", 0.0)
    backend, inductor = took.get("backend_compile", 0.0), took.get("inductor_compile", 0.0)
    code = took.get("code_gen", 0.0)
    parts = {
        "tracing the program": frames - backend,
        "autograd and decompositions": backend + backward - inductor,
        "fusing": inductor - max(code, device),
        "writing kernels": code - device,
        "the device's compiler": device,
    }
    return {what: max(0.0, seconds) for what, seconds in parts.items()}


def replayed(graph: str) -> None:
    """A compiled graph was replayed as a device graph."""
    state.replays[graph] = state.replays.get(graph, 0) + 1


def not_replayed(graph: str, why: str) -> None:
    """A compiled graph runs without device graphs."""
    state.not_replayed[graph] = why
