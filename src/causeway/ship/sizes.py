"""One program for a range of sizes.

A model is captured at each size of the range. Sizes next to each other that run the same kernels
are a profile; what differs within it, such as a grid or a number of elements, becomes an expression
of the size, and where none gives the very numbers that were captured, a table of them. So nothing
is guessed between sizes: each was captured, and the expressions give what was captured.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from causeway.errors import CausewayError
from causeway.ship import plan
from causeway.ship.plan import CONSTANT, IN_ARENA, TOLD, Buffer, Patch, Profile, Program, Sizes

MOST_SIZES = 1024  # of a range: a model is captured at each
MOST_PROFILES = 32
_DIVISORS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096, 65536)


@dataclass(frozen=True)
class Dynamic:
    """A size that may differ: its name, its range, and the dimension of each input that has it."""

    name: str
    least: int
    most: int
    dims: dict[int, int]  # by the input's number

    def example(self, inputs: Sequence[torch.Tensor]) -> int:
        """The size in `inputs`. Raises CausewayError where they do not agree, or it is outside."""
        found = {}
        for i, dim in self.dims.items():
            if i >= len(inputs) or not -inputs[i].dim() <= dim < inputs[i].dim():
                raise CausewayError(f"{self.name}: there is no dimension {dim} of input {i}")
            found[i] = inputs[i].shape[dim]
        if not found:
            raise CausewayError(f"{self.name}: no input has it; its first dimension would be it")
        if len(set(found.values())) != 1:
            raise CausewayError(
                f"{self.name}: the arguments have different sizes, by input {found}; "
                "say which dimensions it is with dynamic_shapes"
            )
        size = next(iter(found.values()))
        if not self.least <= size <= self.most:
            raise CausewayError(
                f"{self.name}: the arguments have size {size}, which is not in "
                f"{self.least}..{self.most}"
            )
        return size

    def at(self, size: int, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Inputs of another size, with the numbers of `inputs` again and again."""
        made = list(inputs)
        for i, dim in self.dims.items():
            index = torch.arange(size) % inputs[i].shape[dim]
            made[i] = inputs[i].index_select(dim, index.to(inputs[i].device))
        return made


def of_text(text: str, inputs: Sequence[torch.Tensor]) -> Dynamic:
    """`batch=1..64`: the first dimension of each input. `length=1..64:0.1,2.1`: dimension 1 of
    inputs 0 and 2."""
    found = re.fullmatch(r"(\w+)=(\d+)\.\.(\d+)(?::(\d+\.\d+(?:,\d+\.\d+)*))?", text.strip())
    if not found:
        raise CausewayError(
            f"--dynamic {text!r} is not of the form batch=1..64, which is the first dimension of "
            "each input, or length=1..64:0.1,2.1, which is dimension 1 of inputs 0 and 2"
        )
    name, least, most, places = found.groups()
    if places:
        dims = {int(i): int(d) for i, d in (place.split(".") for place in places.split(","))}
        if len(dims) != places.count(",") + 1:
            raise CausewayError(f"--dynamic {text!r}: an input has the size in one dimension")
    else:
        dims = {i: 0 for i, t in enumerate(inputs) if t.dim()}
    return _checked(Dynamic(name, int(least), int(most), dims))


def of_shapes(given: Any, names: Sequence[str], arguments: Sequence[Any]) -> Dynamic:
    """`dynamic_shapes` as torch.export has it, with one torch.export.Dim that has a range."""
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise CausewayError(f"dynamic_shapes: no input is named {unknown[0]!r}: {list(names)}")
        entries = [given.get(name) for name in names]
    else:
        entries = list(given)
    if len(entries) != len(arguments):
        raise CausewayError(
            f"dynamic_shapes has {len(entries)} entries, and there are {len(arguments)} inputs: "
            "give one for each tensor"
        )
    dims: dict[int, int] = {}
    found: dict[str, Any] = {}
    for i, entry in enumerate(entries):
        pairs = entry.items() if isinstance(entry, Mapping) else enumerate(entry or ())
        for dim, size in pairs:
            if size is None or isinstance(size, int):
                continue
            if not all(hasattr(size, part) for part in ("__name__", "min", "max")):
                raise CausewayError(
                    f"dynamic_shapes: {size!r} has no range; use torch.export.Dim('batch', min=1, "
                    "max=64)"
                )
            if i in dims:
                raise CausewayError(
                    f"dynamic_shapes: input {names[i]!r} has two sizes that may differ, and a file "
                    "tells the size from its bytes; make one of them fixed"
                )
            dims[i] = dim
            found[size.__name__] = size
    if len(found) != 1:
        raise CausewayError(
            f"dynamic_shapes has {len(found)} sizes that may differ {sorted(found)}; a file holds "
            "one"
        )
    name, size = next(iter(found.items()))
    if not isinstance(size.min, int) or not isinstance(size.max, int):
        raise CausewayError(f"dynamic_shapes: {name!r} has no range; give its Dim min and max")
    return _checked(Dynamic(name, size.min, size.max, dims))


def _checked(dynamic: Dynamic) -> Dynamic:
    if not 1 <= dynamic.least <= dynamic.most:
        raise CausewayError(
            f"{dynamic.name}: {dynamic.least}..{dynamic.most} is no range from 1 on"
        )
    if dynamic.most - dynamic.least >= MOST_SIZES:
        raise CausewayError(
            f"{dynamic.name}: {dynamic.least}..{dynamic.most} are more than {MOST_SIZES} sizes, at "
            "each of which the model would be captured; export files for parts of the range"
        )
    return dynamic


# --- merging --------------------------------------------------------------------------------------


def merged(
    dynamic: Dynamic,
    programs: Mapping[int, Program],
    shapes: Mapping[int, Sequence[Sequence[int]]],
    contents: Callable[[int, Buffer], int],
    example: int,
) -> Program:
    """One program of those of all sizes. `shapes` are those of inputs and outputs, `contents` a sum
    of what a buffer of the weights holds.

    Raises:
        CausewayError: the sizes have too little in common; the message says where.
    """
    sizes = range(dynamic.least, dynamic.most + 1)
    spans: list[list[int]] = []
    keys: list[Any] = []
    for size in sizes:
        key = _key(programs[size])
        if keys and keys[-1] == key:
            spans[-1].append(size)
        else:
            spans.append([size])
            keys.append(key)
    if len(spans) > MOST_PROFILES:
        raise CausewayError(
            f"{dynamic.name}={dynamic.least}..{dynamic.most}: the model runs other kernels at "
            f"{len(spans)} places of the range, such as {_differs(keys[-2], keys[-1])}, and a file "
            f"holds at most {MOST_PROFILES} lists of kernels; take a smaller range"
        )
    into = _Merged(programs[dynamic.least], contents)
    profiles = [into.add(span, [programs[s] for s in span]) for span in spans]
    ports: list[Patch] = []
    for port in range(len(shapes[example])):
        for dim in range(len(shapes[example][port])):
            patch = _patch(
                plan.DIMENSION, port, dim, [shapes[s][port][dim] for s in sizes], sizes[0]
            )
            if patch and not patch.divisor:
                raise CausewayError(
                    f"dimension {dim} of output {port - len(into.inputs)} is no expression of "
                    f"{dynamic.name} that a file holds"
                )
            ports += [patch] if patch else []
    done = Program(into.buffers, into.steps, into.inputs, into.outputs, into.functions)
    done.sizes = Sizes(dynamic.name, dynamic.least, dynamic.most, example, ports, profiles)
    _live(done)
    return done


class _Merged:
    """The program that grows: buffers, steps and kernels of all profiles."""

    def __init__(self, first: Program, contents: Callable[[int, Buffer], int]) -> None:
        self.contents = contents
        self.buffers: list[Buffer] = []
        self.steps: list[plan.Step] = []
        self.functions: list[tuple[str, str]] = []
        self.arguments = 0
        self.known: dict[Any, int] = {}
        self.inputs: list[tuple[int, int]] = []
        self.outputs: list[tuple[int, int]] = []

    def add(self, span: Sequence[int], programs: Sequence[Program]) -> Profile:
        """Add sizes that run the same steps."""
        model, first = programs[0], len(self.steps)
        numbers = self._buffers(span, programs)
        functions = [self._function(f) for f in model.functions]
        patches: list[Patch] = []

        def put(what: int, of: int, place: int, numbers: list[int]) -> None:
            patch = _patch(what, of, place, numbers, span[0])
            patches.extend([patch] if patch else [])

        for i, step in enumerate(model.steps):
            same = [p.steps[i] for p in programs]
            mine = copy.copy(step)
            if step.kind == "launch":
                mine.function = functions[step.function]
            for d in range(3):
                put(plan.GRID, first + i, d, [s.grid[d] for s in same])
            put(plan.BYTES, first + i, 0, [s.bytes for s in same])
            put(plan.OPERATIONS, first + i, 0, [s.operations for s in same])
            put(plan.MOVED, first + i, 0, [s.moved for s in same])
            mine.arguments = []
            for k, argument in enumerate(step.arguments):
                others: list[Any] = [s.arguments[k] for s in same]
                if isinstance(argument, bytes):
                    wide = 8 if len(argument) % 8 == 0 else 4
                    what = plan.WORD if wide == 8 else plan.HALF_WORD
                    for at in range(0, len(argument), wide):
                        words = [
                            int.from_bytes(o[at : at + wide], "little", signed=True) for o in others
                        ]
                        put(what, self.arguments, at, words)
                    mine.arguments.append(argument)
                else:
                    mine.arguments.append((numbers[argument[0]], argument[1]))
                    put(plan.PLACE, self.arguments, 0, [o[1] for o in others])
                self.arguments += 1
            if step.kind != "launch":  # so that the most of a place and the most of bytes fit
                for k, (number, _) in enumerate(mine.arguments):
                    most = max(s.arguments[k][1] for s in same) + max(s.bytes for s in same)
                    if self.buffers[number].kind != TOLD:
                        self.buffers[number].bytes = max(self.buffers[number].bytes, most)
            self.steps.append(mine)
        return Profile(span[0], span[-1], first, len(model.steps), patches)

    def _function(self, function: tuple[str, str]) -> int:
        if function not in self.functions:
            self.functions.append(function)
        return self.functions.index(function)

    def _buffers(self, span: Sequence[int], programs: Sequence[Program]) -> list[int]:
        """The number here of each buffer of the programs; they are numbered alike."""
        numbers: list[int] = []
        model = programs[0]
        ports = {place[0]: ("input", i) for i, place in enumerate(model.inputs)}
        for i, (number, _) in enumerate(model.outputs):
            if number not in ports and model.buffers[number].kind == IN_ARENA:
                ports[number] = ("output", i)
        for i, buffer in enumerate(model.buffers):
            content = 0
            name: Any = ports.get(i, (span[0], i))
            if buffer.kind == CONSTANT:
                sums = {self.contents(s, p.buffers[i]) for s, p in zip(span, programs, strict=True)}
                if len(sums) > 1 or len({p.buffers[i].start for p in programs}) > 1:
                    raise CausewayError(
                        "the model keeps numbers that depend on the size outside of its call; make "
                        "them in forward()"
                    )
                content = sums.pop()
                name = ("constant", buffer.start, content)
            elif buffer.kind == TOLD:
                name = "told"
            if name not in self.known:
                self.known[name] = len(self.buffers)
                self.buffers.append(Buffer(buffer.kind, buffer.start, 0, content=content))
            numbers.append(self.known[name])
            mine = self.buffers[numbers[-1]]
            mine.bytes = max(mine.bytes, *(p.buffers[i].bytes for p in programs))
        for places, found in ((model.inputs, self.inputs), (model.outputs, self.outputs)):
            now = [(numbers[number], place) for number, place in places]
            if found and found != now:
                raise CausewayError("an input or an output lies in other memory at other sizes")
            found[:] = now
        return numbers


def _key(program: Program) -> Any:
    """What programs of one profile have in common."""
    steps = tuple(
        (
            *(s.kind, s.name, tuple(s.group), s.byte),
            program.functions[s.function] if s.kind == "launch" else None,
            tuple(len(a) if isinstance(a, bytes) else (a[0],) for a in s.arguments),
        )
        for s in program.steps
    )
    kinds = tuple((b.kind, b.start if b.kind == CONSTANT else 0) for b in program.buffers)
    return steps, kinds, tuple(program.inputs), tuple(program.outputs)


def _differs(one: Any, other: Any) -> str:
    """The operator of the first step that is another one."""
    for a, b in zip(one[0], other[0], strict=False):
        if a != b:
            return str(b[1])
    return "the number of steps"


def _live(program: Program) -> None:
    """Each buffer is in use from its first step to its last; inputs and outputs always."""
    for buffer in program.buffers:
        buffer.first, buffer.last = None, 0
    for i, step in enumerate(program.steps):
        for argument in step.arguments:
            if not isinstance(argument, bytes):
                buffer = program.buffers[argument[0]]
                buffer.first = i if buffer.first is None else buffer.first
                buffer.last = i
    for number, _ in program.inputs:
        program.buffers[number].first, program.buffers[number].last = 0, len(program.steps)
    for number, _ in program.outputs:
        buffer = program.buffers[number]
        buffer.first = len(program.steps) if buffer.first is None else buffer.first
        buffer.last = len(program.steps)


def _patch(what: int, of: int, place: int, numbers: Sequence[int], least: int) -> Patch | None:
    """What gives `numbers`, those of `least` and the sizes after it; None: they are all one."""
    if all(n == numbers[0] for n in numbers):
        return None
    slope = numbers[1] - numbers[0]
    small = max(map(abs, numbers)) < 1 << 44  # else an expression may not fit: bits of a double
    if small and all(n == numbers[0] + slope * i for i, n in enumerate(numbers)):
        return Patch(what, of, place, numbers[0] - slope * least, slope)
    if small and min(numbers) >= 0:
        for divisor in _DIVISORS:
            found = _floored(numbers, divisor, least)
            if found:
                return Patch(what, of, place, *found, divisor)
    return Patch(what, of, place, divisor=0, table=list(numbers))


def _floored(numbers: Sequence[int], divisor: int, least: int) -> tuple[int, int] | None:
    """(base, slope) of floor((base + slope * size) / divisor), whose dividend is never negative."""
    about = (numbers[-1] - numbers[0]) * divisor // (len(numbers) - 1)
    reach = divisor // (len(numbers) - 1) + 1
    for slope in range(about - min(reach, 64), about + min(reach, 64) + 1):
        low = max(divisor * n - slope * (least + i) for i, n in enumerate(numbers))
        high = min(divisor * n + divisor - 1 - slope * (least + i) for i, n in enumerate(numbers))
        if low <= high:
            return low, slope
    return None
