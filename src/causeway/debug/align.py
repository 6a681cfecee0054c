"""Which call of one trace is which of another, though the two machines split operators differently.

Functional, in-place and out= forms of an operator count as one. Views and allocations are left out:
they compute nothing, and every backend has its own. What is left is aligned as `diff` aligns lines:
first by operator, phase and the shapes of the results, then, in the gaps, by operator alone.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
# Nothing is computed: memory is made, named anew or read by the host.
NOTHING = re.compile(
    r"(new_)?empty\w*|resize\w*|set|local_scalar_dense|item|record_stream|detach|alias|lift\w*"
    r"|as_strided|view\w*|reshape_alias|unsafe_view|pin_memory|is_pinned|storage_offset"
)


def canonical(operator: str) -> str:
    """The computation that an operator is, whatever its form: "add" for aten::add_.Tensor."""
    name = base_name(operator)
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

    A gap with calls of both is `split`: the machines may have taken one computation apart
    differently. `only` has gaps with calls of one trace alone: (before, calls).
    """

    pairs: list[tuple[Call, Call]] = field(default_factory=list)
    split: list[tuple[list[Call], list[Call]]] = field(default_factory=list)
    only_a: list[Call] = field(default_factory=list)
    only_b: list[Call] = field(default_factory=list)


def computing(trace: Trace) -> list[Call]:
    """The calls of a trace that are compared: outermost ones that compute and did not fail."""
    return [
        call
        for call in trace.calls
        if not call.depth and not call.error and computes(call, trace.schemas[call.operator])
    ]


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
    gap_a: list[Call] = []
    gap_b: list[Call] = []

    def close() -> None:
        if gap_a and gap_b:
            found.split.append((gap_a.copy(), gap_b.copy()))
        else:
            found.only_a.extend(gap_a)
            found.only_b.extend(gap_b)
        gap_a.clear()
        gap_b.clear()

    for one, other in _matched(a, b):
        if one is not None and other is not None:
            close()
            found.pairs.append((one, other))
        elif one is not None:
            gap_a.append(one)
        elif other is not None:
            gap_b.append(other)
    close()


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
