"""Runs both sides of a verification, each in a process of its own, and compares what they wrote."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from causeway import program
from causeway.errors import CausewayError
from causeway.launch import Launch
from causeway.verify import imports
from causeway.verify.report import Script, VerificationReport, Way, compare_series

_MOST_FILES = 2000  # in a folder that is converted without being named


@dataclass(frozen=True)
class Options:
    """What to verify, and how closely."""

    steps: int = 3
    seed: int = 0
    tolerance: float | None = None  # None: that of numerics' span "series"
    way: Literal["auto", "migrated", "transfer"] = "auto"
    folder: str = ""  # what is converted with the script
    operators: bool = True
    timeout: float = 600  # seconds, each process
    module: bool = False  # the scripts are names of modules, as with `python -m`
    system: str = ""  # of causeway.compat, whose packages the scripts import


def verify(
    scripts: list[str],
    arguments: list[str],
    options: Options,
    say: Callable[[str], None] = lambda text: None,
) -> VerificationReport:
    """Run each script on the CPU and on the device, and compare. `arguments` go to each script.

    Raises CausewayError where a script or a module is not there or the device is not.
    """
    import torch

    import causeway
    from causeway.redirect.devices import resolve

    device = resolve("device")
    for script in scripts:
        if options.module:
            program.file_of(script)
        elif not Path(script).is_file():
            raise CausewayError(f"there is no script {script!r}")
    way = _way(options)
    found = [_one(script, arguments, options, way, say) for script in scripts]
    about = {
        "device": device,
        "causeway": causeway.__version__,
        "torch": torch.__version__,
        "steps": options.steps,
        "seed": options.seed,
        "arguments": arguments,
    }
    return VerificationReport(found, about)


def _way(options: Options) -> Way:
    there = importlib.util.find_spec("causeway.migrate") is not None
    if options.way == "migrated" and not there:
        raise CausewayError("this Causeway has no `causeway migrate`: use --way transfer")
    if options.way == "auto":
        return "migrated" if there else "transfer"
    return options.way


def _one(
    script: str, arguments: list[str], options: Options, way: Way, say: Callable[[str], None]
) -> Script:
    with tempfile.TemporaryDirectory(prefix="causeway-verify-") as folder:
        own = script, "" if options.module else None
        there, converted, problem = own, None, ""
        if way == "migrated" or options.system:
            say(f"{script}: converting")
            there, problem = _convert(script, Path(folder) / "converted", options)
            converted = not problem if way == "migrated" else None
        if options.system:  # the original needs the system's device
            say(f"{script}: what was converted on the CPU")
            cpu = _failed(problem) if problem else _side(there, arguments, options, folder, "cpu")
        else:
            say(f"{script}: the original on the CPU")
            cpu = _side(own, arguments, options, folder, "cpu", redirect=True)
        if way == "transfer":
            there, problem = own, ""
        say(f"{script}: on the device")
        untouched = way == "transfer"
        device = (
            _failed(problem)
            if problem
            else _side(there, arguments, options, folder, "device", redirect=untouched)
        )
        result = _compare(script, way, converted, cpu, device, options)
        if options.operators and result.runs:
            say(f"{script}: operator by operator")
            found = _side(
                there, arguments, options, folder, "device", redirect=untouched, operators=True,
            )  # fmt: skip
            result.operators, result.operators_error = found["operators"], found["error"]
    return result


def source_of(script: str, options: Options) -> Path:
    """The folder that is converted with a script: its own; a module's that it is imported from."""
    return Path(options.folder).resolve() if options.folder else _place(script, options)[1]


def _place(script: str, options: Options) -> tuple[Path, Path]:
    """The file of a script or module, and the folder that it is imported from."""
    if options.module:
        return program.file_of(script)
    path = Path(script).resolve()
    return path, path.parent


def converted_with(script: str, options: Options) -> list[Path]:
    """What is converted for a script: its folder; of a large one that nobody named the files that
    the script imports. Raises CausewayError where those cannot be found.
    """
    source = source_of(script, options)
    if options.folder or not _is_large(source):
        return [source]
    try:
        return imports.files(*_place(script, options))
    except imports.UnknownImport as error:
        raise CausewayError(
            f"{source} has more than {_MOST_FILES} files, and which of them {script} imports "
            f"cannot be found: {error}. Say with --folder what to convert, or run the original "
            "with --way transfer"
        ) from None


def _is_large(folder: Path) -> bool:
    count = 0
    for _, _, files in os.walk(folder):
        count += len(files)
        if count > _MOST_FILES:
            return True
    return False


def _link_rest(source: Path, to: Path) -> None:
    """Give the folders of a copy what else the originals have, as links: data that the program
    opens beside its modules.
    """
    for place in [to, *(p for p in to.rglob("*") if p.is_dir())]:
        for entry in os.scandir(source / place.relative_to(to)):
            if entry.name != "__pycache__" and not (place / entry.name).exists():
                (place / entry.name).symlink_to(entry.path)


_Source = tuple[str, str | None]  # a script; or a module, and the folder it is imported from


def _convert(script: str, to: Path, options: Options) -> tuple[_Source, str]:
    """What became of the script or module; and why nothing did."""
    source = source_of(script, options)
    path, root = _place(script, options)
    if not path.is_relative_to(source):
        raise CausewayError(f"{script!r} is not in the folder {options.folder!r}")
    chosen = converted_with(script, options)
    command = [sys.executable, "-m", "causeway", "migrate", *map(str, chosen), "-o", str(to)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    place = to / path.relative_to(source)
    if not place.is_file():  # a converter that keeps the folder's own name
        place = to / source.name / path.relative_to(source)
    if done.returncode not in (0, 1) or not place.is_file():
        said = done.stderr.strip() or done.stdout.strip()
        return (script, None), f"causeway migrate failed: {said}"
    if chosen != [source]:
        _link_rest(source, to)
    if options.module:
        above = len(path.relative_to(root).parts) - 1
        return (script, str(place.parents[above])), ""
    return (str(place), None), ""


def _side(
    source: _Source,
    arguments: list[str],
    options: Options,
    folder: str,
    target: str,
    *,
    redirect: bool = False,
    operators: bool = False,
) -> dict[str, Any]:
    """What one process observed, or why it observed nothing. `redirect`: the source is the
    original, which is brought to `target` as it is.
    """
    script, root = source
    to = os.path.join(folder, f"{target}-{int(operators)}.json")
    asked = {
        "steps": options.steps,
        "seed": options.seed,
        "target": target,
        "redirect": redirect and not options.system,
        "operators": operators,
        "root": root,
        "to": to,
    }
    ours = ("CAUSEWAY_TRANSFER", "CAUSEWAY_COMPAT")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    if redirect:
        Launch(system=options.system).environment(environment)
    elif target == "cpu":
        environment["CAUSEWAY_VISIBLE_DEVICES"] = ""
    environment["PYTHONHASHSEED"] = str(options.seed)
    if target == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = "0"  # as many as the CPU has memories
    command = [sys.executable, "-m", "causeway.verify", json.dumps(asked), script]
    try:
        done = subprocess.run(
            [*command, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=options.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _failed(
            f"it was stopped after {options.timeout:.0f} s, before {options.steps} steps"
        )
    if not os.path.exists(to):
        tail = "\n".join(done.stdout.splitlines()[-20:])
        return _failed(f"the process ended with status {done.returncode}\n{tail}")
    with open(to) as file:
        found: dict[str, Any] = json.load(file)
    return found


def _failed(error: str) -> dict[str, Any]:
    return {
        "error": error,
        "steps": 0,
        "losses": [],
        "gradients": [],
        "parameters": [],
        "outputs": [],
        "ledger": [],
        "operators": None,
        "transfer": {"places": []},
    }


def _compare(
    script: str,
    way: Way,
    converted: bool | None,
    cpu: dict[str, Any],
    device: dict[str, Any],
    options: Options,
) -> Script:
    result = Script(
        script, way, converted, cpu["error"], device["error"], (cpu["steps"], device["steps"]),
        system=options.system,
    )  # fmt: skip
    halves = {"float16", "bfloat16"} & {row["dtype"] for row in device["ledger"]}
    import torch

    from causeway.numerics import allowed

    result.tolerance = allowed("series", torch.float16 if halves else torch.float32)
    if options.tolerance is not None:
        result.tolerance = options.tolerance
    if not (cpu["error"] or device["error"]):
        for name in ("losses", "gradients", "parameters"):
            here, there = cpu[name], device[name]
            result.series.append(compare_series(name, here, there, result.tolerance))
        here, there = (
            [[t["norm"] for t in o["tensors"]] for o in side["outputs"]] for side in (cpu, device)
        )
        result.series.append(compare_series("outputs", here, there, result.tolerance))
    first = [[float(group[0]) for group in side["losses"] if group] for side in (cpu, device)]
    result.losses = list(zip(*first, strict=False))
    result.fallbacks = _fallbacks(device["ledger"])
    result.places = device["transfer"]["places"]
    return result


def _fallbacks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Operators that did not run on the chip: name, rung, calls, bytes; the most called first."""
    sums: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row["rung"] in ("native", "derived"):
            continue
        total = sums.setdefault((row["operator"], row["rung"]), [0, 0])
        total[0] += row["calls"]
        total[1] += row["bytes"]
    ordered = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return [
        {"operator": name, "rung": rung, "calls": calls, "bytes": size}
        for (name, rung), (calls, size) in ordered
    ]
