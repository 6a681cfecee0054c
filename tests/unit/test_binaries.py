"""What was compiled does not say where: paths of a machine are of no use to who installs a wheel
and name its users.
"""

from __future__ import annotations

from pathlib import Path

import torch

import causeway


def test_the_core_and_the_simulated_chip_hold_no_build_path() -> None:
    package = Path(causeway.__file__).parent
    binaries = [*package.glob("_C.*.so"), *(package / "lib").glob("*.so"), package / "lib/cw"]
    names = {path.name.split(".")[0] for path in binaries}
    assert names == {"_C", "libcw_sim", "libcw_run", "cw"}
    folders = [Path(torch.__file__).parent, Path(__file__).parents[2] / "csrc", Path.home()]
    for path in binaries:
        text = path.read_bytes()
        assert [str(f) for f in folders if str(f).encode() + b"/" in text] == [], path
    assert b"csrc/ladder/" in binaries[0].read_bytes()  # file names as such are there
