"""What torch.compile made on the device: `causeway.compile_report()`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.compile.runtime import Program


@dataclass
class Graph:
    """One compiled graph."""

    name: str
    device: int
    kernels: dict[str, list[str]]  # name: the operators in it
    extern: list[str]  # operators that were not fused: they go by the ladder
    seconds: float = 0.0  # the device's compiler
    functions: list[Any] = field(default_factory=list)

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


@dataclass
class Report:
    """All graphs that this process compiled for the device, oldest first."""

    graphs: list[Graph] = field(default_factory=list)
    unfused: list[str] = field(default_factory=list)  # why a graph was not fused
    restrided: dict[str, int] = field(default_factory=dict)  # results copied into other strides
    breaks: dict[str, int] = field(default_factory=dict)  # graph breaks, by reason
    recompiles: list[str] = field(default_factory=list)
    checked: dict[str, Checked] = field(default_factory=dict)  # by kernel: CAUSEWAY_COMPILE=check
    wrong: list[Wrong] = field(default_factory=list)

    def table(self) -> str:
        """For people."""
        lines = []
        for graph in self.graphs:
            made = f"{len(graph.kernels)} kernels, {len(graph.extern)} operators by the ladder"
            where = f"graph {graph.name or '?'} on device {graph.device}"
            lines.append(f"{where}: {made}, compiled in {graph.seconds:.2f} s")
            lines += [f"  {name}: {', '.join(origins)}" for name, origins in graph.kernels.items()]
            lines += [f"  by the ladder: {name}" for name in graph.extern]
        lines += [f"not fused: {why}" for why in self.unfused]
        lines += [
            f"copied into other strides: {op} ({n} times)" for op, n in self.restrided.items()
        ]
        lines += [f"graph break ({count} times): {why}" for why, count in self.breaks.items()]
        lines += [f"recompiled: {why}" for why in self.recompiles]
        if self.checked:
            compared = sum(one.compared for one in self.checked.values())
            left = sum(one.left for one in self.checked.values())
            lines.append(f"checked {len(self.checked)} kernels: {compared} results, {left} not")
            none = [name for name, one in self.checked.items() if not one.compared]
            lines += [f"  not checked: {name}" for name in none]
        lines += [str(one) for one in self.wrong]
        return "\n".join(lines) or "nothing was compiled for the device"

    def __str__(self) -> str:
        return self.table()


state = Report()


def built(programs: Sequence[Program], names: dict[str, Any], seconds: float) -> None:
    """Note a graph whose kernels are there; `names` are the globals of its module."""
    kernels = {k.name: k.origins for program in programs for k in program.kernels}
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
        )
    )


def restrided(operator: str) -> None:
    """Note that a result was copied into the strides that a graph was compiled for."""
    state.restrided[operator] = state.restrided.get(operator, 0) + 1


def unfused(why: str) -> bool:
    """Note why graphs are not fused; whether that is new."""
    new = why not in state.unfused
    if new:
        state.unfused.append(why)
    return new


def compile_report() -> Report:
    """The graphs that torch.compile made for the device in this process: their kernels with the
    operators in each, operators that go by the ladder, and why graphs broke or were compiled again.
    """
    from torch._dynamo.utils import counters

    breaks = {str(why): int(count) for why, count in counters["graph_break"].items()}
    return Report(
        list(state.graphs),
        list(state.unfused),
        dict(state.restrided),
        breaks,
        list(state.recompiles),
        dict(state.checked),
        list(state.wrong),
    )
