"""Products by hipBLAS's names and numbers, those of ROCm 5, 6 and 7: torch's samples, on paper,
with a stand-in in its place. Nothing here runs on a GPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import warm

HERE = Path(__file__).parent
CUDA = HERE.parent / "cuda"
CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
FILES = {5: "libhipblas.so.0", 6: "libhipblas.so.2", 7: "libhipblas.so.3"}  # by the release of ROCm
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.long]


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler to build the stand-in with")
    folder, made = tmp_path_factory.mktemp("hipblas"), {}
    for release, name in FILES.items():
        flags = [
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Werror",
            "-shared",
            "-fPIC",
            f"-DRELEASE={release}",
        ]
        source, library = HERE / "stand_in/hipblas.c", folder / name
        subprocess.run(["cc", *flags, source, "-o", library, "-lm"], check=True)
        made[release] = library
    return made


@pytest.fixture
def program(amd_library: Path) -> Run:
    """Runs a program of tests/cuda on the device on paper, portable kernels off."""

    def run(name: str, *args: str, **given: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        environment |= {
            "CAUSEWAY_VENDOR": str(amd_library),
            "CAUSEWAY_AMD_PAPER": "gfx90a",
            "CAUSEWAY_PORTABLE": "0",
        }
        done = warm.run([CUDA / name, *args], env=environment | given)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.mark.parametrize("release", FILES)
def test_torchs_samples_of_products_equal_the_cpu(
    program: Run, stand_ins: dict[int, Path], release: int
) -> None:
    names = ("mm", "addmm", "bmm", "baddbmm", "addmv")
    done = program("samples.py", *names, CAUSEWAY_AMD_HIPBLAS=str(stand_ins[release]))
    *wrong, last = done.stdout.splitlines()
    assert wrong == []
    found = json.loads(last)
    assert found["what"] == []
    assert found["served"] >= found["cases"]


@pytest.mark.parametrize("release", FILES)
def test_what_hipblas_takes_goes_there_as_it_is(
    program: Run, stand_ins: dict[int, Path], release: int
) -> None:
    program("native.py", "strides", "added", CAUSEWAY_AMD_HIPBLAS=str(stand_ins[release]))


def test_doctor_says_what_is_here(
    run_python: Run, amd_library: Path, stand_ins: dict[int, Path]
) -> None:
    paper = {"CAUSEWAY_VENDOR": str(amd_library), "CAUSEWAY_AMD_PAPER": "gfx90a"}
    here = {"CAUSEWAY_AMD_HIPBLAS": str(stand_ins[6])}
    args = ("doctor", "--json")
    found = run_python(CAUSEWAY, status=None, args=args, **paper, **here).stdout
    assert "hipBLAS 2 multiplies matrices" in found
    assert "cuDNN" not in found
    found = run_python(CAUSEWAY, status=None, args=args, **paper, CAUSEWAY_AMD_HIPBLAS="0").stdout
    assert "no hipBLAS, so portable kernels multiply matrices" in found


def test_a_library_that_fails_is_said_once_and_other_kernels_serve(
    run_python: Run, amd_library: Path, stand_ins: dict[int, Path]
) -> None:
    words = run_python(
        """import torch
a = torch.ones(8, 8).to("amd")
for _ in range(3):
    assert torch.equal((a @ a).cpu(), torch.full((8, 8), 8.0))
""",
        CAUSEWAY_VENDOR=str(amd_library),
        CAUSEWAY_AMD_PAPER="gfx90a",
        CAUSEWAY_PORTABLE="0",
        CAUSEWAY_AMD_HIPBLAS=str(stand_ins[5]),
        STAND_IN_FAILS="1",
    ).stderr
    assert words.count("hipBLAS cannot be used (hipblasCreate: status 1") == 1
    assert "CAUSEWAY_AMD_HIPBLAS=0 silences this" in words
