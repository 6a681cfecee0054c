"""The sources of CUDA's kin, looked at without building them or bringing anything."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import warps

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "vendors/cuda/src"
OF_NVIDIA = ("attention", "convolution", "dnn", "kin_cuda")  # the package for CUDA alone has these

pytestmark = pytest.mark.once


@pytest.mark.slow
@pytest.mark.parametrize("kin", ["hip", "maca"])
def test_the_vendor_compiles_with_the_names_of_each_kin(kin: str) -> None:
    compiler = shutil.which("c++") or pytest.skip("there is no C++ compiler")
    others = {"kin_hip", "kin_maca"} - {f"kin_{kin}"}
    files = [f for f in SOURCES.glob("*.cpp") if f.stem not in (*OF_NVIDIA, *others)]
    assert len(files) == 12
    flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-fPIC"]
    command = [compiler, *flags, f"-DCAUSEWAY_KIN_{kin.upper()}", f"-I{ROOT / 'include'}"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_text_of_portable_kernels_knows_a_warp() -> None:
    files = [f for f in (ROOT / "csrc").rglob("*") if f.suffix in (".cl", ".cpp", ".h")]
    texts = [f for f in files if "portable" in f.parts]
    assert len(texts) > 100
    found = {f.name: warps.WORDS.findall(f.read_text()) for f in texts}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "for (int far = 16; far; far /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, far);",
        "for (int far = 16; far; far /= 2) acc += __shfl_xor(acc, far);",
        "if (LANE % 32 == 0) parts[LANE / 32] = acc;",
        "if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = acc;",
        "const unsigned long long some = __ballot(acc > 0);",
    ],
)
def test_a_kernel_that_takes_a_wave_for_32_lanes_is_found(planted: str) -> None:
    source = "#define BARRIER __syncthreads()\nvoid kernel_main() { float acc = 0; %s }"
    assert not warps.WORDS.search(source % "BARRIER;")
    assert warps.WORDS.search(source % planted)


def test_what_is_written_for_a_warp_of_32_is_nvidias_alone() -> None:
    found = {f.stem for f in SOURCES.glob("*.?pp") if warps.WORDS.search(f.read_text())}
    assert found == {"attention_text", "convolution"}
    cmake = (SOURCES.parent / "CMakeLists.txt").read_text()
    only = re.search(r"STREQUAL cuda\)\n\s+list\(APPEND sources (.*?)\)", cmake)
    assert only
    assert set(only[1].split()) == {"attention", "convolution", "dnn"}


def test_each_name_of_maca_has_a_source_in_the_docs() -> None:
    text = "".join((SOURCES / f"{n}_maca.hpp").read_text() for n in ("kin", "blas"))
    named = set(re.findall(r"\b(mc(?:rtc|blas)?[A-Z]\w+)\b", text)) - {"mcBLAS"}
    named = {name for name in named if not name.endswith("_t")}
    documented = set(re.findall(r"`(mc\w+)`", (ROOT / "docs/hip.md").read_text()))
    assert len(named) > 50
    assert named == documented
