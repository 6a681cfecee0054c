"""The sanitizers find what is planted, in a vendor's code and where the core reads what is a
vendor's, and nothing where nothing is. Else that `make asan` and `make tsan` find nothing says
nothing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

_spec = importlib.util.spec_from_file_location("sanitizers_run", HERE / "run.py")
assert _spec is not None
assert _spec.loader is not None
run = importlib.util.module_from_spec(_spec)
sys.modules["sanitizers_run"] = run
_spec.loader.exec_module(run)

PROGRAM = """
import causeway, sys, torch
assert causeway._C.__file__.startswith(sys.argv[1]), causeway._C.__file__
try:
    assert torch.ones(3, device="planted").add(1).tolist() == [2.0] * 3
except RuntimeError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def sanitizer(request: pytest.FixtureRequest) -> str:
    if why := run.missing(request.param):
        pytest.skip(why)
    run.build(request.param)
    return request.param


def reports(sanitizer: str, planted: int, folder: Path) -> list[str]:
    """What the sanitizer says of a program on a vendor with a planted fault."""
    library = folder / "libcw_planted.so"
    flags = [f"-fsanitize={run.SANITIZERS[sanitizer].flags}", "-O1", "-g", f"-DPLANTED={planted}"]
    if sanitizer == "address":
        flags.append("-fsanitize-recover=address")
    subprocess.run(
        ["cc", "-std=c11", "-D_DEFAULT_SOURCE", "-shared", "-fPIC", f"-I{ROOT / 'include'}", *flags,
         HERE / "planted.c", "-o", library, "-pthread"],
        check=True,
    )  # fmt: skip
    variables = run.environment(sanitizer, folder) | {"CAUSEWAY_VENDOR": str(library)}
    done = subprocess.run(
        run.command(sanitizer, ["-c", PROGRAM, str(run.SANITIZERS[sanitizer].folder)]),
        env=os.environ | variables, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[str] = run.read_reports(folder)
    return found


@pytest.mark.long
@pytest.mark.timeout(7200)  # the core is built first
@pytest.mark.parametrize(
    ("sanitizer", "planted", "words", "frame"),
    [
        ("thread", 0, None, None),
        ("thread", 1, "data race", "mem_alloc"),
        ("thread", 2, "data race", "_C."),
        ("address", 0, None, None),
        ("address", 3, "heap-use-after-free", "mem_alloc"),
        ("address", 4, "heap-use-after-free", "_C."),
    ],
    indirect=["sanitizer"],
)
def test_what_is_planted_is_found(
    sanitizer: str, planted: int, words: str | None, frame: str | None, tmp_path: Path
) -> None:
    found = reports(sanitizer, planted, tmp_path)
    if words is None or frame is None:
        assert found == []
    else:
        assert any(words in report and frame in report for report in found), found


def test_reports_are_read_from_what_processes_wrote(tmp_path: Path) -> None:
    race = (
        "WARNING: ThreadSanitizer: data race (pid=%d)\n  Write of size 8 at 0x%x by thread T%d:\n"
    )
    (tmp_path / "report.1").write_text("=" * 18 + "\n" + race % (1, 16, 1) + "=" * 18 + "\n")
    (tmp_path / "report.2").write_text(
        race % (2, 32, 5) + "x.cpp:3:9: runtime error: signed integer overflow\n"
        "=================\n==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n"
    )
    assert len(run.read_reports(tmp_path)) == 3
    (tmp_path / "empty").mkdir()
    assert run.read_reports(tmp_path / "empty") == []


def test_what_is_run_is_there() -> None:
    words = [word for _, words in run.SCOPE for word in words if word.startswith("tests/")]
    assert len(words) > 20
    assert [word for word in words if not (ROOT / word).exists()] == []
