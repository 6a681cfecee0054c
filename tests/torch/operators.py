"""torch's operator database on the device against the CPU.

    python tests/torch/operators.py [-n 2] [--dtypes float32,int64] [--kinds forward] [op ...]

A cell is an operator, a dtype and a kind of call: forward, in-place, out=, backward, second order,
forward mode, vmap, and the errors that the operator promises. Its samples are the database's own,
made on the CPU and copied to both sides (same.py says what is compared). Where the CPU refuses, the
device must refuse, with the same type of error, but for dtypes that CUDA takes (test_cuda_only.py).
What need not agree is in excepted.py; an entry of it that agrees is a failure too.

Random operators draw the same numbers for the same seed and leave the host's generator alone; what
empty() gives has no values. The table at the end counts cells.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import excepted
import torch
from same import SEED, Copies, Gradients, Host, Tensor, compare, first_line, tensors, weights

from causeway.integrations.opinfo import cuda_alone

# Those that take float32 only do not depend on the dtype.
KINDS = (
    "forward", "inplace", "out", "backward", "second", "jvp", "vmap", "errors", "refusals",
)  # fmt: skip
DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "int64", "bool")
# How many samples a cell takes, spread evenly over those that there are; None: all.
SAMPLES = {
    "forward": None, "inplace": None, "out": 6, "backward": None, "second": 2,
    "jvp": 4, "vmap": 4, "errors": None, "refusals": 2,
}  # fmt: skip
WITH_GRADIENTS = ("backward", "second", "jvp")
# What these give has no values yet.
VALUELESS = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip


@dataclass
class Cell:
    """What came of one operator, dtype and kind. `status`: passed, failed, excepted or n/a."""

    operator: str
    dtype: str
    kind: str
    status: str = "n/a"
    samples: int = 0
    exact: bool = True
    words: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.dtype, self.operator


# --- kinds ---------------------------------------------------------------------------------------

Case = tuple[Callable[..., Any], Any, str]  # a function, its arguments, and what it is in words


def _arguments(op: Any, sample: Any) -> tuple[Any, ...]:
    args, kwargs = sample.args, sample.kwargs
    if op.name == "tensor_split":  # the places of the splits are numbers for the host
        args = tuple(Host(x) if isinstance(x, Tensor) else x for x in args)
    if op.name == "to":  # `device` may come without its name
        args = tuple(torch.device(x) if x == "cpu" else x for x in args)
    return sample.input, args, kwargs


def _forward(op: Any, sample: Any) -> Iterator[Case]:
    yield lambda x, args, kwargs: op(x, *args, **kwargs), _arguments(op, sample), ""


def _inplace(op: Any, sample: Any) -> Iterator[Case]:
    function = op.get_inplace()

    def call(x: Any, args: Any, kwargs: Any) -> Any:
        result = function(x, *args, **kwargs)
        return result, result is x

    yield call, _arguments(op, sample), ""


def _out(op: Any, sample: Any) -> Iterator[Case]:
    """out= of the right shape, with room around each element, too small, of another dtype."""
    x, args, kwargs = Copies("cpu").of(_arguments(op, sample))
    try:
        expected = op(x, *args, **kwargs)
    except Exception:
        return  # refused by the CPU: for another kind to say
    outs = expected if isinstance(expected, tuple | list) else (expected,)
    if not outs or not all(isinstance(x, Tensor) and x.layout == torch.strided for x in outs):
        return

    def filled(x: Tensor) -> Tensor:
        return x.fill_(float("nan") if x.is_floating_point() else 1)

    def spread(x: Tensor) -> Tensor:
        wide = torch.empty([2 * n for n in x.shape], dtype=x.dtype)
        return filled(wide)[tuple(slice(None, None, 2) for _ in x.shape)]

    makers: dict[str, Callable[[Tensor], Tensor]] = {
        "right": lambda x: filled(torch.empty_like(x, memory_format=torch.contiguous_format)),
        "like": lambda x: filled(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)),
        "spread": spread,
        "empty": lambda x: torch.empty(0, dtype=x.dtype),
        "small": lambda x: filled(torch.empty(1, dtype=x.dtype)),
        "int": lambda x: torch.zeros(x.shape, dtype=torch.int32),
        "double": lambda x: torch.zeros(x.shape, dtype=torch.float64),
        "complex": lambda x: torch.zeros(x.shape, dtype=torch.complex128),
    }
    several = isinstance(expected, tuple | list)

    def call(x: Any, args: Any, kwargs: Any, out: Any) -> Any:
        result = op(x, *args, **kwargs, out=out)
        given = out if isinstance(out, tuple | list) else (out,)
        back = result if isinstance(result, tuple | list) else (result,)
        return list(back), [a is b for a, b in zip(back, given, strict=True)]

    for words, make in makers.items():
        made = tuple(make(x.detach()) for x in outs)
        yield call, (*_arguments(op, sample), made if several else made[0]), f"out={words}"


def _differentiable(given: Any) -> list[Tensor]:
    return [x for x in tensors(given) if x.requires_grad]


def _backward(op: Any, sample: Any) -> Iterator[Case]:
    finish = sample.output_process_fn_grad

    def call(x: Any, args: Any, kwargs: Any) -> Any:
        leaves = _differentiable((x, args, kwargs))
        out = op.gradcheck_wrapper(op.get_op(), x, *args, **kwargs)
        used = [r for r in tensors(finish(out)) if r.requires_grad]
        if not used or not leaves:
            return out, None
        grads = torch.autograd.grad(used, leaves, [weights(r) for r in used], allow_unused=True)
        return out, Gradients(grads)

    yield call, _arguments(op, sample), ""


def _second(op: Any, sample: Any) -> Iterator[Case]:
    finish = sample.output_process_fn_grad

    def call(x: Any, args: Any, kwargs: Any) -> Any:
        leaves = _differentiable((x, args, kwargs))
        out = op.gradcheck_wrapper(op.get_op(), x, *args, **kwargs)
        used = [r for r in tensors(finish(out)) if r.requires_grad]
        if not used or not leaves:
            return None
        first = torch.autograd.grad(
            used, leaves, [weights(r) for r in used], allow_unused=True, create_graph=True
        )
        again = [g for g in first if g is not None and g.requires_grad]
        if not again:
            return Gradients(first), None
        seconds = torch.autograd.grad(again, leaves, [weights(g) for g in again], allow_unused=True)
        # Where several are summed, the strides are those of the first. Which is the first goes by
        # the numbers of nodes, and a backward on a device counts those that it makes by itself.
        seconds = (None if g is None else g.contiguous() for g in seconds)
        return Gradients(first), Gradients(seconds)

    yield call, _arguments(op, sample), ""


def _jvp(op: Any, sample: Any) -> Iterator[Case]:
    from torch.autograd import forward_ad

    def dual(x: Any) -> Any:
        if isinstance(x, Tensor):
            return forward_ad.make_dual(x.detach(), weights(x)) if x.requires_grad else x
        if isinstance(x, list | tuple):
            return type(x)(dual(y) for y in x)
        return {k: dual(v) for k, v in x.items()} if isinstance(x, dict) else x

    def call(x: Any, args: Any, kwargs: Any) -> Any:
        with forward_ad.dual_level():
            out = op.gradcheck_wrapper(op.get_op(), dual(x), *dual(args), **dual(kwargs))
            return [tuple(forward_ad.unpack_dual(r)) for r in tensors(out)]

    yield call, _arguments(op, sample), ""


def _vmap(op: Any, sample: Any) -> Iterator[Case]:
    def call(x: Any, args: Any, kwargs: Any) -> Any:
        given = [*tensors((x, args, kwargs))]
        if not given:
            return None
        stacked = [torch.stack([t, t]) for t in given]

        def function(*each: Tensor) -> Any:
            it = iter(each)

            def replace(y: Any) -> Any:
                if isinstance(y, Tensor):
                    return next(it)
                if isinstance(y, list | tuple):
                    return type(y)(replace(z) for z in y)
                return {k: replace(v) for k, v in y.items()} if isinstance(y, dict) else y

            new_x, new_args, new_kwargs = replace(x), replace(args), replace(kwargs)
            return [*tensors(op(new_x, *new_args, **new_kwargs))]

        return torch.func.vmap(function, randomness="different")(*stacked)

    yield call, _arguments(op, sample), ""


CASES = {
    "forward": _forward,
    "inplace": _inplace,
    "out": _out,
    "backward": _backward,
    "second": _second,
    "jvp": _jvp,
    "vmap": _vmap,
    "errors": _forward,
    "refusals": _forward,
}


def applies(op: Any, kind: str, dtype: torch.dtype) -> bool:
    """Whether the database declares this cell."""
    supported = dtype in op.supported_dtypes("cpu")
    if kind == "refusals":
        # What the CPU has no kernel for at all is CUDA's alone: test_composed.py.
        return bool(op.dtypes) and not supported and dtype not in cuda_alone(op)
    if kind == "errors":
        return dtype == torch.float32 and op.error_inputs_func is not None
    with_gradients = dtype in op.supported_backward_dtypes("cpu")
    return (
        supported
        and {
            "forward": True,
            "inplace": op.get_inplace() is not None,
            "out": op.supports_out,
            "backward": with_gradients,
            "second": with_gradients and op.supports_gradgrad,
            "jvp": with_gradients and op.supports_forward_ad,
            "vmap": True,
        }[kind]
    )


def _samples(op: Any, kind: str, dtype: torch.dtype) -> list[Any]:
    random.seed(SEED)
    torch.manual_seed(SEED)
    if kind == "errors":
        return [error.sample_input for error in op.error_inputs("cpu")]
    return list(op.sample_inputs("cpu", dtype, requires_grad=kind in WITH_GRADIENTS))


def _spread(samples: list[Any], most: int | None) -> list[Any]:
    if most is None or len(samples) <= most:
        return samples
    return [samples[i * len(samples) // most] for i in range(most)]


def check(op: Any, dtype: str, kinds: tuple[str, ...]) -> Iterator[Cell]:
    """All cells of an operator and a dtype."""
    made: dict[Any, list[Any]] = {}
    for kind in kinds:
        cell = Cell(op.full_name, dtype, kind)
        start = time.perf_counter()
        if applies(op, kind, getattr(torch, dtype)):
            source = "errors" if kind == "errors" else kind in WITH_GRADIENTS
            try:
                if source not in made:
                    made[source] = _samples(op, kind, getattr(torch, dtype))
            except Exception as error:
                if kind == "refusals":
                    yield cell  # no arguments of this dtype can be made
                    continue
                made[source] = []
                cell.words.append(f"no samples: {first_line(error)}")
            _check(op, cell, _spread(made[source], SAMPLES[kind]))
        cell.seconds = round(time.perf_counter() - start, 3)
        yield cell


def _check(op: Any, cell: Cell, samples: list[Any]) -> None:
    found: dict[str, str] = {}
    for sample in samples:
        for function, given, what in CASES[cell.kind](op, sample):
            cell.samples += 1
            verdict = compare(function, given, valueless=op.name in VALUELESS)
            cell.exact &= verdict.exact
            if verdict.words:
                words = f"{what} {verdict.words}".strip()
                found.setdefault(words[:40], f"{words} <- {_describe(given)}")
    cell.words += found.values()
    settled(cell)


def settled(cell: Cell) -> Cell:
    """Its status, by what differs and by what may."""
    cell.status = "failed" if cell.words else "passed"
    if entry := excepted.find(*cell.key):
        if cell.words or entry.by_chance:
            cell.status = "excepted"
        else:
            cell.status = "failed"
            cell.words = ["agrees with the CPU: take its entry out of excepted.py"]
    return cell


def _describe(given: Any) -> str:
    """Arguments in a line: tensors by dtype, shape and strides."""
    if isinstance(given, Tensor):
        words = f"{str(given.dtype)[6:]}{list(given.shape)}"
        if given.layout != torch.strided or given.is_nested:
            return f"{words}:{str(given.layout)[6:]}"
        return words if given.is_contiguous() else f"{words}:{given.stride()}"
    if isinstance(given, list | tuple):
        return f"({', '.join(_describe(x) for x in given)})"
    if isinstance(given, dict):
        return f"{{{', '.join(f'{k}={_describe(v)}' for k, v in given.items())}}}"
    return repr(given)[:60]


# --- the whole database --------------------------------------------------------------------------


def database() -> list[Any]:
    from torch.testing._internal import common_methods_invocations

    # Random operators come with a seed of their own, which hides that they drew.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    op_db = common_methods_invocations.op_db
    return sorted(op_db, key=lambda op: op.full_name)


def sweep(
    ops: list[Any], dtypes: tuple[str, ...] = DTYPES, kinds: tuple[str, ...] = KINDS, start: int = 0
) -> Iterator[Cell]:
    """The cells of these operators, one after the other, without the first `start` of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in ops:
            for i, dtype in enumerate(dtypes):
                rest = kinds[max(0, start - i * len(kinds)) :]
                yield from check(op, dtype, rest)


def serve(dtypes: tuple[str, ...], kinds: tuple[str, ...]) -> None:
    """A worker: an operator's number and a start in, its cells out, a line of JSON each."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    ops = database()
    for line in sys.stdin:
        number, start = map(int, line.split())
        for cell in sweep([ops[number]], dtypes, kinds, start):
            replies.write(json.dumps(asdict(cell)) + "\n")
            replies.flush()


class Worker:
    """A Python that sweeps operators; a new one where it died or took too long."""

    LIMIT_S = 300  # for a cell

    def __init__(self, dtypes: tuple[str, ...], kinds: tuple[str, ...]) -> None:
        self.chosen = ["--dtypes", ",".join(dtypes), "--kinds", ",".join(kinds)]
        self.dtypes, self.kinds = dtypes, kinds
        self.process: Any = None

    def run(self, number: int, name: str) -> Iterator[Cell]:
        """The cells of an operator. One that ends the process fails, and the next are run anew."""
        every = [(dtype, kind) for dtype in self.dtypes for kind in self.kinds]
        done = 0
        while done < len(every):
            self._ask(f"{number} {done}\n")
            while done < len(every):
                reply = self._reply()
                if not reply:
                    status = self.process.wait()
                    self.process = None
                    words = [f"the process ended with status {status}"]
                    dtype, kind = every[done]
                    yield settled(Cell(name, dtype, kind, words=words))
                    done += 1
                    break
                yield Cell(**json.loads(reply))
                done += 1

    def _ask(self, line: str) -> None:
        if self.process is None:
            command = [sys.executable, "-X", "faulthandler", __file__, "--serve", *self.chosen]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def _reply(self) -> str:
        timer = threading.Timer(self.LIMIT_S, self.process.kill)
        timer.start()
        try:
            return self.process.stdout.readline()
        finally:
            timer.cancel()

    def stop(self) -> None:
        if self.process is not None:
            self.process.communicate()


def sweep_with_workers(
    names: list[str], dtypes: tuple[str, ...], kinds: tuple[str, ...], workers: int
) -> list[Cell]:
    """The cells of the operators named (all for none), swept by several processes."""
    every = [op.full_name for op in database()]
    unknown = set(names) - set(every)
    if unknown:
        raise ValueError(f"torch's database has no {', '.join(sorted(unknown))}")
    numbers = collections.deque(i for i, name in enumerate(every) if not names or name in names)
    cells: list[Cell] = []

    def work() -> None:
        worker = Worker(dtypes, kinds)
        while numbers:
            number = numbers.popleft()
            cells.extend(worker.run(number, every[number]))
        worker.stop()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(cells, key=lambda cell: (cell.operator, cell.dtype, cell.kind))


STATUSES = ("passed", "failed", "excepted", "n/a")


def table(cells: list[Cell]) -> dict[str, dict[str, dict[str, int]]]:
    """Counts by kind and dtype: cells by status, samples, and the passed that are bit-equal."""
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for cell in cells:
        row = counts.setdefault(cell.kind, {}).setdefault(cell.dtype, collections.Counter())
        row[cell.status] += 1
        row["samples"] += cell.samples
        row["exact"] += cell.status == "passed" and cell.exact
    names = (*STATUSES, "exact", "samples")
    return {
        kind: {dtype: {n: counts[kind][dtype][n] for n in names} for dtype in sorted(counts[kind])}
        for kind in sorted(counts)
    }


def show(counts: dict[str, dict[str, dict[str, int]]]) -> str:
    names = (*STATUSES, "exact", "samples")
    lines = [f"{'kind':9} {'dtype':10} " + " ".join(f"{name:>8}" for name in names)]
    for kind, rows in counts.items():
        for dtype, row in rows.items():
            lines.append(f"{kind:9} {dtype:10} " + " ".join(f"{row[name]:8}" for name in names))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", help="full names; none: all")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("-n", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, help="write all cells that do not pass, and the table")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    dtypes, kinds = tuple(given.dtypes.split(",")), tuple(given.kinds.split(","))
    if given.serve:
        serve(dtypes, kinds)
        return 0
    start = time.monotonic()
    cells = sweep_with_workers(given.operators, dtypes, kinds, given.n)
    for cell in cells:
        if cell.status == "failed":
            print(f"FAILED {cell.kind} {cell.dtype} {cell.operator}")
            for words in cell.words[:4]:
                print(f"    {words}")
    counts = table(cells)
    print(show(counts))
    print(f"{len(cells)} cells in {time.monotonic() - start:.0f} s")
    if given.json:
        rest = [asdict(cell) for cell in cells if cell.status in ("failed", "excepted")]
        given.json.write_text(json.dumps({"counts": counts, "cells": rest}, indent=1) + "\n")
    return 1 if any(cell.status == "failed" for cell in cells) else 0


if __name__ == "__main__":
    sys.exit(main())
