"""What to run on the day a GPU of NVIDIA's is there: conformance, and speed against torch.cuda.

    make bench-cuda                              all; writes benchmarks/results/cuda.json
    make bench-cuda TORCH_CUDA=/path/to/python   compared with that interpreter's torch.cuda
    python benchmarks/gpu.py --skip-conformance mm conv     some figures

Both sides run in processes of their own and in turn, a round of one after a round of the other; the
median of the rounds' ratios counts. Where there is no GPU it says so, writes nothing and exits
with 3.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from gpu_side import CASES
from rich.console import Console
from rich.table import Table
from side import Side, stock

HERE = Path(__file__).parent
RESULTS = HERE / "results/cuda.json"
NO_GPU = 3
MOST_JOBS = 8  # each has a context of its own on the GPU


def why_no_gpu() -> str | None:
    """Why nothing can be measured here, or None."""
    from causeway import _C

    device = torch.accelerator.current_accelerator()
    if device is None or device.type != "nvidia":
        return f"the device is {device}: CAUSEWAY_VENDOR=nvidia chooses NVIDIA's vendor"
    if os.environ.get("CAUSEWAY_NVIDIA_PAPER"):
        return "the device is on paper, and runs no kernel"
    try:
        return None if _C.vendor_device_count() else "the driver finds no device"
    except RuntimeError as error:
        return str(error)


def wheels_of(python: str, environment: dict[str, str]) -> tuple[str, list[Path]]:
    """The version of CUDA that this Python's torch is for, "" for none; NVIDIA's folders there."""
    program = "import torch, nvidia; print(torch.version.cuda or '', *nvidia.__path__, sep='\\n')"
    command = [python, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    version, *folders = done.stdout.splitlines() or [""]
    return version, [Path(folder) for folder in folders]


def libraries_of(python: str) -> dict[str, str]:
    """Settings that take CUDA's libraries from its packages, of the version that its torch is for,
    so that both use the same; what is not there from ours.
    """
    found = {}
    for version, folders in (
        wheels_of(sys.executable, dict(os.environ)),
        wheels_of(python, stock()) if python else ("", []),
    ):
        major = version.split(".")[0] or "*"
        for name, ending in (("cublas", major), ("cudnn", "9"), ("nvrtc", major)):
            for folder in folders:
                if files := sorted(folder.glob(f"*/lib/lib{name}.so.{ending}")):
                    found[f"CAUSEWAY_NVIDIA_{name.upper()}"] = str(files[-1])
    return {name: path for name, path in found.items() if name not in os.environ}


def conformance(*options: str) -> dict[str, Any]:
    """How many checks ended in which state, and the names of those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = "import sys; from causeway.cli import app; app(sys.argv[1:])"
        subprocess.run(
            [sys.executable, "-c", command, "conformance", *options, "--json", str(report)],
            check=False,
        )
        if not report.exists():
            return {"failed": ["it ended without a report"]}
        read = json.loads(report.read_text())
    parts = [(check["name"], check["state"]) for check in read["checks"]]
    parts += [(operator["operator"], operator["state"]) for operator in read["operators"]]
    states = Counter(state for _, state in parts)
    return {**states, "failed": [name for name, state in parts if state == "failed"]}


def figures(ours: Side, theirs: Side | None, names: list[str], rounds: int) -> list[dict[str, Any]]:
    """Speeds, ours to theirs, of the cases whose name has one of `names` in it."""
    found = []
    for case, (calls, _) in CASES.items():
        if names and not any(name in case for name in names):
            continue
        pairs = []
        for _ in range(rounds):
            mine = ours.seconds(case, calls)
            pairs.append((mine, theirs.seconds(case, calls) if theirs else None))
        ratios = [other / mine for mine, other in pairs if other is not None]
        found.append(
            {
                "name": case,
                "ours_ms": statistics.median(mine for mine, _ in pairs) * 1e3,
                "torch_cuda_ms": statistics.median(o for _, o in pairs) * 1e3 if theirs else None,
                "speed": statistics.median(ratios) if ratios else None,
            }
        )
    return found


def show(found: list[dict[str, Any]], title: str) -> None:
    table = Table(title=title)
    for column in ("what", "torch.cuda", "ours", "speed, ours to torch.cuda"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for f in found:
        other = "" if f["speed"] is None else f"{f['torch_cuda_ms']:.3f} ms"
        speed = "" if f["speed"] is None else f"{f['speed']:.2f}"
        table.add_row(f["name"], other, f"{f['ours_ms']:.3f} ms", speed)
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", help="parts of the names of cases; none: all")
    parser.add_argument("--torch-cuda", default="", help="a Python whose torch has CUDA")
    parser.add_argument("--skip-conformance", action="store_true")
    parser.add_argument("-n", "--jobs", type=int, default=min(os.cpu_count() or 1, MOST_JOBS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    # For tests of this program, where there is no GPU.
    parser.add_argument("--devices", nargs=2, metavar=("OURS", "THEIRS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.devices and (why := why_no_gpu()):
        print(f"No GPU was there to run this: {why}. Nothing was measured.")
        return NO_GPU
    os.environ.update(libraries_of(options.torch_cuda))
    report: dict[str, Any] = {"machine": platform.machine()}
    if not options.skip_conformance:
        report["conformance"] = conformance()
        report["conformance --portable"] = conformance("--portable", "-n", str(options.jobs))
    our_device, their_device = options.devices or ("nvidia", "cuda")
    script = str(HERE / "gpu_side.py")
    ours = Side([sys.executable, script, our_device], dict(os.environ))
    theirs = None
    if options.torch_cuda:
        theirs = Side([options.torch_cuda, script, their_device], stock())
    else:
        print("No torch with CUDA was given (TORCH_CUDA=/path/to/python): times without ratios.")
    from causeway import _C

    report |= {"ours": ours.about, "torch_cuda": theirs.about if theirs else None}
    report["notes"] = _C.vendor_notes().splitlines()
    report["figures"] = figures(ours, theirs, options.name, options.rounds)
    ours.end()
    if theirs:
        theirs.end()
    show(report["figures"], f"{ours.about['device']}")
    failed = 0
    for run in (run for run in ("conformance", "conformance --portable") if run in report):
        failed += len(report[run]["failed"])
        print(f"{run}: {len(report[run]['failed'])} failed, {report[run].get('passed', 0)} passed")
    options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
