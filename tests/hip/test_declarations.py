"""What the vendor declares of HIP, hiprtc and hipBLAS from documentation, against Debian's headers
and libraries, and against a newer HIP's headers. Nothing here runs on a GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = ROOT / "vendors/cuda/src"
HIP = ROOT / "build/hip"
LIBRARIES = HIP / "usr/lib/x86_64-linux-gnu"
HEADERS = {
    "HIP 5.2": ("usr/include", "hipblas/usr/include"),
    "HIP 7.1": ("newer/triton/backends/amd/include",),
}

pytestmark = pytest.mark.once


def compile_declarations(sources: Path, release: str = "HIP 5.2") -> str:
    """What the compiler says of declarations.cpp; "" where all fit."""
    compiler = shutil.which("c++") or pytest.skip("there is no C++ compiler")
    folders = [HIP / folder for folder in HEADERS[release]]
    if not all(folder.is_dir() for folder in folders):
        pytest.skip("HIP's headers are not here: make hip hip-headers")
    command = [
        compiler, "-std=c++17", "-fsyntax-only", "-Wno-deprecated-declarations",
        "-D__HIP_PLATFORM_AMD__", "-DCAUSEWAY_KIN_HIP", "-DKIN_POINTER=void*", f"-I{sources}",
        f"-I{ROOT / 'include'}", *(f"-isystem{folder}" for folder in folders),
        str(HERE / "declarations.cpp"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def changed(folder: Path, file: str, right: str, wrong: str) -> Path:
    """The vendor's headers in `folder`, one of them with `wrong` in the place of `right`."""
    for header in SOURCES.glob("*.hpp"):
        text = header.read_text()
        if header.name == file:
            assert right in re.sub(r"\s+", " ", text)
            text = re.sub(r"\s+".join(map(re.escape, right.split())), wrong, text, count=1)
        (folder / header.name).write_text(text)
    return folder


@pytest.mark.parametrize("release", HEADERS)
def test_declarations_are_those_of_the_headers(release: str) -> None:
    assert compile_declarations(SOURCES, release) == ""


@pytest.mark.parametrize("release", HEADERS)
@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("hipMemsetD8Async, (Address, unsigned char, size_t, Stream)",
         "hipMemsetD8Async, (Address, unsigned char, size_t)", "hipMemsetD8Async"),
        ("hipMemcpyPeerAsync, (Address, Context, Address, Context, size_t, Stream)",
         "hipMemcpyPeerAsync, (Address, Address, size_t, Stream)", "hipMemcpyPeerAsync"),
        ("hipFree, (Address)", "hipFree, (int)", "hipFree"),
        ("hipMemGetInfo, (size_t*, size_t*)", "hipMemGetInfo, (int*, int*)", "hipMemGetInfo"),
        ("kWarpSize = 87", "kWarpSize = 10", "hipDeviceAttributeWarpSize"),
        ("kNotReady = 600", "kNotReady = 34", "hipErrorNotReady"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_caught(
    tmp_path: Path, release: str, right: str, wrong: str, words: str
) -> None:
    assert words in compile_declarations(changed(tmp_path, "kin_hip.hpp", right, wrong), release)


@pytest.mark.parametrize(
    ("file", "right", "wrong", "words"),
    [
        ("kin_hip.hpp", "hiprtcGetCode, (CompilerProgram, char*)",
         "hiprtcGetCode, (CompilerProgram)", "hiprtcGetCode"),
        ("kin_hip.hpp", "kNameInProperties5 = 396", "kNameInProperties5 = 400", "gcnArchName"),
        ("blas_hip.hpp", "kTransposed = 112", "kTransposed = 1", "HIPBLAS_OP_T"),
        ("blas_hip.hpp", "kNotSupported = 7", "kNotSupported = 15", "HIPBLAS_STATUS_NOT_SUPPORTED"),
        ("blas_hip.hpp", "hipblasSetStream, (BlasHandle, Stream)",
         "hipblasSetStream, (BlasHandle)", "hipblasSetStream"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_of_a_library_is_caught(
    tmp_path: Path, file: str, right: str, wrong: str, words: str
) -> None:
    assert words in compile_declarations(changed(tmp_path, file, right, wrong))


def names(sources: Path, header: str, table: str) -> list[str]:
    """The symbols of one table of a header."""
    found = re.search(
        rf"#define {table}\(F\)(.*?)(?:\n\n|\n#)", (sources / header).read_text(), re.S
    )
    assert found
    return re.findall(r"F\(\s*\w+,\s*(\w+)", found[1])


def missing(sources: Path, header: str, table: str, library: Path) -> list[str]:
    """Those that the library does not export."""
    if not library.exists():
        pytest.skip("HIP's libraries are not here: make hip")
    tool = shutil.which("nm") or pytest.skip("there is no nm to look at libraries with")
    command = [tool, "-D", "--defined-only", "--format=posix", str(library)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    there = {line.split(" ")[0].split("@")[0] for line in listed.splitlines()}
    found = names(sources, header, table)
    assert len(found) >= 2
    return [name for name in found if name not in there]


RUNTIME = LIBRARIES / "libamdhip64.so.5"
BLAS = HIP / "hipblas/usr/lib/x86_64-linux-gnu/libhipblas.so.0"
TABLES = [
    ("kin_hip.hpp", "DRIVER_FUNCTIONS", RUNTIME),
    ("kin_hip.hpp", "DRIVER_WORDS", RUNTIME),
    ("kin_hip.hpp", "COMPILER_FUNCTIONS", RUNTIME),
    ("blas_hip.hpp", "BLAS_FUNCTIONS", BLAS),
    ("blas_hip.hpp", "BLAS_PRODUCTS", BLAS),
]


@pytest.mark.parametrize(("header", "table", "library"), TABLES)
def test_the_real_libraries_have_every_function(header: str, table: str, library: Path) -> None:
    assert missing(SOURCES, header, table, library) == []


def test_of_what_may_be_missing_debians_library_lacks_what_came_later() -> None:
    later = missing(SOURCES, "kin_hip.hpp", "DRIVER_LATER_FUNCTIONS", RUNTIME)
    assert later == ["hipGetDevicePropertiesR0600", "hipLaunchHostFunc"]  # of HIP 6, of 5.3


def test_a_name_that_no_library_has_is_caught(tmp_path: Path) -> None:
    changed(tmp_path, "kin_hip.hpp", "F(alloc, hipMalloc,", "F(alloc, hipMemAlloc,")
    found = missing(tmp_path, "kin_hip.hpp", "DRIVER_FUNCTIONS", RUNTIME)
    assert found == ["hipMemAlloc"]
