"""Texts of portable kernels are files (csrc/portable/**/*.cl), and headers of strings to C++."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PORTABLE = Path(__file__).parents[2] / "csrc/portable"
TEXTS = sorted(PORTABLE.rglob("*.cl"))
FEW = 5  # lines of text that may be glued in C++ without a reason


def header(text: Path, folder: Path) -> str:
    """The header that CMake makes of a file of texts. Raises CalledProcessError."""
    cmake = shutil.which("cmake")
    assert cmake is not None, "the environment has cmake: make .venv/deps"
    made = folder / f"{text.name}.h"
    script = PORTABLE / "texts.cmake"
    command = [cmake, "-D", f"FROM={text}", "-D", f"TO={made}", "-P", str(script)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return made.read_text()


def strings(header: str) -> dict[str, str]:
    return dict(re.findall(r'constexpr const char\* (\w+) = R"cl\((.*?)\)cl";', header, re.S))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.stem)
def test_each_text_reaches_cpp_as_it_is_and_is_used(text: Path, tmp_path: Path) -> None:
    lines = text.read_text().splitlines()
    found = strings(header(text, tmp_path))
    source = text.with_suffix(".cpp").read_text()
    used = set(re.findall(rf"texts::{text.stem}::(\w+)", source))
    assert used == set(found), "every text is used by the file of the same name"
    first = next(i for i, line in enumerate(lines) if line.startswith("////"))
    body = [line for line in lines[first:] if line and not line.startswith("////")]
    assert [line for value in found.values() for line in value.splitlines() if line] == body


def test_signs_that_cmake_has_a_meaning_for_stay(tmp_path: Path) -> None:
    text = tmp_path / "odd.cl"
    text.write_text(
        '// Odd.\n\n//// one: its comment\n//// and more\na[i]; b = "\\n;" \\\n  ${c} @d@;\n'
    )
    assert strings(header(text, tmp_path)) == {"one": '\na[i]; b = "\\n;" \\\n  ${c} @d@;\n'}


def test_a_file_without_a_text_is_an_error(tmp_path: Path) -> None:
    text = tmp_path / "empty.cl"
    text.write_text("// Nothing.\nx = 1;\n")
    with pytest.raises(subprocess.CalledProcessError) as error:
        header(text, tmp_path)
    assert "`//// name` begins a text" in error.value.stderr


def glued(source: str) -> int:
    """How many lines of C++ end pieces of a kernel's text."""
    return len(re.findall(r'\\n"', source))


def without_reason(folder: Path) -> list[str]:
    """Files that put texts together, and do not say at their head why they are no files."""
    return [
        path.name
        for path in sorted(folder.rglob("*.cpp"))
        if glued(path.read_text()) > FEW
        and "is in no .cl: " not in path.read_text().split("\n\n")[0]
    ]


def raw_strings(folder: Path) -> list[str]:
    """Files of C++ with a raw string, which only a text of several lines is worth."""
    return [path.name for path in sorted(folder.rglob("*.cpp")) if 'R"(' in path.read_text()]


def test_no_text_is_a_raw_string_of_cpp() -> None:
    assert raw_strings(PORTABLE) == []


def test_a_raw_string_is_found(tmp_path: Path) -> None:
    (tmp_path / "gather.cpp").write_text('auto text = R"(\nout[u] = in[u];\n)";\n')
    assert raw_strings(tmp_path) == ["gather.cpp"]


def test_a_file_that_puts_texts_together_says_why() -> None:
    assert without_reason(PORTABLE) == []


def test_a_file_that_does_not_say_why_is_found(tmp_path: Path) -> None:
    line = 's += "for (;;)\\n";\n'
    (tmp_path / "reduce.cpp").write_text("// Sums.\n\n" + line * (FEW + 1))
    (tmp_path / "scan.cpp").write_text("// What is in no .cl: loops.\n\n" + line * (FEW + 1))
    assert without_reason(tmp_path) == ["reduce.cpp"]
