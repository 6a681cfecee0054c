"""Huawei's own adapter judges the stand-in libraries: torch_npu trains programs.py on them.

    judge.py build/ascend-judge/bin/python build/ascend-vendor/libcw_ascend.so

Each program runs in a process of its own, on two chips: one of the A2 generation, one of the 950's.
torch's CPU says what is right. Where torch_npu and the stand-in disagree on a signature, a shape or
an order of calls, torch_npu is right. Then a wrong operator and a failing one are planted, and both
have to be found. Prints the calls of the programs, and what a step costs by each of the two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIB = HERE.parents[1] / "build/ascend-stand-in/lib"
CHIPS = ("Ascend910B1", "Ascend950")
PROGRAMS = ("digits", "gpt", "lstm", "dropout", "formats", "ddp")
# On the other chip torch_npu casts formats by an operator that is none of aclnn's.
ONLY_ON = {"formats": "Ascend950"}


def environment_of(chip: str, **settings: str) -> dict[str, str]:
    environment = dict(os.environ, LD_LIBRARY_PATH=os.fspath(LIB))
    environment |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TASK_QUEUE_ENABLE": "0"}
    environment.pop("ASCEND_HOME_PATH", None)
    return environment | {f"ASCEND_STAND_IN_{k}": v for k, v in {"SOC": chip, **settings}.items()}


def run(python: str, *program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [python, os.fspath(HERE / program[0]), *program[1:]]
    return subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=900
    )


class Verdict:
    """What a run of a program said: its numbers, or why there are none."""

    def __init__(self, python: str, program: str, chip: str, **settings: str):
        with tempfile.TemporaryDirectory() as folder:
            calls = Path(folder) / "calls"
            environment = environment_of(chip, CALLS=os.fspath(calls), **settings)
            done = run(python, "programs.py", program, **environment)
            counts = calls.read_text() if calls.exists() else ""
        self.calls = {name: int(count) for count, name in map(str.split, counts.splitlines())}
        said = done.stderr.strip().splitlines()
        first = (
            [line for line in said if "Error: " in line]
            or said[-1:]
            or [f"ended with {done.returncode}"]
        )
        self.error = first[0] if done.returncode else ""
        self.numbers = {} if self.error else json.loads(done.stdout.strip().splitlines()[-1])

    @property
    def good(self) -> bool:
        n = self.numbers
        return (
            bool(n) and max(n["losses"], n["weights"]) <= n["tolerance"] and n["last"] < n["first"]
        )

    def __str__(self) -> str:
        if self.error:
            return f"failed: {self.error}"
        n = self.numbers
        apart = f"apart {n['losses']:.1e}, weights {n['weights']:.1e}"
        return f"loss {n['first']:.4f} -> {n['last']:.4f}, {apart}, at most {n['tolerance']:.0e}"


def table(calls: dict[str, dict[str, int]]) -> str:
    """A line for each operator: how often each program called it."""
    names = sorted(
        {
            name
            for counts in calls.values()
            for name in counts
            if name.startswith(("aclnn", "Hccl")) and not name.endswith("WorkspaceSize")
        }
    )
    lines = [" ".join(f"{program:>8}" for program in calls) + "  operator"]
    lines += [
        " ".join(f"{calls[program].get(name, 0):8}" for program in calls) + f"  {name}"
        for name in names
    ]
    return "\n".join(lines)


STEPS, ROUNDS = 40, 3


def cost(python: str, program: str, calls: Path, **environment: str) -> tuple[int, dict[str, int]]:
    """A step's host time in ns, and how often each function was called in all steps."""
    given = environment_of(CHIPS[0], CALLS=os.fspath(calls)) | environment
    done = run(python, "cost.py", program, str(STEPS), **given)
    if done.returncode:
        raise SystemExit(f"cost.py {program} by {python}: {done.stderr.strip()}")
    counts = {n: int(c) for c, n in map(str.split, calls.read_text().splitlines())}
    return int(done.stdout.splitlines()[-1].split()[0]), counts


def costs(python: str, vendor: Path) -> None:
    """Prints calls of aclnn in a step and host time, by torch_npu and by Causeway, in turn."""
    ours = {
        "CAUSEWAY_VENDOR": os.fspath(vendor),
        "CAUSEWAY_ASCEND_LIBRARIES": os.fspath(LIB),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
    }
    print(
        "a step: calls by torch_npu, by Causeway; first calls likewise; host time, ours to theirs"
    )
    for program in ("digits", "gpt", "lstm"):
        ratios, counts = [], [{}, {}]
        with tempfile.TemporaryDirectory() as folder:
            calls = Path(folder) / "calls"
            for _ in range(ROUNDS):
                theirs, counts[0] = cost(python, program, calls)
                own, counts[1] = cost(sys.executable, program, calls, **ours)
                ratios.append(own / theirs)
        steps = [
            sum(c for n, c in each.items() if n.startswith("aclnn") and n.endswith(end)) / STEPS
            for end in ("", "GetWorkspaceSize")
            for each in counts
        ]
        both, first = steps[:2], steps[2:]
        run_only = [b - f for b, f in zip(both, first, strict=True)]
        print(
            f"{program:8} {run_only[0]:7.1f} {run_only[1]:7.1f} {first[0]:7.1f} {first[1]:7.1f}"
            f"   {min(ratios):.2f} to {max(ratios):.2f}",
            flush=True,
        )


def main(python: str, vendor: Path) -> int:
    good = True
    for chip in CHIPS:
        calls = {}
        for program in PROGRAMS:
            if ONLY_ON.get(program, chip) != chip:
                continue
            verdict = Verdict(python, program, chip)
            good = good and verdict.good
            calls[program] = verdict.calls
            print(
                f"{'good' if verdict.good else 'BAD '} {program:8} {chip:12} {verdict}", flush=True
            )
        print(table(calls))
        done = run(python, "sweep.py", **environment_of(chip))
        good = good and done.returncode == 0
        print(f"{chip}: {done.stdout.strip() or done.stderr.strip()}", flush=True)
    done = run(python, "sweep.py", **environment_of(CHIPS[0], WRONG="aclnnSort"))
    good = good and "sort: " in done.stdout and done.returncode == 1
    print(f"planted in aclnnSort: {done.stdout.strip()}", flush=True)
    for program, planted in (
        ("digits", {"WRONG": "aclnnConvolutionBackward"}),
        ("digits", {"FAULT": "aclnnMm:3@507015"}),
        ("formats", {"WRONG": "aclnnNpuFormatCast"}),
    ):
        verdict = Verdict(python, program, ONLY_ON.get(program, CHIPS[0]), **planted)
        good = good and not verdict.good
        print(f"{'MISSED' if verdict.good else 'found '} {planted}: {verdict}", flush=True)
    costs(python, vendor)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
