"""What the compiler for sm_90 made of kernels whose items share rows: what they need of a GPU.

NVIDIA's binaries are ELF; the section `.nv.info` says how many registers an item takes, and how
many bytes of arrays did not fit into them. Nothing here runs on a GPU.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

import warm

CASES = Path(__file__).parents[1] / "portable/cases.py"
REGISTERS, FRAME = 0x2F, 0x11  # attributes of `.nv.info`: EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
SIZED = 4  # the format of an attribute whose bytes follow
OF_A_GROUP, SHARED = 65536, 48 << 10  # registers of a multiprocessor; bytes of static shared memory

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.slow]


class Need(NamedTuple):
    items: int
    registers: int  # of an item
    frame: int  # bytes of an item outside registers
    shared: int


def need_of(path: Path) -> Need | None:
    """Of a program in the cache, which keeps its source too; None: no group shares rows in it."""
    kept = path.read_bytes()
    start = kept.index(b"\x7fELF")
    items = re.search(rb"#define ITEMS (\d+)", kept[:start])
    if not items:
        return None
    elf = kept[start:]
    (at,) = struct.unpack_from("<Q", elf, 40)
    count, names = struct.unpack_from("<HH", elf, 60)
    sections = [struct.unpack_from("<IIQQQQ", elf, at + 64 * i) for i in range(count)]
    found, shared = {REGISTERS: 0, FRAME: 0}, 0
    for name, _, _, _, offset, size in sections:
        begin = sections[names][4] + name
        word = elf[begin : elf.index(b"\0", begin)]
        if word == b".nv.shared.kernel_main":
            shared = size
        if word != b".nv.info":
            continue
        i = offset
        while i < offset + size:
            form, attribute, length = struct.unpack_from("<BBH", elf, i)
            if form == SIZED and attribute in found:
                (value,) = struct.unpack_from("<I", elf, i + 8)  # behind the function's number
                found[attribute] = max(found[attribute], value)
            i += 4 + (length if form == SIZED else 0)
    return Need(int(items[1]), found[REGISTERS], found[FRAME], shared)


def test_kernels_of_rows_fit_a_multiprocessor_and_keep_arrays_in_registers(
    on_paper: dict[str, str],
) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")} | on_paper
    done = warm.run([CASES, "rows", "-"], env=env)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert [
        line for line in lines[:-1] if "not close" not in line and "not equal" not in line
    ] == []
    programs = sorted(Path(on_paper["CAUSEWAY_NVIDIA_CACHE"]).iterdir())
    needs = [need for need in map(need_of, programs) if need]
    assert len(needs) >= 12
    assert all(need.registers > 0 for need in needs)
    assert [need for need in needs if need.items * need.registers > OF_A_GROUP] == []
    assert [need for need in needs if need.frame > 0 or need.shared > SHARED] == []
