"""A kernel as text, between the generator that writes it and the core that builds it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class KernelText:
    """What `_C.build_kernels` takes: one kernel of a program."""

    name: str
    parameters: list[tuple[str, str, str]]  # ("in" | "out" | "value" | "tells", type, name)
    body: str
    cost: float  # of a unit of work, in arithmetic operations
    lanes: int = 0  # items of a group that takes a unit; 0: an item takes units of its own
    origins: list[str] = field(default_factory=list)  # the operators in it
    lines: list[str] = field(default_factory=list)  # of the program, file:line
    moved: tuple[int, int] = (0, 0)  # bytes, and what the operators would move in eager mode
