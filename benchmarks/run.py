"""Speed of the device against stock torch on the CPU, both sides in one process and in turn.

Every figure is a ratio: each round times both sides one after the other, and the median of the
rounds' ratios counts, so a busy machine slows both. Absolute times are printed for orientation.

    python benchmarks/run.py            all, with a table; writes benchmarks/results/core.json
    python benchmarks/run.py tiny copy  some
    python benchmarks/run.py --check    exit with 1 where a bar is missed
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import causeway
from programs import gpt_step, gru_step, lstm_step, mnist_step

THREADS = 2
RESULTS = Path(__file__).parent / "results"


@dataclass
class Figure:
    """One comparison. `ratio` is ours to stock; `bar` is the limit that the project set itself."""

    group: str
    name: str
    unit: str  # of `stock` and `ours`
    stock: float
    ours: float
    ratio: float
    bar: float | None
    better: str  # "lower" or "higher" ratio

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.ratio <= self.bar if self.better == "lower" else self.ratio >= self.bar


def seconds(f: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        f()
    return (time.perf_counter() - start) / calls


def compare(
    stock: Callable[[], object],
    ours: Callable[[], object],
    *,
    calls: int,
    rounds: int,
    pause: float = 0,
) -> tuple[float, float, float]:
    """(stock seconds, our seconds, median of ours / stock) over `rounds` rounds in turn.

    `pause`: seconds between the sides, where both want all cores and one's threads go on waiting in
    a loop after it is done; cores that were idle so long are slow at first, so a call that is not
    timed follows.
    """
    stock(), ours()
    pairs = []
    for r in range(rounds):
        times = {}
        for side in (stock, ours) if r % 2 == 0 else (ours, stock):
            if pause:
                time.sleep(pause)
                side()
            times[side] = seconds(side, calls)
        pairs.append((times[stock], times[ours]))
    ratio = statistics.median(o / s for s, o in pairs)
    return statistics.median(s for s, _ in pairs), statistics.median(o for _, o in pairs), ratio


def device() -> torch.device:
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        sys.exit("no accelerator: `causeway doctor` says why")
    return accelerator


# --- tiny operators ---------------------------------------------------------------------------


def tiny() -> Iterator[Figure]:
    """Time per call on tensors so small that only the call counts. Bar: 1.5, aim: 1.2."""
    a, b, m = torch.randn(4), torch.rand(4) + 0.5, torch.randn(2, 2)
    cases: dict[str, Callable[..., torch.Tensor]] = {
        "add": lambda a, b, m: a + b,
        "mul": lambda a, b, m: a * b,
        "add_": lambda a, b, m: a.add_(b),
        "mul by a number": lambda a, b, m: a * 1.0,
        "relu": lambda a, b, m: torch.relu(a),
        "exp": lambda a, b, m: torch.exp(b),
        "sum": lambda a, b, m: m.sum(),
        "softmax": lambda a, b, m: torch.softmax(m, 1),
        "mm": lambda a, b, m: torch.mm(m, m),
    }
    there = [t.to(device()) for t in (a, b, m)]
    with torch.no_grad():
        for name, f in cases.items():
            stock, ours, ratio = compare(
                lambda f=f: f(a, b, m), lambda f=f: f(*there), calls=300, rounds=201
            )
            yield Figure("tiny", name, "µs", stock * 1e6, ours * 1e6, ratio, 1.5, "lower")


# --- training steps ---------------------------------------------------------------------------


def step() -> Iterator[Figure]:
    """Training steps; the ratio is of speeds. Bar: 0.95."""
    works = {
        "MNIST network, SGD": mnist_step,
        "2 GPT blocks, AdamW": gpt_step,
        "LSTM of 2 layers, Adam": lstm_step,
        "GRU of 2 layers, Adam": gru_step,
    }
    for name, make in works.items():
        cpu, dev = make(torch.device("cpu")), make(device())
        for f in (cpu, dev):
            seconds(f, 3)
        stock, ours, ratio = compare(cpu, dev, calls=3, rounds=15)
        yield Figure("step", name, "ms", stock * 1e3, ours * 1e3, 1 / ratio, 0.95, "higher")


# --- mixed precision --------------------------------------------------------------------------


def amp() -> Iterator[Figure]:
    """What autocast adds to an operator, as the factor by which it takes longer, ours to the CPU's
    (bar: 1.2); and a training step under it, whose ratio is of speeds (bar: 0.9).
    """
    weight = torch.randn(8, 8, requires_grad=True)
    x = torch.randn(8, 8, dtype=torch.bfloat16)
    cases: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "mm with a cached weight": torch.mm,
        "mm of bfloat16": lambda x, w: torch.mm(x, x),
        "mse_loss, in float32": lambda x, w: nn.functional.mse_loss(x, x),
        "relu, which it leaves alone": lambda x, w: torch.relu(x),
    }
    there = (x.to(device()), weight.detach().to(device()).requires_grad_())
    for name, f in cases.items():
        factors = []
        for args in ((x, weight), there):
            kind = args[0].device.type
            low = tuple(a.detach().to(x.dtype) for a in args)

            def cast(f: Callable[..., object] = f, args: object = args, kind: str = kind) -> None:
                with torch.autocast(kind, dtype=torch.bfloat16):
                    for _ in range(50):
                        f(*args)

            def plain(f: Callable[..., object] = f, low: object = low) -> None:
                for _ in range(50):
                    f(*low)

            factors.append(compare(plain, cast, calls=3, rounds=41)[2])
        stock, ours = factors
        yield Figure("amp", name, "times", stock, ours, ours / stock, 1.2, "lower")

    def step(where: torch.device) -> Callable[[], object]:
        make = gpt_step(where)

        def mixed() -> None:
            with torch.autocast(where.type, dtype=torch.bfloat16):
                make()

        return mixed

    cpu, dev = step(torch.device("cpu")), step(device())
    stock, ours, ratio = compare(cpu, dev, calls=1, rounds=9)
    name = "2 GPT blocks, AdamW, bfloat16 autocast"
    yield Figure("amp", name, "ms", stock * 1e3, ours * 1e3, 1 / ratio, 0.9, "higher")


# --- memory -----------------------------------------------------------------------------------


def copy() -> Iterator[Figure]:
    """256 MiB to the device and back, against torch.clone on the CPU; of speeds. Bar: 0.9."""
    host = torch.randn(64 << 20)
    there = host.to(device())
    for name, f in {"to the device": lambda: host.to(device()), "to the host": there.cpu}.items():
        stock, ours, ratio = compare(host.clone, f, calls=1, rounds=9)
        yield Figure("copy", name, "ms", stock * 1e3, ours * 1e3, 1 / ratio, 0.9, "higher")


def allocation() -> Iterator[Figure]:
    """torch.empty from the cache. The bar is a difference: 1 µs more than on the CPU."""
    where = device()
    for name, n in {"4 B": 1, "64 KiB": 16 << 10, "4 MiB": 1 << 20}.items():
        stock, ours, _ = compare(
            lambda n=n: torch.empty(n),
            lambda n=n: torch.empty(n, device=where),
            calls=2000,
            rounds=15,
        )
        yield _more("allocation", f"{name}, µs more", "µs", [(stock, ours)], 1.0)


# --- layouts ------------------------------------------------------------------------------------

# In a process of its own, where the chip offers all that it has: a kernel that wants dense tensors.
LAYOUTS = """
import json, sys, torch
sys.path.insert(0, {folder!r})
from run import compare
torch.set_num_threads({threads})
n, norm = 512, torch.nn.functional.layer_norm
cube = torch.randn(8, n, n, device={where!r})
layouts = {{
    "transposed": cube.transpose(1, 2),
    "sliced": torch.randn(8, 2 * n, n + 4, device={where!r})[:, ::2, 2:-2],
    "expanded": cube[:1].expand(8, n, n),
    "permuted twice": cube.permute(1, 2, 0).permute(2, 1, 0),
}}
found = {{}}
for name, x in layouts.items():
    dense = compare(lambda: norm(cube, (n,)), lambda: norm(x, (n,)), calls=2, rounds=9)
    by_hand = compare(
        lambda: norm(x.contiguous(), (n,)), lambda: norm(x, (n,)), calls=2, rounds=9
    )
    found[name] = [dense, by_hand]
print(json.dumps(found))
"""


def layout() -> Iterator[Figure]:
    """Strided inputs of a kernel that wants dense ones: against a dense input, and against one copy
    made by hand. Views before it add none, so the bar for the latter is 1.2.
    """
    given = {"folder": str(Path(__file__).parent), "threads": THREADS, "where": str(device())}
    done = subprocess.run(
        [sys.executable, "-c", LAYOUTS.format(**given)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "CAUSEWAY_SIM_OPS": "all"},
    )
    for name, (dense, by_hand) in json.loads(done.stdout).items():
        for against, (a, b, ratio), bar in (("dense", dense, None), ("one copy", by_hand, 1.2)):
            title = f"{name}, to {against}"
            yield Figure("layout", title, "ms", a * 1e3, b * 1e3, ratio, bar, "lower")


# Weights of which one has a pointer given away, and so is not kept in the chip's own layout.
FORMS = """
import json, sys, torch
sys.path.insert(0, {folder!r})
from run import compare
torch.set_num_threads({threads})
linear, found = torch.nn.functional.linear, {{}}
cases = [("float32", n) for n in (1, 8, 256)] + [("bfloat16", n) for n in (1, 8)]
for dtype, rows in cases:
    x = torch.randn(rows, 1024).to({where!r}, getattr(torch, dtype))
    plain, kept = torch.randn(2, 1024, 1024).to({where!r}, x.dtype).unbind()
    plain, kept = plain.clone(), kept.clone()
    plain.data_ptr()
    for _ in range(3):
        linear(x, kept)
    there = torch.get_device_module({where!r}).layout_stats()
    assert there["kept"] == 1, there
    calls = max(1, 16 // rows)
    found[f"{{dtype}}, {{rows}} rows"] = compare(
        lambda: linear(x, plain), lambda: linear(x, kept), calls=calls, rounds=31
    )
    del kept
print(json.dumps(found))
"""


def forms() -> Iterator[Figure]:
    """A linear layer of 1024 x 1024 by the simulated chip's own product, whose weight is kept in
    the chip's layout, against the same from the plain weight; of speeds. Bar: 1.5 for few rows.
    """
    given = {"folder": str(Path(__file__).parent), "threads": THREADS, "where": str(device())}
    done = subprocess.run(
        [sys.executable, "-c", FORMS.format(**given)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "CAUSEWAY_SIM_OPS": "all"},
    )
    for name, (stock, ours, ratio) in json.loads(done.stdout).items():
        bar = None if "256" in name else 1.5
        yield Figure("forms", name, "ms", stock * 1e3, ours * 1e3, 1 / ratio, bar, "higher")


# --- tools --------------------------------------------------------------------------------------


def tools() -> Iterator[Figure]:
    """A training step while a tool looks on, against the same step without. Bars: 4 for comparing
    every operator, 1.5 for an observer that is told of every operator.
    """
    import causeway
    from causeway.observe import observe

    step = mnist_step(device())
    seconds(step, 3)

    def compared() -> None:
        with causeway.compare():
            step()

    class Names(observe.Observer):
        def after(self, call: observe.ObservedCall) -> None:
            names.append((call.name, call.rung))

    names: list[tuple[str, str]] = []

    def observed() -> None:
        names.clear()
        observer = Names()
        observe.add(observer)
        try:
            step()
        finally:
            observe.remove(observer)

    for name, f, bar in (
        ("compare, every operator of the MNIST step", compared, 4.0),
        ("observer, every operator of the MNIST step", observed, 1.5),
    ):
        stock, ours, ratio = compare(step, f, calls=1, rounds=15)
        yield Figure("tools", name, "ms", stock * 1e3, ours * 1e3, ratio, bar, "lower")


# --- processes ----------------------------------------------------------------------------------


def _run(code: str, **env: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **env})


IMPORT = """
import os, time
start = time.process_time()
import torch
stock = time.process_time()
torch._import_device_backends()
with open(os.environ["OUT"], "w") as file:
    file.write(f"{stock - start} {time.process_time() - stock}")
"""

# atexit runs last in, first out: the clock stops in a function that is registered before all.
END = """
import atexit, os, time
start = [0.0]
stop = lambda: open(os.environ["OUT"], "w").write(str(time.perf_counter() - start[0]))
atexit.register(stop)
import torch
w = torch.ones(4, device="{}", requires_grad=True)
(w * w).sum().backward()
start[0] = time.perf_counter()
"""


def process() -> Iterator[Figure]:
    """`import torch` with and without Causeway (bar: 100 ms more), and the end of a process."""
    # pip compiles what it installs; a source tree may not be compiled.
    compileall.compile_dir(Path(causeway.__file__).parent, quiet=1)
    # What torch calls at the end of its import, timed by itself: whole imports differ by more.
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds"
        for _ in range(9):
            _run(IMPORT, OUT=str(out), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
            stock, more = map(float, out.read_text().split())
            pairs.append((stock, stock + more))
    yield _more("process", "import torch, CPU ms more", "ms", pairs, 100)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds"
        pairs = []
        for _ in range(9):
            times = []
            for where in ("cpu", str(device())):
                _run(END.format(where), OUT=str(out))
                times.append(float(out.read_text()))
            pairs.append((times[0], times[1]))
    yield _more("process", "end after a backward, ms more", "ms", pairs, 5)


def _more(group: str, name: str, unit: str, pairs: list[tuple[float, float]], bar: float) -> Figure:
    """The median difference of pairs of seconds; the bar is for it."""
    scale = {"ms": 1e3, "µs": 1e6}[unit]
    stock, ours = (statistics.median(side) * scale for side in zip(*pairs, strict=True))
    more = statistics.median(o - s for s, o in pairs) * scale
    return Figure(group, name, unit, stock, ours, more, bar, "lower")


# --- torch.distributed ---------------------------------------------------------------------------


def collectives() -> Iterator[Figure]:
    """Two processes: all_reduce of 64 MiB and a step of DDP, against gloo on the CPU's tensors."""
    ways: dict[str, dict[str, str]] = {
        "by the vendor": {},
        "through gloo": {"CAUSEWAY_SIM_COMM": "none"},
        "through pinned memory": {
            "CAUSEWAY_SIM_COMM": "none",
            "CAUSEWAY_SIM_MEMORY_MODEL": "discrete",
        },
    }
    script = Path(__file__).with_name("collectives.py")
    for way, env in ways.items():
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
             str(script)],
            check=True, capture_output=True, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        )  # fmt: skip
        line = next(x for x in done.stdout.splitlines() if x.startswith("figures "))
        for name, pairs in json.loads(line.removeprefix("figures ")).items():
            discrete = "MODEL" in "".join(env)
            bar = None if discrete and name == "ddp" else 0.9 if name == "ddp" else 0.8
            label = "DDP step" if name == "ddp" else "all_reduce of 64 MiB"
            stock, ours = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
            ratio = statistics.median(s / o for s, o in pairs)
            yield Figure(
                "collectives", f"{label}, {way}", "ms", stock, ours, ratio,
                0.5 if discrete and bar else bar, "higher",
            )  # fmt: skip


Groups = Mapping[str, Callable[[], Iterator[Figure]]]
GROUPS: Groups = {
    "collectives": collectives,
    "tiny": tiny,
    "step": step,
    "amp": amp,
    "copy": copy,
    "allocation": allocation,
    "layout": layout,
    "forms": forms,
    "tools": tools,
    "process": process,
}


def main(groups: Groups, report_name: str, about: str) -> int:
    """Run the groups that the command line names, print the table, write the results. The whole
    goes to results/`report_name`.json, a part to a file named after its groups.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("group", nargs="*", help=f"of {', '.join(groups)}")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a bar is missed")
    parser.add_argument("--threads", type=int, default=THREADS, help="of torch on the CPU")
    options = parser.parse_args()
    if unknown := set(options.group) - set(groups):
        parser.error(f"unknown group {', '.join(unknown)}; there are {', '.join(groups)}")
    torch.set_num_threads(options.threads)
    figures = []
    table = Table(
        title=f"{device()} against stock torch {torch.__version__} on the CPU, "
        f"threads: {options.threads}"
    )
    for column in ("", "what", "stock", "ours", "ratio", "bar", ""):
        table.add_column(column, justify="left" if column in ("", "what") else "right")
    for name in options.group or groups:
        for f in groups[name]():
            figures.append(f)
            mark = {None: "", True: "met", False: "[red]missed[/]"}[f.met]
            bar = "" if f.bar is None else ("≤ " if f.better == "lower" else "≥ ") + f"{f.bar:g}"
            table.add_row(
                f.group, f.name, f"{f.stock:.2f} {f.unit}", f"{f.ours:.2f} {f.unit}",
                f"{f.ratio:.2f}", bar, mark,
            )  # fmt: skip
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    report = {
        "torch": torch.__version__,
        "device": str(device()),
        "device_name": torch.get_device_module(device()).get_device_name(0),
        "threads": options.threads,
        "machine": platform.machine(),
        "figures": [{**asdict(f), "met": f.met} for f in figures],
    }
    name = report_name if not options.group else "-".join([report_name, *options.group])
    (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return 1 if options.check and any(f.met is False for f in figures) else 0


if __name__ == "__main__":
    sys.exit(main(GROUPS, "core", __doc__.splitlines()[0]))
