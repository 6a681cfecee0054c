"""Which call of one trace is which of another, though the two machines split operators differently.

Functional, in-place and out= forms of an operator count as one. Views and allocations are left out:
they compute nothing, and every backend has its own. What is left is aligned as `diff` aligns lines:
first by operator, phase and the shapes of the results, then, in the gaps, by operator alone. What
still has no partner may stand elsewhere in its step (an optimizer goes by parameters, or by
operators), where operator, shapes and numbers tell.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from causeway.debug.reader import Trace
from causeway.debug.tensors import TensorRecord
from causeway.debug.trace import Call
from causeway.debug.values import tensors_in
from causeway.numerics import base_name

# Names of the same computation: what a device is asked for in place of what torch's CPU is.
SAME = {
    "convolution_overrideable": "convolution",
    "convolution_backward_overrideable": "convolution_backward",
    "cudnn_convolution": "convolution",
    "mkldnn_convolution": "convolution",
    "cudnn_batch_norm": "native_batch_norm",
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
    "native_batch_norm_legit": "native_batch_norm",
    "zeros": "zero",
    "zeros_like": "zero",
    "new_zeros": "zero",
    "ones": "fill",
    "ones_like": "fill",
    "new_ones": "fill",
    "full": "fill",
    "full_like": "fill",
    "new_full": "fill",
    "scalar_tensor": "fill",
    "to_copy": "copy",
    "copy_from": "copy",
    "clone": "copy",
    "contiguous": "copy",
}
# Memory that nobody has written yet: its values mean nothing.
UNWRITTEN = re.compile(r"(new_)?empty\w*|resize\w*")
# Nothing is computed: memory is made, named anew or read by the host.
NOTHING = re.compile(
    rf"{UNWRITTEN.pattern}|set|local_scalar_dense|item|record_stream|detach|alias|lift\w*"
    r"|as_strided|view\w*|reshape_alias|unsafe_view|pin_memory|is_pinned|storage_offset"
)


FILLS = {"copy", "fill", "zero"}


def canonical(operator: str) -> str:
    """The computation that an operator is, whatever its form: "add" for aten::add_.Tensor."""
    name = base_name(operator).removeprefix("foreach_")
    return SAME.get(name, name)


def computes(call: Call, schema: str) -> bool:
    """Whether a call makes numbers: no view, no allocation."""
    if NOTHING.fullmatch(base_name(call.operator)):
        return False
    returned = schema.rpartition("->")[2]
    return not re.search(r"\([a-z]\d*(\|[a-z]\d*)*\)", returned)  # a view: Tensor(a), not (a!)


def outputs(call: Call) -> list[TensorRecord]:
    """What a call left: its results, and what it changed."""
    return list(tensors_in([call.results, *call.written.values()], TensorRecord))


def inputs(call: Call, schema: str) -> list[TensorRecord]:
    """The tensors that a call read. Outputs that are given are none."""
    given = re.findall(r"Tensor(?:\(\w+!\))?(?:\[\])? (\w+)", schema.partition("->")[0])
    outs = sum(name.startswith("out") for name in given) if ".out" in call.operator else 0
    found = list(tensors_in(call.args, TensorRecord))
    return found[: len(found) - outs] if outs else found


@dataclass
class Alignment:
    """Pairs of calls, and those that are in one trace only.

    A gap with calls of both is `split`: the machines took one computation apart differently. Where
    both end with results of the same shapes, these last calls are a pair all the same.
    """

    pairs: list[tuple[Call, Call]] = field(default_factory=list)
    split: list[tuple[list[Call], list[Call]]] = field(default_factory=list)
    only_a: list[Call] = field(default_factory=list)
    only_b: list[Call] = field(default_factory=list)
    filled: int = 0  # copies and fills in one trace only: devices make tensors differently


def unroll(calls: Sequence[Call]) -> list[Call]:
    """The outermost calls that did not fail, a foreach operator as a call for each tensor."""
    found = []
    for call in calls:
        if call.depth or call.error:
            continue
        lists = [v for v in call.args if isinstance(v, list)]
        if "::_foreach_" not in call.operator or not lists:
            found.append(call)
            continue
        for k in range(len(lists[0])):

            def part(value: Any, k: int = k, n: int = len(lists[0])) -> Any:
                return value[k] if isinstance(value, list) and len(value) == n else value

            found.append(
                replace(
                    call,
                    args=list(map(part, call.args)),
                    results=list(map(part, call.results)),
                    written={i: part(v) for i, v in call.written.items()},
                )
            )
    return found


def computing(calls: Sequence[Call], trace: Trace) -> list[Call]:
    """Those of a trace's calls that are compared: they compute."""
    return [call for call in calls if computes(call, trace.schemas[call.operator])]


def align(a: Sequence[Call], b: Sequence[Call]) -> Alignment:
    """Match the calls of two traces in their order, step by step."""
    found = Alignment()
    steps = [dict.fromkeys(call.step for call in calls) for calls in (a, b)]
    if list(steps[0]) == list(steps[1]):
        for step in steps[0]:
            _align([c for c in a if c.step == step], [c for c in b if c.step == step], found)
    else:
        _align(list(a), list(b), found)
    return found


def _align(a: list[Call], b: list[Call], found: Alignment) -> None:
    """Match the calls of one step."""
    gaps: list[tuple[list[Call], list[Call]]] = [([], [])]
    pairs = []
    for one, other in _matched(a, b):
        if one is not None and other is not None:
            pairs.append((one, other))
            gaps.append(([], []))
        elif one is not None:
            gaps[-1][0].append(one)
        elif other is not None:
            gaps[-1][1].append(other)
    moved = _moved([c for gap, _ in gaps for c in gap], [c for _, gap in gaps for c in gap])
    gone = {id(call) for pair in moved for call in pair}
    for gap in gaps:
        ours, theirs = ([c for c in calls if id(c) not in gone] for calls in gap)
        if ours and theirs:
            found.split.append((ours, theirs))
            if _token(ours[-1])[2:] == _token(theirs[-1])[2:]:
                pairs.append((ours[-1], theirs[-1]))
            continue
        for calls, only in ((ours, found.only_a), (theirs, found.only_b)):
            lone = [c for c in calls if canonical(c.operator) not in FILLS]
            found.filled += len(calls) - len(lone)
            only.extend(lone)
    found.pairs += sorted([*pairs, *moved], key=lambda pair: pair[0].sequence)


def _moved(a: list[Call], b: list[Call]) -> list[tuple[Call, Call]]:
    """Pairs among calls without a partner, in order for each kind."""
    waiting: dict[tuple[object, ...], list[Call]] = {}
    for call in b:
        waiting.setdefault(_kind(call), []).append(call)
    found = []
    for call in a:
        others = waiting.get(_kind(call))
        if others:
            found.append((call, others.pop(0)))
    return found


def _kind(call: Call) -> tuple[object, ...]:
    numbers = sorted(f"{v:.6g}" for v in call.args if isinstance(v, float) and v not in (0, 1))
    return (*_token(call), *numbers)


def _matched(a: list[Call], b: list[Call]) -> Iterator[tuple[Call | None, Call | None]]:
    whole = ([_token(c) for c in a], [_token(c) for c in b])
    for same, (i, j), (k, m) in _blocks(*whole):
        if same:
            yield from zip(a[i:j], b[k:m], strict=True)
            continue
        names = ([_name(c) for c in a[i:j]], [_name(c) for c in b[k:m]])
        for alike, (p, q), (r, s) in _blocks(*names):
            if alike:
                yield from zip(a[i + p : i + q], b[k + r : k + s], strict=True)
            else:
                yield from itertools.product(a[i + p : i + q], [None])
                yield from itertools.product([None], b[k + r : k + s])


def _token(call: Call) -> tuple[object, ...]:
    return (*_name(call), *((r.shape, r.dtype) for r in outputs(call)))


def _name(call: Call) -> tuple[object, ...]:
    return call.phase, canonical(call.operator)


Span = tuple[int, int]


def _blocks(
    a: Sequence[tuple[object, ...]], b: Sequence[tuple[object, ...]]
) -> Iterator[tuple[bool, Span, Span]]:
    """Spans that are equal, or not, in order. What both begin and end with costs nothing."""
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    if head:
        yield True, (0, head), (0, head)
    end_a, end_b = len(a) - tail, len(b) - tail
    matcher = difflib.SequenceMatcher(None, a[head:end_a], b[head:end_b], autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        yield kind == "equal", (head + i, head + j), (head + k, head + m)
    if tail:
        yield True, (end_a, len(a)), (end_b, len(b))
