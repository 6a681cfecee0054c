"""Which call of one trace is which of another, though the two machines split operators differently.

Functional, in-place and out= forms of an operator count as one. Views and allocations are left
out: they compute nothing, and every backend has its own. In each step the calls of one kind
(operator, phase, shapes of the results, numbers) are matched in their order where both traces have
as many; so an optimizer may go by parameters on one machine and by operators on the other. What is
left is aligned as `diff` aligns lines, by kind, then by operator alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from causeway.numerics import base_name
from causeway.observe.arguments import tensors_in
from causeway.ops import facts
from causeway.trace.reader import Trace
from causeway.trace.tensors import TensorRecord
from causeway.trace.trace import RecordedCall

# Names of the same computation: what a device is asked for in place of what torch's CPU is.
SAME = {
    **{base_name(other): base_name(own) for other, own in facts.own_names().items()},
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


def computes(call: RecordedCall, schema: str) -> bool:
    """Whether a call makes numbers: no view, no allocation."""
    if NOTHING.fullmatch(base_name(call.operator)):
        return False
    returned = schema.rpartition("->")[2]
    return not re.search(r"\([a-z]\d*(\|[a-z]\d*)*\)", returned)  # a view: Tensor(a), not (a!)


def outputs(call: RecordedCall) -> list[TensorRecord]:
    """What a call left: its results, and what it changed."""
    return list(tensors_in([call.results, *call.written.values()], TensorRecord))


def inputs(call: RecordedCall, schema: str) -> list[TensorRecord]:
    """The tensors that a call read. Outputs that are given are none."""
    given = re.findall(r"Tensor(?:\(\w+!\))?(?:\[\])? (\w+)", schema.partition("->")[0])
    outs = sum(name.startswith("out") for name in given) if ".out" in call.operator else 0
    found = list(tensors_in(call.args, TensorRecord))
    return found[: len(found) - outs] if outs else found


@dataclass
class Alignment:
    """Pairs of calls, and those that are in one trace only.

    Where both have calls without a partner in a module and phase, the computation was `split`
    differently. If they end with results of the same shapes, the last calls are a pair.
    """

    pairs: list[tuple[RecordedCall, RecordedCall]] = field(default_factory=list)
    split: list[tuple[list[RecordedCall], list[RecordedCall]]] = field(default_factory=list)
    only_a: list[RecordedCall] = field(default_factory=list)
    only_b: list[RecordedCall] = field(default_factory=list)
    filled: int = 0  # copies and fills in one trace only: devices make tensors differently


def unroll(calls: Sequence[RecordedCall]) -> list[RecordedCall]:
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


def computing(calls: Sequence[RecordedCall], trace: Trace) -> list[RecordedCall]:
    """Those of a trace's calls that are compared: they compute."""
    return [call for call in calls if computes(call, trace.schemas[call.operator])]


def align(a: Sequence[RecordedCall], b: Sequence[RecordedCall]) -> Alignment:
    """Match the calls of two traces in their order, step by step."""
    found = Alignment()
    steps = [dict.fromkeys(call.step for call in calls) for calls in (a, b)]
    if list(steps[0]) == list(steps[1]):
        for step in steps[0]:
            _align([c for c in a if c.step == step], [c for c in b if c.step == step], found)
    else:
        _align(list(a), list(b), found)
    return found


def _align(a: list[RecordedCall], b: list[RecordedCall], found: Alignment) -> None:
    """Match the calls of one step."""
    pairs = _in_order(a, b)
    for name in (_kind, _name):
        a, b = _left(a, b, pairs)
        for same, (i, j), (k, m) in _blocks([name(c) for c in a], [name(c) for c in b]):
            if same:
                pairs += zip(a[i:j], b[k:m], strict=True)
    groups: dict[tuple[str, str], tuple[list[RecordedCall], list[RecordedCall]]] = {}
    for side, calls in enumerate(_left(a, b, pairs)):
        for call in calls:
            if canonical(call.operator) in FILLS:
                found.filled += 1
            else:
                groups.setdefault((call.phase, call.module), ([], []))[side].append(call)
    for ours, theirs in groups.values():
        if ours and theirs:
            found.split.append((ours, theirs))
            if _token(ours[-1])[2:] == _token(theirs[-1])[2:]:
                pairs.append((ours[-1], theirs[-1]))
        found.only_a += [] if theirs else ours
        found.only_b += [] if ours else theirs
    found.pairs += sorted(pairs, key=lambda pair: pair[0].sequence)


def _in_order(
    a: list[RecordedCall], b: list[RecordedCall]
) -> list[tuple[RecordedCall, RecordedCall]]:
    """Pairs of the kinds that both have equally often: the first with the first, and so on."""
    kinds: dict[tuple[object, ...], tuple[list[RecordedCall], list[RecordedCall]]] = {}
    for side, calls in enumerate((a, b)):
        for call in calls:
            kinds.setdefault(_kind(call), ([], []))[side].append(call)
    both = [group for group in kinds.values() if len(group[0]) == len(group[1])]
    return [pair for ours, theirs in both for pair in zip(ours, theirs, strict=True)]


def _left(
    a: list[RecordedCall], b: list[RecordedCall], pairs: list[tuple[RecordedCall, RecordedCall]]
) -> tuple[list[RecordedCall], list[RecordedCall]]:
    gone = {id(call) for pair in pairs for call in pair}
    return [c for c in a if id(c) not in gone], [c for c in b if id(c) not in gone]


def _kind(call: RecordedCall) -> tuple[object, ...]:
    numbers = sorted(f"{v:.6g}" for v in call.args if isinstance(v, float) and v not in (0, 1))
    return (*_token(call), *numbers)


def _token(call: RecordedCall) -> tuple[object, ...]:
    return (*_name(call), *((r.shape, r.dtype) for r in outputs(call)))


def _name(call: RecordedCall) -> tuple[object, ...]:
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
