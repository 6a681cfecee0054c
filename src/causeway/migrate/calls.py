"""What a conversion did with the calls that a program made: `causeway run --report calls.json`.

The report of the redirection knows which places of a program used CUDA when it ran, and how often;
a conversion knows what it changed. Put together they say what a run would still meet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causeway.errors import CausewayError
from causeway.migrate.finding import Finding, Result


@dataclass(frozen=True)
class CudaCall:
    """A place that used a name of CUDA's while a program ran."""

    api: str
    file: Path
    line: int
    calls: int


@dataclass
class Met:
    """All calls by what the conversion did at their places."""

    converted: list[CudaCall] = field(default_factory=list)
    by_hand: list[tuple[CudaCall, Finding]] = field(default_factory=list)
    # Nothing at the place names CUDA: `x.to(device)`, which follows where `device` is converted.
    from_elsewhere: list[CudaCall] = field(default_factory=list)
    other_files: list[CudaCall] = field(default_factory=list)  # libraries, and what was left out

    def lines(self) -> Iterator[str]:
        """What to tell: the sums, then each place that needs a hand, the most called first."""
        converted, by_hand = len(self.converted), len(self.by_hand)
        elsewhere, others = len(self.from_elsewhere), len(self.other_files)
        yield (
            f"{converted + by_hand + elsewhere + others} places used CUDA at run time: "
            f"{converted} are converted or portable, {by_hand} need a hand, {elsewhere} take their "
            f"device from elsewhere, {others} are in files not converted here"
        )
        for call, finding in sorted(self.by_hand, key=lambda met: -met[0].calls):
            yield (
                f"{finding.file}:{call.line}: {call.api}, {call.calls} calls: "
                f"{finding.rule}: {finding.message}. {finding.tip}"
            )


def read(path: Path) -> list[CudaCall]:
    """The calls of a report. Raises CausewayError where the file is none."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return [_call(row) for row in table["places"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CausewayError(
            f"{path} is no report of calls ({type(error).__name__}: {error}); "
            f"`causeway run --report {path} program.py` writes one"
        ) from None


def _call(row: dict[str, Any]) -> CudaCall:
    return CudaCall(
        str(row["api"]), Path(row["file"]).resolve(), int(row["line"]), int(row["calls"])
    )


def files(calls: Iterable[CudaCall], under: Path) -> list[Path]:
    """The files of a program's own that made calls: below a folder, in no environment's packages.

    Raises CausewayError where there are none.
    """
    top = under.resolve()
    found = sorted(
        {
            call.file
            for call in calls
            if call.file.is_file()
            and call.file.is_relative_to(top)
            and not {"site-packages", "dist-packages"} & set(call.file.parts)
        }
    )
    if not found:
        raise CausewayError(
            f"no file below {top} made a call of the report; name the program's folder"
        )
    return found


def met(result: Result, calls: Iterable[CudaCall]) -> Met:
    """Each call beside the findings of its line."""
    root = Path(result.root)
    findings: dict[Path, list[Finding]] = {
        root / file.path: [f for f in file.findings if not f.is_advice] for file in result.files
    }
    sorted_out = Met()
    for call in calls:
        if call.file not in findings:
            sorted_out.other_files.append(call)
            continue
        here = [f for f in findings[call.file] if f.line <= call.line <= f.end_line]
        open_ = [f for f in here if f.kind in ("manual", "unsupported")]
        if any(f.kind in ("changed", "portable") for f in here):
            sorted_out.converted.append(call)
        elif open_:
            sorted_out.by_hand.append((call, open_[0]))
        else:
            sorted_out.from_elsewhere.append(call)
    return sorted_out
