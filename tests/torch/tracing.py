"""torch.jit.trace over torch's operator database, on the device.

    python tests/torch/tracing.py [--backward] [op ...]

An operator is traced with a sample and called with other values of the same shapes: what the trace
gives must be what the operator gives, on the device, and so must gradients through it. Where the
trace of the CPU differs from the CPU's operator too, or torch cannot trace the call, it is torch's
own limit, and counted so.
"""

from __future__ import annotations

import collections
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import operators
import torch
from same import SEED, Copies, first_line, tensors, weights
from torch import Tensor

NAME = torch._C._get_privateuse1_backend_name()
SAMPLES = 3


def places(given: Any, found: list[Tensor]) -> Any:
    """`given` with a number for each tensor, which goes to `found`."""
    if isinstance(given, Tensor):
        found.append(given)
        return _Place(len(found) - 1)
    if isinstance(given, list | tuple):
        return type(given)(places(x, found) for x in given)
    return {k: places(v, found) for k, v in given.items()} if isinstance(given, dict) else given


class _Place(int):
    pass


def filled(given: Any, by: tuple[Tensor, ...]) -> Any:
    if isinstance(given, _Place):
        return by[given]
    if isinstance(given, list | tuple):
        return type(given)(filled(x, by) for x in given)
    return {k: filled(v, by) for k, v in given.items()} if isinstance(given, dict) else given


def other(t: Tensor) -> Tensor:
    """Other values of the same kind: in the same domain for nearly all operators."""
    if not t.is_floating_point():
        return t.clone()
    return (t.detach() * 0.75).requires_grad_(t.requires_grad)


def _run(function: Callable[..., Any], given: list[Tensor], backward: bool) -> list[Tensor]:
    torch.manual_seed(SEED)
    results = [*tensors(function(*given))]
    if not backward:
        return results
    used = [r for r in results if r.requires_grad]
    leaves = [t for t in given if t.requires_grad]
    if not used or not leaves:
        return results
    grads = torch.autograd.grad(used, leaves, [weights(r) for r in used], allow_unused=True)
    return results + [g for g in grads if g is not None]


def _difference(device: str, op: Any, sample: Any, backward: bool) -> str | None:
    """What the trace does other than the operator; None where it does the same."""
    found: list[Tensor] = []
    frame = places(operators._arguments(op, sample), found)
    strided = all(isinstance(t, Tensor) and t.layout == torch.strided for t in found)
    if not found or not strided or any(t.is_nested for t in found):
        raise LookupError("no dense tensors")
    given = [*Copies(device).of(found)]

    def function(*each: Tensor) -> Any:
        x, args, kwargs = filled(frame, each)
        return tuple(tensors(op(x, *args, **kwargs)))

    try:
        fresh = [other(t) for t in given]
        expected = _run(function, fresh, backward)
        torch.manual_seed(SEED)
        traced = torch.jit.trace(function, tuple(given), check_trace=False)
    except Exception as error:
        raise LookupError(first_line(error)) from None
    try:
        got = _run(traced, fresh, backward)
    except Exception as error:
        return f"raises {first_line(error)}"
    if len(got) != len(expected):
        return f"{len(got)} results, not {len(expected)}"
    for a, b in zip(got, expected, strict=True):
        if a.device != b.device:
            return f"on {a.device}, not {b.device}"
        try:
            torch.testing.assert_close(a, b, equal_nan=True, check_layout=False)
        except AssertionError as error:
            return first_line(error)
    return None


def check(op: Any, backward: bool) -> Iterator[tuple[str, str]]:
    """(what came of it, words) for some samples: same, differs, or torch's own limit."""
    if torch.float32 not in op.supported_dtypes("cpu") or (
        backward and torch.float32 not in op.supported_backward_dtypes("cpu")
    ):
        return
    kind = "backward" if backward else "forward"
    if op.name in operators.VALUELESS:
        return
    for sample in operators._spread(operators._samples(op, kind, torch.float32), SAMPLES):
        try:
            theirs = _difference("cpu", op, sample, backward)
        except LookupError as error:
            yield "not traced by torch", str(error)
            continue
        if theirs:
            yield "wrong on the CPU too", theirs
            continue
        try:
            ours = _difference(NAME, op, sample, backward)
        except LookupError as error:
            yield "differs", f"not traced: {error}"
            continue
        yield ("differs", ours) if ours else ("same", "")


def scan(ops: list[Any], backward: bool) -> tuple[collections.Counter[str], list[str]]:
    """How many operators came out how, by the worst of their samples, and what differs."""
    counts: collections.Counter[str] = collections.Counter()
    wrong = []
    order = ("differs", "same", "wrong on the CPU too", "not traced by torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in ops:
            verdicts = [*check(op, backward)]
            if not verdicts:
                continue
            worst = min(verdicts, key=lambda v: order.index(v[0]))
            counts[worst[0]] += 1
            if worst[0] == "differs":
                wrong.append(f"{op.full_name}: {worst[1]}")
    return counts, wrong


if __name__ == "__main__":
    chosen = [a for a in sys.argv[1:] if a != "--backward"]
    database = [op for op in operators.database() if not chosen or op.full_name in chosen]
    tally, differing = scan(database, "--backward" in sys.argv)
    print(*differing, sep="\n")
    print(dict(tally))
    sys.exit(bool(differing))
