"""What AMD's compiler says of a kernel in its binary, an ELF file with a descriptor for each.

The descriptor `NAME.kd` is the 64 bytes that the hardware's front end reads (LLVM's guide for
AMDGPU, "Kernel Descriptor"); the most items of a group stand in the metadata, a note in
MessagePack.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

WAVE_OF_32 = 1 << 10  # of the descriptor's properties: the kernel was compiled for waves of 32
MOST_ITEMS = b".max_flat_workgroup_size"


class Kernel(NamedTuple):
    name: str
    wave: int  # lanes
    shared: int  # bytes of a group
    frame: int  # bytes of an item outside registers
    most_items: int  # of a group


def kernels(elf: bytes) -> list[Kernel]:
    """The kernels of one program."""
    sections = _sections(elf)
    found = []
    for kind, link, offset, size in ((s[1], s[6], s[4], s[5]) for s in sections):
        if kind != 11:  # SHT_DYNSYM
            continue
        names = sections[link][4]
        for i in range(offset, offset + size, 24):
            name_at, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", elf, i)
            name = elf[names + name_at : elf.index(b"\0", names + name_at)].decode()
            if name.endswith(".kd"):
                where = value - sections[section][3] + sections[section][4]
                shared, frame = struct.unpack_from("<II", elf, where)
                (properties,) = struct.unpack_from("<H", elf, where + 56)
                wave = 32 if properties & WAVE_OF_32 else 64
                found.append(Kernel(name.removesuffix(".kd"), wave, shared, frame, _items(elf)))
    return found


def code(elf: bytes) -> memoryview:
    """The words of its instructions, with what they take beside them."""
    for _, _, flags, _, offset, size, *_ in _sections(elf):
        if flags & 4:  # SHF_EXECINSTR
            return memoryview(elf[offset : offset + size // 4 * 4]).cast("I")
    raise AssertionError("a program without instructions")


def _sections(elf: bytes) -> list[tuple[int, ...]]:
    (at,) = struct.unpack_from("<Q", elf, 40)
    (count,) = struct.unpack_from("<H", elf, 60)
    return [struct.unpack_from("<IIQQQQIIQQ", elf, at + 64 * i) for i in range(count)]


def _items(elf: bytes) -> int:
    """The least of the program's kernels."""
    found = []
    for match in re.finditer(re.escape(MOST_ITEMS), elf):
        first, *rest = elf[match.end() : match.end() + 3]  # MessagePack: small, or 2 bytes follow
        found.append(
            first if first < 0x80 else rest[0] if first == 0xCC else rest[0] << 8 | rest[1]
        )
    return min(found)
