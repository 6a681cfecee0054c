"""The CUDA rendering compiles, and the vendor says what is missing. Nothing here runs on a GPU."""

from __future__ import annotations

import ctypes as C
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from causeway.conformance.table import STATUS, Library
from paper_cases import refused

CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.mark.slow
def test_few_cases_compile_for_sm_90(on_paper: dict[str, str]) -> None:
    assert refused("few", on_paper) == []
    programs = list(Path(on_paper["CAUSEWAY_NVIDIA_CACHE"]).iterdir())
    assert len(programs) >= 14  # one a case at least
    assert all(b"\x7fELF" in program.read_bytes() for program in programs)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_case_compiles_for_sm_90(on_paper: dict[str, str]) -> None:
    assert refused("all", on_paper) == []
    assert len(list(Path(on_paper["CAUSEWAY_NVIDIA_CACHE"]).iterdir())) >= 300


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_kernel_over_lists_compiles_for_sm_90(on_paper: dict[str, str]) -> None:
    assert refused("all", on_paper, of="foreach") == []
    assert len(list(Path(on_paper["CAUSEWAY_NVIDIA_CACHE"]).iterdir())) >= 300


def test_a_source_that_does_not_compile_has_the_compilers_words(
    nvidia_library: Path, nvrtc: Path, tmp_path: Path
) -> None:
    given = {"paper": "sm_90", "nvrtc": str(nvrtc), "cache": str(tmp_path)}
    library = Library(str(nvidia_library), given.get)
    code, program = library.code(), C.c_void_p()
    good = b'extern "C" __global__ void good(float* p) { p[0] = 1; }'
    assert STATUS[code.build(0, good, None, C.byref(program))] == "OK", library.words()
    bad = b'extern "C" __global__ void bad(float* p) { p[0] = no_such_name; }'
    assert STATUS[code.build(0, bad, None, C.byref(program))] == "INVALID"
    assert 'identifier "no_such_name" is undefined' in library.words()


BUILD = """
import ctypes as C, sys
from causeway.conformance.table import STATUS, Library
given = {"paper": "sm_90", "nvrtc": sys.argv[2], "cache": sys.argv[3]}
library, program = Library(sys.argv[1], given.get), C.c_void_p()
source = b'extern "C" __global__ void f(float* p) { p[0] = 1; }'
status = STATUS[library.code().build(0, source, None, C.byref(program))]
print(status, "" if status == "OK" else library.words())
"""


@pytest.mark.parametrize("folder", ["cuda_nvrtc", "cu13"])
def test_the_compilers_of_both_wheels_find_what_lies_beside_them(
    run_python: Run, nvidia_library: Path, compilers: list[Path], folder: str, tmp_path: Path
) -> None:
    """CUDA 13's does not say where its second library is, which it opens when it compiles."""
    found = [p for p in compilers if p.parts[-3] == folder]
    if not found:
        pytest.skip("this NVRTC is not here: make nvrtc")
    args = (str(nvidia_library), str(found[0]), str(tmp_path))
    assert run_python(BUILD, args=args, LD_LIBRARY_PATH=None).stdout.strip() == "OK"


KERNEL = b'extern "C" __global__ void f(float* p) { p[threadIdx.x] = 1; }'


def built(library: Library) -> C.c_void_p:
    program, function = C.c_void_p(), C.c_void_p()
    code = library.code()
    assert STATUS[code.build(0, KERNEL, None, C.byref(program))] == "OK", library.words()
    assert STATUS[code.function(program, b"f", C.byref(function))] == "OK", library.words()
    return function


def test_a_device_newer_than_the_compiler_gets_ptx(
    nvidia_library: Path, nvrtc: Path, tmp_path: Path
) -> None:
    given = {"paper": "sm_999", "nvrtc": str(nvrtc), "cache": str(tmp_path)}
    built(Library(str(nvidia_library), given.get))
    (kept,) = tmp_path.iterdir()
    assert b".target sm_" in kept.read_bytes()
    given["paper"] = "sm_90"
    built(Library(str(nvidia_library), given.get))
    assert any(b"\x7fELF" in p.read_bytes() for p in tmp_path.iterdir())


BYTES = """
import torch, causeway.quant
rest = (None, None, 0, False, None, None, 0, 0, torch.float32)
one, weight = torch.ones(1, device="nvidia"), torch.ones(8, 32, dtype=torch.int8, device="nvidia")
for dtype in (torch.int8, torch.uint8):
    x = torch.ones(4, 32, dtype=dtype, device="nvidia")
    torch.ops.causeway.qlinear(x, weight, one, *rest)
"""


def test_products_of_bytes_are_the_chips_own_instructions(
    run_python: Run, on_paper: dict[str, str]
) -> None:
    run_python(BYTES, **on_paper | {"CAUSEWAY_NVIDIA_PAPER": "sm_999"})  # whose PTX is kept
    kept = b"".join(p.read_bytes() for p in Path(on_paper["CAUSEWAY_NVIDIA_CACHE"]).iterdir())
    assert {b"dp4a.s32.s32", b"dp4a.u32.s32"} <= {*re.findall(rb"dp4a\.\w+\.\w+", kept)}


@pytest.mark.parametrize(
    ("grid", "group", "status"),
    [
        ((1 << 20, 1, 1), (1024, 1, 1), "OK"),
        ((1, 65536, 1), (1, 1, 1), "INVALID"),
        ((1, 1, 1), (64, 32, 1), "INVALID"),
        ((1, 1, 1), (1, 1, 65), "INVALID"),
        ((1, 0, 1), (1, 1, 1), "OK"),  # nothing to do
    ],
)
def test_a_launch_keeps_the_drivers_limits(
    nvidia_library: Path, nvrtc: Path, tmp_path: Path,
    grid: tuple[int, ...], group: tuple[int, ...], status: str,
) -> None:  # fmt: skip
    given = {"paper": "sm_90", "nvrtc": str(nvrtc), "cache": str(tmp_path)}
    library = Library(str(nvidia_library), given.get)
    function = built(library)
    sizes = (C.c_uint32 * 3)(*grid), (C.c_uint32 * 3)(*group)
    found = STATUS[library.code().launch(function, *sizes, None, 0, None)]
    assert found == status, library.words()
    if status == "INVALID":
        assert "cannot run in a grid of" in library.words()


def test_memory_streams_and_events_keep_the_contract_on_paper(
    run_python: Run, on_paper: dict[str, str], tmp_path: Path
) -> None:
    """What a driver of the host's makes of them: all checks of the table but those of times and of
    kernels that run. It refuses calls without a current context, or with another device's.
    """
    report = tmp_path / "report.json"
    args = ("conformance", "--level", "0", "--json", str(report))
    run_python(CAUSEWAY, status=None, args=args, **on_paper | {"CAUSEWAY_NVIDIA_PAPER": "sm_90x2"})
    failed = {c["name"] for c in json.loads(report.read_text())["checks"] if c["state"] == "failed"}
    assert failed == set()


ONES = "import torch; torch.ones(3, device='nvidia')"


def test_without_a_driver_importing_works_and_use_says_what_to_install(
    run_python: Run, nvidia_library: Path
) -> None:
    vendor = {"CAUSEWAY_VENDOR": str(nvidia_library)}
    available = run_python("import torch; print(torch.accelerator.is_available())", **vendor)
    if available.stdout.strip() == "True":
        pytest.skip("there is a driver")
    words = run_python(ONES, status=1, **vendor).stderr
    assert "CUDA's driver libcuda.so.1 cannot be opened" in words
    assert "install NVIDIA's driver" in words


def test_without_the_compiler_a_kernel_says_what_to_install(
    run_python: Run, nvidia_library: Path
) -> None:
    env = {"CAUSEWAY_VENDOR": str(nvidia_library), "CAUSEWAY_NVIDIA_PAPER": "sm_90"}
    words = run_python(ONES, **env, CAUSEWAY_NVIDIA_NVRTC="/nowhere/libnvrtc.so").stderr
    assert "pip install nvidia-cuda-nvrtc-cu12" in words
    assert "/nowhere/libnvrtc.so" in words


def test_an_architecture_that_is_none_has_words(run_python: Run, nvidia_library: Path) -> None:
    env = {"CAUSEWAY_VENDOR": str(nvidia_library), "CAUSEWAY_NVIDIA_PAPER": "hopper"}
    assert "expected an architecture, as sm_90" in run_python(ONES, status=1, **env).stderr
