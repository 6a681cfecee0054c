"""The kernel that runs small launches of a graph, one after the other (csrc/runtime/merged.h).

It calls the kernels of those launches, whose sources are before it, by a table: of each launch the
number of its kernel, how many words it has there, and its arguments. Of an address the table has
the place among the kernel's own, so that memory is only reached through a kernel's arguments, as
OpenCL wants it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from causeway import config
from causeway.device.merge import merged

NAME = "merged_launches"
_MOST_BYTES = 1 << 20  # of a source: a compiler takes its time


def merged_source(
    functions: Sequence[tuple[str, str]], addresses: int, split: bool
) -> tuple[str, str, list[int]] | None:
    """The source, its kernel's name, and the number of each of `functions` in it, or -1.

    A function is its name and its program's source, in OpenCL C as csrc/portable/source.cpp writes
    it. The kernel takes the table, `addresses` addresses and the number of launches; with `split`
    an address is two parameters, the start of its memory and the distance from there. None: there
    is no source for these functions, or the setting is off.
    """
    if not config.get("graph_merge"):
        return None
    calls = [_call(name, source, split) for name, source in functions]
    able = [i for i, call in enumerate(calls) if call is not None]
    texts = merged([functions[i] for i in able])
    if not texts:
        return None
    # Functions that one source can hold: as many as there are.
    text, _ = Counter(text for _, text in texts).most_common(1)[0]
    numbers, cases = [-1] * len(functions), list[str]()
    for i, (name, own) in zip(able, texts, strict=True):
        call = calls[i]
        if own != text or call is None:
            continue
        begin = name[: len(name) - len(functions[i][0])]
        numbers[i] = len(cases)
        cases.append(f"case {numbers[i]}: {call.format(begin=begin, name=name)} break;")
    if len(text) > _MOST_BYTES:
        return None
    return text + _kernel(cases, addresses, split), NAME, numbers


def _call(name: str, source: str, split: bool) -> str | None:
    """The call of a kernel with what the table has of a launch; None: its text does not say how.

    {name} stands for what it is called there, {begin} for what names of its source begin with.
    """
    head, _, body = source.partition(f"__kernel void {name}(")
    # Memory of a group may be declared by a kernel alone, not by a function.
    if not body or re.search(r"\b(LOCAL|__local|local)\b", body.partition("\n}\n")[0]):
        return None
    arguments, skip = list[str](), False
    for parameter in body.partition(")")[0].split(", "):
        at = len(arguments) + 2
        if skip:
            skip = False
        elif found := re.fullmatch(r"GLOBAL (const )?(\w+)\* ?\w+", parameter):
            place = f"w_[{at}]"
            pointer = f"(GLOBAL {found[1] or ''}{found[2]}*)of_[{place}]"
            arguments.append(f"{pointer}, far_[{place}]" if split else pointer)
            skip = split
        elif found := re.fullmatch(r"const (\w+) values_", parameter):
            if not re.search(rf"\}} {found[1]};\n", head):
                return None
            arguments.append(f"*(GLOBAL const {{begin}}{found[1]}*)(w_ + {at})")
        else:
            return None
    return f"{{name}}({', '.join(arguments)});"


def _kernel(cases: Sequence[str], addresses: int, split: bool) -> str:
    places = range(addresses)
    parameters = [f"GLOBAL char* a{i}_" + (f", u64 d{i}_" if split else "") for i in places]
    table = "GLOBAL char* table_, u64 at_" if split else "GLOBAL const u64* table_"
    lines = [
        f"\n__kernel void {NAME}({', '.join([table, *parameters, 'idx launches_'])}) {{",
        "GLOBAL const u64* w_ = " + ("(GLOBAL const u64*)(table_ + at_);" if split else "table_;"),
        f"GLOBAL char* const of_[] = {{{', '.join(f'a{i}_' for i in places)}}};",
    ]
    if split:
        lines.append(f"const u64 far_[] = {{{', '.join(f'd{i}_' for i in places)}}};")
    lines += ["for (idx i_ = 0; i_ < launches_; ++i_, w_ += w_[1])", "switch (w_[0]) {", *cases]
    return "\n".join([*lines, "}", "}", ""])
