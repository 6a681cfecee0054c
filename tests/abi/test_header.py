"""abi.h stays what vendors built against: clean in both languages, and laid out as it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "include"
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]


@pytest.mark.parametrize(
    ("compiler", "standard", "suffix"), [("gcc", "c11", ".c"), ("g++", "c++17", ".cpp")]
)
def test_header_is_clean(tmp_path: Path, compiler: str, standard: str, suffix: str) -> None:
    source = tmp_path / f"unit{suffix}"
    source.write_text('#include "causeway/abi.h"\nint main(void) { return CW_OK; }\n')
    subprocess.run(
        [compiler, f"-std={standard}", *STRICT, str(source), "-o", str(tmp_path / "unit")],
        check=True,
    )


def test_layout_is_what_vendors_built_against(tmp_path: Path) -> None:
    program = tmp_path / "layout"
    subprocess.run(
        ["gcc", "-std=c11", *STRICT, str(HERE / "layout.c"), "-o", str(program)], check=True
    )
    now = json.loads(subprocess.run([str(program)], capture_output=True, check=True).stdout)
    golden = json.loads((HERE / "layout.json").read_text())
    # New entries go at the end: then sizes grow, offsets are added, and nothing else changes.
    # When that is what happened, write the program's output to layout.json.
    assert now == golden


def test_argument_is_16_bytes() -> None:
    assert json.loads((HERE / "layout.json").read_text())["cw_arg"]["size"] == 16
