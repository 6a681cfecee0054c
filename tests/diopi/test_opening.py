"""Libraries that cannot be opened, or do not have what they should: `import torch` works, and the
error says what is missing and what to do.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]

WITHOUT = """
import torch, causeway
from causeway import _C
print(torch.diopi.is_available())
print(_C.vendor_notes())
try:
    torch.ones(3, device="diopi")
except RuntimeError as error:
    print(error)
"""

# (source, words): libraries that are not what they should be.
NOTHING = "int nothing;"
MORE = "int diopiGetFuture(int); const char* diopiGetVendorName() { diopiGetFuture(1); return 0; }"
HALF = "void* device_malloc(unsigned long n) { (void)n; return 0; }"


def compiled(folder: Path, source: str) -> Path:
    (folder / "library.c").write_text(source)
    library = folder / "library.so"
    words = ["cc", "-shared", "-fPIC", "-w", "-o", str(library), str(folder / "library.c")]
    subprocess.run(words, check=True)
    return library


def opened(run_python: Run, vendor: Path, **given: str) -> str:
    return run_python(WITHOUT, CAUSEWAY_VENDOR=str(vendor), **given).stdout


def test_without_a_library_the_setting_is_named(run_python: Run, diopi_vendor: Path) -> None:
    said = opened(run_python, diopi_vendor)
    assert said.startswith("False\n")
    words = "give the path of a libdiopi_impl.so in CAUSEWAY_DIOPI_LIBRARY"
    assert said.count(words) == 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "the library of CAUSEWAY_DIOPI_LIBRARY cannot be opened: .*No such file"),
        (NOTHING, "has none of DIOPI's functions"),
        (MORE, "undefined symbol: diopiGetFuture; it asks its host for a function that is none"),
    ],
)
def test_a_library_that_cannot_be_used_says_why(
    run_python: Run, diopi_vendor: Path, tmp_path: Path, source: str | None, words: str
) -> None:
    library = compiled(tmp_path, source) if source else tmp_path / "absent.so"
    said = opened(run_python, diopi_vendor, CAUSEWAY_DIOPI_LIBRARY=str(library))
    assert said.startswith("False\n")
    assert len(re.findall(words, said)) == 2


def test_a_device_that_lacks_functions_says_which(
    run_python: Run, diopi_vendor: Path, plain: Path, tmp_path: Path
) -> None:
    said = opened(
        run_python,
        diopi_vendor,
        CAUSEWAY_DIOPI_LIBRARY=str(plain / "libdiopi_impl.so"),
        CAUSEWAY_DIOPI_DEVICE=str(compiled(tmp_path, HALF)),
    )
    assert "cannot serve as the device: it lacks device_free, device_memcpy_h2d_async" in said


def test_the_vendor_exports_its_table_and_the_27_call_backs(diopi_vendor: Path) -> None:
    words = ["nm", "-D", "--defined-only", str(diopi_vendor)]
    listed = subprocess.run(words, check=True, capture_output=True, text=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert names.count("cw_open_v1") == 1
    header = (Path(__file__).parents[2] / "vendors/diopi/include/diopi/diopirt.h").read_text()
    callbacks = set(re.findall(r"^\w[\w ]*\*? ?(diopi\w+)\(", header, re.MULTILINE))
    assert len(callbacks) == 27
    assert set(names) == {"cw_open_v1", *callbacks}
