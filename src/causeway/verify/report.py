"""What a verification found: converted, runs, same numbers, and what differs first."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Way = Literal["migrated", "transfer"]


@dataclass
class Series:
    """Numbers of one kind on both sides, in the order in which the program made them."""

    name: str
    compared: int = 0
    worst: float = 0.0  # largest |device - CPU| / max(1, |CPU|)
    first: str = ""  # the first that is not the same, in words
    lengths: tuple[int, int] = (0, 0)

    @property
    def same(self) -> bool:
        return not self.first


@dataclass
class Script:
    """One entry script: whether it was converted, ran, and computed the same."""

    script: str
    way: Way
    converted: bool | None  # None: not converted, but redirected at run time
    reference_error: str
    error: str
    steps: tuple[int, int]  # on the CPU, on the device
    tolerance: float = 0.0  # times max(1, |number|)
    series: list[Series] = field(default_factory=list)
    losses: list[tuple[float, float]] = field(default_factory=list)
    fallbacks: list[dict[str, Any]] = field(default_factory=list)
    operators: dict[str, Any] | None = None
    operators_error: str = ""
    places: list[dict[str, Any]] = field(default_factory=list)
    system: str = ""  # the system that it is for: then the CPU runs what was converted

    @property
    def runs(self) -> bool:
        return not self.error

    @property
    def same(self) -> bool | None:
        """Whether the numbers are the same; None where they could not be compared."""
        if self.error or self.reference_error:
            return None
        if not any(series.compared for series in self.series):
            return None
        return all(series.same for series in self.series)

    @property
    def worst(self) -> float | None:
        """The largest difference; None where nothing was compared."""
        return max((s.worst for s in self.series if s.compared), default=None)

    @property
    def good(self) -> bool:
        wrong = self.operators is not None and bool(self.operators["failures"])
        return self.runs and self.same is True and not wrong and self.converted is not False

    def verdict(self) -> str:
        """One sentence."""
        if self.reference_error:
            which = f"what was converted from {self.system}" if self.system else "the original"
            why = self._last(self.reference_error, "migrated" if self.system else "transfer")
            return f"{which} does not run on the CPU: {why}"
        if self.error:
            return f"it does not run on the device: {self._last(self.error, self.way)}"
        if self.same is None:
            return "it runs, but there was nothing to compare: no loss, no step, no module's output"
        if not self.same:
            return next(f"{s.name}: {s.first}" for s in self.series if not s.same)
        if self.operators is not None and self.operators["failures"]:
            return f"{len(self.operators['failures'])} operators' results are wrong"
        if not self.steps[1]:
            compared = [f"{s.compared} of {s.name}" for s in self.series if s.compared]
            return f"no step was made; what could be compared is the same: {', '.join(compared)}"
        return f"same numbers in {self.steps[1]} steps"

    def _last(self, text: str, way: Way = "transfer") -> str:
        """The last line of a traceback, and the line of the script that it came from, which is one
        of the converted script where that ran.
        """
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        name = re.escape(Path(self.script).name)
        places = re.findall(rf'File "(?:.*/)?{name}", line (\d+)', text)
        converted = " (converted)" if way == "migrated" else ""
        where = f"{self.script}:{places[-1]}{converted}: " if places else ""
        return where + (lines[-1] if lines else "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "script": self.script,
            "way": self.way,
            "system": self.system,
            "converted": self.converted,
            "runs": self.runs,
            "same": self.same,
            "good": self.good,
            "verdict": self.verdict(),
            "steps": list(self.steps),
            "tolerance": self.tolerance,
            "series": [
                {
                    "name": s.name,
                    "same": s.same,
                    "compared": s.compared,
                    "worst": _number(s.worst) if s.compared else None,
                    "first": s.first,
                    "lengths": list(s.lengths),
                }
                for s in self.series
            ],
            "losses": [[_number(a), _number(b)] for a, b in self.losses],
            "fallbacks": self.fallbacks,
            "operators": self.operators,
            "operators_error": self.operators_error,
            "places": self.places,
            "reference_error": self.reference_error,
            "error": self.error,
        }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def compare_series(name: str, cpu: list[Any], device: list[Any], tolerance: float) -> Series:
    """Hold two lists of numbers, or of lists of numbers, against each other.

    Two numbers are the same where |a - b| <= tolerance * max(1, |a|), where both are NaN, or where
    both are the same infinity.
    """
    from causeway.numerics import number_apart

    found = Series(name, lengths=(len(cpu), len(device)))
    for i, (a, b) in enumerate(zip(cpu, device, strict=False)):
        left, right = _flat(a), _flat(b)
        if len(left) != len(right):
            found.first = f"number {i + 1} has {len(left)} values on the CPU and {len(right)} here"
            return found
        for x, y in zip(left, right, strict=True):
            found.compared += 1
            off = number_apart(x, y)
            found.worst = max(found.worst, off)
            if off > tolerance and not found.first:
                found.first = f"number {i + 1} is {x:.8g} on the CPU and {y:.8g} on the device"
    if len(cpu) != len(device) and not found.first:
        found.first = f"{len(cpu)} on the CPU and {len(device)} on the device"
    return found


def _flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [number for item in value for number in _flat(item)]
    return [float(value)]


class VerificationReport:
    """The verification of several scripts."""

    def __init__(self, scripts: list[Script], about: dict[str, Any]) -> None:
        self.scripts = scripts
        self.about = about

    @property
    def good(self) -> bool:
        return all(script.good for script in self.scripts)

    def to_dict(self) -> dict[str, Any]:
        """{"version", "about", "scripts"}."""
        return {
            "version": 1,
            "about": self.about,
            "scripts": [script.to_dict() for script in self.scripts],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)
