"""Writes small files with all that a file may hold: what `make fuzz` begins with.

python tests/ship/small.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from causeway.ship import file, plan, targets, weights
from causeway.ship.plan import Buffer, Patch, Profile, Program, Sizes, Step
from causeway.ship.steps import Check

TARGET = {"language": 1, "flags": 0, "arithmetic": 0, "vendor": "small"}


def program() -> Program:
    values = b"".join(n.to_bytes(8, "little") for n in (4, 7))
    buffers = [
        Buffer(plan.IN_ARENA, 0, 256, first=0, last=1),
        Buffer(plan.IN_ARENA, 0, 256, first=1, last=3),
        Buffer(plan.CONSTANT, 0, 64),
        Buffer(plan.TOLD, 0, 16),
    ]
    steps = [
        Step(
            "launch",
            "first",
            0,
            [1, 1, 1],
            [1, 1, 1],
            [(0, 0), (2, 0), (3, 0), values],
            0,
            0,
            "a:1",
            operations=512,
            moved=320,
        ),
        Step("copy", "second", 0, [0] * 3, [0] * 3, [(1, 0), (0, 16)], 32, 0, "a:2"),
        Step("fill", "third", 0, [0] * 3, [0] * 3, [(1, 64)], 16, 255, ""),
    ]
    return Program(buffers, steps, [(0, 0)], [(1, 0)], [("kernel_main", "void f();\n\nint g;")])


def _ports(size: int) -> list[dict[str, Any]]:
    vector = bytes(size * 8)
    port = {"dtype": 11, "shape": [16, 2], "bytes": 128, "vector": vector}
    return [
        {"name": "in", "kind": 0, "place": (0, 0), **port},
        {"name": "out", "kind": 1, "place": (1, 0), **port},
    ]


def write(folder: Path) -> list[Path]:
    """Write `fixed.cw`, `sizes.cw`, `elsewhere.cw` with its weights, and `targets.cw`, which has
    all of these, and return their paths.
    """
    made = []
    for name in ("fixed", "sizes", "elsewhere"):
        made_of = program()
        checks = [Check(0, 0, 11, 4, 2, bytes(16)), Check(1, 0, 8, 2, 1, bytes(16))]
        if name == "sizes":
            few = [
                Patch(plan.GRID, 0, 0, 7, 1, 8),
                Patch(plan.PLACE, 0, 0, 0, 16),
                Patch(plan.PLACE, 5, 0, 0, 16),
                Patch(plan.BYTES, 1, 0, 0, 16),
                Patch(plan.WORD, 3, 0, 1, 2),
                Patch(plan.HALF_WORD, 3, 8, divisor=0, table=[5, -3, 9, 1]),
                Patch(plan.OPERATIONS, 0, 0, 0, 32),
                Patch(plan.MOVED, 1, 0, divisor=0, table=[32, 64, 96, 128]),
            ]
            many = [Patch(plan.BYTES, 2, 0, 16, 4), Patch(plan.PLACE, 4, 0, 0, 8)]
            ports = [Patch(plan.DIMENSION, i, 0, 0, 1) for i in range(2)]
            profiles = [Profile(1, 4, 0, 3, few), Profile(5, 16, 1, 2, many)]
            made_of.sizes = Sizes("batch", 1, 16, 4, ports, profiles)
        made_of.lay_out()
        data = made_of.put_weights([bytes(range(64))])
        parts = [weights.part(data[:64], 0)]
        binaries = file.Binaries("small\nchip\n1", {made_of.functions[0][1]: bytes(range(99))})
        elsewhere = "small.weights" if name == "elsewhere" else None
        made.append(folder / f"{name}.cw")
        file.write(
            made[-1],
            made_of,
            target=TARGET,
            ports=_ports(4 if name == "sizes" else 16),
            constants=data,
            about={"format": file.VERSION},
            tellers=["first"],
            checks=checks,
            parts=parts,
            elsewhere=elsewhere,
            binaries=binaries,
        )
    made.append(folder / "small.weights")
    blobs = [data[:64], *(bytes([i]) * (i + 1) for i in range(20))]
    weights.add(made[-1], {weights.part(b, 0).digest: b for b in blobs})
    images = [path.read_bytes() for path in made]
    made.append(folder / "targets.cw")
    made[-1].write_bytes(targets.join(images[:3], images[3]))
    return made


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    print(*write(Path(sys.argv[1])), sep="\n")
