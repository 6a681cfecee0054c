"""Speed of a model's file on the device, against stock torch and two runtimes of files on the CPU.

    make bench-ship                         on PoCL; keeps its results
    python benchmarks/ship.py speed load    some (groups as `--help` lists them)

The sides are stock eager, stock torch.compile, onnxruntime and openvino. Each is a process of its
own, takes numbers of the host and gives such, and has two threads. The file runs twice: with copies
to the chip and back, and in place, as the others take and give their tensors. They take turns, in
another order each round, and every figure is the median of the rounds' ratios. Before anything is
timed, the results are compared with stock eager's. `make rivals` makes the environment of the
runtimes, build/rivals.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import torch
from run import THREADS, Figure, device, main
from ship_side import SIDES, WORKS, Work, inputs, network
from side import Side, stock
from torch import nn

import causeway

PAUSE = 0.03  # seconds: see opencl.py
ROUNDS = 11
ROOT = Path(__file__).parents[1]
RIVALS = ROOT / "build/rivals"
FOLDER = ROOT / "build/bench-ship"
SCRIPT = str(Path(__file__).with_name("ship_side.py"))
FILES = ("file", "file in place")
OTHERS = ("onnxruntime", "openvino", "torchao")
FLOATS = {name: work for name, work in WORKS.items() if not work.integers}
MOST_RUNTIME = 150_000  # bytes of libcw_run.so: the bar that the project set itself


def command(side: str, *before: str) -> list[str]:
    python = RIVALS / "bin/python" if side in OTHERS else Path(sys.executable)
    return [str(python), SCRIPT, *before, side, str(FOLDER), str(THREADS)]


def environment(side: str) -> dict[str, str]:
    """Two threads for all: torch and the runtimes are told, PoCL by its own setting."""
    ours = side in FILES
    return (dict(os.environ) if ours else stock()) | {
        "POCL_MAX_PTHREAD_COUNT": str(THREADS),
        "OMP_NUM_THREADS": str(THREADS),
    }


def write_works(works: Mapping[str, Work], ours: Callable[[str], nn.Module] = network) -> None:
    """Inputs, the files and their ONNX. What is there is written anew."""
    if not (RIVALS / "bin/python").exists():
        sys.exit(f"{RIVALS} is not there: `make rivals` makes it")
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    for name, work in works.items():
        for i, shape in enumerate(work.shapes):
            np.save(FOLDER / f"{name}.{i}.npy", torch.randn(shape).numpy())
        args = tuple(torch.from_numpy(a).to(device()) for a in inputs(FOLDER, name))
        causeway.export(ours(name).to(device()), args, FOLDER / f"{name}.cw", vectors=False)
    subprocess.run(
        [*command("onnxruntime", "onnx"), *works], env=environment("onnxruntime"), check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


def check(name: str, sides: Iterable[str]) -> None:
    """Every side's results are stock eager's."""
    wanted = np.load(FOLDER / f"{name}.stock eager.npy")
    for side in sides:
        found = np.load(FOLDER / f"{name}.{side}.npy")
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3, err_msg=f"{name}: {side}")


def turns(
    group: str,
    works: Mapping[str, Work],
    names: Sequence[str],
    check: Callable[[str, Iterable[str]], None],
) -> Iterator[Figure]:
    """Each of our sides among `names` against each of the others. Bars, of the file in place: 1
    against stock torch.compile, and the work's against the fastest of the other products.
    """
    sides = {side: Side(command(side), environment(side)) for side in names}
    for name, work in works.items():
        rounds: list[dict[str, float]] = []
        for r in range(-1, ROUNDS):  # the first makes and warms
            order = list(sides)[r % len(sides) :] + list(sides)[: r % len(sides)]
            times = {}
            for side in order:
                time.sleep(PAUSE)
                times[side] = sides[side].seconds(name, work.calls)
            if r < 0:
                check(name, sides)
            else:
                rounds.append(times)
        medians = {side: statistics.median(r[side] for r in rounds) for side in sides}
        fastest = min((side for side in sides if side in OTHERS), key=lambda side: medians[side])
        bars = {"stock torch.compile": 1.0, fastest: work.bar}
        for mine in FILES:
            for side, made in sides.items():
                if side in FILES:
                    continue
                ratio = statistics.median(r[side] / r[mine] for r in rounds)
                title = work.title + mine.removeprefix("file")
                title = f"{title} ({side} {made.about['version']})"
                yield Figure(
                    group, title, "ms", medians[side] * 1e3, medians[mine] * 1e3, ratio,
                    bars.get(side) if mine != "file" else None, "higher",
                )  # fmt: skip
    for made in sides.values():
        made.end()


def speed() -> Iterator[Figure]:
    """The bars: 1 against stock torch.compile; against the faster of the two runtimes 0.7, and 1
    for the MLP and the chain.
    """
    write_works(FLOATS)
    yield from turns("speed", FLOATS, [side for side in SIDES if side != "torchao"], check)


def load() -> Iterator[Figure]:
    """ResNet-18's file, whose kernels the machine has kept, against onnxruntime's session: time of
    a load in a new process (bar: 1.5), and of that and the first run.
    """
    work = "resnet18"
    if not (FOLDER / f"{work}.onnx").exists():
        write_works(FLOATS)

    def once(side: str) -> tuple[float, float]:
        done = subprocess.run(
            [*command(side, "load"), work], env=environment(side), check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        loaded, ran = json.loads(done.stdout)
        return loaded, loaded + ran

    once("file")  # builds the kernels, where nobody has
    pairs = []
    for r in range(ROUNDS):
        order = ("onnxruntime", "file") if r % 2 else ("file", "onnxruntime")
        times = {side: once(side) for side in order}
        pairs.append((times["onnxruntime"], times["file"]))
    for i, (what, bar) in enumerate((("load", 1.5), ("load and first run", None))):
        theirs, mine = (statistics.median(pair[side][i] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(o[i] / t[i] for t, o in pairs)
        title = f"{WORKS[work].title}, {what} (onnxruntime)"
        yield Figure("load", title, "ms", theirs * 1e3, mine * 1e3, ratio, bar, "lower")


def size() -> Iterator[Figure]:
    """Bytes of the runtime: against its own limit, and with the vendor's library against those of
    the two runtimes for the CPU, without their Python. PoCL is in neither.
    """
    runtime = Path(causeway.__file__).parent / "lib/libcw_run.so"
    vendor = Path(causeway._C.vendor_state()["path"])
    site = next(RIVALS.glob("lib/python3*/site-packages"))
    rivals = {
        "onnxruntime": ["onnxruntime/capi/libonnxruntime.so.*"],
        "openvino": [
            f"openvino/libs/lib{name}.so*"
            for name in ("openvino", "openvino_intel_cpu_plugin", "openvino_onnx_frontend", "tbb")
        ],
    }
    mine = runtime.stat().st_size
    yield _kib("libcw_run.so, to its limit", MOST_RUNTIME, mine, 1)
    mine += vendor.stat().st_size
    versions = {d.name: d.version for d in distributions(path=[str(site)])}
    for name, patterns in rivals.items():
        theirs = sum(f.stat().st_size for p in patterns for f in site.glob(p))
        title = f"libcw_run.so and {vendor.name}, to {name} {versions[name]}"
        yield _kib(title, theirs, mine, None)


def _kib(title: str, theirs: float, mine: float, bar: float | None) -> Figure:
    return Figure("size", title, "KiB", theirs / 1024, mine / 1024, mine / theirs, bar, "lower")


GROUPS = {"speed": speed, "load": load, "size": size}

if __name__ == "__main__":
    sys.exit(main(GROUPS, "ship", "Speed of a model's file against stock torch and two runtimes."))
