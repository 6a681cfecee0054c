"""Ask what a model needs: the chip on paper in a process of its own, twice where once is not
enough.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from causeway import program, vendor
from causeway.coverage import forms, model, paper, roofline
from causeway.coverage.child import Job
from causeway.errors import CausewayError

Mode = Literal["auto", "dry", "run"]

# Tools and limits of this process that are not the chip's, and would be in the way.
_DROPPED = ("LEDGER", "COMPARE", "DUMP", "POLICY", "POLICY_ONLY", "POLICY_BUDGET", "DEVICE_NAME",
            "VISIBLE_DEVICES", "MEMORY_FRACTION", "VENDOR")  # fmt: skip


def examine(
    target: str,
    arguments: tuple[str, ...] = (),
    *,
    library: str = "",
    support: str = "",
    mode: Mode = "auto",
    optimizer: str = "adamw",
    module: bool = False,
    redirect: bool | None = None,
    machine: roofline.Machine | None = None,
) -> model.Coverage:
    """What `target` needs of a chip: a script, MODULE:FUNCTION, FILE:FUNCTION, or a trace (.json).

    `library`: a vendor's name or library, else the one in use; `support`: its conformance report in
    its place; `module`: the target is a module's name, as with `python -m`; `redirect`: whether
    CUDA's calls go to the device, or None: where else nothing does. Raises CausewayError where
    there is no answer at all, with the reason.
    """
    trace = target.endswith((".json", ".json.gz")) and not module
    place = target.rpartition(":")[0] if not target.endswith(".py") else ""
    file = Path(place or target)
    if not module and (trace or not place or place.endswith(".py")) and not file.is_file():
        raise CausewayError(f"there is no file {str(file)!r}")
    if module:
        program.text_of(target, True)  # refused here, with its reason
    named = target if place or module else str(file.resolve())
    first = "transfer" if redirect and not trace else ""
    job = Job(
        named, arguments, dry=mode != "run", by=first, optimizer=optimizer, trace=trace,
        module=module,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="causeway-coverage-") as folder:
        chip = support or _description(library, Path(folder))
        if support:
            paper.read(support)  # refused here, with its reason
        came, notes = _run(job, chip, Path(folder), mode)
        if first:
            notes = [f"The program was run with {program.WAYS[first]}.", *notes]
        # A program for CUDA ends where there is none, or goes on with the CPU.
        open_ways = redirect is None and not trace and not came["calls"]
        for by, words in program.WAYS.items() if open_ways else ():
            again, said = _run(replace(job, by=by), chip, Path(folder), mode)
            if again["calls"]:
                came, name = again, again["vendor"]["name"]
                notes = [
                    f"The program does not use the device {name!r} by itself: it was run with "
                    f"{words.format(name=name)}.",
                    *said,
                ]
                break
    coverage = model.build(target, came, machine or roofline.Machine())
    coverage.notes += notes + _notes(came, support)
    return coverage


def _run(job: Job, chip: str, folder: Path, mode: Mode) -> tuple[dict[str, Any], list[str]]:
    """What came of the job, and what is to be said of how it was run."""
    came = _child(job, chip, folder)
    if not came["needed"] or mode != "auto":
        return came, []
    note = (
        f"The program asks for {came['needed']} that depends on what is computed, so it was run "
        "with its numbers, on the CPU in the chip's place."
    )
    return _child(replace(job, dry=False), chip, folder), [note]


def explain(
    operator: str, dtypes: tuple[str, ...] = (), *, library: str = "", support: str = ""
) -> dict[str, Any]:
    """What `explain.look` says of an operator on that chip."""
    with tempfile.TemporaryDirectory(prefix="causeway-coverage-") as folder:
        chip = support or _description(library, Path(folder))
        if support:
            paper.read(support)
        return _child(Job(operator, dtypes, explain=True), chip, Path(folder))


def _notes(came: dict[str, Any], support: str) -> list[str]:
    notes = []
    if came["job"]["dry"] and came["needed"]:
        notes.append(
            f"The dry run ended where the program asks for {came['needed']}: what comes after it "
            "was not seen."
        )
    if came.get("skipped"):
        listed = ", ".join(f"{name} ({why})" for name, why in came["skipped"][:5])
        notes.append(
            f"{len(came['skipped'])} operators of the trace could not be called again: {listed}"
        )
    called = {calls["operator"] for calls in came["calls"]}
    declining = paper.declines(support) if support else {}
    served = sorted({form for name in called for form in forms.forms(name)} & declining.keys())
    if served:
        notes.append(
            "Kernels of these operators declined some calls of the conformance suite, which the "
            "report does not describe further; on the chip they may run on the host: "
            f"{', '.join(served)}."
        )
    if any(calls["rung"] == "portable" for calls in came["calls"]):
        notes.append(
            "Causeway's own kernels (rung portable) count as taking every call of their dtypes; on "
            "the chip they decline a few, which go a rung down."
        )
    if not support and not came["vendor"]["asked"]:
        notes.append(
            "The vendor's library does not say which calls its kernels decline (extension check.v1 "
            "of abi.h): each counts as taking all that it offers."
        )
    return notes


def _description(given: str, folder: Path) -> str:
    """A file that stands for the chip of a library."""
    if given and ("/" in given or given.endswith((".so", ".dylib"))):
        path = Path(given).expanduser()
        if not path.is_file():
            raise CausewayError(f"--vendor is {given!r}: there is no such file")
        library = str(path.resolve())
    elif given:
        points = vendor.installed()
        if given not in points:
            raise CausewayError(
                f"--vendor is {given!r}: no such vendor is installed (installed: "
                f"{', '.join(sorted(points))}; the path of a library will do too)"
            )
        library = os.fspath(points[given].load()())
    else:
        library = vendor.choose().library
        if library.endswith(vendor.PAPER):
            return library
    target = folder / "chip.json"
    paper.write_description(target, library)
    return str(target)


def _child(job: Job, chip: str, folder: Path) -> dict[str, Any]:
    task, out = folder / "job.json", folder / "out.json"
    task.write_text(json.dumps(asdict(job)))
    out.unlink(missing_ok=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.removeprefix("CAUSEWAY_") not in _DROPPED or not name.startswith("CAUSEWAY_")
    }
    environment |= {"CAUSEWAY_VENDOR": str(Path(chip).resolve()), "CAUSEWAY_DTYPES": "narrow"}
    # What the program prints is not the answer.
    done = subprocess.run(
        [sys.executable, "-m", "causeway.coverage.child", str(task), str(out)],
        env=environment, stdout=2, check=False,
    )  # fmt: skip
    if not out.is_file():
        raise CausewayError(
            f"{job.target} ended its process with status {done.returncode} and left no answer"
        )
    came: dict[str, Any] = json.loads(out.read_text())
    if "broken" in came:
        raise CausewayError(came["broken"])
    return came
